"""A machine that is described by a text (`8xH100`, `8x80GiB`) on the command line or in a site file: a plan is made for it."""

from __future__ import annotations

import re
from dataclasses import replace

from orchestrator.errors import SelectionError, suggestion
from orchestrator.executors.slurm.site import Site
from orchestrator.machine.provenance import Machine
from orchestrator.measure.flops import GPU_TYPES
from orchestrator.plan.forecast.memory_fit import parse_memory
from orchestrator.plan.forecast.memory_fit.estimate import GIB
from orchestrator.plan.forecast.memory_fit.verdict import VISIBLE_SHARE
from orchestrator.records import Gpu

_MOST_GPUS = 1024
_FORM = re.compile(r"(\d{1,4})\s*[x×*]\s*(\S.*)", re.IGNORECASE)
_EXAMPLES = "write a number and a type, such as 8xH100, or a number and a capacity, such as 8x80GiB"


def assumed_machine(text: str, *, option: str = "--assume") -> Machine:
    """Return the machine that `8xH100` or `8x80GiB` describes. Raises SelectionError for other texts.

    GPUs that are described by their capacity have no name. `option` is the place of the text, for the error.
    """
    match = _FORM.fullmatch(text.strip())
    count = int(match[1]) if match else 0
    if match is None or not 1 <= count <= _MOST_GPUS:
        raise SelectionError(f"{option} {text!r} is invalid; {_EXAMPLES}, with 1 to {_MOST_GPUS} GPUs")
    name, memory_bytes = _gpu(match[2].strip(), f"{option} {text}")
    gpus = (Gpu(index=index, uuid="", name=name, memory_bytes=memory_bytes) for index in range(count))
    return Machine(gpus=tuple(gpus), assumed=True)


def node_of(site: Site) -> Machine:
    """Return a node of the site's cluster. Without `node:` in its file, the GPUs of the node are unknown."""
    if site.node is None:
        return Machine(site=site.file, gpus_known=False)
    return replace(assumed_machine(site.node, option=f"{site.file}: node:"), assumed=False, site=site.file)


def node_note(site: Site) -> str:
    """Return a sentence about what is not checked because the GPUs of a node are unknown."""
    where = f"{site.file} has no `node:`" if site.file else "there is no site file"
    return (
        f"{where}, so GPU counts are not checked, and `device: auto` means CPU processes; "
        f"write the GPUs of one node into {'it' if site.file else 'site.yaml'}, such as `node: 4xH100`"
    )


def _gpu(word: str, place: str) -> tuple[str, int]:
    """Return the device's name and its nominal memory. `fits` takes the driver's share from this memory."""
    types = {name.lower(): facts for name, facts in GPU_TYPES.items()}
    if word.lower() in types:
        name, gib = types[word.lower()]
        return name, round(gib * GIB / VISIBLE_SHARE)
    if word[0].isdecimal():
        return "", parse_memory(word, option=f"{place}:")
    longer = [name for name in GPU_TYPES if name.lower().startswith(word.lower())]
    shorter = [name for name in GPU_TYPES if word.lower().startswith(f"{name}-".lower())]
    nearest = max(shorter, key=len, default=word.upper())  # H100 for H100-80GB
    hint = f"; write {' or '.join(longer)}" if longer else suggestion(nearest, GPU_TYPES)
    raise SelectionError(f"{place}: {word!r} is not a GPU type{hint}, or a capacity such as 80GiB")
