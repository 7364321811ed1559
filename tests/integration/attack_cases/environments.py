"""Odd environments, limits of the system, other Pythons."""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable
from pathlib import Path

from attack_cases._shared import check_complete, resumed, shell
from attack_cases.register import Skipped, case
from attack_cases.scene import Scene

ENVIRONMENTS: dict[str, dict[str, str | None]] = {
    "no-home": {"HOME": None},
    "home-is-file": {"HOME": "/etc/passwd"},
    "no-path": {"PATH": ""},
    "ascii": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"},
    "latin": {"PYTHONIOENCODING": "latin-1"},
    "bad-locale": {"LC_ALL": "xx_YY.zz", "LANG": "nonsense"},
    "columns-word": {"COLUMNS": "abc", "LINES": "-3"},
    "columns-0": {"COLUMNS": "0"},
    "columns-1": {"COLUMNS": "1"},
    "optimised": {"PYTHONOPTIMIZE": "2"},
    "warnings": {"PYTHONWARNINGS": "error"},
    "devmode": {"PYTHONDEVMODE": "1"},
    "tmpdir-gone": {"TMPDIR": "/nonexistent"},
    "cache-is-file": {"TUNEBENCH_CACHE": "/etc/passwd"},
    "cache-empty": {"TUNEBENCH_CACHE": ""},
    "marker": {"TUNEBENCH_RUN": "0" * 32, "TUNEBENCH_RUN_DIR": "/nonexistent"},
    "dumb": {"TERM": "dumb", "NO_COLOR": "1"},
    "force-color": {"FORCE_COLOR": "1", "TERM": "xterm-256color"},
    "cuda-nonsense": {"CUDA_VISIBLE_DEVICES": "7,x,-1", "NVIDIA_VISIBLE_DEVICES": "void"},
    "slurm": {"SLURM_PROCID": "3", "RANK": "5", "WORLD_SIZE": "x", "MASTER_PORT": "-1", "LOCAL_RANK": ""},
    "timezone": {"TZ": ":/nonexistent/../x"},
    "huge": {"HUGE_TOKEN_TABLE": "x" * 100_000},
    "newline": {"ODD\nNAME": "a\nb", "BASH_FUNC_x%%": "() { echo; }"},
    "malloc": {"MALLOC_PERTURB_": "165"},
}  # fmt: skip


@case(env=ENVIRONMENTS)
def odd_environment(scene: Scene, env: dict[str, str | None]) -> None:
    """A campaign does not depend on most variables."""
    for name, value in env.items():
        if value is None:
            scene.env.pop(name, None)
        else:
            scene.env[name] = value
    assert scene.run().code == 0
    assert scene.call("status", "results").code == 0
    assert scene.call("report", "results").code == 0
    check_complete(scene, 1)


def _limit(kind: int, value: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(kind, (value, value))


LIMITS = {
    "files-6": _limit(resource.RLIMIT_NOFILE, 6),
    "files-12": _limit(resource.RLIMIT_NOFILE, 12),
    "files-16": _limit(resource.RLIMIT_NOFILE, 16),
    "files-24": _limit(resource.RLIMIT_NOFILE, 24),
    "files-64": _limit(resource.RLIMIT_NOFILE, 64),
    "size-0": _limit(resource.RLIMIT_FSIZE, 0),
    "size-1k": _limit(resource.RLIMIT_FSIZE, 1024),
    "size-5k": _limit(resource.RLIMIT_FSIZE, 5 * 1024),
    "size-100k": _limit(resource.RLIMIT_FSIZE, 100 * 1024),
    "size-1m": _limit(resource.RLIMIT_FSIZE, 2**20),
    "memory-400m": _limit(resource.RLIMIT_AS, 400 * 2**20),
    "memory-100m": _limit(resource.RLIMIT_AS, 100 * 2**20),
    "stack": _limit(resource.RLIMIT_STACK, 2**20),
    "cpu-1s": _limit(resource.RLIMIT_CPU, 1),
}


@case(limit=LIMITS)
def limited(scene: Scene, limit: Callable[[], None]) -> None:
    """A limit of the shell ends a campaign with a sentence at most, and without the limit it can be completed."""
    scene.codes.update({-24, -9})
    scene.logs_may_trace = True
    scene.ended(scene.started(begun=None, preexec_fn=limit))
    scene.run("--retry-failed")
    check_complete(scene, 1)


@case(umask={"777": 0o777, "000": 0, "277": 0o277})
def odd_umask(scene: Scene, umask: int) -> None:
    """A umask that takes the own rights away does no harm to root, and none to the records."""
    resumed(scene, 1, umask=umask)


@case(command=("run scenarios.yaml --yes", "status results", "plan", "--help", "doctor"))
def current_folder_gone(scene: Scene, command: str) -> None:
    """A current folder that no longer exists is a mistake that a sentence explains."""
    gone = scene.folder / "gone"
    gone.mkdir()
    child = shell(scene, f"cd gone && rmdir ../gone && tunebench {command}")
    assert scene.ended(child).code in (0, 2)


@case(version=("3.11.0", "3.11.1", "3.11.2", "3.11.3", "3.12", "3.13", "3.14"))
def other_python(scene: Scene, version: str) -> None:
    """The registry of columns, which every report needs, is the same under each Python that the README allows."""
    code = (
        "import sys; from orchestrator.measure.metrics import columns, Where\n"
        "print('.'.join(map(str, sys.version_info[:3])), len(columns(Where.FIRST)), len(columns(Where.TABLES)))"
    )
    own = scene.ended(scene.start_any(sys.executable, "-c", code)).out.split()
    homes = [*Path("/usr/bin").glob("python3*"), *Path.home().glob(".pyenv/versions/3.1[1-9]*/bin/python")]
    others = {scene.ended(scene.start_any(str(home), "-c", code)).out for home in homes if "config" not in home.name}
    found = [words for words in map(str.split, others) if words and f"{words[0]}.".startswith(f"{version}.")]
    if not found:
        raise Skipped(f"there is no Python {version} here")
    assert all(words[1:] == own[1:] for words in found), (own, found)
