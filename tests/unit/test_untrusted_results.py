"""A results folder from anywhere: read, reported and compared without running, waiting, or taking in what does not belong."""

from __future__ import annotations

import io
import json
import os
import shutil
import tempfile
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from factories.cases import document
from factories.results import BASE, ended, stored
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.campaign.status.campaign import Reader
from orchestrator.campaign.status.view import headline
from orchestrator.errors import ResultsError
from orchestrator.files import reading
from orchestrator.files.printable_text import escaped, is_printable, printable, shell_word
from orchestrator.measure import steps
from orchestrator.records import Framework, dump
from orchestrator.report import tables
from orchestrator.report.experiment import experiment_view
from orchestrator.report.tables import as_markdown, terminal
from orchestrator.results.store import Store
from orchestrator.results.table import foreign_rows
from orchestrator.results.table.column_choice import cells
from orchestrator.results.table.load import ResultsTable, load

pytestmark = pytest.mark.timeout(120)  # what waits for a pipe waits for ever

GOOD = replace(BASE, id="good-1")
BAD = replace(BASE, id="bad-2")
LIMIT = 1000

# --------------------------------------------------------------------------------------------------- the reading itself


def sparse(path: Path, *, size: int = 10 * 2**30) -> None:
    with path.open("wb") as file:
        file.truncate(size)


def link(target: str) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        path.symlink_to(target)

    return make


NO_FILES: dict[str, tuple[Callable[[Path], None], str]] = {
    "pipe": (os.mkfifo, "not a regular file"),
    "link to a device": (link("/dev/zero"), "not a regular file"),
    "link to itself": (link("record.json"), "not a regular file"),
    "ten gigabytes of nothing": (sparse, "exceeds the limit"),
}


@pytest.mark.parametrize("kind", NO_FILES)
def test_only_files_of_a_sane_size_are_read_and_nothing_is_waited_for(kind: str, tmp_path: Path) -> None:
    make, said = NO_FILES[kind]
    path = tmp_path / "record.json"
    make(path)
    for read in (reading.read_bytes, reading.read_text, reading.read_json):
        with pytest.raises(reading.Unreadable, match=said):
            read(path, limit=LIMIT)


@pytest.mark.parametrize(
    ("path", "said"), [("/dev/null", "not a regular file"), ("/proc/self/maps", "exceeds|more than")]
)
def test_a_device_is_not_opened_and_a_file_of_the_kernel_is_read_no_further_than_its_limit(
    path: str, said: str
) -> None:
    """Files of the kernel say that they have 0 bytes."""
    with pytest.raises(reading.Unreadable, match=said):
        reading.read_bytes(Path(path), limit=10)


def test_what_is_missing_is_missing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        reading.read_json(tmp_path / "x", limit=LIMIT)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"[" * 1_000_000, "nests deeper"),
        (b"[" * 65 + b"]" * 65, "nests deeper"),
        (b'{"a":' * 65 + b"1" + b"}" * 65, "nests deeper"),
        (b'{"a": NaN}', "NaN"),
        (b"[-Infinity]", "-Infinity"),
        (b"1" * 5000, "digits"),
        (b'"\\ud800"', "surrogate"),
        (b'{"\\uDFff": 1}', "surrogate"),
        (b"\xff", "UTF-8"),
        (b"", "not JSON"),
        (b"cos\nsystem\n(S'true'\ntR.", "not JSON"),
    ],
)
def test_json_that_would_do_harm_is_refused_with_its_reason(content: bytes, said: str) -> None:
    with pytest.raises(reading.Unreadable, match=said):
        reading.parse_json(content)


def test_json_as_deep_as_is_allowed_is_read() -> None:
    assert reading.parse_json(b"[" * 64 + b"]" * 64)
    assert reading.parse_json(b'"\\ud83d\\ude00"') == "😀"
    assert reading.parse_json(b"[NaN]", finite=False) != [None]


