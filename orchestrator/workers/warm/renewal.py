"""Decide in each fork what imports decide once: by chance, or from the folder, the cores and the command. A part of `warm.py`.

What stays as it was at the imports: the seed of the hashes of strings, which a running Python cannot change.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Sequence

# Both remember the folder of the imports, for the processes that they spawn.
_MULTIPROCESSING = ("multiprocessing.process", "multiprocess.process")
# The module of torch with a setting, the setting, and the module's function that decides it.
_OF_TORCH = (
    ("torch._dynamo.config", "debug_dir_root", "default_debug_dir_root"),
    ("torch._inductor.config", "compile_threads", "decide_compile_threads"),
)


def renew(command: Sequence[str]) -> None:
    """Decide all of it again, in the working folder, on the cores and in the environment of this process."""
    forget_chance()
    sys.orig_argv = list(command)
    for module in filter(None, map(sys.modules.get, _MULTIPROCESSING)):
        module.ORIGINAL_DIR = os.getcwd()  # type: ignore[attr-defined]
        module.current_process().authkey = os.urandom(32)
    for name, setting, function in _OF_TORCH:
        config = sys.modules.get(name)
        decide = getattr(config, function, None)  # other versions of torch may have none
        if decide is not None and getattr(config, setting, None) != decide():
            setattr(config, setting, decide())
    note_thread = getattr(threading.main_thread(), "_set_native_id", None)  # Python 3.13 does it by itself
    if note_thread is not None:
        note_thread()


def forget_chance() -> None:
    """Seed the global generators again, which all forks share. A new process seeds them at random, too."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None:
        torch.default_generator.seed()
    if numpy is not None:
        numpy.random.seed()
