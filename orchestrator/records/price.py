"""The price of a machine's time, as users write it: `2.50USD/GPUh`, or `20USD/nodeh@2026-11-01` with the date of the price.

A price is not a part of a measurement, so it enters no experiment's id. The cost of GPUs counts only the GPUs of a run. The cost
of nodes counts whole nodes, with the GPUs that the run leaves idle.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from typing import Any

HOUR_S = 3600
_FORM = "such as 2.50USD/GPUh, 20USD/nodeh or 2.50USD/GPUh@2026-11-01"
_PRICE = re.compile(
    r"(?P<amount>\d{1,12}(\.\d{1,12})?)"
    r"(\s*(?P<currency>[A-Z]{3})?\s*/\s*(?P<per>GPUh|nodeh)(\s*@\s*(?P<date>\d{4}-\d\d-\d\d))?)?",
    re.ASCII,
)


class Per(StrEnum):
    """The hour that a price is for."""

    GPU_HOUR = "GPUh"
    NODE_HOUR = "nodeh"


@dataclass(frozen=True, kw_only=True, slots=True)
class Price:
    """A price per hour. `amount` is in units of the currency. A plain number is the price of a GPU-hour, without a currency."""

    amount: float
    per: Per = Per.GPU_HOUR
    currency: str = ""
    date: str | None = None

    def __str__(self) -> str:
        """Return the price in the form that `parse_price` reads."""
        return f"{self.amount:.12g}{self.currency}/{self.per}" + (f"@{self.date}" if self.date else "")

    def of_time(self, seconds: float, *, gpus: int, nodes: int = 1) -> float | None:
        """Return the cost of so many seconds. `gpus` is 0 for a run on CPUs, whose time has no price per GPU-hour: return None."""
        count = nodes if self.per is Per.NODE_HOUR else gpus
        return self.amount * count * seconds / HOUR_S if count else None

    def shown(self, cost: float) -> str:
        """Return a cost as text, such as `12.50 USD`."""
        digits = 2 if cost >= 1 or not cost else 4
        return " ".join(filter(None, (f"{cost:,.{digits}f}", self.currency)))


def parse_price(value: Any) -> Price:
    """Return the price that a text means. Raise ValueError, whose message quotes the text, for any other value."""
    found = _PRICE.fullmatch(value.strip()) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f"{str(value)[:60]!r} is not a price; write an amount, {_FORM}")
    if found["date"]:
        try:
            date.fromisoformat(found["date"])
        except ValueError:
            raise ValueError(f"{found['date']!r} is not a date; write the day of the price, {_FORM}") from None
    per = Per(found["per"] or Per.GPU_HOUR)
    return Price(amount=float(found["amount"]), per=per, currency=found["currency"] or "", date=found["date"])
