"""The identity of an experiment: its id, and the digests of the files that a user's own command or script runs."""
