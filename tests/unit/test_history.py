"""Histories over made campaigns: matching, order, steps and what changed beside them, and every text that is made of one."""

from __future__ import annotations

import csv
import errno
import io
import json
import math
import os
import random
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from factories.results import BASE, ended, failed, stored
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from typer.testing import CliRunner

from orchestrator.cli.results import history_rerun_bisect
from orchestrator.compare.history import campaigns, findings, repeats, trends
from orchestrator.compare.history.findings import Course
from orchestrator.compare.history.history import Campaign, History, Kind, Point, Series
from orchestrator.compare.history.view import as_csv, files, sparklines, terminal, trend_chart, wording
from orchestrator.compare.history.view.events import events
from orchestrator.compare.history.view.trend_page import trend_page
from orchestrator.compare.rules import Rules, parse
from orchestrator.errors import OrchestratorError, ResultsError, SelectionError
from orchestrator.records import Caveat, CaveatKind, Experiment, Framework, RunRecord
from orchestrator.report.tables import benchmarks, raw_summary
from orchestrator.results.table.load import load

DAY_S = 86400.0
BEGAN = 1.7e9
GIB = 2.0**30


def framework(name: str) -> Experiment:
    return replace(BASE, id=f"full-tiny.{name}-000000000000", framework=Framework(name=name, digest=name, arguments={}))


BASELINE, LIGER = framework("baseline"), framework("liger")


def measured(experiment: Experiment, day: float, speeds: Sequence[float], **more: Any) -> list[RunRecord]:
    """A record for each speed, of a campaign of that day.

    `more` are other numbers, or `torch`, `driver`, `host` and `commit` for the provenance.
    """
    around = {
        "driver": {"driver": more.pop("driver", "580.159")},
        "git": {"commit": more.pop("commit", "a" * 40), "dirty": False},
        "packages": {"torch": more.pop("torch", "2.13.0")},
        "gpus": [],
        "host": {"name": more.pop("host", "bench-1")},
    }
    return [
        replace(
            ended(experiment, repeat, tokens_per_s=speed, **more),
            started_at=BEGAN + day * DAY_S + 100 * repeat,
            provenance=around,
        )
        for repeat, speed in enumerate(speeds, start=1)
    ]


def history(*places: Path, rules: Rules | None = None, by: Sequence[str] = ()) -> History:
    read, said = campaigns.read(places, by=by)
    return trends.history(read, rules=rules or parse(), by=by, warnings=said)


def only(found: History) -> Series:
    (series,) = found.series
    return series


def of(found: History, label: str, metric: str) -> Series:
    (series,) = (one for one in found.series if label in one.label and one.metric == metric)
    return series


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten days: with torch 2.13 on day 4 baseline gets faster, at a commit on day 7 liger slower; memory shrinks on day 5."""
    root = tmp_path_factory.mktemp("history") / "archive"
    root.mkdir()
    rng = random.Random(1)
    for day in range(10):
        around = {"torch": "2.12.0" if day < 4 else "2.13.0", "commit": ("a" if day < 7 else "b") * 40}
        memory = {"peak_reserved_bytes": (40 if day < 5 else 38) * GIB}
        cells = []
        for experiment, level in ((BASELINE, 50_000 if day >= 4 else 45_000), (LIGER, 60_000 if day < 7 else 54_000)):
            speeds = [level * math.exp(rng.gauss(0, 0.005)) for _ in range(3)]
            cells.append((experiment, measured(experiment, day, speeds, **around, **memory)))
        stored(root / f"day-{day}", *cells)
    return root


@pytest.fixture(scope="module")
def found(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> History:
    """Its history, with names that are the same in every place."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(archive.parent)
        return history(Path(archive.name))


def test_steps_stand_where_they_were_made_with_what_changed(found: History) -> None:
    faster = of(found, "baseline", "tokens_per_s")
    (step,) = faster.steps
    assert (step.at, step.since, step.kind) == (4, 0, Kind.BETTER)
    assert step.change == pytest.approx(5 / 45, abs=0.01)
    assert [(one.name, one.base, one.new) for one in faster.points[4].changes] == [("torch", "2.12.0", "2.13.0")]
    (step,) = of(found, "liger", "tokens_per_s").steps
    assert (step.at, step.kind) == (7, Kind.WORSE)
    assert step.before == pytest.approx(60_000, rel=0.01) and step.after == pytest.approx(54_000, rel=0.01)
    for name in ("baseline", "liger"):
        (step,) = of(found, name, "peak_reserved_bytes").steps
        assert (step.at, step.before, step.after, step.kind) == (5, 40 * GIB, 38 * GIB, Kind.BETTER)


def test_a_point_is_the_mean_of_logarithms_with_its_interval(found: History) -> None:
    for series in found.series:
        for point in series.points:
            assert point.runs == 3 and point.interval is not None
            assert point.interval.low <= point.value <= point.interval.high
            assert point.level is not None and abs(math.log(point.value / point.level)) < 0.03


def test_a_guard_that_moves_is_neither_better_nor_worse(tmp_path: Path) -> None:
    for day in range(8):
        records = measured(BASELINE, day, [1000.0], train_loss=2.0 if day < 4 else 2.5)
        stored(tmp_path / f"day-{day}", (BASELINE, records))
    (step,) = of(history(tmp_path), "baseline", "train_loss").steps
    assert step.kind is Kind.CHANGED


@pytest.mark.parametrize(
    ("speed", "share", "kind"),
    [(1200.0, 0.6, Kind.CHANGED), (800.0, 0.82, Kind.WORSE), (1200.0, 0.88, Kind.BETTER)],
)
def test_a_speed_that_moved_with_its_padding_is_judged_by_the_real_tokens(
    speed: float, share: float, kind: Kind, tmp_path: Path
) -> None:
    """With more padding, the speed rose by 20 %, and that of the real tokens fell. It was an improvement."""
    places = [
        stored(tmp_path / f"n{night}", (BASELINE, measured(BASELINE, night, [at] * 3, real_tokens_per_s=at * real)))
        for night, (at, real) in enumerate([*[(1000.0, 0.9)] * 4, *[(speed, share)] * 4])
    ]
    series = of(history(*places), "baseline", "tokens_per_s")
    (step,) = series.steps
    assert (step.at, step.kind) == (4, kind)
    changes = [("padded tokens", "10.0%", f"{1 - share:.1%}")] if share < 0.85 else []
    assert [(one.name, one.base, one.new) for one in series.points[4].changes] == changes


