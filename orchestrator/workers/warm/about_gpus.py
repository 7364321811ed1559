"""Answers to what imports ask about the GPUs. For an answer torch starts CUDA or NVML, and no run could be forked after that.

bitsandbytes asks for the compute capability while it is imported, and torchao whether Triton can use the GPU. Both ask whether
there is a GPU: the NVML of driver 580 starts a thread then. A fork gives the answer, and ends.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import os
from collections.abc import Iterator
from typing import Any, Callable, NoReturn

from forks import waitstatus

QUESTIONS = (
    *(("torch.cuda", question) for question in ("is_available", "device_count", "get_device_capability")),
    ("torch.utils._triton", "has_triton"),
)


@contextlib.contextmanager
def answered_in_forks(cuda: Any) -> Iterator[None]:
    """Answer the questions in forks, if all GPUs that the starter sees are alike.

    With unlike GPUs, the answer may depend on the GPUs of a run. Then CUDA is started here, and the runs start cold.
    """
    capability, count, answering = cuda.get_device_capability, cuda.device_count, True

    def alike() -> bool:
        return len({capability(number) for number in range(count())}) == 1

    def asking(plain: Callable[..., Any]) -> Callable[..., Any]:
        @functools.lru_cache(maxsize=None)
        def answer() -> Any:
            return in_a_fork(here)

        def here() -> Any:
            nonlocal answering
            answering = False  # torch asks again while it starts CUDA
            return plain() if alike() else None

        def ask(*words: Any, **named: Any) -> Any:
            known = answer() if answering else None
            return plain(*words, **named) if known is None else known

        return ask

    replaced = []
    for name, question in QUESTIONS:
        with contextlib.suppress(ImportError, AttributeError):  # an older torch does not have it
            module = importlib.import_module(name)
            replaced.append((module, question, getattr(module, question), asking(getattr(module, question))))
    for module, name, _, ask in replaced:
        setattr(module, name, ask)
    try:
        yield
    finally:
        answering = False  # a module may have kept a function
        for module, name, plain, ask in replaced:
            if getattr(module, name) is ask:
                setattr(module, name, plain)


def in_a_fork(call: Callable[[], Any]) -> Any:
    """Return what the function returns in a fork: a number, a text, a truth value, or a tuple of them. Return None if it fails."""
    reading, writing = os.pipe()

    def answer() -> NoReturn:
        try:
            os.write(writing, repr(call()).encode())
        finally:
            os._exit(0)

    waitstatus(answer)
    os.close(writing)
    with open(reading, "rb") as file:
        said = file.read()
    return ast.literal_eval(said.decode()) if said else None
