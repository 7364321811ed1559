"""One side of a comparison, from every kind of place; and what is no such place, told in a sentence."""

from __future__ import annotations

import csv
import gc
import io
import itertools
import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from factories.cases import cases, document
from factories.results import BASE, ended, failed, stored
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.compare.comparison import Entry, Side, Verdict
from orchestrator.compare.rules import parse
from orchestrator.compare.sides import environment, pytest_benchmark
from orchestrator.compare.sides.pairing import pair
from orchestrator.compare.sides.read import halves, read, several
from orchestrator.compare.verdicts import compare
from orchestrator.errors import OrchestratorError, ResultsError, SelectionError
from orchestrator.measure.metrics import METRICS, Show
from orchestrator.records import Caveat, CaveatKind, DataSpec, Device, Environment, Framework, Reason, RunRecord
from orchestrator.records.experiment import CustomCommand, Measure, MetricSource, StepSource, Target
from orchestrator.report import tables
from orchestrator.results.table.load import load
from orchestrator.results.table.sources import csv_file

GOLDEN = Path(__file__).parent.parent / "golden"
SAMPLE = Path(__file__).parents[2] / "docs" / "sample"
SPEED = "tokens_per_s"
A100 = GOLDEN / "compat" / "refs" / "a100_80gb.csv"
CASES = GOLDEN / "compat" / "compare"
MICRO = GOLDEN / "compare" / "pytest_benchmark.json"
GPU = replace(BASE, id="full-tiny-gpu-000000000001", device=Device.CUDA)
H100 = {
    "git": {"commit": "abc", "dirty": False},
    "host": {"name": "node-1", "cpu": "Xeon", "cpu_count": 16, "system": "Linux"},
    "python": {"executable": "/env/bin/python", "version": "3.12.3"},
    "packages": {"torch": "2.11.0", "peft": "0.21.0", "other": "1"},
    "worker_versions": {"torch": "2.11.0+cu130", "cuda": "13.0", "liger_kernel": "0.8.5"},
    "driver": {"driver": "580.1", "cuda": "13.0"},
    "gpus": [
        {"name": "NVIDIA H100", "power_limit_w": 699.998, "sm_clock_max_mhz": 1980, "persistence_mode": True},
        {"name": "NVIDIA H100", "power_limit_w": 700.0, "sm_clock_max_mhz": 1980, "persistence_mode": True},
    ],
}


def only(side: Side) -> Entry:
    (entry,) = side.entries
    return entry


def speeds(entry: Entry) -> list[float]:
    return [run.numbers["tokens_per_s"] for run in entry.runs]


def csv_side(folder: Path, text: str) -> Side:
    """Read one side from a CSV file `b.csv` with this text."""
    (folder / "b.csv").write_text(text)
    return read([folder / "b.csv"])


def campaign(root: Path, *, experiments: int = 3, repeats: int = 3, began: float = 1.7e9) -> Path:
    """Numbers that say whose they are: experiment 2, repeat 3 makes 203 tokens/s."""
    cells = []
    for number in range(1, experiments + 1):
        arguments = {**BASE.arguments, "per_device_train_batch_size": str(2**number)}
        experiment = replace(BASE, id=f"full-tiny-00000000000{number}", arguments=arguments)
        runs = [
            replace(
                ended(experiment, repeat, tokens_per_s=100.0 * number + repeat, train_loss=2.5, word="w"),
                started_at=began,
            )
            for repeat in range(1, repeats + 1)
        ]
        cells.append((experiment, runs))
    return stored(root, *cells)


# several tables of one folder


def test_the_tables_of_a_folder_do_not_count_twice_on_a_side(tmp_path: Path) -> None:
    runs = [replace(ended(BASE, n, tokens_per_s=100.0 + n), started_at=1.7e9 + n) for n in (1, 2, 3)]
    root = stored(tmp_path / "r", (BASE, runs))
    files = [root / "benchmarks.csv", root / "raw_summary.csv"]
    for file, make in zip(files, (tables.benchmarks, tables.raw_summary), strict=True):
        file.write_text(make(load([root])))
    for places, kept in ((files, files[1]), ([root, *files], root), ([files[0], root], root)):
        side = read(places)
        assert (side.name, speeds(only(side))) == (str(kept), [101, 102, 103])
        assert [sentence.split(": ")[0] for sentence in side.warnings] == [str(one) for one in places if one != kept]


# a results folder of ours


def test_a_folder_gives_an_entry_an_experiment_and_a_run_for_each_repeat_that_is_ok(tmp_path: Path) -> None:
    root = campaign(tmp_path / "r")
    side = read([root])
    assert [speeds(entry) for entry in side.entries] == [[101, 102, 103], [201, 202, 203], [301, 302, 303]]
    first = side.entries[0]
    assert [run.repeat for run in first.runs] == [1, 2, 3]
    assert {run.started_at for run in first.runs} == {1.7e9}
    assert first.runs[0].numbers.keys() == {"tokens_per_s", "train_loss", "wall_s"}
    assert (first.status, first.failure, first.id, first.folder, first.whole) == (
        *("ok", None, "full-tiny-000000000001"),
        *(str(root), True),
    )
    assert side.name == str(root) and side.warnings == ()


def test_the_key_is_what_makes_an_experiment_and_what_tells_it_from_its_like(tmp_path: Path) -> None:
    first, second, _ = read([campaign(tmp_path / "r")]).entries
    assert first.key == {
        "scenario": "full",
        "framework_config": "none",
        "model_name_or_path": "config:tiny-llama",
        "num_gpus": 1,
        "trainer": "huggingface",
        "per_device_train_batch_size": "2",
    }
    assert first.label == "full · none · config:tiny-llama · 1 process · batch 2"
    assert second.label.endswith("batch 4")
    assert first.arguments["learning_rate"] == "2e-5" and "per_device_train_batch_size" not in first.arguments
    assert first.arguments["effective_dtype"] == "float32"