def test_a_printed_speed_and_one_of_steps_are_other_numbers(tmp_path: Path) -> None:
    """A newer version measures the steps, and the speed that the command prints includes the warm-up: it was an improvement."""
    places = []
    for night in range(8):
        steps = {"discarded_steps": 3} if night > 3 else {}
        records = measured(BASELINE, night, [1000.0 if night < 4 else 1500.0] * 3, train_loss=2.0 + night // 4, **steps)
        places.append(stored(tmp_path / f"n{night}", (BASELINE, records)))
    found = history(*places)
    series = of(found, "baseline", "tokens_per_s")
    (step,) = series.steps
    assert (step.at, step.kind) == (4, Kind.CHANGED)
    assert [(one.name, one.base, one.new) for one in series.points[4].changes] == [("measured from steps", "no", "yes")]
    assert of(found, "baseline", "train_loss").points[4].changes == ()
    assert sum(len(point.changes) for point in series.points) == 1


def test_the_time_of_a_wrong_result_is_not_followed(tmp_path: Path) -> None:
    """A function that returned zeros made the call ten times as fast: it was an improvement."""
    places = []
    for night, (time_s, error) in enumerate([*[(1e-3, 1e-7)] * 4, *[(1e-4, 1.0)] * 4]):
        errors = (error, 1e-7, 1e-7)  # one wrong run makes the operator wrong
        runs = [ended(BASELINE, 1, call_time_s=time_s, relative_error=own).measurements for own in errors]
        made = zip(measured(BASELINE, night, [1.0] * 3), runs, strict=True)
        records = [replace(one, measurements=numbers) for one, numbers in made]
        places.append(stored(tmp_path / f"n{night}", (BASELINE, records)))
    found = history(*places)
    assert len(of(found, "baseline", "call_time_s").points) == 4
    assert "times of an operator with a wrong result are not followed (1 experiment)" in found.warnings


def test_losses_of_runs_that_ended_early_at_different_steps_are_not_followed(tmp_path: Path) -> None:
    for day in range(8):
        early = {"stopped_early": "within"} if day % 2 else {}
        steps = 20 + day if early else 40
        records = measured(BASELINE, day, [1000.0], train_loss=2.5 if early else 2.0, steps=steps, **early)
        stored(tmp_path / f"day-{day}", (BASELINE, records))
    found = history(tmp_path)
    assert [point.campaign for point in of(found, "baseline", "train_loss").points] == [0, 2, 4, 6]
    assert len(of(found, "baseline", "tokens_per_s").points) == 8
    assert found.warnings == ("losses of runs that ended early at different steps are not followed (1 experiment(s))",)


def test_losses_of_as_many_steps_are_followed_however_they_came_about(tmp_path: Path) -> None:
    for day in range(8):
        loss = 2.0 if day < 4 else 9.0
        records = measured(BASELINE, day, [1000.0], train_loss=loss, steps=20, stopped_early="at_most_steps")
        stored(tmp_path / f"day-{day}", (BASELINE, records))
    found = history(tmp_path)
    (step,) = of(found, "baseline", "train_loss").steps
    assert (step.kind, found.warnings) == (Kind.CHANGED, ())


def test_campaigns_are_in_the_order_in_which_they_ran(tmp_path: Path) -> None:
    for name, day in (("c", 0), ("a", 1), ("b", 2)):
        stored(tmp_path / name, (BASELINE, measured(BASELINE, day, [1000.0 + day])))
    found = history(tmp_path / "a", tmp_path / "b", tmp_path / "c")
    assert [point.value for point in only(found).points] == [1000.0, 1001.0, 1002.0]
    assert [Path(one.name).name for one in found.campaigns] == ["c", "a", "b"]


def test_a_copy_that_went_on_does_not_begin_with_the_failed_runs_of_the_other_campaign(tmp_path: Path) -> None:
    gone = [replace(failed(LIGER, 1), started_at=BEGAN)]
    first, later = measured(BASELINE, 0.1, [1000.0]), [replace(one, repeat=2) for one in measured(BASELINE, 5, [900.0])]
    stored(tmp_path / "a", (BASELINE, first), (LIGER, gone))
    stored(tmp_path / "b", (BASELINE, [*first, *later]), (LIGER, gone))
    stored(tmp_path / "c", (BASELINE, measured(BASELINE, 3, [950.0])))
    assert [Path(one.name).name for one in history(tmp_path).campaigns] == ["a", "c", "b"]


def test_a_campaign_of_failed_runs_has_its_place_and_the_newest_one_is_told(tmp_path: Path) -> None:
    for name, day in (("a", 0), ("c", 2)):
        stored(tmp_path / name, (BASELINE, measured(BASELINE, day, [1000.0], torch=f"2.{day}")))
    gone = [replace(failed(BASELINE, repeat), started_at=BEGAN + DAY_S + repeat) for repeat in (1, 2)]
    stored(tmp_path / "b", (BASELINE, gone))
    found = history(tmp_path)
    assert [Path(one.name).name for one in found.campaigns] == ["a", "b", "c"]
    assert [round((one.began_at or 0.0) - BEGAN) for one in found.campaigns] == [100, 86401, 172900]
    assert found.warnings == () and "With the newest campaign changed: torch 2.0 → 2.2." in wording.no_step(found)
    later = [replace(record, started_at=BEGAN + 9 * DAY_S) for record in gone]
    stored(tmp_path / "d", (BASELINE, later), (LIGER, measured(LIGER, 9, [1000.0])))
    assert history(tmp_path).warnings == (f"{tmp_path / 'd'}: 1 of its 2 experiments has no run that ended ok",)


def test_where_one_does_not_say_when_it_ran_the_order_given_counts(tmp_path: Path) -> None:
    stored(tmp_path / "late", (BASELINE, measured(BASELINE, 9, [1001.0])))
    file = tmp_path / "published.csv"
    file.write_text("framework_config,model_name_or_path,num_gpus,tokens_per_s\nbaseline,config:tiny-llama,1,1002\n")
    stored(tmp_path / "early", (BASELINE, measured(BASELINE, 1, [1000.0])))
    found = history(tmp_path / "late", file, tmp_path / "early", rules=parse(metrics=["tokens_per_s"]))
    assert [point.value for point in only(found).points] == [1001.0, 1002.0, 1000.0]
    assert any("does not say when it ran" in sentence for sentence in found.warnings)


def test_an_experiment_is_followed_by_its_id_and_by_its_key_where_the_id_is_new(tmp_path: Path) -> None:
    other = replace(
        BASELINE, id="full-tiny.baseline-111111111111", arguments={**BASE.arguments, "learning_rate": "3e-5"}
    )
    stored(tmp_path / "1", (BASELINE, measured(BASELINE, 1, [1000.0])), (LIGER, measured(LIGER, 1, [2000.0])))
    stored(tmp_path / "2", (LIGER, measured(LIGER, 2, [2001.0])), (other, measured(other, 2, [1001.0])))
    found = history(tmp_path)
    baseline, liger = of(found, "baseline", "tokens_per_s"), of(found, "liger", "tokens_per_s")
    assert [point.value for point in baseline.points] == [1000.0, 1001.0] and baseline.id == other.id
    assert [point.value for point in liger.points] == [2000.0, 2001.0]
    assert [one.name for one in baseline.points[1].changes] == ["learning_rate"]


def test_each_row_of_the_files_has_the_id_of_its_own_campaign(tmp_path: Path) -> None:
    """After a changed argument, the rows of all campaigns had the new id, which the old folders do not contain."""
    for day in range(8):
        one = replace(
            BASELINE, id=f"full-tiny.baseline-00000000000{day // 4}", arguments={"max_steps": str(60 + day // 4)}
        )
        stored(tmp_path / f"day-{day}", (one, measured(one, day, [1000.0 if day < 4 else 1200.0])))
    found = history(tmp_path)
    ids = ["full-tiny.baseline-000000000000"] * 4 + ["full-tiny.baseline-000000000001"] * 4
    rows, steps = (list(csv.DictReader(io.StringIO(text))) for text in (as_csv.points(found), as_csv.steps(found)))
    assert [row["id"] for row in rows] == ids and [row["id"] for row in steps] == ids[4:5]
    (series,) = json.loads(files.document(found))["series"]
    assert [point["id"] for point in series["points"]] == ids and series["id"] == ids[-1]


def test_an_experiment_that_is_away_for_a_while_is_the_same_one(tmp_path: Path) -> None:
    stored(tmp_path / "1", (BASELINE, measured(BASELINE, 1, [1000.0], torch="2.11.0")))
    stored(tmp_path / "2", (LIGER, measured(LIGER, 2, [1001.0], torch="2.12.0")))
    stored(tmp_path / "3", (BASELINE, measured(BASELINE, 3, [1002.0], torch="2.13.0")))
    series = of(history(tmp_path), "baseline", "tokens_per_s")
    assert [point.campaign for point in series.points] == [0, 2]
    assert [(one.name, one.base, one.new) for one in series.points[1].changes] == [("torch", "2.11.0", "2.13.0")]


def test_what_changed_at_a_campaign_that_failed_is_told_at_the_next(tmp_path: Path) -> None:
    stored(tmp_path / "1", (BASELINE, measured(BASELINE, 1, [1000.0], torch="2.11.0")))
    broken = [replace(failed(BASELINE, 1), started_at=BEGAN + 2 * DAY_S, provenance={"packages": {"torch": "2.12.0"}})]
    stored(tmp_path / "2", (BASELINE, broken), (LIGER, measured(LIGER, 2, [1.0])))
    stored(tmp_path / "3", (BASELINE, measured(BASELINE, 3, [1002.0], torch="2.13.0")))
    series = of(history(tmp_path), "baseline", "tokens_per_s")
    assert [point.campaign for point in series.points] == [0, 2]
    assert ("torch", "2.11.0", "2.13.0") in [(one.name, one.base, one.new) for one in series.points[1].changes]


def test_small_steps_are_told_when_they_matter_together(tmp_path: Path) -> None:
    for day in range(15):
        stored(tmp_path / f"{day:02}", (BASELINE, measured(BASELINE, day, [1000 * 1.012 ** (day // 5)] * 3)))
    series = only(history(tmp_path))
    assert len({point.level for point in series.points}) == 3
    (step,) = series.steps
    assert (step.at, step.since) == (10, 0) and step.change == pytest.approx(1.012**2 - 1)
    assert len(only(history(tmp_path, rules=parse(min_effect=["0.01"]))).steps) == 2


def without_speed(record: RunRecord, **numbers: float) -> RunRecord:
    """The record of a run without a steady state."""
    caveat = Caveat(kind=CaveatKind.NO_STEADY_SPEED, detail="the step time did not settle")
    return replace(record, measurements=ended(BASELINE, 1, **numbers).measurements, warnings=(caveat,))


def test_a_speed_that_newer_campaigns_lack_is_told_and_the_trainers_is_followed_too(tmp_path: Path) -> None:
    """The last known speed looked like the present one, and the slowdown of the Trainer's speed by 40 % was not followed."""
    for day in range(10):
        records = measured(BASELINE, day, [6000.0, 6001.0], train_tokens_per_second=5000.0, step_time_s=0.1)
        lost = [without_speed(record, train_tokens_per_second=3000.0) for record in records]
        stored(tmp_path / f"n{day}", (BASELINE, records if day < 5 else lost))
    found = history(tmp_path)
    label = found.series[0].label
    assert found.warnings == (
        f"tok/s, step time: no value since {tmp_path / 'n5'} in {label}, because runs have no steady state",
    )
    (step,) = of(found, "baseline", "train_tokens_per_second").steps
    assert (step.at, step.kind) == (5, Kind.WORSE) and not of(found, "baseline", "tokens_per_s").steps
    lines = [line.rstrip() for line in terminal.text(found, width=120).splitlines() if line.startswith("    ")]
    assert [line.endswith("last in n4") for line in lines[-3:]] == [True, False, True]
    tiles, _ = sparklines.tiles(found)
    assert {tile["metric"]: tile["last_in"] for tile in tiles} == {
        "tok/s": "last in n4",
        "Trainer tok/s": "",
        "step time": "last in n4",
    }
    assert "last in n4" in trend_page(found)


def test_a_new_speed_does_not_hide_the_one_of_all_campaigns(tmp_path: Path) -> None:
    """Three campaigns had the steps' speed, so the step of the Trainer's speed was thrown away."""
    for day in range(6):
        records = measured(BASELINE, day, [6500.0, 6501.0], train_tokens_per_second=5000.0 if day < 3 else 4000.0)
        few = [without_speed(record, train_tokens_per_second=5000.0) for record in records]
        stored(tmp_path / f"n{day}", (BASELINE, few if day < 3 else records))
    found = history(tmp_path)
    assert [step.at for step in of(found, "baseline", "train_tokens_per_second").steps] == [3]
    assert len(of(found, "baseline", "tokens_per_s").points) == 3 and found.warnings == ()
    every = measured(BASELINE, 9, [6500.0], train_tokens_per_second=4000.0)
    assert only(history(stored(tmp_path / "only", (BASELINE, every)))).metric == "tokens_per_s"


def test_metrics_that_some_experiments_lack_are_told_in_one_sentence_for_equal_ones(tmp_path: Path) -> None:
    every = [framework(f"framework-{number}") for number in range(9)]
    for day in range(6):
        cells = []
        for number, one in enumerate(every):
            more = {"train_loss": 2.0, "peak_reserved_bytes": GIB} if day < 4 or number == 0 else {}
            cells.append((one, measured(one, day, [1000.0], **more)))
        stored(tmp_path / f"n{day}", *cells[: 8 if day == 5 else 9])  # the last one does not run any more
    found = history(tmp_path)
    told, other = found.warnings[0].split(" in ", 1)
    assert told == f"peak reserved, loss: no value since {tmp_path / 'n4'}" and len(found.warnings) == 1
    assert other.count("framework-") == 5 and other.endswith(", and 2 more, although runs ended ok")
    assert wording.last_in(of(found, "framework-8", "tokens_per_s"), found) == "last in n4"
    assert wording.last_in(of(found, "framework-0", "train_loss"), found) == ""


def test_values_that_are_not_above_0_have_no_steps(tmp_path: Path) -> None:
    for day in range(8):
        stored(tmp_path / f"{day}", (BASELINE, measured(BASELINE, day, [0.0 if day < 4 else 5.0])))
    series = only(history(tmp_path, rules=parse(metrics=["tokens_per_s"])))
    assert [point.value for point in series.points] == [0.0] * 4 + [5.0] * 4
    assert not series.steps and series.points[0].level is None
    assert "history" in trend_page(history(tmp_path)).lower()


def test_experiments_of_one_label_are_called_apart(tmp_path: Path) -> None:
    """Each alone in its campaign and unlike the two of the first, so that nothing but the model tells them apart there."""
    ids = {digit: f"full-tiny-{digit * 12}" for digit in "1234"}
    rates = {d: replace(BASE, id=ids[d], arguments={**BASE.arguments, "learning_rate": f"{d}e-5"}) for d in ids}
    for day, digits in enumerate(("12", "3", "4")):
        stored(tmp_path / f"{day}", *((rates[digit], measured(rates[digit], day, [1000.0])) for digit in digits))
    labels = {one.id: one.label for one in history(tmp_path).series}
    assert len(set(labels.values())) == len(labels) == 4
    assert labels[ids["3"]].endswith(ids["3"][-12:]) and labels[ids["4"]].endswith(ids["4"][-12:])


def test_a_second_step_begins_where_the_first_ended(tmp_path: Path) -> None:
    for day in range(12):
        stored(tmp_path / f"{day:02}", (BASELINE, measured(BASELINE, day, [1000.0 + 100 * (day // 4)])))
    first, second = only(history(tmp_path)).steps
    assert (first.at, first.before, first.after) == (4, 1000.0, 1100.0)
    assert (second.at, second.since, second.before, second.after) == (8, 4, 1100.0, 1200.0)


def test_what_is_no_campaign_is_an_error_where_it_is_named_and_a_warning_where_it_is_found(tmp_path: Path) -> None:
    stored(tmp_path / "1", (BASELINE, measured(BASELINE, 1, [1000.0])))
    (tmp_path / "notes").mkdir()
    assert len(history(tmp_path).campaigns) == 1
    with pytest.raises(ResultsError, match="notes"):
        history(tmp_path / "1", tmp_path / "notes")
    with pytest.raises(ResultsError, match="twice"):
        history(tmp_path, tmp_path / "1")
    with pytest.raises(SelectionError, match="no campaign measured"):
        history(tmp_path, rules=parse(metrics=["mfu"]))


def test_the_tables_of_a_folder_are_one_campaign(tmp_path: Path) -> None:
    for day in range(2):
        root = stored(tmp_path / f"day-{day}", (BASELINE, measured(BASELINE, day, [1000.0, 1001.0])))
        for name, text in (
            ("benchmarks.csv", benchmarks(load([root]))),
            ("raw_summary.csv", raw_summary(load([root]))),
        ):
            (root / name).write_text(text)
    tables, means = sorted(tmp_path.glob("*/*.csv")), sorted(tmp_path.glob("*/benchmarks.csv"))
    found = history(*tables)
    assert [Path(one.name).parts[-2:] for one in found.campaigns] == [(f"day-{n}", "raw_summary.csv") for n in range(2)]
    assert found.warnings == tuple(
        f"{table}: it is left out, because raw_summary.csv of the same folder has the same runs" for table in means
    )
    with_folder = history(tmp_path, *tables)
    assert [Path(one.name).name for one in with_folder.campaigns] == ["day-0", "day-1"]
    assert f"{tables[0]}: it is left out, because {tmp_path / 'day-0'} itself has the same runs" in with_folder.warnings
    assert len(history(*means).campaigns) == 2, "a table that is alone is a campaign"
    for number, table in enumerate(tables[:2]):
        shutil.copy(table, tmp_path / f"{number}.csv")
    assert len(history(*tmp_path.glob("*.csv")).campaigns) == 2, (
        "under other names, nothing says that they belong together"
    )


def test_a_copy_of_a_campaign_counts_once_and_so_does_a_link_to_it(tmp_path: Path) -> None:
    """As `base`, which nightly jobs keep as a link to a night, or as a copy of it."""
    for day in (1, 2):
        stored(tmp_path / f"day-{day}", (BASELINE, measured(BASELINE, day, [1000.0, 1001.0])))
    (tmp_path / "base").symlink_to("day-2")
    shutil.copytree(tmp_path / "day-1", tmp_path / "day-1-copy")
    found = history(tmp_path)
    assert [Path(one.name).name for one in found.campaigns] == ["day-1", "day-2"]
    assert found.warnings == (f"{tmp_path / 'day-1-copy'} is left out, because other campaigns have all of its runs",)
    assert [point.runs for point in only(found).points] == [2, 2]


def test_a_copy_that_went_on_has_its_own_runs(tmp_path: Path) -> None:
    first = measured(BASELINE, 1, [1000.0, 1001.0])
    later = [replace(record, repeat=3) for record in measured(BASELINE, 5, [900.0])]
    stored(tmp_path / "1", (BASELINE, first))
    stored(tmp_path / "2", (BASELINE, [*first, *later]))
    found = history(tmp_path)
    assert [point.runs for point in only(found).points] == [2, 1]
    assert [round((one.began_at or 0.0) - BEGAN) for one in found.campaigns] == [86500, 432100]
    (said,) = found.warnings
    assert said.endswith("2 runs that other campaigns also have: these runs are counted only in the other campaigns")


def test_only_a_folder_that_a_profiling_rerun_made_is_left_out(tmp_path: Path) -> None:
    """A campaign may have such a name too, and a place that is not there is an error under each name."""
    stored(tmp_path / "gpu", (BASELINE, measured(BASELINE, 1, [1000.0])))
    profiles = stored(tmp_path / "gpu.profiles", (BASELINE, measured(BASELINE, 2, [500.0])))
    found = history(tmp_path)
    assert [Path(one.name).name for one in found.campaigns] == ["gpu"]
    assert found.warnings == (f"{profiles}: it is left out, because profiled runs are never compared",)
    suite = json.loads((profiles / "suite.json").read_text())
    (profiles / "suite.json").write_text(json.dumps({**suite, "asked": {"argv": ["run", "x.yaml"]}}))
    assert [Path(one.name).name for one in history(tmp_path).campaigns] == ["gpu", "gpu.profiles"]
    for name in ("nope", "nope.profiles"):
        with pytest.raises(ResultsError, match=rf"/{name}: there is no such f"):
            history(tmp_path / "gpu", tmp_path / name)


def test_a_damaged_campaign_of_a_folder_is_told(tmp_path: Path) -> None:
    for day in (1, 2):
        stored(tmp_path / f"{day}", (BASELINE, measured(BASELINE, day, [1000.0])))
    (tmp_path / "2" / "suite.json").write_text("{")
    found = history(tmp_path)
    assert len(found.campaigns) == 1
    (said,) = found.warnings
    assert said.startswith(f"left out: {tmp_path}/2/suite.json: cannot be read: it is not JSON")


def test_a_campaign_that_another_user_hides_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for day in (1, 2):
        stored(tmp_path / f"{day}", (BASELINE, measured(BASELINE, day, [1000.0])))
    hidden, lstat = tmp_path / "2" / "suite.json", Path.lstat

    def refuse(path: Path) -> os.stat_result:
        if path == hidden:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return lstat(path)

    monkeypatch.setattr(Path, "lstat", refuse)
    found = history(tmp_path)
    assert len(found.campaigns) == 1
    assert found.warnings == (f"left out: {hidden}: cannot be read: Permission denied; make it readable",)


def test_a_mistake_that_leaves_no_campaign_is_one_and_replaces_no_history(
    command: typer.Typer, archive: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    assert CliRunner().invoke(command, [str(archive), "--output", str(out)]).exit_code == 0
    before = (out / files.JSON).read_text()
    with pytest.raises(SelectionError, match="no experiment has 'framewrk'"):
        CliRunner().invoke(command, [str(archive), "--by", "framewrk", "--output", str(out)], catch_exceptions=False)
    assert (out / files.JSON).read_text() == before


def test_chained_changes_are_one_and_a_change_back_is_none(tmp_path: Path) -> None:
    for day, torch in enumerate(("2.12.0", "2.13.0", "2.12.0")):
        records = measured(BASELINE, day, [1000.0], torch=torch)
        if day == 1:
            records = [replace(failed(BASELINE, 1), started_at=BEGAN + DAY_S, provenance=records[0].provenance)]
        stored(tmp_path / f"{day}", (BASELINE, records))
    assert only(history(tmp_path)).points[1].changes == ()


# Noise, all experiments together, and many series.


def nights(
    tmp_path: Path, speeds: Callable[[int, int], Sequence[float]], *, days: int = 12, experiments: int = 1, **more: Any
) -> History:
    """Return a history; `speeds` gives the speeds of a day and an experiment."""
    every = [framework(f"framework-{number}") for number in range(experiments)]
    for day in range(days):
        cells = [(one, measured(one, day, speeds(day, number), **more)) for number, one in enumerate(every)]
        stored(tmp_path / f"{day:02}", *cells)
    return history(tmp_path)


def test_a_cold_first_repeat_is_left_out_and_hides_no_step(tmp_path: Path) -> None:
    rng = random.Random(2)

    def speeds(day: int, _: int) -> list[float]:
        level = 1000 * (1 if day < 9 else 0.95) * math.exp(rng.gauss(0, 0.004))
        return [level * cold * math.exp(rng.gauss(0, 0.004)) for cold in (1 / rng.uniform(1.05, 1.14), 1, 1)]

    found = nights(tmp_path, speeds)
    series = only(found)
    assert series.without_first and {point.runs for point in series.points} == {2}
    assert [(step.at, step.kind) for step in series.steps] == [(9, Kind.WORSE)]
    (said,) = found.warnings
    assert said.startswith("the first run is left out of 1 series, because it was the slowest in most campaigns")
    assert "The first run is left out" in trend_page(found) and ",2,first run," in as_csv.points(found)


def test_the_first_run_is_the_first_in_time(tmp_path: Path) -> None:
    """Repeat 1 was cancelled, and was tried again after the others."""
    for day in range(12):
        records = measured(BASELINE, day, [1000.0 + day, 900.0, 1001.0])
        later = replace(records[0], attempt=2, started_at=records[2].started_at + 100)
        stored(tmp_path / f"{day:02}", (BASELINE, [later, *records[1:]]))
    series = only(history(tmp_path))
    assert series.without_first and series.points[0].value == pytest.approx(1000.5)


def test_a_first_repeat_that_is_like_the_others_stays(tmp_path: Path) -> None:
    rng = random.Random(3)
    found = nights(tmp_path, lambda day, _: [1000 * math.exp(rng.gauss(0, 0.01)) for _ in range(3)])
    assert not only(found).without_first and found.warnings == ()


def test_a_small_step_of_all_experiments_is_a_step_of_the_mean(tmp_path: Path) -> None:
    rng = random.Random(4)

    def speeds(day: int, number: int) -> list[float]:
        level = 1000 * (1 + number) * (1 if day < 9 else 0.97) * math.exp(rng.gauss(0, 0.015))
        return [level * math.exp(rng.gauss(0, 0.003)) for _ in range(2)]

    found = nights(tmp_path, speeds, experiments=8)
    (fleet,) = found.fleet
    (step,) = fleet.steps
    assert (step.at, step.kind, fleet.label) == (9, Kind.WORSE, "all 8 experiments")
    assert step.change == pytest.approx(-0.03, abs=0.012)
    assert "all 8 experiments" in terminal.text(found, width=100) and "all 8 experiments" in as_csv.steps(found)
    assert json.loads(files.document(found))["fleet"][0]["steps"][0]["change"] == pytest.approx(step.change)


@pytest.mark.parametrize("disturbed", [(7,), (0, 7), (2, 5)])
def test_nights_whose_runs_differ_far_more_hide_no_step(disturbed: tuple[int, ...], tmp_path: Path) -> None:
    """One night at half the speed made the noise of all nights so large that a step of 15 % vanished."""
    rng = random.Random(7)

    def speeds(day: int, _: int) -> list[float]:
        slowed = (1.0, 0.5, 0.52) if day in disturbed else (1.0, 1.0, 1.0)
        return [(1000 if day < 4 else 850) * part * math.exp(rng.gauss(0, 0.01)) for part in slowed]

    series = only(nights(tmp_path, speeds, days=8))
    (step,) = series.steps
    assert (step.at, step.kind) == (4, Kind.WORSE) and step.change == pytest.approx(-0.15, abs=0.02)
    doubts = {point.campaign: point.doubts for point in series.points if point.doubts}
    assert doubts == dict.fromkeys(disturbed, ("runs that differ far more than in other campaigns",))


@pytest.mark.parametrize(("nights_", "runs"), [(4, 2), (8, 3), (20, 5)])
def test_equal_noise_makes_hardly_ever_a_noisy_night(nights_: int, runs: int) -> None:
    rng = random.Random(8)
    series = [[{run: math.exp(rng.gauss(0, 0.02)) for run in range(runs)} for _ in range(nights_)] for _ in range(1000)]
    assert sum(bool(repeats.noisy(campaigns)) for campaigns in series) <= 5


def test_equal_runs_make_no_other_night_noisy_by_less_than_the_smallest_noise() -> None:
    equal: list[dict[int, float]] = [{0: 1000.0, 1: 1000.0, 2: 1000.0}] * 9
    assert not repeats.noisy([*equal, {0: 1000.0, 1: 1001.0, 2: 1000.0}])
    assert list(repeats.noisy([*equal, {0: 1000.0, 1: 1100.0, 2: 1000.0}])) == [9]


def test_a_large_step_of_one_experiment_is_not_a_step_of_all(tmp_path: Path) -> None:
    found = nights(tmp_path, lambda day, number: [700.0 if number == 0 and day > 5 else 1000.0] * 2, experiments=4)
    assert [len(series.steps) for series in found.series] == [1, 0, 0, 0]
    assert found.fleet[0].steps == ()


def test_first_steps_that_all_take_longer_are_told_below_the_effect_of_one(tmp_path: Path) -> None:
    rng = random.Random(5)
    every = [framework(f"framework-{number}") for number in range(6)]
    for day in range(12):
        seconds = 20 * (1 if day < 10 else 1.4)
        noisy = [(one, seconds * math.exp(rng.gauss(0, 0.03))) for one in every]
        stored(tmp_path / f"{day:02}", *((one, measured(one, day, [1000.0], first_step_s=took)) for one, took in noisy))
    found = history(tmp_path)
    (fleet,) = (one for one in found.fleet if one.metric == "first_step_s")
    assert [step.at for step in fleet.steps] == [10]
    assert not any(series.steps for series in found.series)


def test_an_experiment_that_joins_late_does_not_move_the_mean(tmp_path: Path) -> None:
    slow, fast = framework("slow"), framework("fast")
    late = framework("late")
    for day in range(12):
        cells = [(one, measured(one, day, [speed])) for one, speed in ((slow, 100.0), (fast, 1000.0))]
        stored(tmp_path / f"{day:02}", *cells, *([(late, measured(late, day, [9000.0]))] if day > 5 else []))
    (fleet,) = history(tmp_path).fleet
    assert {round(point.value, 6) for point in fleet.points} == {round(fleet.points[0].value, 6)} and not fleet.steps


def test_a_slow_drift_is_a_drift_and_not_a_step(tmp_path: Path) -> None:
    rng = random.Random(6)
    found = nights(tmp_path, lambda day, _: [1000 * math.exp(-0.005 * day + rng.gauss(0, 0.003))] * 2, days=20)
    series = only(found)
    (drift,) = series.drifts
    assert not series.steps and (drift.since, drift.at, drift.kind) == (0, 19, Kind.WORSE)
    assert drift.change == pytest.approx(math.expm1(-0.095), abs=0.01)
    assert "1 slow drift" in terminal.text(found, width=100) and ",drift,worse," in as_csv.steps(found)
    assert "Slow drifts" in trend_page(found)


def test_what_is_a_step_in_one_series_is_suspicious_among_many() -> None:
    noise = [0.0, 0.5, -0.5, 0.25, -0.25, 0.4, -0.4, 0.1, -0.1, 0.3, 2.6, 2.0, 2.4]
    points = tuple(
        Point(campaign=at, began_at=None, value=1000 * math.exp(-0.01 * value), interval=None, runs=1)
        for at, value in enumerate(noise)
    )
    series = Series(label="one", key={}, id=None, metric="tokens_per_s", points=points)
    course = Course(series=series, rule=parse().of("tokens_per_s"), effect=0.02, errors=(0.001,) * len(points))
    as_one, among = (
        findings.search(course, chance=findings.chance_per_series([course] * count, error_rate=0.05))
        for count in (1, 2000)
    )
    assert [step.at for step in as_one.steps] == [10] and not as_one.suspicious
    assert not among.steps and [step.at for step in among.suspicious] == [10]
    found = History(
        campaigns=tuple(Campaign(name=f"{at}", began_at=None, experiments=1) for at in range(len(points))),
        series=(among,),
        error_rate=0.05,
        expected_false_steps=0.04,
    )
    assert "1 suspicious step (perhaps noise)" in terminal.text(found, width=100)
    assert ",suspicious step,worse," in as_csv.steps(found) and "Suspicious steps" in trend_page(found)
    assert "noise would show about 0.04 steps in 1 series (error rate 0.05)" in terminal.text(found, width=100)


@given(st.integers(1, 2000), st.floats(0.001, 0.5), st.integers(4, 300))
def test_all_series_together_have_at_most_the_error_rate(count: int, rate: float, campaigns_: int) -> None:
    point = Point(campaign=0, began_at=None, value=1.0, interval=None, runs=1)
    series = Series(label="", key={}, id=None, metric="tokens_per_s", points=(point,) * campaigns_)
    course = Course(series=series, rule=parse().of("tokens_per_s"), effect=0.02, errors=())
    chance = findings.chance_per_series([course] * count, error_rate=rate)
    assert 1 - (1 - chance) ** count <= rate + 1e-9 and chance <= 0.01
    assert findings.expected_false_steps([course] * count, chance=chance) <= count * chance + 1e-9


@pytest.mark.parametrize("rate", ["0", "1", "-0.1", "nan"])
def test_an_error_rate_is_a_chance(command: typer.Typer, archive: Path, tmp_path: Path, rate: str) -> None:
    done = CliRunner().invoke(command, [str(archive), "--output", str(tmp_path / "out"), "--error-rate", rate])
    assert isinstance(done.exception, SelectionError) and "--error-rate" in str(done.exception)


@given(
    st.dictionaries(st.tuples(st.integers(0, 6), st.integers(0, 3)), st.floats(-10, 10), min_size=1),
    st.lists(st.floats(-5, 5), min_size=7, max_size=7),
    st.lists(st.floats(-5, 5), min_size=4, max_size=4),
)
def test_shifts_of_campaigns_and_repeats_leave_no_noise(
    noise: dict[tuple[int, int], float], rows: list[float], columns: list[float]
) -> None:
    """The variance between runs does not know how fast a campaign or a repeat is."""

    def runs(with_shifts: bool) -> list[dict[int, float]]:
        every: list[dict[int, float]] = [{} for _ in rows]
        for (row, column), value in noise.items():
            every[row][column] = math.exp((value + with_shifts * (rows[row] + columns[column])) / 20)
        return every

    plain, shifted = (repeats.variance_of_a_run(runs(one)) for one in (False, True))
    assert shifted == pytest.approx(plain, abs=1e-5)


# The texts.


def test_the_terminal_shows_the_steps_first(found: History, golden: Callable[[str, str], None]) -> None:
    golden("history/terminal.txt", terminal.text(found, width=80))


def test_a_value_in_doubt_is_marked_wherever_it_is_shown(tmp_path: Path) -> None:
    """Speeds of a busy host were plain values. The loss is not in doubt, and a run that does not count raises no doubt."""
    busy, swings = (Caveat(kind=kind, detail="") for kind in (CaveatKind.BUSY_HOST, CaveatKind.NOT_LEVEL))
    for day, caveats in enumerate([(), (busy, swings), (), (busy,)]):
        records = measured(BASELINE, day, [1000.0, 1001.0 + day], train_loss=2.0)
        stored(tmp_path / f"day-{day}", (BASELINE, [records[0], replace(records[1], warnings=caveats)]))
    found = history(tmp_path)
    speed, loss = (of(found, "baseline", name) for name in ("tokens_per_s", "train_loss"))
    said = ["", "runs on a busy host, runs without a steady state", "", "runs on a busy host"]
    assert [", ".join(point.doubts) for point in speed.points] == said
    assert not any(point.doubts for point in loss.points)
    lines = terminal.text(found, width=160).splitlines()
    assert [line.rstrip().endswith("?") for line in lines if "tok/s  " in line or "loss  " in line] == [True, False]
    rows = csv.DictReader(io.StringIO(as_csv.points(found)))
    assert [row["doubt"] for row in rows if row["metric"] == "tokens_per_s"] == said
    view = next(view for view in trend_chart.chart(found).views if view.at[1] == "tok/s")
    (points,) = (trace for trace in view.figure["data"] if trace["mode"] == "markers")
    assert [symbol.endswith("-open") for symbol in points["marker"]["symbol"]] == [False, True, False, True]
    assert "messages about the campaigns" in trend_page(found) and "could not be read" not in trend_page(found)
    assert "in doubt: runs on a busy host" in points["hovertext"][3] and "1,002 ?;" in view.summary
    (entry,) = campaigns.read([tmp_path / "day-3"])[0][0].side.entries
    assert repeats.doubts(entry, {0: 1000.0}, "tokens_per_s", is_noisy=False) == ()


def test_few_campaigns_say_how_many_it_takes(tmp_path: Path) -> None:
    stored(tmp_path / "1", (BASELINE, measured(BASELINE, 1, [1000.0])))
    assert "a step needs 4 campaigns, and the longest series has 1" in terminal.text(history(tmp_path), width=160)


def test_the_csv_files(tmp_path: Path, golden: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    for day in range(4):
        records = measured(BASELINE, day, [1000.0 if day < 2 else 1250.0] * 2, commit=f"{day // 2}" * 40)
        stored(tmp_path / f"day-{day}", (BASELINE, records))
    monkeypatch.chdir(tmp_path)
    found = history(*sorted(Path().iterdir()))
    golden("history/steps.csv", as_csv.steps(found))
    golden("history/history.csv", as_csv.points(found))


def test_a_small_curve_is_flat_where_nothing_changed_and_the_latest_change_is_first(found: History) -> None:
    tiles, more = sparklines.tiles(found)
    drawn = [series for series in wording.every_series(found) if len(series.points) > 1]
    assert (len(tiles), more) == (len(drawn), 0)
    changed = [bool(tile["marks"]) for tile in tiles]
    assert changed == sorted(changed, reverse=True) and True in changed
    for tile in tiles:
        heights = [float(point.partition(",")[2]) for point in tile["line"].split()]
        assert all(0 <= height <= sparklines.HEIGHT for height in heights)
    noise = [point for point in found.series[0].points][:2]
    calm = replace(
        found.series[0], steps=(), drifts=(), points=[replace(noise[0], value=100.0), replace(noise[1], value=100.5)]
    )
    (first, second) = (
        float(point.partition(",")[2]) for point in sparklines._tile(calm, found, wording.labels(found))["line"].split()
    )
    assert abs(first - second) < 3, "half a per cent is 2 of 40 pixels"


def test_the_json_document(found: History) -> None:
    document = json.loads(files.document(found))
    assert (document["tool"], document["document"], document["schema_version"]) == ("tunebench", "history", 1)
    (step,) = document["series"][0]["steps"]
    assert step["change"] == pytest.approx(step["after"] / step["before"] - 1)
    assert len(document["series"]) == len(found.series)


def page_data(page: str) -> Mapping[str, Any]:
    text = page.partition('<script type="application/json" id="data">')[2].partition("</script>")[0]
    document: Mapping[str, Any] = json.loads(text)
    return document


def test_the_page_has_a_chart_for_each_series_and_a_card_for_each_event(found: History) -> None:
    page = trend_page(found)
    views = page_data(page)["charts"]["trend"]["views"]
    assert len(views) == len(found.fleet) + len(found.series) == len({tuple(view["at"]) for view in views})
    assert page.count('<li class="event">') == len(events(found)) == 3
    for event in events(found):
        for finding in event.findings:
            assert finding.head in page and finding.size in page and finding.where in page
    assert "torch 2.12.0 → 2.13.0" in page and "commit aaaaaaa → bbbbbbb" in page


HOSTILE = "\x1b[31m</script><img src=x onerror=alert(1)>\u202e"


def test_names_and_versions_from_anywhere_are_text_and_nothing_else(tmp_path: Path) -> None:
    experiment = replace(BASELINE, scenario=HOSTILE, model=HOSTILE)
    for day in range(8):
        around = {"torch": f"{HOSTILE}{day // 4}", "host": HOSTILE, "commit": f"{HOSTILE[: day // 4 + 5]}{HOSTILE}"}
        records = measured(experiment, day, [1000.0 if day < 4 else 1200.0], **around)
        stored(tmp_path / f"{day}", (experiment, records))
    found = history(tmp_path)
    assert len(only(found).steps) == 1
    page, shown, document = trend_page(found), terminal.text(found, width=200), files.document(found)
    assert "<img" not in page and "</script><" not in page.replace("</script>\n<", "")
    for text in (page, shown, document):
        assert "\x1b" not in text and "\u202e" not in text
    console = Console(file=io.StringIO(), width=60)
    console.print(terminal.summary(found))


def test_a_page_has_room_for_as_many_series_as_it_says(found: History) -> None:
    many = replace(
        found, series=tuple(replace(one, label=str(number)) for number in range(200) for one in found.series)
    )
    page = trend_page(many)
    assert len(page_data(page)["charts"]["trend"]["views"]) == 500
    assert "302 more series without a step are in history.csv" in page


# The folder.


def test_a_history_is_written_over_an_older_one_and_over_nothing_else(found: History, tmp_path: Path) -> None:
    texts = {files.JSON: files.document(found), files.STEPS: as_csv.steps(found)}
    place = tmp_path / "made" / "history"
    assert files.write(place, texts) == [place / files.JSON, place / files.STEPS]
    files.write(place, {**texts, files.STEPS: "other\n"})
    assert (place / files.STEPS).read_text() == "other\n"
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "notes.txt").write_text("mine")
    (mine / files.JSON).write_text('{"tool": "another"}')
    with pytest.raises(ResultsError, match="no history that tunebench wrote"):
        files.write(mine, texts)
    assert sorted(path.name for path in mine.iterdir()) == [files.JSON, "notes.txt"]


def test_no_history_is_written_into_a_results_folder_or_in_the_place_of_a_file(archive: Path, tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="is inside the results folder"):
        files.refuse_foreign(archive / "day-0" / "history")
    (tmp_path / "file").write_text("")
    with pytest.raises(OrchestratorError, match="is not a folder"):
        files.write(tmp_path / "file", {})
    with pytest.raises(OrchestratorError, match="cannot be written"):
        files.write(tmp_path / "file" / "below", {files.JSON: ""})


# The command.


@pytest.fixture
def command() -> typer.Typer:
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(history_rerun_bisect.history)
    return app


def test_the_command_writes_four_files_and_shows_the_steps(command: typer.Typer, archive: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(command, [str(archive), "--output", str(tmp_path / "out")], catch_exceptions=False)
    assert done.exit_code == 0 and "5 steps, newest first" in done.stdout
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == [files.POINTS, files.PAGE, files.JSON, files.STEPS]
    again = CliRunner().invoke(
        command, [str(archive), "--output", str(tmp_path / "out"), "--json", "--metrics", "tokens_per_s"]
    )
    assert again.exit_code == 0
    assert {one["metric"] for one in json.loads(again.stdout)["series"]} == {"tokens_per_s"}


def test_the_command_looks_at_its_output_before_it_reads(command: typer.Typer, archive: Path) -> None:
    done = CliRunner().invoke(command, [str(archive / "gone"), "--output", str(archive / "day-0")])
    assert isinstance(done.exception, ResultsError) and "results folder" in str(done.exception)
