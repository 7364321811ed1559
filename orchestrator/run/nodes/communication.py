"""Facts about the communication of a run's processes: the variables of NCCL and gloo, and what NCCL wrote into the logs."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress

from orchestrator.files import reading
from orchestrator.files.redaction import redact
from orchestrator.records import Experiment, RunFolder

_VARIABLES = ("NCCL_", "GLOO_")
# NCCL writes these lines when it starts, if NCCL_DEBUG is INFO.
_VERSION = re.compile(r"\bNCCL version (\d[\w.+-]{0,40})")
_TRANSPORT = re.compile(r"\bvia ((?:NET|P2P|SHM|COLLNET|NVLS)(?:/[A-Za-z]{1,20}){0,3})")
# `NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB; OOB eth0:10.0.0.1<0>` names the network cards, or `NET/Socket : Using [0]eth0:…`.
_NETWORK = re.compile(r"\bNET/(?:IB|Socket) ?: Using ([^\n]{1,2000})")
_CARD = re.compile(r"\[\d+\]\s*([A-Za-z][\w.@-]{0,40}):")
_READ_BYTES = 4 * 2**20


def facts(experiment: Experiment, folder: RunFolder, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables that the run inherited or set, and NCCL's version, transports and network cards."""
    given = {**environ, **experiment.env}
    found = {name: redact(value) for name, value in sorted(given.items()) if value and name.startswith(_VARIABLES)}
    log = ""
    for path in (folder.stdout, folder.stderr):
        with suppress(OSError, ValueError):
            log += reading.read_head(path, limit=_READ_BYTES)
    if version := _VERSION.search(log):
        found["nccl_version"] = version[1]
    if transports := {match[1] for match in _TRANSPORT.finditer(log)}:
        found["transports"] = ", ".join(sorted(transports))
    if cards := {name for line in _NETWORK.findall(log) for name in _CARD.findall(line)}:
        found["network_cards"] = ", ".join(sorted(cards))
    return found
