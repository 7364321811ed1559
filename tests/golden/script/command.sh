#!/bin/bash
# Repeats this run by hand: bash command.sh [FOLDER]
# The recorded run is not touched: what the repeat writes goes into FOLDER (new or empty; by default a temporary one).
set -euo pipefail
folder="${1:-$(mktemp -d "${TMPDIR:-/tmp}/tunebench-repeat.XXXXXX")}"
case "$folder" in /*) ;; *) folder="./$folder" ;; esac
mkdir -p -- "$folder"
folder="$(CDPATH='' cd -- "$folder" && pwd -P)"
if [ -n "$(ls -A -- "$folder")" ]; then
  echo "command.sh: $folder is not empty; name a new folder" >&2
  exit 2
fi
echo "command.sh: this repeat writes into $folder" >&2
here="$(CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)"
[ -e "$here/job.json" ] || here=/results/experiments/x-1/runs/r1-t1
port="$(/env/bin/python -c 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])')"
for name in $(compgen -e); do
  case "$name" in
    ACCELERATE_*|FSDP_*|PARALLELISM_CONFIG_*|TORCHELASTIC_*|PET_*|MASTER_*|RANK|LOCAL_RANK|NODE_RANK|GROUP_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|GROUP_WORLD_SIZE|ROLE_*|OMP_NUM_THREADS|MKL_NUM_THREADS|OMPI_COMM_WORLD_*|PMI_*|MV2_COMM_WORLD_*|ACCELERATION_FRAMEWORK_*|TUNEBENCH_RUN|TUNEBENCH_RUN_DIR|TUNEBENCH_INSTRUMENT|TUNEBENCH_MEASURE|TUNEBENCH_MEMORY_TRACKER|TUNEBENCH_PROFILE|TUNEBENCH_TOGGLE_STEPS|PYTEST_XDIST_*) unset "$name" ;;
  esac
done
export CUDA_VISIBLE_DEVICES=0,1
export HF_TOKEN="${HF_TOKEN:?is a secret and was not written down: export it first}"
export LOGS=/results/experiments/x-1/runs/r1-t10/x:"$folder"/logs
unset NCCL_DEBUG
export TUNEBENCH_RUN_DIR="$folder"
CDPATH='' cd -- "$folder"
exec /env/bin/python \
  -m accelerate.commands.launch \
  --config_file "$here"/accelerate.yaml \
  --main_process_port "$port" "$here"/tunebench-instrument.py /pkg/sft.py \
  --learning_rate -1e-5 \
  --response_template '
### Response:' \
  --output_dir "$folder"/output \
  --hub_token "${HUB_TOKEN:?is a secret and was not written down: export it first}"
