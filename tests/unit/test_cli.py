"""The command line: its frozen options, what `plan` shows, exit codes, sentences instead of tracebacks."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from factories.cases import text
from factories.results import ended, experiment, failed, stored
from factories.suites import EIGHT_GPUS

import tunebench
from orchestrator import cli
from orchestrator.campaign import steps, way
from orchestrator.campaign.loop import Summary
from orchestrator.cli import help
from orchestrator.cli.terminal import console
from orchestrator.errors import SelectionError
from orchestrator.machine.provenance import Machine
from orchestrator.plan.config import load_suite, schema_text
from orchestrator.plan.expand import Plan, expand
from orchestrator.plan.selection import Selection, parse_selection
from orchestrator.records import Device, Status
from orchestrator.results import claims
from orchestrator.results.due_runs import NO_RETRY, Retry
from orchestrator.results.store import Store, write_record
from orchestrator.results.unfinished_record import unfinished_record

ROOT = Path(__file__).resolve().parents[2]
Golden = Callable[[str, str], None]
Call = Callable[..., tuple[int, str, str]]

SCENARIOS = text("scenarios/cli.yaml")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "scenarios.yaml"
    path.write_text(SCENARIOS)
    return path


@pytest.fixture
def call(in_process: Call) -> Call:
    """`call("plan", …)` in this process, in a folder of its own: exit code, stdout, stderr."""
    return partial(in_process, width=160)


def plain(text: str, *folders: Path) -> str:
    """The text without the paths of this machine, and without blanks at line ends."""
    for name, folder in (
        ("{interpreter}", Path(sys.executable)),
        ("{repository}", ROOT),
        *(("{tmp}", one) for one in folders),
    ):
        text = text.replace(str(folder), name)
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def test_the_options_are_frozen(golden: Golden) -> None:
    """A flag is for ever: one that comes or goes must be meant."""
    commands: Any = typer.main.get_command(cli.app)
    env: Any = commands.commands["env"]
    lines = []
    for name, command in sorted(
        {**commands.commands, **{f"env {name}": one for name, one in env.commands.items()}}.items()
    ):
        lines.append(f"{name}{' (hidden)' if command.hidden else ''}")
        lines += [f"  {' '.join(sorted(option.opts))}" for option in command.params if option.name != "help"]
    golden("cli/options.txt", "\n".join(lines) + "\n")


def test_the_help_is_in_groups_with_examples(call: Call, golden: Golden) -> None:
    commands: Any = typer.main.get_command(cli.app)
    shown = {name: one for name, one in commands.commands.items() if not one.hidden}
    assert sorted(name for names in help.COMMANDS.values() for name in names) == sorted(shown)
    options = {option.opts[0] for one in shown.values() for option in one.params}
    assert {name for names in help.OPTIONS.values() for name in names} <= options, "a group has an option that is gone"
    assert sorted(help.EXAMPLES) == sorted(shown), "each has an example"


@pytest.mark.parametrize("name", ["", *sorted(name for names in help.COMMANDS.values() for name in names)])
def test_the_help_fits_the_terminal(call: Call, golden: Golden, name: str) -> None:
    words = (name, "--help") if name else ("--help",)
    for width in (80, 140):
        code, out, err = call(*words, width=width)
        assert (code, err) == (0, "") and "…" not in out
        assert max(map(len, out.splitlines())) <= width
        if width == 80:
            golden(f"cli/help/{name or 'tunebench'}.txt", out)
    if name == "run":
        assert max(map(len, out.splitlines())) > 100, "the width of the terminal"


def test_the_help_loads_nothing_heavy() -> None:
    code = "import sys; sys.argv = ['tunebench', '--help']; from orchestrator.cli import main\n"
    code += "try: main()\nfinally: print(*sys.modules)"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.splitlines()[-1].split()}
    assert not loaded & {"torch", "transformers", "pandas", "numpy", "plotly", "scipy", "yaml", "rich", "pydantic"}


# This machine may have no GPU, and the two sides of the comparison have the same runs.
ENDS = {"monitor": (0, 1), "doctor": (0, 1), "compare": (0, 4)}


def carry_out(call: Call, folder: Path, lines: list[str]) -> None:
    """Give the commands in this order. A campaign is not started: its results folder is made after `init`."""
    for line in lines:
        words = shlex.split(line.partition(" > ")[0], comments=True)[1:]
        if words[0] == "plan" and not (folder / "old").exists():
            planned = expand(load_suite(folder / words[1]), Selection(), Machine()).experiments
            for name in ("results", "old/results", "new/results", "nightly/results"):
                (folder / name).parent.mkdir(exist_ok=True)
                stored(folder / name, *((one, [ended(one, 1, tokens_per_s=100.0)]) for one in planned))
                run = min((folder / name).glob("experiments/*.none.*/runs/*"))
                (run / "profile").mkdir()
                step = {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#12", "ts": 0, "dur": 10}
                (run / "profile" / "rank0.json").write_text(json.dumps({"traceEvents": [step]}))
        if words[0] in ("export", "status") and words[-1] in ("tensorboard", "--watch"):
            continue  # it needs another package, or it waits for the runs
        if words[0] in ("site", "bisect", "screen", "tune", "verify"):
            continue  # it needs a cluster, a repository with these commits, or up to a minute; or it starts runs
        words = [each for word in words for each in (sorted(map(str, Path().glob(word))) if "*" in word else [word])]
        code, _, err = call(*words, *(["--dry-run"] if words[0] == "run" and "--dry-run" not in words else []))
        assert code in ENDS.get(words[0], (0,)), f"{line}: {err}"


def test_the_examples_of_the_help_run_as_they_are(call: Call, tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    carry_out(
        call, tmp_path, [line for names in help.COMMANDS.values() for name in names for line in help.EXAMPLES[name]]
    )


def test_the_commands_of_the_readme_run_as_they_are(call: Call, tmp_path: Path) -> None:
    for name in ("docs", "examples"):
        (tmp_path / name).symlink_to(ROOT / name)
    lines = re.findall(r"^tunebench .*$", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(lines) >= 7
    carry_out(call, tmp_path, lines)


def test_many_warnings_that_differ_by_numbers_alone_are_one(capsys: pytest.CaptureFixture[str]) -> None:
    alike = [f"cell-{number}: the mean step is {number}.5% longer than the median step" for number in range(1, 40)]
    console.tell_warnings([*alike[:3], "a.csv: cannot be read", "no subject"])
    assert len(capsys.readouterr().err.splitlines()) == 5, "a few are told one by one"
    console.tell_warnings([*alike, "a.csv: cannot be read"])
    first, second = capsys.readouterr().err.splitlines()
    assert first == f"warning: {alike[0]} (and 38 more like this)" and second == "warning: a.csv: cannot be read"


def test_the_version(call: Call) -> None:
    assert call("--version") == (0, f"tunebench {tunebench.__version__}\n", "")


@pytest.mark.parametrize("width", [80, 160])
def test_the_plan_as_a_table(call: Call, file: Path, golden: Golden, width: int) -> None:
    code, out, err = call("plan", file, width=width)
    assert (code, err) == (0, "")
    golden(f"cli/plan-{width}.txt", plain(out, file.parent))


def test_names_that_would_look_alike_when_cut_have_a_line_of_their_own(call: Call, tmp_path: Path) -> None:
    (tmp_path / "frameworks").mkdir()
    names = [f"a-long-name-of-a-configuration-{number}" for number in (1, 2)]
    entries = [{"shortname": name, "filename": "same.yaml"} for name in names]
    (tmp_path / "frameworks" / "CONTENTS.yaml").write_text(yaml.safe_dump({"framework_configs": entries}))
    (tmp_path / "frameworks" / "same.yaml").write_text("description: Nothing.\n")
    models = ["org/one-model", "org/another-model"]
    scenario = {"name": "s", "framework_config": names, "arguments": {"model_name_or_path": models, "max_steps": 20}}
    (tmp_path / "s.yaml").write_text(yaml.safe_dump({"scenarios": [{**scenario, "device": "cpu"}]}))
    wide, narrow = (call("plan", tmp_path / "s.yaml", width=width)[1].splitlines() for width in (160, 64))
    assert wide[2].split() == ["framework", "model", "GPUs", "id", "state"]
    assert narrow[2].rstrip() == "framework · model" and narrow[3].split() == ["GPUs", "id", "state"]
    assert [line.rstrip() for line in narrow[4:12:2]] == [f"{name} · {model}" for model in models for name in names]


def test_an_argument_that_is_cut_keeps_the_beginning_of_its_name_and_the_end_of_its_value(
    call: Call, tmp_path: Path
) -> None:
    arguments = {"operator": "swiglu", "shape": "8x8"}
    scenario = {"name": "s", "trainer": "operators", "device": "cpu", "arguments": arguments}
    matrix = {"implementation": ["eager", "mine:swiglu"]}
    (tmp_path / "s.yaml").write_text(yaml.safe_dump({"scenarios": [{**scenario, "matrix": matrix}]}))
    lines = call("plan", tmp_path / "s.yaml", width=78)[1].splitlines()
    assert [line.split()[1] for line in lines[3:5]] == ["implementation=eager", "implem…on=mine:swiglu"]


def test_the_plan_as_commands(call: Call, file: Path, golden: Golden) -> None:
    code, out, _ = call("plan", file, "--scenario", "small", "--commands")
    assert code == 0
    golden("cli/plan-commands.txt", plain(out, file.parent))


def test_the_plan_as_json(call: Call, file: Path, golden: Golden) -> None:
    code, out, _ = call("plan", file, "--json")
    document = json.loads(out)
    assert code == 0
    assert len(document["experiments"]) == 13 and len(document["collapsed"]) == 1
    assert document["collapsed"][0]["id"] == document["experiments"][-1]["id"]
    assert {one["skip"]["kind"] for one in document["experiments"] if one["skip"]} == {
        "batch_does_not_divide",
        "framework_needs_device",
    }
    golden("cli/plan-one.json", plain(json.dumps(document["experiments"][0], indent=1), file.parent))


def test_run_with_dry_run_is_the_plan(call: Call, file: Path) -> None:
    assert call("run", file, "--dry-run", "--json") == call("plan", file, "--json")


def listed(call: Call, *words: object) -> dict[str, dict[str, Any]]:
    code, out, _ = call("list", *words, "--json")
    assert code == 0
    return {row["name"]: row for row in json.loads(out)}


def test_models_trainers_and_metrics_are_listed(call: Call) -> None:
    models, trainers, metrics = (listed(call, kind) for kind in ("models", "trainers", "metrics"))
    assert models["config:llama-2-7b"] == {
        **{"name": "config:llama-2-7b", "architecture": "llama", "parameters": 6_738_415_616, "layers": 32}
    }
    assert {"huggingface", "script", "custom"} <= {*trainers}
    assert all(row["description"].endswith(".") for row in trainers.values())
    assert metrics["tokens_per_s"]["better"] == "higher" and metrics["step_time_s"]["unit"] == "s"
    _, out, _ = call("list", "models")
    assert "config:llama-2-7b" in out and "6,738,415,616" in out


def test_a_list_is_as_wide_as_the_terminal(call: Call) -> None:
    sentence = "Tokens of all ranks' steady steps ÷ the time until the last rank finished these steps"
    facts = ["tokens_per_s", "tokens/s, all devices", "higher"]
    rows = {width: call("list", "metrics", COLUMNS=width)[1].splitlines() for width in ("", "100", "120")}
    assert re.split("  +", rows[""][1]) == [*facts, sentence], "a program gets whole rows"
    assert re.split("  +", rows["100"][2]) == facts and rows["100"][3] == f"  {sentence}"
    assert rows["120"][1].endswith("Tokens of all ranks' steady steps ÷ the time until")
    assert rows["120"][2].lstrip() == "the last rank finished these steps"
    assert all(len(line) <= int(width) for width in ("100", "120") for line in rows[width])
    assert call("list", "metrics", COLUMNS="0")[1].splitlines() == rows[""], "0 means that the width is not known"


@pytest.mark.parametrize("option", ["--cell", "--framework", "--model", "--num-gpus"])
def test_an_empty_choice_is_a_mistake_and_does_not_choose_everything(call: Call, option: str) -> None:
    expected = f"error: {option} is empty, and would choose everything; give it a value, or leave it out\n"
    assert call("plan", ROOT / "scenarios.yaml", option, "") == (2, "", expected)


def test_an_empty_interpreter_is_a_mistake(call: Call) -> None:
    expected = "error: --python is empty; give it the path of an interpreter, or leave it out\n"
    assert call("doctor", "--python", "") == (2, "", expected)


def test_a_word_that_is_not_allowed_is_named_with_those_that_are(call: Call) -> None:
    code, _, err = call("list", "optimizers")
    allowed = "Allowed: frameworks, metrics, models, trainers"
    assert code == 2 and err == f"error: kind 'optimizers' is not allowed. {allowed}\n"


def test_the_framework_configurations_of_the_folder_that_a_plan_uses_are_listed(call: Call, tmp_path: Path) -> None:
    shipped = listed(call, "frameworks", tmp_path / "scenarios.yaml")
    assert shipped["liger"]["trainers"] == ["huggingface", "trl", "trl_dpo", "fms_hf_tuning"]
    (tmp_path / "frameworks").mkdir()
    contents = "framework_configs:\n- {shortname: mine, filename: mine.yaml}\n"
    (tmp_path / "frameworks" / "CONTENTS.yaml").write_text(contents)
    (tmp_path / "frameworks" / "mine.yaml").write_text("description: One [bold] sentence. Another.\n")
    for words in ((tmp_path / "scenarios.yaml",), ("--frameworks", tmp_path / "frameworks")):
        assert [*listed(call, "frameworks", *words)] == ["mine"]
    _, out, err = call("list", "frameworks", tmp_path / "scenarios.yaml")
    assert "One [bold] sentence\n" in "\n".join(line.rstrip() for line in out.splitlines()) + "\n"
    assert f"framework configurations of {tmp_path}/frameworks" in err


@pytest.mark.parametrize("option", ["--json", "--commands"])
def test_what_shows_a_plan_does_not_run_it(call: Call, file: Path, tmp_path: Path, option: str) -> None:
    code, out, err = call("run", file, option, "--results", tmp_path / "results")
    assert (code, out) == (2, "") and not (tmp_path / "results").exists()
    assert err.startswith(f"error: {option} shows a plan; add --dry-run, or use ")


def test_a_dry_run_has_no_events(call: Call, file: Path) -> None:
    code, out, err = call("run", file, "--dry-run", "--json-lines")
    assert (code, out) == (2, "") and "write --json for the plan" in err


def test_a_dry_run_says_what_stands_in_the_folder(call: Call, file: Path, tmp_path: Path) -> None:
    results = tmp_path / "results"
    words = ("run", file, "--scenario", "small", "--dry-run", "--results", results)
    assert "would run" not in call(*words)[1] and not results.exists()
    planned = expand(load_suite(file), parse_selection(scenarios=["small"]), Machine())
    ready = [one for one in planned.experiments if not one.skip]
    store = Store.create(results, {})
    store.add(planned.experiments)
    first = store.plan(planned.experiments)[0]
    first.run_dir.mkdir(parents=True)
    write_record(first.run_dir, unfinished_record(first, Status.FAILED))
    runs = 2 * len(ready)
    assert f"{results}: of {runs} runs 1 have ended there, and {runs - 1} would run." in call(*words)[1]
    assert f"of {runs} runs 0 have ended there" in call(*words, "--retry-failed")[1]
    plan = ("plan", file, "--scenario", "small", "--results", results)
    assert f"{results}: of {runs} runs 1 have ended there, and {runs - 1} would run." in call(*plan)[1]
    assert "have ended" not in call(*plan, "--assume", "1x80GB")[1], "runs on another machine"
    assert "would run" not in call(*words, "--move-aside")[1]
    second = store.plan(planned.experiments)[0]
    assert claims.claim(second, executor="local") is not None
    claims.take_over(second.run_dir)
    said = f"of {runs} runs 1 have ended there, 1 are running, and {runs - 2} would run."
    assert said in call(*words)[1], "this process is its owner, and lives"
    fewer = call(*words, "--repeats", "1")[1]
    assert f"of {len(ready)} runs 1 have ended there, 1 are running" in fewer, "of those that are asked for now"


def test_a_kind_of_failure_that_there_is_not_is_no_scenario_file(call: Call, file: Path) -> None:
    code, _, err = call("run", file, "--retry-failed", "oom_cuad", "--results", "nowhere")
    assert code == 2 and "'oom_cuad' is not a kind of failure; did you mean 'oom_cuda'?" in err


@pytest.mark.parametrize("kinds", ["typo", "typo,oom_host", "oom_host, typo", "Typo 2", "oom_cuda,typo,"])
@pytest.mark.parametrize("words", ["run FILE --retry-failed KINDS", "run --retry-failed KINDS FILE --dry-run"])
def test_a_word_that_is_one_too_many_after_retry_failed_is_meant_as_its_kinds(
    call: Call, file: Path, kinds: str, words: str
) -> None:
    """The error is that of `--retry-failed=typo`."""
    given = [{"FILE": str(file), "KINDS": kinds}.get(word, word) for word in words.split()]
    code, _, err = call(*given)
    assert code == 2 and "is not a kind of failure" in err and "Allowed: " in err and "too many" not in err
    assert f"--retry-failed {kinds}" in err and "typo" in err.lower()


def test_a_file_after_retry_failed_is_not_its_kinds(call: Call, file: Path) -> None:
    other = file.with_name("other.yaml")
    other.touch()
    err = call("run", "--retry-failed", file, other)[2]
    assert f"'{other}' is one argument too many" in err
    assert "too many" in call("run", file, other, "--retry-failed", "--dry-run")[2]
    assert "runs" in call("run", "--dry-run", "--retry-failed", file, "--results", file.with_name("r"))[1]
    assert cli._with_optional_values(["--retry-failed", "oom_host, nccl"]) == ["--retry-failed", "oom_host, nccl"]


def test_the_home_folder_may_follow_an_equals_sign(call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A shell leaves `~` as it is in `--results=~/x`."""
    monkeypatch.setenv("HOME", str(tmp_path))
    code, _, err = call("run", "--dry-run", "--defaults=~/mine.yaml")
    assert code == 2 and f"{tmp_path}/mine.yaml" in err and "~" not in err
    assert cli._with_home("--set=a.b=~/x") == "--set=a.b=~/x"


