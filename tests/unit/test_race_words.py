"""The sentences about races that no fake trainer brings about, and which runs count."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factories.results import BASE, ended, stored
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from orchestrator.campaign.live_display import Progress
from orchestrator.campaign.loop import Event, EventKind
from orchestrator.campaign.race import as_json, view, winners
from orchestrator.campaign.race.aim import Aim, refuse_unmeasured
from orchestrator.campaign.race.names import Names
from orchestrator.campaign.race.objective import Objective
from orchestrator.campaign.race.places import Place, fewest_runs, groups, most_runs, orders, places
from orchestrator.campaign.status.campaign import Reader
from orchestrator.campaign.status.view import headline
from orchestrator.cli.campaigns.races import Races
from orchestrator.errors import SelectionError
from orchestrator.measure.intervals.race import NoSpeed, race
from orchestrator.plan.expand.plan import Plan
from orchestrator.records import Caveat, CaveatKind, DataSpec, Device, Experiment, Framework
from orchestrator.records.price import Per
from orchestrator.report.page import report_page
from orchestrator.report.page.charts.curves.race import races
from orchestrator.results.folder import RACE_FILE
from orchestrator.results.store import Store
from orchestrator.results.table.baseline import with_baseline
from orchestrator.results.table.load import load

A, B = (replace(BASE, id=f"s-{kind}-000000000000", arguments={"kind": kind}, repeats=3) for kind in "ab")

DOUBT, FAILED = NoSpeed.IN_DOUBT, NoSpeed.FAILED


def place(
    values: dict[str, list[float | NoSpeed]], *, experiments: Sequence[Experiment] = (A, B), most: int | None = None
) -> Place:
    runs = {one.id: values[one.arguments["kind"]] for one in experiments}
    state = race([*runs], runs, most=most)
    records = {one.id: [None] * len(values[one.arguments["kind"]]) for one in experiments}
    return Place(experiments=experiments, state=state, records=records, values=runs)


def races_of(experiments: Sequence[Experiment], *, over_sizes: bool = False) -> list[Place]:
    aim = Aim(objective=Objective.ENERGY if over_sizes else Objective.SPEED)
    return [
        Place(experiments=group, state=race([one.id for one in group], {}), records={one.id: [] for one in group})
        for group in groups(experiments, aim)
    ]


def test_runs_in_doubt_are_said_and_do_not_count() -> None:
    one = place({"a": [4.6, NoSpeed.IN_DOUBT, 4.6], "b": [4.0, 4.0]})
    (text,) = winners.remarks(one, Names([one]), Aim())
    assert text.endswith("1 of 5 runs was in doubt and did not count.")
    assert "is the fastest" in winners.answer(one, Names([one]), Aim())
    ((_, table),) = view.tables([one])
    assert [*table.columns[1].cells] == ["2 of 3", "2"]
    none = place({"a": [4.6, 4.6], "b": [4.0, 4.0]})
    assert not [*winners.remarks(none, Names([none]), Aim())]


def test_a_race_with_mostly_runs_in_doubt_has_a_leader_only() -> None:
    """Its other runs may differ by more than is assumed: 11 % with one run each was the fastest."""
    most = place({"a": [4.6, *[NoSpeed.IN_DOUBT] * 4], "b": [4.0, NoSpeed.IN_DOUBT]})
    assert "a leads; kind b, the next, is" in winners.answer(most, Names([most]), Aim())
    (text,) = winners.remarks(most, Names([most]), Aim())
    assert text.endswith("did not count; repeat the race in a new folder on a quieter machine.")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            {"a": [4.6, DOUBT], "b": [4.0, DOUBT]},
            "a leads; kind b, the next, is 45.1 % slower; no experiment has two runs that count, so it is unknown how much runs "
            "differ here.",
        ),
        ({"a": [4.6, 4.61], "b": [4.0, DOUBT]}, "% slower (43.5 to 47.2); only one run of kind b counts."),
    ],
)
def test_a_winner_only_leads_if_few_runs_count(values: dict[str, list[float | NoSpeed]], said: str) -> None:
    """A winner whose two runs were 11 % apart was the fastest, with a rival that had one run, and an interval of assumed noise."""
    raced = place(values)
    answer = winners.answer(raced, Names([raced]), Aim())
    assert raced.winner == A.id and "kind a leads; kind b, the next, is" in answer and answer.endswith(said)
    assert ("runs are assumed to differ by 1.5 %" in view.in_words(raced)) is (DOUBT in values["a"])


@pytest.mark.parametrize("values", [{"a": [4.6, 4.7], "b": [4.55, 4.65]}, {"a": [4.5, 4.6], "b": [4.4, 4.5]}])
def test_a_winner_of_rounds_that_differ_is_the_fastest(values: dict[str, list[float | NoSpeed]]) -> None:
    """A slow first round, as with empty caches, affects all alike."""
    raced = place(values)
    assert "kind a is the fastest; kind b, the next, is" in winners.answer(raced, Names([raced]), Aim())


@pytest.mark.parametrize(
    ("runs", "shown", "became"),
    [
        ([4.6, DOUBT, DOUBT, DOUBT], "1 of 4", "leads"),  # the last one is of an earlier campaign
        ([DOUBT] * 3, "0 of 3", "dropped in round 3: each speed was in doubt"),
        ([FAILED, DOUBT, DOUBT, DOUBT], "0 of 4", "dropped in round 4: no run has a speed that counts"),
        ([DOUBT, FAILED, DOUBT], "0 of 3", "no run has a speed that counts"),
        ([FAILED] * 2, "0 of 2", "dropped in round 2: it failed"),
        ([4.6, FAILED, 4.6], "2 of 3", "leads"),
        ([4.6] * 3, "3", "leads"),
    ],
)
def test_the_table_counts_the_runs_with_a_speed(runs: list[float | NoSpeed], shown: str, became: str) -> None:
    """It said 2 of 4 with one run that counts, 3 with none, and that each speed was in doubt where one had failed."""
    rival = [4.0] * 4 if "in round 4" in became else [4.0] * 3
    raced = place({"a": runs, "b": rival}, most=6 if len(runs) == 3 else None)
    ((_, table),) = view.tables([raced])
    at = [*table.columns[0].cells].index("kind a")
    assert [*table.columns[1].cells][at] == shown and view.what_became(raced, A.id) == became


@pytest.mark.parametrize("doubts", [1, 3])
def test_if_most_runs_were_in_doubt_the_winner_only_leads_everywhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], doubts: int
) -> None:
    """The terminal and the page had the report's `is fastest`, because it names the same experiment."""
    doubt = (Caveat(kind=CaveatKind.BUSY_HOST, detail="busy"),)
    kinds = [replace(A, id=f"s-{kind}-000000000000", arguments={"kind": kind}) for kind in "abcde"]
    cells = []
    for at, one in enumerate(kinds):
        records = [ended(one, repeat, tokens_per_s=100.0 - 20 * at + repeat / 10) for repeat in (1, 2, 3)]
        cells.append((one, [replace(record, warnings=doubt if at >= 5 - doubts else ()) for record in records]))
    store = Store.resume(stored(tmp_path / "r", *cells))
    planned = Plan(experiments=tuple(kinds), collapsed=(), notes=())
    is_won, best = Races(aim=Aim()).show(planned, store)
    as_json.keep([*places(kinds, store)], store, Aim())
    page = report_page(with_baseline(load([store.root])), roots=[store.root], highlights=())
    assert is_won and best == [line for line in capsys.readouterr().out.splitlines() if line in best]
    assert ("kind a is fastest" in best[0], "kind a leads" in best[0]) == (
        (True, False) if doubts == 1 else (False, True)
    )
    assert ("<strong>The race</strong>" in page) is (doubts == 3)


