"""What a rerun takes from a comparison, which may be anybody's: what is open, what is ready, in which order it runs."""

from __future__ import annotations

import itertools
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factories.claimed_runs import claimed, of_the_dead
from factories.results import BASE, ended, failed, stored
from hypothesis import given
from hypothesis import strategies as st
from test_profiles import step, written

from orchestrator.campaign.loop import Event, EventKind
from orchestrator.compare.comparison import Comparison, Entry, Pair, Row, Run, Verdict
from orchestrator.compare.rerun import contests, profiles, rounds
from orchestrator.compare.rerun.contests import Prepared, prepare
from orchestrator.compare.rerun.readiness import OWNER, Ready, Refused, readiness, this_machine
from orchestrator.compare.rerun.rounds import Contest
from orchestrator.compare.rerun.undecided import undecided
from orchestrator.compare.sides import read as read_sides
from orchestrator.executors import FakeExecutor
from orchestrator.executors.slurm.site import Site
from orchestrator.records import Device, Experiment, Job, Reason, Repeats, RunRecord, Start, Status
from orchestrator.records.experiment import CustomCommand
from orchestrator.results import claims
from orchestrator.results.store import Store, write_record
from orchestrator.results.table import rows

HERE: Mapping[str, rows.Value] = {"torch": "2.13.0", "git_commit": "abc", "git_dirty": False}
"""What the records of `stored_results` say of their environment."""


def here(_experiment: Experiment) -> Mapping[str, rows.Value]:
    return HERE


def entry(root: Path | str | None, experiment: Experiment = BASE, *, runs: Sequence[RunRecord] = ()) -> Entry:
    return Entry(
        key={"scenario": experiment.scenario},
        label="full",
        status="ok",
        runs=tuple(Run(repeat=run.repeat, numbers={}, started_at=run.started_at) for run in runs),
        id=experiment.id,
        folder=None if root is None else str(root),
        whole=True,
    )


def row(verdict: Verdict, *, label: str = "full", needs: int | None = 3, metric: str = "tokens_per_s") -> Row:
    return Row(label=label, metric=metric, verdict=verdict, needs=needs)


def comparison(pairs: Sequence[Pair], found: Sequence[Row]) -> Comparison:
    return Comparison(base="before", new="after", pairs=tuple(pairs), rows=tuple(found), fleet=())


def records(count: int = 3) -> list[RunRecord]:
    return [
        replace(ended(BASE, repeat, tokens_per_s=1000.0), started_at=1.7e9 + repeat + 0.6)
        for repeat in range(1, count + 1)
    ]


def started(*starts: Start, experiment: Experiment = BASE) -> list[RunRecord]:
    """A record for each start, in the order of the runs."""
    return [
        replace(one, experiment_id=experiment.id, provenance={**one.provenance, "start": start})
        for one, start in zip(records(len(starts)), starts, strict=True)
    ]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return stored(tmp_path / "results", (BASE, records()))


def ready(root: Path, **more: object) -> Ready:
    found = looked(root, **more)
    assert isinstance(found, Ready), found
    return found


def looked(
    root: Path,
    *,
    runs: int = 2,
    seen: Sequence[Run] | None = None,
    ignore: Sequence[str] = (),
    experiment: Experiment = BASE,
    site: Site | None = None,
) -> Ready | Refused:
    known = entry(root, experiment, runs=records())
    seen = known.runs if seen is None else seen
    return readiness(known, runs=runs, seen=seen, ignore=ignore, here=here, site=site)


def refused(found: Ready | Refused) -> str:
    assert isinstance(found, Refused)
    return found.why


def test_a_rerun_starts_as_the_last_run_started(tmp_path: Path) -> None:
    """After `tune` on CPUs, whose runs start warm, every side was refused."""

    def here_cold(_: Experiment) -> Mapping[str, rows.Value]:
        return {**HERE, "start": "cold"}

    def side(name: str, *starts: Start, one: Experiment = BASE, site: Site | None = None) -> Ready | Refused:
        made = started(*starts, experiment=one)
        known = entry(stored(tmp_path / name, (one, made)), one, runs=made)
        return readiness(known, runs=2, seen=known.runs, here=here_cold, site=site)

    orders = list(itertools.product((Start.WARM, Start.COLD), repeat=2))
    found = [side("-".join(order), *order) for order in orders]
    assert [one.starts_warm for one in found if isinstance(one, Ready)] == [last is Start.WARM for _, last in orders]
    cannot = replace(BASE, custom=CustomCommand(command=("true",)), trainer="custom")
    assert "start was warm, here it is cold" in refused(side("custom", Start.WARM, one=cannot))
    on_a_node = side("cluster", Start.WARM, site=Site(file="site.yaml", node="4xH100"))
    assert "start was warm, here it is cold" in refused(on_a_node), "a cluster has no warm starters"