def test_a_kind_of_failure_is_one_beside_a_folder_of_its_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`data` is a kind, and what many call a folder; `my_runs` is none, and may be a scenario file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "my_runs").touch()
    assert cli._with_optional_values(["--retry-failed", "data"]) == ["--retry-failed", "data"]
    assert cli._with_optional_values(["--retry-failed", "my_runs"]) == ["--retry-failed=all", "my_runs"]


CROSSED = {"num_gpus": [1, 2], "matrix": {"effective_batch_size": [4]}}
NO_OTHER = {"framework_config": "gradient-checkpointing", "num_gpus": 2}


@pytest.mark.parametrize(
    ("keys", "shown"),
    [
        (CROSSED, [""] * 4),
        ({**CROSSED, "include": [{**NO_OTHER, "optim": "sgd"}]}, [*["optim=adamw_torch"] * 3, "optim=sgd"]),
        (
            {
                **CROSSED,
                "exclude": [{"framework_config": "baseline", "num_gpus": 2}],
                "include": [
                    {"num_gpus": 1, "optim": "sgd"},
                    {**NO_OTHER, "neftune_noise_alpha": 5},
                    {"framework_config": "liger", "num_gpus": 4, "optim": "adafactor"},
                ],
            },
            [*["optim=sgd"] * 2, "optim=adamw_torch neftune_noise_alpha=5", "optim=adafactor"],
        ),
        ({"zip": [{"num_gpus": [1, 2], "optim": ["sgd", "adafactor"]}]}, ["optim=sgd", "optim=adafactor"] * 2),
        (
            {"zip": [{"per_device_train_batch_size": [8, 4], "gradient_accumulation_steps": [1, 2]}]},
            [f"gradient_accumulation_steps={n} per_device_train_batch_size={8 // n}" for n in (1, 2)] * 2,
        ),
    ],
)
def test_a_plan_shows_every_argument_that_differs(
    call: Call, file: Path, keys: dict[str, Any], shown: list[str]
) -> None:
    """Also if it differs only together with the framework or the counts. What a framework itself sets is not shown."""
    arguments = {"model_name_or_path": "config:tiny-llama"}
    frameworks = ["baseline", "gradient-checkpointing"]
    scenario = {"name": "cross", "framework_config": frameworks, "arguments": arguments, **keys}
    file.write_text(yaml.safe_dump({"scenarios": [scenario]}))
    code, out, err = call("plan", file, "--assume", "8xH100")
    assert code == 0, err
    rows = [line for line in out.splitlines() if re.match("baseline|gradient|liger", line)]
    assert [" ".join(word for word in row.split() if "=" in word) for row in rows] == shown


