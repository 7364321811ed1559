"""Secrets planted wherever a user may have them; then every file of the results folder, and all that was said, is searched.

The trainer's own stdout.log and stderr.log are its own: they stay as it wrote them, secrets and all, and a test says so.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from campaigns import Call, Campaign, tunebench

from orchestrator.results.store import Store

ROOT = Path(__file__).resolve().parents[2]
OWN_LOGS = ("stdout.log", "stderr.log")

IN_THE_ENVIRONMENT = {
    "HF_TOKEN": "hf_QwErTyUiOpAsDfGhJkLzXcVb",
    "WANDB_API_KEY": "0f1e2d3c4b5a69788796a5b4c3d2e1f001020304",  # nothing in its look gives it away
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG+bPxRfiCYSECRETKEY",
    "OPENAI_API_KEY": "sk-proj-Zz11Yy22Xx33Ww44Vv55",
    "GITHUB_TOKEN": "ghp_A1b2C3d4E5f6G7h8I9j0",
    "DATABASE_PASSWORD": "p\"a\\ss wörd's end",
    "PGPASSWORD": "tea4two&two4tea",
    "MYSQL_PWD": "myn4meis<mysql>",
    "DB_PASS": "pass4the-salt",
    "RCLONE_CONFIG_PASS": "cl0udy with rain",
    "SESSION_COOKIE": "crumbs9of8a7cookie",
}
BY_LOOK = {
    "AWS_ACCESS_KEY_ID": "AKIAQWERTYUIOPASDFGH",
    "SERVICE_JWT": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJtZSJ9.dGhlc2lnbmF0dXJl",
    "PIP_INDEX_URL": "https://someone:correcthorsebattery@packages.example.org/simple",
    "EXTRA_HEADER": "Authorization: Bearer 9f8e7d6c5b4a",
    "NOTIFY": "https://hooks.slack.com/services/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",
}
INSTALLED = "x-installed-token-7q3k9m2w5z"
PLANTED = {
    **IN_THE_ENVIRONMENT,
    **{name: value for name, value in BY_LOOK.items() if name not in ("PIP_INDEX_URL", "EXTRA_HEADER", "NOTIFY")},
    "PIP_INDEX_URL": "someone:correcthorsebattery",
    "EXTRA_HEADER": "9f8e7d6c5b4a",
    "NOTIFY": "T0AB1CD2E/B0FG3HI4J/kL5mN6oP7qR8sT9uV0wX1yZ2",
    "INSTALLED": INSTALLED,
}

TRAINER = """\
import json, os, sys
names = os.environ["NAMES"].split()
values = [os.environ[name] for name in names]
for name, value in zip(names, values):
    print(f"stdout: {name}={value}")
    print(f"stderr: {name}={value!r} {json.dumps(value)}", file=sys.stderr)
kind = sys.argv[1]
if kind == "ok":
    print(json.dumps({"train_runtime": 1.0, "train_loss": 1.5, "note": "login: " + " ".join(values)}))
elif kind == "raises":
    raise RuntimeError("401 for " + " and ".join(values))
elif kind == "cut":  # what stands where a cause or the end of a log is cut
    secret = os.environ["WANDB_API_KEY"]
    print("\\n" + secret + "y" * 5985, file=sys.stderr)
    raise RuntimeError("z" * 465 + secret)
elif kind == "long":
    print("y" * 300_000 + "\\n" + " ".join(values) * 3000, file=sys.stderr)
    sys.exit("error: " + values[0])
