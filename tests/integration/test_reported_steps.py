"""Runs of programs that report their steps themselves: lines of stdout, or calls of `tunebench.steps.step`."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factories.results import of_command

from orchestrator.records import (
    CaveatKind,
    CustomCommand,
    Experiment,
    Measure,
    MetricSource,
    RunRecord,
    Script,
    Status,
    StepSource,
)
from orchestrator.results import claims
from orchestrator.results.store import Store
from orchestrator.run.run_one import run_one

# A program that makes steps of 10 ms, and says that they took 5 ms.
PRINTS = """
import json, time
print("loading")
for number in range(1, {steps} + 1):
    time.sleep(0.01)
    print(json.dumps({{"step": number, "seconds": 0.005 + 0.00001 * (number % 3), "tokens": 1000, "samples": 4}}))
print(json.dumps({{"train_runtime": 2.5, "train_loss": 0.5}}))
"""
# Two processes that share a core for two seconds: each waits half of its time.
WAITS = """
import json, os, time
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
print(json.dumps({"step": 1, "seconds": 0.1, "tokens": 1}), flush=True)
os.fork()
end = time.monotonic() + 2.5
while time.monotonic() < end:
    pass
print(json.dumps({"step": 2, "seconds": 0.1, "tokens": 1}), flush=True)
"""
# A program that makes steps until its epoch ends, whatever signal it gets.
STAYS = """
import json, signal, time
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_IGN)
for number in range(1, 10**6):
    time.sleep(0.02)
    print(json.dumps({"step": number, "seconds": 0.02 + 0.00001 * (number % 3), "tokens": 1000}), flush=True)
"""
CALLS = """
import sys, time
from tunebench.steps import step
for _ in range({steps} + 1):
    time.sleep(0.01)
    step(tokens=1000)