# What is open.


def test_only_pairs_with_an_inconclusive_row_are_open_with_what_most_of_their_rows_need() -> None:
    one, other = entry("/a"), entry("/b")
    pairs = [
        Pair(label="open", base=one, new=other),
        Pair(label="same", base=one, new=other),
        Pair(label="new", base=None, new=other),
    ]
    found = [
        row(Verdict.INCONCLUSIVE, label="open", needs=2),
        row(Verdict.INCONCLUSIVE, label="open", needs=5, metric="first_step_s"),
        row(Verdict.REGRESSED, label="open", needs=None, metric="step_time_s"),
        row(Verdict.SAME, label="same"),
        row(Verdict.INCONCLUSIVE, label="new"),
    ]
    (only,) = undecided(comparison(pairs, found))
    assert (only.label, only.runs) == ("open", 5)
    (only,) = undecided(comparison(pairs, found), runs=1)
    assert only.runs == 1


def test_rows_that_may_be_much_worse_run_first() -> None:
    pairs = [Pair(label=label, base=entry("/a"), new=entry("/b")) for label in ("risky", "open")]
    found = [row(Verdict.INCONCLUSIVE, label=pair.label) for pair in pairs]
    assert [pair.label for pair in undecided(comparison(pairs, found))] == ["risky", "open"]
    found[0] = replace(found[0], may_be_worse_by=0.05)
    assert [pair.label for pair in undecided(comparison(pairs, found))] == ["risky"]


def test_nobody_knowing_how_many() -> None:
    pair = Pair(label="full", base=entry("/a"), new=entry("/b"))
    (only,) = undecided(comparison([pair], [row(Verdict.INCONCLUSIVE, needs=None)]))
    assert only.runs is None
    found = prepare(comparison([pair], [row(Verdict.INCONCLUSIVE, needs=None)]))
    assert found.is_stuck and "--runs N" in found.warnings[0]


def test_what_needs_more_than_the_limit_is_named_and_left(folder: Path, tmp_path: Path) -> None:
    other = stored(tmp_path / "other", (BASE, records()))
    pair = Pair(label="full", base=entry(folder, runs=records()), new=entry(other, runs=records()))
    rows = [row(Verdict.INCONCLUSIVE, needs=3), row(Verdict.INCONCLUSIVE, needs=361, metric="first_step_s")]
    said = "full: first_step_s gets no more runs: it would need about 361 more per side, and --max-runs is 20"
    found = prepare(comparison([pair], rows), here=here)
    assert found.warnings == (said,) and [side.repeats for side in found.contests[0].sides] == [(4, 5, 6)] * 2
    found = prepare(comparison([pair], rows[1:]), here=here)
    assert found.warnings == (said,) and not found.contests and found.is_stuck
    (line,) = contests.lines(found, ())
    assert "this machine" not in line and "--runs N" in line
    (raised,) = prepare(comparison([pair], rows), max_runs=361, here=here).contests
    assert len(raised.sides[0].repeats) == 361
    found = prepare(comparison([pair], rows), runs=2, here=here)
    assert found.warnings == () and found.contests[0].sides[0].repeats == (4, 5), "as many as the user says"


# What is ready.


def test_new_repeats_follow_the_last_one_and_the_experiment_owes_them(folder: Path) -> None:
    found = ready(folder)
    assert found.repeats == (4, 5)
    assert found.experiment == replace(BASE, repeats=5)
    assert found.run_s == 12.5
    store = Store.resume(folder)
    store.add([found.experiment])
    assert [job.name for job in store.plan([store.experiment(BASE.id)])] == ["r4-t1", "r5-t1"]


def test_what_was_made_since_the_comparison_counts_and_what_failed_does_not(folder: Path) -> None:
    store = Store.resume(folder)
    for record in (ended(BASE, 4, tokens_per_s=1.0), failed(BASE, 5)):
        run_dir = store.run_dir(BASE.id, record.repeat, 1)
        run_dir.mkdir(parents=True)
        assert write_record(run_dir, record)
    assert ready(folder).repeats == (6,)
    assert ready(folder, runs=1).repeats == ()
    assert ready(folder, runs=5).repeats == (6, 7, 8, 9)


def test_what_runs_now_counts_and_what_was_lost_is_run_first(folder: Path) -> None:
    store = Store.resume(folder)
    claimed(store, BASE, 4)
    assert ready(folder).repeats == (5,)
    of_the_dead(store.job(BASE.id, repeat=4, attempt=1))
    assert ready(folder).repeats == (4, 5)


