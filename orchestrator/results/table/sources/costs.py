"""The costs of runs, from the price of the machine's time and the numbers of their rows. Pure.

No record has a cost, because the price may change: all rows of a folder are shown at one price.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from orchestrator.files import reading
from orchestrator.measure.losses import target
from orchestrator.records import Device
from orchestrator.records.price import HOUR_S, Price, parse_price
from orchestrator.results.table.rows import Row, Value

PRICE, OF_RUN, OF_TOKENS, TO_FINISH, TO_TARGET = (
    *("provenance_price", "cost_of_run"),
    *("cost_per_billion_tokens", "cost_to_finish", "cost_to_target"),
)
_SPEEDS = ("real_tokens_per_s", "tokens_per_s")
_ROWS, _BATCH, _STEPS = "effective_train_rows", "effective_global_batch", "steps_per_s"
_EPOCHS = ("num_train_epochs", "num_epochs")


def price_of(suite: Mapping[str, object]) -> Price | None:
    """Return the price in the content of a `suite.json`. The file may come from someone else, so an invalid price is none."""
    try:
        return parse_price(suite.get("price"))
    except ValueError:
        return None


def with_costs(row: Row, price: Price | None) -> Row:
    """Return the row of a run with its costs. Without a price, or for an experiment without a run, return the row as it is."""
    if price is None or "repeat" not in row.outcome:
        return row
    gpus = int(_number(row.facts, "num_gpus") or 1) if row.facts.get("device") != Device.CPU.value else 0
    an_hour = price.of_time(HOUR_S, gpus=gpus, nodes=int(_number(row.facts, "num_nodes") or 1))
    costs: dict[str, Value] = {PRICE: str(price)}
    if an_hour is not None:
        seconds = {
            **{OF_RUN: _number(row.measured, "wall_s"), TO_TARGET: _number(row.measured, target.TIME)},
            **{OF_TOKENS: _billion_s(row), TO_FINISH: _finish_s(row)},
        }
        costs |= {name: an_hour * took / HOUR_S for name, took in seconds.items() if took is not None}
    return replace(row, measured={**row.measured, **costs})


def _billion_s(row: Row) -> float | None:
    """Return the seconds that a billion tokens take in the steady state."""
    speed = next((speed for name in _SPEEDS if (speed := _number(row.measured, name))), None)
    return 1e9 / speed if speed else None


def _finish_s(row: Row) -> float | None:
    """Return the seconds that all epochs take in the steady state.

    The steps of an epoch are counted in rows of the training data, as the Trainer counts them. So cut and packed rows count as
    they are trained on.
    """
    rows, batch, speed = (_number(row.measured, name) for name in (_ROWS, _BATCH, _STEPS))
    if not (rows and batch and speed):
        return None
    given = next((value for name in _EPOCHS if (value := row.arguments.get(name)) is not None), 1)
    epochs = reading.number_in(str(given))
    return epochs * rows / batch / speed if epochs is not None and epochs > 0 else None


def _number(cells: Mapping[str, Value], name: str) -> float | None:
    value = cells.get(name)
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0 else None
