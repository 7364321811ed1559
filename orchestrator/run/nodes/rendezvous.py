"""The address and the port at which the processes of several nodes meet. The first node of the allocation listens there."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from contextlib import suppress

from orchestrator.errors import LaunchError
from orchestrator.machine import process

_ANSWER_S = 30.0
_FIRST_PORT, _PORTS = 20_000, 20_000
# So many ports are tried. Another process of this node may listen at the first one.
_TRIES = 100


def meeting_point(num_nodes: int, environ: Mapping[str, str] = os.environ) -> tuple[str, int]:
    """Return the address of the allocation's first node, and a port. Raise LaunchError if the allocation has too few nodes."""
    nodes, job = environ.get("SLURM_JOB_NODELIST"), environ.get("SLURM_JOB_ID", "")
    if nodes is None or not job.isdecimal():
        raise LaunchError(
            f"{num_nodes} nodes are needed, and this process is not in a Slurm allocation; use --executor slurm"
        )
    names = process.capture(["scontrol", "show", "hostnames", nodes], _ANSWER_S).split()
    if len(names) < num_nodes:
        raise LaunchError(f"{num_nodes} nodes are needed, and the allocation {job} has {len(names)}: {' '.join(names)}")
    return _address(names[0]), _free_port(int(job))


def _address(node: str) -> str:
    """Return the address that Slurm uses for a node. Other nodes may not know the name of the node."""
    facts = process.capture(["scontrol", "--oneliner", "show", "node", node], _ANSWER_S)
    found = re.search(r"\bNodeAddr=(\S+)", facts)
    return found[1] if found else node


def _free_port(job: int) -> int:
    """Return a port that depends on the job, so that jobs that share a node differ. It is free on this node, usually the first."""
    for number in range(job, job + _TRIES):
        port = _FIRST_PORT + number % _PORTS
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("", port))
            return port
    raise LaunchError(f"all of {_TRIES} ports from {_FIRST_PORT + job % _PORTS} on are in use on this node")