def test_a_list_and_a_text_of_the_same_words_are_two_experiments(tmp_path: Path) -> None:
    values: list[str | tuple[str, ...]] = [("a", "b"), "a b", (), "[]"]
    cells = [
        (replace(BASE, id=f"full-tiny-00000000000{place}", arguments={**BASE.arguments, "y": value}), value)
        for place, value in enumerate(values)
    ]
    side = read([stored(tmp_path / "r", *((one, [ended(one, 1, tokens_per_s=1.0)]) for one, _ in cells))])
    assert [entry.key["y"] for entry in side.entries] == ['["a", "b"]', '"a b"', "[]", '"[]"']
    assert not any("more than once" in warning for warning in side.warnings)


def test_all_folders_of_both_sides_write_a_value_in_the_same_way(tmp_path: Path) -> None:
    lists, text = (
        stored(tmp_path / name, (one, [ended(one, 1, tokens_per_s=1.0)]))
        for name, one in (
            ("lists", replace(BASE, id="full-tiny-1", arguments={**BASE.arguments, "y": ("a", "b")})),
            ("text", replace(BASE, id="full-tiny-2", arguments={**BASE.arguments, "y": "a b"})),
        )
    )
    base, new, both = several([[lists], [text], [lists, text]])
    written = ['["a", "b"]', '"a b"']
    assert [only(base).arguments["y"], only(new).arguments["y"]] == written
    assert [entry.key["y"] for entry in both.entries] == written
    assert only(read([lists])).arguments["y"] == only(read([text])).arguments["y"] == "a b"


def test_an_empty_text_and_no_value_are_two_experiments(tmp_path: Path) -> None:
    cells = [
        replace(BASE, id=f"full-tiny-{n:012}", arguments={**BASE.arguments, **y}) for n, y in enumerate([{}, {"y": ""}])
    ]
    side = read([stored(tmp_path / "r", *((one, [ended(one, 1, tokens_per_s=1.0)]) for one in cells))])
    assert [entry.key["y"] for entry in side.entries] == [None, '""']
    assert [entry.label.rpartition(" · ")[2] for entry in side.entries] == ["1 process", 'y=""']
    assert not any("more than once" in warning for warning in side.warnings)


def test_the_last_try_of_a_repeat_counts(tmp_path: Path) -> None:
    runs = [ended(BASE, 1, tokens_per_s=1.0), ended(BASE, 1, attempt=2, tokens_per_s=2.0), failed(BASE, 2)]
    side = read([stored(tmp_path / "r", (BASE, runs))])
    assert speeds(only(side)) == [2.0] and only(side).status == "ok"
    assert (only(side).failed_runs, only(side).failure) == (1, "oom_cuda: oom_cuda, in a sentence")
    assert any("1 experiment has repeats that did not end ok" in sentence for sentence in side.warnings)
    again = [ended(BASE, 1, tokens_per_s=1.0), failed(BASE, 1, attempt=2)]
    entry = only(read([stored(tmp_path / "again", (BASE, again))]))
    assert (entry.status, entry.runs, entry.failure) == ("failed", (), "oom_cuda: oom_cuda, in a sentence")


def test_a_record_that_cannot_be_read_is_no_failure_and_said(tmp_path: Path) -> None:
    root = stored(tmp_path / "r", (BASE, [ended(BASE, 1, tokens_per_s=1.0)]))
    (root / "experiments" / BASE.id / "runs" / "r1-t1" / "record.json").write_text("{")
    side = read([root])
    entry = only(side)
    assert (entry.status, entry.failed_runs, entry.unreadable_runs) == ("unreadable", 0, 1)
    assert entry.failure == "unreadable: Its record cannot be read."
    assert any("record.json" in sentence for sentence in side.warnings)


def test_a_table_says_the_same_about_a_record_that_cannot_be_read(tmp_path: Path) -> None:
    other = replace(BASE, id="full-tiny-000000000001", arguments={**BASE.arguments, "learning_rate": "3e-5"})
    root = stored(tmp_path / "r", *((one, [ended(one, 1, tokens_per_s=100.0)]) for one in (BASE, other)))
    (root / "experiments" / other.id / "runs" / "r1-t1" / "record.json").write_text("{")
    (root / "benchmarks.csv").write_text(tables.benchmarks(load([root])))
    for place in (root, root / "benchmarks.csv"):
        assert [(entry.status, entry.unreadable_runs) for entry in read([place]).entries] == [
            ("ok", 0),
            ("unreadable", 1),
        ]


def test_a_failure_counts_unless_a_later_try_of_its_repeat_cannot_be_read(tmp_path: Path) -> None:
    runs = [failed(BASE, 1), ended(BASE, 1, attempt=2, tokens_per_s=1.0), failed(BASE, 2)]
    root = stored(tmp_path / "r", (BASE, runs))
    (root / "experiments" / BASE.id / "runs" / "r1-t2" / "record.json").write_bytes(b"\x00\xff")
    entry = only(read([root]))
    assert (entry.status, entry.failed_runs, entry.unreadable_runs) == ("failed", 1, 1)
    second = stored(tmp_path / "s", (BASE, [ended(BASE, 1, tokens_per_s=2.0)]))
    entry = only(read([root, second]))
    assert (entry.status, speeds(entry), entry.failed_runs, entry.unreadable_runs) == ("ok", [2.0], 1, 1)


