"""What a user does after `pip install` of the wheel, in an empty folder: `tox -e wheel` runs this with the wheel installed.

It needs only the standard library and the wheel, so it is a program and not a test: pytest would find the repository's package.
"""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SHIPPED = ("scenarios.yaml", "defaults.yaml", "accelerate.yaml", "docs/scenarios.schema.json")
# Of the quickstart: one of its seven trainings, with fewer steps.
FEW = ("--scenario", "quickstart", "--set", "framework_config=baseline", "--axis", "peft_method=none")


def files_below(folder: Path) -> dict[str, bytes]:
    found = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def check_files(site: Path) -> None:
    """Every file of the repository that Tunebench needs is in the wheel, with the same content."""
    package, shipped = site / "orchestrator", site / "orchestrator" / "shipped"
    installed = {name: content for name, content in files_below(package).items() if not name.startswith("shipped/")}
    assert installed == files_below(ROOT / "orchestrator"), "orchestrator/"
    assert files_below(site / "tunebench") == files_below(ROOT / "tunebench"), "tunebench/"
    for folder in ("examples", "frameworks"):
        assert files_below(shipped / folder) == files_below(ROOT / folder), folder
    for name in SHIPPED:
        assert (shipped / name).read_bytes() == (ROOT / name).read_bytes(), name


def tunebench(*words: str, code: int = 0) -> str:
    """Run the installed command; what it said is returned."""
    print("$ tunebench", *words, flush=True)
    command = str(Path(sys.executable).with_name("tunebench"))
    done = subprocess.run([command, *words], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def try_commands() -> None:
    said = tunebench("plan", "scenarios.yaml", code=2)
    assert "tunebench init scenarios.yaml" in said and "leave the name out" in said
    own = tunebench("plan", "examples/matrix.yaml", code=2).split("Tunebench has it as ")[1].strip()
    assert "experiments" in tunebench("plan", own)
    assert "7 experiments" in tunebench("plan")
    tunebench("init")
    assert "2 experiments" in tunebench("plan", "scenarios.yaml")
    tunebench("run", *FEW, "--set", "arguments.max_steps=20", "--results", "results")
    with Path("results", "benchmarks.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert row["status"] == "ok" and float(row["tokens_per_s"]) > 0, row
    assert Path("results", "report.html").stat().st_size > 100_000
    tunebench("compare", "results", "results", code=4)


def main() -> None:
    import tunebench as package

    site = Path(package.__file__).resolve().parents[1]
    assert site != ROOT, "the wheel is not installed: run this by `tox -e wheel`"
    check_files(site)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try_commands()
        assert len(package.load("results")) == 1
    print("The wheel is whole.")


if __name__ == "__main__":
    main()
