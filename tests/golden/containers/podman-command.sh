done
export A=1
export CUDA_DEVICE_ORDER=PCI_BUS_ID
export CUDA_VISIBLE_DEVICES=4,5
export OMP_NUM_THREADS=4
export PYTHONUNBUFFERED=1
export TOKENIZERS_PARALLELISM=false
export TUNEBENCH_RUN_DIR="$folder"
unset WANDB_MODE
mkdir -p -- "$folder"/work
CDPATH='' cd -- "$folder"/work
exec podman run \
  --rm \
  --pull=never \
  --entrypoint= \
  --log-driver=none \
  --network=host \
  --ipc=host \
  --pid=host \
  --pids-limit=-1 \
  --security-opt=label=disable \
  --cidfile="$folder"/container.id \
  --userns=keep-id \
  --device=nvidia.com/gpu=all \
  --env=HOME=/cache/environments/0123456789ab/home \
  --env=HF_HOME=/home/u/.cache/huggingface \
  --env=PATH=/opt/bin \
  --env=HF_TOKEN \
  --env=NCCL_DEBUG \
  --env=CUDA_DEVICE_ORDER \
  --env=CUDA_VISIBLE_DEVICES \
  --env=OMP_NUM_THREADS \
  --env=PYTHONUNBUFFERED \
  --env=TOKENIZERS_PARALLELISM \
  --env=TUNEBENCH_RUN_DIR \
  --env=A \
  --env=TUNEBENCH_RUN \
  --unsetenv=WANDB_MODE \
  --volume=/results:/results \
  --volume=/package/workers:/package/workers:ro \
  --volume=/models:/data \
  --volume="$folder":"$folder" \
  --workdir="$folder"/work IMAGE python \
  -m accelerate.commands.launch \
  --config_file "$folder"/accelerate.yaml \
  --main_process_port "$port" "$folder"/tunebench-instrument.py -- WORKERS/sft/sft.py \
  --output_dir "$folder"/output
