"""Functions for the trainers that run under `workers/instrument/`: the instrument's file, the command line, and the numbers.

The numbers come only from the files `worker-rank<R>.json`, never from a log. The same files have the Trainer's memory metrics,
which the monitor `hf_memory` reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

from orchestrator.files.package import WORKERS
from orchestrator.measure.memory_logs import finite
from orchestrator.records import Experiment, Measurement, Text, as_items, whole_number
from orchestrator.records.run_folder import OUTPUT, path_text
from orchestrator.trainers import argument_names
from orchestrator.trainers.trainer import Trainer

SOURCES = WORKERS / "instrument"
# The name of the instrument's file in a run's folder. `-m` searches this folder for modules, but no module can have this name.
FILE_NAME = "tunebench-instrument.py"
PARTS = (
    *("architecture", "backward", "clocks", "compilations", "counting", "ending"),
    *("meter", "phases", "profiler", "recorder", "settings", "stages"),
)
SEED, TRAINERS_SEED = "seed", "42"
TOKEN_SPEED = "train_tokens_per_second"

_WRITTEN = "# Written by tunebench for this run: its instrument.py, with the parts in it.\n"
_NO_PARTS = "PARTS: dict[str, tuple[int, str]] = {}\n"


class InstrumentedTrainer(Trainer):
    """A trainer under the instrument.

    `target` is a script, or `-m` and a module; `table` maps canonical names to the trainer's names.
    """

    instrumented = True
    target: tuple[str, ...]
    table: argument_names.Table

    def command(self, experiment: Experiment, run_dir: Path) -> list[str]:
        return command(run_dir, *self.target, *flags(self.arguments(experiment, run_dir)))

    def metrics(self, run_dir: Path) -> list[Measurement]:
        return measurements(run_dir)

    def translate(self, arguments: Mapping[str, Text | None]) -> tuple[dict[str, Text | None], tuple[str, ...]]:
        return argument_names.translate(self.table, arguments)


@cache
def single_file() -> str:
    """Return the text of the instrument as one file: workers/instrument/instrument.py, with the other parts in its table PARTS.

    Each run's folder contains this file, named FILE_NAME, so that people can read the file and repeat the run.
    """
    own, *texts = (next(SOURCES.rglob(f"{name}.py")).read_text(encoding="utf-8") for name in ("instrument", *PARTS))
    begin, _, end = own.partition(_NO_PARTS)
    file = f"{_WRITTEN}{begin}{_NO_PARTS.rstrip().rstrip('}')}\n"
    for name, text in zip(PARTS, texts, strict=True):
        lines_above = file.count("\n")
        file += f"    {name!r}: ({lines_above}, r'''{text}'''),\n"
    return f"{file}}}\n{end}"


def command(run_dir: Path, *target: str, modules_in: str | None = None) -> list[str]:
    """Return the command, as words, that runs `SCRIPT ARGUMENTS…` or `-m MODULE ARGUMENTS…` under the run's instrument.

    Python first searches the folder `modules_in` for the module. The default is the working folder.
    """
    place = [] if modules_in is None else ["--modules-in", modules_in]
    return [path_text(run_dir, FILE_NAME), *place, "--", *target]


def flags(arguments: Mapping[str, Text]) -> list[str]:
    """Return arguments as words of a command line. Each argument is `--name`, then its items."""
    return list(chain.from_iterable(map(_words, arguments, arguments.values())))


@lru_cache(maxsize=65536)
def _words(name: str, value: Text) -> tuple[str, ...]:
    items = as_items(value)
    if len(items) == 1 and items[0].startswith("-") and not _is_number(items[0]):
        return (f"--{name}={items[0]}",)  # as a separate word it would look like a flag
    return (f"--{name}", *items)


def with_own_seed(experiment: Experiment, repeat: int) -> Experiment:
    """Return the experiment of one repeat. If it has a target, each repeat has its own seed, and the first has the scenario's.

    The loss depends on the seed, so repeats with one seed would hide how much the time to a target varies. A script gets a seed
    only if its arguments have one.
    """
    first = whole_number(experiment.arguments.get(SEED, None if experiment.script else TRAINERS_SEED))
    if experiment.target is None or first is None:
        return experiment
    return replace(experiment, arguments={**experiment.arguments, SEED: str(first + repeat - 1)})


def with_run_folder(arguments: Mapping[str, Text], run_dir: Path) -> dict[str, Text]:
    """Return the arguments with the run's own `output_dir` at the end, so that all files stay in the run folder."""
    arguments = dict(arguments)
    arguments.pop("output_dir", None)
    arguments["output_dir"] = path_text(run_dir, OUTPUT)
    return arguments