@pytest.mark.parametrize("known", [[], [4.6]])
def test_a_race_of_runs_in_doubt_has_no_winner(known: list[float | NoSpeed]) -> None:
    """Also if one run counts, there is nothing to compare it with."""
    doubted = place({"a": [*known, *[NoSpeed.IN_DOUBT] * 3], "b": [NoSpeed.IN_DOUBT] * 3})
    assert not doubted.state.due and doubted.winner is None
    why = "only kind a has a run that counts" if known else "no experiment is left with a speed that counts"
    assert f": no winner: {why}" in winners.answer(doubted, Names([doubted]), Aim())
    of_a = "the only one with a run that counts" if known else "each speed was in doubt"
    assert view.what_became(doubted, A.id) == of_a, "it was shown as the leader of a race without a winner"
    assert "each speed was in doubt" in view.what_became(doubted, B.id)
    failed = place({"a": [4.6, 4.6], "b": [NoSpeed.FAILED] * 2})
    assert failed.winner == A.id, "what failed was not faster"


@pytest.mark.parametrize("runs", [[DOUBT, FAILED, DOUBT], [FAILED, DOUBT, DOUBT], [DOUBT, DOUBT, FAILED]])
@pytest.mark.parametrize("known", [[4.6] * 3, [4.6, DOUBT, 4.6]])
def test_a_race_that_is_cut_before_a_second_run_counts_has_no_winner(
    known: list[float | NoSpeed], runs: list[float | NoSpeed]
) -> None:
    """The other experiment had not left the race, and the first one was the fastest of one."""
    cut = place({"a": known, "b": runs}, most=6)
    assert cut.state.is_cut or not cut.state.due
    assert cut.state.racing == (A.id, B.id) and cut.winner is None
    assert "no winner" in winners.answer(cut, Names([cut]), Aim())


def test_what_failed_again_and_again_is_not_a_rival() -> None:
    """Its one speed made the experiment without any other rival a winner."""
    c = replace(A, id="s-c-000000000000", arguments={"kind": "c"})
    values: dict[str, list[float | NoSpeed]] = {"a": [4.6] * 4, "b": [DOUBT] * 3, "c": [4.59, FAILED, FAILED]}
    raced = place(values, experiments=(A, B, c))
    assert not raced.state.due and raced.state.left[c.id].at_most is None and raced.winner is None


def test_runs_in_doubt_count_as_made() -> None:
    """After ten runs, five of them in doubt, a race of at most 18 runs said `at most 11 more`."""
    doubted = place({"a": [4.6, NoSpeed.IN_DOUBT], "b": [NoSpeed.IN_DOUBT] * 2})
    assert doubted.state.due
    (text,) = view.before([doubted])
    assert text == "2 experiments race: at most 2 more runs; 4 runs have ended already"


