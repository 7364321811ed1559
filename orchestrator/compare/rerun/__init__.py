"""More runs of what a comparison left open (`tunebench rerun --from comparison.json`): of exactly that, and interleaved.

`undecided` says what is open and how many runs it takes, `readiness` which side of it can run here and now, `rounds` runs them in
turns. The comparison may come from somebody else: it only points at results folders, and what is run is what these hold.
"""
