#!/bin/bash
#SBATCH --job-name=tb-0a1b2c3d.0007
#SBATCH --array=0-2
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=4
#SBATCH --time=00:10:00

exec /env/bin/python -P /env/orchestrator/__main__.py run-array '/home/me/it'"'"'s here/slurm/0007' "$SLURM_ARRAY_TASK_ID"
