"""The recipes of docs/ci.md and docs/history.md over three nights, run from the pages by bash: the third night is 20 % slower.

A fake trainer prints its speed. The workflow of GitHub runs in a small imitation: its steps in their order, with a folder for the
cache, one for the artifacts, and a `gh` that writes down what it is asked.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from factories.cases import text

from orchestrator.results.store import Store

ROOT = Path(__file__).resolve().parents[2]
NIGHTS = {"one": 1000.0, "two": 1000.0, "three": 800.0}
"""Night → tokens per second. Nothing changes on the second; the third has the planted slowdown."""

TRAINER = """\
import json, pathlib
speed = float(pathlib.Path(__file__).with_name("speed.txt").read_text())
run = int(pathlib.Path.cwd().parent.name[1])
print(json.dumps({"tokens_per_s": speed * (1 + run / 1000), "train_runtime": 1.0, "train_loss": 1.5}))
"""
# What the recipes expect on the PATH. `python3 -m venv` makes an environment whose pip installs nothing.
TUNEBENCH = f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m orchestrator "$@"\n'
VENV = '#!/bin/sh\nmkdir -p "$3/bin"\nprintf "#!/bin/sh\\n" > "$3/bin/pip"\nchmod +x "$3/bin/pip"\n'
GH = """\
#!/bin/sh
echo "$@" >> gh.log
case "$1 $2" in
  "run list") echo 17 ;;
  "run download") cp -r ../artifacts/"$5" "$7" ;;
esac
"""


def blocks(page: str, language: str, heading: str = "") -> list[str]:
    """The code of one language on a page, below a heading."""
    whole = (ROOT / "docs" / page).read_text("utf-8")
    part = whole[whole.index(f"\n## {heading}") :] if heading else whole
    return re.findall(rf"^```{language}\n(.*?)^```$", part, re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class Project:
    """A folder with a benchmark, and with `tunebench` and its like on the path of commands."""

    folder: Path
    env: dict[str, str] = field(default_factory=dict)

    @classmethod
    def made(cls, folder: Path) -> Project:
        for name, content in (("ci.yaml", text("scenarios/ci-recipe.yaml")), ("trainer.py", TRAINER)):
            (folder / "bench").mkdir(parents=True, exist_ok=True)
            (folder / "bench" / name).write_text(content)
        for name, script in (("tunebench", TUNEBENCH), ("python3", VENV), ("gh", GH)):
            command = folder / "bin" / name
            command.parent.mkdir(exist_ok=True)
            command.write_text(script)
            command.chmod(0o755)
        path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
        return cls(folder=folder, env={"PATH": path, "STORE": str(folder / "nights")})

    def makes(self, speed: float) -> None:
        (self.folder / "bench" / "speed.txt").write_text(str(speed))

    def bash(self, script: str, *options: str, **env: str) -> subprocess.CompletedProcess[str]:
        (self.folder / "script.sh").write_text(script)
        words, environ = ["bash", *options, "script.sh"], {**os.environ, **self.env, **env}
        return subprocess.run(words, cwd=self.folder, env=environ, capture_output=True, text=True, check=False)


def starts(results: Path) -> list[float]:
    """The starts of all runs of a results folder."""
    return [record.started_at for one in Store.resume(results).contents().experiments for record in one.records]


# Plain shell


@dataclass(frozen=True, kw_only=True)
class Nights:
    """What the recipe ended with on each night, and the folder of each."""

    project: Project
    codes: dict[str, int]
    said: dict[str, str]
    results: dict[str, Path]


def nights_in_a_shell(folder: Path) -> Nights:
    """The nightly script three times; after the first night its results are chosen as the base."""
    project, codes, said, results = Project.made(folder), {}, {}, {}
    script, choose = blocks("ci.md", "sh", "Plain shell")[:2]
    for night, speed in NIGHTS.items():
        project.makes(speed)
        done = project.bash(script)
        codes[night], said[night] = done.returncode, done.stdout + done.stderr
        (results[night],) = {*(folder / "nights").glob("2*")} - {*results.values()}
        if night == "one":
            assert project.bash(choose).returncode == 0
    return Nights(project=project, codes=codes, said=said, results=results)


# GitHub Actions


@dataclass(frozen=True, kw_only=True)
class Runner:
    """A self-hosted runner, whose folder stays between the jobs, and GitHub's cache and artifacts."""

    project: Project
    jobs: Mapping[str, Any]

    def carries_out(self, name: str, event: str, sha: str) -> int:
        """Run the steps of a job, and return the exit code of the first that failed, else 0."""
        code = 0
        for step in self.jobs[name]["steps"]:
            around, condition = names_of(event, sha), step.get("if", "True")
            if not evaluated(condition, around) or (code and "always()" not in condition):
                continue
            if "uses" in step:
                self._uses(step["uses"], {key: filled(value, around) for key, value in step.get("with", {}).items()})
            else:
                env = {key: filled(value, around) for key, value in step.get("env", {}).items()}
                code = self._run(step["run"], env) or code
        return code

    def _run(self, script: str, env: dict[str, str]) -> int:
        folder = self.project.folder
        for file in ("GITHUB_PATH", "GITHUB_STEP_SUMMARY"):
            env[file] = str(folder.parent / file.lower())
        added = Path(env["GITHUB_PATH"]).read_text().split() if Path(env["GITHUB_PATH"]).exists() else []
        path = os.pathsep.join([*added, self.project.env["PATH"]])
        return self.project.bash(script, "-e", **{**env, "PATH": path}).returncode

    def _uses(self, action: str, given: dict[str, str]) -> None:
        folder, cache = self.project.folder, self.project.folder.parent / "cache"
        artifacts = self.project.folder.parent / "artifacts"
        if action.startswith("actions/cache/save"):
            shutil.copytree(folder / given["path"], cache / given["key"])
        elif action.startswith("actions/cache/restore"):
            assert given["path"] == "base"
            found = sorted(cache.glob(f"{given['restore-keys']}*"), key=lambda path: path.name == given["key"])
            shutil.copytree(found[-1], folder / "base", dirs_exist_ok=True)
        elif action.startswith("actions/upload-artifact"):
            for path in given["path"].split():
                place = artifacts / given["name"]
                place.mkdir(parents=True, exist_ok=True)
                if (folder / path).is_dir():
                    shutil.copytree(folder / path, place, dirs_exist_ok=True)
                elif (folder / path).exists():
                    shutil.copy(folder / path, place)
        elif action.startswith("actions/download-artifact"):
            shutil.copytree(artifacts / given["name"], folder, dirs_exist_ok=True)
        else:
            assert action.startswith("actions/checkout"), action


