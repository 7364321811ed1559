"""Run again what a comparison left open (`tunebench rerun --from comparison.json`): only the open pairs, their sides in turns.

An open pair is an experiment with an inconclusive row.

`undecided` finds the open pairs and the number of runs. `readiness` decides which side can run here and now. `rounds` runs the
sides in turns. The comparison may come from anyone. It only names results folders, and only experiments in these folders are run.
"""
