"""Tests of writing on a disk that refuses to delete files."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.files import writing


@pytest.fixture(autouse=True)
def no_delete(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), str(path))

    monkeypatch.setattr(Path, "unlink", refuse)


@pytest.mark.parametrize("write", [writing.place_new, writing.place_once, writing.replace])
def test_a_file_that_was_written_is_no_failure(tmp_path: Path, write: Callable[[Path, str], bool | None]) -> None:
    assert write(tmp_path / "a.txt", "text") is not False
    assert (tmp_path / "a.txt").read_text() == "text"


@pytest.mark.parametrize("write", [writing.place_new, writing.place_once])
def test_an_existing_file_stays(tmp_path: Path, write: Callable[[Path, str], bool]) -> None:
    (tmp_path / "a.txt").write_text("mine")
    assert write(tmp_path / "a.txt", "text") is False
    assert (tmp_path / "a.txt").read_text() == "mine"


def test_a_full_disk_is_told_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device.*a\.txt"):
        writing.place_new(tmp_path / "a.txt", "text")
