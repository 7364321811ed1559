"""A database of runs: what is added once, what eight writers at once leave, what SQL may do, and what reads the runs again."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pandas
import pytest
from factories.campaigns import START, campaign, experiments
from factories.results import BASE, ended, experiment, stored
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.compare.sides import folders
from orchestrator.compare.sides.read import read
from orchestrator.errors import OrchestratorError, ResultsError, SelectionError
from orchestrator.records.experiment import Measure
from orchestrator.report.export import database as database_files
from orchestrator.report.tables import sql
from orchestrator.results.table.rows import OF_DATABASES
from orchestrator.results.table.sources import database

pytest.importorskip("duckdb")

Call = Callable[..., tuple[int, str, str]]
DAY_S = 86_400.0
COUNT = "SELECT count(*) AS runs, count(DISTINCT results) AS campaigns FROM runs"


@pytest.fixture
def db(in_process: Call) -> Call:
    return partial(in_process, "db", width=160)


def night(folder: Path, number: int = 0, *, cells: int = 6, repeats: int = 3) -> Path:
    """A campaign of one night. Like real ones, it begins at a fraction of a second."""
    start = START + 0.123456 + number * DAY_S
    return campaign(folder, list(islice(experiments(), cells)), repeats=repeats, logs=False, seed=number, start=start)


def added(root: Path, *results: Path) -> Path:
    database_files.make(root)
    for folder in results:
        database_files.add(root, folder, folders.read(folder).rows)
    return root


def answer(root: Path, query: str) -> list[tuple[Any, ...]]:
    return list(sql.query(root, query).rows)


def test_a_folder_that_is_added_again_adds_nothing(tmp_path: Path, db: Call) -> None:
    results = night(tmp_path / "night")
    root = tmp_path / "database"
    code, said, _ = db("add", results, "--db", root)
    assert code == 0 and "18 new run(s), 0 there already" in said
    shutil.copytree(results, tmp_path / "copy")
    code, said, _ = db("add", results, tmp_path / "copy", "--db", root)
    assert said.count("0 new run(s), 18 there already") == 2
    assert answer(root, COUNT) == [(18, 1)]
    assert len(list((root / "runs").iterdir())) == 1


def test_runs_that_ended_later_are_added_to_those_that_are_there(tmp_path: Path) -> None:
    whole, part = night(tmp_path / "whole"), tmp_path / "part"
    shutil.copytree(whole, part)
    for run in part.glob("experiments/*/runs/r3-t1"):
        shutil.rmtree(run)
    root = added(tmp_path / "database", part)
    assert answer(root, COUNT)[0][0] == 12
    assert answer(added(root, whole), COUNT)[0][0] == 18


def test_eight_writers_at_once_lose_nothing_and_add_nothing_twice(tmp_path: Path) -> None:
    """Four add a night each; four add the same night. All of them find no database, and make it."""
    root, same = tmp_path / "database", night(tmp_path / "same", 9)
    nights = [*(night(tmp_path / f"night-{number}", number) for number in range(4)), *([same] * 4)]
    argv = [sys.executable, "-m", "orchestrator", "db", "add", "--db", str(root)]
    writers = [subprocess.Popen([*argv, str(folder)], stdout=subprocess.PIPE, text=True) for folder in nights]
    said = [writer.communicate(timeout=120)[0] for writer in writers]
    assert [writer.returncode for writer in writers] == [0] * 8
    assert sum("18 new run(s), 0 there already" in line for line in said) == 5
    assert answer(root, COUNT) == [(90, 5)]
    assert answer(root, "SELECT count(*) FROM (SELECT DISTINCT id, repeat, attempt, started_at_s FROM runs)") == [(90,)]


def test_an_interrupt_ends_a_long_query(tmp_path: Path) -> None:
    root = added(tmp_path / "database", night(tmp_path / "night"))
    long = "SELECT sum(a.range * b.range) FROM range(3000000) a, range(3000000) b"
    argv = [sys.executable, "-m", "orchestrator", "db", "query", long, "--db", str(root)]
    query = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with pytest.raises(subprocess.TimeoutExpired):
        query.wait(timeout=8)
    query.send_signal(signal.SIGINT)
    assert query.wait(timeout=10) == -signal.SIGINT


def test_a_path_that_had_another_campaign_every_night_is_several_campaigns(tmp_path: Path, db: Call) -> None:
    results, root = tmp_path / "results", tmp_path / "database"
    for number in range(2):
        shutil.rmtree(results, ignore_errors=True)
        night(results, number)
        suite = json.loads((results / "suite.json").read_text())
        (results / "suite.json").write_text(json.dumps({**suite, "created": f"2026-11-0{number + 1}T03:00:00"}))
        added(root, results)
    names = [one.name for one in database.campaigns(root)]
    assert names == ["results of 2026-11-01T03:00:00", "results of 2026-11-02T03:00:00"]


def test_columns_have_the_types_of_metrics_md(tmp_path: Path) -> None:
    root = added(tmp_path / "database", night(tmp_path / "night"))
    types = dict(answer(root, "SELECT column_name, column_type FROM (DESCRIBE runs)"))
    wanted = {"tokens_per_s": "DOUBLE", "steps": "BIGINT", "num_gpus": "BIGINT", "id": "VARCHAR", "status": "VARCHAR"}
    wanted |= {"started_at_s": "DOUBLE", "per_device_train_batch_size": "BIGINT", "learning_rate": "VARCHAR"}
    assert types == {**types, **wanted}


def test_campaigns_with_other_columns_and_types_fit_together(tmp_path: Path) -> None:
    """Versions of Tunebench have other columns; an argument is a whole number in one campaign and a word in another."""
    old = experiment("old", arguments={"max_steps": "10", "only_old": "1"})
    new = experiment("new", arguments={"max_steps": "auto", "only_new": "x"})
    root = tmp_path / "database"
    added(root, stored(tmp_path / "1", (old, [ended(old, 1, tokens_per_s=1.0)])))
    added(root, stored(tmp_path / "2", (new, [ended(new, 1, tokens_per_s=2.0, my_own=7)])))
    added(root, stored(tmp_path / "3", (old, [replace(ended(old, 1, my_own=None), started_at=START)])))
    found = answer(root, "SELECT max_steps, only_old, only_new, my_own FROM runs ORDER BY started_at_s DESC, id DESC")
    assert sorted(found, key=str) == [("10", 1, None, None), ("10", 1, None, None), ("auto", None, "x", 7)]


def test_report_compare_and_history_say_the_same_of_a_database_as_of_the_folders(
    tmp_path: Path, in_process: Call
) -> None:
    nights = [night(tmp_path / f"night-{number}", number, cells=20, repeats=2) for number in range(2)]
    root = added(tmp_path / "database", *nights)
    call = partial(in_process, width=160)
    reports = [
        pandas.read_csv(io.StringIO(call("report", *places, "--format", "csv")[1])) for places in (nights, [root])
    ]
    pandas.testing.assert_frame_equal(*reports, check_dtype=False)
    assert len(reports[0]) == 40
    for number in range(2):
        where = f"SELECT * FROM runs WHERE results LIKE '%night-{number}'"
        assert call("db", "query", where, "--db", root, "--output", tmp_path / f"{number}.parquet")[0] == 0
    sides = [nights, [tmp_path / "0.parquet", tmp_path / "1.parquet"]]
    compared = [call("compare", *places, "--format", "csv", "--all") for places in sides]
    assert compared[0][:2] == compared[1][:2] and compared[0][1].count("\n") > 20
    texts = []
    for name, places in (("one", nights), ("other", [root])):
        assert call("history", *places, "--output", tmp_path / name)[0] == 0
        texts.append((tmp_path / name / "history.csv").read_text())
    first, second = ([line[1:] for line in csv.reader(io.StringIO(text))] for text in texts)
    assert [len(line) for line in first] == [len(line) for line in second] and len(first) > 100


def test_the_keys_of_scenarios_are_for_comparisons_and_not_for_tables(tmp_path: Path) -> None:
    one = replace(BASE, measure=Measure(discard_steps=2))
    root = added(tmp_path / "database", stored(tmp_path / "night", (one, [ended(one, 1)])))
    (found,) = database.campaigns(root)
    for row, has_keys in ((found.rows[0], True), (database.for_tables(found, is_only=True)[0], False)):
        assert any(name.startswith("provenance_key_measure") for name in row.measured) is has_keys


def test_a_side_that_is_a_database_has_the_runs_of_all_its_campaigns_once(tmp_path: Path, in_process: Call) -> None:
    first, second = (night(tmp_path / f"night-{number}", number, cells=3, repeats=2) for number in range(2))
    root = added(tmp_path / "database", first, second)
    counts = [{len(entry.runs) for entry in read([root, *more]).entries} for more in ((), (second,))]
    assert counts == [{4}, {4}]
    assert in_process("compare", first, second, width=160)[0] in (0, 3)


@pytest.mark.parametrize(
    "statement",
    [
        "COPY (SELECT 9) TO '{file}' (use_tmp_file false)",
        "WITH x AS (COPY (SELECT 9) TO '{file}' (use_tmp_file false, format parquet)) SELECT * FROM x",
        "EXPLAIN ANALYZE COPY (SELECT 9) TO '{file}'",
        "SELECT 1; COPY (SELECT 9) TO '{other}'",
        "ATTACH '{other}'",
        "EXPORT DATABASE '{other}'",
        "SELECT * FROM read_text('{file}')",
        "SELECT * FROM '{file}'",
        "SET enable_external_access = true; SELECT * FROM read_text('{file}')",
        "INSTALL httpfs",
    ],
)
def test_a_query_reads_and_writes_no_file(tmp_path: Path, statement: str) -> None:
    root = added(tmp_path / "database", night(tmp_path / "night", cells=1))
    (file,) = database.files(root)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(SelectionError, match="the query"):
        sql.query(root, statement.format(file=file, other=tmp_path / "other"))
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_mistakes_are_sentences(tmp_path: Path, db: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    root = added(tmp_path / "database", night(tmp_path / "night", cells=1))
    mistakes = {
        (
            "query",
            "SELEC 1",
            "--db",
            root,
        ): 'the query cannot be answered: Parser Error: syntax error at or near "SELEC"',
        ("query", "SELECT nope FROM runs", "--db", root): 'Referenced column "nope" not found',
        ("query", "", "--db", root): "the query has no answer; write a SELECT",
        ("query", "SELECT timestamp 'infinity'", "--db", root): "the answer has a value that cannot be shown: ",
        ("query", "SELECT date '5000-01-01 (BC)'", "--db", root): "; cast the column to text, such as ",
        (
            "query",
            "SELECT interval 1 day",
            "--db",
            root,
            "--output",
            tmp_path / "a.parquet",
        ): "a Parquet file cannot have",
        ("query", "SELECT 1", "--db", tmp_path / "none"): "there is no such folder; name a database with --db",
        ("query", "SELECT 1", "--db", tmp_path / "night"): "this folder is not a database",
        ("query", "SELECT 1", "--db", root, "--output", "a.txt"): "unknown suffix '.txt'",
        ("query", "SELECT 1", "--db", root, "--output", root / "database.json.csv"): "",
        ("query", "SELECT 1", "--db", root, "--output", root / "lock.json"): "",
        ("add", tmp_path, "--db", root): "this is not a results folder",
        ("add", tmp_path / "night", "--db", tmp_path / "night"): "the folder has other content than a database",
        ("add", tmp_path / "night", "--db", tmp_path / "night" / "suite.json"): "this is not a folder",
    }
    for words, sentence in mistakes.items():
        code, _, err = db(*words)
        assert (code == 2 and err.count("\n") == 1 and sentence in err) if sentence else code == 0, (words, err)
    code, _, err = db("query", "SELECT 1", "--db", root, "--output", root / "lock.json")
    assert code == 2 and "the file exists" in err
    monkeypatch.setattr(sql, "find_spec", lambda name: None)
    with pytest.raises(OrchestratorError, match=r"install it with pip install 'tunebench\[db\]'"):
        sql.query(root, "SELECT 1")


def test_a_damaged_or_foreign_file_is_named(tmp_path: Path, in_process: Call) -> None:
    root = added(tmp_path / "database", night(tmp_path / "night", cells=1))
    (root / "runs" / "other.parquet").write_bytes(b"PAR1 no PAR1")
    for words in (
        ["db", "query", "SELECT 1", "--db", root],
        ["report", root],
        ["db", "add", tmp_path / "night", "--db", root],
    ):
        code, _, err = in_process(*words, width=160)
        assert code == 2 and "other.parquet: cannot be read" in err, err
    (root / "runs" / "other.parquet").unlink()
    os.mkfifo(root / "runs" / "pipe.parquet")
    with pytest.raises(ResultsError, match=r"pipe\.parquet: cannot be read: it is not a regular file"):
        sql.query(root, "SELECT 1")
    (root / "runs" / "pipe.parquet").unlink()
    (tmp_path / "few.parquet").write_bytes(sql.parquet(sql.query(root, "SELECT id, repeat FROM runs")))
    code, _, err = in_process("compare", tmp_path / "few.parquet", root, width=160)
    assert code == 2 and "the column status is missing" in err


@pytest.mark.parametrize("value", ["nan", {"a": 1}, [1], True])
@pytest.mark.parametrize("column", ["repeat", "attempt", "id", database.STARTED])
def test_a_run_whose_identity_is_odd_gives_no_traceback(
    tmp_path: Path, in_process: Call, column: str, value: Any
) -> None:
    root = added(tmp_path / "database", night(tmp_path / "night", cells=2))
    (file,) = database.files(root)
    frame = pandas.read_parquet(file)
    assert column in frame
    frame.assign(**{column: [value] * len(frame)}).to_parquet(file)
    code, _, err = in_process("report", root, "--output", "csv")
    assert code == 0 or (code == 2 and "it has no runs" in err)
    assert in_process("db", "add", tmp_path / "night", "--db", root)[0] == 0


def test_secrets_and_control_characters_are_not_shown(
    tmp_path: Path, db: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = experiment("a", arguments={"note": "\x1b[31mred", "hub": "plain-but-secret-9431"})
    root = added(tmp_path / "database", stored(tmp_path / "night", (one, [ended(one, 1, tokens_per_s=1.0)])))
    monkeypatch.setenv("OTHER_TOKEN", "plain-but-secret-9431")
    for words in ([], ["--format", "json"], ["--format", "csv"]):
        _, out, _ = db("query", "SELECT hub, 'token ' || hub, [hub], {'x': hub}, note FROM runs", "--db", root, *words)
        assert "secret-9431" not in out and "***" in out
        assert "\x1b" not in out or "csv" in words
    db("query", "SELECT hub, MAP {'x': hub} FROM runs", "--db", root, "--output", tmp_path / "a.parquet")
    assert b"secret-9431" not in (tmp_path / "a.parquet").read_bytes()
    again = added(tmp_path / "again", tmp_path / "night")
    assert b"secret-9431" not in database.files(again)[0].read_bytes()


def test_a_long_answer_names_the_rest(tmp_path: Path, db: Call) -> None:
    root = added(tmp_path / "database", night(tmp_path / "night", cells=1))
    code, out, _ = db("query", "SELECT range AS a, range * 1.5 AS a FROM range(250)", "--db", root)
    assert code == 0 and "50 more rows; --output FILE writes all of them" in out
    _, out, _ = db("query", "SELECT range AS a, range + 0.5 AS a FROM range(2)", "--db", root, "--format", "json")
    assert json.loads(out) == {"rows": [{"a": 0, "a_2": 0.5}, {"a": 1, "a_2": 1.5}]}


THREADS = """
import os, sys
from pathlib import Path
import pyarrow.parquet
from orchestrator.results.table.sources import database
root, before = Path(sys.argv[1]), len(os.listdir("/proc/self/task"))
assert database.known(root) and database.campaigns(root)
print(len(os.listdir("/proc/self/task")) - before)
"""


def test_reading_starts_no_threads(tmp_path: Path) -> None:
    """`db add` was aborted by SIGABRT if it ended with an error while pyarrow started a thread."""
    root = added(tmp_path / "database", night(tmp_path / "night", cells=1))
    done = subprocess.run([sys.executable, "-c", THREADS, str(root)], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0"]


def test_names_that_differ_only_in_case_hide_no_column(tmp_path: Path, in_process: Call) -> None:
    """Also of other campaigns, and if a file was written before Tunebench had this rule, or refused an empty name."""
    own = experiment(
        "own", arguments={"lr": "1", "LR": "2", "Status": "3", "Results": "4", "Real_Tokens_Per_S": "5", "": "10"}
    )
    root = added(
        tmp_path / "database", stored(tmp_path / "1", (own, [ended(own, 1, tokens_per_s=1.0, reward=6, Reward=7)]))
    )
    plain = experiment("plain", arguments={"LR": "8", "status_mixed": "9"})
    added(root, stored(tmp_path / "2", (plain, [ended(plain, 1, tokens_per_s=2.0)])))
    names = "status, Status_mixed_, status_mixed, Results_mixed, lr_lower, LR_upper, reward_lower, Reward_mixed, _mixed"
    assert answer(root, f"SELECT {names} FROM runs ORDER BY tokens_per_s") == [
        ("ok", 3, None, 4, 1, 2, 6, 7, "10"),
        ("ok", None, 9, None, None, 8, None, None, None),
    ]
    assert answer(root, "SELECT count(*) FROM runs WHERE status = 'ok' AND results <> ''") == [(2,)]
    for name in ("lr", "LR", "Reward", "real_tokens_per_s"):
        with pytest.raises(SelectionError, match="not found"):
            sql.query(root, f"SELECT {name} FROM runs")
    (tmp_path / "c.parquet").write_bytes(sql.parquet(sql.query(root, "SELECT * FROM runs")))
    columns = {name for file in database.files(root) for name in pandas.read_parquet(file).columns}
    assert {*pandas.read_parquet(tmp_path / "c.parquet").columns} == columns
    assert "both sides have the same runs" in in_process("compare", tmp_path / "c.parquet", tmp_path / "1")[1]
    for query, expected in {
        "SELECT avg(tokens_per_s) AS lr_lower FROM runs": ["lr_lower"],
        "SELECT lr_lower, lr_lower FROM runs": ["lr_lower", "lr_lower_2"],
        "SELECT *, 5 AS status FROM runs": [*sql.query(root, "SELECT *, 5 AS status FROM runs").names],
    }.items():
        file = io.BytesIO(sql.parquet(sql.query(root, query)))
        assert [*pandas.read_parquet(file).columns] == expected, "the user's own names"


def test_an_argument_with_the_name_of_a_column_of_databases_is_kept(tmp_path: Path) -> None:
    one = experiment("a", arguments=dict.fromkeys(OF_DATABASES, "7"))
    root = added(tmp_path / "database", stored(tmp_path / "1", (one, [ended(one, 1)])))
    names = ", ".join(f"argument_{name}" for name in OF_DATABASES)
    assert answer(root, f"SELECT {names}, started_at_s FROM runs") == [(7, 7, 7, 7, 7, 1.7e9)]


@given(st.sets(st.text("aAbB_", min_size=1, max_size=4) | st.sampled_from(["status", "Status", "STATUS", "id", "ID"])))
def test_every_column_has_its_own_name_in_sql(names: set[str]) -> None:
    in_sql = sql._in_sql(names)
    shown = {name: in_sql.get(name, name).lower() for name in names}
    assert len({*shown.values()}) == len(names) and not in_sql.keys() & {"status", "id"}
    own = names - {"status", "id"}
    assert all(shown[name] != other.lower() for name in own for other in names - {name})


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 3), st.floats(1e9, 2e9)), max_size=8))
def test_a_run_is_known_by_its_id_repeat_attempt_and_start(runs: Sequence[tuple[str, int, float]]) -> None:
    cells = [{"id": name, "repeat": repeat, "attempt": 1, "started_at_s": start} for name, repeat, start in runs]
    assert len({database.key(one) for one in cells}) == len(set(runs))
