"""Time, tokens and steps to the target loss of a scenario, and what reports and `compare` make of them."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from factories.comparisons import judged
from factories.results import experiment
from factories.run_folders import BEGAN, worker, write_steps, write_worker
from factories.suites import planned
from factories.tables import Made, _rows, made_table
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.compare.comparison import Verdict
from orchestrator.compare.sides.experiments import Origin, entry
from orchestrator.errors import ConfigError
from orchestrator.measure.losses import target
from orchestrator.plan import view
from orchestrator.records import Caveat, Measurement, Script, Target, dump, load
from orchestrator.records.experiment import Experiment
from orchestrator.results import experiment_file
from orchestrator.results.table.column_choice import column
from orchestrator.results.table.doubts import DoubtKind, doubts
from orchestrator.run import collect
from orchestrator.trainers.instrumented import with_own_seed

LOGGED = st.lists(st.floats(0.1, 10), max_size=60).map(lambda found: [*enumerate(found, start=1)])
NAMES = ("time_to_target_s", "tokens_to_target", "steps_to_target")


@given(LOGGED, st.floats(0.1, 10))
def test_the_target_is_reached_when_ten_losses_have_this_mean(logged: list[tuple[int, float]], loss: float) -> None:
    step = target.step_of_target(logged, loss)
    means = {at: sum(one for _, one in logged[at - 10 : at]) / 10 for at in range(10, len(logged) + 1)}
    reached = [at for at, mean in means.items() if mean <= loss + 1e-12]
    assert step is None or (step in reached and not [at for at in reached if at < step and means[at] < loss - 1e-12])
    assert step is not None or not [at for at in reached if means[at] < loss - 1e-12]


@given(LOGGED, st.floats(0.1, 10), st.floats(0, 1))
def test_a_lower_target_is_never_reached_earlier(logged: list[tuple[int, float]], loss: float, less: float) -> None:
    high, low = (target.step_of_target(logged, one) for one in (loss, loss - less))
    assert low is None or (high is not None and high <= low)


def curve(steps: int = 40, every: int = 1) -> list[tuple[int, float]]:
    """Losses that fall by 0.1 per step from 4.9; the mean of ten is the loss of a step, and 0.45 per logged step more."""
    return [(step, 5 - step / 10) for step in range(every, steps + 1, every)]


def read(folder: Path, losses: Sequence[object], loss: float, **fields: Any) -> dict[str, Measurement]:
    """Return the measurements of a run with these logged losses. Each step takes half a second and is logged 0.1 s later."""
    folder.mkdir(exist_ok=True)
    write_steps(folder, 0, [0.5] * 40)
    times = [(step, BEGAN + step / 2 + 0.1) for step in range(1, 41)]
    stamps = {"train_begin": BEGAN}
    write_worker(folder, worker(**{"losses": losses, "log_times": times, "stamps": stamps, **fields}))
    one = experiment(target=Target(loss=loss))
    found = collect.read(one, folder, watching=(), gpus=(), wall_s=60.0)
    reasons = [caveat.detail for caveat in found.warnings if "target" in caveat.detail]
    assert len(reasons) <= 1, "a reason is said once"
    return {number.name: number for number in found.measurements}


def test_a_run_of_a_known_curve_reaches_its_target_at_a_known_moment(tmp_path: Path) -> None:
    found = read(tmp_path, curve(), 3.45)  # the mean of steps 11 to 20
    assert [found[name].value for name in NAMES] == [pytest.approx(10.1), 20_000, 20]


def test_a_run_that_does_not_reach_its_target_has_a_reason_and_no_number(tmp_path: Path) -> None:
    lowest = "did not reach the target 0.5: the lowest mean of 10 logged losses is 1.45, at step 40"
    few = "did not reach the target 3: 4 losses were logged, and the mean needs 10; lower logging_steps or raise max_steps"
    unread = "its losses or their times cannot be read"
    for place, (losses, loss, why) in enumerate(
        [(curve(), 0.5, lowest), (curve(every=10), 3.0, few), ([[1, None]], 3.0, unread), ("lots", 3.0, unread)]
    ):
        found = read(tmp_path / str(place), losses, loss)
        assert [(found[name].value, found[name].missing) for name in NAMES] == [(None, Caveat(detail=why))] * 3


def test_a_step_that_was_not_counted_leaves_the_tokens_unknown(tmp_path: Path) -> None:
    write_steps(tmp_path, 0, [0.5] * 40)
    found = read(tmp_path, [*curve(), (50, 0.0)], 1.3)
    assert (found["steps_to_target"].value, found["tokens_to_target"].value) == (50, None)
    assert found["time_to_target_s"].why_missing == "not all steps until the target were counted"


def test_a_run_without_a_target_has_no_such_numbers(tmp_path: Path) -> None:
    write_worker(tmp_path, worker(losses=curve()))
    found = collect.read(experiment(), tmp_path, watching=(), gpus=(), wall_s=60.0)
    assert not {number.name for number in found.measurements} & {*NAMES}


def seeds(one: Experiment, repeats: int = 3) -> list[object]:
    return [with_own_seed(one, repeat).arguments.get("seed") for repeat in range(1, repeats + 1)]


def test_each_repeat_has_its_own_seed_if_there_is_a_target() -> None:
    some, script = Target(loss=1.0), Script(script="train.py", folder="/")
    assert seeds(experiment(target=some)) == ["42", "43", "44"], "the Trainer's own, then more"
    assert seeds(experiment(target=some, arguments={"seed": "7"})) == ["7", "8", "9"]
    assert seeds(experiment(target=some, arguments={"seed": "1e1"})) == ["10", "11", "12"], "as the trainer reads it"
    assert seeds(experiment(arguments={"seed": "7"})) == ["7", "7", "7"]
    assert seeds(experiment(target=some, script=script)) == [None] * 3, "a script may have no such argument"
    assert seeds(experiment(target=some, script=script, arguments={"seed": "7"})) == ["7", "8", "9"]


SCENARIO: dict[str, Any] = {"name": "s", "repeats": 3, "arguments": {"model_name_or_path": "config:tiny-llama"}}


def test_a_target_is_a_part_of_the_id_only_where_there_is_one(tmp_path: Path) -> None:
    without, first, second = (
        planned(tmp_path, {"scenarios": [{**SCENARIO, **more}]}).experiments[0]
        for more in ({}, {"target": {"loss": 1.05}}, {"target": {"loss": 1.1}})
    )
    assert len({without.id, first.id, second.id}) == 3
    set_to = planned(tmp_path, {"scenarios": [SCENARIO]}, settings=["target.loss=1.1"])
    assert [one.id for one in set_to.experiments] == [second.id]
    assert "target" not in json.loads(experiment_file.text_of(without)), "as before there were targets"
    assert load(Experiment, experiment_file.text_of(first)).target == Target(loss=1.05)
    assert load(Experiment, dump(without)) == without


def test_the_plan_says_how_many_seeds_a_difference_needs(tmp_path: Path) -> None:
    lines = view.summary(planned(tmp_path, {"scenarios": [{**SCENARIO, "target": {"loss": 1.05}}]}))
    (line,) = [line for line in lines if line.startswith("target: ")]
    assert "a difference of 5% takes 16 seeds per experiment if the seeds spread by 5%, and 63 if they" in line
    assert line.endswith("repeats: 3.")
    assert not [line for line in view.summary(planned(tmp_path, {"scenarios": [SCENARIO]})) if "target" in line]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"target": {"loss": 0}}, "target.loss"),
        ({"target": {"loss": True}}, "target.loss"),
        ({"target": {}}, "the key 'loss' is missing; add it"),
        ({"target": 1.05}, "target"),
        ({"target": {"loss": 1.0}, "trainer": "litgpt"}, "trainer 'litgpt' logs no losses that Tunebench reads"),
    ],
)
def test_a_target_that_cannot_be_measured_is_refused(tmp_path: Path, more: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        planned(tmp_path, {"scenarios": [{**SCENARIO, **more}]})


def row(framework: str, steps: Sequence[int | None]) -> Made:
    return Made(framework=framework, runs=[{"steps_to_target": step, "train_loss": 2.0} for step in steps])


def test_an_experiment_with_a_run_that_did_not_reach_the_target_has_no_mean() -> None:
    found = made_table(row("baseline", [100, 110, 121]), row("liger", [100, None, 90])).experiments
    assert column(found, "steps_to_target") == [pytest.approx(110), None]
    assert column(found, "steps_to_target_runs") == [3, 2]
    assert column(found, "steps_to_target_spread")[0] == pytest.approx(0.1)


def test_clearly_fewer_steps_than_the_baseline_are_a_reason_for_doubt() -> None:
    base = [100, 104, 97, 102]
    for steps, doubted in (([80, 83, 78, 81], True), ([99, 96, 103, 98], False), ([120, 124, 118, 122], False)):
        table = made_table(row("baseline", base), row("liger", steps))
        kinds = [[doubt.kind for doubt in found] for found in doubts(table)]
        assert kinds == [[], [DoubtKind.FEWER_STEPS] if doubted else []]
    same = made_table(row("baseline", [100] * 4), row("liger", [98] * 4))
    assert doubts(same)[1] == (), "a difference of less than 5 % is none"


def test_compare_asks_about_fewer_steps_and_leaves_out_a_side_that_did_not_always_reach() -> None:
    found = judged("steps_to_target", [100, 104, 97, 102], [70, 74, 67, 72])
    assert found.verdict is Verdict.IMPROVED and "is it still the same training?" in found.why
    for steps, known in (([100, None], 0), ([100, 104], 2), ([None, None], 0)):
        sides = entry(_rows(row("baseline", steps)), Origin())
        assert len(sides.runs) == 2 and sum("steps_to_target" in run.numbers for run in sides.runs) == known


def test_the_number_of_seeds_is_that_of_a_test_with_a_power_of_80_percent() -> None:
    from scipy.stats import nct, t

    for spread, difference in ((0.05, 0.05), (0.10, 0.05)):
        runs = target.seeds_needed(spread, difference)
        shift, limit = difference / spread * math.sqrt(runs / 2), t.ppf(0.975, 2 * runs - 2)
        assert nct.sf(limit, 2 * runs - 2, shift) == pytest.approx(0.8, abs=0.03)
    assert [target.seeds_needed(0.05, 0.05), target.seeds_needed(0.05, 0.1), target.seeds_needed(0.1, 0.05)] == [
        16,
        4,
        63,
    ]
