"""Reads the versions of the packages in the environment that trains, used or not. This is a part of the instrument."""

from __future__ import annotations

import contextlib
import importlib.metadata
import sys

PACKAGES = (
    *("torch", "transformers", "peft", "accelerate", "datasets", "tokenizers", "trl", "bitsandbytes", "liger_kernel"),
    *("flash_attn", "gptqmodel", "deepspeed", "torchao", "triton", "fms_hf_tuning", "numpy"),
)


def installed() -> dict[str, str]:
    """Return a dict from package to version. `cuda` is the CUDA version that torch was built for."""
    versions = {"python": sys.version.split()[0]}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    cuda = getattr(getattr(sys.modules.get("torch"), "version", None), "cuda", None)
    return {**versions, "cuda": cuda} if cuda else versions
