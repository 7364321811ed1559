"""Saves the random weights of a `config:` model once, so that runs with other versions of torch or transformers start from them.

The first run draws the weights and saves them. Each run, also the first one, then loads the saved weights. torch is imported in
functions.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from arguments import ArgumentError, Own

PATIENCE_S, _LOOK_S = 1800.0, 0.5
_FILE = "model.safetensors"
_SUMMED = 256


def use_saved(model: Any, own: Own, words: Mapping[str, Sequence[str]], *, seed: int) -> str:
    """Replace the weights of a model by those that were saved for its name, its changed fields, its dtype and this seed.

    If there are none yet, this process saves the model's weights first. Only one process of a training saves; the others wait for
    it. Return the digest of the weights: the file may be another one on another machine. Raise ArgumentError if the weights do not
    fit the model.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_model
    from transformers import set_seed

    if os.environ.get("ACCELERATE_USE_DEEPSPEED") == "true":
        raise ArgumentError("--weights saved does not work with DeepSpeed, which divides the model while it is built.")
    file = place(own, words, seed=seed)
    if int(os.environ.get("RANK", 0)) == 0 and not os.path.lexists(file):
        save(model, file)
    deadline = time.monotonic() + PATIENCE_S
    while not file.is_file():
        # Reading a pipe would wait for ever. The first process may place the file between the two questions.
        if os.path.lexists(file) and not file.is_file():
            raise ArgumentError(f"--weights saved: {file} is not a regular file; remove it.")
        if time.monotonic() > deadline:
            raise ArgumentError(f"--weights saved: the first process did not save {file} in {PATIENCE_S:.0f} s.")
        time.sleep(_LOOK_S)
    try:
        load_model(model, file)
    except (RuntimeError, OSError, SafetensorError) as error:
        first = str(error).strip().splitlines()[0]
        raise ArgumentError(f"--weights saved: {file} does not fit this model ({first}); remove the file.") from error
    set_seed(seed)  # what is drawn next, such as adapters, is the same in all runs
    return digest(model)


def digest(model: Any) -> str:
    """Return a digest of a model's weights, from each one's name, dtype, shape and the sums of its bits, read as whole numbers.

    There is a sum for every 256 numbers. The sums are exact, and the same on every device. They take a tenth of the time that a
    digest of every byte takes.
    """
    import torch

    whole, found = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.int8}, hashlib.sha256()
    for name, weight in sorted(model.state_dict().items()):
        flat, size = weight.detach().reshape(-1), weight.element_size()
        bits = flat.view(whole[math.gcd(8, flat.numel() * size, flat.storage_offset() * size)])
        rest = bits.numel() % _SUMMED
        first, last = bits[: bits.numel() - rest], bits[bits.numel() - rest :]
        sums = torch.cat([first.reshape(-1, _SUMMED).sum(1, dtype=torch.int64), last.to(torch.int64)])
        found.update(f"{name} {weight.dtype} {list(weight.shape)}\n".encode() + sums.cpu().numpy().tobytes())
    return found.hexdigest()[:16]


def place(own: Own, words: Mapping[str, Sequence[str]], *, seed: int) -> Path:
    """Return the file of the weights. Versions of packages are not part of its name."""
    changed = {name: list(items) for name, items in sorted(words.items())}
    named = json.dumps([own.model_name_or_path, changed, own.dtype, seed])
    digest = hashlib.sha256(named.encode()).hexdigest()[:12]
    name = own.model_name_or_path.partition(":")[2]
    return Path(own.weights_folder, f"{name}-{digest}", _FILE)


def save(model: Any, file: Path) -> None:
    """Write the weights. If another run has written the file meanwhile, its weights stay."""
    from safetensors.torch import save_model

    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f"{os.getpid()}.{time.time_ns()}.part")
    try:
        save_model(model, str(part))
        os.link(part, file)
    except FileExistsError:
        pass
    except OSError:  # the file system has no hard links, such as exFAT
        if not file.exists():
            os.replace(part, file)
    finally:
        part.unlink(missing_ok=True)
