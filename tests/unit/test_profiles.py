"""Traces of torch's profiler: what is read from them, the difference of two, and the command `profile`."""

from __future__ import annotations

import gzip
import json
import random
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factories.results import BASE, ended, failed, stored
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.cli.results.profile_command import command_of
from orchestrator.errors import OrchestratorError
from orchestrator.files.redaction import MASK
from orchestrator.machine.provenance import Machine
from orchestrator.plan.config import load_suite
from orchestrator.plan.expand import expand
from orchestrator.plan.selection import parse_selection
from orchestrator.records import Experiment
from orchestrator.report.profile.difference import changes, short_name
from orchestrator.report.profile.places import profiled, trace_of
from orchestrator.report.profile.trace import Operation, Profile, read
from orchestrator.report.profile.view import verdict
from orchestrator.results import requested
from orchestrator.results.store import Store

Event = dict[str, Any]
Call = Callable[..., tuple[int, str, str]]


def event(name: str, begin_us: float, length_us: float, category: str = "kernel", thread: int = 7) -> Event:
    return {"ph": "X", "cat": category, "name": name, "ts": begin_us, "dur": length_us, "pid": 0, "tid": thread}


def step(number: int, begin_us: float, length_us: float) -> Event:
    return event(f"ProfilerStep#{number}", begin_us, length_us, "user_annotation", 1)


def written(path: Path, events: list[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"schemaVersion": 1, "traceEvents": events}).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def test_the_time_of_a_step_on_the_device_and_the_exposed_communication(tmp_path: Path) -> None:
    found = read(
        written(
            tmp_path / "rank0.json.gz",
            [
                step(10, 0, 100),
                step(11, 100, 100),
                event("gemm", 10, 40),
                event("gemm", 110, 40),
                event("ncclDevKernel_AllReduce", 30, 40, thread=8),  # 20 of them while gemm runs
                event("Memcpy HtoD", 90, 10, "gpu_memcpy"),
                {"ph": "M", "name": "process_name", "pid": 0},
            ],
        )
    )
    assert (found.steps, found.step_s) == (2, pytest.approx(100e-6))
    assert found.device["gemm"] == Operation(pytest.approx(40e-6), 1)
    assert found.busy_s == pytest.approx((60 + 40 + 10) / 2 * 1e-6)
    assert found.communication_s == pytest.approx(20e-6) and found.exposed_s == pytest.approx(10e-6)
    assert found.launches == 2


def test_an_operator_of_the_host_has_its_own_time_only(tmp_path: Path) -> None:
    found = read(
        written(
            tmp_path / "rank0.json",
            [
                step(1, 0, 100),
                event("aten::linear", 0, 50, "cpu_op", 1),
                event("aten::addmm", 10, 30, "cpu_op", 1),
                event("aten::copy_", 10, 5, "cpu_op", 1),
                event("aten::copy_", 20, 30, "cpu_op", 2),  # another thread
            ],
        )
    )
    own = {name: operation.seconds * 1e6 for name, operation in found.host.items()}
    assert own == {
        "aten::linear": pytest.approx(20),
        "aten::addmm": pytest.approx(25),
        "aten::copy_": pytest.approx(35),
    }
    assert found.busy_s is None and found.operations is found.host


@pytest.mark.parametrize("seed", range(10))
def test_a_planted_slow_kernel_is_named_first(tmp_path: Path, seed: int) -> None:
    """200 kernels in each step, whose times differ by up to 2 % between the two profiles. One takes twice as long."""
    draw = random.Random(seed)
    names = [f"void kernel_{number}<float, {number}>(int)" for number in range(200)]
    lengths = {name: draw.uniform(5, 40) for name in names}
    slow = draw.choice(names)

    def trace(file: str, factors: dict[str, float]) -> Profile:
        events, now = [], 0.0
        for number in range(3):
            begin = now
            for name in names:
                length = lengths[name] * factors.get(name, 1) * draw.uniform(0.99, 1.01)
                events.append(event(name, now, length))
                now += length
            events.append(step(number, begin, now - begin))
        return read(written(tmp_path / file, events))

    base, new = trace("base.json", {}), trace("new.json", {slow: 2})
    found = changes(base, new)
    assert found[0].name == slow and found[0].seconds > 0
    assert f"{slow} takes" in verdict(base, new, found)


