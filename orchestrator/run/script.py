"""A command as a script (`command.sh`) that repeats the run by hand. A function from a Command to text.

Nothing that was recorded is touched by a repeat: every path into the run folder leads to a new folder instead, but for
the files that were written beside the command to be read (`accelerate.yaml`, the instrument). The port is chosen again, and
a secret is asked for by name, never written down, wherever in a word or variable it stands (the environment is asked for that
alone). No folder is looked for along CDPATH, or taken for the last one since it is called `-`. No word is bash's to read:
whatever it holds is quoted, and control characters stand as escapes, so that showing the script is safe.
What differs from the recorded run: monitors do not watch, no time limit holds.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping

from orchestrator.files.printable_text import shell_word
from orchestrator.files.redaction import is_secret_name, secret_words, secrets
from orchestrator.machine.child_environment import LEAKS, MARKER, RUN_DIR
from orchestrator.records import Command

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
case "$folder" in /*) ;; *) folder="./$folder" ;; esac
mkdir -p -- "$folder"
folder="$(CDPATH='' cd -- "$folder" && pwd -P)"
if [ -n "$(ls -A -- "$folder")" ]; then
  echo "command.sh: $folder is not empty; name a new folder" >&2
  exit 2
fi
echo "command.sh: this repeat writes into $folder" >&2
"""

_FREE_PORT = 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])'


def command_script(command: Command, environ: Mapping[str, str] = os.environ) -> str:
    """The text of `command.sh`. `command.argv[0]` must be a Python interpreter where a port is to be chosen again.

    `environ` is searched for secrets, whose values may stand in the command.
    """
    writer = _Writer(command, environ)
    words = tuple(writer.words())
    lines = [_HEAD, _FOLDER, _unset_leaks(), *writer.environment()]
    if any("$port" in word for word in words) or any(name in command.env for name in _PORT_VARIABLES):
        port = f'port="$({shell_word(command.argv[0])} -c {shell_word(_FREE_PORT)})"\n'
        lines.insert(2, port)
    lines.append(f"CDPATH='' cd -- {writer.moved(str(command.cwd))}\n")
    option = "-- " if words[:1] and words[0].startswith("-") else ""
    lines.append(f"exec {option}" + " \\\n  ".join(_by_option(words)) + "\n")
    return "".join(lines)


def _unset_leaks() -> str:
    patterns = "|".join(LEAKS)
    return f'for name in $(compgen -e); do\n  case "$name" in\n    {patterns}) unset "$name" ;;\n  esac\ndone\n'


class _Writer:
    """Texts of one command as words of bash; the same secret is asked for by the same name throughout."""

    def __init__(self, command: Command, environ: Mapping[str, str]) -> None:
        self.command, self.environ = command, environ
        self.run_dir = command.env.get(RUN_DIR)
        self.nameless: dict[str, str] = {}

    def environment(self) -> Iterator[str]:
        for name, value in sorted(self.command.env.items()):
            if name == MARKER:
                continue
            if value is None:
                yield f"unset {name}\n"
            elif is_secret_name(name):
                yield f"export {name}={_asked_for(name)}\n"
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
            elif equals and name in _PORT_OPTIONS:
                yield f'{name}="$port"'
            elif place in hidden:
                begin, option = hidden[place]
                yield (shell_word(word[:begin]) if begin else "") + _asked_for(_variable(option))
            else:
                yield self.moved(word)
            previous = word

    def moved(self, text: str) -> str:
        """The text as one shell word; the run folder's path is replaced by `$folder`, but for files to be read from it."""
        if not self.run_dir:
            return self.quoted(text)
        doubled = self.run_dir.replace("$", "$$")  # as the launcher writes it where torchrun would read it otherwise
        before, *pieces = re.split(f"({re.escape(doubled)}|{re.escape(self.run_dir)})", text)
        word = self.quoted(before) if before or not pieces else ""
        for run_dir, piece in zip(pieces[::2], pieces[1::2], strict=True):
            word += _place(piece, run_dir, self.command) + (self.quoted(piece) if piece else "")
        return word

    def quoted(self, text: str) -> str:
        """The text as one shell word in which each secret is asked for."""
        word, at = "", 0
        for secret in secrets(text, self.environ, stored=True):
            value = text[secret.start : secret.end]
            name = secret.variable or self.nameless.setdefault(value, f"SECRET_{len(self.nameless) + 1}")
            word += (shell_word(text[at : secret.start]) if secret.start > at else "") + _asked_for(name)
            at = secret.end
        return word + shell_word(text[at:]) if at < len(text) or not word else word


def _variable(option: str) -> str:
    return re.sub(r"\W", "_", option.lstrip("-+"), flags=re.ASCII).upper()


def _asked_for(variable: str) -> str:
    return f'"${{{variable}:?is a secret and was not written down: export it first}}"'


def _place(rest: str, run_dir: str, command: Command) -> str:
    """What stands for the run folder before `rest`: itself where a recorded file or a sibling's longer name goes on."""
    sibling = re.match(r"[\w.-]", rest)
    recorded = any(re.match(rf"/{re.escape(name)}(?![\w./-])", rest) for name in command.files)
    return shell_word(run_dir) if recorded or sibling else '"$folder"'


def _by_option(words: tuple[str, ...]) -> Iterator[str]:
    """The words of one option on one line, so that a script can be read and compared."""
    line: list[str] = []
    for word in words:
        if re.match(r"--?[A-Za-z]", word) and line:
            yield " ".join(line)
            line = []
        line.append(word)
    yield " ".join(line)
