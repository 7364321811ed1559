"""The commands that plan and make runs: `plan`, `run` and `tune`."""
