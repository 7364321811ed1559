"""Facts of the machine: found quickly, never by an exception."""

import ast
import importlib.metadata
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.machine import gpus, provenance
from orchestrator.machine.environments import request_digest
from orchestrator.records import Gpu

ROOT = Path(__file__).parents[2]
GPUS = tuple(Gpu(index=number, uuid=f"GPU-{number}{number}-x", name="NVIDIA X") for number in range(4))


def test_packages_of_our_interpreter_are_what_importlib_says():
    path = [folder for folder in sys.path if not folder.endswith("_vendor")]
    installed = importlib.metadata.distributions(path=path)
    expected = {re.sub(r"[-_.]+", "-", one.name).lower(): one.version for one in installed}
    found = provenance.Machine().packages(None)
    assert {name: found.get(name) for name in expected} == expected
    assert provenance.Machine().packages(sys.executable) == found


def test_copies_of_setuptools_are_not_installed_packages(tmp_path: Path) -> None:
    for folder in ("site", "site/setuptools/_vendor"):
        (tmp_path / folder / f"{folder[-4:]}-1.0.dist-info").mkdir(parents=True)
    path = [str(tmp_path / folder) for folder in ("site", "site/setuptools/_vendor")]
    assert provenance.installed(path) == {"site": "1.0"}


def test_a_package_that_was_built_in_its_sources_has_the_version_of_its_metadata(tmp_path: Path) -> None:
    """PyTorch's `setup.py develop` leaves a folder without a version in its name: nothing could run with such a build."""
    for name, version in (("torch", "2.14.0a0+git1234abc"), ("my_lib", "1.0")):
        (tmp_path / f"{name}.egg-info").mkdir()
        text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nSummary: x\n\nVersion: 9\n"
        (tmp_path / f"{name}.egg-info" / "PKG-INFO").write_text(text)
    (tmp_path / "empty.egg-info").mkdir()
    (tmp_path / "odd.dist-info").mkdir()
    (tmp_path / "old-3.0-py3.12.egg-info").touch()
    (tmp_path / "flash_attn_3-3.0.0b1-py3.9-linux-x86_64.egg").mkdir()
    assert provenance.installed([str(tmp_path)]) == {
        "torch": "2.14.0a0+git1234abc",
        "my-lib": "1.0",
        "old": "3.0",
        "flash-attn-3": "3.0.0b1",
    }


def test_a_checkout_in_the_current_folder_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lib.egg-info").mkdir()
    (tmp_path / "lib.egg-info" / "PKG-INFO").write_text("Version: 1.0\n")
    monkeypatch.chdir(tmp_path)
    assert provenance.installed(["", "/nowhere"]) == {}
    assert provenance.installed(["", str(tmp_path)]) == {"lib": "1.0"}, "installed from there, or on PYTHONPATH"


