"""What is counted of a micro-batch, on the host and from a GPU."""

from __future__ import annotations

import copy
import gc
import io
import pickle
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
import counting  # noqa: E402

Lengths = st.lists(st.integers(1, 9), min_size=1, max_size=6)


@given(Lengths, st.integers(0, 3))
def test_padded_rows_are_counted_with_and_without_padding(lengths: list[int], masked: int) -> None:
    width = max(lengths)
    mask = torch.tensor([[int(i < length) for i in range(width)] for length in lengths])
    labels = torch.where(mask == 1, 5, -100)
    labels[0, :masked] = -100
    values = counting.sizes({"input_ids": mask.clone(), "attention_mask": mask, "labels": labels})
    labelled = sum(lengths) - min(masked, lengths[0])
    tokens = len(lengths) * width
    assert [int(value) for value in values] == [tokens, sum(lengths), labelled, len(lengths), tokens * width]


def of_positions(positions: Any, mask: Any = None) -> list[int]:
    whole = {"input_ids": torch.ones_like(positions), "position_ids": positions, "attention_mask": mask}
    found = counting.sizes({name: value for name, value in whole.items() if value is not None})
    assert found[2] is None, "the rows have no labels"
    return [int(value) for value in found if value is not None]


@given(st.lists(Lengths, min_size=1, max_size=3), st.sampled_from([0, 0, 2]))
@example([[3, 1]], 0)
def test_rows_of_several_samples_are_told_apart(rows: list[list[int]], first: int) -> None:
    """As one long row, which is how padding-free batches come; for some models positions start at 2."""
    flat = [length for row in rows for length in row]
    if not first and flat[-2:] == [1, 1]:
        flat.append(2)  # or it would be padding
    positions = torch.tensor([[first + i for length in flat for i in range(length)]])
    assert of_positions(positions) == [sum(flat), sum(flat), len(flat), sum(length**2 for length in flat)]


@given(st.lists(st.lists(st.integers(2, 9), min_size=1, max_size=4), min_size=1, max_size=3), st.integers(2, 5))
def test_zeros_behind_packed_rows_are_padding(rows: list[list[int]], least: int) -> None:
    """As trl pads them to a multiple, without a mask."""
    width = max(map(sum, rows)) + least
    positions = torch.tensor([[i for n in row for i in range(n)] + [0] * (width - sum(row)) for row in rows])
    flat = [length for row in rows for length in row]
    assert of_positions(positions) == [len(rows) * width, sum(flat), len(flat), sum(length**2 for length in flat)]


@pytest.mark.parametrize("before", [0, 1, -1])
@pytest.mark.parametrize("padding", [0, 1, 3])
def test_a_sample_begins_behind_padding(before: int, padding: int) -> None:
    """On the left, at whatever position: that of the model, or as if the padding were tokens."""
    mask = torch.tensor([[0] * padding + [1] * 4])
    own = torch.tensor([[before] * padding + [0, 1, 2, 3]])
    for positions in (own, torch.arange(4 + padding)[None]):
        assert of_positions(positions, mask)[:3] == [4 + padding, 4, 1]


def test_a_sample_that_goes_on_in_the_next_row_counts_there_too() -> None:
    assert of_positions(torch.tensor([[0, 1, 2], [3, 4, 0]])) == [6, 6, 3, 9 + 4 + 1]


def test_numbers_that_are_not_of_the_tokens_shape_are_left_aside() -> None:
    ids = torch.ones((2, 3), dtype=torch.int64)
    mask, positions = torch.ones((2, 1, 3, 3)), torch.zeros((3, 2, 3))
    values = counting.sizes({"input_ids": ids, "attention_mask": mask, "position_ids": positions, "labels": ids})
    assert values is not None and [int(value) for value in values] == [6, 6, 6, 2, 18]


class OnGpu(torch.Tensor):  # type: ignore[misc]
    """A tensor that says that it is on a GPU."""

    is_cuda = True


class LateEvent:
    """An event that a GPU passes between the first look at it and the second."""

    looks = 0

    def record(self) -> None:
        self.looks = 0

    def query(self) -> bool:
        self.looks += 1
        return self.looks > 1


@given(st.sets(st.sampled_from(["input_ids", "attention_mask", "labels", "position_ids"]), min_size=1))
def test_numbers_that_come_from_a_gpu_fall_into_their_places(away: set[str]) -> None:
    positions = torch.tensor([[0, 1, 2, 0, 1, 0]])
    mask, labels = torch.tensor([[1, 1, 1, 1, 1, 0]]), torch.tensor([[-100, 5, 5, -100, 5, 5]])
    whole = {"input_ids": labels, "attention_mask": mask, "labels": labels, "position_ids": positions}
    inputs = {name: value.as_subclass(OnGpu) if name in away else value for name, value in whole.items()}
    counter = counting.Counter()
    counter.free = [(torch.empty(5, dtype=torch.int64), LateEvent())]
    counted = counting.Batch(counting.sizes(inputs), counter)
    assert counted.ready() is (away == {"input_ids"}), "of which the shape alone is needed"
    assert counted.ready()
    assert counted.read() == [6, 5, 4, 2, 9 + 4 + 1]
    assert len(counter.free) == 1, "the slot is given back"