def test_a_plan_writes_nothing(call: Call, file: Path, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    for words in ((), ("--json",), ("--commands",)):
        assert call("plan", file, *words)[0] == 0
    assert sorted(tmp_path.rglob("*")) == before


def test_values_from_the_command_line_reach_the_trainer(call: Call, file: Path) -> None:
    words = (
        "--scenario twice --set arguments.max_steps=20 --axis seed=1,2 --num-gpus 1,2 --repeats 3 --memory all --json"
    )
    experiments = json.loads(call("plan", file, *words.split())[1])["experiments"]
    found = [(one["num_gpus"], one["arguments"]["seed"]) for one in experiments]
    assert found == [(1, "1"), (1, "2"), (2, "1"), (2, "2")]
    assert {one["arguments"]["max_steps"] for one in experiments} == {"20"}
    assert {one["repeats"] for one in experiments} == {3}
    assert {one["arguments"]["skip_memory_metrics"] for one in experiments} == {"False"}


def test_what_is_only_known_at_launch_is_a_placeholder(call: Call, file: Path) -> None:
    words = ("--scenario", "twice", "--set", "device=cuda", "--json")
    (one,) = json.loads(call("plan", file, *words)[1])["experiments"]
    assert one["environment"]["CUDA_VISIBLE_DEVICES"] == "{gpus}"
    assert "{port}" in one["command"] and "{run_dir}/accelerate.yaml" in one["command"]
    assert one["arguments"]["output_dir"] == "{run_dir}/output"


CUSTOM = {"name": "own", "trainer": "custom", "device": "cpu"}


@pytest.mark.parametrize("view", ["plan", "plan --json", "plan --commands", "run", "run --dry-run --json"])
def test_a_placeholder_without_a_value_is_told_before_anything_is_printed(view: str, call: Call, file: Path) -> None:
    own = {"command": ["true", "{opt}"], "launcher": "none"}
    file.write_text(yaml.safe_dump({"scenarios": [{**CUSTOM, "matrix": {"opt": ["a", None]}, "custom": own}]}))
    sub_command, *words = view.split()
    code, out, err = call(sub_command, file, *words)
    assert (code, out) == (2, "")
    (error,) = [line for line in err.splitlines() if not line.startswith("note: ")]
    assert re.match(
        rf"error: {file}:\d+:\d+: scenario 'own': the command uses {{opt}}, but opt is null \(matrix:\)", error
    )


def test_the_command_of_a_skipped_cell_is_shown_without_its_missing_value(call: Call, file: Path) -> None:
    """Its batch follows from an effective batch, and does not exist if that batch is not divisible."""
    own = {"command": ["true", "{per_device_train_batch_size}"], "launcher": "none"}
    batch = {"matrix": {"effective_batch_size": [3]}, "arguments": {"gradient_accumulation_steps": 1}, "num_gpus": [2]}
    file.write_text(yaml.safe_dump({"scenarios": [{**CUSTOM, **batch, "custom": own}]}))
    code, out, _ = call("plan", file, "--json")
    (one,) = json.loads(out)["experiments"]
    assert (code, one["skip"]["kind"]) == (0, "batch_does_not_divide")
    assert one["command"] == ["true", "{per_device_train_batch_size}"]


def test_a_campaign_of_which_nothing_can_run_does_not_start(call: Call, file: Path) -> None:
    code, _, err = call("run", file, "--set", "device=cuda", "--num-gpus", 4096)
    assert code == 2 and "none of the" in err and "`tunebench plan` shows the reason for each" in err


WRONG = """\
data_processing: {dataset_nam: builtin:stdlib-docs}
scenarios:
- name: first
  framework_config: [lgier]
  device: gpu
  num_gpus: [two]
  repeats: 0
  repeat: 3
  timeout_s: soon
  trainer: huggingfce
  matrix: {seed: []}
  arguments: {max_steps: 5, num_gpus: 2}
- framework_config: [null]
"""


def test_all_mistakes_look_the_same(call: Call, tmp_path: Path, golden: Golden) -> None:
    """Those that typer finds, those of each part of the program, and those in a file: read the golden text as their user."""
    (tmp_path / "wrong.yaml").write_text(WRONG)
    (tmp_path / "not.json").write_text('{"kind": "tunebench comparison", "schema_version": 0}')
    (tmp_path / "empty").mkdir()
    call("init", "s.yaml")
    said, odd = [], []
    for line in text("cases/cli/mistakes.txt").splitlines():
        code, out, err = call(*shlex.split(line))
        sentences = [each for each in err.splitlines() if not each.startswith("note: ")]
        said.append(f"$ tunebench {line}\n" + plain("\n".join(sentences), tmp_path))
        odd += [line] if (code, out) != (2, "") or not sentences else []
        odd += [each for each in sentences if not re.fullmatch(r"error: (?![A-Z][a-z]).*[^.\s]", each)]
        odd += [each for each in sentences if re.search("Input should|Invalid value|Usage|Traceback|None|Errno", each)]
    golden("cli/mistakes.txt", re.sub(r"-[0-9a-f]{12}\b", "-{hash}", "\n".join(said)))
    assert not odd


def test_several_mistakes_are_told_together(call: Call, file: Path) -> None:
    file.write_text(
        SCENARIOS.replace("gradient-checkpointing", "gradient-checkpoint").replace("repeats: 2", "repeats: 0")
    )
    code, _, err = call("plan", file)
    assert code == 2
    assert f"{file}:4:" not in err and f"{file}:7:" in err
    assert all(line.startswith("error: ") for line in err.splitlines())


def test_a_long_campaign_asks_first(call: Call, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many cells twice, of up to an hour each; nobody is here to answer."""
    monkeypatch.setattr("orchestrator.cli.campaigns.run.machine_of", lambda *_: EIGHT_GPUS)
    words = ("run", file, "--set", "timeout_s=3600", "--set", "device=cuda", "--results", tmp_path / "r")
    code, _, err = call(*words, "--confirm-above", "5")
    assert code == 2
    assert "GPU-hours" in err and "--yes" in err
    assert not (tmp_path / "r").exists()


def test_only_gpus_have_gpu_hours_and_failures_that_are_repeated_count(tmp_path: Path) -> None:
    on_gpu = experiment("g", device=Device.CUDA, timeout_s=3600.0, repeats=2, num_gpus=2)
    on_cpu = experiment("c", device=Device.CPU, timeout_s=3600.0, repeats=2)
    planned, root = Plan(experiments=(on_gpu, on_cpu), collapsed=(), notes=()), tmp_path / "results"
    assert steps.gpu_hours(planned, root, move_aside=False, retry=NO_RETRY) == 4.0
    store = Store.create(root, {})
    store.add(planned.experiments)
    for job in store.plan([on_gpu]):
        assert claims.claim(job, executor="test")
        write_record(job.run_dir, replace(unfinished_record(job, Status.FAILED), kind="oom_cuda", wall_s=1800.0))
    assert steps.gpu_hours(planned, root, move_aside=False, retry=NO_RETRY) == 0.0
    assert steps.gpu_hours(planned, root, move_aside=False, retry=Retry(failed=True)) == 2.0


def test_only_failures_that_this_call_did_not_try_are_said_to_be_left(tmp_path: Path) -> None:
    """The times of the records say nothing about it: the clock may have gone back during the campaign."""
    first, second = (replace(failed(experiment(), number), started_at=0.0) for number in (1, 2))
    summary = Summary(counts={}, records=(first, second), tried=frozenset({(first.experiment_id, 1)}))
    nothing, store = Plan(experiments=(), collapsed=(), notes=()), Store.create(tmp_path / "results", {})
    (said,) = steps.remarks(nothing, store, summary, retry=NO_RETRY)
    assert said == "1 run(s) failed before and were not repeated; add --retry-failed to repeat them"
    tried = replace(summary, tried=frozenset({(first.experiment_id, 1), (first.experiment_id, 2)}))
    assert not [*steps.remarks(nothing, store, tried, retry=NO_RETRY)]


@pytest.mark.parametrize("word", ["0", "-1", "two", "1001", "9" * 20, "9" * 5000])
def test_a_number_of_runs_at_once_that_cannot_be_is_refused(word: str) -> None:
    with pytest.raises(SelectionError, match="write a whole number from 1 to 1000, or auto"):
        way.parallel_of(word)


def test_a_starter_file_is_written_once_and_plans(call: Call) -> None:
    assert call("init", "mine.yaml")[0] == 0
    assert load_suite(Path("mine.yaml")).scenarios[0].name == "first"
    assert call("plan", "mine.yaml")[0] == 0
    code, _, err = call("init", "mine.yaml")
    assert code == 2 and "exists and was not changed" in err


def test_a_starter_file_for_a_script_names_it_as_seen_from_the_file(call: Call, tmp_path: Path) -> None:
    (tmp_path / "my work").mkdir()
    (tmp_path / "my work" / "train #1.py").write_text("")
    script = Path("my work") / "train #1.py"
    for file, seen in (("scenarios.yaml", "my work/train #1.py"), ("my work/s.yaml", "train #1.py")):
        assert call("init", file, "--script", script)[0] == 0
        (scenario,) = load_suite(Path(file)).scenarios
        assert (scenario.script, scenario.trainer_name()) == ((seen,), "script")
        code, told, _ = call("plan", file)
        assert code == 0 and "1 run can be made here" in told
    code, _, err = call("init", "other.yaml", "--script", "my work/trian.py")
    assert code == 2 and "--script: there is no file 'my work/trian.py'" in err and not Path("other.yaml").exists()


def test_the_next_command_can_be_copied(call: Call, tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    _, told, _ = call("init", "a b.yaml", "--script", "train.py")
    assert told == "Wrote a b.yaml. Next: tunebench plan 'a b.yaml'\n"


def test_a_script_that_is_not_python_is_refused_before_a_file_is_written(call: Call, tmp_path: Path) -> None:
    (tmp_path / "train.sh").touch()
    code, _, err = call("init", "scenarios.yaml", "--script", "train.sh")
    assert code == 2 and "'train.sh' is not a Python script" in err and not (tmp_path / "scenarios.yaml").exists()


def test_a_pipe_that_nobody_named_is_not_read(call: Call, tmp_path: Path) -> None:
    call("init", "mine.yaml")
    os.mkfifo(tmp_path / "defaults.yaml")
    code, _, err = call("plan", "mine.yaml")
    assert code == 2 and "defaults.yaml: it is neither a file nor a folder" in err


def test_a_campaign_does_not_move_the_folder_in_which_it_works(call: Call, tmp_path: Path, monkeypatch) -> None:
    call("init", "mine.yaml")
    Store.create(tmp_path / "results", {})
    monkeypatch.chdir(tmp_path / "results")
    code, _, err = call("run", "../mine.yaml", "--results", ".", "--move-aside", "--yes")
    assert code == 2 and "the current folder is in it" in err
    assert [path.name for path in tmp_path.glob("results*")] == ["results"]


def test_no_starter_file_is_written_for_a_script_that_it_cannot_name(call: Call, tmp_path: Path) -> None:
    script = os.fsdecode(b"train\xff.py")
    (tmp_path / script).touch()
    code, _, err = call("init", "scenarios.yaml", "--script", tmp_path / script)
    assert code == 2 and "not valid UTF-8" in err and not (tmp_path / "scenarios.yaml").exists()


def test_the_schema_in_the_repository_is_the_one_that_is_printed(call: Call, request: pytest.FixtureRequest) -> None:
    stored = ROOT / "docs" / "scenarios.schema.json"
    if request.config.getoption("--accept"):
        stored.write_text(schema_text())
    assert call("schema")[1] == stored.read_text(), "accept with: pytest --accept tests/unit/test_cli.py"


def test_what_the_terminal_cannot_show_stands_by_its_number(file: Path) -> None:
    file.write_text(SCENARIOS.replace("name: small", "name: größe"))
    words = [sys.executable, "-m", "orchestrator", "plan", str(file), "--scenario", "größe"]
    env = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "gr\\xf6\\xdfe" in done.stdout, done.stderr


def test_a_folder_that_is_gone_is_no_defect(tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    script = f"cd {tmp_path}/gone && rmdir ../gone && {sys.executable} -m orchestrator plan"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(["sh", "-c", script], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "error: the current folder no longer exists; change to a folder that exists\n"


@pytest.mark.parametrize("file", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda file: file.stem)
def test_the_examples_are_long_enough_for_a_speed(file: Path, call: Call) -> None:
    """But for those that are about memory alone."""
    code, told, _ = call("plan", file)
    assert code == 0 and ("too few for a speed" in told) is file.stem.startswith("memory-fit")


def test_a_plan_says_what_fits(call: Call) -> None:
    file = ROOT / "examples" / "memory-approaches.yaml"
    code, out, _ = call("plan", file, "--gpu-memory", "40GiB")
    assert code == 0 and "does not fit: 49 GiB" in out and "37.2 GiB of 40 GiB" in out
    assert "On GPUs of 40 GiB: 4 fit, 1 do not fit, 1 unknown or too close." in out
    code, out, _ = call("plan", file, "--fit", "--json")
    parts = json.loads(out)["experiments"][0]["memory"]
    assert parts["peak_allocated_bytes"] == pytest.approx(41.59 * 2**30, rel=0.01), "measured on an H100"
    assert "memory" not in json.loads(call("plan", file, "--json")[1])["experiments"][0]
    code, _, err = call("plan", file, "--gpu-memory", "40")
    assert code == 2 and "--gpu-memory '40' has no unit" in err


SECRET = "Tr0ub4dor-and-3xtra-Horse9"


@pytest.mark.parametrize(
    "words",
    [
        SECRET,
        f"list {SECRET}",
        f"status {SECRET}",
        f"init {SECRET}/x.yaml",
        f"plan scenarios.yaml {SECRET}",
        f"plan scenarios.yaml --memory {SECRET}",
        f"run scenarios.yaml --retry-failed \x1b[31m{SECRET}",
        "plan scenarios.yaml",
        "plan scenarios.yaml --json",
        "plan scenarios.yaml --commands",
    ],
)
def test_the_value_of_a_secret_is_not_shown(
    call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: str
) -> None:
    """Not if it is a word of the command line, and not if it is a name in the scenario file."""
    monkeypatch.chdir(tmp_path)
    scenario = {"name": SECRET, "trainer": "custom", "device": "cpu", "arguments": {SECRET: 1}, "python": f"/{SECRET}"}
    custom = {"command": ["x"], "metrics": {SECRET: {"key": "x"}}}
    Path("scenarios.yaml").write_text(yaml.safe_dump({"scenarios": [{**scenario, "custom": custom}]}))
    monkeypatch.setenv("DB_PASSWORD", SECRET)
    _, out, err = call(*words.split(" "))
    said = out + err
    assert "***" in said and not re.search(f"{SECRET[:8]}|{SECRET[-8:]}|\x1b", said), said


@pytest.mark.parametrize(
    "start", [["-m", "orchestrator"], [str(ROOT / "orchestrator" / "__main__.py")]], ids=["-m", "file"]
)
def test_modules_of_the_users_folder_do_not_replace_those_of_the_standard_library(
    start: list[str], tmp_path: Path
) -> None:
    """Such as the folder `bisect`, in which `tunebench bisect` writes, or a script with a plain name."""
    (tmp_path / "bisect").mkdir()
    for name in ("bisect/__init__.py", "signal.py", "pathlib.py", "json.py", "random.py", "typer.py", "statistics.py"):
        (tmp_path / name).write_text("raise SystemExit('the module of the user')\n")
    (tmp_path / "s.yaml").write_text("scenarios: [{name: a, arguments: {model_name_or_path: 'config:tiny-llama'}}]\n")
    words = [sys.executable, *start, "plan", "s.yaml", "--json"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["experiments"]
