"""The training processes of a run. They are forked before the launcher begins, and wait until it wakes them."""

from __future__ import annotations

import builtins
import importlib
import importlib.machinery
import json
import os
import signal
import subprocess
import sys
import time
import types
from collections.abc import Mapping, Sequence
from typing import Any, Callable, Optional

from forks import in_fork
from renewal import renew
from starter import Starter


class Rank:
    """A handle of a training process that waits to be woken, with the methods of Popen that launchers use."""

    stdin = stdout = stderr = None

    def __init__(self, starter: Starter) -> None:
        self.args: Sequence[str] = ()
        self.returncode: Optional[int] = None
        end, self.gate = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            starter.close_others(end)
            in_fork(lambda: train(starter, end))
        os.close(end)

    def wake(self, command: Sequence[str], words: Sequence[str], env: Mapping[str, str], *, own_session: bool) -> Rank:
        self.args = command
        with open(self.gate, "w", encoding="utf-8") as gate:
            json.dump({"command": command, "words": words, "env": dict(env), "own_session": own_session}, gate)
        return self

    def poll(self) -> Optional[int]:
        return self._collect(os.WNOHANG)

    def wait(self, timeout: Optional[float] = None) -> int:
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self._collect(0 if deadline is None else os.WNOHANG)) is None:
            if deadline is not None and time.monotonic() >= deadline:
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
            time.sleep(0.02)
        return code

    def _collect(self, options: int) -> Optional[int]:
        if self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, options)
            except ChildProcessError:  # the process was collected elsewhere, as by a handler of SIGCHLD
                pid, status = self.pid, 0
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def waking(starter: Starter, ranks: list[Rank], tell: Callable[[str], None]) -> Any:
    """Return a class to replace Popen: it wakes a rank for a Python script, and starts any other program as before."""
    real: Any = subprocess.Popen

    class Popen(real):  # type: ignore[misc]
        def __new__(cls, *args: Any, **options: Any) -> Any:
            command: Any = args[0] if args else options.get("args")
            words = script_of(command, options) if ranks and len(args) < 2 else None
            if words is not None:
                env = options.get("env") or dict(os.environ)
                reason = starter.differing(env)
                if reason is None:
                    own_session = bool(options.get("start_new_session"))
                    return ranks.pop(0).wake([*map(str, command)], words, env, own_session=own_session)
                tell(reason)
            return super().__new__(cls)

    return Popen


def script_of(command: Any, options: Mapping[str, Any]) -> Optional[list[str]]:
    """Return the script and its arguments if this is a plain start of a Python script, else None."""
    given = {name for name, value in options.items() if value is not None}
    if isinstance(command, (str, bytes)) or not given <= {"args", "env", "start_new_session"}:
        return None
    words = [str(word) for word in command or ()]
    if words[:1] != [sys.executable]:
        return None
    words = words[2:] if words[1:2] == ["-u"] and getattr(sys.stdout, "write_through", False) else words[1:]
    return words if words and not words[0].startswith("-") else None


def train(starter: Starter, gate: int) -> None:
    """Wait until the launcher wakes this rank, then run its script as Python would. Return if the launcher needs no rank."""
    with open(gate, encoding="utf-8") as file:
        text = file.read()
    if not text:
        os._exit(0)
    asked = json.loads(text)
    if asked["own_session"]:
        os.setsid()
    starter.put_on(asked["env"])
    renew(asked["command"])
    sys.argv = list(asked["words"])
    path = os.path.abspath(sys.argv[0])
    find_modules_in(os.path.dirname(os.path.realpath(path)))
    main = types.ModuleType("__main__")
    loader = importlib.machinery.SourceFileLoader("__main__", path)
    main.__dict__.update(__file__=path, __loader__=loader, __spec__=None, __package__=None, __builtins__=builtins)
    # Which of these a main module has depends on the version of Python.
    more: dict[str, Any] = {"__cached__": None, "__annotations__": {}}
    main.__dict__.update({name: value for name, value in more.items() if hasattr(sys.modules["__main__"], name)})
    with open(path, "rb") as script:
        code = compile(script.read(), path, "exec", dont_inherit=True)
    sys.modules["__main__"] = main
    if "__mp_main__" in sys.modules:  # multiprocessing's name of the main module
        sys.modules["__mp_main__"] = main
    exec(code, main.__dict__)


def find_modules_in(folder: str) -> None:
    """Search a folder for modules first, as Python does for a program, unless its safe mode is on."""
    if not getattr(sys.flags, "safe_path", False):
        sys.path.insert(0, folder)
    importlib.invalidate_caches()
