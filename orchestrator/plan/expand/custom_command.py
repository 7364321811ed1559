"""Checks of the command that a scenario of the trainer `custom` has: its placeholders, and the sources of its metrics.

`mistakes` checks the scenario, and `without_value` checks a cell. So every command of a plan can be filled.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Mapping, Sequence

from orchestrator.errors import suggestion
from orchestrator.plan.cells import ACCUMULATION, BATCH, EFFECTIVE, FRAMEWORK, GPUS, Cell, Layers
from orchestrator.plan.checks import Found
from orchestrator.plan.config import Scenario
from orchestrator.plan.config.argument_text import as_yaml
from orchestrator.records import Text
from orchestrator.trainers.external.custom import PROVIDED, placeholders
from orchestrator.trainers.units import wrong_unit


def mistakes(scenario: Scenario, given: Collection[str], *, withheld: Mapping[str, Text | None]) -> Found:
    """Check the sources of a custom command's metrics, and the placeholders of the command.

    Each placeholder needs an argument in `given` or in an entry of `include:`. `withheld` has the arguments of defaults.yaml; the
    command gets them only if `--defaults` names the file.
    """
    if scenario.custom is None:
        return
    derived = (BATCH, ACCUMULATION) if EFFECTIVE in given else ()
    added = (name for entry in scenario.include for name in entry)
    known = {*PROVIDED, *given, *derived, *added} - {FRAMEWORK, EFFECTIVE}
    for index, word in enumerate(scenario.custom.command):
        for name in sorted(placeholders([word]) - known):
            cure = suggestion(name, known)
            if withheld.get(name) is not None:
                cure = f", since trainer custom gets none of defaults.yaml; write {name} under 'arguments:'"
            message = f"the command uses {{{name}}}, but there is no argument {name}{cure}"
            yield ("custom", "command", index), message
    for name, source in scenario.custom.metrics.items():
        path = ("custom", "metrics", name)
        if source.unit is not None and (cause := wrong_unit(name, source.unit)):
            yield (*path, "unit"), f"metric {name}: {cause}"
        if scenario.custom.results == "log" and source.pattern is None:
            yield path, f"metric {name}: 'results: log' needs a 'pattern:'; write a regular expression with one group"
        if source.pattern is not None and (wrong := _wrong_pattern(source.pattern)):
            yield (*path, "pattern"), f"metric {name}: {source.pattern!r} {wrong}"


def needed_arguments(command: Collection[str]) -> frozenset[str]:
    """Return the arguments that the command's placeholders name. A cell needs a value for each of them."""
    return frozenset(placeholders(command).difference(PROVIDED))


def without_value(command: Sequence[str], arguments: Collection[str], cell: Cell, layers: Layers) -> Found:
    """Yield each placeholder of the command that has no value in a cell, because its argument is null or missing there."""
    allowed = ", ".join((*PROVIDED, *(name for name in arguments if name not in PROVIDED)))
    for index, word in enumerate(command):
        for name in sorted(needed_arguments([word]).difference(arguments)):
            layer = layers.origin(name, cell)
            if name in layer.arguments:
                why = f"{name} is null ({layer.origin})"
            else:
                values = {FRAMEWORK: cell.framework, GPUS: cell.num_gpus, **cell.arguments}
                shown = ", ".join(f"{axis}: {as_yaml(value)}" for axis, value in values.items())
                why = f"{name} is missing in the cell {{{shown}}}"
            cure = f"give {name} a value, or write {{arguments}}, which leaves out what has no value"
            yield ("custom", "command", index), f"the command uses {{{name}}}, but {why}; {cure}. Allowed: {allowed}"


def _wrong_pattern(pattern: str) -> str | None:
    """Return what is wrong with the regular expression of a metric, or None."""
    try:
        with warnings.catch_warnings(action="error", category=FutureWarning):
            groups = re.compile(pattern).groups
    except (re.error, OverflowError, RecursionError) as error:
        return f"is not a regular expression: {error}"
    except FutureWarning as warning:  # such as [[:digit:]], which means something else in Python
        return f"is ambiguous: {str(warning).lower()}; write \\d for digits, and \\[ for the character ["
    if groups > 1:
        return f"has {groups} groups; write one group around the number, and (?:…) for the others"
    return None
