"""`tunebench monitor` as a command, in a process of its own that finds a fake `pynvml` where the real one would be.

The view asks NVML itself and no file of the driver's, so that the fake is all it takes.
"""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FAKES = ROOT / "tests" / "unit"
COMMAND = [sys.executable, "-m", "orchestrator", "monitor"]

TWO_GPUS = """\
import sys
from fake_pynvml import FakeGpu, FakeNvml
sys.modules[__name__] = FakeNvml([FakeGpu(energy_step=100_000), FakeGpu(uuid="GPU-bbbb-1", name="NVIDIA X", power=None)])
"""
NO_GPU = "import sys\nfrom fake_pynvml import FakeNvml\nsys.modules[__name__] = FakeNvml([])\n"
NOT_INSTALLED = "raise ImportError('no such module')\n"


def environment(folder: Path, module: str) -> dict[str, str]:
    (folder / "pynvml.py").write_text(module)
    return {**os.environ, "PYTHONPATH": f"{folder}:{FAKES}", "COLUMNS": "160", "PYTHONDONTWRITEBYTECODE": "1"}


def monitor(folder: Path, *words: str, module: str = TWO_GPUS) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *words],
        cwd=ROOT,
        env=environment(folder, module),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_one_view_as_json(tmp_path: Path) -> None:
    done = monitor(tmp_path, "--once", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    (line,) = done.stdout.splitlines()
    first, other = json.loads(line)["gpus"]
    assert (first["name"], first["memory_total_bytes"], first["power_w"]) == (
        "NVIDIA H100 80GB HBM3",
        80 * 2**30,
        350.5,
    )
    assert (other["index"], other["name"], other["power_w"]) == (1, "NVIDIA X", None)


def test_one_view_as_a_table_of_the_chosen_gpus(tmp_path: Path) -> None:
    done = monitor(tmp_path, "--once", "--gpus", "GPU-bbbb-1")
    assert (done.returncode, done.stderr) == (0, "")
    _, _, headings, row = done.stdout.splitlines()
    assert headings.split()[:2] == ["GPU", "name"]
    assert row.split()[:2] == ["1", "X"] and "- / 700" in row


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_json_lines_come_as_they_are_made_until_a_signal_ends_them(tmp_path: Path, number: signal.Signals) -> None:
    with subprocess.Popen(
        [*COMMAND, "--json", "--interval", "0.2"],
        cwd=ROOT,
        env=environment(tmp_path, TWO_GPUS),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None and child.stderr is not None
        lines = [json.loads(child.stdout.readline()) for _ in range(8)]
        child.send_signal(number)
        rest, complaints = child.communicate(timeout=30)
    assert (child.returncode, complaints) == (0, "")
    assert all(json.loads(line) for line in rest.splitlines()), "whole lines only"
    assert [one["since_s"] for one in lines] == sorted({one["since_s"] for one in lines})
    energy = [one["gpus"][0]["energy_j"] for one in lines]
    assert energy[0] is None and energy[-1] is not None and energy[-1] % 100 == 0 and energy[-1] > 0


def test_a_reader_who_leaves_ends_it(tmp_path: Path) -> None:
    for words in ("--json", "--gpus 0"):
        done = subprocess.run(
            ["bash", "-c", f"{' '.join(COMMAND)} {words} --interval 0.1 | head -n 2"],
            cwd=ROOT,
            env=environment(tmp_path, TWO_GPUS),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert len(done.stdout.splitlines()) == 2 and done.stderr == ""


def test_on_a_terminal_ctrl_c_leaves_the_last_view(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [*COMMAND, "--interval", "0.2"],
        cwd=ROOT,
        env={**environment(tmp_path, TWO_GPUS), "TERM": "xterm"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    said, asked = b"", False
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if select.select([ours], [], [], 0.1)[0]:
            try:
                said += os.read(ours, 65536)
            except OSError:  # the other side is closed
                break
        if not asked and said.count(b"NVIDIA") + said.count(b"H100") >= 3:
            child.send_signal(signal.SIGINT)
            asked = True
    os.close(ours)
    assert child.wait(timeout=30) == 0
    text = said.decode()
    assert "\x1b[?25l" in text and text.rstrip().endswith("\x1b[?25h"), "the cursor is hidden, then shown again"
    assert "\x1b[2K" in text, "views take each other's place"
    last = text[text.rindex("peak and energy") :]
    assert "H100 80GB HBM3" in last and "350 / 700" in last and "\x1b[2K" not in last
    assert "Traceback" not in text and "Interrupted" not in text


def test_an_unknown_gpu_is_a_mistake(tmp_path: Path) -> None:
    done = monitor(tmp_path, "--gpus", "0,7", "--once")
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: --gpus 0,7: '7' is not a GPU. Allowed: 0 (NVIDIA H100 80GB HBM3, GPU-aaaa-0), 1 (")


@pytest.mark.parametrize(
    ("module", "why", "todo"),
    [
        (NO_GPU, "finds no GPU", "nvidia-smi"),
        (NOT_INSTALLED, "pynvml", "pip install nvidia-ml-py"),
        (NO_GPU.replace("[]", "[], start_error=9"), "Driver Not Loaded", "NVIDIA driver"),
    ],
)
def test_a_machine_without_gpus_is_a_sentence_and_exit_code_1(tmp_path: Path, module: str, why: str, todo: str) -> None:
    done = monitor(tmp_path, module=module)
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ") and why in line and todo in line