def test_the_end_and_the_lines_of_a_giant_take_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "log"
    sparse(path)
    with path.open("r+b") as file:
        file.seek(0, os.SEEK_END)
        file.write(b"\nthe end\n")
    tracemalloc.start()
    try:
        assert reading.read_tail(path, limit=100).endswith("\nthe end\n")
        assert list(reading.read_lines(path, limit=50 * 2**20, longest=2**16)) == []
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


@given(st.lists(st.binary(max_size=12).map(lambda line: line.replace(b"\n", b""))))
def test_lines_are_those_of_the_file_less_the_long_ones(lines: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "log")
        path.write_bytes(b"".join(line + b"\n" for line in lines))
        read = list(reading.read_lines(path, limit=2**20, longest=8))
    assert read == [line + b"\n" for line in lines if len(line) < 8]


@given(st.floats() | st.integers() | st.sampled_from([10**5000, -(10**400), 2**63 - 1, 2**63 + 1]))
def test_a_sound_number_can_be_reckoned_with(value: float) -> None:
    number = reading.sound_number(value)
    if number is None:
        assert value != value or abs(value) > 1e150 or 0 < abs(value) < 1e-150
    else:
        assert float("-inf") < number * number < float("inf")
        assert not number or abs(1 / number) < float("inf")
        assert number == (value if isinstance(number, int) else float(value)), (
            "a larger whole number than a column holds"
        )


# ----------------------------------------------------------------------------------------------------------- the steps

WHOLE = {"step": 1, "t": 5.0, "s": 0.5, "tokens": 8}


@pytest.mark.parametrize(
    "line",
    [
        "[" * 100_000,
        '{"step": 1, "t": 5.0, "s": 1' + "0" * 400 + "}",
        '{"step": 1, "t": NaN, "s": 0.5}',
        '{"step": 1, "t": 5.0, "s": 0.5, "wait_s": Infinity}',
        '{"step": 1e400, "t": 5.0, "s": 0.5}',
        '{"step": 1, "t": 5.0, "s": 0.5, "tokens": 1e999}',
        '{"step": 1, "t": 5.0, "s": 0.5, "after": 3}',
        '"s"',
        "5",
        "x" * 200_000,
    ],
)
def test_a_hostile_line_is_no_step_and_the_others_are(line: str, tmp_path: Path) -> None:
    whole = json.dumps(WHOLE)
    (tmp_path / "steps-rank0.jsonl").write_text(f"{whole}\n{line}\n{whole}\n")
    assert [step.tokens for step in steps.read(tmp_path)[0]] == [8, 8]


# ------------------------------------------------------------------------------------------- a folder with one bad apple


def two_experiments(folder: Path) -> Path:
    """Return a results folder of two experiments, a run each; the tests spoil the second."""
    return stored(
        folder / "results",
        (GOOD, [ended(GOOD, 1, train_loss=2.5)]),
        (BAD, [ended(BAD, 1, train_loss=3.5)]),
    )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return two_experiments(tmp_path)


def record_of(root: Path, name: str = BAD.id) -> Path:
    return root / "experiments" / name / "runs" / "r1-t1" / "record.json"


def reported(root: Path) -> ResultsTable:
    """The table, with every text of it made: none may fail."""
    table = load([root])
    for form in tables.FORMATS:
        tables.benchmarks(table, form=form, keep=["*"])
    json.loads(tables.benchmarks(table, form="json", keep=["*"]))
    tables.raw_summary(table)
    tables.parts(table)
    for width in (40, 120):
        assert is_printable(terminal.text(table, width=width))
    return table


def losses(table: ResultsTable) -> dict[str, Any]:
    return dict(zip(cells(table.experiments["id"]), cells(table.experiments["train_loss"]), strict=True))


def spoil(path: Path, make: Callable[[Path], None]) -> None:
    path.unlink()
    make(path)


@pytest.mark.parametrize("kind", NO_FILES)
def test_a_record_that_is_no_file_is_named_and_left_out(kind: str, root: Path) -> None:
    make, said = NO_FILES[kind]
    spoil(record_of(root), make)
    table = reported(root)
    assert losses(table)[GOOD.id] == 2.5
    assert losses(table).get(BAD.id) is None
    if kind != "link to itself":  # which is as good as missing
        (warning,) = [one for one in table.warnings if str(record_of(root)) in one]
        assert said in warning


