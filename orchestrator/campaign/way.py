"""The way in which `tunebench run` carries out a campaign, from the words of the command line and of the scenario file."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator import executors
from orchestrator.campaign.loop import Event, OnEvent
from orchestrator.campaign.race.aim import Aim
from orchestrator.campaign.status.budget import Budget, parse_budget
from orchestrator.errors import ConfigError, SelectionError, suggestion
from orchestrator.executors import LOCAL, SLURM
from orchestrator.executors.slurm.site import Site
from orchestrator.executors.starters import Environment, EnvironmentOf
from orchestrator.files.printable_text import one_line
from orchestrator.measure.failure_kinds import KINDS
from orchestrator.plan.command.warm_start import environment_of
from orchestrator.plan.config import Document
from orchestrator.records import Experiment, Start
from orchestrator.records.price import Price
from orchestrator.results.contents import last_start
from orchestrator.results.due_runs import NO_RETRY, Retry
from orchestrator.results.store import Store

ALL_KINDS, AUTO = "all", "auto"

_MOST_AT_ONCE = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class Way:
    """The options of `tunebench run` that say how to carry out the campaign."""

    prepare: bool = True
    retry: Retry = NO_RETRY
    fail_fast: bool = False
    take_over: bool = False
    executor: str = LOCAL
    # The number of concurrent runs of the executor `local`. None means as many as fit; their slowdown is measured first.
    parallel: int | None = 1
    probe: bool = False
    # What decides a race (`tunebench tune`), which makes only as many runs as it needs to find the best experiment.
    race: Aim | None = None
    # The cluster of the executor `slurm`, and whether only to submit the runs.
    site: Site | None = None
    # The price of the machines' time. It is kept with the results.
    price: Price | None = None
    # The most that the runs of the campaign may use. The executor `local` then starts no run that may exceed it.
    budget: Budget | None = None
    submit_only: bool = False
    # True if runs start warm where they can. None: those that only search do, which are probes and races, and those whose
    # experiment has a warm run.
    warm: bool | None = None
    # Gets each event of the runs too, after the display.
    on_event: OnEvent | None = None

    def environment_of(self, experiment: Experiment) -> Environment | str:
        """Return the environment of a starter for this experiment, or the reason for a cold start: empty without `--warm`."""
        found = environment_of(experiment)
        return "" if isinstance(found, str) and not self.warm else found

    def environment_of_run(self, store: Store) -> EnvironmentOf:
        """Return the same function for the runs of this results folder.

        Without an option, a run starts as the last run of its experiment there, so that the repeats of an experiment are alike.
        """

        def found(experiment: Experiment) -> Environment | str:
            before = None if self.warm else last_start(store.runs(experiment.id))
            if before is Start.WARM:
                return environment_of(experiment)
            return self.environment_of(experiment) if before is None and self.measures_warm else ""

        return found

    @property
    def probes_warm(self) -> bool:
        return self.warm is not False

    @property
    def measures_warm(self) -> bool:
        return self.race is not None if self.warm is None else self.warm

    def also_telling(self, shown: OnEvent) -> OnEvent:
        """Return a function that passes an event to the display, and then to `on_event`."""
        every = (shown, *([self.on_event] if self.on_event else ()))

        def tell(event: Event) -> None:
            for one in every:
                one(event)

        return tell


def retry_of(words: str | None) -> Retry:
    """Return the kinds of failures that `--retry-failed` repeats.

    Without the option, no failure is repeated. The word "all" means every kind. Raise SelectionError for an unknown kind.
    """
    if words is None:
        return NO_RETRY
    kinds = tuple(word.strip() for word in words.split(",") if word.strip())
    for kind in kinds:
        if kind not in (*KINDS, ALL_KINDS):
            raise SelectionError(f"--retry-failed {words}: {kind!r} is not a kind of failure{suggestion(kind, KINDS)}")
    return Retry(failed=True, kinds=() if ALL_KINDS in kinds else kinds)


def refuse_unknown_executor(name: str, document: Document | None) -> None:
    """Raise an error if the executor is unknown. Its name is from `--executor`, or else from the file of the document."""
    try:
        executors.get(name)
    except SelectionError as error:
        if document is None:
            raise
        raise ConfigError([document.problem(("executor",), str(error))]) from None


def refuse_options_of_local(
    executor: str, *, parallel: int | None, gpus: str | None, warm: bool | None, budget: str | None = None
) -> None:
    """Raise SelectionError if an option that only the executor `local` has is given for another executor."""
    given = {
        **{"--parallel": parallel != 1, "--gpus": gpus is not None, "--warm": warm is True},
        "--budget": budget is not None,
    }
    option = next((name for name, is_given in given.items() if is_given), None)
    if option is not None and executor != LOCAL:
        raise SelectionError(
            f"{option} works only with the executor {LOCAL!r}, not with {executor!r}; leave {option} out"
        )


def refuse_submit_only(executor: str, *, probe: bool, find: bool) -> None:
    """Raise SelectionError if the executor has no queue for the runs, or if another option must wait for runs."""
    if executor != SLURM:
        raise SelectionError(
            f"--submit-only works only with the executor {SLURM!r}, not with {executor!r}; add --executor {SLURM}"
        )
    if probe or find:
        other = "--probe" if probe else "--find"
        raise SelectionError(f"--submit-only does not wait for runs, and {other} must; leave one of the two out")


def budget_of(words: str | None, price: Price | None, *, find: bool) -> Budget | None:
    """Return the budget of `--budget`, or None without the option. Raise SelectionError if it is invalid."""
    if words is None:
        return None
    if find:
        raise SelectionError("--find measures nothing and has no budget; leave --budget or --find out")
    return parse_budget(words, price=price)


def parallel_of(words: str) -> int | None:
    """Return the number in `--parallel`, or None for `auto`. Raise SelectionError for other values."""
    if words == AUTO:
        return None
    if not (words.isdecimal() and len(words) < 10 and 0 < int(words) <= _MOST_AT_ONCE):
        shown = one_line(words, longest=40)
        raise SelectionError(
            f"--parallel {shown!r} is invalid; write a whole number from 1 to {_MOST_AT_ONCE}, or {AUTO}"
        )
    return int(words)
