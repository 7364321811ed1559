"""Checks of the command that a scenario of the trainer `custom` has: its placeholders, and the sources of its metrics.

`mistakes` checks the scenario, and `without_value` checks a cell. So every command of a plan can be filled. `notes` looks at all
experiments of a plan: at numbers that each process prints, and at axes that do not reach the command.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import groupby
from pathlib import Path

from orchestrator.errors import suggestion
from orchestrator.measure.metrics import METRICS
from orchestrator.plan.cells import ACCUMULATION, BATCH, EFFECTIVE, FRAMEWORK, GPUS, MODEL, Cell, Layers
from orchestrator.plan.checks import Found
from orchestrator.plan.config import Scenario
from orchestrator.plan.config.argument_text import as_yaml
from orchestrator.plan.config.keys.scenario_keys import Metric
from orchestrator.plan.config.own_script import no_script
from orchestrator.records import CustomCommand, Device, Experiment, Text
from orchestrator.trainers.external.custom import PROVIDED, filled, placeholders
from orchestrator.trainers.units import fitting_units, unit_of, wrong_unit

TOKENS = "tokens_per_s"
# Names are nearly alike from this share of common letters on, as in difflib.
_NEAR = 0.9
# Names of metrics that may be tokens per second.
_SPEED = re.compile(r"(.*_)?(speed|throughput|tps|tok(en)?s?(_per_?|_|/)s(ec|econd)?)", re.IGNORECASE)
# The words before a script. `{python}` is the interpreter that trains. An option without a value may follow.
_PLAIN_OPTION = re.compile(r"-[bBdEIOPqsSuvx]+")
_PYTHON = re.compile(r"\{python\}|(.*/)?python[\d.]*")
_INTERPRETER = re.compile(rf"{_PYTHON.pattern}|(.*/)?(bash|sh)")
_IN_FOLDER = re.compile(r"\{scenario_dir\}/(?P<path>[^{}]+)")


def mistakes(scenario: Scenario, given: Collection[str], *, withheld: Mapping[str, Text | None], folder: Path) -> Found:
    """Check the sources of a custom command's metrics, its script in the scenario file's `folder`, and its placeholders.

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
    first = scenario.custom.command[0]
    if scenario.custom.launcher == "accelerate" and _PYTHON.fullmatch(first):
        message = (
            f"accelerate starts Python itself, and {first!r} would be its script; remove it, or write 'launcher: none'"
        )
        yield ("custom", "command", 0), message
    yield from _missing_script(scenario.custom.command, scenario.custom.launcher, folder)
    for name, source in scenario.custom.metrics.items():
        path = ("custom", "metrics", name)
        if source.unit is not None and (cause := wrong_unit(name, source.unit)):
            yield (*path, "unit"), f"metric {name}: {cause}"
        if cause := _wrong_source(source, scenario.custom.results):
            yield path, f"metric {name}: {cause}"
        if source.pattern is not None and (wrong := _wrong_pattern(source.pattern)):
            yield (*path, "pattern"), f"metric {name}: {source.pattern!r} {wrong}"


def _missing_script(command: Sequence[str], launcher: str, folder: Path) -> Found:
    """Check the script in the scenario file's folder that the command starts, if nothing but `{scenario_dir}` is to be filled in.

    Other words may name files that the command writes.
    """
    is_interpreter = launcher == "none" and _INTERPRETER.fullmatch(command[0]) is not None
    words = enumerate(command[is_interpreter:], is_interpreter)
    script = next((one for one in words if not (is_interpreter and _PLAIN_OPTION.fullmatch(one[1]))), None)
    match = _IN_FOLDER.fullmatch(script[1]) if script else None
    if script is None or match is None:
        return
    path = folder / match["path"]
    if not path.exists():
        yield ("custom", "command", script[0]), no_script(path, script[1])


