"""Prepared tokens as rows and batches: truncation, packing, padding, and that samples stay apart."""

from __future__ import annotations

import os
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from arguments import ArgumentError, Own
from data import (
    IGNORED,
    DataError,
    Tokens,
    build_collator,
    build_rows,
    load_tokens,
    packed_rows,
    padded,
    stacked,
    truncated,
)
from hypothesis import given
from hypothesis import strategies as st


def tokens_of(rows: list[list[int]], labels: list[list[int]] | None = None) -> Tokens:
    flat = [np.array([*chain(*part)], dtype=np.int32) for part in (rows, labels or rows)]
    return Tokens(flat[0], flat[1], np.cumsum([0, *map(len, rows)]))


def own(**more: Any) -> Own:
    return Own(model_name_or_path="m", training_data_path="d", **more)


def test_truncation_drops_rows_with_nothing_left_to_learn() -> None:
    rows, masked = [[1, 2, 3, 4], [5, 6, 7, 8]], [[IGNORED, 2, 3, 4], [IGNORED, IGNORED, 7, 8]]
    cut = truncated(tokens_of(rows, masked), 2)
    assert (cut.offsets.tolist(), cut.input_ids.tolist(), cut.labels.tolist()) == ([0, 2], [1, 2], [IGNORED, 2])
    with pytest.raises(ArgumentError, match="within the first 1 tokens; raise --max_seq_len"):
        truncated(tokens_of(rows, masked), 1)


def test_packed_rows_are_full_and_positions_begin_anew() -> None:
    packed = packed_rows(tokens_of([[1, 2, 3], [4, 5, 6, 7], [8, 9]]), 4, packed_attention="block-diagonal")
    rows = [{name: values.tolist() for name, values in packed[index].items()} for index in range(len(packed))]
    assert [row["input_ids"] for row in rows] == [[1, 2, 3, 4], [5, 6, 7, 8]]
    assert [row["position_ids"] for row in rows] == [[0, 1, 2, 0], [0, 1, 2, 0]]
    assert [row["labels"] for row in rows] == [[IGNORED, 2, 3, IGNORED], [IGNORED, 6, 7, IGNORED]]