def test_a_repeat_that_was_run_again_since_is_a_new_run(folder: Path) -> None:
    before = [Run(repeat=one, numbers={}, started_at=1.7e9 + one + 0.6 - (100 if one == 3 else 0)) for one in (1, 2, 3)]
    assert ready(folder, seen=before).repeats == (4,)
    cut = [Run(repeat=one, numbers={}, started_at=1.7e9 + one) for one in (1, 2, 3)]
    assert ready(folder, seen=cut).repeats == (4, 5)
    timeless = [Run(repeat=one, numbers={}) for one in (1, 2, 3)]
    assert ready(folder, seen=timeless).repeats == (4, 5)


def test_runs_of_several_folders_are_known_by_their_starts(folder: Path) -> None:
    """A side of two folders numbers their runs anew, so the numbers of this folder's runs are those of the other one's."""
    starts = [
        *(1.6e9 + one for one in (1, 2, 3)),
        *(run.record.started_at for run in Store.resume(folder).runs(BASE.id) if run.record),
    ]
    both = [Run(repeat=number, numbers={}, started_at=start) for number, start in enumerate(starts, start=1)]
    assert len(both) == 6 and ready(folder, seen=both).repeats == (4, 5)


def test_an_experiment_that_owes_more_by_itself_goes_on_with_that(tmp_path: Path) -> None:
    more = replace(BASE, repeats=20)
    root = stored(tmp_path / "results", (more, records()))
    found = ready(root, experiment=more)
    assert found.repeats == (4, 5) and found.experiment.repeats == 20


def test_adaptive_repeats_owe_as_many_and_keep_their_rule(tmp_path: Path) -> None:
    adaptive = replace(BASE, repeats=2, adaptive=Repeats(min=2, max=4, within=0.01))
    root = stored(tmp_path / "results", (adaptive, records()))
    found = ready(root, experiment=adaptive)
    assert found.repeats == (4, 5)
    assert found.experiment.adaptive == Repeats(min=5, max=5, within=0.01)


@pytest.mark.parametrize(
    ("place", "words"),
    [
        (None, "not from a results folder"),
        ("results", "not from a results folder"),
        ("/nowhere/at/all", "there is no such folder"),
    ],
)
def test_an_entry_without_a_folder_of_ours_cannot_run(place: str | None, words: str) -> None:
    assert words in refused(readiness(entry(place), runs=1, seen=(), here=here))


@pytest.mark.parametrize("name", ["../../escaped", "a/b", ".hidden", "x\n", "", "\x1b[31m", "a" * 300])
def test_an_id_is_a_name_in_its_folder_and_nothing_else(folder: Path, name: str) -> None:
    why = refused(readiness(entry(folder, replace(BASE, id=name)), runs=1, seen=(), here=here))
    assert "is not the id of an experiment" in why


def test_a_folder_that_is_not_ours_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "experiments" / BASE.id).mkdir(parents=True)
    before = sorted(tmp_path.rglob("*"))
    assert "this is not a results folder" in refused(looked(tmp_path))
    assert sorted(tmp_path.rglob("*")) == before


def test_an_experiment_that_calls_itself_another_cannot_run(folder: Path) -> None:
    file = folder / "experiments" / BASE.id / "experiment.json"
    file.write_text(file.read_text().replace(BASE.id, "another-000000000000"))
    assert "not its folder's name" in refused(looked(folder))


def test_a_folder_of_another_user_is_run_only_when_asked_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 4242)
    assert "belongs to another user" in refused(looked(folder))
    assert "belongs to another user" in refused(looked(folder, ignore=["all"]))
    assert isinstance(looked(folder, ignore=[OWNER]), Ready)


def test_what_is_wrong_anywhere_or_cannot_run_on_this_machine_is_told(tmp_path: Path) -> None:
    wrong = replace(BASE, skip=Reason(kind="x", text="it means nothing"))
    assert refused(looked(stored(tmp_path / "1", (wrong, records())), experiment=wrong)) == "it means nothing"
    elsewhere = replace(BASE, python="/no/such/python")
    planned = looked(stored(tmp_path / "2", (elsewhere, records())), experiment=elsewhere)
    assert "interpreter /no/such/python does not exist" in refused(planned)
    gpus = replace(BASE, device=Device.CUDA, num_gpus=512)
    assert "GPU" in refused(looked(stored(tmp_path / "3", (gpus, records())), experiment=gpus))


def test_what_could_not_run_where_it_was_planned_may_run_here(tmp_path: Path) -> None:
    planned = replace(BASE, cannot_run_here=Reason(kind="no_gpu", text="no GPU on the laptop"))
    found = ready(stored(tmp_path / "1", (planned, records())), experiment=planned)
    assert found.repeats == (4, 5) and found.experiment.cannot_run_here is None


def test_another_environment_is_named_and_can_be_ignored_by_its_name(tmp_path: Path) -> None:
    old = [
        replace(one, provenance={"packages": {"torch": "2.0.0"}, "git": {"commit": "old", "dirty": False}})
        for one in records()
    ]
    root = stored(tmp_path / "results", (BASE, old))
    why = refused(looked(root))
    assert "torch was 2.0.0, here it is 2.13.0" in why and "git_commit was old, here it is abc" in why
    assert "git_commit was old" in refused(looked(root, ignore=["torch"]))
    assert isinstance(looked(root, ignore=["torch", "git_commit"]), Ready)
    assert isinstance(looked(root, ignore=["all"]), Ready)