def profile_of(**seconds: float) -> Profile:
    operations = {name: Operation(value, 1) for name, value in seconds.items()}
    return Profile(steps=1, step_s=sum(seconds.values()), device=operations, host={}, busy_s=0.0)


def test_a_kernel_whose_parameters_changed_is_the_same_kernel() -> None:
    base = profile_of(**{"void gemm<float, 128>(int)": 1.0, "void gone<1>()": 0.5})
    new = profile_of(**{"void gemm<float, 256>(int)": 1.5, "void fresh<1>()": 0.25})
    found = {change.name: (change.base.seconds, change.new.seconds) for change in changes(base, new)}
    assert found == {"gemm": (1.0, 1.5), "gone": (0.5, 0.0), "fresh": (0.0, 0.25)}
    assert "gone takes 500 ms less, since it is gone." in verdict(base, new, changes(base, new))


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("void at::native::f<at::A<(int)4>, float>(int, char*)", "at::native::f"),
        ("triton_poi_fused_add_mul_12", "triton_poi_fused_add_mul"),
        ("ncclDevKernel_AllReduce_Sum_bf16(x)", "ncclDevKernel_AllReduce_Sum_bf16"),
        ("<lambda>", "<lambda>"),
        ("sm90_xmma_gemm_bf16_128x128", "sm90_xmma_gemm_bf16_128x128"),
    ],
)
def test_a_short_name_has_no_parameters(name: str, short: str) -> None:
    assert short_name(name) == short


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
_fields = {"ph": st.just("X"), "cat": st.sampled_from(["kernel", "cpu_op", "user_annotation"])}
_events = st.fixed_dictionaries({**_fields, "name": _json, "ts": _json, "dur": _json, "tid": _json})


@given(events=st.lists(_events | _json, max_size=12))
def test_any_events_are_read_or_left_out(tmp_path_factory: pytest.TempPathFactory, events: list[Any]) -> None:
    folder = tmp_path_factory.mktemp("any")
    found = read(written(folder / "rank0.json", [step(1, 0, 10), *events]))
    assert found.steps >= 1 and (found.busy_s is None or found.busy_s >= 0)
    assert all(operation.seconds >= 0 for operation in found.operations.values())


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"{", "the trace cannot be read: it is not JSON; remove it and profile again"),
        (b"[1]", "this is not a trace of torch's profiler; name a file such as rank0.json.gz"),
        (b'{"traceEvents": [{"ph": "X", "ts": ' + b"9" * 5000 + b"}]}", "the trace has no ProfilerStep#…"),
        (b"[" * 100_000, "the trace cannot be read: "),
    ],
)
def test_a_file_that_is_no_trace_is_refused_in_a_sentence(tmp_path: Path, content: bytes, sentence: str) -> None:
    (tmp_path / "rank0.json").write_bytes(content)
    with pytest.raises(OrchestratorError) as refused:
        read(tmp_path / "rank0.json")
    assert str(refused.value).startswith(f"{tmp_path / 'rank0.json'}: {sentence}")


def test_a_compressed_trace_that_was_cut_off_is_refused(tmp_path: Path) -> None:
    trace = written(tmp_path / "rank0.json.gz", [step(1, 0, 10)])
    trace.write_bytes(trace.read_bytes()[:-12])
    with pytest.raises(OrchestratorError, match="the trace cannot be read"):
        read(trace)


# --- the command -----------------------------------------------------------------------------------------------------


def run_of(results: Path, experiment: str, run: str, *ranks: int) -> Path:
    for rank in ranks:
        written(results / f"experiments/{experiment}/runs/{run}/profile/rank{rank}.json.gz", [step(1, 0, 10)])
    return results / f"experiments/{experiment}/runs/{run}"


def test_the_last_run_of_an_experiment_counts(tmp_path: Path) -> None:
    run_of(tmp_path, "one", "r2-t1", 0)
    last = run_of(tmp_path, "one", "r10-t1", 0, 3)
    for word in (tmp_path, tmp_path / "experiments/one", last, last / "profile", last / "profile/rank0.json.gz"):
        assert trace_of(str(word), results=tmp_path, rank=0) == last / "profile/rank0.json.gz"
    assert trace_of(str(tmp_path), results=tmp_path, rank=3) == last / "profile/rank3.json.gz"
    with pytest.raises(OrchestratorError, match=r"rank 1 has no trace in .*; ranks with a trace: 0, 3"):
        trace_of(str(tmp_path), results=tmp_path, rank=1)


