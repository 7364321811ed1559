"""Measure how much longer `tunebench db query` takes than DuckDB itself on the same file, and whether eight writers lose a run.

    python benchmarks/database.py

The script makes a database of 100,000 made-up runs with every column of docs/metrics.md: once as one file, once as 1,000 files.
Each query filters and groups, or sorts. It runs by `tunebench` and by DuckDB's own reader in turns, in this process, and one query
also as a whole command. The table has the medians. Then eight processes add 20 campaigns of 50 runs each, at once, to one
database; four of them add the same campaigns.

Exit code 1: a query of the one file took more than 3 times DuckDB's own time, or a run is missing or there twice.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd

from orchestrator.report.export import database as database_files
from orchestrator.report.tables import as_parquet, sql
from orchestrator.results.table.column_types import known
from orchestrator.results.table.rows import Row
from orchestrator.results.table.sources import database

RUNS, FILES, ROUNDS, MOST = 100_000, 1_000, 9, 3.0
WRITERS, CAMPAIGNS, SIZE = 8, 20, 50
QUERIES = {
    "filter and group": "SELECT framework_config, num_gpus, count(*) AS runs, avg(tokens_per_s), median(step_time_s) FROM {table} "
    "WHERE status = 'ok' AND trainer = 'sft' GROUP BY ALL ORDER BY ALL",
    "one experiment over time": "SELECT results, avg(tokens_per_s), max(peak_allocated_bytes) FROM {table} "
    "WHERE id = 'experiment-17' GROUP BY results ORDER BY results",
    "slowest runs": "SELECT id, repeat, tokens_per_s_per_gpu, framework_config FROM {table} WHERE num_gpus = 8 "
    "ORDER BY tokens_per_s_per_gpu LIMIT 20",
}
SUMMED = "SELECT count(*), count(DISTINCT (id, repeat, attempt, started_at_s)) FROM runs"


def made_up(runs: int, chance: np.random.Generator) -> pd.DataFrame:
    """Return runs with all columns of the registry, of their types: 200 experiments, 50 runs in a campaign."""
    number = np.arange(runs)
    words = {
        "results": [f"/nightly/{n // 50}" for n in number],
        "id": [f"experiment-{n % 200}" for n in number],
        "framework_config": [f"framework-{n % 200 % 8}" for n in number],
        "status": ["failed" if n % 37 == 0 else "ok" for n in number],
        "trainer": ["sft" if n % 5 else "huggingface" for n in number],
    }
    columns: dict[str, object] = dict(words)
    for name, kind in known().items():
        if name in words:
            continue
        if kind == "string":
            columns[name] = pd.Series(chance.choice([f"{name} {n}" for n in range(20)], runs), dtype="string")
        elif kind == "boolean":
            columns[name] = pd.Series(chance.random(runs) < 0.5, dtype="boolean")
        else:
            values = chance.random(runs) * 1000
            columns[name] = pd.Series(values.astype("int64") if kind == "Int64" else values, dtype=kind)
    columns |= {
        "num_gpus": 2 ** (number % 4),
        "repeat": number % 3 + 1,
        "attempt": 1,
        "started_at_s": 1.7e9 + number / 7,
    }
    return pd.DataFrame(columns)


def median_s(calls: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Return the median time of each call. The calls take turns."""
    took: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            began = time.perf_counter()
            call()
            took[name].append(time.perf_counter() - began)
    return {name: statistics.median(times) for name, times in took.items()}


def by_duckdb(files: list[Path], query: str) -> list[tuple[object, ...]]:
    listed = ", ".join(f"'{file}'" for file in files)
    with duckdb.connect() as connection:
        table = f"read_parquet([{listed}], union_by_name = true)"
        rows: list[tuple[object, ...]] = connection.execute(query.format(table=table)).fetchall()
        return rows


def ask(root: Path, what: str) -> float:
    """Print a line for each query of a database, and return the largest quotient."""
    largest = 0.0
    files = database.files(root)
    for name, query in QUERIES.items():
        ours = sql.query(root, query.format(table="runs")).rows
        assert len(ours) == len(by_duckdb(files, query)) > 0
        took = median_s(
            {
                "ours": lambda query=query: sql.query(root, query.format(table="runs")),
                "own": lambda query=query: by_duckdb(files, query),
            },
            ROUNDS if len(files) == 1 else 3,
        )
        largest = max(largest, took["ours"] / took["own"])
        print(
            f"{what:<12} {name:<26} {took['own'] * 1e3:8.0f} ms {took['ours'] * 1e3:8.0f} ms {took['ours'] / took['own']:6.2f}"
        )
    return largest


