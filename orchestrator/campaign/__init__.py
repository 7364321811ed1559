"""A campaign of many runs: the loop, the live display, status and cancellation."""