def traces_of(results: Path) -> list[Path]:
    return [made.trace for made in profiled(results, BASE.id)]


def test_the_profile_of_an_experiment_is_that_of_an_ok_run_of_it_or_of_the_same_experiment_with_the_monitor(
    tmp_path: Path,
) -> None:
    tag = BASE.id.rpartition("-")[0]
    twin = replace(BASE, id=f"{tag}-111111111111", monitors=("torch_profiler",))
    other = replace(twin, id=f"{tag}-222222222222", num_gpus=2)
    results = stored(tmp_path / "results", (BASE, [ended(BASE, 1)]), (other, [ended(other, 1)]))
    assert not [*profiled(results, BASE.id), *profiled(tmp_path / "gone", BASE.id)]
    run_of(results, other.id, "r1-t1", 0)
    assert not traces_of(results)
    runs = [ended(twin, 1), ended(twin, 2), failed(twin, 3)]
    stored(tmp_path / "results.profiles", (twin, runs))
    run_of(tmp_path / "results.profiles", twin.id, "r4-t1", 0)  # it has no record yet
    run_of(tmp_path / "results.profiles", twin.id, "r3-t1", 0)
    last = run_of(tmp_path / "results.profiles", twin.id, "r2-t1", 0, 1)
    first = run_of(tmp_path / "results.profiles", twin.id, "r1-t1", 0)
    traces = [run / "profile/rank0.json.gz" for run in (last, first)]
    assert traces_of(results) == traces
    own = run_of(results, BASE.id, "r1-t1", 0)
    assert traces_of(results) == [own / "profile/rank0.json.gz", *traces]
    assert not [*profiled(results, "../results")]


def test_a_folder_without_a_trace_or_with_several_experiments_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OrchestratorError, match=r"no run here has a trace; write `monitors: \[torch_profiler\]`"):
        trace_of(str(tmp_path), results=tmp_path, rank=0)
    run_of(tmp_path, "one", "r1-t1", 0)
    run_of(tmp_path, "two", "r1-t1", 0)
    with pytest.raises(OrchestratorError, match=r"2 experiments have traces; name one of them: one, two"):
        trace_of(str(tmp_path), results=tmp_path, rank=0)


def test_the_command_shows_a_profile_and_the_difference_of_two(tmp_path: Path, in_process: Call) -> None:
    fast = [step(1, 0, 1000), event("gemm", 0, 300), event("ncclDevKernel_AllReduce", 250, 150)]
    slow = [step(1, 0, 1400), event("gemm", 0, 700), event("ncclDevKernel_AllReduce", 650, 150)]
    written(tmp_path / "fast.json", fast)
    written(tmp_path / "slow.json", slow)
    code, said, _ = in_process("profile", "fast.json")
    assert code == 0
    assert said.splitlines() == [
        "fast.json",
        "1 step of 1 ms, GPU busy 400 µs (40%), 2 launches, communication 150 µs, exposed 100 µs",
        "",
        "operation                  time  share  calls",
        "gemm                     300 µs  30.0%      1",
        "ncclDevKernel_AllReduce  150 µs  15.0%      1",
    ]
    code, said, _ = in_process("profile", "fast.json", "slow.json")
    assert code == 0
    assert said.splitlines()[5:] == [
        "operation    base     new   change  calls",
        "gemm       300 µs  700 µs  +400 µs      1",
        "A step takes 400 µs more (+40.0%). The largest change: gemm takes 400 µs more.",
    ]


def launched(number: int, launch_us: float, name: str, begin_us: float, length_us: float) -> list[Event]:
    """A kernel and its launch."""
    call = event("cudaLaunchKernel", launch_us, 1, "cuda_runtime", 1)
    return [{**one, "args": {"correlation": number}} for one in (call, event(name, begin_us, length_us))]


