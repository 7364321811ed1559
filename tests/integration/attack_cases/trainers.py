"""Trainers that do what a trainer should not: daemons, suicides, signals to others, hostile files in the run's folder."""

from __future__ import annotations

import signal
import time

from attack_cases._shared import check_complete, resumed, run_one_of, send
from attack_cases.register import case
from attack_cases.scene import Scene

PARENT = "os.getppid()"
GRANDPARENT = "int(open(f'/proc/{os.getppid()}/stat').read().rpartition(')')[2].split()[1])"
DAEMON = """\
code = 'import os, sys, time\\nos.setsid()\\nif os.fork(): os._exit(0)\\n' + %r + '\\ntime.sleep(300)'
subprocess.Popen([sys.executable, "-c", code, str(here)], env=%s, stdin=-3, stdout=%s, stderr=%s)
time.sleep(0.4)
"""
CLOSE = "[os.close(n) for n in range(3, 20) if os.path.exists(f'/proc/self/fd/{n}')]"
IGNORE = "import signal; [signal.signal(n, signal.SIG_IGN) for n in (1, 2, 3, 15)]"
DAEMONS = {
    "plain": DAEMON % ("", "os.environ", "-3", "-3"),
    "no-environment": DAEMON % ("", "{}", "-3", "-3"),
    "with-output": DAEMON % ("", "{}", "None", "None"),
    "ignores": DAEMON % (IGNORE, "{}", "-3", "-3"),
    "elsewhere": DAEMON % ("os.chdir('/')", "{}", "-3", "-3"),
    "closed": DAEMON % (CLOSE, "{}", "-3", "-3"),
    "twice": DAEMON % ("os.setsid()\nif os.fork(): os._exit(0)", "{}", "-3", "-3"),
    "stopped": DAEMON % ("os.kill(os.getpid(), 19)", "{}", "-3", "-3"),
    "respawns": DAEMON
    % (
        "import signal\ndef again(*_):\n  os.fork()\n[signal.signal(n, again) for n in (1, 2, 3, 15)]\n"
        "while 1: time.sleep(1)",
        "{}",
        "-3",
        "-3",
    ),
    "renamed": DAEMON % ("open('/proc/self/comm', 'w').write(') R 1 (x')", "{}", "-3", "-3"),
    "other-user": DAEMON % ("os.setgid(65534); os.setuid(65534)", "{}", "-3", "-3"),
    "unshared": "subprocess.Popen(['unshare', '--pid', '--fork', '--mount-proc', 'sleep', '300', str(here)], env={},"
    " start_new_session=True)\ntime.sleep(0.4)",
    "many": "[subprocess.Popen(['sleep', '300'], env={}, start_new_session=True) for _ in range(60)]",
}
ENDINGS = ("well", "error", "cancel", "timeout", "kill-run-one", "kill-both", "interrupt")


@case(daemon=DAEMONS, ending=ENDINGS)
def daemon(scene: Scene, daemon: str, ending: str) -> None:
    """No process outlives its run, whatever it does to escape."""
    last = {"well": "", "error": "raise SystemExit(3)"}.get(ending, "hold()")
    first = "".join(f"    {line}\n" for line in daemon.splitlines())
    once = f"if not (here / 'born').exists():\n{first}    (here / 'born').touch()\n    {last or 'pass'}"
    scene.scenario(once, **({"timeout_s": 3} if ending == "timeout" else {}))
    child = scene.started()
    scene.await_file("born")
    run_one = 0 if ending in ("well", "error") else run_one_of(scene)
    if ending == "cancel":
        assert scene.call("cancel", "results").code == 0
    elif ending == "interrupt":
        send(child.pid, signal.SIGINT)
    if ending == "kill-both":
        send(child.pid, signal.SIGKILL)
        scene.codes.add(-9)
    if ending.startswith("kill"):
        send(run_one, signal.SIGKILL)
    scene.ended(child)
    if ending == "kill-both":
        scene.run()


SUICIDES = {
    "kills-run-one": f"os.kill({PARENT}, 9); time.sleep(60)",
    "stops-run-one": f"os.kill({PARENT}, 19)",
    "terms-run-one": f"os.kill({PARENT}, 15); time.sleep(60)",
    "hups-run-one-often": f"[os.kill({PARENT}, 1) for _ in range(100)]; time.sleep(60)",
    "kills-orchestrator": f"os.kill({GRANDPARENT}, 9)",
    "terms-orchestrator": f"os.kill({GRANDPARENT}, 15); time.sleep(60)",
    "kills-own-group": "os.killpg(0, 9)",
    "stops-itself": "os.kill(0, 19)",
    "kills-itself": "os.kill(os.getpid(), 9)",
    "aborts": "os.abort()",
    "exit-0-silently": "os._exit(0)",
    "exit-137": "os._exit(137)",
    "exit-255": "os._exit(255)",
    "closes-outputs": "os.close(1); os.close(2)",
    "chld-flood": f"[os.kill({PARENT}, 17) for _ in range(20000)]",
    "usr-to-run-one": f"os.kill({PARENT}, 10); time.sleep(60)",
}


