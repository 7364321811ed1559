"""The texts of `--help`: options and sub-commands in groups, and examples below them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from typer.core import TyperCommand, TyperGroup

COMMANDS: Mapping[str, tuple[str, ...]] = {
    "Run a benchmark": ("init", "plan", "run", "status", "cancel"),
    "Read its results": ("report", "show", "bundle", "export"),
    "Compare results": ("compare", "rerun", "history"),
    "Know the machine and the scenario file": ("doctor", "monitor", "list", "schema"),
}
# Options that are in no group are shown under "Options".
OPTIONS: Mapping[str, tuple[str, ...]] = {
    "Choose experiments": ("--num-gpus", "--scenario", "--framework", "--model", "--cell", "--fit-only"),
    "Change the scenarios": (
        *("--set", "--axis", "--trainer", "--repeats", "--memory"),
        *("--defaults", "--accelerate", "--frameworks"),
    ),
    "Results folder": ("--results", "--move-aside", "--retry-failed", "--take-over"),
    "Carry out the runs": (
        "--executor",
        "--parallel",
        "--gpus",
        "--probe",
        "--find-batch",
        "--fail-fast",
        "--no-data-processing",
    ),
    "Estimate": ("--fit", "--gpu-memory", "--assume"),
    "Choose columns": ("--keep", "--drop", "--pivot", "--group-by", "--baseline"),
    "Pair the experiments": ("--by", "--ignore", "--metrics"),
    "Judge the differences": (
        *("--min-effect", "--threshold", "--rule-out", "--level", "--correction", "--fail-on", "--aa", "--error-rate"),
    ),
    "Output": ("--format", "--output", "--all", "--json", "--json-lines", "--commands"),
}
EXAMPLES: Mapping[str, tuple[str, ...]] = {
    "plan": (
        "tunebench plan scenarios.yaml --num-gpus 1,2",
        "tunebench plan scenarios.yaml --assume 8xH100 --results results",
    ),
    "run": (
        "tunebench run scenarios.yaml --dry-run",
        "tunebench run scenarios.yaml --scenario lora --axis per_device_train_batch_size=1,2,4",
        "tunebench run scenarios.yaml --retry-failed oom_cuda",
    ),
    "status": ("tunebench status results --watch",),
    "report": (
        "tunebench report results --baseline none",
        "tunebench report results --pivot framework_config,num_gpus:tokens_per_s",
    ),
    "show": ("tunebench show 4f1c --results results",),
    "compare": (
        "tunebench compare old/results new/results",
        "tunebench compare old/results new/results --output comparison.json --output verdict.svg",
    ),
    "rerun": ("tunebench rerun --from comparison.json --dry-run",),
    "history": ("tunebench history nightly/* --output trends",),
    "bundle": ("tunebench bundle results",),
    "export": ("tunebench export results --to tensorboard",),
    "doctor": ("tunebench doctor --python ~/other/bin/python",),
    "monitor": ("tunebench monitor --once",),
    "init": ("tunebench init mine.yaml --script train.py",),
    "list": ("tunebench list metrics",),
}


def examples(command: str) -> str | None:
    """Return the examples of a sub-command as the end of its help, or None if it has none."""
    lines = EXAMPLES.get(command)
    return "\b\n" + "\n".join(("Examples:", *(f"  {line}" for line in lines))) if lines else None


class Command(TyperCommand):
    """A sub-command whose help shows its options in groups."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        params = self.get_params(ctx)
        arguments = [
            record for one in params if one.param_type_name == "argument" and (record := one.get_help_record(ctx))
        ]
        options = {
            one.opts[0]: record for one in params if one.opts[0][:1] == "-" and (record := one.get_help_record(ctx))
        }
        _write({"Arguments": arguments, **_grouped(options, OPTIONS, "Options")}, formatter)


class Commands(TyperGroup):
    """The command `tunebench`, whose help shows its sub-commands in groups."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        shown = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        lines = {
            name: (name, one.get_short_help_str(limit=200)) for name, one in shown.items() if one and not one.hidden
        }
        _write(_grouped(lines, COMMANDS, "Commands"), formatter)


def _grouped(
    lines: Mapping[str, tuple[str, str]], groups: Mapping[str, tuple[str, ...]], others: str
) -> dict[str, list[tuple[str, str]]]:
    """Return the lines of each group. Lines that are in no group come last."""
    known = {name for names in groups.values() for name in names}
    found = {title: [lines[name] for name in names if name in lines] for title, names in groups.items()}
    return {**found, others: [line for name, line in lines.items() if name not in known]}


def _write(groups: Mapping[str, Iterable[tuple[str, str]]], formatter: Any) -> None:
    for title, lines in groups.items():
        if rows := list(lines):
            with formatter.section(title):
                formatter.write_dl(rows)