print(sys.modules["tunebench.steps"].__file__)
"""


def experiment(code: str, *, steps: StepSource | None = StepSource.STDOUT, **more: Any) -> Experiment:
    return of_command("{python}", "-c", "{code}", **{"arguments": {"code": code}, "steps": steps, **more})


def carried_out(tmp_path: Path, one: Experiment) -> tuple[Path, RunRecord]:
    store = Store.create(tmp_path / "results", {})
    store.add([one])
    job = store.job(one.id, repeat=1, attempt=1)
    assert claims.claim(job, executor="test")
    return job.run_dir, run_one(job.run_dir)


def values(record: RunRecord) -> dict[str, Any]:
    return {number.name: number.value for number in record.measurements}


def said(record: RunRecord) -> list[str]:
    return [caveat.sentence for caveat in record.warnings]


def test_printed_steps_have_a_steady_state_and_an_interval(tmp_path: Path) -> None:
    run_dir, record = carried_out(tmp_path, experiment(PRINTS.format(steps=40), measure=Measure(discard_steps=4)))
    assert (record.status, said(record)) == (Status.OK, [])
    numbers = values(record)
    assert numbers["tokens_per_s"] == pytest.approx(1000 / 0.00501, rel=0.001)
    assert numbers["step_time_low_s"] <= numbers["step_time_s"] <= numbers["step_time_high_s"]
    assert (numbers["steps"], numbers["steady_steps"], numbers["discarded_steps"]) == (40, 36, 4)
    assert (numbers["tokens_processed"], numbers["samples_processed"]) == (40_000, 160)
    assert (numbers["train_loss"], numbers["train_runtime"]) == (0.5, 2.5)
    assert "data_wait_share" not in numbers, "unknown, and not 0"
    assert len((run_dir / "steps-rank0.jsonl").read_text().splitlines()) == 40


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel does not count it")
@pytest.mark.parametrize("steps", [StepSource.STDOUT, None])
def test_a_program_that_waits_for_a_core_ran_on_a_busy_host(tmp_path: Path, steps: StepSource | None) -> None:
    _, record = carried_out(tmp_path, experiment(WAITS, steps=steps))
    share = values(record)["core_wait_share"]
    assert 0.3 < share < 0.95
    (busy,) = [caveat for caveat in record.warnings if caveat.kind is CaveatKind.BUSY_HOST]
    assert busy.detail == f"a process's threads waited for a core in {share:.0%} of the time"


def test_a_program_that_sleeps_does_not_wait_for_a_core(tmp_path: Path) -> None:
    _, record = carried_out(tmp_path, experiment("import time; time.sleep(2)", steps=None))
    assert values(record)["core_wait_share"] < 0.1


@pytest.mark.parametrize("how", ["os.mkfifo(name)", "os.symlink('/dev/zero', name)"])
def test_a_step_file_that_the_program_made_a_pipe_or_a_link_neither_blocks_the_run_nor_is_written(
    tmp_path: Path, how: str
) -> None:
    """Opening a pipe for writing waits for a reader: without care for ever, and beyond every time limit."""
    code = f"import os, sys; name = sys.argv[1] + '/steps-rank0.jsonl'; {how}"
    one = of_command(
        *("{python}", "-c", "{code}", "{run_dir}"),
        arguments={"code": code + PRINTS.format(steps=3)},
        steps=StepSource.STDOUT,
        timeout_s=10.0,
    )
    _, record = carried_out(tmp_path, one)
    assert record.wall_s < 9 and values(record).get("tokens_per_s") is None
    assert any("the steps could not be written" in text for text in said(record)), said(record)


def test_enough_steps_end_the_program(tmp_path: Path) -> None:
    code = PRINTS.format(steps=100_000)
    _, record = carried_out(tmp_path, experiment(code, measure=Measure(at_most_steps=30, discard_steps=5)))
    assert (record.status, record.kind) == (Status.OK, None)
    numbers = values(record)
    assert (numbers["steps"], numbers["steady_steps"], numbers["stopped_early"]) == (30, 25, "at_most_steps")
    assert record.wall_s < 60
    assert said(record) == [
        f"custom.metrics declares {name}, but the run has no value for it: the run was ended early (at_most_steps)"
        for name in ("train_runtime", "train_loss")
    ]


def test_a_known_step_time_ends_the_program(tmp_path: Path) -> None:
    code = PRINTS.format(steps=100_000)
    _, record = carried_out(tmp_path, experiment(code, measure=Measure(within=0.05, discard_steps=0)))
    assert (record.status, values(record)["stopped_early"]) == (Status.OK, "within")


def test_steps_while_the_program_is_being_ended_do_not_count(tmp_path: Path) -> None:
    """It takes six seconds until the program is killed. The steps in this time do not make the run invalid."""
    run_dir, record = carried_out(tmp_path, experiment(STAYS, measure=Measure(within=0.05)))
    assert record.status is Status.OK, record.cause
    written = len((run_dir / "steps-rank0.jsonl").read_text().splitlines())
    assert record.wall_s < 5 and values(record)["steps"] < written - 200
    assert values(record)["stopped_early"] == "within"


def test_steps_that_begin_again_leave_no_speed_and_the_reason(tmp_path: Path) -> None:
    code = "import json\nfor step in [*range(30), *range(30)]:\n    print(json.dumps(dict(step=step, seconds=0.1)))"
    _, record = carried_out(tmp_path, experiment(code, custom=command_without_metrics()))
    assert record.status is Status.OK and "step_time_s" in values(record) and values(record)["step_time_s"] is None
    assert [(caveat.kind, caveat.detail) for caveat in record.warnings][-1] == (
        CaveatKind.NO_STEADY_SPEED,
        "step 1 came after step 29; number the steps of the whole run, and print them in one process",
    )


def test_a_run_that_failed_is_not_blamed_for_a_missing_steady_state(tmp_path: Path) -> None:
    code = (
        "import json\nfor step in range(3):\n    print(json.dumps(dict(step=step, seconds=0.1)))\nraise SystemExit(3)"
    )
    _, record = carried_out(tmp_path, experiment(code, custom=command_without_metrics()))
    assert record.status is Status.FAILED and CaveatKind.NO_STEADY_SPEED not in [one.kind for one in record.warnings]
    (why,) = [one.why_missing for one in record.measurements if one.name == "step_time_s"]
    assert why and "are left after" in why


def command_without_metrics() -> CustomCommand:
    return CustomCommand(command=("{python}", "-c", "{code}"), launcher="none")


def test_a_program_that_prints_no_step_has_no_result(tmp_path: Path) -> None:
    code = "print({'step': 1, 'seconds': 0.1})"
    _, record = carried_out(tmp_path, experiment(code, custom=command_without_metrics()))
    assert (record.status, record.kind) == (Status.FAILED, "no_metrics")
    assert said(record) == [
        "1 of the step lines in stdout cannot be used; the first: {'step': 1, 'seconds': 0.1} (it is not JSON)",
        "no steady-state speed: the run has no steps",
    ]


def test_a_program_that_prints_on_and_makes_no_step_has_stalled(tmp_path: Path, impatient: float) -> None:
    code = 'import time\nprint(\'{"step": 1, "seconds": 0.1}\')\nwhile True:\n    time.sleep(0.05)\n    print("alive")'
    _, record = carried_out(tmp_path, experiment(code, stall_timeout_s=1.0, startup_timeout_s=30.0))
    assert (record.status, record.kind) == (Status.STALLED, "stalled")


@pytest.mark.parametrize("goes_on", ["", "print('trying again', file=sys.stderr)"])
def test_a_training_that_crashed_while_its_launcher_waits_is_quoted(tmp_path: Path, goes_on: str) -> None:
    """What the launcher writes when it is ended comes later, and is not quoted."""
    crash = "raise ValueError('my shape is wrong')"
    code = f"import subprocess, sys, time\nsubprocess.run([sys.executable, '-c', {crash!r}])\n{goes_on}\ntime.sleep(60)"
    _, record = carried_out(tmp_path, experiment(code, startup_timeout_s=3.0))
    assert record.status is Status.STALLED
    assert str(record.cause).endswith("its log ended with ValueError: my shape is wrong") is not bool(goes_on)


def test_a_log_that_the_program_emptied_is_said(tmp_path: Path) -> None:
    code = """
