"""scripts/run_benchmarks.sh: which `tunebench run` its arguments and switches come to."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "run_benchmarks.sh"
SWITCHES = (
    "DRY_RUN",
    "NO_OVERWRITE",
    "NO_DATA_PROCESSING",
    "MEMORY_LOGGING",
    "EFFECTIVE_BS_MATRIX",
    "TRAINER",
    "FRAMEWORKS",
)
ECHO = '#!/bin/sh\n[ "$1" = -c ] && exit 0\nprintf "%s\\n" "$@"\n'

Run = Callable[..., list[str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs the script in `tmp_path` with an interpreter that prints its words; gives those after `run`."""
    echo = tmp_path / "echo-python"
    echo.write_text(ECHO)
    echo.chmod(0o755)

    def started(*words: str, **switches: str) -> list[str]:
        kept = {name: value for name, value in os.environ.items() if name not in SWITCHES}
        environment = {**kept, "PYTHON": str(echo), **switches}
        ended = subprocess.run(
            ["bash", str(SCRIPT), *words], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        )
        said = ended.stdout.splitlines()
        assert said[:3] == ["-m", "orchestrator", "run"]
        return said[3:]

    return started


def test_without_arguments_it_is_the_quickstart(run: Run) -> None:
    shipped = str(ROOT / "scenarios.yaml")
    expected = "--results benchmark_outputs --memory huggingface --yes --move-aside --scenario quickstart"
    assert run() == [shipped, *expected.split()]


@pytest.mark.parametrize("word", ["-h", "--help"])
def test_its_help_is_what_stands_at_its_head(word: str) -> None:
    shown = subprocess.run(["bash", str(SCRIPT), word], capture_output=True, text=True, check=True).stdout
    assert shown.startswith("Runs benchmarks and reports them: ") and all(name in shown for name in SWITCHES)
    assert "pipefail" not in shown and "#" not in shown


def test_names_are_not_patterns_of_files(run: Run, tmp_path: Path) -> None:
    words = run("1", "results", "", "lora*")
    (tmp_path / "lora-file").touch()
    assert run("1", "results", "", "lora*") == words and words[-2:] == ["--scenario", "lora*"]


def test_a_link_to_the_script_finds_the_repository(tmp_path: Path) -> None:
    (tmp_path / "rb").symlink_to(SCRIPT)
    shown = subprocess.run(
        ["bash", str(tmp_path / "rb")], env={**os.environ, "DRY_RUN": "1"}, cwd=tmp_path, capture_output=True, text=True
    )
    assert shown.returncode == 0 and "quickstart" in shown.stdout


def test_positional_arguments(run: Run, tmp_path: Path) -> None:
    (tmp_path / "my scenarios.yaml").touch()
    words = run("1 2", "my results", "my scenarios.yaml", "lora qlora")
    assert words[0] == "my scenarios.yaml"
    assert words[1:3] == ["--results", "my results"]
    assert words[words.index("--num-gpus") + 1] == "1,2"
    assert [name for flag, name in pairwise(words) if flag == "--scenario"] == ["lora", "qlora"]


def test_words_may_be_on_several_lines(run: Run) -> None:
    words = run("1\n2", "4\n8", "results", "", "lora\nqlora")
    assert words[words.index("--num-gpus") + 1] == "1,2"
    assert words[words.index("--axis") + 1] == "effective_batch_size=4,8"
    assert [name for flag, name in pairwise(words) if flag == "--scenario"] == ["lora", "qlora"]


def test_a_file_that_is_not_here_is_looked_for_in_the_repository(run: Run) -> None:
    assert run("", "", "examples/matrix.yaml")[0] == str(ROOT / "examples/matrix.yaml")
    assert "--scenario" not in run("", "", "examples/matrix.yaml")


