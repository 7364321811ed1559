"""Write values as JSON text and read them back. Reading checks the type of every field."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError

T = TypeVar("T")
_MOST_ERRORS, _LONGEST_PLACE = 1000, 200
_adapters: dict[type, Any] = {}


def _adapter(kind: type[T]) -> TypeAdapter[T]:
    """Return the adapter of a type. The adapter is cached, because building it is slow and a folder has many records."""
    if kind not in _adapters:
        from pydantic import TypeAdapter

        _adapters[kind] = TypeAdapter(kind)
    adapter: TypeAdapter[T] = _adapters[kind]
    return adapter


def dump(value: Any) -> str:
    """Return a value as JSON text. The keys are in the order of the fields."""
    return _adapter(type(value)).dump_json(value, indent=2).decode() + "\n"


def load(kind: type[T], text: str | bytes) -> T:
    """Return the value of type `kind` that a JSON text contains.

    A field must have exactly its type: `true` and `"1"` are not numbers.

    If a field is missing or has a wrong type, raise a ValueError that names the first such field. If more than a thousand fields
    are wrong, the error only says how many: a hostile file may have millions of them, and describing them all takes gigabytes.
    """
    from pydantic import ValidationError

    try:
        return _adapter(kind).validate_json(text, strict=True)
    except ValidationError as error:
        raise ValueError(_first_wrong(error)) from None


def _first_wrong(error: ValidationError) -> str:
    if error.error_count() > _MOST_ERRORS:
        return f"{error.error_count():,} of its fields are wrong"
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    where = ".".join(map(str, first["loc"]))[:_LONGEST_PLACE]
    return f"{where}: {first['msg']}" if where else first["msg"]
