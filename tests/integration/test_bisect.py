"""Bisections of real git repositories: real worktrees, and a fake trainer that reports the speed of its commit.

A bisection has many runs, so most tests run the fake trainer in this process. Two use the command, with all its processes.
"""

from __future__ import annotations

import json
import os
import random
import runpy
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from campaigns import Call, tunebench
from factories import packages
from factories.results import ended, failed

from orchestrator.compare.bisect import carry_out, commits
from orchestrator.compare.bisect.carry_out import Result
from orchestrator.compare.bisect.chosen import chosen
from orchestrator.compare.bisect.runs import MOST_UNSTEADY, Runs
from orchestrator.compare.bisect.search import RUNS
from orchestrator.compare.bisect.versions import versions
from orchestrator.compare.rules import parse
from orchestrator.errors import OrchestratorError, SelectionError
from orchestrator.executors import FakeExecutor
from orchestrator.machine import process
from orchestrator.plan.config import load_suite
from orchestrator.plan.selection import parse_selection
from orchestrator.records import Caveat, CaveatKind, Job, JobState, RunRecord
from orchestrator.results import claims
from orchestrator.results.store import Store

SCENARIOS = """\
scenarios:
- name: own
  trainer: custom
  device: cpu
  custom:
    command: ['{python}', '{scenario_dir}/train.py', '{run_dir}']
    launcher: none
    metrics: {train_tokens_per_second: {}}
- name: other
  device: cpu
  arguments: {model_name_or_path: "config:tiny-llama"}
"""
TRAIN = """\
import json, os, random, sys
from model import SPEED
noise = random.Random("/".join(sys.argv[1].split(os.sep)[-5:])).gauss(0, 0.015)
print(json.dumps({"train_tokens_per_second": SPEED * (1 + noise)}))
"""


def git(folder: Path, *words: str) -> str:
    """Run git. The date is fixed, so that the hashes of commits are the same in every test run."""
    dates = dict.fromkeys(("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"), "2026-11-01T10:00:00+00:00")
    own = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "init.defaultBranch=main")
    done = subprocess.run(
        ["git", *own, *words], cwd=folder, env={**os.environ, **dates}, check=True, capture_output=True, timeout=60
    )
    return done.stdout.decode().strip()


def repository(folder: Path, models: Sequence[str], *, project: str = ".") -> list[str]:
    """Make a repository with a commit for each text of `model.py`, and return the hashes."""
    own = folder / project
    own.mkdir(parents=True)
    git(folder, "init", "-q")
    (own / "scenarios.yaml").write_text(SCENARIOS)
    (own / "train.py").write_text(TRAIN)
    made = []
    for number, text in enumerate(models):
        (own / "model.py").write_text(f"{text}  # commit {number}\n")
        git(folder, "add", "-A")
        git(folder, "commit", "-q", "-m", f"Change number {number}")
        made.append(git(folder, "rev-parse", "HEAD"))
    return made


def speeds(*parts: tuple[int, float]) -> list[str]:
    return [f"SPEED = {speed}" for count, speed in parts for _ in range(count)]


