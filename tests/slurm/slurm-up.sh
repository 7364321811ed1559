#!/usr/bin/env bash
# slurm-up.sh - a real Slurm (slurmctld + N slurmd "nodes" with fake GPUs) on one machine,
# for tests.  Idempotent: when the cluster is already up it only prints the environment.
#
#   eval "$(./slurm-up.sh)"        # exports SLURM_CONF, so srun/sbatch/... talk to this cluster
#   ./slurm-down.sh
#
# Needs (Debian 12): apt-get install -y --no-install-recommends slurm-wlm munge
#   SLURM_DBD=1 (sacct):  ... slurmdbd mariadb-server-core mariadb-client-core
# Runs as root, or as any user (then jobs run as that user).
set -euo pipefail

: "${SLURM_DIR:=${TMPDIR:-/tmp}/test-slurm}"     # all state lives here; nothing is written to /etc or /var
: "${SLURM_NODES:=3}"                         # number of slurmd "nodes": n1..nN
: "${SLURM_CPUS:=8}"                          # CPUs each node claims (no relation to the real ones)
: "${SLURM_MEM:=8000}"                        # MB each node claims
: "${SLURM_GPUS:=4}"                          # fake GPUs on each node
: "${SLURM_PORT:=17000}"                      # slurmctld; slurmd i listens on SLURM_PORT+i; srun uses +100..+299
: "${SLURM_MINJOBAGE:=300}"                   # seconds a finished job stays visible to squeue/scontrol
: "${SLURM_MAXARRAY:=1001}"                   # MaxArraySize (highest index + 1); 1001 is Slurm's own default
: "${SLURM_DBD:=0}"                           # 1: accounting too (mariadbd + slurmdbd), so that sacct answers
: "${SLURM_EXTRA:=}"                          # extra slurm.conf lines (newline separated)

export SLURM_CONF=$SLURM_DIR/slurm.conf
PATH=$PATH:/usr/sbin:/sbin
log() { printf 'slurm-up: %s\n' "$*" >&2; }
die() { log "$*"; exit 1; }
# pid file -> is that program running? (pids get reused, and a zombie has no exe)
alive() { [[ -s $1 && $(readlink "/proc/$(<"$1")/exe") == */$2* ]]; }

need="slurm-wlm munge"; tools="munged slurmctld slurmd scontrol"
if [[ $SLURM_DBD == 1 ]]; then
  need+=" slurmdbd mariadb-server-core mariadb-client-core"; tools+=" slurmdbd mariadbd mariadb-install-db mariadb"
fi
for tool in $tools; do
  command -v "$tool" >/dev/null || die "$tool is missing: apt-get install -y --no-install-recommends $need"
done

