"""Needs of a run on several nodes besides its command. Slurm has given the run its nodes."""
