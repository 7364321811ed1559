"""Write a comparison as one JSON document, and read it back, for `tunebench rerun --from` and other programs.

`text` writes the whole `Comparison` in base units at full precision; a missing value is null. `load` does not trust the file, and
limits how much it reads. It refuses a file that another program or a newer version of Tunebench wrote.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.compare.comparison import SCHEMA_VERSION, Comparison, Row
from orchestrator.errors import ResultsError
from orchestrator.files import reading
from orchestrator.files.printable_text import escaped, quoted

if TYPE_CHECKING:
    from pydantic import TypeAdapter

# The first entry of the document, which identifies it.
KIND = "tunebench comparison"

_WRITES_ONE = "tunebench compare BASE NEW --output comparison.json"

# The largest file that is read. 10,000 experiments of five runs per side take about 60 MiB.
BYTES = 256 * reading.MIB


def text(comparison: Comparison) -> str:
    """Return the document. Characters that control a terminal become `\\uXXXX`, so that the text can be printed."""
    inside = _adapter().dump_json(comparison, indent=1).decode()
    return escaped(f'{{\n "kind": "{KIND}",{inside.removeprefix("{")}') + "\n"


def load(path: Path) -> Comparison:
    """Return the comparison of a file. Raise ResultsError if the file is not a comparison, or cannot be read."""
    try:
        return parse(reading.read_json(path, limit=BYTES))
    except FileNotFoundError:
        raise ResultsError(f"{path}: there is no such file; `{_WRITES_ONE}` writes one") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ResultsError(f"{path}: this is not a comparison: {reason}; `{_WRITES_ONE}` writes one") from None


def parse(document: Any) -> Comparison:
    """Return the comparison in a JSON value. Raise ValueError with the end of a sentence if the value is not a comparison."""
    from pydantic import ValidationError

    if not isinstance(document, dict) or document.get("kind") != KIND:
        raise ValueError("it is JSON, but not what `tunebench compare --format json` writes")
    if document.get("schema_version") != SCHEMA_VERSION:
        raise ValueError(
            f"its schema_version is {quoted(document.get('schema_version'), longest=40)}, but this program reads {SCHEMA_VERSION}"
        )
    try:
        comparison = _adapter().validate_python({name: value for name, value in document.items() if name != "kind"})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        why = f"{first['msg'][:1].lower()}{first['msg'][1:]}"
        raise ValueError(f"{'.'.join(map(str, first['loc']))}: {why}"[:400]) from None
    _refuse_odd_numbers(comparison)
    return comparison


def _refuse_odd_numbers(comparison: Comparison) -> None:
    """Raise ValueError for a value that is not finite, or for a ratio that has no logarithm."""
    ratios = [row.ratio for row in comparison.rows if row.ratio is not None]
    ratios += [line.ratio for line in comparison.fleet]
    intervals = [ratio.interval for ratio in ratios if ratio.interval is not None]
    positive = [*(ratio.value for ratio in ratios), *(end for range_ in intervals for end in (range_.low, range_.high))]
    values = [value for row in comparison.rows for value in _numbers(row) if value is not None]
    if not all(map(math.isfinite, (*positive, *values))) or min(positive, default=1) <= 0:
        raise ValueError("it has a number that is not finite, or a ratio that is not above 0")


def _numbers(row: Row) -> Iterator[float | None]:
    yield from (row.base, row.new, row.p_adjusted, row.may_be_worse_by)
    yield from row.highest or ()


@cache
def _adapter() -> TypeAdapter[Comparison]:
    from pydantic import TypeAdapter

    return TypeAdapter(Comparison)