((${#SLURM_DIR} <= 80)) || die "SLURM_DIR is too long for a unix socket path: $SLURM_DIR"
me=$(id -un)
mkdir -p "$SLURM_DIR"/{munge,ctld,spool,log,pid,dev,out}
chmod 755 "$SLURM_DIR" "$SLURM_DIR/munge"

# ---- munge: own key, own socket ---------------------------------------------------------
if ! alive "$SLURM_DIR/pid/munged.pid" munged; then
  [[ -s $SLURM_DIR/munge/key ]] || { (umask 077; head -c 128 /dev/urandom >"$SLURM_DIR/munge/key"); }
  munged --force --key-file="$SLURM_DIR/munge/key" --socket="$SLURM_DIR/munge/socket" \
         --pid-file="$SLURM_DIR/pid/munged.pid" --log-file="$SLURM_DIR/log/munged.log" \
         --seed-file="$SLURM_DIR/munge/seed" --num-threads=2 2>>"$SLURM_DIR/log/munged.err" \
    || die "munged did not start: $(tail -3 "$SLURM_DIR/log/munged.err")"
fi

# ---- fake GPU device files --------------------------------------------------------------
# Slurm sets CUDA_VISIBLE_DEVICES only for gres with File=, and File= must be a char/block device.
# Root makes copies of /dev/null; without CAP_MKNOD borrow /dev/tty0.. (only their numbers matter).
gpudev=$SLURM_DIR/dev/gpu
for ((g = 0; g < SLURM_GPUS; g++)); do
  [[ -c $gpudev$g ]] || mknod -m 666 "$gpudev$g" c 1 3 2>/dev/null || gpudev=/dev/tty
  [[ -c $gpudev$g ]] || die "cannot make a fake GPU: mknod is refused and $gpudev$g is not there"
done

# ---- slurm.conf / gres.conf -------------------------------------------------------------
nodes="n[1-$SLURM_NODES]"; ports="$((SLURM_PORT + 1))-$((SLURM_PORT + SLURM_NODES))"
((SLURM_NODES == 1)) && { nodes=n1; ports=$((SLURM_PORT + 1)); }
gres=; gresconf=
if ((SLURM_GPUS > 0)); then
  gres="Gres=gpu:$SLURM_GPUS"
  files=${gpudev}0; ((SLURM_GPUS > 1)) && files="${gpudev}[0-$((SLURM_GPUS - 1))]"
  gresconf="NodeName=$nodes Name=gpu File=$files"
fi
acct="AccountingStorageType=accounting_storage/none"
[[ $SLURM_DBD == 1 ]] && acct="AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort=$((SLURM_PORT + 99))
AccountingStoragePass=$SLURM_DIR/munge/socket
AccountingStorageTRES=gres/gpu
AccountingStoreFlags=job_comment"
cat >"$SLURM_CONF.new" <<CONF
ClusterName=test
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort=$SLURM_PORT
SlurmUser=$me
SlurmdUser=$me
AuthType=auth/munge
AuthInfo=socket=$SLURM_DIR/munge/socket
CredType=cred/munge
StateSaveLocation=$SLURM_DIR/ctld
SlurmctldPidFile=$SLURM_DIR/pid/slurmctld.pid
SlurmctldLogFile=$SLURM_DIR/log/slurmctld.log
SlurmdSpoolDir=$SLURM_DIR/spool/%n
SlurmdPidFile=$SLURM_DIR/pid/slurmd-%n.pid
SlurmdLogFile=$SLURM_DIR/log/slurmd-%n.log
SlurmdParameters=config_overrides
SrunPortRange=$((SLURM_PORT + 100))-$((SLURM_PORT + 299))
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
$acct
JobCompType=jobcomp/filetxt
JobCompLoc=$SLURM_DIR/log/jobcomp.txt
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,sched_interval=2,bf_interval=2
GresTypes=gpu
MinJobAge=$SLURM_MINJOBAGE
MaxArraySize=$SLURM_MAXARRAY
MaxJobCount=20000
KillWait=5
SlurmdTimeout=10
SlurmctldTimeout=10
InactiveLimit=0
NodeName=$nodes NodeHostname=localhost NodeAddr=127.0.0.1 Port=$ports CPUs=$SLURM_CPUS RealMemory=$SLURM_MEM $gres State=UNKNOWN
PartitionName=main Nodes=$nodes Default=YES MaxTime=INFINITE DefMemPerCPU=100 State=UP
$SLURM_EXTRA
CONF
printf '%s\n' "$gresconf" >"$SLURM_DIR/gres.conf.new"
for f in slurm.conf gres.conf; do
  if ! cmp -s "$SLURM_DIR/$f.new" "$SLURM_DIR/$f"; then
    alive "$SLURM_DIR/pid/slurmctld.pid" slurmctld && die "the cluster is up with another $f: slurm-down.sh first"
    mv "$SLURM_DIR/$f.new" "$SLURM_DIR/$f"
  else rm "$SLURM_DIR/$f.new"; fi
done

# ---- accounting: mariadbd on a unix socket, then slurmdbd --------------------------------
if [[ $SLURM_DBD == 1 ]]; then
  db=$SLURM_DIR/mariadb; export MYSQL_UNIX_PORT=$db/socket; sql=(mariadb --no-defaults -S "$db/socket" -u root)
  if ! alive "$SLURM_DIR/pid/mariadbd.pid" mariadbd; then
    mkdir -p "$db"
    [[ -d $db/data/mysql ]] || mariadb-install-db --no-defaults --user="$me" --datadir="$db/data" \
      --auth-root-authentication-method=normal --skip-test-db >"$SLURM_DIR/log/mariadb-install.log" 2>&1
    mariadbd --no-defaults --user="$me" --datadir="$db/data" --socket="$db/socket" --skip-networking \
      --pid-file="$SLURM_DIR/pid/mariadbd.pid" --innodb-buffer-pool-size=32M --innodb-log-file-size=8M \
      --innodb-lock-wait-timeout=900 --innodb-flush-log-at-trx-commit=0 >"$SLURM_DIR/log/mariadbd.log" 2>&1 &
    for ((i = 0; i < 200; i++)); do "${sql[@]}" -e 'select 1' >/dev/null 2>&1 && break; sleep 0.05; done
    "${sql[@]}" -e "create user if not exists slurm@localhost identified by 'slurm'; grant all on slurm_acct_db.* to slurm@localhost"
  fi
  if ! alive "$SLURM_DIR/pid/slurmdbd.pid" slurmdbd; then
    (umask 077; cat >"$SLURM_DIR/slurmdbd.conf" <<CONF
AuthType=auth/munge
AuthInfo=socket=$SLURM_DIR/munge/socket
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort=$((SLURM_PORT + 99))
SlurmUser=$me
PidFile=$SLURM_DIR/pid/slurmdbd.pid
LogFile=$SLURM_DIR/log/slurmdbd.log
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=slurm
StoragePass=slurm
StorageLoc=slurm_acct_db
CONF
    )
    slurmdbd >>"$SLURM_DIR/log/slurmdbd.out" 2>&1
    for ((i = 0; i < 200; i++)); do sacctmgr -n list cluster >/dev/null 2>&1 && break; sleep 0.05; done
  fi
  [[ -n $(sacctmgr -n list cluster test 2>/dev/null) ]] || sacctmgr -i add cluster test >>"$SLURM_DIR/log/slurmdbd.out" 2>&1 || true
fi

# ---- daemons ----------------------------------------------------------------------------
alive "$SLURM_DIR/pid/slurmctld.pid" slurmctld || slurmctld -f "$SLURM_CONF" >>"$SLURM_DIR/log/slurmctld.out" 2>&1
for ((i = 1; i <= SLURM_NODES; i++)); do
  mkdir -p "$SLURM_DIR/spool/n$i"
  alive "$SLURM_DIR/pid/slurmd-n$i.pid" slurmd || slurmd -N "n$i" -f "$SLURM_CONF" >>"$SLURM_DIR/log/slurmd-n$i.out" 2>&1
done

# ---- wait until every node is idle/allocated --------------------------------------------
deadline=$((SECONDS + 30))
until up=$(sinfo -h -N -p main -o '%T' 2>/dev/null | grep -cE '^(idle|allocated|mixed|completing)$') && ((up == SLURM_NODES)); do
  ((SECONDS < deadline)) || { sinfo -N -l >&2 || true; tail -n 5 "$SLURM_DIR"/log/*.log >&2; die "the nodes did not come up in 30 s"; }
  sleep 0.1
done
log "$SLURM_NODES nodes x $SLURM_GPUS fake GPUs are up"
echo "export SLURM_CONF=$SLURM_CONF"
