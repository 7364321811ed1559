"""The recorder in a `transformers.trainer` of a few lines: what it hooks into, and what it makes of the events."""

from __future__ import annotations

import json
import math
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import ending  # noqa: E402
import instrument  # noqa: E402
import recorder as recorders  # noqa: E402


class Callback:
    """Stands for transformers.TrainerCallback."""


def send_to_device(batch: Any) -> Any:
    """Stands for accelerate's, and for a GPU that is asked nothing: of what was sent no token is left."""
    return {name: value[:0] for name, value in batch.items()}


class Trainer:
    """The order of events of the real one, with a loss that is logged at each step, or at every so many."""

    log_every, filters = 1, False

    def __init__(self, module: Any, losses: list[float]) -> None:
        self.callbacks, self.losses = [kind() for kind in module.DEFAULT_CALLBACKS], losses
        self.train_dataset = losses
        common = {"device": torch.device("cpu"), "skip_memory_metrics": True}
        self.args = SimpleNamespace(**common, logging_nan_inf_filter=self.filters)
        self.state = SimpleNamespace(global_step=0, max_steps=len(losses))
        self.control = SimpleNamespace(should_training_stop=False)

    def tell(self, event: str, **more: Any) -> None:
        for callback in self.callbacks:
            if hasattr(callback, event):
                getattr(callback, event)(self.args, self.state, self.control, **more)

    def training_step(self, model: Any, inputs: Any) -> Any:
        return torch.tensor(self.losses[self.state.global_step])

    def train(self) -> None:
        self.tell("on_train_begin")
        for loss in self.losses:
            batch = sys.modules["accelerate.data_loader"].send_to_device(
                {"input_ids": torch.ones((2, 4), dtype=torch.int64)}
            )
            self.tell("on_step_begin")
            self.training_step(None, batch)
            self.state.global_step += 1
            self.tell("on_step_end")
            # With token counting on, every log holds what the final one does.
            if self.state.global_step % self.log_every == 0:
                shown = loss if math.isfinite(loss) or not self.filters else 0.0
                self.tell("on_log", logs={"loss": shown, "train_runtime": 0.1})
            self.tell("on_save")
            if self.control.should_training_stop:
                break
        planned = self.state.max_steps
        speeds = {"train_steps_per_second": planned / 2, "train_samples_per_second": planned, "train_runtime": 2.0}
        whole = sum(self.losses) if not self.filters else 1.0
        mean = whole if not math.isfinite(whole) and self.log_every > 1 else 1.0
        self.tell("on_log", logs={**speeds, "train_tokens_per_second": 8.0 * planned, "train_loss": mean})
        self.tell("on_train_end")


def once(module: Any, losses: list[float]) -> None:
    module.Trainer(module, losses).train()


def trained(
    folder: Path,
    losses: list[float],
    *,
    log_every: int = 1,
    filters: bool = False,
    also: Any = None,
    target: Callable[[Any, list[float]], None] = once,
    **env: str,
) -> dict[str, Any]:
    """What the recorder says of a training with these losses, or of another `target`."""
    own = {"__init__": Trainer.__init__, "training_step": Trainer.training_step}
    trainer = type("Trainer", (Trainer,), {**own, "log_every": log_every, "filters": filters})
    module = SimpleNamespace(DEFAULT_CALLBACKS=[also] if also else [], TrainerCallback=Callback, Trainer=trainer)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in env.items():
            patch.setenv(name, value)
        patch.setitem(sys.modules, "accelerate.data_loader", SimpleNamespace(send_to_device=send_to_device))
        recorder = recorders.Recorder(str(folder), load=without_a_second, started=1.0)
        recorder.patch(module)
        target(module, losses)
    document: dict[str, Any] = json.loads(json.dumps(recorder.document(), default=str))
    return document


def without_a_second(name: str) -> Any:
    """A part; where the machine stops for a second, the meter's steps are not written for that. There is no model to read."""
    module = instrument.part(name)
    if name == "meter":
        module.EVERY_S = math.inf
    if name == "architecture":
        module.recomputation = lambda trainer: "none"
    if name == "backward":
        module.read = lambda trainer, architecture: f"{len(trainer.losses)} weights"
        module.when_training_begins = lambda facts, trainer, architecture: f"{facts} of {type(trainer).__name__}"
    return module


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "steps-rank0.jsonl").read_text().splitlines()]


def test_what_flops_depend_on_is_among_the_settings(tmp_path: Path) -> None:
    settings = trained(tmp_path, [3.0, 2.0])["settings"]
    assert (settings["architecture"], settings["recomputation"]) == ("2 weights of Trainer", "none")


