"""A run that a warm starter forks is like a cold run: for its own code, for whoever ends it, and in its numbers."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from factories.results import BASE
from trainings import launched
from trees import lives, wait_for, wait_until

from orchestrator.executors.starters import Environment, Starters
from orchestrator.machine import cgroup, process, process_tree
from orchestrator.machine.child_environment import MARKER
from orchestrator.machine.process.warm import Starter
from orchestrator.machine.process_tree import end_tree
from orchestrator.records import Command, Limit, ProcessOutcome, Start

VARIABLES = {
    **{"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1", "CUDA_VISIBLE_DEVICES": ""},
    "small_letters": "1",  # for several processes, accelerate adds a copy in capitals
    "PYTEST_CURRENT_TEST": None,  # another in each test
}

# What a program can see of itself. The rest of `sys.modules` differs by design.
SEEN = """
import fcntl, json, locale, multiprocessing.process, os, random, resource, signal, sys, threading
import multiprocess.process, numpy, torch._dynamo.config, torch._inductor.config, transformers.trainer
def resolved(number):
    try:
        return os.readlink(f"/proc/self/fd/{number}")
    except OSError:
        return None
rank = os.environ.get("RANK", "0")
files = {int(name): resolved(name) for name in os.listdir("/proc/self/fd")}
seen = {
    "env": dict(os.environ), "argv": sys.argv, "path": sys.path[:3], "cwd": os.getcwd(), "file": __file__,
    "main": sys.modules["__main__"].__dict__["__name__"], "package": __package__, "spec": __spec__, "umask": os.umask(0o22),
    "cores": sorted(os.sched_getaffinity(0)), "threads": torch.get_num_threads(), "nice": os.nice(0),
    "leads": os.getsid(0) == os.getpid(), "signals": {n: str(signal.getsignal(n)) for n in signal.valid_signals()},
    "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])), "locale": locale.setlocale(locale.LC_ALL),
    "limits": {name: resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT_")},
    "stdin": [files[0], fcntl.fcntl(0, fcntl.F_GETFL) & os.O_ACCMODE],
    "cuda": torch.cuda.is_initialized(), "unbuffered": sys.stdout.write_through,
    "helpers": sorted({"forks", "renewal", "starter", "waking", "warm"} & set(sys.modules)),
    "names": sorted((name, type(value).__name__) for name, value in globals().items() if name.startswith("__")),
    "words": sys.orig_argv, "main thread": threading.main_thread().native_id == os.getpid(),
    "main of children": sys.modules.get("__mp_main__") is sys.modules["__main__"],
    "folders": [multiprocessing.process.ORIGINAL_DIR, multiprocess.process.ORIGINAL_DIR, torch._dynamo.config.debug_dir_root],
    "compile threads": torch._inductor.config.compile_threads,
}
more = {"files": sorted(filter(None, files.values())), "chance": [random.random(), numpy.random.rand(), float(torch.rand(1))]}
json.dump({**seen, "more": more}, open(f"seen-{rank}.json", "w"), default=str)
print("to stdout", rank); print("to stderr", rank, file=sys.stderr)
"""


@pytest.fixture(scope="module")
def starters() -> Iterator[Starters]:
    said: list[str] = []
    environment = Environment(python=sys.executable, variables=tuple(VARIABLES.items()))
    with Starters(lambda _: environment, say=said.append) as found:
        yield found
    assert not said


def connection(starters: Starters, timeout_s: float | None = None) -> socket.socket:
    found = starters.connect(replace(BASE, timeout_s=timeout_s))
    assert found is not None
    return found


def run(
    folder: Path, text: str, *words: str, starters: Starters | None, processes: int = 1, env: Any = (), **options: Any
) -> ProcessOutcome:
    folder.mkdir(exist_ok=True)
    (folder / "program.py").write_text(text)
    argv = (sys.executable, *launched(folder, processes), str(folder / "program.py"), *words)
    if processes == 1:  # as Tunebench writes it
        settings = (folder / "accelerate.yaml").read_text()
        (folder / "accelerate.yaml").write_text(settings.replace("MULTI_GPU", "'NO'"))
    command = Command(argv=argv, env={**VARIABLES, **dict(env)}, cwd=folder)
    options.setdefault("timeout_s", 60.0)
    asked = connection(starters, options["timeout_s"]) if starters else None
    starter = Starter(connection=asked, processes=processes) if asked else None
    return process.run(command, stdout=folder / "out", stderr=folder / "err", starter=starter, **options)


@pytest.fixture
def on_one_core(starters: Starters) -> Iterator[None]:
    """The starter has all cores and the run only one of them, as runs at the same time have."""
    connection(starters).close()
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    yield
    os.sched_setaffinity(0, cores)


@pytest.mark.usefixtures("on_one_core")
@pytest.mark.parametrize("processes", [1, 2])
def test_a_warm_program_sees_what_a_cold_one_sees(tmp_path: Path, starters: Starters, processes: int) -> None:
    seen: dict[str, list[dict[str, Any]]] = {}
    marker = uuid.uuid4().hex
    for name, source in (("cold", None), ("warm", starters)):
        env = {MARKER: marker, "TUNEBENCH_RUN_DIR": "/nowhere"}
        outcome = run(tmp_path / name, SEEN, "a word", "$HOME", starters=source, processes=processes, env=env)
        assert (outcome.exit_code, outcome.start, outcome.cold_because) == (0, name, None), (
            tmp_path / name / "err"
        ).read_text()
        assert sorted((tmp_path / name / "out").read_text().splitlines()) == [
            f"to stdout {rank}" for rank in range(processes)
        ]
        texts = [(tmp_path / name / f"seen-{rank}.json").read_text() for rank in range(processes)]
        seen[name] = [json.loads(text.replace(str(tmp_path / name), "HERE")) for text in texts]
    for cold, warm in zip(seen["cold"], seen["warm"], strict=True):
        of_cold, of_warm = cold.pop("more"), warm.pop("more")
        for one in (cold, warm):  # two runs never have the same
            for name in ("MASTER_PORT", "TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_RUN_ID"):
                assert one["env"].pop(name, "") != "" or processes == 1
        assert warm == cold
        assert of_warm["files"] == of_cold["files"]


def test_two_warm_runs_do_not_share_chance(tmp_path: Path, starters: Starters) -> None:
    drawn = []
    for name in ("one", "other"):
        assert run(tmp_path / name, SEEN, starters=starters).start is Start.WARM
        drawn.append(json.loads((tmp_path / name / "seen-0.json").read_text())["more"]["chance"])
    assert all(one != other for one, other in zip(*drawn, strict=True))


@pytest.mark.parametrize(
    ("text", "code", "number", "last"),
    [
        ("import sys; sys.exit(7)", 1, None, "returned non-zero exit status 7."),
        ("raise ValueError('no such thing')", 1, None, "returned non-zero exit status 1."),
        ("import os; os.kill(os.getpid(), 9)", 1, None, "died with <Signals.SIGKILL: 9>."),
        ("import os; os.kill(os.getppid(), 9)", None, 9, ""),
        (
            "import sys; sys.stdout = open('/dev/full', 'w'); print('lost')",
            1,
            None,
            "returned non-zero exit status 120.",
        ),
    ],
)
def test_a_warm_run_ends_as_a_cold_one(
    tmp_path: Path, starters: Starters, text: str, code: int | None, number: int | None, last: str
) -> None:
    ends = []
    for name, source in (("cold", None), ("warm", starters)):
        outcome = run(tmp_path / name, text, starters=source)
        errors = (tmp_path / name / "err").read_text().replace(str(tmp_path / name), "HERE")
        assert (outcome.exit_code, outcome.signal) == (code, number) and errors.rstrip().endswith(last)
        assert "workers/warm" not in errors
        ends.append([line for line in errors.splitlines() if line and not line.startswith(("Traceback", "  "))])
    assert ends[0][-1:] == ends[1][-1:] or not last


def test_a_copy_in_capitals_that_an_import_reads_starts_cold(tmp_path: Path) -> None:
    """Numerical libraries read theirs without Python."""
    copied = {"mkl_num_threads": "1", "torch_logs": "recompiles"}
    with starters_of(**copied) as starters:
        outcome = run(tmp_path, "pass", starters=starters, processes=2, env=copied)
    assert (outcome.exit_code, outcome.start) == (0, Start.COLD)
    assert outcome.cold_because == "its environment differs in MKL_NUM_THREADS, TORCH_LOGS"


@pytest.mark.parametrize(("name", "value"), [("TORCH_LOGS", "recompiles"), ("ACCELERATE_LOG_LEVEL", "INFO")])
def test_another_environment_starts_cold_and_says_why(
    tmp_path: Path, starters: Starters, name: str, value: str
) -> None:
    """The second looks like a variable of the launcher, but an import reads it."""
    outcome = run(tmp_path, SEEN, starters=starters, env={name: value})
    assert outcome.exit_code == 0 and outcome.start is Start.COLD
    assert outcome.cold_because == f"its environment differs in {name}"
    assert json.loads((tmp_path / "seen-0.json").read_text())["env"][name] == value


def starters_of(say: Callable[[str], object] = print, **variables: str) -> Starters:
    environment = Environment(python=sys.executable, variables=(*VARIABLES.items(), *variables.items()))
    return Starters(lambda _: environment, say=say)


@pytest.mark.parametrize(
    ("relative", "reason"),
    [("", "ImportError: torch is broken"), (":here", "PYTHONPATH has a folder that depends on the current folder")],
)
def test_an_environment_without_torch_starts_cold_and_says_why(tmp_path: Path, relative: str, reason: str) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('torch is broken')")
    with starters_of(PYTHONPATH=f"{tmp_path}{relative}") as starters:
        outcome = run(tmp_path / "run", "pass", starters=starters, env={"PYTHONPATH": f"{tmp_path}{relative}"})
    assert (outcome.start, outcome.cold_because) == (Start.COLD, reason)


def test_a_package_that_has_changed_is_imported_anew(tmp_path: Path) -> None:
    """The module is imported when Python starts. After the change, one run starts cold, and the next has a new starter."""
    module, variables = tmp_path / "sitecustomize.py", {"PYTHONPATH": str(tmp_path)}
    module.write_text("VERSION = 1\n")
    text = "import sitecustomize; print(sitecustomize.VERSION)"
    said: list[str] = []
    with starters_of(said.append, **variables) as starters:
        outcomes = [run(tmp_path / "first", text, starters=starters, env=variables)]
        module.write_text("VERSION = 22\n")
        outcomes += [run(tmp_path / name, text, starters=starters, env=variables) for name in ("second", "third")]
    assert [(tmp_path / name / "out").read_text() for name in ("first", "second", "third")] == ["1\n", "22\n", "22\n"]
    assert [outcome.start for outcome in outcomes] == [Start.WARM, Start.COLD, Start.WARM]
    assert outcomes[1].cold_because == "the package sitecustomize has changed since the warm starter imported it"
    assert not said


def test_a_starter_whose_imports_hang_is_ended_with_what_they_started(tmp_path: Path) -> None:
    """It delays one run by at most the run's own time limit."""
    pid = tmp_path / "pid"
    hang = f"child = subprocess.Popen(['sleep', '600']); open({str(pid)!r}, 'w').write(str(child.pid)); time.sleep(600)"
    text = f"import subprocess, sys, time\nif any('warm.py' in word for word in sys.orig_argv):\n    {hang}\n"
    (tmp_path / "sitecustomize.py").write_text(text)
    variables, said = {"PYTHONPATH": str(tmp_path)}, list[str]()
    with starters_of(said.append, **variables) as starters:
        connection(starters, 10.0).close()
        time.sleep(1.2)
        connection(starters, 1.0).close()  # the run before may wait for longer, so the starter goes on
        began = time.monotonic()
        outcome = run(tmp_path / "run", "pass", starters=starters, env=variables, timeout_s=10.0)
        assert time.monotonic() - began < 25
        assert (outcome.start, outcome.cold_because) == (Start.COLD, "the warm starter did not answer")
        living = int(pid.read_text())
        assert starters.connect(replace(BASE, timeout_s=10.0)) is None
        wait_until(lambda: not lives(living))
        assert starters.connect(replace(BASE, timeout_s=10.0)) is None
    assert said == ["the imports of the warm starter took more than 10 s, so the following runs start cold"]


# A program with a child in a session of its own, without a marker, and without a parent.
TREE = """
import os, signal, subprocess, sys, time
if "stubborn" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
code = "import os, time; open('lost', 'w').write(str(os.getpid())); time.sleep(600)"
subprocess.Popen([sys.executable, "-c", f"import os, sys; os.setsid(); os.fork() and os._exit(0)\\n{code}"], env={}).wait()
lost = ""
while not lost:  # of several ranks, each writes the file anew, so it may be empty at times
    time.sleep(0.01)
    lost = open("lost").read() if os.path.exists("lost") else ""
keeper = int(open(f"/proc/{os.getppid()}/stat").read().rpartition(")")[2].split()[1])
if "stop" in sys.argv:
    os.kill(keeper, signal.SIGSTOP)
with open(f"ids.part{os.getpid()}", "w") as file:
    print(os.getpid(), os.getppid(), keeper, lost, file=file)
os.rename(f"ids.part{os.getpid()}", "ids")
time.sleep(0 if "leave" in sys.argv else 600)
"""


def ids(folder: Path) -> list[int]:
    wait_for(folder / "ids")
    return [int(word) for word in (folder / "ids").read_text().split()]


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("words", [(), ("stubborn",), ("leave",), ("stop",)])
def test_the_whole_tree_of_a_warm_run_is_ended(tmp_path: Path, starters: Starters, words: tuple[str, ...]) -> None:
    outcome = run(tmp_path, TREE, *words, starters=starters, timeout_s=None if "leave" in words else 3.0)
    assert outcome.start is Start.WARM and outcome.limit is (None if "leave" in words else Limit.WALL)
    assert outcome.survivors == () and not any(map(lives, ids(tmp_path)))
    assert not process_tree.KEEPERS


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_us_cancels_a_warm_run(tmp_path: Path, starters: Starters, number: signal.Signals) -> None:
    def interrupt() -> None:
        ids(tmp_path)
        os.kill(os.getpid(), number)

    threading.Thread(target=interrupt, daemon=True).start()
    outcome = run(tmp_path, TREE, starters=starters, timeout_s=60)
    assert outcome.cancelled and not any(map(lives, ids(tmp_path)))


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("processes", [1, 2])
def test_a_warm_run_is_found_by_its_marker_if_run_one_was_killed(
    tmp_path: Path, starters: Starters, processes: int
) -> None:
    """As the executor does it, which does not know the session."""
    marker, found = uuid.uuid4().hex, []

    def look() -> None:
        ids(tmp_path)
        found.extend(other.pid for other in process_tree.members(marker))

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    run(tmp_path, TREE, starters=starters, processes=processes, env={MARKER: marker}, timeout_s=8.0)
    looking.join()
    rank, launcher, keeper, _ = ids(tmp_path)
    assert {rank, launcher, keeper} <= set(found)


KILLED = (
    f"VARIABLES = {VARIABLES}"
    + """
import socket, sys, time
from pathlib import Path
from orchestrator.machine import cgroup, process
from orchestrator.machine.process_tree import adopt_orphans
from orchestrator.machine.process.warm import Starter, inherited
from orchestrator.records import Command
adopt_orphans()
folder, marker, *argv = sys.argv[1:]
command = Command(argv=tuple(argv), env={"TUNEBENCH_RUN": marker, **VARIABLES}, cwd=Path(folder))
starter = Starter(connection=inherited(), processes=1)
process.run(command, stdout=Path(folder, "out"), stderr=Path(folder, "err"), starter=starter)
"""
)


@pytest.mark.usefixtures("impatient")
def test_nothing_is_left_if_whoever_watches_is_killed(tmp_path: Path, starters: Starters) -> None:
    marker = uuid.uuid4().hex
    (tmp_path / "program.py").write_text(TREE)
    words = [sys.executable, *launched(tmp_path, 1), str(tmp_path / "program.py")]
    argv = [sys.executable, "-c", KILLED, str(tmp_path), marker, *words]
    with connection(starters) as ours:
        env = {"PYTHONPATH": str(Path(__file__).parents[2]), MARKER: marker}
        child = process.spawn(argv, log=tmp_path / "log", env=env, stdin=ours.fileno())
    known = ids(tmp_path)
    keeper = psutil.Process(known[1]).parent()
    assert keeper is not None
    child.kill()
    end_tree(marker, root=child)
    assert not any(map(lives, known[:2]))
    os.kill(known[2], signal.SIGKILL) if lives(
        known[2]
    ) else None  # found by the notes in the run's folder, which is not here
    wait_until(lambda: not keeper.is_running() or keeper.status() == psutil.STATUS_ZOMBIE)


def test_a_run_is_not_forked_for_whoever_has_gone(tmp_path: Path, starters: Starters) -> None:
    """The starter is stopped while somebody asks for a run and goes away, as if it still made its imports."""
    living = next(filter(None, starters._known.values())).child if starters._known else None
    if living is None:
        connection(starters).close()
        living = next(filter(None, starters._known.values())).child
    living.send_signal(signal.SIGSTOP)
    stop = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGTERM))
    stop.start()
    outcome = run(tmp_path, "open('began', 'w')", starters=starters)
    living.send_signal(signal.SIGCONT)
    assert outcome.cancelled
    assert run(tmp_path / "next", "open('began', 'w')", starters=starters).start is Start.WARM
    assert not (tmp_path / "began").exists() and (tmp_path / "next" / "began").exists()


