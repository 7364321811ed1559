"""Check that `tunebench compare` and `tunebench history` say on real folders what their functions say on the same numbers.

    python benchmarks/simulated/command_line.py [--folders 20]

For each shape, results folders are written and the commands read them. Verdicts, advice, lines over all experiments, steps and exit
codes must be equal. The exit code is 1 if anything differs. Takes about 20 minutes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import history
import shapes
import simulation
import verdicts
from figures import line, share, table
from shapes import Nights, Shape

from orchestrator.compare import gate
from orchestrator.compare.comparison import Entry
from orchestrator.compare.history import trends
from orchestrator.compare.rules import Rules
from orchestrator.records import Device, Experiment, Measurement, RunRecord, Status
from orchestrator.results.store import Store, write_record

TUNEBENCH = (sys.executable, "-m", "orchestrator")
LIMIT_S = 120
COMPARED = {
    **verdicts.TWENTY,
    **{f"memory, {name}": replace(shape, rows=5) for name, shape in verdicts.MEMORIES.items()},
}
FOLLOWED = {**history.QUIET, **{f"{name}, told": history.after(shape, 3) for name, shape in history.TOLD.items()}}


def write(folder: Path, entries: Sequence[Entry]) -> Path:
    """Write a results folder, as a campaign would."""
    store = Store.create(folder, {})
    store.add([_experiment(entry) for entry in entries])
    for entry in entries:
        for run in entry.runs:
            where = store.run_dir(str(entry.id), run.repeat, 1)
            where.mkdir(parents=True)
            write_record(where, _record(entry, run.repeat, run.started_at or 0.0, run.numbers))
    return folder


def _experiment(entry: Entry) -> Experiment:
    scenario = {"scenario": entry.label, "model": "m", "num_gpus": 1, "device": Device.CPU}
    return Experiment(id=str(entry.id), trainer="huggingface", arguments={}, repeats=len(entry.runs), **scenario)


def _record(entry: Entry, repeat: int, started_at: float, numbers: Any) -> RunRecord:
    values = tuple(Measurement(name=name, value=value, source="simulated") for name, value in numbers.items())
    return RunRecord(
        experiment_id=str(entry.id),
        repeat=repeat,
        attempt=1,
        status=Status.OK,
        started_at=started_at,
        wall_s=30.0,
        measurements=values,
    )


def command(*words: str | Path) -> tuple[int, Any]:
    """Return the exit code of the command, and the JSON that it prints."""
    ended = subprocess.run([*TUNEBENCH, *map(str, words)], capture_output=True, text=True, timeout=LIMIT_S)
    if not ended.stdout.startswith("{"):
        raise SystemExit(f"tunebench {' '.join(map(str, words))}: {ended.stderr}")
    return ended.returncode, json.loads(ended.stdout)


def compares(shape: Shape, seed: int, number: int) -> bool:
    """Return whether `compare` says the same about one campaign. In every second campaign, the first row is slower."""
    rng = shapes.generator(seed, f"folder {number} {shape}")
    pairs = shapes.campaign(rng, shape, [simulation.SLOWER] * (number % 2))
    expected = simulation.judged(pairs)
    with tempfile.TemporaryDirectory() as name:
        sides = [[entry for pair in pairs if (entry := getattr(pair, side))] for side in ("base", "new")]
        folders = [write(Path(name) / side, entries) for side, entries in zip(("base", "new"), sides, strict=True)]
        code, found = command("compare", *folders, "--format", "json")
    rows = [(row["metric"], row["verdict"], row["needs"]) for row in found["rows"]]
    fleet = [(row["metric"], row["verdict"]) for row in found["fleet"]]
    return (
        rows == [(row.metric, row.verdict, row.needs) for row in expected.rows]
        and fleet == [(row.metric, row.verdict) for row in expected.fleet]
        and code == gate.exit_code(expected)
    )


def follows(shape: Nights, seed: int, number: int) -> bool:
    """Return whether `history` says the same about one history."""
    nights, _ = shapes.nights(shapes.generator(seed, f"folder {number} {shape}"), shape)
    expected = trends.history(nights, rules=Rules())
    with tempfile.TemporaryDirectory() as name:
        for campaign in nights:
            write(Path(name) / campaign.side.name, campaign.side.entries)
        _, found = command("history", name, "--json", "--output", Path(name) / "history")
    steps = [[(step["at"], step["kind"]) for step in series["steps"]] for series in found["series"]]
    return steps == [[(step.at, step.kind) for step in series.steps] for series in expected.series]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folders", type=int, default=20)
    parser.add_argument("--seed", type=int, default=shapes.SEED)
    asked = parser.parse_args()
    for text in table("shape", "folders", "equal"):
        print(text)
    differs = False
    for name, shape in (*COMPARED.items(), *FOLLOWED.items()):
        check = compares if isinstance(shape, Shape) else follows
        equal = share(check(shape, asked.seed, number) for number in range(asked.folders))  # type: ignore[operator]
        differs |= equal.hits < equal.of
        print(line(name, equal.of, equal.hits), flush=True)
    sys.exit(int(differs))


if __name__ == "__main__":
    main()
