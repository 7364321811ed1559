#!/bin/bash
#SBATCH --job-name=tb-0a1b2c3d.0007
#SBATCH --array=0-1000%20
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:h100:8
#SBATCH --cpus-per-task=128
#SBATCH --mem-per-gpu=64G
#SBATCH --time=1-01:02:00
#SBATCH --partition=gpu
#SBATCH --account=ml-bench
#SBATCH --qos=long
#SBATCH --constraint=nvlink&h100
#SBATCH --exclusive
#SBATCH --comment=nightly

module purge
module load cuda/12.8

export TMPDIR="/local/$USER scratch"
mkdir -p "$TMPDIR"
exec /env/bin/python -P /env/orchestrator/__main__.py run-array '/home/me/it'"'"'s here/slurm/0007' "$SLURM_ARRAY_TASK_ID"
