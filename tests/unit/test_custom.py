"""The custom trainer: placeholders, and numbers out of whatever a command leaves."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from factories import results
from factories.cases import cases
from factories.run_folders import worker, write_worker
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.measure.metrics import METRICS
from orchestrator.plan.config.keys.value_types import not_ours
from orchestrator.records import CustomCommand, Experiment, MetricSource, dump
from orchestrator.trainers import units
from orchestrator.trainers.external import custom


def experiment(*command: str, **changes: Any) -> Experiment:
    arguments = {"lr": "2e-5", "modules": ("q", "v"), "note": "{gpus} {lr}"}
    own = {"trainer": "custom", "custom": CustomCommand(command=command, folder="/scenarios")}
    return results.experiment(**{"num_gpus": 2, "arguments": arguments, **own, **changes})


def filled(*command: str) -> list[str]:
    one = experiment(*command)
    return custom.filled(one, run_dir=Path("/r"), at_launch={"gpus": "0,1", "port": "9", "python": "/py"})


@pytest.mark.parametrize(("word", "words"), cases("custom/placeholders_are_filled_once"))
def test_placeholders_are_filled_once(word: str, words: list[str]) -> None:
    assert filled(word) == words


def test_the_placeholders_of_a_command_are_seen_before_anything_runs() -> None:
    assert custom.placeholders(("train", "--a={lr}{gpus}", "{{x}}", "{widht}")) == {"lr", "gpus", "widht"}


def read(tmp_path: Path, results: str, **sources: MetricSource) -> dict[str, Any]:
    found = custom.read_metrics(CustomCommand(command=("x",), results=results, metrics=sources), tmp_path)
    return {measurement.name: measurement.value for measurement in found}


def test_the_last_line_of_stdout_as_json(tmp_path: Path) -> None:
    last = '{"note": "no end of a line:\u2028\x85", "loss": 1.5, "speed": {"tok": 2}, "ms": 250}'
    (tmp_path / "stdout.log").write_text(f'{{"loss": 9}}\nnoise\r{last}\n\n', newline="", encoding="utf-8")
    assert read(
        tmp_path,
        "stdout",
        train_loss=MetricSource(key="loss"),
        train_tokens_per_second=MetricSource(key="speed.tok", unit="ktokens/s"),
        train_runtime=MetricSource(key="ms", unit="ms"),
        missing=MetricSource(key="speed.no"),
        loss=MetricSource(),
    ) == {
        "train_loss": 1.5,
        "train_tokens_per_second": 2000.0,
        "train_runtime": 0.25,
        "missing": None,
        "loss": 1.5,
    }


@pytest.mark.parametrize(("unit", "value"), [("TFLOP/s", 400), ("GFLOP/s", 4e5)])
def test_a_unit_is_converted_to_the_unit_of_the_metric(tmp_path: Path, unit: str, value: float) -> None:
    (tmp_path / "stdout.log").write_text(json.dumps({"tflops_per_s_per_gpu": value}))
    found = read(tmp_path, "stdout", tflops_per_s_per_gpu=MetricSource(unit=unit))
    assert found == {"tflops_per_s_per_gpu": 400}


@pytest.mark.parametrize(
    ("metric", "unit", "fits"),
    [
        ("tokens_per_s", "ktokens/s", True),
        ("tokens_per_s", "ksamples/s", False),
        ("peak_allocated_bytes", "GiB", True),
        ("peak_allocated_bytes", "s", False),
        ("train_steps_per_second", "it/s", True),
        ("train_runtime", "ms", True),
        ("train_runtime", "%", False),
        ("tflops_per_s_per_gpu", "GFLOP/s", True),
        ("mfu", "%", True),
        ("of_my_own", "kWh", True),
        ("train_loss", "s", False),
        ("train_loss", "nats", True),
        ("temperature_c", "°C", True),
        ("temperature_c", "W", False),
        ("pairs_per_s", "kpairs/s", True),
        ("pairs_per_s", "ktokens/s", False),
        ("device_busy_share", "%", True),
        ("device_busy_share", "s", False),
    ],
)
def test_a_unit_fits_a_metric_of_the_same_kind(metric: str, unit: str, fits: bool) -> None:
    assert (unit in units.fitting_units(metric)) is fits
    assert (units.wrong_unit(metric, unit) is None) is fits


@given(st.sampled_from(sorted(METRICS)), st.sampled_from(sorted(units.UNITS)))
def test_every_known_metric_has_a_unit_that_keeps_its_numbers_and_refuses_another_kind(name: str, unit: str) -> None:
    own = [one for one in units.fitting_units(name) if units.to_base(name, 3.0, one) == pytest.approx(3.0)]
    assert own and all(units.wrong_unit(name, one) is None for one in own)
    if units.wrong_unit(name, unit) is None:
        assert units.to_base(name, 1.0, unit) is not None
    else:
        assert unit not in units.fitting_units(name) and len(units.fitting_units(name)) < len(units.UNITS)


def test_a_csv_column_s_last_value(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "m.csv").write_text("step,loss,peak GiB\n1,3.0,1\n2,2.5,2\n3,,\n")
    assert read(
        tmp_path,
        "file:out/m.csv",
        train_loss=MetricSource(column="loss"),
        mem_torch_mem_alloc_in_bytes=MetricSource(column="peak GiB", unit="GiB"),
        mem_nvidia_mem_reserved=MetricSource(column="peak GiB", unit="GiB"),
        other=MetricSource(column="no"),
    ) == {"train_loss": 2.5, "mem_torch_mem_alloc_in_bytes": 2 * 2**30, "mem_nvidia_mem_reserved": 2048, "other": None}


def test_the_last_line_of_a_jsonl_file(tmp_path: Path) -> None:
    (tmp_path / "m.jsonl").write_text('{"Step": 1, "NLL Loss": 3.5}\n{"Step": 2, "NLL Loss": 2.5}\n\n')
    assert read(tmp_path, "file:m.jsonl", train_loss=MetricSource(key="NLL Loss")) == {"train_loss": 2.5}


def test_regular_expressions_over_the_log(tmp_path: Path) -> None:
    (tmp_path / "stdout.log").write_text("step 1 loss=3.5\nstep 2 loss=2.5 (12 ms)\ngpu: H100\n")
    assert read(
        tmp_path,
        "log",
        train_loss=MetricSource(pattern=r"loss=(\S+)"),
        train_runtime=MetricSource(pattern=r"\((\d+) ms\)$", unit="ms"),
        gpu_device_name=MetricSource(pattern=r"^gpu: (.*)$"),
        absent=MetricSource(pattern="nothing (.*)"),
    ) == {"train_loss": 2.5, "train_runtime": 0.012, "gpu_device_name": "H100", "absent": None}


@pytest.mark.parametrize(
    ("results", "text", "whole"),
    [
        ("file:out.csv", "step,loss\n1,23.5\n2,12", 23.5),
        ("file:out.csv", "step,loss\r\n1,23.5\r\n2,1", 23.5),
        ("file:out.csv", "step,loss\n1,23.5\n2,12\n", 12.0),
        ("file:out.csv", "step,lo", None),
        ("log", "loss=23.5\nloss=12", 23.5),
        ("log", "loss=23.5\rloss=12", 23.5),
        ("log", "loss=23.5\nloss=12\n", 12.0),
        ("log", "loss=1", None),
    ],
)
def test_of_a_program_that_tunebench_ended_a_line_that_may_be_cut_off_does_not_count(
    tmp_path: Path, results: str, text: str, whole: float | None
) -> None:
    for name in ("stdout.log", "out.csv"):
        (tmp_path / name).write_text(text, newline="")
    source = MetricSource(column="loss", pattern=r"loss=(\S+)")
    written = read(tmp_path, results, train_loss=source)["train_loss"]
    assert written == (None if text == "step,lo" else float(re.split("[,=]", text.strip())[-1])), "it ended by itself"
    stopped = {"step": 2, "why": "at_most_steps"}
    write_worker(tmp_path, worker(steps_from="stdout", stopped=stopped))
    assert read(tmp_path, results, train_loss=source) == {"train_loss": whole}
    write_worker(tmp_path, worker(stopped=stopped))
    assert read(tmp_path, results, train_loss=source) == {"train_loss": written}, "the instrument ended its steps"


@pytest.mark.parametrize(
    ("results", "text"),
    [("stdout", '{"loss": 1.5}'), ("file:stdout.log", '{"loss": 1.5}'), ("file:out.csv", "loss,step\n1.5,1\n")],
)
def test_a_byte_order_mark_is_no_part_of_the_results(tmp_path: Path, results: str, text: str) -> None:
    for name in ("stdout.log", "out.csv"):
        (tmp_path / name).write_text(text, encoding="utf-8-sig")
    assert read(tmp_path, results, train_loss=MetricSource(key="loss", column="loss")) == {"train_loss": 1.5}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("١٢", None),
        ("1_000", None),
        ("１２", None),
        ("1,5", None),
        (" 12 ", 12.0),
        ("-1.5E+3", -1500.0),
        (".5", 0.5),
        ("3.", 3.0),
    ],
)
def test_a_number_has_ascii_digits_and_no_underscores(tmp_path: Path, text: str, value: float | None) -> None:
    (tmp_path / "stdout.log").write_text(json.dumps({"loss": text}))
    assert read(tmp_path, "stdout", train_loss=MetricSource(key="loss")) == {"train_loss": value}


@pytest.mark.parametrize("text", ["", "no json", "[1, 2]", '{"loss": "text"}', '{"loss": NaN}', '{"loss": true}', "{"])
@pytest.mark.parametrize("results", ["stdout", "file:stdout.log"])
def test_what_can_not_be_read_is_missing(tmp_path: Path, text: str, results: str) -> None:
    assert read(tmp_path, results, train_loss=MetricSource(key="loss")) == {"train_loss": None}
    (tmp_path / "stdout.log").write_text(text)
    assert read(tmp_path, results, train_loss=MetricSource(key="loss")) == {"train_loss": None}


@pytest.mark.parametrize(
    ("results", "text", "why"),
    [
        ("stdout", '{"speed": 1}', "no key loss in the last line of stdout"),
        ("stdout", "done", "the last line of stdout cannot be read: it is not JSON"),
        ("file:out.json", "", "there is no file out.json"),
        ("file:stdout.log", '{"loss": "low"}', "'low' is not a number"),
        ("file:out.csv", "", "there is no file out.csv"),
        ("file:out.jsonl", "", "there is no file out.jsonl"),
        ("file:empty.jsonl", "", "empty.jsonl is empty"),
        ("file:text.jsonl", "", "text.jsonl cannot be read: it is not JSON"),
        ("log", "lost=3", "no line of stdout matches 'loss=(.*)'"),
        ("stdout", '{"loss": NaN}', "nan is not a finite number"),
        ("stdout", "\n \n", "stdout is empty"),
        ("stdout", '{"loss": null}', "the key loss is null in the last line of stdout"),
        ("stdout", '{"lost": null}', "no key loss in the last line of stdout"),
        ("stdout", None, "there is no file stdout.log"),
        ("log", None, "there is no file stdout.log"),
    ],
)
def test_a_number_that_did_not_come_says_why(tmp_path: Path, results: str, text: str | None, why: str) -> None:
    for name, content in {"stdout.log": text, "empty.jsonl": "", "text.jsonl": "loss=3\n"}.items():
        if content is not None:
            (tmp_path / name).write_text(content)
    source = MetricSource(key="loss", pattern="loss=(.*)")
    (found,) = custom.read_metrics(
        CustomCommand(command=("x",), results=results, metrics={"train_loss": source}), tmp_path
    )
    assert (found.value, found.why_missing) == (None, why)


def test_metrics_finds_the_command_in_the_experiment_s_file(tmp_path: Path) -> None:
    run_dir = tmp_path / "runs" / "r1-t1"
    run_dir.mkdir(parents=True)
    command = CustomCommand(command=("x",), metrics={"train_loss": MetricSource(key="loss")})
    (tmp_path / "experiment.json").write_text(dump(experiment(custom=command)))
    (run_dir / "stdout.log").write_text('{"loss": 0.5}\n')
    [found] = custom.Custom().metrics(run_dir)
    assert (found.name, found.value, found.source) == ("train_loss", 0.5, "stdout")


def test_a_value_that_no_record_can_hold_is_missing(tmp_path: Path) -> None:
    (tmp_path / "stdout.log").write_text(json.dumps({"word": "x" * 2**17, "far": 1e308}))
    metrics = {"word": MetricSource(), "far": MetricSource(unit="h")}
    word, far = custom.read_metrics(CustomCommand(command=("x",), results="stdout", metrics=metrics), tmp_path)
    assert (word.value, len(word.why_missing) < 100) == (None, True)
    assert (far.value, far.why_missing) == (None, "1e+308 is not a finite number")


def test_all_patterns_of_a_run_share_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(custom, "LONGEST_SEARCH_S", 1.5)
    monkeypatch.setattr(custom, "ALL_SEARCHES_S", 1.5)
    (tmp_path / "stdout.log").write_text("a" * 40 + "b\n")
    metrics = {name: MetricSource(pattern=r"(a+)+$") for name in ("one", "two")}
    one, two = custom.read_metrics(CustomCommand(command=("x",), results="log", metrics=metrics), tmp_path)
    assert "was ended after 1.5 s" in one.why_missing and "was ended after 1 s" in two.why_missing


@pytest.mark.parametrize("name", ["my_low", "my_runs", "train_loss_low", "step_tokens_spread", "step_time_low_s"])
def test_a_name_like_that_of_a_column_over_repeats_is_allowed(name: str) -> None:
    assert not_ours({name: {}}) == {name: {}}


@pytest.mark.parametrize(
    "name",
    [
        *("tokens_per_s_low", "real_tokens_per_s_high", "tokens_per_s_runs", "round_time_spread"),
        *("runs", "status", "id", "num_gpus", "provenance_torch", "load_per_core"),
    ],
)
def test_the_name_of_a_column_of_tunebench_itself_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"Tunebench makes the column {name} itself"):
        not_ours({name: {}})
