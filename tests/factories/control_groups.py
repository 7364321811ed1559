"""Control groups for tests of what the kernel does to a process tree."""

from __future__ import annotations

import uuid

import pytest

from orchestrator.machine import cgroup


def small_group() -> cgroup.ControlGroup:
    """Make a control group of 64 MiB of memory, or skip the test where that cannot be had."""
    group = cgroup.create(uuid.uuid4().hex)
    if group is None:
        pytest.skip("nobody may make a control group here")
    files = (group.path / file for file in ("memory.max", "memory.limit_in_bytes"))
    limit = next((file for file in files if file.exists()), None)
    if limit is None:
        group.remove()
        pytest.skip("its memory cannot be limited here")
    limit.write_text(str(64 * 2**20))
    for file in ("memory.swap.max", "memory.swappiness"):  # where there is swap, it would go on in there
        if (group.path / file).exists():
            (group.path / file).write_text("0")
    return group
