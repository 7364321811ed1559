"""Plugs of third parties: a distribution on the path that brings good, broken and odd ones of every kind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from importlib import metadata
from pathlib import Path

import pytest
from factories.comparisons import NOISY, SPEED, entry
from factories.suites import expanded, suite

from orchestrator import entry_points, executors, monitors, trainers
from orchestrator.compare.sides import environment
from orchestrator.errors import ConfigError, SelectionError
from orchestrator.records import Command, JobState, RunFolder
from orchestrator.run import run_files

PLUG = """
from orchestrator.executors import Executor
from orchestrator.monitors import Monitor
from orchestrator.trainers import Trainer

class Training(Trainer):
    name = "good"
    def command(self, experiment, run_dir): return ["train"]
    def metrics(self, run_dir): return []

class Odd(Training):
    name = "odd"
    requires = ["torch"]
    def problem(self, experiment): return "it does not work"
    def translate(self, arguments): return dict(arguments)

class OddRequirement(Training):
    name = "requires"
    def requires_for(self, arguments): return ("tor ch",)

class OddAttribute(Training):
    base_arguments = {"max_steps": 5}

class Watching(Monitor):
    perturbs = True

class Running(Executor):
    def run(self, jobs): return iter(())

watching, harmless, odd = Watching(), Monitor(), 3
"""
KINDS = {"trainers": "Training", "monitors": "watching", "executors": "Running"}
OURS = {"trainers": "huggingface", "monitors": "nvml", "executors": "local"}


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "plug_of_a_test.py").write_text(PLUG)
    info = tmp_path / "plug_of_a_test-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plug-of-a-test\nVersion: 1\n")
    points = {"good": "{}", "broken": "missing", "odd": "odd"}
    lines = []
    for kind, name in KINDS.items():
        lines += [f"[tunebench.{kind}]", f"{OURS[kind]} = plug_of_a_test:{name}"]
        lines += ["harmless = plug_of_a_test:harmless"] * (kind == "monitors")
        lines += [
            "attribute = plug_of_a_test:OddAttribute",
            "answers = plug_of_a_test:Odd",
            "requires = plug_of_a_test:OddRequirement",
        ] * (kind == "trainers")
        lines += [f"{point} = plug_of_a_test:{target.format(name)}" for point, target in points.items()]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    entry_points._installed.cache_clear()
    yield
    entry_points._installed.cache_clear()


def test_the_trainer_of_the_page_is_a_trainer() -> None:
    page = (Path(__file__).parents[2] / "docs" / "add-a-plug.md").read_text()
    names: dict[str, type] = {}
    exec(page.partition("```python\n")[2].partition("```")[0], names)
    assert isinstance(names["TorchTune"](), trainers.Trainer)


def test_they_are_added_to_ours() -> None:
    assert trainers.get("good").name == "good" and "good" in trainers.known()
    assert trainers.get("good").translate({"a": "1"}) == ({"a": "1"}, ())
    assert monitors.get("good").perturbs and monitors.names()[-2:] == ("good", "harmless")
    assert list(executors.get("good").run([])) == []


@pytest.mark.parametrize("kind", KINDS)
def test_one_that_is_broken_stops_nothing_and_is_named(kind: str) -> None:
    package = {"trainers": trainers, "monitors": monitors, "executors": executors}[kind]
    singular = kind.removesuffix("s")
    with pytest.raises(SelectionError) as caught:
        package.get("broken")  # type: ignore[attr-defined]
    said = str(caught.value)
    assert said.startswith(f"unknown {singular} 'broken'") and "Allowed: " in said
    assert {OURS[kind] if kind != "monitors" else "hf_memory"} <= {
        *said.partition("Allowed: ")[2].replace(".", ",").split(", ")
    }
    assert f"The {singular} 'broken' (plug_of_a_test:missing) could not be loaded: AttributeError" in said
    assert (
        f"The {singular} 'odd' (plug_of_a_test:odd) does not implement {singular.title()}: see docs/add-a-plug.md."
        in said
    )
    assert f"The installed {singular} '{OURS[kind]}'" in said and f"has the name of a built-in {singular}" in said


def test_a_wrong_attribute_is_a_load_problem() -> None:
    problem = next(one for one in trainers.load_problems() if "'attribute'" in one)
    assert "could not be loaded: base_arguments.max_steps.str is 5: Input should be a valid string" in problem


def test_a_wrong_answer_is_named() -> None:
    odd = trainers.get("answers")
    assert odd.requires == ("torch",) and odd.command(None, Path()) == ["train"]  # type: ignore[arg-type]
    said = r"the trainer 'answers', which is not part of Tunebench: {} is wrong: its answer is .*; correct it there"
    with pytest.raises(entry_points.WrongAnswer, match=said.format("problem")):
        odd.problem(None)  # type: ignore[arg-type]
    with pytest.raises(entry_points.WrongAnswer, match=said.format("translate")):
        odd.translate({})


@pytest.mark.parametrize("yielded", [None, [5], [(None, JobState.ENDED)]])
def test_an_executor_that_yields_no_jobs_is_named(yielded: list[object] | None) -> None:
    class Odd:
        def run(self, jobs: object) -> object:
            return yielded if yielded is None else iter(yielded)

    with pytest.raises(entry_points.WrongAnswer, match=r"the executor .*Odd: run (returned|yielded)"):
        [*executors.ends(Odd(), [])]  # type: ignore[arg-type]


def test_an_executors_iterator_is_closed() -> None:
    class Iterating:
        closed = False

        def __iter__(self) -> Iterating:
            return self

        def __next__(self) -> object:
            raise KeyboardInterrupt

        def close(self) -> None:
            self.closed = True

    class Own:
        jobs = Iterating()

        def run(self, jobs: object) -> Iterating:
            return self.jobs

    with pytest.raises(KeyboardInterrupt):
        [*executors.ends(Own(), [])]  # type: ignore[arg-type]
    assert Own.jobs.closed


def test_a_requirement_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        entry_points.WrongAnswer, match=r"trainer requires: 'tor ch' in its `requires` is not a package"
    ):
        expanded(
            suite(
                tmp_path, "scenarios: [{name: s, trainer: requires, device: cpu, arguments: {model_name_or_path: m}}]"
            )
        )


@pytest.mark.parametrize(
    ("name", "is_new"), [("a/conf.py", True), ("../out", False), ("/tmp/out", False), ("job.json", False)]
)
def test_the_files_of_a_command_are_new_files_in_the_runs_folder(tmp_path: Path, name: str, is_new: bool) -> None:
    (tmp_path / "job.json").write_text("{}")
    command = Command(argv=("x",), env={}, cwd=tmp_path, files={name: "1"})
    with (
        nullcontext()
        if is_new
        else pytest.raises(entry_points.WrongAnswer, match="must be a new file in the run's folder")
    ):
        run_files.write(command, RunFolder(tmp_path))
    assert (tmp_path / "job.json").read_text() == "{}" and (tmp_path / "a/conf.py").exists() is is_new


def test_a_disk_that_refuses_chmod_is_no_reason_to_fail(tmp_path: Path) -> None:
    name = Path("/proc/self/comm")  # this file may be written, and nobody may change its mode
    with pytest.raises(PermissionError):
        name.chmod(0o755)
    before = name.read_text().strip()  # a line end in the name would break torch's traces, which have it
    (tmp_path / "command.sh").symlink_to(name)
    try:
        run_files.write(Command(argv=("x",), env={}, cwd=tmp_path), RunFolder(tmp_path))
    finally:
        name.write_text(before)


class _Package(metadata.Distribution):
    """A package whose files give an error."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def read_text(self, filename: str) -> str:
        raise self.error

    def locate_file(self, path: object) -> Path:
        return Path("/packages")