def with_provenance(root: Path, **more: object) -> Path:
    old = [replace(one, provenance={**one.provenance, **more}) for one in records()]
    return stored(root, (BASE, old))


def test_a_package_that_is_gone_or_new_is_a_difference_and_so_is_a_commit_that_nobody_knows_here(
    tmp_path: Path,
) -> None:
    gone = with_provenance(tmp_path / "1", packages={"torch": "2.13.0", "peft": "0.18"})
    assert "peft was 0.18, here it is not there" in refused(looked(gone))
    new = with_provenance(tmp_path / "2", packages={"other": "1"})
    assert "torch was not there, here it is 2.13.0" in refused(looked(new))
    assert isinstance(looked(with_provenance(tmp_path / "3", packages={})), Ready)
    moved = with_provenance(tmp_path / "4", host={"name": "bench-1"})
    assert "host was bench-1, here it is not there" in refused(looked(moved))


def test_what_was_run_here_all_the_same_does_not_make_it_the_same_environment(tmp_path: Path) -> None:
    root = with_provenance(tmp_path / "1", packages={"torch": "2.0.0"})
    record = ended(BASE, 4, tokens_per_s=1.0)
    run_dir = Store.resume(root).run_dir(BASE.id, 4, 1)
    run_dir.mkdir(parents=True)
    assert write_record(run_dir, record)
    assert "torch was 2.0.0" in refused(looked(root))
    assert ready(root, ignore=["torch"]).repeats == (5,)


def test_runs_that_shared_the_machine_are_not_repeated_alone(tmp_path: Path) -> None:
    packed = [replace(one, beside=("another-000000000000",)) for one in records()]
    known = entry(stored(tmp_path / "1", (BASE, packed)), runs=records())
    found = readiness(known, runs=1, seen=known.runs, here=lambda one: {**this_machine(one), **HERE})
    assert "neighbours was 1, here it is 0" in refused(found)


def test_what_a_run_of_this_machine_would_say_is_in_the_words_of_a_comparison() -> None:
    found = this_machine(BASE)
    assert {"host", "python", "cpu_count"} <= found.keys()


# On a cluster.


def on_cluster(
    root: Path, experiment: Experiment = BASE, *, executor: str = "slurm", ignore: Sequence[str] = ()
) -> Ready | Refused:
    """Claim the runs of the folder for this executor, and look whether a cluster of nodes with 4 GPUs can make more."""
    for run in Store.resume(root).runs(experiment.id):
        record = run.job.folder.record.read_bytes()
        shutil.rmtree(run.job.run_dir)
        assert claims.claim(run.job, executor=executor) is not None
        run.job.folder.record.write_bytes(record)
    return looked(root, experiment=experiment, ignore=ignore, site=Site(file="site.yaml", node="4xH100"))


def test_the_gpus_of_a_node_count_instead_of_this_machines(tmp_path: Path) -> None:
    for gpus, nodes in ((4, 1), (8, 2)):
        large = replace(BASE, device=Device.CUDA, num_gpus=gpus, num_nodes=nodes)
        assert isinstance(on_cluster(stored(tmp_path / f"{nodes}", (large, records())), large), Ready)
    huge = replace(BASE, device=Device.CUDA, num_gpus=8)
    why = refused(on_cluster(stored(tmp_path / "huge", (huge, records())), huge))
    assert why == "8 GPUs are needed, but only 4 are in a node (`node:` in site.yaml)"


def test_what_only_a_node_knows_is_not_compared(tmp_path: Path) -> None:
    host = {"name": "n1", "system": "Linux-5", "cpu": "EPYC", "cpu_count": 128}
    of_a_node = {"host": host, "driver": {"driver": "570", "cuda": "12.8"}, "gpus": [{"power_limit_w": 700.0}]}
    root = with_provenance(tmp_path / "1", **of_a_node)
    assert all(f"{name} was" in refused(looked(root)) for name in ("driver", "driver_cuda", "host", "cpu"))
    assert isinstance(on_cluster(root), Ready)
    assert "torch was 2.0.0" in refused(on_cluster(with_provenance(tmp_path / "2", packages={"torch": "2.0.0"})))


def test_runs_that_were_made_elsewhere_do_not_go_on_on_a_cluster(folder: Path) -> None:
    assert "executor was local, here it is slurm" in refused(on_cluster(folder, executor="local"))
    assert isinstance(on_cluster(folder, executor="local", ignore=["executor"]), Ready)


