"""The instrument's one file; what a target sees of it (nothing), and what is written of its end. No torch needed."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from factories.cases import cases

from orchestrator.trainers import instrumented
from orchestrator.trainers.instrumented import FILE_NAME, PARTS, SOURCES

ALONE = f"alone/{FILE_NAME}"
LOOK = """
import json, pickle, sys
class Own: pass
print(json.dumps({
    "argv": sys.argv, "path": sys.path, "name": __name__, "file": __file__, "package": __package__, "doc": __doc__,
    "spec": __spec__ and __spec__.name, "main": vars(sys.modules["__main__"]) is globals(),
    "pickled": type(pickle.loads(pickle.dumps(Own()))).__name__, "extra": sorted(set(globals()) - {"Own"}),
}))
"""


def run(words: list[str], folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    ours = {"TUNEBENCH_RUN_DIR": str(folder / "results"), **env}
    for name in ("results", "alone"):
        (folder / name).mkdir(exist_ok=True)
    (folder / ALONE).write_text(instrumented.single_file(), encoding="utf-8")
    return subprocess.run(
        [sys.executable, *words], cwd=folder, env={**os.environ, **ours}, capture_output=True, text=True, timeout=60
    )


def written(folder: Path, rank: int = 0) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((folder / f"results/worker-rank{rank}.json").read_text())
    return document


def test_the_one_file_is_the_instrument_and_the_texts_of_its_parts(tmp_path: Path) -> None:
    file = tmp_path / FILE_NAME
    file.write_text(instrumented.single_file(), encoding="utf-8")
    spec = importlib.util.spec_from_file_location("one_file", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    texts = {name: text.encode() for name, (_, text) in module.PARTS.items()}
    assert texts == {name: next(SOURCES.rglob(f"{name}.py")).read_bytes() for name in PARTS}
    lines = file.read_text(encoding="utf-8").splitlines()
    own = (SOURCES / "instrument.py").read_text(encoding="utf-8").splitlines()
    at = own.index("PARTS: dict[str, tuple[int, str]] = {}")
    assert lines[1 : at + 1] == own[:at] and lines[at + 1] + "}" == own[at]
    assert lines[at - len(own) :] == ["}", *own[at + 1 :]]


def test_the_parts_are_those_that_are_asked_for() -> None:
    asked = set()
    for name in ("instrument", *PARTS):
        for node in ast.walk(ast.parse(next(SOURCES.rglob(f"{name}.py")).read_bytes())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in {"part", "load", "self.load", "map"}:
                asked |= {one.value for one in ast.walk(node) if isinstance(one, ast.Constant)}
    assert asked & {file.stem for file in SOURCES.rglob("*.py")} == set(PARTS)


def test_a_target_has_modules_of_the_parts_names_of_its_own(tmp_path: Path) -> None:
    for name in (*PARTS, "instrument"):
        (tmp_path / f"{name}.py").write_text(f"print({name!r})")
    names = ", ".join((*PARTS, "instrument"))
    (tmp_path / "own.py").write_text(f"import sys\nimport {names}\n")
    for target in (["own.py"], ["-m", "own"]):
        assert run([ALONE, "--", *target], tmp_path).stdout.split() == [*PARTS, "instrument"]
        assert written(tmp_path)["status"] == "ok"
    assert not FILE_NAME.removesuffix(".py").isidentifier(), "in the run's folder, too, nobody imports it by mistake"


def test_in_our_tree_its_parts_are_the_files_beside_it(tmp_path: Path) -> None:
    (tmp_path / "end.py").write_text("print('so')")
    assert run([str(SOURCES / "instrument.py"), "--", "end.py"], tmp_path).stdout == "so\n"
    assert written(tmp_path)["status"] == "ok"


@pytest.mark.parametrize("target", [["sub/look.py"], ["-m", "pack.look"], ["-m", "pack"]], ids=" ".join)
def test_a_target_sees_what_it_sees_when_started_directly(target: list[str], tmp_path: Path) -> None:
    for name in ("sub/look.py", "pack/look.py", "pack/__main__.py", "pack/__init__.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("" if name.endswith("__init__.py") else LOOK)
    words = [*target, "--a", "b c", "--"]
    direct = json.loads(run(words, tmp_path).stdout)
    for between in (["--"], []):
        seen = json.loads(run([ALONE, *between, *words], tmp_path).stdout)
        assert {**seen, "extra": None} == {**direct, "extra": None}
        assert set(seen["extra"]) <= set(direct["extra"])
    assert written(tmp_path)["status"] == "ok"


@pytest.mark.parametrize(("source", "code", "error"), cases("instrument/an_end_is_written_and_kept"))
def test_an_end_is_written_and_kept(source: str, code: int, error: dict[str, Any] | None, tmp_path: Path) -> None:
    (tmp_path / "end.py").write_text(source)
    assert run(["end.py"], tmp_path).returncode == code
    assert run([ALONE, "--", "end.py"], tmp_path).returncode == code
    document = written(tmp_path)
    assert document["status"] == ("error" if error else "ok")
    if error is None:
        assert document["error"] is None
    else:
        assert {name: document["error"][name] for name in error} == error
        assert document["error"]["step"] is None
        assert "instrument.py" not in document["error"]["traceback"] or error["type"] == "SyntaxError"


def test_a_missing_target_is_an_error_too(tmp_path: Path) -> None:
    assert run([ALONE, "--", "no-such.py"], tmp_path).returncode == 1
    assert written(tmp_path)["error"]["type"] == "FileNotFoundError"
    assert run([ALONE, "--", "-m", "no_such"], tmp_path).returncode == 1
    assert written(tmp_path)["error"]["message"] == "No module named no_such"


def test_ranks_write_their_own_file(tmp_path: Path) -> None:
    (tmp_path / "end.py").write_text("pass")
    run([ALONE, "--", "end.py"], tmp_path, RANK="3", LOCAL_RANK="1", WORLD_SIZE="4")
    document = written(tmp_path, rank=3)
    assert (document["rank"], document["local_rank"], document["world_size"]) == (3, 1, 4)
    assert sorted(path.name for path in (tmp_path / "results").iterdir()) == ["pids.txt", "worker-rank3.json"]
    assert (tmp_path / "results" / "pids.txt").read_text() == f"{document['pid']}\n"


def test_it_needs_a_target_and_a_folder(tmp_path: Path) -> None:
    assert "usage" in run([ALONE, "--"], tmp_path).stderr
    result = run([ALONE, "--", "end.py"], tmp_path, TUNEBENCH_RUN_DIR="")
    assert (result.returncode, "TUNEBENCH_RUN_DIR" in result.stderr) == (1, True)


@pytest.mark.parametrize("measure", ["{", "[1]", '"fast"'])
def test_it_says_what_its_variables_must_be(measure: str, tmp_path: Path) -> None:
    result = run([ALONE, "--", "end.py"], tmp_path, TUNEBENCH_MEASURE=measure)
    assert result.returncode == 1
    assert result.stderr.startswith("error: TUNEBENCH_MEASURE must be a JSON mapping"), result.stderr


def test_a_target_without_torch_imports_none(tmp_path: Path) -> None:
    (tmp_path / "end.py").write_text("import sys; print([name for name in sys.modules if name in ('torch', 'numpy')])")
    assert run([ALONE, "--", "end.py"], tmp_path).stdout.strip() == "[]"


HOOK = """
import importlib.abc, importlib.util, sys

