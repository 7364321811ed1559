"""The files that a script imports: those that Python itself loads, and those of branches that were not taken."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.plan.identity.imports import Imports, imports_in, run_as_module


def tree(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def modules(folder: Path, script: str = "train.py", *more: str) -> list[str]:
    """The names of the modules that a script in this folder imports; `more` are folders to look in after its own."""
    file = folder / script
    places = [str(file.parent), *(str(folder / name) for name in more)]
    return [str(Path(found).relative_to(folder)) for found in Imports().modules_of(str(file), places)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import a", ["a.py"]),
        ("import os, json, a as b", ["a.py"]),
        ("import p", ["p/__init__.py"]),
        ("import p.m", ["p/__init__.py", "p/m.py", "a.py"]),
        ("from p import m", ["p/__init__.py", "p/m.py", "a.py"]),
        ("from p import VALUE", ["p/__init__.py"]),
        ("from p.m import thing", ["p/__init__.py", "p/m.py", "a.py"]),
        ("from p import *", ["p/__init__.py"]),
        ("import q.o", ["q/o.py"]),
        ("from q import o", ["q/o.py"]),
        ("import q", []),
        ("import torch.nn, missing", []),
        ("def late():\n    if False:\n        import a", ["a.py"]),
        ("try:\n    import fast\nexcept ImportError:\n    import a", ["a.py"]),
        ("from __future__ import annotations\nimport train", []),
        ("import relative.deep.x", ["relative/deep/x.py", "relative/y.py"]),
        ("import broken", ["broken.py"]),
        ("import a\nthis is not Python code", ["a.py"]),
        ("print('\\d')  # a SyntaxWarning for the shell of nobody\nimport a", ["a.py"]),
    ],
)
def test_imports_are_followed_to_the_files_of_the_folder(tmp_path: Path, text: str, found: list[str]) -> None:
    files = {"a.py": "", "p/__init__.py": "VALUE = 1", "p/m.py": "import a", "q/o.py": "", "broken.py": "import ("}
    more = {"relative/deep/x.py": "from ..y import z\nfrom ....secret import w", "relative/y.py": "", "train.py": text}
    assert modules(tree(tmp_path, {**files, **more})) == found


def test_a_circle_ends_and_each_file_is_found_once(tmp_path: Path) -> None:
    tree(tmp_path, {"train.py": "import a, b", "a.py": "import b\nimport train", "b.py": "import a"})
    assert modules(tmp_path) == ["a.py", "b.py"]


def test_the_script_s_own_folder_comes_first_and_nothing_outside_the_folders_is_found(tmp_path: Path) -> None:
    files = {"own/train.py": "import a, b\nfrom .. import c", "own/a.py": "", "a.py": "", "b.py": "", "c.py": ""}
    tree(tmp_path, files)
    assert modules(tmp_path, "own/train.py") == ["own/a.py"]
    assert modules(tmp_path, "own/train.py", ".") == ["own/a.py", "b.py", "c.py"]


def test_a_package_is_taken_before_a_module_and_a_module_before_a_plain_folder(tmp_path: Path) -> None:
    tree(tmp_path, {"train.py": "import x.m, y.m", "x/__init__.py": "", "x.py": "", "x/m.py": "", "y.py": ""})
    tree(tmp_path, {"y/m.py": ""})
    assert modules(tmp_path) == ["x/__init__.py", "x/m.py", "y.py"]


def test_a_module_that_is_run_brings_its_packages(tmp_path: Path) -> None:
    tree(tmp_path, {"p/__init__.py": "", "p/train.py": "", "p/s/__init__.py": "", "p/s/__main__.py": "", "q/o.py": ""})

    def run(name: str) -> list[str]:
        return [str(Path(file).relative_to(tmp_path)) for file in run_as_module(name, str(tmp_path))]

    assert run("p.train") == ["p/__init__.py", "p/train.py"]
    assert run("p.s") == ["p/__init__.py", "p/s/__init__.py", "p/s/__main__.py"]
    assert run("q.o") == ["q/o.py"]
    assert run("p") == run("p.missing") == run("torch.distributed.run") == []


def test_a_file_that_cannot_be_read_imports_nothing(tmp_path: Path) -> None:
    (tmp_path / "loop.py").symlink_to(tmp_path / "loop.py")
    (tmp_path / "binary.py").write_bytes(b"\xff\x00import a")
    assert imports_in(str(tmp_path / "loop.py")) == imports_in(str(tmp_path / "binary.py")) == ()


def test_a_file_for_a_newer_python_still_imports(tmp_path: Path) -> None:
    newer = "import a\nfrom p import (\n    m,\n    n,\n)\ndef first(x):\n    import b\n    return x ?? from here\n"
    (tmp_path / "newer.py").write_text(newer)
    assert imports_in(str(tmp_path / "newer.py")) == ((0, "a"), (0, "p.m"), (0, "p.n"), (0, "b"))


FILES = ["a.py", "b.py", "p/__init__.py", "p/m.py", "p/s/__init__.py", "p/s/n.py", "q/o.py", "q/r/__init__.py"]
IMPORTS = [
    *("import a", "import b as c", "import p", "import p.m", "from p import m, s", "from p.s import n", "import q.o"),
    *("from q import o", "from q import r", "import q.r", "import p.s.n", "from p import *", "from a import thing"),
    *(
        "from . import m",
        "from .m import x",
        "from .. import m",
        "from .s import n",
        "from ..m import x",
        "from . import n",
    ),
]
CODE = st.lists(st.sampled_from(IMPORTS), max_size=4)
# At its end, the script prints the files of this folder that Python has loaded.
END = """
import sys, os
here = os.path.dirname(os.path.abspath(__file__)) + os.sep
files = {str(getattr(module, "__file__", None)) for name, module in sys.modules.items() if name != "__main__"}
print(*sorted(file for file in files if file.startswith(here)), sep="\\n")
"""


@settings(max_examples=25, deadline=None)
@given(st.dictionaries(st.sampled_from(FILES), CODE), CODE)
def test_whatever_python_loads_is_found(files: dict[str, list[str]], script: list[str]) -> None:
    def code(lines: list[str]) -> str:
        return "".join(f"try:\n    {line}\nexcept Exception:\n    pass\n" for line in lines)

    with tempfile.TemporaryDirectory() as name:
        folder = tree(Path(name).resolve(), {file: code(lines) for file, lines in files.items()})
        (folder / "train.py").write_text(code(script) + END)
        argv = [sys.executable, "-S", "-B", str(folder / "train.py")]
        ended = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60)
        found = set(modules(folder))
        loaded = {str(Path(line).relative_to(folder)) for line in ended.stdout.split()}
    assert loaded <= found <= set(FILES)


def test_a_large_file_is_not_parsed_as_a_whole(tmp_path: Path) -> None:
    """Python's parser would take gigabytes for generated data, and the result would depend on the free memory."""
    data = f"x = [{'1, ' * 2_000_000}]\n"
    big = f"import a\nif True:\n    from p import m\n{data}  import not this one\ntext = 'import c'\n"
    folder = tree(
        tmp_path, {"train.py": "import big", "big.py": big, "a.py": "", "c.py": "", "p/__init__.py": "", "p/m.py": ""}
    )
    code = "import resource; resource.setrlimit(resource.RLIMIT_AS, (2**29, 2**29)); import sys; "
    code += "from orchestrator.plan.identity.imports import *; print(imports_in(sys.argv[1]))"
    limited = subprocess.run(
        [sys.executable, "-c", code, str(folder / "big.py")], capture_output=True, text=True, check=True
    )
    assert limited.stdout == "((0, 'a'), (0, 'p.m'))\n"
    assert modules(folder) == ["big.py", "a.py", "p/__init__.py", "p/m.py"]


