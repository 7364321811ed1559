"""The preparation of data, as the processes that do it: sources, splits, both forms, and two at once."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from fingerprint import tokenizer_fingerprint
from folders import make_folder
from formatting import Spec
from prepare import already_tokenized
from sources import PreparationError, load_rows, part
from stdlib_docs import stdlib_pairs

from orchestrator.files.redaction import redact_file

WORKER = Path(__file__).parents[2] / "orchestrator/workers/prepare/prepare.py"
ROWS = [{"instruction": f"Add {n} and 1", "input": "", "output": str(n + 1)} for n in range(10)]


def start(folder: Path, **fields: Any) -> subprocess.Popen[str]:
    spec = folder / f"spec-{len(list(folder.glob('spec-*')))}.json"
    spec.write_text(json.dumps({"path": str(folder / "made"), "form": "tokens", **fields}))
    return subprocess.Popen([sys.executable, str(WORKER), str(spec)], stderr=subprocess.PIPE, text=True)


def end(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, stderr = process.communicate(timeout=120)
    return process.returncode, stderr.strip().rsplit("\n", 1)[-1]


@pytest.fixture(scope="module")
def docs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built-in data, made by two processes at once; with the tokenizer that both wanted to train."""
    folder = tmp_path_factory.mktemp("docs")
    fields = {"source": "builtin:stdlib-docs", "split": "train[:300]", "response_template": "\n### Response:"}
    both = [start(folder, **fields) for _ in range(2)]
    assert [end(process) for process in both] == [(0, ""), (0, "")]
    return folder


@pytest.fixture(scope="module")
def pairs() -> list[dict[str, str]]:
    """Read once: every file of the standard library is parsed for it."""
    return stdlib_pairs()


def test_two_at_once_leave_one_whole_folder(docs: Path) -> None:
    names = sorted(path.name for path in docs.iterdir() if not path.name.startswith("spec-"))
    assert names[0] == "made"
    assert len(names) == 2, "the loser's copy and temporary folders are gone"
    assert names[1].startswith("tokenizer-4096-")
    assert sorted(path.name for path in (docs / "made").iterdir()) == ["manifest.json", "tokenizer", "tokens.npz"]


def test_tokens_agree_with_the_manifest(docs: Path) -> None:
    manifest = json.loads((docs / "made/manifest.json").read_text())
    arrays = np.load(docs / "made/tokens.npz")
    assert manifest["rows"] == len(arrays["offsets"]) - 1 == 300
    assert manifest["tokens"] == arrays["offsets"][-1] == len(arrays["input_ids"]) == len(arrays["labels"])
    assert manifest["largest_token_id"] < 4096
    assert manifest["response_only"] is True
    ends = arrays["input_ids"][arrays["offsets"][1:] - 1]
    assert set(ends.tolist()) == {manifest["eos_token_id"]}


def test_labels_are_the_docstrings_alone_in_the_order_of_another_process(
    docs: Path, pairs: list[dict[str, str]]
) -> None:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(docs / "made/tokenizer/tokenizer.json"))
    arrays = np.load(docs / "made/tokens.npz")
    offsets = arrays["offsets"]
    rows = [arrays["labels"][begin:end] for begin, end in pairwise(offsets)]
    texts = [tokenizer.decode(row[row >= 0].tolist()) for row in rows]
    assert [text.strip() for text in texts] == [pair["output"].strip() for pair in pairs[:300]]


