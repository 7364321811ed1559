"""Shares with their intervals, and what they are compared with: a target. The drivers in this folder print them as Markdown."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from shapes import SEED


@dataclass(frozen=True, kw_only=True)
class Share:
    """The number of cases in which something happened, and the number of all cases."""

    hits: int
    of: int

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of Clopper and Pearson."""
        from scipy.special import betaincinv

        low = float(betaincinv(self.hits, self.of - self.hits + 1, 0.025)) if self.hits else 0.0
        high = float(betaincinv(self.hits + 1, self.of - self.hits, 0.975)) if self.hits < self.of else 1.0
        return low, high

    @property
    def value(self) -> float:
        return self.hits / self.of if self.of else float("nan")

    def __str__(self) -> str:
        """Return the share with half the width of its interval, in per cent."""
        if not self.of:
            return ""
        low, high = self.interval
        digits = 2 if high < 0.01 else 1
        return f"{100 * self.value:.{digits}f} ± {50 * (high - low):.{digits}f}"


def share(cases: Iterable[bool]) -> Share:
    listed = list(cases)
    return Share(hits=sum(listed), of=len(listed))


@dataclass(frozen=True, kw_only=True)
class Target:
    """A bound for a share. It is met if the share's interval reaches it."""

    name: str
    share: Share
    at_least: float | None = None
    at_most: float | None = None

    @property
    def is_met(self) -> bool:
        low, high = self.share.interval
        return high >= (self.at_least or 0) and low <= (1 if self.at_most is None else self.at_most)

    def __str__(self) -> str:
        low, high = (f"{100 * end:.2f}" for end in self.share.interval)
        bound = f"≥ {100 * self.at_least:.4g}" if self.at_least is not None else f"≤ {100 * (self.at_most or 0):.4g}"
        met = "met" if self.is_met else "**not met**"
        return line(self.name, f"{100 * self.share.value:.2f}", f"{low} to {high}", bound, met)


def table(*columns: str) -> Iterator[str]:
    """Yield the head of a table. The first column has text, the others have numbers."""
    yield "\n| " + " | ".join(columns) + " |"
    yield "|---|" + "--:|" * (len(columns) - 1)


def line(*cells: object) -> str:
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def of_targets(targets: Iterable[Target]) -> Iterator[str]:
    yield from table("target", "share, %", "95 % interval", "bound, %", "")
    yield from map(str, targets)


def options(doc: str | None, campaigns: int, *parts: str) -> argparse.Namespace:
    """Return the options of a driver: the number of campaigns for a figure, the seed, and the parts to print."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--campaigns", type=int, default=campaigns, help=f"campaigns for a figure [default: {campaigns}]"
    )
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--only", choices=parts, nargs="*", default=parts, help="tables to print [default: all]")
    return parser.parse_args()
