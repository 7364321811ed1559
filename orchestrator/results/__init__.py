"""The results folder: who claimed a run, what is due, what was recorded; `table` is the table made from it."""
