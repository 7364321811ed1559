"""The comparison of a site file with its cluster, as lines: what the file says, what the cluster has, and what to do. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from rich.table import Table
from rich.text import Text

from orchestrator.executors.slurm.cluster.facts import Association, Cluster, Nodes, Partition
from orchestrator.executors.slurm.cluster.notation import time_text
from orchestrator.executors.slurm.site import Site
from orchestrator.files.printable_text import counted

LIMITS = ("MaxArraySize", "MaxJobCount", "MinJobAge", "KillWait")
NOTHING = "-"
_MEGABYTES: Mapping[str, float] = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024**2}
_STYLES = {"ok": "green", "note": "yellow", "missing": "red"}


class Level(StrEnum):
    OK = "ok"
    NOTE = "note"
    MISSING = "missing"


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One line of the comparison. `todo` is empty if nothing has to be done."""

    name: str
    level: Level = Level.OK
    site: str = NOTHING
    cluster: str = NOTHING
    todo: str = ""


def compare(site: Site, cluster: Cluster, *, node_gpus: int | None, mistake: str | None = None) -> list[Line]:
    """Return the lines for a site file.

    `node_gpus` is the number of GPUs in its `node:`, and `mistake` the mistake in its `prologue:`.
    """
    names = site.partition.split(",") if site.partition else [one.name for one in _default(cluster)]
    chosen = [cluster.partitions[name] for name in names if name in cluster.partitions]
    nodes = [node for partition in chosen for node in partition.nodes]
    return [
        _line(
            "site file",
            site=site.file or "none",
            todo="" if site.file else "write a site.yaml next to the scenario file",
        ),
        Line(name="cluster", cluster=_cluster_text(cluster)),
        *_partitions(site, cluster, names),
        *_accounts(site, cluster, chosen),
        *_qos(site, cluster, chosen),
        *_time(site, chosen),
        *_gpus(site, nodes, node_gpus),
        *_share(site, nodes),
        *_constraint(site, nodes),
        _queue(site, cluster),
        *_others(site, mistake),
    ]


def _default(cluster: Cluster) -> Iterator[Partition]:
    return (partition for partition in cluster.partitions.values() if partition.is_default)


def _cluster_text(cluster: Cluster) -> str:
    settings = cluster.settings
    limits = ", ".join(f"{name} {settings[name]}" for name in LIMITS if name in settings)
    return f"{settings.get('ClusterName', 'unnamed')}, Slurm {settings.get('SLURM_VERSION', 'unknown')}; {limits}"


def _partitions(site: Site, cluster: Cluster, names: Sequence[str]) -> Iterator[Line]:
    for name in names:
        partition, written = cluster.partitions.get(name), name if site.partition else NOTHING
        if partition is None:
            yield _missing("partition", name, _all(cluster.partitions))
            continue
        text = f"{'' if site.partition else f'{name} (the default): '}{_nodes_text(partition.nodes)}"
        todo = (
            "" if partition.state == "UP" else f"it is {partition.state.lower()}: jobs do not start; choose another one"
        )
        yield _line("partition", site=written, cluster=text, todo=todo)
    if not names:
        yield _missing("partition", NOTHING, f"no default; {_all(cluster.partitions)}")


def _nodes_text(nodes: Sequence[Nodes]) -> str:
    states = Counter[str]()
    for node in nodes:
        states[node.state] += node.number
    kinds = dict.fromkeys((_gpus_text(node.gpus), node.cpus, node.memory_mb) for node in nodes)
    each = " or ".join(f"{gpus}, {cpus} cores, {memory / 1024:.3g} GiB" for gpus, cpus, memory in kinds)
    counts = ", ".join(f"{number} {state}" for state, number in states.items())
    return f"{counted(states.total(), 'node')} ({counts}), each with {each}" if nodes else "it has no nodes"


def _gpus_text(gpus: Mapping[str, int]) -> str:
    return " + ".join(f"{number} × {kind or 'GPU'}" for kind, number in gpus.items()) or "0 GPUs"


