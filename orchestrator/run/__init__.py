"""One run in its own process, from its claim to its record."""
