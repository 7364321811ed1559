"""Read the two sides of a comparison from results folders, CSV files or JSON of pytest-benchmark, and pair their experiments."""
