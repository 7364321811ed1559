"""Versions of a package as the candidates of a bisection: what replaces a requirement, and which versions are between two."""

from __future__ import annotations

import pytest
from packaging.version import Version

from orchestrator.compare.bisect.versions import versions_between, with_version
from orchestrator.errors import SelectionError

LISTED = ["2.13.0+cpu", "2.12.1", "2.12.0", "2.9.1", "2.11.0"]


def test_only_the_requirement_of_the_package_is_replaced() -> None:
    lines = ("torch==2.13.0", "Torch_Vision[a,b]>=0.2; python_version > '3'", "./own", "torch-other")
    assert with_version(lines, "torch", "2.11.0") == ("torch==2.11.0", *lines[1:])
    assert with_version(lines, "torch-vision", "0.28")[1] == 'Torch_Vision[a,b]==0.28; python_version > "3"'
    assert with_version(lines, "numpy", "1") == ()


def test_versions_are_in_the_order_of_their_numbers_and_a_local_part_need_not_be_named() -> None:
    found = versions_between(LISTED, Version("2.11"), Version("2.13"))
    assert found == ["2.11.0", "2.12.0", "2.12.1", "2.13.0+cpu"]
    assert versions_between(LISTED, Version("2.9.1"), Version("2.11.0")) == ["2.9.1", "2.11.0"]


@pytest.mark.parametrize(
    ("good", "bad", "said"),
    [
        ("2.10", "2.13", "--good: there is no version 2.10; the package sources have 2.13"),
        ("2.11", "2.14", "--bad: there is no version 2.14"),
        ("2.13", "2.11", "--good 2.13 is not older than --bad 2.11; exchange the two"),
    ],
)
def test_ends_that_are_not_listed_or_exchanged_are_refused(good: str, bad: str, said: str) -> None:
    with pytest.raises(SelectionError, match=said):
        versions_between(LISTED, Version(good), Version(bad))
