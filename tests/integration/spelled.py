"""A tiny model with a tokenizer of its own, and ragged texts whose tokens are easily counted, for trainers that tokenise."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from campaigns import Campaign, tunebench

LETTERS, WORDS = "abcdefg", [2 + 7 * place % 90 for place in range(24)]
LONGEST = 96
"""Tokens at which texts are cut; some are longer."""

SPECIAL, HEADING = ("<pad>", "<eos>", "<unk>"), "Response"


def make(folder: Path) -> None:
    """`model`, a local folder, and `data.jsonl`: instructions, and letters of so many WORDS in answer to each."""
    from arguments import Own
    from models import build_model, load_config
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    own = Own(model_name_or_path="config:tiny-llama", training_data_path="-")
    build_model(own, load_config(own, {}), words={}, seed=3).save_pretrained(folder / "model")
    words = {word: place for place, word in enumerate((*SPECIAL, *LETTERS, HEADING))}
    inner = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>", eos_token="<eos>")
    tokenizer.save_pretrained(folder / "model")
    rows = ({"instruction": "spell", "output": " ".join(LETTERS[n % 7] for n in range(count))} for count in WORDS)
    (folder / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def for_transformers_4(folder: Path) -> None:
    """Name the tokenizer's class as an older transformers does; it does not know the name that today's writes."""
    config = folder / "model" / "tokenizer_config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "tokenizer_class": "PreTrainedTokenizerFast"}))


def tokens(folder: Path) -> list[list[int]]:
    """Each text as it was prepared and handed to the trainer, with one token that ends it, cut to LONGEST."""
    from tokenizers import Tokenizer

    (prepared,) = (folder / "cache" / "data").glob("*/train.json")
    inner = Tokenizer.from_file(str(folder / "model" / "tokenizer.json"))
    texts = [json.loads(line)["output"] for line in prepared.read_text().splitlines()]
    return [[*inner.encode(text).ids, SPECIAL.index("<eos>")][:LONGEST] for text in texts]


def counted(run_dir: Path) -> list[dict[str, int]]:
    """What the instrument says that each rank trained on."""
    return [json.loads(path.read_text())["tokens"] for path in sorted(run_dir.glob("worker-rank*.json"))]


def assert_in_the_table(trained: Campaign, scenario: str, *, ranks: int) -> None:
    """A scenario's row is ok and has a loss, and its token speed is made of its ranks' tokens."""
    (row,) = [row for row in trained.rows() if row["scenario"] == scenario]
    assert row["status"] == "ok" and float(row["train_loss"]) > 0
    with (trained.results / "ranks.csv").open(newline="") as file:
        lines = [line for line in csv.DictReader(file) if scenario in line["id"]]
    assert [line["rank"] for line in lines] == [str(rank) for rank in range(ranks)]
    processed = sum(float(line["tokens_processed"]) for line in lines)
    assert float(row["train_tokens_per_second"]) == pytest.approx(processed / float(row["train_runtime"]) / ranks)


def assert_same_when_warm(cold: Campaign) -> None:
    """A warm campaign of the same scenarios has the settings, the losses and the counts of the cold one, to the byte."""
    warm = tunebench(cold.folder, "run", "scenarios.yaml", "--warm", "--results", "warm")
    assert warm.code == 0, warm.said
    files = sorted(cold.results.glob("experiments/*/runs/*/worker-rank*.json"))
    assert files
    for file in files:
        other = cold.folder / "warm" / file.relative_to(cold.results)
        record = json.loads((other.parent / "record.json").read_text())
        assert record["provenance"]["start"] == "warm"
        sides = [json.loads(path.read_text()) for path in (file, other)]
        for key in ("settings", "losses", "tokens", "versions", "world_size"):
            texts = [json.dumps(side[key], sort_keys=True).replace("/warm/", "/results/") for side in sides]
            assert texts[0] == texts[1], (file, key)
