"""What happens around a campaign in progress: readers, editors, JSON lines whose reader leaves, results that are exported."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from attack_cases._shared import check_complete, held, resumed, send
from attack_cases.register import case
from attack_cases.scene import Scene

COMMANDS: dict[str, tuple[str, ...]] = {
    "report": ("report", "results"),
    "export": ("export", "--to", "tensorboard", "results", "--dest", "board"),
    "bundle": ("bundle", "results", "--output", "out.tar.gz"),
    "history": ("history", "results", "--output", "course"),
    "compare": ("compare", "results", "results", "--output", "c.json"),
    "show": ("show", "quick", "--results", "results"),
    "status": ("status", "results", "--json"),
    "plan": ("plan", "scenarios.yaml", "--results", "results"),
}
STEPS = """\
for at in range(1, 31):
    print(json.dumps({"step": at, "seconds": 0.005 + at % 3 * 1e-5, "tokens": 100}), flush=True)
time.sleep(0.1)"""


@case(command=COMMANDS, how=("beside", "killed", "interrupted"))
def command_beside_campaign(scene: Scene, command: tuple[str, ...], how: str) -> None:
    """Commands that read or write beside a campaign in progress, also when ended in the middle, harm neither."""
    scene.scenario(STEPS, numbers=6, steps="stdout")
    child = scene.started(begun=None)
    scene.await_true(scene.records, "a record", child)
    one_experiment = scene.runs()[0].parents[1].name
    command = tuple(one_experiment if word == "quick" else word for word in command)
    for at in range(3):
        one = scene.start(*(f"{at}-{word}" if word == "out.tar.gz" else word for word in command))
        if how != "beside":
            time.sleep(0.15 + 0.3 * at)
            send(one.pid, signal.SIGKILL if how == "killed" else signal.SIGINT)
            scene.codes.update((-9, -2))  # a Ctrl-C during the import ends it by the signal
        scene.ended(one)
    assert scene.ended(child).code == 0
    check_complete(scene, 6)
    assert scene.call(*[f"last-{word}" if word == "out.tar.gz" else word for word in command]).code in (0, 4)
    left = [path.name for path in scene.folder.iterdir() if path.name.startswith((".", "tmp"))]
    assert how == "killed" or not left, left


READERS = {
    "slow": "import sys, time\nfor line in sys.stdin.buffer:\n    time.sleep(0.3)",
    "leaves": "import sys\nsys.stdin.readline()",
    "never-reads": "import time\ntime.sleep(6)",
    "closes-at-once": "import os\nos.close(0)",
    "killed": "import os, sys\nsys.stdin.readline(); os.kill(os.getpid(), 9)",
}


@case(reader=READERS, extra=("--json-lines", "--json-lines --parallel 3", ""))
def reader_of_events(scene: Scene, reader: str, extra: str) -> None:
    """The campaign goes on with a reader of its lines that is slow, or leaves."""
    scene.scenario(numbers=4)
    options = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    other = subprocess.Popen([sys.executable, "-c", reader], **options)  # type: ignore[call-overload]
    child = scene.start("run", "scenarios.yaml", "--yes", *extra.split(), stdout=other.stdin, stderr=other.stdin)
    other.stdin.close()
    child.wait(timeout=60)
    other.kill()
    other.wait()
    check_complete(scene, 4)
    assert child.returncode in (0, 2), child.returncode


EDITS = {
    "script": "trainer.py",
    "imported": "helper.py",
    "data": "data.txt",
}
HOW = {
    "appended": lambda path: path.write_text(path.read_text() + "\n# edited\n"),
    "same-size": lambda path: path.write_text(path.read_text()[:-2] + "#\n"),
    "removed": lambda path: path.unlink(),
    "replaced-with-old-date": lambda path: _with_date(path),
    "made-a-folder": lambda path: _in_place(path, os.mkdir),
    "made-a-fifo": lambda path: _in_place(path, os.mkfifo),
    "unreadable-loop": lambda path: _in_place(path, lambda free: free.symlink_to(free.name)),
}


def _in_place(path: Path, make: Callable[[Path], object]) -> None:
    path.unlink()
    make(path)


def _with_date(path: Path) -> None:
    info = path.stat()
    path.write_text(path.read_text()[:-1] + " ")
    os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))


@case(file=EDITS, how=HOW, parallel=("1", "2"))
def file_is_edited(scene: Scene, file: str, how: Callable[[Path], object], parallel: str) -> None:
    """An edited file of the command: no run of the old plan is recorded as ok with the new content, except with a warning."""
    (scene.folder / "helper.py").write_text("x = 1  \n")
    (scene.folder / "data.txt").write_text("some data \n")
    command = ["{python}", "{scenario_dir}/trainer.py", "{scenario_dir}", "{number}", "{scenario_dir}/data.txt"]
    body = "sys.path.insert(0, str(here))\nimport helper\n(here / f'saw-{number}').write_text(open(__file__).read())\nhold()"
    scene.scenario(body, numbers=4, custom={"command": command})
    child = scene.started("--parallel", parallel, begun=None)
    scene.await_file("saw-*", child)
    time.sleep(2)  # else a training of the other place may just have started, and would read a pipe without an end
    began = len(list(scene.folder.glob("saw-*")))
    how(scene.folder / file)
    scene.go()
    said = scene.ended(child)
    assert said.code in (0, 1, 2), said
    late = [one for one in scene.records() if one.status == "ok" and not one.warnings]
    assert len(late) <= max(began, int(parallel)), f"{len(late)} runs are ok without a warning, {began} had begun"
    for command_ in ("status", "report"):
        assert scene.call(command_, "results").code == 0


@case(edit=("scenario", "scenario-broken", "scenario-gone", "framework", "framework-gone", "defaults", "asked"))
def plan_is_edited(scene: Scene, edit: str) -> None:
    """The files of the plan are edited while the campaign runs: the runs are those of the plan that was read."""
    (scene.folder / "frameworks").mkdir()
    (scene.folder / "frameworks" / "CONTENTS.yaml").write_text(
        "framework_configs:\n- {shortname: a, filename: a.yaml}\n"
    )
    (scene.folder / "frameworks" / "a.yaml").write_text("description: A.\nenv: {OF_A: '1'}\n")
    (scene.folder / "defaults.yaml").write_text("max_steps: 5\n")
    scene.scenario(
        "(here / f'env-{number}').write_text(os.environ.get('OF_A', '-')); hold()", numbers=3, framework_config=["a"]
    )
    child = scene.started(begun=None)
    scene.await_file("env-*", child)
    place = scene.folder / {"framework": "frameworks/a.yaml", "defaults": "defaults.yaml"}.get(edit, "scenarios.yaml")
    if edit == "framework-gone":
        shutil.rmtree(scene.folder / "frameworks")
    elif edit == "scenario-gone":
        place.unlink()
    elif edit == "asked":
        shutil.rmtree(scene.results / "asked")
    else:
        place.write_text(
            {"framework": "description: A.\nenv: {OF_A: '2'}\n", "scenario": "{'scenarios': []}"}.get(edit, "{[")
        )
    scene.go()
    assert scene.ended(child).code == 0
    check_complete(scene, 3)
    assert {path.read_text() for path in scene.folder.glob("env-*")} == {"1"}


@case(parallel=("2", "4"), then=("cancel", "int", "kill", "cancel-int", "stop-cancel", "kill-run-ones"))
def parallel_and(scene: Scene, parallel: str, then: str) -> None:
    """Runs side by side are ended in several ways at once: one record each, and the campaign can be completed."""
    child = held(scene, numbers=5)
    send(child.pid, signal.SIGINT)
    scene.ended(child)
    (scene.folder / "go").unlink(missing_ok=True)
    child = scene.started("--parallel", parallel, begun=None)
    scene.await_true(
        lambda: len([pid for pid, line in scene.alive().items() if "trainer.py" in line]) >= int(parallel), "all", child
    )
    runs = [pid for pid, line in scene.alive().items() if "run-one" in line]
    if then == "stop-cancel":
        send(runs[0], signal.SIGSTOP)
    if "cancel" in then:
        one = scene.start("cancel", "results")
        time.sleep(0.5)
    if "int" in then:
        send(child.pid, signal.SIGINT)
    if then == "kill":
        send(child.pid, signal.SIGKILL)
    if then == "kill-run-ones":
        for pid in runs:
            send(pid, signal.SIGKILL)
    for pid in runs:
        send(pid, signal.SIGCONT)
    scene.codes.add(-9)
    scene.go()
    if "cancel" in then:
        scene.ended(one)
    scene.ended(child)
    resumed(scene, 5, "--parallel", parallel)


@case(events=("handed_over", "started", "ended"))
def events_are_whole(scene: Scene, events: str) -> None:
    """Each line of `--json-lines` is an object; each run has one line of each kind, also with odd names and several at once."""
    scene.scenario("print('\u2028 \U0001f680')", numbers=6, tags=["ä\u2028b"])
    said = scene.run("--json-lines", "--parallel", "3")
    lines = [json.loads(line) for line in said.out.splitlines()]
    names = [line.get("experiment") for line in lines if line["event"] == events]
    if events == "handed_over":
        names = [run["experiment"] for line in lines if line["event"] == events for run in line["runs"]]
    assert sorted(names) == sorted({*names}) and len(names) == 6, names
