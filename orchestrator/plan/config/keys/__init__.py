"""The keys of the YAML files: pydantic models, types of values, and their descriptions."""
