"""The objectives of a race (`tunebench tune --objective`): speed, cost per token, or energy per token."""

from __future__ import annotations

from enum import StrEnum


class Objective(StrEnum):
    """The number that decides a race. By cost and by energy, experiments on different numbers of GPUs race against each other."""

    SPEED = "tokens_per_s"
    COST = "cost"
    ENERGY = "energy"