@pytest.mark.parametrize(("objective", "races"), [(Objective.SPEED, 4), (Objective.COST, 2), (Objective.ENERGY, 2)])
def test_cost_and_energy_race_over_numbers_of_gpus(objective: Objective, races: int) -> None:
    on_gpus = [
        replace(
            BASE, id=f"{scenario}-{gpus}", scenario=scenario, num_gpus=gpus, device=Device.CUDA, cannot_run_here=None
        )
        for scenario in ("first", "second")
        for gpus in (1, 2)
    ]
    assert len(groups(on_gpus, Aim(objective=objective))) == races


@given(st.integers(1, 30), st.integers(1, 9))
def test_the_fewest_runs_are_never_more_than_the_most(count: int, repeats: int) -> None:
    group = [replace(BASE, id=str(number), repeats=repeats) for number in range(count)]
    assert repeats <= fewest_runs(group) <= most_runs(group)


def test_a_bound_of_several_races_is_their_sum() -> None:
    assert view.bounds([[A, B], [A]]) == "tunebench tune: 2 races, which make 8 to 9 runs; the full grid has 9."
    once = [replace(one, repeats=1) for one in (A, B)]
    assert view.bounds([once]) == (
        "tunebench tune: 1 race, which makes 4 to 6 runs; the full grid has 6 (with at least 3 runs of each)."
    ), "the full grid had 2, and `tune` itself spoke of 6"


def test_an_order_has_experiments_that_differ_in_one_size_only() -> None:
    both = ("per_device_train_batch_size", "max_seq_len")
    sizes = [
        ("16", "512", "x"),
        ("8", "512", "x"),
        ("4", "512", "x"),
        ("8", "512", "y"),
        ("8", "1024", "y"),
        ("auto", "64", "z"),
    ]
    group = [
        replace(BASE, id="-".join(values), arguments=dict(zip((*both, "kind"), values, strict=True)), global_batch=at)
        for at, values in enumerate(sizes)
    ]
    assert orders(group) == [["4-512-x", "8-512-x", "16-512-x"], ["8-512-y", "8-1024-y"]]
    assert orders([A, B]) == []
    lengths = [
        replace(
            BASE,
            id=length,
            arguments={"max_seq_len": length},
            data=DataSpec(source="builtin:synthetic", form="tokens", max_length=int(length)),
        )
        for length in ("64", "16", "32")
    ]
    assert orders(lengths) == [["16", "32", "64"]], "the length is a part of synthetic data"


def test_an_experiment_of_an_order_that_did_not_run_says_why() -> None:
    group = [replace(BASE, id=size, arguments={"per_device_train_batch_size": size}) for size in "1234"]
    assert fewest_runs(group) == 3 + 2 + max(0, BASE.repeats - 2)
    ids = [one.id for one in group]
    begun, over = (
        race(ids, {"1": [4.0] * runs, "3": [4.5] * runs, "4": [4.6] * runs}, orders=orders(group)) for runs in (1, 2)
    )
    for state, words in ((begun, "not run yet"), (over, "not run: the fastest value is not next to it")):
        records = {name: [None] * (state.standing.runs.get(name, 0) if state.standing else 0) for name in ids}
        of_place = Place(experiments=group, state=state, records=records)
        assert view.what_became(of_place, "2") == words
        assert sorted(view.in_order(state)) == ids
    assert view.in_words(of_place).startswith("2 of 4 dropped, 1 not run; ")


@pytest.mark.parametrize(
    ("values", "runs"),
    [
        ({"a": [], "b": []}, "5 to 6 runs"),
        ({"a": [4.6], "b": []}, "4 to 5 more runs"),
        ({"a": [4.6] * 5, "b": [4.5]}, "1 to 3 more runs"),
        ({"a": [4.6, 4.6], "b": [4.0, 4.0]}, "1 more run"),
        ({"a": [4.6] * 3, "b": [4.0, 4.0]}, "no more runs"),
        ({"a": [NoSpeed.FAILED] * 2, "b": [NoSpeed.FAILED] * 2}, "no more runs"),
    ],
)
def test_a_plan_of_a_race_counts_the_runs_that_have_ended(values: dict[str, list[float | NoSpeed]], runs: str) -> None:
    said = view.bounds([[A, B]], [place(values)])
    assert said == f"tunebench tune: 1 race, which makes {runs}; the full grid has 6."


def test_earlier_runs_that_no_round_uses_are_not_among_the_most() -> None:
    (said,) = view.before([place({"a": [4.6] * 5, "b": []})])
    assert said == "2 experiments race: at most 5 more runs; 5 runs have ended already"
    (said,) = view.before([place({"a": [], "b": []})])
    assert said == "2 experiments race: at most 6 runs, as many as the full grid"


def test_experiments_have_the_names_of_the_report() -> None:
    """Only what distinguishes them; what all of a race have is in the name of the race."""
    batch, gc = "per_device_train_batch_size", Framework(name="gradient-checkpointing", digest="0")
    cells = [(framework, size) for framework in (None, gc) for size in ("4", "8")]
    group = [
        replace(BASE, id=f"{at}", framework=framework, arguments={batch: size, "seed": size, "max_steps": "9"})
        for at, (framework, size) in enumerate(cells)
    ]
    (raced,) = races_of(group)
    names = Names([raced])
    assert [names.of(one.id) for one in group] == [
        "batch/device 4",
        "batch/device 8",
        "gradient-checkpointing, batch/device 4",
        "gradient-checkpointing, batch/device 8",
    ]
    alone = [replace(one, id=f"{at}", arguments={}) for at, one in enumerate(group[1:3])]
    names = Names(races_of(alone))
    assert [names.of(one.id) for one in alone] == ["no framework", "gradient-checkpointing"]
    sizes = [*group, *(replace(one, id=f"2{one.id}", num_gpus=2) for one in group)]
    (mixed,) = races_of(sizes, over_sizes=True)
    assert Names([mixed]).of("23") == "gradient-checkpointing, batch/device 8 on 2 CPU processes"
    lengths = [
        replace(BASE, id=f"{model}{size}", model=model, arguments={"max_seq_len": length, batch: size})
        for model, length in (("x", "16"), ("y", "32"))
        for size in "48"
    ]
    first, second = races_of(lengths)
    assert [Names([first, second]).place(one) for one in (first, second)] == [
        "full: x, 1 process",
        "full: y, 1 process",
    ]
    assert Names([first, second]).of("x4") == "batch/device 4"


