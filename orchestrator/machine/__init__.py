"""This computer: its GPUs and cores, its process trees, and what is installed on it."""
