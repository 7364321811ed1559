"""Programs that report steps, numbers and endings that cannot be true, and outputs that no reader expects."""

from __future__ import annotations

import json
from typing import Any

from attack_cases.register import case
from attack_cases.scene import Scene

TRUE_STEPS = """\
for at in range(1, 41):
    time.sleep(0.004)
    print(json.dumps({"step": at, "seconds": 0.005, "tokens": 100, "samples": 1}), flush=True)
"""
# Steps that contradict each other or the time of the run: the run must not have the status ok with a speed.
FALSE_STEPS = {
    "longer-than-the-run": '{"step": at, "seconds": 5.0, "tokens": 100}',
    "in-no-time": '{"step": at, "seconds": 0, "tokens": 100}',
    "in-almost-no-time": '{"step": at, "seconds": 1e-9, "tokens": 100}',
    "clock-of-days": '{"time": at * 86400.0, "step": at, "tokens": 100}',
}
# Lines that are no steps: they are left out, and the run goes on.
ODD_LINES = {
    "nan": '{"step": %d, "seconds": NaN}',
    "infinity": '{"step": %d, "seconds": Infinity}',
    "negative": '{"step": %d, "seconds": -1}',
    "text": '{"step": %d, "seconds": "0.1"}',
    "true": '{"step": %d, "seconds": true}',
    "list": '{"step": [%d], "seconds": 0.1}',
    "half-step": '{"step": %d.5, "seconds": 0.1}',
    "huge-step": '{"step": 9%d' + "0" * 400 + ', "seconds": 0.1}',
    "huge-number": '{"step": %d, "seconds": ' + "9" * 5000 + "}",
    "deep": '{"step": %d, "a": ' + "[" * 5000 + "]" * 5000 + "}",
    "many-tokens": '{"step": %d, "seconds": 0.1, "tokens": 1e300}',
    "double-key": '{"step": %d, "seconds": 0.005, "seconds": "x"}',
    "half-character": '{"step": %d, "seconds": 0.1, "tokens": "\\ud800"}',
    "colour": "\\x1b[32m{step: %d}\\x1b[0m\\x00\\x07",
    "bare": "%d",
}


def _speeds(scene: Scene) -> list[Any]:
    return [one.value for record in scene.records() for one in record.measurements if one.name == "tokens_per_s"]


@case(lie=FALSE_STEPS)
def false_steps(scene: Scene, lie: str) -> None:
    """Steps that cannot be true make the run invalid."""
    scene.scenario(f"for at in range(1, 41):\n    print(json.dumps({lie}), flush=True)", steps="stdout")
    said = scene.run()
    speeds = [one for one in _speeds(scene) if one is not None]
    assert said.code == 1 or not speeds, f"accepted: {speeds}"


@case(line=ODD_LINES)
def odd_step_lines(scene: Scene, line: str) -> None:
    """One odd line before the true ones costs that line, and neither the run nor the page."""
    scene.scenario(f"print({line!r} % 0 if '%d' in {line!r} else {line!r}, flush=True)\n{TRUE_STEPS}", steps="stdout")
    assert scene.run().code == 0, scene.statuses()
    (speed,) = _speeds(scene)
    assert speed is None or 10_000 < speed < 30_000, speed


@case(
    numbers={
        "nan": {"train_loss": float("nan")},
        "infinite": {"train_loss": float("inf")},
        "too-large": {"train_loss": 1e200, "train_runtime": 1.0},
        "1e400": {"train_runtime": "1e400"},
        "zero-time": {"train_runtime": 0},
        "negative-time": {"train_runtime": -1.5},
        "longer-than-run": {"train_runtime": 1e6},
        "true": {"train_runtime": True},
        "list": {"train_runtime": [1.0]},
        "word": {"train_runtime": "fast"},
        "underscored": {"train_runtime": "1_0"},
        "long-whole": {"train_runtime": 10**4000},
        "other-digits": {"train_runtime": "\u0663"},
    }
)
def false_numbers(scene: Scene, numbers: dict[str, Any]) -> None:
    """A number that cannot be is a dash or makes the run invalid: no table shows it as a result."""
    line = json.dumps(numbers)
    scene.scenario(f"print({line!r}); sys.exit(0)")
    scene.run()
    for record in scene.records():
        shown = {one.name: one.value for one in record.measurements if one.name in numbers}
        may_be = (("train_loss", 1e200), ("train_runtime", 1.0))
        good = all(value is None or (name, value) in may_be for name, value in shown.items())
        assert record.status.value != "ok" or good, f"ok with {shown}"
    text = (scene.results / "benchmarks.csv").read_text()
    assert "nan" not in text.lower().replace("nan_loss", ""), text


