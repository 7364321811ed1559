"""The page of a history in a real browser: opened from a disk, drawn, chosen from, read by axe-core; names are text in it."""

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
    """Three experiments over ten campaigns, one of them of hostile names; each with a step."""
    root = tmp_path_factory.mktemp("history")
    odd = replace(BASE, id="odd-000000000000", scenario=HOSTILE, model=HOSTILE)
    for day in range(10):
        speed = 1000.0 + day % 3 + (100 if day >= 5 else 0)
        cells = [
            (one, measured(one, day, [times * speed, times * speed + 5], torch=HOSTILE))
            for times, one in enumerate((BASELINE, LIGER, odd), start=1)
        ]
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
        assert page.locator("#steps .highlights li").count() == 4
        assert "better (+10" in page.locator("#chart-trend .summary").first.inner_text()
        drawn = page.locator("#chart-trend .plot .ytick").first.text_content() or ""
        page.locator("#chart-trend .choices select").first.select_option(index=2)
        expect(page.locator("#chart-trend .summary").first).to_contain_text("the last has 2,2")
        expect(page.locator("#chart-trend .plot .ytick").first).not_to_have_text(drawn)
        assert page.locator(".sparkline").count() == 4
        name = page.locator(".sparkline").nth(1).locator(".name").inner_text().partition(" ")[2]
        page.locator(".sparkline").nth(1).click()
        assert page.locator("#chart-trend .choices select").first.input_value() == name
        page.locator("#chart-trend .choices select").first.select_option(index=2)
        show_numbers(page.locator("#chart-trend"))
        expect(page.locator("#chart-trend .numbers tbody tr")).to_have_count(10)
        found = serious(page)
        assert page.evaluate("document.documentElement.scrollWidth") == viewport["width"]
        assert seen.wrong == []
    assert found == []
