"""The commands of a plan's runs, one shell line each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from orchestrator.files.printable_text import joined_lines, shell_word
from orchestrator.files.redaction import MASK, Redactor, is_secret_name, redact_words, redactor
from orchestrator.machine.environments.containers import in_container
from orchestrator.plan.command import build_command, step_on_each_node
from orchestrator.records import Command, Experiment

RUN_DIR, GPUS, PORT, HOST = Path("{run_dir}"), "{gpus}", "{port}", "{host}"


def planned_command(experiment: Experiment, python: str) -> Command:
    """Return the command of a run, with placeholders such as `{port}` for values that are known only at launch."""
    interpreter = experiment.python or python
    command = build_command(
        experiment, python=interpreter, gpus=GPUS, run_dir=RUN_DIR, port=PORT, host=HOST, files=False
    )
    return in_container(command, experiment, run_dir=RUN_DIR, outside=len(step_on_each_node(experiment)), environ={})


def command_lines(experiments: Iterable[Experiment], python: str) -> Iterator[str]:
    """Yield for each experiment a comment with its id, and the shell line of its run."""
    redact = redactor()
    for experiment in experiments:
        reason = experiment.skip or experiment.cannot_run_here
        note = f"  ({'skipped' if experiment.skip else 'cannot run here'}: {reason.text})" if reason else ""
        yield f"# {experiment.id}{joined_lines(note)}\n{shell_line(planned_command(experiment, python), redact)}\n"


def shell_line(command: Command, redact: Redactor) -> str:
    """Return the command as one shell line: variables, then argv; `env -u NAME` unsets a variable."""
    unset = [word for name, value in command.env.items() if value is None for word in ("-u", name)]
    given = [f"{name}={shell_word(redact(value))}" for name, value in variables(command).items()]
    words = map(shell_word, redact_words(command.argv, redact))
    return " ".join([*(["env", *unset] if unset else []), *given, *words])


def variables(command: Command) -> dict[str, str]:
    """Return the variables that are set, with secrets masked."""
    return {name: MASK if is_secret_name(name) else value for name, value in command.env.items() if value is not None}
