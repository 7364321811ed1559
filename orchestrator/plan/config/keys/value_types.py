"""The types of values in the YAML files: numbers, fractions, names, and lists that may be written as one value.

Each type has its own error message and its own part of the JSON Schema. The keys in `file_keys` have these types.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from math import inf, isfinite
from string import Formatter
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from orchestrator.measure.metrics import FACTS, OURS
from orchestrator.plan.config.argument_text import as_yaml
from orchestrator.trainers.external.custom import leads_outside

JOIN = "+"  # between the short names of a combination
Comparison = tuple[Callable[[float, float], bool], float]
_COMPARISON = re.compile(r"(>=|<=|!=|>|<)\s*(\S+)\s*")
_COMPARED = {">=": operator.ge, "<=": operator.le, "!=": operator.ne, ">": operator.gt, "<": operator.lt}


def refuse_bool(value: Any) -> Any:
    """Return the value. Raises ValueError for a bool: pydantic would accept YAML's `yes` as the number 1."""
    if isinstance(value, bool):
        raise ValueError(f"{str(value).lower()} is invalid; write a number")
    return value


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, (list, tuple)) else (value,)


def _frameworks(value: Any) -> Any:
    if value is None:
        raise ValueError("the list is blank; write [null] for 'without a framework configuration', or remove the key")
    return tuple(_combination(item) if isinstance(item, (list, tuple)) else item for item in _as_tuple(value))


def _combination(names: list[Any] | tuple[Any, ...]) -> str:
    """Return the name of a combination: its short names with `+` between them."""
    if not names or not all(isinstance(name, str) and name for name in names):
        raise ValueError(f"{as_yaml(names)} is invalid; write the short names to combine, such as [fsdp, liger]")
    return JOIN.join(names)


def not_empty(value: tuple[Any, ...]) -> tuple[Any, ...]:
    if not value:
        raise ValueError("the list is empty; give at least one value")
    return value


def not_ours(value: dict[str, Any]) -> dict[str, Any]:
    """Return the metrics of a custom trainer, or raise ValueError if one has no name, or that of a column of Tunebench itself."""
    for name in value:
        if not name.strip():
            raise ValueError("the name of a metric is empty; write one")
        if name in OURS or name in FACTS or name.startswith("provenance_"):
            raise ValueError(f"Tunebench makes the column {name} itself; choose another name for this metric")
    return value


def _zip(value: Any) -> Any:
    """Return a list of groups of axes; a single mapping becomes a list of one group. The lists in a group must be equally long."""
    groups = value if isinstance(value, (list, tuple)) else [value]
    for group in groups or [None]:
        if not isinstance(group, dict) or len(group) < 2:
            raise ValueError(f"{as_yaml(group)} is invalid; write a mapping of two or more axes to their values")
        for name, values in group.items():
            if not isinstance(values, (list, tuple)) or not values:
                raise ValueError(f"{name} is {as_yaml(values)}; write a list of values")
        if len({len(values) for values in group.values()}) > 1:
            lengths = ", ".join(f"{name} has {len(values)}" for name, values in group.items())
            raise ValueError(
                f"the axes have different numbers of values ({lengths}); give each axis the same number of values"
            )
    return tuple(groups)


def _variables(value: Any) -> Any:
    """Return the variables. A number becomes a text. Null unsets a variable."""
    if isinstance(value, dict):
        return {name: str(item) if isinstance(item, (int, float)) else item for name, item in value.items()}
    return value


def _variable_names(value: dict[str, str | None]) -> dict[str, str | None]:
    for name in value:
        if not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
            raise ValueError(f"{name!r} is not the name of a variable; write letters, digits and _")
    return value


TAG_WORDS = ("model", "framework", "num_gpus", "num_nodes", "environment", "trainer", "device")


def tag(value: str) -> str:
    """Return the tag. Raises ValueError if a pair of braces contains anything but a name, such as `{model}` or `{optim.lr}`.

    For example, `{model:999}` is refused, because such a width makes the text longer than an id may be.
    """
    allowed = f"{', '.join(f'{{{word}}}' for word in TAG_WORDS)}, or the name of an argument"
    try:
        parts = list(Formatter().parse(value))
    except ValueError as error:
        raise ValueError(f"{value!r} is invalid ({error}); in braces write one of {allowed}") from None
    for _, name, form, conversion in parts:
        if name is not None and (form or conversion or not re.fullmatch(r"[A-Za-z_][\w.-]*", name)):
            written = f"{{{name}{f'!{conversion}' if conversion else ''}{':' if form else ''}{form}}}"
            raise ValueError(f"{written} is invalid; write one of {allowed}")
    return value


def tag_arguments(value: str) -> frozenset[str]:
    """Return the names of the arguments that a tag has in braces."""
    return frozenset(name for _, name, _, _ in Formatter().parse(value) if name is not None).difference(TAG_WORDS)


def _baseline(value: Any) -> Any:
    """Return the baseline as axis → value. A plain name is the value of the axis `framework_config`."""
    if isinstance(value, str):
        value = {"framework_config": value}
    if not isinstance(value, dict) or any(isinstance(item, dict) for item in value.values()):
        message = "write the name of a framework configuration, or a mapping such as {optim: sgd}"
        raise ValueError(f"{value!r} is invalid; {message}")
    return {name: None if (name, item) == ("framework_config", "none") else item for name, item in value.items()}


