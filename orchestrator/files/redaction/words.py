"""Secrets in the words of a command line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from orchestrator.files.redaction.names import is_secret_name


def secret_words(words: Sequence[str]) -> Iterator[tuple[int, int, str]]:
    """Yield each secret of a command line that is the value of an option.

    Each item has three values: the index of a word, the position in this word where the secret starts, and the option's name.

    An option is `--name` with its value in the next word, `--name=value`, or `name=value`. `--set=` or `--axis=` may precede the
    option.
    """
    if not any(map(_names_secret, words)):
        return
    for place, word in enumerate(words):
        name, begin = _assigned(word)
        if name and begin < len(word) and re.fullmatch(r"[\w.+-]+", name) and is_secret_name(name):
            yield place, begin, name
        elif place and words[place - 1].startswith("--") and not word.startswith("--") and word:
            option = words[place - 1]
            if "=" not in option and is_secret_name(option):
                yield place, 0, option


@lru_cache(maxsize=65536)
def _names_secret(word: str) -> bool:
    """Return whether a word is, or begins with, the name of a secret. Results are cached: a plan has very many words."""
    return is_secret_name(_assigned(word)[0] or word)


def _assigned(word: str) -> tuple[str, int]:
    """Return the name in a word `name=value`, and the position of the value; an empty name and 0 for any other word."""
    before = re.match("--(?:set|axis)=", word)
    begin = before.end() if before else 0
    name, equals, _ = word[begin:].partition("=")
    return (name, begin + len(name) + 1) if equals else ("", 0)
