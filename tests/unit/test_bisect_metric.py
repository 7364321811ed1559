"""The metric that a bisection judges."""

from __future__ import annotations

import pytest

from orchestrator.compare.bisect.metric import headline, on_padding

PLAIN = {"tokens_per_s": 4000.0, "train_tokens_per_second": 3900.0}
LEVEL = {"tokens_per_s": 4000.0, "real_tokens_per_s": 4000.0}
PADDED = {"tokens_per_s": 4400.0, "real_tokens_per_s": 3800.0}


@pytest.mark.parametrize(
    ("good", "bad", "metric"),
    [
        (LEVEL, LEVEL, "tokens_per_s"),
        (LEVEL, PADDED, "real_tokens_per_s"),
        (PADDED, LEVEL, "real_tokens_per_s"),
        (PLAIN, PADDED, "tokens_per_s"),
        (PLAIN, {"train_tokens_per_second": 1.0}, "train_tokens_per_second"),
        ({"real_tokens_per_s": 1.0}, PADDED, "real_tokens_per_s"),
        (PLAIN, {"wall_s": 1.0}, ""),
    ],
)
def test_both_ends_decide_the_metric(good: dict[str, float], bad: dict[str, float], metric: str) -> None:
    assert headline(good, bad) == metric


def test_unknown_padding_of_one_end_is_said_if_the_other_has_much() -> None:
    assert [*on_padding("tokens_per_s", PLAIN, PADDED)] == [
        "note: 14% of the tokens of bad are padding, and the padding of good is unknown; tokens per second count padding, so a "
        "change of the padding looks like a change of the speed"
    ]
    assert "tokens of good" in next(on_padding("tokens_per_s", PADDED, PLAIN))
    for good, bad in ((PLAIN, LEVEL), (PLAIN, PLAIN), (LEVEL, LEVEL)):
        assert not [*on_padding("tokens_per_s", good, bad)]
    assert not [*on_padding("real_tokens_per_s", LEVEL, PADDED)]
