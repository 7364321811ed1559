"""The sizes of the steady steps' batches: tokens per step, how much they differ, and a sentence about short batches. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean, pstdev

from orchestrator.measure.steps import Step

# A batch is short if both its tokens and its samples are below this share of the largest batch.
SHORT_BATCH = 0.75
# Short batches are reported if they are more than this share of the steady steps.
MANY_SHORT = 0.1


def sizes(window: Sequence[Step], *, world_size: int) -> dict[str, float]:
    """Return the mean number of tokens per step and process, and the steps' relative standard deviation; {} if unknown."""
    counts = [step.tokens for step in window if step.tokens is not None]
    if not window or len(counts) < len(window) or not sum(counts):
        return {}
    mean = fmean(counts)
    return {"step_tokens_per_gpu": mean / world_size, "step_tokens_spread": pstdev(counts) / mean}


def short(window: Sequence[Step]) -> Iterator[str]:
    """Yield a sentence if many steps had fewer tokens and fewer samples than the remaining steps.

    Texts of different length change only the tokens.
    """
    counts = [(step.tokens, step.samples) for step in window if step.tokens and step.samples]
    tokens, samples = (SHORT_BATCH * max(values) for values in zip(*counts, strict=True)) if counts else (0, 0)
    short = sum(own_tokens < tokens and own_samples < samples for own_tokens, own_samples in counts)
    if short > MANY_SHORT * len(counts):
        yield (
            f"{short} of {len(counts)} steady steps had a smaller batch than the others, like the last batch of an epoch: the "
            "numbers mix steps of different work; give more data, or set dataloader_drop_last: true"
        )
