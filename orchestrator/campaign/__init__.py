"""Many runs: the loop, the live display, status and cancel."""
