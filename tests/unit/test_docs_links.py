"""Links between the pages lead somewhere, docs/architecture.md names files that exist, and examples import what exists."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("*.md")),
    ROOT / "docs/sample/README.md",
]
_LINK = re.compile(r"\]\((?!https?:)(?P<file>[^)#\s]*)(?:#(?P<heading>[^)\s]+))?\)")


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub makes of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_to_a_file_and_a_heading(page: Path) -> None:
    for link in _LINK.finditer(page.read_text(encoding="utf-8")):
        target = page.parent / link["file"] if link["file"] else page
        assert target.exists(), f"{page.name} links to {link['file']}, which does not exist"
        assert not link["heading"] or link["heading"] in anchors(target), f"{page.name}: no heading {link['heading']}"


def test_the_architecture_names_files_that_exist() -> None:
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    named = re.findall(r"`([\w.-]+/[\w./-]*)`(?! \*\(new\)\*)", text[text.index("## To change X") :])
    assert len(named) > 50
    assert [path for path in named if not any((root / path).exists() for root in (ROOT, ROOT / "orchestrator"))] == []


def test_python_in_the_pages_imports_names_that_exist() -> None:
    blocks = re.findall(
        r"^```python\n(.*?)^```", (ROOT / "docs/add-a-plug.md").read_text(encoding="utf-8"), re.M | re.S
    )
    imports = re.findall(r"^from (orchestrator\S*) import (.+)$", "\n".join(blocks), re.MULTILINE)
    assert len(imports) > 5
    for module, names in imports:
        for name in names.split(", "):
            assert hasattr(importlib.import_module(module), name), f"docs/add-a-plug.md: {module} has no {name}"
