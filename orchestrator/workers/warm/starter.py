"""The state after the imports: the environment in which they were made, and whether a run may be forked from it."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Optional

from about_gpus import answered_in_forks
from forks import open_files, waitstatus

IMPORTS = (
    *("torch.distributed.run", "accelerate.commands.launch", "transformers.trainer"),
    *("transformers.models.auto.modeling_auto", "transformers.models.llama.modeling_llama"),
)
IF_INSTALLED = ("peft",)
MARKER, UNMARKED = "TUNEBENCH_RUN", "0" * 32
NVML_CHECK = "PYTORCH_NVML_BASED_CUDA_CHECK"

# The variables that begin with these words may differ between a run and the starter, unless an import has read them.
LATE = (
    *("ACCELERATE_", "FSDP_", "PARALLELISM_CONFIG_", "TORCHELASTIC_", "TORCH_NCCL_ASYNC_ERROR_HANDLING"),
    *("MASTER_", "RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE"),
)
# Only Tunebench's programs read the first. Imports read the second only to see whether there is a GPU.
OF_THE_RUN = ("TUNEBENCH_", "CUDA_VISIBLE_DEVICES")
# Libraries read these variables while they are loaded, which is not noted.
OF_LIBRARIES = ("OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "MALLOC_")
# Only Intel's OpenMP reads these variables.
INTEL, INTEL_LIBRARY = "KMP_", "libiomp5"
# The allocator of arrow starts its thread again after a fork.
FORKED_AGAIN = ("jemalloc_bg_thd",)
# The numbers of the fields of /proc/PID/stat after the program's name: where the environment begins and ends in memory.
_ENV_START, _ENV_END = 47, 48


class Noting(type(os.environ)):  # type: ignore[misc]
    """The environment, which notes the names of variables that are read."""

    read: ClassVar[set[str]] = set()

    def __getitem__(self, name: str) -> str:
        self.read.add(name)
        return str(super().__getitem__(name))


class Starter:
    """The process that has imported everything. `started` is the environment of the imports; `added` is what they changed in it."""

    def __init__(self) -> None:
        self.started = {name: value for name, value in os.environ.items() if name != MARKER}
        self.signals = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
        self.added: dict[str, str] = {}
        self.own: frozenset[int] = frozenset()
        self.refusal = self.prepare()
        self.imported = dict(imported_files())

    def prepare(self) -> Optional[str]:
        """Import everything. Return the reason why no run can start here, or None."""
        if not all(map(os.path.isabs, os.environ.get("PYTHONPATH", os.sep).split(os.pathsep))):
            return "PYTHONPATH has a folder that depends on the current folder"
        os.environ[NVML_CHECK] = "1"  # the question whether there is a GPU must not start CUDA
        plain = type(os.environ)
        try:
            os.environ.__class__ = Noting
            torch: Any = importlib.import_module("torch")
            with answered_in_forks(torch.cuda):
                for name in IMPORTS:
                    importlib.import_module(name)
                for name in IF_INSTALLED:
                    with contextlib.suppress(ImportError):
                        importlib.import_module(name)
            os.environ.__class__ = plain
            if torch.cuda.is_initialized():
                return "an import started CUDA"
            os.environ.pop(NVML_CHECK, None)
            self.added = {name: value for name, value in os.environ.items() if self.started.get(name) != value}
            self.added.pop(MARKER, None)
            find_marker()
            if waitstatus(lambda: os._exit(torch.cuda._is_in_bad_fork())):
                return "an import used CUDA, so a fork could not use it"
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return threads_in_the_way()

    def changed(self) -> Optional[str]:
        """Return the reason if the file of a module was changed after the imports: a cold run would execute the new one."""
        for path, (module, *known) in self.imported.items():
            found = written(path)
            if found != known:
                return f"the package {module} has changed since the warm starter imported it"
        return None

    def differing(self, env: Mapping[str, str]) -> Optional[str]:
        """Return the reason why a process with this environment must import everything itself, or None."""
        late = LATE if intel_is_loaded() else (*LATE, INTEL)
        names = {name for name in {*env, *self.started} - {NVML_CHECK} if not name.startswith(OF_THE_RUN)}
        added = {name for name in copies(env) if name not in self.started and not name.startswith(OF_LIBRARIES)}
        names -= added - Noting.read
        early = sorted(name for name in names if name in Noting.read or not name.startswith(late))
        differing = [name for name in early if self.other(name, env.get(name))]
        return f"its environment differs in {', '.join(differing)}" if differing else None

    def other(self, name: str, value: Optional[str]) -> bool:
        return value not in (self.started.get(name), self.added.get(name, self.started.get(name)))

    def put_on(self, env: Mapping[str, str]) -> None:
        """Take over an environment, with what the imports would have changed in it."""
        os.environ.clear()
        os.environ.update({**env, **self.added})

    def close_others(self, *kept: int) -> None:
        """Close each file that the imports have not opened, as a new program would."""
        for number in open_files() - self.own - {0, 1, 2, *kept}:
            with contextlib.suppress(OSError):
                os.close(number)


def copies(env: Mapping[str, str]) -> set[str]:
    """Return the variables that only copy another one: for several processes, accelerate adds each again, in capitals."""
    capitals = {name: name.upper() for name in env}
    return {copy for name, copy in capitals.items() if copy != name and env.get(copy) == env[name]}


def imported_files() -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield the file of each imported module, and with it the package, and when the file was written, and its size."""
    for name, module in [*sys.modules.items()]:
        path = getattr(module, "__file__", None)
        if isinstance(path, str) and (found := written(path)):
            yield path, (name.partition(".")[0], *found)


def written(path: str) -> list[int]:
    """Return two numbers: when a file was written (ns since the epoch), and its size in bytes. Return [] for a missing file."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return []
    return [found.st_mtime_ns, found.st_size]


def find_marker(marker: str = UNMARKED) -> None:
    """Write the marker into the memory that /proc/PID/environ shows. A fork has its parent's, and is found by its marker."""
    with open("/proc/self/stat", encoding="utf-8", errors="replace") as file:
        fields = file.read().rpartition(")")[2].split()
    start, end = int(fields[_ENV_START]), int(fields[_ENV_END])
    if not 0 < start < end:
        raise ValueError("the system does not say where a process has its environment")
    name = f"\0{MARKER}=".encode()
    place = (b"\0" + ctypes.string_at(start, end - start)).index(name) + len(name) - 1
    ctypes.memmove(start + place, marker.encode("ascii"), len(UNMARKED))


def threads_in_the_way() -> Optional[str]:
    """Return the reason why a fork is not safe: a thread that a fork would lack. A library may end its own threads at a fork."""
    waitstatus(lambda: os._exit(0))
    names = []
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError), open(f"/proc/self/task/{thread}/comm", encoding="utf-8") as file:
            names += [file.read().strip()] if int(thread) != os.getpid() else []
    others = [name for name in names if name not in FORKED_AGAIN]
    return f"an import has started threads ({', '.join(others)})" if others else None


def intel_is_loaded() -> bool:
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
        return INTEL_LIBRARY in file.read()