WAITING = """
import os, time
with open("began", "w") as file:
    print("began", file=file)
while not os.path.exists("go"):
    time.sleep(0.01)
"""


def test_a_run_goes_on_if_its_starter_dies_and_the_next_one_is_cold(tmp_path: Path) -> None:
    said: list[str] = []
    environment = Environment(python=sys.executable, variables=tuple(VARIABLES.items()))
    with Starters(lambda _: environment, say=said.append) as mortal:

        def kill() -> None:
            wait_for(tmp_path / "began")
            next(filter(None, mortal._known.values())).child.kill()
            time.sleep(0.3)
            (tmp_path / "go").touch()

        threading.Thread(target=kill, daemon=True).start()
        outcome = run(tmp_path, WAITING, starters=mortal)
        assert (outcome.exit_code, outcome.start) == (0, Start.WARM)
        assert mortal.connect(BASE) is None
        assert mortal.connect(BASE) is None
    assert said == ["the warm starter has ended, so the following runs start cold"]


def test_a_starter_that_dies_during_its_imports_lets_the_run_start_cold(tmp_path: Path) -> None:
    environment = Environment(python=sys.executable, variables=tuple(VARIABLES.items()))
    with Starters(lambda _: environment, say=print) as mortal:
        threading.Timer(0.5, lambda: next(filter(None, mortal._known.values())).child.kill()).start()
        outcome = run(tmp_path, "pass", starters=mortal)
    assert (outcome.exit_code, outcome.start, outcome.cold_because) == (0, Start.COLD, "the warm starter has ended")


def test_the_starter_ends_with_whoever_started_it(tmp_path: Path) -> None:
    text = """
import sys, time, types
from orchestrator.executors.starters import Environment, Starters
starters = Starters(lambda _: Environment(python=sys.executable, variables=()), say=print)
starters.connect(types.SimpleNamespace(timeout_s=None))
print(next(iter(starters._known.values())).child.pid, flush=True)
time.sleep(600)
"""
    child = process.spawn(
        [sys.executable, "-c", text], log=tmp_path / "log", env={"PYTHONPATH": str(Path(__file__).parents[2])}
    )
    wait_until(lambda: (tmp_path / "log").read_text().endswith("\n"))
    starter = int((tmp_path / "log").read_text())
    child.kill()
    child.wait()
    wait_until(lambda: not lives(starter))


def test_a_warm_run_is_in_its_control_group(tmp_path: Path, starters: Starters) -> None:
    marker = uuid.uuid4().hex
    group = cgroup.create(marker)
    if group is None:
        pytest.skip("this user may not create control groups")
    text = "open('group', 'w').write(open('/proc/self/cgroup').read())"
    run(tmp_path, text, starters=starters, env={MARKER: marker}, group=group)
    assert group.path.name in (tmp_path / "group").read_text() and not group.path.exists()
