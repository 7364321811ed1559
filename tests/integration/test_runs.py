"""Whole runs with real processes: claim, `run-one`, record, resume. The trainer is a ten-line script."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from factories.results import of_command, record_of
from trees import lives, pids, tree_program, wait_for

from orchestrator import trainers
from orchestrator.campaign import steps as campaign
from orchestrator.campaign.loop import EventKind, run_benchmark
from orchestrator.errors import LaunchError
from orchestrator.executors import FakeExecutor, LocalExecutor
from orchestrator.monitors import MONITORS, Monitor
from orchestrator.plan.expand import Plan
from orchestrator.records import (
    Caveat,
    DataSpec,
    Device,
    Gpu,
    JobState,
    Measurement,
    Reason,
    Repeats,
    Status,
)
from orchestrator.results import claims
from orchestrator.results.due_runs import NO_RETRY, Retry
from orchestrator.results.store import Store
from orchestrator.run.data_preparation import prepare_data, why_missing
from orchestrator.run.run_one import run_one

REPO = Path(__file__).parent.parent.parent
RUN_ONE = (sys.executable, "-c", f"import sys; sys.path.insert(0, {str(REPO)!r})\n"
           "from pathlib import Path\nfrom orchestrator.run.run_one import run_one\nrun_one(Path(sys.argv[1]))")  # fmt: skip

GOOD = "import json; print('chatter'); print(json.dumps({'train_runtime': 2.5, 'train_loss': 0.5}))"


def experiment(code=GOOD, name="a", **more):
    return of_command("{python}", "-c", "{code}", name=name, **{"arguments": {"code": code}, **more})


@pytest.fixture(params=["results"])
def store(request, tmp_path):
    return Store.create(tmp_path / request.param, {})


def carried_out(store, one):
    store.add([one])
    job = store.job(one.id, repeat=1, attempt=1)
    assert claims.claim(job, executor="test")
    return job, run_one(job.run_dir)


OF_THE_HOST = {"load_per_core", "steal_share"}


def values(record):
    """The numbers of the run itself. Every run that was started has those of the host, too."""
    every = {number.name: number.value for number in record.measurements}
    assert not every or every.keys() >= OF_THE_HOST
    return {name: value for name, value in every.items() if name not in OF_THE_HOST}


@pytest.mark.parametrize("store", ["results", 'it\'s "here"\nund $x ünï'], indirect=True)
def test_a_good_run_leaves_its_files_and_its_record(store):
    job, record = carried_out(store, experiment())
    assert (record.status, record.kind, record.tail, record.exit_code) == (Status.OK, None, None, 0)
    assert values(record) == {"train_runtime": 2.5, "train_loss": 0.5}
    assert record.provenance["packages"]["psutil"] and record.provenance["host"]["cpu_count"]
    names = {path.name for path in job.run_dir.iterdir()}
    assert names == {"job.json", "owner.json", "command.sh", "stdout.log", "stderr.log", "record.json"}
    assert claims.state(job.run_dir) is JobState.ENDED
    assert run_one(job.run_dir) == record  # a second one changes nothing
    done = subprocess.run([str(job.run_dir / "command.sh")], capture_output=True, text=True, check=True)
    assert done.stdout == (job.run_dir / "stdout.log").read_text()
    assert {path.name for path in job.run_dir.iterdir()} == names


def test_the_packages_of_a_record_are_those_of_the_scenarios_python_path(store, tmp_path, monkeypatch):
    for folder, version in (("shell", "1.0"), ("own", "2.0")):
        (tmp_path / folder / f"other-{version}.dist-info").mkdir(parents=True)
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join(filter(None, (str(tmp_path / "shell"), os.environ.get("PYTHONPATH"))))
    )
    _, record = carried_out(store, experiment(env={"PYTHONPATH": str(tmp_path / "own")}))
    assert (record.status, record.provenance["packages"]["other"]) == (Status.OK, "2.0")


def test_a_run_that_cannot_be_started_is_a_record(store):
    _, record = carried_out(store, of_command("/nowhere/trainer"))
    assert (record.status, record.kind) == (Status.FAILED, "launcher")
    assert "/nowhere/trainer: cannot be started" in record.cause


def test_a_monitor_that_breaks_is_a_record_too(store):
    _, record = carried_out(store, experiment(monitors=("no_such",)))
    assert record.status is Status.FAILED and "unknown monitor 'no_such'" in record.cause


def test_a_gpu_that_is_not_there_is_a_record(store, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    _, record = carried_out(store, experiment(device=Device.CUDA, num_gpus=2, monitors=("nvidia_smi",)))
    assert (record.status, record.kind) == (Status.FAILED, "launcher")
    assert "2 GPUs are needed and 0 are visible" in record.cause


BUSY = "GPU 0 (NVIDIA X) was in use (8.0 GiB, process 12 (python))"
WHAT_TO_DO = "end the processes there, choose other GPUs with CUDA_VISIBLE_DEVICES, or set busy_gpus: warn"


@pytest.fixture
def busy(monkeypatch):
    gpu = Gpu(index=0, uuid="GPU-0", name="NVIDIA X")
    monkeypatch.setattr("orchestrator.machine.provenance.visible_gpus", lambda: (gpu,))
    monkeypatch.setattr("orchestrator.run.gpu_access.occupants", lambda gpus: (BUSY,) if gpus == (gpu,) else ())


def test_a_run_that_must_have_its_gpu_to_itself_is_not_started_on_a_busy_one(store, busy):
    one = experiment(device=Device.CUDA, busy_gpus="fail")
    job, record = carried_out(store, one)
    assert (record.status, record.kind, record.cause) == (Status.FAILED, "launcher", f"{BUSY}; {WHAT_TO_DO}")
    assert (record.exit_code, record.measurements) == (None, ())
    assert not any((job.run_dir / name).exists() for name in ("work", "stdout.log"))


def test_a_run_on_a_busy_gpu_says_so(store, busy):
    _, record = carried_out(store, experiment(device=Device.CUDA, busy_gpus="warn"))
    assert record.status is Status.OK and values(record)["train_runtime"] == 2.5
    assert Caveat(detail=f"{BUSY} when the run began") in record.warnings


class Broken(Monitor):
    """Sees one number and breaks at one question."""

    def __init__(self, question):
        def fail(run_dir):
            raise ZeroDivisionError("no samples")

        setattr(self, question, fail)

    def measurements(self, run_dir):
        return [Measurement(name="mean_power_w", value=300.0, source="broken")]


@pytest.mark.parametrize("question", ["measurements", "devices", "warnings"])
def test_a_monitor_that_fails_behind_the_run_costs_its_own_numbers_only(store, monkeypatch, question):
    monkeypatch.setitem(MONITORS, "broken", Broken(question))
    monkeypatch.setitem(MONITORS, "whole", type("Whole", (Monitor,), {"warnings": lambda *_: ["seen"]})())
    _, record = carried_out(store, experiment(monitors=("broken", "whole")))
    assert (record.status, record.cause) == (Status.OK, None)
    kept = {} if question == "measurements" else {"mean_power_w": 300.0}
    assert values(record) == {"train_runtime": 2.5, "train_loss": 0.5, **kept}
    said = "monitor broken could not read its samples: ZeroDivisionError: no samples"
    assert sorted(caveat.detail for caveat in record.warnings) == [said, "seen"]


def test_a_loss_that_was_no_number_makes_the_run_invalid(store):
    worker = {"schema": 2, "rank": 0, "status": "ok", "error": None, "nonfinite_step": 2, "settings": {}}
    _, record = carried_out(
        store,
        experiment(
            f"import os; open(os.environ['TUNEBENCH_RUN_DIR'] + '/worker-rank0.json', 'w').write({json.dumps(worker)!r})\n{GOOD}"
        ),
    )
    assert (record.status, record.kind, record.exit_code) == (Status.INVALID, "nan_loss", 0)
    assert "not finite by step 2:" in record.cause
    assert values(record)["train_runtime"] == 2.5


def test_more_work_than_the_device_can_do_makes_the_run_invalid(store, monkeypatch):
    """A model of a billion weights, a million tokens a second, and an H100."""
    monkeypatch.setattr(type(trainers.get("custom")), "instrumented", True)
    weights = {"frozen": 0, "trainable": 10**9, "expert_frozen": 0, "expert_trainable": 0, "causal": True}
    device = {"device_name": "NVIDIA H100 80GB HBM3", "dtype": "bfloat16", "recomputation": "none"}
    settings = {"architecture": {**weights, "attention_width": 32_768}, **device}
    worker = {"schema": 2, "rank": 0, "world_size": 1, "status": "ok", "error": None, "settings": settings}
    counts = {**dict.fromkeys(("tokens", "real", "labelled"), 1000), "samples": 1, "squares": 10**6}
    steps = [{"step": i, "t": 1e9 + i / 1000, "s": 0.001, **counts} for i in range(1, 31)]
    code = f"""
