"""One campaign over names and values that are a trap for a shell, a path, a terminal or a table: none of them is anything but text.

The trainer is a script that prints its arguments as JSON, so that what arrived can be held against what the scenario file says.
"""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from arguments import Own
from campaigns import Call, Campaign, tunebench

from orchestrator.files.printable_text import is_printable
from orchestrator.records.experiment import SAFE_ID
from orchestrator.results.contents import StoredExperiment
from orchestrator.results.store import Store

ROOT = Path(__file__).resolve().parents[2]

TRAPS = {
    "quotes": 'it\'s "quoted" `backticked`',
    "substitution": "$(touch CANARY) `touch CANARY` ${HOME} $HOME !x",
    "commands": "; touch CANARY & touch CANARY | touch CANARY > CANARY #",
    "newlines": "two\nlines\rand\r\nmore\ttab",
    "up": "../../../CANARY",
    "root": "/CANARY",
    "ansi": "\x1b[31mred\x1b[2J\x1b]0;title\x07",
    "controls": "bell\x07 back\x08 delete\x7f next\x85 csi\x9b31m",
    "long": "l" * 300,
    "emoji": "🔥👩‍👩‍👧 日本語",
    "direction": "abc\u202egnp.exe\u2066\u200f",
    "dash": "-rf",
    "option": "--help",
    "equals": "=1+1|A0",
    "device": "CON.txt",
    "nul-device": "NUL",
    "braces": "{model} {0} %s %(x)s \\n \\",
    "stars": "* ? [a-z] ~",
    "markup": "<b>x</b> | [y](javascript:z) [red]rich[/red]",
    "dots": "..",
    "blank": " ",
}

TRAINER = """\
import json, os, sys
print("\\x1b[31mcoloured\\x1b[0m", os.environ["TRAP"] == sys.argv[1])
print(json.dumps({"train_runtime": 1.0, "train_loss": 1.5, "argv": sys.argv[1:], "trap": os.environ["TRAP"]}))
"""
COMMAND = "{python} {scenario_dir}/trainer.py {value} -x {list} --key={value} {arguments}"


def scenario(name: str, text: str) -> dict[str, Any]:
    as_word = re.sub(r"\{(\w+)\}", r"{{\1}}", text)  # in a command {x} is a placeholder
    return {
        "name": text,
        "trainer": "custom",
        "device": "cpu",
        "framework_config": [text],
        "arguments": {"model_name_or_path": text, "value": text, "list": [text, "b"]},
        "tags": [text, name],
        "env": {"TRAP": text},
        "custom": {
            "command": [
                *["{python}", "{scenario_dir}/trainer.py", "{value}", "-x", "{list}", "--key={value}", "{arguments}"],
                as_word,
            ],
            "launcher": "none",
            "metrics": {"train_runtime": {"key": "train_runtime"}, "train_loss": {"key": "train_loss"}},
        },
    }


class Deep(Campaign):
    """A campaign whose results lie deeper, so that what leads out of them is found."""

    @property
    def results(self) -> Path:
        return self.folder / "deep" / "results"

    def experiments(self) -> tuple[StoredExperiment, ...]:
        return Store.resume(self.results).contents().experiments


def files_of(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Deep:
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "trainer.py").write_text(TRAINER)
    (folder / "frameworks").mkdir()
    contents = [{"shortname": text, "filename": f"{name}.yaml"} for name, text in TRAPS.items()]
    (folder / "frameworks" / "CONTENTS.yaml").write_text(yaml.safe_dump({"framework_configs": contents}))
    for name, text in TRAPS.items():
        file = folder / "frameworks" / f"{name}.yaml"
        file.write_text(yaml.safe_dump({"description": text, "arguments": {"from_framework": text}}))
    suite = {"scenarios": [scenario(name, text) for name, text in TRAPS.items()]}
    (folder / "scenarios.yaml").write_text(yaml.safe_dump(suite, sort_keys=False))
    (folder / "deep").mkdir()
    before = files_of(folder)
    done = tunebench(folder, "run", "scenarios.yaml", "--results", "deep/results", "--yes", "--parallel", "2")
    made = {path for path in files_of(folder) - before if not path.startswith("deep/results")}
    assert made <= {"cache"}, "something was made outside of the results folder"
    return Deep(folder=folder, code=done.code, out=done.out, err=done.err)


def test_every_run_is_recorded_and_well(campaign: Deep) -> None:
    assert campaign.code == 0, campaign.err
    found = campaign.experiments()
    assert len(found) == len(TRAPS)
    assert {one.experiment.scenario for one in found} == set(TRAPS.values())
    assert all([record.status for record in one.records] == ["ok"] for one in found)


def test_every_experiment_has_a_tame_folder_of_its_own(campaign: Deep) -> None:
    names = [path.name for path in (campaign.results / "experiments").iterdir()]
    assert sorted(names) == sorted(one.experiment.id for one in campaign.experiments())
    assert all(map(SAFE_ID.fullmatch, names))
    assert len({name.casefold() for name in names}) == len(names), "a disk may take two of them for one"
    assert not [name for name in names if name.partition(".")[0].upper() in ("CON", "NUL", "PRN", "AUX", "COM1")]


