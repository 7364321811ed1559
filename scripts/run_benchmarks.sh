#!/usr/bin/env bash
# Runs benchmarks and reports them: positional arguments and environment switches -> one `tunebench run`.
#
#   bash scripts/run_benchmarks.sh [NUM_GPUS_MATRIX] [RESULT_DIR] [SCENARIOS_CONFIG] [SCENARIOS_FILTER]
#
#   NUM_GPUS_MATRIX   process counts, "1 2"; the scenarios' own when empty
#   RESULT_DIR        results folder (benchmark_outputs); an older results folder is moved aside under a dated name
#   SCENARIOS_CONFIG  scenario file (the shipped scenarios.yaml); looked for here, then in the repository
#   SCENARIOS_FILTER  names, "lora qlora"; `none` is all that are not slow (quickstart in the shipped file, else none)
#
#   DRY_RUN=true               show the plan, write and run nothing
#   NO_OVERWRITE=true          resume into RESULT_DIR instead of moving it aside
#   NO_DATA_PROCESSING=true    use the data that was prepared before
#   MEMORY_LOGGING=huggingface|nvidia|all|none     what watches memory (huggingface)
#   EFFECTIVE_BS_MATRIX="4 8"  effective batch sizes, instead of the scenarios' own
#   PYTHON=FILE                interpreter that has tunebench's requirements (python)
set -euo pipefail

if [[ "${1:-}" == -h || "${1:-}" == --help ]]; then
  awk 'NR > 1 && !/^#/ { exit } NR > 1 { sub(/^# ?/, ""); print }' "${BASH_SOURCE[0]}"
  exit
fi

root="$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)"
python="${PYTHON:-$(command -v python || command -v python3)}"

num_gpus="${1:-}"
results="${2:-benchmark_outputs}"
config="${3:-scenarios.yaml}"
[[ -n "${3:-}" && -e "$config" ]] || [[ "$config" == /* ]] || config="$root/$config"
filter="${*:4}"
if [[ -z "$filter" && "$config" -ef "$root/scenarios.yaml" ]]; then
  filter=quickstart
fi

# "1 2" or "1,2" -> 1,2
commas() { local words; read -ra words <<<"${1//,/ }"; (IFS=,; echo "${words[*]}"); }

options=(--results "$results" --memory "${MEMORY_LOGGING:-huggingface}" --yes)
[[ -z "$num_gpus" ]] || options+=(--num-gpus "$(commas "$num_gpus")")
[[ -z "${EFFECTIVE_BS_MATRIX:-}" ]] || options+=(--axis "effective_batch_size=$(commas "$EFFECTIVE_BS_MATRIX")")
[[ "${NO_DATA_PROCESSING:-}" != true ]] || options+=(--no-data-processing)
[[ "${NO_OVERWRITE:-}" == true ]] || options+=(--move-aside)
[[ "${DRY_RUN:-}" != true ]] || options+=(--dry-run)
if [[ "$filter" != none ]]; then
  for name in $filter; do options+=(--scenario "$name"); done
fi

# In a checkout that is not installed, Python finds the package in the repository.
"$python" -c 'import orchestrator' 2>/dev/null || export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
exec "$python" -m orchestrator run "$config" "${options[@]}"
