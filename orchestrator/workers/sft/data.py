"""Makes rows and batches for a Trainer from prepared tokens: truncated, packed, padded or flattened.

`prepare.py` has written the tokens. There are three kinds of batch:

- padded (the default): rows are filled to the longest with padding, which attention and loss ignore. With context parallelism,
  they are filled to a width that the ranks can divide;
- padding-free: the rows of a batch are joined into one long row; the `position_ids` of each joined row begin at 0;
- packed: all rows are joined and cut into chunks of exactly `max_seq_len`. No token is padding, and all batches have one shape.

The samples in a row stay separate in attention (block-diagonal) if the attention reads `position_ids`. Flash attention reads
them; sdpa, eager and flex read them from transformers 4.53 on. With an older version, packed samples are only concatenated: a
sample sees the end of the previous sample. The setting `packed_attention` says whether a run was block-diagonal or concatenated.
With an older version, padding-free batches are refused.

A sample that is cut at the end of a chunk continues in the next chunk, without its beginning. The first token of a sample or chunk
has no label. The last, incomplete chunk and chunks without a label are left out.
"""

from __future__ import annotations

import functools
import json
import os
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Optional

import numpy as np
import torch
from arguments import ArgumentError, Own
from torch.utils.data import Dataset

IGNORED = -100
FLASH = ("flash", "kernels-community/flash")
BLOCK_DIAGONAL, CONCATENATED = "block-diagonal", "concatenated"


class DataError(Exception):
    """An error in prepared data, in one sentence."""

    __module__ = "builtins"  # the run's error then shows the name of this class without a module


class Tokens(NamedTuple):
    """The flat arrays of a prepared folder.

    Row i is input_ids[offsets[i]:offsets[i + 1]]; its labels are the same part of `labels`.
    """

    input_ids: Any
    labels: Any
    offsets: Any


def load_tokens(folder: str) -> tuple[Tokens, dict[str, Any]]:
    """Return the tokens and the manifest of a folder that `prepare.py` made."""
    manifest_path, tokens_path = os.path.join(folder, "manifest.json"), os.path.join(folder, "tokens.npz")
    if not os.path.isfile(manifest_path) or not os.path.isfile(tokens_path):
        raise ArgumentError(
            f"--training_data_path {folder!r} is not a folder of prepared tokens; make it with prepare.py."
        )
    try:
        with open(manifest_path, encoding="utf-8") as file:
            manifest = json.load(file)
        with np.load(tokens_path) as arrays:
            return Tokens(arrays["input_ids"], arrays["labels"], arrays["offsets"]), manifest
    except (zipfile.BadZipFile, ValueError, KeyError, EOFError) as error:
        raise DataError(
            f"{tokens_path} is damaged ({error}); delete its folder, and the next `tunebench run` makes it anew."
        ) from error


def truncated(tokens: Tokens, limit: Optional[int]) -> Tokens:
    """Return rows cut to at most `limit` tokens. Leave out rows that have no label after the cut."""
    lengths = np.diff(tokens.offsets)
    ends = tokens.offsets[:-1] + (lengths if limit is None else np.minimum(lengths, limit))
    # No model predicts a row's first label, so a row needs another label after it.
    learnt = np.concatenate([[0], np.cumsum(tokens.labels != IGNORED)])
    keep = learnt[ends] - learnt[np.minimum(tokens.offsets[:-1] + 1, ends)] > 0
    if not keep.any():
        reach = "" if limit is None else f" within the first {limit} tokens"
        raise ArgumentError(f"no row of the training data has a token to learn{reach}; raise --max_seq_len.")
    if keep.all() and (limit is None or lengths.max(initial=0) <= limit):
        return tokens
    spans = np.stack([tokens.offsets[:-1], ends], axis=1)[keep]
    input_ids, labels = (np.concatenate([flat[a:b] for a, b in spans]) for flat in (tokens.input_ids, tokens.labels))
    return Tokens(input_ids, labels, np.concatenate([[0], np.cumsum(spans[:, 1] - spans[:, 0])]))


class Rows(Dataset):  # type: ignore[misc]
    """A data set. Row i is array[offsets[i]:offsets[i + 1]] of each array."""

    def __init__(
        self,
        arrays: Mapping[str, Any],
        offsets: Any,
        *,
        max_seq_len: Optional[int],
        packed_attention: Optional[str] = None,
    ) -> None:
        self.arrays, self.offsets, self.max_seq_len = arrays, offsets, max_seq_len
        self.packed, self.packed_attention = packed_attention is not None, packed_attention

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> dict[str, Any]:
        part = slice(int(self.offsets[index]), int(self.offsets[index + 1]))
        return {name: torch.from_numpy(array[part].astype(np.int64)) for name, array in self.arrays.items()}


