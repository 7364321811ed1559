"""Status, kind and cause of a run, from exit code, signal, worker files and logs."""

from __future__ import annotations

import signal
import time

import pytest
from factories.cases import cases
from factories.results import experiment

from orchestrator.measure.failure_kinds import KINDS, hint, kind_of_text
from orchestrator.measure.failures import last_error, log_tail, verdict
from orchestrator.records import Device, Limit, ProcessOutcome, Script, Status
from orchestrator.report.tables.failures_page import page


def outcome(exit_code=1, number=None, **more):
    return ProcessOutcome(exit_code=exit_code, signal=number, started_at=0.0, ended_at=5.0, **more)


def worker(kind, message, *, rank=0, step=None):
    return {"rank": rank, "status": "error", "error": {"type": kind, "message": message, "step": step}}


def judged(ended, *, workers=(), log="", complete=False, **more):
    return verdict(ended, workers=workers, log=log, complete=complete, **more)


def test_exit_code_and_completeness_decide_not_the_log():
    handled = "Traceback (most recent call last):\nValueError: handled and logged\n"
    assert judged(outcome(0), log=handled, complete=True).status is Status.OK
    assert judged(outcome(0), complete=False).kind == "no_metrics"
    assert judged(outcome(1), complete=True).status is Status.FAILED


def test_cancelled_and_timed_out():
    assert judged(outcome(None, 2, cancelled=True)).status is Status.CANCELLED
    late = judged(outcome(None, 2, limit=Limit.WALL))
    assert (late.status, late.kind) == (Status.TIMEOUT, "timeout")
    assert "5 s" in late.cause


@pytest.mark.parametrize(("kind", "error", "message"), cases("failures/kinds_by_the_workers_error"))
def test_kinds_by_the_workers_error(kind, error, message):
    assert judged(outcome(), workers=[worker(error, message)]).kind == kind


@pytest.mark.parametrize(
    "launcher", ["", "subprocess.CalledProcessError: Command '['x']' returned non-zero exit status 2.\n"]
)
def test_an_argument_that_a_command_refuses_is_named(launcher):
    log = f"usage: train.py [-h] [--size SIZE]\ntrain.py: error: unrecognized arguments: --foo 1\n{launcher}"
    told = judged(outcome(2), log=log)
    assert (told.kind, told.cause) == ("bad_arguments", "error: unrecognized arguments: --foo 1")
    for log in ("service: error: retried\n", "usage: 12 GiB\nstep 1\nservice: error: retried\n"):
        assert judged(outcome(2), log=log).cause == "it ended with exit code 2; its last line: service: error: retried"


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        ("step 1\ndata server unreachable\n\n", "it ended with exit code 3; its last line: data server unreachable"),
        (" 50%|#  | 1/2\r100%|###| 2/2\r\n", "it ended with exit code 3; its last line: 100%|###| 2/2"),
        ("ValueError: no\nbye\n", "ValueError: no"),
        ("", "it ended with exit code 3"),
    ],
)
def test_a_command_without_an_error_line_is_quoted_with_its_last_line(log: str, cause: str) -> None:
    """`echo "no flag file" >&2; exit 3` had no cause."""
    told = judged(outcome(3), log=log)
    assert told.cause == cause
    assert len(judged(outcome(3), log="x" * 6000).cause) == 500


def test_the_first_rank_that_knows_the_cause_is_quoted():
    ranks = [
        worker("torch.distributed.DistBackendError", "NCCL error: remote process exited", rank=1, step=4),
        worker("torch.OutOfMemoryError", "CUDA out of memory.\nTried 2 GiB", rank=0, step=4),
    ]
    told = judged(outcome(), workers=ranks)
    assert (told.kind, told.cause) == ("oom_cuda", "rank 0, step 4: torch.OutOfMemoryError: CUDA out of memory.")


def test_an_exit_with_a_sentence_is_quoted_without_its_class():
    told = judged(outcome(), workers=[worker("SystemExit", "error: no such file /data/x.jsonl")])
    assert told.cause == "rank 0: error: no such file /data/x.jsonl"


@pytest.mark.parametrize(("kind", "log"), cases("failures/kinds_by_the_log_where_no_worker_says"))
def test_kinds_by_the_log_where_no_worker_says(kind, log):
    assert judged(outcome(), log=log).kind == kind


def test_the_last_error_counts_and_the_launchers_complaint_does_not():
    log = (
        "ImportError: a handled one\nfailed to use NCCL, never mind\nValueError: the last one\n"
        "subprocess.CalledProcessError: Command [...] returned non-zero exit status 1.\n"
    )
    told = judged(outcome(), log=log)
    assert (told.kind, told.cause) == ("unknown", "ValueError: the last one")