"""


def scenario(name: str, **changes: Any) -> dict[str, Any]:
    return {
        "name": name,
        "trainer": "custom",
        "device": "cpu",
        "env": {"NAMES": " ".join((*IN_THE_ENVIRONMENT, *BY_LOOK))},
        "matrix": {"kind": ["ok", "raises", "cut", "long"]},
        "custom": {
            "command": ["{python}", *changes.pop("through", ()), "{scenario_dir}/trainer.py", "{kind}"],
            "launcher": "none",
            "metrics": {
                "train_runtime": {"key": "train_runtime"},
                "train_loss": {"key": "train_loss"},
                "note": {"key": "note"},
            },
        },
        **changes,
    }


def run(folder: Path, *words: str, environ: Mapping[str, str]) -> Campaign:
    """Run the command with these variables; a folder `site` next to the scenarios may hold packages."""
    return tunebench(folder, *words, **{"PYTHONPATH": f"{ROOT}:{folder / 'site'}", "COLUMNS": "300", **environ})


def with_scenarios(folder: Path, *scenarios: dict[str, Any]) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "trainer.py").write_text(TRAINER)
    (folder / "scenarios.yaml").write_text(yaml.safe_dump({"scenarios": list(scenarios)}, allow_unicode=True))
    return folder


def leaks(text: str, secrets: Mapping[str, str] = PLANTED) -> list[str]:
    """The secrets that a text holds, whole or more than a third of them, as they are or as JSON and Python write them."""
    found = []
    for name, secret in secrets.items():
        piece = max(10, len(secret) // 3)
        for form in {secret, json.dumps(secret)[1:-1], repr(secret)[1:-1]}:
            if any(form[at : at + piece] in text for at in range(len(form) - piece + 1)):
                found.append(name)
                break
    return found


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and path.name not in OWN_LOGS]


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Campaign]:
    """Trainers that print what they know, alone and under our instrument; a package installed from a URL with a token."""
    instrument = str(ROOT / "orchestrator" / "workers" / "instrument" / "instrument.py")
    folder = with_scenarios(
        tmp_path_factory.mktemp("secrets"), scenario("alone"), scenario("instrumented", through=[instrument])
    )
    package = folder / "site" / "planted-1.0.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: planted\nVersion: 1.0\n")
    url = {"url": f"https://{INSTALLED}@example.org/planted.git", "vcs_info": {"vcs": "git", "commit_id": "0" * 40}}
    (package / "direct_url.json").write_text(json.dumps(url))
    words = ("run", "scenarios.yaml", "--yes", "--set", "timeout_s=300", "--parallel", "2")
    return folder, run(folder, *words, environ=IN_THE_ENVIRONMENT | BY_LOOK)


def test_the_campaign_ran_and_the_trainers_said_it_all(campaign: tuple[Path, Campaign]) -> None:
    """The test's own premise, and what is promised of the trainer's logs: they are its own, and stay as written."""
    folder, ended = campaign
    assert ended.code == 1, ended.said
    stored = Store.resume(folder / "results").contents().experiments
    assert sorted(record.status for one in stored for record in one.records) == ["failed"] * 6 + ["ok"] * 2
    for one in stored:
        run_dir = one.runs[0].job.run_dir
        assert set(leaks((run_dir / "stdout.log").read_text())) >= set(IN_THE_ENVIRONMENT)
        assert set(leaks((run_dir / "stderr.log").read_text())) >= set(IN_THE_ENVIRONMENT)
    assert list((folder / "results").rglob("worker-rank0.json"))


def test_no_file_of_ours_holds_a_secret(campaign: tuple[Path, Campaign]) -> None:
    folder, ended = campaign
    assert leaks(ended.said) == [], "the terminal saw none either"
    found = {
        str(path.relative_to(folder)): leaks(path.read_text("utf-8", "replace")) for path in files(folder / "results")
    }
    assert {path: names for path, names in found.items() if names} == {}
    names = {path.rpartition("/")[2] for path in found}
    assert {
        "benchmarks.csv",
        "report.html",
        "suite.json",
        "requirements.txt",
        "record.json",
        "experiment.json",
        "command.sh",
    } <= names
    assert "worker-rank0.json" in names


def test_what_was_masked_still_says_what_happened(campaign: tuple[Path, Campaign]) -> None:
    folder, _ = campaign
    records = [record for one in Store.resume(folder / "results").contents().experiments for record in one.records]
    assert [record for record in records if "401 for ***" in (record.cause or "")]
    assert [record for record in records if "zzz" in (record.cause or "") and "RuntimeError" in (record.cause or "")]
    assert "planted @ git+https://***@example.org/planted.git" in (folder / "results" / "requirements.txt").read_text()
    for worker in (folder / "results").rglob("worker-rank0.json"):
        assert json.loads(worker.read_text())["status"] in ("ok", "error")


def test_an_experiment_is_shown_without_them(campaign: tuple[Path, Campaign], call: Call) -> None:
    """Its logs' ends, too, though the logs hold them: by whoever has them in the environment, and by look for all others."""
    folder, _ = campaign
    for one in Store.resume(folder / "results").contents().experiments:
        code, out, err = call(folder, "show", one.experiment.id, **IN_THE_ENVIRONMENT, **BY_LOOK)
        assert code == 0
        assert "--- end of" in out
        assert leaks(out + err) == []


