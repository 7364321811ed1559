"""Reads the rows of a training set as mappings: a built-in set, a local file or folder, or a data set of a hub.

This module reads JSON and JSON Lines. The package `datasets` reads Parquet files, saved data sets and data sets of a hub; it is
imported only for these. A split such as `train[:2000]` or `train[10%:20%]` means the same for every source. A mistake raises a
PreparationError of one sentence.
"""

from __future__ import annotations

import json
import os
import re
from typing import Any, Optional

from folders import files_below
from formatting import PreparationError, Row

SPLIT = re.compile(r"^(?P<name>[\w.-]+)(\[(?P<start>-?\d{1,18}%?)?:(?P<stop>-?\d{1,18}%?)?\])?$")
LISTS = ("data", "train", "rows")  # the rows of a JSON document may be under one of these keys
JSON_ENDINGS, ENDINGS = (".json", ".jsonl"), (".json", ".jsonl", ".parquet")


def load_rows(source: str, split: Optional[str]) -> list[Row]:
    """Return the rows of a source, in order. Without a split, return all rows of `train`."""
    if source.startswith("builtin:"):
        return part_of_train(builtin(source), split, source)
    if any(os.path.isfile(os.path.join(source, name)) for name in ("dataset_info.json", "dataset_dict.json")):
        for name in files_below(source):
            require_file(os.path.join(source, name))
        return part(through_datasets(source, "load_from_disk", split), split, source)
    if os.path.exists(source):
        return part([row for path in files_of(source, split) for row in read_file(path)], split, source)
    if source.startswith(("/", "./", "../", "~")) or source.endswith(ENDINGS):
        raise PreparationError(f"there is no file or folder {source!r}; give a JSON, JSONL or Parquet file.")
    return through_datasets(source, "load_dataset", split or "train")


def builtin(source: str) -> list[Row]:
    from stdlib_docs import stdlib_pairs

    if source != "builtin:stdlib-docs":
        raise PreparationError(f"there is no data set {source!r}; use builtin:stdlib-docs or builtin:synthetic.")
    rows: list[Row] = list(stdlib_pairs())
    if not rows:
        raise PreparationError(
            "builtin:stdlib-docs: this Python has no library sources; use builtin:synthetic or a file."
        )
    return rows


# --- splits ----------------------------------------------------------------------------------------------------------


def split_of(text: Optional[str]) -> tuple[str, Optional[str], Optional[str]]:
    """Return the name, start and stop of a split such as `train[:10%]`. Raise PreparationError for text that is not a split."""
    match = SPLIT.match(text or "train")
    if not match:
        raise PreparationError(f"the split {text!r} is invalid; write train, train[:2000] or train[10%:20%].")
    return match["name"], match["start"], match["stop"]


def part(rows: list[Any], split: Optional[str], source: str) -> list[Any]:
    """Return the part of the rows that a split names. The part is never empty."""
    _, start, stop = split_of(split)
    chosen = rows[slice(position(start, len(rows)), position(stop, len(rows)))]
    if not chosen:
        raise PreparationError(f"{source!r} has no rows in the split {split or 'train'!r}; it has {len(rows)} in all.")
    return chosen


def part_of_train(rows: list[Any], split: Optional[str], source: str) -> list[Any]:
    """Return the part of the rows of a source that has only the split `train`."""
    name, _, _ = split_of(split)
    if name != "train":
        raise PreparationError(f"the only split of {source!r} is 'train'; it has no split {name!r}.")
    return part(rows, split, source)


def position(text: Optional[str], rows: int) -> Optional[int]:
    """Return the start or stop of a split as a row number. A percentage becomes the nearest row."""
    if text is None:
        return None
    return round(int(text[:-1]) * rows / 100) if text.endswith("%") else int(text)


# --- files -----------------------------------------------------------------------------------------------------------