@pytest.mark.parametrize("kind", ["pipe", "ten gigabytes of nothing"])
@pytest.mark.parametrize("name", ["experiment.json", "job.json", "owner.json", "heartbeat", "neighbours.txt"])
def test_other_files_that_are_none_stop_nothing(name: str, kind: str, root: Path) -> None:
    make, _ = NO_FILES[kind]
    folder = record_of(root).parents[2] if name == "experiment.json" else record_of(root).parent
    record_of(root).unlink()
    (folder / name).unlink(missing_ok=True)
    make(folder / name)
    table = reported(root)
    assert losses(table)[GOOD.id] == 2.5
    if name == "experiment.json":
        assert BAD.id not in losses(table)
        assert any(f"{BAD.id}/experiment.json" in warning for warning in table.warnings)


@pytest.mark.parametrize("kind", NO_FILES)
def test_what_was_asked_of_a_folder_may_be_anything(kind: str, root: Path) -> None:
    make, _ = NO_FILES[kind]
    (root / "asked").mkdir()
    make(root / "asked" / "0123456789ab.json")
    (root / "asked" / "ba9876543210.json").write_text("[" * 100_000)
    assert losses(reported(root)) == {GOOD.id: 2.5, BAD.id: 3.5}


@pytest.mark.parametrize("kind", NO_FILES)
def test_the_files_of_a_run_are_shown_only_where_they_are_files(kind: str, root: Path) -> None:
    make, said = NO_FILES[kind]
    for name in ("command.sh", "stdout.log", "stderr.log"):
        make(record_of(root).with_name(name))
    text = "\n".join(experiment_view(Store.resume(root), BAD.id, lines=5))
    assert "root:" not in text
    assert kind.startswith("ten") or said in text
    assert len(text) < 300_000


def written(root: Path, **changes: Any) -> None:
    """The second experiment's record with these fields."""
    fields = json.loads(record_of(root).read_text()) | changes
    record_of(root).write_text(json.dumps(fields))


@pytest.mark.parametrize("changes", document("untrusted_results/a_record_that_cannot_be_this_runs"), ids=str)
def test_a_record_that_cannot_be_this_runs_is_named_and_left_out(changes: dict[str, Any], root: Path) -> None:
    written(root, **changes)
    table = reported(root)
    assert losses(table) == {GOOD.id: 2.5, BAD.id: None}
    (warning,) = [one for one in table.warnings if BAD.id in one]
    assert "left out" in warning


def test_an_experiment_with_more_repeats_than_a_scenario_may_ask_for_is_named_and_left_out(root: Path) -> None:
    """`tunebench status` made an entry for each of a billion."""
    path = root / "experiments" / BAD.id / "experiment.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "repeats": 10**9}))
    (said,) = [one for one in load([root]).warnings if "experiment.json" in one]
    assert said.endswith("cannot be read as an experiment: repeats: 1,000,000,000; at most 1,000,001 are allowed")
    assert [one.experiment.id for one in Store(root).contents().experiments] == [GOOD.id]


@pytest.mark.parametrize("text", ["1e400", "-1e400", "NaN", "Infinity", "1" + "0" * 400, "1e200", "1e-200"])
def test_a_number_that_none_can_reckon_with_is_missing_and_said(text: str, root: Path) -> None:
    path = record_of(root)
    path.write_text(path.read_text().replace("3.5", text))
    table = reported(root)
    assert losses(table) == {GOOD.id: 2.5, BAD.id: None}
    assert any(BAD.id in warning and "train_loss" in warning for warning in table.warnings)


@pytest.mark.parametrize("name", ["wall_s", "started_at", "repeat", "attempt", "exit_code"])
@pytest.mark.parametrize("value", [True, "1"])
def test_a_record_with_another_type_than_a_number_is_left_out(name: str, value: object, root: Path) -> None:
    written(root, **{name: value})
    table = reported(root)
    assert losses(table) == {GOOD.id: 2.5, BAD.id: None}
    (warning,) = [one for one in table.warnings if BAD.id in one]
    assert f"{name}: Input should be a valid " in warning