def test_what_was_not_run_stays_out_and_one_sentence_counts_it(tmp_path: Path) -> None:
    skipped = [replace(BASE, id=f"s{n}", skip=Reason(kind="batch", text="no")) for n in range(2)]
    cells = [(one, list[RunRecord]()) for one in (*skipped, replace(BASE, id="p"))]
    side = read([stored(tmp_path / "r", (BASE, [ended(BASE, 1)]), *cells)])
    assert len(side.entries) == 1
    assert side.warnings == (
        f"{tmp_path / 'r'}: 3 experiments have no finished run and cannot be compared: 1 pending, 2 skipped",
    )


def test_a_side_says_that_its_runs_were_disturbed(tmp_path: Path) -> None:
    busy = replace(ended(BASE, 2), warnings=(Caveat(kind=CaveatKind.BUSY_HOST, detail="13%"),))
    warnings = read([stored(tmp_path / "results", (BASE, [ended(BASE, 1), busy]))]).warnings
    assert [text.partition(": ")[2] for text in warnings] == [
        "1 experiment has runs on a busy host: their speeds are in doubt"
    ]


@pytest.mark.parametrize(
    ("kinds", "slowed"),
    [((), None), ((CaveatKind.BUSY_HOST,), 2.5), ((CaveatKind.BUSY_HOST, CaveatKind.THROTTLED), None)],
)
def test_the_wait_for_a_core_bounds_how_much_a_busy_host_slowed_a_run(
    tmp_path: Path, kinds: Sequence[CaveatKind], slowed: float | None
) -> None:
    caveats = tuple(Caveat(kind=kind, detail="20%") for kind in kinds)
    busy = replace(ended(BASE, 1, tokens_per_s=1.0, core_wait_share=0.2), warnings=caveats)
    (run,) = only(read([stored(tmp_path / "results", (BASE, [busy]))])).runs
    assert (run.slowed, bool(run.doubt)) == (slowed, bool(kinds))


def test_the_environment_has_short_names_and_the_workers_own_versions(tmp_path: Path) -> None:
    data = DataSpec(source="builtin:synthetic", form="tokens", samples=512)
    experiment = replace(GPU, data=data, monitors=("hf_memory", "nvml"), framework=Framework(name="liger", digest="d1"))
    record = replace(ended(experiment, 1), provenance=H100, beside=("a", "b"))
    entry = only(read([stored(tmp_path / "r", (experiment, [record]))]))
    expected = document("compare_sides/environment")
    assert {name: entry.environment.get(name) for name in expected} == expected
    assert "other" not in entry.environment
    assert entry.arguments["framework_digest"] == "d1"
    assert entry.label == "full · liger · config:tiny-llama · 1 GPU"


def test_each_package_that_differs_between_software_environments_is_told(tmp_path: Path) -> None:
    def side(name: str, lock: str, **packages: str) -> Side:
        one = replace(BASE, environment=Environment(name="own", request="1", lock=lock), python="/x")
        return read([stored(tmp_path / name, (one, [replace(ended(one, 1), provenance={"packages": packages})]))])

    def told(base: Side, new: Side) -> list[tuple[str, object, object]]:
        (found,) = pair(base, new)
        return [(one.name, one.base, one.new) for one in found.environment]

    old = side("old", "1", rich="13.9", torch="2.13.0", same="1")
    new = side("new", "2", rich="14.0", torch="2.14.1", same="1", more="0.1")
    assert told(old, new) == [("torch", "2.13.0", "2.14.1"), ("more", None, "0.1"), ("rich", "13.9", "14.0")]
    other_files = side("files", "3", rich="13.9", torch="2.13.0", same="1")
    assert told(old, other_files) == [("environment_lock", "1", "3")]
    (pair_of,) = pair(old, other_files)
    commands = [
        replace(one, environment={**one.environment, "custom.command": n})
        for n, one in enumerate((pair_of.base, pair_of.new))
        if one
    ]
    assert [one.name for one in environment.differences(*commands)] == ["custom.command", "environment_lock"]


def test_another_command_and_other_rules_of_measuring_are_told(tmp_path: Path) -> None:
    """They are neither arguments nor files, so nothing else would tell why the numbers differ."""
    metric = {"tokens_per_s": MetricSource(key="speed")}
    custom = CustomCommand(command=("{python}", "t.py", "--kind", "a b"), metrics=metric, folder="/here")
    launch = {"mixed_precision": "no", "dynamo_config": {"dynamo_backend": "no"}}
    one = replace(
        BASE, custom=custom, measure=Measure(discard_steps=2), script=None, accelerate=launch, target=Target(loss=9.5)
    )
    other = replace(
        one,
        custom=replace(custom, command=("{python}", "t.py", "--kind", "a", "b"), folder="/there"),
        measure=Measure(discard_steps=31, at_most_steps=25),
        steps=StepSource.CALLS,
        accelerate={"mixed_precision": "bf16", "dynamo_config": {"dynamo_backend": "inductor"}},
        target=Target(loss=8.0),
    )
    sides = [read([stored(tmp_path / name, (cell, [ended(cell, 1)]))]) for name, cell in (("a", one), ("b", other))]
    assert [(found.name, found.base, found.new) for found in pair(*sides)[0].environment] == [
        ("accelerate.dynamo_config.dynamo_backend", "no", "inductor"),
        ("accelerate.mixed_precision", "no", "bf16"),
        ("custom.command", "{python} t.py --kind 'a b'", "{python} t.py --kind a b"),
        ("measure.at_most_steps", None, 25),
        ("measure.discard_steps", 2, 31),
        ("steps", None, "tunebench.steps"),
        ("target.loss", 9.5, 8.0),
    ]


def test_runs_without_keys_do_not_differ_from_those_with_keys() -> None:
    """A database has none of the runs that an older Tunebench added to it."""
    keys = {"custom.command": "x", "host": "a"}
    assert environment.combined([{"host": "a"}, keys, keys]) == keys
    assert environment.combined([{"custom.command": "x"}, keys]) == {"custom.command": "x", "host": "?, a"}