def data_file(data_path: str) -> str:
    """Return the file of the prepared data, for trainers that read a file instead of a folder."""
    return data_path if Path(data_path).suffix in {".json", ".jsonl", ".parquet"} else f"{data_path}/train.json"


def measurements(run_dir: Path) -> list[Measurement]:
    """Return the Trainer's final metrics from rank 0. If the Trainer reported no speed in tokens, add this speed."""
    from orchestrator.measure.rank_files import worker_files

    workers = worker_files(run_dir)
    first = next((worker for worker in workers if worker.get("rank") == 0), None)
    if first is None:
        return []
    final = {name: finite(value) for name, value in (first.get("metrics") or {}).items() if "_mem_" not in name}
    measured = [Measurement(name=name, value=value, source="trainer") for name, value in final.items()]
    if final.get(TOKEN_SPEED) is None:
        measured = [measurement for measurement in measured if measurement.name != TOKEN_SPEED]
        speed = token_speed(workers, runtime_s=final.get("train_runtime"))
        if speed is not None:
            measured.append(Measurement(name=TOKEN_SPEED, value=speed, source="worker"))
    return [*measured, *_counts(workers, first), *_logged_losses(first)]


def _counts(workers: Sequence[Mapping[str, Any]], first: Mapping[str, Any]) -> Iterator[Measurement]:
    """Yield the amount of work of all ranks, and the size of the model."""
    settings = first.get("settings") or {}
    steps = None if first.get("toggle_steps") else (first.get("tokens") or {}).get("steps")
    counts = {
        "tokens_processed": _total(workers, "processed"),
        "samples_processed": _total(workers, "samples"),
        "steps": finite(steps),
        **{name: finite(settings.get(name)) for name in ("trainable_parameters", "total_parameters", "world_size")},
    }
    yield from (Measurement(name=name, value=value, source="worker") for name, value in counts.items() if value)


def _logged_losses(first: Mapping[str, Any]) -> Iterator[Measurement]:
    """Yield the logged losses, so that trainings of different lengths can be compared."""
    from orchestrator.measure import losses

    try:
        text = losses.as_text([(step, loss) for step, loss in first.get("losses") or ()])
    except (TypeError, ValueError, OverflowError):  # the training wrote the file, and a loss may be null
        text = None
    if text is not None:
        yield Measurement(name="logged_losses", value=text, source="worker")


def _total(workers: Sequence[Mapping[str, Any]], name: str) -> int | None:
    """Return the sum of the count `name` over all data-parallel ranks. Of ranks that got the same batch, the first counts.

    Return None if a rank is missing or some steps were not measured, because a partial sum would be wrong.
    """
    from orchestrator.measure.rank_files import ranks_per_batch

    counts = [(worker.get("tokens") or {}).get(name) or 0 for worker in workers]
    is_partial = len(counts) != workers[0].get("world_size") or any(worker.get("toggle_steps") for worker in workers)
    return None if is_partial or 0 in counts else sum(counts[:: ranks_per_batch(workers[0])])


def token_speed(workers: Sequence[Mapping[str, Any]], *, runtime_s: float | int | None) -> float | None:
    """Return processed tokens per second and device, padding included, as transformers 4 defines this metric."""
    tokens = _total(workers, "processed") if workers else None
    return tokens / runtime_s / len(workers) if tokens and runtime_s else None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