class Hook(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name != "transformers.trainer":
            return None
        SEARCH
        execute = spec.loader.exec_module
        def exec_module(module):
            execute(module)
            plain = module.Trainer.training_step
            module.Trainer.training_step = lambda *words: print("hooked") or plain(*words)
        spec.loader.exec_module = exec_module
        return spec

sys.meta_path.insert(0, Hook())
"""
TWICE = """
import importlib, importlib.machinery, sys
kept = []

class Keeper:
    def find_spec(self, name, path=None, target=None):
        if name == "transformers.trainer":
            kept[:] = kept or [importlib.machinery.PathFinder.find_spec(name, path)]
            return kept[0]

KEEP
import transformers.trainer
importlib.reload(transformers.trainer)
print(len(transformers.trainer.DEFAULT_CALLBACKS), transformers.trainer.Trainer.training_step.__globals__["__name__"])
"""
ANEW = "sys.meta_path.remove(self); spec = importlib.util.find_spec(name)"
OTHERS = "spec = next(filter(None, (one.find_spec(name, path, target) for one in sys.meta_path if one is not self)))"
TRAINER = """
import types

DEFAULT_CALLBACKS, TrainerCallback, TrainerMemoryTracker = [], object, object

class Trainer:
    args = types.SimpleNamespace(logging_nan_inf_filter=False)

    def training_step(self, model, inputs):
        print("trained")
"""
STEP = """
from transformers.trainer import DEFAULT_CALLBACKS, Trainer
print(len(DEFAULT_CALLBACKS), Trainer.training_step.__globals__["__name__"])
Trainer.training_step(Trainer(), None, {})
"""


@pytest.mark.parametrize("search", [ANEW, OTHERS], ids=["anew", "others"])
@pytest.mark.parametrize("place", ["behind", "before"])
def test_other_import_hooks_have_their_say_too(place: str, search: str, tmp_path: Path) -> None:
    """Each wraps once, in the order of the finders: one behind the instrument's is inside of what is timed."""
    hook = HOOK.replace("SEARCH", search)
    files = {"transformers/__init__.py": "", "transformers/trainer.py": TRAINER}
    files |= {"sitecustomize.py": hook, "step.py": STEP} if place == "behind" else {"step.py": hook + STEP}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    done = run([ALONE, "--", "step.py"], tmp_path, PYTHONPATH=str(tmp_path))
    outermost = "_tunebench_recorder" if place == "behind" else "__main__"
    assert done.stdout.split() == ["1", outermost, "hooked", "trained"], done.stderr


def test_a_traceback_through_a_part_shows_its_lines(tmp_path: Path) -> None:
    failing = TRAINER.replace('print("trained")', "raise KeyError('loss')")
    for name, text in {"transformers/__init__.py": "", "transformers/trainer.py": failing, "step.py": STEP}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    ended = run([ALONE, "--", "step.py"], tmp_path)
    assert ended.returncode == 1
    lines = (tmp_path / ALONE).read_text(encoding="utf-8").splitlines()
    (number,) = (i for i, line in enumerate(lines, 1) if "loss = train(" in line)
    for trace in (ended.stderr, written(tmp_path)["error"]["traceback"]):
        frame = trace[trace.index(f'{ALONE}", line {number}, in training_step\n') :].splitlines()
        assert frame[1] == f"    {lines[number - 1].strip()}"


@pytest.mark.parametrize("keep", ["", "sys.meta_path.insert(1, Keeper())"], ids=["anew", "kept"])
def test_a_trainer_that_is_loaded_again_is_patched_again_and_once(keep: str, tmp_path: Path) -> None:
    for name, text in {"transformers/__init__.py": "", "transformers/trainer.py": TRAINER, "twice.py": TWICE}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text.replace("KEEP", keep))
    done = run([ALONE, "--", "twice.py"], tmp_path)
    assert done.stdout.split() == ["1", "_tunebench_recorder"], done.stderr
