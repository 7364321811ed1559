done
export A=1
export CUDA_DEVICE_ORDER=PCI_BUS_ID
unset CUDA_VISIBLE_DEVICES
export OMP_NUM_THREADS=4
unset PYTHONHOME
unset PYTHONPATH
export PYTHONUNBUFFERED=1
export TOKENIZERS_PARALLELISM=false
export TUNEBENCH_RUN_DIR="$folder"
unset WANDB_MODE
mkdir -p -- "$folder"/work
CDPATH='' cd -- "$folder"/work
exec srun \
  --nodes=1 \
  --ntasks=1 \
  --ntasks-per-node=1 \
  --kill-on-bad-exit=1 \
  --export=ALL,HOME=/cache/environments/0123456789ab/home,HF_HOME=/home/u/.cache/huggingface,PATH=/opt/bin \
  --gres=gpu:2 \
  --mpi=none \
  --cpu-bind=none \
  --container-image=IMAGE \
  --container-mounts=/results:/results,/package/workers:/package/workers:ro,/models:/data,"$folder":"$folder" \
  --container-workdir="$folder"/work \
  --container-env=HOME,HF_HOME,PATH,HF_TOKEN,NCCL_DEBUG,CUDA_DEVICE_ORDER,CUDA_VISIBLE_DEVICES,OMP_NUM_THREADS,PYTHONUNBUFFERED,TOKENIZERS_PARALLELISM,TUNEBENCH_RUN_DIR,A \
  --no-container-mount-home \
  --no-container-remap-root \
  --no-container-entrypoint python \
  -m accelerate.commands.launch \
  --config_file "$folder"/accelerate.yaml \
  --main_process_port "$port" "$folder"/tunebench-instrument.py -- WORKERS/sft/sft.py \
  --output_dir "$folder"/output
