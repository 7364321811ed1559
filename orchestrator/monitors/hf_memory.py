"""Measures the GPU memory of tensors, as the memory tracker of the Hugging Face Trainer counts it.

How: the tracker notes the allocated memory before the Trainer is built. For each stage (init, train) it notes how much the
allocated memory changed, and how far the peak was above the value at the end of the stage. A running sum over the stages gives the
allocated memory at the end of each stage. `mem_torch_mem_alloc_in_bytes` is the highest of these sums.
`mem_peak_torch_mem_alloc_in_bytes` is the highest value of such a sum plus the peak's distance above it.

Two monitors give numbers with the same names. With `hf_memory` the instrument replaces the Trainer's tracker by its own
(`workers/instrument/tracker.py`), which gives the same bytes on a GPU and costs the training nothing. `hf_memory_native` uses
the Trainer's tracker. That tracker has a thread that keeps a core busy during the whole training. So the run's speed cannot be
compared with the speed of other runs.

The numbers leave out: the caching allocator's reserve, CUDA contexts, communication buffers, and every rank except 0.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from orchestrator.files import reading
from orchestrator.measure.memory_logs import Number, finite, memory_summary
from orchestrator.monitors.monitor import Monitor
from orchestrator.records import Caveat, Command, Measurement, RunFolder

_INSTRUMENT = "instrument.py"
_NO_STAGES = "the Trainer's memory tracker left no complete set of GPU stages (none on a CPU)"
_TRACKER = "TUNEBENCH_MEMORY_TRACKER"


class HfMemory(Monitor):
    """The Trainer's memory metrics and two numbers made from them.

    If `native` is true, the Trainer's own tracker measures these metrics, else our tracker.
    """

    def __init__(self, *, native: bool = False) -> None:
        self.perturbs = self.native = native

    def prepare(self, command: Command, run_dir: Path) -> Command:
        """Return the command with a variable that makes the instrument use a tracker.

        A command without the instrument is not changed. No argument is added, because a user's script may not know the
        argument.
        """
        if not any(word.endswith(_INSTRUMENT) for word in command.argv):
            return command
        return replace(command, env={**command.env, _TRACKER: "native" if self.native else "light"})

    def measurements(self, run_dir: Path) -> list[Measurement]:
        metrics, problem = _worker_metrics(RunFolder(run_dir).worker(0))
        summary = memory_summary(metrics)
        peak, allocated = summary or (None, None)
        why = None if summary else Caveat(detail=f"hf_memory: {problem or _NO_STAGES}")
        return [
            Measurement(name="mem_peak_torch_mem_alloc_in_bytes", value=peak, source="hf_memory", missing=why),
            Measurement(name="mem_torch_mem_alloc_in_bytes", value=allocated, source="hf_memory", missing=why),
            *(Measurement(name=name, value=metrics[name], source="hf_memory") for name in metrics if "_mem_" in name),
        ]


def _worker_metrics(path: Path) -> tuple[dict[str, Number], str | None]:
    """Return two values: the Trainer's numbers; and a reason, if the file of these numbers exists but cannot be read."""
    try:
        content = reading.read_json(path, limit=reading.RECORD_BYTES, finite=False)
    except FileNotFoundError:
        return {}, None
    except (OSError, ValueError) as error:
        return {}, f"{path.name}: {reading.reason(error)}"
    metrics = content.get("metrics") if isinstance(content, dict) else None
    items = metrics.items() if isinstance(metrics, dict) else ()
    return {name: number for name, value in items if (number := finite(value)) is not None}, None
