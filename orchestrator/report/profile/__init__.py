"""Profiles of steps: read from the traces of torch's profiler, compared with each other, and shown."""
