"""The two sides of a comparison, read from results folders or CSV files."""
