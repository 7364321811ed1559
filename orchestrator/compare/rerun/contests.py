"""From a comparison to what can be run of it: every open pair with those of its sides that are ready, and why others are not."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from orchestrator.compare.comparison import Comparison
from orchestrator.compare.rerun.readiness import Here, Ready, Refused, readiness, this_machine
from orchestrator.compare.rerun.rounds import Contest, Turn
from orchestrator.compare.rerun.undecided import Undecided, undecided
from orchestrator.files.printable_text import shell_word


@dataclass(frozen=True, kw_only=True, slots=True)
class Prepared:
    """What can be run. `open` is how many pairs the comparison left open, `warnings` are sentences about what is left alone."""

    contests: tuple[Contest, ...]
    open: int
    warnings: tuple[str, ...] = ()

    @property
    def is_stuck(self) -> bool:
        """Whether something is open of which nothing can be run here."""
        return self.open > 0 and not any(contest.sides for contest in self.contests)


def prepare(
    comparison: Comparison, *, runs: int | None = None, ignore: Collection[str] = (), here: Here = this_machine
) -> Prepared:
    """Looks at every open pair and its folders; runs and writes nothing."""
    contests: list[Contest] = []
    said: list[str] = []
    found = undecided(comparison, runs=runs)
    for one in found:
        if one.runs is None:
            said.append(
                f"{one.label:.200}: no number of runs would settle it by what is known; --runs N makes N a side"
            )
            continue
        sides = []
        for name, side in _sides(one, runs=one.runs, ignore=ignore, here=here):
            if isinstance(side, Refused):
                said.append(f"{one.label:.200}: {name} is left alone: {side.why}")
            else:
                sides.append(side)
        contests.append(Contest(label=one.label, sides=tuple(sides)))
    return Prepared(contests=tuple(contests), open=len(found), warnings=tuple(said))


def _sides(one: Undecided, *, runs: int, ignore: Collection[str], here: Here) -> Iterator[tuple[str, Ready | Refused]]:
    if one.is_one:  # both halves of one campaign: as many more for each
        seen = (*one.base.runs, *one.new.runs)
        yield "it", readiness(one.new, runs=2 * runs, seen=seen, ignore=ignore, here=here)
        return
    for name, entry in (("base", one.base), ("new", one.new)):
        yield name, readiness(entry, runs=runs, seen=entry.runs, ignore=ignore, here=here)


def lines(prepared: Prepared, order: Sequence[Turn]) -> Iterator[str]:
    """What will run, a line for each experiment."""
    if not prepared.open:
        yield "Nothing is inconclusive in this comparison: there is nothing to run again."
    elif not order:
        done = not prepared.is_stuck
        yield "What was open has its runs already: compare again." if done else "Nothing of what is open can run here."
    else:
        sides = [side for contest in prepared.contests for side in contest.sides if side.repeats]
        rounds = max(len(side.repeats) for side in sides)
        yield f"{len(order)} run(s) of {len(sides)} experiment(s), in {rounds} round(s):"
        yield from (f"  {len(side.repeats)} × {side.experiment.id} in {side.store.root}" for side in sides)


def compare_again(comparison: Comparison) -> str:
    """The command that holds the two sides against each other once more."""
    base, new = (_places(comparison, side) for side in ("base", "new"))
    words = ["--aa", base] if base == new else [base, new]
    return " ".join(["tunebench", "compare", *map(shell_word, words)])


def _places(comparison: Comparison, side: str) -> str:
    """The folders that a side's entries lie in; of one that has none, its name."""
    entries = [entry for pair in comparison.pairs if (entry := pair.base if side == "base" else pair.new) is not None]
    folders = dict.fromkeys(entry.folder for entry in entries)
    known = [folder for folder in folders if folder is not None]
    if known and len(known) == len(folders):
        return ",".join(known)
    return (comparison.base if side == "base" else comparison.new).replace(", ", ",")


def gpu_hours(order: Sequence[Turn]) -> float:
    """How long they may take, in hours times GPUs: by what runs of each took, else by its time limit."""
    return sum((turn.ready.run_s or 0.0) * turn.ready.experiment.num_gpus / 3600 for turn in order)
