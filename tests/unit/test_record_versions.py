"""Records of every version load whole, and one of a version to come is read as far as it is known."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from factories.results import BASE, ended

from orchestrator.records import SCHEMA_VERSION, RunRecord, dump, load
from orchestrator.results.store import Store, write_record

GOLDEN = Path(__file__).parents[1] / "golden" / "records"
VERSIONS = sorted(GOLDEN.glob("version-*.json"))


def test_every_version_has_a_golden() -> None:
    written = {json.loads(path.read_text())["schema_version"] for path in VERSIONS}
    assert written == set(range(1, SCHEMA_VERSION + 1)), "add a record of the new version, and leave the older ones"


@pytest.mark.parametrize("path", VERSIONS, ids=lambda path: path.stem)
def test_a_record_of_any_version_loads_whole(path: Path) -> None:
    written = json.loads(path.read_text())
    now = json.loads(dump(load(RunRecord, path.read_bytes())))
    for measurement in now["measurements"] if written["schema_version"] < 3 else ():
        assert measurement.pop("missing") is None
    assert {name: now[name] for name in written} == written


def test_a_record_of_a_newer_version_is_read_and_said(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "results", {})
    store.add([BASE])
    job = store.job(BASE.id, repeat=1, attempt=1)
    job.run_dir.mkdir(parents=True)
    write_record(job.run_dir, ended(BASE, 1, train_loss=2.0))
    path = job.run_dir / "record.json"
    newer = json.loads(path.read_text()) | {"schema_version": SCHEMA_VERSION + 1, "carbon_kg": 3.0}
    path.write_text(json.dumps(newer))
    contents = store.contents()
    (record,) = contents.experiments[0].records
    assert record.measurements[0].value == 2.0
    assert "written by a newer version" in contents.warnings[0]