def _wrong_source(source: Metric, results: str) -> str | None:
    """Return what is wrong with the source of a metric: it says where the number is in results of another kind."""
    wanted = "pattern" if results == "log" else "column" if results.endswith(".csv") else "key"
    if getattr(source, wanted) is not None:
        return None
    if wanted == "pattern":
        return "'results: log' needs a 'pattern:'; write a regular expression with one group"
    other = next((name for name in ("key", "column", "pattern") if getattr(source, name) is not None), None)
    if other is None:
        return None
    cure = ", or 'results: log'" if other == "pattern" else ""
    return f"'results: {results}' has no use for '{other}:'; write '{wanted}:'{cure}"


def notes_on_metrics(scenario: Scenario) -> Iterator[str]:
    """Yield a sentence for each metric whose name is nearly one of Tunebench, and one if no speed of the command is compared."""
    sources = scenario.custom.metrics if scenario.custom is not None else {}
    unknown = [name for name in sources if name not in METRICS]
    near = {name: meant for name in unknown if (meant := _nearly(name))}
    for name, meant in near.items():
        yield f"scenario {scenario.name!r}: Tunebench does not know the metric {name}; did you mean {meant}?"
    is_compared = {*near.values(), *sources}.intersection(METRICS) or scenario.steps is not None
    may_be = [name for name in unknown if _may_be_speed(name, sources[name].unit)]
    speeds = [] if TOKENS in (*sources, *near.values()) or scenario.steps is not None else may_be
    if left := speeds if is_compared else unknown:
        cure = f"; to compare speeds, name tokens per second {TOKENS}" if speeds else ""
        names = ", ".join(left)
        yield f"scenario {scenario.name!r}: reports claim nothing about {names}, which Tunebench does not know{cure}"


def _may_be_speed(name: str, unit: str | None) -> bool:
    return unit in fitting_units(TOKENS) or (unit is None and _SPEED.fullmatch(name) is not None)


def _nearly(name: str) -> str | None:
    """Return the metric of Tunebench that a name nearly is, or None."""
    short = re.sub("_per_sec(ond)?$", "_per_s", name)
    return next(iter(get_close_matches(short, METRICS, n=1, cutoff=_NEAR)), None)


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


def notes(experiments: Iterable[Experiment]) -> Iterator[str]:
    """Yield a sentence for each scenario whose command may have been meant differently."""
    own = (one for one in experiments if one.custom is not None and one.skip is None)
    for scenario, group in groupby(own, key=lambda one: one.scenario):
        cells = list(group)
        custom = cells[0].custom
        if custom is None:
            continue
        several = custom.launcher == "accelerate" and any(cell.num_gpus > 1 for cell in cells)
        if several and custom.results in ("stdout", "log") and (names := _of_all_devices(custom)):
            yield (
                f"scenario {scenario!r}: each process prints {names}, unless only rank 0 does, and the last value counts; "
                "make it the value of all processes, not of one"
            )
        if custom.launcher == "none" and (axes := _without_effect(cells)):
            wanted = ", ".join(f"{{{name}}}" for name in axes)
            yield (
                f"scenario {scenario!r}: the same command runs for several values of {' and '.join(axes)}; "
                f"write {wanted} into it, if it does not find the value itself"
            )


def _of_all_devices(custom: CustomCommand) -> str:
    """Return the names of the metrics that count all devices, as text."""
    return " and ".join(name for name in custom.metrics if (unit_of(name) or "").endswith("all devices"))


def _without_effect(cells: Iterable[Experiment]) -> list[str]:
    """Return the counts and arguments that differ between two experiments with the same command and environment.

    On GPUs, the number of processes is the number of GPUs that the command sees.
    """
    firsts: dict[tuple[object, ...], Experiment] = {}
    found: dict[str, None] = {}
    for cell in cells:
        words = filled(cell, run_dir=Path("{run_dir}"), at_launch={})
        framework = cell.framework and cell.framework.name
        seen = cell.num_gpus if cell.device is Device.CUDA else None
        environment = cell.environment and cell.environment.name
        key = (*words, framework, cell.python, environment, cell.num_nodes, seen)
        first = firsts.setdefault(key, cell)
        if first.num_gpus != cell.num_gpus:
            found[GPUS] = None
        if first.model != cell.model:
            found[MODEL] = None
        found.update(
            (name, None) for name in sorted({name for name, _ in first.arguments.items() ^ cell.arguments.items()})
        )
    return list(found)
