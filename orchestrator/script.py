"""A command as a script (`command.sh`) that repeats the run by hand. Pure: a function from a Command to text.

Nothing that was recorded is touched by a repeat: every path into the run folder leads to a new folder instead, but for
the files that were written beside the command to be read (`accelerate.yaml`). The port is chosen again, and a secret is
asked for by name, never written down. What differs from the recorded run: monitors do not watch, no time limit holds.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from orchestrator.environment import LEAKS, MARKER, RUN_DIR
from orchestrator.records import Command
from orchestrator.redact import is_secret_name

_PORT_OPTIONS = ("--main_process_port", "--master_port", "--main-process-port", "--master-port")
_PORT_VARIABLES = ("MASTER_PORT",)

_HEAD = """\
#!/bin/bash
# Repeats this run by hand: bash command.sh [FOLDER]
# The recorded run is not touched: what the repeat writes goes into FOLDER (new or empty; by default a temporary one).
set -euo pipefail
"""

_FOLDER = """\
folder="${1:-$(mktemp -d "${TMPDIR:-/tmp}/tunebench-repeat.XXXXXX")}"
mkdir -p -- "$folder"
folder="$(cd -- "$folder" && pwd -P)"
if [ -n "$(ls -A -- "$folder")" ]; then
  echo "command.sh: $folder is not empty; name a new folder" >&2
  exit 2
fi
echo "command.sh: this repeat writes into $folder" >&2
"""

_FREE_PORT = 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])'


def command_script(command: Command) -> str:
    """The text of `command.sh`. `command.argv[0]` must be a Python interpreter where a port is to be chosen again."""
    words = tuple(_words(command))
    lines = [_HEAD, _FOLDER, _unset_leaks(), *_environment(command)]
    if any("$port" in word for word in words) or any(name in command.env for name in _PORT_VARIABLES):
        port = f'port="$({shlex.quote(command.argv[0])} -c {shlex.quote(_FREE_PORT)})"\n'
        lines.insert(2, port)
    lines.append(f"cd -- {_moved(str(command.cwd), command)}\n")
    lines.append("exec " + " \\\n  ".join(_by_option(words)) + "\n")
    return "".join(lines)


def _unset_leaks() -> str:
    patterns = "|".join(LEAKS)
    return f'for name in $(compgen -e); do\n  case "$name" in\n    {patterns}) unset "$name" ;;\n  esac\ndone\n'


def _environment(command: Command) -> Iterator[str]:
    for name, value in sorted(command.env.items()):
        if name == MARKER:
            continue
        if value is None:
            yield f"unset {name}\n"
        elif is_secret_name(name):
            yield f'export {name}="${{{name}:?is a secret and was not written down: export it first}}"\n'
        elif name in _PORT_VARIABLES:
            yield f'export {name}="$port"\n'
        else:
            yield f"export {name}={_moved(value, command)}\n"


def _words(command: Command) -> Iterator[str]:
    previous = ""
    for word in command.argv:
        name, equals, _ = word.partition("=")
        if previous in _PORT_OPTIONS:
            yield '"$port"'
        elif equals and name in _PORT_OPTIONS:
            yield f'{name}="$port"'
        elif previous.startswith("--") and is_secret_name(previous) and not word.startswith("--"):
            yield _asked_for(previous)
        elif equals and name.startswith("--") and is_secret_name(name):
            yield f"{shlex.quote(name)}={_asked_for(name)}"
        else:
            yield _moved(word, command)
        previous = word


def _asked_for(option: str) -> str:
    variable = option.lstrip("-").replace("-", "_").replace(".", "_").upper()
    return f'"${{{variable}:?is a secret and was not written down: export it first}}"'


def _moved(text: str, command: Command) -> str:
    """The text as one shell word; the run folder's path is replaced by `$folder`, but for files to be read from it."""
    run_dir = command.env.get(RUN_DIR)
    if not run_dir or run_dir not in text:
        return shlex.quote(text)
    pieces = text.split(run_dir)
    word = shlex.quote(pieces[0]) if pieces[0] else ""
    for piece in pieces[1:]:
        word += _place(piece, run_dir, command) + (shlex.quote(piece) if piece else "")
    return word


def _place(rest: str, run_dir: str, command: Command) -> str:
    """What stands for the run folder before `rest`: itself where a recorded file or a sibling's longer name goes on."""
    sibling = re.match(r"[\w.-]", rest)
    recorded = any(re.match(rf"/{re.escape(name)}(?![\w./-])", rest) for name in command.files)
    return shlex.quote(run_dir) if recorded or sibling else '"$folder"'


def _by_option(words: tuple[str, ...]) -> Iterator[str]:
    """The words of one option on one line, so that a script can be read and compared."""
    line: list[str] = []
    for word in words:
        if re.match(r"--?[A-Za-z]", word) and line:
            yield " ".join(line)
            line = []
        line.append(word)
    yield " ".join(line)
