"""Numbers that are too long for Python to read, in arguments and in logs: 4,300 digits are its limit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from arguments import as_number
from factories.results import experiment
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.campaign.race.places import orders
from orchestrator.campaign.status.activity import planned_steps
from orchestrator.measure.failure_kinds import hint
from orchestrator.measure.failures import verdict
from orchestrator.records import ProcessOutcome, whole_number

LONG = "9" * 5000
SCENARIO = """
scenarios:
- name: long
  device: cpu
  framework_config: baseline
  arguments: {model_name_or_path: config:tiny-llama}
"""


@given(
    st.one_of(
        st.text(), st.integers(-9, 10**16).map(str), st.floats().map(str), st.floats(0, 1e16).map("{:.0e}".format)
    )
)
def test_a_whole_number_is_what_the_trainer_reads(value: str) -> None:
    number, trainers = whole_number(value), as_number(value, whole=True)
    if isinstance(trainers, int) and 0 <= trainers < 10**15:
        assert number == whole_number((value,)) == trainers
    else:
        assert number is None


@pytest.mark.parametrize("value", [None, (), ("1", "2"), "", "[1]", "1.5", "-1", "nan", "inf", "1e15"])
def test_other_values_are_not_whole_numbers(value: str | tuple[str, ...] | None) -> None:
    assert whole_number(value) is None


@pytest.mark.parametrize(
    "name", ["max_steps", "max_seq_len", "per_device_train_batch_size", "effective_batch_size", "seed"]
)
def test_a_plan_with_a_long_number_ends_with_a_plan_or_a_sentence(
    tmp_path: Path, in_process: Callable[..., tuple[int, str, str]], name: str
) -> None:
    (tmp_path / "s.yaml").write_text(SCENARIO)
    code, _, err = in_process("plan", "s.yaml", "--memory", "--tune", "--set", f"arguments.{name}='{LONG}'")
    assert code in (0, 2) and "Traceback" not in err


def test_a_run_with_a_long_number_is_judged_and_shown() -> None:
    one = experiment("long", arguments={"per_device_train_batch_size": LONG, "max_steps": LONG, "max_seq_len": LONG})
    assert planned_steps(one) is None and orders([one, one]) == []
    assert hint("oom_cuda", "CUDA out of memory. Tried to allocate 2 GiB", one)
    outcome = ProcessOutcome(exit_code=1, signal=None, started_at=0.0, ended_at=1.0)
    for line in (f"exitcode  : {LONG} (pid: 12)", f"srun: error: n1: task 0: Exited with exit code {LONG}"):
        assert verdict(outcome, workers=(), log=f"rank : {LONG}\n{line}\n", complete=False)
