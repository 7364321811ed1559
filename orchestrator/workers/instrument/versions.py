"""Reads the versions of the packages in the environment that trains, used or not. A part of the instrument."""

from __future__ import annotations

import importlib.metadata
import sys

PACKAGES = (
    *("torch", "transformers", "peft", "accelerate", "datasets", "tokenizers", "trl", "bitsandbytes", "liger_kernel"),
    *("flash_attn", "gptqmodel", "deepspeed", "torchao", "triton", "fms_hf_tuning", "numpy"),
)


def installed() -> dict[str, str]:
    """Return package → version. `cuda` is the version that torch was built for."""
    found = {"python": sys.version.split()[0]}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    cuda = getattr(getattr(sys.modules.get("torch"), "version", None), "cuda", None)
    return {**found, "cuda": cuda} if cuda else found
