"""What to do about a failure."""

from __future__ import annotations

import pytest
from factories.results import experiment

from orchestrator.measure.failure_kinds import KINDS, hint

TORCH = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB of which 512.00 MiB is free. Including"
    " non-PyTorch memory, this process has 78.58 GiB memory in use."
)
IN_PIECES = (  # as an H100 said it, batch 41 × 2048 of six layers
    "CUDA out of memory. Tried to allocate 10.01 GiB. GPU 0 has a total capacity of 79.18 GiB of which 4.74 GiB is free. Including"
    " non-PyTorch memory, this process has 74.43 GiB memory in use. Of the allocated memory 64.48 GiB is allocated by PyTorch, and"
    " 9.14 GiB is reserved by PyTorch but unallocated."
)
TOO_MUCH = IN_PIECES.replace("9.14 GiB is reserved", "914.00 MiB is reserved")
BATCH, NEEDED = "per_device_train_batch_size", "needed at least 80.6 GiB of 79.1"
INSTEAD = "try a shorter max_seq_len, LoRA, FSDP on more GPUs, or gradient checkpointing"


@pytest.mark.parametrize(
    ("arguments", "text", "said"),
    [
        ({BATCH: "8"}, TORCH, f"batch 8 {NEEDED}; try 4, or gradient checkpointing"),
        ({BATCH: "8", "gradient_checkpointing": "True"}, TORCH, f"batch 8 {NEEDED}; try 4"),
        ({BATCH: "5"}, "CUDA error: out of memory", "batch 5 did not fit; try 2, or gradient checkpointing"),
        (
            {BATCH: "41"},
            IN_PIECES,
            "batch 41 needed at least 75.3 GiB of 79.2, and there was room, but in pieces (9.1 GiB reserved and unused); try env"
            " PYTORCH_CUDA_ALLOC_CONF: expandable_segments:True, 20, or gradient checkpointing",
        ),
        ({BATCH: "41"}, TOO_MUCH, "batch 41 needed at least 83.6 GiB of 79.2; try 20, or gradient checkpointing"),
        (
            {BATCH: "41"},
            TORCH + "\n" + IN_PIECES[IN_PIECES.index(" Of the") :],
            f"batch 41 {NEEDED}; try 20, or gradient checkpointing",
        ),
        ({BATCH: "1"}, TORCH, f"batch 1 {NEEDED}; {INSTEAD}"),
        ({}, "", f"it did not fit; {INSTEAD}"),
    ],
)
def test_memory(arguments: dict[str, str], text: str, said: str) -> None:
    assert hint("oom_cuda", text, experiment(arguments=arguments)) == said


def test_what_is_set_already_is_not_proposed() -> None:
    apart = experiment(env={"PYTORCH_ALLOC_CONF": "expandable_segments:True"})
    said = hint("oom_cuda", IN_PIECES, apart)
    assert said is not None and "9.1 GiB reserved and unused" in said and "env" not in said


def test_a_missing_package_is_named() -> None:
    text = "ModuleNotFoundError: No module named 'flash_attn.layers'"
    assert hint("import_error", text, experiment()) == "install flash_attn into the environment that trains"
    assert hint("import_error", "ImportError: cannot import name 'x'", experiment()) is None


@pytest.mark.parametrize("kind", [*KINDS, None])
def test_every_kind_has_a_sentence_or_none(kind: str | None) -> None:
    said = hint(kind, "", experiment())
    assert said is None or (len(said) > 10 and not said.endswith("."))