@pytest.mark.parametrize("package", ["accelerate", "transformers", "measure"])
def test_a_package_with_the_name_of_a_key_is_a_package(package: str) -> None:
    """accelerate is a package, and `accelerate.mixed_precision` is a part of a key."""
    assert environment.combined([{package: "1.0"}, {"x": 1}])[package] == "1.0, ?"
    base, new = (
        Entry(key={}, label="a", status="ok", environment={"torch": n, package: n, "accelerate.split": n, "steps": n})
        for n in (1, 2)
    )
    names = [one.name for one in environment.differences(base, new)]
    assert names.index("accelerate.split") < names.index("steps") < names.index("torch") < names.index(package)


def test_sides_without_a_common_software_environment_are_told_how_to_be_compared(tmp_path: Path) -> None:
    def side(name: str) -> Side:
        one = replace(BASE, id=f"s-a-{name}", environment=Environment(name=name, request="1", lock=name), python="/x")
        return read([stored(tmp_path / name, (one, [ended(one, 1)]))])

    old, new = side("old"), side("new")
    (warning,) = compare(old, new, pairs=pair(old, new), rules=parse()).warnings
    assert warning.startswith(
        "the sides have no software environment in common (old and new); to compare them, write --by "
    )
    (found,) = pair(old, new, by=warning.rpartition(" ")[2].split(","))
    assert found.base and found.new
    assert not compare(old, old, pairs=pair(old, old), rules=parse()).warnings[1:]


def test_runs_of_two_environments_are_both_told(tmp_path: Path) -> None:
    runs = [replace(ended(GPU, repeat), provenance=H100) for repeat in (1, 2)]
    other = {**H100, "gpus": [{"name": "NVIDIA H200"}], "driver": {"driver": "590.0", "cuda": "13.0"}}
    runs[1] = replace(runs[1], provenance=other, beside=("another",))
    side = read([stored(tmp_path / "r", (GPU, runs))])
    around = only(side).environment
    assert (around["gpu"], around["driver"], around["neighbours"]) == (
        "NVIDIA H100, NVIDIA H200",
        "580.1, 590.0",
        "0, 1",
    )
    assert [sentence.partition(": ")[2] for sentence in side.warnings] == [
        "1 experiment(s) have runs with more than one gpu: these runs differ by more than noise",
        "1 experiment(s) have runs with more than one gpu_power_limit_w: these runs differ by more than noise",
        "1 experiment(s) have runs with more than one gpu_sm_clock_max_mhz: these runs differ by more than noise",
        "1 experiment(s) have runs with more than one neighbours: these runs differ by more than noise",
    ]


@pytest.mark.parametrize("gpus", [None, "text", [1, None, {"power_limit_w": {"deep": [1]}}], {"name": "x"}])
def test_provenance_may_hold_anything(tmp_path: Path, gpus: object) -> None:
    record = replace(ended(GPU, 1, tokens_per_s=1.0), provenance={**H100, "gpus": gpus, "driver": 3})
    assert speeds(only(read([stored(tmp_path / "r", (GPU, [record]))]))) == [1.0]


def test_what_a_folder_cannot_be_believed_in_is_left_out_and_said(tmp_path: Path) -> None:
    root = campaign(tmp_path / "r", experiments=2, repeats=1)
    one, other = sorted((root / "experiments").iterdir())
    (one / "experiment.json").write_text((other / "experiment.json").read_text())
    side = read([root])
    assert [entry.id for entry in side.entries] == [other.name]
    assert len(side.warnings) == 1


def test_thousands_of_unreadable_files_are_no_thousands_of_warnings(tmp_path: Path) -> None:
    root = campaign(tmp_path / "r", experiments=1, repeats=40)
    for record in root.glob("experiments/*/runs/*/record.json"):
        record.write_text("{")
    warnings = read([root]).warnings
    assert len(warnings) == 21 and warnings[-1].endswith("and 20 more warnings")


def test_reading_leaves_the_garbage_collector_as_it_was(tmp_path: Path) -> None:
    root = campaign(tmp_path / "r")
    gc.enable()  # a plan that an earlier test made in this process switched it off
    read([root])
    with pytest.raises(ResultsError):
        read([tmp_path / "none"])
    assert gc.isenabled()


# CSV files


def test_raw_summary_gives_the_numbers_of_its_folder(tmp_path: Path) -> None:
    root = campaign(tmp_path / "r")
    file = tmp_path / "raw_summary.csv"
    file.write_text(tables.raw_summary(load([root])))
    folder, table = read([root]), read([file])
    assert [speeds(entry) for entry in table.entries] == [speeds(entry) for entry in folder.entries]
    assert [(entry.label, entry.id) for entry in table.entries] == [(entry.label, entry.id) for entry in folder.entries]
    assert [run.repeat for run in table.entries[0].runs] == [1, 2, 3]
    assert table.entries[0].runs[0].started_at == 1.7e9
    assert table.entries[0].environment["torch"] == "2.13.0"
    assert table.entries[0].folder is None and not table.entries[0].whole


@pytest.mark.parametrize(("name", "part"), [("ranks.csv", "rank"), ("devices.csv", "gpu")])
def test_a_table_with_parts_of_runs_is_no_table_of_runs(name: str, part: str) -> None:
    with pytest.raises(OrchestratorError, match=f"it has a row for each {part} of a run; use raw_summary.csv"):
        read([GOLDEN.parents[1] / "docs" / "sample" / name])


