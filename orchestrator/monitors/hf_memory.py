"""What is measured: GPU memory held by tensors, as the Hugging Face Trainer's memory tracker counts it.

How: the tracker notes allocated memory before the Trainer is built, and for each stage (init, train) by how much it
changed and how far its peak rose above its start. A running sum over the stages gives allocated memory at each stage's
end; the highest is `mem_torch_mem_alloc_in_bytes`, the highest of sum + peak is `mem_peak_torch_mem_alloc_in_bytes`.

Two monitors give the same keys. With `hf_memory` the instrument replaces the Trainer's tracker by a quiet one
(`workers/instrument/tracker.py`). It gives the same bytes on a GPU and costs the training nothing. `hf_memory_native` is the
Trainer's own. Its thread spins on a core during the whole training, so the run's speed is not comparable with any other.

What the numbers leave out: the caching allocator's reserve, CUDA contexts, communication buffers, and every rank but 0.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from orchestrator.files import reading
from orchestrator.measure.memory_logs import Number, finite, memory_summary
from orchestrator.monitors.monitor import Monitor
from orchestrator.records import Caveat, Command, Measurement, RunFolder

_FLAG, _INSTRUMENT = "--skip_memory_metrics", "instrument.py"
_NO_STAGES = "the Trainer's memory tracker left no complete set of GPU stages (none on a CPU)"
_TRACKER = "TUNEBENCH_MEMORY_TRACKER"


class HfMemory(Monitor):
    """The Trainer's memory metrics, and the two numbers that people compare; by our quiet tracker, or by the Trainer's own."""

    def __init__(self, *, native: bool = False) -> None:
        self.perturbs = native
        self.native = native

    def prepare(self, command: Command, run_dir: Path) -> Command:
        """Asks the Trainer for its tracker where the arguments say nothing; leaves a user's own command alone."""
        if not any(word.endswith(_INSTRUMENT) for word in command.argv):
            return command
        if not self.native:
            command = replace(command, env={**command.env, _TRACKER: "light"})
        return command if _FLAG in command.argv else replace(command, argv=(*command.argv, _FLAG, "False"))

    def measurements(self, run_dir: Path) -> list[Measurement]:
        metrics, problem = _worker_metrics(RunFolder(run_dir).worker(0))
        named = {name: value for name, value in metrics.items() if "_mem_" in name}
        summary = memory_summary(metrics)
        peak, allocated = summary or (None, None)
        why = None if summary else Caveat(detail=f"hf_memory: {problem or _NO_STAGES}")
        return [
            Measurement(name="mem_peak_torch_mem_alloc_in_bytes", value=peak, source="hf_memory", missing=why),
            Measurement(name="mem_torch_mem_alloc_in_bytes", value=allocated, source="hf_memory", missing=why),
            *(Measurement(name=name, value=value, source="hf_memory") for name, value in named.items()),
        ]


def _worker_metrics(path: Path) -> tuple[dict[str, Number], str | None]:
    """The Trainer's numbers, and why the file could not be read where it is there."""
    try:
        content = reading.read_json(path, limit=reading.RECORD_BYTES, finite=False)
    except FileNotFoundError:
        return {}, None
    except (OSError, ValueError) as error:
        return {}, f"{path.name}: {reading.reason(error)}"
    metrics = content.get("metrics") if isinstance(content, dict) else None
    if not isinstance(metrics, dict):
        return {}, None
    return {name: number for name, value in metrics.items() if (number := finite(value)) is not None}, None
