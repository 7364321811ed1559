"""Loads a model's tokenizer. For a model without a tokenizer, trains a byte-level BPE on the docstrings of the standard library.

The trained tokenizer needs only the package `tokenizers`, and every supported version of transformers loads it. It depends on the
size and on the versions of Python and `tokenizers`. It is trained once and kept next to the prepared data.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Sequence
from typing import Any, Optional, Tuple

from fingerprint import has_tokenizer
from folders import make_folder
from formatting import PreparationError

VOCABULARY = 4096
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
Encoded = Tuple[Sequence[int], Sequence[int]]


class Tokenizer:
    """A tokenizer of `tokenizers` or transformers. `encode` returns each text's token ids, and where in the text they end."""

    def __init__(self, inner: Any, *, special_tokens: dict[str, str], eos: Optional[int], pad: Optional[int]) -> None:
        self.inner, self.special_tokens, self.eos_token_id, self.pad_token_id = inner, special_tokens, eos, pad


class Trained(Tokenizer):
    """A `tokenizers.Tokenizer` with this module's special tokens. It adds no special token to a text by itself."""

    def encode(self, texts: Sequence[str], *, special: bool) -> list[Encoded]:
        encodings = self.inner.encode_batch(list(texts), add_special_tokens=False)
        return [(encoding.ids, [end for _, end in encoding.offsets]) for encoding in encodings]

    def save(self, folder: str) -> None:
        self.inner.save(os.path.join(folder, "tokenizer.json"))
        config = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False, **SPECIAL}
        for name, content in (("tokenizer_config.json", config), ("special_tokens_map.json", SPECIAL)):
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                json.dump(content, file, indent=1)


class Pretrained(Tokenizer):
    """A transformers tokenizer."""

    def encode(self, texts: Sequence[str], *, special: bool) -> list[Encoded]:
        if not self.inner.is_fast:
            raise PreparationError(
                f"the tokenizer {self.inner.name_or_path!r} has no fast version, which is needed to find the "
                "response in the text; use a model with a fast tokenizer."
            )
        encoded = self.inner(
            list(texts), add_special_tokens=special, return_offsets_mapping=True, return_attention_mask=False
        )
        return [
            (ids, [end for _, end in offsets])
            for ids, offsets in zip(encoded["input_ids"], encoded["offset_mapping"])  # noqa: B905 (Python 3.9)
        ]

    def save(self, folder: str) -> None:
        self.inner.save_pretrained(folder)


def load_tokenizer(name: Optional[str], *, vocab_size: Optional[int], cache: str) -> Tokenizer:
    """Return the model's own tokenizer.

    Return the trained tokenizer if the name is None, a `config:` model, or a folder without tokenizer.
    """
    if name is None or name.startswith("config:") or (os.path.isdir(name) and not has_tokenizer(name)):
        return trained(min(vocab_size or VOCABULARY, VOCABULARY), cache)
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise PreparationError("a model's own tokenizer needs the package transformers; install it.") from error
    try:
        inner = AutoTokenizer.from_pretrained(name)
    except Exception as error:
        text = " ".join(str(error).split())[:2000]  # its reader masks secrets before it shortens the text
        raise PreparationError(
            f"the tokenizer of {name!r} could not be loaded ({type(error).__name__}): {text}"
        ) from error
    known = {key: str(value) for key, value in inner.special_tokens_map.items() if isinstance(value, str)}
    pad = inner.pad_token_id if inner.pad_token_id is not None else inner.eos_token_id
    return Pretrained(inner, special_tokens=known, eos=inner.eos_token_id, pad=pad)


def trained(size: int, cache: str) -> Tokenizer:
    """Return the trained tokenizer of this size. Train it if the cache does not have it."""
    from stdlib_docs import stdlib_pairs

    try:
        import tokenizers
    except ImportError as error:
        raise PreparationError("training a tokenizer needs the package tokenizers; install it.") from error
    texts = ["\n".join(pair.values()) for pair in stdlib_pairs()]
    digest = hashlib.sha256("\0".join([tokenizers.__version__, *texts]).encode()).hexdigest()[:12]
    folder = os.path.join(cache, f"tokenizer-{size}-{digest}")
    for _ in range(2):
        make_folder(folder, lambda aside: train(texts, size).save(aside))
        try:
            return wrapped(tokenizers.Tokenizer.from_file(os.path.join(folder, "tokenizer.json")))
        except Exception as error:  # tokenizers raises nothing narrower
            cause = error
            print(f"{folder} is damaged, and is made anew: {error}", file=sys.stderr)
            shutil.rmtree(folder)
    raise PreparationError(f"the tokenizer in {folder!r} could not be loaded: {cause}")


def train(texts: Sequence[str], size: int) -> Trained:
    from tokenizers import Tokenizer as Inner
    from tokenizers import decoders, models, pre_tokenizers, trainers

    inner = Inner(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=list(SPECIAL.values()),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    inner.train_from_iterator(texts, trainer)
    return wrapped(inner)


def wrapped(inner: Any) -> Trained:
    eos, pad = (inner.token_to_id(SPECIAL[name]) for name in ("eos_token", "pad_token"))
    return Trained(inner, special_tokens=dict(SPECIAL), eos=eos, pad=pad)
