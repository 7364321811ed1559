"""The table of a results folder: a row for each experiment, and a row for each run."""
