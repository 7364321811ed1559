"""A comparison's page without a browser: its parts in their order, numbers, charts, table, hostile names, nothing to compare."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factories import campaigns as made_campaigns
from factories.cases import cases
from factories.comparisons import LOSS, MEMORY, NOISY, SPEED, STEP, compared, entry, paired
from factories.results import BASE, ended
from hypothesis import given
from hypothesis import strategies as st
from test_compare_view import everything, said
from test_page import HOSTILE, Elements, data_of, strings
from test_profiles import event, step, written

from orchestrator.compare import verdicts
from orchestrator.compare.comparison import Comparison, Difference, Row, Verdict
from orchestrator.compare.gate import Cause
from orchestrator.compare.rules import Rules
from orchestrator.compare.sides import pairing, profiles, read
from orchestrator.compare.view import marks, page_table, wording
from orchestrator.compare.view import page as as_page
from orchestrator.compare.view.charts import axes, forest
from orchestrator.compare.view.page import page
from orchestrator.measure.intervals import Interval, Ratio
from orchestrator.measure.metrics import METRICS, show
from orchestrator.results.store import Store, write_record

REFERENCE = Path(__file__).parents[1] / "golden" / "compat" / "refs" / "a100_80gb.csv"
SECTIONS = ["verdict", "charts", "table", "together", "environment", "without"]


def of_places(base: Path, new: Path) -> Comparison:
    one, other = read.read([base], by=()), read.read([new], by=())
    return verdicts.compare(one, other, pairs=pairing.pair(one, other), rules=Rules())


def perturbed(target: Path) -> Path:
    """The reference with each third row 20 % slower, each fifth 20 % faster, and one row in forty left out."""
    with REFERENCE.open(newline="") as file:
        rows = list(csv.DictReader(file))
    for place, row in enumerate(rows):
        if speed := row["train_tokens_per_second"]:
            factor = 0.8 if place % 3 == 0 else 1.2 if place % 5 == 0 else 1.01
            row["train_tokens_per_second"] = repr(float(speed) * factor)
    with target.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(row for place, row in enumerate(rows) if place % 40 != 7)
    return target


def hostile() -> Comparison:
    """Experiments, arguments, environments, failures and metrics whose names are attacks."""
    found = []
    for text in HOSTILE:
        around = (Difference(name=text, base=text, new=f"{text}!"),)
        numbers = {SPEED: NOISY, f"{text}_per_s": NOISY}
        one, other = entry(text, numbers), entry(text, {name: [value * 0.9 for value in NOISY] for name in numbers})
        found.append(replace(paired(one, other), environment=around, arguments=around))
        found.append(paired(one, entry(text, failure=text)))
    made = compared(*found, rules=Rules(metrics=(SPEED, *(f"{text}_per_s" for text in HOSTILE))))
    return replace(made, base=HOSTILE[0], new=HOSTILE[1], warnings=HOSTILE, rules={HOSTILE[0]: HOSTILE[1]})


def chart(made: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = data_of(made)["charts"][name]
    return found


def column(table: dict[str, Any], name: str) -> list[Any]:
    """A column as people read it."""
    (found,) = (one for one in table["columns"] if one["name"] == name)
    if "shown" in found:
        return list(found["shown"])
    return [None if at is None else found["words"][at] for at in found["at"]]


@pytest.fixture(scope="module")
def made() -> str:
    return page(everything())


# ------------------------------------------------------------------------------------------------------ the document


def test_the_parts_stand_in_their_order(made: str) -> None:
    found = Elements(made)
    assert as_page.MARK in made[:2000]
    assert [one["id"] for one in found.all("section")] == SECTIONS
    order = [made.index(said(everything())), made.index('<span class="kind">Slower</span>')]
    order += [made.index(f">{word}<") for word in ("main", "branch")]
    order += [made.index("2.12.0"), made.index('id="chart-forest"'), made.index('id="chart-scatter"')]
    order += [made.index('id="experiments"'), made.index('id="together"'), made.index("only on base</li>")]
    assert order == sorted(order)
    assert not [
        one for one in found.all("link") + found.all("script") + found.all("img") if one.get("href") or one.get("src")
    ]


def test_the_verdict_is_that_of_the_gate_and_of_its_causes() -> None:
    assert "(exit code 1)" in page(everything())
    lenient = page(everything(), fail_on=[Cause.INCONCLUSIVE])
    assert (
        "inconclusive: 1 experiment may be much worse; for more runs: `tunebench rerun --from FILE.json`, with the file of "
        "`compare --output FILE.json`; not counted: 1 experiment newly failed, " in lenient
    )
    assert "(exit code 3)" in lenient
    assert '<p class="conclusion warning">' in lenient
    same = page(compared(paired(entry("a", {SPEED: NOISY}), entry("a", {SPEED: NOISY}))))
    assert "nothing worse (exit code 0)" in same
    assert '<p class="conclusion gain">' in same
    assert '<span class="kind">No change</span><span class="said">1 same</span>' in same


def test_each_verdict_is_counted_and_what_has_no_numbers_listed(made: str) -> None:
    worse, open_or_better = ("✕ failed", "▼ regressed", "− missing"), ("■ inconclusive", "▲ improved", "+ new")
    for word in (*worse, *open_or_better, "○ untested", "● same"):
        assert re.search(rf"\d {re.escape(word)}", made), word
    assert "1 on both sides" in made
    for title, label in (
        ("✕ Failed: 2", "broken"),
        ("− Missing", "gone"),
        ("≠ Not comparable", "moved"),
        ("+ New", "added"),
    ):
        listed = made[made.index(f"<summary>{title}") :]
        assert f"<strong>{label}</strong>" in listed[: listed.index("</details>")]


def test_what_forbids_a_comparison_is_said_with_the_environment(made: str) -> None:
    (row,) = re.findall(r"<tr><td>gpu</td>.*?</tr>", made)
    assert "NVIDIA H100" in row and "NVIDIA H200" in row and "not comparable" in row
    (row,) = re.findall(r"<tr><td>driver</td>.*?</tr>", made)
    assert "not comparable" not in row and ">all<" in row


def test_differences_of_single_experiments_are_not_denied() -> None:
    pair = paired(entry("a", {SPEED: [1000.0]}), entry("a", {SPEED: [1000.0]}))
    differing = replace(pair, arguments=(Difference(name="variables", base=None, new="SECONDS=1"),))
    said = "Experiments differ in arguments, files or variables"
    assert said in page(compared(differing)) and said not in page(compared(pair))


def test_all_together_are_lines_of_numbers(made: str) -> None:
    comparison = everything()
    (line,) = (one for one in comparison.fleet if one.metric == SPEED)
    together = made[made.index('id="together"') : made.index('id="environment"')]
    assert wording.percent(line.ratio.value) in together
    assert wording.interval(line.ratio) in together
    assert together.count("<tr>") == 1 + len(comparison.fleet)


def test_nothing_to_compare_is_a_page_too() -> None:
    for comparison in (compared(), compared(paired(entry("a", {SPEED: NOISY}), None))):
        made = page(comparison)
        assert "nothing comparable (exit code 4)" in made
        assert data_of(made)["charts"] == {}
        assert made.count("No chart “") == 2
        assert data_of(made)["table"]["rows"] == len(comparison.rows)


def test_hostile_names_are_text_and_nothing_else(made: str) -> None:
    comparison = hostile()
    tame, found = Elements(made), Elements(page(comparison))
    evil = page(comparison)
    assert len(found.all("script")) == len(tame.all("script"))
    assert {tag for tag, _ in found.elements} <= {tag for tag, _ in tame.elements}
    assert not [name for _, attributes in found.elements for name in attributes if name.startswith("on")]
    assert all(str(one.get("href", "#")).startswith("#") for one in found.all("a"))
    assert "\u202e" not in evil and "\x1b" not in evil
    assert "{{ 7 * 7 }}" in evil
    figures = [view["figure"] for one in data_of(evil)["charts"].values() for view in one["views"]]
    assert "alert(1)" in json.dumps(figures)
    assert not [text for text in strings(figures) if re.search(r"<(?!br>)", text)]


# -------------------------------------------------------------------------------------------------------- the charts


def points(figure: dict[str, Any]) -> list[tuple[str, float, int]]:
    """Name of the trace, x and place of each marker."""
    traces = [one for one in figure["data"] if one["mode"] == "markers"]
    return [(one["name"], x, y) for one in traces for x, y in zip(one["x"], one["y"], strict=True)]


def test_the_forest_has_each_ratio_once_worst_first_beneath_all_together(made: str) -> None:
    view = chart(made, "forest")["views"][0]
    rows = sorted((row for row in everything().rows if row.metric == SPEED and row.ratio), key=wording.badness)
    placed = sorted(points(view["figure"]), key=lambda one: one[2])
    assert placed[0][0] == "all together"
    assert [name for name, _, _ in placed[1:]] == [row.verdict.value for row in rows]
    assert [x for _, x, _ in placed[1:]] == pytest.approx([row.ratio.value for row in rows if row.ratio], rel=1e-5)
    assert [row[0] for row in view["rows"][1:]] == [row.label for row in rows]
    assert view["figure"]["layout"]["xaxis"]["type"] == "log"


def test_intervals_go_from_their_low_to_their_high_end(made: str) -> None:
    figure = chart(made, "forest")["views"][0]["figure"]
    (row,) = (row for row in everything().rows if row.metric == SPEED and row.verdict is Verdict.IMPROVED)
    (trace,) = (one for one in figure["data"] if one.get("name") == "improved")
    assert row.ratio is not None and row.ratio.interval is not None
    assert trace["x"][0] - trace["error_x"]["arrayminus"][0] == pytest.approx(row.ratio.interval.low, rel=1e-4)
    assert trace["x"][0] + trace["error_x"]["array"][0] == pytest.approx(row.ratio.interval.high, rel=1e-4)


def test_a_verdict_has_a_colour_and_a_symbol_that_no_other_has_in_the_charts() -> None:
    looks = [(one.colour, one.symbol) for one in marks.MARKS.values()]
    assert set(marks.MARKS) == set(Verdict)
    assert len(set(looks)) == len(looks)
    drawn = [marks.MARKS[one].symbol for one in Verdict if one not in (Verdict.MISSING, Verdict.NEW, Verdict.FAILED)]
    assert len(set(drawn)) == len(drawn)
    assert len({one.sign for one in marks.MARKS.values()}) == len(Verdict)


def bands(figure: dict[str, Any]) -> list[tuple[float, float]]:
    return [(one["x0"], one["x1"]) for one in figure["layout"]["shapes"] if one["type"] == "rect"]


def test_the_band_is_the_effect_by_which_the_rows_were_judged(tmp_path: Path) -> None:
    tested = page(compared(paired(entry("a", {SPEED: NOISY}), entry("a", {SPEED: NOISY}))))
    assert bands(chart(tested, "forest")["views"][0]["figure"]) == [pytest.approx((1 / 1.02, 1.02), rel=1e-5)]
    asked = Rules(min_effects={SPEED: 0.07}, threshold=0.3)
    other = page(compared(paired(entry("a", {SPEED: NOISY}), entry("a", {SPEED: NOISY})), rules=asked))
    assert bands(chart(other, "forest")["views"][0]["figure"]) == [pytest.approx((1 / 1.07, 1.07), rel=1e-5)]
    unread = replace(
        compared(paired(entry("a", {SPEED: NOISY}), entry("a", {SPEED: NOISY}))), rules={"min_effect": "much"}
    )
    assert bands(chart(page(unread), "forest")["views"][0]["figure"]) == []
    single = page(compared(paired(entry("a", {SPEED: [1.0]}), entry("a", {SPEED: [1.1]})), rules=asked))
    assert bands(chart(single, "forest")["views"][0]["figure"]) == [pytest.approx((1 / 1.3, 1.3), rel=1e-5)]


def test_many_rows_are_drawn_in_stretches_and_it_is_said_how_many(tmp_path: Path) -> None:
    comparison = many(150)
    made = page(comparison)
    views = [
        view for view in chart(made, "forest")["views"] if view["at"][0] == chart(made, "forest")["views"][0]["at"][0]
    ]
    assert [view["at"][1] for view in views] == ["1–40", "41–80", "81–120"]
    assert "The chart shows the 120 worst rows of each metric (there are 150" in made
    assert len(chart(made, "scatter")["views"][0]["rows"]) == 150
    assert data_of(made)["table"]["rows"] == len(comparison.rows)


def many(count: int) -> Comparison:
    """As many experiments with three metrics each."""
    pairs = []
    for place in range(count):
        whole = {SPEED: [one * (1 + place) for one in NOISY], STEP: NOISY, MEMORY: [2.0**30] * 5}
        changed = whole | {SPEED: [one * (0.9 + place % 21 / 100) for one in reversed(whole[SPEED])]}
        pairs.append(paired(entry(f"framework-{place} · model", whole), entry(f"framework-{place} · model", changed)))
    return compared(*pairs)


def test_the_change_by_level_has_the_base_and_the_ratio_of_each_row_and_the_band(made: str) -> None:
    view = chart(made, "scatter")["views"][0]
    rows = [row for row in everything().rows if row.metric == SPEED and row.ratio]
    markers = [one for one in view["figure"]["data"] if one["mode"] == "markers"]
    found = sorted((x, y) for one in markers for x, y in zip(one["x"], one["y"], strict=True))
    wanted = sorted((row.base, row.ratio.value) for row in rows if row.ratio)
    assert found == [pytest.approx(one, rel=1e-5) for one in wanted]
    band, none = view["figure"]["layout"]["shapes"]
    assert (band["y0"], band["y1"], none["y0"]) == pytest.approx((1 / 1.02, 1.02, 1), rel=1e-4)
    low, high = view["figure"]["layout"]["yaxis"]["range"]
    assert low == -high and all(low < math.log10(y) < high for _, y in found)
    assert any("llama-1b · none · 1 GPU" in text for one in markers for text in one["hovertext"])


def test_the_better_half_is_named_by_the_metrics_direction(made: str) -> None:
    words = {
        view["at"][0]: [one["text"] for one in view["figure"]["layout"]["annotations"]]
        for view in chart(made, "scatter")["views"]
    }
    assert words["tok/s"] == ["better", "worse"], "above and below"
    assert words["step time"] == ["worse", "better"]


def test_a_whisker_ends_inside_the_plot_with_an_arrow() -> None:
    """The text beside the plot stays readable, however long an interval is."""
    wild = [100.0, 1.0, 4000.0, 120.0, 30.0]
    quiet = {SPEED: [100.0, 100.1, 99.9, 100.2, 99.8]}
    made = page(
        compared(
            paired(entry("wild", quiet), entry("wild", {SPEED: wild})), paired(entry("a", quiet), entry("a", quiet))
        )
    )
    figure = chart(made, "forest")["views"][0]["figure"]
    reach = -figure["layout"]["xaxis"]["range"][0]
    arrows = [one for one in figure["data"] if one.get("name") == "continues"]
    assert {one["marker"]["symbol"] for one in arrows} <= {"triangle-left", "triangle-right"} and arrows
    ends = [abs(math.log10(x)) for one in arrows for x in one["x"]]
    for trace in figure["data"]:
        for x, low, high in zip(
            trace["x"], *(trace.get("error_x", {}).get(name, ()) for name in ("arrayminus", "array")), strict=False
        ):
            ends += [abs(math.log10(x + (high or 0))), abs(math.log10(x - (low or 0)))]
    assert max(ends) <= reach * 1.001


# ---------------------------------------------------------------------------------------------------------- the axes


@given(st.floats(min_value=1e-3, max_value=1e4))
def test_ticks_of_ratios_lie_within_the_reach_around_no_change(reach: float) -> None:
    values, words = axes.ratio_ticks(max(reach, 0.03))
    assert 1.0 in values
    assert values == sorted(set(values))
    assert all(abs(math.log(one)) <= max(reach, 0.03) * 1.001 for one in values)
    assert 3 <= len(values) <= 5
    assert len([word for word in words if word]) == 3


@given(
    st.sampled_from(["tokens_per_s", "peak_allocated_bytes", "mem_nvidia_mem_reserved", "step_time_s", "unheard_of"]),
    st.floats(min_value=-6, max_value=13),
    st.floats(min_value=0.1, max_value=9),
)
def test_ticks_of_values_are_a_few_between_the_ends(name: str, start: float, decades: float) -> None:
    low, high = 10**start, 10 ** (start + decades)
    values, words = axes.value_ticks(name, low, high)
    assert 1 <= len(values) <= 8
    assert values == sorted(set(values))
    assert all(low * 0.999 <= one <= high * 1.001 for one in values)
    assert len(words) == len(values)


def test_ticks_of_memory_are_round_in_its_unit() -> None:
    assert axes.value_ticks("peak_allocated_bytes", 9 * 2.0**30, 45 * 2.0**30)[1][0] == "10.00 GiB"
    assert axes.value_ticks("mem_nvidia_mem_reserved", 9 * 1024.0, 45 * 1024.0)[1][0] == "10.00 GiB"


# ---------------------------------------------------------------------------------------------------------- the table


def test_the_table_has_every_row_with_its_numbers_worst_first(made: str) -> None:
    comparison, table = everything(), data_of(made)["table"]
    assert table["rows"] == len(comparison.rows)
    assert column(table, "verdict")[0] == "✕ failed"
    assert column(table, "experiment")[0] == "broken"
    assert column(table, "experiment")[-1] == "never ran", "what fails on base too is no news"
    place = next(
        at
        for at, (verdict, name) in enumerate(zip(column(table, "verdict"), column(table, "metric"), strict=True))
        if verdict == "▼ regressed" and name == METRICS[SPEED].label
    )
    (row,) = (row for row in comparison.rows if row.verdict is Verdict.REGRESSED and row.metric == SPEED)
    assert row.ratio is not None
    assert column(table, "base")[place] == show(SPEED, row.base)
    assert column(table, "new")[place] == show(SPEED, row.new)
    assert column(table, "change")[place] == wording.percent(row.ratio.value) == "-5.0%"
    assert column(table, "interval")[place] == wording.interval(row.ratio)
    assert column(table, "differs")[place] == "learning_rate: 2e-5 → 1e-5"
    raw = next(one for one in table["columns"] if one["name"] == "change")["raw"]
    assert raw[place] == pytest.approx(row.ratio.value)


def test_what_is_inconclusive_says_what_it_needs(made: str) -> None:
    table = data_of(made)["table"]
    (row,) = (row for row in everything().rows if row.label == "noisy")
    place = column(table, "experiment").index("noisy")
    assert row.needs is not None and column(table, "needs")[place] == str(row.needs)
    assert float(column(table, "p")[place]) == pytest.approx(row.p_adjusted, abs=0.01)


def test_a_row_opens_on_the_runs_of_both_sides(made: str) -> None:
    table = data_of(made)["table"]
    place = column(table, "experiment").index("noisy")
    base = table["details"][place]["runs"][0]
    assert base["cells"] == ["base", "ok", ", ".join(show(SPEED, one) for one in (970.0, 1030.0, 1000.0))]
    broken = table["details"][column(table, "experiment").index("broken")]["runs"][1]
    assert broken["cells"][1] == "failed" and "oom_cuda" in table["remarks"][broken["remarks"]][0]
    gone = table["details"][column(table, "experiment").index("gone")]["runs"]
    assert [one["cells"][1] for one in gone] == ["ok", "not there"]


def test_every_column_is_as_long_as_the_table_also_where_it_is_cut() -> None:
    table = page_table.of(everything(), most=7)
    assert table["rows"] == 7
    assert all(len(one.get("raw", one.get("at"))) == 7 for one in table["columns"])
    assert len(table["ids"]) == len(table["details"]) == 7
    assert len({one["name"] for one in table["columns"]}) == len(table["columns"])


def test_a_page_without_room_for_all_rows_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(as_page, "MOST_ROWS", 100)
    made = page(many(400))
    assert data_of(made)["table"]["rows"] == 100
    assert "room for the 100 worst rows; 1,100 more are in the CSV" in made


# ------------------------------------------------------------------------------------------------------ real sources


def test_the_reference_against_a_perturbed_copy(tmp_path: Path) -> None:
    comparison = of_places(REFERENCE, perturbed(tmp_path / "new.csv"))
    made = page(comparison)
    counts = {one: sum(row.verdict is one for row in comparison.rows) for one in Verdict}
    assert counts[Verdict.REGRESSED] > 10 and counts[Verdict.IMPROVED] > 5 and counts[Verdict.MISSING] > 2
    shown_there = column(data_of(made)["table"], "verdict")
    assert {one: shown_there.count(marks.signed(one)) for one in Verdict} == counts
    assert bands(chart(made, "forest")["views"][0]["figure"]) == [pytest.approx((1 / 1.1, 1.1), rel=1e-5)]
    hidden = {one["name"] for one in data_of(made)["table"]["columns"] if one["hidden"]}
    assert {"p", "needs", "interval"} <= hidden, "with one run per side these say nothing"


def test_stored_campaigns_of_several_runs(tmp_path: Path) -> None:
    chosen = list(made_campaigns.experiments(("baseline", "liger"), gpus=(1, 2)))
    base = made_campaigns.campaign(tmp_path / "base", chosen[:-1], repeats=3, seed=1)
    new = made_campaigns.campaign(tmp_path / "new", chosen[1:], repeats=3, seed=2)
    made = page(of_places(base, new))
    table = data_of(made)["table"]
    assert {"key:framework_config", "key:num_gpus"} <= set(table["filters"])
    assert {"− missing", "+ new"} <= set(column(table, "verdict"))
    assert all(len(detail["runs"]) == 2 for detail in table["details"])
    assert "baseline · Qwen2.5-7B · 1 GPU" in json.dumps(chart(made, "forest")["views"][0], ensure_ascii=False)


@pytest.mark.parametrize(("labels", "short"), cases("compare_page/names_beside_rows_are_short_and_stay_different"))
def test_names_beside_rows_are_short_and_stay_different(labels: Sequence[str], short: Sequence[str]) -> None:
    assert forest.short(labels) == short


def test_values_of_any_size_make_a_page() -> None:
    wide = Ratio(value=1e250, interval=Interval(low=1e-290, high=1e300), p=0.5, n_base=2, n_new=2)
    rows = (
        Row(label="a", metric=SPEED, verdict=Verdict.INCONCLUSIVE, base=1e-250, new=1.0, ratio=wide),
        Row(label="a", metric=LOSS, verdict=Verdict.UNTESTED, base=-1.0, new=0.0),
    )
    made = page(replace(compared(paired(entry("a", {SPEED: NOISY}), entry("a", {SPEED: NOISY}))), rows=rows))
    assert data_of(made)["table"]["rows"] == 2


# --------------------------------------------------------------------------------------------------- the profiles


def profiled(root: Path, label: str, speed: float, *events: dict[str, Any]) -> Any:
    """An experiment of a results folder, with a trace if there are events."""
    made = entry(label, {SPEED: [value * speed for value in NOISY], MEMORY: [1000.0] * 5})
    if events:
        run = replace(BASE, id=str(made.id), monitors=("torch_profiler",))
        store = Store(root) if root.exists() else Store.create(root, {})
        store.add([run])
        run_dir = store.run_dir(run.id, 1, 1)
        written(run_dir / "profile" / "rank0.json.gz", [step(1, 0, 1000), *events])
        assert write_record(run_dir, ended(run, 1))
    return replace(made, folder=str(root))


def kernels(**lengths: float) -> list[dict[str, Any]]:
    return [event(name, 10.0 * at, length) for at, (name, length) in enumerate(lengths.items())]


def test_only_a_changed_row_shows_the_difference_of_its_profiles(tmp_path: Path) -> None:
    base, new = tmp_path / "base", tmp_path / "new"
    fast, slow = (kernels(**{f"kernel{at}": at + 1 + (at * more) for at in range(12)}) for more in (0, 3))
    pairs = [
        paired(profiled(base, "slower", 1, *fast), profiled(new, "slower", 0.8, *slow)),
        paired(profiled(base, "same", 1, *fast), profiled(new, "same", 1, *slow)),
        paired(profiled(base, "one", 1, *fast), profiled(new, "one", 0.8)),
    ]
    found = compared(*pairs)
    table = data_of(page(found, profiles=profiles.of(found, most=as_page.MOST_OPERATIONS)))["table"]
    shown = {name for name, detail in zip(table["ids"], table["details"], strict=True) if "profile" in detail}
    assert shown == {"slower · tok/s"}, "not its row of memory, which did not change"
    (only,) = table["profiles"]
    assert only["sentence"].endswith("The largest change: kernel11 takes 33 µs more.")
    assert len(only["rows"]) == as_page.MOST_OPERATIONS and only["more"] == 1
    assert only["rows"][0] == ["kernel11", "12 µs", "45 µs", "+33 µs", "1"]
    for one, root in zip(only["traces"], (base, new), strict=True):
        assert one["href"].startswith(f"file://{root}/experiments/slower-")


def test_the_difference_of_steps_with_other_work_says_so(tmp_path: Path) -> None:
    sides = [profiled(tmp_path / name, "a", speed, *kernels(gemm=1)) for name, speed in (("base", 1), ("new", 0.8))]
    base, new = (
        replace(side, arguments={"max_seq_len": length}) for side, length in zip(sides, (256, 512), strict=True)
    )
    found = profiles.of(compared(paired(base, new)), most=10)
    (only,) = page_table.of(compared(paired(base, new)), most=10, profiles=found)["profiles"]
    assert only["sentence"].endswith(" The steps have other work, because max_seq_len differs.")


def test_a_trace_that_cannot_be_read_is_a_sentence(tmp_path: Path) -> None:
    sides = [profiled(tmp_path / name, "a", speed, *kernels(gemm=1)) for name, speed in (("base", 1), ("new", 0.8))]
    (trace,) = (tmp_path / "new").rglob("rank0.json.gz")
    trace.write_bytes(b"{")
    found = compared(paired(*sides))
    (only,) = data_of(page(found, profiles=profiles.of(found, most=10)))["table"]["profiles"]
    assert "the trace cannot be read" in only["sentence"] and only["rows"] == []


def test_a_profile_of_another_environment_is_said_with_the_difference(tmp_path: Path) -> None:
    sides = [profiled(tmp_path / name, "a", speed, *kernels(gemm=1)) for name, speed in (("base", 1), ("new", 0.8))]
    base, new = (
        replace(side, environment={"torch": torch}) for side, torch in zip(sides, ("2.0", "2.13.0"), strict=True)
    )
    found = profiles.of(compared(paired(replace(base, whole=False), replace(new, whole=False))), most=10)
    (only,) = page_table.of(compared(paired(base, new)), most=10, profiles=found)["profiles"]
    assert only["sentence"].startswith(
        "Profiled in another environment than measured: base (torch: 2.0 → 2.13.0); the "
    )
