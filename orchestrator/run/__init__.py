"""One run, from its claim to its record, in its own process."""
