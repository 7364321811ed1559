#!/usr/bin/env bash
# slurm-down.sh - stop the test Slurm that slurm-up.sh started, by pid.  Idempotent.
# KEEP=1 keeps the state directory and the queue (a later slurm-up.sh resumes both; jobs run on).
set -uo pipefail
: "${SLURM_DIR:=${TMPDIR:-/tmp}/test-slurm}"
export SLURM_CONF=$SLURM_DIR/slurm.conf
log() { printf 'slurm-down: %s\n' "$*" >&2; }

# a pid file's pid, only if that process really is the named program (pids get reused)
pid_of() {
  local pid; [[ -s $1 ]] || return 1
  pid=$(<"$1"); [[ $pid =~ ^[0-9]+$ ]] || return 1
  [[ $(readlink "/proc/$pid/exe" 2>/dev/null) == */$2* ]] || return 1
  echo "$pid"
}
stop() {  # TERM every pid, wait for all up to 10 s, KILL what is left
  local pid left; (($#)) || return 0
  kill -TERM "$@" 2>/dev/null
  for ((i = 0; i < 200; i++)); do
    left=(); for pid; do [[ -e /proc/$pid/exe ]] && left+=("$pid"); done  # a zombie has no exe
    ((${#left[@]})) || return 0; sleep 0.05
  done
  log "ignored TERM: ${left[*]}"; kill -KILL "${left[@]}" 2>/dev/null
}
# what a dead slurmd left behind: slurmstepds (and their tasks) of this very cluster
leftovers() {
  local p
  for p in /proc/[0-9]*; do
    [[ ${p#/proc/} == "$$" || ${p#/proc/} == "$BASHPID" || ${p#/proc/} == "$PPID" ]] && continue
    if [[ $(readlink "$p/exe" 2>/dev/null) == */slurmstepd* ]]; then
      [[ -n $(find "$p/fd" -lname "$SLURM_DIR/*" -print -quit 2>/dev/null) ]] && echo "${p#/proc/}"
    elif grep -qzE '^SLURM_JOB_ID=' "$p/environ" 2>/dev/null && grep -qzxF "SLURM_CONF=$SLURM_CONF" "$p/environ" 2>/dev/null; then
      echo "${p#/proc/}"
    fi
  done
}

[[ -d $SLURM_DIR/pid ]] || { log "nothing to stop in $SLURM_DIR"; exit 0; }
if [[ ${KEEP:-0} != 1 ]] && pid_of "$SLURM_DIR/pid/slurmctld.pid" slurmctld >/dev/null; then
  scancel --quiet --user="$(id -un)" 2>/dev/null
  for ((i = 0; i < 60; i++)); do       # KillWait is 5 s: a task that ignores TERM needs that long
    [[ -z $(squeue -h -t running,completing,suspended,configuring -o %i 2>/dev/null) ]] && break; sleep 0.1
  done
fi
pids=()
for f in "$SLURM_DIR"/pid/slurmd-*.pid; do pid=$(pid_of "$f" slurmd) && pids+=("$pid"); done
pid=$(pid_of "$SLURM_DIR/pid/slurmctld.pid" slurmctld) && pids+=("$pid")
stop "${pids[@]}"
if [[ ${KEEP:-0} != 1 ]]; then
  mapfile -t pids < <(leftovers); ((${#pids[@]})) && { log "killing leftovers ${pids[*]}"; kill -KILL "${pids[@]}" 2>/dev/null; }
fi
pids=(); pid=$(pid_of "$SLURM_DIR/pid/slurmdbd.pid" slurmdbd) && pids+=("$pid")
stop "${pids[@]}"
pids=(); pid=$(pid_of "$SLURM_DIR/pid/mariadbd.pid" mariadbd) && pids+=("$pid")
pid=$(pid_of "$SLURM_DIR/pid/munged.pid" munged) && pids+=("$pid")
stop "${pids[@]}"
[[ ${KEEP:-0} == 1 ]] || rm -rf "$SLURM_DIR"
log "down"