def test_a_damaged_tokenizer_of_the_cache_is_trained_anew(docs: Path, tmp_path: Path) -> None:
    (cached,) = docs.glob("tokenizer-*")
    shutil.copytree(cached, tmp_path / cached.name)
    damaged = tmp_path / cached.name / "tokenizer.json"
    os.truncate(damaged, damaged.stat().st_size // 2)
    code, said = end(start(tmp_path, source="builtin:stdlib-docs", split="train[:10]"))
    assert code == 0 and f"{damaged.parent} is damaged, and is made anew" in said
    assert damaged.read_bytes() == (cached / "tokenizer.json").read_bytes()


def test_the_trained_tokenizer_loads_in_transformers(docs: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(docs / "made/tokenizer")
    assert (tokenizer.eos_token, tokenizer.pad_token) == ("</s>", "<pad>")
    assert tokenizer.decode(tokenizer("naïve 你好\n", add_special_tokens=False)["input_ids"]) == "naïve 你好\n"


def test_a_tokenizer_that_changed_after_the_plan_is_refused(docs: Path, tmp_path: Path) -> None:
    fields = {"source": "builtin:stdlib-docs", "split": "train[:10]", "tokenizer": str(docs / "made/tokenizer")}
    code, last = end(start(tmp_path, **fields, tokenizer_fingerprint="0" * 16))
    assert (code, "tokenizer' changed after the plan was made; run the same command again" in last) == (1, True)
    assert not (tmp_path / "made").exists()
    planned = tokenizer_fingerprint(fields["tokenizer"])
    assert planned is not None and end(start(tmp_path, **fields, tokenizer_fingerprint=planned)) == (0, "")


def test_what_exists_is_not_made_again(docs: Path) -> None:
    before = (docs / "made/tokens.npz").stat().st_mtime_ns
    assert end(start(docs, source="builtin:stdlib-docs")) == (0, "")
    assert (docs / "made/tokens.npz").stat().st_mtime_ns == before


def test_stdlib_pairs_are_many(pairs: list[dict[str, str]]) -> None:
    assert len(pairs) > 1000
    (dumps,) = [pair for pair in pairs if pair["instruction"] == "What does json.dumps do?"]
    assert dumps["input"].startswith("json.dumps(obj, ")
    assert dumps["output"].startswith("Serialize ``obj`` to a JSON formatted ``str``.")


def test_synthetic_data_are_fixed_by_their_seed(tmp_path: Path) -> None:
    fields = {"source": "builtin:synthetic", "max_length": 16, "samples": 5, "vocab_size": 100}
    made = []
    for name, seed, form in (("a", 1, "tokens"), ("b", 1, "tokens"), ("c", 2, "tokens"), ("d", 1, "text")):
        (tmp_path / name).mkdir()
        assert end(start(tmp_path / name, **fields, seed=seed, form=form)) == (0, "")
        made.append(json.loads((tmp_path / name / "made/manifest.json").read_text())["digest"])
    assert made[0] == made[1] != made[2]
    lines = [json.loads(line) for line in (tmp_path / "d/made/train.json").read_text().splitlines()]
    assert [len(line["input_ids"]) for line in lines] == [16] * 5
    assert all(1 <= token < 100 for line in lines for token in line["input_ids"])


def test_it_finds_its_modules_where_python_leaves_out_the_script_s_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONSAFEPATH", "1")
    fields = {"source": "builtin:synthetic", "max_length": 16, "samples": 5, "vocab_size": 100, "split": "train[:2]"}
    assert end(start(tmp_path, **fields)) == (0, "")
    assert len(np.load(tmp_path / "made/tokens.npz")["offsets"]) == 3, "two rows: the split counts"


def test_it_ends_when_the_process_that_started_it_is_killed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "spec.json")  # the worker waits for its specification for ever
    code = f"import subprocess, sys; subprocess.run([sys.executable, {str(WORKER)!r}, 'spec.json'])"
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=tmp_path)
    started = (psutil.Process(parent.pid).children() for _ in iter(lambda: time.sleep(0.05), 1))
    worker = next(filter(None, started))[0]
    time.sleep(1)
    parent.kill()
    try:
        parent.communicate(timeout=20)  # until the worker has closed its side of the pipe, too
    finally:
        with suppress(psutil.Error):
            worker.kill()


def test_folders_that_killed_processes_left_are_removed_and_those_of_living_ones_stay(tmp_path: Path) -> None:
    code = "import folders; folders.make_folder('made', lambda aside: input(print(aside, flush=True)))"
    pipe, at = subprocess.PIPE, {"cwd": tmp_path, "env": {**os.environ, "PYTHONPATH": str(WORKER.parent)}}
    killed, living = (
        subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe, text=True, **at) for _ in "ab"
    )
    try:
        left, kept = (Path((process.stdout or sys.stdin).readline().strip()) for process in (killed, living))
        killed.kill()
        killed.communicate()
        users = tmp_path / ".made.backup.12345678"
        users.mkdir()
        assert left.is_dir() and kept.is_dir()
        assert make_folder(str(tmp_path / "another"), lambda aside: Path(aside, "a").touch())
        assert sorted(tmp_path.iterdir()) == sorted([kept, users, tmp_path / "another"])
        living.communicate("\n", timeout=20)
        assert sorted(tmp_path.iterdir()) == sorted([users, tmp_path / "another", tmp_path / "made"])
    finally:
        living.kill()
        living.communicate()


def test_the_log_of_a_preparation_has_no_secret(tmp_path: Path) -> None:
    log = tmp_path / "data.log"
    log.write_text("retrying https://user:s3cretpw99x@mirror.example/hub\n")
    redact_file(log, limit=1000)
    assert "s3cretpw99x" not in log.read_text() and "retrying" in log.read_text()