@pytest.mark.parametrize("words", [(), ("--json",), ("--commands",)])
def test_no_plan_shows_one(tmp_path: Path, words: tuple[str, ...]) -> None:
    """A plan shows what a run would refuse."""
    planted = {"hub_token": PLANTED["HF_TOKEN"], "url": BY_LOOK["PIP_INDEX_URL"], "b": PLANTED["WANDB_API_KEY"]}
    one = scenario("x", arguments=planted, env={"MY_API_KEY": PLANTED["OPENAI_API_KEY"], "H": BY_LOOK["EXTRA_HEADER"]})
    one["custom"]["command"] += ["{arguments}", "--password", PLANTED["GITHUB_TOKEN"]]
    two = scenario(
        "y", arguments={"hub_token": ["a", PLANTED["HF_TOKEN"]], "model_name_or_path": BY_LOOK["PIP_INDEX_URL"]}
    )
    folder = with_scenarios(tmp_path, one, two)
    done = run(folder, "plan", "scenarios.yaml", *words, environ=IN_THE_ENVIRONMENT)
    assert done.code == 0
    assert leaks(done.said) == []
    assert "***" in done.said or not words


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a variable by its name": ({"env": {"HF_TOKEN": PLANTED["HF_TOKEN"]}}, "HF_TOKEN"),
    "a variable by its value's look": ({"env": {"HARMLESS": PLANTED["GITHUB_TOKEN"]}}, "GITHUB_TOKEN"),
    **{
        f"the variable {name}": ({"env": {name: "plain-word-x1"}}, name)
        for name in ("PGPASSWORD", "MYSQL_PWD", "DB_PASS", "SESSION_COOKIE", "SLACK_WEBHOOK_URL", "SENTRY_DSN")
    },
    "a variable with a webhook": ({"env": {"NOTIFY": BY_LOOK["NOTIFY"]}}, "a webhook"),
    "an argument by its name": ({"arguments": {"hub_token": "plain-word-x1"}}, "hub_token"),
    "an argument by its look": ({"arguments": {"x": f"a {PLANTED['SERVICE_JWT']} b"}}, "web token"),
    "an argument by its value": ({"arguments": {"x": PLANTED["WANDB_API_KEY"]}}, "the value of WANDB_API_KEY"),
    "an axis": ({"matrix": {"kind": ["ok", PLANTED["AWS_ACCESS_KEY_ID"]]}}, "a key of AWS"),
    "an item of a list": ({"arguments": {"x": ["a", PLANTED["OPENAI_API_KEY"]]}}, "OPENAI_API_KEY"),
    "a model": ({"arguments": {"model_name_or_path": BY_LOOK["PIP_INDEX_URL"]}}, "a password in a URL"),
    "a tag": ({"tags": [BY_LOOK["EXTRA_HEADER"]]}, "Authorization"),
    "a name": ({"name": PLANTED["GITHUB_TOKEN"]}, "GITHUB_TOKEN"),
    "a word of the command": ({"command": ["--api_key", "plain-word-x1"]}, "--api_key"),
    "a joined word of the command": ({"command": ["--hub-token=plain-word-x1"]}, "--hub-token"),
}
TYPED = {"plain": "plain-word-x1"}


@pytest.mark.parametrize("kind", REFUSED)
def test_a_secret_in_a_scenario_is_refused_before_anything_runs(kind: str, tmp_path: Path, call: Call) -> None:
    changes, said = REFUSED[kind]
    one = scenario("x", **{key: value for key, value in changes.items() if key not in ("command", "name")})
    one["name"] = changes.get("name", "x")
    one["custom"]["command"] += changes.get("command", [])
    folder = with_scenarios(tmp_path / "f", one)
    code, out, err = call(folder, "run", "scenarios.yaml", "--yes", **IN_THE_ENVIRONMENT)
    assert code == 2
    assert said in err
    assert "export it in the shell" in err
    assert leaks(out + err, PLANTED | TYPED) == []
    written = {
        path.name: leaks(path.read_text("utf-8", "replace"), PLANTED | TYPED) for path in files(folder / "results")
    }
    assert not any(written.values()), written
    assert "job.json" not in written


