"""Results in a notebook: the function behind `tunebench.load` (`frames`)."""
