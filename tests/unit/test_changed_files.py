"""What a plan says about files that changed since the runs of a results folder."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from factories.results import ended, of_command, stored

from orchestrator.campaign.changed_files import changed_files
from orchestrator.plan.expand import Plan
from orchestrator.plan.identity.experiment_id import Digester
from orchestrator.records import Experiment

BOTH = {"train.py": "1", "model.py": "1"}


def cell(lr: str, sources: Mapping[str, str], *, scenario: str = "own") -> Experiment:
    """An experiment of a command with an id over its content, as a plan gives it."""
    own = of_command("train", "{lr}", scenario=scenario, arguments={"lr": lr}, sources=sources)
    assert own.custom is not None
    own = replace(own, custom=replace(own.custom, folder="/scenarios"))
    return replace(own, id=f"{scenario}-{Digester(frozenset()).digest(own)}")


def said(root: Path, *planned: Experiment) -> list[str]:
    """The sentences, without their dates."""
    plan = Plan(experiments=planned, collapsed=(), notes=())
    texts = [re.sub(r" \(\d{1,2} \w{3} \d{4}\)", "", text) for text in changed_files(plan, root)]
    assert all(f" in {root}:" in text for text in texts)
    return [text.replace(f" in {root}:", ":") for text in texts]


def results(root: Path, *experiments: Experiment, started_at: float = 1.7e9) -> Path:
    runs = [(one, [replace(ended(one, 1), started_at=started_at + 1e6 * at)]) for at, one in enumerate(experiments)]
    return stored(root, *runs)


@pytest.mark.parametrize(
    ("old", "new", "sentences"),
    [
        (BOTH, BOTH, []),
        (BOTH, {**BOTH, "model.py": "2"}, ["model.py changed since"]),
        (BOTH, {"train.py": "2", "model.py": "2"}, ["train.py changed since", "model.py changed since"]),
        (BOTH, {"train.py": "2"}, ["train.py changed since", "model.py is not used any more since"]),
        ({"train.py": "1"}, BOTH, ["model.py is new since"]),
        ({}, BOTH, ["no content of train.py, model.py is recorded for"]),
        (BOTH, {}, []),
    ],
)
def test_each_file_has_a_line_of_its_own(
    tmp_path: Path, old: Mapping[str, str], new: Mapping[str, str], sentences: list[str]
) -> None:
    root = results(tmp_path / "r", cell("1", old), cell("2", old))
    rest = "the runs of own: 2 experiments are new; the older runs stay"
    assert said(root, cell("1", new), cell("2", new)) == [f"{text} {rest}" for text in sentences]


@pytest.mark.parametrize("started_at", [1e300, -1e300, 1e18])
def test_a_time_that_cannot_be_is_not_shown(tmp_path: Path, started_at: float) -> None:
    root = results(tmp_path / "r", cell("1", BOTH), started_at=started_at)
    (text,) = said(root, cell("1", {**BOTH, "model.py": "2"}))
    assert text == "model.py changed since the runs of own: 1 experiment is new; the older runs stay"


def test_only_an_experiment_that_is_otherwise_equal_is_compared(tmp_path: Path) -> None:
    root = results(tmp_path / "r", cell("1", BOTH), cell("1", BOTH, scenario="other"))
    edited = {**BOTH, "model.py": "2"}
    assert said(root, cell("3", edited)) == said(root, cell("1", edited, scenario="third")) == []
    assert said(root, cell("1", edited), cell("1", edited, scenario="other"), cell("9", edited)) == [
        "model.py changed since the runs of own, other: 2 experiments are new; the older runs stay"
    ]


def test_the_newest_runs_count_and_a_content_that_has_run_is_not_news(tmp_path: Path) -> None:
    second, third = ({**BOTH, "train.py": digest} for digest in "23")
    root = results(tmp_path / "r", cell("1", BOTH), cell("1", second))
    assert said(root, cell("1", {**second, "model.py": "2"})) == [
        "model.py changed since the runs of own: 1 experiment is new; the older runs stay"
    ]
    assert said(root, cell("1", BOTH)) == said(root, cell("1", second)) == []
    assert said(tmp_path / "none", cell("1", third)) == []
