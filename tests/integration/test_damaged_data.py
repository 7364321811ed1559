"""Prepared data that a disk or a person has damaged: found by its manifest, named, and prepared anew in the user's own cache."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from factories.results import experiment
from fingerprint import fingerprint

from orchestrator.files import writing
from orchestrator.records import DataSpec, Experiment
from orchestrator.run.data_preparation import damage, prepare_data, why_missing


@pytest.fixture
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache of this test."""
    monkeypatch.setenv("TUNEBENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def one(cached: Path) -> Experiment:
    """An experiment whose data was prepared in a cache of this test."""
    data = DataSpec(source="builtin:synthetic", form="tokens", samples=20, max_length=8)
    made = experiment(model="m", data=data, data_path=str(cached / "data" / "synthetic-1"))
    assert prepare_data([made]) == () and why_missing(made) is None
    return made


def folder(one: Experiment) -> Path:
    return Path(str(one.data_path))


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 100)


def change(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1] + b"?")


def replaced(path: Path) -> Path:
    shutil.rmtree(path)
    return path


DAMAGE: dict[str, tuple[Callable[[Path], None], str]] = {
    "truncated": (lambda made: cut(made / "tokens.npz"), "tokens.npz has 2,110 bytes, and 2,210 were written"),
    "empty": (lambda made: os.truncate(made / "tokens.npz", 0), "tokens.npz has 0 bytes"),
    "changed": (lambda made: change(made / "tokens.npz"), "tokens.npz has changed since it was written"),
    "missing": (lambda made: (made / "tokens.npz").unlink(), "there is no "),
    "without a manifest": (lambda made: (made / "manifest.json").unlink(), "manifest.json"),
    "half a manifest": (lambda made: cut(made / "manifest.json"), "manifest.json is not a manifest"),
    "a list": (lambda made: writing.replace(made / "manifest.json", "[]"), "manifest.json is not a manifest"),
    "an empty folder": (lambda made: replaced(made).mkdir(), "manifest.json"),
    "no folder": (lambda made: replaced(made).touch(), "manifest.json"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_data_is_named_and_prepared_anew(one: Experiment, name: str) -> None:
    harm, sentence = DAMAGE[name]
    harm(folder(one))
    assert sentence in str(why_missing(one)) and str(folder(one)) in str(why_missing(one))
    said: list[str] = []
    assert prepare_data([one], said.append) == ()
    assert (
        len(said) == 1 and said[0].startswith("preparing builtin:synthetic for m anew, because") and sentence in said[0]
    )
    assert why_missing(one) is None
    assert sorted(path.name for path in folder(one).parent.iterdir()) == [
        *("synthetic-1", "synthetic-1.log", "synthetic-1.spec.json")
    ]


def test_a_folder_of_an_older_version_is_checked_by_its_end(one: Experiment) -> None:
    manifest = folder(one) / "manifest.json"
    manifest.write_text(
        json.dumps({name: value for name, value in json.loads(manifest.read_text()).items() if name != "files"})
    )
    assert damage(folder(one)) is None
    cut(folder(one) / "tokens.npz")
    assert damage(folder(one)) == f"{folder(one) / 'tokens.npz'} has no end"


def test_data_outside_the_cache_is_never_removed(one: Experiment, tmp_path: Path) -> None:
    other = tmp_path / "elsewhere" / "synthetic-1"
    shutil.copytree(folder(one), other)
    cut(other / "tokens.npz")
    (failed,) = prepare_data([replace(one, data_path=str(other))])
    assert failed.endswith(f"remove {other}, and the same command prepares it anew")
    assert (other / "tokens.npz").exists()


def test_data_that_cannot_be_read_is_not_taken_for_damaged(one: Experiment) -> None:
    (folder(one) / "tokens.npz").unlink()
    (folder(one) / "tokens.npz").mkdir()
    (failed,) = prepare_data([one])
    assert failed == f"{folder(one) / 'tokens.npz'}: cannot be read: Is a directory" == why_missing(one)


def test_data_that_changes_after_the_plan_is_refused_and_not_kept(tmp_path: Path, cached: Path) -> None:
    rows = tmp_path / "d.jsonl"
    planned, other = (
        "".join(f'{{"instruction": "{word}", "output": "{word}"}}\n' for word in words) for words in ("ab", "c")
    )
    rows.write_text(planned)
    data = DataSpec(source=str(rows), form="text", formatting="instruct", fingerprint=fingerprint(str(rows)))
    one = experiment(model="m", data=data, data_path=str(cached / "data" / "d-1"))
    rows.write_text(other)
    (failed,) = prepare_data([one])
    assert f"'{rows}' changed after the plan was made; run the same command again" in failed
    assert sorted(path.name for path in folder(one).parent.iterdir()) == ["d-1.log", "d-1.spec.json"]
    rows.write_text(planned)
    assert prepare_data([one]) == ()
    assert len((folder(one) / "train.json").read_text().splitlines()) == 2


def test_a_file_system_that_is_mounted_in_damaged_data_is_not_emptied(one: Experiment, tmp_path: Path) -> None:
    user, point = tmp_path / "user", folder(one) / "mine"
    user.mkdir()
    point.mkdir()
    (user / "precious").touch()
    cut(folder(one) / "tokens.npz")
    if subprocess.run(["mount", "--bind", user, point], check=False, capture_output=True).returncode:
        pytest.skip("nobody may mount a file system here")
    try:
        (failed,) = prepare_data([one])
        assert failed.endswith(
            f"is kept, because a file system is mounted at {point}; unmount it, and repeat the command"
        )
        assert (user / "precious").exists() and (folder(one) / "tokens.npz").exists()
    finally:
        subprocess.run(["umount", "-l", str(point)], check=True)