class Bisection:
    """A bisection in this process. `trained` has the worktree of each run, and `before` is called before the trainer starts."""

    def __init__(self, folder: Path, *, project: str = ".") -> None:
        self.folder, self.file = folder, folder / project / "scenarios.yaml"
        self.results = folder.parent / "bisect"
        self.said: list[str] = []
        self.told: list[str] = []
        self.trained: list[Path] = []
        self.before: Callable[[Path], None] = lambda worktree: None
        self.most_runs = 1000
        self.repo: Path | None = None

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, JobState]]:
        """Run jobs as an executor does, until `most_runs` runs are made; then interrupt this process."""
        if len(self.trained) == self.most_runs:
            raise KeyboardInterrupt
        return FakeExecutor(self.train).run(jobs)

    def __call__(self, good: str, bad: str) -> Result:
        self.said, self.told, self.trained = [], [], []
        return carry_out.bisect(
            self.results,
            self.commits(good, bad),
            rules=parse(),
            executor=self,
            say=self.said.append,
            tell=self.told.append,
        )

    def commits(self, good: str, bad: str) -> commits.Commits:
        repository = commits.repository(self.file, self.repo)
        folder, selection = commits.folder_of(self.file, repository), parse_selection(scenarios=("own",))
        experiment = chosen(load_suite(self.file), selection, folder=folder, say=self.said.append)
        return commits.commits(repository, (good, bad), file=self.file, results=self.results, chosen=experiment)

    def train(self, job: Job) -> RunRecord:
        experiment = Store(job.folder.results).experiment(job.experiment_id)
        own = experiment.custom or experiment.script
        assert own is not None and own.folder is not None
        folder = Path(own.folder)
        self.before(folder)
        self.trained.append(folder)
        noise = random.Random(f"{folder.name} {job.repeat}").gauss(0, 0.015)
        try:
            speed = runpy.run_path(str(folder / "model.py"))["SPEED"] * (1 + noise)
        except (SyntaxError, ImportError):
            return failed(experiment, job.repeat, attempt=job.attempt, kind="exit_code")
        record = ended(experiment, job.repeat, attempt=job.attempt, train_tokens_per_second=speed)
        return replace(record, started_at=time.time(), wall_s=0.1)

    def worktrees(self) -> list[str]:
        return git(self.folder, "worktree", "list", "--porcelain").split("\n\n")


def places(result: Result) -> tuple[int, int]:
    return result.found.last_good, result.found.first_bad


# Three repositories.


@pytest.mark.parametrize(
    ("models", "step", "hidden"),
    [
        (speeds((5, 1000.0), (12, 800.0)), (4, 5), []),
        ([*speeds((9, 1000.0)), "broken(", "import missing", *speeds((6, 800.0))], (8, 11), [9, 10]),
        (speeds((6, 1000.0), (8, 950.0), (3, 760.0)), (13, 14), []),
    ],
    ids=["one step", "a step behind commits that fail", "two steps"],
)
def test_the_first_slow_commit_of_a_repository_is_found(
    tmp_path: Path, models: list[str], step: tuple[int, int], hidden: list[int]
) -> None:
    made = repository(tmp_path / "project", models)
    bisection = Bisection(tmp_path / "project")
    result = bisection(made[0], "main")
    assert places(result) == step and [*result.found.hidden] == hidden and result.exit_code == 0
    assert result.found.probes <= 4 + 2 and all(one.rounds <= 2 * RUNS for one in result.found.decisions)
    said = "\n".join((*bisection.said, *result.lines()))
    assert f": {made[step[1]][:12]} Change number {step[1]} (" in said
    assert ("There is more than one step" in said) == (len({*models}) == 3 and not hidden)
    assert all(f"skipped   {made[at][:12]}  run 1: failed (exit_code" in said for at in hidden)
    page = (bisection.results / "comparison.html").read_text()
    assert f"Change number {step[0]}" in page and "First bad commit" in page
    assert len(bisection.worktrees()) == 1 and not (bisection.results / "worktrees").exists()
    assert git(tmp_path / "project", "status", "--porcelain") == ""


@pytest.fixture
def small(tmp_path: Path) -> tuple[Bisection, list[str]]:
    """Four commits; the third is slower."""
    made = repository(tmp_path / "project", speeds((2, 1000.0), (2, 800.0)))
    return Bisection(tmp_path / "project"), made


# What runs.


def test_the_rounds_measure_both_ends_with_each_probe_and_a_probe_begins(small: tuple[Bisection, list[str]]) -> None:
    bisection, made = small
    bisection(made[0], made[3])
    keys = [folder.name for folder in bisection.trained]
    ends = {made[0][:12], made[3][:12]}
    assert {*keys[:2]} == ends and {*keys[:10]} == ends, "at first only the ends"
    rounds = [keys[at : at + 3] for at in range(10, len(keys), 3)]
    assert all(len({*one} - ends) == 1 and {*one} > ends for one in rounds) and len(rounds) == 2 * RUNS
    assert rounds[0][0] == made[1][:12] and rounds[RUNS][0] == made[2][:12]


