"""Results folders of the reference system: the published numbers for good rows, the truth for the others."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest

from orchestrator.errors import ResultsError
from orchestrator.results.table.load import load, varying
from orchestrator.results.table.sources.reference_log import failure

CASES = Path(__file__).parent.parent / "golden" / "report"
OURS = {"status", "failure_kind", "failure_cause", "runs_ok", "loss_difference", "doubt"}
FINAL = "{'train_runtime': 9.0, 'train_samples_per_second': 8.0, 'train_steps_per_second': 1.0, 'train_loss': %s}\n"


def published(case: str, name: str) -> tuple[list[str], list[str], list[dict[str, str]]]:
    """Keep list, drop list and rows of one published CSV file."""
    words = json.loads((CASES / case / f"{name}.json").read_text())["args"]
    at = words.index("--remove_columns") if words else 0
    with (CASES / case / f"{name}.csv").open(newline="") as file:
        return words[1:at], words[at + 1 :], list(csv.DictReader(file))


@pytest.mark.parametrize("name", ["plain", "benchmarks"])
@pytest.mark.parametrize("case", ["hf-only", "nvidia-only", "mixed", "silent-failures"])
def test_good_rows_have_the_published_columns_and_values(case: str, name: str) -> None:
    keep, drop, theirs = published(case, name)
    table = load([CASES / case / "results"])
    shown = varying(table.experiments, keep=keep, drop=drop).shown
    assert set(shown.columns) - OURS == set(theirs[0]) - {"error_messages"}
    good = shown[(table.experiments["status"] == "ok").tolist()]
    theirs = [row for row in theirs if row["train_runtime"]]
    assert len(good) == len(theirs)
    for name in set(theirs[0]) - {"error_messages"}:
        for ours, other in zip(good[name].tolist(), (row[name] for row in theirs), strict=True):
            assert _same(ours, other), (name, ours, other)


def _same(ours: object, other: str) -> bool:
    if isinstance(ours, (int, float)) and not isinstance(ours, bool):
        return ours == float(other)
    return other == ("" if ours is None or str(ours) == "<NA>" else str(ours))


def test_failures_are_rows_with_kind_and_cause() -> None:
    rows = load([CASES / "mixed" / "results"]).experiments.set_index("id")
    assert len(rows) == 8
    assert rows.loc["exp_6", "status"] == "failed"
    assert rows.loc["exp_6", "failure_cause"] == "ValueError: exp 6: bad target_modules"
    assert "train_runtime" in rows and rows.loc[["exp_5", "exp_6"], "train_runtime"].isna().all()


def test_silent_failures_are_failed() -> None:
    rows = load([CASES / "silent-failures" / "results"]).experiments.set_index("id")
    assert rows.loc["exp_2", ["status", "failure_kind"]].tolist() == ["failed", "oom_cuda"]
    assert rows.loc["exp_4", ["status", "failure_kind"]].tolist() == ["failed", "no_metrics"]
    assert rows.loc["exp_2", "runs_ok"] == 0
    assert rows["mem_nvidia_mem_reserved"].isna().tolist() == [False, False, True, False, True, False, False, False]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the mixed case, to be spoilt."""
    return Path(shutil.copytree(CASES / "mixed" / "results", tmp_path / "bench"))


def edit(path: Path, **changes: object) -> None:
    content = {**json.loads(path.read_text()), **changes}
    path.write_text(json.dumps({name: value for name, value in content.items() if value is not None}))


def test_an_empty_log_and_a_missing_stage_are_dashes_said_once(copy: Path) -> None:
    (copy / "exp_0" / "gpu_memory_logs.csv").write_text("")
    edit(copy / "exp_1" / "results.json", init_mem_gpu_alloc_delta=None)
    table = load([copy])
    rows = table.experiments.set_index("id")
    assert rows.loc["exp_0", "status"] == rows.loc["exp_1", "status"] == "ok"
    assert rows.isna().loc["exp_0", "mem_nvidia_mem_reserved"]
    assert rows.isna().loc["exp_1", ["mem_torch_mem_alloc_in_bytes", "mem_peak_torch_mem_alloc_in_bytes"]].all()
    assert rows.loc["exp_1", "train_tokens_per_second"] == 3991.0
    assert table.warnings == (
        "exp_0: gpu_memory_logs.csv: the log is empty.",
        "exp_1: a stage of the Trainer's memory metrics is missing.",
    )


