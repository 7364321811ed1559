"""Makes instruction pairs from the docstrings of Python's standard library, so that every machine has real English text.

Sources are parsed in a fixed order and never imported, so one Python version gives the same pairs everywhere. A different
version has different docstrings, and so gives different data. `prepare.py` records the version and a digest next to the data.
"""

from __future__ import annotations

import ast
import inspect
import os
import sysconfig
from collections.abc import Iterator
from typing import Union

LEFT_OUT = {"__pycache__", "ensurepip", "idlelib", "lib2to3", "lib-dynload", "pydoc_data", "site-packages", "test",
            "tests", "turtledemo", "dist-packages", "distutils"}  # fmt: skip
SHORTEST = 40  # characters; shorter docstrings say little more than the name
LONGEST = 4000
Documented = Union[ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef]


def stdlib_pairs() -> list[dict[str, str]]:
    """Return rows with `instruction`, `input` (the signature) and `output` (the docstring), sorted by module and line."""
    root = sysconfig.get_paths()["stdlib"]
    return [pair for path in source_files(root) for pair in pairs_of(path, module_name(path, root))]


def source_files(root: str) -> Iterator[str]:
    """Yield the files of public modules and packages, sorted within each folder. A name with an underscore is private."""
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in LEFT_OUT and name.isidentifier() and name[0] != "_")
        public = (name for name in sorted(names) if name[0] != "_" or name == "__init__.py")
        yield from (os.path.join(folder, name) for name in public if name.endswith(".py"))


def module_name(path: str, root: str) -> str:
    parts = os.path.relpath(path, root)[: -len(".py")].split(os.sep)
    return ".".join(part for part in parts if part != "__init__")


def pairs_of(path: str, module: str) -> Iterator[dict[str, str]]:
    """Yield a pair for each public function, class and method with a docstring in a file."""
    try:
        with open(path, encoding="utf-8") as file:
            tree = ast.parse(file.read())
    except (OSError, SyntaxError, ValueError):
        return
    for name, node in documented(tree, module):
        text = inspect.cleandoc(ast.get_docstring(node, clean=False) or "")
        if SHORTEST <= len(text) <= LONGEST:
            yield {"instruction": f"What does {name} do?", "input": signature(name, node), "output": text}


def documented(parent: Union[ast.Module, ast.ClassDef], prefix: str) -> Iterator[tuple[str, Documented]]:
    for node in parent.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
            name = f"{prefix}.{node.name}"
            yield name, node
            if isinstance(node, ast.ClassDef):
                yield from documented(node, name)


def signature(name: str, node: Documented) -> str:
    if isinstance(node, ast.ClassDef):
        bases = ", ".join(ast.unparse(base) for base in node.bases)
        return f"class {name}({bases})" if bases else f"class {name}"
    return f"{name}({ast.unparse(node.args)})"