def test_a_race_that_has_ended_says_who_was_dropped_last_and_what_its_leader_still_gets() -> None:
    before = place({"a": [4.6], "b": [4.0]})
    decided = place({"a": [4.6, 4.6], "b": [4.0, 4.0]})
    assert not [*view.ends([before])]
    (said,) = view.ends([decided], [before])
    assert said.endswith(": decided after round 2; dropped: kind b (at most 57.2 %); the leader gets 1 more run")
    assert [*view.ends([decided])] == [said], "an interrupted race says it again"
    whole = place({"a": [4.6] * 3, "b": [4.0, 4.0]})
    assert not [*view.ends([whole])] and len([*view.ends([whole], [before])]) == 1
    failed = place({kind: [NoSpeed.FAILED] * 2 for kind in "ab"})
    (said,) = view.ends([failed], [before])
    assert said.endswith(": over after round 2; dropped: kind a (it failed), kind b (it failed)")


def test_what_is_over_a_limit_is_found_by_the_worst_monitor() -> None:
    low = ended(A, 1, peak_allocated_bytes=1.0, device_peak_used_bytes=2.0, train_loss=1.0)
    high = ended(B, 1, peak_allocated_bytes=1.0, device_peak_used_bytes=4.0, train_loss=1.02)
    records = {"a": [low], "b": [None, high]}
    assert Aim(memory_bytes=3.0).exceeded(records) == {("b", 1): NoSpeed.OVER_LIMIT}
    assert Aim(loss=0.01).exceeded(records) == {("b", 1): NoSpeed.OVER_LIMIT}
    assert not Aim(loss=0.03, memory_bytes=4.0).exceeded(records)


def test_a_limit_of_the_loss_is_for_the_mean_of_the_runs_so_far() -> None:
    """Each run is compared with the lowest mean after as many runs."""
    losses = {"a": [1.0, 1.04, 0.99], "b": [1.005, 1.05], "c": [1.04]}
    records = {name: [ended(A, 1, train_loss=loss) for loss in of_one] for name, of_one in losses.items()}
    assert {*Aim(loss=0.01).exceeded(records)} == {("c", 0)}, (
        "the mean of b, 1.0275, is less than 1 % above that of a, 1.02"
    )
    assert {*Aim(loss=0.005).exceeded(records)} == {("c", 0), ("b", 1)}
    assert {*Aim(loss=0.01).exceeded({**records, "d": [None]})} == {("c", 0)}, "a run without a loss decides nothing"


def test_a_race_is_compared_with_a_grid_if_that_has_more_runs() -> None:
    few = replace(place({"a": [4.6, 4.6], "b": [4.0, 4.0]}), took_s={A.id: [20.0, 40.0], B.id: [60.0, 60.0]})
    assert view.in_words(few).endswith(
        "; 4 runs in 3 min 00 s, where a grid with 3 runs of each has 6, in about 4 min 30 s"
    )
    untimed = replace(few, took_s={A.id: [20.0, 40.0], B.id: []})
    assert view.in_words(untimed).endswith("; 4 runs, where a grid with 3 runs of each has 6")
    many = place({"a": [4.6] * 4, "b": [4.0] * 4})
    assert view.in_words(replace(many, took_s={A.id: [20.0] * 4, B.id: [25.0] * 4})).endswith("; 8 runs in 3 min 00 s")


def test_a_race_that_another_round_would_make_longer_than_the_grid_says_so() -> None:
    """After 11 of 12 runs, it said that the grid had as many."""
    group = [A, B, *(replace(A, id=f"s-{kind}-000000000000", arguments={"kind": kind}) for kind in "cd")]
    noisy = [[4.6, 4.5, 4.65], [4.5, 4.6, 4.7], [4.65, 4.55, 4.5], [NoSpeed.FAILED] * 2]
    runs: dict[str, list[float | NoSpeed]] = {one.id: [*values] for one, values in zip(group, noisy, strict=True)}
    state = race([*runs], runs, most=most_runs(group))
    cut = Place(experiments=group, state=state, records={name: [None] * len(values) for name, values in runs.items()})
    assert state.is_cut and not state.due
    assert view.in_words(cut).endswith(
        "; 11 runs, where a grid with 3 runs of each has 12; it ended because another round, with all repeats of a winner, "
        "would make more runs than the full grid"
    )


