"""The commits of a repository, as a bisection shows them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from orchestrator.compare.bisect.repository import Repository, _candidate


def test_the_title_of_a_commit_shows_no_secret() -> None:
    token = "hf_abcdefghijklmnopqrst012345"
    found = _candidate(f"{'a' * 40}\t2026-11-26T00:00:00+00:00\tUse {token} to load")
    assert (found.key, found.title) == ("a" * 12, "Use *** to load")


@pytest.mark.parametrize("separator", ["\u2028", "\x0c", "\x85", "\x0b", "\x1c"])
def test_a_title_may_have_any_separator_of_lines_but_a_line_feed(tmp_path: Path, separator: str) -> None:
    def git(*words: str) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True)

    git("init")
    for title in ("one", f"Faster{separator}by a lot", "three"):
        git("commit", "--allow-empty", "-m", title)
    found = Repository(root=tmp_path).between("HEAD~2", "HEAD")
    assert [one.title[:6] for one in found] == ["one", "Faster", "three"]