def test_an_error_that_only_follows_gives_way_to_an_earlier_one():
    log = "[rank1]: torch.OutOfMemoryError: CUDA out of memory.\ntorch.distributed.DistBackendError: NCCL error\n"
    assert judged(outcome(), log=log).kind == "oom_cuda"


def test_a_ranks_own_error_counts_before_the_broken_connections_of_the_others():
    closed = "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer"
    ranks = [worker("ValueError", "rank one says no", rank=1, step=11), worker("RuntimeError", closed, step=11)]
    for order in (ranks, ranks[::-1]):
        told = judged(outcome(), workers=order, log=closed)
        assert (told.kind, told.cause) == ("unknown", "rank 1, step 11: ValueError: rank one says no")
    own = "[rank1]: Traceback (most recent call last):\n[rank1]: KeyError: 'my own bug'\n"
    told = judged(outcome(), log=f"{own}[rank0]: {closed}\n")
    assert told.cause == "KeyError: 'my own bug'"


def test_killed_becomes_oom_host_when_the_kernel_says_so():
    assert judged(outcome(None, signal.SIGKILL)).kind == "killed"
    told = judged(outcome(None, signal.SIGKILL), out_of_memory=True)
    assert (told.kind, "out of memory" in told.cause) == ("oom_host", True)


def test_another_signal_is_named():
    assert "SIGSEGV" in judged(outcome(None, signal.SIGSEGV)).cause


REMEMBERS = "FunctionError: implementation own:f: it remembers results"


@pytest.mark.parametrize(("number", "kind"), [(6, "function_failed"), (9, "killed"), (11, "killed")])
def test_a_rank_that_aborts_after_an_error_of_a_known_kind_has_that_cause(number: int, kind: str) -> None:
    """Rank 0 told why and ended; rank 1 was aborted because of the closed connection, and the launcher saw it first."""
    root = f"Root Cause (first observed failure):\n[0]:\n  rank      : 1 (local_rank: 1)\n  exitcode  : -{number} (pid: 12)\n"
    told = judged(outcome(1), log=f"{REMEMBERS}\n{root}")
    assert (told.kind, told.signal) == (kind, number)
    assert told.cause == ("rank 1 was ended by " + signal.Signals(number).name if kind == "killed" else REMEMBERS)


@pytest.mark.parametrize(("last", "rank"), [("malloc(): corrupted top size", 1), ("step 1", None)])
def test_an_error_that_the_program_has_handled_is_not_the_cause_of_an_abort(last: str, rank: int | None) -> None:
    handled = f"ModuleNotFoundError: No module named 'flash_attn'\nfalling back to sdpa\n{last}\n"
    root = "Root Cause (first observed failure):\n[0]:\n  rank      : 1 (local_rank: 1)\n  exitcode  : -6 (pid: 12)\n"
    told = judged(outcome(1) if rank else outcome(None, signal.SIGABRT), log=handled + (root if rank else ""))
    assert (told.kind, told.cause) == ("killed", "rank 1 was ended by SIGABRT" if rank else "it was ended by SIGABRT")


def test_tail_keeps_the_end_of_a_progress_bar():
    assert log_tail("start\n\n 1%|\r 50%|\r100%|\nend\r\n") == "start\n100%|\nend"


def test_a_launcher_that_was_killed_has_no_last_words():
    older = "subprocess.CalledProcessError: Command [...] returned non-zero exit status 1.\n"
    told = judged(outcome(None, signal.SIGKILL), log=older)
    assert (told.kind, told.signal, told.exit_code) == ("killed", signal.SIGKILL, None)
    assert judged(outcome(1), log="died with <Signals.SIGSEGV: 11>").signal == signal.SIGSEGV


def test_the_rank_that_failed_first_is_named():
    log = (
        "Root Cause (first observed failure):\n[0]:\n  time : x\n  host : h\n  rank      : 1 (local_rank: 1)\n"
        "  exitcode  : -9 (pid: 12)\n  error_file: <N/A>\n  traceback : Signal 9 (SIGKILL) received by PID 12\n"
    )
    told = judged(outcome(1), log=log)
    assert (told.kind, told.cause, told.signal) == ("killed", "rank 1 was ended by SIGKILL", signal.SIGKILL)


def test_the_page_in_docs_is_the_table(golden):
    golden("../../docs/failures.md", page())


# What to do about a failure.


