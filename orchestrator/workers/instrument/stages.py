"""Reads the memory of one rank at the stages of its training: after loading, in the first step, in all later steps.

What is measured, and how: on CUDA, the counters of the caching allocator are read. These are the bytes of tensors, the bytes that
the allocator reserves, and the peaks of these two in the stage. Two more counters say how often the allocator freed its cache to
retry, and how often a retry failed. On Linux, the resident memory of this process and its descendants is read from /proc.

What the numbers leave out: CUDA contexts, communication buffers and other memory that torch does not allocate. Resident memory
is read only at the end of a stage, and pages that a child shares with its parent count twice. The kernel reports the peak of this
process only. Torch keeps only one peak, so this peak is reset between the stages. The Trainer's own memory tracker resets it, too.
If that tracker is used, the stages have no peaks, and the peak of the process comes from readings before the tracker's resets.

What the forward pass saves for the backward pass is read once, in the first micro-batch of the second step: the bytes of tensors
between the two passes, less those before the forward pass. Torch's own hooks for saved tensors are not used, because with them a
compiled model is compiled again.

There are two ways to use the Trainer's tracker: as it is but always on, and light, which costs nearly no time. The light tracker
gives the same keys, and on CUDA the same bytes. The tracker of transformers reads memory at the beginning and end of its own stages
(init, train, eval, test). To know the peak, it starts a thread that reads the process's resident memory without a pause. That
thread slows every training step. In the light tracker, the thread ends at once. The peak is the kernel's VmHWM, restarted for each
stage. If the kernel does not allow the restart, the peak is the larger of two readings: one at the stage's beginning, one at its
end. A higher value between them is missed. On CUDA the light tracker takes the highest peak before and after each reset. Its class
is derived from the installed tracker, so each version of transformers keeps its own keys. The numbers were compared with those of
transformers 4.46 to 5.23.

This is a part of the instrument (`instrument.py`). It imports only the standard library, and uses torch once it is loaded.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import time
from collections.abc import Mapping
from typing import Any, Optional

STAGES = ("after_load", "first_step", "steady")
PROCESS, STAGE = "process", "stage"
KINDS = ("allocated", "reserved")
SPAN = "tracker"


class TorchPeaks:
    """The peaks of allocated and reserved bytes for several spans at once. Torch keeps only one peak."""

    def __init__(self) -> None:
        self.spans = {PROCESS: [0, 0], STAGE: [0, 0]}

    def note(self) -> dict[str, int]:
        """Add torch's peaks to every open span, and return all counters of the allocator."""
        stats = allocator()
        peaks = [stats.get(f"{kind}_bytes.all.peak", 0) for kind in KINDS]
        for name, span in self.spans.items():
            self.spans[name] = list(map(max, span, peaks))
        return stats

    def open(self, name: str) -> None:
        """Begin a span now. Torch's peaks must have been reset since the last `note`."""
        self.spans[name] = [0, 0]

    def reset(self) -> None:
        if self.note():
            sys.modules["torch"].cuda.reset_peak_memory_stats()


def allocator() -> dict[str, int]:
    """Return the caching allocator's counters of the current device; an empty dict if CUDA is not in use.

    The query must not start CUDA.
    """
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    try:
        return dict(cuda.memory_stats()) if cuda is not None and cuda.is_initialized() else {}
    except RuntimeError:  # the device itself has failed; the training's own error explains it
        return {}


def allocated() -> Optional[int]:
    """Return the bytes that tensors hold on the current device now, or None if CUDA is not in use."""
    return allocator().get("allocated_bytes.all.current")


class Memory:
    """The memory of one rank, stage by stage. Before a training begins there is no stage."""

    def __init__(self) -> None:
        self.peaks = TorchPeaks()
        self.highest_rss = 0
        self.resets = True
        self.stages: dict[str, Optional[dict[str, Any]]] = dict.fromkeys(STAGES)
        self.stage: Optional[str] = None
        self.before_forward: Optional[int] = None
        self.saved: Optional[int] = None

    def begin(self, *, resets: bool) -> None:
        """Record the end of loading and the beginning of a training. Of an earlier training, keep only the peaks of the process.

        `resets` says whether this object may reset torch's peaks.
        """
        self.resets, self.stages, self.stage = resets, dict.fromkeys(STAGES), STAGES[0]
        self.close(following=STAGES[1])

    def close(self, following: Optional[str] = None) -> None:
        """End the open stage, if any, and begin the following stage."""
        if self.stage is None:
            return
        stats = self.peaks.note()
        peaks = self.peaks.spans[STAGE] if stats and self.resets else (None, None)
        rss = tree_rss()
        self.highest_rss = max(self.highest_rss, rss or 0)
        self.stages[self.stage] = {
            **{f"{kind}_bytes": stats.get(f"{kind}_bytes.all.current") for kind in KINDS},
            **{f"peak_{kind}_bytes": peaks[i] for i, kind in enumerate(KINDS)},
            "alloc_retries": stats.get("num_alloc_retries"),
            "ooms": stats.get("num_ooms"),
            "rss_bytes": rss,
        }
        self.stage = following
        if following and self.resets:
            self.peaks.reset()
            self.peaks.open(STAGE)

    def forward_begins(self) -> None:
        self.before_forward = allocated()

    def noting_saved(self, backward: Any) -> Any:
        """Return the function `backward`, which then reads what the forward pass has saved, if `forward_begins` was called."""

        @functools.wraps(backward)
        def noted(*args: Any, **kwargs: Any) -> Any:
            now, before = (allocated(), self.before_forward) if self.before_forward is not None else (None, None)
            if now is not None and before is not None:
                self.saved, self.before_forward = max(0, now - before), None
            return backward(*args, **kwargs)

        return noted

    def over_process(self) -> dict[str, Optional[int]]:
        """Return the highest values since the process began, and the bytes that the forward pass saves for the backward pass."""
        highest, reserved = self.peaks.spans[PROCESS] if self.peaks.note() else (None, None)
        self.high_water()
        return {
            "allocated_bytes": highest, "reserved_bytes": reserved, "rss_bytes": self.highest_rss or None,
            "saved_for_backward_bytes": self.saved,
        }  # fmt: skip

    def high_water(self) -> int:
        """Return this process's highest resident memory since `restart_high_water`, as the kernel knows it; 0 if unknown."""
        peak = resident("VmHWM") or 0
        self.highest_rss = max(self.highest_rss, peak)
        return peak

    def restart_high_water(self) -> bool:
        """Make the kernel begin a new peak, and remember the old peak. Return whether the kernel allowed this."""
        self.high_water()
        try:
            with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
                file.write("5")
        except OSError:
            return False
        return True