def test_an_operation_belongs_to_the_step_that_launched_it(tmp_path: Path) -> None:
    """The host is ahead by half a step: when the steps begin, the GPU still runs a kernel of the step before."""
    events = [step(1, 0, 100), step(2, 100, 100), event("gemm", 5, 40)]
    events += [one for at in (0, 1, 2) for one in launched(at, at * 100 - 90, "gemm", at * 100 - 40, 90)]
    found = read(written(tmp_path / "rank0.json", events))
    assert found.device == {"gemm": Operation(pytest.approx(90e-6), 1)}
    assert found.busy_s == pytest.approx(90e-6) and found.step_s == pytest.approx(100e-6)
    late = read(written(tmp_path / "rank0.json", [step(1, 0, 100), *launched(1, 50, "gemm", 60, 400)]))
    assert (late.step_s, late.busy_s) == (pytest.approx(400e-6), pytest.approx(400e-6))


def test_odd_events_are_left_out_and_long_names_are_cut(tmp_path: Path) -> None:
    odd = [{**step(1, 0, 9), "cat": ["x"]}, event("late", 1e308, 1e308), event("<" * 200_000 + ">" * 200_000, 1, 2)]
    base = read(written(tmp_path / "rank0.json", [step(1, 0, 9), *odd]))
    assert [len(name) for name in base.device] == [4096]
    assert len(changes(base, read(written(tmp_path / "rank1.json", [step(1, 0, 9), *odd, event("more", 1, 1)])))) == 2


def test_brackets_in_a_name_are_shown(tmp_path: Path, in_process: Call) -> None:
    names = ("void gemm<float>(int) [with T = float]", "f() [/]")
    written(tmp_path / "a.json", [step(1, 0, 100), *(event(name, 10, 20) for name in names)])
    code, said, _ = in_process("profile", "a.json")
    assert code == 0 and all(name in said for name in names)


def test_a_long_path_stays_in_one_line(tmp_path: Path, in_process: Call) -> None:
    paths = [tmp_path / ("long-name-" * 12) / f"{name}.json" for name in ("a", "b")]
    for path in paths:
        written(path, [step(1, 0, 100), event("gemm", 10, 20)])
    assert in_process("profile", str(paths[0]))[1].splitlines()[0] == str(paths[0])
    lines = in_process("profile", *map(str, paths))[1].splitlines()
    assert lines[0] == f"base  {paths[0]}" and lines[2] == f"new   {paths[1]}"


def test_an_operator_of_the_backward_pass_and_the_engines_part_of_it_are_one() -> None:
    engine = "autograd::engine::evaluate_function: MmBackward0"
    base, new = (
        replace(profile_of(), host={engine: Operation(before, 2), "MmBackward0": Operation(after, 2)})
        for before, after in ((0.004, 0.001), (0.002, 0.0035))
    )
    (change,) = changes(base, new)
    assert (change.name, change.seconds, change.base.calls) == ("MmBackward0", pytest.approx(0.0005), 2)


def test_a_folder_without_traces_is_said_before_a_word_that_means_several(tmp_path: Path) -> None:
    root = stored(tmp_path / "results", *((replace(BASE, id=f"cell-{name}"), []) for name in ("a", "b")))
    with pytest.raises(OrchestratorError, match="cell: no run here has a trace; write"):
        trace_of("cell", results=root, rank=0)
    with pytest.raises(OrchestratorError, match=r"there is no experiment 'nothing'\. Allowed: cell-a"):
        trace_of("nothing", results=root, rank=0)
    run_of(root, "cell-a", "r1-t1", 0)
    with pytest.raises(OrchestratorError, match="2 experiments contain 'cell'; name one of"):
        trace_of("cell", results=root, rank=0)
    assert trace_of("cell-a", results=root, rank=0).is_relative_to(root / "experiments" / "cell-a")


PROFILED = """\
scenarios:
- name: full
  device: cpu
  num_gpus: [1, 2]
  framework_config: [null, eager-attention]
  matrix:
    optim: [null, sgd]
    group: ['010', 'yes']
    effective_batch_size: [4, 8]
  include: [{optim: sgd, group: '010', effective_batch_size: 4, extra: 5}]
  arguments: {model_name_or_path: config:tiny-llama, gradient_accumulation_steps: 1, max_steps: 20}
"""


OF_A_RUN = ("output_dir", "training_data_path")