def test_a_run_without_a_status_ended_ok_if_it_has_numbers(tmp_path: Path) -> None:
    side = csv_side(tmp_path, "scenario,repeat,status,tokens_per_s\na,1,ok,5\na,2.0,,6\na,3,,\n")
    assert [run.repeat for run in only(side).runs] == [1, 2] and only(side).failed_runs == 1


@pytest.mark.parametrize("column", ["repeat", "attempt"])
@pytest.mark.parametrize("cell", ["x", "1.5", "0", "-1", "nan", "1e999", "9" * 5000, "\u0663"])
def test_a_line_whose_number_of_the_run_is_none_is_left_out(tmp_path: Path, column: str, cell: str) -> None:
    head = "scenario,repeat,attempt,status,tokens_per_s\na,1,1,ok,5\n"
    odd = {"repeat": "2", "attempt": "1", column: cell}
    side = csv_side(tmp_path, f"{head}a,{odd['repeat']},{odd['attempt']},ok,6\n")
    assert [run.repeat for run in only(side).runs] == [1]
    assert any("1 line(s) with a repeat or attempt that is not a whole number" in text for text in side.warnings)


def test_benchmarks_csv_is_one_mean_an_experiment_and_says_so(tmp_path: Path) -> None:
    cells = [(replace(BASE, id=f"id-{n}", scenario=f"s{n}"), n) for n in range(2)]
    root = stored(
        tmp_path / "r",
        (cells[0][0], [ended(cells[0][0], n, tokens_per_s=100.0, train_loss=float(n)) for n in (1, 2, 3)]),
        (cells[1][0], [failed(cells[1][0], 1)]),
    )
    file = tmp_path / "benchmarks.csv"
    file.write_text(tables.benchmarks(load([root])))
    side = read([file])
    ok, bad = side.entries
    assert speeds(ok) == pytest.approx([100.0]) and ok.runs[0].numbers["train_loss"] == 2.0
    assert (bad.status, bad.runs, bad.failure) == ("failed", (), "oom_cuda: oom_cuda, in a sentence")
    assert any("means over repeats" in sentence for sentence in side.warnings)


@pytest.mark.parametrize("form", ["folder", "raw_summary.csv", "benchmarks.csv"])
def test_losses_of_runs_that_ended_early_are_alike_wherever_they_are_read_from(form: str, tmp_path: Path) -> None:
    """All cells of a side ended early, at one step, so that no column of it varies."""
    sides = []
    for name, steps, loss, logged in (("base", 20, 2.5, "10:3 20:2"), ("new", 40, 1.6, "10:3 20:2 40:0.7")):
        numbers = {"train_loss": loss, "steps": steps, "logged_losses": logged, "stopped_early": "within"}
        root = stored(tmp_path / name, (BASE, [ended(BASE, 1, **numbers)]))
        file = tmp_path / f"{name}.csv"
        file.write_text(
            tables.benchmarks(load([root])) if form == "benchmarks.csv" else tables.raw_summary(load([root]))
        )
        sides.append(read([root if form == "folder" else file]))
    (row,) = compare(*sides, pairs=pair(*sides), rules=parse(metrics=["train_loss"])).rows
    assert (row.verdict, row.base, row.new) == (Verdict.SAME, 2.5, 2.5)
    assert row.why == "identical; over the first 20 steps, which all runs made"


def test_an_experiment_of_which_some_repeats_failed_has_its_numbers_in_benchmarks_csv(tmp_path: Path) -> None:
    one, other = csv_side(
        tmp_path, "scenario,status,failure_kind,runs,runs_ok,tokens_per_s\na,failed,data,3,2,5.5\nb,failed,data,3,0,\n"
    ).entries
    assert (one.status, speeds(one), one.failure) == ("ok", [5.5], None)
    assert (other.status, other.failure) == ("failed", "data")


@pytest.mark.parametrize("form", ["benchmarks.csv", "raw_summary.csv"])
def test_whole_numbers_and_the_status_may_be_written_as_pandas_and_spreadsheets_write_them(form: str) -> None:
    """pandas turns a whole column of counts into floats if one of its rows lacks a cell."""
    table = (SAMPLE / form).read_text()
    rows = list(csv.DictReader(io.StringIO(table)))
    for row in rows:
        row.update({name: f"{cell}.0" for name, cell in row.items() if cell and cell.isdecimal()}, status=" OK ")
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, rows[0])
    writer.writeheader()
    writer.writerows(rows)
    plain, written = (csv_file.read(content.encode()) for content in (table, text.getvalue()))
    assert "5.0" in text.getvalue() and plain[1] == written[1]
    for one, other in zip(*(itertools.chain(*groups) for groups, _ in (plain, written)), strict=True):
        assert (one.facts, one.outcome, one.measured.keys()) == (other.facts, other.outcome, other.measured.keys())


def test_the_published_table_is_read_whole() -> None:
    side = read([A100])
    with A100.open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert len(side.entries) == len(lines) == 124 and side.warnings == ()
    for entry, line in zip(side.entries, lines, strict=True):
        assert [str(value or "") for value in entry.key.values()] == [line[name] for name in entry.key]
        if not line["train_runtime"]:
            assert (entry.status, entry.runs) == ("failed", ())
            assert "has no train_runtime" in str(entry.failure)
            continue
        (run,) = entry.runs
        expected = {name: float(text) for name, text in line.items() if _is_number(name) and text}
        assert run.numbers == expected
        assert run.started_at is None
    assert sum(entry.status == "ok" for entry in side.entries) == 85
    assert len({tuple(entry.key.items()) for entry in side.entries}) == 124
    assert list(side.entries[0].key) == [
        *("framework_config", "peft_method", "model_name_or_path", "num_gpus", "per_device_train_batch_size")
    ]
    assert side.entries[0].label == "none · bigcode/gpt_bigcode-santacoder · 1 GPU · batch 4"


