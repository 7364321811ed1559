"""Software environments as an axis: cells, ids, what is refused and at which line, tables and comparisons."""

from __future__ import annotations

import io
import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factories.results import experiment
from factories.suites import planned, suite
from rich.console import Console

from orchestrator.compare.comparison import Entry
from orchestrator.compare.sides import keys
from orchestrator.errors import ConfigError
from orchestrator.plan.identity.experiment_id import Digester
from orchestrator.plan.view import json_document, summary, table
from orchestrator.records import Environment, Experiment
from orchestrator.report.highlights.answers import answers
from orchestrator.results import experiment_file
from orchestrator.results.table.load import of_rows
from orchestrator.results.table.rows import Row, experiment_facts

ENVIRONMENTS = (
    "environments:\n  old: [torch==2.13.0, transformers==4.55.4]\n  new: [torch==2.13.0, transformers==5.23.0]\n"
)
SCENARIO = "- {{name: s, device: cpu, arguments: {{model_name_or_path: config:tiny-llama}}, {keys}}}\n"
THIS = f"  here: {{interpreter: {sys.executable}, env: {{A: '1', B: '2'}}}}\n"


def text(keys: str, environments: str = ENVIRONMENTS) -> str:
    return f"{environments}scenarios:\n{SCENARIO.format(keys=keys)}"


def names(folder: Path, keys: str, environments: str = ENVIRONMENTS, **choices: Any) -> list[tuple[str | None, str]]:
    """Environment and framework configuration of each cell that is not skipped."""
    plan = planned(folder, text(keys, environments), **choices)
    return [
        (one.environment.name if one.environment else None, one.framework.name if one.framework else "none")
        for one in plan.experiments
        if one.skip is None
    ]


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("environment: old", [("old", "none")]),
        ("environment: [old, new]", [("old", "none"), ("new", "none")]),
        ("environment: [null, old]", [(None, "none"), ("old", "none")]),
        (
            "environment: [old, new], framework_config: [null, eager]",
            [("old", "none"), ("old", "eager"), ("new", "none"), ("new", "eager")],
        ),
        (
            "environment: [old, new], framework_config: [null, eager], "
            "exclude: [{environment: old, framework_config: null}]",
            [("old", "eager"), ("new", "none"), ("new", "eager")],
        ),
        ("environment: old, include: [{environment: new, max_steps: 3}]", [("old", "none"), ("new", "none")]),
        ("include: [{environment: new}]", [(None, "none"), ("new", "none")]),
    ],
)
def test_environments_are_an_axis(tmp_path: Path, keys: str, expected: list[tuple[str | None, str]]) -> None:
    assert names(tmp_path, keys) == expected


def test_the_command_line_replaces_the_environments(tmp_path: Path) -> None:
    assert names(tmp_path, "environment: old", settings=["environment=[new, null]"]) == [
        ("new", "none"),
        (None, "none"),
    ]


REFUSED = {
    "environment: newer": "2:1: scenario 's': unknown environment 'newer'; did you mean 'new'? Allowed: new, old",
    "environment: old, python: /usr/bin/python3": "'python:' and 'environment:' both name an interpreter; keep one of them",
    "environment: old, exclude: [{environment: other}]": "exclude: the axis environment has no value 'other'",
    "environment: old, exclude: [{environment: [old]}]": "exclude: environment: ['old'] is invalid; write the name of an",
    "environment: old, baseline: {environment: new}": "baseline: the axis environment has no value 'new'",
    "matrix: {environment: [old]}": "'environment' is a key of a scenario, not an argument of the trainer",
    "environment: []": "environment: the list is empty; give at least one value",
}


@pytest.mark.parametrize("keys", REFUSED)
def test_what_cannot_be_an_environment_is_explained(tmp_path: Path, keys: str) -> None:
    with pytest.raises(ConfigError) as caught:
        names(tmp_path, keys)
    assert REFUSED[keys].partition(": scenario")[2] or REFUSED[keys] in str(caught.value)
    assert ":5:" in str(caught.value), "the line of the scenario"


