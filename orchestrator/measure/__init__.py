"""From the files of a run to numbers, or to the cause of its failure. `metrics` says what each number means."""
