"""Software environments that are really built, from wheels that the tests write: reused, shared, killed, failed and removed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import takewhile
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any

import pytest
from campaigns import ROOT

from orchestrator.campaign.environments import with_environments
from orchestrator.errors import BuildError
from orchestrator.machine import environments, provenance
from orchestrator.machine.environments import installers, inventory, locks
from orchestrator.machine.environments.places import Place, place_of
from orchestrator.machine.process_identity import start_time
from orchestrator.plan.config import load_suite
from orchestrator.plan.expand import Plan, expand, has_id
from orchestrator.plan.selection import parse_selection
from orchestrator.records.environment import EnvironmentRequest
from tests.factories import packages

_BUILDER = """
import json, sys
from orchestrator.machine import environments, provenance
from orchestrator.records.environment import EnvironmentRequest
request = EnvironmentRequest(**{k: tuple(v) if isinstance(v, list) else v for k, v in json.loads(sys.argv[1]).items()})
environments.build(request, lambda text: print(text, flush=True))
with environments.using(environments.interpreter(request)):
    print("using it", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The environments of a test; packages come only from the folder `wheels` next to it."""
    monkeypatch.setenv("TUNEBENCH_ENVIRONMENTS", str(tmp_path / "environments"))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    packages.wheel(tmp_path / "wheels", "alpha", "1.0", requires=["beta"])
    packages.wheel(tmp_path / "wheels", "beta", "2.0")
    yield tmp_path / "environments"


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    return tmp_path / "wheels"


def request_of(wheels: Path, *lines: str, **fields: Any) -> EnvironmentRequest:
    return EnvironmentRequest(name=fields.pop("name", "tiny"), requirements=lines, find_links=(str(wheels),), **fields)


def built(request: EnvironmentRequest) -> list[str]:
    events = list[str]()
    environments.build(request, events.append)
    return events


def answer(request: EnvironmentRequest, code: str) -> str:
    argv = [environments.interpreter(request), "-c", code]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()


def builder(request: EnvironmentRequest) -> subprocess.Popen[str]:
    """Start a process that builds the environment, and then uses it until its stdin ends."""
    fields = asdict(request)
    env, pipe = {**os.environ, "PYTHONPATH": str(ROOT)}, subprocess.PIPE
    argv = [sys.executable, "-c", _BUILDER, json.dumps(fields)]
    return subprocess.Popen(argv, env=env, stdin=pipe, stdout=pipe, text=True, start_new_session=True)


def until_used(process: subprocess.Popen[str]) -> list[str]:
    """Return what a builder prints before it uses the environment."""
    assert process.stdout
    lines = [*takewhile(lambda line: line != "using it\n", iter(process.stdout.readline, ""))]
    assert process.poll() is None, lines
    return lines


def test_an_environment_is_built_once_and_shared_by_its_names(wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = request_of(wheels, "alpha")
    assert environments.lock_digest(request) is None and not environments.interpreter(request).exists()
    first, last = built(request)
    assert first.startswith("building environment 'tiny' with uv (log: ") and "2 packages" in last
    assert answer(request, "import alpha, beta; print(alpha.VERSION, beta.VERSION)") == "1.0 2.0"
    known = place_of(request).built()
    assert known is not None and known.packages == {"alpha": "1.0", "beta": "2.0"} and known.tool == "uv"
    assert "--hash=sha256:" in place_of(request).locked.read_text()
    monkeypatch.setenv("PATH", "/nothing")  # a second build starts no program
    assert built(request_of(wheels, "Alpha  # again", name="other")) == []
    assert place_of(request).names() == ("tiny", "other")


def test_a_newer_version_is_seen_only_by_a_new_build_and_has_another_lock(wheels: Path) -> None:
    request = request_of(wheels, "alpha")
    built(request)
    before = environments.lock_digest(request)
    packages.wheel(wheels, "beta", "2.1")
    assert built(request) == [] and environments.lock_digest(request) == before
    assert inventory.remove(place_of(request)) and environments.lock_digest(request) is None
    built(request)
    assert answer(request, "import beta; print(beta.VERSION)") == "2.1"
    assert environments.lock_digest(request) not in (before, None)
    lock = place_of(request).locked.read_text()
    inventory.remove(place_of(request))
    packages.wheel(wheels, "beta", "2.2")
    locked = request_of(wheels, lock=lock)
    built(locked)
    assert answer(locked, "import beta; print(beta.VERSION)") == "2.1"


def test_constraints_hold(wheels: Path) -> None:
    packages.wheel(wheels, "beta", "2.1")
    request = request_of(wheels, "alpha", constraints=("beta<2.1",))
    built(request)
    assert answer(request, "import beta; print(beta.VERSION)") == "2.0"


def test_an_override_replaces_what_another_package_asks_for(wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packages.wheel(wheels, "old", "1.0", requires=["beta<2", "nowhere"])
    overrides = ("beta==2.0", "nowhere; python_version < '3'")
    request = request_of(wheels, "old", "beta", overrides=overrides)
    built(request)
    assert answer(request, "import beta, old; print(beta.VERSION)") == "2.0"
    again = request_of(wheels, lock=place_of(request).locked.read_text(), overrides=overrides)
    built(again)
    assert environments.lock_digest(again) == environments.lock_digest(request)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(installers.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BuildError, match="overrides: needs uv, and there is none; install uv"):
        built(request_of(wheels, "old", overrides=("beta==2",)))


def test_of_two_builders_one_builds_and_both_use_it(wheels: Path) -> None:
    request = request_of(wheels, "alpha")
    with locks.building(place_of(request), print):  # both find the lock taken, whichever starts first
        processes = [builder(request) for _ in range(2)]
        waiting = [process.stdout.readline() for process in processes if process.stdout]
    assert all(f"waiting for process {os.getpid()} on " in line for line in waiting)
    texts = [until_used(process) for process in processes]
    assert sorted(len(text) for text in texts) == [0, 2], texts
    assert inventory.entry(place_of(request)).state == "in use"
    for process in processes:
        process.communicate(timeout=60)
        assert process.returncode == 0
    assert inventory.entry(place_of(request)).state == "built"


def test_what_a_killed_build_leaves_is_never_used(wheels: Path) -> None:
    """The programs of the killed builder live on in their own sessions; the next builder ends them before it begins."""
    moments, request = random.Random(20), request_of(wheels, "alpha", "gamma")
    packages.wheel(wheels, "gamma", "1.0", code="".join(f"x{number} = {number}\n" for number in range(1000)))
    place, states = place_of(request), []
    for _ in range(20):
        process = builder(request)
        assert process.stdout and process.stdout.readline().startswith("building")
        time.sleep(moments.uniform(0.0, 0.8))
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        states.append(environments.lock_digest(request))
        if states[-1] is not None:
            assert answer(request, "import alpha, beta, gamma; print(gamma.x999)") == "999"
            inventory.remove(place)
        else:
            with pytest.raises(BuildError, match="is not there"), environments.using(place.interpreter):
                pass
    assert None in states
    built(request)
    assert answer(request, "import alpha, beta, gamma; print(gamma.x999)") == "999"


SLOW_BACKEND = """
import os, pathlib, time
if pathlib.Path("slow").exists():
    pathlib.Path("started").write_text(str(os.getpid()))
    time.sleep(60)
    pathlib.Path("finished").touch()
"""


@pytest.fixture
def slow(wheels: Path, tmp_path: Path) -> EnvironmentRequest:
    """A request for a local package whose build takes a minute, as long as there is a file `slow` in its folder."""
    source = packages.local_package(tmp_path / "lib", "mylib", "ANSWER = 1\n")
    (source / "backend.py").write_text(SLOW_BACKEND + (source / "backend.py").read_text())
    (source / "slow").touch()
    return request_of(wheels, f"mylib @ {source.as_uri()}", folders={str(source): "1"})


def pid_of_build(tmp_path: Path) -> int:
    while not (started := tmp_path / "lib/started").exists() or not started.read_text():
        time.sleep(0.05)
    return int(started.read_text())


def test_what_a_killed_builder_started_is_ended_before_the_next_build(slow: EnvironmentRequest, tmp_path: Path) -> None:
    process = builder(slow)
    left = pid_of_build(tmp_path)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert start_time(left) is not None, "it lives on in a session of its own"
    (tmp_path / "lib/slow").unlink()
    built(slow)
    assert start_time(left) is None and not (tmp_path / "lib/finished").exists()
    assert answer(slow, "import mylib; print(mylib.ANSWER)") == "1"


def test_an_interrupted_build_leaves_nothing(slow: EnvironmentRequest, tmp_path: Path, folder: Path) -> None:
    process = builder(slow)
    started = pid_of_build(tmp_path)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode != 0 and start_time(started) is None
    assert not place_of(slow).folder.exists() and [entry.state for entry in inventory.entries()] == ["failed"]


def test_an_environment_whose_interpreter_was_removed_is_built_again(wheels: Path) -> None:
    request = request_of(wheels, "beta")
    built(request)
    python = environments.interpreter(request)
    python.unlink()
    python.symlink_to("/an/interpreter/that/was/upgraded")
    assert environments.lock_digest(request) is None and len(built(request)) == 2
    assert answer(request, "import beta; print(beta.VERSION)") == "2.0"


def test_an_interpreter_is_known_as_soon_as_it_is_built(wheels: Path) -> None:
    """A plan asks for the packages before the build, and again after it."""
    request = request_of(wheels, "beta")
    python = str(environments.interpreter(request))
    assert provenance.python_version(python) is None and provenance.Machine().packages(python) == {}
    built(request)
    assert provenance.python_version(python) and provenance.Machine().packages(python)["beta"] == "2.0"


def test_uvs_cache_is_on_the_file_system_of_the_environments(
    wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = Path("/dev/shm")
    if not shared.is_dir() or shared.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is one file system")
    monkeypatch.delenv("UV_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with TemporaryDirectory(dir=shared) as other:
        monkeypatch.setenv("TUNEBENCH_ENVIRONMENTS", other)
        request = request_of(wheels, "beta")
        built(request)
        assert (Path(other) / "uv-cache").is_dir() and not (tmp_path / "cache/uv").exists()
        assert next(place_of(request).venv.rglob("beta.py")).stat().st_nlink > 1


def test_a_requirement_that_cannot_be_met_is_one_sentence_with_a_log(wheels: Path, folder: Path) -> None:
    request = request_of(wheels, "alpha", "nothing-of-this-name")
    with pytest.raises(BuildError) as failed:
        built(request)
    text, place = str(failed.value), place_of(request)
    assert text.startswith("environment 'tiny': locking its packages failed: No solution found") and "\n" not in text
    assert "nothing-of-this-name was not found" in text and f"(log: {place.log})" in text
    assert "nothing-of-this-name" in place.log.read_text() and not place.folder.exists()
    assert environments.lock_digest(request) is None and inventory.entry(place).state == "failed"


def test_packages_that_do_not_fit_together_are_refused(wheels: Path) -> None:
    request = request_of(wheels, lock="alpha==1.0\n")
    with pytest.raises(BuildError, match=r"checking its packages failed: .*alpha.*beta"):
        built(request)
    assert environments.lock_digest(request) is None


def test_torch_that_cannot_be_imported_is_refused(wheels: Path) -> None:
    packages.wheel(wheels, "torch", "1.0", code="raise OSError('libcudnn.so.9: cannot open shared object file')\n")
    request = request_of(wheels, "torch")
    with pytest.raises(BuildError, match=r"importing torch failed: .*libcudnn\.so\.9"):
        built(request)


def test_a_changed_local_package_is_built_again(wheels: Path, tmp_path: Path) -> None:
    source = packages.local_package(tmp_path / "my lib", "mylib", "ANSWER = 1\n")
    locked = set[str | None]()
    for content, line in (("1", source.as_uri()), ("2", source.as_uri()), ("3", str(source))):
        (source / "mylib.py").write_text(f"ANSWER = {content}\n")
        line = f"mylib @ {line}" if "://" in line else line
        request = request_of(wheels, line, folders={str(source): content})
        built(request)
        assert answer(request, "import mylib; print(mylib.ANSWER)") == content
        locked.add(environments.lock_digest(request))
    assert len(locked) == 3 and None not in locked


def test_two_commits_are_two_environments(wheels: Path, tmp_path: Path) -> None:
    source, locked = packages.local_package(tmp_path / "repository", "mylib", "ANSWER = 1\n"), []
    for content in (1, 2):
        (source / "mylib.py").write_text(f"ANSWER = {content}\n")
        request = request_of(wheels, f"mylib @ git+{source.as_uri()}@{packages.commit(source)}")
        built(request)
        assert answer(request, "import mylib; print(mylib.ANSWER)") == str(content)
        locked.append((environments.digest(request), environments.lock_digest(request)))
    assert len({*map(str, locked)}) == 2 and locked[0][0] != locked[1][0] and locked[0][1] != locked[1][1]


def test_what_is_in_use_is_never_removed(wheels: Path, folder: Path) -> None:
    request = request_of(wheels, "beta")
    built(request)
    place = place_of(request)
    with environments.using(environments.interpreter(request)):
        os.utime(place.lock_file, (0, 0))
        assert inventory.remove(place) is None and list(inventory.collect(0.0)) == []
        assert answer(request, "import beta; print(beta.VERSION)") == "2.0"
    assert list(inventory.collect(float("inf"))) == []
    os.utime(place.lock_file, (0, 0))
    (collected,) = inventory.collect(30 * 86_400.0)
    assert "not used for" in collected.why and collected.freed_bytes > 0
    assert not any(folder.glob(f"{place.digest}*"))


def test_gc_removes_what_killed_builds_left_at_once(folder: Path) -> None:
    half = Place(folder / "0123456789ab")
    half.venv.mkdir(parents=True)
    (half.venv / "left").write_bytes(b"x" * 1000)
    half.lock_file.touch()
    (folder / "uv-cache").mkdir()
    (folder / "97306d215bb7").mkdir()  # somebody's folder, named by a commit
    (folder / "97306d215bb7.log").touch()
    (folder / "1c2f5e6a7b80.lock").mkdir()
    (collected,) = inventory.collect(float("inf"))
    assert (collected.place, collected.freed_bytes) == (half, 1000) and "unfinished" in collected.why
    assert sorted(path.name for path in folder.iterdir()) == [
        "1c2f5e6a7b80.lock",
        "97306d215bb7",
        "97306d215bb7.log",
        "uv-cache",
    ]


def test_a_removal_that_is_interrupted_leaves_nothing_that_counts_as_built(wheels: Path) -> None:
    request = request_of(wheels, "beta")
    built(request)
    place = place_of(request)
    place.record.unlink()  # the first act of a removal
    assert environments.lock_digest(request) is None
    built(request)
    assert answer(request, "import beta; print(beta.VERSION)") == "2.0"


class _Empty(BaseHTTPRequestHandler):
    """An index without any package."""

    def do_GET(self) -> None:
        self.send_error(404)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def index() -> Iterator[str]:
    """The address of an index, with a password."""
    with HTTPServer(("127.0.0.1", 0), _Empty) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://me:hunter2hunter2@127.0.0.1:{server.server_port}/simple"
        server.shutdown()


def test_passwords_of_indexes_reach_no_file(wheels: Path, folder: Path, index: str) -> None:
    request = request_of(wheels, "beta", "nothing-of-this-name", indexes=(index,))
    with pytest.raises(BuildError) as failed:
        built(request)
    assert "hunter2" not in str(failed.value)
    locked = request_of(wheels, lock="beta==2.0\n", indexes=(index,))
    built(locked)
    assert "127.0.0.1" in place_of(locked).record.read_text()
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert len(files) > 5 and not [path for path in files if b"hunter2" in path.read_bytes()]


class _Wheels(BaseHTTPRequestHandler):
    """A server of wheels below `/wheels/WORD/`, for `me` with the password WORD."""

    folder: Path
    word = "tok-7q3k9m2w5zx8"

    def do_GET(self) -> None:
        expected = "Basic " + b64encode(f"me:{self.word}".encode()).decode()
        path, file = self.path.rpartition("/")[0], self.folder / self.path.rpartition("/")[2]
        allowed = self.headers["Authorization"] == expected or self.word in path
        if not allowed or not file.is_file():
            self.send_response(404 if allowed else 401)
            self.send_header("WWW-Authenticate", "Basic")
            self.end_headers()
            return
        self.send_response(200)
        self.send_header("Content-Length", str(file.stat().st_size))
        self.end_headers()
        self.wfile.write(file.read_bytes())

    do_HEAD = do_GET

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(wheels: Path) -> Iterator[str]:
    """The host and port of a server of wheels."""
    _Wheels.folder = wheels
    with HTTPServer(("127.0.0.1", 0), _Wheels) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


def with_the_word(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and _Wheels.word.encode() in path.read_bytes()]


@pytest.mark.parametrize("tool", ["uv", "pip"])
@pytest.mark.parametrize("address", ["me:${WHEELS_WORD}@SERVER/wheels", "SERVER/${WHEELS_WORD}"])
def test_a_password_of_a_requirement_is_named_and_reaches_no_file(
    address: str, tool: str, wheels: Path, folder: Path, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only uv or pip gets the value, from the environment."""
    if tool == "pip":
        monkeypatch.setenv("PATH", "/usr/bin:/bin")
        monkeypatch.setattr(installers.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("WHEELS_WORD", _Wheels.word)
    line = f"beta @ http://{address.replace('SERVER', server)}/beta-2.0-py3-none-any.whl"
    request = request_of(wheels, line)
    built(request)
    known = place_of(request).built()
    assert known is not None and dict(known.packages)["beta"] == "2.0" and known.tool == tool
    assert with_the_word(folder) == []
    if tool == "uv":  # pip leaves the user and the password out of its lock
        built(request_of(wheels, lock=place_of(request).locked.read_text()))
    missing = request_of(wheels, line.replace("beta-2.0", "gamma-1.0").replace("beta", "gamma"))
    with pytest.raises(BuildError) as failed:
        built(missing)
    assert _Wheels.word not in str(failed.value)
    assert with_the_word(folder) == []


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("x @ git+https://me:hunter2hunter2@host/r.git", "write ${NAME} in its place, in capitals"),
        ("x @ git+https://me:${token}@host/r.git", "write ${NAME} in its place, in capitals"),
        ("x @ git+https://ghp_A1b2C3d4E5f6G7h8I9j0:${HOME}@host/r.git", "a token of GitHub"),
        ("x @ git+https://me:${NOT_SET_ANYWHERE}@host/r.git", "the variable NOT_SET_ANYWHERE is not set"),
    ],
)
def test_a_password_that_is_written_out_is_refused(line: str, said: str, wheels: Path) -> None:
    with pytest.raises(BuildError) as refused:
        built(request_of(wheels, line))
    assert said in str(refused.value)


