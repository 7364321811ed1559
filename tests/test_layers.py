"""Who may import whom, read from the imports themselves (those inside functions and for type checking count as well).

A module imports only from lines of LAYERS above its own; a package is one line, and its modules import each other freely as
long as there is no circle. This is design.md's table made finer, and it differs from it where the code taught better:

- `config` is a package, and `store`, `process` and `matrix` stand on modules of their own (`claims`, `atomic`, `script`,
  `cells`, `batch`, `identity`…) since each outgrew 300 lines.
- `trainers` stand beside `config`, below `provenance` and `matrix`: they know records alone, and `data`, `launcher` and
  `effective` ask them.
- `monitors` stand above `process`, which starts the one that is a process (nvidia-smi), and `executors` above `store`,
  since the record of a run whose owner died is written by whoever finds out.
- `reference` (results folders of the system before) is read by `table`, and reads two monitors' logs as they do.
- `compare` judges and `compare_view` writes it down, as `table` and `report` do; `page` is the HTML that all three kinds of page
  are made of; `reporting` says which file gets what.
- `cli` is a package, a room for each thing that its commands are about. `campaign` is `run` less its options: the only module
  besides `cli` that sees both planning and reporting.
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

LAYERS = """
-1  errors
0   metrics   records  redact  environment  statistics  untrusted  printable  flops  cgroup  stop_signals
0   kernel_log  plugs  garbage  losses
1   options  config  atomic  failure_kinds  limits  tree  cores  gpus  rows  script  steady  steps  time_left
1   stored  column_types  markdown  summaries  memory_logs
1.5 trainers
2   cells  identity  data  launcher  claims  columns  process  across  throughput
2   due_runs  run_files  experiment_file  failures
3   asked  selection  effective  fit  monitors  stacks  provenance  preparation  results_folder  vetting  reference_log
4   checks  gpu_watch  isolation  placement  reference  store  running  series
5   matrix  executors  table  experiment_status  compare  bundle  export
6   plan_view  findings  benchmark  experiment_view  doctor  starter  monitor_view  status  relative  doubts  naming  pivots
7   runner  packing  probe  status_view  cancel  event_lines  highlights  rerun
8   progress  report  page
9   campaign  reporting  compare_view  history
10  cli  notebook
11  __main__
"""
LEVEL = {name: float(level) for level, *names in map(str.split, LAYERS.strip().splitlines()) for name in names}
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
HEAVY = TRAINING | {"pandas", "numpy", "scipy", "plotly", "pynvml", "psutil", "jinja2"}
KNOW_SUBPROCESS = {
    "process",
    "monitors.sampling",
    "executors.local",
    "tree",
}  # the latter three by the type of a child's handle


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


def line(name: str) -> str:
    return name.partition(".")[0]


def test_the_table_names_every_module_once() -> None:
    assert sorted(LEVEL) == sorted({line(name) for name in modules()}), "put the new module into LAYERS"
    assert len(LAYERS.split()) == len(LEVEL) + len(LAYERS.strip().splitlines())


@pytest.mark.parametrize("name", modules())
def test_a_module_imports_only_from_lines_above_its_own(name: str) -> None:
    wrong = [target for target in ours(name) if line(target) != line(name) and LEVEL[line(target)] >= LEVEL[line(name)]]
    assert not wrong, f"{name} (line {LEVEL[line(name)]:g}) imports {', '.join(wrong)}"


def test_modules_of_a_package_do_not_import_in_a_circle() -> None:
    """A package's own names (`from orchestrator.config import …`) are its last word, so nothing inside asks for them."""
    graph = {name: {target for target in ours(name) if line(target) == line(name)} for name in modules()}
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        assert name not in path, f"a circle: {' → '.join((*path, name))}"
        if name not in done:
            for target in graph[name]:
                visit(target, (*path, name))
            done.add(name)

    for name in graph:
        visit(name, ())


def test_a_benchmark_reaches_the_runner_only_by_a_jobs_command_line() -> None:
    assert [name for name in modules() if "runner" in ours(name)] == ["cli.machine"]


def test_a_report_knows_nothing_of_how_runs_are_made() -> None:
    allowed = {"report", "table", "columns", "rows", "metrics", "records", "errors", "printable"}
    allowed |= {"highlights", "pivots", "column_types", "markdown", "failure_kinds"}
    assert {line(target) for name in modules() if line(name) == "report" for target in ours(name)} <= allowed


def test_what_is_shown_knows_nothing_of_how_runs_are_made() -> None:
    """Pages and verdicts are made of what lies on disk, wherever it comes from: nothing of a campaign is behind them."""
    making = {"launcher", "process", "executors", "benchmark", "runner", "matrix", "campaign", "placement"}
    for name in modules():
        if line(name) in {"report", "page", "compare", "compare_view", "history", "export", "bundle"}:
            assert not {line(target) for target in ours(name)} & making, name


def test_the_training_libraries_are_imported_under_workers_alone() -> None:
    for name, file in modules().items():
        assert not {line(target) for target in imported(file)} & TRAINING, name


def test_workers_are_three_programs_that_share_no_module_and_nobody_imports_them() -> None:
    files = list(WORKERS.rglob("*.py"))
    assert {file.parent for file in files} == {WORKERS / name for name in ("instrument", "prepare", "sft")}
    for file in files:
        tops = {line(target) for target in imported(file)}
        others = {other.stem for other in files if other.parent != file.parent}
        assert not tops & {"orchestrator", *others}, file.name
        assert file.parent.name != "instrument" or tops <= set(sys.stdlib_module_names), file.name
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
        assert not started or name == "process", name


def test_only_the_command_prints_or_exits() -> None:
    for name, file in modules().items():
        assert line(name) == "cli" or not calls(file) & {"print", "exit", "sys.exit", "os._exit", "typer.echo"}, name


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
        tops = {line(name) for name in loaded.split()}
        assert "orchestrator" in tops
        assert not tops & HEAVY
    at_import = {name for name in ended.stderr.splitlines()[-2].split() if line(name) in ("pydantic", "yaml")}
    assert not at_import, "what --help does not need is imported where it is"
