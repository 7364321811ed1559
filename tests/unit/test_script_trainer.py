"""The trainer `script`: what a scenario with `script:` or `module:` becomes, and what the script is given."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from factories.suites import EIGHT_GPUS, planned, suite
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import ConfigError, SelectionError
from orchestrator.plan.config import load_suite
from orchestrator.plan.expand import Plan, expand
from orchestrator.plan.selection import parse_selection
from orchestrator.plan.view import planned_command
from orchestrator.records import Experiment, Script
from orchestrator.results.experiment_file import measure_alike
from orchestrator.trainers import get


def plan(folder: Path, choices: dict[str, Any] | None = None, **scenario: Any) -> Plan:
    """Plan a scenario with a script that exists, in a folder without defaults."""
    for name in ("train.py", "rows.jsonl", "1", "sgd", "corpus/a.txt", "pkg/__init__.py", "pkg/train.py"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("")
    file = {"scenarios": [{"name": "s", "device": "cpu", **scenario}]}
    return planned(folder, file, defaults="{}\n", **(choices or {}))


def only(folder: Path, **scenario: Any) -> Experiment:
    (experiment,) = plan(folder, **{"script": "train.py", **scenario}).experiments
    assert experiment.skip is None
    return experiment


def words(experiment: Experiment) -> list[str]:
    """Return the words after the instrument's `--`."""
    argv = planned_command(experiment, "python").argv
    return [*argv[argv.index("--") + 1 :]]


def test_a_script_implies_its_trainer_and_stands_where_a_model_would(tmp_path: Path) -> None:
    experiment = only(tmp_path, arguments={"max_steps": 5, "flag": []})
    assert (experiment.trainer, experiment.model, experiment.global_batch) == ("script", "train.py", None)
    assert experiment.id.startswith("s-train.py.none.gpus1-")
    assert words(experiment) == [str(tmp_path / "train.py"), "--max_steps", "5", "--flag"]


def test_a_model_that_is_named_is_an_axis_and_an_argument(tmp_path: Path) -> None:
    found = plan(tmp_path, script="train.py", arguments={"model_name_or_path": ["a/b", "config:x"]}).experiments
    assert [experiment.model for experiment in found] == ["a/b", "config:x"]
    assert words(found[0])[1:] == ["--model_name_or_path", "a/b"]


def test_nothing_is_added_to_what_the_user_wrote(tmp_path: Path) -> None:
    experiment = only(tmp_path, monitors=["hf_memory"], num_gpus=2)
    assert words(experiment) == [str(tmp_path / "train.py")]


def test_a_batch_counts_only_if_the_script_is_given_both_of_its_parts(tmp_path: Path) -> None:
    both = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2}
    assert only(tmp_path, arguments=both, num_gpus=2).global_batch == 16
    assert only(tmp_path, arguments={"per_device_train_batch_size": 4}).global_batch is None
    derived = {"effective_batch_size": 8, "gradient_accumulation_steps": 2}
    assert only(tmp_path, arguments=derived, num_gpus=2).arguments["per_device_train_batch_size"] == "2"


def test_files_next_to_the_scenario_file_are_handed_over_absolute(tmp_path: Path) -> None:
    given = {"data": "rows.jsonl", "mixed": ["./corpus", "far/away.txt"], "fold": 1, "optim": "sgd", "none": ""}
    experiment = only(tmp_path, script=["train.py", "corpus/a.txt", "-v"], arguments=given)
    folder = str(tmp_path)
    assert words(experiment) == [
        *(f"{folder}/train.py", f"{folder}/corpus/a.txt", "-v", "--data", f"{folder}/rows.jsonl"),
        *("--mixed", f"{folder}/corpus", "far/away.txt", "--fold", "1", "--optim", "sgd", "--none", ""),
    ]
    assert experiment.arguments["data"] == "rows.jsonl", "in tables it is what the user wrote"


def test_a_plain_word_that_is_also_a_file_is_a_note(tmp_path: Path) -> None:
    found = plan(tmp_path, script="train.py", arguments={"split": "corpus", "data": "rows.jsonl"})
    assert [note for note in found.notes if "corpus" in note] == [
        "scenario 's': split 'corpus' is also a name in the scenario file's folder, so the script gets that path; "
        "with 'cwd: scenario' it gets the word"
    ]
    assert not [note for note in found.notes if "rows.jsonl" in note]


def test_a_likely_typing_error_is_a_note_since_a_script_takes_any_name(tmp_path: Path) -> None:
    own = {
        "max_stps": 5,
        "bf16": "ture",
        "learning_rate": "fast",
        "speed": 3,
        "optimiser": "adam",
        "eval_strategy": "x",
    }
    assert plan(tmp_path, script="train.py", arguments=own).notes == (
        "max_stps is not an argument of the Trainer; did you mean max_steps? Your script may have max_stps itself",
        "bf16: the Trainer does not accept 'ture'; write true or false, unless your script reads bf16 itself",
        "learning_rate: the Trainer does not accept 'fast'; write a number, unless your script reads learning_rate itself",
    )


@pytest.mark.parametrize("example", ["own_script/scenarios.yaml", "plain_loop/scenarios.yaml"])
def test_the_examples_with_own_programs_have_no_notes(example: str) -> None:
    found = expand(load_suite(Path(__file__).parents[2] / "examples" / example), parse_selection(), EIGHT_GPUS)
    assert found.experiments and not [note for note in found.notes if "Trainer" in note]


