"""What every trainer under `workers/instrument/` shares: that file, its command line's two ends, and the numbers it leaves.

The numbers come from the files `worker-rank<R>.json` alone; nothing is scraped from a log. Hugging Face memory deltas
are in the same files and belong to the monitor `hf_memory`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import orchestrator
from orchestrator import losses
from orchestrator.records import Measurement, Text, as_items
from orchestrator.summaries import worker_files

WORKERS = Path(orchestrator.__file__).resolve().parent / "workers"
SOURCES = WORKERS / "instrument"
FILE_NAME = "tunebench-instrument.py"
"""The instrument in a run's folder. Targets of `-m` look there for modules: with this name it stands in the way of none."""
PARTS = (
    *("architecture", "clocks", "counting", "ending", "meter"),
    *("recorder", "settings", "stages", "stopping", "tracker", "versions"),
)
TOKEN_SPEED = "train_tokens_per_second"

_WRITTEN = "# Written by tunebench for this run: its instrument.py, with the parts in it.\n"
_NO_PARTS = "PARTS: dict[str, tuple[int, str]] = {}\n"


@cache
def single_file() -> str:
    """The instrument as one file that needs none beside it: workers/instrument/instrument.py with its parts in its table.

    A run under it has it in its folder, as FILE_NAME: what measured the run can be read there, and repeats it.
    """
    own, *texts = ((SOURCES / f"{name}.py").read_text(encoding="utf-8") for name in ("instrument", *PARTS))
    begin, _, end = own.partition(_NO_PARTS)
    made = f"{_WRITTEN}{begin}{_NO_PARTS.rstrip().rstrip('}')}\n"
    for name, text in zip(PARTS, texts, strict=True):
        above = made.count("\n")
        made += f"    {name!r}: ({above}, r'''{text}'''),\n"
    return f"{made}}}\n{end}"


def command(run_dir: Path, *target: str) -> list[str]:
    """The words that start `SCRIPT ARGUMENTS…` or `-m MODULE ARGUMENTS…` under the run's instrument."""
    return [str(run_dir / FILE_NAME), "--", *target]


def flags(arguments: Mapping[str, Text]) -> list[str]:
    """Arguments as command-line words: one `--key`, then each item."""
    words: list[str] = []
    for name, value in arguments.items():
        if isinstance(value, str) and not value.startswith("-"):
            words += (f"--{name}", value)
            continue
        items = as_items(value)
        if len(items) == 1 and items[0].startswith("-") and not _is_number(items[0]):
            words.append(f"--{name}={items[0]}")  # as a word of its own it would be taken for a flag
        else:
            words += [f"--{name}", *items]
    return words


def with_run_folder(arguments: Mapping[str, Text], run_dir: Path) -> dict[str, Text]:
    """The arguments with the run's own output folder, last: results never leave the run folder."""
    own = dict(arguments)
    own.pop("output_dir", None)
    own["output_dir"] = os.path.join(run_dir, "output")
    return own


def data_file(data_path: str) -> str:
    """The file with the rows, for a trainer that wants a file where preparation made a folder."""
    return data_path if Path(data_path).suffix in {".json", ".jsonl", ".parquet"} else f"{data_path}/train.json"


def measurements(run_dir: Path) -> list[Measurement]:
    """The Trainer's final metrics of rank 0, and the token speed where the Trainer gave none itself."""
    workers = worker_files(run_dir)
    first = next((worker for worker in workers if worker.get("rank") == 0), None)
    if first is None:
        return []
    final = {name: _number(value) for name, value in (first.get("metrics") or {}).items() if "_mem_" not in name}
    found = [Measurement(name=name, value=value, source="trainer") for name, value in final.items()]
    if final.get(TOKEN_SPEED) is None:
        found = [measurement for measurement in found if measurement.name != TOKEN_SPEED]
        speed = token_speed(workers, runtime_s=final.get("train_runtime"))
        if speed is not None:
            found.append(Measurement(name=TOKEN_SPEED, value=speed, source="worker"))
    return [*found, *_counts(workers, first), *_logged_losses(first)]


def _counts(workers: Sequence[Mapping[str, Any]], first: Mapping[str, Any]) -> Iterator[Measurement]:
    """How much work was done, over all ranks, and on what."""
    settings = first.get("settings") or {}
    steps = None if first.get("toggle_steps") else (first.get("tokens") or {}).get("steps")
    counts = {
        "tokens_processed": _total(workers, "processed"),
        "samples_processed": _total(workers, "samples"),
        "steps": _number(steps),
        **{name: _number(settings.get(name)) for name in ("trainable_parameters", "total_parameters", "world_size")},
    }
    yield from (Measurement(name=name, value=value, source="worker") for name, value in counts.items() if value)


def _logged_losses(first: Mapping[str, Any]) -> Iterator[Measurement]:
    """How the loss went, so that trainings of different lengths can be compared."""
    try:
        text = losses.as_text([(step, loss) for step, loss in first.get("losses") or ()])
    except (TypeError, ValueError, OverflowError):  # the file is the training's, and one loss may be null
        text = None
    if text is not None:
        yield Measurement(name="logged_losses", value=text, source="worker")


def _total(workers: Sequence[Mapping[str, Any]], name: str) -> int | None:
    """The ranks' sum; None when a rank is missing, or blocks of steps were left alone: a sum over some would be a wrong number,
    not a low one."""
    counts = [(worker.get("tokens") or {}).get(name) or 0 for worker in workers]
    some = len(counts) != workers[0].get("world_size") or any(worker.get("toggle_steps") for worker in workers)
    return None if some or 0 in counts else sum(counts)


def token_speed(workers: Sequence[Mapping[str, Any]], *, runtime_s: float | int | None) -> float | None:
    """Processed tokens a second and a device, padding counted: the meaning that transformers 4 gave the name."""
    tokens = _total(workers, "processed") if workers else None
    return tokens / runtime_s / len(workers) if tokens and runtime_s else None


def _number(value: object) -> float | int | None:
    """The value, if it is a finite number; anything else is missing."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return value


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
