"""The command `tunebench`: its sub-commands and its exit codes. No other package prints or exits.

Exit codes: 0 success; 1 an experiment failed (`doctor`, `monitor`, `site`: something is missing; `screen`: a figure is off;
`verify`: a number is not met); 2 a mistake of the user; 130 the user interrupted the command. `compare` has its own exit codes. A
sub-command imports heavy modules (pandas, the readers of results) inside its function, so that `--help` and `plan` start quickly.
"""

from __future__ import annotations

import gc
import os
import re
import resource
import sys
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from types import TracebackType
from typing import Annotated, Any

import typer

from orchestrator.cli.campaigns.plan import plan
from orchestrator.cli.campaigns.run import run
from orchestrator.cli.campaigns.tune import tune
from orchestrator.cli.db import db
from orchestrator.cli.doctor_monitor_screen import doctor, monitor, probe_node, run_array, run_one, screen, site
from orchestrator.cli.environments import env
from orchestrator.cli.help import Command, Commands, examples, mistake_in_words
from orchestrator.cli.results.compare import compare
from orchestrator.cli.results.history_rerun_bisect import bisect, history, rerun
from orchestrator.cli.results.profile import profile
from orchestrator.cli.results.report_show_status import bundle, cancel, export, report, show, status
from orchestrator.cli.schema_init_list import init, list_names, schema
from orchestrator.cli.terminal import streams
from orchestrator.cli.terminal.console import err, say, tell
from orchestrator.cli.verify import verify
from orchestrator.entry_points import raised_by
from orchestrator.errors import REMEDIES, OrchestratorError
from orchestrator.files.package import PACKAGE, has_changed
from orchestrator.files.printable_text import one_line, refusal
from orchestrator.files.redaction import redact
from tunebench import __version__

NAME = "tunebench"
app = typer.Typer(
    name=NAME,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    cls=Commands,
    context_settings={"max_content_width": 120},
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        say(f"tunebench {__version__}")
        raise typer.Exit


@app.callback()
def _tunebench(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit.")
    ] = False,
) -> None:
    """Benchmark LLM fine-tuning: YAML scenarios in, a matrix of real training runs, a report out; here or on a Slurm cluster."""


_FUNCTIONS = (
    plan,
    run,
    tune,
    status,
    cancel,
    report,
    show,
    compare,
    history,
    profile,
    rerun,
    bisect,
    bundle,
    export,
    init,
    schema,
    doctor,
    screen,
    verify,
    monitor,
    site,
)
for _name, _function in {**{one.__name__: one for one in _FUNCTIONS}, "list": list_names}.items():
    app.command(name=_name, cls=Command, epilog=examples(_name))(_function)
app.add_typer(db, name="db")
app.add_typer(env, name="env")
app.command(name="run-one", hidden=True)(run_one)
app.command(name="run-array", hidden=True)(run_array)
app.command(name="probe-node", hidden=True)(probe_node)

INTERRUPTED = 130
# Several signals at one moment interrupt these commands once, since they then end their runs.
_STARTING_RUNS = (["run"], ["tune"], ["rerun"], ["bisect"], ["run-array"])
# These commands use pandas or scipy.
_COMPUTING = (*_STARTING_RUNS, ["run-one"], ["report"], ["compare"], ["history"], ["export"], ["verify"], ["db"])
# The libraries and the report of a small campaign need 480 MiB of address space (ulimit -v).
_LEAST_MEMORY = 600 * 2**20


def main() -> Any:
    """Run the command. If the user made a known mistake, report it on stderr and exit with code 2."""
    gc.set_threshold(50_000)  # with 700, the default, Python looks for garbage 33 times while typer and pydantic load
    streams.prepare()
    with _interrupted_by_signals() if sys.argv[1:2] in _STARTING_RUNS else nullcontext() as stopped_by:
        code = _carried_out(sys.argv[1:], stopped_by)
        if incomplete := streams.finish():
            tell(f"error: {incomplete}")
            code = code or 2
    sys.exit(code)


def _carried_out(words: list[str], stopped_by: list[int] | None) -> int:
    """Run the command and return its exit code. `stopped_by` has the signals that asked this process to stop."""
    code: Any
    try:
        _in_a_folder()
        args = [_with_home(word) for word in _with_optional_values(words)]
        if words[:1] in _COMPUTING and "--help" not in words:
            _load_in_limited_memory()
        code = _app_for(words)(args=args, prog_name=NAME, standalone_mode=False)
    except KeyboardInterrupt:  # Ctrl-C before or after the sub-command runs; a running sub-command handles it
        code = INTERRUPTED
    except OrchestratorError as error:
        code = _mistake(str(error))
    except OSError as error:
        code = _mistake_of_plug(error) or _refused_file(error)
    except Exception as error:  # a library may make an error of the interruption
        code = INTERRUPTED if stopped_by else _mistake_of_plug(error) or _usage_error(error)
    except BaseException as error:  # a plug may call sys.exit, or raise anything
        if not (code := _mistake_of_plug(error)):
            raise
    if code == INTERRUPTED:
        # scripts/run_benchmarks.sh adds the option, so its users have not typed it.
        without = (
            " without --move-aside (scripts/run_benchmarks.sh: with NO_OVERWRITE=true)"
            if "--move-aside" in words
            else ""
        )
        resume = f" Finished runs are kept. To resume, repeat the command{without}."
        err().print(f"Interrupted.{resume if words[:1] in _STARTING_RUNS else ''}", soft_wrap=True)
    return code if isinstance(code, int) else 0