WRONG_ENTRIES = {
    "a: []": "environment 'a': it has no packages; write requirements:, lock:, interpreter: or container:",
    "a: {requirements: [x], interpreter: /usr/bin/python3}": "interpreter and requirements are given; keep one of them",
    "a: {interpreter: /usr/bin/python3, find_links: w}": "nothing is built with interpreter:, so find_links: has no effect",
    "a: {interpreter: /nowhere/python}": "environment 'a': there is no interpreter /nowhere/python; correct the path",
    "a: {requirements: [x], container: x}": "environment 'a': container and requirements are given; keep one of them",
    "a: {interpreter: /usr/bin/python3, container: x}": "interpreter and container are given; keep one of them",
    "a: {container: x, lock: l}": "environment 'a': container and lock are given; keep one of them",
    "a: {container: x, python: '3.11'}": "nothing is built with container:, so python: has no effect; remove it",
    "a: {container: ''}": "'' is not an image; write it like docker.io/pytorch/pytorch:2.6.0",
    "a: {container: '-v x'}": "'-v x' is not an image; write it like",
    **{
        f"a: {{container: {{image: '{image}', program: {program}}}}}": advice
        for image in ("docker://me:hunter2@host/x", "me:hunter2@host/x:1.0", "https://me:hunter2@host/x", "me@host/x@y")
        for program, advice in {
            "podman": "it has a user or a password; log in with `podman login`, and write the image without them",
            "apptainer": "it has a user or a password; log in with `apptainer registry login`, and write",
            "pyxis": "it has a password; write it into enroot's file .credentials, and the image like USER@REGISTRY#IMAGE",
        }.items()
    },
    "a: {container: {image: ./sand@box, program: apptainer}}": "sand@box does not exist; correct the path",
    "a: {container: x.sif}": "x.sif does not exist; correct the path",
    "a: {container: {image: /dev/zero, program: apptainer}}": "/dev/zero is not a file; correct the path",
    "a: {container: {image: x.sif, program: podman}}": "podman cannot start a .sif file; write program: apptainer",
    "a: {container: {image: x, program: docker}}": "program: 'docker' is not allowed. Allowed: apptainer, podman, pyxis",
    "a: {container: {image: x, mounts: [./gone]}}": "gone; correct the path",
    "a: {container: {image: x, mounts: ['.:data']}}": "'.:data' is not a mount; write FOLDER or FOLDER:/PATH",
    "a: {container: {image: x, entrypoint: y}}": "unknown key 'entrypoint'",
    "a: ['torch = 2']": "'torch = 2' is not a requirement; write it like torch==2.13.0",
    "a: [./missing]": "there is no ",
    "a: [requirements.txt]": "requirements.txt: there is no such file; correct the path",
    "a: {lock: ./}": "it is not a regular file",
    "a: {requirements: [x], python: 3.11}": "python: 3.11 is a number, and YAML reads 3.10 as 3.1; quote it: '3.11'",
    "a: {requirements: [x], python: '3.2'}": "there is no interpreter '3.2' on this machine",
    "a: {requirments: [x]}": "unknown key 'requirments'; did you mean 'requirements'?",
    "a b: [x]": "'a b' is not a name for an environment; write letters, digits and . _ = + -",
    "none: [x]": "'none' is not a name for an environment",
}


@pytest.mark.parametrize("entry", WRONG_ENTRIES)
def test_a_wrong_environment_is_explained_at_its_line(tmp_path: Path, entry: str) -> None:
    with pytest.raises(ConfigError) as caught:
        names(tmp_path, "environment: a", f"environments:\n  {entry}\n")
    assert WRONG_ENTRIES[entry] in str(caught.value) and "hunter2" not in str(caught.value)
    assert "scenarios.yaml:" in str(caught.value)


@pytest.mark.parametrize(
    ("image", "program"),
    [
        ("host/x@sha256:" + "0a" * 32, "podman"),
        ("docker://host:5000/x:1.0@sha256:" + "0a" * 32, "apptainer"),
        ("host/x@sha256:0a0a", "podman"),
        ("docker://me@host#x", "pyxis"),
        ("$oauthtoken@host#x:1.0@sha256:" + "0a" * 32, "pyxis"),
    ],
)
def test_a_digest_and_the_user_that_enroot_needs_are_allowed(tmp_path: Path, image: str, program: str) -> None:
    names(tmp_path, "environment: a", f"environments:\n  a: {{container: {{image: '{image}', program: {program}}}}}\n")


def test_mistakes_in_several_environments_are_told_at_once(tmp_path: Path) -> None:
    both = "environments:\n  a: {interpreter: /nowhere/python}\n  b: {requirements: [x], python: '3.2'}\n"
    with pytest.raises(ConfigError) as caught:
        names(tmp_path, "environment: a", both)
    assert "there is no interpreter /nowhere/python" in str(caught.value) and "'3.2'" in str(caught.value)


