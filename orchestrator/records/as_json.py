"""Values that cross a file do so as JSON, with every field's type checked on the way in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from pydantic import TypeAdapter

T = TypeVar("T")
_adapters: dict[type, Any] = {}


def _adapter(kind: type[T]) -> TypeAdapter[T]:
    """Building one costs far more than using it, and a results folder holds thousands of records."""
    if kind not in _adapters:
        from pydantic import TypeAdapter

        _adapters[kind] = TypeAdapter(kind)
    adapter: TypeAdapter[T] = _adapters[kind]
    return adapter


def dump(value: Any) -> str:
    """A record as JSON text, keys in the order of the fields."""
    return _adapter(type(value)).dump_json(value, indent=2).decode() + "\n"


def load(kind: type[T], text: str | bytes) -> T:
    """JSON text as a record of `kind`. Raises ValueError with the first field that is missing or has another type."""
    from pydantic import ValidationError

    try:
        return _adapter(kind).validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise ValueError(f"{where}: {first['msg']}" if where else first["msg"]) from error