def test_records_that_cannot_be_believed_tell_no_environment(folder: Path) -> None:
    for file in folder.rglob("record.json"):
        record = json.loads(file.read_text())
        file.write_text(json.dumps({**record, "experiment_id": "another", "provenance": {"packages": {"torch": "0"}}}))
    assert isinstance(looked(folder), Ready)


# The sides of an open pair.


def prepared(base: Path | None, new: Path, **more: object) -> Prepared:
    sides = [entry(place, runs=records()) for place in (base, new)]
    found = comparison([Pair(label="full", base=sides[0], new=sides[1])], [row(Verdict.INCONCLUSIVE)])
    return prepare(found, here=here, **more)  # type: ignore[arg-type]


def test_where_one_side_cannot_run_the_other_does(tmp_path: Path) -> None:
    new = stored(tmp_path / "new", (BASE, records()))
    found = prepared(None, new)
    assert [side.store.root for side in found.contests[0].sides] == [new]
    assert found.warnings[0].startswith("full: base is not run: its numbers are not from")
    assert not found.is_stuck


def test_a_campaign_held_against_itself_runs_as_many_more_for_both_halves(folder: Path) -> None:
    odd, even = entry(folder, runs=records()[::2]), entry(folder, runs=records()[1::2])
    found = comparison([Pair(label="full", base=odd, new=even)], [row(Verdict.INCONCLUSIVE, needs=2)])
    (contest,) = prepare(found, here=here).contests
    assert [side.repeats for side in contest.sides] == [(4, 5, 6, 7)]
    assert contests.compare_again(found) == f"tunebench compare --aa {folder}"


def test_what_to_compare_again_is_a_command_whatever_the_folders_are_called(tmp_path: Path) -> None:
    pair = Pair(label="full", base=entry(None), new=entry(tmp_path / "$(touch x) y"))
    found = replace(comparison([pair], []), base="ref $(id).csv")
    assert contests.compare_again(found) == f"tunebench compare 'ref $(id).csv' '{tmp_path}/$(touch x) y'"


def test_what_to_compare_again_names_all_folders_of_a_side(folder: Path, tmp_path: Path) -> None:
    """An experiment that is in both folders of a side names one of them, so the runs of the other were left out."""
    old = stored(tmp_path / "old", (BASE, records()))
    pair = Pair(label="full", base=entry(folder), new=entry(tmp_path / "new"))
    found = replace(comparison([pair], []), base=f"{old}, {folder}")
    assert contests.compare_again(found) == f"tunebench compare {old},{folder} {tmp_path}/new"


def test_lines_say_what_will_run(folder: Path, tmp_path: Path) -> None:
    other = stored(tmp_path / "other", (BASE, records()))
    found = prepared(folder, other)
    order = rounds.turns(found.contests, seed=0)
    assert list(contests.lines(found, order)) == [
        "6 run(s) of 2 experiment(s), in 3 round(s):",
        f"  3 × {BASE.id} in {folder}",
        f"  3 × {BASE.id} in {other}",
    ]
    assert contests.gpu_hours(order) == 0.0, "they run on CPUs"
    on_gpus = [
        replace(turn, ready=replace(turn.ready, experiment=replace(BASE, device=Device.CUDA, num_gpus=2)))
        for turn in order
    ]
    assert contests.gpu_hours(on_gpus) == pytest.approx(2 * 6 * 12.5 / 3600)
    nothing = prepare(comparison([], []))
    assert list(contests.lines(nothing, ())) == [
        "No row of this comparison is inconclusive: there is nothing to run again."
    ]
    stuck = prepared(None, tmp_path / "gone")
    assert list(contests.lines(stuck, ())) == [
        "No inconclusive experiment can be settled by more runs, as the notes say."
    ]


# The sides of a changed pair, which is profiled.


def profiled(base: Path | None, new: Path, *, experiment: Experiment = BASE) -> Prepared:
    sides = [entry(place, experiment, runs=records()) for place in (base, new)]
    found = comparison(
        [Pair(label="full", base=sides[0], new=sides[1])], [row(Verdict.REGRESSED), row(Verdict.IMPROVED)]
    )
    return profiles.prepare(found, here=here)


def profiled_run(side: Ready, *, repeat: int = 1, events: Sequence[object] = (step(1, 0, 10),), **changes: Any) -> Path:
    """Store the run of a side with its trace, and return the trace. `changes` are those of its record."""
    root = side.store.root
    store = side.store if root.exists() else Store.create(root, {})
    store.add([side.experiment])
    run_dir = store.run_dir(side.experiment.id, repeat, 1)
    trace = written(run_dir / "profile" / "rank0.json.gz", [*events])
    assert write_record(run_dir, replace(ended(side.experiment, repeat, profiled_steps=3), **changes))
    return trace


