"""The choices of a command line: scenarios, cells, and changes of axes or of single values."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from orchestrator.errors import SelectionError, similar, suggestion
from orchestrator.files.printable_text import is_utf8, with_bytes
from orchestrator.files.redaction import MASK, redact
from orchestrator.plan.cells import ENVIRONMENT, FRAMEWORK, GPUS, MODEL, NODES, PER_NODE
from orchestrator.plan.config import Scenario, Suite, argument_text, parse_scalar
from orchestrator.plan.config.check import COUNTS
from orchestrator.plan.config.frameworks import canonical_name
from orchestrator.plan.config.scenario_checks import wrong_argument
from orchestrator.plan.config.suite import canonical_frameworks
from orchestrator.plan.data import local_model
from orchestrator.records import Experiment, Text
from orchestrator.records.experiment import ids_named
from orchestrator.records.labels import labels, listed
from orchestrator.trainers.argument_values import names

# Keys of a scenario that `--set KEY=VALUE` can change; `arguments` and `env` can only be set part by part.
SETTABLE = sorted(
    Scenario.model_fields.keys() - {"arguments", "custom", "env", "exclude", "include", "matrix", "name", "slow", "zip"}
)

# Keys of a scenario whose parts can also be set one by one.
NESTED = ("measure", "repeats", "target")


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The choices on one command line. If `scenarios` is empty, all scenarios except slow ones are chosen.

    `overrides` are arguments that replace the values from every other source.

    `frameworks`, `models` and `cells` choose among the experiments. The chosen experiments keep their ids.
    """

    scenarios: tuple[str, ...] = ()
    frameworks: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    cells: tuple[str, ...] = ()
    axes: Mapping[str, tuple[Text | None, ...]] = field(default_factory=dict)
    overrides: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)


def parse_selection(
    *,
    scenarios: Sequence[str] = (),
    frameworks: Sequence[str] = (),
    models: Sequence[str] = (),
    cells: Sequence[str] = (),
    axes: Sequence[str] = (),
    settings: Sequence[str] = (),
    **keys: Any,
) -> Selection:
    """Return the selection for the values of options.

    The options are `--scenario`, `--framework`, `--model`, `--cell`, `--axis NAME=V,V` and `--set PATH=VALUE`.
    `keys` has the values of those further options that set one key of a scenario each.
    """
    for option, texts in (("--scenario", scenarios), ("--axis", axes), ("--set", settings)):
        _refuse_bytes(option, texts)
    counts, others = _counts(axes)
    given = {name: value for name, value in {**keys, **counts}.items() if value is not None}
    overrides, changed = _settings(settings, given)
    if {GPUS, PER_NODE} <= changed.keys():
        text = "--num-gpus counts the processes on all nodes, and num_gpus_per_node those on each"
        raise SelectionError(f"{text}; leave one of them out")
    return Selection(
        scenarios=tuple(scenarios),
        frameworks=tuple(frameworks),
        models=tuple(models),
        cells=tuple(cells),
        axes=_axes(others),
        overrides=overrides,
        settings=changed,
    )