def planned(folder: Path, *, settings: Sequence[str] = ()) -> tuple[Path, Path, Sequence[Experiment]]:
    """Return a scenario file, a results folder with its experiments, and these."""
    file, root = folder / "my scenarios.yaml", folder / "results"
    file.write_text(PROFILED.replace("group", "run_name").replace("extra", "logging_steps"))
    selection = parse_selection(settings=settings)
    found = expand(load_suite(file), selection, Machine()).experiments
    Store.create(root, {}).add(found)
    choices = {"overrides": dict(selection.overrides), "settings": dict(selection.settings)}
    requested.note(root, file=file, choices=choices, names=["full"], experiments=found)
    return file, root, found


def said_of(one: Experiment, root: Path) -> str:
    with pytest.raises(OrchestratorError) as raised:
        trace_of(one.id, results=root, rank=0, command_of=command_of)
    return str(raised.value).partition("has a trace; ")[2]


def test_the_command_that_makes_a_profile_chooses_this_experiment(tmp_path: Path, in_process: Call) -> None:
    """A cell without a value, a text that YAML reads as a number, and a batch size made it choose others, or none."""
    _, root, found = planned(tmp_path, settings=["arguments.seed=7", "env.A=b c"])
    assert {one.arguments.get("optim") for one in found} == {None, "sgd"}
    for one in (found[0], next(one for one in found if "logging_steps" in one.arguments), found[-1]):
        said = said_of(one, root)
        makes, shows = said.removeprefix("this makes and shows one: ").split(" && ")
        words = shlex.split(makes)
        code, out, err = in_process("plan", *words[2:], "--json")
        assert code == 0, err
        (twin,) = json.loads(out)["experiments"]
        arguments = {name: value for name, value in twin["arguments"].items() if name not in OF_A_RUN}
        assert (arguments, twin["num_gpus"]) == (one.arguments, one.num_gpus), makes
        assert shlex.split(shows) == ["tunebench", "profile", f"{root}-profiled"]


@pytest.mark.parametrize("why", ["secret", "edited", "gone", "monitor", "trainer", "damaged"])
def test_no_command_is_named_if_it_would_not_make_the_profile(tmp_path: Path, why: str) -> None:
    changes = {"secret": ["env.A=b"], "monitor": ["monitors=[torch_profiler]"]}
    file, root, (one, *_) = planned(tmp_path, settings=changes.get(why, ()))
    if why == "edited":
        file.write_text(file.read_text().replace("max_steps: 20", "max_steps: 21"))
    if why == "gone":
        file.unlink()
    if why == "trainer":
        place = root / "experiments" / one.id / "experiment.json"
        place.write_text(json.dumps(json.loads(place.read_text()) | {"trainer": "operators"}))
    if why in ("secret", "damaged"):
        (entry,) = (root / "asked").iterdir()
        choices = "[" * 9 if why == "damaged" else json.dumps({"settings": {"env": {"A": MASK}}})
        entry.write_text(json.dumps(json.loads(entry.read_text()) | {"choices": choices}))
    assert said_of(one, root).startswith("write `monitors: [torch_profiler]` into the scenario")


def test_the_folder_beside_the_results_is_named_if_it_has_the_traces(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    with pytest.raises(OrchestratorError, match="into the scenario of a training"):
        trace_of(str(tmp_path / "base"), results=tmp_path, rank=0)
    run_of(tmp_path / "base.profiles", "one", "r1-t1", 0)
    with pytest.raises(
        OrchestratorError, match=r"`rerun --profile` wrote some into .*base\.profiles: name this folder"
    ):
        trace_of(str(tmp_path / "base"), results=tmp_path, rank=0)


def test_a_profile_that_its_command_has_made_is_named_instead_of_the_command(tmp_path: Path) -> None:
    root = stored(tmp_path / "results", (replace(BASE, id="cell-a"), []))

    def command(store: object, name: str, monitor: str, results: str) -> str:
        return f"tunebench run s.yaml --cell twin-of-{name} --results {results}"

    with pytest.raises(OrchestratorError, match="this makes and shows one: tunebench run"):
        trace_of("cell-a", results=root, rank=0, command_of=command)
    run_of(tmp_path / "results-profiled", "twin-of-cell-a", "r1-t1", 0)
    with pytest.raises(OrchestratorError, match="results-profiled has one: tunebench profile /"):
        trace_of("cell-a", results=root, rank=0, command_of=command)