def test_a_race_that_goes_on_with_another_aim_says_so(tmp_path: Path) -> None:
    limited = Aim(objective=Objective.COST, memory_bytes=2.0 * 2**30, loss=0.05)
    begun, store = place({"a": [4.6], "b": [4.0]}), Store.create(tmp_path / "r", {})
    as_json.keep([begun], store, limited)
    (said,) = as_json.other_aims(store.root, [A, B], Aim())
    options = "--objective cost --limit memory=2GiB --limit loss=+5%"
    assert said.startswith(
        f"{store.root}: its race that is not over has {options}, and this one has --objective tokens_per_s;"
    )
    assert not [*as_json.other_aims(store.root, [A], limited)], "the same aim"
    assert not [*as_json.other_aims(store.root, [BASE], Aim())], "other experiments"
    as_json.keep([place({"a": [4.6] * 2, "b": [4.0] * 2})], store, limited)
    assert not [*as_json.other_aims(store.root, [A, B], Aim())], "it is over"


@pytest.mark.parametrize("limit", ["1" + "0" * 400, "1e400", "-5", "true", "[]"])
def test_a_hostile_limit_of_an_earlier_race_is_none(tmp_path: Path, limit: str) -> None:
    store = Store.create(tmp_path / "r", {})
    as_json.keep([place({"a": [4.6], "b": [4.0]})], store, Aim(memory_bytes=7.0, loss=8.0))
    file = store.root / RACE_FILE
    file.write_text(file.read_text().replace(": 7.0", f": {limit}").replace(": 8.0", f": {limit}"))
    assert not [*as_json.other_aims(store.root, [A, B], Aim())]


def test_the_page_begins_with_the_answer_of_a_race_unless_its_own_is_the_same(tmp_path: Path) -> None:
    """The page recommended an experiment that the race had dropped."""
    store = Store.create(tmp_path / "r", {})
    cells = [
        (one, [ended(one, repeat, tokens_per_s=speed + repeat) for repeat in (1, 2, 3)])
        for one, speed in ((A, 100.0), (B, 60.0))
    ]
    stored(tmp_path / "runs", *cells)

    def said() -> list[str]:
        page = report_page(with_baseline(load([tmp_path / "runs"])), roots=[store.root], highlights=())
        return re.findall(r"<strong>The race</strong> (.*?)</p>", page)

    def raced(aim: Aim, values: dict[str, list[float | NoSpeed]]) -> list[str]:
        as_json.keep([place(values)], store, aim)
        return said()

    start = "after 5 runs: full: config:tiny-llama, 1 process: "
    fast: dict[str, list[float | NoSpeed]] = {"a": [4.6] * 3, "b": [4.0] * 2}
    assert raced(Aim(), fast) == [], "the page says the same"
    assert raced(Aim(), {"a": [4.0] * 2, "b": [4.6] * 3}) == [
        f"{start}kind b is the fastest; kind a, the next, is 45.1 % slower (43.6 to 46.6)."
    ]
    (by_cost,) = raced(Aim(objective=Objective.COST), fast)
    assert by_cost.startswith(f"{start}kind a needs the least money per token; kind b, the next, needs ")
    (without,) = raced(Aim(), {"a": [4.6, *[NoSpeed.IN_DOUBT] * 3], "b": [NoSpeed.IN_DOUBT] * 3})
    assert ": no winner: only kind a has a run that counts, so there is nothing to compare it with." in without
    assert raced(Aim(), {"a": [4.6], "b": [4.5]}) == [], "it is not over"
    as_json.keep([place({"a": [4.6] * 3}, experiments=[A])], store, Aim(objective=Objective.COST))
    assert said() == [], "a single experiment has no race"
    as_json.keep([place({"a": [4.6] * 3, "b": [4.0] * 2})], store, Aim())
    document = json.loads((store.root / RACE_FILE).read_text())
    for winner, runs, start in (([], 3, None), (7, 3, None), ("a", 10**400, None), ("a", True, "after 3 runs")):
        (race,) = document["races"]
        race |= {"is_over": True, "answer": "<b>x\n" + "y" * 1000, "winner": winner}
        race["experiments"][0]["runs"] = runs
        (store.root / RACE_FILE).write_text(json.dumps(document))
        hostile = said()
        assert bool(hostile) is (start is not None)
        for text in hostile:
            assert text.startswith(f"{start}: &lt;b&gt;x") and len(text) < 850


def test_the_drawing_of_a_race_has_room_for_each_interval(tmp_path: Path) -> None:
    """The interval of the slowest experiment was cut off at the left edge."""
    store = Store.create(tmp_path / "r", {})
    as_json.keep([place({"a": [4.6, 4.4, 4.7], "b": [4.4, 4.6, 4.3]})], store, Aim())
    (drawn,) = races([store.root]).views
    lows = [
        speed - below
        for trace in drawn.figure["data"]
        if "error_x" in trace
        for speed, below in zip(trace["x"], trace["error_x"]["arrayminus"], strict=True)
        if below
    ]
    assert lows and min(lows) > drawn.figure["layout"]["xaxis"]["range"][0]


def test_the_drawing_of_a_race_has_the_numbers_of_runs_of_the_terminal(tmp_path: Path) -> None:
    """The terminal left out a run in doubt, and the page counted it."""
    store = Store.create(tmp_path / "r", {})
    as_json.keep([place({"a": [4.6, 4.4, 4.7], "b": [4.4, NoSpeed.IN_DOUBT, 4.3]})], store, Aim())
    assert [row[1] for row in races([store.root]).views[0].rows] == ["3", "2 of 3"]
    file = store.root / RACE_FILE
    file.write_text(file.read_text().replace("runs_shown", "older"))
    assert [row[1] for row in races([store.root]).views[0].rows] == ["3", "3"]


