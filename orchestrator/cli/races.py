"""The races of `tunebench tune`: what it does that `run` does not."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from orchestrator.cli.terminal.console import out, say

if TYPE_CHECKING:
    from orchestrator.campaign.race.limits import Limits
    from orchestrator.machine.provenance import Machine
    from orchestrator.plan.expand import Plan
    from orchestrator.results.store import Store


@dataclass(frozen=True, kw_only=True, slots=True)
class Races:
    """The races of a campaign, with their limits."""

    limits: Limits

    def prepared(self, planned: Plan, machine: Machine) -> Plan:
        """Return the plan. Experiments that certainly need too much memory are marked as unable to run here.

        Raise SelectionError if an experiment cannot race.
        """
        from orchestrator.campaign.race import limits, places
        from orchestrator.plan.forecast.states import leave_out_what_does_not_fit

        places.refuse_suites(planned.experiments)
        limits.refuse_unmeasured(self.limits, planned.experiments)
        kept = leave_out_what_does_not_fit(planned.experiments, machine, self.limits.memory_bytes)
        return replace(planned, experiments=kept)

    def show(self, planned: Plan, store: Store) -> bool:
        """Show who was dropped, and what is fastest. The second is the report's own answer, which knows doubts.

        Return whether each race that is over has a winner.
        """
        from orchestrator.campaign.race import places, view
        from orchestrator.report.highlights.answers import answers
        from orchestrator.results.table.baseline import with_baseline
        from orchestrator.results.table.load import load

        races = [*places.places(planned.experiments, store, self.limits)]
        for title, table in view.tables(races):
            say(f"\n{title}")
            out().print(table)
        say("")
        for answer in answers(with_baseline(load([store.root]))):
            say(f"{answer.place}: {answer.text}.")
        return all(place.state.due or place.winner for place in races)