@given(st.lists(st.lists(st.integers(1, 99), min_size=2, max_size=9), min_size=1, max_size=12), st.integers(2, 16))
def test_packing_loses_only_the_last_incomplete_chunk(rows: list[list[int]], length: int) -> None:
    flat = [*chain(*rows)]
    packed = packed_rows(tokens_of(rows), length, packed_attention="block-diagonal")
    together = torch.cat([packed[index]["input_ids"] for index in range(len(packed))]).tolist()
    lengths = {len(packed[index]["input_ids"]) for index in range(len(packed))}
    assert lengths == {min(length, len(flat))}
    if length > 2:  # a chunk of two can hold two beginnings, nothing to learn, and is then left out
        size = min(length, len(flat))
        assert together == flat[: len(flat) // size * size]
    for index in range(len(packed)):
        positions, labels = packed[index]["position_ids"], packed[index]["labels"]
        assert bool((labels[positions == 0] == IGNORED).all())


def test_data_shorter_than_one_chunk_is_one_short_row() -> None:
    packed = packed_rows(tokens_of([[1, 2, 3]]), 100, packed_attention="concatenated")
    assert len(packed) == 1
    assert set(packed[0]) == {"input_ids", "labels"}


def test_padding_is_masked_and_not_learnt() -> None:
    rows = build_rows(own(), tokens_of([[1, 2, 3], [4, 5]]), attention="sdpa")
    batch = padded([rows[0], rows[1]], pad_token_id=9)
    assert batch["input_ids"].tolist() == [[1, 2, 3], [4, 5, 9]]
    assert batch["labels"].tolist() == [[1, 2, 3], [4, 5, IGNORED]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [1, 1, 0]]


@pytest.mark.parametrize(("size", "width"), [(None, 3), ("1", 3), ("2", 4), ("4", 8)])
def test_ranks_can_divide_the_width_of_a_batch(size: str | None, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Context parallelism gives each rank a part of the beginning and a part of the end."""
    monkeypatch.delenv("PARALLELISM_CONFIG_CP_SIZE", raising=False)
    if size is not None:
        monkeypatch.setenv("PARALLELISM_CONFIG_CP_SIZE", size)
    rows = build_rows(own(), tokens_of([[1, 2, 3], [4, 5]]), attention="sdpa")
    batch = build_collator(own(), attention="sdpa", pad_token_id=9)([rows[0], rows[1]])
    more = width - 3
    assert batch["input_ids"].tolist() == [[1, 2, 3, *[9] * more], [4, 5, 9, *[9] * more]]
    assert batch["labels"].tolist() == [[1, 2, 3, *[IGNORED] * more], [4, 5, IGNORED, *[IGNORED] * more]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1, *[0] * more], [1, 1, 0, *[0] * more]]


def test_flash_attention_gets_packed_rows_as_one() -> None:
    packed = packed_rows(tokens_of([[1, 2], [3, 4]]), 2, packed_attention="block-diagonal")
    rows = [packed[0], packed[1]]
    assert stacked(rows, flatten=False)["input_ids"].shape == (2, 2)
    assert stacked(rows, flatten=True)["position_ids"].tolist() == [[0, 1, 0, 1]]
    collator = build_collator(own(packing=True, max_seq_len=2), attention="flash_attention_2", pad_token_id=0)
    assert collator.keywords == {"flatten": True}


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_a_sample_has_the_same_logits_alone_packed_and_padding_free(attention: str) -> None:
    from models import build_model, load_config

    choice = own(packing=True, max_seq_len=8)
    choice = Own(**{**vars(choice), "model_name_or_path": "config:tiny-llama", "attn_implementation": attention})
    model = build_model(choice, load_config(choice, {}), words={}, seed=1).eval()
    samples = [[5, 6, 7], [8, 9, 10, 11, 12]]
    rows = build_rows(choice, tokens_of(samples), attention=attention)
    packed = build_collator(choice, attention=attention, pad_token_id=0)([rows[0]])
    flattened = build_collator(own(padding_free=True), attention=attention, pad_token_id=0)(
        [{"input_ids": torch.tensor(ids), "labels": torch.tensor(ids)} for ids in samples]
    )
    with torch.no_grad():
        alone = torch.cat([model(input_ids=torch.tensor([ids])).logits[0] for ids in samples])
        for batch in (packed, flattened):
            inputs = {name: batch[name] for name in ("input_ids", "position_ids")}
            torch.testing.assert_close(model(**inputs).logits[0], alone, atol=1e-5, rtol=1e-4)


def test_weights_depend_on_the_seed_alone() -> None:
    from models import build_model, load_config

    choice = Own(model_name_or_path="config:tiny-llama", training_data_path="d", dtype="bfloat16")
    first, second, other = (build_model(choice, load_config(choice, {}), words={}, seed=seed) for seed in (1, 1, 2))
    weights = [model.lm_head.weight for model in (first, second, other)]
    assert weights[0].dtype == torch.bfloat16
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


@pytest.mark.parametrize("left", [0, 100, 400])
def test_damaged_tokens_are_named(tmp_path: Path, left: int) -> None:
    tokens = tmp_path / "tokens.npz"
    np.savez(tokens, input_ids=np.arange(9), labels=np.arange(9), offsets=np.array([0, 9]))
    (tmp_path / "manifest.json").write_text("{}")
    assert len(load_tokens(str(tmp_path))[0].input_ids) == 9
    os.truncate(tokens, left)
    with pytest.raises(DataError, match=f"{tokens} is damaged .*; delete its folder"):
        load_tokens(str(tmp_path))
