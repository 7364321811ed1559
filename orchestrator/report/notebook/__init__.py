"""Results in a notebook: the functions behind `tunebench.load` (`frames`) and `tunebench.plot` (`plot`)."""
