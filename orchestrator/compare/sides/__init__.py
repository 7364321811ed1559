"""Read the two sides of a comparison from results folders, CSV files or JSON files of pytest-benchmark."""
