"""Where a campaign stands: what a results folder says, and how it is shown."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from factories.claimed_runs import ELSEWHERE, changed, claimed, named, of_another_host, of_the_dead
from factories.results import ended, experiment, failed, stored
from factories.run_folders import write_steps
from rich.console import Console

from orchestrator.campaign.loop import run_benchmark
from orchestrator.campaign.status import view
from orchestrator.campaign.status.activity import Activity, Phase
from orchestrator.campaign.status.campaign import CampaignStatus, Reader, chosen, looks, pause_on
from orchestrator.campaign.status.experiment import ExperimentStatus, RepeatState, RepeatStatus
from orchestrator.errors import ResultsError
from orchestrator.executors import FakeExecutor
from orchestrator.machine.stop_signals import StopSignals
from orchestrator.records import Job, Reason, Repeats, RunRecord, Status
from orchestrator.records.experiment import ids_named
from orchestrator.results import claims
from orchestrator.results.store import Store, write_record

Golden = Callable[[str, str], None]
DONE, RUNNING, FAILED, PENDING, LOST, SILENT = RepeatState
A, B, C = named("a"), named("b", num_gpus=2), named("c")


def states(status: CampaignStatus, experiment_id: str) -> dict[int, tuple[RepeatState, int]]:
    (cell,) = [one for one in status.experiments if one.experiment.id == experiment_id]
    return {one.repeat: (one.state, one.attempt) for one in cell.repeats}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    cancelled = replace(ended(B, 1), status=Status.CANCELLED, kind="cancelled")
    store = Store(stored(tmp_path / "results", (A, [ended(A, 1)]), (B, [cancelled, failed(B, 2)]), (C, [])))
    claimed(store, A, 2)
    of_the_dead(claimed(store, A, 3))
    of_another_host(claimed(store, C, 1))
    of_another_host(claimed(store, C, 2), silent_s=3600)
    return store


def test_every_repeat_is_in_one_state(store: Store) -> None:
    seen = Reader(store).look()
    assert [one.experiment.id for one in seen.experiments] == [A.id, B.id, C.id]
    assert states(seen, A.id) == {1: (DONE, 1), 2: (RUNNING, 1), 3: (LOST, 1)}
    assert states(seen, B.id) == {1: (PENDING, 2), 2: (FAILED, 1), 3: (PENDING, 1)}
    assert states(seen, C.id) == {1: (RUNNING, 1), 2: (SILENT, 1), 3: (PENDING, 1)}
    assert seen.counts() == {DONE: 1, RUNNING: 2, FAILED: 1, PENDING: 3, LOST: 1, SILENT: 1}
    assert not seen.is_over() and seen.warnings == ()
    (again, new) = [one for one in seen.of(PENDING) if one.experiment_id == B.id]
    assert (again.status, again.kind, new.status) == (Status.CANCELLED, "cancelled", None)
    (broken,) = seen.of(FAILED)
    assert (broken.status, broken.kind, broken.cause) == (Status.FAILED, "oom_cuda", "oom_cuda, in a sentence")


def test_who_has_a_run_since_when_and_what_it_is_at(store: Store) -> None:
    job = store.job(A.id, repeat=2, attempt=1)
    (job.run_dir / "stdout.log").touch()
    write_steps(job.run_dir, 0, [0.5] * 15)
    here, away = Reader(store).look().of(RUNNING)
    assert here.owner == claims.this_process() and away.owner is not None and away.owner.host == ELSEWHERE
    assert here.since is not None and abs(here.since - time.time()) < 60
    assert here.activity == Activity(
        phase=Phase.MEASURING,
        step=15,
        of=40,
        step_time_s=0.5,
        tokens_per_s=2000.0,
        left_s=12.5,
    )


def test_the_next_look_sees_what_came_to_be(store: Store) -> None:
    reader = Reader(store)
    reader.look()
    write_record(store.run_dir(A.id, 2, 1), ended(A, 2))
    claimed(store, B, 3)
    late = named("late", repeats=1)
    store.add([late])
    claimed(store, late, 1)
    seen = reader.look()
    assert states(seen, A.id)[2] == (DONE, 1)
    assert states(seen, B.id)[3] == (RUNNING, 1)
    assert states(seen, late.id) == {1: (RUNNING, 1)}
    store.add([replace(late, repeats=2)])
    assert states(reader.look(), late.id)[2] == (PENDING, 1)


def test_a_failed_repeat_that_is_no_longer_requested_is_in_no_state(tmp_path: Path) -> None:
    ok = [ended(A, repeat) for repeat in (1, 2, 3, 5)]
    store = Store(stored(tmp_path / "r", (A, [*ok, failed(A, 4), replace(failed(A, 6), status=Status.CANCELLED)])))
    of_the_dead(claimed(store, A, 7))
    seen = Reader(store).look()
    assert states(seen, A.id) == {repeat: (DONE, 1) for repeat in (1, 2, 3, 5)} and seen.is_over()
    store.add([replace(A, repeats=7)])
    again = states(Reader(store).look(), A.id)
    assert (again[4], again[7]) == ((FAILED, 1), (LOST, 1)), "they are failed and lost again once they are requested"


def test_any_number_of_looks_tell_what_one_look_tells(store: Store) -> None:
    """What is kept from earlier looks is what a first look would find."""
    reader = Reader(store)
    for change in (
        lambda: write_record(store.run_dir(A.id, 2, 1), failed(A, 2)),
        lambda: claimed(store, A, 3, attempt=2),
        lambda: (store.run_dir(C.id, 1, 1) / "record.json").write_text("{half"),
        lambda: store.add([replace(C, repeats=5)]),
    ):
        reader.look()
        change()
        again, fresh = reader.look(), Reader(store).look()
        assert again.experiments == fresh.experiments and again.warnings == fresh.warnings


def test_a_record_is_read_once(store: Store) -> None:
    """Two seconds after a folder changed, its records are known: one that changes against the rules is not seen."""
    reader = Reader(store)
    record = store.run_dir(A.id, 1, 1) / "record.json"
    for folder in store.root.glob("experiments/*/runs"):
        os.utime(folder, (1.7e9, 1.7e9))
    assert reader.look().counts()[DONE] == 1
    record.write_text("{half")
    assert reader.look().counts()[DONE] == 1
    assert Reader(store).look().counts()[DONE] == 0


@pytest.mark.parametrize(
    ("name", "left_out"), [("experiment.json", True), ("runs/r1-t1/record.json", False), ("runs/r3-t1/job.json", False)]
)
def test_a_half_written_file_is_named_and_hides_nothing_else(store: Store, name: str, left_out: bool) -> None:
    file = store.root / "experiments" / A.id / name
    file.write_text(file.read_text()[:40])
    (file.parent / "owner.json").unlink(missing_ok=True)
    seen = Reader(store).look()
    (warning,) = seen.warnings
    assert str(file) in warning
    assert [one.experiment.id for one in seen.experiments] == [B.id, C.id] if left_out else [A.id, B.id, C.id]
    if "record" in name:
        assert states(seen, A.id)[1] == (FAILED, 1), "what it says may be right, so it is not owed again"
    json.loads(view.as_json(seen))


@pytest.mark.parametrize("is_hidden", [True, False])
def test_an_experiment_whose_folder_is_hidden_or_gone_is_named_and_the_campaign_is_not_over(
    tmp_path: Path, is_hidden: bool
) -> None:
    """A link to itself stands for a folder that another user hides: it cannot be read, and it exists."""
    one = [replace(cell, repeats=1) for cell in (A, B)]
    root = stored(tmp_path / "results", *((cell, [ended(cell, 1)]) for cell in one))
    reader = Reader(Store(root))
    assert reader.look().is_over()
    folder = root / "experiments" / B.id
    shutil.rmtree(folder)
    if is_hidden:
        folder.symlink_to(folder)
    for seen in (reader.look(), Reader(Store(root)).look(), Reader(Store(root), only=[A.id, B.id]).look()):
        (warning,) = seen.warnings
        assert (
            "cannot be read" in warning
            if is_hidden
            else warning == f"{folder}: the folder of this experiment is missing"
        )
        assert not seen.is_over() and "time left unknown" in str(view.headline(seen, title="r"))
    assert Reader(Store(root), only=[A.id]).look().is_over()


def test_a_damaged_step_file_of_a_running_run_is_named(store: Store) -> None:
    file = store.run_dir(A.id, 2, 1) / "steps-rank0.jsonl"
    file.write_text("\0\0\0\n")
    (warning,) = Reader(store).look().warnings
    assert str(file) in warning


def test_what_is_left_out_owes_nothing(tmp_path: Path) -> None:
    reason = Reason(kind="k", text="t")
    skipped, elsewhere = named("s", skip=reason), named("e", cannot_run_here=reason)
    seen = Reader(Store(stored(tmp_path / "r", (skipped, []), (elsewhere, [])))).look()
    assert len(seen.experiments) == 2 and seen.is_over() and not seen.of(PENDING)


def test_adaptive_repeats_owe_the_next_one_and_say_how_many_may_follow(tmp_path: Path) -> None:
    rule = Repeats(min=2, max=6, within=0.01)
    one = named("x", repeats=2, adaptive=rule)
    apart = [ended(one, n, tokens_per_s=100.0 * n) for n in (1, 2)]
    alike = [ended(one, n, tokens_per_s=100.0) for n in (1, 2)]
    fresh, wide, agreed = (
        Reader(Store(stored(tmp_path / name, (one, records)))).look()
        for name, records in (("fresh", []), ("wide", apart), ("agreed", alike))
    )
    assert (states(fresh, one.id), fresh.experiments[0].may_follow) == ({1: (PENDING, 1), 2: (PENDING, 1)}, 4)
    assert (states(wide, one.id)[3], wide.experiments[0].may_follow) == ((PENDING, 1), 3)
    assert agreed.is_over() and agreed.experiments[0].may_follow == 0


def test_the_time_left_is_unknown_until_something_ended(tmp_path: Path) -> None:
    store = Store(stored(tmp_path / "r", (A, []), (B, [])))
    assert Reader(store).look().left_s is None
    run_dir = store.run_dir(A.id, 1, 1)
    run_dir.mkdir(parents=True)
    write_record(run_dir, ended(A, 1))  # 12.5 s
    assert Reader(store).look().left_s == pytest.approx(5 * 12.5)
    claimed(store, A, 2)
    assert Reader(store).look().left_s == pytest.approx(5 * 12.5, abs=5.0)
    claimed(store, A, 3)  # side by side from now on, on two GPUs
    assert Reader(store).look().left_s == pytest.approx((2 * 12.5 + 3 * 12.5 * 2) / 2, abs=5.0)


def test_a_campaign_as_it_goes_on(tmp_path: Path) -> None:
    """Looks from inside each run, with real claims: exactly one runs, and the counts always add up."""
    store = Store.create(tmp_path / "r", {})
    reader, seen = Reader(store), []

    def handler(job: Job) -> RunRecord | None:
        seen.append(reader.look())
        one = A if job.experiment_id == A.id else C
        return None if job.repeat == 2 and job.attempt == 1 else ended(one, job.repeat, attempt=job.attempt)

    run_benchmark([A, C], store=store, executor=FakeExecutor(handler))
    assert [(one.counts()[RUNNING], sum(one.counts().values())) for one in seen] == [(1, 6)] * len(seen)
    assert [one.counts()[DONE] for one in seen] == sorted(one.counts()[DONE] for one in seen)
    assert seen[0].counts()[PENDING] == 5
    over = reader.look()
    assert over.is_over() and over.counts()[DONE] == 6 and over.left_s == 0


def three_pauses() -> tuple[list[float], Callable[[float], bool]]:
    """Return the seconds of the pauses, and a pause that ends the looks at its third call."""
    pauses: list[float] = []
    return pauses, lambda seconds: pauses.append(seconds) or len(pauses) == 3  # type: ignore[func-returns-value]


def test_looks_end_when_all_is_done_or_when_asked(store: Store, tmp_path: Path) -> None:
    pauses, pause = three_pauses()
    assert len(list(looks(Reader(store), pause=pause))) == 3
    assert all(1.0 <= seconds <= 10.0 for seconds in pauses)
    over = Store(stored(tmp_path / "over", (replace(A, repeats=1), [ended(A, 1)])))
    assert len(list(looks(Reader(over), pause=lambda _: pytest.fail("waited for nothing")))) == 1


@pytest.mark.parametrize("what", ["gone", "a file", "a link to itself", "empty", "another folder"])
def test_looks_end_with_an_error_when_the_folder_is_gone(store: Store, tmp_path: Path, what: str) -> None:
    ids = frozenset(store.ids())
    seen = looks(Reader(store, only=ids), pause=lambda _: False)
    assert not next(seen).is_over()
    store.root.rename(tmp_path / "moved")
    if what == "a file":
        store.root.touch()
    elif what == "a link to itself":
        store.root.symlink_to(store.root)
    elif what == "empty":
        store.root.mkdir()
    elif what == "another folder":
        Store.create(store.root, {}).add([named("d")])
        suite = json.loads((store.root / "suite.json").read_text())
        (store.root / "suite.json").write_text(json.dumps({**suite, "created": "2026-11-01T03:00:00"}))
    says = {"empty": "this is not a results folder", "another folder": "another results folder has taken its place"}
    with pytest.raises(ResultsError, match=says.get(what, "there is no such folder")):
        next(seen)


def test_a_signal_ends_a_pause_and_the_looks(store: Store) -> None:
    with StopSignals() as stop:
        pause = pause_on(stop)
        assert not pause(0.01)
        began = time.monotonic()
        seen = 0
        for _ in looks(Reader(store), pause=lambda _: pause(60.0)):
            seen += 1
            os.kill(os.getpid(), signal.SIGTERM)
    assert seen == 1 and time.monotonic() - began < 30


def test_a_pause_is_longer_where_looking_takes_long(store: Store) -> None:
    pauses, pause = three_pauses()
    for _ in looks(Reader(store), pause=pause):
        until = time.process_time() + 0.03
        while time.process_time() < until:
            pass
    assert pauses[0] == 1.0 and min(pauses[1:]) > 3.0, "150 times 30 ms, but for the first look"


def test_words_name_experiments_by_a_part_that_no_other_has(store: Store) -> None:
    assert chosen(store, []) == tuple(store.ids()) == (A.id, B.id, C.id)
    assert chosen(store, ["full-b", A.id, "full-b-0"]) == (B.id, A.id)
    with pytest.raises(
        ResultsError, match=rf"the ids of 3 experiments contain 'full'; name one of: {A.id} \(name=a\), {B.id}"
    ):
        chosen(store, ["full"])
    with pytest.raises(ResultsError, match=rf"there is no experiment 'nothing'. Allowed: {A.id} \(name=a\), {B.id}"):
        chosen(store, ["nothing"])


def test_the_readable_part_of_an_id_is_a_name_even_if_others_begin_with_it() -> None:
    ids = ["s-m.gpus1-000000000000", "s-m.gpus16-000000000000", "t-m-000000000000", "t-m-111111111111"]
    assert ids_named("s-m.gpus1", ids) == ids[:1] == ids_named(ids[0], ids)
    assert ids_named("s-m.gpus", ids) == ids[:2] and ids_named("t-m", ids) == ids[2:] and ids_named("x", ids) == []


def test_experiments_with_one_readable_part_have_the_values_that_distinguish_them(tmp_path: Path) -> None:
    both = [experiment(id=f"s-m.gpus1-{rows * 12}", arguments={"rows": rows, "seed": "4"}) for rows in "12"]
    status = Reader(Store(stored(tmp_path / "results", *((one, []) for one in both)))).look()
    assert text_of(status, 80).splitlines()[-2:] == [f"  {one.id}  1×  rows={one.arguments['rows']}" for one in both]


def test_a_value_that_only_one_experiment_has_names_it(tmp_path: Path) -> None:
    several = [("eager", "rmsnorm"), ("liger", "rmsnorm"), ("fast:swiglu", "rmsnorm"), ("liger", "swiglu")]
    both = [
        experiment(id=f"s-m.gpus1-{at * 12}", arguments={"implementation": given, "operator": operator})
        for at, (given, operator) in zip("1234", several, strict=True)
    ]
    store = Store(stored(tmp_path / "results", *((one, []) for one in both)))
    for word, at in (
        ("eager", 0),
        ("fast", 2),
        ("operator=swiglu", 3),
        ("liger rmsnorm", 1),
        ("implementation=eag", 0),
    ):
        assert chosen(store, [word]) == (both[at].id,)
    assert chosen(store, ["swiglu"]) == (both[3].id,), "a whole value comes before a part of one"
    with pytest.raises(ResultsError) as mistake:
        chosen(store, ["liger"])
    assert str(mistake.value) == (
        f"{store.root}: the values of 2 experiments contain 'liger'; name one of: {both[1].id} (implementation=liger "
        f"operator=rmsnorm), {both[3].id} (implementation=liger operator=swiglu)"
    )
    with pytest.raises(
        ResultsError, match=r"there is no experiment 'nothing'. Allowed: .*1 \(implementation=eager oper"
    ):
        chosen(store, ["nothing"])
    with pytest.raises(ResultsError, match=r"the ids of 4 experiments contain 's-m'; name one of: .*1 \(implem"):
        chosen(store, ["s-m"])


def test_a_benchmark_names_the_experiment_of_its_suite(tmp_path: Path) -> None:
    one, other = (experiment(id=f"s-{at}-{at * 12}", trainer="pytest_benchmark") for at in "ab")
    tests = ({"fullname": "bench.py::test_total"}, {"fullname": "bench.py::test_sum[1]"})
    store = Store(stored(tmp_path / "results", (one, [replace(ended(one, 1), benchmarks=tests)]), (other, [])))
    for word in ("test_total", "bench.py::test_sum[1]", "test_sum"):
        assert chosen(store, [word]) == (one.id,)
    with pytest.raises(
        ResultsError, match=r"Allowed: s-a-a+ \(bench.py::test_total, bench.py::test_sum\[1\]\), s-b-b+$"
    ):
        chosen(store, ["test_mean"])


def test_only_the_chosen_ones_are_looked_at(store: Store) -> None:
    seen = Reader(store, only={B.id}).look()
    assert [one.experiment.id for one in seen.experiments] == [B.id]


# --- how it is shown -------------------------------------------------------------------------------------------------

NOW = 1_800_000_000.0
HERE = claims.Owner(host="node3", boot_id="b", pid=4711, start_time=1.0)
AT_WORK = Activity(
    phase=Phase.MEASURING,
    step=120,
    of=500,
    step_time_s=0.8512,
    tokens_per_s=12345.6,
    loss=2.5,
    memory_bytes=61.2 * 2**30,
    left_s=323.0,
    recompiled_at=(3, 4, 12),
    widths_vary=True,
)


def repeat(experiment_id: str, number: int, state: RepeatState, **fields: object) -> RepeatStatus:
    return RepeatStatus(**{"experiment_id": experiment_id, "repeat": number, "attempt": 1, "state": state, **fields})  # type: ignore[arg-type]


def campaign() -> CampaignStatus:
    oom = {"status": Status.FAILED, "kind": "oom_cuda", "cause": "CUDA out of memory. Tried 2 GiB [rank 0]\nmore"}
    a = (
        repeat(A.id, 1, DONE, status=Status.OK, took_s=400.0, since=NOW - 900),
        repeat(A.id, 2, RUNNING, owner=HERE, since=NOW - 250, activity=AT_WORK),
        repeat(A.id, 3, PENDING, attempt=2, status=Status.CANCELLED, kind="cancelled"),
        repeat(A.id, 4, PENDING),
    )
    b = (
        repeat(B.id, 1, FAILED, **oom),
        repeat(B.id, 2, FAILED, **oom),
        repeat(B.id, 3, FAILED, status=Status.STALLED, kind="stalled", cause="no step for 600 s"),
        repeat(B.id, 4, LOST, owner=HERE, since=NOW - 90_000),
        repeat(B.id, 5, RUNNING, owner=HERE, since=NOW - 90_000, activity=Activity(phase=Phase.PREPARING)),
        repeat(B.id, 6, SILENT, owner=replace(HERE, host="node7"), since=NOW - 9000),
    )
    reason = Reason(kind="no_gpu", text="no GPU")
    cells = [ExperimentStatus(experiment=A, repeats=a, may_follow=3), ExperimentStatus(experiment=B, repeats=b)]
    cells += [ExperimentStatus(experiment=named(f"skipped{n}", skip=reason), repeats=()) for n in range(2)]
    cells += [
        ExperimentStatus(
            experiment=(one := named(f"p{n:02}", cannot_run_here=reason)), repeats=(repeat(one.id, 1, PENDING),)
        )
        for n in range(20)
    ]
    return CampaignStatus(
        root=Path("/r/results"), seen_at=NOW, experiments=tuple(cells), left_s=5025.0, warnings=("/r/x: no [JSON]",)
    )


@pytest.fixture
def in_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def text_of(status: CampaignStatus, width: int) -> str:
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(view.as_view(status, title="results"))
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines()) + "\n"


@pytest.mark.parametrize("width", [80, 160])
@pytest.mark.usefixtures("in_utc")
def test_the_view(golden: Golden, width: int) -> None:
    golden(f"status/view-{width}.txt", text_of(campaign(), width))


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ({"experiments": ()}, "no runs"),
        ({"left_s": None}, "time left unknown"),
        (
            {"experiments": campaign().experiments[:1], "left_s": 8.0},
            "time left about 8 s, plus up to 3 adaptive",
        ),
        ({"experiments": (ExperimentStatus(experiment=A, repeats=(repeat(A.id, 1, DONE),)),)}, "nothing left to do"),
    ],
)
def test_the_headline_says_how_long(found: dict[str, object], said: str) -> None:
    status = replace(campaign(), **found)  # type: ignore[arg-type]
    assert said in str(view.headline(status, title="results"))


def test_what_steers_a_terminal_is_shown_as_a_sign() -> None:
    evil = repeat(A.id, 1, FAILED, kind="unknown", cause="\x1b]0;title\x07 \x1b[2J \u202e")
    status = replace(campaign(), experiments=(ExperimentStatus(experiment=A, repeats=(evil,)),), warnings=("\x1b[31m",))
    before = replace(status, experiments=(), warnings=())
    console = Console(width=160, file=io.StringIO(), color_system=None)
    view.follow([before, status], console, title="results")
    assert isinstance(console.file, io.StringIO)
    shown = [console.file.getvalue(), text_of(status, 160), view.as_json(status)]
    assert not any(sign in text for text in shown for sign in ("\x1b", "\x07", "\u202e"))
    assert "␛[2J" in shown[0] and "␛[2J" in shown[1]


def test_the_document(golden: Golden) -> None:
    text = view.as_json(campaign())
    document = json.loads(text)
    assert len(document["experiments"]) == 24
    golden("status/status.json", json.dumps({**document, "experiments": document["experiments"][:3]}, indent=1) + "\n")


@pytest.mark.usefixtures("in_utc")
def test_off_a_terminal_changes_come_as_lines(golden: Golden) -> None:
    first = campaign()
    a = first.experiments[0]
    now = (
        a.repeats[0],
        replace(a.repeats[1], state=DONE, status=Status.OK, took_s=300.0, activity=None),
        replace(a.repeats[2], state=RUNNING, owner=HERE),
        replace(a.repeats[3], state=FAILED, status=Status.TIMEOUT, kind="timeout", cause="longer than timeout_s"),
        repeat(A.id, 5, PENDING),
    )
    then = tuple(replace(one, attempt=2, state=PENDING, status=Status.LOST, kind="lost") if one.state is RUNNING else one
                 for one in now)  # fmt: skip
    steps = [
        replace(first, experiments=(replace(a, repeats=found),), warnings=(*first.warnings, *more))
        for found, more in ((a.repeats, ()), (now, ("/r/y: half",)), (now, ()), (then, ()))
    ]
    console = Console(width=60, file=io.StringIO(), color_system=None)
    view.follow(steps, console, title="results")
    assert isinstance(console.file, io.StringIO)
    said = console.file.getvalue()
    assert "\x1b" not in said
    golden("status/lines.txt", said)


def test_on_a_terminal_the_last_look_stays() -> None:
    console = Console(width=160, file=io.StringIO(), force_terminal=True)
    view.follow([campaign(), replace(campaign(), left_s=60.0)], console, title="results")
    assert isinstance(console.file, io.StringIO)
    said = console.file.getvalue()
    last = said[said.rindex("time left about 60 s") :]
    assert "1 h 23 min" in said and "1 h 23 min" not in last and last.rstrip().endswith("\x1b[?25h")


def test_a_run_that_is_somebody_elses_by_now_is_lost(store: Store) -> None:
    """The number lives (it is ours), but it was started at another time."""
    job = claimed(store, B, 3)
    assert states(Reader(store).look(), B.id)[3] == (RUNNING, 1)
    changed(job.run_dir / "owner.json", start_time=1.0)
    assert states(Reader(store).look(), B.id)[3] == (LOST, 1)
