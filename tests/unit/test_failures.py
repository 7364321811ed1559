"""Status, kind and cause of a run, from exit code, signal, worker files and logs."""

import signal

import pytest

from orchestrator.measure.failures import log_tail, verdict
from orchestrator.records import Limit, ProcessOutcome, Status
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


@pytest.mark.parametrize(
    ("kind", "error", "message"),
    [
        ("oom_cuda", "torch.OutOfMemoryError", "CUDA out of memory. Tried to allocate 2.00 GiB"),
        ("oom_cuda", "RuntimeError", "CUDA error: out of memory"),
        ("oom_host", "MemoryError", ""),
        ("oom_host", "RuntimeError", "[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory"),
        ("nccl", "torch.distributed.DistBackendError", "NCCL error in: ProcessGroupNCCL.cpp:1970"),
        ("port_in_use", "torch.distributed.DistNetworkError", "The server socket has failed to listen. EADDRINUSE"),
        ("import_error", "ModuleNotFoundError", "No module named 'flash_attn'"),
        ("bad_arguments", "arguments.ArgumentError", "unknown argument --lerning_rate; did you mean --learning_rate?"),
        ("data", "FileNotFoundError", "[Errno 2] No such file or directory: '/cache/data/x/tokens.npz'"),
        ("model_not_found", "OSError", "acme/llama is not a local folder and is not a valid model identifier"),
        (
            "model_not_found",
            "ArgumentError",
            "--model_name_or_path: We couldn't connect to 'https://hub.example' to load",
        ),
        ("disk_full", "OSError", "[Errno 28] No space left on device"),
        ("unknown", "RuntimeError", "something else"),
    ],
)
def test_kinds_by_the_workers_error(kind, error, message):
    assert judged(outcome(), workers=[worker(error, message)]).kind == kind


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


@pytest.mark.parametrize(
    ("kind", "log"),
    [
        (
            "oom_cuda",
            "[rank0]: Traceback (most recent call last):\n[rank0]: torch.OutOfMemoryError: CUDA out of memory.",
        ),
        ("import_error", "/usr/bin/python: No module named tuning\n"),
        ("killed", "torch.distributed.elastic: failed (exitcode: -9) local_rank: 0"),
        ("killed", "subprocess.CalledProcessError: Command '['x']' died with <Signals.SIGKILL: 9>."),
        ("launcher", 'File "/env/accelerate/commands/launch.py", line 5, in x\nValueError: unknown config'),
        ("unknown", "accelerate/commands/launch.py\nsubprocess.CalledProcessError: Command [..] returned non-zero 1."),
        ("unknown", ""),
    ],
)
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


def test_killed_becomes_oom_host_when_the_kernel_says_so():
    assert judged(outcome(None, signal.SIGKILL)).kind == "killed"
    told = judged(outcome(None, signal.SIGKILL), out_of_memory=True)
    assert (told.kind, "out of memory" in told.cause) == ("oom_host", True)


def test_another_signal_is_named():
    assert "SIGSEGV" in judged(outcome(None, signal.SIGSEGV)).cause


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