def test_a_truth_value_is_not_the_number_1(root: Path) -> None:
    ranks, devices = [{"rank": 0, "peak_allocated_bytes": True}], [{"gpu": "0", "device_peak_used_bytes": True}]
    written(root, ranks=ranks, devices=devices)
    table = reported(root)
    assert losses(table)[BAD.id] == 3.5
    assert table.ranks["peak_allocated_bytes"].isna().all() and table.devices["device_peak_used_bytes"].isna().all()
    written(root, measurements=[{"name": "train_loss", "value": True, "source": "x"}])
    table = reported(root)
    assert losses(table) == {GOOD.id: 2.5, BAD.id: None}
    assert any(BAD.id in warning and "measurements.0.value" in warning for warning in table.warnings)


@pytest.mark.parametrize("word", ["", "2.5", "fast"])
def test_a_word_for_a_number_is_missing_and_leaves_other_runs_their_numbers(word: str, root: Path) -> None:
    record_of(root).write_text(dump(ended(BAD, 1, train_loss=word, gpu_device_name="H100")))
    table = reported(root)
    assert losses(table) == {GOOD.id: 2.5, BAD.id: None}
    assert table.experiments["gpu_device_name"].tolist()[1] == "H100"
    (warning,) = [one for one in table.warnings if "train_loss" in one]
    assert warning.endswith("train_loss: not a number that can be used, left out")


@pytest.mark.parametrize("value", [-5.0, 1e30, 10**400])
def test_a_speed_that_is_impossible_is_missing_and_said(value: float, root: Path) -> None:
    record_of(root).write_text(dump(ended(BAD, 1, tokens_per_s=value, train_loss=2.5)))
    table = reported(root)
    assert losses(table)[BAD.id] == 2.5 and "tokens_per_s" not in table.experiments.dropna(axis=1, how="all")
    (warning,) = [one for one in table.warnings if BAD.id in one]
    assert warning.endswith("tokens_per_s: not a number that can be used, left out")


@pytest.mark.parametrize("written", ["1e999", "NaN", "9" * 400], ids=["infinity", "nan", "digits"])
def test_times_and_seconds_beyond_all_floats_end_in_no_traceback(written: str, root: Path) -> None:
    """`show`, `status` and `tune` ended in one: they show the seconds of a run."""
    text = dump(ended(BAD, 1, train_loss=2.5, train_runtime=7.5))
    record_of(root).write_text(text.replace("7.5", written))
    assert any(line.startswith("train_runtime") for line in experiment_view(Store.resume(root), BAD.id, lines=5))
    record_of(root).write_text(text.replace('"wall_s": 12.5', f'"wall_s": {written}'))
    headline(Reader(Store.resume(root)).look(), title="r")
    assert "run r1-t1: ended" in experiment_view(Store.resume(root), BAD.id, lines=5)
    (warning,) = [one for one in reported(root).warnings if BAD.id in one]
    assert warning.endswith("record.json: cannot be read as a record and is left out: its times are invalid")


def test_a_record_does_not_say_what_the_table_does(root: Path) -> None:
    over_repeats = {"tokens_per_s_spread": 1e-4, "tokens_per_s_runs": 99}
    found = ended(BAD, 1, train_loss=2.5, doubt="faster but wrong", loss_difference=-0.5, **over_repeats)
    record_of(root).write_text(dump(found))
    table = reported(root).experiments
    assert not {"doubt", "loss_difference", *over_repeats} & set(table)
    assert table["measured_doubt"].tolist()[1] == "faster but wrong"