import json, os, time
for number in range(1, 31):
    if number == 21:
        time.sleep(1.5)  # until the lines before were read
        os.truncate(1, 0)
    print(json.dumps({"step": number, "seconds": 0.1}), flush=True)
"""
    measure = Measure(discard_steps=0, at_most_steps=1000)
    _, record = carried_out(tmp_path, experiment(code, custom=command_without_metrics(), measure=measure))
    assert values(record)["steps"] == 30
    assert "stdout.log was emptied while the program ran, so steps may be missing" in said(record)


def test_a_step_after_a_progress_bar_is_said(tmp_path: Path) -> None:
    code = """
for number in range(1, 31):
    bar = f"\\r{number}/30 " if number % 10 == 0 else ""
    print(bar + '{"step": %d, "seconds": 0.1}' % number)
"""
    _, record = carried_out(tmp_path, experiment(code, custom=command_without_metrics()))
    assert said(record)[0] == (
        "3 of the step lines in stdout cannot be used; "
        'the first: 10/30 {"step": 10, "seconds": 0.1} (other text comes before the JSON)'
    )


def test_calls_are_steps_in_an_interpreter_without_tunebench(tmp_path: Path) -> None:
    command = replace(command_without_metrics(), command=("{python}", "-S", "-c", "{code}"))
    one = experiment(CALLS.format(steps=30), steps=StepSource.CALLS, custom=command, env={"PYTHONPATH": None})
    run_dir, record = carried_out(tmp_path, one)
    assert (record.status, values(record)["steps"], values(record)["tokens_processed"]) == (Status.OK, 30, 30_000)
    assert values(record)["first_step_s"] > 0.01
    assert (run_dir / "stdout.log").read_text().strip() == str(run_dir / "modules" / "tunebench" / "steps.py")
    assert 'PYTHONPATH="$here"/modules\n' in (run_dir / "command.sh").read_text()


def test_calls_of_several_processes_add_up(tmp_path: Path) -> None:
    """The steps of both processes are common steps; the rows of the ranks have the part of each."""
    both = f"""
import os, subprocess, sys
code = {CALLS.format(steps=30)!r}
children = [subprocess.Popen([sys.executable, "-c", code], env={{**os.environ, "RANK": rank}}) for rank in "01"]
sys.exit(max(child.wait() for child in children))
"""
    one = experiment(both, steps=StepSource.CALLS, num_gpus=2, custom=command_without_metrics())
    _, record = carried_out(tmp_path, one)
    assert (record.status, values(record)["steps"], values(record)["tokens_processed"]) == (Status.OK, 30, 60_000)
    assert [row["rank"] for row in record.ranks] == [0, 1]


def test_enough_calls_end_the_program(tmp_path: Path) -> None:
    one = experiment(CALLS.format(steps=100_000), steps=StepSource.CALLS, measure=Measure(at_most_steps=30))
    _, record = carried_out(tmp_path, replace(one, custom=command_without_metrics()))
    assert (record.status, values(record)["steps"], values(record)["stopped_early"]) == (Status.OK, 30, "at_most_steps")


# Two processes that do not wait for each other, each with steps of its own length. One may fail, and then the program does.
RANKS = """
import os, sys, time
def rank(number, pause_s, fails_at):
    os.environ["RANK"] = str(number)
    from tunebench.steps import step
    for made in range({steps} + 1):
        time.sleep(pause_s)
        if made == fails_at:
            raise RuntimeError("CUDA out of memory. Tried to allocate 1.00 GiB.")
        step(tokens=1000)