def names_of(event: str, sha: str) -> dict[str, Any]:
    """What an expression of a workflow may name."""
    branch = SimpleNamespace(base=SimpleNamespace(sha="main"), number=7)
    github = SimpleNamespace(
        event_name=event, sha=sha, repository="a/b", token="t", event=SimpleNamespace(pull_request=branch)
    )
    return {"github": github, "always": lambda: True}


def evaluated(expression: str, around: dict[str, Any]) -> Any:
    return eval(expression.replace("&&", " and ").replace("||", " or "), {"__builtins__": {}}, around)


def filled(value: object, around: dict[str, Any]) -> str:
    return re.sub(r"\$\{\{(.*?)\}\}", lambda found: str(evaluated(found[1].strip(), around)), str(value))


@dataclass(frozen=True, kw_only=True)
class PullRequests:
    """How the jobs of three nights ended, with the comments and the starts of the runs."""

    codes: dict[str, int]
    comments: dict[str, str]
    starts: dict[str, list[float]]
    asked: list[str]


def nights_on_github(folder: Path) -> PullRequests:
    """A push to main, a pull request that changes nothing, and one that is slower: on one runner that is never tidied up."""
    whole, artifact = (yaml.safe_load(block) for block in blocks("ci.md", "yaml"))
    runner = Runner(project=Project.made(folder / "work"), jobs={**whole["jobs"], "artifact": {"steps": artifact}})
    (folder / "cache").mkdir()
    codes, comments, began = {}, {}, {}
    for night, speed in NIGHTS.items():
        runner.project.makes(speed)
        event = "push" if night == "one" else "pull_request"
        codes[night] = runner.carries_out("measure", event, sha=night)
        began[night] = starts(runner.project.folder / ("base" if event == "push" else "new"))
        if event == "push":
            codes["store as an artifact"] = runner.carries_out("artifact", event, sha=night)
            shutil.rmtree(runner.project.folder / "base")
            codes["fetch the artifact"] = runner.carries_out("artifact", "pull_request", sha=night)
            assert starts(runner.project.folder / "base") == began[night]
        else:
            codes["comment"] = runner.carries_out("comment", event, sha=night)
            comments[night] = (runner.project.folder / "comparison.md").read_text()
    asked = (runner.project.folder / "gh.log").read_text().splitlines()
    return PullRequests(codes=codes, comments=comments, starts=began, asked=asked)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Nights, PullRequests]:
    """Both at once, since much of it is waiting for processes."""
    with ThreadPoolExecutor() as pool:
        shell = pool.submit(nights_in_a_shell, tmp_path_factory.mktemp("shell"))
        github = pool.submit(nights_on_github, tmp_path_factory.mktemp("github"))
        return shell.result(), github.result()


