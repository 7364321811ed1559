"""What is asked of a results folder now, call by call."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from factories.results import experiment

from orchestrator.results import requested

FILE = Path("/s/scenarios.yaml")


def note(
    root: Path,
    *ids: str,
    names: tuple[str, ...] = ("a", "b"),
    file: Path = FILE,
    but: tuple[str, ...] = (),
    **choices: object,
) -> None:
    wanted = [experiment(id=name, scenario=name.split("-")[0]) for name in ids]
    requested.note(root, file=file, choices={**choices}, names=names, experiments=wanted, not_chosen=but)


def test_a_folder_of_an_older_version_wants_all_that_it_has(tmp_path: Path) -> None:
    assert requested.current(tmp_path) is None


def test_a_changed_file_replaces_what_the_same_call_wanted(tmp_path: Path) -> None:
    note(tmp_path, "a-1", "b-1")
    note(tmp_path, "a-2", "b-1")
    assert requested.current(tmp_path) == {"a-2", "b-1"}


def test_other_choices_add_to_it(tmp_path: Path) -> None:
    note(tmp_path, "a-1", settings={"num_gpus": (1,)})
    note(tmp_path, "a-2", settings={"num_gpus": (2,)})
    assert requested.current(tmp_path) == {"a-1", "a-2"}


def test_scenarios_that_were_left_out_keep_what_they_had(tmp_path: Path) -> None:
    note(tmp_path, "a-1", "b-1")
    note(tmp_path, "a-2")
    assert requested.current(tmp_path) == {"a-2", "b-1"}


def test_experiments_that_were_not_chosen_keep_what_they_had(tmp_path: Path) -> None:
    note(tmp_path, "a-1", "a-2", "a-3", "b-1")
    note(tmp_path, "a-1", but=("a-2", "a-4"))
    assert requested.current(tmp_path) == {"a-1", "a-2", "b-1"}, "a-3 is no longer in the file, a-4 was never asked for"


def test_a_scenario_that_is_gone_from_its_file_is_wanted_by_no_call(tmp_path: Path) -> None:
    note(tmp_path, "a-1", "b-1")
    note(tmp_path, "b-2", settings={"num_gpus": (2,)})
    note(tmp_path, "b-9", names=("b",), file=Path("/other.yaml"))
    note(tmp_path, "a-1", names=("a",))
    assert requested.current(tmp_path) == {"a-1", "b-9"}, "another file's scenario of that name is another"


@pytest.mark.parametrize("spelled", ["sub/../s.yaml", "folder/s.yaml", "link.yaml"])
def test_another_spelling_of_the_path_is_the_same_call(tmp_path: Path, spelled: str) -> None:
    results, file = tmp_path / "r", tmp_path / "s.yaml"
    for folder in (results, tmp_path / "sub"):
        folder.mkdir()
    file.touch()
    (tmp_path / "folder").symlink_to(".")
    (tmp_path / "link.yaml").symlink_to("s.yaml")
    note(results, "a-1", "a-2", "b-1", file=file)
    note(results, "b-2", file=file, settings={"num_gpus": (2,)})
    note(results, "a-2", "a-3", file=tmp_path / spelled)
    assert requested.current(results) == {"a-2", "a-3", "b-1", "b-2"}
    note(results, "a-2", names=("a",), file=file)
    assert requested.current(results) == {"a-2"}


def test_another_spelling_of_a_path_in_a_choice_is_the_same_call(tmp_path: Path) -> None:
    results, file = tmp_path / "r", tmp_path / "s.yaml"
    (tmp_path / "models" / "x").mkdir(parents=True)
    results.mkdir()
    for number, model in enumerate(("models/x", "./models/x", f"{tmp_path}/models/x")):
        note(results, f"a-{number}", file=file, axes={"model_name_or_path": (model, "n")}, settings={"script": model})
        assert requested.current(results) == {f"a-{number}"}
    for model in ("models/y", "models/\0", "x"):
        note(results, f"a-{model}", file=file, axes={"model_name_or_path": (model, "n")}, settings={"script": model})
    broken = results / "asked" / "0.json"
    broken.write_text(json.dumps({"file": str(file), "choices": "[" * 100_000, "scenarios": {"b": ["b-1"]}}))
    note(results, "b-1", file=file, repeats=2)
    broken.unlink()
    assert requested.current(results) == {"b-1", "a-2", "a-models/y", "a-models/\0", "a-x"}, (
        "other paths are other calls"
    )


def test_the_same_path_is_the_same_call_after_its_link_was_changed(tmp_path: Path) -> None:
    results, link = tmp_path / "r", tmp_path / "s.yaml"
    results.mkdir()
    for version in ("a-1", "a-2"):
        (tmp_path / version).touch()
        link.unlink(missing_ok=True)
        link.symlink_to(version)
        note(results, version, file=link)
    assert requested.current(results) == {"a-2"}


def test_a_path_that_no_file_can_have_is_another_call(tmp_path: Path) -> None:
    note(tmp_path, "a-1", file=Path("/s/\0.yaml"))
    note(tmp_path, "a-2")
    assert requested.current(tmp_path) == {"a-1", "a-2"}


def test_a_file_that_a_crash_left_half_written_wants_nothing(tmp_path: Path) -> None:
    note(tmp_path, "a-1")
    note(tmp_path, "a-2", settings={"repeats": 2})
    damaged = min((tmp_path / "asked").iterdir())
    damaged.write_text('{"file": "x", "scen')
    assert len(requested.current(tmp_path) or ()) == 1


def test_a_damaged_file_is_written_anew_by_its_call(tmp_path: Path) -> None:
    note(tmp_path, "a-1")
    (path,) = (tmp_path / "asked").iterdir()
    whole = path.read_bytes()
    path.write_bytes(b"\xff" + whole)
    note(tmp_path, "a-1")
    assert path.read_bytes() == whole


def test_what_was_asked_again_is_not_written_again(tmp_path: Path) -> None:
    note(tmp_path, "a-1")
    (path,) = (tmp_path / "asked").iterdir()
    before = path.stat().st_mtime_ns
    note(tmp_path, "a-1")
    assert path.stat().st_mtime_ns == before