def test_nothing_was_run_and_nothing_lies_elsewhere(campaign: Deep) -> None:
    assert not [path for path in campaign.folder.rglob("*") if path.name == "CANARY"]
    for place in (Path.cwd(), Path("/"), Path.home()):
        assert not (place / "CANARY").exists()


def printed(stdout: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(stdout.splitlines()[-1])
    return found


def test_what_the_file_says_is_what_arrives(campaign: Deep) -> None:
    for one in campaign.experiments():
        text = one.experiment.scenario
        given = printed(log_of(one, "stdout.log"))
        assert given["trap"] == text
        assert given["argv"][:5] == [text, "-x", text, "b", f"--key={text}"]
        assert given["argv"][-1] == text
        assert one.experiment.framework is not None and one.experiment.framework.name == text
        assert text in given["argv"] or f"--from_framework={text}" in given["argv"]


def log_of(one: StoredExperiment, name: str) -> str:
    return (one.runs[-1].job.run_dir / name).read_bytes().decode()


def test_the_script_repeats_exactly_the_command(campaign: Deep, tmp_path: Path) -> None:
    """Run by bash, from elsewhere, with nothing of ours around it."""
    for number, one in enumerate(campaign.experiments()):
        script = one.runs[-1].job.run_dir / "command.sh"
        folder = tmp_path / str(number)
        done = subprocess.run(["bash", str(script), str(folder)], cwd=tmp_path, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()
        assert printed(done.stdout.decode()) == printed(log_of(one, "stdout.log"))
    assert not [path for path in tmp_path.rglob("*") if path.name == "CANARY"]


def test_what_is_shown_steers_no_terminal(campaign: Deep) -> None:
    assert is_printable(campaign.out) and is_printable(campaign.err)
    assert "␛[31mred" in campaign.out
    assert all(is_printable(log_of(one, "command.sh")) for one in campaign.experiments())
    document = tunebench(campaign.folder, "plan", "scenarios.yaml", "--json")
    assert is_printable(document.out)
    assert {one["scenario"] for one in json.loads(document.out)["experiments"]} == set(TRAPS.values())


def test_the_report_as_csv_is_what_the_file_says(campaign: Deep) -> None:
    """For programs, whole: nothing is changed in it, and nothing runs off into another cell."""
    done = tunebench(campaign.folder, "report", "deep/results", "--format", "csv", "--keep", "scenario,value,tags")
    assert done.code == 0
    rows = list(csv.DictReader(io.StringIO(done.out, newline="")))
    assert [row["value"] for row in rows] == list(TRAPS.values())
    assert {row["scenario"] for row in rows} == set(TRAPS.values())
    assert "formula" in done.err


def test_the_plans_commands_can_be_pasted(campaign: Deep, tmp_path: Path) -> None:
    """Each line, handed to bash with the placeholders filled, gives the trainer what the run gave it."""
    done = tunebench(campaign.folder, "plan", "scenarios.yaml", "--commands")
    assert is_printable(done.out)
    for one in campaign.experiments():
        text = done.out.partition(f"# {one.experiment.id}\n")[2].partition("\n# ")[0]
        line = subprocess.run(["bash", "-c", text], cwd=tmp_path, capture_output=True, check=False)
        assert line.returncode == 0, line.stderr.decode()
        assert printed(line.stdout.decode()) == printed(log_of(one, "stdout.log"))
    assert not list(tmp_path.iterdir())


def on_a_terminal(folder: Path, *words: str) -> str:
    """What a terminal gets of a command whose output it is."""
    mine, theirs = pty.openpty()
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}
    child = subprocess.Popen(
        [sys.executable, "-m", "orchestrator", *words], cwd=folder, env=variables, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    said = b"".join(read_all(mine))
    os.close(mine)
    assert child.wait() == 0
    return said.decode().replace("\r\n", "\n")


def read_all(descriptor: int) -> Iterator[bytes]:
    while True:
        try:
            piece = os.read(descriptor, 65536)
        except OSError:  # the last writer is gone
            return
        if not piece:
            return
        yield piece


@pytest.mark.parametrize("form", ["csv", "json", "markdown", "table"])
def test_a_terminal_is_not_steered_by_a_report_in_any_form(campaign: Deep, form: str) -> None:
    said = on_a_terminal(campaign.folder, "report", "deep/results", "--format", form, "--keep", "scenario,value")
    assert is_printable(said)
    assert "red" in said


def test_running_again_finds_everything_done(campaign: Deep) -> None:
    before = {path: path.stat().st_mtime_ns for path in campaign.results.glob("experiments/**/*")}
    done = tunebench(campaign.folder, "run", "scenarios.yaml", "--results", "deep/results", "--yes")
    assert done.code == 0
    assert {path: path.stat().st_mtime_ns for path in campaign.results.glob("experiments/**/*")} == before


# ------------------------------------------------------------------------------- what is refused, and where it stands

REFUSED = {
    "a raw escape": ("scenarios:\n- name: 'a\x1bb'\n", 2, "control character"),
    "a raw NUL": ("scenarios:\n- name: 'a\x00b'\n", 2, "control character"),
    "a NUL by its escape": ('scenarios:\n- name: "a\\0b"\n', 2, "NUL"),
    "half of a pair": ('scenarios:\n- name: "\\ud800"\n', 2, "surrogate|Unicode"),
    "a NUL in a variable": ('scenarios:\n- name: a\n  env: {A: "\\0"}\n', 3, "NUL"),
    "a variable that is none": (
        'scenarios:\n- name: a\n  env:\n    "A=$(touch CANARY)": x\n',
        None,
        "name of a variable",
    ),
    "an object": ("scenarios:\n- !!python/object/apply:os.system ['touch CANARY']\n", 2, "tag"),
    "an empty name": ('scenarios:\n- name: ""\n', 2, "not empty"),
}


@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.parametrize("command", ["plan", "run"])
def test_what_a_file_cannot_hold_is_refused_with_its_place(kind: str, command: str, tmp_path: Path, call: Call) -> None:
    text, line, said = REFUSED[kind]
    (tmp_path / "s.yaml").write_bytes(text.encode())
    code, _, err = call(tmp_path, command, "s.yaml")
    assert code == 2
    assert re.search(rf"s\.yaml:{line or '[0-9]+'}:.*{said}", err.replace("\n", " ")), err
    assert is_printable(err)
    assert files_of(tmp_path) == {"s.yaml"}


def test_mistakes_are_told_without_the_traps_in_them(campaign: Deep, tmp_path: Path) -> None:
    wrong = {"scenarios": [{"name": text, TRAPS["ansi"]: 1, "device": text} for text in TRAPS.values()]}
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(wrong))
    absent = tunebench(campaign.folder, "show", TRAPS["ansi"], "--results", "deep/results")
    for done in (tunebench(tmp_path, "plan", "s.yaml"), absent):
        assert done.code == 2
        assert is_printable(done.err) and "Traceback" not in done.err


@pytest.mark.parametrize("option", ["--scenario", "--set", "--axis", "--num-gpus", "--trainer"])
def test_choices_on_the_command_line_may_be_traps_too(campaign: Deep, call: Call, option: str) -> None:
    for name in TRAPS if option == "--scenario" else ("ansi", "substitution"):
        code, out, err = call(campaign.folder, "plan", "scenarios.yaml", f"{option}={TRAPS[name]}")
        assert code in (0, 2), err
        assert is_printable(out + err)
        assert "Traceback" not in err


def test_two_scenarios_whose_names_come_to_one_folder_are_refused(tmp_path: Path) -> None:
    """What makes a folder's name of a name forgets; what is measured would be one experiment under both."""
    twins = [scenario("a", "same") | {"name": name, "framework_config": [None]} for name in ("🔥", "🎉")]
    (tmp_path / "s.yaml").write_text(yaml.safe_dump({"scenarios": twins}))
    (tmp_path / "trainer.py").touch()
    done = tunebench(tmp_path, "plan", "s.yaml")
    assert done.code == 2
    assert re.search(r"s\.yaml:\d+:\d+: .*rename one", done.err), done.err


# ------------------------------------------------------------------------------------------- code that comes with a model


@pytest.mark.parametrize("trainer", ["huggingface", "trl", "fms_hf_tuning"])
def test_code_of_a_model_is_run_only_where_the_scenario_says_so(trainer: str, tmp_path: Path) -> None:
    models = {"model_name_or_path": "org/model"}
    scenarios = [
        {"name": "silent", "trainer": trainer, "device": "cpu", "arguments": models},
        {"name": "asked", "trainer": trainer, "device": "cpu", "arguments": {**models, "trust_remote_code": True}},
    ]
    (tmp_path / "s.yaml").write_text(yaml.safe_dump({"scenarios": scenarios}))
    done = tunebench(tmp_path, "plan", "s.yaml", "--json")
    assert done.code == 0, done.err
    assert Own.__dataclass_fields__["trust_remote_code"].default is False, "nor by itself, in the built-in trainer"
    silent, asked = json.loads(done.out)["experiments"]
    assert not [word for word in silent["command"] if "trust_remote_code" in word]
    assert asked["command"][asked["command"].index("--trust_remote_code") + 1] == "True"
    assert silent["id"][-12:] != asked["id"][-12:]


def test_the_row_says_that_code_of_the_model_was_run(tmp_path: Path) -> None:
    custom = {"command": ["{python}", "-c", "0", "{arguments}"], "launcher": "none"}
    one = {"name": "s", "trainer": "custom", "device": "cpu", "custom": custom}
    (tmp_path / "s.yaml").write_text(
        yaml.safe_dump({"scenarios": [{**one, "matrix": {"trust_remote_code": [True, None]}}]})
    )
    assert tunebench(tmp_path, "run", "s.yaml", "--yes").code == 0
    for name in ("benchmarks.csv", "raw_summary.csv"):
        with (tmp_path / "results" / name).open(newline="") as file:
            assert sorted(row["trust_remote_code"] for row in csv.DictReader(file)) == ["", "True"]