def packed_rows(tokens: Tokens, max_seq_len: int, *, packed_attention: str) -> Rows:
    """Return chunks of exactly `max_seq_len` tokens. If all tokens together do not fill a chunk, return them as one short row."""
    total = len(tokens.input_ids)
    length, count = min(max_seq_len, total), max(1, total // max_seq_len)
    used = count * length
    starts = np.union1d(tokens.offsets[:-1][tokens.offsets[:-1] < used], np.arange(0, used, length))
    labels = tokens.labels[:used].copy()
    labels[starts] = IGNORED
    arrays = {"input_ids": tokens.input_ids[:used], "labels": labels}
    if packed_attention == BLOCK_DIAGONAL:
        since = np.zeros(used, dtype=np.int64)
        since[starts] = starts
        arrays["position_ids"] = np.arange(used) - np.maximum.accumulate(since)
    learnt = (labels.reshape(count, -1) != IGNORED).any(axis=1)
    if not learnt.any():
        raise ArgumentError("no chunk of the packed data has a token to learn; raise --max_seq_len.")
    arrays = {name: array.reshape(count, -1)[learnt].reshape(-1) for name, array in arrays.items()}
    offsets = np.arange(0, learnt.sum() * length + 1, length)
    return Rows(arrays, offsets, max_seq_len=max_seq_len, packed_attention=packed_attention)


def sees_borders(attention: Optional[str]) -> bool:
    """Return whether this attention separates the samples of one row by their `position_ids`."""
    if (attention or "").startswith(FLASH):
        return True
    try:
        from transformers.masking_utils import find_packed_sequence_indices  # noqa: F401
    except ImportError:
        return False
    return True


def build_rows(own: Own, tokens: Tokens, *, attention: Optional[str]) -> Any:
    """Return the data set for these arguments."""
    apart = sees_borders(attention)
    if own.padding_free and not apart:
        raise ArgumentError(
            f"--padding_free needs an attention that separates samples: {attention or 'this one'} does so only from "
            "transformers 4.53 on; use flash_attention_2, or a newer transformers."
        )
    rows = truncated(tokens, None if own.packing else own.max_seq_len)
    if own.packing and own.max_seq_len:
        return packed_rows(rows, own.max_seq_len, packed_attention=BLOCK_DIAGONAL if apart else CONCATENATED)
    return Rows({"input_ids": rows.input_ids, "labels": rows.labels}, rows.offsets, max_seq_len=own.max_seq_len)


# --- batches ---------------------------------------------------------------------------------------------------------


def width_multiple() -> int:
    """Return a number; the width of a batch must be divisible by it. It is 1 without context parallelism.

    With context parallelism, each rank gets two parts of every row: one from the beginning and one from the end. accelerate's
    launcher sets the variable.
    """
    ranks = int(os.environ.get("PARALLELISM_CONFIG_CP_SIZE") or 1)
    return 2 * ranks if ranks > 1 else 1


def padded(rows: Sequence[Mapping[str, Any]], *, pad_token_id: int, multiple: int = 1) -> dict[str, Any]:
    """Return a batch. Each row is padded on the right to the length of the longest row, rounded up to a multiple."""
    filled = {"input_ids": pad_token_id, "labels": IGNORED, "attention_mask": 0}
    width = -(-max(len(row["input_ids"]) for row in rows) // multiple) * multiple
    masked = [{**row, "attention_mask": torch.ones_like(row["input_ids"])} for row in rows]
    return {
        name: torch.stack(
            [torch.nn.functional.pad(row[name], (0, width - len(row[name])), value=value) for row in masked]
        )
        for name, value in filled.items()
    }


def stacked(rows: Sequence[Mapping[str, Any]], *, flatten: bool) -> dict[str, Any]:
    """Return a batch of rows that have the same length.

    `flatten` joins them into one row, because flash attention can separate samples only if they are in the same row.
    """
    batch = {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
    return {name: values.reshape(1, -1) for name, values in batch.items()} if flatten else batch


class FlatCollator:
    """A collator that joins rows with transformers' own collator. Older versions of that collator take lists, not tensors."""

    padding_free = True

    def __init__(self) -> None:
        from transformers import DataCollatorWithFlattening

        self.flatten = DataCollatorWithFlattening()

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        batch: dict[str, Any] = self.flatten([{name: row[name].tolist() for name in row} for row in rows])
        return batch


def build_collator(own: Own, *, attention: Optional[str], pad_token_id: int) -> Any:
    """Return the collator for these arguments. Workers of a data loader may need to pickle it."""
    if own.packing:
        return functools.partial(stacked, flatten=(attention or "").startswith(FLASH))
    if own.padding_free:
        return FlatCollator()
    return functools.partial(padded, pad_token_id=pad_token_id, multiple=width_multiple())
