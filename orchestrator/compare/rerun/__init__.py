"""Run the open pairs of a comparison again, with both sides taking turns (`tunebench rerun --from comparison.json`).

An open pair is an experiment with an inconclusive row.

`undecided` finds the open pairs, and the number of runs that each needs. `readiness` decides which side can run here and now.
`rounds` runs the sides in turns. The comparison may come from anyone, so it is used only to find results folders. Only experiments
in these folders are run.
"""
