"""Process control with real processes: trees, time limits, signals, sidecars."""

import os
import signal
import subprocess
import sys
import threading
import time
import uuid

import psutil
import pytest
from factories.control_groups import small_group
from trees import lives, pids, tree_program, wait_for, wait_until

from orchestrator.errors import LaunchError
from orchestrator.machine import cgroup, process, process_tree
from orchestrator.machine.child_environment import MARKER
from orchestrator.machine.process_tree import end_tree
from orchestrator.machine.stop_signals import StopSignals
from orchestrator.records import Command, Limit

# Of this run of the tests only: others on the machine may run the same tests.
THE_RUN = uuid.uuid4().hex


def command(tmp_path, *argv, **env):
    return Command(argv=(sys.executable, *map(str, argv)), env=env, cwd=tmp_path)


def run(tmp_path, *argv, timeout_s=None, **env):
    out, err = tmp_path / "out", tmp_path / "err"
    return process.run(command(tmp_path, *argv, **env), stdout=out, stderr=err, timeout_s=timeout_s)


def test_exit_code_and_logs(tmp_path):
    outcome = run(tmp_path, "-c", "import sys; print('a'); print('b', file=sys.stderr); sys.exit(7)")
    assert (outcome.exit_code, outcome.signal, outcome.limit, outcome.cancelled) == (7, None, None, False)
    assert ((tmp_path / "out").read_text(), (tmp_path / "err").read_text()) == ("a\n", "b\n")
    assert 0 < outcome.wall_s < 20


def test_death_by_signal(tmp_path):
    outcome = run(tmp_path, "-c", "import os; os.kill(os.getpid(), 9)")
    assert (outcome.exit_code, outcome.signal) == (None, 9)


@pytest.mark.parametrize("stubborn", [False, True])
def test_time_limit_ends_the_whole_tree(tmp_path, impatient, stubborn):
    env = {"STUBBORN": "1"} if stubborn else {}
    program = tree_program(tmp_path)
    began = time.monotonic()
    outcome = run(tmp_path, program, tmp_path, 2, timeout_s=2.0, **env)
    took_s = time.monotonic() - began
    assert outcome.limit is Limit.WALL and 2.0 <= outcome.wall_s <= took_s - (2 * impatient if stubborn else 0.0)
    assert outcome.exit_code is None and outcome.signal in (2, 9), "the signal that ended it is known"
    assert not any(lives(pid) for pid in pids(tmp_path))


@pytest.mark.usefixtures("impatient")
def test_what_a_finished_run_leaves_behind_is_ended(tmp_path):
    outcome = run(tmp_path, tree_program(tmp_path), tmp_path, 2, LEAVE="1", STUBBORN="1")
    assert outcome.exit_code == 0 and outcome.limit is None
    assert not any(lives(pid) for pid in pids(tmp_path))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_us_cancels_the_run(tmp_path, number):
    program = tree_program(tmp_path)

    def interrupt():
        wait_for(*(tmp_path / f"pid-{depth}" for depth in range(3)))
        os.kill(os.getpid(), number)

    before = signal.getsignal(number)
    threading.Thread(target=interrupt, daemon=True).start()
    outcome = run(tmp_path, program, tmp_path, 2, timeout_s=30)
    assert outcome.cancelled and outcome.limit is None
    assert not any(lives(pid) for pid in pids(tmp_path))
    assert signal.getsignal(number) is before


def test_a_signal_that_came_before_the_start_cancels_too(tmp_path):
    with StopSignals() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        out = tmp_path / "out"
        outcome = process.run(command(tmp_path, "-c", "print(1)"), stdout=out, stderr=out, timeout_s=None, stop=stop)
    assert outcome.cancelled and not out.exists()


def test_waiting_uses_no_cpu(tmp_path):
    def cpu_s(code):
        before = time.process_time()
        run(tmp_path, "-c", code)
        return time.process_time() - before

    # To start and to end a run takes the more, the more processes this machine has.
    without_waiting = cpu_s("pass")
    assert cpu_s("import time; time.sleep(1.5)") - without_waiting < 0.5


def test_the_environment_is_the_parents_less_what_leaks(tmp_path, monkeypatch):
    launchers = ("RANK", "ACCELERATE_USE_FSDP", "FSDP_VERSION", "PARALLELISM_CONFIG_CP_SIZE", "MASTER_ADDR")
    for name in (*launchers, "OMP_NUM_THREADS", "TUNEBENCH_RUN_DIR"):
        monkeypatch.setenv(name, "leak")
    monkeypatch.setenv("KEPT", "1")
    monkeypatch.setenv("GONE", "1")
    run(tmp_path, "-c", "import os; print(dict(os.environ))", GONE=None, OMP_NUM_THREADS="2")
    seen = eval((tmp_path / "out").read_text())
    assert "leak" not in seen.values() and "GONE" not in seen
    assert (seen["KEPT"], seen["OMP_NUM_THREADS"]) == ("1", "2")


