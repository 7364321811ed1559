"""The way from YAML files to experiments and their commands. A plan also says what cannot run, and why."""
