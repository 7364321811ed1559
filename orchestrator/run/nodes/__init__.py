"""What a run on several nodes needs besides its command. Slurm has given it the nodes."""
