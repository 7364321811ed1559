"""When a training ends early: several ranks as threads over a real store of torch, and stores and ranks that fail."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

distributed = pytest.importorskip("torch.distributed")
import ending as endings  # noqa: E402


class Rule:
    """Enough is known with the `enough_at`th step time."""

    def __init__(self, enough_at: int) -> None:
        self.enough_at, self.seen = enough_at, 0

    def add(self, seconds: float) -> None:
        self.seen += 1

    def verdict(self) -> tuple[bool, float | None]:
        return self.seen >= self.enough_at, 1 / max(1, self.seen)


class Broken:
    """A store whose server is gone."""

    def compare_set(self, *_: str) -> bytes:
        raise RuntimeError("Connection reset by peer")

    def check(self, _: list[str]) -> bool:
        raise RuntimeError("Connection reset by peer")


def ranks(count: int, store: Any, *, enough_at: int, **measure: Any) -> list[endings.Ending]:
    return [
        endings.Ending(measure, rank=rank, stopping=Rule(enough_at), board=endings.Board(store))
        for rank in range(count)
    ]


def last_step(ending: endings.Ending, *, steps: int = 100, before: Callable[[int], None] = lambda _: None) -> Any:
    """Trains for so many steps at most; what ended it, or None."""
    for step in range(1, steps + 1):
        before(step)
        found = ending.after(step, [0.1])
        if found is not None:
            return step, found
    return None


def together(all_ranks: list[endings.Ending], **options: Any) -> list[Any]:
    with ThreadPoolExecutor(len(all_ranks)) as pool:
        return [job.result(60) for job in [pool.submit(last_step, rank, **options) for rank in all_ranks]]


def test_ranks_end_at_the_same_step_ten_after_the_decision() -> None:
    store = distributed.PrefixStore("a", distributed.HashStore())
    ends = together(ranks(3, store, enough_at=35))
    assert [step for step, _ in ends] == [50, 50, 50]
    assert ends[0][1] == ends[1][1] == ends[2][1] == {"why": "within", "half_width": 1 / 40}


def test_a_rank_that_is_far_ahead_waits_for_the_first() -> None:
    store = distributed.HashStore()
    first, ahead = ranks(2, store, enough_at=5)
    slow = threading.Thread(target=last_step, args=(first,), kwargs={"before": lambda _: time.sleep(0.005)})
    slow.start()
    ends = last_step(ahead)
    slow.join(60)
    assert ends is not None and ends[0] == 20


def test_a_first_rank_that_is_silent_ends_nothing_and_holds_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endings, "LONGEST_WAIT_S", 0.5)
    store = distributed.HashStore()
    _, second = ranks(2, store, enough_at=5)
    began = time.monotonic()
    assert last_step(second) is None
    assert time.monotonic() - began < 3.0, "nine decisions are asked for, and one is waited for"


def test_what_a_rank_gave_up_on_the_first_rank_gives_up_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 0 comes too late with its decision: then the other has gone on, and rank 0 must not end alone."""
    monkeypatch.setattr(endings, "LONGEST_WAIT_S", 0.0)
    store = distributed.HashStore()
    first, second = ranks(2, store, enough_at=5)
    assert last_step(second, steps=25) is None
    assert last_step(first, steps=25) is None


def test_without_a_store_nothing_ends_early() -> None:
    ending = endings.build({"within": 0.5}, rank=0, world_size=2)
    assert last_step(ending) is None


def test_a_store_that_keeps_failing_ends_the_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """It cannot know whether the others stop; going on, it might wait for them until a time-out."""
    monkeypatch.setattr(endings, "TRIES", 2)
    (first, _) = ranks(2, Broken(), enough_at=1)
    with pytest.raises(RuntimeError, match="Connection reset"):
        last_step(first)


def test_a_store_that_fails_now_and_then_misleads_nobody() -> None:
    store, calls = distributed.HashStore(), itertools.count(1)

    class Shaky:
        def check(self, keys: list[str]) -> bool:
            if next(calls) % 3 == 0:
                raise RuntimeError("Connection reset by peer")
            return bool(store.check(keys))

        compare_set = store.compare_set

    first, second = together(ranks(2, Shaky(), enough_at=45))
    assert first is not None and first == second
    assert next(calls) > 6


def test_a_rule_that_fails_ends_nothing() -> None:
    rule = Rule(1)
    rule.verdict = lambda: 1 / 0  # type: ignore[assignment, return-value]
    assert last_step(endings.Ending({}, rank=0, stopping=rule, board=None)) is None


def test_one_process_needs_no_store() -> None:
    alone = endings.Ending({}, rank=0, stopping=Rule(15), board=None)
    assert last_step(alone) == (20, {"why": "within", "half_width": 1 / 20})


@pytest.mark.parametrize("world_size", [1, 2])
def test_a_number_of_steps_needs_no_agreement(world_size: int) -> None:
    ending = endings.build({"at_most_steps": 7}, rank=1, world_size=world_size)
    assert last_step(ending) == (7, {"why": "at_most_steps", "half_width": None})
    assert last_step(endings.build({}, rank=0, world_size=1)) is None


def test_file_and_tcp_stores_hold_the_first_word(tmp_path: Any) -> None:
    tcp = distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    for store in (tcp, distributed.FileStore(str(tmp_path / "store"), 1)):
        board = endings.Board(distributed.PrefixStore("p", store))
        assert board.settle(10, "[true, 0.1]") == "[true, 0.1]"
        assert board.settle(10, "[false, null]") == board.read(10) == "[true, 0.1]"
