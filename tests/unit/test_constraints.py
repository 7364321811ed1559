"""The versions that tox installs are in the ranges of pyproject.toml, and those of `tests-lowest` are the lowest ones."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
# torch has one build without CUDA at hand, and the packages of Hugging Face are tested with other versions by `tests-hf4`.
OTHERS = {"torch", "transformers", "accelerate", "peft"}


def allowed() -> dict[str, SpecifierSet]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return {canonicalize_name(one.name): one.specifier for one in map(Requirement, project["dependencies"])}


def pinned(file: str) -> dict[str, str]:
    lines = (ROOT / file).read_text().splitlines()
    words = (line.split("==") for line in lines if not line.startswith("#"))
    return {canonicalize_name(name): version for name, version in words}


@pytest.mark.parametrize("file", ["constraints.txt", "constraints-hf4.txt", "constraints-lowest.txt"])
def test_the_versions_are_allowed(file: str) -> None:
    versions = pinned(file)
    assert {name: versions[name] for name, range_ in allowed().items() if versions[name] not in range_} == {}


def test_the_lowest_versions_are_the_lowest_ones() -> None:
    versions = pinned("constraints-lowest.txt")
    for name, range_ in allowed().items():
        if name not in OTHERS:
            (lowest,) = (one.version for one in range_ if one.operator == ">=")
            assert versions[name] in SpecifierSet(f"=={lowest}.*"), name