def test_the_answer_in_the_file_says_which_limit_was_not_applied(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "r", {})
    silent = {one.id: [ended(one, 1, tokens_per_s=1.0)] for one in (A, B)}
    as_json.keep([replace(place({"a": [4.6] * 3, "b": [4.0] * 2}), records=silent)], store, Aim(loss=0.01))
    (race,) = json.loads((store.root / RACE_FILE).read_text())["races"]
    assert race["answer"].endswith(": no run reports its loss, so --limit loss was not applied.")


def test_the_status_of_a_race_counts_its_round_only(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "r", {})
    as_json.keep([place({"a": [], "b": []})], store, Aim())
    for repeats, said in (
        (1, "0 done · 0 running · 0 failed · 2 pending in this round · time left in this round unknown"),
        (3, "0 of 6 done · 0 running · 0 failed · 6 pending · time left unknown"),  # after a `tunebench run`
    ):
        store.add([replace(one, repeats=repeats) for one in (A, B)])
        status = Reader(store).look()
        assert headline(status, title="r").plain == f"r: {said}" and not status.is_over()
    as_json.keep([place({"a": [4.6], "b": [4.0]})], store, Aim())
    store.add([replace(one, repeats=1) for one in (A, B)])
    between = replace(Reader(store).look(), experiments=())
    assert between.is_racing and not between.is_over(), "the next round may follow"
    as_json.keep([place({"a": [4.6] * 2, "b": [4.0] * 2})], store, Aim())
    assert not Reader(store).look().is_racing


def test_the_runs_of_each_round_are_counted_anew(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "r", {})
    for is_race, last in ((True, "1/1 "), (False, "2/2 ")):
        console = Console(file=io.StringIO())
        progress = Progress(console, is_race=is_race)
        for repeat in (1, 2):
            job = store.job(A.id, repeat=repeat, attempt=1)
            progress.on_event(Event(kind=EventKind.HANDED_OVER, text="", jobs=(job,)))
            record = ended(A, repeat, tokens_per_s=1.0)
            progress.on_event(Event(kind=EventKind.ENDED, text="", jobs=(job,), record=record))
        first, second = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
        assert first.startswith("1/1 ") and second.startswith(last)


def test_a_limit_that_could_not_be_applied_is_said() -> None:
    silent, told = ended(A, 1, tokens_per_s=1.0), ended(B, 1, tokens_per_s=1.0, train_loss=1.0)
    race_of_both = replace(place({"a": [4.6], "b": [4.0]}), records={A.id: [silent], B.id: [told]})
    names = Names([race_of_both])
    (text,) = winners.unlimited(race_of_both, names, Aim(loss=0.01))
    assert text.endswith("some experiments do not report their loss, so --limit loss was not applied to them.")
    (text,) = winners.unlimited(replace(race_of_both, records={A.id: [silent]}), names, Aim(loss=0.01))
    assert text.endswith("no run reports its loss, so --limit loss was not applied.")
    assert not [*winners.unlimited(replace(race_of_both, records={B.id: [told]}), names, Aim(loss=0.01))]


def test_what_is_over_a_limit_is_not_the_next() -> None:
    """An experiment may be over a limit only in its second run, and be faster in its first."""
    third = replace(A, id="s-c-000000000000", arguments={"kind": "c"})
    values = {"a": [4.6, 4.6], "b": [4.7, NoSpeed.OVER_LIMIT], "c": [4.2, 4.2]}
    raced = place(values, experiments=(A, B, third))
    text = winners.answer(raced, Names([raced]), Aim(loss=0.01))
    assert "kind a is the fastest within the limits; kind c, the next, is " in text


def test_padding_is_no_speed_although_one_experiment_does_not_know_its_own(tmp_path: Path) -> None:
    """The padded candidate won if a third one did not know its padding."""
    speeds = [
        {"tokens_per_s": 1000.0, "real_tokens_per_s": 900.0},
        {"tokens_per_s": 1200.0, "real_tokens_per_s": 720.0},
    ]
    every = (A, B, replace(A, id="s-c-000000000000", arguments={"kind": "c"}))
    cells = [
        (one, [ended(one, repeat, **numbers) for repeat in (1, 2, 3)])
        for one, numbers in zip(every, [*speeds, {"tokens_per_s": 800.0}], strict=True)
    ]
    (raced,) = places(every, Store.resume(stored(tmp_path / "r", *cells)), Aim())
    assert raced.leader == A.id


def raced(folder: Path, speeds: dict[str, dict[str, float]], *, argument: str = "max_seq_len") -> list[Place]:
    """Return the races of experiments with these values of an argument, and three runs with these numbers each."""
    every = [replace(A, id=f"s-{value}-000000000000", arguments={argument: value}) for value in speeds]
    cells = [
        (one, [ended(one, repeat, **numbers) for repeat in (1, 2, 3)])
        for one, numbers in zip(every, speeds.values(), strict=True)
    ]
    return [*places(every, Store.resume(stored(folder, *cells)))]


