"""A plan as a table, as one JSON document, or as a list of the runs' shell commands.

This package prints nothing. The document and the commands are generators, so that a plan of 100,000 cells needs little memory.
"""

from orchestrator.plan.view.as_commands import command_lines, planned_command
from orchestrator.plan.view.as_json import json_document
from orchestrator.plan.view.as_table import table
from orchestrator.plan.view.totals import summary

__all__ = ["command_lines", "json_document", "planned_command", "summary", "table"]