def _is_number(name: str) -> bool:
    return name in METRICS and METRICS[name].show is not Show.TEXT


@pytest.mark.parametrize("case", ["same", "perturbed", "ref-has-more"])
@pytest.mark.parametrize("name", ["benchmarks", "reference", "raw_summary"])
def test_the_references_own_tables_are_read(case: str, name: str) -> None:
    file = CASES / case / f"{name}.csv"
    side = read([file])
    with file.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert [one.runs[0].numbers["train_loss"] for one in side.entries] == [float(row["train_loss"]) for row in rows]
    assert len({one.label for one in side.entries}) == len(rows)
    assert side.warnings == ()


def test_the_plugins_file_names_the_framework_in_the_references_raw_table() -> None:
    names = [entry.key["framework_config"] for entry in read([CASES / "same" / "raw_summary.csv"]).entries]
    assert names == ["none"] * 2 + ["foak-fast-kernels"] * 2 + ["accelerated-peft-bnb-nf4"] * 4


def test_arguments_that_only_tell_rows_apart_are_in_the_key(tmp_path: Path) -> None:
    head = "framework_config,peft_method,model_name_or_path,num_gpus,per_device_train_batch_size,r,torch_dtype,train_loss\n"
    first, second, third = csv_side(
        tmp_path, head + "none,lora,m,1,4,8,bfloat16,1\nnone,lora,m,1,4,16,bfloat16,2\nnone,,m,1,4,,float16,3\n"
    ).entries
    assert (first.key["r"], second.key["r"]) == (8, 16)
    assert "torch_dtype" not in first.key and first.arguments["torch_dtype"] == "bfloat16"
    assert "r" not in third.key


def test_a_key_has_no_more_names_than_tell_rows_apart(tmp_path: Path) -> None:
    head = "scenario,alpha,learning_rate,per_device_train_batch_size,wide,tokens_per_s\n"
    side = csv_side(tmp_path, head + "a,1,1e-4,4,x,1\na,2,1e-4,8,x,1\na,2,2e-4,8,x,1\nb,3,3e-4,4,y,1\n")
    assert [list(entry.key) for entry in side.entries] == [
        *[["scenario", "per_device_train_batch_size", "learning_rate"]] * 3,
        ["scenario"],
    ]
    assert [entry.label for entry in side.entries][2:] == ["a · batch 8 · learning_rate=2e-4", "b"]


def test_versions_that_are_equal_as_numbers_are_two_experiments_and_are_pooled_by_their_texts(tmp_path: Path) -> None:
    head = "scenario,version,tokens_per_s\n"
    first, second = tmp_path / "first.csv", tmp_path / "second.csv"
    first.write_text(head + "a,2.10,1\na,2.1,3\n")
    second.write_text(head + "a,2.1,4\na,2.10,2\n")
    side = read([first, second])
    assert [(entry.key["version"], speeds(entry)) for entry in side.entries] == [
        ("2.10", [1.0, 2.0]),
        ("2.1", [3.0, 4.0]),
    ]
    assert not any("more than once" in warning for warning in side.warnings)


@pytest.mark.parametrize(("text", "speeds_of", "said"), cases("compare_sides/odd_tables"))
def test_what_is_odd_in_a_table_is_said(
    text: str, speeds_of: dict[str, list[list[float]]], said: str | None, tmp_path: Path
) -> None:
    side = csv_side(tmp_path, text)
    found: dict[str, list[list[float]]] = {}
    for one in side.entries:
        found.setdefault(str(one.key["scenario"]), []).append(
            [run.numbers[SPEED] for run in one.runs if SPEED in run.numbers]
        )
    assert found == speeds_of
    assert bool(side.warnings) is bool(said) and (said or "") in "".join(side.warnings)


def test_files_that_were_put_together_and_a_byte_order_mark(tmp_path: Path) -> None:
    file = tmp_path / "b.csv"
    text = "scenario,tokens_per_s\na,1\n\nscenario,tokens_per_s\nb,2\n"
    file.write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    assert [entry.key["scenario"] for entry in read([file]).entries] == ["a", "b"]


def test_an_id_of_the_reference_is_a_number_in_its_list(tmp_path: Path) -> None:
    assert [
        entry.id
        for entry in csv_side(
            tmp_path,
            "id,model_name_or_path,repeat,status,train_loss\nexp_1,m,1,ok,1\n../../x,n,1,ok,1\nfull-a-1,o,1,ok,1\n",
        ).entries
    ] == [None, None, "full-a-1"]


# the reference's folders, and pytest-benchmark


def test_a_results_folder_of_the_reference() -> None:
    side = read([GOLDEN / "report" / "mixed" / "results"])
    assert len(side.entries) == 8
    assert {entry.status for entry in side.entries} == {"ok", "failed"}
    first = side.entries[0]
    assert (first.id, first.folder, first.whole) == (None, None, False)
    assert first.key["peft_method"] is None and first.key["per_device_train_batch_size"] == "8"
    assert first.runs[0].numbers["train_runtime"] > 0
    failures = [entry.failure for entry in side.entries if entry.status == "failed"]
    assert "unknown: ValueError: exp 6: bad target_modules" in failures


def test_a_benchmark_is_an_experiment_and_a_round_a_run() -> None:
    side = read([MICRO])
    found = json.loads(MICRO.read_text())
    assert [entry.label for entry in side.entries] == [one["fullname"] for one in found["benchmarks"]]
    assert [[run.numbers["round_time_s"] for run in entry.runs] for entry in side.entries] == [
        one["stats"]["data"] for one in found["benchmarks"]
    ]
    assert side.entries[0].arguments == {"n": 10}
    around = side.entries[0].environment
    assert (around["host"], around["git_commit"][:4], around["git_dirty"]) == ("bench-machine", "0123", False)
    assert around["cpu"] == found["machine_info"]["cpu"]["brand_raw"] and around["python"].startswith("3.")
    assert any("rounds of one process" in sentence for sentence in side.warnings)