def test_the_scenario_file_and_the_data_of_the_working_tree_count_and_the_script_of_the_commit_runs(
    tmp_path: Path,
) -> None:
    made = repository(tmp_path / "project", speeds((1, 1000.0), (1, 800.0)), project="deep/inside")
    bisection = Bisection(tmp_path / "project", project="deep/inside")
    (tmp_path / "project/deep/inside/model.py").write_text("edited = 1\n")
    text = bisection.file.read_text().replace("name: other", "name: another")
    bisection.file.write_text(text)
    result = bisection(made[0], made[1])
    assert places(result) == (0, 1) and result.found.probes == 0
    assert {folder.relative_to(folder.parents[1]) for folder in bisection.trained} == {Path("deep/inside")}
    assert bisection.file.read_text() == text and (bisection.file.parent / "model.py").read_text() == "edited = 1\n"


def test_a_scenario_file_outside_of_the_repository_finds_its_script_in_the_top_folder_of_each_worktree(
    tmp_path: Path,
) -> None:
    made = repository(tmp_path / "project", speeds((1, 1000.0), (1, 800.0)))
    bisection = Bisection(tmp_path / "project")
    bisection.file, bisection.repo = tmp_path / "mine.yaml", tmp_path / "project"
    bisection.file.write_text("scenarios:\n- {name: own, script: train.py, device: cpu}\n")
    assert places(bisection(made[0], made[1])) == (0, 1)
    assert {folder.parent for folder in bisection.trained} == {bisection.results / "worktrees"}


def test_the_first_run_has_its_speed_and_git_does_not_see_the_folder(small: tuple[Bisection, list[str]]) -> None:
    bisection, made = small
    bisection(made[0], made[-1])
    runs = [line for line in bisection.told if " r1 ok " in line]
    assert runs and all(len(line.split()) == 6 for line in runs), "commit, repeat, status, seconds and the speed"
    assert (bisection.results / ".gitignore").read_text() == "*\n"


def test_hooks_of_the_repository_do_not_run(small: tuple[Bisection, list[str]]) -> None:
    bisection, made = small
    hook = bisection.folder / ".git" / "hooks" / "post-checkout"
    hook.write_text("#!/bin/sh\ntouch ../../../hooked\nexit 1\n")
    hook.chmod(0o755)
    assert bisection(made[1], made[2]).exit_code == 0
    assert not [*bisection.folder.parent.rglob("hooked")]


# Calls after each other.


def test_a_repeated_call_runs_nothing_and_says_the_same(small: tuple[Bisection, list[str]]) -> None:
    bisection, made = small
    first = bisection(made[0], made[3])
    said = list(bisection.said)
    again = bisection(made[0], made[3])
    assert (bisection.trained, bisection.said) == ([], said)
    assert again.lines() == first.lines() and again.document() == first.document()


def test_an_interrupted_call_goes_on_with_the_rest(small: tuple[Bisection, list[str]]) -> None:
    bisection, made = small
    bisection.most_runs = 14
    with pytest.raises(KeyboardInterrupt):
        bisection(made[0], made[3])
    assert len(bisection.worktrees()) == 1
    bisection.most_runs = 1000
    # A call that was killed leaves its worktrees.
    git(bisection.folder, "worktree", "add", "--detach", str(bisection.results / "worktrees" / made[1][:12]), made[1])
    (bisection.results / "worktrees" / made[1][:12] / "model.py").write_text("broken(")
    result = bisection(made[0], made[3])
    assert places(result) == (1, 2) and 14 + len(bisection.trained) == result.runs
    assert len(bisection.worktrees()) == 1


