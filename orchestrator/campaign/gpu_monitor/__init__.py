"""`tunebench monitor`: what the GPUs are doing now."""
