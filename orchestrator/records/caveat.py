"""A caveat about a number, or the reason for a missing number. It has a kind for programs, and a detail for people.

Programs do not read a caveat's sentence, except in records of older versions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class CaveatKind(StrEnum):
    """The kind of a caveat."""

    NO_STEADY_SPEED = "no_steady_speed"
    NOT_LEVEL = "not_level"
    CONTAMINATED = "contaminated"
    THROTTLED = "throttled"
    BUSY_HOST = "busy_host"
    RECOMPILED = "recompiled"
    PROFILED = "profiled"
    COLD_FIRST_RUN = "cold_first_run"
    NOT_FINITE = "not_finite"
    MISSING = "missing"
    NOTE = "note"

    @classmethod
    def _missing_(cls, value: object) -> CaveatKind:
        return cls.NOTE  # a newer version wrote this kind; its detail is still shown


SENTENCES = {
    CaveatKind.NO_STEADY_SPEED: "no steady-state speed: {}",
    CaveatKind.NOT_LEVEL: "no steady-state speed: {}; let it run longer, or look for what changes",
    CaveatKind.CONTAMINATED: "others used the run's GPUs: {}",
    CaveatKind.THROTTLED: "the clocks were held down in the steady state: {}",
    CaveatKind.BUSY_HOST: "the host was busy: {}",
    CaveatKind.RECOMPILED: "the steady state includes compilation: {}",
    CaveatKind.PROFILED: "the steady state includes profiled steps: {}",
    CaveatKind.COLD_FIRST_RUN: "the first run was slow, so it is left out: {}",
    CaveatKind.NOT_FINITE: "{} is not a finite number",
    CaveatKind.MISSING: "without a value: {}",
    CaveatKind.NOTE: "{}",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Caveat:
    """One caveat. The detail of a note is a whole sentence. The detail of another kind completes the sentence in `SENTENCES`."""

    kind: CaveatKind = CaveatKind.NOTE
    detail: str

    @property
    def sentence(self) -> str:
        return SENTENCES[self.kind].format(self.detail)

    @classmethod
    def of_sentence(cls, sentence: str) -> Caveat:
        """Return the caveat that a sentence states. The sentence is from a CSV file, or from a record before version 3."""
        for kind, pattern in _KNOWN:
            if match := re.fullmatch(pattern, sentence, re.DOTALL):
                return cls(kind=kind, detail=" ".join(match.groups()))
        return cls(detail=sentence)


def unsteady(caveats: Iterable[Caveat]) -> Caveat | None:
    """Return the caveat that says why a run has no steady-state speed. Return None if there is none."""
    kinds = (CaveatKind.NO_STEADY_SPEED, CaveatKind.NOT_LEVEL)
    return next((caveat for caveat in caveats if caveat.kind in kinds), None)


# Patterns of the sentences about the speed. The last pattern is only for records before version 3.
_KNOWN = (
    (CaveatKind.NOT_LEVEL, r"no steady-state speed: (.*); let it run longer, or look for what changes"),
    (CaveatKind.NO_STEADY_SPEED, r"no steady-state speed:? ?(.*)"),
    (CaveatKind.CONTAMINATED, r"others used the run's GPUs: (.*)"),
    (CaveatKind.BUSY_HOST, r"the host was busy: (.*)"),
    (CaveatKind.RECOMPILED, r"the steady state includes compilation: (.*)"),
    (CaveatKind.PROFILED, r"the steady state includes profiled steps: (.*)"),
    (CaveatKind.COLD_FIRST_RUN, r"the first run was (?:slow|cold), so it is left out: (.*)"),
    (CaveatKind.THROTTLED, r"the clocks were held down in the steady state: (.*)"),
    (CaveatKind.THROTTLED, r"(.*) held the clocks down in (\d+%) of the steady state"),
)


class AcceptsSentence:
    """An annotation of the type Caveat. It makes a reader accept a sentence of an older record as a caveat."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_before_validator_function(_fields, handler(source))


def _fields(value: object) -> object:
    """If the value is a sentence, return the fields of its caveat. Return any other value unchanged."""
    return asdict(Caveat.of_sentence(value)) if isinstance(value, str) else value
