"""The arithmetic of an effective batch: samples an optimizer step = per-device batch × accumulation × processes.

Asked for as `effective_batch_size`, it settles whichever of the other two is left open. Does not know where a value came
from: a mistake says which argument it concerns, and `matrix` finds its place.
"""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.records import Reason, Text

BATCH, ACCUMULATION, EFFECTIVE = "per_device_train_batch_size", "gradient_accumulation_steps", "effective_batch_size"
TRAINER_BATCH_DEFAULT = 8


class BatchMistake(Exception):
    """What the user must mend: the arguments that it concerns, and a sentence."""

    def __init__(self, names: tuple[str, ...], message: str) -> None:
        self.names = names
        super().__init__(message)


def settle(arguments: dict[str, Text | None], num_gpus: int) -> Reason | None:
    """Work out what follows from an effective batch size, in place. A reason where it does not divide."""
    wanted = arguments.pop(EFFECTIVE, None)
    if wanted is None:
        return None
    given = tuple(name for name in (BATCH, ACCUMULATION) if arguments.get(name) is not None)
    if len(given) != 1:
        have = "both are given; set one of them to null" if given else "neither is; give one of them"
        raise BatchMistake(
            given, f"with {EFFECTIVE} exactly one of {BATCH} and {ACCUMULATION} is to be given, and {have}"
        )
    known, follows = given[0], BATCH if given[0] == ACCUMULATION else ACCUMULATION
    total, part = _whole(EFFECTIVE, wanted), _whole(known, arguments[known])
    if total % (part * num_gpus):
        arguments[EFFECTIVE] = wanted  # never run, but still a cell of its own
        text = f"{EFFECTIVE} {total} does not divide by {num_gpus} GPUs × {known} {part}"
        return Reason(kind="batch_does_not_divide", text=text)
    arguments[follows] = str(total // (part * num_gpus))
    return None


def _whole(name: str, value: Text | None) -> int:
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 10 and int(value) >= 1:
        return int(value)
    raise BatchMistake((name,), f"{name}: {value!r} is not right; a whole number from 1 is expected")


def global_batch(arguments: Mapping[str, Text], num_gpus: int) -> int | None:
    """Samples an optimizer step over all processes; the Trainer's own default counts where nothing is given."""
    batch, accumulation = arguments.get(BATCH, str(TRAINER_BATCH_DEFAULT)), arguments.get(ACCUMULATION, "1")
    try:
        return _whole(BATCH, batch) * _whole(ACCUMULATION, accumulation) * num_gpus
    except BatchMistake:  # the trainer's to refuse
        return None
