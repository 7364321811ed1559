"""Choose the metric that a bisection judges, by the numbers of a run of each end. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from orchestrator.compare.rules import HEADLINES, REAL_TOKENS, TOKENS
from orchestrator.results.table.baseline.other_work import UNEXPLAINED_PADDING

# The numbers of one run.
Numbers = Mapping[str, float]


def headline(*runs: Numbers) -> str:
    """Return the first speed that all these runs have; if one of them has padded rows, the speed without padding.

    Return an empty text if they have no speed in common.
    """
    names = common(*runs)
    name = next((name for name in HEADLINES if name in names), "")
    is_padded = REAL_TOKENS in names and any(one[REAL_TOKENS] < one.get(TOKENS, 0.0) for one in runs)
    return REAL_TOKENS if name == TOKENS and is_padded else name


def common(*runs: Numbers) -> set[str]:
    """Return the names of the numbers that all these runs have."""
    return set.intersection(*map(set, runs))


def on_padding(metric: str, good: Numbers, bad: Numbers) -> Iterator[str]:
    """Yield a sentence if the metric counts padding, one end has much of it, and the padding of the other end is unknown."""
    shares = {
        name: 1 - one[REAL_TOKENS] / one[TOKENS]
        for name, one in (("good", good), ("bad", bad))
        if REAL_TOKENS in one and one.get(TOKENS, 0.0) > 0
    }
    for name, share in shares.items() if metric == TOKENS and len(shares) == 1 else ():
        if share > UNEXPLAINED_PADDING:
            other = "bad" if name == "good" else "good"
            yield (
                f"note: {share:.0%} of the tokens of {name} are padding, and the padding of {other} is unknown; tokens per second "
                "count padding, so a change of the padding looks like a change of the speed"
            )
