"""The Python files that a script imports from folders of the user. The imports are found by reading the files; no file is run.

Every `import` counts, even inside a function, an `if` or a `try`. A name is searched in the given folders, in Python's order: a
package, a compiled module (`NAME.so`, `NAME.*.so`), a module, then a folder without `__init__.py`. A name that is in none of these
folders is an installed package. Installed packages are not followed. `from PACKAGE import *` imports the modules that the package
lists in `__all__`. Names that a program computes while it runs are not found.
"""

from __future__ import annotations

import glob
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import chain
from typing import IO

# The number of leading dots, and the dotted name after these dots. For `from a import b`, the name is `a.b`, and for
# `from a import *` it is `a.*`.
Import = tuple[int, str]

# Python's parser takes 500 times as much memory as its text. So a larger file, such as generated data, is not parsed as a whole.
LARGE_BYTES = 256 * 1024
_LONGEST_IMPORT = 10_000
_STAR = "*"


class Imports:
    """Finds imported files. Each object reads a file only once, so use a new object for every plan."""

    def __init__(self) -> None:
        self._of_file = lru_cache(maxsize=None)(imports_in)
        self._on_path = lru_cache(maxsize=None)(on_path)

    def modules_of(self, script: str, folders: Sequence[str]) -> tuple[str, ...]:
        """Return the files that a script imports, directly or through other files, in the order in which they are found.

        `folders` are the folders in which Python looks for modules, in Python's order.
        """
        found: dict[str, None] = {script: None}
        unread = [script]
        for file in unread:
            new = [module for module in self._imported(file, folders) if module not in found]
            unread += dict.fromkeys(new)
            found |= dict.fromkeys(new)
        return tuple(found)[1:]

    def _imported(self, file: str, folders: Sequence[str]) -> Iterator[str]:
        for level, name in self._of_file(file):
            if level == 0:
                yield from next(filter(None, (self._files(folder, name) for folder in folders)), ())
                continue
            package = os.path.normpath(os.path.join(os.path.dirname(file), *[os.pardir] * (level - 1)))
            if any(is_inside(package, folder) for folder in folders):
                yield from self._files(package, name)

    def _files(self, folder: str, name: str) -> tuple[str, ...]:
        """Return the files that an import runs from this folder."""
        package, star, _ = name.partition(_STAR)
        if not star:
            return self._on_path(folder, name)
        package = package.rstrip(".")
        files = self._on_path(folder, package) if package else ()
        listed = _exported(os.path.join(folder, *package.split("."), "__init__.py"))
        modules = (self._on_path(folder, ".".join(filter(None, (package, module)))) for module in listed)
        return tuple(dict.fromkeys((*files, *chain.from_iterable(modules))))


def is_inside(path: str, folder: str) -> bool:
    """Return whether a path is this folder or is inside this folder. The path must be normalised."""
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def run_as_module(name: str, folder: str) -> tuple[str, ...]:
    """Return the files that `python -m NAME` runs from this folder: the enclosing packages, then the module.

    Return no files if the folder has no such module.
    """
    own = os.path.join(folder, *name.split("."))
    targets = [file for file in (f"{own}.py", os.path.join(own, "__main__.py")) if os.path.isfile(file)]
    return tuple(dict.fromkeys((*on_path(folder, name), *targets))) if targets else ()


def on_path(folder: str, name: str) -> tuple[str, ...]:
    """Return the files that `import NAME` runs from this folder: the enclosing packages, then the module."""
    files: list[str] = []
    for part in name.split("."):
        folder = os.path.join(folder, part)
        package = os.path.join(folder, "__init__.py")
        if os.path.isfile(package):
            files.append(package)
        elif module := _modules(folder):
            return (*files, *module)
        elif not os.path.isdir(folder):
            break
    return tuple(files)


def _modules(path: str) -> tuple[str, ...]:
    """Return the modules of this name. The interpreter takes a compiled one if it fits its version, else the Python file."""
    compiled = sorted(glob.glob(f"{glob.escape(path)}.so") + glob.glob(f"{glob.escape(path)}.*.so"))
    return (*compiled, *filter(os.path.isfile, [f"{path}.py"]))


def _exported(file: str) -> tuple[str, ...]:
    """Return the names in the `__all__` of a Python file, as far as they are written there as words."""
    import ast

    try:
        with open(file, "rb") as stream, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(stream.read(LARGE_BYTES))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    names: dict[str, None] = {}
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            words = (one.value for one in ast.walk(node) if isinstance(one, ast.Constant))
            names |= {word: None for word in words if isinstance(word, str) and word.isidentifier()}
    return tuple(names)


def imports_in(file: str) -> tuple[Import, ...]:
    """Return the imports of a Python file. Return no imports if the file cannot be read.

    Of a file above LARGE_BYTES, and of a file that this version of Python cannot parse, only whole imports are parsed.
    """
    import ast

    try:
        with open(file, "rb") as stream, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a warning about the user's code would be shown in the plan
            tree = None
            if os.fstat(stream.fileno()).st_size <= LARGE_BYTES:
                with suppress(SyntaxError, ValueError, RecursionError, MemoryError):
                    tree = ast.parse(stream.read())
            if tree is None:
                stream.seek(0)
                tree = ast.parse(_statements(stream))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    imports: dict[Import, None] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imports |= {(0, alias.name): None for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names = [alias.name for alias in node.names]
            imports |= {(node.level, ".".join(filter(None, (node.module, name)))): None for name in names}
    return tuple(imports)


def _statements(stream: IO[bytes]) -> str:
    """Return the imports of a file, one below the other. They may be indented, and names in brackets may fill several lines."""
    import ast

    found, begun = [], b""
    for line in stream:
        if begun or (len(line) <= _LONGEST_IMPORT and line.lstrip().startswith((b"import ", b"from "))):
            begun += line
            if b"(" in begun and b")" not in begun and len(begun) <= _LONGEST_IMPORT:
                continue
            text, begun = begun.strip().decode("utf-8", "replace"), b""
            with suppress(SyntaxError, ValueError):
                ast.parse(text)
                found.append(text)
    return "\n".join(found)
