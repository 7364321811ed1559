"""Published values that Tunebench's own numbers are compared with: read, computed again, judged and shown."""