def test_both_sides_of_a_changed_pair_are_profiled_once_beside_their_folders(folder: Path, tmp_path: Path) -> None:
    other = stored(tmp_path / "other", (replace(BASE, repeats=3, monitors=("nvml",)), records()))
    (contest,) = profiled(folder, other).contests
    assert [side.store.root.name for side in contest.sides] == ["results.profiles", "other.profiles"]
    assert [side.repeats for side in contest.sides] == [(1,), (1,)]
    assert [side.experiment.monitors for side in contest.sides] == [("torch_profiler",), ("nvml", "torch_profiler")]
    (name,) = {side.experiment.id for side in contest.sides}
    assert name != BASE.id and name.rpartition("-")[0] == BASE.id.rpartition("-")[0]
    assert not list(tmp_path.glob("*.profiles"))


def test_only_changed_pairs_are_profiled(folder: Path) -> None:
    pair = Pair(label="full", base=entry(folder), new=entry(folder, replace(BASE, id="other-000000000000")))
    for verdict in (Verdict.SAME, Verdict.INCONCLUSIVE, Verdict.MISSING):
        found = profiles.prepare(comparison([pair], [row(verdict)]), here=here)
        assert found == Prepared(contests=(), open=0)
    assert list(profiles.lines(found, ())) == [
        "No changed row of this comparison lacks a profile: there is nothing to run."
    ]


def test_the_sides_of_a_pair_can_be_profiled_by_two_calls(tmp_path: Path) -> None:
    new = stored(tmp_path / "new", (BASE, records()))
    elsewhere = with_provenance(tmp_path / "base", packages={"torch": "2.0.0"})
    found = profiled(elsewhere, new)
    assert [side.store.root.name for side in found.contests[0].sides] == ["new.profiles"]
    assert found.warnings[0].startswith(
        "full: base is not run: it was measured in another environment (torch was 2.0.0"
    )
    (ready,) = found.contests[0].sides
    profiled_run(ready)
    later = profiled(elsewhere, new)
    assert len(later.warnings) == 1 and later.is_stuck, "new has its profile, and base cannot run here"
    stuck = profiled(None, new)
    assert stuck.warnings[0].startswith("full: base is not run: its numbers are not from")


@pytest.mark.parametrize("damage", ["removed", "cut off"])
def test_a_trace_that_was_removed_or_damaged_is_made_anew_by_another_run(
    folder: Path, tmp_path: Path, damage: str
) -> None:
    other = stored(tmp_path / "other", (BASE, records()))
    (contest,) = profiled(folder, other).contests
    trace, _ = (profiled_run(side) for side in contest.sides)
    assert profiled(folder, other) == Prepared(contests=(), open=0)
    if damage == "removed":
        shutil.rmtree(trace.parent)
    else:
        trace.write_bytes(trace.read_bytes()[:-9])
    (contest,) = profiled(folder, other).contests
    assert [(side.store.root.name, side.repeats) for side in contest.sides] == [("results.profiles", (2,))]
    again = profiled_run(contest.sides[0], repeat=2)
    assert profiled(folder, other) == Prepared(contests=(), open=0)
    if damage == "cut off":
        again.write_bytes(again.read_bytes()[:-9])
        assert not profiled(folder, other).contests[0].sides[0].repeats, (
            "the second one that cannot be read is no accident"
        )


def test_a_trace_in_the_results_folder_that_is_damaged_is_made_anew_next_to_it(folder: Path, tmp_path: Path) -> None:
    other = stored(tmp_path / "other", (BASE, records()))
    (contest,) = profiled(folder, other).contests
    written(folder / "experiments" / BASE.id / "runs/r1-t1/profile/rank0.json.gz", [])
    for side in contest.sides:
        profiled_run(side)
    assert profiled(folder, other) == Prepared(contests=(), open=0)


def test_the_trace_of_a_run_that_failed_does_not_count(folder: Path, tmp_path: Path) -> None:
    other = stored(tmp_path / "other", (BASE, records()))
    (contest,) = profiled(folder, other).contests
    profiled_run(contest.sides[0])
    profiled_run(contest.sides[1], status=Status.FAILED, cause="it failed in mid training")
    (again,) = profiled(folder, other).contests
    assert [(side.store.root.name, side.repeats) for side in again.sides] == [("other.profiles", (2,))]


def test_a_profile_of_another_environment_is_said_with_its_differences(folder: Path, tmp_path: Path) -> None:
    other = stored(tmp_path / "other", (BASE, records()))
    entries = [read_sides.read([place]).entries[0] for place in (folder, other)]
    found = comparison([Pair(label="full", base=entries[0], new=entries[1])], [row(Verdict.REGRESSED)])
    base, new = profiles.prepare(found, here=here).contests[0].sides
    profiled_run(base)
    trace = profiled_run(new)
    same, _ = profiles.findings(found, profiles.prepare(found, here=here))
    record = json.loads((trace.parents[1] / "record.json").read_text())
    record["provenance"] |= {"packages": {"torch": "1.13.0"}, "host": {"name": "old"}, "driver": {"driver": "1"}}
    (trace.parents[1] / "record.json").write_text(json.dumps(record))
    warning, *others = profiles.findings(found, profiles.prepare(found, here=here))
    assert others[0] == same
    assert warning.startswith("full: Profiled in another environment than measured: new (driver: ")
    assert "torch: 2.13.0 → 1.13.0" in warning and warning.endswith("; to profile again, remove the trace.")


