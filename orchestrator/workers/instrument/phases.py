"""Divides each step of a training into parts: data, forward pass, backward pass, optimizer; and the waits for other ranks in them.

What is measured, and how: a mark of the clock (`clocks.py`) is set where a part begins. It is read later, with the step's other
marks, so nothing waits for it. `data` lasts while the Trainer fetches the batches of a step. `forward` lasts from the beginning of
the Trainer's training step until accelerate's `backward` is called, and `backward` until that function returns. The time from the
last backward pass to the step's end is `optimizer`: clipping, the optimizer, the scheduler, clearing gradients. With gradient
accumulation, the passes of all micro-batches are added up. On CUDA a part lasts as long as the GPU's stream needs for it. So it
includes the time in which the GPU waits for the next kernel. `data` is the time in which the GPU only waits for the batch.

The wait for other ranks is exposed communication: the stream that computes has to wait. Replicas (DDP) wait at the end of the
backward pass, after autograd's last kernel. They also wait before a forward pass that begins with a broadcast of buffers. With
sharded models (FSDP), every EVERY_STEPS-th step has a mark before and after each wait of this stream for another stream.

`host` is the time of those passes and optimizers at whose end the GPU waited for the host. The GPU passed such an end as soon as
the host had set the mark. The clocks of GPU and host drift apart; the smallest delay of the last marks corrects this.

What the numbers leave out: communication inside an optimizer, such as the sum of a gradient norm; with torch.compile, the broadcast
of buffers; an optimizer that acts inside the backward pass counts as backward pass. A training step of the target's own that does
not call the Trainer's has no forward pass, so its passes are not known.

This is a part of the instrument (`instrument.py`). It imports only the standard library.
"""

from __future__ import annotations

import functools
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple, Optional

BETWEEN, DATA, BEGUN, FORWARD, BACKWARD, OPTIMIZER = "between", "data", "begun", "forward", "backward", "optimizer"
WAIT = "_comm"
REPLICAS, COMPILED_REPLICAS, SHARDED = "replicas", "compiled replicas", "sharded"
# The sizes of accelerate's mesh whose ranks share the rows of a batch or the matrices of the model.
SHARING = ("cp_size", "sp_size", "tp_size")
# With a sharded model, the waits for other ranks are marked in every such step.
EVERY_STEPS = 5
# The GPU waited for the host if it passed the end of a part within this share of the part, or within this time.
PROMPT_SHARE, PROMPT_S = 0.05, 50e-6
# The clocks of GPU and host may drift apart by this share of the time. The smallest delay of so many marks shows the drift.
DRIFT, MARKS = 5e-5, 64


class Cut(NamedTuple):
    """A moment at which a part of a step begins, as a mark, and the host's time when it set the mark."""

    part: str
    mark: Any
    host_s: float


class Division(NamedTuple):
    """The cuts of a step in order; the last cut is its end. `waits` says whether all waits for other ranks are among them."""

    cuts: tuple[Cut, ...]
    waits: bool


def undivided(settings: Mapping[str, Any], *, device: str) -> Optional[str]:
    """Return why the steps of a training cannot be divided, or None."""
    if device not in ("cuda", "cpu"):
        return f"the times of a device of the type {device} are not known"
    if settings.get("distributed_type") == "DEEPSPEED":
        return "DeepSpeed's backward pass includes the optimizer"
    return None


def divider(
    settings: Mapping[str, Any], *, world_size: int, device: str, shared: bool
) -> tuple[Callable[[Any, Any], Any], Optional[str]]:
    """Return two values: a function that makes the `Phases` of a training, and why waits for other ranks are not known, if so.

    `shared` is true if several ranks share the rows of a batch or the matrices of the model.
    """
    how, why, kind = "", undivided(settings, device=device), settings.get("distributed_type")
    if why:
        return functools.partial(refuse, why), why
    if world_size == 1:
        why = "a single process waits for no other process"
    elif shared:
        why = "ranks share rows or matrices, so they also wait for each other inside the model"
    elif kind in ("MULTI_GPU", "MULTI_CPU"):
        how = COMPILED_REPLICAS if settings.get("torch_compile") else REPLICAS
    elif kind == "FSDP" and device == "cuda":
        how = SHARDED
    elif kind == "FSDP":
        why = "without a GPU, ranks of a sharded model wait inside many calls"
    else:
        why = f"it is not known where a training of the type {kind} waits for other ranks"
    return functools.partial(Phases, how=how), why


