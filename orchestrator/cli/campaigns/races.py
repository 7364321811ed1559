"""The races of `tunebench tune`: what it does that `run` does not."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from orchestrator.campaign.race.objective import Objective
from orchestrator.cli.terminal.console import print_table, say

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from orchestrator.campaign.race.aim import Aim
    from orchestrator.campaign.race.names import Names
    from orchestrator.campaign.race.places import Place
    from orchestrator.machine.provenance import Machine
    from orchestrator.plan.expand import Plan
    from orchestrator.records import Experiment
    from orchestrator.results.store import Store


@dataclass(frozen=True, kw_only=True, slots=True)
class Races:
    """The races of a campaign, and what decides them."""

    aim: Aim

    def prepared(self, planned: Plan, machine: Machine, root: Path | None) -> Plan:
        """Return the plan. Experiments that certainly need too much memory are marked as unable to run here.

        A note says if the results folder has a race of them that is not over and has another aim.

        Raise SelectionError if an experiment cannot race.
        """
        from orchestrator.campaign.race import aim, as_json, places
        from orchestrator.plan.forecast.states import leave_out_what_does_not_fit

        places.refuse_suites(planned.experiments)
        aim.refuse_unmeasured(self.aim, planned.experiments)
        kept = leave_out_what_does_not_fit(planned.experiments, machine, self.aim.memory_bytes)
        others = as_json.other_aims(root, kept, self.aim) if root else ()
        return replace(planned, experiments=kept, notes=(*planned.notes, *others))

    def begun(self, planned: Plan, store: Store) -> Sequence[Experiment]:
        """Return the experiments with the repeats that they have in the next round, so that the status counts no others."""
        from orchestrator.campaign.race import rounds

        return rounds.begun(planned.experiments, store, self.aim)

    def most(self, planned: Plan, root: Path | None) -> tuple[Plan, str]:
        """Return the plan with the most runs that its races make, and a line about these runs.

        The runs in a results folder count. A race that is over there makes only the repeats that its winner still needs.
        """
        from orchestrator.campaign.race import places, rounds, view
        from orchestrator.campaign.steps import with_all_rounds
        from orchestrator.results import folder
        from orchestrator.results.store import Store

        groups, most = places.groups(planned.experiments, self.aim), with_all_rounds(planned)
        if root is None or not folder.is_ours(root):
            return most, view.bounds(groups)
        races = [*places.places(planned.experiments, Store.resume(root), self.aim)]
        over = {one.id for place in races if not place.state.due for one in place.experiments}
        both = zip(rounds.at_the_end(planned.experiments, races), most.experiments, strict=True)
        experiments = tuple(ended if ended.id in over else one for ended, one in both)
        return replace(most, experiments=experiments), view.bounds(groups, races)

    def show(self, planned: Plan, store: Store) -> tuple[bool, list[str]]:
        """Show who was dropped, and what is best. Return whether each race that is over has a winner, and what is best."""
        from orchestrator.campaign.race import places, view, winners
        from orchestrator.campaign.race.names import Names

        races = [*places.places(planned.experiments, store, self.aim)]
        names = Names(races)
        for title, table in view.tables(races):
            say(f"\n{title}")
            print_table(table)
        say("")
        best, remarks = self._answers(races, names, store)
        more = [text for place in races for text in winners.remarks(place, names, self.aim)]
        for sentence in (*best, *remarks, *dict.fromkeys(more)):
            say(sentence)
        return all(place.state.due or place.winner for place in races), best

    def _answers(self, races: Sequence[Place], names: Names, store: Store) -> tuple[list[str], list[str]]:
        """Return two values: the answers of the races that are over, and what the report says where it names no such winner.

        Where the report names the same experiment as fastest, its own answer counts: it has all runs of the winner, and the race
        estimates the winner before its last repeats. The report does not know limits, and has no answer for energy. It knows
        nothing of the doubts about most runs either, with which the winner only leads. If other work races apart, an answer of the
        report about several of these races does not count.
        """
        from orchestrator.campaign.race import winners

        best, remarks = list[str](), list[str]()
        reported = () if self.aim.has_limits else _reported(store, self.aim.objective)
        for place in races:
            if place.state.due:
                continue
            ids = {one.id for one in place.experiments}
            others = {one.id for other in races for one in other.experiments} - ids if place.apart else set()
            of_report = next((one for one in reported if ids & one.ids and not others & one.ids), None)
            is_clear = len(place.state.racing) == 1
            agrees = of_report and place.winner in of_report.best and (len(of_report.best) == 1 or not is_clear)
            only_leads = place.is_doubtful or winners.with_few_runs(place) is not None
            if of_report and agrees and self.aim.objective is Objective.SPEED and not only_leads:
                best.append(of_report.sentence)
                continue
            best.append(winners.answer(place, names, self.aim))
            remarks += [f"The report says: {of_report.sentence}"] if of_report and not agrees else []
        return best, remarks


@dataclass(frozen=True, kw_only=True, slots=True)
class _Reported:
    """An answer of the report: a sentence, the ids of the experiments that it compares, and the ids that it names."""

    sentence: str
    ids: frozenset[str]
    best: frozenset[str]


def _reported(store: Store, objective: Objective) -> list[_Reported]:
    from orchestrator.report.highlights.answers import answers
    from orchestrator.report.highlights.best import cheapest
    from orchestrator.results.table.baseline import with_baseline
    from orchestrator.results.table.load import load

    if objective is Objective.ENERGY:
        return []
    table = with_baseline(load([store.root]))
    if objective is Objective.COST:
        return [_Reported(sentence=f"{one.text}.", ids=one.ids, best=one.best) for one in cheapest(table)]
    return [_Reported(sentence=f"{one.place}: {one.text}.", ids=one.ids, best=one.best) for one in answers(table)]