TORCH = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB of which 512.00 MiB is free. Including"
    " non-PyTorch memory, this process has 78.58 GiB memory in use."
)
IN_PIECES = (  # as an H100 said it, batch 41 × 2048 of six layers
    "CUDA out of memory. Tried to allocate 10.01 GiB. GPU 0 has a total capacity of 79.18 GiB of which 4.74 GiB is free. Including"
    " non-PyTorch memory, this process has 74.43 GiB memory in use. Of the allocated memory 64.48 GiB is allocated by PyTorch, and"
    " 9.14 GiB is reserved by PyTorch but unallocated."
)
TOO_MUCH = IN_PIECES.replace("9.14 GiB is reserved", "914.00 MiB is reserved")
BATCH, NEEDED = "per_device_train_batch_size", "needed at least 80.6 GiB of 79.1"
INSTEAD = "try a shorter max_seq_len, LoRA, FSDP on more GPUs, or gradient checkpointing"


@pytest.mark.parametrize(
    ("arguments", "text", "said"),
    [
        ({BATCH: "8"}, TORCH, f"batch 8 {NEEDED}; try 4, or gradient checkpointing"),
        ({BATCH: "8", "gradient_checkpointing": "True"}, TORCH, f"batch 8 {NEEDED}; try 4"),
        ({BATCH: "5"}, "CUDA error: out of memory", "batch 5 did not fit; try 2, or gradient checkpointing"),
        (
            {BATCH: "41"},
            IN_PIECES,
            "batch 41 needed at least 75.3 GiB of 79.2; enough was free, but in pieces (9.1 GiB reserved and unused); try env"
            " PYTORCH_CUDA_ALLOC_CONF: expandable_segments:True, 20, or gradient checkpointing",
        ),
        ({BATCH: "41"}, TOO_MUCH, "batch 41 needed at least 83.6 GiB of 79.2; try 20, or gradient checkpointing"),
        (
            {BATCH: "41"},
            TORCH + "\n" + IN_PIECES[IN_PIECES.index(" Of the") :],
            f"batch 41 {NEEDED}; try 20, or gradient checkpointing",
        ),
        ({BATCH: "1"}, TORCH, f"batch 1 {NEEDED}; {INSTEAD}"),
        ({}, "", f"it did not fit; {INSTEAD}"),
    ],
)
def test_memory(arguments: dict[str, str], text: str, said: str) -> None:
    assert hint("oom_cuda", text, experiment(arguments=arguments)) == said


@pytest.mark.parametrize(
    "text",
    [
        *(
            TORCH.replace(number, bad)
            for number in ("2.00", "79.10", "512.00")
            for bad in ("1.2.3", ".", "...", "9" * 400)
        ),
        *(IN_PIECES.replace("9.14", bad) for bad in ("1.2.3", "...", "1." * 200, "9" * 400)),
        *(TORCH.replace("79.10", bad) for bad in ("0", "0.00", "0.4")),
        TORCH.replace("79.10 GiB", "1.00 KiB").replace("512.00 MiB", "0.50 KiB"),
        IN_PIECES.replace("9.14", "99.14"),
    ],
)
def test_numbers_of_a_message_that_cannot_be_true_are_left_out(text: str) -> None:
    """Ranks that write at once leave such numbers. They made the run's cause a ValueError of Tunebench."""
    said = hint("oom_cuda", text, experiment(arguments={BATCH: "8"}))
    assert kind_of_text(text) == "oom_cuda" and said == "batch 8 did not fit; try 4, or gradient checkpointing"


def test_what_is_set_already_is_not_proposed() -> None:
    apart = experiment(env={"PYTORCH_ALLOC_CONF": "expandable_segments:True"})
    said = hint("oom_cuda", IN_PIECES, apart)
    assert said is not None and "9.1 GiB reserved and unused" in said and "env" not in said


def test_a_missing_package_is_named() -> None:
    text = "ModuleNotFoundError: No module named 'flash_attn.layers'"
    assert hint("import_error", text, experiment()) == "install flash_attn into the training environment"
    assert hint("import_error", "ImportError: cannot import name 'x'", experiment()) is None


def test_a_package_that_a_plugin_misses_is_named() -> None:
    text = "ValueError: Packages 'flash_attn' required by activated plugin 'PaddingFreeAccelerationPlugin' is missing."
    assert kind_of_text(text) == "import_error"
    assert hint("import_error", text, experiment()) == "install flash_attn into the training environment"


