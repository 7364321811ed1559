"""Files behind a mount in a run's folder are the user's, so they are not removed with the run's checkpoints."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from orchestrator.compare.bisect.chosen import Chosen
from orchestrator.compare.bisect.commits import Commits
from orchestrator.compare.bisect.repository import Repository
from orchestrator.errors import LaunchError
from orchestrator.files import mounts
from orchestrator.files.mounts import mounted_in
from orchestrator.records import RunFolder
from orchestrator.run.run_files import remove_output


def line(point: Path) -> str:
    escaped = str(point).replace(" ", r"\040")
    return f"36 35 98:0 / {escaped} rw,noatime master:1 - ext4 /dev/root rw\n"


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The file in which the kernel lists the mounts, here without any."""
    file = tmp_path / "mountinfo"
    file.write_text(line(Path("/")))
    monkeypatch.setattr(mounts, "_MOUNTS", file)
    return file


def test_mounts_in_a_folder_are_found_by_their_whole_names(listed: Path, tmp_path: Path) -> None:
    folder = tmp_path / "a b"
    assert mounted_in(folder) == []
    listed.write_text("".join(map(line, (tmp_path, folder / "c d", tmp_path / "a bc", folder))))
    assert mounted_in(folder) == [folder / "c d", folder]
    (tmp_path / "link").symlink_to("a b")
    assert mounted_in(tmp_path / "link") == [folder / "c d", folder]


def test_a_line_without_a_mount_point_is_left_out(listed: Path, tmp_path: Path) -> None:
    listed.write_text(f"36 35 98:0 /\n \n{line(tmp_path)}")
    assert mounted_in(tmp_path) == [tmp_path]


def test_elsewhere_the_folders_themselves_are_asked(listed: Path, tmp_path: Path) -> None:
    listed.unlink()
    (tmp_path / "x").mkdir()
    assert mounted_in(tmp_path) == []
    assert (Path("/dev") in mounted_in(Path("/dev"))) is os.path.ismount("/dev")


@pytest.mark.parametrize(
    ("name", "point"), [("output", "output/store"), ("work/output", "work/output/store"), ("work/output", "work")]
)
def test_an_output_with_a_mount_is_kept_and_said(listed: Path, tmp_path: Path, name: str, point: str) -> None:
    """A command had mounted a folder of its own, with an `output`, over its working folder. Its model was removed."""
    folder = RunFolder(tmp_path / "runs" / "r1-t1")
    for output in (folder.output, folder.work / "output"):
        (output / "store").mkdir(parents=True)
        (output / "store" / "model.bin").write_text("precious")
    listed.write_text(line(Path("/")) + line(folder.path / point))
    (warning,) = remove_output(folder)
    assert f"{name} is kept, because a file system is mounted at {folder.path / point};" in warning.detail
    assert [path.is_file() for path in folder.path.glob("**/model.bin")] == [True]
    assert (folder.path / name / "store" / "model.bin").read_text() == "precious"


def test_a_worktree_with_a_mount_stays_and_is_named(listed: Path, tmp_path: Path) -> None:
    repository, said = Repository(root=tmp_path / "repository"), list[str]()
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(repository.root))
    repository.root.mkdir()
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    commits = Commits(
        repository=repository,
        candidates=repository.between("HEAD", "HEAD"),
        chosen=cast(Chosen, SimpleNamespace(say=said.append)),
        file=Path("scenarios.yaml"),
        worktrees=tmp_path / "worktrees",
    )
    worktree = commits.worktrees / commits.candidates[0].key
    repository.add_worktree(worktree, "HEAD")
    (worktree / "store").mkdir()
    listed.write_text(line(worktree / "store"))
    kept = f"{worktree} is kept, because a file system is mounted at {worktree / 'store'}; unmount it, then remove the folder"
    commits.release(0)
    commits.close()
    assert (worktree / "store").is_dir() and said == [kept]
    with pytest.raises(LaunchError, match="is kept, because a file system is mounted"):
        repository.add_worktree(worktree, "HEAD")
    listed.write_text("")
    commits.close()
    assert not worktree.exists() and said == [kept]


def test_a_mount_next_to_an_output_keeps_nothing(listed: Path, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "runs" / "r1-t1")
    for output in (folder.output, folder.work / "output"):
        output.mkdir(parents=True)
    listed.write_text(line(Path("/")) + line(tmp_path) + line(folder.work / "data"))
    assert [*remove_output(folder)] == []
    assert not folder.output.exists() and not (folder.work / "output").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
@pytest.mark.parametrize("point", ["output/a mount", "work"])
def test_files_behind_a_real_mount_stay(tmp_path: Path, point: str) -> None:
    store, folder = tmp_path / "store", RunFolder(tmp_path / "runs" / "r1-t1")
    target = folder.path / point
    for each in (store / "output", target, folder.output):
        each.mkdir(parents=True, exist_ok=True)
    (store / "output" / "model.bin").write_text("precious")
    if subprocess.run(["mount", "--bind", store, target], stderr=subprocess.DEVNULL, check=False).returncode:
        pytest.skip("no permission to mount")
    try:
        (warning,) = remove_output(folder)
    finally:
        subprocess.run(["umount", target], check=True)
    assert str(target) in warning.detail and (store / "output" / "model.bin").read_text() == "precious"
    assert [*remove_output(folder)] == [] and not folder.output.exists()


@pytest.mark.parametrize("closed", ["output", "work"])
def test_checkpoints_that_cannot_be_removed_are_said(closed: str) -> None:
    """Without the rights to a folder that the command closed, checkpoints stayed and no warning named them."""
    with tempfile.TemporaryDirectory() as open_to_all:
        folder = RunFolder(Path(open_to_all) / "r1-t1")
        for path in (folder.output, folder.work / "output"):
            path.mkdir(parents=True)
            (path / "model.bin").write_text("large")
        for path in (Path(open_to_all), *Path(open_to_all).rglob("*")):
            path.chmod(0o777)
        (folder.path / closed).chmod(0)
        user = os.geteuid()
        try:
            if user == 0:
                os.seteuid(4001)  # root has the rights to every folder
            (warning,) = remove_output(folder)
        finally:
            os.seteuid(user)
            (folder.path / closed).chmod(0o777)
        (left,) = folder.path.glob("**/output")
        assert warning.detail.startswith(f"{left} could not be removed; make it writable")
