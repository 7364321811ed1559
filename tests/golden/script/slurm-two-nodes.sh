#!/bin/bash
#SBATCH --job-name=tb-0a1b2c3d.0007
#SBATCH --array=0-1
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:a100:8
#SBATCH --time=02:00:00

exec /env/bin/python -P /env/orchestrator/__main__.py run-array '/home/me/it'"'"'s here/slurm/0007' "$SLURM_ARRAY_TASK_ID"
