"""Budgets: how they are written, what counts, and which run is the first that does not start. Also what a plan says of due runs."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factories.results import ended, experiment, job, stored
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.campaign.status.budget import Budget, Spending, parse_budget
from orchestrator.campaign.status.expected_use import due_lines
from orchestrator.errors import SelectionError
from orchestrator.machine.provenance import Machine
from orchestrator.plan.forecast.assumed_machine import assumed_machine
from orchestrator.records import Device, Experiment, Status
from orchestrator.records.price import Per, Price
from orchestrator.results.due_runs import NO_RETRY
from orchestrator.results.store import Store, write_record

Call = Callable[..., tuple[int, str, str]]

USD = Price(amount=3.6, currency="USD")
ON_GPUS = experiment(device=Device.CUDA, num_gpus=2, repeats=9)


@pytest.mark.parametrize("text", ["2h", "8GPUh", "50USD", "0.5 h"])
def test_a_budget_is_hours_gpu_hours_or_money(text: str) -> None:
    assert str(parse_budget(text, price=USD)) == text.replace(" ", "")


@pytest.mark.parametrize("text", ["", "2", "h", "0h", "-1h", "2m", "2H", "50$", "1e3h", "nanh"])
def test_other_budgets_are_refused(text: str) -> None:
    with pytest.raises(SelectionError, match="write hours, GPU-hours or money, such as 2h, 8GPUh or 50USD"):
        parse_budget(text, price=USD)


def test_money_needs_a_price_in_its_currency() -> None:
    with pytest.raises(
        SelectionError, match="--budget 50USD: no price is known; write the price in USD, such as --pri"
    ):
        parse_budget("50USD", price=None)
    with pytest.raises(SelectionError, match=r"--budget 50EUR: the price is 3\.6USD/GPUh; write the price in EUR"):
        parse_budget("50EUR", price=USD)


@pytest.mark.parametrize(
    ("budget", "price", "refused"),
    [
        (Budget(amount=1, unit="GPUh"), None, True),
        (Budget(amount=1, unit="USD"), USD, True),
        (Budget(amount=1, unit="USD"), replace(USD, per=Per.NODE_HOUR), False),
        (Budget(amount=1, unit="h"), USD, False),
    ],
)
def test_a_budget_that_limits_nothing_is_refused(budget: Budget, price: Price | None, refused: bool) -> None:
    budget.refuse_without_gpus([ON_GPUS, experiment("b")], price)
    if not refused:
        return budget.refuse_without_gpus([experiment("b")], price)
    with pytest.raises(SelectionError, match="runs on CPUs use no GPU-hours, so this budget limits nothing"):
        budget.refuse_without_gpus([experiment("b")], price)


class Runs:
    """Runs that take a given time, started one after the other for as long as the budget allows."""

    def __init__(self, root: Path, budget: str, one: Experiment = ON_GPUS, *, price: Price = USD) -> None:
        self.one = one
        self.store = Store.resume(root) if root.exists() else Store.create(root, {})
        self.store.add([one])
        self.price, self.budget = price, parse_budget(budget, price=price)
        self.spending = self.again()

    def again(self) -> Spending:
        """Return the spending of another call of the command."""
        return Spending.of(self.budget, self.price, [self.one], self.store, machine=Machine)

    def start(self, repeat: int, seconds: float, *, status: Status = Status.OK, began_at: float | None = None) -> bool:
        run = self.store.job(self.one.id, repeat=repeat, attempt=1)
        if not self.spending.may_start(run):
            return False
        run.run_dir.mkdir(parents=True)
        began = repeat * 1e4 if began_at is None else began_at
        record = replace(ended(self.one, repeat), wall_s=seconds, started_at=began, status=status)
        return write_record(run.run_dir, record)


@pytest.mark.parametrize(
    ("budget", "one", "price", "runs"),
    [
        ("0.5GPUh", ON_GPUS, USD, 2),  # two runs of 360 s on two GPUs take 0.4 GPU-hours
        ("1h", ON_GPUS, USD, 9),
        ("0.35h", ON_GPUS, USD, 3),
        ("2.2USD", ON_GPUS, USD, 3),  # a run costs 0.72
        ("2.2USD", ON_GPUS, replace(USD, per=Per.NODE_HOUR), 6),
        ("2.2USD", replace(ON_GPUS, device=Device.CPU), replace(USD, per=Per.NODE_HOUR), 6),
    ],
)
def test_the_first_run_that_would_exceed_the_budget_does_not_start(
    tmp_path: Path, budget: str, one: Experiment, price: Price, runs: int
) -> None:
    made = Runs(tmp_path / "r", budget, one, price=price)
    assert [made.start(repeat, 360.0) for repeat in range(1, 10)] == [True] * runs + [False] * (9 - runs)
    assert made.spending.is_over is (runs < 9)
    assert not made.again().may_start(made.store.job(one.id, repeat=10, attempt=1)) or runs == 9, "earlier calls count"


def test_it_says_what_is_used_and_what_is_left(tmp_path: Path) -> None:
    made = Runs(tmp_path / "r", "0.5GPUh")
    assert [made.start(repeat, 360.0) for repeat in (1, 2, 3)] == [True, True, False]
    assert made.spending.line(7) == (
        "--budget 0.5GPUh: 0.4GPUh used, and the next run may take 6 min 00 s (0.2GPUh); 7 runs are left, which the same command "
        "with a larger --budget runs"
    )


def test_failed_and_cancelled_runs_have_used_their_time(tmp_path: Path) -> None:
    made = Runs(tmp_path / "r", "0.5GPUh")
    assert made.start(1, 600.0, status=Status.CANCELLED) and made.start(2, 900.0, status=Status.FAILED)
    assert not made.start(3, 1.0), "0.83 GPU-hours are used"


def test_a_lost_run_that_this_call_records_has_used_its_time(tmp_path: Path) -> None:
    made = Runs(tmp_path / "r", "0.5GPUh")
    lost = made.store.job(made.one.id, repeat=1, attempt=1)
    lost.run_dir.mkdir(parents=True)
    record = replace(ended(made.one, 1), wall_s=1000.0, started_at=1e4, status=Status.LOST)
    assert write_record(lost.run_dir, record)
    for _ in range(3):
        made.spending.note_ended()
    assert made.spending.line(1).startswith("--budget 0.5GPUh: 0.556GPUh used"), "once"
    assert not made.start(2, 360.0)


def test_hours_count_once_while_runs_are_concurrent(tmp_path: Path) -> None:
    made = Runs(tmp_path / "r", "0.25h")
    assert all(made.start(repeat, 360.0, began_at=1e6 + repeat) for repeat in (1, 2, 3, 4))
    assert made.start(5, 360.0), "0.1 hours are used"
    assert not made.start(6, 360.0, began_at=9e6)


def test_running_runs_count_with_the_time_that_they_are_expected_to_take(tmp_path: Path) -> None:
    made = Runs(tmp_path / "r", "0.5GPUh")
    assert made.start(1, 360.0)
    assert made.spending.may_start(made.store.job(ON_GPUS.id, repeat=2, attempt=1))
    assert not made.spending.may_start(made.store.job(ON_GPUS.id, repeat=3, attempt=1))


def test_a_first_run_without_a_known_time_starts(tmp_path: Path) -> None:
    assert Runs(tmp_path / "r", "0.001GPUh").spending.may_start(job(experiment_id=ON_GPUS.id))


def test_the_time_of_a_first_training_on_gpus_is_computed(tmp_path: Path) -> None:
    arguments = {"max_steps": "1000", "max_seq_len": "2048", "per_device_train_batch_size": "8", "dtype": "bfloat16"}
    one = experiment(device=Device.CUDA, model="config:llama-1b", arguments={**arguments, "bf16": "True"}, repeats=2)
    machine, store = assumed_machine("1xH100"), Store.create(tmp_path / "r", {})
    store.add([one])
    for hours, starts in ((0.01, False), (10.0, True)):
        budget = Budget(amount=hours, unit="GPUh")
        spending = Spending.of(budget, None, [one], store, machine=lambda: machine)
        assert spending.may_start(store.job(one.id, repeat=1, attempt=1)) is starts
    (line,) = due_lines([one], None, retry=NO_RETRY, machine=machine, price=USD)
    assert line.startswith("One after the other, these runs may take ") and " GPU-hours, " in line
    assert line.endswith(" USD at 3.6USD/GPUh).")


@given(seconds=st.lists(st.floats(1, 1e4), min_size=1, max_size=8), hours=st.floats(0.01, 10))
def test_runs_of_equal_length_never_exceed_the_budget(seconds: Sequence[float], hours: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        made = Runs(Path(folder) / "r", f"{hours:.6f}h")
        count = sum(made.start(repeat, seconds[0]) for repeat in range(1, len(seconds) + 1))
        assert count == len(seconds) or made.spending.is_over
        assert count <= max(1, hours * 3600 / seconds[0] + 1e-6)


def lines(root: Path, **fields: Any) -> list[str]:
    given: dict[str, Any] = {"retry": NO_RETRY, "machine": Machine(), "price": None}
    return [*due_lines([ON_GPUS, experiment("b", repeats=2)], root, **{**given, **fields})]


def test_a_plan_says_how_long_the_due_runs_may_take_and_what_they_cost(tmp_path: Path) -> None:
    root = stored(tmp_path / "r", (ON_GPUS, [ended(ON_GPUS, 1)]))
    first, second = lines(root, price=USD)
    assert first == f"{root}: of 11 runs 1 have ended there, and 10 would run."
    assert second == (
        "One after the other, these runs may take 2 min 05 s (0.06 GPU-hours, 0.2000 USD at 3.6USD/GPUh)."
    )
    assert lines(root)[1].endswith("(0.06 GPU-hours).")
    Store.resume(root).note_price(USD)
    assert lines(root) == [first, second], "the folder has a price"
    assert lines(root, machine=None) == [first], "the lines of a cluster's arrays have the hours"


def test_a_plan_of_runs_on_cpus_says_that_a_price_of_gpus_gives_no_cost(tmp_path: Path) -> None:
    one = experiment("b", repeats=3)
    root = stored(tmp_path / "r", (one, [ended(one, 1)]))
    for price, cost in (
        (USD, "without a cost, as 3.6USD/GPUh counts GPUs only"),
        (replace(USD, per=Per.NODE_HOUR), "USD at 3.6USD/nodeh"),
    ):
        last = [*due_lines([one], root, retry=NO_RETRY, machine=Machine(), price=price)][-1]
        assert last.startswith("One after the other, these runs may take") and cost in last


def test_a_plan_says_nothing_about_time_if_none_is_known(tmp_path: Path) -> None:
    assert len(lines(stored(tmp_path / "r", (ON_GPUS, [])))) == 1


def test_a_budget_works_only_with_the_local_executor(in_process: Call, tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text("scenarios:\n- name: a\n  device: cpu\n  arguments: {model_name_or_path: config:tiny-llama}\n")
    for words, said in (
        (
            ("--executor", "slurm"),
            "--budget works only with the executor 'local', not with 'slurm'; leave --budget out",
        ),
        (("--find-batch",), "--find measures nothing and has no budget; leave --budget or --find out"),
        ((), "--budget 8GPUh: runs on CPUs use no GPU-hours, so this budget limits nothing; write hours, such as"),
    ):
        code, _, err = in_process("run", file, "--budget", "8GPUh", "--results", tmp_path / "r", *words)
        assert code == 2 and said in err
        assert not (tmp_path / "r").exists()