def files_of(source: str, split: Optional[str]) -> list[str]:
    """Return the data files of a path.

    In a folder, these are the files with names that begin with the split's name. If no name begins with `train`, `train` means
    all files.
    """
    name, _, _ = split_of(split)
    if not os.path.isdir(source):
        if name != "train":
            raise PreparationError(f"{source!r} is one file, and its only split is 'train'; it has no split {name!r}.")
        return [source]
    names = sorted(file for file in os.listdir(source) if file.endswith(ENDINGS))
    chosen = [file for file in names if file.startswith(name)] or (names if name == "train" else [])
    if not chosen:
        raise PreparationError(f"{source!r} has no .json, .jsonl or .parquet file for the split {name!r}.")
    return [os.path.join(source, file) for file in chosen]


def require_file(path: str) -> None:
    """Raise PreparationError for a pipe or a device: reading it may never end. The plan has refused a source that is one itself."""
    if not os.path.isfile(path):
        raise PreparationError(f"{path!r} is not a file that can be read; remove it from the folder.")


def read_file(path: str) -> list[Row]:
    require_file(path)
    if path.endswith(".parquet"):
        return through_datasets("parquet", "load_dataset", "train", data_files=path)
    if not path.endswith(JSON_ENDINGS):
        raise PreparationError(f"{path!r} does not end in {', '.join(ENDINGS)}; convert it to one of these formats.")
    try:
        with open(path, encoding="utf-8-sig") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise PreparationError(f"{path!r} cannot be read as UTF-8 text: {error}.") from error
    rows = whole_document(text) if path.endswith(".json") else None
    return json_lines(text, path) if rows is None else check_rows(rows, path)


def whole_document(text: str) -> Optional[list[Any]]:
    """Return the rows of a JSON list, or of an object such as `{"data": [...]}`. Return None if the text is JSON Lines."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if isinstance(document, dict):
        lists = [value for name, value in document.items() if name in LISTS and isinstance(value, list)]
        return lists[0] if lists else [document]
    return document if isinstance(document, list) else [document]


def json_lines(text: str, path: str) -> list[Row]:
    rows = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            rows.append(json.loads(line))
        except RecursionError as error:
            raise PreparationError(f"{path}:{number}: the JSON is too deep; write one flat object per line.") from error
        except ValueError as error:
            raise PreparationError(f"{path}:{number}: not JSON ({error}); write one object per line.") from error
    return check_rows(rows, path)


def check_rows(rows: list[Any], path: str) -> list[Row]:
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, dict):
            raise PreparationError(f"{path}: row {number} is {type(row).__name__}, not an object with named fields.")
    return rows


def through_datasets(name: str, loader: str, split: Optional[str], **options: Any) -> list[Row]:
    """Return the rows that a function of the package `datasets` reads. An error becomes one sentence."""
    try:
        import datasets
    except ImportError as error:
        raise PreparationError(
            f"{options.get('data_files', name)!r} needs the package datasets, which is not installed; "
            "install it in the training environment, or use a JSON file or builtin: data."
        ) from error
    try:
        choice = {"split": split} if split and loader == "load_dataset" else {}
        rows = getattr(datasets, loader)(name, **choice, **options)
    except Exception as error:
        text = " ".join(str(error).split())[:2000]  # its reader masks secrets before it shortens the text
        is_of_hub = loader == "load_dataset" and not options
        cure = "; builtin:stdlib-docs needs no download" if is_of_hub else ""
        raise PreparationError(
            f"the data set {name!r} could not be loaded{cure} ({type(error).__name__}): {text}"
        ) from error
    if loader == "load_from_disk":
        rows = saved_split(rows, split, name)
    return [dict(row) for row in rows.with_format(None)]


def saved_split(saved: Any, split: Optional[str], name: str) -> Any:
    """Return the rows of a split of a saved data set. If there is no `train`, `train` means the first split."""
    wanted, _, _ = split_of(split)
    splits = saved if hasattr(saved, "keys") else {str(saved.split or "train"): saved}
    if wanted in splits:
        return splits[wanted]
    if wanted == "train":
        return next(iter(splits.values()))
    raise PreparationError(f"the data set {name!r} has no split {wanted!r}; it has {', '.join(splits)}.")
