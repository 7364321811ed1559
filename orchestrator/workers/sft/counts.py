"""Counts the parameters of models and reads their architecture, without training them: `counts.py FILE INSTRUMENT RESULT`.

FILE is a JSON list. Each item is the command line of a run of `sft.py`, as a list of words. RESULT gets a JSON list.
Each item has `trainable_parameters`, `total_parameters`, `architecture`, and the `versions` of the packages that matter.

Each model is built by the functions of `sft.py`, but on torch's device `meta`. So it has every shape, and needs no memory. The
instrument in the folder INSTRUMENT reads the numbers with the same functions as in a run. Left out: everything that needs data or
weights, such as quantised weights.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import sys
from types import SimpleNamespace
from typing import Any, Dict, List

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # PYTHONSAFEPATH leaves the script's folder out

import arguments
import sft
from arguments import ArgumentError

PACKAGES = ("torch", "transformers", "peft")


def part(folder: str, name: str) -> Any:
    """Return a part of the instrument as a module. The parts are files of another program, so they are loaded by path."""
    spec = importlib.util.spec_from_file_location("_" + os.path.basename(name), os.path.join(folder, name + ".py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def build(words: List[str]) -> Any:
    """Return the model that a run of `sft.py` with these words trains, on the device `meta`. Raise ArgumentError for a mistake."""
    import models
    import torch

    parsed = arguments.parse(words, sft.in_both_names(sft.training_fields()))
    if parsed.own.quantization:
        raise ArgumentError("--quantization needs weights, and counts.py has none; leave it out.")
    config = models.load_config(parsed.own, parsed.model)
    meta = torch.device("meta")
    with meta:
        model = models.build_model(parsed.own, config, words=parsed.model, seed=0, device=meta)
        recomputed, reentrant = sft.checkpointing(SimpleNamespace(**parsed.training))
        return models.adapt(model, parsed.own, checkpointing=recomputed, reentrant=reentrant)


def read(model: Any, instrument: str) -> Dict[str, Any]:
    """Return the counts of a model, and the facts that determine its FLOPs."""
    settings = part(instrument, "settings")
    architecture, backward = part(instrument, "model/architecture"), part(instrument, "model/backward")
    trainer = SimpleNamespace(model=model)
    counts = {name: settings.BUILT[name](trainer) for name in ("trainable_parameters", "total_parameters")}
    return {**counts, "architecture": backward.read(trainer, architecture)}


def main() -> None:
    file, instrument, result = sys.argv[1:]
    with open(file, encoding="utf-8") as stream:
        commands = json.load(stream)
    try:
        counted = [read(build(words), instrument) for words in commands]
    except ArgumentError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from error
    versions = {name: importlib.metadata.version(name) for name in PACKAGES}
    with open(result, "w", encoding="utf-8") as stream:
        json.dump([{**one, "versions": versions} for one in counted], stream)


if __name__ == "__main__":
    main()
