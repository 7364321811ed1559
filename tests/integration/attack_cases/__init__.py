"""Cases of `attacks.py`, a module for each area."""