def test_what_profiling_itself_changes_is_not_named(tmp_path: Path) -> None:
    """The runs started warm, with others on the machine. A profiled run starts cold, by itself, with one more monitor."""
    made = [replace(one, beside=("a",)) for one in started(Start.WARM, Start.WARM)]
    sides = stored(tmp_path / "base", (BASE, made)), stored(tmp_path / "new", (BASE, made))
    entries = [read_sides.read([place]).entries[0] for place in sides]
    assert {"start": "warm", "neighbours": 1}.items() <= entries[0].environment.items()
    found = comparison([Pair(label="full", base=entries[0], new=entries[1])], [row(Verdict.REGRESSED)])
    prepared = profiles.prepare(found, ignore=["start", "neighbours"], here=here)
    for side in prepared.contests[0].sides:
        profiled_run(side, provenance={**made[0].provenance, "start": "cold"})
    sentence, command = profiles.findings(found, prepared)
    assert "another environment" not in sentence and command.startswith("  tunebench profile ")


def test_a_run_that_could_make_no_trace_is_not_repeated(folder: Path, tmp_path: Path) -> None:
    other = stored(tmp_path / "other", (BASE, records()))
    (contest,) = profiled(folder, other).contests
    for side in contest.sides:
        trace = profiled_run(side, measurements=ended(BASE, 1, profiled_steps=None).measurements)
        shutil.rmtree(trace.parent)
    (contest,) = profiled(folder, other).contests
    assert [side.repeats for side in contest.sides] == [(), ()]


def test_a_trainer_without_a_trace_is_said_and_not_run(tmp_path: Path) -> None:
    custom = replace(BASE, trainer="custom")
    found = profiled(*(stored(tmp_path / name, (custom, records())) for name in ("base", "new")), experiment=custom)
    assert found.is_stuck
    assert found.warnings == tuple(
        f"full: {side} is not run: runs of the trainer custom have no trace" for side in ("base", "new")
    )


def test_halves_of_one_campaign_are_not_profiled(folder: Path) -> None:
    assert profiled(folder, folder).warnings == ("full: not profiled: both sides are the same experiment",)


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (failed(BASE, 1), "the run is failed: "),
        (ended(BASE, 1), "the run was not profiled"),
        (ended(BASE, 1, profiled_steps=3), "the trace was removed"),
        (None, "the run has not ended"),
    ],
)
def test_a_side_without_a_trace_has_its_reason(
    folder: Path, tmp_path: Path, record: RunRecord | None, why: str
) -> None:
    other = stored(tmp_path / "other", (BASE, records()))
    sides = [entry(place, runs=records()) for place in (folder, other)]
    found = comparison([Pair(label="full", base=sides[0], new=sides[1])], [row(Verdict.REGRESSED)])
    prepared = profiles.prepare(found, here=here)
    order = rounds.turns(prepared.contests, seed=0)
    profiles.make_folders(order)
    for side in prepared.contests[0].sides:
        run_dir = side.store.run_dir(side.experiment.id, 1, 1)
        run_dir.mkdir(parents=True)
        if record is not None:
            assert write_record(run_dir, replace(record, experiment_id=side.experiment.id))
    said = list(profiles.findings(found, prepared))
    name = prepared.contests[0].sides[0].experiment.id
    assert len(said) == 2 and all(line.startswith(f"full: {name} has no profile: {why}") for line in said)


# The order.


def contest(name: str, *, base: int, new: int) -> Contest:
    sides = [
        Ready(store=Store(Path(f"/{side}")), experiment=replace(BASE, id=name), repeats=tuple(range(4, 4 + count)))
        for side, count in (("base", base), ("new", new))
    ]
    return Contest(label=name, sides=tuple(side for side in sides if side.repeats))


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=6), st.integers())
def test_rounds_hold_each_side_once_and_the_sides_of_a_pair_next_to_each_other(
    counts: list[tuple[int, int]], seed: int
) -> None:
    every = [contest(f"e{number}", base=base, new=new) for number, (base, new) in enumerate(counts)]
    order = rounds.turns(every, seed=seed)
    made = [(turn.ready.experiment.id, turn.ready.store.root, turn.repeat) for turn in order]
    assert len(set(made)) == len(made) == sum(base + new for base, new in counts)
    numbers = [turn.repeat for turn in order]
    assert numbers == sorted(numbers), "round after round"
    for number, (base, new) in enumerate(counts):
        at = [place for place, turn in enumerate(order) if turn.ready.experiment.id == f"e{number}"]
        both = 2 * min(base, new)
        assert all(at[place + 1] - at[place] == 1 for place in range(0, both, 2))
        assert all(
            {order[at[p]].ready.store.root, order[at[p + 1]].ready.store.root} == {Path("/base"), Path("/new")}
            for p in range(0, both, 2)
        )
    assert rounds.turns(every, seed=seed) == order