def test_packages_are_found_also_if_the_current_folder_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A training may remove the folder in which its campaign was started."""
    (tmp_path / "gone").mkdir()
    (tmp_path / "lib-1.0.dist-info").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    found = [provenance.installed(path) for path in ([str(tmp_path)], ["", str(tmp_path)])]
    monkeypatch.undo()
    assert found == [{"lib": "1.0"}] * 2


def test_an_interpreter_that_is_not_there_has_no_packages():
    assert provenance.Machine().packages("/nowhere/python") == {}


@pytest.mark.parametrize("answer", ["null", "3", "[1, []]", '["3.11", [1]]', '["3.11", "/usr"]', "[" * 9999, "{}", ""])
def test_another_program_in_place_of_the_interpreter_has_no_packages(tmp_path: Path, answer: str) -> None:
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\necho '{answer}'\n")
    program.chmod(0o755)
    assert provenance.python_version(str(program)) is None
    assert provenance.Machine().packages(str(program)) == {}


def wrapper(path: Path, before: str = "", after: str = "") -> str:
    """Write an interpreter that is a shell script, which prints something of its own."""
    path.write_text(f'#!/bin/sh\n{before}\n{sys.executable} "$@"\ncode=$?\n{after}\nexit $code\n')
    path.chmod(0o755)
    return str(path)


SAYS = {
    "lines before": ("echo 'loading module {}'; echo '[1]'", ""),
    "a title": ("printf '\\033]0;python\\007'", ""),
    "a progress bar": ("printf 'loading 10%%\\rloading 100%%\\r'", ""),
    "lines after": ("", "echo; echo '[2]'; echo 'python took 3 s'"),
    "text after": ("", "printf done"),
    "its command before": ('echo "running: $@"', ""),
    "its command after": ("", 'echo "ended: $@"'),
    "bytes": ("printf '\\377\\376\\000'", "printf '\\377'"),
    "Windows line ends": ("printf 'loading\\r\\n'", "printf '\\r\\n'"),
}


@pytest.mark.parametrize(("before", "after"), SAYS.values(), ids=SAYS.keys())
def test_what_an_interpreter_prints_before_and_after_is_not_its_answer(tmp_path: Path, before: str, after: str) -> None:
    python = wrapper(tmp_path / "python", before, after)
    assert provenance.python_version(python) == provenance.python_version(None)
    assert provenance.Machine().packages(python) == provenance.Machine().packages(sys.executable)
    assert request_digest.starts(Path(python))


@pytest.mark.parametrize("is_own", [True, False], ids=["own", "python"])
@pytest.mark.parametrize(
    ("python_path", "version"),
    [
        *((path, None) for path in ("", ":", "./", ":/nowhere", "/nowhere:.")),
        *((path, "2.0") for path in (":{X}", ".:{X}", "../here:{X}", "sub:{X}", "{X}:")),
        *((path, "1.0") for path in ("{HERE}", "{HERE}/../here:{X}", ":{HERE}:{X}", "{HERE}:.")),
        ("{HERE}/sub:{X}", "3.0"),
    ],
)
def test_folders_that_depend_on_the_current_folder_are_not_those_of_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, python_path: str, version: str | None, is_own: bool
) -> None:
    """A run works in another folder. An absolute folder that is the current one counts."""
    for folder, of in (("here", "1.0"), ("x", "2.0"), ("here/sub", "3.0")):
        (tmp_path / folder / "my_lib.egg-info").mkdir(parents=True)
        (tmp_path / folder / "my_lib.egg-info" / "PKG-INFO").write_text(f"Version: {of}\n")
        (tmp_path / folder / f"other-{of}.dist-info").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("PYTHONPATH", python_path.format(X=tmp_path / "x", HERE=tmp_path / "here"))
    python = None if is_own else wrapper(tmp_path / "python")
    code = f"from orchestrator.machine import provenance as p; print(p.Machine().packages({python!r}))"
    # Tunebench deletes the current folder from its own path (`__main__.py`).
    argv = [sys.executable, "-P", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); {code}"]
    found = ast.literal_eval(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)
    assert [found.get("my-lib"), found.get("other")] == [version, version]


@pytest.mark.parametrize("is_own", [True, False], ids=["own", "python"])
@pytest.mark.parametrize(
    ("python_path", "version"),
    [("{X}", "2.0"), ("relative:{X}:", "2.0"), (None, None), ("", None), ("relative", None), ("{X}:{SHELL}", "2.0")],
)
def test_the_variables_of_a_run_are_those_that_its_packages_are_read_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, python_path: str | None, version: str | None, is_own: bool
) -> None:
    for folder, of in (("shell", "1.0"), ("x", "2.0")):
        (tmp_path / folder / f"other-{of}.dist-info").mkdir(parents=True)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "shell"))
    python = None if is_own else wrapper(tmp_path / "python")
    given = python_path and python_path.format(X=tmp_path / "x", SHELL=tmp_path / "shell")
    env = {"PYTHONPATH": given, "MORE": "1"}
    assert provenance.Machine().packages(python, env).get("other") == version
    assert provenance.collect(python, (), env)["packages"].get("other") == version
    assert provenance.Machine().packages(sys.executable, {"MORE": "1"})["psutil"]


def test_the_frozen_packages_are_those_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder, of in (("here", "1.0"), ("x", "2.0")):
        (tmp_path / folder / f"other-{of}.dist-info").mkdir(parents=True)
        text = f"Metadata-Version: 2.1\nName: other\nVersion: {of}\n"
        (tmp_path / folder / f"other-{of}.dist-info" / "METADATA").write_text(text)
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("PYTHONPATH", f":{tmp_path / 'x'}")
    for python in (None, wrapper(tmp_path / "python")):
        assert re.findall("(?m)^other==.*", provenance.pip_freeze(python)) == ["other==2.0"]


def test_collect_is_json_and_holds_the_facts():
    facts = json.loads(json.dumps(provenance.collect(None, (), {})))
    assert facts["host"]["cpu_count"] >= 1 and facts["host"]["memory_bytes"] > 0
    assert facts["python"]["version"] and facts["packages"]["psutil"] and facts["gpus"] == []


def test_pip_freeze_names_packages():
    assert re.search(r"(?mi)^psutil==", provenance.pip_freeze(None))


def test_importing_provenance_is_cheap():
    heavy = "import sys, orchestrator.machine.provenance, orchestrator.monitors; print(sorted(sys.modules))"
    modules = subprocess.run([sys.executable, "-c", heavy], capture_output=True, text=True, check=True).stdout
    for name in ("torch", "pandas", "pynvml", "psutil", "pydantic", "transformers"):
        assert f"'{name}'" not in modules


def test_no_gpu_where_none_is_to_be_seen(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert gpus.visible_gpus() == ()


def test_gpus_by_index_and_by_uuid():
    assert gpus.find_gpu("2", GPUS) is GPUS[2]
    assert gpus.find_gpu("GPU-33", GPUS) is GPUS[3]
    assert [gpus.find_gpu(word, GPUS) for word in ("9", "-1", "GPU-", "x", "")] == [None] * 5


def test_the_list_ends_at_its_first_wrong_word_and_comes_in_pci_order():
    assert gpus._visible(None, GPUS, "3,1") == (GPUS[1], GPUS[3])
    assert gpus._visible(None, GPUS, "0,-1,2") == (GPUS[0],)
    assert gpus._visible(None, GPUS, "GPU-22-x, 0") == (GPUS[0], GPUS[2])