def test_a_program_that_is_not_there_is_a_sentence(tmp_path):
    missing = Command(argv=("/nowhere/python",), env={}, cwd=tmp_path)
    with pytest.raises(LaunchError, match="/nowhere/python: cannot be started"):
        process.run(missing, stdout=tmp_path / "o", stderr=tmp_path / "e", timeout_s=None)


def test_a_sidecar_is_ended_with_its_block(tmp_path):
    with process.sidecar([sys.executable, "-uc", "import time; print('x'); time.sleep(600)"], tmp_path / "s") as child:
        wait_for(tmp_path / "s")
        assert lives(child.pid)
    assert not lives(child.pid)


@pytest.mark.usefixtures("impatient")
def test_a_sidecar_is_ended_when_the_block_fails_and_it_ignores_term(tmp_path):
    stubborn = "import signal, time; signal.signal(15, signal.SIG_IGN); print('x', flush=True); time.sleep(600)"
    with pytest.raises(ZeroDivisionError), process.sidecar([sys.executable, "-c", stubborn], tmp_path / "s") as child:
        wait_for(tmp_path / "s")
        raise ZeroDivisionError
    assert not lives(child.pid)


@pytest.mark.parametrize("timeout_s", [None, 0.5])
def test_a_sidecar_outlives_the_run_whose_marker_it_carries(tmp_path, monkeypatch, timeout_s):
    """To see what the run gives back, also when the run is ended."""
    monkeypatch.setenv(MARKER, THE_RUN)
    watching = "import time; print('x', flush=True); time.sleep(600)"
    with process.sidecar([sys.executable, "-c", watching], tmp_path / "s") as child:
        wait_for(tmp_path / "s")
        code = "pass" if timeout_s is None else "import time; time.sleep(600)"
        outcome = run(tmp_path, "-c", code, timeout_s=timeout_s, **{MARKER: THE_RUN})
        assert outcome.limit is (None if timeout_s is None else Limit.WALL)
        assert lives(child.pid)
    assert not lives(child.pid)


def test_a_sidecar_whose_owner_died_is_found_by_its_marker(tmp_path, monkeypatch):
    monkeypatch.setenv(MARKER, THE_RUN)
    watching = "import time; print('x', flush=True); time.sleep(600)"
    with process.sidecar([sys.executable, "-c", watching], tmp_path / "s") as child:
        wait_for(tmp_path / "s")
        another = "import sys; from orchestrator.machine.process_tree import end_tree; print(end_tree(sys.argv[1]))"
        env = {name: value for name, value in os.environ.items() if name != MARKER}
        subprocess.run([sys.executable, "-c", another, THE_RUN], env=env, check=True, timeout=30)
        assert child.wait(30) is not None


def test_a_sidecar_that_ended_by_itself_is_no_error(tmp_path):
    with process.sidecar([sys.executable, "-c", "pass"], tmp_path / "s") as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and nobody has collected it


def test_capture():
    assert process.capture([sys.executable, "-c", "print('ü')"], 20) == "ü\n"
    with pytest.raises(LaunchError, match="exit code 3: why"):
        process.capture([sys.executable, "-c", "import sys; sys.exit(print('why', file=sys.stderr) or 3)"], 20)
    with pytest.raises(LaunchError, match=r"no answer within 0\.2 s"):
        process.capture([sys.executable, "-c", "import time; time.sleep(60)"], 0.2)


def test_a_filter_may_pass_the_output_on_after_the_end_of_a_program():
    assert process.capture(["bash", "-c", "exec > >(sleep 0.5; cat); echo late"], 20) == "late\n"


def test_a_process_that_a_program_left_behind_does_not_keep_its_output_back(tmp_path):
    noted, before = tmp_path / "pid", time.monotonic()
    output = process.capture(["sh", "-c", f"sleep 60 & echo $! > {noted}; seq 20000"], 20)
    os.kill(int(noted.read_text()), signal.SIGKILL)
    assert output.split() == list(map(str, range(1, 20_001)))
    assert time.monotonic() - before < 10


@pytest.mark.parametrize("words", [("yes",), ("sh", "-c", "yes >&2")])
def test_a_program_with_endless_output_is_ended_before_it_fills_the_memory(words):
    with pytest.raises(LaunchError, match="wrote more than 16 MiB"):
        process.capture(words, 60)


def test_a_capture_that_takes_too_long_leaves_no_process(tmp_path):
    noted = tmp_path / "pid"
    script = f"sleep 60 & echo $! > {noted}; wait"
    with pytest.raises(LaunchError, match="no answer"):
        process.capture(["sh", "-c", script], 1.0)
    wait_until(lambda: not lives(int(noted.read_text())), timeout_s=10)


class Hidden(psutil.Process):
    """A living process of ours that hides its state, as a process of another user may."""

    def status(self):
        super().status()
        raise psutil.AccessDenied(self.pid)


@pytest.mark.usefixtures("impatient")
def test_a_process_whose_state_is_hidden_counts_as_living_and_is_ended(tmp_path):
    program = tree_program(tmp_path)
    with subprocess.Popen([sys.executable, program, tmp_path, "0"], env={**os.environ, "STUBBORN": "1"}) as child:
        wait_for(tmp_path / "pid-0")
        try:
            process_tree.end([Hidden(child.pid)], root=child, first=signal.SIGINT)
            assert child.returncode == -signal.SIGKILL
        finally:
            child.kill()


