"""Which columns are shown: properties of `varying`, and the reading order."""

from __future__ import annotations

import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.results.table.column_choice import (
    BOOKKEEPING,
    DEFAULT_KEEP,
    cells,
    choose,
    for_people,
    matches,
    needed,
    varying,
)

NAMES = st.sampled_from(["a", "b", "c", "mem_x", "mem_y", "id"])
VALUES = st.one_of(st.none(), st.integers(0, 2))


@st.composite
def frames(draw: st.DrawFn) -> pd.DataFrame:
    names = draw(st.lists(NAMES, unique=True))
    length = draw(st.integers(0, 5))
    column = st.lists(VALUES, min_size=length, max_size=length)
    return pd.DataFrame({name: pd.Series(draw(column), dtype="Int64") for name in names}, index=range(length))


PATTERNS = st.lists(st.one_of(NAMES, st.sampled_from(["mem_*", "*", "absent"])), max_size=3)


@given(frames(), PATTERNS, PATTERNS)
def test_columns_are_sorted_kept_or_varying_and_rows_untouched(frame, keep, drop) -> None:
    split = varying(frame, keep=keep, drop=drop)
    assert list(split.shown.columns) == sorted(split.shown.columns)
    assert len(split.shown) == len(frame)
    for name in frame.columns:
        same = len(set(cells(frame[name]))) <= 1
        dropped = matches(name, drop) or name in BOOKKEEPING
        assert (name in split.shown) == (matches(name, keep) or (not same and not dropped))
    assert not set(split.constant) & set(split.shown.columns)


@given(frames(), PATTERNS, PATTERNS)
def test_nothing_is_lost_without_a_reason(frame, keep, drop) -> None:
    split = varying(frame, keep=keep, drop=drop)
    for name in set(frame.columns) - set(split.shown.columns) - set(split.constant):
        assert matches(name, drop) or name in BOOKKEEPING or frame.empty


@given(frames(), PATTERNS)
def test_what_is_shown_splits_into_itself(frame, drop) -> None:
    once = varying(frame, drop=drop).shown
    assert list(varying(once, drop=drop).shown.columns) == list(once.columns)


def test_a_missing_value_is_a_value() -> None:
    frame = pd.DataFrame({"x": pd.Series([1, None], dtype="Int64"), "y": pd.Series([None, None], dtype="Int64")})
    split = varying(frame)
    assert list(split.shown.columns) == ["x"]
    assert dict(split.constant) == {"y": None}


def test_what_the_user_says_wins_over_the_defaults() -> None:
    keep, drop = choose(keep=["provenance_git_commit"], drop=["torch_dtype", "mem_*"])
    assert keep[0] == "provenance_git_commit"
    assert "torch_dtype" not in keep and "mem_nvidia_mem_reserved" not in keep
    assert set(keep) - {"provenance_git_commit"} < set(DEFAULT_KEEP)
    assert drop[:2] == ("torch_dtype", "mem_*")
    frame = pd.DataFrame({"provenance_git_commit": pd.Series(["a", "a"], dtype="string")})
    assert list(varying(frame, keep=keep, drop=drop).shown.columns) == ["provenance_git_commit"]


def test_people_read_what_it_was_then_how_it_ended_then_numbers() -> None:
    names = ["effective_dtype", "train_loss", "status", "learning_rate", "num_gpus", "scenario", "id"]
    assert for_people(names) == [
        "id",
        "scenario",
        "num_gpus",
        "learning_rate",
        "status",
        "train_loss",
        "effective_dtype",
    ]


def test_as_few_columns_are_needed_as_show_one_value_of_each_row() -> None:
    rows = [{"a", "b"}, {"b", "c"}, {"d"}, set()]
    assert needed("abcde", rows) == ["a", "b", "d"]
    assert needed("ab", []) == []