def test_the_worktree_of_a_run_that_goes_on_after_a_kill_stays(small: tuple[Bisection, list[str]]) -> None:
    bisection, made = small
    searched = bisection.commits(made[0], made[3])
    experiment = searched.experiment(1)
    searched.experiment(2)
    store = Store.create(bisection.results / made[1][:12], {})
    store.add([experiment])
    assert claims.claim(store.job(experiment.id, repeat=1, attempt=1), executor="fake") is not None
    runs = Runs(root=bisection.results, checkout=searched, executor=bisection, tell=bisection.said.append)
    searched.close(keep=runs.going_on())
    assert len(bisection.worktrees()) == 2
    searched.close()
    assert len(bisection.worktrees()) == 1


def test_another_bisection_needs_another_folder(small: tuple[Bisection, list[str]]) -> None:
    bisection, made = small
    bisection(made[1], made[2])
    with pytest.raises(
        OrchestratorError, match=r"bisect: the folder has a bisection with another good: .* name a new folder"
    ):
        bisection(made[0], made[2])
    bisection.file.write_text(
        SCENARIOS.replace("launcher: none", "launcher: none\n    results: stdout").replace(
            "own\n", "own\n  env: {A: b}\n"
        )
    )
    with pytest.raises(OrchestratorError, match="with another experiment"):
        bisection(made[1], made[2])


# Ends.


def test_an_end_that_fails_is_an_error_and_is_tried_again_by_the_next_call(small: tuple[Bisection, list[str]]) -> None:
    bisection, made = small

    def break_model(worktree: Path) -> None:
        if worktree.name == made[3][:12]:
            (worktree / "model.py").write_text("broken(")

    bisection.before = break_model
    with pytest.raises(
        OrchestratorError, match=r"--bad \w{12} cannot be measured: run 1: failed .* name another commit"
    ):
        bisection(made[0], made[3])
    bisection.before = lambda worktree: None
    assert places(bisection(made[0], made[3])) == (1, 2)


def test_ends_that_do_not_differ_and_a_bad_end_that_is_faster_are_no_step(tmp_path: Path) -> None:
    made = repository(tmp_path / "project", speeds((2, 800.0), (1, 1000.0)))
    bisection = Bisection(tmp_path / "project")
    result = bisection(made[0], made[1])
    assert result.exit_code == 1 and result.page is None and len(bisection.trained) == 6 * RUNS
    assert result.lines()[0].startswith("No step: no clear difference between good and bad")
    bisection.results = tmp_path / "other"
    assert bisection(made[0], made[2]).lines()[0].startswith("No step: bad is better than good, +")


# Versions of a package.

PACKAGE_SCENARIOS = """\
environments:
  own: {requirements: [fast-lib], find_links: [wheels]}
scenarios:
- name: own
  environment: own
  trainer: custom
  device: cpu
  custom: {command: ['{python}', '-c', 'import fast_lib'], launcher: none, metrics: {train_tokens_per_second: {}}}
"""


def test_the_first_slow_version_of_a_package_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNEBENCH_ENVIRONMENTS", str(tmp_path / "environments"))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    for number, speed in enumerate((1000, 1000, 1000, 1000, 800, 800)):
        needs = ["not-there"] if number == 2 else []
        packages.wheel(tmp_path / "wheels", "fast_lib", f"1.{number}", code=f"SPEED = {speed}\n", requires=needs)
    (tmp_path / "scenarios.yaml").write_text(PACKAGE_SCENARIOS)
    said: list[str] = []

    def train(job: Job) -> RunRecord:
        experiment = Store(job.folder.results).experiment(job.experiment_id)
        assert experiment.python is not None
        speed = float(process.capture([experiment.python, "-c", "import fast_lib; print(fast_lib.SPEED)"], 60))
        noise = random.Random(str(job.run_dir.parts[-5:])).gauss(0, 0.01)
        return replace(
            ended(experiment, job.repeat, train_tokens_per_second=speed * (1 + noise)), started_at=time.time()
        )

    def searched(good: str, bad: str) -> Result:
        experiment = chosen(load_suite(tmp_path / "scenarios.yaml"), parse_selection(), say=said.append)
        found = versions((good, bad), experiment)
        executor = FakeExecutor(train)
        return carry_out.bisect(
            tmp_path / "bisect", found, rules=parse(), executor=executor, say=said.append, tell=said.append
        )

    result = searched("fast-lib==1.0", "fast-lib==1.5")
    assert result.lines()[0] == "First bad version: fast-lib-1.4" and result.exit_code == 0
    assert any(line.startswith("skipped   fast-lib-1.2  environment 'own': ") and "not-there" in line for line in said)
    assert json.loads(result.document())["first_bad"]["version"] == "fast-lib==1.4"
    assert "fast-lib-1.4" in (tmp_path / "bisect" / "comparison.html").read_text()
    with pytest.raises(OrchestratorError, match=r"--good: there is no version 0.9; the package sources have 1.5, 1.4"):
        searched("fast-lib==0.9", "fast-lib==1.5")


