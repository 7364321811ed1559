"""The submitter is killed at any moment, and the same command resumes its campaign."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from cluster import Campaign

SEED, KILLS = 20261125, 10


def test_no_run_is_lost_and_none_is_carried_out_twice(campaign: Callable[..., Campaign]) -> None:
    many = campaign(*(f"quick-{number}" for number in range(10)), gpus="[1, 2, 4]", repeats=5, pilot=10)
    chance = random.Random(SEED)
    for _ in range(KILLS):
        process = many.begin()
        time.sleep(chance.uniform(0.5, 6.0))
        process.kill()
        process.communicate()
    code, said = many.run(seconds=600)
    assert code == 0, said
    assert many.statuses() == sorted(f"r{repeat}-t1 ok" for repeat in range(1, 6) for _ in range(30))
    assert len(many.starts()) == 150 and set(many.starts().values()) == {1}
    assert 3 <= len(many.batches()) <= 3 + KILLS