def _interrupted_by_signals() -> AbstractContextManager[list[int]]:
    from orchestrator.machine.stop_signals import interrupted_once  # other commands do not need this module

    return interrupted_once()


def _mistake(text: str) -> int:
    for line in redact(text).splitlines():
        tell(f"error: {line}")
    return 2


def _mistake_of_plug(error: BaseException) -> int:
    """Report an error that the code of another package's plug raised. Return 0 if no such code did."""
    sentence = raised_by(error)
    return _mistake(sentence) if sentence else 0


def _refused_file(error: OSError) -> int:
    """Report an error of the operating system about a file, such as a name that is too long, or a full disk.

    If `error` names no file and has no known remedy, raise it again, because it is a defect.
    """
    if not error.strerror or (error.filename is None and error.errno not in REMEDIES):
        return _usage_error(error)
    return _mistake(refusal(error))


def _in_a_folder() -> None:
    """Raise OrchestratorError if the current folder no longer exists."""
    try:
        os.getcwd()
    except OSError as error:
        raise OrchestratorError("the current folder no longer exists; change to a folder that exists") from error


def _load_in_limited_memory() -> None:
    """If this process has a limit of memory, load pandas and scipy now. Raise OrchestratorError if the limit is too low.

    With their usual settings, pyarrow reserves 1 GiB at once, and OpenBLAS has buffers for each core. If these buffers do not fit,
    OpenBLAS waits for memory for ever. The settings of this function do not reach other programs, such as trainers.
    """
    limits = {"ulimit -v": resource.RLIMIT_AS, "ulimit -d": resource.RLIMIT_DATA}
    limited = {name: resource.getrlimit(limit)[0] for name, limit in limits.items()}
    limited = {name: value for name, value in limited.items() if value != resource.RLIM_INFINITY}
    for name, value in limited.items():
        if value < _LEAST_MEMORY:
            least = _LEAST_MEMORY // 2**10
            raise OrchestratorError(
                f"{name}: {value // 2**10} KiB are too little for this command; set {least} or more"
            )
    if not limited:
        return
    before = dict(os.environ)
    os.environ |= {"OPENBLAS_NUM_THREADS": "1", "ARROW_DEFAULT_MEMORY_POOL": "system"}
    try:
        import pandas  # noqa: F401
        import scipy.special  # noqa: F401
    finally:
        os.environ.clear()
        os.environ.update(before)


def _app_for(words: list[str]) -> typer.Typer:
    """Return the app with only the sub-command that the first word names. If it names no sub-command, return the whole app.

    typer reads the options of every sub-command in its app. Reading the options of all sub-commands takes
    a twentieth of a small plan's time.
    """
    named = _subcommand(words)
    if not named:
        return app
    small = copy(app)
    small.registered_commands = [command for command in app.registered_commands if command.name in named]
    small.registered_groups = [group for group in app.registered_groups if group.name in named]
    return small


def _subcommand(words: list[str]) -> list[str]:
    """Return the first word if it is a sub-command, else nothing."""
    known = {*(command.name for command in app.registered_commands), *(group.name for group in app.registered_groups)}
    return [word for word in words[:1] if word in known]


def _with_optional_values(words: list[str]) -> list[str]:
    """Return the words of a command line, with `--retry-failed=all` instead of a `--retry-failed` that has no value.

    The parser does not know options with an optional value.
    """
    if "--retry-failed" not in words:
        return words
    from orchestrator.measure.failure_kinds import KINDS

    found: list[str] = []
    for word, following in zip(words, [*words[1:], ""], strict=True):
        kinds = {kind.strip() for kind in following.split(",")}
        known = kinds & {*KINDS, "all"}
        # A word may look like kinds of failures, but be neither kinds nor a file. Such a word is refused later with a suggestion.
        is_misspelt = (known or re.fullmatch(r"[a-z]+_[a-z_,]+", following)) and not os.path.exists(following)
        has_value = kinds == known or is_misspelt
        found.append(f"{word}=all" if word == "--retry-failed" and not has_value else word)
    return found


def _with_home(word: str) -> str:
    """Return an option such as `--results=~/x` with the user's home folder. A shell replaces `~` only at the start of a word."""
    option, equals, value = word.partition("=")
    return f"{option}={os.path.expanduser(value)}" if equals and option.startswith("--") and value[:1] == "~" else word


def _usage_error(error: Exception) -> int:
    """Report a mistake that typer found, such as an unknown option, or a change of Tunebench's own files.

    Raise any other error, because it is a defect.
    """
    if hasattr(error, "show") and hasattr(error, "exit_code"):
        mistake: Any = error
        if type(error).__name__ != "NoArgsIsHelpError":
            path = mistake.ctx.command_path if mistake.ctx else " ".join([NAME, *_subcommand(sys.argv[1:])])
            return _mistake(mistake_in_words(mistake, path, sys.argv[1:]))
        mistake.show()
        return int(mistake.exit_code)
    sys.excepthook = _without_secrets
    if type(error).__name__ == "Abort":  # Ctrl-C in older versions of typer; newer ones return the exit code
        return INTERRUPTED
    if has_changed(error):
        what = (
            f"the files of Tunebench were changed or removed while this command ran ({type(error).__name__}: {error})"
        )
        return _mistake(f"{PACKAGE}: {one_line(what, longest=500)}; repeat the command, which keeps what was recorded")
    raise error


def _without_secrets(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Write the traceback of a defect, but hide the secrets in it: `run-one.log` may keep the traceback."""
    from traceback import format_exception

    err().file.write(redact("".join(format_exception(kind, error, trace))))