@case(
    ending={
        "exit-0-silent": ("os._exit(0)", 1),
        "exit-256": ("sys.exit(256)", 1),
        "exit-text": ("sys.exit('bye')", 1),
        "killed-itself": ("os.kill(os.getpid(), signal.SIGKILL)", 1),
        "stopped-itself": ("os.kill(os.getpid(), signal.SIGSTOP)", 1),
        "closed-stdout": ("os.close(1)", 1),
        "parent-signal-0": ("os.kill(os.getppid(), 0)", 0),
        "result-then-failure": ("print(json.dumps({'train_runtime': 0.1, 'train_loss': 1})); sys.exit(3)", 1),
        "result-then-kill": (
            "print(json.dumps({'train_runtime': 0.1, 'train_loss': 1}), flush=True); os.kill(os.getpid(), 9)",
            1,
        ),
        "forked-answer": ("os.fork() and os._exit(0); time.sleep(0.2)", 1),
        "exec-true": ("os.execvp('true', ['true'])", 1),
        "closed-all": ("os.closerange(0, 256)", 1),
        "core": ("import resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); os.abort()", 1),
    }
)
def endings(scene: Scene, ending: tuple[str, int]) -> None:
    """However a program ends, its run has one record, and the exit code says whether it has a result."""
    body, code = ending
    scene.scenario(body, timeout_s=6)
    said = scene.run()
    assert len(scene.records()) == 1
    assert said.code == code, (said.code, scene.statuses())
    assert (scene.statuses() == ["ok"]) == (code == 0)


OUTPUTS = {
    "long-line": "sys.stdout.write('x' * 8_000_000 + '\\n')",
    "long-line-unfinished": "sys.stdout.write('y' * 3_000_000)\nprint()",
    "binary": "sys.stdout.buffer.write(bytes(range(256)) * 5000 + b'\\n'); sys.stdout.flush()",
    "zeros": "sys.stdout.buffer.write(bytes(2_000_000) + b'\\n'); sys.stdout.flush()",
    "ansi": "print('\\x1b]0;owned\\x07\\x1b[2J\\x1b[31m\\u202e red \\x9b1m', file=sys.stderr); print('\\x1b[6n')",
    "carriage-returns": "[print(f'{at}%', end='\\r') for at in range(50000)]\nprint()",
    "html": "print('</script><script>document.title=1</script><!--')",
    "markup": "print('[red]not closed[/bold] :smile: [link=file:///etc/passwd]x[/link]')",
    "stderr-lines": "[print('line', at, file=sys.stderr) for at in range(100000)]",
    "utf-16": "sys.stdout.buffer.write('{\"a\": 1}\\n'.encode('utf-16')); sys.stdout.flush()\nprint()",
    "false-oom": "print('torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB', file=sys.stderr)",
}


@case(output=OUTPUTS)
def outputs(scene: Scene, output: str) -> None:
    """Whatever is in a log, the run has its result, and the views show it without raw control characters."""
    scene.scenario(output)
    assert scene.run().code == 0, scene.statuses()
    shown = scene.call("show", "quick", "--results", "results")
    assert shown.code == 0
    assert not any(sign in shown.text for sign in ("\x1b", "\x07", "\x9b", "\u202e", "\x00")), "raw control characters"
    page = (scene.results / "report.html").read_text()
    assert "<script>document.title" not in page


@case(
    last={
        "line-separator": '{"train_runtime": 0.1, "train_loss": 1.0, "note": "a\u2028b"}',
        "next-line": '{"train_runtime": 0.1, "train_loss": 1.0, "note": "a\u0085b"}',
        "blank-lines-behind": '{"train_runtime": 0.1, "train_loss": 1.0}\n\n   \n',
        "no-newline": '{"train_runtime": 0.1, "train_loss": 1.0}',
        "windows": '{"train_runtime": 0.1, "train_loss": 1.0}\r\n',
        "after-a-bar": '100%|####|\r{"train_runtime": 0.1, "train_loss": 1.0}\n',
    }
)
def last_lines(scene: Scene, last: str) -> None:
    """JSON on the last line is the result, however the line ends."""
    scene.scenario(f"sys.stdout.buffer.write({last!r}.encode()); sys.stdout.flush(); os._exit(0)")
    said = scene.run()
    assert said.code == 0, [record.cause for record in scene.records()]


PIPES = {
    "steps-rank0.jsonl": {"steps": "stdout"},
    "stdout.log": {"stall_timeout_s": 3},
    "stderr.log": {"stall_timeout_s": 3},
    "stacks.txt": {"stall_timeout_s": 3},
    "heartbeat": {},
    "worker-rank0.json": {},
    "record.json": {},
    ".record.json": {},
    "experiment.json": {},
    "job.json": {},
    "owner.json": {},
}


