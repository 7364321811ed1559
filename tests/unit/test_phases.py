"""The parts of a step, with a GPU and a host whose clocks the test moves."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

torch = pytest.importorskip("torch")
import compilations  # noqa: E402
import counting  # noqa: E402
import meter as meters  # noqa: E402
import phases  # noqa: E402
from clocks import HostClock  # noqa: E402


class Machine(HostClock):
    """A GPU and its host. The host takes time to hand work over; the GPU works on it in order."""

    name = "cuda"

    def __init__(self, *, drift: float = 0.0) -> None:
        self.host_s = self.gpu_s = 0.0
        self.drift = drift

    def hand_over(self, host_s: float, gpu_s: float) -> None:
        """Hand over work in many small pieces, so that the GPU begins it soon."""
        for _ in range(1000):
            self.host_s += host_s / 1000
            self.gpu_s = max(self.gpu_s, self.host_s) + gpu_s / 1000

    def wait(self) -> None:
        self.host_s = max(self.host_s, self.gpu_s)

    def mark(self, stream: Any = None) -> float:
        """Return the time of the GPU's clock at which it passes the mark."""
        self.gpu_s = max(self.gpu_s, self.host_s)
        return self.gpu_s * (1 + self.drift)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Machine]:
    def made(**how: float) -> Machine:
        own = Machine(**how)
        monkeypatch.setattr(phases, "time", SimpleNamespace(perf_counter=lambda: own.host_s))
        return own

    return made


def step(
    machine: Machine,
    divided: phases.Phases,
    start: float,
    *,
    host: float,
    gpu: float,
    micro: int = 1,
    data_s: float = 0.0,
) -> tuple[dict[str, float], float]:
    """Make one step of a forward, a backward (twice the work) and an optimizer. Return its parts and its end."""
    divided.enter("data")
    machine.host_s += data_s
    divided.cut("begun", machine.mark())
    for _ in range(micro):
        divided.enter("forward")
        machine.hand_over(host, gpu)
        divided.enter("backward")
        machine.hand_over(host, 2 * gpu)
        divided.enter("optimizer")
    machine.hand_over(host, gpu)
    end = machine.mark()
    return divided.read(start, divided.take(end)), end


def test_a_step_is_the_sum_of_its_parts(machine: Callable[..., Machine]) -> None:
    own = machine()
    start = own.mark()
    parts, end = step(own, phases.Phases(own, start), start, host=0.001, gpu=1.0, data_s=0.5)
    assert parts == {
        "data": 0.5, "forward": pytest.approx(1, abs=1e-3), "backward": pytest.approx(2, abs=1e-3),
        "optimizer": pytest.approx(1, abs=1e-3), "host": 0.0,
    }  # fmt: skip
    assert sum(parts.values()) == pytest.approx(end - start, abs=1e-6)


def test_passes_of_all_micro_batches_are_added_up_and_what_is_between_them_is_not_the_optimizers(
    machine: Callable[..., Machine],
) -> None:
    own = machine()
    start = own.mark()
    parts, _ = step(own, phases.Phases(own, start), start, host=0.001, gpu=1.0, micro=3)
    assert [round(parts[name], 2) for name in ("forward", "backward", "optimizer")] == [3, 6, 1]


def test_data_that_comes_while_the_gpu_still_works_costs_nothing(machine: Callable[..., Machine]) -> None:
    own = machine()
    divided, start = phases.Phases(own, own.mark()), own.mark()
    _, start = step(own, divided, start, host=0.001, gpu=1.0)
    parts, _ = step(own, divided, start, host=0.001, gpu=1.0, data_s=0.5)
    assert parts["data"] == 0