def test_a_file_of_requirements_is_read_and_its_mistakes_have_its_lines(tmp_path: Path) -> None:
    file = tmp_path / "requirements.txt"
    file.write_text("# what we use\ntorch==2.13.0  # the CPU build\n\n./local\n")
    (tmp_path / "local").mkdir()
    (tmp_path / "local" / "pyproject.toml").write_text("[project]\nname = 'local'\n")
    written = "environments:\n  a: requirements.txt\n"
    request = suite(tmp_path, text("environment: a", written)).environments.requests["a"]
    assert request.requirements == ("torch==2.13.0", str(tmp_path / "local"))
    assert list(request.folders) == [str(tmp_path / "local")]
    file.rename(tmp_path / "base")
    file.symlink_to("base")
    linked = suite(tmp_path, text("environment: a", written)).environments.requests["a"]
    assert linked.requirements == request.requirements
    file.write_text("torch==2.13.0\n--hash=sha256:1\n")
    with pytest.raises(ConfigError, match=r"requirements\.txt:2: '--hash=sha256:1' is an option of pip"):
        suite(tmp_path, text("environment: a", written))


def test_the_content_of_a_local_package_counts_and_its_caches_do_not(tmp_path: Path) -> None:
    def digest() -> str:
        written = "environments:\n  a: [./local]\n"
        (found,) = suite(tmp_path, text("environment: a", written)).environments.requests["a"].folders.values()
        return found

    code = tmp_path / "local" / "src"
    code.mkdir(parents=True)
    (code / "a.py").write_text("1")
    before = digest()
    for ignored in (".git/HEAD", "src/__pycache__/a.pyc", "build/lib/a.py", "local.egg-info/PKG-INFO"):
        place = tmp_path / "local" / ignored
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("new")
    assert digest() == before
    (code / "a.py").write_text("2")
    assert digest() != before
    before = digest()
    (code / "build").mkdir()
    (code / "build" / "b.py").write_text("a package may have a module of this name")
    assert digest() != before
    before = digest()
    (code / os.fsdecode(b"caf\xe9.txt")).write_text("a name that is not UTF-8")
    assert digest() != before


def test_environments_of_the_folder_are_shared_and_a_name_is_given_once(tmp_path: Path) -> None:
    (tmp_path / "environments.yaml").write_text("environments:\n  shared: [torch==2.13.0]\n")
    assert names(tmp_path, "environment: [old, shared]") == [("old", "none"), ("shared", "none")]
    (tmp_path / "environments.yaml").write_text("environments:\n  old: [torch==2.13.0]\n")
    with pytest.raises(
        ConfigError, match=r"scenarios\.yaml:2:3: the environment 'old' is also in .*environments\.yaml"
    ):
        names(tmp_path, "environment: old")
    (tmp_path / "environments.yaml").write_text("old: [torch==2.13.0]\n")
    with pytest.raises(ConfigError, match=r"environments\.yaml:1:1: unknown key 'old'"):
        names(tmp_path, "environment: old")


def test_an_existing_interpreter_has_an_id_and_variables(tmp_path: Path) -> None:
    plan = planned(tmp_path, text("environment: here, env: {B: '3'}", f"environments:\n{THIS}"))
    (one,) = plan.experiments
    assert one.python == sys.executable and one.env == {"A": "1", "B": "3"}
    assert one.environment and one.environment.lock and one.id.startswith("s-tiny-llama.none.gpus1.here-")
    assert one.cannot_run_here is None


def test_the_lock_and_the_name_are_part_of_the_id_and_the_place_is_not() -> None:
    base = replace(
        experiment("s-a.none.gpus1-x"), environment=Environment(name="a", request="1", lock="2"), python="/a"
    )
    digest = Digester(frozenset()).digest
    assert digest(replace(base, python="/b")) == digest(base)
    assert digest(replace(base, environment=Environment(name="a", request="9", lock="2"))) == digest(base)
    for other in (Environment(name="b", request="1", lock="2"), Environment(name="a", request="1", lock="3"), None):
        assert digest(replace(base, environment=other)) != digest(base)
    unbuilt = [replace(base, environment=Environment(name="a", request=request)) for request in "12"]
    assert len({*map(digest, unbuilt), digest(base)}) == 3


