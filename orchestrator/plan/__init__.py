"""From YAML files to experiments and their commands; what cannot run, and why."""
