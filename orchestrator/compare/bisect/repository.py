"""A git repository of the user: its commits, and worktrees of them. The user's own working tree and branches do not change.

A worktree is a folder with the files of one commit. Hooks of the repository do not run.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from orchestrator.compare.bisect.checkout import Candidate
from orchestrator.errors import LaunchError, SelectionError
from orchestrator.files.mounts import mounted_in
from orchestrator.files.printable_text import one_line, quoted
from orchestrator.files.redaction import redact
from orchestrator.machine import process

_ASK_S, _CHECK_OUT_S = 60.0, 1800.0
# A hook of git sets these variables for its own repository.
_OTHERS = dict.fromkeys(("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_PREFIX"))
_PLAIN = ("-c", "core.hooksPath=/dev/null", "-c", "log.showSignature=false", "-c", "advice.detachedHead=false")
KEY_DIGITS = 12


@dataclass(frozen=True, kw_only=True, slots=True)
class Repository:
    """A repository with a working tree, whose top folder is `root`."""

    root: Path

    @staticmethod
    def of(folder: Path, *, option: str) -> Repository:
        """Return the repository that contains a folder. Raise SelectionError if there is none. `option` names the folder."""
        try:
            top = _git(folder, "rev-parse", "--show-toplevel")
        except LaunchError as error:
            raise SelectionError(
                f"{option}: no commits can be read: {error}; name the folder of a git repository with --repo"
            ) from error
        return Repository(root=Path(top.rstrip("\n")))

    def commit(self, word: str, *, option: str) -> str:
        """Return the full hash of the commit that a word names. Raise SelectionError if it names none."""
        try:
            return _git(self.root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{word}^{{commit}}").strip()
        except LaunchError:
            raise SelectionError(
                f"{option} {quoted(word, longest=80)} is not a commit of {self.root}; name a commit, a tag or a branch"
            ) from None

    def between(self, good: str, bad: str) -> tuple[Candidate, ...]:
        """Return good, and the commits after it up to bad. Of a merge, only the first parent is followed."""
        form = "--format=%H%x09%aI%x09%s"
        logs = (
            _git(self.root, "log", "--no-walk", form, good, "--"),
            _git(self.root, "log", "--first-parent", "--reverse", form, f"{good}..{bad}", "--"),
        )
        # A subject may have any character except a line feed, so `splitlines` would divide some subjects.
        return tuple(_candidate(line) for log in logs for line in log.split("\n") if line)

    def is_ancestor(self, good: str, bad: str) -> bool:
        try:
            _git(self.root, "merge-base", "--is-ancestor", good, bad)
        except LaunchError:
            return False
        return True

    def add_worktree(self, folder: Path, commit: str) -> None:
        """Make a worktree of a commit. Raise LaunchError if git refuses."""
        self.remove_worktree(folder)
        folder.parent.mkdir(parents=True, exist_ok=True)
        _git(self.root, "worktree", "add", "--force", "--detach", str(folder), commit, timeout_s=_CHECK_OUT_S)

    def remove_worktree(self, folder: Path) -> None:
        """Remove a worktree, also one that an interrupted call left incomplete.

        Raise LaunchError if it stays, such as one with a file system that is mounted in it.
        """
        if mounted := mounted_in(folder):
            why = f"a file system is mounted at {mounted[0]}; unmount it, then remove the folder"
            raise LaunchError(f"{folder} is kept, because {why}")
        try:
            _git(self.root, "worktree", "remove", "--force", "--force", str(folder))
        except LaunchError:  # git does not know the folder
            shutil.rmtree(folder, ignore_errors=True)
        if folder.exists():
            raise LaunchError(f"{folder} is kept, because some of its files cannot be removed; remove the folder")


def _candidate(line: str) -> Candidate:
    commit, date, subject = line.split("\t", 2)
    return Candidate(key=commit[:KEY_DIGITS], name=commit, title=one_line(redact(subject), longest=200), date=date)


def _git(folder: Path, *words: str, timeout_s: float = _ASK_S) -> str:
    return process.capture(["git", "-C", str(folder), *_PLAIN, *words], timeout_s, _OTHERS)
