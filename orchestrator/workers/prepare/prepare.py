"""Prepares training data once, outside of every measurement: `prepare.py SPEC.json`.

SPEC.json has the fields of `formatting.Spec`. The program makes the folder `path` unless this folder exists. The folder has these
files:

    form `tokens` (built-in trainer)   `tokens.npz` (`input_ids`, `labels`: flat int32; `offsets`: int64), `tokenizer/`
    form `text` (other trainers)       `train.json`, one object per line
    both                               `manifest.json`, which describes the content and its origin

The exit code is 0. After an error it is 1, and the last line on stderr is `error: …`. Of the model, only the tokenizer is read.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import importlib.metadata
import json
import os
import platform
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Optional

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # PYTHONSAFEPATH leaves the script's folder out

from fingerprint import fingerprint, tokenizer_fingerprint
from folders import described, files_below, make_folder
from formatting import (
    IGNORED,
    PreparationError,
    Sample,
    Spec,
    Tokenized,
    check_spec,
    format_rows,
    of_row,
    tokenize_samples,
)
from sources import load_rows, part_of_train

SYNTHETIC = "builtin:synthetic"
PACKAGES = ("numpy", "tokenizers", "transformers", "datasets")
PER_TOKEN = ("labels", "attention_mask", "position_ids", "token_type_ids", "special_tokens_mask")
LARGEST_ID = 2**31 - 1  # `tokens.npz` has 32 bits for a token
SYNTHETIC_ROWS, SYNTHETIC_LENGTH, SYNTHETIC_VOCABULARY = 1000, 512, 4096
# Each token needs 16 bytes of memory.
MOST_SYNTHETIC = 2**31


def read_spec(path: str) -> Spec:
    try:
        with open(path, encoding="utf-8") as file:
            fields = json.load(file)
        return Spec(**fields)
    except (OSError, ValueError, TypeError) as error:
        raise PreparationError(f"{path!r} is not a specification of data to prepare: {error}") from error


def prepare(spec: Spec) -> bool:
    """Make the folder of a spec unless it exists, and return whether this call made it."""
    check_spec(spec)
    return make_folder(spec.path, lambda folder: write(spec, folder))


def write(spec: Spec, folder: str) -> None:
    if spec.source == SYNTHETIC:
        tokenizer, samples = None, []
        rows = part_of_train(list(synthetic(spec)), spec.split, spec.source)
    else:
        source_rows = load_rows(spec.source, spec.split)[: spec.samples]
        require_unchanged(spec.source, spec.fingerprint, fingerprint)
        tokenizer = find_tokenizer(spec) if spec.wants_tokens or spec.chat_template else None
        rows = already_tokenized(source_rows, spec)
        special = tokenizer.special_tokens if tokenizer else {}
        samples = [] if rows else format_rows(source_rows, spec, special_tokens=special)
    if not spec.wants_tokens and samples:
        facts = write_lines(({spec.text_field: sample.text} for sample in samples), folder)
    else:
        rows = rows or learnable(samples, spec, tokenizer)
        facts = write_tokens(rows, folder) if spec.form == "tokens" else write_lines(map(as_line, rows), folder)
    write_manifest(spec, folder, facts, tokenizer)


def require_unchanged(path: str, planned: Optional[str], digest: Callable[[str], Optional[str]]) -> None:
    """Raise PreparationError if the digest of a path is not the planned one. None was planned for what is not on this machine."""
    try:
        unchanged = planned is None or digest(path) == planned
    except OSError:
        unchanged = False
    if not unchanged:
        raise PreparationError(f"{path!r} changed after the plan was made; run the same command again.")


def find_tokenizer(spec: Spec) -> Any:
    from tokenizing import load_tokenizer

    cache = os.path.dirname(os.path.abspath(spec.path))
    tokenizer = load_tokenizer(spec.tokenizer, vocab_size=spec.vocab_size, cache=cache)
    require_unchanged(spec.tokenizer or "", spec.tokenizer_fingerprint, tokenizer_fingerprint)
    return tokenizer


def already_tokenized(rows: Sequence[dict[str, Any]], spec: Spec) -> list[Tokenized]:
    """Return the rows' own tokens if all rows have `input_ids` and `formatting` is `none`, else an empty list."""
    if spec.formatting != "none" or not all("input_ids" in row for row in rows):
        return []
    tokens = []
    for number, row in enumerate(rows, start=1):
        with of_row(number, row, spec):
            tokens.append(own_tokens(row, slice(spec.max_length)))
    return tokens


def own_tokens(row: dict[str, Any], part: slice) -> Tokenized:
    """Return this part of a row's tokens. Raise PreparationError for other values, or another number of values, than tokens."""
    columns = {name: row[name] for name in PER_TOKEN if row.get(name) is not None}
    ids = row["input_ids"]
    labels = columns.get("labels", ids)
    for name, values in (("input_ids", ids), ("labels", labels)):
        items = values if isinstance(values, list) and (values or name == "labels") else [values]
        wrong = [item for item in items if type(item) is not int or not 0 <= item <= LARGEST_ID]
        wrong = [item for item in wrong if name == "input_ids" or item != IGNORED]
        if wrong:
            also = f", or {IGNORED}" if name == "labels" else ""
            raise PreparationError(
                f"has {wrong[0]!r:.50} in {name!r}; write a list of whole numbers from 0 to {LARGEST_ID}{also}."
            )
    for name, values in columns.items():
        if len(values) != len(ids):
            raise PreparationError(f"has {len(ids)} input_ids and {len(values)} {name}; give one value for each token.")
    return Tokenized(input_ids=ids[part], labels=labels[part])


