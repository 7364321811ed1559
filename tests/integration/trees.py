"""Small programs that behave badly, for tests of process control."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import psutil

TREE = """
import os, signal, subprocess, sys, time
folder, depth = sys.argv[1], int(sys.argv[2])
if os.environ.get("STUBBORN"):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
children = []
if depth:
    new_session = depth == 1
    children.append(subprocess.Popen([sys.executable, __file__, folder, str(depth - 1)], start_new_session=new_session))
open(os.path.join(folder, f"pid-{depth}"), "w").write(str(os.getpid()))
if os.environ.get("LEAVE") and depth == 2:
    last = os.path.join(folder, "pid-0")
    while not os.path.exists(last) or not os.path.getsize(last):
        time.sleep(0.01)
    sys.exit(0)
time.sleep(600)
"""


def tree_program(folder: Path) -> Path:
    """A program that starts a child, and that one a grandchild in a session of its own; each writes `pid-<depth>`."""
    path = folder / "tree.py"
    path.write_text(TREE, encoding="utf-8")
    return path


def wait_until(said: Callable[[], bool], *, timeout_s: float = 60.0, what: object = "it") -> None:
    deadline = time.monotonic() + timeout_s
    while not said():
        assert time.monotonic() < deadline, f"{what}: not within {timeout_s} s"
        time.sleep(0.02)


def wait_for(*paths: Path, timeout_s: float = 60.0) -> None:
    """Wait until each file is there and not empty."""
    wait_until(lambda: all(path.exists() and path.stat().st_size for path in paths), timeout_s=timeout_s, what=paths)


def pids(folder: Path) -> list[int]:
    return [int((folder / f"pid-{depth}").read_text()) for depth in (2, 1, 0)]


def lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
