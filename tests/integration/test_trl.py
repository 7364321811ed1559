"""trl's own script under the instrument: padded rows on two processes, and LoRA on packed ones, each over one epoch of ragged text.

What the data hold is counted here by the tokenizer alone: trl ends each text by the end of text, and cuts it to `max_length`.
"""

from __future__ import annotations

import pytest
import spelled
from campaigns import Campaign, tunebench
from factories.cases import text

pytest.importorskip("trl")

SCENARIOS = text("scenarios/trl.yaml")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    folder = tmp_path_factory.mktemp("trl")
    spelled.make(folder)
    (folder / "scenarios.yaml").write_text(SCENARIOS)
    return tunebench(folder, "run", "scenarios.yaml")


def test_every_token_of_the_epoch_is_counted_once(trained: Campaign) -> None:
    assert trained.code == 0, trained.err
    found = [len(text) for text in spelled.tokens(trained.folder)]
    real = sum(found)
    assert len({*found}) > 10 and spelled.LONGEST in found, "ragged, and some are cut"
    padded, (packed,) = (spelled.counted(trained.run_dir(name)) for name in ("padded", "packed"))
    assert sum(rank["real"] for rank in padded) == packed["real"] == real
    assert sum(rank["labelled"] for rank in padded) == real
    assert sum(rank["samples"] for rank in padded) == packed["samples"] == len(spelled.WORDS)
    assert sum(rank["processed"] for rank in padded) > real
    assert [rank["steps"] for rank in padded] == [6, 6], "24 samples, two at a time on two processes"
    spelled.assert_in_the_table(trained, "padded", ranks=2)


def test_what_took_effect_is_read_off_its_trainer(trained: Campaign) -> None:
    padded, packed = (trained.record(name).settings for name in ("padded", "packed"))
    assert (padded["world_size"], padded["global_batch"], padded["peft_method"]) == (2, 4, None)
    assert (packed["packing"], packed["peft_method"], packed["lora_rank"]) == (True, "lora", 4)
    assert (padded["optimizer"], packed["optimizer"]) == ("AdamW", "SGD")
    assert padded["mixed_precision"] == "no" and not padded["gradient_checkpointing"], (
        "both are on in trl unless told otherwise"
    )
    assert 0 < packed["trainable_parameters"] < packed["total_parameters"]


def test_a_warm_run_trains_the_same(trained: Campaign) -> None:
    spelled.assert_same_when_warm(trained)
