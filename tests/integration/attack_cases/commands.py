"""Every command with odd words, odd environments and odd standard streams."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence

from attack_cases._made import campaign
from attack_cases._preloaded import call
from attack_cases.register import case
from attack_cases.scene import ROOT, Scene

ODD = {
    "empty": "",
    "blank": "   ",
    "minus": "-",
    "nan": "nan",
    "infinity": "1e999",
    "negative": "-1",
    "zero": "0",
    "huge": "9" * 400,
    "other-digits": "\u0663",
    "comma": ",,,",
    "equals": "=",
    "colons": ":::",
    "open": "[{(",
    "null": "null",
    "control": "a\x1b[31m\r\nb\u202e",
    "bytes": b"a\xff\xfe".decode("utf-8", "surrogateescape"),
    "long": "x" * 100_000,
    "star": "*/../..",
    "percent": "%s%n{0}{x}",
    "yaml-bomb": "{a: &a [1,1,1], b: &b [*a,*a], c: [*b,*b]}",
    "regex": "(a+)+$",
}
# The place of the odd word is `?`. Each line needs the campaign in `results` and `good`.
OPTIONS: Sequence[str] = (
    "report results --keep ?",
    "report results --drop ?",
    "report results --format ?",
    "report results --baseline ?",
    "report results --baseline number=?",
    "report results --pivot ?",
    "report results --pivot number,scenario:?",
    "report results --group-by ?",
    "report results --output ?",
    "report ?",
    "show ?",
    "show a --results ?",
    "show a --results results --lines ?",
    "status ?",
    "cancel results ?",
    "compare ? results",
    "compare good,? results",
    "compare --aa ?",
    "compare good results --by ?",
    "compare good results --ignore ?",
    "compare good results --metrics ?",
    "compare good results --metrics tokens_per_s:?",
    "compare good results --min-effect ?",
    "compare good results --min-effect tokens_per_s=?",
    "compare good results --threshold ?",
    "compare good results --level ?",
    "compare good results --correction ?",
    "compare good results --fail-on ?",
    "compare good results --output ?.json",
    "history results good --metrics ?",
    "history results good --min-effect ?",
    "history results good --by ?",
    "history results good --output ?",
    "export --to ? results",
    "export --to tensorboard results --dest board --experiment ?",
    "export --to tensorboard results --dest ?",
    "bundle results --output ?.tar.gz",
    "rerun --from ?",
    "rerun --from comparison.json --dry-run --runs ?",
    "rerun --from comparison.json --dry-run --ignore ?",
    "rerun --from comparison.json --dry-run --confirm-above ?",
    "plan scenarios.yaml --set ?",
    "plan scenarios.yaml --set arguments.x=?",
    "plan scenarios.yaml --set repeats=?",
    "plan scenarios.yaml --set measure.within=?",
    "plan scenarios.yaml --set matrix.number=?",
    "plan scenarios.yaml --set custom.command=?",
    "plan scenarios.yaml --axis ?",
    "plan scenarios.yaml --axis number=?",
    "plan scenarios.yaml --num-gpus ?",
    "plan scenarios.yaml --scenario ?",
    "plan scenarios.yaml --framework ?",
    "plan scenarios.yaml --frameworks ?",
    "plan scenarios.yaml --model ?",
    "plan scenarios.yaml --cell ?",
    "plan scenarios.yaml --trainer ?",
    "plan scenarios.yaml --repeats ?",
    "plan scenarios.yaml --memory ?",
    "plan scenarios.yaml --gpu-memory ?",
    "plan scenarios.yaml --assume ?",
    "plan scenarios.yaml --results ?",
    "plan scenarios.yaml --defaults ?",
    "plan scenarios.yaml --accelerate ?",
    "plan ?",
    "run scenarios.yaml --dry-run --parallel ?",
    "run scenarios.yaml --dry-run --gpus ?",
    "run scenarios.yaml --dry-run --executor ?",
    "run scenarios.yaml --dry-run --retry-failed ?",
    "run scenarios.yaml --dry-run --confirm-above ?",
    "list ?",
    "list frameworks ?",
    "list frameworks --frameworks ?",
    "doctor --python ?",
    "monitor --once --interval ?",
    "monitor --once --gpus ?",
    "init ?",
    "init new.yaml --script ?",
    "run-one ?",
    "?",
)


@case(line=OPTIONS)
def odd_values(scene: Scene, line: str) -> None:
    """One option with each odd value: an exit code of the documentation, no traceback, no control characters."""
    campaign(scene)
    scene.codes.update((0, 1, 2, 3, 4))
    if line.startswith("rerun"):
        call(scene, "compare", "good", "results", "--output", "comparison.json")
    for odd in ODD.values():
        said = call(scene, *(word.replace("?", odd) for word in line.split()))
        assert "\x1b[31m" not in said.text and "\u202e" not in said.text, f"raw control characters: {said.words!r:.200}"
        assert "Traceback" not in said.text, f"a traceback of {said.words!r:.200}"
        assert said.code in (0, 1, 2, 3, 4), f"{said.code} of {said.words!r:.200}"


VIEWS = ("plan scenarios.yaml", "report results", "status results", "compare good results", "list metrics", "schema")
STREAMS = {
    "no-stdin": "<&-",
    "no-stdout": ">&-",
    "no-stderr": "2>&-",
    "none": "<&- >&- 2>&-",
    "full-stdout": ">/dev/full",
    "full-both": ">/dev/full 2>/dev/full",
    "left": "| head -c 1",
    "stdin-folder": "< /",
    "stdout-read-only": "1</dev/null",
}


@case(streams=STREAMS, view=VIEWS)
def odd_streams(scene: Scene, streams: str, view: str) -> None:
    """Closed, full and wrong standard streams: 2 instead of 0 if stdout is incomplete because of an error."""
    campaign(scene)
    place = scene.folder / "traced"
    line = f"{sys.executable} -m orchestrator {view} {streams}"
    said = subprocess.run(["bash", "-c", line], cwd=scene.folder, env=scene.env, capture_output=True, timeout=90)
    place.write_bytes(said.stdout + said.stderr)
    assert b"Traceback" not in said.stdout + said.stderr, said.stderr.decode()[-600:]
    assert said.returncode in (0, 1, 2, 3, 4), said.returncode
    if streams == ">/dev/full":  # two equal campaigns cannot be compared, and a code other than 0 stays
        assert said.returncode == (4 if view.startswith("compare") else 2), said.returncode


ENVIRONMENTS: dict[str, dict[str, str | None]] = {
    "no-home": {"HOME": None},
    "home-gone": {"HOME": "/nonexistent"},
    "home-file": {"HOME": "/etc/passwd"},
    "locale-c": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    "locale-odd": {"LC_ALL": "xx_YY.KOI8-R", "LANG": "tlh"},
    "latin-1": {"PYTHONIOENCODING": "latin-1"},
    "utf-16": {"PYTHONIOENCODING": "utf-16"},
    "ascii-strict": {"PYTHONIOENCODING": "ascii:strict"},
    "columns-0": {"COLUMNS": "0"},
    "columns-1": {"COLUMNS": "1"},
    "columns-huge": {"COLUMNS": "99999999"},
    "columns-word": {"COLUMNS": "wide"},
    "columns-negative": {"COLUMNS": "-5"},
    "term-dumb": {"TERM": "dumb", "FORCE_COLOR": "1"},
    "terminal-forced": {"TTY_COMPATIBLE": "1", "TTY_INTERACTIVE": "1", "TERM": "xterm"},
    "no-path": {"PATH": ""},
    "no-term": {"TERM": None, "COLUMNS": None, "LINES": None},
    "tmp-gone": {"TMPDIR": "/nonexistent", "TMP": "/nonexistent"},
    "cache-file": {"TUNEBENCH_CACHE": "/etc/passwd"},
    "cache-empty": {"TUNEBENCH_CACHE": ""},
    "optimised": {"PYTHONOPTIMIZE": "2"},
    "warnings": {"PYTHONWARNINGS": "error"},
    "dev-mode": {"PYTHONDEVMODE": "1"},
    "hash-seed": {"PYTHONHASHSEED": "12345"},
    "zone": {"TZ": "Antarctica/Troll-99:99"},
    "no-bytecode": {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPYCACHEPREFIX": "/dev/null"},
    "bytes-variable": {"ODD_TOKEN": b"\xff\xfe\xfd\xfc\xfb\xfa\xf9\xf8".decode("utf-8", "surrogateescape")},
    "many-gpus": {"CUDA_VISIBLE_DEVICES": "0,99,-1,GPU-x"},
    "period-word": {"TUNEBENCH_NVML_PERIOD_S": "often"},
    "rank": {"RANK": "7", "WORLD_SIZE": "8", "LOCAL_RANK": "7", "MASTER_PORT": "1"},
}


@case(environment=ENVIRONMENTS)
def odd_environments(scene: Scene, environment: dict[str, str | None]) -> None:
    """A run, its report and the views of it, in an odd environment."""
    env = {name: value for name, value in {**scene.env, **environment}.items() if value is not None}
    for words in (("run", "scenarios.yaml", "--yes"), ("status", "results"), ("report", "results")):
        command = [sys.executable, "-m", "orchestrator", *words]
        said = subprocess.run(
            command, cwd=scene.folder, env=env, capture_output=True, timeout=90, stdin=subprocess.DEVNULL
        )
        text = (said.stdout + said.stderr).decode(errors="replace").replace("\0", "")
        assert "Traceback" not in text, text[-800:]
        assert said.returncode in (0, 1, 2), f"{said.returncode}: {text[-300:]}"
    if environment.keys() & {"PATH", "RANK", "PYTHONOPTIMIZE", "HOME", "COLUMNS", "TZ", "LC_ALL"}:
        assert scene.statuses() == ["ok"], scene.statuses()


STUBS = {
    "torch-broken": ("torch.py", "raise OSError('libcudart.so.13: cannot open shared object file')"),
    "torch-exits": ("torch.py", "import sys; sys.exit('no torch here')"),
    "psutil-old": ("psutil.py", "__version__ = '0.1'"),
    "yaml-old": ("yaml.py", "__version__ = '3'"),
    "pydantic-1": ("pydantic.py", "VERSION = '1.10'\nclass BaseModel: pass"),
    "rich-missing": ("rich.py", "raise ImportError('no rich')"),
    "pynvml-broken": ("pynvml.py", "raise RuntimeError('driver/library version mismatch')"),
    "pandas-broken": ("pandas.py", "raise ImportError('numpy.core.multiarray failed to import')"),
    "numpy-broken": ("numpy.py", "raise ImportError('numpy is broken')"),
    "json-shadow": ("secrets.py", "raise ImportError('a file of the user has the name of a module')"),
    "sitecustomize": ("sitecustomize.py", "print('hello from the site')"),
    "transformers-broken": ("transformers.py", "raise ImportError('tokenizers>=0.21 is required')"),
}
# Without these nothing of Tunebench can work, so that a traceback of the import is fair.
ESSENTIAL = ("psutil", "yaml", "pydantic", "rich", "pandas", "numpy", "secrets")


@case(stub={name: stub for name, stub in STUBS.items() if stub[0].removesuffix(".py") not in ESSENTIAL})
def other_packages(scene: Scene, stub: tuple[str, str]) -> None:
    """A broken package of the training does not stop plan, run, doctor and report of a custom command."""
    folder = scene.folder / "stubs"
    folder.mkdir()
    (folder / stub[0]).write_text(stub[1] + "\n")
    scene.env["PYTHONPATH"] = f"{folder}:{scene.env['PYTHONPATH']}"
    assert scene.run().code == 0
    for words in (("plan", "scenarios.yaml", "--fit"), ("doctor",), ("doctor", "--json"), ("report", "results")):
        said = scene.call(*words)
        if "--json" in words and "hello" not in stub[1]:
            json.loads(said.out)


PLUGS = {
    "raises": "raise RuntimeError('plug')",
    "exits": "import sys; sys.exit(3)",
    "syntax": "def (",
    "no-class": "x = 1",
    "wrong-kind": "Plug = 5",
    "raising-class": "class Plug:\n    def __init__(self): raise ValueError('no')",
    "prints": "print('\\x1b[31mhello')\nclass Plug: pass",
}


@case(plug=PLUGS, group=("trainers", "monitors", "executors"))
def broken_plugs(scene: Scene, plug: str, group: str) -> None:
    """A plug of another package that cannot be loaded: a message names it, and everything else works."""
    folder = scene.folder / "plugs"
    info = folder / "evil-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[tunebench.{group}]\nevil = evil_plug:Plug\n")
    (folder / "evil_plug.py").write_text(plug + "\n")
    scene.env["PYTHONPATH"] += f":{folder}"
    assert scene.run().code == 0
    scene.call("list", "trainers")
    option = {"trainers": ("--trainer", "evil"), "executors": ("--executor", "evil")}.get(
        group, ("--set", "monitors=[evil]")
    )
    scene.call("run", "scenarios.yaml", "--yes", *option)
    scene.call("status", "results")


@case(mode={"locked": 0o555, "unsearchable": 0o000})
def folder_that_cannot_be_written(scene: Scene, mode: int) -> None:
    """The working folder of a user who may not write there (root may, so another user is taken)."""
    campaign(scene)
    (scene.folder / "sub").mkdir()
    os.chmod(scene.folder, 0o755)
    os.chmod(scene.folder / "sub", mode)
    scene.cleanups.append(lambda: os.chmod(scene.folder / "sub", 0o755))
    start = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    for view in ("report ../results", "run ../scenarios.yaml --yes", "history ../results", "init", "bundle ../results"):
        line = f"cd {scene.folder}/sub 2>/dev/null; exec {sys.executable} -m orchestrator {view}"
        env = {**scene.env, "PYTHONDONTWRITEBYTECODE": "1"}
        said = subprocess.run([*start, "bash", "-c", line], cwd=ROOT, env=env, capture_output=True, timeout=90)
        if b"Permission denied" in said.stderr and b"python" in said.stderr:
            continue  # the interpreter itself may not be read by that user
        assert b"Traceback" not in said.stderr, f"{view}: {said.stderr.decode()[-600:]}"
        assert said.returncode in (0, 1, 2), (view, said.returncode)
