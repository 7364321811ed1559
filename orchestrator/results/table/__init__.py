"""The table of a results folder: a row for each experiment, and one for each run."""
