"""One campaign of everything that goes wrong in a trainer: each way to fail is told rightly, nobody outlives its run, and the
others finish. And a campaign whose disk is small, read-only, or taken away."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from campaigns import Campaign, tunebench
from factories.cases import document
from trees import lives

from orchestrator.records import RunRecord, Status
from orchestrator.results.store import Store

FAULTY = Path(__file__).with_name("faulty.py")
RUN = ("run", "scenarios.yaml", "--yes")

OOM_HINT = "batch 8 needed at least 80.6 GiB of 79.1; try 4, or gradient checkpointing"
WAYS = document("faults/ways_to_fail")
LIMITS = {
    "hangs_before_its_first_step": {"startup_timeout_s": 2},
    "hangs_at_step_5": {"stall_timeout_s": 1.5, "startup_timeout_s": 60},
    "child_ignores_term": {"timeout_s": 2},
}


def scenario(mode: str, **more: object) -> dict[str, object]:
    command = ["{python}", str(FAULTY), "{mode}", "{scenario_dir}", "{port}"]
    metrics = {name: {"key": name} for name in ("train_runtime", "train_loss")}
    return {
        "name": mode.replace("_", "-"),
        "trainer": "custom",
        "device": "cpu",
        "custom": {"command": command, "launcher": "none", "metrics": metrics},
        "arguments": {"mode": mode, "per_device_train_batch_size": 8},
        **more,
    }


def records(campaign: Campaign, mode: str) -> list[RunRecord]:
    (found,) = [found for name, found in campaign.records().items() if name.startswith(f"{mode.replace('_', '-')}-")]
    return found


def carried_out(folder: Path, scenarios: list[dict[str, object]], *words: str) -> Campaign:
    (folder / "scenarios.yaml").write_text(json.dumps({"scenarios": scenarios}))
    return tunebench(folder, *RUN, *words)


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Campaign]:
    folder = tmp_path_factory.mktemp("faults")
    yield carried_out(folder, [scenario(mode, **LIMITS.get(mode, {})) for mode in WAYS], "--parallel", "2")
    shutil.rmtree(folder, ignore_errors=True)  # a gigabyte of log


@pytest.mark.parametrize("mode", WAYS)
def test_each_way_to_fail_is_told(campaign: Campaign, mode: str) -> None:
    status, kind, cause, hint = WAYS[mode]
    assert records(campaign, mode), campaign.err
    last = records(campaign, mode)[-1]
    assert (last.status, last.kind) == (status, kind), last
    assert cause in (last.cause or "")
    assert hint is None or hint in (last.hint or "")


def test_the_campaign_went_through_and_says_that_some_failed(campaign: Campaign) -> None:
    assert campaign.code == 1
    assert "Traceback" not in campaign.err
    assert len(campaign.rows()) == len(WAYS)


def test_nobody_outlives_its_run(campaign: Campaign) -> None:
    pids = {int(line) for line in (campaign.folder / "pids").read_text().split()}
    assert len(pids) >= len(WAYS) + 3
    left = [words_of(pid) for pid in pids if lives(pid)]
    assert [words for words in left if str(FAULTY) in words or "time.sleep(600)" in str(words)] == []


def words_of(pid: int) -> list[str]:
    """A number may be somebody else's by now, who ends while he is looked at."""
    try:
        return psutil.Process(pid).cmdline()
    except psutil.Error:
        return []


def test_a_port_that_was_stolen_is_tried_again_with_another(campaign: Campaign) -> None:
    first, second = records(campaign, "port_was_stolen")
    assert (first.status, first.kind, second.status) == ("failed", "port_in_use", "ok")


def test_where_a_stalled_run_stood_is_saved(campaign: Campaign) -> None:
    (stacks,) = [path.read_text() for path in campaign.results.glob("experiments/hangs-at-*/runs/*/stacks.txt")]
    assert "in_the_fifth_step" in stacks


