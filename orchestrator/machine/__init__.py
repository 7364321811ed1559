"""This computer: its GPUs and cores, its process trees, and the software on it."""