def micro(tmp_path: Path, **stats: object) -> Entry:
    file = tmp_path / "micro.json"
    found = {"machine_info": {}, "benchmarks": [{"fullname": "t.py::t", "stats": stats}]}
    file.write_text(json.dumps(found))
    return only(read([file]))


def test_without_rounds_the_median_stands_for_a_benchmark(tmp_path: Path) -> None:
    assert [run.numbers for run in micro(tmp_path, mean=3.0, median=2.0).runs] == [{"round_time_s": 2.0}]
    assert [run.numbers for run in micro(tmp_path, mean=3.0).runs] == [{"round_time_s": 3.0}]
    entry = micro(tmp_path, data=[], median=None)
    assert (entry.status, entry.failure) == ("failed", "no_metrics: it has no times")


def test_rounds_that_took_no_time_are_missing(tmp_path: Path) -> None:
    assert len(micro(tmp_path, data=[1.0, 0, -1, float("nan"), float("inf"), "x", None, True, 2]).runs) == 2


def test_many_rounds_are_stretches_of_them(tmp_path: Path) -> None:
    rounds = [float(number) for number in range(1, 100_001)]
    runs = micro(tmp_path, data=rounds).runs
    assert len(runs) == pytest_benchmark.MOST_ROUNDS
    assert [run.numbers["round_time_s"] for run in runs[:2]] == [100.5, 300.5]


# several places, halves, --by


def test_several_folders_are_one_side_with_the_runs_of_all(tmp_path: Path) -> None:
    roots = [
        campaign(tmp_path / name, experiments=2, repeats=2, began=began)
        for name, began in (("one", 1.7e9), ("two", 1.8e9))
    ]
    side = read(roots)
    assert [speeds(entry) for entry in side.entries] == [[101, 102, 101, 102], [201, 202, 201, 202]]
    assert [run.repeat for run in side.entries[0].runs] == [1, 2, 3, 4]
    assert side.entries[0].folder == str(roots[1])
    assert side.name == f"{roots[0]}, {roots[1]}"


def test_a_failure_in_one_folder_does_not_hide_the_numbers_of_another(tmp_path: Path) -> None:
    good = stored(tmp_path / "good", (BASE, [ended(BASE, 1, tokens_per_s=1.0)]))
    bad = stored(tmp_path / "bad", (BASE, [failed(BASE, 1)]))
    entry = only(read([good, bad]))
    assert (entry.status, entry.failed_runs, speeds(entry)) == ("ok", 1, [1.0])
    assert entry.failure == "oom_cuda: oom_cuda, in a sentence"


def test_tables_without_ids_are_pooled_by_what_their_rows_are_and_a_link_is_followed(tmp_path: Path) -> None:
    copy = tmp_path / "again.csv"
    copy.write_bytes(A100.read_bytes())
    (tmp_path / "latest.csv").symlink_to(A100)
    side = read([tmp_path / "latest.csv", copy])
    assert len(side.entries) == 124
    assert {len(entry.runs) for entry in side.entries} == {0, 2}


@pytest.mark.parametrize("again", ["same", "link", "dots"])
def test_a_place_named_twice_would_count_twice(tmp_path: Path, again: str) -> None:
    root = campaign(tmp_path / "same")
    (tmp_path / "link").symlink_to(root)
    (tmp_path / "dots").mkdir()
    other = {"same": root, "link": tmp_path / "link", "dots": tmp_path / "dots" / ".." / "same"}[again]
    with pytest.raises(ResultsError, match="named twice"):
        read([root, other])


def test_halves_are_the_odd_and_the_even_rounds(tmp_path: Path) -> None:
    root = campaign(tmp_path / "r", experiments=2, repeats=5)
    odd, even = halves(root)
    assert [speeds(entry) for entry in odd.entries] == [[101, 103, 105], [201, 203, 205]]
    assert [speeds(entry) for entry in even.entries] == [[102, 104], [202, 204]]
    assert (odd.name, even.name) == (f"{root} (odd rounds)", f"{root} (even rounds)")
    assert [entry.environment for entry in odd.entries] == [entry.environment for entry in even.entries]


def test_what_cannot_be_split_is_counted(tmp_path: Path) -> None:
    other = replace(BASE, id="other", scenario="other")
    cells = (BASE, [ended(BASE, 1, tokens_per_s=1.0), failed(BASE, 2)]), (other, [ended(other, n) for n in (1, 2)])
    odd, even = halves(stored(tmp_path / "r", *cells))
    assert [entry.id for entry in odd.entries] == [entry.id for entry in even.entries] == ["other"]
    assert "1 of 2 experiments have fewer than two ok runs, which cannot be split" in odd.warnings


def test_failures_are_on_neither_half(tmp_path: Path) -> None:
    runs = [*(ended(BASE, n, tokens_per_s=float(n)) for n in (1, 2, 3)), failed(BASE, 4), failed(BASE, 5)]
    odd, even = halves(stored(tmp_path / "r", (BASE, runs)))
    assert [(speeds(only(half)), only(half).failed_runs, only(half).failure) for half in (odd, even)] == [
        ([1.0, 3.0], 0, None),
        ([2.0], 0, None),
    ]