@pytest.mark.usefixtures("impatient")
def test_leftovers_of_a_killed_run_are_found_by_their_marker(tmp_path):
    program, marker = tree_program(tmp_path), THE_RUN
    env = {**os.environ, "TUNEBENCH_RUN": marker, "STUBBORN": "1"}
    root = subprocess.Popen([sys.executable, str(program), str(tmp_path), "2"], env=env)
    wait_for(*(tmp_path / f"pid-{depth}" for depth in range(3)))
    root.kill()
    root.wait()
    assert end_tree(marker).count == 2
    assert not any(lives(pid) for pid in pids(tmp_path))
    assert end_tree(marker).count == 0


SLIPS_AWAY = """
import os, sys
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open(sys.argv[1], "w").write(str(os.getpid()))
        os.execve(sys.executable, [sys.executable, "-c", "import time; time.sleep(600)"], {})
    os._exit(0)
os.wait()
while not os.path.exists(sys.argv[1]) or not os.path.getsize(sys.argv[1]):
    pass
"""
"""A daemon without its parent's session, marker or variables."""


@pytest.mark.parametrize("marker", [None, "", "the-run", "0" * 31, "0" * 32 + "\n", 7])
def test_nobody_is_found_by_a_marker_that_no_run_has(marker, tmp_path):
    """Every process without the variable has the marker None."""
    for search in (process_tree.members, cgroup.find, lambda marker: run(tmp_path, "-c", "pass", **{MARKER: marker})):
        with pytest.raises(ValueError, match="32 hexadecimal digits"):
            search(marker)


def test_a_daemon_that_slipped_away_is_found_by_who_adopts_orphans(tmp_path):
    code = (
        "import sys\nfrom pathlib import Path\n"
        "from orchestrator.machine import process, process_tree\nfrom orchestrator.records import Command\n"
        "process_tree.adopt_orphans()\n"
        "folder = Path(sys.argv[1])\n"
        "command = Command(argv=(sys.executable, '-c', sys.argv[2], str(folder / 'daemon')), env={}, cwd=folder)\n"
        "print(process.run(command, stdout=folder / 'out', stderr=folder / 'err').survivors)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path), SLIPS_AWAY], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "()\n"
    assert not lives(int((tmp_path / "daemon").read_text()))


def test_a_daemon_that_slipped_away_is_found_by_its_control_group(tmp_path):
    group = cgroup.create(THE_RUN)
    if group is None:
        pytest.skip("nobody may make a control group here")
    slips = Command(
        argv=(sys.executable, "-c", SLIPS_AWAY, str(tmp_path / "daemon")),
        env={MARKER: THE_RUN},
        cwd=tmp_path,
    )
    outcome = process.run(slips, stdout=tmp_path / "o", stderr=tmp_path / "e", group=group)
    assert (outcome.exit_code, outcome.survivors, outcome.memory_kills) == (0, (), 0)
    assert not lives(int((tmp_path / "daemon").read_text()))
    assert not group.path.exists() and cgroup.find(THE_RUN) is None


def test_what_the_kernel_kills_for_memory_is_known_of_this_tree(tmp_path):
    group = small_group()
    hungry = "x = [bytearray(2**20) for _ in range(512)]"
    command = Command(argv=(sys.executable, "-c", hungry), env={}, cwd=tmp_path)
    outcome = process.run(command, stdout=tmp_path / "o", stderr=tmp_path / "e", group=group)
    assert outcome.signal == signal.SIGKILL and outcome.memory_kills == 1


def test_a_second_request_kills_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(process_tree, "PATIENCE_S", tuple((number, 60.0) for number, _ in process_tree.PATIENCE_S))
    program = tree_program(tmp_path)

    def ask_twice(stop):
        wait_for(*(tmp_path / f"pid-{depth}" for depth in range(3)))
        os.kill(os.getpid(), signal.SIGINT)
        while not stop.count:  # two of which the first was not taken yet are one to the kernel
            time.sleep(0.02)
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGINT)

    stubborn, log = command(tmp_path, program, tmp_path, 2, STUBBORN="1"), tmp_path / "log"
    with StopSignals() as stop:
        threading.Thread(target=ask_twice, args=(stop,), daemon=True).start()
        began = time.monotonic()
        outcome = process.run(stubborn, stdout=log, stderr=log, stop=stop)
    assert outcome.cancelled and not any(lives(pid) for pid in pids(tmp_path))
    assert time.monotonic() - began < 60.0, "INT and TERM have a minute each, which a second request cuts short"


def test_times_hold_when_the_clock_is_set_back(tmp_path, monkeypatch):
    moments = iter([5000.0, *range(4000, 0, -100)])
    monkeypatch.setattr(process.time, "time", lambda: float(next(moments)))
    outcome = run(tmp_path, "-c", "import time; time.sleep(0.4)")
    assert outcome.started_at == 5000.0 and 0.3 < outcome.wall_s < 10
