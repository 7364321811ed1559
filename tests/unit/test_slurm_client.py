"""What Slurm's clients print, and the programs in their places that answer badly."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.errors import LaunchError, NoAnswer
from orchestrator.executors.slurm import client
from orchestrator.executors.slurm.client import QueueFull, Unreachable, indices, leaks

Fake = Callable[[str, str], None]
SCRIPT = Path("/tmp/job.sh")


@pytest.mark.parametrize(
    "text, expected",
    [
        ("7", [7]),
        ("[7]", [7]),
        ("[1%1]", [1]),
        ("[3-9:2]", [3, 5, 7, 9]),
        ("[1,4]", [1, 4]),
        ("0-3%2", [0, 1, 2, 3]),
        ("[0-2,7,10-14:4%20]", [0, 1, 2, 7, 10, 14]),
    ],
)
def test_short_forms_of_arrays(text: str, expected: list[int]) -> None:
    assert indices(text) == expected


@pytest.mark.parametrize(
    "text", ["", "[", "[]", "a", "-1", "1-", "[1,]", "[1%]", "1,,2", "[0-9999999999]", "[1-2,...]"]
)
def test_texts_that_are_not_elements(text: str) -> None:
    with pytest.raises(LaunchError, match="does not name elements"):
        indices(text)


LINES = """\
5|0|RUNNING|None|2026-11-25T10:00:00|tb-a.0001
5|[1-2%1]|PENDING|JobArrayTaskLimit|N/A|tb-a.0001
6|N/A|RUNNING|None|2026-11-25T10:00:00|somebody's | job
7|3|CANCELLED|None|2026-11-25T10:00:00|tb-a.0002
8|0|PENDING|(ReqNodeNotAvail, UnavailableNodes:n[1-2])|N/A|tb-odd|name
9|[0-9999999]|PENDING|Priority|N/A|of another program
"""


def test_the_queue(fake: Fake) -> None:
    fake("squeue", f"cat <<'END'\n{LINES}END")
    rows = client.queue()
    assert [(row.name, row.job_id, row.element, row.state) for row in rows] == [
        ("tb-a.0001", 5, 0, "RUNNING"),
        ("tb-a.0001", 5, 1, "PENDING"),
        ("tb-a.0001", 5, 2, "PENDING"),
        ("tb-a.0002", 7, 3, "CANCELLED"),
        ("tb-odd|name", 8, 0, "PENDING"),
    ]
    assert rows[1].reason == "JobArrayTaskLimit"


def test_the_queue_of_a_chosen_cluster_has_a_heading(fake: Fake) -> None:
    fake("squeue", f"echo 'CLUSTER: test'; cat <<'END'\n{LINES}END")
    assert len(client.queue()) == 5


@pytest.mark.parametrize(
    "printed",
    [
        "5|0|RUN",
        "5|0|running|None|x|name",
        "slurm: error",
        "x|0|RUNNING|None|x|n",
        "5|[1-|PENDING|None|x|tb-n",
        f"{'9' * 5000}|0|RUNNING|None|x|tb-n",
        "5|0-9999999|PENDING|None|x|tb-n",
    ],
)
def test_a_damaged_answer_is_not_an_answer(fake: Fake, printed: str) -> None:
    fake("squeue", f"cat <<'END'\n{LINES}{printed}\nEND")
    with pytest.raises(LaunchError, match="squeue: "):
        client.queue()


def test_a_client_that_hangs_is_ended(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "TIMEOUT_S", 0.2)
    fake("squeue", "sleep 60")
    began = time.monotonic()
    with pytest.raises(NoAnswer):
        client.queue()
    assert time.monotonic() - began < 10


@pytest.mark.parametrize(
    "printed, number",
    [("17", 17), ("17;test", 17), ("Welcome to the cluster!\n18\nHave fun", 18), (f"{'9' * 5000}\n19", 19)],
)
def test_the_number_of_a_job(fake: Fake, printed: str, number: int) -> None:
    fake("sbatch", f"cat <<'END'\n{printed}\nEND")
    assert client.submit(SCRIPT) == number


SAID = "sbatch: error: Batch job submission failed: "
LIMITS = "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"


@pytest.mark.parametrize(
    "said, kind",
    [
        (SAID + LIMITS, QueueFull),
        ("sbatch: error: QOSMaxSubmitJobPerUserLimit\n" + SAID + LIMITS, QueueFull),
        (SAID + "Slurm temporarily unable to accept job, sleeping and retrying", QueueFull),
        (SAID + "Unable to contact slurm controller (connect failure)", Unreachable),
        (SAID + "Socket timed out on send/recv operation", NoAnswer),
        (SAID + "Zero Bytes were transmitted or received", NoAnswer),
        (SAID + "Invalid partition name specified", LaunchError),
        (SAID + "Requested node configuration is not available", LaunchError),
    ],
)
def test_refusals_of_sbatch(fake: Fake, said: str, kind: type[Exception]) -> None:
    fake("sbatch", f"cat >&2 <<'END'\n{said}\nEND\nexit 1")
    with pytest.raises(LaunchError) as refused:
        client.submit(SCRIPT)
    assert type(refused.value) is kind
    assert str(refused.value) == said.splitlines()[-1].removeprefix(SAID)


def test_an_answer_without_a_number_may_be_of_a_job(fake: Fake) -> None:
    fake("sbatch", "echo Submitted")
    with pytest.raises(NoAnswer, match="is not the number of a job"):
        client.submit(SCRIPT)


def test_a_killed_sbatch_may_have_submitted_the_job(fake: Fake) -> None:
    fake("sbatch", "kill -9 $$")
    with pytest.raises(NoAnswer, match="sbatch: it was ended by signal 9"):
        client.submit(SCRIPT)


def test_a_job_inherits_no_options_of_slurm() -> None:
    leaked = ["CUDA_VISIBLE_DEVICES", "SLURM_JOB_ID", "SLURM_MEM_PER_NODE", "SBATCH_PARTITION", "SQUEUE_FORMAT"]
    kept = ["PATH", "SLURM_CONF", "SLURM_CLUSTERS", "HF_TOKEN"]
    assert leaks(dict.fromkeys([*leaked, *kept], "x")) == leaked


def test_the_largest_array(fake: Fake) -> None:
    fake("scontrol", "echo 'MaxArraySize            = 4001'")
    assert client.max_array_size() == 4001
    fake("scontrol", "exit 1")
    assert client.max_array_size() == client.DEFAULT_MAX_ARRAY