def _accounts(site: Site, cluster: Cluster, chosen: Sequence[Partition]) -> Iterator[Line]:
    yours = cluster.associations
    if yours is None:
        if site.account:
            yield _line("account", site=site.account, cluster=cluster.unknown, todo="it could not be checked")
        return
    names = dict.fromkeys(one.account for one in yours)
    if site.account and site.account not in names:
        yield _missing("account", site.account, _all(names))
    elif not names and "associations" in cluster.settings.get("AccountingStorageEnforce", ""):
        yield _line("account", cluster="none for you", level=Level.MISSING, todo="ask the administrators for one")
    else:
        yield Line(name="account", site=site.account or NOTHING, cluster=_all(names))
    yield from _refused("account", site.account, [(one, one.accounts, one.not_accounts) for one in chosen])


def _qos(site: Site, cluster: Cluster, chosen: Sequence[Partition]) -> Iterator[Line]:
    yours = _of_account(site, cluster)
    names = dict.fromkeys(name for one in yours for name in one.qos)
    if site.qos and cluster.associations is None:
        yield _line("qos", site=site.qos, cluster=cluster.unknown, todo="it could not be checked")
    elif site.qos and site.qos not in names:
        yield _missing("qos", site.qos, _all(names))
    elif names:
        yield Line(name="qos", site=site.qos or NOTHING, cluster=_all(names))
    yield from _refused("qos", site.qos, [(one, one.qos, one.not_qos) for one in chosen])


def _of_account(site: Site, cluster: Cluster) -> list[Association]:
    return [one for one in cluster.associations or () if site.account in (None, one.account)]


def _refused(
    key: str, name: str | None, rules: Iterable[tuple[Partition, frozenset[str] | None, frozenset[str]]]
) -> Iterator[Line]:
    """Yield a line for each partition that does not allow the name."""
    for partition, allowed, denied in rules:
        if name and ((allowed is not None and name not in allowed) or name in denied):
            there = f"partition {partition.name} allows " + (
                f"only {_all(sorted(allowed))}" if allowed is not None else f"all but {_all(sorted(denied))}"
            )
            yield _line(
                key, site=name, cluster=there, level=Level.MISSING, todo="choose another one, or another partition"
            )


def _time(site: Site, chosen: Sequence[Partition]) -> Iterator[Line]:
    for partition in chosen:
        most, usual = partition.max_s, partition.default_s or partition.max_s
        there = f"at most {time_text(most)}" if most is not None else "no limit"
        there += f", {time_text(usual)} without `time:`" if usual is not None else ""
        there = f"{partition.name}: {there}" if len(chosen) > 1 else there
        is_over = site.time_s is not None and most is not None and site.time_s > most
        if is_over and all(one.max_s is not None and (site.time_s or 0) > one.max_s for one in chosen):
            yield _line(
                "time", site=_time_of(site), cluster=there, level=Level.MISSING, todo=f"write at most {time_text(most)}"
            )
        else:
            todo = f"jobs of this length do not start in {partition.name}" if is_over else ""
            yield _line("time", site=_time_of(site), cluster=there, todo=todo)


def _time_of(site: Site) -> str:
    return NOTHING if site.time_s is None else time_text(site.time_s)


def _gpus(site: Site, nodes: Sequence[Nodes], node_gpus: int | None) -> Iterator[Line]:
    if not nodes:
        return
    types = Counter[str]()
    for node in nodes:
        for kind, number in node.gpus.items():
            types[kind] = max(types[kind], number)
    if site.gpu_type and site.gpu_type not in types:
        yield _missing("gpu_type", site.gpu_type, _all(filter(None, types)) or "its GPUs have no types")
        return
    if site.gpu_type or len(types) > 1:
        todo = "" if site.gpu_type else "write one as `gpu_type:`, so that all runs use the same GPUs"
        yield _line("gpu_type", site=site.gpu_type or NOTHING, cluster=_all(filter(None, types)), todo=todo)
    most = types[site.gpu_type] if site.gpu_type else max((sum(node.gpus.values()) for node in nodes), default=0)
    there = f"{counted(most, 'GPU')} in a node"
    if node_gpus is not None and node_gpus > most:
        yield _line("node", site=site.node or "", cluster=there, level=Level.MISSING, todo=_node_todo(most))
    elif node_gpus is None:
        yield _line("node", cluster=there, todo=_node_todo(most) if most else "")
    else:
        yield _line("node", site=site.node or "", cluster=there, todo="" if node_gpus == most else _node_todo(most))


