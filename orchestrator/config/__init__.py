"""The YAML files of a campaign: read, checked, and turned into a `Suite`."""

from orchestrator.config.models import DataProcessing, Scenario, SuiteFile
from orchestrator.config.schema import schema_text
from orchestrator.config.suite import Suite, load_suite, shipped_folder
from orchestrator.config.values import argument_text, argument_texts, canonical
from orchestrator.config.yaml_file import Document, parse_scalar, read_document

__all__ = [
    "DataProcessing",
    "Document",
    "Scenario",
    "Suite",
    "SuiteFile",
    "argument_text",
    "argument_texts",
    "canonical",
    "load_suite",
    "parse_scalar",
    "read_document",
    "schema_text",
    "shipped_folder",
]