@pytest.mark.parametrize(
    ("argument", "speed"),
    [
        ("max_seq_len", "train_samples_per_second"),
        ("packing", "samples_per_s"),
        ("per_device_train_batch_size", "call_time_s"),
        ("rank", "call_time_s"),
    ],
)
def test_experiments_of_other_work_have_races_of_their_own(tmp_path: Path, argument: str, speed: str) -> None:
    """Rows of 128 tokens were the fastest by rows per second, although each experiment had as many tokens per second."""
    found = raced(tmp_path / "r", {"128": {speed: 1000.0}, "256": {speed: 500.0}}, argument=argument)
    assert [len(one.experiments) for one in found] == [1, 1] and {one.apart for one in found} == {(argument,)}
    names = Names(found)
    label = names.of(found[0].experiments[0].id)
    assert label.endswith(" 128") and names.place(found[0]).endswith(f"{label}, 1 process")
    assert [*winners.remarks(found[0], names, Aim())] == [
        f"full: each value of {argument} has a race of its own, because it changes the work that {speed} measures."
    ]
    assert winners.answer(found[0], names, Aim()).endswith("is the only experiment of its race.")


def test_experiments_race_over_work_that_the_speed_does_not_count(tmp_path: Path) -> None:
    level = {"tokens_per_s": 1000.0, "real_tokens_per_s": 1000.0}
    assert len(raced(tmp_path / "a", {"128": level, "256": level})) == 1
    rates = {"samples_per_s": 1000.0}
    assert len(raced(tmp_path / "b", {"4": rates, "8": rates}, argument="per_device_train_batch_size")) == 1
    assert len(raced(tmp_path / "c", {"128": {}, "256": {}})) == 1, "before the first speed, nothing is known"


@pytest.mark.parametrize("argument", ["packing", "max_seq_len", "pad_to_multiple_of"])
def test_unknown_padding_is_not_compared_over_arguments_that_change_it(tmp_path: Path, argument: str) -> None:
    speeds = {"false": {"tokens_per_s": 5000.0}, "true": {"tokens_per_s": 4000.0, "real_tokens_per_s": 4000.0}}
    found = raced(tmp_path / "a", speeds, argument=argument)
    assert [len(one.experiments) for one in found] == [1, 1]
    (text,) = winners.remarks(found[0], Names(found), Aim())
    assert text == (
        f"full: each value of {argument} has a race of its own, because it changes the padding that tokens_per_s counts, and not "
        "all experiments report real_tokens_per_s."
    )
    assert len(raced(tmp_path / "b", speeds, argument="learning_rate")) == 1


@pytest.mark.parametrize(("per", "winner"), [(Per.NODE_HOUR, 2), (Per.GPU_HOUR, 1)])
def test_a_speed_per_device_is_that_of_all_devices_for_the_cost(tmp_path: Path, per: Per, winner: int) -> None:
    """Two devices that are 10 % slower each needed the most money per token at a price per node."""
    every = [replace(A, id=f"s-{count}-000000000000", num_gpus=count) for count in (1, 2)]
    cells = [
        (one, [ended(one, repeat, train_tokens_per_second=5000.0 - 500 * (one.num_gpus - 1)) for repeat in (1, 2, 3)])
        for one in every
    ]
    aim = Aim(objective=Objective.COST, per=per)
    (found,) = places(every, Store.resume(stored(tmp_path / "r", *cells)), aim)
    assert found.winner == f"s-{winner}-000000000000"
    shares = [view.relative(found, one.id) for one in every]
    assert min(filter(None, shares)) == pytest.approx(5 / 9 if per is Per.NODE_HOUR else 0.9)


@pytest.mark.parametrize(
    ("device", "provenance"),
    [
        (Device.CUDA, lambda name: {"gpus": [{"name": name}, {"name": name}], "host": {"cpu": "any"}}),
        (Device.CPU, lambda name: {"gpus": [], "host": {"cpu": name}}),
    ],
)
def test_runs_on_another_machine_do_not_count(tmp_path: Path, device: Device, provenance: Any) -> None:
    """Runs of several hosts raced in one folder, and the slower host decided."""
    every = [replace(one, device=device) for one in (A, B)]
    machines = {A.id: ("new", "new"), B.id: ("old", "new", "new")}
    cells = [
        (
            one,
            [
                replace(
                    ended(one, at + 1, tokens_per_s=1000.0 if name == "old" else 900.0 if one.id == A.id else 100.0),
                    started_at=2e9 if name == "new" else 1e9,
                    provenance=provenance(name),
                )
                for at, name in enumerate(machines[one.id])
            ],
        )
        for one in every
    ]
    (found,) = places(every, Store.resume(stored(tmp_path / "r", *cells)), Aim())
    assert found.winner == A.id and view.runs(found, B.id) == "2 of 3"
    (text,) = winners.remarks(found, Names([found]), Aim())
    assert text.endswith("1 run was on another machine (old) than the newest run and did not count.")


def test_experiments_with_runs_on_another_machine_only_run_again(tmp_path: Path) -> None:
    cells = [
        (one, [replace(ended(one, 1, tokens_per_s=1.0), started_at=at, provenance={"host": {"cpu": cpu}})])
        for one, cpu, at in ((A, "old", 1e9), (B, "new", 2e9))
    ]
    (found,) = places([A, B], Store.resume(stored(tmp_path / "r", *cells)), Aim())
    assert found.state.due == (A.id,) and found.values == {A.id: [], B.id: [0.0]}