def test_a_package_of_the_repository_is_installed_from_each_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNEBENCH_ENVIRONMENTS", str(tmp_path / "environments"))
    made = repository(tmp_path / "project", speeds((1, 1000.0)))
    folder, lib = tmp_path / "project", tmp_path / "project" / "lib"
    for speed in (1000, 800):
        packages.local_package(lib, "fast_lib", f"SPEED = {speed}\n")
        git(folder, "add", "-A")
        git(folder, "commit", "-q", "-m", f"A library of speed {speed}")
        made.append(git(folder, "rev-parse", "HEAD"))
    bisection = Bisection(folder)
    text = PACKAGE_SCENARIOS.replace("[fast-lib], find_links: [wheels]", '["fast_lib @ ./lib"]')
    bisection.file.write_text(text)

    def import_it(job: Job) -> RunRecord:
        experiment = Store(job.folder.results).experiment(job.experiment_id)
        assert experiment.python is not None
        speed = float(process.capture([experiment.python, "-c", "import fast_lib; print(fast_lib.SPEED)"], 60))
        return ended(experiment, job.repeat, train_tokens_per_second=speed + 0.1 * (job.repeat % 3))

    monkeypatch.setattr(bisection, "train", import_it)
    result = bisection(made[1], made[2])
    assert places(result) == (0, 1), result.lines()
    packages.local_package(lib, "fast_lib", "SPEED = 1  # edited, and not committed\n")
    assert bisection(made[1], made[2]).lines() == result.lines()


def test_with_padded_rows_the_speed_without_padding_is_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that pads less was called bad: 10 % fewer tokens per second, and 76 % more of them were no padding."""
    made = repository(tmp_path / "project", speeds((2, 1000.0), (2, 800.0)))
    bisection = Bisection(tmp_path / "project")
    train = bisection.train

    def padded(job: Job) -> RunRecord:
        speed = next(number.value for number in train(job).measurements if number.name == "train_tokens_per_second")
        experiment = Store(job.folder.results).experiment(job.experiment_id)
        record = ended(experiment, job.repeat, tokens_per_s=2.5e3 - speed, real_tokens_per_s=speed)
        return replace(record, started_at=time.time(), wall_s=0.1)

    monkeypatch.setattr(bisection, "train", padded)
    result = bisection(made[0], "main")
    assert places(result) == (1, 2) and "real tok/s" in "\n".join(result.lines())


def test_padding_that_begins_at_the_bad_commit_is_no_gain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The good end has no padding, so its speeds are equal. The bad commits count 10 % more tokens, and train 5 % fewer."""
    made = repository(tmp_path / "project", speeds((2, 1000.0), (2, 950.0)))
    bisection = Bisection(tmp_path / "project")
    train = bisection.train

    def padded(job: Job) -> RunRecord:
        speed = next(number.value for number in train(job).measurements if number.name == "train_tokens_per_second")
        assert isinstance(speed, float)
        experiment = Store(job.folder.results).experiment(job.experiment_id)
        counted = speed * (1.16 if bisection.trained[-1].name in (made[2][:12], made[3][:12]) else 1)
        record = ended(experiment, job.repeat, tokens_per_s=counted, real_tokens_per_s=speed)
        return replace(record, started_at=time.time(), wall_s=0.1)

    monkeypatch.setattr(bisection, "train", padded)
    result = bisection(made[0], "main")
    assert places(result) == (1, 2) and "real tok/s" in "\n".join(result.lines())
    assert bisection(made[0], "main").lines() == result.lines() and not bisection.trained