def test_a_second_call_runs_nothing_and_failures_of_a_kind_are_tried_again_when_asked(campaign: Campaign) -> None:
    words = ("--scenario", "exit-3", "--scenario", "no-metrics", "--scenario", "good")

    def again(*more: str) -> list[int]:
        tunebench(campaign.folder, *RUN, *words, *more)
        return [len(records(campaign, mode)) for mode in ("exit_3", "no_metrics", "good")]

    assert again() == [1, 1, 1]
    assert again("--retry-failed", "no_metrics") == [1, 2, 1]
    assert again("--retry-failed") == [2, 3, 1]


def test_fail_fast_starts_nothing_behind_the_first_failure(tmp_path: Path) -> None:
    found = carried_out(tmp_path, [scenario("exit_3"), scenario("no_metrics"), scenario("sigkill")], "--fail-fast")
    made = [record for mode in ("exit_3", "no_metrics", "sigkill") for record in records(found, mode)]
    assert (len(made), found.code) == (1, 1)
    assert "--fail-fast starts no more runs" in found.err


def test_fail_fast_says_which_other_runs_it_ended(tmp_path: Path) -> None:
    slow = scenario("hangs_before_its_first_step")
    found = carried_out(tmp_path, [slow, scenario("exit_3")], "--fail-fast", "--parallel", "2", "--json-lines")
    events = [json.loads(line) for line in found.out.splitlines()]
    ended = [
        (event["experiment"].partition("-none")[0], event["status"]) for event in events if event["event"] == "ended"
    ]
    assert ended == [("exit-3", "failed"), ("hangs-before-its-first-step", "cancelled")]
    (left,) = [event["text"] for event in events if event["event"] == "left"]
    assert left.endswith("--fail-fast starts no more runs and ended 1 run in progress; the same command runs the rest")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 90 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=90m", "none", str(folder)], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip("nobody may mount a file system here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_ends_the_campaign_with_a_sentence_and_loses_no_record(tmp_path: Path, small_disk: Path) -> None:
    results = ("--results", str(small_disk / "results"))
    fills = scenario("logs_a_gigabyte")
    found = carried_out(tmp_path, [scenario("good"), fills, scenario("exit_3")], *results)
    assert "Traceback" not in found.err
    assert found.code == 2 and "make room" in found.err, found.err
    contents = Store.resume(small_disk / "results").contents()
    assert contents.warnings == ()
    records = {one.experiment.scenario: one.records for one in contents.experiments}
    (full,) = records["logs-a-gigabyte"]
    assert (full.status, full.kind) == (Status.FAILED, "disk_full")
    for log in small_disk.glob("results/experiments/logs*/runs/*/stdout.log"):
        log.unlink()
    again = carried_out(tmp_path, [scenario("good"), fills, scenario("exit_3")], *results)
    assert {name: len(runs) for name, runs in records.items() if runs} == {
        name: 1 for name, runs in records.items() if runs
    }
    records = {
        one.experiment.scenario: one.records for one in Store.resume(small_disk / "results").contents().experiments
    }
    assert {name: [one.status for one in runs] for name, runs in records.items()} == {
        "good": ["ok"], "logs-a-gigabyte": ["failed"], "exit-3": ["failed"],
    }, again.err  # fmt: skip


def test_a_disk_that_cannot_be_written_is_a_sentence(tmp_path: Path, small_disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    found = carried_out(tmp_path, [scenario("good")], "--results", str(small_disk / "results"))
    assert found.code == 2 and "Traceback" not in found.err
    assert "Read-only file system" in found.err


def test_results_that_are_removed_in_mid_run_are_a_sentence(tmp_path: Path) -> None:
    removes = scenario("good", env={"PYTHONSTARTUP": ""})
    removes["custom"] = {
        "command": ["{python}", "-c", "import shutil, sys; shutil.rmtree(sys.argv[1])", str(tmp_path / "results")],
        "launcher": "none",
        "metrics": {"train_runtime": {"key": "train_runtime"}},
    }
    found = carried_out(tmp_path, [removes])
    assert found.code == 2 and "Traceback" not in found.err, found.err
    assert "was removed while runs were in progress" in found.err