def test_rows_that_are_tokens_already_stay_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "rows.json").write_text(json.dumps([{"input_ids": [1, 2, 3], "labels": [-100, 2, 3]}]))
    assert end(start(tmp_path, source=str(tmp_path / "rows.json"), formatting="none")) == (0, "")
    arrays = np.load(tmp_path / "made/tokens.npz")
    assert (arrays["input_ids"].tolist(), arrays["labels"].tolist()) == ([1, 2, 3], [-100, 2, 3])


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"labels": [1, 2, 3, 4]}, "row 2 of 's' has 3 input_ids and 4 labels; give one value for each token"),
        ({"labels": [1]}, "row 2 of 's' has 3 input_ids and 1 labels"),
        ({"labels": []}, "row 2 of 's' has 3 input_ids and 0 labels"),
        ({"attention_mask": [1, 1]}, "row 2 of 's' has 3 input_ids and 2 attention_mask"),
        ({"position_ids": [0]}, "row 2 of 's' has 3 input_ids and 1 position_ids"),
    ],
)
def test_a_column_with_another_length_than_the_tokens_is_refused(columns: dict[str, Any], sentence: str) -> None:
    rows = [{"input_ids": [1, 2]}, {"input_ids": [1, 2, 3], **columns}]
    with pytest.raises(PreparationError, match=re.escape(sentence)):
        already_tokenized(rows, Spec(source="s", path="p", formatting="none"))


@pytest.mark.parametrize(
    ("ids", "shown"),
    [
        (None, "None"),
        ("abc", "'abc'"),
        ([], "[]"),
        ([1, 2**31], "2147483648"),
        ([1, -1], "-1"),
        ([1.0, 1.7], "1.0"),
        ([[1], [2]], "[1]"),
        ([True], "True"),
        (["1"], "'1'"),
    ],
)
def test_tokens_that_are_not_whole_numbers_are_refused_and_not_changed(ids: Any, shown: str) -> None:
    spec = Spec(source="s", path="p", formatting="none")
    said = f"row 2 of 's' has {shown} in 'input_ids'; write a list of whole numbers from 0 to 2147483647."
    with pytest.raises(PreparationError, match=re.escape(said)):
        already_tokenized([{"input_ids": [1, 2]}, {"input_ids": ids}], spec)


@pytest.mark.parametrize(
    ("labels", "shown"), [("ab", "'ab'"), ([-100, 0.5], "0.5"), ([-1, 2], "-1"), ([None, 2], "None")]
)
def test_labels_are_whole_numbers_or_ignored(labels: Any, shown: str) -> None:
    said = f"row 1 of 's' has {shown} in 'labels'; write a list of whole numbers from 0 to 2147483647, or -100."
    with pytest.raises(PreparationError, match=re.escape(said)):
        already_tokenized([{"input_ids": [1, 2], "labels": labels}], Spec(source="s", path="p", formatting="none"))


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"source": "./no-such.jsonl"}, "error: there is no file or folder './no-such.jsonl'; give a JSON"),
        ({"source": "no-such/data"}, "'no-such/data' could not be loaded; builtin:stdlib-docs needs no download ("),
        ({"source": "builtin:nothing"}, "use builtin:stdlib-docs or builtin:synthetic."),
        (
            {"source": "builtin:synthetic", "samples": 10**12},
            "tokens are made, so write fewer `samples:`, or a smaller length.",
        ),
        ({"source": "builtin:stdlib-docs", "colour": 1}, "unexpected keyword argument 'colour'"),
    ],
)
def test_a_users_mistake_is_the_last_line(
    fields: dict[str, Any], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    code, last = end(start(tmp_path, **fields))
    assert (code, last.startswith("error: ")) == (1, True)
    assert sentence in last
    assert not (tmp_path / "made").exists()


def test_a_template_that_no_row_has_is_the_last_line(docs: Path, tmp_path: Path) -> None:
    """With the tokenizer that lies there."""
    (tmp_path / "rows.json").write_text(json.dumps(ROWS))
    fields = {"source": str(tmp_path / "rows.json"), "path": str(docs / "none"), "response_template": "### Nowhere"}
    code, last = end(start(docs, **fields))
    assert (code, last.startswith("error: ")) == (1, True)
    assert "none of the" in last
    assert not (docs / "none").exists()


# --- sources, in this process ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("split", "rows"),
    [
        (None, range(10)),
        ("train", range(10)),
        ("train[:3]", range(3)),
        ("train[7:]", range(7, 10)),
        ("train[2:4]", range(2, 4)),
        ("train[-2:]", range(8, 10)),
        ("train[:20%]", range(2)),
        ("train[50%:60%]", range(5, 6)),
        ("train[:2000]", range(10)),
    ],
)
def test_splits(split: str | None, rows: range) -> None:
    assert part(ROWS, split, "s") == [ROWS[number] for number in rows]


