"""Texts of a table: goldens for CSV, Markdown, JSON and the terminal; CSV loads back as it was."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from factories.results import BASE, ended, failed, stored
from factories.tables import Made, made_table, speeds
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import SelectionError
from orchestrator.records import Caveat, CaveatKind, Device, Framework, Reason
from orchestrator.report import tables
from orchestrator.report.experiment import experiment_view
from orchestrator.report.page import folders, table_data
from orchestrator.report.tables import as_csv, terminal
from orchestrator.results.store import Store
from orchestrator.results.table.column_choice import cells
from orchestrator.results.table.load import ResultsTable, load

CASES = Path(__file__).parent.parent / "golden" / "report"


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> ResultsTable:
    """Five experiments: ok, partly failed, failed with a cause over lines, pending, skipped."""
    base = replace(BASE, arguments={**BASE.arguments, "response_template": "\n### Response:", "dtype": "bfloat16"})
    sdpa = replace(base, id="full-sdpa-1", framework=Framework(name="sdpa", digest="1"))
    big = replace(base, id="full-big-2", model="org/a-model-with-a-name-that-is-long", device=Device.CUDA, num_gpus=2)
    pending = replace(base, id="full-pending-3", num_gpus=4)
    skipped = replace(pending, id="full-skip-4", skip=Reason(kind="batch", text="8 samples do not divide by 3."))
    numbers = {"train_tokens_per_second": 1234.5, "train_runtime": 210.25, "train_loss": 2.5, "epoch": 1}
    memory = {"mem_peak_torch_mem_alloc_in_bytes": 2**33, "trainable_parameters": 1_100_048_384}
    ooms = replace(failed(big, 1), cause="rank 0: torch.OutOfMemoryError: [GPU 0] out of | memory\nTried 2.00 GiB")
    root = stored(
        tmp_path_factory.mktemp("report") / "results",
        (base, [ended(base, n, **(numbers | memory)) for n in (1, 2, 3)]),
        (
            sdpa,
            [ended(sdpa, 1, **numbers), failed(sdpa, 2, kind="nccl"), ended(sdpa, 3, **(numbers | {"train_loss": 3}))],
        ),
        (big, [ooms]),
        (pending, []),
        (skipped, []),
    )
    return load([root])


def test_a_failed_run_is_shown_with_what_to_do(tmp_path: Path) -> None:
    runs = [replace(failed(BASE, 1), hint="use a smaller batch"), failed(BASE, 2)]
    store = Store.resume(stored(tmp_path / "results", (BASE, runs)))
    shown = [line for line in experiment_view(store, BASE.id, lines=0) if line.startswith(("run ", "  →"))]
    assert [line.partition(":")[0] for line in shown] == ["run r1-t1", "  → use a smaller batch", "run r2-t1"]


@pytest.mark.parametrize(
    ("facts", "said"), [({"start": "warm"}, ", warm start"), ({"start": "cold"}, ", cold start"), ({}, "")]
)
def test_a_run_is_shown_with_its_start(facts: dict[str, str], said: str, tmp_path: Path) -> None:
    run = ended(BASE, 1)
    record = replace(run, provenance={**run.provenance, **facts})
    store = Store.resume(stored(tmp_path / "results", (BASE, [record])))
    (line,) = (line for line in experiment_view(store, BASE.id, lines=0) if line.startswith("run "))
    assert line == f"run r1-t1: ok, 12.5 s{said}"


def test_an_experiment_is_shown_with_its_command_first_and_a_table_of_its_runs(tmp_path: Path) -> None:
    numbers = {"tokens_per_s": 1000.0, "step_time_s": 0.25, "own_metric": 7.0, "startup_s": 9.0}
    runs = [ended(BASE, 1, **numbers), ended(BASE, 2, **numbers | {"tokens_per_s": 1100.0})]
    store = Store.resume(stored(tmp_path / "results", (BASE, runs)))
    script = store.runs(BASE.id)[-1].job.folder.script
    script.write_text("#!/bin/bash\nexport A=1\nexec python \\\n  -m train \\\n  --x 1\n")
    shown = list(experiment_view(store, BASE.id, lines=0))
    assert shown[:3] == [BASE.id, f"command: bash {script}", "  starts: python -m train --x 1"]
    table = [line.split() for line in shown[shown.index(next(line for line in shown if line.startswith("metric"))) :]]
    assert table[:4] == [
        ["metric", "unit", "r1-t1", "r2-t1"],
        ["tokens_per_s", "tokens/s,", "all", "devices", "1,000", "1,100"],
        ["step_time_s", "s", "250", "ms", "250", "ms"],
        ["own_metric", "7", "7"],
    ]
    assert "1 more metric in record.json of each run, and in raw_summary.csv" in shown


def test_csv(golden, table: ResultsTable) -> None:
    golden("table/benchmarks.csv", tables.benchmarks(table))
    golden("table/raw_summary.csv", tables.raw_summary(table))


def test_csv_says_that_its_rows_ran_on_cpus(tmp_path: Path) -> None:
    """A report of the file called the processes GPUs."""
    on_cpu, on_gpu = (
        load([stored(tmp_path / device, (replace(BASE, device=device), [ended(BASE, 1, tokens_per_s=1.0)]))])
        for device in (Device.CPU, Device.CUDA)
    )
    for table, device in ((on_cpu, "cpu"), (on_gpu, "cuda")):
        (tmp_path / "benchmarks.csv").write_text(tables.benchmarks(table))
        assert load([tmp_path / "benchmarks.csv"]).experiments["device"].tolist() == [device]
    header = tables.benchmarks(on_gpu, drop=["device"]).partition("\n")[0]
    assert "device" not in header.split(",")


def test_csv_names_its_rows_and_says_of_how_many_runs_they_are(tmp_path: Path) -> None:
    other = replace(BASE, id="other-000000000000")
    roots = [
        stored(
            tmp_path / name,
            *((one, [replace(ended(one, n, train_loss=1.0), started_at=at) for n in (1, 2)]) for one in (BASE, other)),
        )
        for name, at in (("a", 1e9), ("b", 2e9))
    ]
    one = pd.read_csv(io.StringIO(tables.benchmarks(load(roots[:1]))))
    assert one["id"].tolist() == [BASE.id, other.id] and one["runs_ok"].tolist() == [2, 2]
    assert "id" not in tables.benchmarks(load(roots[:1]), drop=["id"]).partition("\n")[0].split(",")
    several = pd.read_csv(io.StringIO(tables.benchmarks(load(roots))))
    assert "id" not in several and several["results"].tolist() == ["a", "a", "b", "b"]


def test_markdown(golden, table: ResultsTable) -> None:
    golden("table/benchmarks.md", tables.benchmarks(table, form="markdown", drop=["argument_*"]))


def test_json(golden, table: ResultsTable) -> None:
    text = tables.benchmarks(table, form="json")
    golden("table/benchmarks.json", text)
    document = json.loads(text)
    assert [row["id"] for row in document["experiments"]] == table.experiments["id"].tolist()
    assert document["experiments"][3]["train_loss"] is None


@pytest.mark.parametrize("width", [80, 200])
def test_terminal(golden, table: ResultsTable, width: int) -> None:
    text = terminal.text(table, width=width)
    assert max(len(line) for line in text.splitlines()) <= width
    golden(f"table/terminal-{width}.txt", text)


@pytest.mark.parametrize("width", [80, 200])
def test_terminal_of_a_folder_of_the_reference(golden, width: int) -> None:
    golden(f"table/reference-{width}.txt", terminal.text(load([CASES / "silent-failures" / "results"]), width=width))


def test_a_narrow_terminal_still_tells_the_rows_apart(tmp_path: Path) -> None:
    """What distinguishes two rows comes before their lesser numbers."""
    numbers = {
        "tokens_per_s": 1234.5,
        "train_tokens_per_second": 1200.0,
        "step_time_s": 0.5,
        "mfu": 0.4,
        "train_loss": 2.5,
    }
    cells = [
        replace(BASE, id=f"cell-{gpus}-{method}", num_gpus=gpus, arguments={**BASE.arguments, "peft_method": method})
        for gpus in (1, 2)
        for method in ("none", "lora")
    ]
    root = stored(tmp_path / "results", *((one, [ended(one, 1, **numbers)]) for one in cells))
    lines = terminal.text(load([root]), width=40).splitlines()
    rows = [line for line in lines[1:] if "1,234" in line]
    assert len(rows) == len(set(rows)) == 4


def test_an_axis_with_a_long_name_and_a_kept_column_come_before_further_numbers(tmp_path: Path) -> None:
    numbers = {"tokens_per_s": 1234.5, "step_time_s": 0.5, "mfu": 0.4, "train_loss": 2.5, "train_runtime": 9.0}
    axis = "gradient_checkpointing"
    cells = [
        replace(BASE, id=f"cell-{word}", arguments={**BASE.arguments, axis: word, "warmup_steps": str(number)})
        for number, word in enumerate(("false", "true"))
    ]
    root = stored(tmp_path / "results", *((one, [ended(one, 1, **numbers)]) for one in cells))
    table = load([root])
    lines = terminal.text(table, width=40).splitlines()
    assert [line.split()[0] for line in lines[1:] if "1,234" in line] == ["false", "true"]
    heading = [line.split()[0] for line in lines if line.strip()]
    assert heading[heading.index("gradient_") + 1] == "checkpointing"
    kept = terminal.plain(terminal.summary(table, width=40, keep=["warmup_steps"]), width=40)
    assert "warmup_steps" not in kept.split("Columns that do not fit here")[1] and "warmup_" in kept


def test_kept_columns_come_before_the_speed_in_a_narrow_terminal(tmp_path: Path) -> None:
    parts = ["data_time_s", "forward_time_s", "backward_time_s", "optimizer_time_s", "between_time_s"]
    numbers = {"tokens_per_s": 1234.5, "step_time_s": 0.5, "mfu": 0.4, **dict.fromkeys(parts, 0.1)}
    pairs = [(replace(BASE, id=f"cell-{gpus}", num_gpus=gpus), gpus) for gpus in (1, 2)]
    root = stored(tmp_path / "results", *((one, [ended(one, 1, **numbers)]) for one, _ in pairs))
    shown = terminal.plain(terminal.summary(load([root]), width=60, keep=parts), width=60)
    table, _, unshown = shown.partition("Columns that do not fit here")
    assert unshown and not any(name in unshown for name in parts), shown
    assert "optim" in table and "1,234" not in table


@pytest.mark.parametrize("padding", [0.4, 0.0])
def test_where_rows_are_padded_a_narrow_terminal_has_the_speed_without_padding(padding: float, tmp_path: Path) -> None:
    cells = [(replace(BASE, id=f"cell-{gpus}", num_gpus=gpus), 1000.0 * gpus) for gpus in (1, 2)]
    runs = [
        (one, [ended(one, 1, tokens_per_s=speed, real_tokens_per_s=speed * (1 - padding), padding_share=padding)])
        for one, speed in cells
    ]
    text = terminal.text(load([stored(tmp_path / "results", *runs)]), width=12)
    assert ("600" in text, "1,000" in text) == ((True, False) if padding else (False, True)), text


@pytest.mark.parametrize("width", [20, 40, 120])
def test_the_terminal_is_never_overrun(table: ResultsTable, width: int) -> None:
    lines = terminal.text(table, width=width).splitlines()
    assert max(len(line) for line in lines) <= width


def test_one_experiment_still_has_its_numbers(tmp_path: Path) -> None:
    one = load([stored(tmp_path / "r", (BASE, [ended(BASE, 1, train_loss=1.5, train_tokens_per_second=10.0)]))])
    assert "1.5" in tables.benchmarks(one)
    text = terminal.text(one, width=80)
    assert "1 experiment: 1 ok" in text and "1.5" in text and BASE.id[:10] in text


@pytest.mark.parametrize("gpu_memory", [{}, {"peak_allocated_bytes": 2**31}])
def test_work_on_cpus_without_tokens_has_its_own_speed_and_memory(gpu_memory: dict[str, int], tmp_path: Path) -> None:
    numbers = {"samples_per_s": 12.5, "host_rss_bytes": 3 * 2**30, **gpu_memory}
    others = [replace(BASE, id=f"full-{name}", framework=Framework(name=name, digest=name)) for name in "ab"]
    found = load([stored(tmp_path / "results", *((one, [ended(one, 1, **numbers)]) for one in others))])
    for text in (terminal.text(found, width=160), tables.benchmarks(found, form="markdown")):
        table = text.partition("Also in")[0]
        assert "samples/s" in table and "12.5" in table
        assert ("host mem" in table and "3.00 GiB" in table) is not bool(gpu_memory)
    assert "host mem" not in tables.benchmarks(found, form="markdown", drop=["host_*"])


@pytest.mark.parametrize(
    "name", ["samples_per_s", "step_time_s", "train_samples_per_second", "call_time_s", "train_runtime"]
)
@pytest.mark.parametrize("width", [60, 120])
def test_a_row_without_tokens_shows_its_own_speed_next_to_rows_with_tokens(name: str, width: int) -> None:
    """Such rows had only a dash, as if their speed was lost."""
    usual = {"tokens_per_s": 1234.0, "step_time_s": 0.5, "train_runtime": 777.0, "mfu": 0.4, "train_loss": 2.0}
    made = [Made(runs=[usual]), Made(scenario="own", trainer="custom", runs=[{name: 42.0, "score": 1.0}])]
    shown = terminal.text(made_table(*made), width=width).partition("Columns that do not fit")[0]
    markdown = tables.benchmarks(made_table(*made), form="markdown").partition("<details>")[0]
    for text in (shown, markdown):
        assert "1,234" in text and "42" in text, text
    alone = tables.benchmarks(made_table(made[0]), form="markdown")
    assert "train time" not in alone.partition("<details>")[0], "rows with tokens need no other speed"


BUSY = Caveat(kind=CaveatKind.BUSY_HOST, detail="a process's threads waited for a core in 54% of the time")


def test_a_speed_in_doubt_is_marked_in_the_terminal_and_in_markdown() -> None:
    """Markdown had the same speeds without a mark."""
    clear = Made(framework="plain", runs=[{"tokens_per_s": 2000.0}])
    doubted = Made(framework="fused", runs=[{"tokens_per_s": 2496.0}], warnings=(BUSY,))
    table = made_table(clear, doubted)
    markdown = (tables.benchmarks(table, form="markdown", keep=keep) for keep in ((), ("*",)))
    for text in (terminal.text(table, width=120), *markdown):
        assert text.count("2,496 ?") == text.count("2,496") > 0 and "2,000" in text and "2,000 ?" not in text, text


def test_every_speed_and_time_of_a_row_in_doubt_is_marked_and_grey_on_the_page() -> None:
    """A call of an operator had no mark, and the page had its time in grey, and the same time of the host in black."""
    names = ("call_time_s", "host_time_s", "operator_bytes_per_s", "relative_error")
    measured = {"eager": (83e-6, 84e-6, 6e9, 0.01), "inductor": (93e-6, 94e-6, 7e9, 0.02)}
    cells = [
        Made(runs=[dict(zip(names, values, strict=True))], arguments={"implementation": name})
        for name, values in measured.items()
    ]
    table = made_table(*(replace(cell, warnings=(BUSY,)) for cell in cells))
    for text in (terminal.text(table, width=200), tables.benchmarks(table, form="markdown", keep=names)):
        for value in ("83 µs", "84 µs", "6 GB/s", "93 µs", "94 µs", "7 GB/s"):
            assert text.count(f"{value} ?") == text.count(value) > 0, text
        assert "0.01" in text and "0.01 ?" not in text
    assert "?" not in terminal.text(made_table(*cells), width=200)
    columns = table_data.of(table, {}, folders.Folders(roots={}), detail_bytes=0).data["columns"]
    assert {column["name"] for column in columns if column["speed"]} == {*names} - {"relative_error"}


def test_a_speed_in_doubt_that_all_rows_share_is_marked_in_the_line_and_on_the_page() -> None:
    """The table had `5,675 ?`, and the line above it the speed of each GPU without a mark."""
    numbers = {"tokens_per_s": 5675.0, "tflops_per_s_per_gpu": 5.675, "first_step_s": 0.498}
    table = made_table(Made(runs=[numbers], warnings=(BUSY,)))
    for text in (terminal.text(table, width=400), tables.benchmarks(table, form="markdown")):
        assert "TFLOP/s/GPU 5.675 ?" in text and "first step 498 ms" in text and "498 ms ?" not in text, text
    clear = made_table(Made(runs=[numbers]))
    assert "TFLOP/s/GPU 5.675" in terminal.text(clear, width=400) and "?" not in terminal.text(clear, width=400)
    for one, words in ((table, "5.675 (in doubt)"), (clear, "5.675")):
        constant = table_data.of(one, {}, folders.Folders(roots={}), detail_bytes=0).constant
        assert ("TFLOP/s/GPU", words) in constant and ("first step", "498 ms") in constant


def test_no_experiments_is_no_crash(tmp_path: Path) -> None:
    none = load([stored(tmp_path / "r")])
    assert terminal.text(none, width=80) == "No experiments.\n"
    assert tables.benchmarks(none) == '""\n'
    assert tables.benchmarks(none, form="markdown") == "No experiments.\n"
    assert json.loads(tables.benchmarks(none, form="json"))["experiments"] == []


def test_keep_and_drop(table: ResultsTable) -> None:
    header = tables.benchmarks(table, keep=["id", "provenance_torch"], drop=["mem_*"]).partition("\n")[0].split(",")
    assert {"id", "provenance_torch"} <= set(header)
    assert not any(name.startswith("mem_") for name in header)
    everything = tables.benchmarks(table, keep=["*"]).partition("\n")[0].split(",")
    assert set(everything) == set(table.experiments.columns)


def test_an_unknown_format_is_a_sentence(table: ResultsTable) -> None:
    with pytest.raises(SelectionError, match="choose csv, json, markdown"):
        tables.benchmarks(table, form="xml")


TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1)
COLUMNS = st.lists(st.tuples(TEXTS, st.floats(allow_nan=False, allow_infinity=False), st.none() | st.integers(0, 9)))


@given(COLUMNS)
def test_csv_holds_every_value_whole(values: list[tuple[str, float, int | None]]) -> None:
    frame = pd.DataFrame(
        {
            "text": pd.Series([text for text, _, _ in values], dtype="string"),
            "number": pd.Series([number for _, number, _ in values], dtype="Float64"),
            "count": pd.Series([count for _, _, count in values], dtype="Int64"),
        }
    )
    read = pd.read_csv(
        io.StringIO(as_csv.text(frame), newline=""),
        dtype={"text": "string", "number": "Float64", "count": "Int64"},
        keep_default_na=False,
        na_values={"count": [""]},
    )
    for name in frame.columns:
        assert cells(read[name]) == cells(frame[name])


def test_metrics_that_only_a_scenario_defines_are_shown_first() -> None:
    """They were listed between the arguments that do not fit, and the rows had only dashes."""
    many = {f"zz_{number}": str(number) for number in range(20)}
    own = [
        Made(
            trainer="custom",
            scenario="own",
            arguments={"size": size, **many},
            runs=[{"throughput": speed, "score": 7.0}],
        )
        for size, speed in (("64", 1021.0), ("256", 1183.0))
    ]
    built_in = Made(runs=[{"tokens_per_s": 2424.0, "eval_of_mine": 3.0}])
    for found in (made_table(*own), made_table(built_in, *own)):
        assert found.own_metrics == ("throughput", "score")
        shown, _, hidden = terminal.text(found, width=80).partition("Columns that do not fit")
        assert "1,021" in shown and "1,183" in shown and "score" in shown and "size" in shown
        assert "throughput" in shown and "throughput" not in hidden


def test_of_many_ways_in_which_repeats_failed_the_most_frequent_are_shown() -> None:
    many = Made(framework="a", kinds=["nccl", "data", "data", "oom_cuda", "oom_host", "unknown"])
    lines = terminal.text(made_table(many), width=120).splitlines()
    assert f"{many.id} failed in 5 ways, 0 of 6 runs ok" in lines and "  2× failed: data" in lines
    assert sum("× failed" in line for line in lines) == 3 and "  … and 2 runs in other ways" in lines


def test_the_terminal_names_each_way_in_which_the_repeats_of_an_experiment_failed() -> None:
    alike, apart = Made(framework="a", kinds=["nccl", "nccl"]), Made(framework="b", kinds=["data", "nccl", "nccl"])
    shown = terminal.text(made_table(alike, replace(apart, runs=[{"train_loss": 1.0}])), width=120)
    assert shown.partition(f"\n{alike.id}")[2].splitlines() == [
        " failed: nccl, 0 of 2 runs ok",
        "  nccl, in a sentence",
        "",
        f"{apart.id} failed in 2 ways, 1 of 4 runs ok",
        "  2× failed: nccl",
        "    nccl, in a sentence",
        "  1× failed: data",
        "    data, in a sentence",
    ]


def test_an_argument_that_differs_only_together_with_other_columns_is_shown() -> None:
    """Such as one that `include:` adds to the cells of one framework and count. What a framework itself sets is left out."""
    sets = {"gradient_checkpointing": "True"}
    cells = [
        Made(
            framework=framework,
            sets=sets if framework == "checkpointing" else {},
            num_gpus=count,
            arguments={"optim": "sgd" if (framework, count) == ("checkpointing", 2) else "adamw", **more},
            runs=speeds(1000, 1001),
        )
        for framework in ("none", "checkpointing")
        for count, more in ((1, {"per_device_train_batch_size": "8"}), (2, {"per_device_train_batch_size": "4"}))
    ]
    for table, shown in ((made_table(*cells), True), (made_table(*cells[:3]), False)):
        first = tables.benchmarks(table, form="markdown").partition("<details>")[0]
        for text in (terminal.text(table, width=50).partition("Columns that")[0], first):
            assert ("optim" in text and "sgd" in text) is shown
            assert "checkpointing" in text and "gradient" not in text and "batch" not in text


def test_the_columns_of_arguments_leave_room_for_numbers() -> None:
    """Of several arguments that change together, one is shown; of many that do not, a few."""
    names = [f"argument_{number}" for number in range(8)]
    zipped = [Made(num_gpus=count, arguments=dict.fromkeys(names, str(count)), runs=speeds(1000)) for count in (1, 2)]
    first = tables.benchmarks(made_table(*zipped), form="markdown").partition("<details>")[0]
    assert first.count("argument_") == 1 and "argument_0" in first
    free = [
        Made(num_gpus=count, arguments={name: str(count >> at & 1) for at, name in enumerate(names)}, runs=speeds(1000))
        for count in range(1, 256)
    ]
    first = tables.benchmarks(made_table(*free), form="markdown").partition("<details>")[0]
    assert first.count("argument_") == 4 and "tok/s" in first
