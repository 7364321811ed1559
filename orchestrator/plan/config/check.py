"""Values of a YAML file held against a model, each mistake as a sentence with its place.

The sentences are ours: what stands there, what is meant instead, the nearest right word. pydantic says only which rule was
broken and where.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from orchestrator.errors import Problem, suggestion
from orchestrator.plan.config.argument_text import shown
from orchestrator.plan.config.yaml_file import Document, YamlPath

M = TypeVar("M", bound=BaseModel)

_LIST, _NUMBER, _WHOLE, _MAPPING, _YES_NO = (
    "a list",
    "a number",
    "a whole number",
    "a mapping (name: value)",
    "true or false",
)
_MEANT: Mapping[str, str] = {
    "bool_parsing": _YES_NO,
    "bool_type": _YES_NO,
    "dict_type": _MAPPING,
    "finite_number": _NUMBER,
    "float_parsing": _NUMBER,
    "float_type": _NUMBER,
    "int_from_float": _WHOLE,
    "int_parsing": _WHOLE,
    "int_parsing_size": _WHOLE,
    "int_type": _WHOLE,
    "list_type": _LIST,
    "model_attributes_type": _MAPPING,
    "model_type": _MAPPING,
    "string_too_short": "a text that is not empty",
    "string_type": "a text",
    "tuple_type": _LIST,
}
"""pydantic's word for a broken rule → what is meant instead."""


SCENARIO_ONLY = frozenset(
    {"arguments", "env", "exclude", "framework_config", "include", "matrix", "monitors", "num_gpus", "python"}
    | {"busy_gpus", "measure", "repeats", "slow", "stall_timeout_s", "startup_timeout_s", "timeout_s", "trainer"}
)
"""Keys of a scenario that nobody means as a trainer's argument."""


def misplaced(document: Document, arguments: Mapping[Any, Any], root: YamlPath) -> list[Problem]:
    """Names under `root` that can't be arguments of a trainer."""
    found = []
    for key in arguments:
        if not isinstance(key, str):
            found.append(document.problem((*root, str(key)), f"the argument name {shown(key)} is no text; quote it"))
        elif key in SCENARIO_ONLY:
            where = "write it in the scenario, or use --set"
            if root[:1] == ("scenarios",):
                where = f"write it beside '{root[-1]}:', not under it"
            message = f"{key!r} is a key of a scenario, not an argument of the trainer; {where}"
            found.append(document.problem((*root, key), message))
    return found


def check(model: type[M], document: Document, problems: list[Problem]) -> M | None:
    """The document as a `model`, or None with its mistakes appended to `problems`."""
    if not isinstance(document.value, dict):
        kind = {list: "a list", str: "a text", type(None): "nothing"}.get(type(document.value), "a single value")
        keys = ", ".join(model.model_fields)
        problems.append(document.problem((), f"the file holds {kind}; a mapping with the keys {keys} is expected"))
        return None
    try:
        return model.model_validate(document.value)
    except ValidationError as error:
        problems.extend(_explain(error, model, document))
        return None


def _explain(error: ValidationError, model: type[BaseModel], document: Document) -> list[Problem]:
    """One problem for each of pydantic's."""
    return [
        document.problem(_plain(item["loc"]), _where(item["loc"], document) + sentence(item, model))
        for item in error.errors(include_url=False)
    ]


def _plain(loc: tuple[int | str, ...]) -> YamlPath:
    """pydantic's path as the document has it: the key itself where the key is wrong, no names of alternatives."""
    loc = tuple(
        part for at, part in enumerate(loc) if not (at and loc[at - 1] == "repeats" and part in ("number", "range"))
    )
    return (*loc[:-2], str(loc[-2])) if loc[-1:] == ("[key]",) else loc


def _where(loc: tuple[int | str, ...], document: Document) -> str:
    """`scenario 'lora': ` for what stands in a scenario, or its number where it has no name."""
    if loc[:1] != ("scenarios",) or len(loc) < 2 or not isinstance(loc[1], int):
        return ""
    entry = document.value["scenarios"][loc[1]]
    name = entry.get("name") if isinstance(entry, dict) else None
    return f"scenario {name!r}: " if isinstance(name, str) and name else f"scenario {loc[1] + 1}: "


def sentence(item: Any, model: type[BaseModel]) -> str:
    """One of pydantic's mistakes, said to whom writes the file."""
    path = _plain(item["loc"])
    path = path[2:] if path[:1] == ("scenarios",) and len(path) > 2 else path
    name = ".".join(part for part in path if isinstance(part, str)) or "the file"
    last = next((part for part in reversed(item["loc"]) if isinstance(part, str)), "")
    kind, context, value = item["type"], item.get("ctx", {}), item["input"]
    if item["loc"][-1:] == ("[key]",):
        return f"the name {shown(value)} is no text; quote it"
    if kind in ("extra_forbidden", "invalid_key"):
        return _unknown_key(last, _model_at(model, item["loc"][:-1]))
    if kind == "missing":
        return f"the key {last!r} is missing"
    if kind == "value_error":
        return f"{name}: {context['error']}"
    if kind in ("enum", "literal_error"):
        allowed = re.findall("'([^']*)'", context["expected"])
        return f"{name}: {shown(value)} is not allowed{suggestion(value, allowed)}"
    return f"{name}: {shown(value)} is not right; {_meant(kind, context, item['msg'])} is expected"


def _meant(kind: str, context: Mapping[str, Any], said: str) -> str:
    bounds = {"greater_than": "above", "greater_than_equal": "from", "less_than_equal": "up to"}
    if kind in bounds:
        bound = next(iter(context.values()))
        return f"{_WHOLE if isinstance(bound, int) else _NUMBER} {bounds[kind]} {bound:,}".removesuffix(".0")
    return _MEANT.get(kind) or said.removeprefix("Input should be ").rstrip(".")


def _unknown_key(key: str, model: type[BaseModel]) -> str:
    fields = model.model_fields
    hint = suggestion(key, fields)
    if hint.startswith(".") and "arguments" in fields and "matrix" in fields:
        return f"unknown key {key!r}; an argument of the trainer stands under 'arguments:'{hint}"
    return f"unknown key {key!r}{hint}"


def _model_at(model: type[BaseModel], loc: tuple[int | str, ...]) -> type[BaseModel]:
    """The model whose keys are allowed at `loc`, found by walking the annotations."""
    current: type[BaseModel] = model
    for part in loc:
        if isinstance(part, str) and part in current.model_fields:
            current = _nested_model(current.model_fields[part].annotation) or current
    return current


def _nested_model(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        found = _nested_model(argument)
        if found:
            return found
    return None
