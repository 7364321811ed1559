done
export A=1
export APPTAINERENV_A=1
export APPTAINERENV_CUDA_DEVICE_ORDER=PCI_BUS_ID
export APPTAINERENV_CUDA_VISIBLE_DEVICES=4,5
export APPTAINERENV_HF_HOME=/home/u/.cache/huggingface
export APPTAINERENV_HF_TOKEN="${HF_TOKEN:?is a secret and was not written down: export it first}"
export APPTAINERENV_NCCL_DEBUG=WARN
export APPTAINERENV_OMP_NUM_THREADS=4
export APPTAINERENV_PATH=/opt/bin
export APPTAINERENV_PYTHONUNBUFFERED=1
export APPTAINERENV_TOKENIZERS_PARALLELISM=false
export APPTAINERENV_TUNEBENCH_RUN_DIR="$folder"
export CUDA_DEVICE_ORDER=PCI_BUS_ID
export CUDA_VISIBLE_DEVICES=4,5
export OMP_NUM_THREADS=4
unset PYTHONHOME
unset PYTHONPATH
export PYTHONUNBUFFERED=1
export TOKENIZERS_PARALLELISM=false
export TUNEBENCH_RUN_DIR="$folder"
unset WANDB_MODE
mkdir -p -- "$folder"/work
CDPATH='' cd -- "$folder"/work
exec apptainer exec \
  --cleanenv \
  --no-eval \
  --home=/cache/environments/0123456789ab/home \
  --nv \
  --bind=/results:/results \
  --bind=/package/workers:/package/workers:ro \
  --bind=/models:/data \
  --bind="$folder":"$folder" \
  --pwd="$folder"/work IMAGE python \
  -m accelerate.commands.launch \
  --config_file "$folder"/accelerate.yaml \
  --main_process_port "$port" "$folder"/tunebench-instrument.py -- WORKERS/sft/sft.py \
  --output_dir "$folder"/output
