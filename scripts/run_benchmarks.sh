#!/usr/bin/env bash
# Runs benchmarks and reports them: positional arguments and environment switches -> one `tunebench run`.
#
#   bash scripts/run_benchmarks.sh [NUM_GPUS_MATRIX] [EFFECTIVE_BS_MATRIX] [RESULT_DIR] [SCENARIOS_CONFIG] [SCENARIOS_FILTER]
#
#   NUM_GPUS_MATRIX      process counts, "1 2"; the scenarios' own when empty
#   EFFECTIVE_BS_MATRIX  effective batch sizes, "4 8". Only numbers are read as this position, so it may be left out.
#   RESULT_DIR           results folder (benchmark_outputs); an older results folder is moved aside under a dated name.
#                        Write ./8 for a folder whose name is a number.
#   SCENARIOS_CONFIG     scenario file (the shipped scenarios.yaml); looked for here, then in the repository
#   SCENARIOS_FILTER     names, "lora qlora"; `none` is all that are not slow (quickstart in the shipped file, else none)
#
#   Switches: 1, true or yes is yes; 0, false, no or empty is no
#   DRY_RUN                    show the plan, write and run nothing
#   NO_OVERWRITE               resume into RESULT_DIR instead of moving it aside
#   NO_DATA_PROCESSING         use the data that was prepared before
#
#   MEMORY_LOGGING=huggingface|nvidia|all|none     monitor of the memory (huggingface)
#   EFFECTIVE_BS_MATRIX="4 8"  as the position
#   TRAINER=NAME               trainer of all scenarios, such as fms_hf_tuning
#   FRAMEWORKS=DIR             folder of framework configurations
#   PYTHON=FILE                interpreter that has tunebench's requirements (python; if it lacks them, the command tunebench)
set -euo pipefail

if [[ "${1:-}" == -h || "${1:-}" == --help ]]; then
  awk 'NR > 1 && !/^#/ { exit } NR > 1 { sub(/^# ?/, ""); print }' "${BASH_SOURCE[0]}"
  exit
fi

script="$(readlink -f -- "${BASH_SOURCE[0]}")"
root="$(CDPATH='' cd -- "$(dirname -- "$script")/.." && pwd -P)"
python="${PYTHON:-$(command -v python || command -v python3 || true)}"

is_yes() {
  case "$(tr '[:upper:]' '[:lower:]' <<<"${!1:-}")" in
    1 | true | yes) true ;;
    0 | false | no | '') false ;;
    *) echo "$1=${!1} is invalid; write 1, true or yes, or 0, false or no" >&2; exit 2 ;;
  esac
}
dry_run=no overwrite=yes process_data=yes
if is_yes DRY_RUN; then dry_run=yes; fi
if is_yes NO_OVERWRITE; then overwrite=no; fi
if is_yes NO_DATA_PROCESSING; then process_data=no; fi

# The reference's script has the effective batch sizes as its second position. Numbers are batch sizes, other words a folder.
# An empty word is the batch sizes if a folder follows it, or a scenario file two positions later.
batch_sizes="${EFFECTIVE_BS_MATRIX:-}"
num_gpus="${1:-}"
is_yaml() { [[ "${1:-}" =~ \.ya?ml$ ]]; }
has_batch_sizes() {
  [[ "${2:-}" =~ ^[0-9,[:space:]]+$ ]] || { [[ $# -ge 3 && -z "$2" ]] && { is_yaml "${4:-}" || { [[ -n "$3" ]] && ! is_yaml "$3"; }; }; }
}
if has_batch_sizes "$@"; then
  batch_sizes="${2:-$batch_sizes}"
  set -- "$1" "${@:3}"
fi
results="${2:-benchmark_outputs}"
config="${3:-scenarios.yaml}"
[[ -n "${3:-}" && -e "$config" ]] || [[ "$config" == /* ]] || config="$root/$config"
if [[ ! -e "$config" && "$config" != "${3:-}" ]]; then
  echo "error: ${3:-scenarios.yaml}: there is no such file in $PWD, and none in $root; check the path, or write one with \`tunebench init\`" >&2
  exit 2
fi
filter="${*:4}"
if [[ -z "$filter" && "$config" -ef "$root/scenarios.yaml" ]]; then
  filter=quickstart
fi

# "1 2" or "1,2" -> 1,2. Words may also be on several lines, as `seq` prints them.
one_line() { echo "${1//[[:space:]]/ }"; }
commas() { local words; read -ra words <<<"$(one_line "${1//,/ }")"; (IFS=,; echo "${words[*]}"); }

options=(--results "$results" --memory "${MEMORY_LOGGING:-huggingface}" --yes)
[[ -z "$num_gpus" ]] || options+=(--num-gpus "$(commas "$num_gpus")")
[[ -z "$batch_sizes" ]] || options+=(--axis "effective_batch_size=$(commas "$batch_sizes")")
[[ -z "${TRAINER:-}" ]] || options+=(--trainer "$TRAINER")
[[ -z "${FRAMEWORKS:-}" ]] || options+=(--frameworks "$FRAMEWORKS")
[[ "$process_data" == yes ]] || options+=(--no-data-processing)
[[ "$overwrite" == no ]] || options+=(--move-aside)
[[ "$dry_run" == no ]] || options+=(--dry-run)
if [[ "$filter" != none ]]; then
  read -ra names <<<"$(one_line "$filter")"
  for name in "${names[@]}"; do options+=(--scenario "$name"); done
fi

can_start() { "$python" -c 'import orchestrator.cli' 2>/dev/null; }
program=("$python" -m orchestrator)
if ! can_start; then
  # In a checkout that is not installed, Python finds the package in the repository.
  if PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}" can_start; then
    export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
  elif [[ -z "${PYTHON:-}" ]] && command -v tunebench >/dev/null; then
    program=(tunebench)
  else
    echo "error: ${python:-python} cannot import Tunebench's requirements; activate their environment, or write PYTHON=FILE with its interpreter" >&2
    exit 2
  fi
fi
exec "${program[@]}" run "$config" "${options[@]}"