@pytest.mark.parametrize("logged", ["1:1e308", "5:1e-320", "5:nan", "5:2, x", "\x00", "9" * 999])
def test_odd_losses_end_in_no_traceback(logged: str, tmp_path: Path) -> None:
    """Of two that were to make as many steps and ended early, so that one is held against the other by them."""
    numbers = {"train_loss": 2.5, "stopped_early": "within", "logged_losses": logged, "effective_max_steps": 40}
    cells = [replace(BASE, id=name, framework=Framework(name=name, digest=name, arguments={})) for name in ("a", "b")]
    root = stored(tmp_path / "r", *((one, [ended(one, 1, steps=5 + n, **numbers)]) for n, one in enumerate(cells)))
    assert load([root]).experiments["doubt"].tolist()[1] == "loss not compared"


def test_a_measured_number_does_not_pass_for_how_the_run_ended(root: Path) -> None:
    names = ("status", "repeat", "runs_ok", "id", "warnings", "failure_cause", "results")
    values = [{"name": name, "value": "all is well", "source": "me"} for name in names]
    written(root, status="failed", kind="oom_cuda", cause="too large", measurements=values)
    table = reported(root)
    row = table.experiments.set_index("id").loc[BAD.id]
    assert (row["status"], row["failure_cause"], row["runs_ok"]) == ("failed", "too large", 0)


def test_a_table_does_not_grow_without_end(root: Path) -> None:
    many = [{"name": f"n{number}", "value": number, "source": "me"} for number in range(foreign_rows.MAX_COLUMNS)]
    written(root, measurements=many)
    table = reported(root)
    assert len(table.runs.columns) < foreign_rows.MAX_COLUMNS
    assert GOOD.id in losses(table)
    assert any("columns" in warning and BAD.id in warning for warning in table.warnings)


@pytest.mark.parametrize(
    "identity", ["../../../etc", "bad-2/../good-1", "/etc", "..", "x" * 300, "a\nb", "\x1b[2J", ""]
)
def test_an_experiment_under_another_name_is_left_out(identity: str, root: Path) -> None:
    path = root / "experiments" / BAD.id / "experiment.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"id": identity}))
    table = reported(root)
    assert losses(table) == {GOOD.id: 2.5}
    assert any("left out" in warning for warning in table.warnings)
    shutil.rmtree(path.parent / "runs")
    assert losses(reported(root)) == {GOOD.id: 2.5}


@pytest.mark.parametrize("name", ["a b", "ä", "-rf", "$(touch x)", "new\nline", "\x1b[2J", ".hidden", "=1+1"])
def test_a_folder_whose_name_is_not_ours_is_named_and_left_out(name: str, root: Path) -> None:
    folder = root / "experiments" / name
    (root / "experiments" / BAD.id).rename(folder)
    path = folder / "experiment.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"id": name}))
    table = reported(root)
    assert losses(table) == {GOOD.id: 2.5}
    assert any(repr(name)[1:-1] in warning for warning in table.warnings)


def test_stray_names_among_runs_and_experiments_are_passed_over(root: Path) -> None:
    for name in ("r0-t1", "r1-t1.bak", "r01-t1", "..x", "r1", "r1-t1x"):
        shutil.copytree(record_of(root).parent, record_of(root).parents[1] / name)
    (root / "experiments" / "stray.txt").write_text("x")
    (root / "experiments" / "loop").symlink_to("..")
    assert len(reported(root).runs) == 2


@pytest.mark.parametrize("order", [5, "good-1", {"a": 1}, [[]], [{}], [None, 3, "../..", BAD.id, BAD.id], None])
def test_the_order_of_experiments_may_be_anything(order: object, root: Path) -> None:
    path = root / "suite.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"experiments": order, "seed": order}))
    assert losses(reported(root)) == {GOOD.id: 2.5, BAD.id: 3.5}


@pytest.mark.parametrize("instead", [None, "a file", "a folder", "a link to a disk that is not mounted"])
def test_without_the_folder_of_all_experiments_nothing_is_reported(instead: str | None, root: Path) -> None:
    """An empty report would replace the old one."""
    (root / "experiments").rename(root / "elsewhere")
    if instead == "a file":
        (root / "experiments").write_text("")
    elif instead == "a folder":
        (root / "experiments").mkdir()
    elif instead:
        (root / "experiments").symlink_to("not-mounted")
    with pytest.raises(ResultsError, match=r"experiments: .* lists 2 experiments"):
        reported(root)


