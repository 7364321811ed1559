"""The executor `slurm` submits runs as arrays of batch jobs to a Slurm cluster."""
