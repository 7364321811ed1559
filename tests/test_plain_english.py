"""Plain English, as far as a test can hold it: first words of docstrings, idioms to avoid, the longest sentence.

CONTRIBUTING.md has the rule for people. A word that the test refuses has a plainer one next to it in IDIOMS.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CODE = sorted(
    path for folder in ("orchestrator", "tunebench", "benchmarks", "examples") for path in (ROOT / folder).rglob("*.py")
)
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
LONGEST_SENTENCE = 30  # words; the rule for people is 25

NO_FIRST_WORD = {"What", "Whether", "How", "Where", "Which", "Who", "Whose", "Why", "Of", "By"}
NO_VERB = set("The A An One Each Every All Those That This For From In As At While".split())  # noqa: SIM905
VERBS_IN_S = {"Pass", "Process", "Express", "Compress", "Discuss", "Press"}

IDIOMS = {
    r"(?<!there )\bis no (?!longer\b|more\b)": "is not a",
    r"\b(stands|lies)\b": "is, contains",
    r"\balone\b": "only, by itself",
    r"\bbeside\b": "next to, with, besides",
    r"\b(tokens|samples|steps|bytes|GiB|MiB|readings|times|joules|once|twice) an? (second|step|device|run|rank|GPU|hour)\b": "per",
    r"\b(is|are) (told|said)\b": "reports, says",
    r"\bof (ours|theirs)\b": "our, Tunebench's",
    r"\b(of|by|from) which\b|\bby what\b": "whose, or two sentences",
    r"(?<!\")\bnobody\b": "no one",  # the quoted word is a user of Unix
    r"\bcould not be told apart\b": "no clear difference",
    r"\bis not right\b": "is invalid",
}


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a text, its white space folded; indented lines and lists of names are no sentences."""
    for block in re.split(r"\n\s*\n", text):
        lines = [line for line in block.splitlines() if not line.startswith("    ")]
        for part in re.split(r"\n(?=\s*(?:[-*]|\d+\.) )", "\n".join(lines)):
            yield from re.split(r"(?<=[.;:?!])\s+", re.sub(r"\s+", " ", part).strip())


def too_long(text: str) -> list[str]:
    return [sentence for sentence in sentences(text) if len(sentence.split()) > LONGEST_SENTENCE]


def prose_of(page: Path) -> str:
    """Return a page without its code blocks, tables, names in code and links."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"\]\([^)]*\)", "]", re.sub(r"`[^`\n]+`", "`…`", text))
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("|"))


def words_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yield what a module says in comments, docstrings and texts, with its line."""
    for token in tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING):
            yield token.start[0], token.string


def documented(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            text = ast.get_docstring(node)
            if text:
                yield node, text


def is_property(node: ast.AST) -> bool:
    decorators = getattr(node, "decorator_list", [])
    return any("property" in ast.unparse(decorator) for decorator in decorators)


@pytest.mark.parametrize("path", CODE, ids=lambda path: str(path.relative_to(ROOT)))
def test_docstrings_begin_plainly(path: Path) -> None:
    for node, text in documented(ast.parse(path.read_text(encoding="utf-8"))):
        first, place = text.split()[0].strip(",:`"), f"line {getattr(node, 'lineno', 1)}: {text.splitlines()[0]}"
        assert first not in NO_FIRST_WORD, place
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and not is_property(node):
            assert first not in NO_VERB, f"begin with a verb in the imperative; {place}"
            assert not first.endswith("s") or first in VERBS_IN_S, f"the imperative has no s; {place}"


@pytest.mark.parametrize("path", CODE, ids=lambda path: str(path.relative_to(ROOT)))
def test_comments_on_constants_are_comments(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
            for statement in node.body[1:]:
                bare = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
                assert not bare or statement.value.value is ..., f"line {statement.lineno}: a `#` line above it says so"


@pytest.mark.parametrize("path", [*CODE, *PAGES], ids=lambda path: str(path.relative_to(ROOT)))
def test_no_idiom_that_must_be_read_twice(path: Path) -> None:
    said = words_of(path) if path.suffix == ".py" else enumerate(prose_of(path).splitlines(), 1)
    for line, text in said:
        for idiom, plain in IDIOMS.items():
            match = re.search(idiom, text)
            assert not match, f"line {line}: {match[0]!r}; write {plain!r}: {text.strip()[:120]}"


@pytest.mark.parametrize("path", [*CODE, *PAGES], ids=lambda path: str(path.relative_to(ROOT)))
def test_no_sentence_is_longer_than_a_breath(path: Path) -> None:
    if path.suffix == ".py":
        texts = [text for _, text in documented(ast.parse(path.read_text(encoding="utf-8")))]
    else:
        texts = [prose_of(path)]
    assert not [sentence for text in texts for sentence in too_long(text)]


ERRORS = {
    "OrchestratorError",
    "ConfigError",
    "SelectionError",
    "ResultsError",
    "LaunchError",
    "PreparationError",
    "BuildError",
}
OURS = [
    path for path in CODE if "orchestrator" in path.parts and "workers" not in path.parts
]  # a worker's error is quoted


@pytest.mark.parametrize("path", OURS, ids=lambda path: str(path.relative_to(ROOT)))
def test_errors_begin_small_and_end_without_a_full_stop(path: Path) -> None:
    """The command writes `error: ` before them."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id not in ERRORS:
            continue
        parts = node.args[0].values if node.args and isinstance(node.args[0], ast.JoinedStr) else node.args
        if parts and isinstance(first := parts[0], ast.Constant):
            assert not re.match(r"[A-Z][a-z]+\b", str(first.value)), f"line {node.lineno}: {first.value}"
        if parts and isinstance(last := parts[-1], ast.Constant):
            assert not str(last.value).endswith("."), f"line {node.lineno}: {last.value}"