failed = False
for number, (pause_s, fails_at) in enumerate({ranks}):
    if not os.fork():
        rank(number, pause_s, fails_at)
        sys.exit()
for _ in {ranks}:
    failed |= os.wait()[1] != 0
sys.exit(failed)
"""


def of_ranks(tmp_path: Path, *ranks: tuple[float, int], steps: int) -> RunRecord:
    code = RANKS.format(ranks=list(ranks), steps=steps)
    more: dict[str, Any] = {"num_gpus": len(ranks), "custom": command_without_metrics(), "steps": StepSource.CALLS}
    return carried_out(tmp_path, experiment(code, measure=Measure(at_most_steps=20, discard_steps=2), **more))[1]


@pytest.mark.parametrize("fails_at", [0, 5])
def test_a_process_that_failed_has_not_made_enough_steps(tmp_path: Path, fails_at: int) -> None:
    record = of_ranks(tmp_path, (0.01, -1), (0.01, fails_at), steps=150)
    assert (record.status, record.kind) == (Status.FAILED, "oom_cuda")


def test_the_slowest_process_decides_when_the_steps_are_enough(tmp_path: Path) -> None:
    record = of_ranks(tmp_path, (0.01, -1), (0.05, -1), steps=100_000)
    numbers = values(record)
    assert (record.status, numbers["steps"], numbers["stopped_early"]) == (Status.OK, 20, "at_most_steps")


def test_calls_that_nothing_reads_are_said(tmp_path: Path) -> None:
    root = str(Path(__file__).parents[2])
    one = experiment(CALLS.format(steps=3), steps=None, custom=command_without_metrics(), env={"PYTHONPATH": root})
    _, record = carried_out(tmp_path, one)
    assert said(record) == [
        "the program reported its steps, and nothing reads them; write 'steps: tunebench.steps' in the scenario"
    ]


def test_a_promised_metric_that_did_not_come_is_a_warning(tmp_path: Path) -> None:
    metrics = {"train_loss": MetricSource(key="loss"), "tokens_per_s": MetricSource(), "train_runtime": MetricSource()}
    custom = CustomCommand(command=("{python}", "-c", "{code}"), launcher="none", metrics=metrics)
    code = 'print(\'{"loss": 0.5, "train_runtime": "soon"}\')'
    _, record = carried_out(tmp_path, experiment(code, steps=None, custom=custom))
    assert record.status is Status.OK
    assert said(record) == [
        "custom.metrics declares tokens_per_s, but the run has no value for it: no key tokens_per_s in the last line of stdout",
        "custom.metrics declares train_runtime, but the run has no value for it: 'soon' is not a number",
    ]


@pytest.mark.parametrize(
    ("steps", "printed", "is_said"), [(40, 150_000.0, True), (40, 200_000.0, False), (5, 200_000.0, False)]
)
def test_numbers_from_the_steps_count_and_not_the_printed_ones(
    tmp_path: Path, steps: int, printed: float, is_said: bool
) -> None:
    """A printed speed took the place of that of the steps, and the speed per GPU next to it was 47 times as large.

    In a run without a steady state, it was another number than in the other runs.
    """
    custom = CustomCommand(
        command=("{python}", "-c", "{code}"),
        launcher="none",
        metrics={
            **{"tokens_per_s": MetricSource(key="speed"), "samples_per_s": MetricSource(key="speed")},
            "train_loss": MetricSource(key="train_loss"),
        },
    )
    code = PRINTS.format(steps=steps) + f"print(json.dumps({{'speed': {printed}, 'train_loss': 0.5}}))"
    _, record = carried_out(tmp_path, experiment(code, custom=custom, measure=Measure(discard_steps=4)))
    numbers = values(record)
    speed = None if steps < 40 else pytest.approx(1000 / 0.00501, rel=0.01)
    assert numbers["tokens_per_s"] == numbers["tokens_per_s_per_gpu"] == speed
    assert numbers["samples_per_s"] == (None if steps < 40 else pytest.approx(4 / 0.00501, rel=0.01))
    assert numbers["train_loss"] == 0.5, "no step has a loss"
    sentence = "the command's tokens_per_s is 150000; that of its steps counts, which is"
    assert any(one.startswith(sentence) for one in said(record)) == is_said


def test_a_script_without_a_trainer_reports_its_steps(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PRINTS.format(steps=20))
    one = experiment("", custom=None, trainer="script", arguments={}, measure=Measure(discard_steps=5))
    _, record = carried_out(tmp_path, replace(one, script=Script(script="train.py", folder=str(tmp_path))))
    assert (record.status, values(record)["steps"], values(record)["steady_steps"]) == (Status.OK, 20, 15)