def resident(field: str, pid: Any = "self") -> Optional[int]:
    """Return VmRSS (now) or VmHWM (highest) of a process in bytes; None if the process has ended or is a kernel thread."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            return next((int(line.split()[1]) * 1024 for line in file if line.startswith(field + ":")), None)
    except (OSError, ValueError, IndexError):
        return None


def tree_rss() -> Optional[int]:
    """Return the resident bytes of this process and all its descendants."""
    found, rest = 0, [os.getpid()]
    children: dict[int, list[int]] = {}
    with contextlib.suppress(OSError):
        for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))):
            fields = stat_fields(pid)
            if fields:
                children.setdefault(int(fields[1]), []).append(pid)
    while rest:
        pid = rest.pop()
        rest += children.get(pid, [])
        found += resident("VmRSS", pid) or 0
    return found or None


def stat_fields(pid: Any) -> list[str]:
    """Return the words of /proc/<pid>/stat after the command's name: state, parent… The name itself may contain blanks."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return []


def process_start() -> Optional[float]:
    """Return the start of this process in seconds since the epoch, or None if the system does not report it."""
    try:
        ticks = int(stat_fields("self")[19])
        return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / os.sysconf("SC_CLK_TCK")
    except (IndexError, ValueError, OSError, AttributeError):
        return None


def gpu(trainer: Any) -> Optional[dict[str, Any]]:
    """Return the GPU of this rank: its number in this process, its UUID as in NVML, and its name."""
    device, torch = trainer.accelerator.device, sys.modules["torch"]
    if device.type != "cuda":
        return None
    index = torch.cuda.current_device() if device.index is None else device.index
    properties = torch.cuda.get_device_properties(index)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    named = visible[index].strip() if index < len(visible) else ""
    uuid = getattr(properties, "uuid", None)
    known = f"GPU-{uuid}" if uuid is not None else named if named.startswith("GPU-") and len(named) == 40 else None
    # A MIG device has its own UUID, which torch does not know.
    return {"index": index, "uuid": named if named.startswith("MIG-") else known, "name": properties.name}


# --- the Trainer's tracker -------------------------------------------------------------------------------------------


def stage_of_caller(stages: Mapping[str, str]) -> str:
    """Return the stage of the Trainer's method that called the tracker. That method may be several frames up."""
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name in stages:
            return str(stages[frame.f_code.co_name])
        frame = frame.f_back  # type: ignore[assignment]
    raise ValueError(f"the caller of the memory tracker is none of {', '.join(stages)}")


def always_on(original: Any) -> Any:
    """Return `transformers.trainer.TrainerMemoryTracker` as a class that always measures, even if the arguments disable it."""

    class AlwaysOn(original):  # type: ignore[misc]
        def __init__(self, skip_memory_metrics: bool = False) -> None:
            super().__init__(False)

    return AlwaysOn


def light(original: Any, memory: Any) -> Any:
    """Return a class that replaces `transformers.trainer.TrainerMemoryTracker`. `memory` is a Memory."""

    class LightMemoryTracker(original):  # type: ignore[misc]
        def derive_stage(self) -> str:
            return stage_of_caller(self.stages)

        def concerns(self, stage: str) -> bool:
            """Return whether the original tracker acts in this stage.

            The original ignores a stage inside another stage, such as an evaluation during training.
            """
            return not self.skip_memory_metrics and self.cur_stage in (None, stage)

        def peak_monitor_func(self) -> None:
            """Do nothing. The original tracker runs this function in a thread, which therefore ends at once."""

        def start(self) -> None:
            acts = not self.skip_memory_metrics and self.concerns(self.derive_stage())
            if acts:
                memory.peaks.note()
            super().start()
            if acts:  # the original has just reset torch's peak
                memory.peaks.open(SPAN)
                self.kernel_knows = memory.restart_high_water()

        def stop(self, stage: str) -> None:
            if not self.concerns(stage):
                return
            if stage == "train":  # before the cache is emptied
                memory.close()
            memory.peaks.note()
            allocated = memory.peaks.spans.pop(SPAN, [0, 0])[0]
            readings = [self.cpu_mem_used_at_start, self.cpu_mem_used()]
            self.cpu_mem_used_peak = max(readings + [memory.high_water()] * self.kernel_knows)
            super().stop(stage)
            noted = getattr(self, "gpu", {}).get(stage) if self.torch is not None else None
            if noted and allocated and not isinstance(noted["peaked"], str):
                noted["peaked"] = max(noted["peaked"], allocated - noted["end"])

    return LightMemoryTracker
