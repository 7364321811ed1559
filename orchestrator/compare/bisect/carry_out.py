"""Carry out a bisection: measure and search, say each decision, and write the page of the step. `cli` chooses the experiment."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.compare.bisect import folder
from orchestrator.compare.bisect.checkout import Checkout
from orchestrator.compare.bisect.runs import Runs
from orchestrator.compare.bisect.search import Decision, Found, search
from orchestrator.compare.bisect.wording import Words
from orchestrator.compare.rules import Rules
from orchestrator.compare.sides import pairing, read
from orchestrator.compare.verdicts import compare
from orchestrator.compare.view import files, page
from orchestrator.executors import Executor
from orchestrator.files.printable_text import one_line
from orchestrator.measure.intervals import Ratio

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Result:
    """The end of a bisection, with its words and its page. The page is None if no step was found."""

    found: Found
    words: Words
    page: Path | None
    runs: int
    gpu_hours: float

    @property
    def exit_code(self) -> int:
        """Return 0 if the commit is found, and 1 if the ends do not differ clearly or the commit is in doubt."""
        return 0 if self.found.differ and not self.found.in_doubt else 1

    def lines(self) -> list[str]:
        return [*self.words.conclusion(self.found, runs=self.runs, gpu_hours=self.gpu_hours)]

    def document(self) -> str:
        shown = None if self.page is None else str(self.page)
        return self.words.document(self.found, runs=self.runs, gpu_hours=self.gpu_hours, page=shown)


def bisect(root: Path, checkout: Checkout, *, rules: Rules, executor: Executor, say: Say, tell: Say) -> Result:
    """Find the step in the folder `root`, or go on with the search of an earlier call. `tell` gets a line for each run.

    What was made for the candidates is removed at the end, and what an interrupted call left at the start.
    """
    named = next(iter(rules.metrics), None)
    with folder.opened(root, {**checkout.searched(), "metric": named or "default"}), closing(checkout):
        runs = Runs(root=root.absolute(), checkout=checkout, executor=executor, tell=tell)
        checkout.close(keep=runs.going_on())
        judged = rules.of(runs.choose_metric(named))
        words = Words(candidates=checkout.candidates, noun=checkout.noun, metric=judged.metric, values=runs.values)

        def on_ends(ends: Ratio) -> None:
            for line in (*words.ends(ends), *runs.notes()):
                say(line)

        def on_decision(decision: Decision) -> None:
            checkout.release(decision.place)
            say(words.decision(decision))

        found = search(runs.last, rule=judged, measure=runs.measure, on_ends=on_ends, on_decision=on_decision)
        written = _write_page(root, found, words, rules=rules) if found.differ else None
    return Result(found=found, words=words, page=written, runs=runs.count(), gpu_hours=runs.gpu_hours())


def _write_page(root: Path, found: Found, words: Words, *, rules: Rules) -> Path:
    """Write the comparison of the last good with the first bad candidate. The text below its title names the step."""
    ends = [words.candidates[place] for place in (found.last_good, found.first_bad)]
    sides = read.several([[root / one.key] for one in ends])
    base, new = (
        replace(side, name=one_line(f"{one.key} {one.title}".strip())) for side, one in zip(sides, ends, strict=True)
    )
    compared = compare(base, new, pairs=pairing.pair(base, new), rules=rules)
    path = root / folder.PAGE
    files.write(path, page.page(compared, lead=" ".join(words.step(found))))
    return path
