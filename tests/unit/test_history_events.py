"""The events of a history, and the axis of its chart: one event a campaign, mirrors once, experiments together, few labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from factories.results import stored
from test_history import BASELINE, GIB, HOSTILE, LIGER, framework, history, measured, nights

from orchestrator.compare.comparison import Difference
from orchestrator.compare.history.history import Campaign, History, Kind, Point, Series, Step
from orchestrator.compare.history.view import axis, terminal, trend_chart, wording
from orchestrator.compare.history.view.events import Event, events, latest_first
from orchestrator.compare.history.view.trend_page import trend_page


def said(event: Event) -> list[tuple[str, str, str]]:
    return [(finding.head, finding.size, finding.where) for finding in event.findings]


def test_a_slowdown_of_tokens_and_of_steps_counts_once_and_worse_is_first(tmp_path: Path) -> None:
    for day in range(8):
        speed, memory = (1000.0, 40 * GIB) if day < 4 else (900.0, 36 * GIB)
        numbers = {"step_time_s": 1000 / speed, "peak_reserved_bytes": memory}
        stored(tmp_path / f"{day}", (BASELINE, measured(BASELINE, day, [speed] * 2, **numbers, driver=f"58{day // 4}")))
    found = history(tmp_path)
    assert sum(len(series.steps) for series in found.series) == 3
    (event,) = events(found)
    label = "full · baseline · config:tiny-llama at 1 process"  # what all experiments share is all that it has
    assert said(event) == [
        ("Slower", "-10.0% tok/s, 1,000 → 900", label),
        ("Less memory", "-10.0% peak reserved, 40.00 GiB → 36.00 GiB", label),
    ]
    assert [finding.kind for finding in event.findings] == [Kind.WORSE, Kind.BETTER]
    assert [Path(side.name).name for side in event.sides] == ["3", "4"] and event.other_sides == ()
    assert event.changes == (Difference(name="driver", base="580", new="581"),) and event.only_some == ()


def test_experiments_that_moved_alike_are_one_finding(tmp_path: Path) -> None:
    falls = (0.9, 0.92, 1.0)
    found = nights(
        tmp_path, lambda day, number: [1000.0 * (falls[number] if day > 5 else 1)] * 2, days=12, experiments=3
    )
    (event,) = events(found)
    ((head, size, where),) = said(event)
    assert (head, size) == ("Slower", "-10.0% to -8.0% tok/s")
    assert where == "2 of 3 experiments: framework-0; framework-1"
    assert event.findings[0].series.label.startswith("full · framework-0"), "the largest change is shown"


def test_a_change_of_all_experiments_shows_their_mean(tmp_path: Path) -> None:
    found = nights(tmp_path, lambda day, _: [1000.0 if day < 6 else 1100.0] * 2, experiments=3)
    (event,) = events(found)
    assert said(event) == [("Faster", "+10.0% tok/s", "all 3 experiments")]
    assert event.findings[0].series == found.fleet[0]


def test_a_change_that_only_the_mean_shows_is_one_of_the_mean(tmp_path: Path) -> None:
    found = nights(tmp_path, lambda day, _: [2000.0 if day < 6 else 1970.0] * 2, experiments=3)
    assert not any(series.steps for series in found.series)
    (event,) = events(found)
    assert said(event) == [("Slower", "-1.5% tok/s, 2,000 → 1,970", "the mean of all 3 experiments")]


def test_a_difference_of_one_experiment_is_only_for_some(tmp_path: Path) -> None:
    for day in range(8):
        speed, around = (1000.0, {"torch": "2.12.0"}) if day < 4 else (1100.0, {"torch": "2.13.0"})
        liger = replace(LIGER, arguments={**LIGER.arguments, "learning_rate": "2e-5" if day < 4 else "3e-5"})
        cells = [(one, measured(one, day, [speed] * 2, **around)) for one in (BASELINE, liger)]
        stored(tmp_path / f"{day}", *cells)
    found = history(tmp_path)
    (event,) = events(found)
    assert [change.name for change in event.changes] == ["torch"]
    assert [change.name for change in event.only_some] == ["learning_rate"]
    assert "<strong>Only for some:</strong> learning_rate 2e-5 → 3e-5." in trend_page(found)


def test_other_work_is_neither_better_nor_worse_and_work_as_before_is(tmp_path: Path) -> None:
    """Longer rows double the time of a step, and change the padding. Days later, with the same rows, a step takes longer."""
    for day in range(12):
        longer = replace(BASELINE, arguments={**BASELINE.arguments, "max_seq_len": "128" if day < 4 else "256"})
        numbers = {"step_time_s": 1.0 if day < 4 else 2.0 if day < 8 else 2.2}
        stored(tmp_path / f"{day:02}", (longer, measured(longer, day, [1000.0 if day < 4 else 950.0] * 2, **numbers)))
    found = history(tmp_path)
    steps = {series.metric: [(step.at, step.kind) for step in series.steps] for series in found.series}
    assert steps == {"tokens_per_s": [(4, Kind.CHANGED)], "step_time_s": [(4, Kind.CHANGED), (8, Kind.WORSE)]}
    newest, oldest = events(found)
    where = "full · baseline · config:tiny-llama at 1 process"
    assert said(newest) == [("Slower", "+10.0% step time, 2 s → 2.2 s", where)]
    assert said(oldest) == [("Other work", "-5.0% tok/s, 1,000 → 950", where)]


@pytest.mark.parametrize("days", [(4, 5), (4,)], ids=["small steps", "a campaign without numbers"])
def test_other_work_counts_from_the_old_level_to_the_new_one(tmp_path: Path, days: tuple[int, ...]) -> None:
    for day in range(12):
        rows = 128 + sum(day >= one for one in days)
        longer = replace(BASELINE, arguments={**BASELINE.arguments, "max_seq_len": str(rows)})
        time = 1.0 if day < 4 else 1.015 if day < 6 and len(days) > 1 else 1.03
        records = measured(longer, day, [1000.0] * 2, **({} if len(days) == 1 and day == 4 else {"step_time_s": time}))
        stored(tmp_path / f"{day:02}", (longer, records))
    (step,) = (step for series in history(tmp_path).series for step in series.steps)
    assert step.kind is Kind.CHANGED


@pytest.mark.parametrize(("longer", "expected"), [(1, Kind.WORSE), (2, Kind.CHANGED)])
def test_the_mean_is_worse_if_most_experiments_did_the_same_work(tmp_path: Path, longer: int, expected: Kind) -> None:
    for day in range(8):
        cells = []
        for number in range(3):
            rows = "256" if day >= 4 and number < longer else "128"
            one = framework(f"framework-{number}")
            one = replace(one, arguments={**one.arguments, "max_seq_len": rows})
            cells.append((one, measured(one, day, [1000.0] * 2, step_time_s=1.0 if day < 4 else 1.1)))
        stored(tmp_path / f"{day}", *cells)
    (fleet,) = (one for one in history(tmp_path).fleet if one.metric == "step_time_s")
    assert [(step.at, step.kind) for step in fleet.steps] == [(4, expected)]


def test_an_experiment_that_missed_a_night_has_the_same_event_and_its_own_sides(tmp_path: Path) -> None:
    every = [framework(f"framework-{number}") for number in range(4)]
    for day in range(12):
        speed, around = (
            1000.0 if day < 6 else 1100.0,
            {"commit": f"{day:x}" * 40, "driver": "580" if day < 5 else "585"},
        )
        here = [one for at, one in enumerate(every) if (day, at) not in ((5, 2), (6, 3))]
        stored(tmp_path / f"{day:02}", *((one, measured(one, day, [speed] * 2, **around)) for one in here))
    found = history(tmp_path)
    (event,) = events(found)
    assert [where for _, _, where in said(event)] == ["all 4 experiments"]
    assert event.sides == (found.campaigns[5], found.campaigns[6])
    assert event.other_sides == ((found.campaigns[4], found.campaigns[6]), (found.campaigns[5], found.campaigns[7]))
    assert [change.name for change in event.changes] == ["git_commit"]
    assert [change.name for change in event.only_some] == ["driver"], "framework-2 had the old driver before"
    assert "05 → 06; some 04 → 06, 05 → 07" in trend_page(found)


def test_the_changes_of_a_drift_are_those_between_its_ends(tmp_path: Path) -> None:
    for day in range(20):
        around = {"driver": f"{580 + day // 9}", "host": f"bench-{day % 2}", "commit": f"{day:02}" * 20}
        stored(tmp_path / f"{day:02}", (BASELINE, measured(BASELINE, day, [1000 * 0.99**day] * 2, **around)))
    (event,) = events(history(tmp_path), "drifts")
    changes = {change.name: (change.base, change.new) for change in event.changes}
    assert changes["driver"] == ("580", "582") and changes["git_commit"] == ("00" * 20, "19" * 20)


def test_the_newest_event_and_its_series_are_first(tmp_path: Path) -> None:
    late, early = framework("late"), framework("early")
    for day in range(12):
        cells = [(late, 1000.0 if day < 8 else 1500.0), (early, 1000.0 if day < 4 else 1100.0)]
        stored(tmp_path / f"{day:02}", *((one, measured(one, day, [speed] * 2)) for one, speed in cells))
    found = history(tmp_path)
    newest, oldest = events(found)
    assert newest.campaign == found.campaigns[8] and oldest.campaign == found.campaigns[4]
    assert latest_first(found)[0] == newest.findings[0].series
    assert trend_chart.chart(found).views[0].at[0] == newest.findings[0].series.label


def test_a_drift_is_an_event_from_its_first_campaign_to_its_last(tmp_path: Path) -> None:
    found = nights(tmp_path, lambda day, _: [1000 * 0.99**day] * 2, days=20)
    assert events(found) == []
    (event,) = events(found, "drifts")
    assert event.sides == (found.campaigns[0], found.campaigns[19])
    assert "No step in any series." in trend_page(found) and "Slow drifts" in trend_page(found)


def test_a_page_without_dates_and_commits_says_nothing_that_is_not_known(tmp_path: Path) -> None:
    files = []
    for day in range(8):
        files.append(tmp_path / f"{day}.csv")
        row = f"baseline,config:tiny-llama,1,{1000 if day < 4 else 1200}"
        files[-1].write_text(f"framework_config,model_name_or_path,num_gpus,tokens_per_s\n{row}\n")
    found = history(*files)
    page = trend_page(found)
    assert "8 campaigns. A level changed at 1 of them." in page
    assert "nothing known, neither in the environment" in page
    assert '<strong>-</strong> <span class="sides">3.csv → 4.csv</span>' in page
    assert ticks(found)["ticktext"][0] == "campaign 1"


def test_few_campaigns_say_on_the_page_how_many_it_takes(tmp_path: Path) -> None:
    stored(tmp_path / "1", (BASELINE, measured(BASELINE, 1, [1000.0])))
    page = trend_page(history(tmp_path))
    assert "1 campaign, 2023-11-15 to 2023-11-15 (UTC). No step in any series: a step needs 4" in page
    assert "What changed, newest first" not in page and "Course over time" in page


def test_few_campaigns_name_what_changed_with_the_newest(tmp_path: Path) -> None:
    deeper = replace(BASELINE, arguments={**BASELINE.arguments, "num_hidden_layers": "12"})
    for day, one in enumerate((BASELINE, deeper)):
        stored(tmp_path / f"{day}", (one, measured(one, day, [1000.0] * 2)))
    found = history(tmp_path)
    said = "With the newest campaign changed: num_hidden_layers - → 12."
    assert said in trend_page(found) and said in terminal.text(found, width=200)


# The axis.


def ticks(found: History, *, width: int = axis.WIDE_PX) -> Mapping[str, Any]:
    return axis.of(found.series[0], found.campaigns, width=width)


def long(count: int, *, marks: Mapping[int, str] | None = None, steps: tuple[int, ...] = ()) -> History:
    """Return a history of one series with a commit each day, new drivers at `marks`, and steps."""
    begins = [1.7e9 + 86400 * at for at in range(count)]
    points = tuple(
        Point(
            campaign=at,
            began_at=began,
            value=1.0,
            interval=None,
            runs=1,
            changes=(Difference(name="driver", base="1", new=(marks or {})[at]),) if at in (marks or {}) else (),
        )
        for at, began in enumerate(begins)
    )
    found = tuple(Step(at=at, since=0, before=1.0, after=2.0, kind=Kind.BETTER) for at in steps)
    campaigns = tuple(
        Campaign(name=f"{at}", began_at=began, experiments=1, environment={wording.COMMIT: f"{at:07x}{'f' * 33}"})
        for at, began in enumerate(begins)
    )
    series = Series(label="one", key={}, id=None, metric="tokens_per_s", points=points, steps=found)
    return History(campaigns=campaigns, series=(series,), error_rate=0.05, expected_false_steps=0.0)


def test_the_axis_has_commits_dates_and_new_drivers() -> None:
    shown = ticks(long(4, marks={2: "585.20"}))
    assert shown["tickvals"] == [1, 2, 3, 4]
    assert shown["ticktext"][1:3] == ["0000001<br>11-15", "0000002<br>11-16<br>driver<br>585.20"]


@pytest.mark.parametrize("width", [axis.WIDE_PX, axis.NARROW_PX])
@pytest.mark.parametrize("count", [5, 40, 300, 1000])
def test_labels_of_a_long_history_do_not_overlap(count: int, width: int) -> None:
    shown = ticks(long(count, marks={at: "x" * 30 for at in range(0, count, 7)}, steps=(count // 2,)), width=width)
    widths = [axis.CHARACTER_PX * max(map(len, text.split("<br>"))) for text in shown["ticktext"]]
    at = [(place - 1) * width / (count - 1) for place in shown["tickvals"]]
    for (left, one), (right, other) in pairwise(zip(at, widths, strict=True)):
        assert right - left >= (one + other) / 2
    assert count // 2 + 1 in shown["tickvals"], "a step has a label"


def test_a_label_next_to_a_step_leaves_out_what_changed_before_it_is_left_out() -> None:
    shown = ticks(long(100, marks={53: "585.20.10.1234"}, steps=(42,)))
    texts = dict(zip(shown["tickvals"], shown["ticktext"], strict=True))
    assert (texts[43], texts[54]) == ("000002a<br>2023-12-26", "0000035<br>2024-01-06")


def test_many_changes_of_the_environment_have_no_lines() -> None:
    for count, lines in ((axis_lines := trend_chart.MOST_LINES, axis_lines), (trend_chart.MOST_LINES + 1, 0)):
        (view,) = trend_chart.chart(long(100, marks=dict.fromkeys(range(count), "1"))).views
        assert len(view.figure["layout"]["shapes"]) == lines


def test_two_commits_of_one_campaign_are_counted() -> None:
    assert wording.short_value(wording.COMMIT, f"{'a' * 40}, {'b' * 40}") == "aaaaaaa +1"


def test_long_values_begin_near_their_difference_and_commits_stay_short() -> None:
    start = "python train.py " + "--option value " * 10
    one, two, three = (digit * 40 for digit in "123")
    changes = [
        Difference(name="custom.command", base=f"{start}--kind x", new=f"{start}--kind y"),
        Difference(name=wording.COMMIT, base=f"{one}, {two}", new=f"{one}, {three}"),
    ]
    command, commits = wording.changes_shown(changes).split("; ")
    assert command == "custom.command …option value --kind x → …option value --kind y"
    assert commits == "commit 2222222 +1 → 3333333 +1", "the commits that differ"
    assert wording.changes_text(changes[:1]) == f"custom.command {start}--kind x → {start}--kind y", (
        "files have it whole"
    )


def test_names_on_the_axis_are_text(tmp_path: Path) -> None:
    for day in range(4):
        around = {"commit": f"<b>{day}</b>", "driver": f"{HOSTILE}{day}"}
        stored(tmp_path / f"{day}", (BASELINE, measured(BASELINE, day, [1000.0], **around)))
    shown = "".join(ticks(history(tmp_path))["ticktext"])
    assert "&lt;b&gt;" in shown and "<" not in shown.replace("<br>", "") and "\x1b" not in shown
