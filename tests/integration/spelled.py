"""A tiny model with a tokenizer of its own, and ragged texts whose tokens are easily counted, for trainers that tokenise."""

from __future__ import annotations

import json
from pathlib import Path

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
    build_model(own, load_config(own, {}), seed=3).save_pretrained(folder / "model")
    words = {word: place for place, word in enumerate((*SPECIAL, *LETTERS, HEADING))}
    inner = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>", eos_token="<eos>")
    tokenizer.save_pretrained(folder / "model")
    rows = ({"instruction": "spell", "output": " ".join(LETTERS[n % 7] for n in range(count))} for count in WORDS)
    (folder / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


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
