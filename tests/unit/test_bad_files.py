"""Wrong files, and what their writer is told: every message is a golden text beside the file that it is about.

golden/errors/<kind>/<case>.yaml is a wrong file of that kind, used with the right ones of golden/errors/right. <case>.txt is
what is said of it: one text for each kind of sentence. Read them: they are for a person who has the file open and does not know
our code. For the other files of a kind, golden/errors/places.yaml has the place and the words that begin the sentence.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from orchestrator.errors import ConfigError
from orchestrator.machine.provenance import Machine
from orchestrator.plan.config import load_suite
from orchestrator.plan.data import FINGERPRINT_FILE, worker_functions
from orchestrator.plan.expand import expand
from orchestrator.plan.selection import Selection

ROOT = Path(__file__).parents[2]
ERRORS = ROOT / "tests" / "golden" / "errors"
RIGHT = ERRORS / "right"
KINDS = ("scenarios", "defaults", "accelerate", "contents", "framework")
CASES = [f"{kind}/{path.stem}" for kind in KINDS for path in sorted((ERRORS / kind).glob("*.yaml"))]
PLACES: dict[str, str] = yaml.safe_load((ERRORS / "places.yaml").read_text(encoding="utf-8"))
Golden = Callable[[str, str], None]


def folder_with(folder: Path, *, kind: str, content: bytes) -> Path:
    """The right files in `folder`, the one of this kind replaced."""
    shutil.copytree(RIGHT, folder, dirs_exist_ok=True)
    place = {"contents": "frameworks/CONTENTS.yaml", "framework": "frameworks/baseline.yaml"}.get(kind, f"{kind}.yaml")
    (folder / place).write_bytes(content)
    return folder


def said_of(folder: Path) -> str:
    """What the user is told, with paths as seen from the folder."""
    with pytest.raises(ConfigError) as caught:
        expand(load_suite(folder / "scenarios.yaml"), Selection(), Machine())
    return str(caught.value).replace(f"{folder}/", "").replace(str(folder), ".") + "\n"


@pytest.mark.parametrize(
    "lines",
    [
        "env: {HF_TOKEN: [Tr0ub4dor-and-3xtra]}",
        "zip: {api_key: [xxxxxxxxxxxxxxxxxxxxxxxxxxxxx, Tr0ub4dor-and-3xtra]}",
        "matrix: {api_key: [a, Tr0ub4dor-and-3xtra]}, exclude: [{api_key: c}]",
        "matrix: {api_key: [a, b]}, baseline: {api_key: Tr0ub4dor-and-3xtra}",
    ],
)
def test_no_message_shows_the_value_of_a_secret(lines: str, tmp_path: Path) -> None:
    model = "trainer: huggingface, arguments: {model_name_or_path: config:tiny-llama}"
    content = f"scenarios: [{{name: s, {model}, {lines}}}]\n"
    said = said_of(folder_with(tmp_path, kind="scenarios", content=content.encode()))
    assert "***" in said and "Tr0" not in said, said


def test_the_right_files_are_right() -> None:
    assert len(expand(load_suite(RIGHT / "scenarios.yaml"), Selection(), Machine()).experiments) == 1


@pytest.mark.parametrize("case", CASES)
def test_a_wrong_file_is_explained(case: str, tmp_path: Path, golden: Golden) -> None:
    kind = case.partition("/")[0]
    said = said_of(folder_with(tmp_path, kind=kind, content=(ERRORS / f"{case}.yaml").read_bytes()))
    if case in PLACES:
        place, words = PLACES[case].split(" ", 1)
        assert said.startswith(f"{place}: ") and words in said and said.count("\n") == 1, said
    else:
        golden(f"errors/{case}.txt", said)
    for line in said.splitlines():
        assert re.match(r"(frameworks/)?\w+\.yaml(:\d+:\d+)?: \S", line), (
            "each problem is one line that begins with its place"
        )
        assert not re.search(r"pydantic|Traceback|Error\b|\b(Input|None|True|False|tuple|dict|NoneType|__\w+)\b", line)


def laughs() -> bytes:
    """Nine levels of nine aliases each: 387 million values in 300 bytes."""
    lines = ["a0: &a0 [ha, ha, ha, ha, ha, ha, ha, ha, ha]"]
    lines += [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]" for level in range(1, 9)]
    return "\n".join(lines).encode()


def merged_laughs() -> bytes:
    """The same with merge keys, each of which would be merged anew."""
    lines = ["a0: &a0 {x: 1}"]
    lines += [f"a{level}: &a{level} {{<<: [{', '.join([f'*a{level - 1}'] * 9)}]}}" for level in range(1, 9)]
    return "\n".join(lines).encode()


def alias_ladder() -> bytes:
    """Each anchor holds the one before: shallow to read, too deep to build."""
    return "\n".join(["a0: &a0 [x]", *(f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 2000))]).encode()


GENERATED: dict[str, Callable[[], bytes]] = {
    "hundred-megabytes": lambda: b"# " + b"x" * 100_000_000,
    "billion-laughs": laughs,
    "billion-merges": merged_laughs,
    "alias-ladder": alias_ladder,
    "many-values": lambda: b"a: [" + b"1," * 4_000_000 + b"1]",
    "many-mistakes": lambda: b"".join(b"- {x: 1, x: 1}\n" for _ in range(5000)),
    "digits": lambda: b"a: [%s, 0x%s, 1%s]" % (b"9" * 5000, b"f" * 5000, b":59" * 500_000),
    "deep-brackets": lambda: b"a: " + b"[" * 5000 + b"]" * 5000,
    "deep-indentation": lambda: b"".join(b"%sa:\n" % (b" " * level) for level in range(100)),
    "latin-1": lambda: "scenarios:\n- name: größe\n".encode("latin-1"),
    "utf-16": lambda: "scenarios:\n- name: s\n".encode("utf-16"),
    "binary": lambda: bytes(range(256)),
}


@pytest.mark.parametrize("kind", ["scenarios", "defaults"])
@pytest.mark.parametrize("case", GENERATED)
def test_a_file_that_is_no_file_of_ours_is_refused_at_once(
    case: str, kind: str, tmp_path: Path, golden: Golden
) -> None:
    said = said_of(folder_with(tmp_path, kind=kind, content=GENERATED[case]()))
    golden(f"errors/generated/scenarios-{case}.txt", said.replace(f"{kind}.yaml", "scenarios.yaml"))


def test_a_missing_file_and_a_folder_are_said(tmp_path: Path, golden: Golden) -> None:
    shutil.copytree(RIGHT, tmp_path, dirs_exist_ok=True)
    (tmp_path / "scenarios.yaml").unlink()
    (tmp_path / "defaults.yaml").unlink()
    (tmp_path / "defaults.yaml").mkdir()
    golden("errors/generated/missing-and-folder.txt", said_of(tmp_path))


def test_mistakes_of_all_files_are_said_together(tmp_path: Path, golden: Golden) -> None:
    shutil.copytree(RIGHT, tmp_path, dirs_exist_ok=True)
    (tmp_path / "scenarios.yaml").write_text("scenarios:\n- name: s\n  repeat: 3\n  device: gpu\n")
    (tmp_path / "defaults.yaml").write_text("max_steps: 1\nmax_steps: 2\n")
    (tmp_path / "accelerate.yaml").write_text("mixed_precison: bf16\n")
    (tmp_path / "frameworks" / "eager.yaml").write_text("min_gpu: 1\n")
    golden("errors/generated/all-files.txt", said_of(tmp_path))


def test_a_folder_of_data_that_is_a_disk_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    monkeypatch.setitem(worker_functions(FINGERPRINT_FILE)["fingerprint"].__globals__, "MAX_FILES", 2)
    content = (RIGHT / "scenarios.yaml").read_bytes() + b"data_processing:\n  dataset_name: .\n"
    golden("errors/generated/data-folder.txt", said_of(folder_with(tmp_path, kind="scenarios", content=content)))