# Runs without a steady state.


def unsteady(train: Callable[[Job], RunRecord], is_unsteady: Callable[[Job], bool]) -> Callable[[Job], RunRecord]:
    """Return a trainer with a speed of its steps; it is missing in the unsteady runs. All runs have the Trainer's own speed."""

    def trained(job: Job) -> RunRecord:
        record = train(job)
        speed = next(number for number in record.measurements if number.name == "train_tokens_per_second")
        why = (Caveat(kind=CaveatKind.NO_STEADY_SPEED, detail="4 step(s) are left"),) if is_unsteady(job) else ()
        steady = replace(speed, name="tokens_per_s", value=None if why else speed.value)
        return replace(record, measurements=(steady,), warnings=why)

    return trained


def test_another_run_takes_the_place_of_one_without_a_steady_state(small: tuple[Bisection, list[str]]) -> None:
    """One such run ended the search for good: the next calls read the same record."""
    bisection, made = small
    chance = random.Random("unsteady")
    disturbed = {(one, repeat) for one in made for repeat in range(40) if chance.random() < 0.2}
    disturbed |= {(one, 1) for one in made}  # the first run of all decided that there is no speed
    whole = {one[:12]: one for one in made}
    bisection.train = unsteady(  # type: ignore[method-assign]
        bisection.train, lambda job: (whole[bisection.trained[-1].name], job.repeat) in disturbed
    )
    result = bisection(made[0], made[3])
    assert places(result) == (1, 2) and result.lines()[1].startswith("tok/s: ")
    assert any(line.endswith("r1 ok 0.1 s no steady-state speed") for line in bisection.told)
    assert result.runs == len(bisection.trained) > 5 * RUNS
    said = list(bisection.said)
    again = bisection(made[0], made[3])
    assert (bisection.trained, bisection.said, again.lines()) == ([], said, result.lines())


def test_an_end_that_is_never_steady_is_an_error_and_the_next_call_tries_again(
    small: tuple[Bisection, list[str]],
) -> None:
    bisection, made = small
    quiet, train = False, bisection.train
    bisection.train = unsteady(train, lambda job: not quiet and bisection.trained[-1].name == made[3][:12])  # type: ignore[method-assign]
    sentence = (
        rf"--bad {made[3][:12]} cannot be measured: 3 runs in a row have no steady-state speed \(the last one: 4 step\(s\) are "
        r"left\); make the runs longer, or judge another number in a new folder \(--metric wall_s:lower --results FOLDER\), or "
        "name another commit"
    )
    for _ in range(2):
        with pytest.raises(OrchestratorError, match=sentence):
            bisection(made[0], made[3])
        assert [folder.name for folder in bisection.trained].count(made[3][:12]) == MOST_UNSTEADY
    quiet = True
    assert places(bisection(made[0], made[3])) == (1, 2)


def test_a_probe_that_is_never_steady_is_skipped(small: tuple[Bisection, list[str]]) -> None:
    bisection, made = small
    bisection.train = unsteady(bisection.train, lambda job: bisection.trained[-1].name == made[1][:12])  # type: ignore[method-assign]
    result = bisection(made[0], made[3])
    assert places(result) == (0, 2) and [*result.found.hidden] == [1]
    assert any(line.startswith(f"skipped   {made[1][:12]}  3 runs in a row have no steady") for line in bisection.said)
    said = list(bisection.said)
    bisection(made[0], made[3])
    assert (bisection.trained, bisection.said) == ([], said)


