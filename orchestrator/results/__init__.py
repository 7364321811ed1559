"""The results folder: claims of runs, runs that are due, records. `table` makes a table from it."""
