"""No record of a run that ended is lost on a full disk: its place is reserved, or it is kept and placed by the next call."""

from __future__ import annotations

import errno
import json
import os
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from campaigns import ROOT, Campaign, tunebench

from orchestrator.errors import ResultsError
from orchestrator.files import writing
from orchestrator.plan.config.starter_file import write_starter
from orchestrator.records import RunRecord, Status
from orchestrator.results.store import Store

LINK_FAILS = """\
import errno, os
link = os.link
def fails(source, target, **more):
    if os.path.exists({full!r}) and str(target).endswith("/record.json"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(source), None, str(target))
    return link(source, target, **more)
os.link = fails
"""
QUOTA_IS_USED_UP = """\
import errno, os
for name in ("posix_fallocate", "mkdir"):
    def fails(what, *more, real=getattr(os, name), name=name):
        if name == "posix_fallocate" or str(what).endswith({folder!r}):
            raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT), str(what))
        return real(what, *more)
    setattr(os, name, fails)
"""
FILLS = """\
import json
print(json.dumps({"train_runtime": 1.0}), flush=True)
try:
    for number in range(100_000):
        open(str(number), "w").close()
except OSError:
    pass
"""


def scenario(folder: Path, *command: str, repeats: int = 1) -> None:
    """Write a scenario of one experiment: this command, which reports `train_runtime`."""
    custom = {"command": list(command), "launcher": "none", "metrics": {"train_runtime": {"key": "train_runtime"}}}
    one = {"name": "s", "trainer": "custom", "device": "cpu", "custom": custom, "repeats": repeats}
    (folder / "scenarios.yaml").write_text(json.dumps({"scenarios": [one]}))


def records(results: Path) -> list[RunRecord]:
    (stored,) = Store.resume(results).contents().experiments
    return list(stored.records)


def test_a_record_that_cannot_be_placed_is_kept_and_placed_by_the_next_call(tmp_path: Path) -> None:
    full, ledger = tmp_path / "full", tmp_path / "ledger"
    (tmp_path / "sitecustomize.py").write_text(LINK_FAILS.format(full=str(full)))
    code = "import json, sys; print('ran', file=open(sys.argv[1] + '/ledger', 'a')); print(json.dumps({'train_runtime': 1}))"
    scenario(tmp_path, "{python}", "-c", code, "{scenario_dir}")
    full.touch()

    def run() -> Campaign:
        return tunebench(tmp_path, "run", "scenarios.yaml", "--yes", PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}")

    first = run()
    assert first.code == 2 and "No space left on device; make room and repeat the command" in first.err, first.err
    assert records(tmp_path / "results") == []
    full.unlink()
    again = run()
    assert again.code == 0, again.err
    assert [(record.status, record.attempt) for record in records(tmp_path / "results")] == [(Status.OK, 1)]
    assert ledger.read_text() == "ran\n"
    assert not list(tmp_path.glob("results/experiments/*/runs/*/.*"))


@pytest.fixture
def few_files(tmp_path: Path) -> Iterator[Path]:
    """A file system for 300 files."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=90m,nr_inodes=300", "none", str(folder)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("nobody may mount a file system here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_run_that_uses_up_all_files_of_the_disk_has_its_record(tmp_path: Path, few_files: Path) -> None:
    scenario(tmp_path, "{python}", "-c", FILLS, repeats=2)
    results = few_files / "results"
    said = tunebench(tmp_path, "run", "scenarios.yaml", "--yes", "--results", str(results))
    assert said.code == 2 and "Traceback" not in said.err
    assert "more files fit, and a run needs at least 100; make room" in said.err, said.err
    assert [record.status for record in records(results)] == [Status.OK], said.err


def test_a_run_that_uses_up_all_files_without_a_word_failed_on_a_full_disk(tmp_path: Path, few_files: Path) -> None:
    scenario(tmp_path, "{python}", "-c", f"{FILLS}raise SystemExit(3)")
    said = tunebench(tmp_path, "run", "scenarios.yaml", "--yes", "--results", str(few_files / "results"))
    (record,) = records(few_files / "results")
    assert (record.status, record.kind) == (Status.FAILED, "disk_full"), said.err


@pytest.mark.parametrize(
    ("folder", "cause"),
    [
        ("nowhere", "or a quota on it was used up, when it ended (it ended with exit code 3)"),
        ("/work", "OSError: [Errno 122] Disk quota exceeded: "),  # the run does not begin
    ],
)
def test_a_quota_that_is_used_up_is_a_full_disk(folder: str, cause: str, tmp_path: Path) -> None:
    """The numbers of the file system do not show it."""
    (tmp_path / "sitecustomize.py").write_text(QUOTA_IS_USED_UP.format(folder=folder))
    scenario(tmp_path, "bash", "-c", "exit 3")
    said = tunebench(tmp_path, "run", "scenarios.yaml", "--yes", PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}")
    (record,) = records(tmp_path / "results")
    assert (record.status, record.kind) == (Status.FAILED, "disk_full"), said.err
    assert cause in (record.cause or "") and "free some space" in (record.hint or "")


@pytest.mark.parametrize("number", [errno.EDQUOT, errno.ENOSPC, errno.EFBIG, errno.EOPNOTSUPP, errno.EIO, None])
@pytest.mark.parametrize("call", ["open", "posix_fallocate", "fsync"])
def test_only_a_disk_without_room_has_no_room(
    call: str, number: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise OSError(number, os.strerror(number or 0))

    if number is not None:
        monkeypatch.setattr(os, call, fails)
    assert writing.has_room(tmp_path, 1000) == (number not in (errno.EDQUOT, errno.ENOSPC))
    assert not [*tmp_path.iterdir()]


def test_a_folder_that_is_gone_or_a_file_is_not_full(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert writing.has_room(tmp_path / "gone", 1000) and writing.has_room(tmp_path / "file", 1000)


def test_a_file_system_that_does_not_report_its_size_is_not_full(tmp_path: Path) -> None:
    """A failed run there is not called one on a full disk, either."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "ramfs", "none", str(folder)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("nobody may mount a file system here")
    try:
        scenario(tmp_path, "{python}", "-c", "raise SystemExit(3)")
        said = tunebench(tmp_path, "run", "scenarios.yaml", "--yes", "--results", str(folder / "results"))
        (record,) = records(folder / "results")
        assert said.code == 1 and (record.status, record.kind) == (Status.FAILED, "unknown"), said.err
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_reserved_file_that_the_run_replaced_is_not_written(tmp_path: Path) -> None:
    """Neither through a link of either kind, nor by waiting for the reader of a pipe."""
    precious = tmp_path / "precious"
    precious.write_text("mine")
    for number, plant in enumerate(
        (lambda path: path.symlink_to(precious), lambda path: path.hardlink_to(precious), os.mkfifo, os.mkdir)
    ):
        reserved, record = tmp_path / f".{number}", tmp_path / f"{number}"
        plant(reserved)
        assert writing.place_once(record, "the record", reserved=reserved)
        assert record.read_text() == "the record" and precious.read_text() == "mine"


def test_a_starter_file_that_does_not_fit_leaves_nothing_in_the_way(tmp_path: Path) -> None:
    file, before = tmp_path / "mine.yaml", resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        with pytest.raises(ResultsError, match="cannot be written"):
            write_starter(file)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    write_starter(file)
    assert "scenarios:" in file.read_text()