def test_a_stray_folder_is_said_and_left_out(copy: Path) -> None:
    (copy / "exp_99").mkdir()
    (copy / "exp_notes").mkdir()
    table = load([copy])
    assert len(table.experiments) == 8
    assert [sentence.split()[0] for sentence in table.warnings] == ["exp_99", "exp_notes"]


def test_a_run_that_never_ended_is_a_failed_row_from_its_command_line(copy: Path) -> None:
    (copy / "exp_5" / "results.json").unlink()
    (copy / "exp_6" / "results.json").write_text('{"half": ')
    table = load([copy])
    rows = table.experiments.set_index("id")
    assert rows.loc["exp_5", "status"] == "failed"
    assert rows.loc["exp_5", "num_gpus"] == 2
    assert rows.loc["exp_5", "target_modules"] == "q_proj v_proj"
    assert rows.loc["exp_5", "framework_config"] == "accelerated-peft-bnb"
    assert rows.loc["exp_5", "response_template"] == "\n### Response:"
    assert len(table.warnings) == 2


def test_a_handled_traceback_in_a_complete_run_is_ok(copy: Path) -> None:
    (copy / "exp_0" / "stderr").write_text((copy / "exp_5" / "stderr").read_text())
    assert load([copy]).experiments["status"].tolist()[0] == "ok"


def test_metrics_that_the_reference_threw_away_are_read_from_stdout(copy: Path) -> None:
    (copy / "exp_5" / "stdout").write_text("100%|##| 1/1 " + FINAL % "1.5")
    row = load([copy]).experiments.set_index("id").loc["exp_5"]
    assert (row["status"], row["train_loss"]) == ("ok", 1.5)


def test_a_loss_that_is_not_a_number_is_no_result(copy: Path) -> None:
    (copy / "exp_5" / "stdout").write_text(FINAL % "nan")
    row = load([copy]).experiments.set_index("id").loc["exp_5"]
    assert (row["status"], row["failure_kind"]) == ("failed", "not_finite")
    assert row["failure_cause"] == "It ended with a number that is not finite: train_loss."


def test_metrics_as_text_are_numbers(copy: Path) -> None:
    edit(copy / "exp_0" / "results.json", train_runtime="191.2", epoch="0.01", train_loss="1.063")
    row = load([copy]).experiments.set_index("id").loc["exp_0"]
    assert (row["status"], row["train_runtime"], row["train_loss"]) == ("ok", 191.2, 1.063)


def test_short_names_without_script_json_are_those_of_the_files(copy: Path) -> None:
    (copy / "script.json").unlink()
    names = load([copy]).experiments["framework_config"].tolist()
    assert names[:3] == ["none", "none", "foak-fast-kernels"]
    assert names[4] == "accelerated-peft-bnb-nf4"


def test_the_folder_above_and_a_foreign_folder(tmp_path: Path) -> None:
    assert len(load([CASES / "mixed"]).experiments) == 8
    with pytest.raises(ResultsError, match="is not a results folder"):
        load([tmp_path])
    with pytest.raises(ResultsError, match="there is no such folder"):
        load([tmp_path / "absent"])


HEAD = 'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\n    f()\n'


@pytest.mark.parametrize(
    ("stderr", "kind", "cause"),
    [
        (HEAD + "RuntimeError: boom\nmore noise\n", "unknown", "RuntimeError: boom"),
        (HEAD + "torch.cuda.OutOfMemoryError: CUDA out of memory.\n", "oom_cuda", None),
        ("[rank0]: Traceback (most recent call last):\n[rank0]:   x\n[rank0]: RuntimeError: boom\n", "unknown", None),
        (HEAD + "KeyboardInterrupt\n", "unknown", "KeyboardInterrupt"),
        (HEAD + "RuntimeError: boom\n" + HEAD + "a.errors.ChildFailedError: \n====\nx FAILED\n", "unknown", None),
        (HEAD + "a.errors.ChildFailedError: \n====\nx FAILED\n", "no_metrics", None),
        (" 10%|# | 1/10\r" + HEAD + "ModuleNotFoundError: No module named 'x'\n", "import_error", None),
        ("usage: x\nx.py: error: unrecognized arguments: --foo\n", "bad_arguments", None),
        ("RuntimeError: printed with no traceback\n", "no_metrics", None),
        ("Killed\n", "no_metrics", None),
        ("", "no_metrics", None),
    ],
)
def test_the_cause_is_the_trainers_own_exception(stderr: str, kind: str, cause: str | None) -> None:
    found = failure(stderr)
    assert found[0] == kind
    assert cause is None or found[1] == cause
