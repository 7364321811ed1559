"""Memory of one rank at the stages of its training: after loading, over the first step, over all steps that follow.

What is measured, and how: on CUDA what the caching allocator counts (bytes that tensors hold, bytes that it keeps, the
highest of both within the stage, how often it had to free its cache and try again, how often that did not help); on any
Linux the resident memory of this process and its children, added up from /proc.

What the numbers leave out: CUDA contexts, communication buffers and whatever else is allocated past torch. Resident
memory is read at a stage's end and not within it, and pages that a child shares with its parent count twice; only this
process's own peak is the kernel's. Torch keeps one peak; to have one for each stage it is reset in between, which is
never done beside the Trainer's own memory tracker, who resets it too: then the stages have no peaks, and the peak over
the process is put together from readings before its resets.

A part of the instrument (`instrument.py`). It imports nothing but the standard library: torch is asked once it is there.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any, Optional

STAGES = ("after_load", "first_step", "steady")
PROCESS, STAGE = "process", "stage"
KINDS = ("allocated", "reserved")


class TorchPeaks:
    """The highest allocated and reserved bytes of several spans at once, though torch keeps the peak of only one."""

    def __init__(self) -> None:
        self.spans = {PROCESS: [0, 0], STAGE: [0, 0]}

    def note(self) -> dict[str, int]:
        """Adds torch's peaks to those of every open span, and returns all that the allocator counts."""
        stats = allocator()
        peaks = [stats.get(f"{kind}_bytes.all.peak", 0) for kind in KINDS]
        for name, span in self.spans.items():
            self.spans[name] = list(map(max, span, peaks))
        return stats

    def open(self, name: str) -> None:
        """Begins a span now; whoever calls this has seen to torch's peaks being reset since they were last noted."""
        self.spans[name] = [0, 0]

    def reset(self) -> None:
        if self.note():
            sys.modules["torch"].cuda.reset_peak_memory_stats()


def allocator() -> dict[str, int]:
    """The caching allocator's counters of the current device; empty before CUDA is in use, which asking must not start."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    try:
        return dict(cuda.memory_stats()) if cuda is not None and cuda.is_initialized() else {}
    except RuntimeError:  # the device itself has failed; the training's own error says how
        return {}


class Memory:
    """The stages of one rank, closed one after the other. Until a training begins there are none."""

    def __init__(self) -> None:
        self.peaks = TorchPeaks()
        self.highest_rss = 0
        self.resets = True
        self.stages: dict[str, Optional[dict[str, Any]]] = dict.fromkeys(STAGES)
        self.stage: Optional[str] = None

    def begin(self, *, resets: bool) -> None:
        """A training begins, and loading ends; of an earlier one only the peaks over the process are kept.

        `resets`: whether torch's peaks are ours to reset.
        """
        self.resets, self.stages, self.stage = resets, dict.fromkeys(STAGES), STAGES[0]
        self.close(following=STAGES[1])

    def close(self, following: Optional[str] = None) -> None:
        """Ends the stage that is open, if one is, and begins the one that follows."""
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

    def over_process(self) -> dict[str, Optional[int]]:
        """The highest values since the process began."""
        allocated, reserved = self.peaks.spans[PROCESS] if self.peaks.note() else (None, None)
        self.high_water()
        return {"allocated_bytes": allocated, "reserved_bytes": reserved, "rss_bytes": self.highest_rss or None}

    def high_water(self) -> int:
        """The kernel's peak of this process's resident memory since it was last begun anew; 0 where it is not told."""
        peak = resident("VmHWM") or 0
        self.highest_rss = max(self.highest_rss, peak)
        return peak

    def restart_high_water(self) -> bool:
        """Makes the kernel's peak begin anew, where it lets us. The one so far is kept."""
        self.high_water()
        try:
            with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
                file.write("5")
        except OSError:
            return False
        return True


def resident(field: str, pid: Any = "self") -> Optional[int]:
    """VmRSS (now) or VmHWM (highest) of a process in bytes; None where it is gone, or is a thread of the kernel."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            return next((int(line.split()[1]) * 1024 for line in file if line.startswith(field + ":")), None)
    except (OSError, ValueError, IndexError):
        return None


def tree_rss() -> Optional[int]:
    """Resident bytes of this process and all that descend from it."""
    found, rest = 0, [os.getpid()]
    children: dict[int, list[int]] = {}
    for pid in processes():
        fields = stat_fields(pid)
        if fields:
            children.setdefault(int(fields[1]), []).append(pid)
    while rest:
        pid = rest.pop()
        rest += children.get(pid, [])
        found += resident("VmRSS", pid) or 0
    return found or None


def processes() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    except OSError:
        return []


def stat_fields(pid: Any) -> list[str]:
    """The words of /proc/<pid>/stat after the command's name, which may hold blanks: state, parent…"""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return []


def process_start() -> Optional[float]:
    """When this process was started, in seconds since the epoch; None where the system does not say."""
    try:
        ticks = int(stat_fields("self")[19])
        return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / os.sysconf("SC_CLK_TCK")
    except (IndexError, ValueError, OSError, AttributeError):
        return None


def gpu(trainer: Any) -> Optional[dict[str, Any]]:
    """The device that this rank trains on: its number in this process, its UUID as NVML has it, its name."""
    device, torch = trainer.accelerator.device, sys.modules["torch"]
    if device.type != "cuda":
        return None
    index = torch.cuda.current_device() if device.index is None else device.index
    properties = torch.cuda.get_device_properties(index)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    named = visible[index].strip() if index < len(visible) else ""
    uuid = getattr(properties, "uuid", None)
    known = f"GPU-{uuid}" if uuid is not None else named if named.startswith("GPU-") and len(named) == 40 else None
    # A part of a GPU has an UUID of its own, which torch does not know.
    return {"index": index, "uuid": named if named.startswith("MIG-") else known, "name": properties.name}