def learnable(samples: Sequence[Sample], spec: Spec, tokenizer: Any) -> list[Tokenized]:
    """Return the samples as tokens. Raise PreparationError if no sample contains the response template."""
    rows = tokenize_samples(samples, spec, tokenizer=tokenizer)
    if spec.response_template and not any(spec.response_template in sample.text for sample in samples):
        raise PreparationError(
            f"none of the {len(samples)} rows contains the response template {spec.response_template!r}; "
            "write it exactly as in the formatted text."
        )
    return rows


def synthetic(spec: Spec) -> list[Tokenized]:
    """Return rows of random tokens, all of one length, from a seeded generator. Token 0 is reserved for padding."""
    rows, length = spec.samples or SYNTHETIC_ROWS, spec.max_length or SYNTHETIC_LENGTH
    if rows * length > MOST_SYNTHETIC:
        raise PreparationError(
            f"{SYNTHETIC}: {rows} rows of {length} tokens are too many; at most {MOST_SYNTHETIC:,} tokens are made, so write fewer "
            "`samples:`, or a smaller length."
        )
    values = np.random.default_rng(spec.seed).integers(1, spec.vocab_size or SYNTHETIC_VOCABULARY, size=(rows, length))
    return [Tokenized(input_ids=row, labels=row) for row in values]


# --- writing ---------------------------------------------------------------------------------------------------------


def as_line(row: Tokenized) -> dict[str, Any]:
    ids, labels = (np.asarray(values).tolist() for values in (row.input_ids, row.labels))
    return {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": labels}


def write_tokens(rows: Sequence[Tokenized], folder: str) -> dict[str, Any]:
    offsets = np.cumsum([0, *(len(row.input_ids) for row in rows)], dtype=np.int64)
    input_ids = np.concatenate([np.asarray(row.input_ids, dtype=np.int32) for row in rows])
    labels = np.concatenate([np.asarray(row.labels, dtype=np.int32) for row in rows])
    np.savez(os.path.join(folder, "tokens.npz"), input_ids=input_ids, labels=labels, offsets=offsets)
    lengths = np.diff(offsets)
    return {
        "rows": len(rows),
        "tokens": int(offsets[-1]),
        "learnt_tokens": int((labels >= 0).sum()),
        "shortest_row": int(lengths.min()),
        "longest_row": int(lengths.max()),
        "largest_token_id": int(input_ids.max()),
        "digest": hashlib.sha256(input_ids.tobytes() + labels.tobytes() + offsets.tobytes()).hexdigest()[:16],
    }


def write_lines(rows: Any, folder: str) -> dict[str, Any]:
    digest, count, tokens = hashlib.sha256(), 0, 0
    with open(os.path.join(folder, "train.json"), "w", encoding="utf-8") as file:
        for row in rows:
            line = json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n"
            file.write(line)
            digest.update(line.encode())
            count, tokens = count + 1, tokens + len(row.get("input_ids", ()))
    return {"rows": count, "tokens": tokens or None, "digest": digest.hexdigest()[:16]}


def write_manifest(spec: Spec, folder: str, facts: dict[str, Any], tokenizer: Any) -> None:
    if tokenizer is not None and spec.form == "tokens":
        os.mkdir(os.path.join(folder, "tokenizer"))
        tokenizer.save(os.path.join(folder, "tokenizer"))
    manifest = {
        "schema": 1,
        "source": spec.source,
        "split": spec.split,
        "form": spec.form,
        **facts,
        "response_only": spec.response_only,
        "pad_token_id": tokenizer.pad_token_id if tokenizer else 0,
        "eos_token_id": tokenizer.eos_token_id if tokenizer else None,
        "spec": {name: value for name, value in dataclasses.asdict(spec).items() if name != "path"},
        "versions": {"python": platform.python_version(), **installed(*PACKAGES)},
        "files": {name: described(os.path.join(folder, name)) for name in files_below(folder)},
    }
    with open(os.path.join(folder, "manifest.json"), "w", encoding="utf-8") as file:
        json.dump(manifest, file, indent=1)


def installed(*names: str) -> dict[str, str]:
    versions = {}
    for name in names:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    return versions


def end_with(parent: int) -> None:
    """End this process when its parent has ended, because then a hanging preparation cannot be stopped with Ctrl-C."""
    while os.getppid() == parent:
        time.sleep(1)
    print("error: it was ended, because the process that had started it was killed.", file=sys.stderr, flush=True)
    os._exit(1)


def main(argv: Sequence[str]) -> int:
    threading.Thread(target=end_with, args=(os.getppid(),), daemon=True).start()
    try:
        if len(argv) != 1:
            raise PreparationError("give one file, SPEC.json, that says what to prepare.")
        prepare(read_spec(argv[0]))
    except PreparationError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"error: the prepared data could not be written: {error}.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
