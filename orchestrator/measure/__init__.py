"""Numbers from the files of a run, or the cause of the run's failure. `metrics` says what each number means."""
