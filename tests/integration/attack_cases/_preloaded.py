"""Commands in forks of a process that has imported everything: a fifth of the time of `python -m orchestrator`, for many cases."""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import threading
import uuid

from attack_cases.scene import LONGEST_S, ROOT, Said, Scene

_SERVER = r"""
import importlib, json, os, pkgutil, signal, sys, time, traceback
import orchestrator, orchestrator.cli as cli, pandas
for module in pkgutil.walk_packages(orchestrator.__path__, "orchestrator."):
    if ".workers" not in module.name and "__main__" not in module.name:
        importlib.import_module(module.name)

def act(asked):
    os.setsid()
    os.chdir(asked["cwd"])
    os.environ.update(asked["env"])
    for number, place in enumerate((os.devnull, asked["out"], asked["err"])):
        os.dup2(os.open(place, os.O_RDWR | os.O_CREAT | os.O_TRUNC), number)
    sys.stdout = sys.__stdout__ = open(1, "w", closefd=False)
    sys.stderr = sys.__stderr__ = open(2, "w", closefd=False)
    sys.argv = ["tunebench", *asked["words"]]
    try:
        cli.main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    sys.stdout.flush(), sys.stderr.flush()
    os._exit(code)

for line in sys.stdin:
    asked = json.loads(line)
    child = os.fork()
    if not child:
        act(asked)
    ends = time.monotonic() + asked["timeout_s"]
    while not (ended := os.waitpid(child, os.WNOHANG))[0] and time.monotonic() < ends:
        time.sleep(0.01)
    if not ended[0]:
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(ended[1]) if ended[0] else "hangs", flush=True)
"""
_OWN = threading.local()


def _server() -> subprocess.Popen[str]:
    """Return the server of this thread."""
    server: subprocess.Popen[str] | None = getattr(_OWN, "server", None)
    if server is None or server.poll() is not None:
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        words = [sys.executable, "-c", _SERVER]
        _OWN.server = server = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, text=True, cwd="/"
        )
        atexit.register(server.kill)
    return server


def call(scene: Scene, *words: str, timeout_s: float = LONGEST_S) -> Said:
    """Run `tunebench` with these words in the scene's folder, as `scene.call` does."""
    scene.look()
    place = scene.folder / f"said-{uuid.uuid4().hex[:8]}"
    files = {"out": f"{place}.out", "err": f"{place}.err"}
    asked = {"words": words, "cwd": str(scene.folder), "env": scene.env, "timeout_s": timeout_s, **files}
    server = _server()
    assert server.stdin is not None and server.stdout is not None
    server.stdin.write(json.dumps(asked) + "\n")
    server.stdin.flush()
    answer = server.stdout.readline().strip()
    assert answer != "hangs", f"hangs: no end of {words} after {timeout_s:g} s"
    out, err = (place.with_suffix(end).read_text(errors="replace") for end in (".out", ".err"))
    said = Said(words=tuple(words), code=int(answer), out=out, err=err)
    scene.said.append(said)
    scene.look()
    return said
