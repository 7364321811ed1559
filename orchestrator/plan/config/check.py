"""Validation of a YAML file against a pydantic model. Each mistake becomes a sentence that names its position in the file.

pydantic reports the broken rule and the path of the value. This module adds the invalid value, the allowed values, and the
allowed word that is most like the invalid value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from orchestrator.errors import Problem, suggestion
from orchestrator.files.redaction import is_secret_name
from orchestrator.plan.config.argument_text import shown
from orchestrator.plan.config.yaml_file import Document, YamlPath
from orchestrator.trainers.argument_values import known

M = TypeVar("M", bound=BaseModel)

_LIST, _NUMBER, _WHOLE, _MAPPING, _YES_NO = (
    "a list",
    "a number",
    "a whole number",
    "a mapping (name: value)",
    "true or false",
)
# pydantic's name of a broken rule → what is allowed.
_ALLOWED: Mapping[str, str] = {
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

# Keys of a scenario that count processes and machines. They are axes.
COUNTS = ("num_nodes", "num_gpus", "num_gpus_per_node")
# Keys of a scenario that are never an argument of a trainer.
SCENARIO_ONLY = frozenset(
    {"arguments", "env", "exclude", "environment", "framework_config", "include", "matrix", "monitors", "python"}
    | {"busy_gpus", "measure", "repeats", "slow", "stall_timeout_s", "startup_timeout_s", "timeout_s", "trainer", "zip"}
    | {*COUNTS}
)


def misplaced(document: Document, arguments: Mapping[Any, Any], root: YamlPath) -> list[Problem]:
    """Return a problem for each name under `root` that can't be an argument of a trainer."""
    problems = []
    cure = "write it in the scenario, or use --set"
    if root[:1] == ("scenarios",):
        cure = f"move it one level up, next to '{root[-1]}:'"
    for key in arguments:
        if not isinstance(key, str):
            message = f"the argument name {shown(key)} is not a text; quote it"
            problems.append(document.problem((*root, str(key)), message))
        elif not key.strip():
            problems.append(document.problem((*root, key), "the name of an argument is empty; write one"))
        elif key in SCENARIO_ONLY:
            message = f"{key!r} is a key of a scenario, not an argument of the trainer; {cure}"
            problems.append(document.problem((*root, key), message))
    return problems


def check(model: type[M], document: Document, problems: list[Problem]) -> M | None:
    """Return the document as an object of the class `model`. If there are mistakes, append them to `problems` and return None."""
    if not isinstance(document.value, dict):
        kind = {list: "a list", str: "a text", type(None): "nothing"}.get(type(document.value), "a single value")
        keys = ", ".join(model.model_fields)
        problems.append(document.problem((), f"the file contains {kind}; write a mapping with these keys: {keys}"))
        return None
    try:
        return model.model_validate(document.value)
    except ValidationError as error:
        problems.extend(
            document.problem(_plain(item["loc"]), _label(item["loc"], document) + sentence(item, model))
            for item in error.errors(include_url=False)
        )
        return None


def _plain(loc: tuple[int | str, ...]) -> YamlPath:
    """Return a path of pydantic as a path in the document.

    pydantic adds `[key]` to the path of a wrong key. It also adds the names of alternative types. The result has neither `[key]`
    nor these names.
    """
    loc = tuple(
        part for at, part in enumerate(loc) if not (at and loc[at - 1] == "repeats" and part in ("number", "range"))
    )
    return (*loc[:-2], str(loc[-2])) if loc[-1:] == ("[key]",) else loc


def _label(loc: tuple[int | str, ...], document: Document) -> str:
    """Return `scenario 'lora': ` for a path inside a scenario. If the scenario has no name, its number replaces the name."""
    if loc[:1] != ("scenarios",) or len(loc) < 2 or not isinstance(loc[1], int):
        return ""
    entry = document.value["scenarios"][loc[1]]
    name = entry.get("name") if isinstance(entry, dict) else None
    return f"scenario {name!r}: " if isinstance(name, str) and name else f"scenario {loc[1] + 1}: "


def sentence(item: Any, model: type[BaseModel]) -> str:
    """Return one of pydantic's errors as a sentence for the author of the file."""
    path = _plain(item["loc"])
    path = path[2:] if path[:1] == ("scenarios",) and len(path) > 2 else path
    name = ".".join(part for part in path if isinstance(part, str)) or "the file"
    last = next((part for part in reversed(item["loc"]) if isinstance(part, str)), "")
    kind, context = item["type"], item.get("ctx", {})
    value = shown(item["input"], of=next(filter(is_secret_name, map(str, path)), ""))
    if item["loc"][-1:] == ("[key]",):
        return f"the name {value} is not a text; quote it"
    if kind in ("extra_forbidden", "invalid_key"):
        return _unknown_key(last, _model_at(model, item["loc"][:-1]))
    if kind == "missing":
        return f"the key {last!r} is missing; add it"
    if kind == "value_error":
        return f"{name}: {context['error']}"
    if kind in ("enum", "literal_error"):
        allowed = re.findall("'([^']*)'", context["expected"])
        return f"{name}: {value} is not allowed{suggestion(item['input'], allowed)}"
    return f"{name}: {value} is invalid; write {allowed_by(kind, context, item['msg'])}"


def allowed_by(kind: str, context: Mapping[str, Any], pydantic_message: str) -> str:
    """Return in words what the broken rule `kind` of pydantic allows."""
    bounds = {"greater_than": "above", "greater_than_equal": "from", "less_than_equal": "up to"}
    if kind in bounds:
        bound = next(iter(context.values()))
        return f"{_WHOLE if isinstance(bound, int) else _NUMBER} {bounds[kind]} {bound:,}".removesuffix(".0")
    return _ALLOWED.get(kind) or pydantic_message.removeprefix("Input should be ").rstrip(".")


def _unknown_key(key: str, model: type[BaseModel]) -> str:
    fields = model.model_fields
    if "arguments" in fields and "matrix" in fields and (owners := _keys_with(key, fields)):
        return f"unknown key {key!r}; write it under {owners}"
    hint = suggestion("" if known([key]) else key, fields)
    if hint.startswith(".") and "arguments" in fields and "matrix" in fields:
        return f"unknown key {key!r}; write an argument of the trainer under 'arguments:'{hint}"
    return f"unknown key {key!r}{hint}"


def _keys_with(key: str, fields: Mapping[str, FieldInfo]) -> str:
    """Return the keys of a scenario under which this key is allowed, such as `'custom:'` for `command`, as text."""
    inner = {name: _nested_model(field.annotation) for name, field in fields.items()}
    return " or ".join(f"'{name}:'" for name, nested in inner.items() if nested and key in nested.model_fields)


def _model_at(model: type[BaseModel], loc: tuple[int | str, ...]) -> type[BaseModel]:
    """Return the pydantic model that has the allowed keys at `loc`. It is found through the annotations of the models."""
    for part in loc:
        if isinstance(part, str) and part in model.model_fields:
            model = _nested_model(model.model_fields[part].annotation) or model
    return model


def _nested_model(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_nested_model, getattr(annotation, "__args__", ()))), None)