def test_losses_and_final_metrics_are_told_apart(tmp_path: Path) -> None:
    seen = trained(tmp_path, [3.0, 2.0])
    assert seen["losses"] == [[1, 3.0], [2, 2.0]]
    assert seen["metrics"]["train_loss"] == 1.0
    *steps, last = lines(tmp_path)
    assert [(line["step"], "s" in line) for line in steps] == [(1, True), (1, False), (2, True), (2, False)]
    assert list(last) == ["ended"], "saving and a last evaluation make no steps, and nobody waits for some"
    assert [line.get("after") for line in lines(tmp_path) if "s" in line] == [None, ["save"]]
    assert seen["tokens"] == {
        **{"processed": 16, "real": 16, "labelled": None, "samples": 4, "squares": 64},
        **{"steps": 2, "micro": 2},
    }
    assert (seen["nonfinite_step"], seen["stopped"], seen["instrument"]) == (None, None, "on")


def test_steps_are_written_ten_at_once_and_before_what_takes_long(tmp_path: Path) -> None:
    written: list[int] = []

    class Flow(Callback):
        """Asks for an evaluation behind step 14, as the Trainer's own does before others are told of the step's end."""

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            control.should_evaluate = state.global_step == 14

        def on_save(self, *_: Any, **__: Any) -> None:
            written.append(len([line for line in lines(tmp_path) if "s" in line]))

    trained(tmp_path, [1.0] * 25, also=Flow)
    assert written == [*range(11), 10, 10, *[14] * 6, *[19] * 6]
    assert len([line for line in lines(tmp_path) if "s" in line]) == 25


def test_the_first_loss_that_is_not_finite_is_remembered(tmp_path: Path) -> None:
    seen = trained(tmp_path, [3.0, math.inf, 2.0, math.nan])
    assert seen["nonfinite_step"] == 2
    assert [loss for _, loss in seen["losses"]] == [3.0, None, 2.0, None]


def test_a_loss_that_the_trainers_filter_hides_is_seen(tmp_path: Path) -> None:
    seen = trained(tmp_path, [3.0, 2.0, math.nan, 1.0], filters=True)
    assert [loss for _, loss in seen["losses"]] == [3.0, 2.0, 0.0, 1.0]
    assert seen["nonfinite_step"] == 3


def test_a_hidden_loss_of_a_trainer_with_a_step_of_its_own_is_seen(tmp_path: Path) -> None:
    def of_another_class(module: Any, losses: list[float]) -> None:
        class Own(module.Trainer):  # type: ignore[misc]
            def training_step(self, model: Any, inputs: Any) -> Any:
                return torch.tensor(self.losses[self.state.global_step])

        for _ in range(2):
            trainer = Own(module, losses)
            trainer.train()
            gone = weakref.ref(trainer)
            del trainer
            assert gone() is None, "nothing keeps the Trainer alive"

    seen = trained(tmp_path, [3.0, math.nan, 1.0], filters=True, target=of_another_class)
    assert seen["nonfinite_step"] == 2


def test_a_step_that_returns_more_than_a_loss_goes_on(tmp_path: Path) -> None:
    def of_another_class(module: Any, losses: list[float]) -> None:
        class Own(module.Trainer):  # type: ignore[misc]
            def training_step(self, model: Any, inputs: Any) -> Any:
                return torch.tensor(self.losses[self.state.global_step]), {"accuracy": 1.0}

        Own(module, losses).train()

    seen = trained(tmp_path, [3.0, 1.0], filters=True, target=of_another_class)
    assert (seen["nonfinite_step"], seen["tokens"]["steps"]) == (None, 2)


@pytest.mark.parametrize("log_every", [2, 100])
def test_a_loss_that_was_never_logged_is_seen_in_the_mean(tmp_path: Path, log_every: int) -> None:
    """NaN behind the last log, or in a run that is too short to log any."""
    seen = trained(tmp_path, [3.0, 2.0, math.nan], log_every=log_every)
    assert len(seen["losses"]) == 2 // log_every
    assert seen["nonfinite_step"] == 3
    assert seen["metrics"]["train_loss"] is None


def test_a_single_step_leaves_no_steady_memory(tmp_path: Path) -> None:
    memory = trained(tmp_path, [3.0])["memory"]
    assert memory["steady"] is None
    assert memory["first_step"]["rss_bytes"] > 0


def test_an_early_end_puts_the_trainers_speeds_right(tmp_path: Path) -> None:
    seen = trained(tmp_path, [1.0] * 10, TUNEBENCH_MEASURE='{"at_most_steps": 4, "within": null}')
    assert seen["stopped"] == {"step": 4, "why": "at_most_steps", "half_width": None}
    assert seen["tokens"]["steps"] == 4
    speeds = {"train_steps_per_second": 2.0, "train_samples_per_second": 4.0, "train_runtime": 2.0}
    assert seen["metrics"] == {**speeds, "train_loss": 1.0}, "a speed in tokens would be that of all ten steps"