def test_files_and_ids_without_an_environment_are_as_before() -> None:
    plain = experiment("s-a.none.gpus1-x")
    assert "environment" not in experiment_file.text_of(plain)
    moved = replace(plain, environment=Environment(name="a", request="1", lock="2"), python="/a")
    assert experiment_file.measure_alike(moved, replace(moved, python="/b"))
    again = Environment(name="a", request="other words", lock="2")
    assert experiment_file.measure_alike(moved, replace(moved, environment=again))
    assert not experiment_file.measure_alike(moved, replace(moved, environment=replace(again, lock="3")))


FORK = {"fork": "environment: new\n"}


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("framework_config: [null, fork]", [(None, "none"), ("new", "fork")]),
        (
            "framework_config: [null, fork], environment: [old, new]",
            [("old", "none"), ("new", "none"), ("new", "fork")],
        ),
        ("framework_config: [[eager, fork]]", [("new", "eager+fork")]),
    ],
)
def test_a_framework_configuration_may_need_an_environment(tmp_path: Path, keys: str, expected: Any) -> None:
    assert names(tmp_path, keys, frameworks=FORK) == expected
    skipped = [one.skip.text for one in planned(tmp_path, text(keys), frameworks=FORK).experiments if one.skip]
    assert len(skipped) == keys.count("old")
    assert all("'fork' needs the environment new, and the cell has old" in sentence for sentence in skipped)


def printed(plan: Any) -> str:
    console = Console(file=io.StringIO(), width=120, color_system=None)
    console.print(table(plan, width=120))
    return console.file.getvalue() + "\n".join(summary(plan))


def test_a_plan_names_the_environments_and_has_no_ids_before_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNEBENCH_ENVIRONMENTS", str(tmp_path / "built"))
    plan = planned(tmp_path, text("environment: [null, old, new]"))
    shown = printed(plan)
    lines = [line for line in map(str.rstrip, shown.splitlines()) if line.endswith(("ready", "to build"))]
    states = {line.split()[0]: line.endswith("ready") for line in lines}
    assert states == {"none": True, "old": False, "new": False}
    assert "old, new: the environments are not built, so their experiments have no ids yet" in shown
    entries = json.loads("".join(json_document(plan, sys.executable)))["experiments"]
    assert [entry["id"] is None for entry in entries] == [False, True, True]
    assert [entry.get("software", {}).get("name") for entry in entries] == [None, "old", "new"]
    without = printed(planned(tmp_path, text("framework_config: [null, eager]")))
    assert "environment" not in without


def in_environment(name: str | None, lock: str = "2") -> Experiment:
    one = experiment(f"s-a.none.gpus1-{name}{lock}")
    return replace(one, environment=Environment(name=name, request="1", lock=lock) if name else None, python="/x")


def test_tables_have_the_environment_only_if_a_row_has_one() -> None:
    def columns(*experiments: Experiment) -> Any:
        return of_rows(
            [Row(facts=experiment_facts(one), arguments={}, outcome={"status": "ok"}) for one in experiments]
        ).experiments

    frame = columns(in_environment(None), in_environment("old"))
    assert list(frame["environment"]) == ["none", "old"]
    assert "environment" not in columns(in_environment(None))
    assert "python" not in experiment_facts(in_environment("old"))


def entry(name: str | None) -> Entry:
    facts = experiment_facts(in_environment(name))
    key = {column: facts.get(column) for column in keys.OURS}
    return Entry(key=key, label="", status="ok", whole=True)


def test_comparisons_pair_by_the_name_of_the_environment() -> None:
    assert "environment" in keys.core([[entry("old"), entry("new")], [entry("old")]])
    assert "environment" not in keys.core([[entry(None)], [entry(None)]])
    assert "environment" in keys.core([[entry(None)], [entry("old")]])


def test_one_answer_compares_all_environments_and_names_them() -> None:
    def row(name: str, speed: float) -> Row:
        facts = {**experiment_facts(in_environment(name)), "device": "cpu"}
        measured = {"tokens_per_s": speed, "real_tokens_per_s": speed}
        return Row(facts=facts, arguments={}, outcome={"status": "ok", "repeat": 1}, measured=measured)

    (answer,) = answers(of_rows([row("old", 100.0), row("new", 150.0)]))
    assert [candidate.name for candidate in answer.candidates] == ["environment new", "environment old"]
