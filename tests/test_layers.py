"""The order of the rooms, and the seams between them, read from the imports (those inside functions count as well).

A module imports from its own room and from the rooms above it: ROOMS is that order, and docs/architecture.md says what each room
is for. Inside a room modules import each other freely as long as there is no circle.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "orchestrator"
WORKERS = PACKAGE / "workers"

ROOMS = [
    *(
        "errors",
        "files",
        "entry_points",
        "records",
        "machine",
        "measure",
        "results",
        "trainers",
        "monitors",
        "executors",
    ),
    *("screen", "plan", "run", "campaign", "report", "compare", "cli", "__main__"),
]
MOST_ENTRIES, MOST_AT_THE_TOP = 12, 18
NO_ENTRIES = {"__init__.py", "__main__.py", "__pycache__", "py.typed", "templates"}
TRAINING = {
    "torch",
    "transformers",
    "accelerate",
    "datasets",
    "peft",
    "trl",
    "bitsandbytes",
    "tokenizers",
    "liger_kernel",
}
HEAVY = TRAINING | {"pandas", "numpy", "scipy", "plotly", "pynvml", "psutil", "jinja2", "detect_secrets", "requests"}
STARTS = {"machine.process.captured", "machine.process.starts"}
# The others know only the type of a child's handle.
KNOW_SUBPROCESS = {
    *STARTS,
    *("machine.process", "machine.process.warm", "machine.process_tree"),
    *("monitors.sampling", "executors.local", "executors.starters"),
}


@cache
def modules() -> dict[str, Path]:
    """Dotted name below `orchestrator` → file, without the workers."""
    files = (file for file in PACKAGE.rglob("*.py") if WORKERS not in file.parents)
    names = {
        ".".join(file.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"): file for file in files
    }
    return {name: file for name, file in names.items() if name != "__init__"}


@cache
def imported(file: Path) -> tuple[str, ...]:
    """Dotted names that a file imports, `from a import b` as a.b."""
    found: list[str] = []
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{file}: relative imports hide the line that they cross"
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return tuple(found)


def ours(name: str) -> Iterator[str]:
    """The modules of ours that a module imports, as dotted names below `orchestrator`."""
    known = modules()
    for target in imported(known[name]):
        top, _, path = target.partition(".")
        if top == "orchestrator" and path:
            yield path if path in known else path.rpartition(".")[0]


def room(name: str) -> str:
    """The first part of a dotted name."""
    return name.partition(".")[0]


@pytest.mark.parametrize("name", modules())
def test_a_module_imports_only_from_its_room_and_the_rooms_above(name: str) -> None:
    reachable = ROOMS[: ROOMS.index(room(name)) + 1]
    wrong = [target for target in ours(name) if room(target) not in reachable]
    assert not wrong, f"{name} imports {', '.join(wrong)}"


def test_no_room_is_crowded() -> None:
    for folder in (PACKAGE, *(path for path in PACKAGE.rglob("*") if path.is_dir() and path.name not in NO_ENTRIES)):
        entries = [path.name for path in folder.iterdir() if path.name not in NO_ENTRIES]
        assert len(entries) <= (MOST_AT_THE_TOP if folder == PACKAGE else MOST_ENTRIES), f"{folder}: {sorted(entries)}"


def test_modules_of_a_room_do_not_import_in_a_circle() -> None:
    """The names that a package offers (`from orchestrator.plan.config import …`) are not used inside that package."""
    graph = {name: {target for target in ours(name) if room(target) == room(name)} for name in modules()}
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, f"a circle: {' → '.join((*path, name))}"
        if name not in done:
            for target in graph[name]:
                visit(target, (*path, name))
            done.add(name)

    for name in graph:
        visit(name, ())


def test_a_campaign_reaches_a_run_only_by_a_jobs_command_line() -> None:
    assert [name for name in modules() if "run.run_one" in ours(name)] == ["cli.doctor_monitor_screen"]


def test_what_is_shown_knows_nothing_of_how_runs_are_made() -> None:
    """Pages and verdicts are made from files, wherever they come from; only `rerun` and `bisect` start runs."""
    making = {"executors", "plan", "run", "campaign"}
    for name in modules():
        if room(name) in {"report", "compare"} and not name.startswith(("compare.rerun", "compare.bisect")):
            assert not {room(target) for target in ours(name)} & making, name


def test_the_training_libraries_are_imported_under_workers_alone() -> None:
    for name, file in modules().items():
        assert not {room(target) for target in imported(file)} & TRAINING, name


def test_workers_are_programs_that_share_no_module_and_nobody_imports_them() -> None:
    files = list(WORKERS.rglob("*.py"))
    programs = ("instrument", "instrument/model", "operators", "prepare", "screen", "sft", "thunder", "warm")
    assert {file.parent for file in files} == {WORKERS / name for name in programs}
    for file in files:
        tops = {room(target) for target in imported(file)}
        others = {other.stem for other in files if other.parent != file.parent}
        assert not tops & {"orchestrator", *others}, file.name
        assert "instrument" not in file.parts or tops <= set(sys.stdlib_module_names), file.name
    assert len({file.stem for file in files}) == len(files), "tests and mypy know them by their bare names"
    for name, file in modules().items():
        assert not any(target.startswith("orchestrator.workers") for target in imported(file)), name


def calls(file: Path) -> set[str]:
    nodes = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    return {ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call)}


def test_processes_are_started_in_one_place() -> None:
    starting = {"Popen", "run", "call", "check_call", "check_output", "getoutput"}
    for name, file in modules().items():
        assert "subprocess" not in imported(file) or name in KNOW_SUBPROCESS, name
        started = calls(file) & {*(f"subprocess.{word}" for word in starting), "os.system", "os.fork", "os.popen"}
        assert not started or name in STARTS, name


def test_only_the_command_prints_or_exits() -> None:
    for name, file in modules().items():
        # A signal ends `__main__` at once, before the command can tell anything.
        assert room(name) in ("cli", "__main__") or not calls(file) & {
            "print",
            "exit",
            "sys.exit",
            "os._exit",
            "typer.echo",
        }, name


SHOW_MODULES = """
import sys
sys.argv = ["tunebench", *sys.argv[1:]]
import orchestrator.cli
imported = set(sys.modules)
try:
    orchestrator.cli.main()
except SystemExit:
    pass
print(*sorted(imported), file=sys.stderr)
print(*sorted(sys.modules), file=sys.stderr)
"""


def test_planning_loads_nothing_heavy() -> None:
    """`--help` must be there in a blink, and `plan` on a machine that has neither torch nor a GPU."""
    argv = [sys.executable, "-c", SHOW_MODULES, "plan", str(ROOT / "scenarios.yaml"), "--scenario", "quickstart"]
    ended = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert "quickstart" in ended.stdout
    for loaded in ended.stderr.splitlines()[-2:]:
        tops = {room(name) for name in loaded.split()}
        assert "orchestrator" in tops
        assert not tops & HEAVY
    at_import = {name for name in ended.stderr.splitlines()[-2].split() if room(name) in ("pydantic", "yaml")}
    assert not at_import, "what --help does not need is imported where it is"
