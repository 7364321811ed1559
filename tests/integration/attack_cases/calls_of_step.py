"""Programs that call `tunebench.steps.step` in odd ways: from threads and children, with odd counts, on a bad disk."""

from __future__ import annotations

from typing import Any

from attack_cases.register import case
from attack_cases.scene import Scene

LOOP = """\
from tunebench.steps import step
for _ in range(%d):
    step(tokens=100, samples=2)
    time.sleep(0.005)
"""
PLAIN = LOOP % 60
BODIES = {
    "threads": """\
import threading
from tunebench.steps import step
def work():
    for _ in range(60):
        step(tokens=100, samples=2)
        time.sleep(0.004)
threads = [threading.Thread(target=work) for _ in range(8)]
[one.start() for one in threads]; [one.join() for one in threads]
""",
    "forked-before": f"""\
child = os.fork()
{PLAIN}
if not child: os._exit(0)
os.waitpid(child, 0)
""",
    "forked-in-the-middle": f"""\
{PLAIN}
child = os.fork()
{PLAIN}
if not child: os._exit(0)
os.waitpid(child, 0)
""",
    "two-programs": f"""\
code = {PLAIN!r}
children = [subprocess.Popen([sys.executable, '-c', 'import time\\n' + code]) for _ in range(2)]
[one.wait() for one in children]
""",
    "one-after-the-other": f"""\
code = {PLAIN!r}
[subprocess.run([sys.executable, '-c', 'import time\\n' + code]) for _ in range(2)]
""",
    "loader-that-imports": f"""\
{PLAIN}
subprocess.run([sys.executable, '-c', 'from tunebench.steps import step; step(); step()'])
""",
}
COUNTS = {
    "negative": "tokens=-5",
    "huge": "tokens=10**30",
    "infinite": "tokens=float('inf')",
    "nan": "tokens=float('nan')",
    "text": "tokens='many'",
    "tensor-like": "tokens=type('T', (), {'__int__': lambda self: 7})()",
    "true": "tokens=True",
    "fraction": "tokens=1.9",
    "empty": "",
    "zero": "tokens=0, samples=0",
    "digits": "tokens=10**5000",
    "broken": "tokens=type('T', (), {'__int__': lambda self: 1/0})()",
}
RANKS = ("-1", "0/../../x", "", "1e9", "99999999999999999999", "\u0663", "0\n", "0 ", "../escaped")


def _tokens_per_s(scene: Scene) -> list[Any]:
    return [
        next((one.value for one in record.measurements if one.name == "tokens_per_s"), None)
        for record in scene.records()
        if record.status == "ok"
    ]


@case(body=BODIES)
def who_calls(scene: Scene, body: str) -> None:
    """A speed is that of the program's steps (100 tokens in at least 4 ms), or it is missing, never several times as large."""
    scene.scenario(body, steps="tunebench.steps")
    scene.run()
    assert scene.statuses() in (["ok"], ["failed"], ["invalid"]), scene.statuses()
    for speed in _tokens_per_s(scene):
        assert speed is None or 1000 < speed < 26000, f"tokens/s: {speed}"


@case(count=COUNTS)
def odd_counts(scene: Scene, count: str) -> None:
    """An odd count neither ends the training's run nor becomes a speed that cannot be."""
    scene.scenario(
        f"from tunebench.steps import step\nfor _ in range(60):\n    step({count})\n    time.sleep(0.004)",
        steps="tunebench.steps",
    )
    said = scene.run()
    assert said.code in (0, 1)
    for speed in _tokens_per_s(scene):
        assert speed is None or 0 <= speed < 1e12, f"tokens/s: {speed}"
    for command in ("status", "report", "bundle"):
        assert scene.call(command, "results").code == 0, command


@case(rank=RANKS, name=("RANK", "LOCAL_RANK"))
def odd_rank(scene: Scene, rank: str, name: str) -> None:
    """A rank that is no number harms no file outside the run, and the report is made."""
    before = {path for path in scene.folder.rglob("*.jsonl")}
    scene.scenario(f"os.environ[{name!r}] = {rank!r}\n{PLAIN}", steps="tunebench.steps")
    scene.run()
    outside = {path for path in scene.folder.rglob("*escaped*")} - before
    assert not [path for path in outside if "runs" not in path.parts], outside
    assert scene.call("report", "results").code == 0


DISTURBED = {
    "folder-unwritable": "run_dir.chmod(0)",
    "file-is-folder": "(run_dir / 'steps-rank0.jsonl').mkdir()",
    "file-is-fifo": "os.mkfifo(run_dir / 'steps-rank0.jsonl')",
    "file-is-link": "(run_dir / 'steps-rank0.jsonl').symlink_to('/dev/full')",
    "no-variable": "os.environ.pop('TUNEBENCH_RUN_DIR', None)",
    "variable-empty": "os.environ['TUNEBENCH_RUN_DIR'] = ''",
    "other-folder": "os.chdir('/')",
    "no-descriptors": "import resource, tunebench.steps; most = resource.getrlimit(7); resource.setrlimit(7, (3, most[1]))",
    "file-too-large": "import resource; signal.signal(25, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))",
    "other-user": "os.setgid(65534); os.setuid(65534)",
    "module-gone": "import shutil; shutil.rmtree(run_dir / 'modules')",
}


@case(body=DISTURBED)
def reporting_disturbed(scene: Scene, body: str) -> None:
    """If the steps cannot be reported, the training goes on and the run has a record."""
    guard = "try:\n    from tunebench.steps import step\nexcept ImportError:\n    step = lambda **_: None\n"
    scene.scenario(
        f"{body}\n{guard}for _ in range(60):\n    step(tokens=100)\n    time.sleep(0.004)\n"
        "if 'most' in dir():\n    resource.setrlimit(7, most)\n(here / 'whole').touch()",
        steps="tunebench.steps",
        timeout_s=20,
    )
    scene.run()
    assert len(scene.statuses()) == 1, scene.statuses()
    if body not in (DISTURBED["other-user"],):
        assert (scene.folder / "whole").exists(), "the training was ended or hung"
