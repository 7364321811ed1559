"""The YAML files of a campaign, read and checked as a `Suite`."""

from orchestrator.plan.config.argument_text import argument_text, argument_texts, canonical
from orchestrator.plan.config.keys.file_keys import DataProcessing, SuiteFile, schema_text
from orchestrator.plan.config.keys.scenario_keys import Scenario
from orchestrator.plan.config.suite import Suite, load_suite, shipped_folder
from orchestrator.plan.config.yaml_file import Document, parse_scalar, read_document

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
