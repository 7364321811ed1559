"""The commits of a repository, as a bisection shows them."""

from __future__ import annotations

from orchestrator.compare.bisect.repository import _candidate


def test_the_title_of_a_commit_shows_no_secret() -> None:
    token = "hf_abcdefghijklmnopqrst012345"
    found = _candidate(f"{'a' * 40}\t2026-11-26T00:00:00+00:00\tUse {token} to load")
    assert (found.key, found.title) == ("a" * 12, "Use *** to load")