@pytest.mark.parametrize("path", ["tok7q3k9m2w5zx8/simple", "${WHEELS_WORD}/simple"])
def test_a_token_in_the_path_of_an_index_reaches_no_file(
    path: str, wheels: Path, folder: Path, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WHEELS_WORD", "tok7q3k9m2w5zx8")
    request = request_of(wheels, "beta", "nothing-of-this-name", indexes=(f"http://{server}/{path}",))
    with pytest.raises(BuildError) as failed:
        built(request)
    assert "tok7q3k" not in str(failed.value)
    built(request_of(wheels, lock="beta==2.0\n", indexes=(f"http://{server}/{path}",)))
    assert not [file for file in folder.rglob("*") if file.is_file() and b"tok7q3k" in file.read_bytes()]


def test_without_uv_pip_builds_it(wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(installers.importlib.util, "find_spec", lambda name: None)
    request = request_of(wheels, "alpha", constraints=("beta<2.1",))
    packages.wheel(wheels, "beta", "2.1")
    first, _ = built(request)
    assert "without uv, this takes minutes" in first
    assert answer(request, "import alpha, beta; print(beta.VERSION)") == "2.0"
    known = place_of(request).built()
    assert known is not None and known.tool == "pip" and known.tool_version[:1].isdigit()
    assert place_of(request).locked.read_text().splitlines() == ["alpha==1.0", "beta==2.0"]


Call = Callable[..., tuple[int, str, str]]


def test_the_command_lists_shows_and_removes(
    wheels: Path, folder: Path, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert call(tmp_path, "env", "list") == (0, "", f"there are no environments in {folder}\n")
    request, other = request_of(wheels, "alpha"), request_of(wheels, "beta", name="small")
    for one in (request, other):
        built(one)
    with pytest.raises(BuildError):
        built(request_of(wheels, "nothing-of-this-name", name="wrong"))
    place = place_of(request)
    code, out, err = call(tmp_path, "env", "list")
    assert (code, err) == (0, "") and out.splitlines()[0].split()[:3] == ["digest", "names", "state"]
    assert {"built", "failed", "wrong"} <= {*out.split()} and place.digest in out
    code, out, _ = call(tmp_path, "env", "show", place_of(request_of(wheels, "nothing-of-this-name")).digest)
    assert code == 0 and "asked for         nothing-of-this-name" in out and "last line of log  " in out
    code, out, _ = call(tmp_path, "env", "list", "--json")
    assert {entry["state"] for entry in json.loads(out)} == {"built", "failed"}
    code, out, _ = call(tmp_path, "env", "show", place.digest[:6])
    assert code == 0 and "alpha==1.0" in out and str(place.interpreter) in out and "asked for" in out
    built(request_of(wheels, "beta>1", name="small"))
    code, out, err = call(tmp_path, "env", "rm", "small", "tiny")
    assert (
        (code, out) == (2, "") and err.startswith("error: 'small' names several environments: ") and "(beta>1)" in err
    )
    assert call(tmp_path, "env", "rm", place_of(request_of(wheels, "beta>1")).digest)[0] == 0
    with environments.using(place.interpreter):
        code, out, err = call(tmp_path, "env", "rm", "tiny", "small")
        assert code == 2 and out.startswith(f"removed {place_of(other).digest} (small): ") and place.record.exists()
        assert err == f"error: {place.digest}: a process builds or uses it; repeat the command when it has ended\n"
    os.utime(place.lock_file, (0, 0))
    code, out, _ = call(tmp_path, "env", "gc")
    assert code == 0 and f"removed {place.digest} (tiny: not used for" in out and not place.folder.exists()
    assert len(call(tmp_path, "env", "list")[1].splitlines()) == 2, "the log of a failure is younger than 30 days"
    assert call(tmp_path, "env", "gc", "--older-than", "0h")[0] == 0 and not [*folder.glob("*.log")]


_UV = """#!/bin/sh
while [ $# -gt 0 ]; do
    case $1 in
        --version) echo {answer}; exit ;;
        cache) echo /tmp; exit ;;
        venv) mkdir -p "{venv}/bin" && {interpreter}; exit ;;
        --output-file) {lock}; exit ;;
    esac
    shift
done
"""


def with_uv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: EnvironmentRequest, **words: str) -> None:
    """Put another `uv` in front of the real one: a site's wrapper, or one that does less than it says."""
    venv = place_of(request).venv
    good = {
        "answer": "uv 0.5.1",
        "interpreter": f'ln -s {sys.executable} "{venv}/bin/python"',
        "lock": "touch lock.txt",
    }
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "uv").write_text(_UV.format(venv=venv, **{**good, **words}))
    (tmp_path / "bin" / "uv").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")


@pytest.mark.parametrize(("answer", "version"), [("uv 0.5.1 (site)", "0.5.1"), ("0.5.1", "0.5.1"), ("", "")])
def test_the_version_of_uv_is_only_shown(
    answer: str, version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = request_of(tmp_path, "alpha")
    with_uv(tmp_path, monkeypatch, request, answer=f"'{answer}'")
    built(request)
    known = place_of(request).built()
    assert known is not None and known.tool_version == version


@pytest.mark.parametrize(
    ("words", "mistake"),
    [
        ({"interpreter": "true"}, "starting its Python failed: "),
        ({"interpreter": "echo half; kill -9 $$"}, "making its folder failed: it was ended by signal 9"),
        ({"interpreter": 'ln -s /nowhere/python "{venv}/bin/python"'}, "starting its Python failed: "),
        (
            {"interpreter": "printf '#!/bin/sh\\nexit 9' > {venv}/bin/python && chmod +x {venv}/bin/python"},
            "starting its Python failed: it ended without any output",
        ),
        ({"lock": "mkdir lock.txt"}, "the lock that uv wrote cannot be read: "),
    ],
)
def test_a_build_without_an_interpreter_or_a_lock_fails(
    words: dict[str, str], mistake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = request_of(tmp_path, "alpha")
    with_uv(tmp_path, monkeypatch, request, **{k: v.format(venv=place_of(request).venv) for k, v in words.items()})
    with pytest.raises(BuildError, match=f"environment 'tiny': {mistake}"):
        built(request)
    assert not place_of(request).folder.exists()


def test_a_file_system_that_is_mounted_in_an_environment_is_not_emptied(
    folder: Path, tmp_path: Path, call: Call
) -> None:
    """Such as a scratch disk for the home folder in a container."""
    for digest in ("0123456789ab", "1123456789ab", "2123456789ab"):
        half = Place(folder / digest)
        half.venv.mkdir(parents=True)
        half.lock_file.touch()
    point, user = folder / "0123456789ab" / "home", tmp_path / "user"
    for one in (point, user):
        one.mkdir()
    (user / "precious").touch()
    if subprocess.run(["mount", "--bind", user, point], check=False, capture_output=True).returncode:
        pytest.skip("nobody may mount a file system here")
    try:
        kept = f"error: {point.parent} is kept, because a file system is mounted at {point}; unmount it, and repeat the command\n"
        code, out, err = call(tmp_path, "env", "rm", "0123456789ab", "2123456789ab")
        assert (code, err) == (2, kept) and out.startswith("removed 2123456789ab: ")
        code, out, err = call(tmp_path, "env", "gc")
        assert (code, err) == (2, kept) and out.startswith("removed 1123456789ab (an unfinished build)")
        assert (user / "precious").exists() and (point.parent / "venv").exists()
    finally:
        subprocess.run(["umount", "-l", str(point)], check=True)
    assert call(tmp_path, "env", "gc")[0] == 0 and not point.parent.exists() and (user / "precious").exists()


@pytest.mark.parametrize(
    ("words", "mistake"),
    [
        (["gc", "--older-than", "soon"], "--older-than 'soon' is invalid; write days or hours, such as 30d or 12h"),
        (["rm", "tinny"], "there is no environment 'tinny' in {folder}; none is defined"),
        (["show", "0123"], "there is no environment '0123' in {folder}; none is defined"),
        (["frob"], "unknown command 'frob'. Allowed: build, gc, list, lock, rm, show"),
        (["lock"], "the argument scenarios is missing; see `tunebench env lock --help`"),
        (["gc", "--older"], "unknown option '--older'; did you mean '--older-than'? See `tunebench env gc --help`"),
    ],
)
def test_a_mistake_is_one_sentence(words: list[str], mistake: str, folder: Path, tmp_path: Path, call: Call) -> None:
    assert call(tmp_path, "env", *words) == (2, "", f"error: {mistake.format(folder=folder)}\n")


ENVIRONMENTS = """
environments:
  tiny: {{requirements: [alpha], find_links: [{wheels}]}}
  wrong: {{requirements: [nothing-of-this-name], find_links: [{wheels}]}}
  own: {{interpreter: {python}}}
"""
SCENARIO = """
scenarios:
- {name: a, environment: tiny, arguments: {model_name_or_path: 'config:tiny-llama'}}
"""


def test_the_command_builds_and_locks_what_a_file_asks_for(wheels: Path, tmp_path: Path, call: Call) -> None:
    (tmp_path / "s.yaml").write_text(ENVIRONMENTS.format(wheels=wheels, python=sys.executable) + SCENARIO)
    code, out, err = call(tmp_path, "env", "build", "s.yaml")
    assert code == 2 and err.splitlines()[-1].startswith("error: environment 'wrong': locking its packages failed: ")
    assert [line.partition(":")[0] for line in out.splitlines()] == ["tiny", "own"]
    assert call(tmp_path, "env", "build", "s.yaml", "tiny")[2] == "", "it is built already"
    code, out, err = call(tmp_path, "env", "lock", "s.yaml", "tiny")
    assert (code, err) == (0, "") and out.startswith("alpha==1.0 \\\n    --hash=sha256:")
    assert call(tmp_path, "env", "lock", "s.yaml", "tiny", "-o", "tiny.lock")[0] == 0
    assert (tmp_path / "tiny.lock").read_text() == out
    code, _, err = call(tmp_path, "env", "lock", "s.yaml", "tiny", "-o", "tiny.lock")
    assert code == 2 and "tiny.lock: the file exists; name a new file" in err
    code, out, _ = call(tmp_path, "env", "show", "s.yaml", "own")
    assert code == 0 and f"interpreter  {sys.executable}" in out
    (tmp_path / "none.yaml").write_text("environments: {none: {interpreter: /nowhere/python}}\n" + SCENARIO)
    assert call(tmp_path, "env", "show", "none.yaml", "none")[0] == 2, (
        "an interpreter that does not start has no packages"
    )
    assert "it has no lock" in call(tmp_path, "env", "lock", "s.yaml", "own")[2]
    code, _, err = call(tmp_path, "env", "build", "s.yaml", "tinny")
    assert code == 2 and "there is no environment 'tinny'; did you mean 'tiny'?" in err
    locked = "environments: {tiny: {lock: tiny.lock, find_links: [wheels]}}\n"
    (tmp_path / "s.yaml").write_text(locked + SCENARIO)
    assert call(tmp_path, "env", "build", "s.yaml")[0] == 0


CAMPAIGN = """
environments:
  first: {{requirements: [alpha], find_links: [{wheels}]}}
  second: {{requirements: [beta], find_links: [{wheels}]}}
scenarios:
- name: own
  trainer: custom
  environment: [first, second]
  device: cpu
  monitors: []
  arguments: {{model_name_or_path: m}}
  custom: {{command: ['{{python}}', '{{scenario_dir}}/train.py'], launcher: none, results: stdout}}
"""
# Removes the other environment while a run of its own one goes on, and tells how that ended.
REMOVES = """
import os, subprocess, sys
words = [{python!r}, "-m", "orchestrator", "env", "rm", "first", "second"]
done = subprocess.run(words, env={{**os.environ, "PYTHONPATH": {root!r}}}, capture_output=True, text=True)
with open({said!r}, "a") as file:
    file.write(done.stdout + done.stderr)
print('{{"train_runtime": 1.0}}')
"""


def test_a_campaign_holds_all_its_environments_until_it_ends(wheels: Path, tmp_path: Path, call: Call) -> None:
    (tmp_path / "s.yaml").write_text(CAMPAIGN.format(wheels=wheels))
    said = tmp_path / "said.txt"
    values = {"python": sys.executable, "root": str(ROOT), "said": str(said)}
    (tmp_path / "train.py").write_text(REMOVES.format(**values))
    code, out, err = call(tmp_path, "run", "s.yaml", "--results", "results")
    assert code == 0, out + err
    refused = [line for line in said.read_text().splitlines() if "a process builds or uses it" in line]
    assert len(refused) == 4 and "removed" not in said.read_text(), "each run tried to remove both"
    assert "2 experiments: 2 ok" in out + err
    assert call(tmp_path, "env", "rm", "first", "second")[0] == 0, "the campaign has ended"


def test_a_package_that_is_installed_into_an_environment_stops_its_next_run(
    wheels: Path, tmp_path: Path, call: Call
) -> None:
    (tmp_path / "s.yaml").write_text(CAMPAIGN.format(wheels=wheels))
    (tmp_path / "train.py").write_text("print('{\"train_runtime\": 1.0}')\n")
    assert call(tmp_path, "run", "s.yaml", "--results", "results")[0] == 0
    place = place_of(load_suite(tmp_path / "s.yaml").environments.requests["first"])
    packages.wheel(wheels, "beta", "2.1")
    packages.wheel(wheels, "gamma", "1.0")
    words = ["uv", "pip", "install", "--quiet", "--python", place.interpreter, "--no-index", "--find-links", wheels]
    subprocess.run([*words, "beta==2.1", "gamma"], check=True)
    subprocess.run(["uv", "pip", "uninstall", "--quiet", "--python", place.interpreter, "alpha"], check=True)
    code, out, err = call(tmp_path, "run", "s.yaml", "--results", "results", "--repeats", "2")
    assert code == 1, out + err
    records = [json.loads(path.read_text()) for path in (tmp_path / "results").rglob("record.json")]
    (failed,) = [record for record in records if record["status"] == "failed"]
    assert failed["kind"] == "environment" and failed["hint"].startswith(
        f"remove it with `tunebench env rm {place.digest}`"
    )
    assert failed["cause"] == (
        "environment 'first' was changed after it was built: alpha is missing (built: 1.0), beta 2.1 (built: 2.0), "
        "gamma 1.0 (built: without it)"
    )
    (run_dir,) = (
        path.parent for path in (tmp_path / "results").rglob("record.json") if '"environment",' in path.read_text()
    )
    assert not (run_dir / "stdout.log").exists(), "the trainer was not started"
    assert (place.folder / "venv").is_dir(), "nothing of the user's is removed"


def test_an_environment_that_is_removed_before_it_is_held_is_built_again(wheels: Path, tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(CAMPAIGN.format(wheels=wheels))
    (tmp_path / "train.py").touch()
    suite = load_suite(tmp_path / "s.yaml")
    said, removed = list[str](), list[str]()

    def say(text: str) -> None:
        said.append(text)
        if text.startswith("built environment 'first'") and not removed:
            removed.append(text)
            for path in (tmp_path / "environments").glob("*/environment.json"):
                path.unlink()

    def again() -> Plan:
        return expand(suite, parse_selection(), provenance.this_machine())

    with ExitStack() as held:
        plan, failed = with_environments(again(), suite, again=again, say=say, hold=held.enter_context)
        assert removed and failed == 0 and all(map(has_id, plan.experiments)) and len(plan.experiments) == 2
        assert sum(text.startswith("built environment 'first'") for text in said) == 2
        assert [inventory.remove(place_of(request)) for request in suite.environments.requests.values()] == [None, None]


def test_an_environment_that_is_lost_while_it_is_held_stops_the_campaign(wheels: Path, tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(CAMPAIGN.format(wheels=wheels))
    (tmp_path / "train.py").touch()
    suite = load_suite(tmp_path / "s.yaml")

    def say(text: str) -> None:
        if text.startswith("building environment 'second'"):
            place_of(suite.environments.requests["first"]).record.unlink()  # by other means than `env rm`

    def again() -> Plan:
        return expand(suite, parse_selection(), provenance.this_machine())

    with ExitStack() as held, pytest.raises(BuildError, match="1 environment, first: it was removed after"):
        with_environments(again(), suite, again=again, say=say, hold=held.enter_context)
