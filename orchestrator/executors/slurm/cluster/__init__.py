"""A Slurm cluster as its own commands describe it, and the comparison of a site file with it."""
