"""The JSON Schema of the scenario file, for editors: `tunebench schema`, and the copy in `docs/`."""

from __future__ import annotations

import json

from orchestrator.plan.config.file_keys import SuiteFile


def schema_text() -> str:
    """The schema as JSON text."""
    schema = SuiteFile.model_json_schema()
    return json.dumps({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}, indent=2) + "\n"
