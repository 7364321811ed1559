"""The script `command.sh`, with which a user repeats a run by hand, without monitors and time limits.

A repeat does not change the recorded run. Every path into the run folder becomes a path into a new folder. Only the paths of
files that the command reads (`accelerate.yaml`, the instrument, modules) lead into the run folder. The script finds this folder
by its own path, so the results folder can be moved. The script chooses a new port. For several nodes, the script runs in a Slurm
allocation, and takes the address of its first node. The script contains no secrets: it takes each secret from an environment
variable. Every word is quoted, and control characters are escaped, so that showing the script is safe. `cd` ignores CDPATH, and
works with a folder named `-`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from orchestrator.files.printable_text import shell_word
from orchestrator.files.redaction import is_secret_name, secret_words, secrets
from orchestrator.machine.child_environment import LEAKS, MARKER, RUN_DIR
from orchestrator.machine.environments.containers.command import FOR_APPTAINER, PROGRAMS
from orchestrator.records import Command

_PORT_OPTIONS = ("--main_process_port", "--master_port", "--main-process-port", "--master-port")
_PORT_VARIABLES = ("MASTER_PORT",)
_HOST_OPTION = "--main_process_ip"
# A container is started by the first words of a command, after at most so many words of `srun`.
_CONTAINER, _FIRST_WORDS = "--container-image=", 16

_HEAD = """\
#!/bin/bash
# Repeats this run by hand: bash command.sh [FOLDER]
# The recorded run is not touched: what the repeat writes goes into FOLDER (new or empty; by default a temporary one).
set -euo pipefail
"""

_FOLDER = """\
folder="${1:-$(mktemp -d "${TMPDIR:-/tmp}/tunebench-repeat.XXXXXX")}"
case "$folder" in /*) ;; *) folder="./$folder" ;; esac
mkdir -p -- "$folder"
folder="$(CDPATH='' cd -- "$folder" && pwd -P)"
if [ -n "$(ls -A -- "$folder")" ]; then
  echo "command.sh: $folder is not empty; name a new folder" >&2
  exit 2
fi
echo "command.sh: this repeat writes into $folder" >&2
"""

_UNSET_LEAKS = f"""\
for name in $(compgen -e); do
  case "$name" in
    {"|".join(LEAKS)}) unset "$name" ;;
  esac
done
"""

_FIRST_NODE = """\
nodes="${SLURM_JOB_NODELIST:?is not set: run this script in a Slurm allocation, such as that of salloc}"
host="$(scontrol --oneliner show node "$(scontrol show hostnames "$nodes" | head -n 1)" | grep -o 'NodeAddr=[^ ]*')"
host="${host#NodeAddr=}"
"""

_FREE_PORT = 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])'


def command_script(command: Command, environ: Mapping[str, str] = os.environ) -> str:
    """Return the text of `command.sh`. The command must begin with a Python interpreter if it has a port.

    On several nodes, `srun` and its options come before the interpreter.

    The variables in `environ` show which words of the command are secrets.
    """
    writer = _Writer(command, environ)
    words = tuple(writer.words())
    port = ""
    if any("$port" in word for word in words) or any(name in command.env for name in _PORT_VARIABLES):
        port = f'port="$({shell_word(_interpreter(command))} -c {shell_word(_FREE_PORT)})"\n'
    if '"$host"' in words:
        port = f"{_FIRST_NODE}{port}"
    cwd = writer.moved(str(command.cwd))
    made = f"mkdir -p -- {cwd}\n" if cwd.startswith('"$folder"/') else ""
    folder = f"{made}CDPATH='' cd -- {cwd}\n"
    option = "-- " if words[:1] and words[0].startswith("-") else ""
    run = f"exec {option}" + " \\\n  ".join(_by_option(words)) + "\n"
    body = "".join([port, _UNSET_LEAKS, *writer.environment(), folder, run])
    here = _HERE.format(run_dir=shell_word(writer.run_dir)) if writer.run_dir and '"$here"' in body else ""
    return "".join([_HEAD, _FOLDER, here, body])


# If somebody copied only the script, the files are read from the folder of the run.
_HERE = """\
here="$(CDPATH='' cd -- "$(dirname -- "${{BASH_SOURCE[0]}}")" && pwd -P)"
[ -e "$here/job.json" ] || here={run_dir}
"""


class _Writer:
    """The words of one command as words of bash. A secret becomes the same variable everywhere."""

    def __init__(self, command: Command, environ: Mapping[str, str]) -> None:
        self.command, self.environ = command, environ
        self.run_dir = command.env.get(RUN_DIR)
        self.nameless: dict[str, str] = {}

    def environment(self) -> Iterator[str]:
        for name, value in sorted(self.command.env.items()):
            if name.endswith(MARKER):  # apptainer has it with a prefix, too
                continue
            if value is None:
                yield f"unset {name}\n"
            elif is_secret_name(name):
                yield f"export {name}={_asked_for(name.removeprefix(FOR_APPTAINER))}\n"
            elif name in _PORT_VARIABLES:
                yield f'export {name}="$port"\n'
            else:
                yield f"export {name}={self.moved(value)}\n"

    def words(self) -> Iterator[str]:
        hidden = {place: (begin, name) for place, begin, name in secret_words(self.command.argv)}
        previous = ""
        for place, word in enumerate(self.command.argv):
            name, equals, _ = word.partition("=")
            if previous in _PORT_OPTIONS:
                yield '"$port"'
            elif previous == _HOST_OPTION:
                yield '"$host"'
            elif equals and name in _PORT_OPTIONS:
                yield f'{name}="$port"'
            elif place in hidden:
                begin, option = hidden[place]
                yield (shell_word(word[:begin]) if begin else "") + _asked_for(_variable(option))
            else:
                yield self.moved(word)
            previous = word

    def moved(self, text: str) -> str:
        """Return the text as one shell word. Replace the run folder's path by `$folder`, except in paths of files to read."""
        if not self.run_dir:
            return self.quoted(text)
        doubled = self.run_dir.replace("$", "$$")  # as the launcher writes it, because torchrun would expand a single $
        before, *pieces = re.split(f"({re.escape(doubled)}|{re.escape(self.run_dir)})", text)
        word = self.quoted(before) if before or not pieces else ""
        for run_dir, piece in zip(pieces[::2], pieces[1::2], strict=True):
            word += _place(piece, run_dir, self.command) + (self.quoted(piece) if piece else "")
        return word

    def quoted(self, text: str) -> str:
        """Return the text as one shell word with a variable in place of each secret."""
        word, at = "", 0
        for secret in secrets(text, self.environ, stored=True):
            value = text[secret.start : secret.end]
            name = secret.variable or self.nameless.setdefault(value, f"SECRET_{len(self.nameless) + 1}")
            word += (shell_word(text[at : secret.start]) if secret.start > at else "") + _asked_for(name)
            at = secret.end
        return word + shell_word(text[at:]) if at < len(text) or not word else word


def _interpreter(command: Command) -> str:
    """Return the interpreter of a command: its first word, or the word after the program that `srun` gives to `sh`.

    A container's interpreter cannot be used outside, so it is `python3`.
    """
    argv = command.argv
    if argv[0] in PROGRAMS or any(word.startswith(_CONTAINER) or word in PROGRAMS for word in argv[:_FIRST_WORDS]):
        return "python3"
    return argv[argv.index("sh") + 3] if argv[0] == "srun" and "sh" in argv else argv[0]


def _variable(option: str) -> str:
    return re.sub(r"\W", "_", option.lstrip("-+"), flags=re.ASCII).upper()


def _asked_for(variable: str) -> str:
    return f'"${{{variable}:?is a secret and was not written down: export it first}}"'


def _place(rest: str, run_dir: str, command: Command) -> str:
    """Return the shell word that replaces the run folder before `rest`.

    The word is `$here`, the script's folder, if `rest` begins with a file that the command reads. The path stays unchanged if
    `rest` continues the folder's name, or if torchrun would expand a `$` in the path. Else the word is `$folder`.
    """
    sibling = re.match(r"[\w.-]", rest)
    paths = (path for name in command.files for path in (PurePosixPath(name), *PurePosixPath(name).parents[:-1]))
    recorded = any(re.match(rf"/{re.escape(str(path))}(?![\w./-])", rest) for path in paths)
    if sibling or (recorded and "$" in run_dir):
        return shell_word(run_dir)
    return '"$here"' if recorded else '"$folder"'


def _by_option(words: tuple[str, ...]) -> Iterator[str]:
    """Yield a line for each option and its words, so that people can read and compare scripts."""
    line: list[str] = []
    for word in words:
        if re.match(r"--?[A-Za-z]", word) and line:
            yield " ".join(line)
            line = []
        line.append(word)
    yield " ".join(line)