@pytest.mark.parametrize("drift", [0.0, 4e-5, -4e-5])
@pytest.mark.parametrize("waits", [True, False], ids=["the host waits in each step", "the host waits never"])
def test_the_host_sets_the_pace_where_the_gpu_waits_for_it(
    machine: Callable[..., Machine], drift: float, waits: bool
) -> None:
    for host, gpu, share in ((0.06, 0.02, 1.0), (0.01, 0.1, 0.0)):
        own = machine(drift=drift)
        divided, end = phases.Phases(own, own.mark()), own.mark()
        bound = total = 0.0
        for _ in range(400):
            start = end
            parts, end = step(own, divided, start, host=host, gpu=gpu)
            bound, total = bound + parts["host"], total + end - start
            if waits:
                own.wait()
        assert bound / total == pytest.approx(share, abs=0.02)


def test_only_the_parts_that_the_host_paces_count(machine: Callable[..., Machine]) -> None:
    """The backward pass is long enough for the GPU to fall behind; the passes of the next step begin with an idle GPU."""
    own = machine()
    divided, end = phases.Phases(own, own.mark()), own.mark()
    for _ in range(5):
        start = end
        parts, end = step(own, divided, start, host=0.06, gpu=0.05)
        own.wait()
    assert parts["host"] == pytest.approx(parts["forward"], abs=1e-4)


def test_a_wait_for_other_ranks_is_part_of_its_pass(machine: Callable[..., Machine]) -> None:
    own = machine()
    divided, start = phases.Phases(own, own.mark(), how=phases.SHARDED), own.mark()
    divided.enter("forward")
    own.hand_over(0.001, 1.0)
    divided.enter("backward")
    own.hand_over(0.001, 1.0)
    divided.waits("backward", None)
    own.gpu_s += 0.25
    divided.waits("backward", None, ends=True)
    own.hand_over(0.001, 0.5)
    divided.enter("optimizer")
    division = divided.take(own.mark())
    assert not division.waits, "the waits of this step were not watched"
    parts = divided.read(start, division._replace(waits=True))
    assert (parts["backward"], parts["backward_comm"]) == (pytest.approx(1.75, abs=1e-3), pytest.approx(0.25))
    assert (parts["forward_comm"], parts["optimizer"]) == (0.0, 0.0)


def test_a_mark_before_the_replicas_wait_comes_from_the_first_node_of_the_backward_pass() -> None:
    """DDP's own function is queued later, by the last gradients. So it runs after ours."""
    divided, order = phases.Phases(HostClock(), 0.0, how=phases.COMPILED_REPLICAS), []
    weight = torch.ones(3, requires_grad=True)

    def last_gradient(_: Any) -> None:
        torch.autograd.Variable._execution_engine.queue_callback(lambda: order.append(divided.cuts[-1].part))

    weight.register_hook(last_gradient)
    loss = (2 * weight).sum()
    divided.enter("forward")
    divided.enter("backward")
    divided.before_backward(loss)
    loss.backward()
    divided.enter("optimizer")
    assert order == ["backward_comm"]
    assert [cut.part for cut in divided.cuts] == ["forward", "backward", "backward_comm", "optimizer"]
    assert weight.grad.tolist() == [2, 2, 2]


class Stream:
    """Stands for torch.cuda.Stream."""

    waited: ClassVar[list[tuple[int, str]]] = []

    def __init__(self, cuda_stream: int) -> None:
        self.cuda_stream = cuda_stream

    def wait_event(self, event: str) -> None:
        self.waited.append((self.cuda_stream, event))


