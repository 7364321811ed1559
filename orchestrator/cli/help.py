"""The texts of `--help`: options and sub-commands in groups, and examples below them; and sentences for a command's mistakes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from itertools import pairwise
from typing import Any

from typer.core import TyperCommand, TyperGroup

from orchestrator.errors import OrchestratorError, SelectionError, suggestion

_FILE = re.compile(r"/|\.ya?ml$")

COMMANDS: Mapping[str, tuple[str, ...]] = {
    "Run a benchmark": ("init", "plan", "run", "tune", "status", "cancel"),
    "Read its results": ("report", "show", "profile", "bundle", "export"),
    "Compare results": ("compare", "rerun", "history", "bisect", "db"),
    "Know the machine and the scenario file": (
        "doctor",
        "screen",
        "verify",
        "monitor",
        "site",
        "env",
        "list",
        "schema",
    ),
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
        "--submit-only",
        "--parallel",
        "--gpus",
        "--screen",
        "--probe",
        "--find",
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
        "tunebench run scenarios.yaml --axis optim=adamw_torch,sgd",
        "tunebench run scenarios.yaml --retry-failed oom_cuda",
    ),
    "tune": ("tunebench tune scenarios.yaml", "tunebench tune scenarios.yaml --set arguments.max_steps=40"),
    "status": ("tunebench status results", "tunebench status results --watch"),
    "cancel": ("tunebench cancel results",),
    "report": (
        "tunebench report results --baseline none",
        "tunebench report results --pivot framework_config,num_gpus:tokens_per_s",
    ),
    "show": ("tunebench show first-tiny-llama.none --results results",),
    "profile": (
        "tunebench profile first-tiny-llama.none --results results",
        "tunebench profile old/results new/results",
    ),
    "compare": (
        "tunebench compare old/results new/results",
        "tunebench compare old/results new/results --output comparison.json",
    ),
    "rerun": (
        "tunebench rerun --from comparison.json --dry-run",
        "tunebench rerun --from comparison.json --profile",
    ),
    "history": ("tunebench history nightly/* --output trends",),
    "bisect": (
        "tunebench bisect scenarios.yaml --good v1.2 --bad main",
        "tunebench bisect mine.yaml --good torch==2.11 --bad torch==2.13",
    ),
    "bundle": ("tunebench bundle results",),
    "db": (
        "tunebench db add nightly/*",
        'tunebench db query "SELECT id, avg(tokens_per_s) FROM runs GROUP BY id"',
    ),
    "export": ("tunebench export results --to tensorboard",),
    "doctor": ("tunebench doctor --python ~/other/bin/python",),
    "screen": ("tunebench screen", "tunebench screen --json"),
    "verify": ("tunebench verify", "tunebench verify verify_results"),
    "monitor": ("tunebench monitor --once",),
    "site": ("tunebench site check", "tunebench site check project/scenarios.yaml"),
    "env": ("tunebench env build scenarios.yaml", "tunebench env list", "tunebench env gc --older-than 30d"),
    "init": ("tunebench init scenarios.yaml", "tunebench init mine.yaml --script train.py"),
    "list": ("tunebench list metrics", "tunebench list frameworks scenarios.yaml"),
    "schema": ("tunebench schema > scenarios.schema.json",),
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

    groups: Mapping[str, tuple[str, ...]] = COMMANDS

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the sub-command. Raise OrchestratorError if there is none with this name."""
        if args[0] not in self.commands:
            shown = [name for name, one in self.commands.items() if not one.hidden]
            raise OrchestratorError(f"unknown command {args[0]!r}{suggestion(args[0], shown)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        shown = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        lines = {
            name: (name, one.get_short_help_str(limit=200)) for name, one in shown.items() if one and not one.hidden
        }
        _write(_grouped(lines, self.groups, "Commands"), formatter)


class Actions(Commands):
    """A sub-command with commands of its own, such as `tunebench env build`."""

    groups: Mapping[str, tuple[str, ...]] = {}


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


def mistake_in_words(error: Any, command: str, words: Sequence[str]) -> str:
    """Return a sentence for a mistake that typer found, in the form of all errors.

    `command` is the command without its options, and `words` are the words of the command line.
    """
    kind, text, where = type(error).__name__, str(error.format_message()), f"see `{command} --help`"
    if kind == "NoSuchOption":
        options = [name for one in error.ctx.command.params for name in one.opts] if error.ctx else []
        near = get_close_matches(error.option_name, options, n=1)
        return f"unknown option {error.option_name!r}; " + (f"did you mean {near[0]!r}? S" if near else "s") + where[1:]
    if kind == "BadOptionUsage":
        cure = "takes no value; leave the value out" if "not take" in text else "needs a value; add it"
        return f"{error.option_name} {cure}, or {where}"
    if kind == "MissingParameter":
        allowed = re.findall(r"[^\s,]+", text.partition("Choose from:")[2])
        cure = suggestion("", allowed) if allowed else f"; {where}"
        return f"the {error.param.param_type_name} {_name(error.param)} is missing{cure}"
    if kind == "BadParameter" and error.param:
        return f"{_name(error.param)} {_invalid(error)}"
    if extra := re.fullmatch(r"Got unexpected extra arguments?(?:\(s\))? \((.*)\)", text, re.DOTALL):
        return _unknown_kind(words) or f"{extra[1]!r} is one argument too many; leave it out, or {where}"
    return f"{text[:1].lower()}{text[1:].rstrip('.')}; {where}"


def _unknown_kind(words: Sequence[str]) -> str | None:
    """Return the mistake in a word after `--retry-failed`, which was read as an argument, but is neither kinds nor a file."""
    from orchestrator.campaign.way import retry_of  # only a mistake needs it

    for option, word in pairwise(words):
        if option == "--retry-failed" and word[:1] != "-" and not (os.path.exists(word) or _FILE.search(word)):
            try:
                retry_of(word)
            except SelectionError as error:
                return str(error)
    return None


def _name(param: Any) -> str:
    return str(param.opts[0] if param.param_type_name == "option" else param.name)


def _invalid(error: Any) -> str:
    """Return the invalid value and what is allowed. typer has the names of choices, and pydantic has all other rules."""
    if choices := re.search(r"(['\"].*['\"]) is not one of (.*)", error.message, re.DOTALL):
        allowed = re.findall("'([^']*)'", choices[2])
        return f"{choices[1]} is not allowed{suggestion(choices[1][1:-1], allowed)}"
    if hasattr(error.__cause__, "errors"):
        from orchestrator.plan.config.check import allowed_by  # it loads YAML, which only a mistake needs here

        first = error.__cause__.errors(include_url=False)[0]
        return (
            f"{str(first['input'])!r} is invalid; write {allowed_by(first['type'], first.get('ctx', {}), first['msg'])}"
        )
    return f"is invalid: {error.message.rstrip('.')}"
