"""The example of a plain loop: three optimizers, three runs of each, with intervals and a finding.

The loop itself is run by hand. In the campaign, a program with planted step times takes its place: what is found then does not
depend on the machine.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from campaigns import Campaign, tunebench

from orchestrator.measure.steps.printed import StepLines

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "plain_loop"
# Adam's step takes three times as long as that of plain SGD, and momentum's 5 % longer. A run differs from the next by 0.2 %.
PLANTED = """
import json, os, sys
base = {"sgd": 0.01, "momentum": 0.0105, "adam": 0.03}[sys.argv[2]]
run = int(os.path.basename(os.environ["TUNEBENCH_RUN_DIR"])[1])
for step in range(1, 61):
    seconds = base * (1 + 0.002 * run + 0.001 * (step % 3)) * (3 if step == 1 else 1)
    print(json.dumps({"step": step, "seconds": seconds, "tokens": 256, "samples": 32}))
print(json.dumps({"loss": 2.5, "runtime": 60 * base}))
"""


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
def test_the_loop_learns_and_prints_every_step(optimizer: str) -> None:
    words = [sys.executable, EXAMPLE / "train.py", "--optimizer", optimizer, "--steps", "30"]
    printed = subprocess.run(words, capture_output=True, check=True).stdout
    reader = StepLines()
    steps = reader.feed(printed)
    assert [step["step"] for step in steps] == list(range(1, 31))
    assert {(step["tokens"], step["samples"]) for step in steps} == {(256, 32)}
    assert (reader.note, reader.problem) == (None, None)
    assert json.loads(printed.splitlines()[-1])["loss"] < 5.5, "that of guessing one of 256 bytes"


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    """The campaign of the example, with planted step times."""
    folder = shutil.copytree(EXAMPLE, tmp_path_factory.mktemp("planted") / "plain_loop")
    (folder / "train.py").write_text(PLANTED)
    return tunebench(folder, "run", "scenarios.yaml", "--yes")


def test_each_optimizer_has_a_speed_with_an_interval(planted: Campaign) -> None:
    assert planted.code == 0, planted.said
    rows = {row["optimizer"]: row for row in planted.rows()}
    assert rows.keys() == {"sgd", "momentum", "adam"}
    for optimizer, seconds in (("sgd", 0.01), ("momentum", 0.0105), ("adam", 0.03)):
        row, speed = rows[optimizer], 256 / (seconds * 1.005)
        assert float(row["tokens_per_s"]) == pytest.approx(speed, rel=0.002)
        assert float(row["tokens_per_s_low"]) < speed < float(row["tokens_per_s_high"])
        assert row["runs_ok"] == "3"


def test_the_optimizers_are_compared_with_sgd(planted: Campaign) -> None:
    findings = [line.removeprefix("• ") for line in planted.out.splitlines() if line.startswith("• ")]
    assert "the fastest experiment that ended ok is optimizer sgd" in findings[0]
    assert findings[1:] == [
        "optimizer momentum is 4.8 % slower (0.952×, 0.948 to 0.957) than sgd on 1 CPU process",
        "optimizer adam is 67 % slower (0.33×, 0.33 to 0.33) than sgd on 1 CPU process",
    ]
    speedups = {row["optimizer"]: float(row["speedup"]) for row in planted.rows()}
    assert speedups == pytest.approx({"sgd": 1.0, "momentum": 1 / 1.05, "adam": 1 / 3})