def test_the_waits_of_the_computing_stream_are_marked_in_every_fifth_step(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = SimpleNamespace(Stream=Stream, current_stream=lambda: Stream(7))
    monkeypatch.setattr(phases, "sys", SimpleNamespace(modules={"torch": SimpleNamespace(cuda=cuda)}))
    divided, plain = phases.Phases(HostClock(), 0.0, how=phases.SHARDED), Stream.wait_event
    watched = []
    for number in range(10):
        divided.enter("forward")
        Stream(8).wait_event("copied")
        Stream(7).wait_event(f"gathered {number}")
        divided.enter("backward")
        divided.enter("optimizer")
        Stream(7).wait_event("stepped")
        division = divided.take(0.0)
        watched.append(division.waits)
        parts = [cut.part for cut in division.cuts]
        middle = ["forward_comm", "forward"] if division.waits else []
        assert parts == ["forward", *middle, "backward", "optimizer", ""]
        assert Stream.wait_event is plain, "between the steps nothing is left"
    assert watched == [number % 5 == 4 for number in range(10)]
    assert Stream.waited[:3] == [(8, "copied"), (7, "gathered 0"), (7, "stepped")] and len(Stream.waited) == 30


ONE = {"world_size": 1, "device": "cuda", "shared": False}


@pytest.mark.parametrize(
    ("settings", "more", "how", "why"),
    [
        ({"distributed_type": "NO"}, {}, "", "a single process"),
        ({"distributed_type": "MULTI_GPU"}, {"world_size": 2}, "replicas", None),
        ({"distributed_type": "MULTI_CPU", "torch_compile": True}, {"world_size": 2}, "compiled replicas", None),
        ({"distributed_type": "MULTI_GPU"}, {"world_size": 2, "shared": True}, "", "inside the model"),
        ({"distributed_type": "FSDP"}, {"world_size": 2}, "sharded", None),
        ({"distributed_type": "FSDP"}, {"world_size": 2, "device": "cpu"}, "", "without a GPU"),
        ({"distributed_type": "MEGATRON_LM"}, {"world_size": 2}, "", "MEGATRON_LM"),
    ],
)
def test_how_ranks_wait_for_each_other(settings: Any, more: Any, how: str, why: str | None) -> None:
    make, reason = phases.divider(settings, **{**ONE, **more})
    assert make(HostClock(), 0.0).how == how
    assert reason is None if why is None else why in reason


@pytest.mark.parametrize(
    ("settings", "device", "why"),
    [({"distributed_type": "DEEPSPEED"}, "cuda", "DeepSpeed"), ({"distributed_type": "NO"}, "xpu", "xpu")],
)
def test_steps_that_cannot_be_divided_are_timed_and_say_why(
    settings: Any, device: str, why: str, tmp_path: Path
) -> None:
    make, reason = phases.divider(settings, **{**ONE, "device": device, "world_size": 2})
    meter = made(tmp_path, make)
    whole_step(meter)
    assert reason is not None and meter.undivided == reason and why in reason
    assert "parts" not in written(tmp_path)


def made(folder: Path, divide: Any) -> meters.Meter:
    parts = {"counting": counting, "compilations": compilations}
    return meters.Meter(str(folder), rank=0, clock=HostClock(), divide=divide, **parts)


def whole_step(meter: meters.Meter, *parts: str) -> None:
    meter.begin()
    for part in parts:
        meter.enter(part)
    meter.end(1)
    meter.close()


def written(folder: Path) -> dict[str, Any]:
    line: dict[str, Any] = json.loads((folder / "steps-rank0.jsonl").read_text().splitlines()[0])
    return line


def test_an_error_ends_the_dividing_but_not_the_times(tmp_path: Path) -> None:
    class Failing(phases.Phases):
        def enter(self, part: str) -> None:
            raise RuntimeError("an illegal memory access was encountered")

    meter = made(tmp_path, Failing)
    whole_step(meter, "forward", "backward", "optimizer")
    assert (meter.undivided, meter.trouble) == (
        "enter: RuntimeError: an illegal memory access was encountered",
        None,
    )
    assert written(tmp_path)["s"] > 0 and "parts" not in written(tmp_path)


def test_a_step_without_a_forward_pass_has_no_passes(tmp_path: Path) -> None:
    meter = made(tmp_path, phases.Phases)
    meter.enter("data")
    whole_step(meter, "backward", "optimizer")
    assert written(tmp_path)["parts"].keys() == {"data"}


def test_the_time_after_the_last_data_belongs_to_no_part() -> None:
    entered: list[str] = []
    batches = iter([([1], None), ([], None)])
    fetch = phases.fetching(lambda: next(batches), entered.append)
    assert fetch() == ([1], None) and fetch() == ([], None)
    assert entered == ["data", "data", "between"]
