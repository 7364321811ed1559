"""Read files from anywhere safely, write files all or nothing, and keep secrets and control characters out of shown text."""