def test_a_file_that_is_in_neither_folder_is_named_as_it_was_typed(tmp_path: Path) -> None:
    ended = subprocess.run(
        ["bash", str(SCRIPT), "", "results", "bnech.yaml"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 2 and f"error: bnech.yaml: there is no such file in {tmp_path}" in ended.stderr
    assert f"and none in {ROOT};" in ended.stderr


def test_none_is_all_that_are_not_slow(run: Run) -> None:
    assert "--scenario" not in run("", "", "", "none")


def test_switches(run: Run) -> None:
    switches = {"DRY_RUN": "true", "NO_OVERWRITE": "true", "NO_DATA_PROCESSING": "true", "MEMORY_LOGGING": "all"}
    words = run(EFFECTIVE_BS_MATRIX="4 8", **switches)
    assert {"--dry-run", "--no-data-processing", "effective_batch_size=4,8", "all"} <= set(words)
    assert "--move-aside" not in words


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["1 2", "4 8", "out", "s.yaml", "none"], ("out", "s.yaml", "4,8", [])),
        (["1 2", "8", "out", "s.yaml", "lora", "qlora"], ("out", "s.yaml", "8", ["lora", "qlora"])),
        (["1", "", "out", "s.yaml", "lora"], ("out", "s.yaml", None, ["lora"])),
        (["1", "", "out"], ("out", "scenarios.yaml", None, ["quickstart"])),
        (["1", "", "", "s.yaml", "lora"], ("benchmark_outputs", "s.yaml", None, ["lora"])),
        (["1", "", "s.yaml", "lora", "qlora"], ("benchmark_outputs", "s.yaml", None, ["lora", "qlora"])),
        (["1", "./8", "s.yaml"], ("./8", "s.yaml", None, [])),
        (["1", "8"], ("benchmark_outputs", "scenarios.yaml", "8", ["quickstart"])),
    ],
)
def test_the_five_positions_of_the_reference_and_the_four_of_ours(
    run: Run, tmp_path: Path, words: list[str], expected: tuple[str, str, str | None, list[str]]
) -> None:
    (tmp_path / "s.yaml").touch()
    results, file, batch_sizes, names = expected
    options = run(*words)
    assert Path(options[0]).name == file and options[options.index("--results") + 1] == results
    axes = [value for flag, value in pairwise(options) if flag == "--axis"]
    assert axes == ([f"effective_batch_size={batch_sizes}"] if batch_sizes else [])
    assert [name for flag, name in pairwise(options) if flag == "--scenario"] == names


@pytest.mark.parametrize("name", ["DRY_RUN", "NO_OVERWRITE", "NO_DATA_PROCESSING"])
def test_a_switch_has_many_words_for_yes_and_no_and_refuses_others(run: Run, name: str) -> None:
    usual = run()
    assert all(run(**{name: word}) == run(**{name: "true"}) != usual for word in ("1", "TRUE", "yes"))
    assert all(run(**{name: word}) == usual for word in ("", "0", "false", "No"))
    with pytest.raises(subprocess.CalledProcessError) as error:
        run(**{name: "maybe"})
    assert error.value.returncode == 2
    assert error.value.stderr == f"{name}=maybe is invalid; write 1, true or yes, or 0, false or no\n"


def test_trainer_and_frameworks_come_from_the_environment(run: Run) -> None:
    options = run(TRAINER="fms_hf_tuning", FRAMEWORKS="my configurations")
    assert options[options.index("--trainer") + 1] == "fms_hf_tuning"
    assert options[options.index("--frameworks") + 1] == "my configurations"


def test_a_dry_run_from_elsewhere_prints_the_plan_and_writes_nothing(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHON": sys.executable, "DRY_RUN": "true"}
    ended = subprocess.run(
        ["bash", str(SCRIPT), "1,2"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert "14 experiments" in ended.stdout
    assert list(tmp_path.iterdir()) == []


def test_shellcheck_finds_nothing() -> None:
    shellcheck = shutil.which("shellcheck") or shutil.which("shellcheck", path=str(Path(sys.executable).parent))
    if shellcheck is None:
        pytest.skip("shellcheck is not installed")
    subprocess.run([shellcheck, str(SCRIPT)], check=True)


def without_requirements(tmp_path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs the script with a `python` on PATH that can import nothing."""
    tools = tmp_path / "tools"
    tools.mkdir(exist_ok=True)
    python = tools / "python"
    python.write_text("#!/bin/sh\necho 'Traceback: No module named typer' >&2; exit 1\n")
    python.chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if name not in (*SWITCHES, "PYTHON")}
    variables = {**kept, "PATH": f"{tools}:/usr/bin:/bin", **environment}
    command = ["bash", str(SCRIPT), "1", "out"]
    return subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("given", [{}, {"PYTHON": "/no/such/python"}])
def test_a_python_without_the_requirements_is_one_sentence(tmp_path: Path, given: dict[str, str]) -> None:
    ended = without_requirements(tmp_path, **given)
    python = given.get("PYTHON", tmp_path / "tools" / "python")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == (
        f"error: {python} cannot import Tunebench's requirements; activate their environment, or write PYTHON=FILE "
        "with its interpreter\n"
    )


def test_the_command_on_the_path_replaces_a_python_without_the_requirements(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    command = tmp_path / "tools" / "tunebench"
    command.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    command.chmod(0o755)
    ended = without_requirements(tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.splitlines()[:2] == ["run", str(ROOT / "scenarios.yaml")]
    assert without_requirements(tmp_path, PYTHON="/no/such/python").returncode == 2, "a named one is not replaced"
