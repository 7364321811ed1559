"""A fake trainer that fails in the way that its first word names; the second is the scenario file's folder."""

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time

MODE, FOLDER = sys.argv[1], sys.argv[2]
OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB of which "
    "512.00 MiB is free. Including non-PyTorch memory, this process has 78.58 GiB memory in use."
)


def good() -> None:
    print(json.dumps({"train_runtime": 2.0, "train_loss": 1.5}), flush=True)


def note(pid: int) -> None:
    with open(os.path.join(FOLDER, "pids"), "a") as file:
        file.write(f"{pid}\n")


def child(code: str, **more: object) -> None:
    """A child that notes its number and sleeps on."""
    child = subprocess.Popen([sys.executable, "-c", code], **more)  # type: ignore[call-overload]
    note(child.pid)
    time.sleep(0.5)  # for it to set itself up


def forks_twice() -> None:
    if os.fork():
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    note(os.getpid())
    os.execve(sys.executable, [sys.executable, "-c", "import time; time.sleep(600)"], {})


def large_log() -> None:
    for _ in range(1024):
        os.write(1, b"x" * (2**20 - 1) + b"\n")


def steps_then(number: int) -> None:
    for step in range(number):
        print("step", step, flush=True)
        time.sleep(0.05)


def steals_its_port() -> None:
    """The first time round somebody else has the port that was chosen."""
    first = os.path.join(FOLDER, "stolen")
    thief = socket.socket()
    if not os.path.exists(first):
        open(first, "w").close()
        thief.bind(("", int(sys.argv[3])))
        thief.listen()
    server = socket.socket()
    server.bind(("", int(sys.argv[3])))


note(os.getpid())
if MODE == "exit_3":
    sys.exit(3)
elif MODE == "sigkill":
    os.kill(os.getpid(), signal.SIGKILL)
elif MODE == "sigsegv":
    os.kill(os.getpid(), signal.SIGSEGV)
elif MODE == "dotted_oom":
    print(f"Traceback (most recent call last):\n  File ...\n{OOM}", file=sys.stderr)
    sys.exit(1)
elif MODE == "prefixed_oom":
    print(f"[rank1]: Traceback (most recent call last):\n[rank1]: {OOM}\n", file=sys.stderr)
    print("torch.distributed.DistBackendError: NCCL error: remote process exited", file=sys.stderr)
    sys.exit(1)
elif MODE == "host_memory":
    resource.setrlimit(resource.RLIMIT_AS, (2**28, 2**28))
    b"x" * 2**30
elif MODE == "hangs_before_its_first_step":
    time.sleep(600)
elif MODE == "hangs_at_step_5":
    import faulthandler

    faulthandler.register(signal.SIGUSR2)

    def in_the_fifth_step() -> None:
        time.sleep(600)

    steps_then(5)
    in_the_fifth_step()
elif MODE == "child_ignores_term":
    child("import signal, time; [signal.signal(n, signal.SIG_IGN) for n in (2, 15)]; time.sleep(600)")
    time.sleep(600)
elif MODE == "child_in_a_session_of_its_own":
    child("import time; time.sleep(600)", start_new_session=True, env={})
    good()
elif MODE == "forks_twice":
    forks_twice()
    time.sleep(0.5)
    good()
elif MODE == "logs_a_gigabyte":
    large_log()
    good()
elif MODE == "no_metrics":
    print("done")
elif MODE == "half_of_its_metrics":
    print('{"train_runtime": 2.0, "train_lo')
elif MODE == "loss_is_no_number":
    print('{"train_runtime": 2.0, "train_loss": NaN}')
elif MODE == "port_was_stolen":
    steals_its_port()
    good()
else:
    good()
