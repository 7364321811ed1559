"""Read files from anywhere safely, write them whole or not at all, keep secrets and control characters out of what is shown."""