def refuse(why: str, *_: Any) -> None:
    raise ValueError(why)


class Phases:
    """The parts of the steps of one training, which began at `start`. `how` says in which way ranks wait for each other."""

    def __init__(self, clock: Any, start: Any, *, how: str = "") -> None:
        self.clock, self.how, self.steps = clock, how, 0
        self.pace = Pace(start) if clock.name == "cuda" else None
        self.cuts: list[Cut] = []
        self.unwatch: Optional[Callable[[], None]] = None
        self.trouble: Optional[str] = None
        if how == REPLICAS:
            broadcasting(self)

    def cut(self, part: str, mark: Any = None) -> None:
        self.cuts.append(Cut(part, self.clock.mark() if mark is None else mark, time.perf_counter()))

    def enter(self, part: str) -> None:
        """Begin a part. What came after a backward pass was not the optimizer if another micro-batch follows."""
        last = self.cuts[-1].part if self.cuts else BETWEEN
        if last == OPTIMIZER:
            self.cuts[-1] = self.cuts[-1]._replace(part=BEGUN)
        if last == BEGUN and part == FORWARD:
            self.cuts[-1] = self.cuts[-1]._replace(part=FORWARD)
        else:
            self.cut(part)
        if part == FORWARD and self.how == SHARDED and self.steps % EVERY_STEPS == EVERY_STEPS - 1 and not self.unwatch:
            self.unwatch = watch_stream(self)

    def before_backward(self, loss: Any) -> None:
        """Set a mark when autograd has started its last kernel. Replicas wait for the sums of gradients after this mark."""
        if "replicas" in self.how and getattr(loss, "requires_grad", False):
            torch = sys.modules["torch"]
            stream = torch.cuda.current_stream() if self.clock.name == "cuda" else None
            queue = torch.autograd.Variable._execution_engine.queue_callback

            def hook(_: Any) -> None:
                queue(functools.partial(self.waits, BACKWARD, stream))

            # The first node of the backward pass runs this hook, so the function comes before those of DDP.
            loss.register_hook(hook)

    def waits(self, part: str, stream: Any, *, ends: bool = False) -> None:
        """Set a mark where a wait for other ranks begins or ends. An error ends the dividing, but not the training."""
        try:
            if self.cuts and self.cuts[-1].part == (part + WAIT if ends else part):
                self.cut(part if ends else part + WAIT, self.clock.mark(stream))
        except Exception as error:
            self.trouble = f"{type(error).__name__}: {error}"

    def take(self, end: Any) -> Division:
        """Return the cuts of the step that ends now."""
        if self.unwatch:
            self.unwatch()
        waits = "replicas" in self.how or self.unwatch is not None
        self.cut("", end)
        division = Division(tuple(self.cuts), waits)
        self.cuts, self.unwatch, self.steps = [], None, self.steps + 1
        return division

    def read(self, start: Any, division: Division) -> dict[str, float]:
        """Return the seconds of each part that is known. The GPU has passed the step's end; `start` is the step's start."""
        if self.trouble:
            raise RuntimeError(self.trouble)
        cuts = division.cuts
        marks = [start, *(cut.mark for cut in cuts)]
        names = [BETWEEN, *(cut.part for cut in cuts[:-1])]
        seconds = [max(0.0, self.clock.between(a, b)) for a, b in zip(marks, marks[1:])]  # noqa: B905, RUF007 (Python 3.9)
        host_s = self.pace.host_bound_s(self.clock, start, names, seconds, cuts) if self.pace else None
        sums: dict[str, float] = {}
        for name, value in zip(names, seconds):  # noqa: B905 (Python 3.9)
            sums[name] = sums.get(name, 0.0) + value
        known = {DATA: sums[DATA]} if DATA in sums else {}
        if FORWARD in sums and BACKWARD in sums:
            for name in (FORWARD, BACKWARD):
                known[name] = sums[name] + sums.get(name + WAIT, 0.0)
                known.update({name + WAIT: sums.get(name + WAIT, 0.0)} if division.waits else {})
            known[OPTIMIZER] = sums.get(OPTIMIZER, 0.0)
            known.update({} if host_s is None else {"host": host_s})
        return {name: round(value, 7) for name, value in known.items()}