def _settings(texts: Sequence[str], keys: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return two values: the arguments that `--set` changes, and the scenario keys that `--set` and other options change."""
    overrides: dict[str, Any] = {}
    changed: dict[str, Any] = {**keys}
    for text in texts:
        path, value = _split(text, option="--set", example="arguments.max_steps=20")
        head, _, rest = path.partition(".")
        if head == "arguments" and rest:
            overrides[rest] = parse_scalar(value)
            _refuse_argument("--set arguments.", rest, overrides[rest])
        elif head == "env" and rest:
            changed["env"] = {**changed.get("env", {}), rest: parse_scalar(value)}
        elif head in NESTED and rest:
            changed[head] = {**changed.get(head, {}), rest: parse_scalar(value)}
        elif head in SETTABLE and not rest:
            changed[head] = parse_scalar(value)
        else:
            if head == "matrix" and rest:
                cure = f"--set {rest}=[VALUE,VALUE]" if rest in SETTABLE else f"--axis {rest}=VALUE,VALUE"
                raise SelectionError(f"--set {path}: write an axis as {cure}")
            key = "" if path in names("huggingface") else path  # this is an argument, not a misspelt key
            hint = suggestion(key, ("arguments.NAME", "env.NAME", "measure.within", *SETTABLE))
            example = f"; for an argument of the trainer write --set arguments.{path}={value}"
            raise SelectionError(
                f"--set {path}: unknown key{example if hint.startswith('.') and not rest else ''}{hint}"
            )
    return overrides, changed


def _refuse_argument(option: str, name: str, value: Any) -> None:
    for message in wrong_argument(name, value):
        raise SelectionError(f"{option}{message}")


def _refuse_bytes(option: str, texts: Sequence[str]) -> None:
    for text in texts:
        if not is_utf8(text):
            masked = redact(text)
            shown = masked if MASK in masked else with_bytes(text)
            raise SelectionError(f"{option} {shown} is not UTF-8, so results can't record it; write it in UTF-8")


def whole_numbers(text: str, *, option: str) -> tuple[int, ...]:
    """Return the numbers of `1,2,4` or `1 2 4`, each at least 1."""
    words = text.replace(",", " ").split()
    if not words or not all(word.isdecimal() and len(word) < 10 and int(word) for word in words):
        raise SelectionError(f"{option} {text!r} is invalid; write whole numbers from 1, such as {option} 1,2")
    return tuple(int(word) for word in words)


def _counts(texts: Sequence[str]) -> tuple[dict[str, tuple[int, ...]], list[str]]:
    """Return two values: the numbers of `--axis num_nodes=…` and `--axis num_gpus_per_node=…`, and the other axes."""
    counts: dict[str, tuple[int, ...]] = {}
    others = []
    for text in texts:
        name, _, values = text.partition("=")
        if name in (NODES, PER_NODE) and name not in counts:
            counts[name] = whole_numbers(values, option=f"--axis {name}")
        else:
            others.append(text)
    return counts, others


def _axes(texts: Sequence[str]) -> dict[str, tuple[Text | None, ...]]:
    axes: dict[str, tuple[Text | None, ...]] = {}
    for text in texts:
        name, values = _split(text, option="--axis", example="per_device_train_batch_size=1,2,4")
        if name in axes or name in (NODES, PER_NODE):
            raise SelectionError(f"--axis {name} is given twice; write all values in one option, separated by commas")
        if name in ("num_gpus", "framework_config", ENVIRONMENT):
            other = "--num-gpus or --set num_gpus=[…]" if name == "num_gpus" else f"--set {name}=[…]"
            raise SelectionError(f"--axis {name} is not allowed; use {other}")
        items = _comma_list(values, option=f"--axis {text!r}")
        if not all(items):
            raise SelectionError(f'--axis {text!r} has an empty value; write "" for an empty text, or null for none')
        parsed = [parse_scalar(item) for item in items]
        _refuse_argument("--axis ", name, parsed)
        axes[name] = tuple(map(argument_text, parsed))
    return axes


def _comma_list(text: str, *, option: str) -> list[str]:
    """Split a text at commas outside brackets and quotes. A list can be one value of an axis: `[q_proj,v_proj],all-linear`.

    As in YAML, a quote begins a text only at the beginning of a value: `it's` has no quoted part.
    """
    items, depth, start, quote, before = [], 0, 0, "", ","
    for position, character in enumerate(text):
        if quote:
            quote = "" if character == quote and before != "\\" else quote
            before = "" if before == "\\" else character
            continue
        if character in "\"'" and before in ",[{:":
            quote = character
        depth = max(0, depth + (character in "[{") - (character in "]}"))
        if character == "," and depth == 0:
            items.append(text[start:position])
            start = position + 1
        before = before if character.isspace() else character
    if quote or depth:
        raise SelectionError(
            f"{option} has a bracket or a quote that is not closed; close it, or quote the whole value"
        )
    return [*items, text[start:]]


def _split(text: str, *, option: str, example: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise SelectionError(f"{option} {text!r} is invalid; write it like {option} {example}")
    return name, value


def chosen_scenarios(suite: Suite, selection: Selection) -> list[Scenario]:
    """Return the scenarios that run, in the order of the file. Raises SelectionError for a name that is not in the file."""
    known = [scenario.name for scenario in suite.scenarios]
    for name in selection.scenarios:
        if name not in known:
            raise SelectionError(f"{suite.document.file}: there is no scenario {name!r}{suggestion(name, known)}")
    wanted = set(selection.scenarios)
    return [
        canonical_frameworks(_with_settings(scenario, selection.settings), suite.frameworks)
        for scenario in suite.scenarios
        if (scenario.name in wanted if wanted else not scenario.slow)
    ]


def slow_scenarios(suite: Suite, selection: Selection) -> Iterator[str]:
    """If no scenario is named, yield a note on the slow scenarios, because they are left out."""
    names = [scenario.name for scenario in suite.scenarios if scenario.slow and not selection.scenarios]
    if len(names) == 1:
        yield f"scenario {names[0]!r} is slow and left out; --scenario {shlex.quote(names[0])} runs it"
    elif names:
        yield f"scenarios {', '.join(map(repr, names))} are slow and left out; --scenario NAME runs one of them"


def chosen_experiments(
    experiments: Mapping[str, Experiment], suite: Suite, selection: Selection
) -> Mapping[str, Experiment]:
    """Return the experiments that `--framework`, `--model` and `--cell` choose.

    Raises SelectionError if these options choose no experiment.
    """
    if not (selection.frameworks or selection.models or selection.cells):
        return experiments
    base = suite.document.file.parent
    frameworks = {id: one.framework.name if one.framework else "none" for id, one in experiments.items()}
    joined = [(word, canonical_name(word, suite.frameworks)) for word in selection.frameworks]
    models = [(word, local_model(word, base)) for word in selection.models]
    kept = (
        _matching("--framework", joined, frameworks),
        _matching("--model", models, {id: one.model for id, one in experiments.items()}),
        {_cell(word, experiments) for word in selection.cells} or {*experiments},
    )
    chosen = {id: one for id, one in experiments.items() if all(id in ids for ids in kept)}
    if experiments and not chosen:
        raise SelectionError("no experiment fits --framework, --model and --cell together; leave one of them out")
    return chosen


def _matching(option: str, words: Iterable[tuple[str, str]], values: Mapping[str, str]) -> set[str]:
    """Return the ids in `values` whose value is named by one of the words. Without words, return all ids."""
    found = set() if words else {*values}
    for word, value in words:
        ids = {id for id, own in values.items() if own == value}
        if not ids:
            raise SelectionError(f"{option} {word}: no experiment has it{suggestion(word, {*values.values()})}")
        found |= ids
    return found


def _cell(word: str, experiments: Mapping[str, Experiment]) -> str:
    matches = ids_named(word, experiments)
    if len(matches) == 1:
        return matches[0]
    values = labels([experiments[id] for id in matches or experiments])
    shown = listed(matches or [*experiments], values)
    if matches:
        raise SelectionError(f"--cell {word}: the ids of {len(matches)} experiments contain it; name one of: {shown}")
    near = similar(word, [id.rpartition("-")[0] for id in experiments])  # the digits after it resemble nothing
    meant = ids_named(near, experiments) if near else []
    hint = f"; did you mean {meant[0]!r}?" if len(meant) == 1 else "."
    allowed = f"{hint} Allowed: {shown}" if experiments else "; there is no experiment"
    raise SelectionError(f"--cell {word}: no experiment's id contains it{allowed}")


def _with_settings(scenario: Scenario, settings: Mapping[str, Any]) -> Scenario:
    if not settings:
        return scenario
    from pydantic import ValidationError

    from orchestrator.plan.config.check import sentence

    values = {**scenario.model_dump(exclude_unset=True), **settings}
    for name, other in ((GPUS, PER_NODE), (PER_NODE, GPUS)):
        if name in settings:
            values.pop(other, None)
    for name in ("env", *NESTED):
        if isinstance(settings.get(name), Mapping):
            before = scenario.model_dump(exclude_unset=True).get(name)
            values[name] = {**(before if isinstance(before, Mapping) else {}), **settings[name]}
    try:
        return Scenario.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise SelectionError(f"--set {sentence(first, Scenario)} (scenario {scenario.name!r})") from None


def models_named(defaults: Mapping[str, Any], scenario: Scenario, selection: Selection) -> tuple[str, ...]:
    """Return the names of the models. If several places name models, the place with the highest precedence counts."""
    places = (
        selection.overrides.get(MODEL),
        scenario.arguments.get(MODEL),
        selection.axes.get(MODEL),
        scenario.matrix.get(MODEL),
        defaults.get(MODEL),
    )
    named = next((place for place in places if place is not None), None)
    names = named if isinstance(named, (list, tuple)) else (named,)
    return tuple(str(item) for item in names if item is not None)


def axes_of(scenario: Scenario, selection: Selection, models: tuple[str, ...]) -> dict[str, tuple[Any, ...]]:
    """Return axis → values. An axis of the command line replaces the scenario's axis.

    An overridden argument is no longer an axis.
    """
    matrix: dict[str, tuple[Any, ...]] = {**scenario.own_axes, **selection.axes}
    axes: dict[str, tuple[Any, ...]] = {
        MODEL: models,
        FRAMEWORK: scenario.framework_config,
        ENVIRONMENT: scenario.environment or (None,),
        NODES: (1,),
    }
    replaced = _replaced_counts(scenario)
    axes |= {name: values for name, values in scenario.own_axes.items() if name in COUNTS and name not in replaced}
    axes |= scenario.counts
    if PER_NODE not in axes:
        axes.setdefault(GPUS, (1,))
    for name, values in matrix.items():
        if name not in (MODEL, *COUNTS, *selection.overrides):
            axes[name] = tuple(argument_text(value) for value in values)
    return axes


def zipped_axes(scenario: Scenario, selection: Selection) -> list[list[str]]:
    """Return the groups of axes that change together. An axis that the command line replaced is crossed with all other axes."""
    replaced = {*selection.axes, *selection.overrides, *_replaced_counts(scenario)}
    return [[name for name in group if name not in replaced] for group in scenario.zip]


def _replaced_counts(scenario: Scenario) -> set[str]:
    """Return the counts that are no axes of `zip:`, because the command line gives a key of the scenario another value."""
    own = scenario.counts
    return {*own, *((GPUS, PER_NODE) if GPUS in own or PER_NODE in own else ())}
