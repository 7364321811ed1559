"""The HTML page without a browser: its numbers are the table's, nothing in it is markup that we did not write, and it fits."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from factories import campaigns as made_campaigns
from factories.campaigns import HOSTILE
from factories.results import BASE, ended, stored
from factories.tables import Made, made_table, speeds
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.files.printable_text import counted
from orchestrator.measure.metrics import METRICS, Metric
from orchestrator.records import Caveat, CaveatKind, Device
from orchestrator.report.highlights import Highlight, HighlightKind, highlights
from orchestrator.report.page import chooser, folders, overview, report_page, runs, shell, table_data, texts
from orchestrator.report.page.charts import bars, chart_data, colours, parts, waterfall
from orchestrator.report.page.charts.chart import Absent, Chart, in_stretches
from orchestrator.report.page.charts.chart_data import Cell
from orchestrator.report.page.charts.curves import tradeoff
from orchestrator.results.table.baseline import with_baseline
from orchestrator.results.table.load import ResultsTable, load


class Elements(HTMLParser):
    """The elements of a page with their attributes, and the texts in script and style elements."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.inside: list[tuple[str, str]] = []
        self._raw: str | None = None
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attributes)))
        if tag in ("script", "style"):
            self._raw = tag

    def handle_endtag(self, tag: str) -> None:
        self._raw = None if tag == self._raw else self._raw

    def handle_data(self, data: str) -> None:
        if self._raw:
            self.inside.append((self._raw, data))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def data_of(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


def page_of(table: ResultsTable, roots: Sequence[Path]) -> str:
    return report_page(table, roots=roots, highlights=highlights(table))


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """4 frameworks × 2 models × 1, 2 and 4 GPUs × 3 repeats; one experiment out of memory, one that is skipped."""
    chosen = list(made_campaigns.experiments(("baseline", "liger", "fsdp", "bnb-nf4"), MODELS, (1, 2, 4)))
    return made_campaigns.campaign(tmp_path_factory.mktemp("page") / "results", chosen, repeats=3, series=8)


MODELS = tuple(made_campaigns.MODELS)[:2]


@pytest.fixture(scope="module")
def table(campaign: Path) -> ResultsTable:
    return load([campaign])


@pytest.fixture(scope="module")
def page(table: ResultsTable, campaign: Path) -> str:
    return page_of(table, [campaign])


@pytest.fixture(scope="module")
def known(table: ResultsTable) -> list[Cell]:
    return chart_data.read(table, most=1000)


# --------------------------------------------------------------------------------------------------- the shell


def test_the_skeleton(golden) -> None:
    body = shell.render("overview.html", overview={"tiles": (), "what": (("Model", "<b>&"),), "where": ()})
    sections = [
        shell.Section(id="overview", title="What & where", body=body),
        shell.Section(id="charts", title="Charts", body=shell.charts_body([Absent(title="Energy", why="no samples")])),
        shell.Section(id="table", title="Table", body=shell.table_body(constant=(("dtype", "bfloat16"),), notes=())),
    ]
    page = shell.document(title="A <title>", sections=sections, data=shell.page_data([]), with_charts=False)
    short = re.sub(r"(<style>\n).*?(\n</style>)", r"\1…\2", page, flags=re.DOTALL)
    short = re.sub(r'(<script>)"use strict".*?(</script>)', r"\1…\2", short, flags=re.DOTALL)
    golden("page/skeleton.html", re.sub(r"sha256-[\w+/=]+", "sha256-…", short))


def test_the_policy_names_every_script_and_nothing_remote(page: str) -> None:
    found = Elements(page)
    policy = next(one["content"] for one in found.all("meta") if one.get("http-equiv") == "Content-Security-Policy")
    scripts = [text for tag, text in found.inside if tag == "script" and not text.startswith("{")]
    digests = [f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'" for text in scripts]
    assert policy is not None
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["script-src"].split() == digests
    assert rules["default-src"] == "'none'"
    assert rules["base-uri"] == rules["form-action"] == "'none'"
    assert not re.search(r"https?:|\*|unsafe-eval", policy)


def test_nothing_is_asked_of_a_network(page: str) -> None:
    loading = [
        (tag, name, value)
        for tag, attributes in Elements(page).elements
        for name, value in attributes.items()
        if name in ("src", "srcset", "href", "action", "data", "poster", "background") and tag != "script"
    ]
    assert [value for _, _, value in loading if not str(value).startswith("#")] == []
    assert not [one for one in Elements(page).all("script") if "src" in one]
    assert not Elements(page).all("link")


@given(st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=12))
def test_data_cannot_end_its_script_and_comes_back_as_it_was(value: Any) -> None:
    text = shell.as_script_json(value)
    assert not re.search(r"[<>&\u2028\u2029]", text)
    assert text.isascii()
    assert json.loads(text) == value


@given(st.text())
def test_a_chart_reads_no_tag_and_no_entity_in_a_name(name: str) -> None:
    shown = texts.for_plotly(name)
    assert not re.search(r"[<>\n]|&(?!(amp|lt|gt);)", shown)


@given(st.text(), st.integers(8, 60))
def test_a_long_text_keeps_its_ends(text: str, width: int) -> None:
    whole, short = texts.one_line(text, width=10**6), texts.one_line(text, width=width)
    assert len(short) <= width
    assert whole.startswith(short.partition("…")[0]) or "…" in text
    assert (short == whole) == (len(whole) <= width)


# ----------------------------------------------------------------------------------------- the numbers of the charts


def views(chart: Chart) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    assert chart.views
    for view in chart.views:
        assert len(view.at) == len(chart.facets)
        assert view.summary.endswith(".")
        assert all(len(row) == len(view.columns) for row in view.rows)
        yield view.at, view.figure


def bars_of(figure: dict[str, Any]) -> Iterator[tuple[str, str, float]]:
    """Row, series and length of every bar."""
    names = figure["layout"]["yaxis"]["ticktext"]
    for trace in figure["data"]:
        if trace["type"] == "bar":
            yield from ((names[row].strip(), trace["name"], x) for row, x in zip(trace["y"], trace["x"], strict=True))


def test_bars_are_as_long_as_the_table_says(table: ResultsTable, known: list[Cell]) -> None:
    drawn = {
        (at[0], row, series): x
        for at, figure in views(bars.throughput(known, "Model"))
        for row, series, x in bars_of(figure)
    }
    rows = table.experiments[table.experiments["status"] == "ok"]
    assert len(drawn) == len(rows) == 23
    for row in rows.itertuples():
        place = (row.model_name_or_path, row.framework_config, counted(int(row.num_gpus), "GPU"))
        assert drawn[place] == pytest.approx(float(row.tokens_per_s), rel=1e-5)


def test_whiskers_are_the_intervals_over_runs(table: ResultsTable, known: list[Cell]) -> None:
    intervals = {
        str(row.id): (row.tokens_per_s_low, row.tokens_per_s_high)
        for row in table.experiments.dropna(subset=["tokens_per_s_low"]).itertuples()
    }
    assert len(intervals) == 23
    for cell in known:
        if cell.id in intervals:
            interval = cell.intervals["tokens_per_s"]
            assert (interval.low, interval.high) == pytest.approx(intervals[cell.id])
    first = known[0]
    value = texts.rounded(first.numbers["tokens_per_s"])
    drawn = [one for one in bars.throughput(known, "Model").views[0].figure["data"] if one["type"] == "bar"]
    (trace,) = [one for one in drawn if value in one["x"]]
    row = trace["x"].index(value)
    assert trace["x"][row] + trace["error_x"]["array"][row] == pytest.approx(intervals[first.id][1], rel=1e-4)


def test_a_failed_run_stands_in_its_place_with_its_kind(known: list[Cell]) -> None:
    missing = next(cell for cell in known if cell.status == "failed")
    said = {text for _, figure in views(bars.throughput(known, "Model")) for text in figure["data"][-1]["text"]}
    assert any("✕ oom_cuda" in text for text in said)
    rows = [row for view in bars.throughput(known, "Model").views if view.at[0] == missing.panel for row in view.rows]
    assert (missing.name, str(missing.gpus), "-", "-", "-", "0", "failed: oom_cuda") in rows


def test_a_ratio_is_the_reports_own(table: ResultsTable) -> None:
    found = {cell.id: cell for cell in chart_data.read(with_baseline(table, ["liger"]), most=1000)}
    liger = next(cell for cell in found.values() if cell.framework == "liger")
    fsdp = next(cell for cell in found.values() if cell.framework == "fsdp" and cell.base == liger.key)
    assert fsdp.speedup == pytest.approx(fsdp.numbers["tokens_per_s"] / liger.numbers["tokens_per_s"], rel=1e-6)
    chart = bars.throughput(list(found.values()), "Model")
    assert "ratio to liger" in chart.reading
    assert any(row[4] == f"{fsdp.speedup:.2f}×" for view in chart.views for row in view.rows)


def test_any_axis_has_its_names_and_ratios_in_the_charts() -> None:
    made = [
        Made(framework=None, arguments={"optim": optim}, runs=speeds(*runs))
        for optim, runs in (("sgd", (100.0, 101.0)), ("adamw", (130.0, 131.0)))
    ]
    found = chart_data.read(made_table(*made), most=10)
    assert [(cell.name, cell.choice) for cell in found] == [("optim sgd",) * 2, ("optim adamw",) * 2]
    chart = bars.throughput(found, "Model")
    assert "× is the ratio to optim sgd with otherwise equal settings" in chart.reading
    assert [row[4] for row in chart.views[0].rows] == ["1.30×", "-"]
    assert bars.times(found, "Model").views == ()


def test_runs_are_dots_and_what_is_in_doubt_is_marked_in_every_chart() -> None:
    memory = {"peak_allocated_bytes": 2**30}
    cold = Caveat(kind=CaveatKind.COLD_FIRST_RUN, detail="it is clearly slower than the others")
    not_level = Caveat(kind=CaveatKind.NOT_LEVEL, detail="its last 20 steps are slower")
    of_baseline = [{**run, **memory} for run in speeds(100.0, 102.0)]
    table = made_table(
        Made(runs=of_baseline),
        Made(framework="new", runs=[{**of_baseline[0], "tokens_per_s": 140.0}], warnings=(not_level,)),
    )
    first = table.runs["warnings"].index[0]
    table.runs.loc[first, "warnings"] = cold.sentence
    base, new = chart_data.read(table, most=10)
    assert (base.of_runs["tokens_per_s"], base.of_cold_run["tokens_per_s"]) == ([102.0], [100.0])
    assert (new.in_doubt, new.claimed, new.speedup) == (True, False, None)
    data = bars.throughput([base, new], "Model").views[0].figure["data"]
    assert [shape for one in data if one["type"] == "bar" for shape in one["marker"]["pattern"]["shape"]] == ["/", ""]
    dots = {one["name"]: (one["x"], one["marker"]["symbol"]) for one in data if one.get("mode") == "markers"}
    assert dots == {"run": ([102.0, 140.0], "circle"), "slow first run": ([100.0], "circle-open")}
    assert data[-1]["text"] == ["\xa0101 · n=1 · slow first run", "\xa0140 · n=1 · ⚠ not steady"]
    (view,) = tradeoff.tradeoff([base, new], "Model").views
    assert view.summary == "2 points on 1 GPU; on the front: baseline."
    symbols = {one["name"]: one["marker"]["symbol"] for one in view.figure["data"] if one.get("mode") == "markers"}
    assert symbols == {"baseline": ["circle"], "new": ["square-open"]}


def test_neighbours_alone_do_not_make_a_cell_grey() -> None:
    packed = [{**run, "neighbours": 1.0} for run in speeds(100.0, 101.0)]
    not_level = Caveat(kind=CaveatKind.NOT_LEVEL, detail="its last 20 steps are slower")
    table = made_table(Made(runs=packed), Made(framework="new", runs=packed, warnings=(not_level,)))
    found = table_data.of(table, {}, folders.Folders(roots={}), detail_bytes=0).data["doubts"]
    assert found == ["", "not steady, packed"]


@pytest.mark.parametrize(
    ("values", "hidden"),
    [(("1", None, None), True), (("1", None, "1"), False), (("1", "2", "2"), False), ((None, None, "1"), False)],
)
def test_defaults_of_one_trainer_do_not_push_the_speeds_out_of_sight(
    values: Sequence[str | None], hidden: bool
) -> None:
    """The first row has another trainer than the others."""
    made = [
        Made(
            framework=f"{at}",
            trainer="trl" if at == 0 else "script",
            runs=speeds(1.0),
            arguments={"tf32": one} if one else {},
        )
        for at, one in enumerate(values)
    ]
    data = table_data.of(made_table(*made), {}, folders.Folders(roots={}), detail_bytes=0).data
    assert {one["name"]: one["hidden"] for one in data["columns"]}["tf32"] == hidden


def test_the_table_and_the_runs_show_the_speed_of_rows_without_tokens() -> None:
    others = [Made(scenario="own", arguments={"a": a}, runs=[{"samples_per_s": float(a)}]) for a in "78"]
    for made, expected in (
        ([Made(runs=speeds(9.0)), *others], ["tok/s", "samples/s (steady)"]),
        (others, ["samples/s (steady)"]),
    ):
        table = made_table(*made)
        data = table_data.of(table, runs.read(table.runs), folders.Folders(roots={}), detail_bytes=0).data
        assert [one["label"] for one in data["columns"] if not one["hidden"] and "/s" in one["label"]] == expected
        assert [name for name in data["runColumns"] if "/s" in name] == expected


def shades_of(table: ResultsTable) -> dict[str, list[float | None]]:
    data = table_data.of(table, {}, folders.Folders(roots={}), detail_bytes=0).data
    return {column["name"]: column["shades"] for column in data["columns"] if "shades" in column}


@pytest.mark.parametrize(("device", "label"), [(Device.CPU, "CPU processes"), (Device.CUDA, "GPUs")])
@pytest.mark.parametrize("counts", [(1, 1), (1, 2)])
def test_processes_on_cpus_are_not_called_gpus(device: Device, label: str, counts: Sequence[int]) -> None:
    made = [Made(framework=str(n), num_gpus=one, device=device, runs=speeds(1.0)) for n, one in enumerate(counts)]
    found = table_data.of(made_table(*made), {}, folders.Folders(roots={}), detail_bytes=0)
    labels = [*(name for name, _ in found.constant), *(one["label"] for one in found.data["columns"])]
    assert [name for name in labels if name in ("CPU processes", "GPUs")] == [label]


def test_ratios_are_shaded_by_their_value_and_what_is_not_claimed_is_not() -> None:
    busy = Caveat(kind=CaveatKind.BUSY_HOST, detail="x")
    base = Made(runs=speeds(100.0, 102.0, peak_allocated_bytes=1000))
    fast = Made(framework="fast", runs=speeds(200.0, 204.0, peak_allocated_bytes=2000))
    slow = Made(framework="slow", runs=speeds(50.0, 51.0, peak_allocated_bytes=500))
    near = Made(framework="near", runs=speeds(101.0, 103.0))
    found = shades_of(with_baseline(made_table(base, fast, slow, near), ["baseline"]))
    assert found == {
        "speedup": [0.0, 1.0, -1.0, pytest.approx(0.014, abs=0.002)],
        "memory_ratio": [0.0, -1.0, 1.0, None],
    }
    doubted = with_baseline(made_table(base, replace(fast, warnings=(busy,)), slow), ["baseline"])
    assert shades_of(doubted) == {"speedup": [0.0, None, -1.0], "memory_ratio": [0.0, -1.0, 1.0]}
    of_base = with_baseline(made_table(replace(base, warnings=(busy,)), fast), ["baseline"])
    assert shades_of(of_base)["speedup"] == [None, None]
    data = table_data.of(of_base, {}, folders.Folders(roots={}), detail_bytes=0).data
    assert data["withheld"] == {1: "its baseline is in doubt"}


def test_a_small_gain_has_a_faint_shade() -> None:
    table = with_baseline(made_table(Made(runs=speeds(100.0)), Made(framework="b", runs=speeds(105.0))), ["baseline"])
    assert shades_of(table)["speedup"] == [0.0, pytest.approx(0.22)]


def test_what_to_choose_from_leaves_out_what_is_in_doubt() -> None:
    not_level = Caveat(kind=CaveatKind.NOT_LEVEL, detail="its last 20 steps are slower")
    needs = [{"tokens_per_s": speed, "peak_allocated_bytes": 2**31} for speed in (100.0, 104.0)]
    table = made_table(
        Made(runs=needs),
        Made(framework="new", runs=speeds(140.0), warnings=(not_level,)),
        Made(num_gpus=2, runs=speeds(1.0)),
    )
    found = chooser.places(table, hardware="H100")
    assert [(one["place"], one["gpus"], one["inDoubt"], len(one["candidates"])) for one in found["places"]] == [
        ("llama-1b at 1 GPU", 1, 1, 1),
        ("llama-1b at 2 GPUs", 2, 0, 1),
    ]
    (base,) = found["places"][0]["candidates"]
    assert (base["name"], base["shown"], base["gib"], base["runs"]) == ("baseline", "102", 2.0, 2)
    assert (found["places"][0]["unit"], found["places"][0]["priced"], found["hardware"]) == ("tokens/s", True, "H100")


def test_what_to_choose_from_says_for_each_memory_how_clear_the_fastest_is() -> None:
    """One of two without a clear difference was named, and a price of a GPU was asked for CPU processes."""
    runs = {
        "large": [{"tokens_per_s": 150.0, "peak_allocated_bytes": 2**32}],
        "medium": [{"tokens_per_s": 104.0, "peak_allocated_bytes": 2**31}],
        "small": [{"tokens_per_s": 100.0, "peak_allocated_bytes": 2**30}],
    }
    cells = [Made(framework=name, runs=of_one) for name, of_one in runs.items()]
    (found,) = chooser.places(made_table(*cells, Made(framework="none", runs=[{"samples_per_s": 1.0}])), hardware="")[
        "places"
    ]
    words = [[*one["rivals"].values()] for one in found["candidates"]]
    assert words == [
        [{"same": False, "words": "1.44× the speed of medium, one run each"}],
        [{"same": True, "words": "no clear difference, 1.040× (one run each)"}],
        [],
    ]
    assert (found["priced"], found["inDoubt"], found["without"]) == (True, 0, 1)
    on_cpu = chooser.places(made_table(*(replace(one, device=Device.CPU) for one in cells)), hardware="")
    assert [one["priced"] for one in on_cpu["places"]] == [False]


def test_a_choice_has_one_colour_on_the_page(known: list[Cell]) -> None:
    places = {cell.choice: cell.place for cell in known}
    assert len(set(places.values())) == len(places)
    assert all(cell.place == places[cell.choice] for cell in known)
    for chart in (bars.throughput(known, "Model"), tradeoff.tradeoff(known, "Model")):
        for view in chart.views:
            for trace in view.figure["data"]:
                if trace["type"] == "scatter" and trace["name"] in places:
                    assert trace["marker"]["color"] == colours.colour(places[trace["name"]])


def test_experiments_without_tokens_have_a_chart_of_times() -> None:
    times = [
        Made(framework=None, arguments={"optim": optim}, runs=[{"step_time_s": value}])
        for optim, value in (("sgd", 0.2), ("adamw", 0.1))
    ]
    faster = Made(framework=None, scenario="b", runs=[{"tokens_per_s": 100.0}])
    chart = bars.times(chart_data.read(made_table(*times, faster), most=10), "Model")
    assert chart.title == "Step time, s" and "× is the speed relative to optim sgd" in chart.reading
    assert [(row[2], row[4]) for view in chart.views for row in view.rows] == [("100 ms", "2.00×"), ("200 ms", "-")]


def test_memory_lies_inside_each_other_below_the_card(known: list[Cell]) -> None:
    sizes = {cell.key: float(made_campaigns.CARD_BYTES) for cell in known}
    for _, figure in views(parts.memory(known, "Model", gpu_bytes=sizes)):
        device, reserved, allocated = (trace for trace in figure["data"] if trace["type"] == "bar")
        assert all(a < r < d for a, r, d in zip(allocated["x"], reserved["x"], device["x"], strict=True))
        assert allocated["width"] < reserved["width"] < device["width"]
        assert figure["layout"]["shapes"][0]["x0"] == pytest.approx(79.65, abs=0.01)


def test_memory_of_the_reference_is_in_its_own_unit() -> None:
    cell = replace(CELL, numbers={"mem_nvidia_mem_reserved": 2048.0})
    figure = parts.memory([cell], "Model", gpu_bytes={}).views[0].figure
    assert figure["data"][0]["x"] == [2.0]
    assert "shapes" not in figure["layout"]


CELL = Cell(
    results=None,
    id="one",
    panel="model",
    framework="baseline",
    rest="",
    gpus=1,
    on_cpu=False,
    status="ok",
    kind=None,
    doubts=(),
    numbers={},
    intervals={},
)
seconds = st.floats(0.001, 1e4)


@given(
    st.fixed_dictionaries({}, optional={name: seconds for name in ("startup_s", "model_load_s", "warmup_s")}), seconds
)
def test_the_stages_of_a_run_fill_its_wall_time(stages: dict[str, float], rest: float) -> None:
    wall = sum(stages.values()) + rest
    found = parts.stages_of(replace(CELL, numbers={**stages, "wall_s": wall}))
    assert sum(found.values()) == pytest.approx(wall)
    assert found[parts.REST] == pytest.approx(rest, abs=1e-6 * wall)


def test_stages_have_no_colour_of_a_configuration(known: list[Cell]) -> None:
    traces = [trace for view in parts.wall_time(known, "Model").views for trace in view.figure["data"]]
    looks = {
        (bar["name"], bar["marker"]["color"], bar["marker"]["pattern"]["shape"])
        for bar in traces
        if bar["type"] == "bar"
    }
    assert len(looks) == len({look[1:] for look in looks}) == len(parts.STAGES) + 1
    assert not {colour for _, colour, _ in looks} & {colours.colour(place) for place in range(colours.COLOURS)}


def test_a_stage_that_is_not_known_is_no_zero() -> None:
    assert parts.stages_of(replace(CELL, numbers={"startup_s": 2.0})) == {"starting (imports)": 2.0}


coordinates = st.integers(0, 12)


@given(st.lists(st.tuples(coordinates, coordinates), max_size=40))
def test_the_front_is_what_nothing_beats(points: list[tuple[int, int]]) -> None:
    def beaten(mine: tuple[int, int]) -> bool:
        return any(o != mine and o[0] <= mine[0] and o[1] >= mine[1] for o in points)

    found = tradeoff.front([(float(x), float(y)) for x, y in points])
    assert sorted(found) == [at for at, point in enumerate(points) if not beaten(point)]


def test_a_front_is_of_one_number_of_gpus(known: list[Cell]) -> None:
    alone = [cell for cell in known if cell.gpus == 2]
    assert {view.at[1] for view in tradeoff.tradeoff(alone, "Model").views} == {"2"}
    for (_, count), figure in views(tradeoff.tradeoff(known, "Model")):
        assert figure["layout"]["xaxis"]["title"]["text"].endswith(f" on {counted(int(count), 'GPU')}")


@given(st.lists(st.tuples(st.integers(1, 70), st.integers(1, 99)), min_size=2, max_size=12), st.integers(1, 60))
def test_names_of_the_front_are_beside_the_axis(points: list[tuple[int, int]], letters: int) -> None:
    numbers = [{"tokens_per_s_per_gpu": float(speed), "peak_allocated_bytes": gib * 2.0**30} for gib, speed in points]
    cells = [replace(CELL, id=f"{n}", framework=f"{n:0{letters}}", numbers=each) for n, each in enumerate(numbers)]
    ((_, figure),) = views(tradeoff.tradeoff(cells, "Model"))
    low, high = figure["layout"]["xaxis"]["range"]
    *_, names = figure["data"]
    assert 0 <= low < high
    for x, text, at in zip(names["x"], names["text"], names["textposition"], strict=True):
        room = (x - low) / (high - low) * 480
        assert room >= 6 * (len(text) - 1) if at == "top left" else room < 7 * len(text)


@given(st.lists(st.integers(), max_size=200), st.integers(1, 50))
def test_stretches_hold_everything_once(items: list[int], length: int) -> None:
    found = in_stretches(items, length)
    assert [item for _, some in found for item in some] == items
    assert all(len(some) <= length for _, some in found)
    assert len({name for name, _ in found}) == len(found)


def test_a_thousand_rows_are_drawn_in_stretches_of_forty(tmp_path: Path) -> None:
    many = [
        replace(CELL, id=f"{n}", rest=f"batch {n}", numbers={"tokens_per_s": 1.0 + n, "wall_s": 9.0, "startup_s": 1.0})
        for n in range(1000)
    ]
    for chart in (bars.throughput(many, "Model"), parts.wall_time(many, "Model")):
        rows = [row[0] for view in chart.views for row in view.rows]
        assert len(rows) == len(set(rows)) == 1000
        assert max(len(view.rows) for view in chart.views) == 40


def test_arguments_tell_experiments_apart_that_are_otherwise_alike(tmp_path: Path) -> None:
    chosen = made_campaigns.experiments(("baseline", "liger"), MODELS[:1], (1,), batches=(2, 8))
    found = chart_data.read(load([made_campaigns.campaign(tmp_path / "r", list(chosen))]), most=10)
    assert [cell.name for cell in found] == [
        f"{framework} · batch/device {batch}" for framework in ("baseline", "liger") for batch in (2, 8)
    ]


def test_two_of_one_name_are_told_apart_by_their_ids(tmp_path: Path) -> None:
    alike = [replace(BASE, id=f"full-tiny-{n:012x}", env={"A": str(n)}) for n in range(3)]
    root = stored(tmp_path / "r", *((one, [ended(one, 1, tokens_per_s=1.0)]) for one in alike))
    found = chart_data.read(load([root]), most=10)
    assert len({cell.name for cell in found}) == 3


def test_processes_on_a_cpu_are_no_gpus() -> None:
    assert replace(CELL, gpus=2, on_cpu=True).where == "2 processes"
    assert CELL.where == "1 GPU"


# ------------------------------------------------------------------------------------------------------- the report


def test_the_order_of_the_page(page: str) -> None:
    sections = [one["id"] for one in Elements(page).all("section")]
    assert sections == ["answers", "findings", "warnings", "table", "charts", "overview"]
    charts = [one["data-chart"] for one in Elements(page).all("figure")]
    assert charts == [
        "throughput",
        "why",
        "memory",
        "tradeoff",
        "scaling",
        "steps",
        "devices",
        "energy",
        "time",
        "balance",
    ]
    assert set(data_of(page)["charts"]) == set(charts)


def test_every_colour_of_a_figure_is_one_of_the_theme(page: str) -> None:
    def tokens(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            yield from (token for inner in value.values() for token in tokens(inner))
        elif isinstance(value, list):
            yield from (token for inner in value for token in tokens(inner))
        elif isinstance(value, str) and value.startswith("@"):
            yield value

    used = set(tokens(data_of(page)["charts"]))
    assert colours.colour(0) in used
    assert used <= {f"@{name}" for name in themes()["light"]}


def test_what_was_run_and_where_is_said(page: str) -> None:
    text = re.sub(r"<[^>]+>", " ", page[page.index('<section id="overview"') : page.index('id="data"')])
    cards, software = ("H100 80GB HBM3", "79.65 GiB each", "580.159.04"), ("torch 2.13.0", "853061b7eb16")
    for said in ("24", *cards, *software, "node-1", "GPU-hours"):
        assert said in text, said


def test_the_page_says_how_the_runs_started_if_some_were_warm(table: ResultsTable) -> None:
    starts = ["warm", "cold", None]
    runs = table.runs.assign(provenance_start=[starts[at % 3] for at in range(len(table.runs))])
    for one, said in ((runs, True), (runs.replace({"provenance_start": "warm"}, "cold"), False)):
        where = dict(overview.of(replace(table, runs=one), [], gpu_bytes=[]).where)
        counts = [list(one["provenance_start"]).count(how) for how in ("warm", "cold")]
        assert where.get("Start of the runs") == ("{} warm, {} cold".format(*counts) if said else None)


def test_each_row_has_its_runs_command_logs_and_files(page: str, table: ResultsTable) -> None:
    data = data_of(page)["table"]
    assert data["rows"] == len(table.experiments) == 24
    detail = data["details"][0]
    assert data["runColumns"] == [
        "run",
        "status",
        "tok/s",
        "step time",
        "first step",
        "peak alloc",
        "wall time",
    ]
    first = table.runs.iloc[0]
    assert [run["cells"][:3] for run in detail["runs"]] == [
        [f"r{one.repeat}-t1", "ok", f"{one.tokens_per_s:,.0f}"]
        for one in table.runs[table.runs["id"] == first["id"]].itertuples()
    ]
    assert "--learning_rate 2e-5" in detail["command"]
    assert detail["logs"][0]["name"] == "stdout.log"
    assert "'loss'" in detail["logs"][0]["end"]
    files = data["fileSets"][detail["runs"][0]["files"]]
    assert {"command.sh", "record.json", "stdout.log", "samples-nvml.csv"} <= set(files)


def test_links_lead_to_files_that_are_there(page: str, campaign: Path) -> None:
    data = data_of(page)["table"]
    links = [
        campaign / (run["folder"] + name)
        for detail in data["details"]
        for run in detail["runs"]
        for name in data["fileSets"][run["files"]]
    ]
    assert len(links) > 200
    assert all(path.exists() for path in links)


def test_columns_hold_what_the_table_holds(page: str, table: ResultsTable) -> None:
    columns = {column["name"]: column for column in data_of(page)["table"]["columns"]}
    speeds = [None if math_isna(value) else pytest.approx(float(value)) for value in table.experiments["tokens_per_s"]]
    assert columns["tokens_per_s"]["raw"] == speeds
    words = columns["framework_config"]
    assert [words["words"][at] for at in words["at"]] == table.experiments["framework_config"].tolist()
    assert not columns["status"]["hidden"]
    assert columns["step_time_s"]["shown"][0].endswith(" ms")


def math_isna(value: object) -> bool:
    return str(value) == "<NA>"


def test_a_secret_in_the_name_of_a_folder_is_masked(table: ResultsTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB_PASSWORD", "Tr0ub4dor-and-3xtra")
    assert "<h1>Report: r-***</h1>" in report_page(table, roots=[Path("/r-Tr0ub4dor-and-3xtra")], highlights=[])


def test_highlights_are_shown_by_what_they_are(table: ResultsTable, campaign: Path) -> None:
    said = [
        Highlight(kind=HighlightKind.GAIN, text="liger is <b>faster</b>", experiments=("a",)),
        Highlight(kind=HighlightKind.NOTE, text="optim is compared with sgd", experiments=("c",)),
        Highlight(kind=HighlightKind.WARNING, text="throttled", experiments=()),
        Highlight(kind=HighlightKind.FAILURE, text="out of memory", experiments=("b", "c")),
    ]
    page = report_page(table, roots=[campaign], highlights=said)
    findings, _, rest = page[page.index('id="findings"') :].partition('id="warnings"')
    warnings, _, rest = rest.partition('id="table"')
    assert "compared with sgd" not in findings + warnings
    assert "compared with sgd" in rest.partition('id="charts"')[0]
    assert "liger is &lt;b&gt;faster&lt;/b&gt;" in findings
    assert "throttled" in warnings
    assert "out of memory" in warnings
    assert "out of memory" not in findings
    ids = [one["data-ids"] for one in Elements(page).all("button") if "data-ids" in one]
    assert ids == ["a", "b c"]


def test_experiments_with_fewer_runs_than_were_asked_for_are_named_with_what_to_do(tmp_path: Path) -> None:
    whole, short = (replace(BASE, id=f"full-{name}-{name * 12}", model=name) for name in "ab")
    root = stored(
        tmp_path / "r",
        (whole, [ended(whole, n, tokens_per_s=1.0) for n in (1, 2, 3)]),
        (short, [ended(short, n, tokens_per_s=1.0) for n in (1, 3)]),
    )
    (said,) = [one for one in highlights(load([root])) if "fewer runs" in one.text]
    assert (said.kind, said.experiments) == (HighlightKind.WARNING, (short.id,))
    assert "(no framework on b with 1 CPU process: 2 of 3); the same command with the same --results" in said.text
    assert said.text in page_of(load([root]), [root])


def test_an_empty_folder_makes_a_page(tmp_path: Path) -> None:
    root = stored(tmp_path / "results", (BASE, []))
    page = page_of(load([root]), [root])
    assert Elements(page).all("figure") == []
    assert page.count("No chart") == 10
    assert "no run has NVML samples" in page
    assert data_of(page)["table"]["rows"] == 1


def test_a_folder_without_gpus_says_which_charts_it_lacks(tmp_path: Path) -> None:
    root = stored(tmp_path / "results", (BASE, [ended(BASE, 1, tokens_per_s=100.0, tokens_per_s_per_gpu=100.0)]))
    page = page_of(load([root]), [root])
    assert [one["data-chart"] for one in Elements(page).all("figure")] == ["throughput"]
    assert "no experiment has a speed per GPU at different numbers of GPUs" in page
    assert "process-hours on CPUs" in page


def test_several_folders_are_told_apart_and_not_linked(tmp_path: Path) -> None:
    roots = [
        made_campaigns.campaign(
            tmp_path / name / "results", list(made_campaigns.experiments(("liger",), MODELS[:1], (1,)))
        )
        for name in ("before", "after")
    ]
    page = page_of(load(roots), roots)
    data = data_of(page)["table"]
    assert not data["linked"]
    assert "files are named, not linked" in page
    assert "results" in {column["name"] for column in data["columns"]}
    assert all("command" in detail for detail in data["details"])


def test_hostile_names_are_text_and_nothing_else(tmp_path: Path, page: str) -> None:
    evil = made_campaigns.hostile(tmp_path / "results")
    table = load([evil])
    made = page_of(table, [evil])
    assert data_of(made)["table"]["rows"] == len(HOSTILE)
    tame, found = Elements(page), Elements(made)
    assert len(found.all("script")) == len(tame.all("script"))
    assert {tag for tag, _ in found.elements} <= {tag for tag, _ in tame.elements} | {"li", "ul", "strong", "code"}
    assert not [name for _, attributes in found.elements for name in attributes if name.startswith("on")]
    assert all(str(one.get("href", "#")).startswith("#") for one in found.all("a"))
    assert "\u202e" not in made
    assert "\x1b" not in made
    assert "{{ 7 * 7 }}" in made
    labels = json.dumps([chart["views"] for chart in data_of(made)["charts"].values()])
    figures = [view["figure"] for chart in data_of(made)["charts"].values() for view in chart["views"]]
    assert "alert(1)" in labels
    assert not [text for text in strings(figures) if re.search(r"<(?!br>|/?extra>)", text)]


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from (text for inner in value.values() for text in strings(inner))
    elif isinstance(value, list):
        yield from (text for inner in value for text in strings(inner))
    elif isinstance(value, str):
        yield value


def test_only_files_of_ours_are_linked(tmp_path: Path) -> None:
    for name in ("stdout.log", "record.json", "steps-rank10.jsonl"):
        (tmp_path / name).write_text("")
    for name in ("evil.html", "steps-rank0.jsonl.html", "javascript:a"):
        (tmp_path / name).write_text("")
    assert folders.files(tmp_path) == ("record.json", "stdout.log", "steps-rank10.jsonl")
    assert folders.link("a/../b", "r1-t1", "x?y#z") == "experiments/a%2F..%2Fb/runs/r1-t1/x%3Fy%23z"


def test_rows_that_ended_badly_get_the_room_first(table: ResultsTable, campaign: Path) -> None:
    ended_runs, places = runs.read(table.runs), folders.Folders.of([campaign])
    found = table_data.of(table, ended_runs, places, detail_bytes=1500)
    with_command = [
        id for id, detail in zip(found.data["ids"], found.data["details"], strict=True) if "command" in detail
    ]
    bad = table.experiments.loc[table.experiments["status"] != "ok", "id"].tolist()
    assert 1 <= len(with_command) < 24
    assert set(bad) <= set(with_command)
    assert f"no room for the commands and logs of {24 - len(with_command)} rows" in " ".join(found.notes)


def test_a_table_that_is_too_long_is_cut_and_says_so(
    table: ResultsTable, campaign: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_data, "MOST_ROWS", 7)
    found = table_data.of(table, {}, folders.Folders.of([campaign]), detail_bytes=0)
    assert found.data["rows"] == len(found.data["ids"]) == len(found.data["details"]) == 7
    assert all(len(column["raw" if "raw" in column else "at"]) == 7 for column in found.data["columns"])
    assert "room for 7 of 24 rows" in found.notes[0]


# ----------------------------------------------------------------------------------------------- the waterfall


def explained(*made: Made) -> Chart:
    table = with_baseline(made_table(*made), ["baseline"])
    return waterfall.waterfall(chart_data.read(table, most=10), "Model")


def steps_of(tokens_per_s: float, seconds: float, **others: float) -> list[dict[str, float | int | str | None]]:
    return speeds(tokens_per_s, tokens_per_s * 1.001, steps_per_s=1 / seconds, **others)


BASE_STEP = Made(runs=steps_of(1000.0, 0.1, data_wait_share=0.1, gpu_utilization=0.7))
SHORT_STEP = steps_of(2000.0, 0.05, data_wait_share=0.4, gpu_utilization=0.5)


def test_a_waterfall_goes_from_the_baselines_step_to_this_one() -> None:
    (view,) = explained(BASE_STEP, Made(framework="fast", runs=SHORT_STEP)).views
    assert view.at == ("config:llama-1b", "1", "fast")
    assert view.rows == (
        ("between steps", "10 ms", "20 ms", "+10.00 ms"),
        ("GPU idle", "20 ms", "5 ms", "−15.00 ms"),
        ("the rest", "70 ms", "25 ms", "−45.00 ms"),
        ("step", "100 ms", "50 ms", "0.500×"),
    )
    bars, _ = view.figure["data"]
    ends = [(base, pytest.approx(base + size)) for base, size in zip(bars["base"], bars["x"], strict=True)]
    assert ends == [(0, 100), (100, 110), (95, 110), (50, 95), (0, 50)]
    assert bars["marker"]["color"] == [colours.colour(0), "@slower", "@faster", "@faster", colours.colour(1)]


@pytest.mark.parametrize("side", ["baseline", "fast"])
def test_what_is_not_claimed_is_explained_in_grey_with_the_reason(side: str) -> None:
    busy = (Caveat(kind=CaveatKind.BUSY_HOST, detail="x"),)
    made = [BASE_STEP, Made(framework="fast", runs=SHORT_STEP)]
    (view,) = explained(*(replace(one, warnings=busy if one.framework == side else ()) for one in made)).views
    (bars, _) = view.figure["data"]
    assert set(bars["marker"]["color"]) == {colours.MUTED} and set(bars["marker"]["pattern"]["shape"]) == {"/"}
    named = "the baseline" if side == "baseline" else "fast on 1 GPU"
    assert f"Nothing is claimed: {named} is in doubt: busy host." in view.summary


@pytest.mark.parametrize(
    ("missing", "names", "reason"),
    [
        ("gpu_utilization", ["between steps", "the rest", "step"], "GPU idle (both sides need NVML's readings"),
        ("data_wait_share", ["GPU idle", "the rest", "step"], "between steps (it is not known of both)"),
    ],
)
def test_a_part_that_one_side_does_not_have_is_no_zero(missing: str, names: list[str], reason: str) -> None:
    without = [{name: value for name, value in run.items() if name != missing} for run in SHORT_STEP]
    (view,) = explained(BASE_STEP, Made(framework="fast", runs=without)).views
    assert [row[0] for row in view.rows] == names
    assert f"Not shown by itself: {reason}" in view.summary


def test_a_metric_that_is_marked_as_a_part_of_a_step_is_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    """While ranks wait, a GPU may be idle, so its idle time has no bar of its own."""
    share = Metric("sync_share", "sync", "Share of the steady time in which ranks wait.", step_part="waiting of ranks")
    monkeypatch.setitem(METRICS, share.name, share)
    made = Made(runs=steps_of(1000.0, 0.1, data_wait_share=0.1, gpu_utilization=0.7, sync_share=0.2))
    shorter = [{**run, "sync_share": 0.1} for run in SHORT_STEP]
    (view,) = explained(made, Made(framework="fast", runs=shorter)).views
    assert view.rows[:3] == (
        ("between steps", "10 ms", "20 ms", "+10.00 ms"),
        ("waiting of ranks", "20 ms", "5 ms", "−15.00 ms"),
        ("the rest", "70 ms", "25 ms", "−45.00 ms"),
    )
    assert len(view.figure["data"][0]["x"]) == 5
    assert view.summary.endswith("Not shown by itself: GPU idle (the other parts include it).")
    (without,) = explained(BASE_STEP, Made(framework="fast", runs=shorter)).views
    assert without.summary.endswith("Not shown by itself: waiting of ranks (it is not known of both).")


SPLIT_BASE = {"forward_time_s": 0.025, "backward_time_s": 0.045, "optimizer_time_s": 0.01}
SPLIT_SHORT = {"forward_time_s": 0.01, "backward_time_s": 0.012, "optimizer_time_s": 0.006}
WORK = ("forward pass", "backward pass", "optimizer")


def split(base: Mapping[str, float], short: Mapping[str, float]) -> Chart:
    """A baseline and a faster experiment whose records divide their steps further."""
    sides = (BASE_STEP.runs, base), (SHORT_STEP, short)
    longer, shorter = ([{**run, **parts} for run in runs] for runs, parts in sides)
    return explained(Made(runs=longer), Made(framework="fast", runs=shorter))


def test_passes_divide_a_step_further() -> None:
    (view,) = split(SPLIT_BASE, SPLIT_SHORT).views
    assert view.rows == (
        ("between steps", "10 ms", "20 ms", "+10.00 ms"),
        ("forward pass", "25 ms", "10 ms", "−15.00 ms"),
        ("backward pass", "45 ms", "12 ms", "−33.00 ms"),
        ("optimizer", "10 ms", "6 ms", "−4.00 ms"),
        ("the rest", "10 ms", "2 ms", "−8.00 ms"),
        ("step", "100 ms", "50 ms", "0.500×"),
    )
    assert view.figure["narrow"]["ticktext"][1:-1] == [f"{name} " for name, *_ in view.rows[:-1]]


def test_the_time_between_steps_is_divided_where_both_sides_know_its_parts() -> None:
    """The share of a step of several ranks may be larger than the mean of its ranks' times, so it has no bar."""
    between = {"data_time_s": 0.006, "between_time_s": 0.003}
    (view,) = split(SPLIT_BASE | between, SPLIT_SHORT | between).views
    names = ["waiting for data", "logging, evaluation and saving", *WORK, "the rest", "step"]
    assert [row[0] for row in view.rows] == names
    assert view.rows[0] == ("waiting for data", "6 ms", "6 ms", "±0.00 ms")
    (view,) = split(SPLIT_BASE | between, SPLIT_SHORT).views
    assert [row[0] for row in view.rows] == ["between steps", *WORK, "the rest", "step"]
    assert "waiting for data, logging, evaluation and saving (it is not known of both)" in view.summary


def test_communication_is_taken_out_of_its_pass_where_both_sides_know_it() -> None:
    waits = {"forward_comm_time_s": 0.004, "backward_comm_time_s": 0.01}
    (view,) = split(SPLIT_BASE | waits, SPLIT_SHORT | {name: 0.0 for name in waits}).views
    assert view.rows[1:3] == (
        ("forward pass", "21 ms", "10 ms", "−11.00 ms"),
        ("backward pass", "35 ms", "12 ms", "−23.00 ms"),
    )
    assert view.rows[4:6] == (
        ("communication in the forward pass", "4 ms", "0 ms", "−4.00 ms"),
        ("communication in the backward pass", "10 ms", "0 ms", "−10.00 ms"),
    )
    (view,) = split(SPLIT_BASE | waits, SPLIT_SHORT).views
    assert [row[0] for row in view.rows] == ["between steps", *WORK, "the rest", "step"]
    assert view.rows[1][1] == "25 ms", "the other side's pass has its communication in it, too"


@pytest.mark.parametrize("side", ["baseline", "fast"])
def test_a_part_in_seconds_needs_both_sides(side: str) -> None:
    none: dict[str, float] = {}
    (view,) = split(*((none, SPLIT_SHORT) if side == "fast" else (SPLIT_BASE, none))).views
    assert [row[0] for row in view.rows] == ["between steps", "GPU idle", "the rest", "step"]
    assert view.summary.endswith(f"Not shown by itself: {', '.join(WORK)} (it is not known of both).")


@pytest.mark.parametrize("side", ["baseline", "fast"])
def test_parts_that_overlap_are_not_drawn(side: str) -> None:
    base = SPLIT_BASE | ({"optimizer_time_s": 0.03} if side == "baseline" else {})
    short = SPLIT_SHORT | ({"optimizer_time_s": 0.01} if side == "fast" else {})
    (view,) = split(base, short).views
    assert [row[0] for row in view.rows] == ["between steps", "GPU idle", "the rest", "step"]
    assert view.summary.endswith(
        f"Not shown by itself: {', '.join(WORK)} (the parts are longer than the step, so they overlap)."
    )


def test_parts_may_exceed_their_step_by_the_error_of_a_mean() -> None:
    (view,) = split(SPLIT_BASE | {"optimizer_time_s": 0.0205}, SPLIT_SHORT).views
    assert view.rows[-2] == ("the rest", "0 ms", "2 ms", "+2.00 ms")


def test_parts_of_runs_of_different_speeds_are_as_long_as_their_steps() -> None:
    """The step is a geometric mean of runs, the parts are arithmetic means: at 40 and 160 ms, 80 and 100 ms."""
    shares = {"forward_time_s": 0.3, "backward_time_s": 0.5, "optimizer_time_s": 0.2}
    steps = (0.04, 0.16)
    runs = [run for s in steps for run in steps_of(100 / s, s, **{name: part * s for name, part in shares.items()})[:1]]
    (view,) = explained(
        Made(runs=runs), Made(framework="fast", runs=[{**run, **SPLIT_SHORT} for run in SHORT_STEP])
    ).views
    assert [row[:2] for row in view.rows] == [
        *zip(WORK, ("24 ms", "40 ms", "16 ms"), strict=True),
        *(("the rest", "0 ms"), ("step", "80 ms")),
    ]


def test_steps_that_cannot_be_compared_are_counted_and_not_explained() -> None:
    longer = Made(framework="packing", runs=steps_of(2000.0, 0.1, data_wait_share=0.1, gpu_utilization=0.7))
    undivided = Made(framework="plain", runs=steps_of(2000.0, 0.05))
    chart = explained(BASE_STEP, longer, undivided, Made(framework="broken", kinds=["oom_cuda"]))
    assert chart.views == ()
    assert chart.notes == (
        "1 experiment left out: a step does not have as many tokens as the baseline's.",
        "1 experiment left out: the records do not divide the steps of both sides.",
    )


def test_a_page_has_room_for_the_largest_differences(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waterfall, "MOST", 1)
    near = Made(framework="near", runs=steps_of(1010.0, 0.1 / 1.01, data_wait_share=0.1, gpu_utilization=0.7))
    chart = explained(BASE_STEP, near, Made(framework="fast", runs=SHORT_STEP))
    assert [view.at[2] for view in chart.views] == ["fast"]
    assert chart.notes == ("The page has room for the 1 experiments that differ the most; 1 more is left out.",)


# ------------------------------------------------------------------------------------------------------- colours


def themes() -> dict[str, dict[str, str]]:
    """Theme → custom property → its value, as page.css has them."""
    css = (shell.TEMPLATES / "page.css").read_text(encoding="utf-8")
    light, dark, asked = (
        dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block)) for block in re.findall(r":root[^{]*\{([^}]*)\}", css)
    )
    assert dark == asked, "dark by preference and dark by choice are not the same"
    assert light.keys() == dark.keys()
    return {"light": light, "dark": dark}


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("name", ["light", "dark"])
def test_colours_stand_out_from_what_they_are_on(name: str) -> None:
    """WCAG 2.1: 3 : 1 for what is drawn, 4.5 : 1 for what is read."""
    theme = themes()[name]
    for place in range(colours.COLOURS):
        assert contrast(theme[colours.colour(place)[1:]], theme["paper"]) >= 3, place
    for tone in colours.TONES:
        assert contrast(theme[tone[1:]], theme["paper"]) >= 3, tone
    for word in ("ink", "muted", "accent", "bad", "warn", "good"):
        for ground in ("paper", "raised"):
            assert contrast(theme[word], theme[ground]) >= 4.5, (word, ground)


def test_no_two_series_look_the_same() -> None:
    for marks in ((colours.colour, colours.symbol), (colours.colour, colours.dash)):
        looks = {tuple(mark(place) for mark in marks) for place in range(16)}
        assert len(looks) == 16


def test_words_in_backticks_are_code_and_stay_escaped() -> None:
    assert shell._with_code("`a <b>` & `c`") == "<code>a &lt;b&gt;</code> &amp; <code>c</code>"
