"""Files that the system refuses: names that are too long, folders that are read-only. The command says so in a sentence."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from campaigns import ROOT, Call, tunebench

from orchestrator.errors import ResultsError
from orchestrator.files import writing
from orchestrator.plan.config import read_document

SCENARIO = """\
scenarios:
- name: {name}
  trainer: custom
  device: cpu
  custom: {{command: ["{{python}}", -c, "0"], launcher: none}}
"""
LONG = "x" * 256
COMMANDS = (
    "run s.yaml --results",
    "run s.yaml --move-aside --results",
    "plan s.yaml --results",
    "plan --frameworks",
    "list frameworks --frameworks",
    "status",
    "report",
    "cancel",
    "show a --results",
    "compare --aa",
    "history",
    "bundle",
    "export --to tensorboard",
    "init",
    "init --script",
    "doctor --python",
)
# Root may do everything, unless it lacks these rights.
AS_USER = ["setpriv", *(f"--{option}=-dac_override,-dac_read_search" for option in ("bounding-set", "inh-caps"))]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("path", [LONG, "y/" * 2500], ids=["long name", "long path"])
def test_a_path_that_is_too_long_is_said(command: str, path: str, tmp_path: Path, call: Call) -> None:
    (tmp_path / "s.yaml").write_text(SCENARIO.format(name="a"))
    code, _, err = call(tmp_path, *command.split(), path)
    assert code == 2
    said = [line for line in err.splitlines() if line.startswith("error: ")]
    assert len(said) == 1, err[:2000]


TO_LOOP = (
    "history loop",
    "report loop",
    "report --output loop results",
    "bundle --output loop results",
    "export --to tensorboard --dest loop results",
    "export --to mlflow --dest loop results",
    "plan loop/s.yaml",
)


def test_a_link_that_leads_to_itself_is_a_sentence(tmp_path: Path, call: Call) -> None:
    (tmp_path / "s.yaml").write_text(SCENARIO.format(name="a"))
    assert call(tmp_path, "run", "s.yaml", "--yes")[0] == 0
    (tmp_path / "loop").symlink_to("loop")
    for command in TO_LOOP:
        code, _, err = call(tmp_path, *command.split())
        assert code == 2 and "Traceback" not in err, f"{command}: {err[-500:]}"
        assert len([line for line in err.splitlines() if line.startswith("error: ") and "loop" in line]) == 1, err


def test_the_sentence_has_the_name_and_the_cure(tmp_path: Path, call: Call) -> None:
    code, _, err = call(tmp_path, "status", LONG)
    assert code == 2
    assert err == f"error: {LONG}: File name too long; choose a shorter path\n"


@pytest.fixture
def as_user(tmp_path: Path) -> Callable[..., str]:
    """Call a command that must fail, as a user without the rights of root. Return the last line of its errors."""
    start = [] if os.geteuid() else AS_USER
    if start and (not shutil.which("setpriv") or subprocess.run([*AS_USER, "true"], check=False).returncode):
        pytest.skip("no one can give up the rights of root here")
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TUNEBENCH_CACHE": str(tmp_path / "cache"), "COLUMNS": "1000"}

    def last_error(*words: str) -> str:
        argv = [*start, sys.executable, "-m", "orchestrator", *words]
        done = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 2, done.stdout
        return done.stderr.splitlines()[-1]

    return last_error


def test_a_new_experiment_in_a_read_only_folder_is_refused(tmp_path: Path, as_user: Callable[..., str]) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.yaml").write_text(SCENARIO.format(name=name))
    assert tunebench(tmp_path, "run", "a.yaml", "--yes").code in (0, 1)
    experiments = tmp_path / "results" / "experiments"
    experiments.chmod(0o500)
    last = as_user("run", "b.yaml", "--yes")
    experiments.chmod(0o700)
    assert last.startswith(f"error: {experiments}/b-"), last
    assert last.endswith(": Permission denied; make it writable and readable")


@pytest.mark.parametrize(
    ("part", "sentence"),
    [
        ("experiments/*/runs/r1-t1", "{}/record.json: Permission denied; make it writable and readable"),
        ("suite.json", "{}: cannot be read: Permission denied; make it readable"),
        (".", "{}/suite.json: cannot be read: Permission denied; make it readable"),
    ],
)
def test_a_part_of_a_folder_that_cannot_be_read_is_named_alike_by_each_command(
    part: str, sentence: str, tmp_path: Path, call: Call, as_user: Callable[..., str]
) -> None:
    (tmp_path / "s.yaml").write_text(SCENARIO.format(name="a"))
    for folder in ("results", "other"):
        assert call(tmp_path, "run", "s.yaml", "--yes", "--results", folder)[0] in (0, 1)
    results = tmp_path / "results"
    (hidden,) = results.glob(part) if part != "." else [results]
    hidden.chmod(0o400 if part == "." else 0)  # the folder itself may be listed, but not entered
    commands = ("status", "report", "compare other", "history other", "export --to tensorboard --dest there")
    said = {command: as_user(*command.split(), str(results)) for command in commands}
    hidden.chmod(0o700)
    assert said == dict.fromkeys(said, f"error: {sentence.format(hidden)}")


@pytest.fixture
def small_files() -> Iterator[None]:
    """The shell's limit of file sizes (ulimit -f). As on a full disk, the system does not name the file that it cannot write."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (700, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.usefixtures("small_files")
