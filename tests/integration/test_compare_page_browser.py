"""The page of a comparison in a real browser: opened from a disk, drawn, chosen, sorted, filtered, read by axe-core, narrow.

Headless Chromium by Playwright. Without a Chromium these tests are skipped, but in CI they fail: there it belongs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
import test_page_browser as of_report
from factories.comparisons import compared, paired
from test_compare_page import REFERENCE, kernels, many, of_places, perturbed, profiled
from test_page_browser import (
    PHONE,
    WIDE,
    Watch,
    assert_quick,
    column,
    draw_all,
    opened,
    rows,
    serious,
    settle,
    show_numbers,
)

from orchestrator.compare.sides import profiles
from orchestrator.compare.view import page as as_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

browser = of_report.browser
"""The fixture of the report's page: one Chromium for the module, or a skip."""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The reference against a copy in which a third is slower and a fifth is faster."""
    folder = tmp_path_factory.mktemp("compared")
    target = folder / "comparison.html"
    target.write_text(as_page.page(of_places(REFERENCE, perturbed(folder / "new.csv"))), encoding="utf-8")
    return target


@pytest.fixture
def page(browser: Browser, file: Path) -> Iterator[Page]:
    """The page in a window of its own; at the end it must have kept silent."""
    with opened(browser, file) as (page, seen):
        draw_all(page)
        yield page
        assert seen.wrong == []


def test_the_charts_are_drawn_and_a_metric_is_chosen_for_both(page: Page) -> None:
    assert page.locator("#chart-forest .plot .point").count() > 20
    assert page.locator("#chart-forest .plot .shapelayer path").count() >= 2, "the band and the line of no change"
    assert page.locator("#chart-scatter .plot .point").count() > 50
    before = page.locator("#chart-scatter .xtick text").all_text_contents()
    page.locator("#chart-forest").get_by_label("Metric").select_option("peak torch mem")
    assert page.locator("#chart-scatter").get_by_label("Metric").input_value() == "peak torch mem"
    settle(page)
    page.locator("#chart-scatter .xtick text", has_text="GiB").first.wait_for()
    assert page.locator("#chart-scatter .xtick text").all_text_contents() != before
    assert page.locator("#chart-scatter .plot .point").count() > 50, "and the points are drawn there, too"


def test_the_scatter_names_a_point_under_the_pointer(page: Page) -> None:
    page.locator("#chart-scatter").scroll_into_view_if_needed()
    box = page.locator("#chart-scatter .plot .point").first.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    hover = page.locator("#chart-scatter .hoverlayer text")
    hover.first.wait_for()
    assert "GPU" in (hover.first.text_content() or "")


def test_the_table_sorts_and_filters(page: Page) -> None:
    assert column(page, "verdict")[0] == "▼ regressed"
    page.get_by_role("button", name="change", exact=True).click()
    changes = [float(text.rstrip("%")) for text in column(page, "change") if text.endswith("%")]
    assert len(changes) > 20
    assert changes == sorted(changes, reverse=True)
    page.locator("#filters").get_by_label("verdict").select_option("=▼ regressed")
    assert set(column(page, "verdict")) == {"▼ regressed"}
    page.get_by_label("Filter").fill("mistralai")
    assert all("mistralai" in row for row in rows(page))
    page.locator("#experiments .open").first.click()
    sides = page.locator("tr.detail .scroll tbody td:first-child").all_inner_texts()
    assert sides == ["base", "new"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [WIDE, PHONE], ids=["wide", "phone"])
def test_axe_finds_nothing_serious_and_nothing_is_cut(
    browser: Browser, file: Path, scheme: str, viewport: dict[str, int]
) -> None:
    with opened(browser, file, viewport=viewport, color_scheme=scheme) as (page, _):
        draw_all(page)
        page.locator("#experiments .open").first.click()
        show_numbers(page.locator("#chart-forest"))
        found = serious(page)
        width = page.evaluate("Math.max(document.documentElement.scrollWidth, document.body.scrollWidth)")
        cut, covered = page.evaluate(of_report.CUT), page.evaluate(of_report.COVERED)
    assert found == []
    assert width == viewport["width"], "the page never scrolls sideways"
    assert cut == []
    assert covered == []


# The numbers beside the forest plot that end outside of the drawing, or in the next number of their row. Each begins with a blank.
TOO_CLOSE = """() => {
  const end = document.querySelector("#chart-forest .main-svg").getBoundingClientRect().right;
  const words = [...document.querySelectorAll("#chart-forest .textpoint text")];
  const places = words.map((word) => word.getBoundingClientRect());
  const meets = (a, b) => Math.abs(a.top - b.top) < 4 && a.left < b.left && a.right > b.left + 4;
  return words.filter((_, n) => places[n].right > end || places.some((b) => meets(places[n], b))).map((word) => word.textContent);
}"""


def test_on_paper_no_number_is_cut(browser: Browser, file: Path) -> None:
    with opened(browser, file) as (page, _):
        draw_all(page)
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        page.emulate_media(media="print")
        of_report.settle(page)
        assert page.evaluate(TOO_CLOSE) == []


def test_a_thousand_experiments_a_side_are_usable_within_five_seconds(browser: Browser, tmp_path: Path) -> None:
    pages = {n: tmp_path / f"of-{n}.html" for n in (20, 1000)}
    for experiments, file in pages.items():
        file.write_text(as_page.page(many(experiments)), encoding="utf-8")
    assert pages[1000].stat().st_size < 25_000_000

    def use(experiments: int) -> float:
        watch = Watch()
        with opened(browser, pages[experiments]) as (page, _):
            page.locator("#chart-forest").scroll_into_view_if_needed()
            page.locator("#chart-forest .plot .main-svg").first.wait_for()
            page.get_by_label("Filter").fill(f"framework-{experiments - 1}")
            rows = f"{3 * experiments:,} rows"
            assert page.locator("#count").inner_text() == f"1 of {rows}; 2 more without news"
            seconds = watch.seconds()
            page.locator("#filters").get_by_label("Rows").select_option("all")
            assert page.locator("#count").inner_text() == f"3 of {rows}" and "which=all" in page.url
            return seconds

    assert_quick(use, 1000, 20)


def test_a_changed_row_opens_the_difference_of_its_profiles(browser: Browser, tmp_path: Path) -> None:
    found = compared(
        paired(
            profiled(tmp_path / "base", "slower", 1, *kernels(gemm=3, gone=1)),
            profiled(tmp_path / "new", "slower", 0.8, *kernels(gemm=9, new=2)),
        )
    )
    target = tmp_path / "comparison.html"
    target.write_text(as_page.page(found, profiles=profiles.of(found, most=10)), encoding="utf-8")
    with opened(browser, target) as (page, seen):
        page.get_by_role("button", name="Details of slower · tok/s").click()
        detail = page.locator("tr.detail")
        assert "The largest change: gemm takes 6 µs more." in detail.inner_text()
        lines = detail.get_by_label("Profiles").locator("tbody tr").all_inner_texts()
        assert [line.split()[0] for line in lines] == ["gemm", "new", "gone"]
        assert detail.locator("a").count() == 2
        assert serious(page) == []
        assert seen.wrong == []