def cpu_s(argv: list[str]) -> float:
    """Run a command and return the processor time that it took: other programs on the machine hardly change it."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def ask_by_commands(root: Path) -> None:
    """Print the processor time of a whole command, and of a Python process that only imports duckdb and asks."""
    (file,) = database.files(root)
    query = QUERIES["filter and group"]
    own = f"import duckdb; print(duckdb.sql({query.format(table='read_parquet(' + repr(str(file)) + ')')!r}))"
    ours = [sys.executable, "-m", "orchestrator", "db", "query", query.format(table="runs"), "--db", str(root)]
    took = [statistics.median(cpu_s(argv) for _ in range(5)) for argv in ([sys.executable, "-c", own], ours)]
    print(
        f"{'one file':<12} {'a whole command (CPU)':<26} {took[0] * 1e3:8.0f} ms {took[1] * 1e3:8.0f} ms "
        f"{took[1] / took[0]:6.2f}"
    )


def rows_of(campaign: str) -> list[Row]:
    return [
        Row(
            facts={"id": f"experiment-{number % 10}", "scenario": "made-up"},
            arguments={"max_steps": "10"},
            outcome={
                "repeat": number // 10 + 1,
                "attempt": 1,
                "status": "ok",
                "started_at": hash_s(campaign) + number / 7,
            },
            measured={"tokens_per_s": 1000.0 + number, "wall_s": 12.5},
        )
        for number in range(SIZE)
    ]


def hash_s(campaign: str) -> float:
    return 1.7e9 + int.from_bytes(campaign.encode()[-4:], "big") / 3


def write(root: Path, writer: int) -> None:
    """Add this writer's campaigns. The writers from 4 on add the campaigns of the same four nights."""
    database_files.make(root)
    for number in range(CAMPAIGNS):
        campaign = f"{min(writer, WRITERS // 2)}{number:03}"
        database_files.add(root, root.parent / campaign, rows_of(campaign))


def eight_writers(root: Path) -> bool:
    """Start the writers at once. Print what they left, and return whether every run is there once."""
    began = time.perf_counter()
    argv = [sys.executable, __file__, "--write", str(root)]
    writers = [subprocess.Popen([*argv, str(number)]) for number in range(WRITERS)]
    codes = [writer.wait() for writer in writers]
    wanted = (WRITERS // 2 + 1) * CAMPAIGNS * SIZE
    ((count, distinct),) = sql.query(root, SUMMED).rows
    print(
        f"\n{WRITERS} writers at once, {CAMPAIGNS} campaigns of {SIZE} runs each, four with the same campaigns: "
        f"{count:,} runs in {len(database.files(root))} files, {distinct:,} different, {wanted:,} expected; "
        f"{time.perf_counter() - began:.1f} s"
    )
    return not any(codes) and count == distinct == wanted


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        frame = made_up(RUNS, np.random.default_rng(0))
        one, many = Path(folder, "one"), Path(folder, "many")
        for root, count in ((one, 1), (many, FILES)):
            database_files.make(root)
            for number in range(count):
                part = frame.iloc[number::count] if count > 1 else frame
                (root / database.RUNS / f"{number:04}.parquet").write_bytes(as_parquet.plain(part))
        size = sum(file.stat().st_size for file in database.files(one))
        print(f"{len(frame):,} runs, {len(frame.columns)} columns, {size / 2**20:.0f} MiB as one file\n")
        print(f"{'database':<12} {'query':<26} {'DuckDB':>11} {'tunebench':>11} {'ratio':>6}")
        largest = ask(one, "one file")
        ask(many, f"{FILES:,} files")
        ask_by_commands(one)
        complete = eight_writers(Path(folder, "written"))
    return 0 if largest <= MOST and complete else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["--write"]:
        write(Path(sys.argv[2]), int(sys.argv[3]))
    else:
        sys.exit(main())
