"""The identity of an experiment: its id, and the content of the files that a user's own command or script runs."""
