"""Runs that are made before a campaign to learn something for it: what fits in memory, and what concurrent runs cost."""