def test_an_experiment_whose_folder_is_gone_is_named(root: Path) -> None:
    shutil.rmtree(root / "experiments" / BAD.id)
    assert any(f"{BAD.id}: the folder of this experiment is missing" in text for text in reported(root).warnings)


def test_an_experiment_whose_file_is_gone_is_named_and_its_folder_is_not_called_missing(root: Path) -> None:
    file = root / "experiments" / BAD.id / "experiment.json"
    file.unlink()
    assert any(f"{file}: the file is missing" in text for text in reported(root).warnings)


@pytest.mark.parametrize(
    "owner", [{"pid": "../x"}, {"pid": [1]}, {"pid": -1}, {"pid": 10**30}, {"host": 5}, {"boot_id": None}]
)
def test_who_owns_a_run_may_be_anything(owner: dict[str, Any], root: Path) -> None:
    """A process's number becomes a path below /proc: with a text there it could lead to a pipe of theirs."""
    from orchestrator.results import claims

    record_of(root).unlink()
    whole = asdict(claims.this_process())
    (record_of(root).with_name("owner.json")).write_text(json.dumps(whole | owner))
    assert claims.owners(record_of(root).parent) == ()
    assert losses(reported(root))[GOOD.id] == 2.5


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just(10**30),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value in a document."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield from places(inner, (*path, key))


def changed(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    copy = dict(document) if isinstance(document, dict) else list(document)
    copy[path[0]] = changed(document[path[0]], path[1:], value)
    return copy


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return two_experiments(tmp_path_factory.mktemp("shared"))


@pytest.mark.parametrize("file", ["record.json", "experiment.json"])
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_wrong_types_in_any_field_stop_nothing(file: str, shared: Path, data: st.DataObject) -> None:
    """A valid file with anything at any place of it."""
    path = record_of(shared) if file == "record.json" else record_of(shared).parents[2] / file
    valid = dump(ended(BAD, 1, train_loss=3.5)) if file == "record.json" else dump(BAD)
    document = json.loads(valid)
    for place in data.draw(st.lists(st.sampled_from(list(places(document))), min_size=1, max_size=2)):
        try:
            document = changed(document, place, data.draw(JSON))
        except (KeyError, IndexError, TypeError):  # the first change took the second's place away
            continue
    path.write_text(json.dumps(document))
    try:
        assert losses(reported(shared))[GOOD.id] == 2.5
    finally:
        path.write_text(valid)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=60))
@pytest.mark.parametrize("name", ["record.json", "job.json", "owner.json"])
def test_any_bytes_in_a_runs_files_stop_nothing(name: str, shared: Path, content: bytes) -> None:
    kept = record_of(shared).read_bytes()
    path = record_of(shared).with_name(name)
    record_of(shared).unlink()
    path.write_bytes(content)
    try:
        assert losses(reported(shared))[GOOD.id] == 2.5
    finally:
        path.unlink()
        record_of(shared).write_bytes(kept)


def test_nothing_of_the_folder_is_run(root: Path, tmp_path: Path) -> None:
    """Names and texts that are code somewhere: for a shell, for Python's eval and unpickling, for YAML."""
    touched = tmp_path / "touched"
    codes = (
        f"$(touch {touched})",
        f"`touch {touched}`",
        f"__import__('os').system('touch {touched}')",
        f"!!python/object/apply:os.system ['touch {touched}']",
        f"cos\nsystem\n(S'touch {touched}'\ntR.",
        "{0.__class__.__mro__}",
        "%(x)s %s",
    )
    arguments = {**BAD.arguments, **{f"argument {code}": code for code in codes}}
    path = root / "experiments" / BAD.id / "experiment.json"
    path.write_text(dump(replace(BAD, arguments=arguments, scenario=codes[0], model=codes[2])))
    written(
        root, status="failed", kind=codes[1], cause=codes[3], tail=codes[4], settings={code: code for code in codes}
    )
    for name in ("command.sh", "conftest.py", "setup.py", "__init__.py", "record.pkl"):
        file = record_of(root).with_name(name)
        file.write_text(f"import os; os.system('touch {touched}')\n#\ntouch {touched}\n")
        file.chmod(0o755)
    table = reported(root)
    list(experiment_view(Store.resume(root), BAD.id, lines=5))
    assert set(codes) <= set(table.experiments.loc[1].dropna().astype(str))
    assert not touched.exists()