@pytest.mark.parametrize(
    "words",
    [
        ("--set", "arguments.hub_token=plain-word-x1"),
        ("--set=arguments.hub_token=plain-word-x1",),
        ("--set", "env.DB_PASS=q7z1"),
        ("--set=arguments.hub_token=q7z1",),
        ("--axis", "hub_token=q7z1,q7z2"),
        ("--axis", f"x=a,{PLANTED['HF_TOKEN']}"),
        ("--set", f"arguments.model_name_or_path={BY_LOOK['PIP_INDEX_URL']}"),
    ],
    ids=lambda words: words[-1][:30],
)
def test_a_secret_on_the_command_line_is_refused_and_not_noted(words: tuple[str, ...], tmp_path: Path) -> None:
    """What was asked for is written into suite.json before it is looked at."""
    folder = with_scenarios(tmp_path / "f", scenario("x"))
    done = run(folder, "run", "scenarios.yaml", "--yes", *words, environ={})
    assert done.code == 2
    assert leaks(done.said, PLANTED | TYPED) == []
    suite = (folder / "results" / "suite.json").read_text()
    assert "q7z" not in suite + done.said, "short ones neither"
    assert json.loads(suite)["asked"]["argv"][0] == "run"
    assert leaks(suite, PLANTED | TYPED) == []


def test_placeholders_and_counts_are_no_secrets(tmp_path: Path) -> None:
    arguments = {"num_virtual_tokens": 20, "max_new_tokens": 100, "text_key": "content", "pad_token": "<pad>"}
    one = scenario("x", arguments=arguments, matrix={"kind": ["ok"]}, env={"NAMES": "HOME"})
    one["custom"]["command"] += ["--hub_token", "{kind}", "{arguments}"]
    folder = with_scenarios(tmp_path / "f", one)
    done = run(folder, "run", "scenarios.yaml", "--yes", environ={})
    assert done.code == 0, done.said


def test_run_one_says_none_either(tmp_path: Path) -> None:
    """What it says goes into run-one.log."""
    done = run(tmp_path, "run-one", str(tmp_path / PLANTED["GITHUB_TOKEN"]), environ={})
    assert done.code == 2
    assert "contains no claimed run" in done.said
    assert leaks(done.said) == []


def test_a_repeat_by_hand_asks_for_the_secret_that_a_monitors_plug_added(tmp_path: Path) -> None:
    """The command of a run can hold what no scenario said: its script asks for it, and with it repeats the words."""
    from orchestrator.records import Command
    from orchestrator.run.script import command_script

    show = "import json, os, sys; print(json.dumps([sys.argv[1:], os.environ['URL']]))"
    words = (
        f"--key-of={PLANTED['GITHUB_TOKEN']}",
        "--hub_token",
        "abc",
        f"x{PLANTED['WANDB_API_KEY']}y",
        "--a-b.token=c",
    )
    command = Command(argv=(sys.executable, "-c", show, *words), env={"URL": BY_LOOK["PIP_INDEX_URL"]}, cwd=tmp_path)
    wandb = {"WANDB_API_KEY": PLANTED["WANDB_API_KEY"]}
    text = command_script(command, wandb)
    assert leaks(text) == []
    assert text.count("is a secret and was not written down") == 5
    (tmp_path / "command.sh").write_text(text)
    given = {
        "SECRET_2": "someone:correcthorsebattery",
        "SECRET_1": PLANTED["GITHUB_TOKEN"],
        "HUB_TOKEN": "abc",
        "A_B_TOKEN": "c",
    }
    bash = shutil.which("bash")
    assert bash is not None
    argv = [bash, str(tmp_path / "command.sh"), str(tmp_path / "again")]
    bare = subprocess.run(argv, env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, check=False)
    assert bare.returncode != 0 and "export it first" in bare.stderr
    shutil.rmtree(tmp_path / "again")
    environ = {"PATH": os.environ["PATH"], **given, **wandb}
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [list(words), BY_LOOK["PIP_INDEX_URL"]]
