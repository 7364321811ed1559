"""The commands that read results folders."""
