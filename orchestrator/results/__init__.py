"""The results folder: claims of runs, due runs, and records. `table` makes a table of the folder."""
