"""Records the training of one rank: notes the Trainer's events and passes them on to the parts that measure.

The recorder adds a callback to the Trainer, and wraps the Trainer's `__init__` and `training_step`. It also wraps the Trainer's
function that fetches batches, and two functions of accelerate: the one that sends a batch to the device, and the one that
begins the backward pass. The recorder changes nothing else. It asks the Trainer only for an early end (`ending.py`). Each step
goes to the meter (`meter.py`), and `phases.py` divides it. `stages.py` reads memory at stages; `settings.py`, `architecture.py`
and `backward.py` read the settings. `instrument.py` makes the recorder and writes its results.

What it leaves out: training without `transformers.Trainer`, and all but the last of several trainings in a process. If a callback
of a training begins a second training, the rest of the first training is left out, too. If a derived Trainer's training step does
not call that of the base class, the steps are timed but their tokens are unknown.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import os
import sys
import time
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

STAMPS = (
    *("process_start", "instrument_start", "imports_done", "model_built", "trainer_built", "train_begin"),
    *("first_step_end", "train_end"),
)


def finite(value: Any) -> Any:
    """Return the value for JSON. A number that is not finite becomes None. A value of another type becomes its `str()`."""
    if hasattr(value, "item"):
        with contextlib.suppress(TypeError, ValueError, RuntimeError):  # a tensor with several values
            value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


class Built(NamedTuple):
    """A Trainer that was made, with its settings, and the times when the model and the Trainer were ready."""

    trainer: weakref.ref[Any]
    settings: dict[str, Any]
    stamps: dict[str, float]


class Recorder:
    """The record of one rank's training. The Trainer calls the methods on_… at its events."""

    def __init__(self, folder: str, *, load: Callable[[str], Any], started: float) -> None:
        self.folder, self.load = folder, load
        self.rank, self.local_rank, self.world_size = (
            int(os.environ.get(name, default)) for name, default in (("RANK", 0), ("LOCAL_RANK", 0), ("WORLD_SIZE", 1))
        )
        self.measure: dict[str, Any] = json.loads(os.environ.get("TUNEBENCH_MEASURE") or "{}")
        if not isinstance(self.measure, dict):
            raise ValueError(f"{self.measure!r} is not a mapping")
        self.off = os.environ.get("TUNEBENCH_INSTRUMENT") == "off"
        self.tracker = os.environ.get("TUNEBENCH_MEMORY_TRACKER")
        self.toggle = int(os.environ.get("TUNEBENCH_TOGGLE_STEPS") or 0) or None
        profile = os.environ.get("TUNEBENCH_PROFILE")
        ranks = {"rank": self.rank, "world_size": self.world_size}
        self.profile = self.load("profiler").Profile(profile, **ranks) if profile and not self.off else None
        self.stages = self.load("stages")
        self.memory = self.stages.Memory()
        self.stamps: dict[str, float | None] = dict.fromkeys(STAMPS)
        self.stamps.update(process_start=self.stages.process_start(), instrument_start=started)
        self.built: list[Built] = []
        self.settings: dict[str, Any] = {}
        self.gpu: dict[str, Any] | None = None
        self.metrics: dict[str, Any] = {}
        self.state: Any = None
        self.meter: Any = None
        self.reset()

    def reset(self) -> None:
        self.steps = 0
        self.losses: list[tuple[int, Any]] = []
        self.log_times: list[tuple[int, float]] = []
        self.known: list[float] = []
        self.nonfinite: int | None = None
        self.stopped: dict[str, Any] | None = None
        self.waited_before: float | None = None
        self.core_wait: dict[str, float] | None = None
        self.waits_unknown: str | None = None

    def stamp(self, name: str) -> None:
        self.stamps[name] = time.time()

    def patch(self, module: Any) -> None:
        """Put the recorder into `transformers.trainer`, which has just been imported."""
        self.stamp("imports_done")
        self.setting_readers, self.endings = map(self.load, ("settings", "ending"))
        self.architecture, self.backward = map(self.load, ("architecture", "backward"))
        self.clocks, self.meters = map(self.load, ("clocks", "meter"))
        self.counting, self.compilations, self.phases = map(self.load, ("counting", "compilations", "phases"))
        module.DEFAULT_CALLBACKS.append(type("TunebenchCallback", (module.TrainerCallback,), self.events()))
        if self.tracker:
            tracker = self.stages.always_on(module.TrainerMemoryTracker)
            module.TrainerMemoryTracker = (
                self.stages.light(tracker, self.memory) if self.tracker == "light" else tracker
            )
        self.patch_building(module.Trainer)
        if not self.off:
            self.patch_steps(module.Trainer)

    def events(self) -> dict[str, Callable[..., None]]:
        names = ["on_train_begin", "on_log", "on_train_end"]
        if not self.off:
            names += ["on_step_begin", "on_step_end", "on_evaluate", "on_save"]
        elif self.measure.get("at_most_steps"):
            names += ["on_step_end"]
        return {name: getattr(self, name) for name in names}

    def patch_building(self, kind: Any) -> None:
        build = kind.__init__

        @functools.wraps(build)
        def init(trainer: Any, *args: Any, **kwargs: Any) -> None:
            stamps = {"model_built": time.time()}
            # A Trainer that is made after a training began may be one that only evaluates.
            first = self.stamps["train_begin"] is None
            self.stamps.update(stamps if first else {})
            self.memory.peaks.note()
            build(trainer, *args, **kwargs)
            self.memory.peaks.note()
            stamps["trainer_built"] = time.time()
            readers = {**self.setting_readers.BUILT, "architecture": self.built_architecture}
            settings = self.setting_readers.read(readers, trainer)
            self.built = [built for built in self.built if built.trainer() is not None]
            self.built.append(Built(weakref.ref(trainer), settings, stamps))
            if first:
                self.take(self.built[-1])

        kind.__init__ = init

    def built_architecture(self, trainer: Any) -> Any:
        return self.backward.read(trainer, self.architecture)

    def trained_architecture(self, trainer: Any) -> Any:
        return self.backward.when_training_begins(self.settings["architecture"], trainer, self.architecture)

    def take(self, built: Built) -> None:
        self.settings = dict(built.settings)
        self.stamps.update(built.stamps)

    def training(self, state: Any) -> Any:
        """Return the Trainer that trains with this state, and record its settings. Return None if no such Trainer is known."""
        for built in self.built:
            trainer = built.trainer()
            if getattr(trainer, "state", None) is state:
                self.take(built)
                return trainer
        return None

    def patch_steps(self, kind: Any) -> None:
        """Wrap the training step, so that each batch is counted on its way to the device, or else after the step."""
        train = kind.training_step

        @functools.wraps(train)
        def training_step(trainer: Any, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            seen = self.meter is not None and self.state is not None
            divided = self.setting_readers.context_ranks(trainer) > 1
            kept = self.counting.kept(inputs, divided=divided) if seen else None
            if seen and self.steps == 1 and not self.meter.batches:
                self.memory.forward_begins()
            self.enter("forward")
            loss = train(trainer, model, inputs, *args, **kwargs)
            if seen:
                # Now the GPU has work to do. At the edges of a step, the GPU would have to wait for the harvest.
                self.meter.count(kept, inputs)
                self.harvest()
            if "training_step" not in vars(trainer):
                self.look_at(loss, trainer)
            return loss

        kind.training_step = training_step
        loader: Any = sys.modules.get("accelerate.data_loader")
        if hasattr(loader, "send_to_device"):
            loader.send_to_device = self.counting.noting(loader.send_to_device, wanted=self.measuring)
        accelerator: Any = getattr(sys.modules.get("accelerate.accelerator"), "Accelerator", None)
        if accelerator is not None:
            accelerator.backward = self.memory.noting_saved(accelerator.backward)
        self.phases.patch(kind, accelerator, self.enter)

    def enter(self, part: str, loss: Any = None) -> None:
        """Begin a part of a step (`phases.py`)."""
        if self.measuring():
            self.meter.enter(part, loss)

    def measuring(self) -> bool:
        return self.meter is not None and self.state is not None and bool(self.meter.on)

    def harvest(self) -> None:
        if self.meter.due():
            self.known += self.meter.harvest() or []

    def look_at(self, loss: Any, trainer: Any) -> None:
        """Record the step of a loss that is not finite if the Trainer's filter keeps this loss out of the logs.

        The filter itself waits for each loss, so this check costs no additional wait.
        """
        filtered = trainer.args.logging_nan_inf_filter and self.nonfinite is None and self.state is not None
        if not filtered:
            return
        try:
            seen = float(loss)
        except Exception:  # a Trainer with a loop of its own may return anything from its step
            return
        if finite(seen) is None:
            self.nonfinite = int(self.state.global_step) + 1

    def watch_loss(self, trainer: Any) -> None:
        """Look at the loss that this Trainer's step returns. Its class may have its own step, or change the loss of the base step.

        Nothing here may keep the Trainer alive.
        """
        own, of = vars(trainer).get("training_step"), weakref.ref(trainer)
        if getattr(own, "is_watched", False):
            return

        def training_step(*args: Any, **kwargs: Any) -> Any:
            one: Any = of()
            loss = own(*args, **kwargs) if own else type(one).training_step(one, *args, **kwargs)
            self.look_at(loss, one)
            return loss

        training_step.is_watched = True  # type: ignore[attr-defined]
        trainer.training_step = training_step

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.reset()
        self.state = state
        own = {
            "recomputation": self.architecture.recomputation, "gpu": self.stages.gpu, "architecture": self.trained_architecture,
        }  # fmt: skip
        trainer = self.training(state)
        self.settings.update(self.setting_readers.read({**self.setting_readers.PREPARED, **own}, trainer))
        self.gpu = self.settings.pop("gpu")
        size = max(self.world_size, self.setting_readers.group_size(None))
        self.ending = self.endings.build(self.measure, rank=self.rank, world_size=size)
        self.stamp("train_begin")
        if not self.off:
            if trainer is not None:
                self.watch_loss(trainer)
            native = self.tracker == "native" or (self.tracker is None and not args.skip_memory_metrics)
            self.memory.begin(resets=not native)
            parts = {"counting": self.counting, "compilations": self.compilations}
            clock = self.clocks.clock_of(args.device.type)
            shared = any(self.setting_readers.ranks_along(name, trainer) > 1 for name in self.phases.SHARING)
            device = args.device.type
            divide, self.waits_unknown = self.phases.divider(
                self.settings, world_size=size, device=device, shared=shared
            )
            if self.profile:
                self.profile.begin(state.max_steps - state.global_step)
            self.meter = self.meters.Meter(
                self.folder, rank=self.rank, clock=clock, toggle=self.toggle, divide=divide, **parts
            )

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.meter.begin()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.steps += 1
        if self.meter is not None:
            if not self.meter.batches:  # a custom training step, which does not call the Trainer's
                self.harvest()
            # The first step has all its micro-batches; the last step of an epoch may have fewer.
            if self.steps == 1 and self.meter.batches:
                self.settings["gradient_accumulation_steps"] = len(self.meter.batches)
            self.meter.end(state.global_step)
            if self.profile and self.profile.step():
                self.meter.happened("profile")
            if getattr(control, "should_evaluate", False) or getattr(control, "should_save", False):
                self.known += self.meter.harvest() or []  # the next step will come late
            if self.steps == 1:
                self.memory.close(following="steady")
                self.waited_before, self.waiting_since = self.clocks.waited_s(), time.time()
        known, self.known = self.known, []
        ended = self.ending.after(self.steps, known)
        if ended and state.global_step < state.max_steps:
            control.should_training_stop = True
            self.stopped = {"step": state.global_step, **{name: finite(value) for name, value in ended.items()}}

    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.meter is not None:
            self.meter.happened("evaluate")

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.meter is not None:
            self.meter.happened("save")

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        logs = logs or {}
        if "loss" in logs:  # if tokens are counted, these logs have a train_runtime, as the final metrics do
            loss = finite(logs["loss"])
            self.losses.append((state.global_step, loss))
            self.log_times.append((state.global_step, time.time()))
            if loss is None and self.nonfinite is None:
                self.nonfinite = state.global_step
            if self.meter is not None:
                self.meter.loss(state.global_step, loss)
        elif "train_runtime" in logs:
            self.metrics = {name: finite(value) for name, value in logs.items()}
            if "train_loss" in logs and self.metrics["train_loss"] is None and self.nonfinite is None:
                self.nonfinite = state.global_step  # no logged loss showed it
            if self.stopped:
                self.metrics = self.endings.for_steps_done(self.metrics, done=self.steps, planned=state.max_steps)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.stamp("train_end")
        self.state = None
        self.close()

    def close(self) -> None:
        if self.profile:
            self.profile.end()
        if self.meter is not None:
            self.memory.close()
            waited = self.clocks.waited_s()
            if waited is not None and self.waited_before is not None:
                waited = max(0.0, waited - self.waited_before)  # less if a thread has ended
                self.core_wait = {"waited_s": waited, "wall_s": time.time() - self.waiting_since}
            self.meter.close()
            self.stamps["first_step_end"] = self.meter.first_end

    @property
    def step(self) -> int | None:
        """The number of the last step that ended in a running training, else None."""
        return None if self.state is None else int(self.state.global_step)

    def document(self) -> dict[str, Any]:
        """Return the whole record at the end of the process, even if the training failed."""
        if self.state is not None:
            self.close()
        meter, settings = self.meter, dict(self.settings)
        rows, times = settings.get("per_device_train_batch_size"), settings.get("gradient_accumulation_steps")
        if rows and times:
            settings["global_batch"] = rows * times * (settings.get("data_parallel_ranks") or self.world_size)
        unsteady = {"steady": None} if self.steps < 2 else {}
        return {
            "rank": self.rank, "local_rank": self.local_rank, "world_size": self.world_size,
            "clock": meter and meter.clock.name, "stamps": {**self.stamps, "written": time.time()},
            "metrics": self.metrics, "tokens": meter.tokens() if meter else {"steps": self.steps},
            "memory": {**self.memory.stages, **unsteady}, "peak": self.memory.over_process(), "gpu": self.gpu,
            "core_wait": self.core_wait, "settings": settings, "losses": self.losses, "log_times": self.log_times,
            "nonfinite_step": self.nonfinite, "measure": self.measure or None, "stopped": self.stopped,
            "instrument": "off" if self.off else "on", "instrument_error": meter and meter.trouble,
            "memory_tracker": self.tracker, "toggle_steps": self.toggle, "profile": self.profile and self.profile.notes,
            "undivided": meter and meter.undivided, "waits_unknown": self.waits_unknown,
            "compiling": meter and self.compilations.stages(),
        }  # fmt: skip