@case(body=SUICIDES)
def suicidal_trainer(scene: Scene, body: str) -> None:
    """Whatever a trainer does to itself and its parents, its run has a record, and the campaign can be completed."""
    once = f"if not (here / 'once').exists():\n    (here / 'once').touch()\n    {body}"
    scene.scenario(once, startup_timeout_s=5, stall_timeout_s=5)
    child = scene.started(begun=None)
    if "19" in body and PARENT in body:  # a run-one that is stopped waits for its CONT
        scene.await_file("once")
        time.sleep(1.0)
        send(run_one_of(scene), signal.SIGCONT)
    scene.codes.add(-9)
    scene.ended(child)
    scene.run("--retry-failed")
    check_complete(scene, 1)


FILES = ("record.json", ".record.json", ".reserve", "job.json", "owner.json", "heartbeat", "processes.json", "stdout.log",
         "stderr.log", "command.sh", "worker-rank0.json", "steps-rank0.jsonl", "pids.txt", "run-one.log", "neighbours.txt",
         "work", "output")  # fmt: skip
MADE = {
    "gone": "",
    "folder": "p.mkdir()",
    "full-folder": "p.mkdir(); (p / 'x').write_text('x')",
    "fifo": "os.mkfifo(p)",
    "endless": "p.symlink_to('/dev/zero')",
    "loop": "p.symlink_to(p.name)",
    "outside": "(here / 'precious').mkdir(); (here / 'precious' / 'kept').write_text('x'); p.symlink_to(here / 'precious')",
    "garbage": "p.write_bytes(os.urandom(3000))",
    "deep": "p.write_text('[' * 100000)",
    "immutable": "p.write_text('x'); subprocess.run(['chattr', '+i', str(p)])",
    "list": "p.write_text('[1]')",
}


@case(file=FILES, made=MADE)
def replaced_file(scene: Scene, file: str, made: str) -> None:
    """A trainer that replaces a file of its run loses at most its own run."""
    kill = f"import shutil; p = run_dir / {file!r}; shutil.rmtree(p) if p.is_dir() else p.unlink(missing_ok=True); "
    scene.cleanups.append(lambda: _mutable(scene))
    scene.scenario(f"if number == '0': {kill}{made}", numbers=2)
    said = scene.run(timeout_s=60)
    assert said.code in (0, 1), said.code
    kept = scene.folder / "precious"
    assert not kept.exists() or (kept / "kept").exists(), "a folder outside the run was emptied"
    readable = 1 if file == "record.json" and made == MADE["immutable"] else 2
    assert "ok" in scene.statuses() and len(scene.statuses()) >= readable, scene.statuses()
    for command in ("status", "report", "cancel"):
        assert scene.call(command, "results").code == 0, command
    _mutable(scene)


def _mutable(scene: Scene) -> None:
    import subprocess

    subprocess.run(["chattr", "-R", "-i", str(scene.results)], check=False, capture_output=True)


FOLDERS = ("run_dir", "run_dir.parent", "run_dir.parent.parent", "run_dir.parents[2]", "run_dir.parents[3]", "here")
DONE = {
    "removed": "shutil.rmtree(p, ignore_errors=True)",
    "renamed": "p.rename(p.with_name(p.name + '-away'))",
    "swapped": "p.rename(p.with_name('away')); p.mkdir()",
    "linked": "p.rename(p.with_name('away')); p.symlink_to('away')",
    "dangling": "p.rename(p.with_name('away')); p.symlink_to('nowhere')",
    "file": "p.rename(p.with_name('away')); p.write_text('x')",
    "mode-0": "p.chmod(0)",
    "emptied": "[shutil.rmtree(q) if q.is_dir() else q.unlink() for q in p.iterdir()]",
}


@case(where=FOLDERS[:5], done=DONE)
def folder_attacked_by_trainer(scene: Scene, where: str, done: str) -> None:
    """A trainer that removes or renames a folder above itself is met by records or a sentence."""
    scene.scenario(f"import shutil; p = {where}\nif number == '0' and not (here / 'once').exists():\n"
                   f"    (here / 'once').touch()\n    {done}", numbers=2)  # fmt: skip
    scene.records_may_go = scene.logs_may_trace = True
    scene.run(timeout_s=60)
    if not scene.results.is_dir():
        return
    scene.call("status", "results")
    if (scene.results / "suite.json").exists():
        again = scene.run("--retry-failed")
        # Without the folder of all experiments, nothing runs: it may be on a disk that is not mounted now.
        refused = where == "run_dir.parents[2]" and again.code == 2
        assert refused or "ok" in scene.statuses(), scene.statuses()


@case(inner=("run", "same", "move-aside", "cancel", "report"))
def nested(scene: Scene, inner: str) -> None:
    """A trainer that calls `tunebench` itself, on another folder or on its own, harms no campaign."""
    words = {
        "run": ["run", "inner.yaml", "--results", "inner", "--yes"],
        "same": ["run", "inner.yaml", "--results", "results", "--yes"],
        "move-aside": ["run", "inner.yaml", "--results", "results", "--yes", "--move-aside"],
        "cancel": ["cancel", "results"],
        "report": ["report", "results"],
    }[inner]
    scene.scenario()
    text = (scene.folder / "scenarios.yaml").read_text().replace('"quick"', '"inner"').replace("trainer.py", "inner.py")
    (scene.folder / "inner.yaml").write_text(text)
    (scene.folder / "trainer.py").rename(scene.folder / "inner.py")
    call = f"subprocess.run([sys.executable, '-m', 'orchestrator', *{words!r}], cwd=here, timeout=60)"
    scene.scenario(f"if not (here / 'once').exists():\n    (here / 'once').touch()\n    {call}")
    scene.run()
    resumed(scene, 2 if inner == "same" else 1)
