"""Decides who compiles the model: `torch_compile_backend` has two values that the Trainer does not have: `none` and `thunder`.

With `none`, the model is not compiled, even if `torch_compile` asks for it. So a list of backends can have `none` in it. With
`thunder`, the compiler of Lightning Thunder gets the graphs that torch finds in the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from arguments import FALSE, ArgumentError

BACKEND = "torch_compile_backend"
THUNDER, NONE = "thunder", ("none", *FALSE)
OPTIONS = ("torch_compile", BACKEND, "torch_compile_mode")


def without_own_backends(training: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments for TrainingArguments: those that ask for a compilation are left out for our own backends."""
    own = str(training.get(BACKEND)).lower() in (*NONE, THUNDER) and training.get(BACKEND) is not None
    return {name: value for name, value in training.items() if not own or name not in OPTIONS}


def compile_by_thunder(model: Any, training: Mapping[str, Any]) -> None:
    """Make Thunder compile the model at its first call, if these arguments ask for it. Raise ArgumentError without Thunder."""
    if str(training.get(BACKEND)).lower() != THUNDER:
        return
    try:
        from thunder.dynamo import ThunderCompiler
    except Exception as error:  # with a torch that is too new, the import fails with errors of many types
        why = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise ArgumentError(
            f"--{BACKEND} thunder needs lightning-thunder and a torch that fits it, and its import fails with {why}; "
            "use an environment with both, or another backend."
        ) from error
    model.compile(backend=ThunderCompiler())