def _node_todo(most: int) -> str:
    return f"write `node: {most}xTYPE`, such as {most}xH100 or {most}x80GiB" if most else "leave `node:` out"


def _share(site: Site, nodes: Sequence[Nodes]) -> Iterator[Line]:
    """Yield lines about the cores and the memory for each GPU. A job with all GPUs of a node must fit in the node."""
    cpus = [node.cpus // sum(node.gpus.values()) for node in nodes if node.gpus]
    memory = [node.memory_mb // sum(node.gpus.values()) for node in nodes if node.gpus]
    if site.cpus_per_gpu:
        yield _at_most("cpus_per_gpu", str(site.cpus_per_gpu), site.cpus_per_gpu, cpus, "cores")
    if site.mem_per_gpu:
        asked = int(site.mem_per_gpu[:-1]) * _MEGABYTES[site.mem_per_gpu[-1]]
        yield _at_most("mem_per_gpu", site.mem_per_gpu, asked, memory, "MB")


def _at_most(key: str, written: str, asked: float, there: Sequence[int], unit: str) -> Line:
    most = max(there, default=None)
    if most is None:
        return Line(name=key, site=written)
    text = f"{most} {unit} for each GPU of a node"
    if asked <= most:
        return Line(name=key, site=written, cluster=text)
    return _line(
        key,
        site=written,
        cluster=text,
        level=Level.MISSING,
        todo="jobs with all GPUs of a node never start; write less",
    )


def _constraint(site: Site, nodes: Sequence[Nodes]) -> Iterator[Line]:
    if not site.constraint or not nodes:
        return
    there = {feature for node in nodes for feature in node.features}
    words = re.findall(r"[A-Za-z_][\w.@+:/-]*", site.constraint)
    if unknown := [word for word in words if word not in there]:
        yield _missing("constraint", ", ".join(unknown), _all(sorted(there)) or "its nodes have no features")
    else:
        yield Line(name="constraint", site=site.constraint, cluster=_all(sorted(there)))


def _queue(site: Site, cluster: Cluster) -> Line:
    limits = [one.max_submit for one in _of_account(site, cluster) if one.max_submit is not None]
    most = min(limits, default=None)
    there = NOTHING if most is None else f"you may have {most} jobs in the queue"
    todo = f"write `max_queued: {most}`" if most is not None and site.max_queued > most else ""
    return _line("max_queued", site=str(site.max_queued), cluster=there, todo=todo)


def _others(site: Site, mistake: str | None) -> Iterator[Line]:
    """Yield the other values, which have no counterpart in the cluster."""
    for name in ("lines", "scratch", "throttle", "pilot", "price"):
        value = getattr(site, name)
        if value not in (None, ()):
            yield Line(name=name, site=", ".join(value) if isinstance(value, tuple) else str(value))
    if site.max_pending_s is not None:
        yield Line(name="max_pending", site=time_text(site.max_pending_s))
    if site.prologue.strip():
        level, lines = Level.MISSING if mistake else Level.OK, counted(len(site.prologue.strip().splitlines()), "line")
        yield _line("prologue", site=lines, level=level, todo=f"correct the shell lines: {mistake}" if mistake else "")


def _line(name: str, *, site: str = NOTHING, cluster: str = NOTHING, level: Level = Level.NOTE, todo: str) -> Line:
    """Return a line. Without `todo`, its level is ok."""
    return Line(name=name, level=level if todo else Level.OK, site=site, cluster=cluster, todo=todo)


def _missing(key: str, written: str, there: str) -> Line:
    return _line(key, site=written, cluster=there, level=Level.MISSING, todo=f"write another `{key}:`, or remove it")


def _all(names: Iterable[str]) -> str:
    return ", ".join(names)


def as_table(lines: Sequence[Line]) -> Table:
    """Return the lines as a table."""
    view = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("what", ""):
        view.add_column(heading, no_wrap=True)
    for heading in ("site file", "cluster", "to do"):
        view.add_column(heading, overflow="fold")
    for line in lines:
        level = Text(line.level, _STYLES[line.level])
        view.add_row(Text(line.name), level, Text(line.site), Text(line.cluster), Text(line.todo))
    return view
