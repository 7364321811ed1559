"""Sources of rows besides our own records: folders of the reference system, CSV files and databases. Copies are left out."""