def requirements(value: tuple[str, ...]) -> tuple[str, ...]:
    for text in value:
        if not re.fullmatch(r"[A-Za-z0-9]([\w.-]*[A-Za-z0-9])?", text, re.ASCII):
            from packaging.requirements import InvalidRequirement, Requirement  # most are plain names

            try:
                Requirement(text)
            except InvalidRequirement:
                message = f"{text!r} is not a package; write it like 'liger-kernel' or 'bitsandbytes>=0.45'"
                raise ValueError(message) from None
    return value


def module(value: tuple[str, ...]) -> tuple[str, ...]:
    name = not_empty(value)[0]
    if not re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*", name):
        raise ValueError(
            f"{name!r} is not the name of a module; write it like pkg.train, or name a file under 'script:'"
        )
    return value


def results(value: str) -> str:
    if not re.fullmatch(r"stdout|log|file:.+\.(jsonl?|csv)", value):
        raise ValueError(
            f"{value!r} is not allowed. Allowed: stdout, log, file:NAME.json, file:NAME.jsonl, file:NAME.csv"
        )
    if leads_outside(value.removeprefix("file:")):
        raise ValueError(f"{value!r} is outside the run; write the path of a file in the command's working folder")
    return value


def _share(value: Any) -> Any:
    """Return the fraction as a number. Allowed are `1%`, 0.01, and a text such as `1e-2`, which YAML 1.1 reads as text."""
    if isinstance(value, str):
        try:
            number = float(value.strip().removesuffix("%"))
        except ValueError:
            raise ValueError(f"{value!r} is not a share; write it like 1% or 0.01") from None
        return number / 100 if value.strip().endswith("%") else number
    return refuse_bool(value)


def _below_one(value: float) -> float:
    if not 0 < value < 1:
        raise ValueError(f"{value:g} is invalid; write a share between 0 and 1, such as 1% or 0.01")
    return value


def _one_or_many(item: dict[str, Any]) -> WithJsonSchema:
    return WithJsonSchema({"anyOf": [item, {"type": "array", "items": item, "minItems": 1}]})


_SCALAR = {"type": ["string", "number", "boolean", "null"]}


def comparison(value: Any) -> Comparison | None:
    """Return the comparison and the number in a text like `>= 8192`, or None for any other value."""
    found = _COMPARISON.fullmatch(value) if isinstance(value, str) else None
    limit = number(found[2]) if found else None
    return (_COMPARED[found[1]], limit) if found and limit is not None else None


def number(value: Any) -> float | None:
    """Return a value of an axis as a number, or None if it is not a finite number."""
    try:
        found = float(value) if isinstance(value, (str, int, float)) and not isinstance(value, bool) else inf
    except ValueError:
        return None
    return found if isfinite(found) else None


Whole = Annotated[int, Field(ge=1, le=1_000_000), BeforeValidator(refuse_bool)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False), BeforeValidator(refuse_bool)]
Share = Annotated[
    float,
    BeforeValidator(_share),
    AfterValidator(_below_one),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
                {"type": "string", "pattern": "%$"},
            ]
        }
    ),
]
Words = Annotated[tuple[str, ...], BeforeValidator(_as_tuple), _one_or_many({"type": "string"})]
_SHORT_NAME = {"type": ["string", "null"]}
_JOINED = {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1}
Frameworks = Annotated[
    tuple[str | None, ...],
    BeforeValidator(_frameworks),
    AfterValidator(not_empty),
    WithJsonSchema(
        {"anyOf": [_SHORT_NAME, {"type": "array", "items": {"anyOf": [_SHORT_NAME, _JOINED]}, "minItems": 1}]}
    ),
]
Names = Annotated[
    tuple[Annotated[str, Field(min_length=1)] | None, ...],
    BeforeValidator(_as_tuple),
    AfterValidator(not_empty),
    _one_or_many(_SHORT_NAME),
]
Counts = Annotated[
    tuple[Whole, ...],
    BeforeValidator(_as_tuple),
    AfterValidator(not_empty),
    _one_or_many({"type": "integer", "minimum": 1}),
]
AxisValues = Annotated[
    tuple[Any, ...],
    BeforeValidator(_as_tuple),
    AfterValidator(not_empty),
    WithJsonSchema({"anyOf": [_SCALAR, {"type": "array", "minItems": 1}]}),
]
Variables = Annotated[
    dict[str, str | None],
    BeforeValidator(_variables),
    AfterValidator(_variable_names),
    WithJsonSchema(
        {"type": "object", "additionalProperties": _SCALAR, "propertyNames": {"pattern": r"^[A-Za-z_]\w*$"}}
    ),
]
Arguments = dict[str, Any]
Baseline = Annotated[
    Arguments, BeforeValidator(_baseline), WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "object"}]})
]
_ZIPPED = {"type": "object", "additionalProperties": {"type": "array", "minItems": 1}, "minProperties": 2}
Zip = Annotated[
    tuple[dict[str, tuple[Any, ...]], ...],
    BeforeValidator(_zip),
    WithJsonSchema({"anyOf": [_ZIPPED, {"type": "array", "items": _ZIPPED, "minItems": 1}]}),
]
