"""The facts that a cluster tells about itself: limits, partitions with their nodes and GPUs, and the user's accounts.

`ask` calls Slurm's commands. The functions that read the answers are pure. A fact that Slurm does not tell is None or empty.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from orchestrator.errors import LaunchError
from orchestrator.executors.slurm.cluster.notation import gpus_of_gres, parse_time
from orchestrator.machine import process

TIMEOUT_S = 10.0
NEEDED = ("scontrol", "sinfo")
CONFIG = ("scontrol", "show", "config")
PARTITIONS = ("scontrol", "--all", "--oneliner", "show", "partition")
NODES = ("sinfo", "--all", "--noheader", "--format=%R|%D|%T|%c|%m|%G|%f")
ASSOCIATIONS = ("sacctmgr", "--noheader", "--parsable2", "show", "associations")
ASSOCIATION_FIELDS = "format=account,partition,qos,maxsubmitjobs"

_SETTING = re.compile(r"^(\w[\w\[\]]*)\s*=[ \t]*(.*)$", re.MULTILINE)
_FIELD = re.compile(r"(\w+)=(\S*)")
_NOTHING = frozenset({"", "(null)", "N/A", "NONE"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Nodes:
    """Nodes of a partition that are alike. `gpus` maps the type of a node's GPUs ('' if they have none) to their number."""

    number: int
    state: str
    cpus: int
    memory_mb: int
    gpus: Mapping[str, int]
    features: frozenset[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Partition:
    """A partition. `max_s` is its time limit, and `default_s` the limit of a job that asks for none (None: unlimited).

    `accounts` and `qos` are the names that it allows. None means that it allows all but those in `not_accounts` and `not_qos`.
    """

    name: str
    is_default: bool
    state: str
    max_s: float | None
    default_s: float | None
    accounts: frozenset[str] | None = None
    not_accounts: frozenset[str] = frozenset()
    qos: frozenset[str] | None = None
    not_qos: frozenset[str] = frozenset()
    nodes: tuple[Nodes, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Association:
    """An account that the user may charge. `partition` restricts it, and `max_submit` is the number of jobs that may be queued."""

    account: str
    partition: str | None
    qos: tuple[str, ...]
    max_submit: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Cluster:
    """A cluster. `settings` are the values of `scontrol show config`.

    `associations` are the accounts of this user. If they are unknown, it is None, and `unknown` says why.
    """

    settings: Mapping[str, str]
    partitions: Mapping[str, Partition]
    associations: tuple[Association, ...] | None = None
    unknown: str = ""


def ask() -> Cluster:
    """Return the cluster of this machine. Raise LaunchError if Slurm's commands are missing or do not answer."""
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing:
        cure = "run this on a machine with Slurm's commands, such as the cluster's login node"
        raise LaunchError(f"{missing[0]}: there is no such program on PATH; {cure}")
    settings = read_settings(_answer(CONFIG))
    partitions = read_partitions(_answer(PARTITIONS), read_nodes(_answer(NODES)))
    associations, unknown = _associations(settings)
    return Cluster(settings=settings, partitions=partitions, associations=associations, unknown=unknown)


def _answer(argv: Iterable[str]) -> str:
    try:
        return process.capture([*argv], TIMEOUT_S)
    except LaunchError as error:
        raise LaunchError(f"{error}; check with `sinfo` whether the cluster answers") from error


def _associations(settings: Mapping[str, str]) -> tuple[tuple[Association, ...] | None, str]:
    """Return the user's associations, or None and the reason why they are unknown. They are never needed."""
    if not settings.get("AccountingStorageType", "").endswith("slurmdbd"):
        return None, "the cluster has no accounting"
    try:
        of_user = (f"user={pwd.getpwuid(os.getuid()).pw_name}", f"cluster={settings.get('ClusterName', '')}")
        text = process.capture([*ASSOCIATIONS, *of_user, ASSOCIATION_FIELDS], TIMEOUT_S)
    except KeyError:
        return None, "this user has no name"
    except LaunchError as error:
        return None, f"the accounting does not answer: {error}"
    return read_associations(text), ""


def prologue_mistake(prologue: str) -> str | None:
    """Return what bash says about a mistake in these shell lines, or None. The lines are not carried out."""
    try:
        process.capture(["bash", "-n", "-c", prologue], TIMEOUT_S)
    except LaunchError as error:
        return str(error)
    return None


def read_settings(text: str) -> dict[str, str]:
    """Return the settings in the output of `scontrol show config`."""
    return {name: value.strip() for name, value in _SETTING.findall(text)}


def read_partitions(text: str, nodes: Mapping[str, tuple[Nodes, ...]]) -> dict[str, Partition]:
    """Return name → partition, from the output of `scontrol --oneliner show partition`. `nodes` maps partitions to their nodes."""
    partitions = {}
    for line in text.splitlines():
        fields = dict(_FIELD.findall(line))
        if name := fields.get("PartitionName"):
            partitions[name] = Partition(
                name=name,
                is_default=fields.get("Default") == "YES",
                state=fields.get("State", "UP"),
                max_s=_seconds(fields.get("MaxTime", "")),
                default_s=_seconds(fields.get("DefaultTime", "")),
                accounts=_allowed(fields.get("AllowAccounts", "ALL")),
                not_accounts=_names(fields.get("DenyAccounts", "")),
                qos=_allowed(fields.get("AllowQos", "ALL")),
                not_qos=_names(fields.get("DenyQos", "")),
                nodes=nodes.get(name, ()),
            )
    return partitions


def read_nodes(text: str) -> dict[str, tuple[Nodes, ...]]:
    """Return partition → nodes, from the output of sinfo in the format of `NODES`."""
    found: dict[str, tuple[Nodes, ...]] = {}
    for line in text.splitlines():
        partition, *fields = line.split("|", 6)
        if len(fields) != 6:
            continue
        number, state, cpus, memory, gres, features = fields
        nodes = Nodes(
            number=_number(number),
            state=state.rstrip("*~#!%$@^-+"),
            cpus=_number(cpus),
            memory_mb=_number(memory),
            gpus=gpus_of_gres(gres),
            features=_names(features),
        )
        found[partition] = (*found.get(partition, ()), nodes)
    return found


def read_associations(text: str) -> tuple[Association, ...]:
    """Return the associations in the output of sacctmgr in the format of `ASSOCIATION_FIELDS`."""
    rows = [line.split("|") for line in text.splitlines()]
    return tuple(
        Association(
            account=account,
            partition=partition or None,
            qos=tuple(name for name in qos.split(",") if name),
            max_submit=int(most) if most.isdecimal() and len(most) < 19 else None,
        )
        for account, partition, qos, most in (row for row in rows if len(row) == 4)
    )


def _seconds(text: str) -> float | None:
    try:
        return parse_time(text)
    except ValueError:
        return None


def _number(text: str) -> int:
    """Return the number at the beginning of a text. sinfo writes `8+` if nodes with more are among those with 8."""
    match = re.match(r"\d{1,18}(?!\d)", text)
    return int(match[0]) if match else 0


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split(",")) if text not in _NOTHING else frozenset()


def _allowed(text: str) -> frozenset[str] | None:
    return None if text.upper() == "ALL" else _names(text)