def a_batch() -> dict[str, Any]:
    mask = torch.tensor([[1, 1, 1], [1, 0, 0]])
    return {"input_ids": mask.clone(), "attention_mask": mask, "labels": torch.where(mask == 1, 5, -100), "weight": 1.0}


COUNTED = [6, 4, 4, 2, 18]


def sent(batch: Any, *, wanted: bool = True) -> Any:
    def send(batch: Any, device: str) -> Any:
        return {name: value.clone() if hasattr(value, "clone") else value for name, value in batch.items()}

    return counting.noting(send, wanted=lambda: wanted)(batch, "cuda")


def test_a_batch_is_counted_before_it_is_sent() -> None:
    batch = sent(a_batch())
    kept = counting.kept(batch)
    assert kept == COUNTED
    for name in counting.held(batch):
        batch[name].zero_()  # in the training step
    assert counting.Counter().count(kept).read() == COUNTED


def test_a_batch_that_ranks_divide_is_counted_whole() -> None:
    """Here nobody saw the batch leave the host. The training step leaves this rank the first two of three columns."""
    batch = a_batch()
    kept = counting.kept(batch, divided=True)
    for name in counting.held(batch):
        batch[name].resize_(2, 2)
    assert counting.Counter().count(kept).read() == COUNTED
    assert counting.Counter().count(counting.kept(batch, divided=True)).read() != COUNTED


@pytest.mark.parametrize("name", ["input_ids", "attention_mask", "labels", "position_ids"])
def test_a_batch_that_was_changed_since_is_counted_anew(name: str) -> None:
    batch = sent(a_batch())
    batch[name] = torch.ones((2, 3), dtype=torch.int64)
    assert counting.noted(counting.held(batch)) is None
    anew = [int(value) for value in counting.sizes(counting.held(batch))]
    assert counting.Counter().count(counting.kept(batch)).read() == anew
    del batch["attention_mask"]
    assert counting.noted(counting.held(batch)) is None


@pytest.mark.parametrize("copied", [False, True])
def test_a_batch_that_was_changed_in_place_is_counted_anew(copied: bool) -> None:
    batch = copy.deepcopy(sent(a_batch())) if copied else sent(a_batch())
    batch["labels"][:, :1] = -100
    assert counting.Counter().count(counting.kept(batch)).read() == [6, 4, 2, 2, 18]


def test_a_batch_can_be_pickled_and_nothing_is_kept_of_it() -> None:
    """Many do that with a batch whose loss is no number."""
    gc.collect()
    before = len(counting._sent)
    batch = sent(a_batch())
    assert len(counting._sent) == before + 1
    torch.save(batch, io.BytesIO())
    assert pickle.loads(pickle.dumps(batch))["weight"] == 1.0
    assert all(not vars(batch[name]) for name in counting.held(batch)), "as they would be without us"
    del batch
    gc.collect()
    assert len(counting._sent) == before


class Own:
    """A batch of somebody's own kind."""

    def get(self) -> None:
        """Takes no names."""


@pytest.mark.parametrize(
    "batch",
    [
        {"input_ids": torch.ones((2, 3)), "labels": ["a", "b"]},
        {"input_ids": torch.ones((2, 3)), "labels": [{"boxes": 1}, {"boxes": 2}]},
        {"input_ids": torch.ones(())},
        Own(),
        [1, 2],
    ],
)
def test_what_cannot_be_counted_is_unknown_and_no_error(batch: Any) -> None:
    assert counting.Counter().count(counting.kept(batch)) is None
    same = counting.noting(lambda batch: batch, wanted=lambda: True)(batch)
    assert same is batch and counting.Counter().count(counting.kept(same)) is None


def test_what_cannot_be_counted_on_the_host_is_sent_as_it_is() -> None:
    on_gpu = {name: value.as_subclass(OnGpu) for name, value in a_batch().items() if name != "weight"}
    for batch in (on_gpu, {"input_ids": [1, 2]}, {"pixels": torch.ones(1)}):
        assert sent(batch).keys() == batch.keys()
        assert counting.noted(counting.held(sent(batch))) is None
    assert counting.noted(counting.held(sent(a_batch(), wanted=False))) is None

    def jagged(batch: Any) -> Any:
        return batch

    torn = {"input_ids": torch.ones(2, 3), "labels": "none"}
    assert counting.noting(jagged, wanted=lambda: True)(torn) is torn


def test_accelerates_data_loader_sends_by_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from accelerate import Accelerator, data_loader

    monkeypatch.setattr(data_loader, "send_to_device", counting.noting(data_loader.send_to_device, wanted=lambda: True))
    rows = [{"input_ids": torch.ones(3, dtype=torch.int64), "labels": torch.tensor([-100, 5, 5])}] * 5
    loader = Accelerator(cpu=True).prepare(torch.utils.data.DataLoader(rows, batch_size=2))
    assert [counting.noted(counting.held(batch)) for batch in loader] == [[6, 6, 4, 2, 18]] * 2 + [[3, 3, 2, 1, 9]]
