"""Pure Python: two ways to join words."""

import pytest

WORDS = [f"word{number}" for number in range(1000)]


def add(words):
    text = ""
    for word in words:
        text += word
    return text


@pytest.mark.parametrize("join", ["".join, add], ids=["join", "add"])
def test_join(benchmark, join):
    assert len(benchmark(join, WORDS)) == len(add(WORDS))