def test_short_runs_that_are_never_steady_are_judged_by_the_speed_of_the_whole_run(
    small: tuple[Bisection, list[str]],
) -> None:
    bisection, made = small
    train = bisection.train

    def short(job: Job) -> RunRecord:
        return replace(train(job), warnings=(Caveat(kind=CaveatKind.NO_STEADY_SPEED, detail="the run is short"),))

    bisection.train = short  # type: ignore[method-assign]
    result = bisection(made[0], made[3])
    assert places(result) == (1, 2) and result.lines()[1].startswith("Trainer tok/s: ")
    bisection(made[0], made[3])
    assert bisection.trained == []


# The command.


def test_the_command_prints_the_step_and_writes_its_page(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    made = repository(folder, speeds((1, 1000.0), (1, 800.0)))
    done = tunebench(
        folder, "bisect", "scenarios.yaml", "--good", "HEAD~1", "--bad", "main", "--scenario", "own", "--json"
    )
    assert done.code == 0, done.said
    found = json.loads(done.out)
    assert (found["first_bad"]["commit"], found["last_good"]["commit"]) == (made[1], made[0])
    assert found["runs"] == 10 and found["ratio"]["low"] < 0.8 < found["ratio"]["high"]
    assert "First bad commit: " in done.err and "wrote bisect/comparison.html" in done.err
    assert len(git(folder, "worktree", "list").splitlines()) == 1
    records = [(path.parts[-6], json.loads(path.read_text())) for path in (folder / "bisect").rglob("record.json")]
    noted = {(key, record["provenance"]["git"]["commit"]) for key, record in records}
    assert noted == {(commit[:12], commit) for commit in made}, "each record names the commit of its probe"
    again = tunebench(folder, "bisect", "scenarios.yaml", "--good", "HEAD~1", "--bad", "main", "--scenario", "own")
    assert again.code == 0 and "0 probes, 10 runs, 0.0 GPU-hours" in again.out and " r1 ok" not in again.err


def test_experiments_that_are_chosen_together_are_listed_with_their_values(tmp_path: Path) -> None:
    file = tmp_path / "scenarios.yaml"
    (tmp_path / "train.py").write_text(TRAIN)
    file.write_text(SCENARIOS.replace("device: cpu", "device: cpu\n  matrix: {kind: [a, b]}", 1))
    with pytest.raises(SelectionError, match=r"2 are chosen; .*: own-\S+ \(kind=a\), own-\S+ \(kind=b\)$"):
        chosen(load_suite(file), parse_selection(scenarios=["own"]), say=print)


def test_mistakes_are_sentences(tmp_path: Path, call: Call) -> None:
    folder = tmp_path / "project"
    made = repository(folder, speeds((2, 1000.0), (1, 800.0)))
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "scenarios.yaml").write_text(SCENARIOS)

    def said(*words: str, good: str = made[0], bad: str = "main", where: Path = folder) -> str:
        code, out, err = call(where, "bisect", "scenarios.yaml", "--good", good, "--bad", bad, *words)
        assert (code, out) == (2, "") and "Traceback" not in err
        return err

    own = ("--scenario", "own")
    assert "scenarios.yaml: a bisection runs one experiment, and 2 are chosen; choose one with --scenario" in said()
    assert "--good 'nowhere' is not a commit of" in said(*own, good="nowhere")
    assert "--good and --bad name the same commit" in said(*own, good="main")
    assert "is not an ancestor of --bad HEAD~1; exchange the two" in said(*own, good="main", bad="HEAD~1")
    assert "are not two versions of one package; write them like torch==2.11" in said(*own, good="torch==2.11")
    of_torch = said(*own, good="torch==2.11", bad="torch==2.13")
    assert "has no requirement torch to replace; give the scenario an environment:" in of_torch
    assert "name the folder of a git repository with --repo" in said(*own, where=tmp_path / "outside")
    assert "metric speed: it is unknown whether" in said(*own, "--metric", "speed")
    (folder / "bisect").mkdir()
    (folder / "bisect" / "mine.txt").write_text("mine")
    assert "bisect: the folder has other content; name a new folder with --results" in said(*own)
    assert (folder / "bisect" / "mine.txt").read_text() == "mine" and os.listdir(folder / "bisect") == ["mine.txt"]