# ------------------------------------------------------------------------------------------ a folder of the reference


@pytest.fixture
def reference(tmp_path: Path) -> Path:
    numbers = {
        name: 1.5 for name in ("train_runtime", "train_samples_per_second", "train_steps_per_second", "train_loss")
    }
    for number in (0, 1):
        folder = tmp_path / "theirs" / f"exp_{number}"
        folder.mkdir(parents=True)
        (folder / "results.json").write_text(json.dumps({"model_name_or_path": "m", "num_gpus": 1, **numbers}))
        (folder / "command.sh").write_text("python -m tuning.sft_trainer --model_name_or_path m\n")
    return tmp_path / "theirs"


@pytest.mark.parametrize("kind", ["pipe", "ten gigabytes of nothing"])
@pytest.mark.parametrize(
    "name", ["results.json", "command.sh", "stdout", "stderr", "gpu_memory_logs.csv", "script.json"]
)
def test_files_of_a_reference_folder_that_are_none_stop_nothing(name: str, kind: str, reference: Path) -> None:
    folder = reference if name == "script.json" else reference / "exp_1"
    (folder / name).unlink(missing_ok=True)
    if name == "stdout":
        (folder / "results.json").unlink()
    NO_FILES[kind][0](folder / name)
    assert losses(reported(reference))["exp_0"] == 1.5


@pytest.mark.parametrize(
    "content",
    [
        *("[" * 1_000_000, "5", '{"train_loss": 1e400}', '{"train_loss": NaN}', '{"num_gpus": 1' + "0" * 4000 + "}"),
        *('{"x": "\\ud800"}', '{"status": 5, "repeat": 7, "id": 3}', '{"train_loss": 1' + "0" * 400 + "}"),
    ],
    ids=lambda text: text[:30],
)
def test_results_of_the_reference_may_be_anything(content: str, reference: Path) -> None:
    (reference / "exp_1" / "results.json").write_text(content)
    table = reported(reference)
    assert losses(table)["exp_0"] == 1.5
    assert not losses(table).get("exp_1")


@pytest.mark.parametrize(
    "stdout",
    [
        "{" + "train_runtime" * 100_000,
        "{'train_runtime': " + "[" * 5000 + "]" * 5000 + "}",
        "{'train_runtime': " + "-" * 30_000 + "1}",
        "{'train_runtime': 1, [1]: 2}",
        "{'train_runtime': __import__('os').getpid()}",
    ],
    ids=lambda text: text[:30],
)
@pytest.mark.timeout(20)
def test_what_the_reference_printed_is_parsed_in_no_time_and_never_run(stdout: str, reference: Path) -> None:
    folder = reference / "exp_1"
    (folder / "results.json").unlink()
    (folder / "stdout").write_text(stdout)
    assert losses(reported(reference)) == {"exp_0": 1.5, "exp_1": None}


# ------------------------------------------------------------------------------------------------- what people look at

HOSTILE = (
    "a|b",
    "two\nlines",
    "<script>alert(1)</script>",
    "[x](javascript:alert(1))",
    "![x](http://example.org/x.png)",
    "&lt;b&gt; &#60;",
    "`code` *bold* _thin_ ~~gone~~",
    "\\| \\<b>",
    "\x1b[31mred\x1b]0;title\x07",
    "\u202eabc\u2066",
    "\r overwritten",
    "<!-- -->",
    "[ref]: javascript:x",
    "# heading",
)


