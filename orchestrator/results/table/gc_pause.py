"""Python's garbage collector, left out of work that makes millions of small values which all stay."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def left_alone() -> Iterator[None]:
    """Nothing is looked through for garbage meanwhile: among ten thousand records that takes a tenth to a fifth of the time.

    What nobody holds any more is given back all the same; only what holds itself in a circle stays until the end.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
