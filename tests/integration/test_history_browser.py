"""The page of a history in a real browser: its cards, its chart, its small curves; read by axe-core; names are text in it."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from test_page_browser import PHONE, WIDE, browser, draw_all, opened, serious, show_numbers

from orchestrator.compare.history.view.trend_page import trend_page

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))
from factories.results import BASE, stored
from test_history import BASELINE, HOSTILE, LIGER, history, measured

if TYPE_CHECKING:
    from playwright.sync_api import Browser

__all__ = ["browser"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three experiments, one of hostile names, over ten campaigns: all are faster at the sixth, one is slower at the eighth."""
    root = tmp_path_factory.mktemp("history")
    odd = replace(BASE, id="odd-000000000000", scenario=HOSTILE, model=HOSTILE)
    for day in range(10):
        speed = 1000.0 + day % 3 + (100 if day >= 5 else 0)
        around = {"torch": HOSTILE, "driver": f"58{day // 5}.1", "commit": f"{day // 2}{'c' * 39}"}
        cells = []
        for times, one in enumerate((BASELINE, LIGER, odd), start=1):
            own = times * speed * (0.8 if one is LIGER and day >= 7 else 1)
            cells.append((one, measured(one, day, [own, own + 5], step_time_s=1000 / own, **around)))
        stored(root / "archive" / f"{day}", *cells)
    (root / "report.html").write_text(trend_page(history(root / "archive")), encoding="utf-8")
    return root


@pytest.mark.parametrize(("scheme", "viewport"), [("light", WIDE), ("dark", PHONE)], ids=["wide", "phone"])
def test_it_opens_draws_and_is_accessible(
    browser: Browser, folder: Path, scheme: str, viewport: dict[str, int]
) -> None:
    from playwright.sync_api import expect

    with opened(browser, folder, color_scheme=scheme, viewport=viewport) as (page, seen):
        draw_all(page)
        assert page.locator(".sparkline").count() == 8
        drawn = page.locator("#chart-trend .plot .ytick").first.text_content() or ""
        page.locator("#chart-trend .choices select").first.select_option("all 3 experiments")
        expect(page.locator("#chart-trend .summary").first).to_contain_text("better (+10")
        expect(page.locator("#chart-trend .plot .ytick").first).not_to_have_text(drawn)
        show_numbers(page.locator("#chart-trend"))
        expect(page.locator("#chart-trend .numbers tbody tr")).to_have_count(10)
        found = serious(page)
        assert page.evaluate("document.documentElement.scrollWidth") == viewport["width"]
        assert seen.wrong == []
    assert found == []


@pytest.mark.parametrize("viewport", [WIDE, {"width": 1024, "height": 768}, PHONE], ids=["wide", "middle", "phone"])
def test_the_first_screen_says_when_what_changed_by_how_much_and_with_what(
    browser: Browser, folder: Path, viewport: dict[str, int]
) -> None:
    with opened(browser, folder, viewport=viewport) as (page, seen):
        cards = page.locator(".event")
        assert cards.count() == 2
        newest, oldest = (cards.nth(at).inner_text() for at in (0, 1))
        assert newest.startswith("2023-11-21") and "6 → 7" in newest
        assert "Slower -20.0% tok/s" in newest and "1 of 3 experiments: full · liger · config:tiny-llama" in newest
        assert "step time" not in newest, "the same slowdown counts once"
        assert "nothing known" in newest
        assert oldest.startswith("2023-11-19") and "all 3 experiments" in oldest
        assert "With it changed: driver 580.1 → 581.1." in oldest
        assert page.evaluate("document.documentElement.scrollWidth") == viewport["width"]
        for at in (0, 1):
            box = cards.nth(at).bounding_box()
            assert box and box["y"] >= 0 and box["y"] + box["height"] <= viewport["height"]
        assert seen.wrong == []


def test_the_chart_opens_at_the_newest_event_with_commits_and_drivers_on_its_axis(
    browser: Browser, folder: Path
) -> None:
    with opened(browser, folder) as (page, _):
        draw_all(page)
        chart = page.locator("#chart-trend")
        assert "liger" in chart.locator("select").first.input_value()
        assert chart.bounding_box()["y"] < WIDE["height"] / 2, "the chart is next to the cards"  # type: ignore[index]
        labels = chart.locator(".plot .xtick").all_text_contents()
        assert "3cccccc11-21" in labels, "the step has a label"
        assert "2cccccc11-19driver581.1" in labels
        assert page.locator('.event [aria-pressed="true"]').count() == 1
        assert page.locator('.sparkline[aria-pressed="true"]').count() == 1


@pytest.mark.parametrize("viewport", [WIDE, PHONE], ids=["wide", "phone"])
def test_a_click_on_a_card_or_a_small_curve_shows_its_chart(
    browser: Browser, folder: Path, viewport: dict[str, int]
) -> None:
    from playwright.sync_api import expect

    with opened(browser, folder, viewport=viewport) as (page, seen):
        draw_all(page)
        chosen, plot = page.locator("#chart-trend .choices select").first, page.locator("#chart-trend .plot")
        page.locator(".event").nth(1).click(position={"x": 20, "y": 10})
        assert chosen.input_value() == "all 3 experiments"
        expect(plot).to_be_in_viewport(ratio=0.9)
        assert "all 3 experiments" in page.locator(".event:has([aria-pressed='true'])").inner_text()
        curve = page.locator(".sparkline").last
        name = curve.locator(".name").inner_text().replace("\n", " ")
        curve.click()
        metric = page.locator("#chart-trend .choices select").nth(1).input_value()
        assert name == f"{metric} {chosen.input_value()}"
        expect(plot).to_be_in_viewport(ratio=0.9)
        page.reload()
        assert chosen.input_value() in name, "the view is kept in the address"
        assert seen.wrong == []