def test_which_side_is_first_is_chance_that_the_seed_decides() -> None:
    every = [contest("e", base=200, new=200)]
    first = [turn.ready.store.root.name for turn in rounds.turns(every, seed=1)][::2]
    assert 70 < first.count("base") < 130
    other = [turn.ready.store.root.name for turn in rounds.turns(every, seed=2)][::2]
    assert first != other


def test_the_seed_is_that_of_the_new_sides_folder(tmp_path: Path) -> None:
    sides = []
    for seed, name in enumerate(("base", "new")):
        store = Store.create(tmp_path / name, {}, seed=seed)
        sides.append(Ready(store=store, experiment=BASE, repeats=(1,)))
    assert rounds.seed_of([Contest(label="full", sides=tuple(sides))]) == 1
    assert rounds.seed_of([]) == 0


def test_each_run_is_handed_over_by_itself_and_what_else_is_owed_stays_owed(tmp_path: Path) -> None:
    more = replace(BASE, repeats=20)
    roots = [stored(tmp_path / name, (more, records())) for name in ("base", "new")]
    sides = tuple(ready(root, experiment=more) for root in roots)
    order = rounds.turns([Contest(label="full", sides=sides)], seed=7)
    handed: list[Path] = []
    events: list[Event] = []

    def run(job: Job) -> RunRecord:
        handed.append(job.run_dir)
        return ended(more, job.repeat)

    outcome = rounds.carry_out(order, cold=FakeExecutor(run), warm=FakeExecutor(run), on_event=events.append)
    assert handed == [turn.job.run_dir for turn in order]
    assert outcome.exit_code == 0 and len(outcome.records) == 4
    assert [len(event.jobs) for event in events if event.kind is EventKind.HANDED_OVER] == [4]
    for root in roots:
        store = Store.resume(root)
        assert [job.repeat for job in store.plan([store.experiment(more.id)])] == list(range(6, 21))


@pytest.mark.parametrize("sides", list(itertools.product((Start.WARM, Start.COLD), repeat=2)))
def test_each_side_of_one_experiment_starts_as_its_own_runs_started(tmp_path: Path, sides: tuple[Start, ...]) -> None:
    """Both sides have the same id. The new run of a warm folder was cold if the other folder was cold."""
    roots = [
        stored(tmp_path / name, (BASE, started(start))) for name, start in zip(("base", "new"), sides, strict=True)
    ]
    contest = Contest(label="full", sides=tuple(ready(root, runs=1, ignore=["start"]) for root in roots))
    handed: dict[Path, list[Start]] = {root: [] for root in roots}

    def executor(start: Start) -> FakeExecutor:
        def run(job: Job) -> RunRecord:
            handed[job.folder.results].append(start)
            return ended(BASE, job.repeat)

        return FakeExecutor(run)

    order = rounds.turns([contest], seed=0)
    rounds.carry_out(order, cold=executor(Start.COLD), warm=executor(Start.WARM), on_event=lambda event: None)
    assert [handed[root] for root in roots] == [[start] for start in sides]


def test_a_run_that_fails_is_told_and_stops_nothing(folder: Path) -> None:
    order = rounds.turns([Contest(label="full", sides=(ready(folder),))], seed=0)

    def run(job: Job) -> RunRecord:
        return failed(BASE, job.repeat) if job.repeat == 4 else ended(BASE, job.repeat)

    outcome = rounds.carry_out(order, cold=FakeExecutor(run), warm=FakeExecutor(run), on_event=lambda event: None)
    assert [record.status for record in outcome.records] == [Status.FAILED, Status.OK]
    assert outcome.exit_code == 1


# The file.


def test_the_benchmarks_of_a_suite_run_together_as_often_as_one_of_them_needs(folder: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(folder, tmp_path / "other"))

    def benchmark(root: Path, name: str) -> Entry:
        return replace(entry(root, runs=records()), id=f"{BASE.id}::{name}", label=name)

    pairs = [Pair(label=name, base=benchmark(folder, name), new=benchmark(other, name)) for name in ("a", "b")]
    found = [row(Verdict.INCONCLUSIVE, label=label, needs=needs) for label, needs in (("a", 1), ("b", 2))]
    (contest,) = prepare(comparison(pairs, found), here=here).contests
    assert [side.repeats for side in contest.sides] == [(4, 5), (4, 5)]
