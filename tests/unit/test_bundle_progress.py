"""A bundle of a long training says how far it is: the files, the MiB, and the size of a large file before it is read."""

from __future__ import annotations

from pathlib import Path

import pytest
from factories.results import ended, experiment, stored

from orchestrator.report.bundle import bundle, progress


def test_a_large_file_is_announced_before_each_of_its_two_readings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "LARGE_BYTES", 2**20)
    root = stored(tmp_path / "results", (experiment(), [ended(experiment(), 1)]))
    (run,) = root.glob("experiments/*/runs/r1-t1")
    (run / "steps-rank0.jsonl").write_text('{"step": 1}\n' * 100_000)
    said: list[str] = []
    done = bundle(root, output=tmp_path / "b.tar.gz", say=said.append)
    count = len(done.manifest["files"])
    announced = [sentence for sentence in said if "the next file" in sentence]
    assert [sentence.partition(":")[0] for sentence in announced] == ["looking for names", "packing"]
    assert all(f"of {count} files, 0 of 1 MiB; the next file has 1 MiB" in sentence for sentence in announced)


def test_many_small_files_are_announced_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = stored(tmp_path / "results", (experiment(), [ended(experiment(), number) for number in (1, 2, 3)]))
    monkeypatch.setattr(progress, "EVERY_S", 600.0)
    said: list[str] = []
    bundle(root, output=tmp_path / "a.tar.gz", say=said.append)
    assert said == []
    monkeypatch.setattr(progress, "EVERY_S", 0.0)
    done = bundle(root, output=tmp_path / "b.tar.gz", say=said.append)
    count = len(done.manifest["files"])
    packing = [sentence.split(", ")[0] for sentence in said[count:]]
    assert packing == [f"packing: {number} of {count} files" for number in range(count)]
