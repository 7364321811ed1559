"""Read files from anywhere safely, write files whole or not at all, and keep secrets and control characters out of shown text."""