@pytest.mark.parametrize("write", [writing.replace, writing.place_once, writing.place_new, writing.append])
def test_a_file_that_cannot_be_written_is_named(write: Callable[[Path, str], object], tmp_path: Path) -> None:
    with pytest.raises(OSError, match="File too large") as caught:
        write(tmp_path / "a", "x" * 1000)
    assert caught.value.filename == str(tmp_path / "a")
    assert not [path for path in tmp_path.iterdir() if path.name != "a"]


@pytest.fixture
def no_links(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that has no hard links, such as exFAT."""

    def refuse(source: Path, target: Path) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), str(source), None, str(target))

    monkeypatch.setattr(os, "link", refuse)


@pytest.mark.usefixtures("no_links")
def test_a_file_system_without_hard_links_is_named_whatever_the_file_is(tmp_path: Path) -> None:
    with pytest.raises(ResultsError) as caught:
        writing.place_once(tmp_path / "comparison.json", "{}")
    assert str(caught.value).startswith(f"{tmp_path}/comparison.json: the file system cannot make hard links (")
    assert str(caught.value).endswith("; choose a folder on another disk") and "--results" not in str(caught.value)
    assert not [*tmp_path.iterdir()]


@pytest.mark.usefixtures("no_links")
def test_a_new_file_of_the_users_needs_no_hard_links_and_replaces_nothing(tmp_path: Path) -> None:
    made = tmp_path / "answer.csv"
    assert writing.place_new(made, "1") and not writing.place_new(made, "2")
    empty, link = tmp_path / "empty.csv", tmp_path / "link.csv"
    empty.touch()
    link.symlink_to("nowhere")
    assert not writing.place_new(empty, "2") and not writing.place_new(link, "2")
    assert (made.read_text(), empty.read_text()) == ("1", "")
    assert sorted(tmp_path.iterdir()) == [made, empty, link]


@pytest.mark.usefixtures("no_links")
@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "full"), FileExistsError(errno.EEXIST, "x"), KeyboardInterrupt()]
)
def test_a_new_file_that_cannot_get_its_name_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def fail(source: Path, target: Path) -> None:
        raise error

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(type(error)):
        writing.place_new(tmp_path / "a", "1")
    assert not [*tmp_path.iterdir()]


def test_results_that_were_copied_to_a_disk_without_hard_links_are_read_but_no_run_starts(
    tmp_path: Path, call: Call, request: pytest.FixtureRequest
) -> None:
    (tmp_path / "s.yaml").write_text(SCENARIO.format(name="a"))
    again = ("run", "s.yaml", "--yes")
    code = call(tmp_path, *again)[0]
    request.getfixturevalue("no_links")
    assert [call(tmp_path, *again, *more)[0] for more in ((), ("--repeats", "2", "--dry-run"))] == [code, 0]
    refused, _, err = call(tmp_path, *again, "--repeats", "2")
    assert refused == 2
    assert err.splitlines()[-1].startswith(f"error: {tmp_path}/results: the file system cannot make hard links (")
    assert not [*tmp_path.glob("results/**/r2-t1")] and not [*tmp_path.glob("results/.*")]
    for command in ("status", "report", "show a --results", "bundle"):
        assert call(tmp_path, *command.split(), "results")[0] in (0, 1), command


@pytest.mark.parametrize("of", ["touch", "link"])
def test_a_disk_is_not_without_hard_links_because_of_another_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of: str
) -> None:
    """The file that is written there next names the error. A folder that forbids new files gives EPERM as well."""

    def fail(*_: object, **__: object) -> None:
        number = errno.EPERM if of == "touch" else errno.ENOSPC
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(*((Path, "touch") if of == "touch" else (os, "link")), fail)
    writing.refuse_without_links(tmp_path)
    assert not [*tmp_path.iterdir()]


@pytest.mark.usefixtures("small_files")
def test_a_limit_of_file_sizes_ends_a_campaign_with_a_sentence(tmp_path: Path, call: Call) -> None:
    (tmp_path / "s.yaml").write_text(SCENARIO.format(name="a"))
    code, _, err = call(tmp_path, "run", "s.yaml", "--yes")
    assert code == 2
    assert err.endswith("experiment.json: File too large; raise the limit of file sizes (ulimit -f)\n"), err


@pytest.mark.parametrize("name", ["new\nline.yaml", "no-utf8-\udcff.yaml", "# 'quoted'.yaml"])
def test_a_starter_with_a_strange_name_is_a_scenario_file(name: str, tmp_path: Path, call: Call) -> None:
    code, _, err = call(tmp_path, "init", name)
    assert code == 0, err
    assert "scenarios" in read_document(tmp_path / name).value
