"""Tables for tests, made of experiments and records as `table.load` makes them, without files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from factories.results import BASE, ended, failed
from orchestrator.records import Caveat, Device, Framework
from orchestrator.records.price import Price
from orchestrator.results.table import rows
from orchestrator.results.table.load import ResultsTable, of_rows
from orchestrator.results.table.sources import costs


@dataclass(frozen=True, kw_only=True)
class Made:
    """An experiment: its framework, and the numbers of each of its runs that ended ok; `kinds` are failures that follow them."""

    framework: str | None = "baseline"
    runs: Sequence[Mapping[str, float | int | str | None]] = ()
    kinds: Sequence[str] = ()
    warnings: tuple[Caveat, ...] = ()
    model: str = "config:llama-1b"
    num_gpus: int = 1
    num_nodes: int = 1
    scenario: str = "full"
    arguments: Mapping[str, str] = field(default_factory=dict)
    sets: Mapping[str, str] = field(default_factory=dict)
    device: Device = Device.CUDA
    global_batch: int | None = None
    trainer: str = "huggingface"
    baseline: Mapping[str, str] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    price: Price | None = None

    @property
    def id(self) -> str:
        given = "".join(f"-{name}{value}" for name, value in {**self.arguments, **self.sources}.items())
        nodes = f".nodes{self.num_nodes}" if self.num_nodes > 1 else ""
        model = self.model.replace("/", "-").replace(":", "-")
        return f"{self.scenario}-{model}.{self.framework}.gpus{self.num_gpus}{nodes}{given}"


def made_table(*cells: Made) -> ResultsTable:
    found = [row for one in cells for row in _rows(one)]
    sets = {str(one.framework): frozenset(one.sets) for one in cells if one.sets}
    return of_rows(found, framework_arguments=sets)


def _rows(one: Made) -> list[rows.Row]:
    experiment = replace(
        BASE,
        id=one.id,
        scenario=one.scenario,
        model=one.model,
        num_gpus=one.num_gpus,
        num_nodes=one.num_nodes,
        device=one.device,
        global_batch=one.global_batch,
        framework=one.framework and Framework(name=one.framework, digest=one.framework, arguments=dict(one.sets)),
        trainer=one.trainer,
        baseline=one.baseline,
        sources=one.sources,
        arguments={**BASE.arguments, **one.arguments, **one.sets},
    )
    records = [ended(experiment, number, **numbers) for number, numbers in enumerate(one.runs, start=1)]
    records += [failed(experiment, len(records) + number, kind=kind) for number, kind in enumerate(one.kinds, start=1)]
    if one.warnings:
        records = [replace(record, warnings=one.warnings) for record in records]
    return [costs.with_costs(rows.of_run(experiment, record), one.price) for record in records]


def speeds(*values: float, **others: float | int | str) -> list[dict[str, float | int | str | None]]:
    """Runs of these tokens a second."""
    return [{"tokens_per_s": value, **others} for value in values]