@pytest.mark.parametrize(
    ("text", "listed", "found"),
    [
        ("from p import *", '__all__ = ["m", "VALUE"]', ["p/__init__.py", "p/m.py"]),
        ("from p import *", '__all__: list[str] = ("m",)', ["p/__init__.py", "p/m.py"]),
        ("from p import *", '__all__ = ["n"]\n__all__ += ["m"]', ["p/__init__.py", "p/n.py", "p/m.py"]),
        ("from p import *", "__all__ = [name for name in globals()]", ["p/__init__.py"]),
        ("from p import *", '__all__ = ["../secret", "no such"]', ["p/__init__.py"]),
        ("import p.o", '__all__ = ["m"]', ["p/__init__.py", "p/o.py", "p/m.py"]),
    ],
)
def test_a_star_imports_the_modules_that_the_package_lists(
    tmp_path: Path, text: str, listed: str, found: list[str]
) -> None:
    files = {"p/__init__.py": listed, "p/m.py": "", "p/n.py": "", "p/o.py": "from . import *", "train.py": text}
    assert modules(tree(tmp_path, files)) == found


@pytest.mark.parametrize(
    ("files", "found"),
    [
        (["fast.so"], ["fast.so"]),
        (["fast.cpython-311-x86_64-linux-gnu.so"], ["fast.cpython-311-x86_64-linux-gnu.so"]),
        (["fast.so", "fast.py"], ["fast.so", "fast.py"]),
        (["fast.abi3.so", "fast/__init__.py"], ["fast/__init__.py"]),
        (["faster.so"], []),
    ],
)
def test_a_compiled_module_is_a_file_of_the_script(tmp_path: Path, files: list[str], found: list[str]) -> None:
    """If a Python file of the same name exists too, the version of the interpreter decides, so both count."""
    assert modules(tree(tmp_path, {**dict.fromkeys(files, "\x7fELF\0"), "train.py": "import fast"})) == found