def test_speeds_of_the_steps_that_were_made_are_left_as_they_are() -> None:
    right = {"train_steps_per_second": 2.0, "train_runtime": 2.0, "train_samples_per_second": 7.0}
    assert ending.for_steps_done(right, done=4, planned=10) == right


def test_the_planned_end_is_no_early_one(tmp_path: Path) -> None:
    assert trained(tmp_path, [1.0] * 4, TUNEBENCH_MEASURE='{"at_most_steps": 4}')["stopped"] is None


def test_switched_off_it_writes_what_costs_nothing(tmp_path: Path) -> None:
    seen = trained(tmp_path, [3.0, math.nan], TUNEBENCH_INSTRUMENT="off")
    assert not (tmp_path / "steps-rank0.jsonl").exists()
    assert seen["metrics"]["train_loss"] == 1.0
    assert (seen["nonfinite_step"], seen["clock"], seen["instrument"]) == (2, None, "off")
    assert set(seen["memory"].values()) == {None}
    off = SimpleNamespace(DEFAULT_CALLBACKS=[], TrainerCallback=Callback, Trainer=type("T", (Trainer,), {}))
    loader = SimpleNamespace(send_to_device=send_to_device)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TUNEBENCH_INSTRUMENT", "off")
        patch.setitem(sys.modules, "accelerate.data_loader", loader)
        recorders.Recorder(str(tmp_path), load=instrument.part, started=1.0).patch(off)
    assert loader.send_to_device is send_to_device
    assert off.Trainer.training_step is Trainer.training_step
    assert not any(name.startswith("on_step") for name in dir(off.DEFAULT_CALLBACKS[0]))


def test_switched_off_it_still_ends_after_as_many_steps(tmp_path: Path) -> None:
    seen = trained(tmp_path, [1.0] * 10, TUNEBENCH_INSTRUMENT="off", TUNEBENCH_MEASURE='{"at_most_steps": 4}')
    assert (seen["stopped"]["step"], seen["tokens"]) == (4, {"steps": 4})


def test_blocks_that_are_off_are_timed_and_not_counted(tmp_path: Path) -> None:
    seen = trained(tmp_path, [1.0] * 9, TUNEBENCH_TOGGLE_STEPS="2")
    blocks = [json.loads(line) for line in (tmp_path / "blocks-rank0.jsonl").read_text().splitlines()]
    assert [(line["block"], line["on"], line["steps"]) for line in blocks] == [
        (number, number % 2 == 0, 2) for number in range(4)
    ]
    assert all(line["s"] > 0 for line in blocks)
    assert [line["step"] for line in lines(tmp_path) if "s" in line] == [1, 2, 5, 6, 9]
    assert (seen["tokens"]["steps"], seen["tokens"]["processed"]) == (5, 40)


@pytest.mark.parametrize("order", ["evaluated behind it", "built before it"])
def test_settings_and_stamps_are_of_the_trainer_that_trains(order: str, tmp_path: Path) -> None:
    def target(module: Any, losses: list[float]) -> None:
        trainers = [module.Trainer(module, losses)]
        if order == "built before it":
            trainers.append(module.Trainer(module, losses * 9))
        trainers[0].train()
        if order == "evaluated behind it":
            trainers.append(module.Trainer(module, losses * 9))

    seen = trained(tmp_path, [1.0], target=target)
    stamps = seen["stamps"]
    assert stamps["model_built"] <= stamps["trainer_built"] <= stamps["train_begin"]
    assert (seen["settings"]["train_rows"], seen["settings"]["max_steps"]) == (1, 1)


def test_a_training_step_of_somebodys_own_leaves_tokens_unknown(tmp_path: Path) -> None:
    def target(module: Any, losses: list[float]) -> None:
        own = type("Own", (module.Trainer,), {"training_step": lambda self, model, inputs: torch.tensor(1.0)})
        own(module, losses).train()

    seen = trained(tmp_path, [1.0] * 3, target=target)
    assert (seen["tokens"]["processed"], seen["tokens"]["steps"], seen["tokens"]["micro"]) == (None, 3, 0)
    assert [line["tokens"] for line in lines(tmp_path) if "s" in line] == [None] * 3


def test_a_training_step_behind_the_training_is_none_of_it(tmp_path: Path) -> None:
    def target(module: Any, losses: list[float]) -> None:
        trainer = module.Trainer(module, losses)
        trainer.train()
        trainer.state.global_step = 0
        trainer.training_step(None, {"input_ids": torch.ones((2, 4), dtype=torch.int64)})

    assert trained(tmp_path, [1.0] * 2, target=target)["tokens"]["micro"] == 2


def test_a_log_of_several_numbers_is_told_as_text(tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    assert recorders.finite(numpy.array([1.0, 2.0])) == "[1. 2.]"
    assert recorders.finite(torch.ones(2)) == "tensor([1., 1.])"
    assert [recorders.finite(kind([2.0])) for kind in (numpy.array, torch.tensor)] == [2.0, 2.0]