class Pace:
    """The delays with which the GPU passes the marks of the host."""

    def __init__(self, start: Any) -> None:
        self.mark, self.gpu_s, self.begun = start, 0.0, time.perf_counter()
        self.delays: deque[float] = deque(maxlen=MARKS)

    def host_bound_s(
        self, clock: Any, start: Any, names: Sequence[str], seconds: Sequence[float], cuts: Sequence[Cut]
    ) -> float:
        """Return the time of those parts of a step at whose end the GPU waited for the host."""
        if start is not self.mark:  # steps between were not measured
            self.gpu_s += clock.between(self.mark, start)
        ends = [self.gpu_s + passed for passed in accumulate(seconds)]
        self.mark, self.gpu_s = cuts[-1].mark, ends[-1]
        delays = [end - (cut.host_s - self.begun) for end, cut in zip(ends, cuts)]  # noqa: B905 (Python 3.9)
        self.delays.extend(delays)
        drift = min(*self.delays, DRIFT * self.gpu_s)
        bound_s = part_s = 0.0
        for at, (name, value) in enumerate(zip(names, seconds)):  # noqa: B905 (Python 3.9)
            part = name[: -len(WAIT)] if name.endswith(WAIT) else name
            following = names[at + 1] if at + 1 < len(names) else ""
            part_s += value
            if following not in (part, part + WAIT):
                if part in (FORWARD, BACKWARD, OPTIMIZER) and delays[at] - drift <= max(
                    PROMPT_SHARE * part_s, PROMPT_S
                ):
                    bound_s += part_s
                part_s = 0.0
        return bound_s


def watch_stream(phases: Phases) -> Callable[[], None]:
    """Mark each wait of the current stream for another stream, until the returned function is called."""
    cuda = sys.modules["torch"].cuda
    kind, computing = cuda.Stream, cuda.current_stream().cuda_stream
    wait = kind.wait_event

    def wait_event(stream: Any, event: Any) -> None:
        part = phases.cuts[-1].part if phases.cuts else ""
        if stream.cuda_stream != computing or part not in (FORWARD, BACKWARD):
            wait(stream, event)
            return
        phases.waits(part, stream)
        wait(stream, event)
        phases.waits(part, stream, ends=True)

    kind.wait_event = wait_event
    return functools.partial(setattr, kind, "wait_event", wait)


def fetching(fetch: Callable[..., Any], enter: Callable[..., None]) -> Callable[..., Any]:
    """Wrap the Trainer's function that fetches the batches of a step."""

    @functools.wraps(fetch)
    def get_batch_samples(*args: Any, **kwargs: Any) -> Any:
        enter(DATA)
        found = fetch(*args, **kwargs)
        if not found or not found[0]:  # the data has ended
            enter(BETWEEN)
        return found

    return get_batch_samples


def passing_back(backward: Callable[..., Any], enter: Callable[..., None]) -> Callable[..., Any]:
    """Wrap accelerate's function that carries out the backward pass."""

    @functools.wraps(backward)
    def divided(accelerator: Any, loss: Any, *args: Any, **kwargs: Any) -> Any:
        enter(BACKWARD, loss)
        found = backward(accelerator, loss, *args, **kwargs)
        enter(OPTIMIZER)
        return found

    return divided


def broadcasting(phases: Phases) -> None:
    """Mark DDP's broadcast of buffers before a forward pass. Wrap the function only once in a process."""
    kind: Any = sys.modules["torch"].nn.parallel.DistributedDataParallel
    broadcast = kind._sync_buffers
    if hasattr(broadcast, "phases"):
        broadcast.phases = phases
        return

    @functools.wraps(broadcast)
    def sync_buffers(model: Any) -> Any:
        current: Phases = sync_buffers.phases  # type: ignore[attr-defined]
        current.waits(FORWARD, None)
        found = broadcast(model)
        current.waits(FORWARD, None, ends=True)
        return found

    sync_buffers.phases = phases  # type: ignore[attr-defined]
    kind._sync_buffers = sync_buffers


def patch(trainer: Any, accelerator: Any, enter: Callable[..., None]) -> None:
    """Make two classes call `enter`: the Trainer where it fetches batches, the Accelerator around its backward pass."""
    if hasattr(trainer, "get_batch_samples"):
        trainer.get_batch_samples = fetching(trainer.get_batch_samples, enter)
    if accelerator is not None:
        accelerator.backward = passing_back(accelerator.backward, enter)