def frame_of(*texts: str) -> Any:
    return pd.DataFrame({"scenario": pd.Series(texts, dtype="string"), "x|<y>": pd.Series(texts, dtype="string")})


@given(st.lists(st.sampled_from(HOSTILE) | st.text(max_size=20), min_size=1, max_size=4))
def test_a_markdown_table_has_as_many_cells_as_columns_and_no_tags_or_links(texts: list[str]) -> None:
    from orchestrator.results.table.column_choice import Split

    text = as_markdown.text(Split(shown=frame_of(*texts), constant={"scenario": texts[0]}), texts)
    *first, last = text.split("<details><summary>All 2 columns") if "All 2 columns" in text else [text]
    for part, count in [*((part, 2) for part in first), (last, 3)]:
        table = [line for line in part.splitlines() if line.startswith("| ")]
        assert len(table) == len(texts) + 2
        assert {len(unescaped(line, "|")) for line in table} == {count}
    text = text.replace("<details><summary>All 2 columns</summary>", "").replace("</details>", "")
    assert is_printable(text)
    text = text.replace("<!-- -->", "")  # ours: it keeps an address from becoming a link
    for mark in "<`*[~":
        assert not unescaped(text, mark), mark
    assert "\n#" not in text and "- #" not in text


def unescaped(line: str, mark: str) -> list[int]:
    """Where a mark stands that no backslash takes its meaning from."""
    found, place = [], 0
    while place < len(line):
        if line[place] == "\\":
            place += 2
            continue
        found += [place] if line[place] == mark else []
        place += 1
    return found


def test_what_people_ask_markdown_to_show_is_still_readable() -> None:
    from orchestrator.results.table.column_choice import Split

    text = as_markdown.text(Split(shown=frame_of("tokens_per_s 2 > 1 & 3"), constant={}), [])
    assert "tokens_per_s 2 &gt; 1 & 3" in text


@given(st.text())
def test_what_is_printable_stays_and_the_rest_takes_as_many_places(text: str) -> None:
    shown = printable(text)
    assert len(shown) == len(text)
    assert is_printable(shown)
    assert (shown == text) == is_printable(text)


@given(st.text())
def test_json_that_is_escaped_is_the_same_json(text: str) -> None:
    written = escaped(json.dumps([text], ensure_ascii=False))
    assert is_printable(written)
    assert json.loads(written) == [text]


def test_a_word_for_bash_holds_no_control_character() -> None:
    assert shell_word("plain") == "plain"
    assert shell_word("it's\x1b\\\u202e") == r"$'it\'s\x1b\\\xe2\x80\xae'"


def test_a_formula_stays_and_is_warned_of(tmp_path: Path) -> None:
    """`report.as_csv` says why it stays; ordinary arguments are not formulas."""
    texts = ("=cmd|' /C calc'!A0", "--flag", "-1e-5", "-100 -200", "+", "f(x) = 1")
    experiments = [replace(BASE, id=f"cell-{n}", arguments={"a": text}) for n, text in enumerate(texts)]
    table = load([stored(tmp_path / "r", *((one, [ended(one, 1, train_loss=-1.5)]) for one in experiments))])
    read = pd.read_csv(io.StringIO(tables.raw_summary(table)), keep_default_na=False)
    assert read["a"].tolist() == list(texts)
    (warning,) = [sentence for sentence in table.warnings if "formula" in sentence]
    assert texts[0] in warning


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_of_a_folder_reaches_a_terminal_raw(text: str, root: Path) -> None:
    written(root, status="failed", kind=text, cause=text, tail=text, warnings=[text])
    path = root / "experiments" / BAD.id / "experiment.json"
    path.write_text(dump(replace(BAD, scenario=text, model=text, arguments={text: text}, tags=(text,))))
    for name in ("stdout.log", "stderr.log", "command.sh"):
        record_of(root).with_name(name).write_text(text)
    table = reported(root)
    for form in ("json", "markdown"):
        assert is_printable(tables.benchmarks(table, form=form, keep=["*"]))
    assert all(map(is_printable, experiment_view(Store.resume(root), BAD.id, lines=5)))
