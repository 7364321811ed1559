"""The executor `ssh` runs jobs on the hosts that TUNEBENCH_SSH_HOSTS names, such as `node1,node2`: one job per host at a time.

`ssh -tt` gives the process on the host a terminal. When ssh ends, the terminal hangs up, so `run-one` ends its processes and
writes its record.
"""

import os
import shlex
import subprocess
import time
from collections.abc import Iterator, Sequence

from orchestrator.errors import LaunchError
from orchestrator.executors import Executor
from orchestrator.executors.local import RUN_ONE
from orchestrator.machine import process
from orchestrator.machine.child_environment import MARKER
from orchestrator.machine.stop_signals import held_back
from orchestrator.records import Job, JobState, Status
from orchestrator.results import claims
from orchestrator.results.store import write_record
from orchestrator.results.unfinished_record import unfinished_record

SSH = ("ssh", "-tt", "-oBatchMode=yes", "-oLogLevel=ERROR", "-oConnectTimeout=20", "-oServerAliveInterval=30")
NO_CONNECTION = 255  # the exit code of ssh if there is no connection to the host
POLL_S, RECORD_S, GOODBYE_S = 0.5, 10.0, 40.0  # a file server may show a record late

Running = dict[str, tuple[Job, subprocess.Popen[bytes]]]  # host → its job and the ssh process


class SshExecutor(Executor):
    """An executor that gives each job to the first free host. A host without a connection gets no further job."""

    def __init__(self) -> None:
        self.unreachable: set[str] = set()

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, JobState]]:
        waiting, running = list(jobs), Running()
        try:
            while waiting or running:
                named = [name.strip() for name in os.environ.get("TUNEBENCH_SSH_HOSTS", "").split(",") if name.strip()]
                hosts = [host for host in named if host not in self.unreachable]
                free = [host for host in hosts if host not in running]
                if not hosts and not running:
                    raise LaunchError(
                        "TUNEBENCH_SSH_HOSTS: ssh reaches none of its hosts; set it, such as to node1,node2"
                    )
                if waiting and free:
                    job = waiting.pop(0)
                    if not _start(job, free[0], running):  # another Tunebench has claimed the job
                        yield job, claims.state(job.run_dir)
                    continue
                time.sleep(POLL_S)
                for host in [host for host, (_, ssh) in running.items() if ssh.poll() is not None]:
                    job, ssh = running.pop(host)
                    if ssh.returncode == NO_CONNECTION:
                        self.unreachable.add(host)
                    else:
                        _await_records([job], RECORD_S)
                    yield job, JobState.ENDED if job.folder.record.exists() else JobState.LOST
        finally:
            with held_back():  # a second Ctrl-C must not leave runs behind
                _end(running)


def _start(job: Job, host: str, running: Running) -> bool:
    with held_back():  # a Ctrl-C waits until the started run is noted
        claim = claims.claim(job, executor="ssh", details={"host": host})
        if claim is not None:
            command = shlex.join(["env", f"{MARKER}={claim.marker}", *RUN_ONE, str(job.run_dir)])
            running[host] = job, process.spawn([*SSH, host, command], log=job.folder.run_one_log)
    return claim is not None


def _end(running: Running) -> None:
    for _, ssh in running.values():
        ssh.terminate()
    _await_records([job for job, _ in running.values()], GOODBYE_S)
    for job, ssh in running.values():
        ssh.wait()
        write_record(job.run_dir, unfinished_record(job, Status.CANCELLED))  # the first record of a run stays


def _await_records(jobs: Sequence[Job], longest_s: float) -> None:
    deadline = time.monotonic() + longest_s
    while time.monotonic() < deadline and not all(job.folder.record.exists() for job in jobs):
        time.sleep(POLL_S)
