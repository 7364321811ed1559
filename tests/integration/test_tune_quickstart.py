"""A race over the cells of `quickstart`: real trainings, which start warm."""

from __future__ import annotations

import json
from pathlib import Path

from campaigns import tunebench


def test_a_race_over_quickstart_ends_within_its_bound(tmp_path: Path) -> None:
    race = tunebench(tmp_path, "tune", "--results", "results")
    records = [json.loads(file.read_text()) for file in race.results.glob("experiments/*/runs/*/record.json")]
    assert {record["status"] for record in records} == {"ok"}, race.said
    assert 7 < len(records) <= 21, "a grid with three runs of each has 21"
    assert {record["provenance"]["start"] for record in records} == {"warm"}
    (found,) = json.loads((race.results / "race.json").read_text())["races"]
    assert found["is_over"] and len(found["experiments"]) == 7
    leader = found["experiments"][0]
    if race.code == 0:
        assert leader["became"] == "leads" and leader["speed"] == 1.0
    else:  # other programs kept the machine busy in all runs
        assert leader["speed"] is None and "in doubt" in leader["became"]
    assert tunebench(tmp_path, "status", "results").out.startswith("results")
