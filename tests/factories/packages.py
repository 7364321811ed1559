"""Tiny Python packages for tests of software environments: wheels, a local package with its own build backend, a git repository."""

from __future__ import annotations

import subprocess
import zipfile
from collections.abc import Sequence
from pathlib import Path

_BACKEND = """
import pathlib, zipfile

def build_wheel(folder, config_settings=None, metadata_directory=None):
    info, name = "{name}-{version}.dist-info", "{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(f"{{folder}}/{{name}}", "w") as wheel:
        wheel.writestr("{name}.py", pathlib.Path("{name}.py").read_text())
        wheel.writestr(f"{{info}}/METADATA", "Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n")
        wheel.writestr(f"{{info}}/WHEEL", "Wheel-Version: 1.0\\nGenerator: t\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        files = "{name}.py", f"{{info}}/METADATA", f"{{info}}/WHEEL", f"{{info}}/RECORD"
        wheel.writestr(f"{{info}}/RECORD", "".join(f"{{file}},,\\n" for file in files))
    return name
"""


def wheel(folder: Path, name: str, version: str, *, requires: Sequence[str] = (), code: str = "") -> Path:
    """Write a wheel that has one module, which knows its VERSION."""
    folder.mkdir(parents=True, exist_ok=True)
    info, file = f"{name}-{version}.dist-info", folder / f"{name}-{version}-py3-none-any.whl"
    needs = "".join(f"Requires-Dist: {one}\n" for one in requires)
    with zipfile.ZipFile(file, "w") as written:
        written.writestr(f"{name}.py", f"VERSION = {version!r}\n{code}")
        written.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}")
        written.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        files = (f"{name}.py", *(f"{info}/{one}" for one in ("METADATA", "WHEEL", "RECORD")))
        written.writestr(f"{info}/RECORD", "".join(f"{one},,\n" for one in files))
    return file


def local_package(folder: Path, name: str, code: str) -> Path:
    """Write a local package that is built without any other package."""
    folder.mkdir(parents=True, exist_ok=True)
    build = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    (folder / "pyproject.toml").write_text(f'{build}[project]\nname = "{name}"\nversion = "0.1"\n')
    (folder / "backend.py").write_text(_BACKEND.format(name=name, version="0.1"))
    (folder / f"{name}.py").write_text(code)
    return folder


def commit(folder: Path) -> str:
    """Commit the whole folder to its git repository, which is made if needed, and return the commit."""
    who = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    for words in (("init", "--quiet"), ("add", "--all"), (*who, "commit", "--quiet", "--message", "a change")):
        subprocess.run(["git", *words], cwd=folder, check=True)
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()