import os
open(os.environ['TUNEBENCH_RUN_DIR'] + '/worker-rank0.json', 'w').write({json.dumps(worker)!r})
open(os.environ['TUNEBENCH_RUN_DIR'] + '/steps-rank0.jsonl', 'w').write({"".join(json.dumps(step) + chr(10) for step in steps)!r})
{GOOD}"""
    _, record = carried_out(store, experiment(code))
    assert (record.status, record.kind, record.exit_code) == (Status.INVALID, "overcounted", 0)
    assert (
        record.cause.endswith("of the peak of 989 TFLOP/s, which is impossible")
        and "do not trust the speed" in record.hint
    )
    assert "mfu" not in values(record) and values(record)["tokens_per_s"] == pytest.approx(1e6)


@pytest.mark.parametrize(("keep", "left"), [("none", False), ("all", True)])
def test_checkpoints_go_when_nobody_keeps_them(store, keep, left):
    code = (
        "import os; here, run = (os.path.join(place, 'output') for place in ('', os.environ['TUNEBENCH_RUN_DIR']))\n"
        "for folder in (here, run): os.makedirs(folder + '/checkpoint-1'); open(folder + '/checkpoint-1/x', 'w').write('x')\n"
        f"open('notes.txt', 'w').write('x')\n{GOOD}"
    )
    job, record = carried_out(store, experiment(code, keep=keep))
    outputs = [job.run_dir / "work" / "output", job.run_dir / "output"]
    assert record.status is Status.OK and [folder.exists() for folder in outputs] == [left, left]
    assert (job.run_dir / "work" / "notes.txt").exists()


def test_checkpoints_of_others_are_not_removed_through_a_link(store, tmp_path):
    (tmp_path / "others" / "output").mkdir(parents=True)
    others = str(tmp_path / "others")
    code = f"import os; here = os.getcwd(); os.rmdir(here); os.symlink({others!r}, here)\n{GOOD}"
    _, record = carried_out(store, experiment(code))
    assert record.status is Status.OK and (tmp_path / "others" / "output").is_dir()


def test_a_pipe_in_the_place_of_the_checkpoints_is_removed_and_not_opened(store):
    code = (
        "import os; run = os.path.join(os.environ['TUNEBENCH_RUN_DIR'], 'output')\n"
        f"os.path.isdir(run) and os.rmdir(run); os.mkfifo(run)\n{GOOD}"
    )
    job, record = carried_out(store, experiment(code))
    assert record.status is Status.OK and not (job.run_dir / "output").exists()


def test_two_processes_claim_the_same_run_and_one_gets_it(store):
    code = (
        f"import sys, time; sys.path.insert(0, {str(REPO)!r})\nfrom pathlib import Path\n"
        "from orchestrator.results import claims\n"
        "from orchestrator.results.store import Store\nstore = Store(Path(sys.argv[1]))\n"
        "time.sleep(max(0, float(sys.argv[2]) - time.time()))\n"
        "got = [claims.claim(store.job('s-a', repeat=n, attempt=1), executor='x') is not None for n in range(1, 101)]\n"
        "print(''.join('x' if g else '.' for g in got))"
    )
    start = str(time.time() + 1.0)
    argv = [sys.executable, "-c", code, str(store.root), start]
    both = [subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    first, second = (process.communicate()[0].strip() for process in both)
    assert len(first) == 100
    assert all({a, b} == {"x", "."} for a, b in zip(first, second, strict=True))
    assert [path for path in store.root.rglob(".*")] == []


def test_a_benchmark_runs_every_repeat_and_resumes_to_nothing(store):
    many = [experiment(name="a", repeats=2), experiment("raise ValueError('no')", name="b")]
    skipped = experiment(name="c", skip=Reason(kind="x", text="y"))
    events = []
    summary = run_benchmark([*many, skipped], store=store, executor=LocalExecutor(RUN_ONE), on_event=events.append)
    assert summary.counts == {Status.OK: 2, Status.FAILED: 1} and summary.exit_code == 1
    assert [event.kind for event in events] == [EventKind.HANDED_OVER, *[EventKind.ENDED] * 3]
    again = run_benchmark(many, store=store, executor=FakeExecutor(lambda job: 1 / 0))
    assert again.records == summary.records


def test_a_failed_run_is_tried_again_only_when_asked_and_once(store):
    failing = FakeExecutor(lambda job: record_of(job, Status.FAILED, kind="oom_cuda"))
    run_benchmark([experiment()], store=store, executor=failing)
    run_benchmark([experiment()], store=store, executor=failing)
    assert len(store.runs(experiment().id)) == 1
    run_benchmark([experiment()], store=store, executor=failing, retry=Retry(failed=True))
    assert len(store.runs(experiment().id)) == 2


def test_what_is_not_the_experiments_fault_is_tried_again_within_bounds(store):
    taken = FakeExecutor(lambda job: record_of(job, Status.FAILED, kind="port_in_use"))
    run_benchmark([experiment()], store=store, executor=taken)
    assert [run.job.name for run in store.runs(experiment().id)] == ["r1-t1", "r1-t2", "r1-t3"]
    lost_once = FakeExecutor(lambda job: None if job.attempt == 4 else record_of(job))
    summary = run_benchmark([experiment()], store=store, executor=lost_once)
    assert [run.record.status for run in store.runs(experiment().id)][3:] == ["lost", "ok"]
    assert summary.exit_code == 0


def test_repeats_go_on_until_they_agree_in_rounds_over_all_experiments(store):
    speeds = {"a": [100.0, 100.1, 100.0], "b": [100.0, 140.0, 100.0, 60.0, 100.0]}
    rule = Repeats(min=3, max=5, within=0.01)
    many = [experiment(name=name, repeats=3, adaptive=rule) for name in speeds]
    order = []

    def handler(job):
        order.append(job.repeat)
        speed = speeds[job.experiment_id.split("-")[1]][job.repeat - 1]
        return record_of(job, measurements=(Measurement(name="tokens_per_s", value=speed, source="test"),))

    interrupted = FakeExecutor(lambda job: handler(job) if job.repeat < 3 else record_of(job, Status.CANCELLED))
    run_benchmark(many, store=store, executor=interrupted)
    assert order == [1, 1, 2, 2]
    summary = run_benchmark(many, store=store, executor=FakeExecutor(handler))
    assert order == [1, 1, 2, 2, 3, 3, 4, 5]
    assert len(summary.records) == 8
    assert store.plan(many) == ()
    (said,) = campaign.remarks(Plan(experiments=tuple(many), collapsed=(), notes=()), store, summary, retry=NO_RETRY)
    assert re.search(
        r"-b-.*: after 5 runs, the most that repeats: allows, the speed is known within ±\d+\.\d%; the target \(within:\) is 0.01$",
        said,
    )


def test_a_run_one_that_cannot_even_start_is_lost_and_says_why(store):
    broken = LocalExecutor((sys.executable, "-c", "import no_such_module"))
    summary = run_benchmark([experiment()], store=store, executor=broken)
    assert summary.counts == {Status.LOST: 1} and "no_such_module" in summary.records[0].tail


def benchmark_process(store, one):
    store.add([one])
    code = (
        f"import sys; sys.path.insert(0, {str(REPO)!r})\nfrom pathlib import Path\n"
        "from orchestrator.campaign.loop import run_benchmark\nfrom orchestrator.executors import LocalExecutor\n"
        "from orchestrator.machine.stop_signals import interrupted_once\n"
        "from orchestrator.results.store import Store\nstore = Store(Path(sys.argv[1]))\n"
        "experiments = [one.experiment for one in store.contents().experiments]\n"
        "try:\n    with interrupted_once():\n"
        "        run_benchmark(experiments, store=store, executor=LocalExecutor(eval(sys.argv[2])))\n"
        "except KeyboardInterrupt:\n    sys.exit(130)"
    )
    return subprocess.Popen([sys.executable, "-c", code, str(store.root), repr(RUN_ONE)])


STUBBORN = {"STUBBORN": "1"}


def tree_experiment(folder, env=STUBBORN):
    program = tree_program(folder)
    return of_command("{python}", str(program), str(folder), "2", env=env)


def started(folder):
    wait_for(*(folder / f"pid-{depth}" for depth in range(3)))


@pytest.mark.parametrize(("number", "env"), [(signal.SIGINT, STUBBORN), (signal.SIGTERM, {})])
def test_interrupting_a_benchmark_ends_the_tree_and_can_be_resumed(store, tmp_path, number, env):
    running = benchmark_process(store, tree_experiment(tmp_path, env))
    started(tmp_path)
    running.send_signal(number)
    assert running.wait(timeout=60) == 130
    assert not any(lives(pid) for pid in pids(tmp_path))
    (run,) = store.runs(experiment().id)
    assert run.record.status is Status.CANCELLED
    assert [job.name for job in store.plan([experiment()])] == ["r1-t2"]


@pytest.mark.usefixtures("impatient")
def test_after_kill_9_of_everything_of_ours_the_rest_is_ended_and_the_run_tried_again(store, tmp_path):
    one = tree_experiment(tmp_path)
    running = benchmark_process(store, one)
    started(tmp_path)
    (run,) = store.runs(one.id)
    run_one_pid = claims.owners(run.job.run_dir)[0].pid
    running.kill()
    running.wait()
    os.kill(run_one_pid, signal.SIGKILL)
    while lives(run_one_pid):
        time.sleep(0.02)
    assert all(lives(pid) for pid in pids(tmp_path)) and store.run(run.job).state is JobState.LOST
    events = []
    summary = run_benchmark([one], store=store, executor=FakeExecutor(record_of), on_event=events.append)
    assert not any(lives(pid) for pid in pids(tmp_path))
    assert EventKind.ENDED_LEFTOVERS in [event.kind for event in events]
    assert [run.record.status for run in store.runs(one.id)] == ["lost", "ok"] and summary.exit_code == 0


@pytest.mark.usefixtures("impatient")
def test_a_run_one_killed_alone_is_noticed_by_its_executor(store, tmp_path):
    one = tree_experiment(tmp_path)
    store.add([one])

    def kill_run_one():
        started(tmp_path)
        os.kill(claims.owners(store.run_dir(one.id, 1, 1))[0].pid, signal.SIGKILL)

    threading.Thread(target=kill_run_one, daemon=True).start()
    (ended,) = LocalExecutor(RUN_ONE).run([store.job(one.id, repeat=1, attempt=1)])
    assert ended[1] is JobState.LOST
    assert not any(lives(pid) for pid in pids(tmp_path))


def test_a_run_of_another_benchmark_is_waited_for_not_repeated(store, monkeypatch):
    monkeypatch.setattr("orchestrator.campaign.loop._LOOK_AGAIN_S", 0.2)
    one = experiment("import time; time.sleep(1)\n" + GOOD)
    other = benchmark_process(store, one)
    while not store.runs(one.id):
        time.sleep(0.02)
    summary = run_benchmark([one], store=store, executor=FakeExecutor(lambda job: 1 / 0))
    assert summary.counts == {Status.OK: 1} and len(store.runs(one.id)) == 1
    assert other.wait(timeout=30) == 0


def prepared(tmp_path, monkeypatch, code):
    worker = tmp_path / "prepare.py"
    worker.write_text(code, encoding="utf-8")
    monkeypatch.setattr("orchestrator.run.data_preparation.WORKER", worker)
    data = DataSpec(source="builtin:x", form="text")
    return experiment(data=data, data_path=str(tmp_path / "cache" / "data" / "x-1"))


def test_data_is_prepared_once(tmp_path, monkeypatch):
    code = (
        "import json, os, sys; spec = json.load(open(sys.argv[1])); os.mkdir(spec['path']); print(spec['source'])\n"
        "json.dump({'files': {}}, open(spec['path'] + '/manifest.json', 'w'))"
    )
    one = prepared(tmp_path, monkeypatch, code)
    said = []
    prepare_data([one, one], said.append)
    prepare_data([one], said.append)
    assert said == ["preparing builtin:x for m"]
    assert (tmp_path / "cache" / "data" / "x-1.log").read_text() == "builtin:x\n"
    assert json.loads((tmp_path / "cache" / "data" / "x-1.spec.json").read_text())["form"] == "text"


@pytest.mark.parametrize(
    ("end", "said"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "it was ended by SIGKILL; perhaps the memory was too small (log: "),
        ("sys.exit(137)", "it was ended by SIGKILL; perhaps the memory was too small (log: "),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "it was ended by SIGSEGV (log: "),
    ],
)
def test_a_killed_preparation_names_the_signal_and_not_the_warning_of_a_library(tmp_path, monkeypatch, end, said):
    code = f"import os, signal, sys\nprint('FutureWarning: old', end='', file=sys.stderr, flush=True)\n{end}"
    one = prepared(tmp_path, monkeypatch, code)
    (failed,) = prepare_data([one])
    assert f"builtin:x could not be prepared: {said}" in failed
    assert why_missing(one) == failed


def test_a_cache_that_cannot_be_written_is_told_in_the_record(tmp_path, monkeypatch):
    one = prepared(tmp_path, monkeypatch, "")
    assert str(why_missing(one)).endswith(f"there is no {one.data_path}")
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert str(why_missing(one)).endswith(f"there is no {one.data_path}, and {tmp_path} cannot be written")


def test_a_run_whose_process_cannot_start_says_so(store):
    store.add([experiment()])
    (job,) = store.plan([experiment()])
    with pytest.raises(LaunchError):
        list(LocalExecutor(("/no/such/program",)).run([job]))
    record = store.run(job).record
    assert record.status is Status.CANCELLED, "the next call repeats it"
    assert record.cause.startswith(
        "the process of the run could not be started: /no/such/program: cannot be started in"
    )


def test_data_that_cannot_be_prepared_is_the_workers_sentence(tmp_path, monkeypatch):
    one = prepared(tmp_path, monkeypatch, "import sys; print('noise'); sys.exit('error: field x is missing in line 3')")
    (said,) = prepare_data([one])
    assert "builtin:x could not be prepared: field x is missing in line 3" in said
    assert why_missing(one) == said