@case(name=PIPES.keys(), kind=("pipe", "link", "folder"))
def in_place_of(scene: Scene, name: str, kind: str) -> None:
    """A program that puts a pipe, a link or a folder where Tunebench writes: the run ends, and no file outside changes."""
    precious = scene.folder / "precious"
    precious.write_text("mine\n")
    make = {"pipe": "os.mkfifo(p)", "link": "os.symlink(here / 'precious', p)", "folder": "os.mkdir(p)"}[kind]
    place = f"run_dir.parents[1] / {name!r}" if name == "experiment.json" else f"run_dir / {name!r}"
    waits = "signal.signal(signal.SIGUSR2, lambda *_: None); time.sleep(30)" if "stall_timeout_s" in PIPES[name] else ""
    body = f"p = {place}\nprint('begun', flush=True)\np.unlink(missing_ok=True)\n{make}\n{TRUE_STEPS}{waits}"
    scene.scenario(body, **{"timeout_s": 15, **PIPES[name]})
    scene.records_may_go = name == "record.json"
    scene.run()
    assert precious.read_text() == "mine\n", f"{name}: a file outside was changed: {precious.read_text()[:80]}"
    scene.call("status", "results")
    scene.call("report", "results")


@case()
def pipe_in_place_of_the_noted_processes(scene: Scene) -> None:
    """`processes.json`, which is read again every 30 s, becomes a pipe."""
    scene.scenario(
        "p = run_dir / 'processes.json'\np.unlink(missing_ok=True); os.mkfifo(p)\ntime.sleep(33)", timeout_s=40
    )
    scene.run(timeout_s=70)
    assert len(scene.records()) == 1


@case(
    harm={
        "empties-its-folder": "import shutil; [shutil.rmtree(p, True) if p.is_dir() else p.unlink() for p in run_dir.iterdir()]",
        "renames-its-folder": "run_dir.rename(run_dir.with_name('gone'))",
        "locks-its-folder": "run_dir.chmod(0)",
        "edits-itself": "pathlib.Path(__file__).write_text('print(1)')",
        "removes-itself": "pathlib.Path(__file__).unlink()",
        "damages-the-claim": "(run_dir / 'job.json').write_text('{')",
        "claims-another-run": "p = run_dir / 'job.json'; p.write_text(p.read_text().replace('\"repeat\": 1', '\"repeat\": 7'))",
        "damages-the-experiment": "(run_dir.parents[1] / 'experiment.json').write_text('[')",
        "damages-the-suite": "(run_dir.parents[3] / 'suite.json').write_text('null')",
        "removes-the-suite": "(run_dir.parents[3] / 'suite.json').unlink()",
        "old-record": "(run_dir / 'record.json').write_text('{}')",
        "forged-worker": "worker({'rank': 'x', 'tokens': 5})",
        "forged-worker-list": "worker({'rank': [1], 'error': 'no'})",
        "forged-worker-stamps": "worker({'rank': 0, 'stamps': {'process_start': 'x', 'imports_done': 2}})",
        "forged-worker-memory": "worker({'rank': 0, 'memory': 3, 'peak': [], 'losses': 4, 'settings': 5, 'versions': 6})",
        "forged-worker-number": "(run_dir / 'worker-rank99999999999999999999.json').write_text('{\"rank\": 99999999999999999999}')",
        "many-workers": "[(run_dir / f'worker-rank{n}.json').write_text('{\"rank\": %d}' % n) for n in range(3000)]",
    }
)  # fmt: skip
def harm_to_its_run(scene: Scene, harm: str) -> None:
    """A program that edits its own run or campaign: every run still ends in a record or a message, and a resume works."""
    worker = "worker = lambda content: (run_dir / 'worker-rank0.json').write_text(json.dumps(content))"
    scene.scenario(f"{worker}\n{harm}", numbers=2, timeout_s=15)
    scene.records_may_go = "rmtree" in harm
    scene.run()
    scene.call("status", "results")
    scene.call("report", "results")
    scene.run("--retry-failed")


@case()
def output_without_end(scene: Scene) -> None:
    """A program that prints without pause is ended by its time limit, and its log is read in bounded time."""
    body = "signal.signal(signal.SIGINT, signal.SIG_DFL)\nwhile True: sys.stdout.write('z' * 65536)"
    scene.scenario(body, timeout_s=1)
    scene.run()
    assert scene.statuses() == ["timeout"]
    assert scene.call("show", "quick", "--results", "results", timeout_s=30).code == 0


@case(parallel=("2", "3"))
def liars_side_by_side(scene: Scene, parallel: str) -> None:
    """Side by side, each run has the numbers of its own program."""
    scene.scenario("print(json.dumps({'train_runtime': 0.1, 'train_loss': float(number)})); sys.exit(0)", numbers=4)
    assert scene.run("--parallel", parallel).code == 0
    losses = {one.value for record in scene.records() for one in record.measurements if one.name == "train_loss"}
    assert losses == {0.0, 1.0, 2.0, 3.0}, losses
