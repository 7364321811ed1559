"""What a run inherits: a variable of Tunebench that the caller has would change a training, and its experiment's id would not."""

from __future__ import annotations

import re
from pathlib import Path

from orchestrator.machine.child_environment import child_environment

WORKERS = Path(__file__).resolve().parents[2] / "orchestrator" / "workers"


def test_no_variable_that_a_worker_reads_is_inherited() -> None:
    read = {
        name for path in WORKERS.rglob("*.py") for name in re.findall(r"\bTUNEBENCH_[A-Z_]+", path.read_text("utf-8"))
    }
    assert read >= {"TUNEBENCH_INSTRUMENT", "TUNEBENCH_MEASURE", "TUNEBENCH_TOGGLE_STEPS"}
    assert child_environment({}, dict.fromkeys(read, "1")) == {}


def test_a_scenario_may_still_set_them() -> None:
    assert child_environment({"TUNEBENCH_TOGGLE_STEPS": "20"}, {"TUNEBENCH_TOGGLE_STEPS": "5"}) == {
        "TUNEBENCH_TOGGLE_STEPS": "20"
    }
