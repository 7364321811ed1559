"""Turn the open pairs of a comparison into contests: the sides that can run, and the reasons why other sides cannot."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from orchestrator.compare.comparison import Comparison
from orchestrator.compare.rerun.readiness import Here, Ready, Refused, readiness, this_machine
from orchestrator.compare.rerun.rounds import Contest, Turn
from orchestrator.compare.rerun.undecided import MOST_RUNS, Undecided, undecided
from orchestrator.executors.slurm.site import Site
from orchestrator.files.printable_text import shell_word
from orchestrator.records import Device
from orchestrator.records.experiment import experiment_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Prepared:
    """The contests that can run. `open` is the number of open pairs. `warnings` are sentences about sides that cannot run."""

    contests: tuple[Contest, ...]
    open: int
    warnings: tuple[str, ...] = ()

    @property
    def is_stuck(self) -> bool:
        """Return whether pairs are open but none of their sides can run here."""
        return self.open > 0 and not any(contest.sides for contest in self.contests)


def prepare(
    comparison: Comparison,
    *,
    runs: int | None = None,
    max_runs: int = MOST_RUNS,
    ignore: Collection[str] = (),
    here: Here = this_machine,
    site: Site | None = None,
) -> Prepared:
    """Check every open pair and its folders. Nothing is run or written.

    `site` is the cluster whose nodes would carry out the runs; None means this machine.
    """
    contests: list[Contest] = []
    warnings: list[str] = []
    open_pairs = undecided(comparison, runs=runs, max_runs=max_runs)
    for pair in open_pairs:
        warnings += [f"{pair.label:.200}: {sentence}" for sentence in _on_hopeless_rows(pair, max_runs)]
    for pair in of_experiments(open_pairs):
        if pair.runs is None:
            continue
        ready = []
        look = partial(readiness, ignore=ignore, here=here, site=site)
        for name, side in _sides(pair, look, runs=pair.runs):
            if isinstance(side, Refused):
                warnings.append(f"{pair.label:.200}: {name} is not run: {side.why}")
            else:
                ready.append(side)
        contests.append(Contest(label=pair.label, sides=tuple(ready)))
    return Prepared(contests=tuple(contests), open=len(open_pairs), warnings=tuple(warnings))


def of_experiments(pairs: Sequence[Undecided]) -> list[Undecided]:
    """Return the pairs. Of the benchmarks of a suite, which run together, return the pair that needs the most runs."""
    kept: dict[object, Undecided] = {}
    for pair in pairs:
        sides = [(side.folder, experiment_of(side.id)) if side.id else side.label for side in (pair.base, pair.new)]
        known = kept.setdefault(tuple(sides), pair)
        if (pair.runs or 0) > (known.runs or 0):
            kept[tuple(sides)] = pair
    return list(kept.values())


def _on_hopeless_rows(pair: Undecided, max_runs: int) -> Iterator[str]:
    """Yield sentences that say which rows of a pair get no more runs, and why."""
    for metric, needs in pair.hopeless.items():
        limit = f"--max-runs is {max_runs}"
        yield f"{metric:.200} gets no more runs: it would need about {needs} more per side, and {limit}"
    if pair.runs is None and not pair.hopeless:
        yield "even 100 more per side would hardly settle it; --runs N makes N more per side"


def _sides(
    pair: Undecided, look: Callable[..., Ready | Refused], *, runs: int
) -> Iterator[tuple[str, Ready | Refused]]:
    if pair.is_same_experiment:  # both sides are halves of one campaign, so it gets the runs for both halves
        seen = (*pair.base.runs, *pair.new.runs)
        yield "it", look(pair.new, runs=2 * runs, seen=seen)
        return
    for name, entry in (("base", pair.base), ("new", pair.new)):
        yield name, look(entry, runs=runs, seen=entry.runs)


def lines(prepared: Prepared, order: Sequence[Turn]) -> Iterator[str]:
    """Yield one line for each experiment that will run."""
    if not prepared.open:
        yield "No row of this comparison is inconclusive: there is nothing to run again."
    elif not prepared.contests:
        yield "No inconclusive experiment gets more runs, as the notes say. --runs N makes N more per side."
    elif prepared.is_stuck:
        yield "No inconclusive experiment can be settled by more runs, as the notes say."
    elif not order:
        yield "The inconclusive experiments already have their further runs: compare again."
    else:
        sides = [side for contest in prepared.contests for side in contest.sides if side.repeats]
        rounds = max(len(side.repeats) for side in sides)
        yield f"{len(order)} run(s) of {len(sides)} experiment(s), in {rounds} round(s):"
        yield from (f"  {len(side.repeats)} × {side.experiment.id} in {side.store.root}" for side in sides)


def compare_again(comparison: Comparison) -> str:
    """Return the command that compares the two sides again."""
    base, new = (_places(comparison, side) for side in ("base", "new"))
    words = ["--aa", base] if base == new else [base, new]
    return " ".join(["tunebench", "compare", *map(shell_word, words)])


def _places(comparison: Comparison, side: str) -> str:
    """Return the folders of a side's entries. If an entry has no folder, return the name of the side."""
    entries = [entry for pair in comparison.pairs if (entry := pair.base if side == "base" else pair.new) is not None]
    folders = dict.fromkeys(entry.folder for entry in entries)
    known = [folder for folder in folders if folder is not None]
    # An experiment that is in several folders names the last of them.
    whole = (comparison.base if side == "base" else comparison.new).split(", ")
    is_longer = len(whole) > len(known) and all(Path(folder).is_dir() for folder in whole)
    return ",".join(known if known and len(known) == len(folders) and not is_longer else whole)


def gpu_hours(order: Sequence[Turn]) -> float:
    """Return the estimated GPU hours. A run takes as long as its experiment's longest run, or as its time limit.

    Runs on CPUs take none.
    """
    on_gpus = [turn.ready for turn in order if turn.ready.experiment.device is Device.CUDA]
    return sum((ready.run_s or 0.0) * ready.experiment.num_gpus / 3600 for ready in on_gpus)
