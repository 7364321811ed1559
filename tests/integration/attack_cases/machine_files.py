"""The kernel's own files are empty or unreadable, as in a container whose program for these files has ended."""

from __future__ import annotations

import os
import sys

from attack_cases.register import Skipped, case
from attack_cases.scene import Scene

_READ = ("meminfo", "stat", "loadavg", "cpuinfo", "sys/kernel/random/boot_id", "self/mountinfo")
# A read of a process's memory at its first address fails.
_IN_PLACE = {"empty": "/dev/null", "unreadable": "/proc/1/mem"}


@case(name=_READ, source=_IN_PLACE)
def file_of_the_kernel(scene: Scene, name: str, source: str) -> None:
    """A training that ends well is recorded, whatever cannot be read about the machine."""
    if os.geteuid() != 0:
        raise Skipped("a mount needs root")
    scene.scenario(numbers=2)
    words = " ".join((sys.executable, "-m", "orchestrator", "run", "scenarios.yaml", "--yes"))
    mount = f"mount --bind {source} /proc/{name}"
    said = scene.ended(scene.start_any("unshare", "--mount", "sh", "-c", f"{mount} && exec {words}"))
    assert said.code == 0, said
    assert scene.statuses() == ["ok", "ok"], scene.records()
