"""Sources of rows besides our own records: folders of the reference system, and CSV files."""