@pytest.mark.parametrize(
    ("error", "is_damage"), [(ValueError("x"), True), (OSError(24, "x"), False), (MemoryError(), False)]
)
def test_only_files_that_were_read_are_damaged(error: Exception, is_damage: bool) -> None:
    with pytest.raises(type(error)) as raised:
        _ = _Package(error).entry_points
    assert (entry_points.raised_by(raised.value) is not None) == is_damage


def test_one_of_ours_cannot_be_replaced() -> None:
    assert trainers.get("huggingface") is trainers.TRAINERS["huggingface"]
    assert monitors.get("nvml") is monitors.MONITORS["nvml"]
    assert executors.get("local") is executors.EXECUTORS["local"]
    assert (len(trainers.load_problems()), len(monitors.load_problems())) == (4, 3)


def test_a_monitor_that_slows_a_run_makes_another_experiment(tmp_path: Path) -> None:
    scenario = {"name": "s", "arguments": {"model_name_or_path": "m"}}
    ids = [
        expanded(suite(tmp_path, {"scenarios": [{**scenario, "monitors": names}]}))[0].id
        for names in ([], ["nvml"], ["harmless"], ["good"], ["hf_memory_native", "good"])
    ]
    assert ids[0] == ids[1] == ids[2] and len({*ids}) == 3
    with pytest.raises(
        ConfigError, match=r"unknown monitor 'goood'; did you mean 'good'.*'broken' .* could not be loaded"
    ):
        expanded(suite(tmp_path, {"scenarios": [{**scenario, "monitors": ["goood"]}]}))


@pytest.mark.parametrize(
    ("watched_by", "forbidden"), [("good", ("monitors",)), ("harmless", ()), ("nvml harmless", ())]
)
def test_runs_under_a_monitor_that_slows_are_not_compared_with_others(
    watched_by: str, forbidden: tuple[str, ...]
) -> None:
    base, new = (entry("a", {SPEED: NOISY}, environment={"monitors": watched}) for watched in ("none", watched_by))
    told = environment.differences(base, new)
    assert environment.disqualifying(base, new, told) == forbidden
