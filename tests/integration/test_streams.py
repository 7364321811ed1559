"""The command with streams that cannot be written: full, closed, non-blocking, or with a reader that leaves early."""

from __future__ import annotations

import fcntl
import os
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest
from campaigns import ROOT, begun
from factories.results import experiment

from orchestrator.results.store import Store

SCENARIOS = """\
scenarios:
- name: a
  trainer: custom
  device: cpu
  timeout_s: 3600
  matrix: {x: [1, 2]}
  custom: {command: ["{python}", -c, "0", "{arguments}"], launcher: none}
"""
FULL = "error: stdout cannot be written: No space left on device; the output is incomplete"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("streams")
    (made / "s.yaml").write_text(SCENARIOS)
    return made


LONG = """\
import sys
if "orchestrator" in sys.orig_argv:
    from orchestrator.campaign import steps
    steps.gpu_hours = lambda *_, **__: 9.0  # there is no GPU here
"""


def shell(folder: Path, words: str, streams: str, **variables: str) -> tuple[int, str, str]:
    """Return the exit code of the command itself, and what came of stdout and stderr, with these redirections."""
    line = f"set -o pipefail; {{ {sys.executable} -m orchestrator {words}; echo $? > code; }} {streams}"
    own = {"PYTHONPATH": str(ROOT), "TUNEBENCH_CACHE": str(folder / "cache"), "COLUMNS": "200", **variables}
    done = subprocess.run(["bash", "-c", line], cwd=folder, env={**os.environ, **own}, capture_output=True, check=False)
    return int((folder / "code").read_text()), done.stdout.decode(), done.stderr.decode()


def test_a_campaign_goes_on_without_a_place_for_its_messages(folder: Path) -> None:
    code, out, err = shell(folder, "run s.yaml --yes --results unheard", "2>/dev/full")
    assert (code, err) == (0, "")
    assert "2 experiments: 2 ok" in out
    assert statuses(folder / "unheard") == ["ok", "ok"]


def test_lost_lines_of_json_are_not_blamed_on_the_results_folder(folder: Path) -> None:
    code, _, err = shell(folder, "run s.yaml --yes --results unread --json-lines", ">/dev/full")
    assert code == 2
    assert [line for line in err.splitlines() if "error" in line] == [
        f"{FULL}; make room, or redirect it to another place"
    ]
    assert statuses(folder / "unread") == ["ok", "ok"], "the campaign went on"


def statuses(root: Path) -> list[str]:
    return [record.status.value for one in Store.resume(root).contents().experiments for record in one.records]


@pytest.mark.parametrize("words", ["--help", "plan s.yaml", "plan s.yaml --json"])
@pytest.mark.parametrize(
    ("streams", "code", "said"),
    [
        (">/dev/full", 2, FULL),
        (">/dev/full 2>&1", 2, ""),
        ("2>/dev/full", 0, ""),
        (">&-", 0, ""),
        (">&- 2>&- <&-", 0, ""),
        ("| true", 0, ""),
    ],
)
def test_a_stream_that_takes_nothing_makes_no_traceback(
    words: str, streams: str, code: int, said: str, folder: Path
) -> None:
    ended, _, err = shell(folder, words, streams)
    assert ended == code
    assert said in err
    assert "Traceback" not in err and "Exception ignored" not in err


def test_a_mistake_keeps_its_exit_code_where_no_one_can_read_it(folder: Path) -> None:
    for streams in ("2>/dev/full", ">/dev/full 2>&1", "2>&1 | true"):
        assert shell(folder, "plan absent.yaml", streams)[0] == 2
        assert shell(folder, "plan --nope", streams)[0] == 2


def test_a_question_without_an_input_is_answered_with_no(folder: Path) -> None:
    (folder / "sitecustomize.py").write_text(LONG)
    (folder / "code").unlink(missing_ok=True)
    code, _, err = shell(folder, "run s.yaml --results asked", "<&-", PYTHONPATH=f"{folder}{os.pathsep}{ROOT}")
    (folder / "sitecustomize.py").unlink()
    assert code == 2
    assert "to start it, add --yes" in err


def test_a_slow_reader_of_a_pipe_that_does_not_block_gets_all(folder: Path) -> None:
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    os.set_blocking(writer, False)
    words = [sys.executable, "-m", "orchestrator", "schema"]  # five times what the pipe holds
    child = subprocess.Popen(words, stdout=writer, stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)})
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        select.select([pipe], [], [], 60)
        time.sleep(0.2)
        said = pipe.read()
    assert child.communicate()[1] == b""
    assert child.returncode == 0
    assert said == (ROOT / "docs" / "scenarios.schema.json").read_bytes()


def test_a_view_that_no_one_reads_ends(folder: Path) -> None:
    """`status --watch` would otherwise wait for the end of a campaign that no one runs."""
    Store.create(folder / "waiting", {}).add([experiment()])
    watching = begun(folder, "status", "waiting", "--watch")
    assert watching.stdout is not None
    watching.stdout.close()
    assert watching.wait(timeout=60) == 0
