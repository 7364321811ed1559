"""Read files from anywhere safely. Write a file completely or not at all. Keep secrets and control characters out of shown text."""