@pytest.mark.parametrize(
    ("split", "sentence"),
    [
        ("train[1]", "is invalid"),
        (f"train[:{'9' * 5000}]", "is invalid"),
        ("train+test", "is invalid"),
        ("train[10:]", "no rows"),
    ],
)
def test_splits_that_are_refused(split: str, sentence: str) -> None:
    with pytest.raises(PreparationError, match=sentence):
        part(ROWS, split, "s")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("rows.json", json.dumps(ROWS)),
        ("rows.json", json.dumps({"data": ROWS})),
        ("rows.json", "\n".join(map(json.dumps, ROWS))),
        ("rows.jsonl", "\n\n".join(map(json.dumps, ROWS)) + "\n"),
    ],
)
def test_json_in_its_forms(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    assert load_rows(str(tmp_path / name), "train[:4]") == ROWS[:4]


def test_built_in_data_have_only_the_split_train(tmp_path: Path) -> None:
    with pytest.raises(
        PreparationError, match="the only split of 'builtin:stdlib-docs' is 'train'; it has no split 'test'"
    ):
        load_rows("builtin:stdlib-docs", "test")


def test_a_folder_holds_splits_by_name(tmp_path: Path) -> None:
    (tmp_path / "train-0.jsonl").write_text(json.dumps(ROWS[0]))
    (tmp_path / "train-1.jsonl").write_text(json.dumps(ROWS[1]))
    (tmp_path / "test.jsonl").write_text(json.dumps(ROWS[2]))
    assert load_rows(str(tmp_path), None) == ROWS[:2]
    assert load_rows(str(tmp_path), "test") == [ROWS[2]]
    with pytest.raises(PreparationError, match="for the split 'validation'"):
        load_rows(str(tmp_path), "validation")


@pytest.mark.parametrize("saved", [False, True])
@pytest.mark.parametrize(
    "make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero"), lambda path: path.symlink_to("gone")]
)
def test_a_folder_with_a_pipe_or_a_device_is_refused_and_never_read(
    make: Callable[[Path], None], saved: bool, tmp_path: Path
) -> None:
    if saved:
        (tmp_path / "dataset_info.json").write_text("{}")
    (tmp_path / "train-0.jsonl").write_text(json.dumps(ROWS[0]))
    make(tmp_path / "train-1.jsonl")
    with pytest.raises(PreparationError, match=r"train-1.jsonl' is not a file that can be read; remove it from"):
        load_rows(str(tmp_path), None)


def test_parquet_goes_through_datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")  # nobody's home is needed for it
    datasets.Dataset.from_list(ROWS).to_parquet(tmp_path / "rows.parquet")
    assert load_rows(str(tmp_path / "rows.parquet"), "train[:2]") == ROWS[:2]


def test_a_saved_data_set_gives_lists_even_if_it_is_saved_for_numpy(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    saved = datasets.Dataset.from_list([{"input_ids": [1, 2]}]).with_format("numpy")
    saved.save_to_disk(tmp_path / "saved")
    assert load_rows(str(tmp_path / "saved"), None) == [{"input_ids": [1, 2]}]


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.jsonl", b'{"a": 1}\nnonsense\n', r"a\.jsonl:2: not JSON"),
        ("a.json", b"[1, 2]", "row 1 is int, not an object"),
        ("a.jsonl", b"\xff\xfe\x00", "cannot be read as UTF-8"),
        ("a.csv", b"a,b", "does not end in .json, .jsonl, .parquet"),
        ("a.jsonl", b"", "has no rows"),
        ("a.jsonl", b"{}\n" + b"[" * 100_000, r"a\.jsonl:2: the JSON is too deep"),
        ("a.json", b"[" * 100_000, r"a\.json:1: the JSON is too deep"),
        ("a.jsonl", b"9" * 5000, r"a\.jsonl:1: not JSON \(Exceeds the limit"),
    ],
)
def test_files_that_cannot_be_read(name: str, content: bytes, sentence: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(PreparationError, match=sentence):
        load_rows(str(tmp_path / name), None)
