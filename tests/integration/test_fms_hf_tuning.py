"""fms-hf-tuning's own script under the instrument: padded rows on two processes, a loss on the responses; LoRA on packed ones.

In an environment of its own (`tox -e tests-hf4`), since it wants a transformers 4. On several processes it may draw a sample twice
and another never, so that what its ranks get is counted a second time beside the instrument, token by token.
"""

from __future__ import annotations

import json
from pathlib import Path

import planted
import pytest
import spelled
from campaigns import Campaign, tunebench
from factories.cases import text

pytest.importorskip("tuning")

SCENARIOS = text("scenarios/fms-hf-tuning.yaml")
COUNTER = """
import json, os

def around(step):
    def wrapped(trainer, model, inputs, *args, **kwargs):
        rows, mask, labels = (inputs[name].tolist() for name in ("input_ids", "attention_mask", "labels"))
        with open(os.path.join(os.environ["TUNEBENCH_RUN_DIR"], "seen-" + os.environ["RANK"]), "a") as file:
            file.write(json.dumps({
                "processed": sum(map(len, rows)), "real": sum(map(sum, mask)), "samples": len(rows), "micro": 1,
                "labelled": sum(label != -100 for row in labels for label in row), "squares": sum(len(row) ** 2 for row in rows),
            }) + chr(10))
        return step(trainer, model, inputs, *args, **kwargs)
    return wrapped
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    folder = tmp_path_factory.mktemp("fms")
    spelled.make(folder)
    planted.around_steps(folder, COUNTER)
    (folder / "scenarios.yaml").write_text(SCENARIOS.replace("FOLDER", str(folder)))
    return tunebench(folder, "run", "scenarios.yaml")


def seen(run_dir: Path, rank: int) -> dict[str, int]:
    """The sum of the batches that a rank was given."""
    batches = [json.loads(line) for line in (run_dir / f"seen-{rank}").read_text().splitlines()]
    return {name: sum(batch[name] for batch in batches) for name in batches[0]}


def test_padded_batches_are_counted_as_the_ranks_got_them(trained: Campaign) -> None:
    assert trained.code == 0, trained.err
    run_dir = trained.run_dir("padded")
    ranks = spelled.counted(run_dir)
    assert ranks == [{**seen(run_dir, rank), "steps": 6} for rank in (0, 1)], (
        "24 samples, two at a time on two processes"
    )
    for rank in ranks:
        assert 0 < rank["labelled"] < rank["real"] < rank["processed"] and rank["samples"] == 12
    spelled.assert_in_the_table(trained, "padded", ranks=2)


def test_every_token_of_a_packed_epoch_is_counted_once(trained: Campaign) -> None:
    texts = spelled.tokens(trained.folder)
    assert len({*map(len, texts)}) > 10 and spelled.LONGEST in map(len, texts), "ragged, and some are cut"
    (packed,) = spelled.counted(trained.run_dir("packed"))
    assert packed["real"] == packed["labelled"] == packed["processed"] == sum(map(len, texts))


def test_what_took_effect_is_read_off_its_trainer(trained: Campaign) -> None:
    padded, packed = (trained.record(name).settings for name in ("padded", "packed"))
    assert (padded["world_size"], padded["global_batch"], padded["peft_method"]) == (2, 4, None)
    assert (padded["packing"], packed["packing"]) == (False, True)
    assert (packed["peft_method"], packed["lora_rank"]) == ("lora", 4)
    assert (padded["optimizer"], packed["optimizer"]) == ("AdamW", "SGD")
    assert 0 < packed["trainable_parameters"] < packed["total_parameters"]