def test_by_sets_the_key(tmp_path: Path) -> None:
    cells = [replace(BASE, id=f"s{n}", scenario=f"s{n}", model=f"m{n}") for n in range(2)]
    root = stored(tmp_path / "r", *((cell, [ended(cell, 1)]) for cell in cells))
    side = read([root], by=("model_name_or_path", "learning_rate"))
    assert [entry.key for entry in side.entries] == [
        {"model_name_or_path": f"m{n}", "learning_rate": "2e-5"} for n in range(2)
    ]
    assert side.entries[0].label == "m0 · learning_rate=2e-5"
    assert side.entries[0].arguments["scenario"] == "s0"


def test_a_name_that_nothing_has_is_refused_with_a_suggestion(tmp_path: Path) -> None:
    with pytest.raises(SelectionError, match="no experiment has 'learning_rat'; did you mean 'learning_rate'"):
        read([campaign(tmp_path / "r")], by=("learning_rat",))


# what is no side

HOSTILE: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "its first line must name one of"),
    "no results": (b"a,b\n1,2\n", "its first line must name one of"),
    "no metric": (b"scenario,model_name_or_path\na,b\n", "and a metric"),
    "column twice": (b"scenario,tokens_per_s,tokens_per_s\na,1,2\n", "the column 'tokens_per_s' twice"),
    "not UTF-8": ("scenario,tokens_per_s\ncafé,1\n".encode("latin-1"), "not UTF-8"),
    "UTF-16": ("scenario,tokens_per_s\n".encode("utf-16"), "not UTF-8"),
    "zipped": (b"\x1f\x8b\x08\x00\x00", "it is packed; unpack it first"),
    "field without end": (b'scenario,tokens_per_s\n"' + b"x" * 200_000, "field larger than field limit"),
    "too wide": (b"scenario," + b",".join(b"c%d" % n for n in range(6000)), "more than 5,000 columns"),
    "too many cells": (b"scenario,tokens_per_s" + b"\n" * 2_600_000, "more than 5,000,000 cells"),
    "other JSON": (b'{"a": 1}', "not from pytest-benchmark"),
    "JSON list": (b"[1, 2]", "not from pytest-benchmark"),
    "half a JSON": (b'{"benchmarks": [', "it is not JSON"),
    "deep JSON": (b'{"machine_info": 1, "benchmarks": ' + b"[" * 99 + b"]" * 99 + b"}", "nests deeper"),
    "nameless benchmark": (b'{"machine_info": {}, "benchmarks": [3]}', "has no name"),
    "too many benchmarks": (
        b'{"machine_info": {}, "benchmarks": [' + b"1," * 9999 + b"1]}",
        "more than 5,000 benchmarks",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_that_is_no_side_is_refused_in_a_sentence(tmp_path: Path, name: str) -> None:
    content, reason = HOSTILE[name]
    file = tmp_path / "file"
    file.write_bytes(content)
    with pytest.raises(ResultsError) as caught:
        read([file])
    sentence = str(caught.value)
    assert str(file) in sentence and reason in sentence and "pytest-benchmark" in sentence
    assert "\n" not in sentence and len(sentence) < 600


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "huge.csv"
    with file.open("wb") as out:
        out.write(b"scenario,tokens_per_s\n")
        out.truncate(70 * 2**20)
    with pytest.raises(ResultsError, match="limit of 64 MiB"):
        read([file])


def test_a_secret_in_the_name_of_a_file_is_masked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB_PASSWORD", "Tr0ub4dor-and-3xtra")
    file = tmp_path / "Tr0ub4dor-and-3xtra.csv"
    file.write_text("scenario,tokens_per_s\na,1\n")
    assert read([file]).name == str(tmp_path / "***.csv")


def test_places_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "suite.json").write_text('{"tool": "tuneb')
    reasons = {
        "folder": "without results",
        "pipe": "not a regular file",
        "none": "there is no such file or folder",
        "loop": "loop",
    }
    for name, reason in {**reasons, "damaged": "damaged/suite.json: cannot be read: it is not JSON"}.items():
        with pytest.raises(ResultsError, match=reason):
            read([tmp_path / name])
    with pytest.raises(ResultsError, match="a side is empty"):
        read([])
    reader, writer = os.pipe()  # as for `compare <(cat a.csv) b`
    with pytest.raises(ResultsError, match=f"/dev/fd/{reader}: it is a pipe or a device"):
        read([Path(f"/dev/fd/{reader}")])
    os.close(reader)
    os.close(writer)


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200))
def test_whatever_stands_in_a_file_it_is_a_side_or_a_sentence(tmp_path: Path, content: bytes) -> None:
    for before in (b"", b"scenario,repeat,status,tokens_per_s,x\n", b'{"machine_info": {}, "benchmarks": ['):
        file = tmp_path / "any"
        file.write_bytes(before + content)
        try:
            read([file])
        except OrchestratorError as error:
            assert str(file) in str(error)


CELLS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)


@given(st.lists(st.tuples(CELLS, CELLS, st.floats(allow_nan=False, allow_infinity=False, width=32)), max_size=8))
def test_every_row_of_a_table_is_one_entry_with_its_number(rows: list[tuple[str, str, float]]) -> None:
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(["scenario", "argument", "tokens_per_s", "train_loss"])
    writer.writerows([*row, 1.0] for row in rows)
    read_rows = [row for group in csv_file.read(text.getvalue().encode())[0] for row in group]
    sound = [number if number == 0 or 1e-150 < abs(number) < 1e150 else None for *_, number in rows]
    assert [row.measured.get("tokens_per_s") for row in read_rows] == sound
    assert ["" if row.facts["scenario"] is None else row.facts["scenario"] for row in read_rows] == [
        _as_read(scenario) for scenario, *_ in rows
    ]


def _as_read(cell: str) -> object:
    words = {"TRUE": "True", "FALSE": "False"}  # as a spreadsheet writes them
    return int(cell) if cell.isascii() and cell.isdigit() and str(int(cell)) == cell else words.get(cell, cell)
