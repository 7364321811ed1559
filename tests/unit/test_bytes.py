"""Bytes that are no UTF-8, wherever they may come in: no file of results can hold them, and each place says so in a sentence.

Python hands them on as half characters (`\\udcff` for the byte 0xff), which break the first file that they are written to.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from factories.results import experiment
from factories.suites import suite
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import ConfigError, OrchestratorError, PreparationError, ResultsError, SelectionError
from orchestrator.files.printable_text import from_the_difference, is_printable, is_utf8, rounded, with_bytes
from orchestrator.files.redaction import MASK, redact
from orchestrator.plan.config import load_suite
from orchestrator.plan.data import data_path
from orchestrator.plan.selection import parse_selection
from orchestrator.records import DataSpec
from orchestrator.results.store import Store

ROOT = Path(__file__).resolve().parents[2]
BYTE = os.fsdecode(b"\xff")
ONE = "scenarios: [{name: one, trainer: huggingface, device: cpu, arguments: {model_name_or_path: m}}]\n"

pytestmark = pytest.mark.skipif(sys.platform == "darwin", reason="its disks hold no such name")


def test_a_byte_is_shown_as_people_write_it() -> None:
    assert with_bytes(f"x={BYTE}é\ud800") == "x=\\xffé\\ud800"


@given(st.text(st.characters(codec=None, categories=None)))
def test_what_is_shown_can_be_written(text: str) -> None:
    assert is_utf8(with_bytes(text))
    assert with_bytes(text) == text or not is_utf8(text)
    with_bytes(text).encode()


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        ({"settings": [f"arguments.x={BYTE}"]}, "--set arguments.x=\\xff is not UTF-8"),
        ({"settings": [f"arguments.{BYTE}=1"]}, "--set arguments.\\xff=1 is not UTF-8"),
        ({"settings": ["repeats=2", f"env.A={BYTE}"]}, "--set env.A=\\xff is not UTF-8"),
        ({"settings": [f"python=/{BYTE}"]}, "--set python=/\\xff is not UTF-8"),
        ({"settings": [f"unknown{BYTE}"]}, "--set unknown\\xff is not UTF-8"),
        ({"axes": [f"lr=1,{BYTE}"]}, "--axis lr=1,\\xff is not UTF-8"),
        ({"axes": [f"{BYTE}=1"]}, "--axis \\xff=1 is not UTF-8"),
        ({"scenarios": [f"one{BYTE}"]}, "--scenario one\\xff is not UTF-8"),
        ({"settings": [f"env.HF_TOKEN=abcdefgh{BYTE}ijkl"]}, f"--set env.HF_TOKEN={MASK} is not UTF-8"),
    ],
)
def test_a_choice_is_refused(choice: dict[str, Any], said: str) -> None:
    with pytest.raises(SelectionError) as caught:
        parse_selection(**choice)
    assert str(caught.value).startswith(said)
    assert is_printable(str(caught.value))


@pytest.mark.parametrize("kind", ["scenarios", "defaults", "accelerate", "frameworks"])
def test_a_path_of_the_campaigns_files_is_refused(kind: str, tmp_path: Path) -> None:
    (tmp_path / f"in{BYTE}").mkdir()
    suite(tmp_path, ONE)
    load_suite(tmp_path / "scenarios.yaml")
    places = {"scenarios": "scenarios.yaml", "defaults": "defaults.yaml", "accelerate": "accelerate.yaml"}
    name = places.get(kind, "frameworks")
    os.rename(tmp_path / name, tmp_path / f"in{BYTE}" / name)
    given = {"scenarios": tmp_path / "scenarios.yaml", kind: tmp_path / f"in{BYTE}" / name}
    if kind == "scenarios":
        for beside in ("defaults.yaml", "accelerate.yaml", "frameworks"):
            os.symlink(tmp_path / beside, tmp_path / f"in{BYTE}" / beside)
    with pytest.raises(ConfigError) as caught:
        load_suite(given.pop("scenarios"), **given)
    assert f"its path is not UTF-8 ({tmp_path}/in\\xff/{name})" in str(caught.value)


def test_a_results_folder_of_such_a_name_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match=r"/in\\xff: the path is not UTF-8"):
        Store.create(tmp_path / f"in{BYTE}", {})
    assert list(tmp_path.iterdir()) == []


def test_one_that_was_moved_to_such_a_name_can_be_read(tmp_path: Path) -> None:
    Store.create(tmp_path / "results", {})
    os.rename(tmp_path / "results", tmp_path / f"in{BYTE}")
    assert Store.resume(tmp_path / f"in{BYTE}").contents().experiments == ()


def test_prepared_data_lies_in_no_folder_of_such_a_name(tmp_path: Path) -> None:
    with pytest.raises(PreparationError, match=r"/in\\xff: .* set TUNEBENCH_CACHE"):
        data_path(DataSpec(source="builtin:synthetic", form="tokens"), tmp_path / f"in{BYTE}")


def test_what_came_by_another_way_stops_at_the_store(tmp_path: Path) -> None:
    """A link may lead to a file of any name."""
    store = Store.create(tmp_path / "results", {})
    one = experiment(arguments={"training_data_path": f"/data/{BYTE}.json"})
    with pytest.raises(OrchestratorError, match="scenario 's' cannot be written"):
        store.add([one])
    assert store.ids() == []


@pytest.mark.parametrize(
    "said", [f"abc{BYTE}defgh", "abc\N{REPLACEMENT CHARACTER}defgh", "abc?defgh", "abc%FFdefgh", "abc\\udcffdefgh"]
)
def test_a_secret_with_such_bytes_is_masked_however_it_is_written(said: str) -> None:
    assert redact(f"token is {said}.", {"HF_TOKEN": f"abc{BYTE}defgh"}) == f"token is {MASK}."


@pytest.mark.parametrize("words", [("plan", "--set", b"arguments.x=\xff"), ("run", "--yes", "--axis", b"x=1,\xff")])
def test_the_command_says_it_and_exits_with_2(words: tuple[str | bytes, ...], tmp_path: Path) -> None:
    suite(tmp_path, ONE)
    command, *rest = words
    argv = [sys.executable, "-m", "orchestrator", command, "scenarios.yaml", *rest]
    env = {"PYTHONPATH": str(ROOT), "HF_TOKEN": b"\xff\xfe\xfd\xfc\xfb\xfa\xf9\xf8", "HOME": str(tmp_path)}
    ended = subprocess.run(argv, cwd=tmp_path, capture_output=True, timeout=60, env=env)  # type: ignore[arg-type]
    assert ended.returncode == 2, ended.stderr
    assert ended.stderr.startswith(f"error: {rest[-2]} ".encode()) and b"\\xff is not UTF-8" in ended.stderr
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (0.01234, "0.0123"),
        (999.4, "999"),
        (999.6, "1,000"),
        (-12345.6, "-12,346"),
        (0.0, "0"),
        (0.0000958, "0.0000958"),
        (-1e-9, "-0.00000000100"),
    ],
)
def test_a_rounded_number_has_no_exponent(number: float, shown: str) -> None:
    assert rounded(number, 3) == shown


def test_two_long_texts_are_shown_from_their_difference() -> None:
    start = "python train.py " + "--option value " * 10
    assert from_the_difference(start + "--kind x", start + "--kind y", longest=80) == (
        "…option value --kind x",
        "…option value --kind y",
    )
    assert from_the_difference("a" * 90, "b" * 90, longest=80) == ("a" * 90, "b" * 90)
    assert from_the_difference("--kind x", "--kind y", longest=80) == ("--kind x", "--kind y")