def test_a_race_whose_runs_go_to_several_machines_ends(tmp_path: Path) -> None:
    """It went on for ever: each new run took the runs on the other machine out of the race, which ran again."""
    every = [replace(one, repeats=2) for one in (A, B)]
    for old, is_over in ((2, False), (4, True)):
        cells = [
            (
                one,
                [
                    replace(
                        ended(one, at + 1, tokens_per_s=1.0),
                        started_at=1e9 + at,
                        provenance={"host": {"cpu": "old" if at < old else "new"}},
                    )
                    for at in range(old + (one.id == B.id))
                ],
            )
            for one in every
        ]
        (found,) = places(every, Store.resume(stored(tmp_path / str(old), *cells)), Aim())
        assert (not found.state.due) is is_over
        (text,) = winners.remarks(found, Names([found]), Aim())
        assert text.endswith("the race ended, and needs a new folder and machines of one kind.") is is_over


def test_a_speed_of_0_is_unknown_and_another_one_is_compared(tmp_path: Path) -> None:
    cells = [
        (one, [ended(one, repeat, train_tokens_per_second=0.0, train_samples_per_second=speed) for repeat in (1, 2, 3)])
        for one, speed in ((A, 2.0), (B, 1.0))
    ]
    (raced,) = places([A, B], Store.resume(stored(tmp_path / "r", *cells)), Aim())
    assert raced.winner == A.id


def test_a_wrong_result_does_not_race_without_eager_either(tmp_path: Path) -> None:
    """A function that returned zeros was the fastest, and the right ones were dropped."""
    cells = [
        (one, [ended(one, repeat, tokens_per_s=speed, relative_error=error) for repeat in (1, 2, 3)])
        for one, speed, error in ((A, 900.0, 1.0), (B, 100.0, 1e-7))
    ]
    (raced,) = places([A, B], Store.resume(stored(tmp_path / "r", *cells)), Aim())
    assert view.what_became(raced, A.id) == "dropped in round 1: wrong, or less exact than eager"


@pytest.mark.parametrize("hostile", ["1e999", "1" + 400 * "0", "NaN"], ids=["infinity", "digits", "nan"])
def test_a_number_beyond_all_floats_is_no_speed_and_over_no_limit(tmp_path: Path, hostile: str) -> None:
    """The answer was `nan % slower (nan to nan)`, and the file of the race was no JSON."""
    large = 10**400
    runs = (
        [ended(one, 1, tokens_per_s=speed, peak_allocated_bytes=large), ended(one, 2, tokens_per_s=large)]
        for one, speed in ((A, 100.0), (B, 60.0))
    )
    third = [[ended(one, 3, tokens_per_s=speed)] for one, speed in ((A, 101.0), (B, 61.0))]
    cells = [(one, [*some, *more]) for one, some, more in zip((A, B), runs, third, strict=True)]
    store, aim = Store.resume(stored(tmp_path / "r", *cells)), Aim(memory_bytes=1e9)
    for file in store.root.glob("experiments/*/runs/*/record.json"):
        file.write_text(file.read_text().replace(str(large), hostile))
    (raced,) = places([A, B], store, aim)
    assert [value for of_one in raced.values.values() for value in of_one if value is NoSpeed.MISSING] == [
        "missing"
    ] * 2
    assert "nan" not in winners.answer(raced, Names([raced]), aim) and raced.winner == A.id
    as_json.keep([raced], store, aim)
    json.loads((store.root / RACE_FILE).read_text(), parse_constant=pytest.fail)


@pytest.mark.parametrize(
    ("dtype", "error", "drops"), [("float32", 2.3, True), ("float32", 1e-6, False), ("bfloat16", 1e-3, False)]
)
def test_an_operator_that_is_far_less_exact_does_not_race(
    tmp_path: Path, dtype: str, error: float, drops: bool
) -> None:
    """Functions with wrong results led, and the right one was dropped. An error of rounding does not count."""
    cells = []
    for name, seconds, own in (("eager", 2.0, 1e-7), ("fast:wrong", 1.0, error)):
        arguments = {"operator": "swiglu", "shape": "8x8", "dtype": dtype, "implementation": name}
        one = replace(BASE, id=f"s-{name[0]}-000000000000", trainer="operators", arguments=arguments, repeats=3)
        runs = [ended(one, repeat, call_time_s=seconds, relative_error=own) for repeat in (1, 2, 3)]
        cells.append((one, runs))
    store = Store.resume(stored(tmp_path / "r", *cells))
    (raced,) = places([one for one, _ in cells], store)
    assert raced.winner == ("s-e-000000000000" if drops else "s-f-000000000000")
    assert (
        view.what_became(raced, "s-f-000000000000") == "dropped in round 1: wrong, or less exact than eager"
    ) is drops


def test_a_race_without_a_winner_says_so() -> None:
    failed = place({kind: [NoSpeed.FAILED, NoSpeed.FAILED] for kind in "ab"})
    text = winners.answer(failed, Names([failed]), Aim(objective=Objective.ENERGY))
    assert text.endswith("no winner: no experiment is left with a speed that counts; the table says why.")


def test_a_limit_of_memory_needs_a_gpu_and_a_monitor() -> None:
    training = replace(BASE, trainer="huggingface", device=Device.CPU, monitors=("huggingface",))
    with pytest.raises(
        SelectionError, match="uses no GPU, so its memory per device is not measured; leave the limit out"
    ):
        refuse_unmeasured(Aim(memory_bytes=1e9), [training])
    on_gpu = replace(training, device=Device.CUDA)
    refuse_unmeasured(Aim(memory_bytes=1e9), [on_gpu])
    with pytest.raises(SelectionError, match=r"nothing measures the memory of scenario .*; add --memory huggingface"):
        refuse_unmeasured(Aim(memory_bytes=1e9), [replace(on_gpu, monitors=())])