def test_in_the_scenario_folder_everything_is_as_written(tmp_path: Path) -> None:
    experiment = only(tmp_path, cwd="scenario", arguments={"data": "rows.jsonl"})
    assert words(experiment)[1:] == ["--data", "rows.jsonl"]
    assert planned_command(experiment, "python").cwd == tmp_path
    assert str(planned_command(only(tmp_path), "python").cwd) == "{run_dir}/output"


def test_that_a_script_may_write_among_the_user_s_files_is_a_note(tmp_path: Path) -> None:
    def noted(**scenario: Any) -> bool:
        return any(
            "lands next to the scenario file" in note for note in plan(tmp_path, script="train.py", **scenario).notes
        )

    assert noted(cwd="scenario")
    assert not noted(cwd="scenario", arguments={"output_dir": "any"}) and not noted()


def test_an_output_folder_is_the_run_s_and_only_if_the_user_gives_one(tmp_path: Path) -> None:
    found = plan(tmp_path, script="train.py", arguments={"output_dir": "/home/me/precious"})
    assert words(found.experiments[0])[1:] == ["--output_dir", "{run_dir}/output"]
    assert "output_dir becomes the run's own folder." in found.notes
    assert "--output_dir" not in words(only(tmp_path))


def test_a_module_is_looked_for_in_the_scenario_s_folder(tmp_path: Path) -> None:
    (experiment,) = plan(tmp_path, module=["pkg.train", "rows.jsonl"], arguments={"a": 1}).experiments
    argv = planned_command(experiment, "python").argv
    assert argv[-8:] == ("--modules-in", str(tmp_path), "--", "-m", "pkg.train", f"{tmp_path}/rows.jsonl", "--a", "1")
    assert experiment.model == "pkg.train"
    assert plan(tmp_path, module="installed.elsewhere").experiments[0].skip is None


def test_a_module_that_python_would_not_find_cannot_run_here(tmp_path: Path) -> None:
    def why(module: str, **more: Any) -> str | None:
        reason = plan(tmp_path, module=module, **more).experiments[0].cannot_run_here
        return reason.text if reason else None

    (tmp_path / "place").mkdir()
    (tmp_path / "place" / "train.py").write_text("")
    assert "there is no module 'pkgg.train'" in (why("pkgg.train", device="cpu") or "")
    assert why("pkgg.train", device="cpu", cwd="scenario", env={"PYTHONPATH": "src"}) is None, "it is unknown"
    for module in ("place.train", "pytest", "json.tool"):
        assert why(module, device="cpu") is None


@pytest.mark.parametrize(
    ("written", "shown"),
    [("train.py", "train.py"), ("./src/train.py", "src/train.py"), ("../x/train.py", "train.py"), ("/a/t.py", "t.py")],
)
def test_the_name_in_tables_has_no_path_that_other_machines_lack(written: str, shown: str) -> None:
    assert Script(script=written, folder="/f").name == shown


def test_a_contradiction_that_the_command_line_makes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"the trainer is 'trl', but 'script:' needs 'trainer: script'"):
        plan(tmp_path, {"trainer": "trl"}, script="train.py")
    with pytest.raises(ConfigError, match=r"there is no script 'other.py' in .*Allowed: train.py"):
        plan(tmp_path, {"settings": ["script=other.py"]}, script="train.py")
    with pytest.raises(SelectionError, match="cwd"):
        plan(tmp_path, {"settings": ["cwd=elsewhere"]}, script="train.py")


@given(
    st.dictionaries(st.sampled_from(["data", "b"]), st.sampled_from(["rows.jsonl", "corpus", "1", "x"]), min_size=1),
    st.sampled_from([{"script": "train.py"}, {"module": "pkg.train"}, {"script": ["train.py", "rows.jsonl"]}]),
    st.sampled_from([{}, {"cwd": "scenario"}]),
)
def test_an_experiment_is_the_same_wherever_its_folder_is(
    tmp_path_factory: pytest.TempPathFactory, arguments: dict[str, str], program: Any, cwd: Any
) -> None:
    here, there = tmp_path_factory.mktemp("here"), tmp_path_factory.mktemp("there")
    (before,) = plan(here, arguments=arguments, **program, **cwd).experiments
    shutil.copytree(here, there, dirs_exist_ok=True)
    (after,) = plan(there, arguments=arguments, **program, **cwd).experiments
    assert (before.id, before.arguments) == (after.id, after.arguments)
    assert before != after and measure_alike(before, after)


@pytest.mark.parametrize("change", [{"script": "./train.py"}, {"cwd": "scenario"}, {"script": ["train.py", "a"]}])
def test_another_script_is_another_experiment(tmp_path: Path, change: dict[str, Any]) -> None:
    assert only(tmp_path).id[-12:] != only(tmp_path, **change).id[-12:]


def test_the_plan_s_arguments_are_those_of_the_command(tmp_path: Path) -> None:
    experiment = only(tmp_path, arguments={"data": "rows.jsonl", "output_dir": "x"})
    assert get("script").arguments(experiment, Path("/r")) == {
        "data": f"{tmp_path}/rows.jsonl",
        "output_dir": "/r/output",
    }


def test_a_script_takes_no_memory_flag_and_no_model(tmp_path: Path) -> None:
    made = suite(tmp_path, {"scenarios": [{"name": "s", "script": "t.py", "device": "cpu"}]}, defaults="{}\n")
    (tmp_path / "t.py").write_text("")
    (experiment,) = expand(made, parse_selection(), EIGHT_GPUS).experiments
    assert experiment.arguments == {}