OWN = experiment(trainer="script", script=Script(script="train.py", folder="/srv"))
NO_BF16 = "Your setup doesn't support bf16/gpu. You need to assign use_cpu if you want to train the model on CPU."


def test_arguments_that_are_missing_are_named() -> None:
    assert hint("bad_arguments", NO_BF16, experiment()) == "add use_cpu: true to the arguments"
    assert "no bfloat16" in str(hint("bad_arguments", NO_BF16, experiment(device=Device.CUDA)))
    missing = "the following arguments are required: --data, --output_dir"
    assert "add output_dir to the arguments" in str(hint("bad_arguments", missing, OWN))
    assert hint("bad_arguments", "unrecognized arguments: --x", OWN) is None


def test_a_module_that_a_script_misses_may_be_the_user_s_own() -> None:
    assert "PYTHONPATH" in str(hint("import_error", "No module named 'src'", OWN))


@pytest.mark.parametrize("kind", [*KINDS, None])
def test_every_kind_has_a_sentence_or_none(kind: str | None) -> None:
    said = hint(kind, "", experiment())
    assert said is None or (len(said) > 10 and not said.endswith("."))


@pytest.mark.parametrize("words", ["FileNotFoundError ", "Tried to allocate 1 GiB. ", "arguments are required: "])
def test_a_long_error_that_repeats_a_word_is_judged_at_once(words: str) -> None:
    message = words * (2**18 // len(words))
    began = time.monotonic()
    found = judged(outcome(1), workers=[worker("ValueError", message)], log=f"error: {message}")
    hint("oom_cuda", message, experiment())
    hint("bad_arguments", message, OWN)
    assert found.status is Status.FAILED and time.monotonic() - began < 5


@pytest.mark.parametrize(
    ("first", "code", "signal", "cause"),
    [
        ("Exited with exit code 3", 3, None, "it ended with exit code 3"),
        ("Killed", None, 9, "it was ended by SIGKILL"),
        ("Segmentation fault (core dumped)", None, 11, "it was ended by SIGSEGV"),
        ("Exited with exit code 137", 137, None, "it was ended by SIGKILL"),
    ],
)
def test_of_several_nodes_the_one_that_failed_first_counts(first: str, code: int, signal: int, cause: str) -> None:
    """srun ends the others, and its own exit code is the largest of all: 143 of a task that it ended, or 137."""
    others = "slurmstepd-n1: error: *** STEP 4.0 ON n1 CANCELLED AT 2026-11-25T16:02:27 ***\nsrun: error: n1: task 0: Terminated"
    log = f"srun: error: n2: task 1: {first}\nsrun: launch/slurm: _step_signal: Terminating StepId=4.0\n{others}\n"
    for whole in (143, 137):
        found = judged(outcome(whole), log=log)
        assert (found.exit_code, found.signal, found.cause) == (code, signal, cause)


def test_the_launcher_of_another_node_that_srun_ended_is_not_the_cause() -> None:
    """Each node has a launcher of its own. That of the node that failed reports its rank; the other one was only told to end."""
    log = (
        "ValueError: the loss is a word\n"
        "Root Cause (first observed failure):\n[0]:\n  rank      : 3 (local_rank: 1)\n  exitcode  : 1 (pid: 42)\n"
        "srun: error: n2: task 1: Exited with exit code 1\n"
        "torch.distributed.elastic.multiprocessing.api.SignalException: Process 7 got signal: 15\n"
        "srun: error: n1: task 0: Exited with exit code 1\n"
    )
    found = judged(outcome(1), log=log)
    assert (found.exit_code, found.cause) == (1, "ValueError: the loss is a word")


def test_a_script_that_does_not_exist_is_named() -> None:
    log = "/usr/bin/python3: can't open file '/work/trian.py': [Errno 2] No such file or directory\n"
    judged_so = judged(outcome(2), log=log)
    assert (
        judged_so.cause
        == "it ended with exit code 2: can't open file '/work/trian.py': [Errno 2] No such file or directory"
    )


HANDLED_KILL = """ERROR:root:helper failed, going on without
Traceback (most recent call last):
  File "t.py", line 2, in <module>
    subprocess.run(['bash', '-c', 'kill -9 $$'], check=True)
subprocess.CalledProcessError: Command '['bash', '-c', 'kill -9 $$']' died with <Signals.SIGKILL: 9>.
Traceback (most recent call last):
  File "t.py", line 4, in <module>
    raise ValueError('learning rate must be positive')
ValueError: learning rate must be positive
"""


def test_the_end_of_a_child_that_the_program_handled_is_not_the_end_of_the_run() -> None:
    told = judged(outcome(), log=HANDLED_KILL)
    assert (told.kind, told.cause, told.signal) == ("unknown", "ValueError: learning rate must be positive", None)
    last = HANDLED_KILL.replace("ValueError: learning rate must be positive\n", "")
    assert judged(outcome(), log=last).kind == "killed", "a launcher's report comes last"
    other_node = "torch.distributed.DistBackendError: NCCL error\n"
    assert judged(outcome(), log=last + other_node).kind == "killed", "another node's log may follow"


@pytest.mark.parametrize("rank", ["", "[rank0]: "])
@pytest.mark.parametrize(
    "last",
    [
        "subprocess.TimeoutExpired: Command '['sleep', '5']' timed out after 0.1 seconds",
        "concurrent.futures.process.BrokenProcessPool: a child process terminated abruptly",
        "StopIteration",
        "_queue.Empty",
        "Diverged: the loss is 12.5",
    ],
)
def test_the_line_below_a_traceback_is_the_error_whatever_its_name(last: str, rank: str) -> None:
    log = (
        "Traceback (most recent call last):\nModuleNotFoundError: No module named 'flash_attn'\n"
        f'{rank}Traceback (most recent call last):\n{rank}  File "t.py", line 4, in <module>\n{rank}    run()\n'
        f"INFO: step 3\n{rank}{last}\n"
    )
    told = judged(outcome(), log=log)
    assert (told.kind, told.cause) == ("unknown", last)


BAR = "  3%|▎         | 1/30 [00:01<00:29, 1it/s]\n"
CRASH = f"{BAR}Traceback (most recent call last):\n  File 'a.py', line 5, in <module>\nValueError: my shape is wrong\n"
LAUNCHER = "Traceback (most recent call last):\n  File 'accelerate/commands/launch.py', line 999, in simple_launcher\n"
CALLED = "subprocess.CalledProcessError: Command '['a.py']' returned non-zero exit status 1.\n"
TABLE = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n===\na.py FAILED\n---\n  rank : 0\n===\n"
ELASTIC = "E1128 10:11:12.123000 42 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: 1)\n"


@pytest.mark.parametrize(
    "later",
    [
        *("", "\n\n", LAUNCHER + CALLED, LAUNCHER + TABLE, ELASTIC, ELASTIC + LAUNCHER + TABLE),
        *(f"\r{BAR}", "\tsize mismatch for lm_head\n"),
        "[rank0]:[W715 10:11:12.123 ProcessGroupNCCL.cpp:1250] Warning: destroy_process_group() was not called\n",
    ],
)
def test_a_crash_before_a_limit_is_quoted_with_the_limit(later: str) -> None:
    """The row only said `ended by startup_timeout_s`; the training had crashed, and its launcher still waited."""
    found = last_error(f"step 1\n{CRASH}{later}")
    assert found == "ValueError: my shape is wrong"
    told = judged(outcome(1, limit=Limit.STARTUP), error_at_limit=found)
    assert (told.status, told.kind) == (Status.STALLED, "stalled")
    assert told.cause == (
        "it had made no first step, and was ended after 5 s by startup_timeout_s; "
        "its log ended with ValueError: my shape is wrong"
    )
    assert "my shape" not in str(judged(outcome(0, limit=Limit.WALL), error_at_limit=found).cause)


@pytest.mark.parametrize(
    "log",
    [
        *("", "loading the model\n", f"{CRASH}trying again\n", "ConnectionError: retried\nstep 1\n"),
        *(f"{CRASH}{LAUNCHER}{CALLED}compiling without nvcc\n", f"{LAUNCHER}{CALLED}", f"{CRASH}Fatal Python error\n"),
        f"{CRASH}{BAR.replace('1/30', '2/30')}",
        f"{CRASH}Current thread 0x00007f (most recent call first):\n  File 'a.py', line 7\n",
    ],
)
def test_an_error_after_which_the_program_goes_on_is_no_cause_of_a_stall(log: str) -> None:
    assert last_error(log) is None


@pytest.mark.timeout(20)
@pytest.mark.parametrize("piece", ["1", "1/1", "1/", " ", "=", "[rank0]: ", "Traceback (most recent call last):\n x\n"])
def test_the_last_error_of_a_log_with_a_giant_line_is_found_at_once(piece: str) -> None:
    """A line of 110,000 digits after an error took 48 s, and no signal was heard meanwhile."""
    assert last_error(f"ValueError: no such column\n{piece * (250_000 // len(piece))}\n") in (
        None,
        "ValueError: no such column",
    )