def test_the_nightly_script_measures_anew_and_finds_the_slowdown(both: tuple[Nights, PullRequests]) -> None:
    nights, _ = both
    assert nights.codes == {"one": 4, "two": 0, "three": 1}, nights.said
    assert "no base is chosen" in nights.said["one"] and "nothing is worse" in nights.said["two"]
    assert "worse: see comparison.md" in nights.said["three"]
    assert "regressed" in (nights.project.folder / "comparison.md").read_text()
    began = [starts(results) for results in nights.results.values()]
    assert [len(one) for one in began] == [5, 5, 5]
    assert max(began[0]) < min(began[1]) and max(began[1]) < min(began[2])


def test_the_workflow_measures_anew_and_fails_a_slow_pull_request(both: tuple[Nights, PullRequests]) -> None:
    _, github = both
    ok = dict.fromkeys(("store as an artifact", "fetch the artifact", "comment"), 0)
    assert github.codes == {"one": 0, "two": 0, "three": 1, **ok}
    assert "nothing worse" in github.comments["two"] and "worse: 1 experiment regressed" in github.comments["three"]
    assert (
        min(github.starts["three"]) > max(github.starts["two"]) > min(github.starts["two"]) > max(github.starts["one"])
    )
    assert [line for line in github.asked if line.startswith("pr comment 7 --repo a/b --body-file comparison.md")]


def test_a_pull_request_without_a_base_fails(tmp_path: Path) -> None:
    whole = yaml.safe_load(blocks("ci.md", "yaml")[0])
    (script,) = (step["run"] for step in whole["jobs"]["measure"]["steps"] if step.get("name") == "Compare")
    done = Project.made(tmp_path).bash(script, "-e", GITHUB_STEP_SUMMARY=str(tmp_path / "summary"))
    assert done.returncode == 4 and "No base is stored" in (tmp_path / "comparison.md").read_text()


def test_a_night_whose_command_is_wrong_is_not_compared(tmp_path: Path) -> None:
    project = Project.made(tmp_path)
    (tmp_path / "bench" / "ci.yaml").write_text("scenarios: 3\n")
    done = project.bash(blocks("ci.md", "sh", "Plain shell")[0])
    assert done.returncode == 2 and not list((tmp_path / "nights").iterdir())


# What may follow


def test_the_nights_have_a_history(both: tuple[Nights, PullRequests]) -> None:
    nights, _ = both
    (script,) = blocks("ci.md", "sh", "Over many nights")
    done = nights.project.bash(script)
    assert done.returncode == 0 and "3 campaigns" in done.stdout, done.stderr
    assert len(json.loads((nights.project.folder / "history" / "history.json").read_text())["campaigns"]) == 3


def noisy(results: Path) -> None:
    """Make the recorded speeds of five runs 3 % lower, with so much noise that this is not certain."""
    for path in results.rglob("record.json"):
        record = json.loads(path.read_text())
        for one in record["measurements"]:
            if one["name"] == "tokens_per_s":
                one["value"] *= (0.94, 0.955, 0.965, 0.98, 1.01)[record["repeat"] - 1]
        path.write_text(json.dumps(record))


def test_what_is_open_gets_more_runs(both: tuple[Nights, PullRequests], tmp_path: Path) -> None:
    """Two nights, the later of them noisy: the lines of both pages make as many runs as are said to settle it."""
    nights, _ = both
    project = Project(folder=tmp_path, env=nights.project.env)
    nights.project.makes(NIGHTS["one"])
    for name, night in (("base", "one"), ("new", "two")):
        shutil.copytree(nights.results[night], tmp_path / name)
    noisy(tmp_path / "new")
    compare, dry_run, rerun = blocks("history.md", "", "rerun")[0].splitlines()
    assert project.bash(compare).returncode == 3
    due = re.search(r"^(\d*[02468]) run\(s\) of 2 experiment", project.bash(dry_run).stdout, re.MULTILINE)
    assert due is not None
    assert project.bash(rerun).returncode == 0
    assert len(starts(tmp_path / "base")) == len(starts(tmp_path / "new")) == 5 + int(due[1]) // 2
    more = blocks("ci.md", "sh", "More runs")[0]
    done = project.bash(f"code=3 base=base new=new\n{more}", "-eu")
    assert (
        "The inconclusive experiments already have their further runs" in done.stdout
        and "experiment on both sides" in done.stdout
    )
