"""The trainer `operators`: its program on tiny tensors, and the reading of what the program wrote."""

from __future__ import annotations

import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from factories.cases import cases
from factories.comparisons import compared, entry, paired
from factories.results import experiment as made
from factories.suites import expanded, suite

from orchestrator import trainers
from orchestrator.compare.comparison import Verdict
from orchestrator.errors import ConfigError
from orchestrator.measure.metrics import METRICS
from orchestrator.plan.selection import Selection
from orchestrator.records import Experiment
from orchestrator.trainers.external import operators as trainer

torch = pytest.importorskip("torch")
program = pytest.importorskip("operators")
accuracy = pytest.importorskip("accuracy")
calls = pytest.importorskip("calls")
shipped = pytest.importorskip("shipped")

SHAPES = {
    "rotary": "2x2x8x4",
    "attention": "1x2x8x4",
    "linear_cross_entropy": "8x4x16",
    "linear": "8x4x6",
    "lora_linear": "8x4x6",
    "einsum": "2x4x4,4x4",
    "optimizer_step": "64",
}
TRIED = [name for name in trainer.OPERATORS if name not in (*trainer.COLLECTIVES, "nf4_linear")]


def measured(*words: str) -> dict[str, Any]:
    return program.measure(program.parsed(["file", "--min_run_time_s", "0.005", *words]), "cpu")  # type: ignore[no-any-return]


def words_of(name: str) -> list[str]:
    equation = ["--equation", "bij,jk->bik"] if name == "einsum" else []
    return ["--operator", name, "--shape", SHAPES.get(name, "8x16"), *equation]


@pytest.mark.parametrize("name", TRIED)
def test_an_operator_is_as_exact_as_its_type_and_its_time_is_above_0(name: str) -> None:
    for direction in ("forward",) if name in trainer.FORWARD_ONLY else ("forward", "backward", "both"):
        found = measured(*words_of(name), "--direction", direction)
        assert 0 < found["call_time_s"] == found["host_time_s"] < 1
        assert found["device_time_s"] is None and found["device_missing"]
        if name not in trainer.FORWARD_ONLY:
            assert found["relative_error"] < 1e-5
            assert found["bytes_per_call"] > 0


def test_the_backward_pass_of_a_compiler_may_be_repeated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def product(x, weight):\n    return x @ weight.T\n")
    monkeypatch.syspath_prepend(tmp_path)
    found = measured(*words_of("linear"), "--direction", "backward", "--implementation", "mine:product")
    assert found["relative_error"] < 1e-5
    assert not torch._functorch.config.donated_buffer


NAN_GRADIENTS = """
import torch
class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.shapes = x.shape, weight.shape
        return x @ weight.T
    @staticmethod
    def backward(ctx, gradient):
        return torch.zeros(ctx.shapes[0]), torch.full(ctx.shapes[1], float("nan"))
def gradients(x, weight):
    return Product.apply(x, weight)
def results(x, weight):
    return x @ weight.T * float("nan")
"""


@pytest.mark.parametrize(
    ("name", "direction"), [("gradients", "both"), ("gradients", "backward"), ("results", "forward")]
)
def test_a_nan_is_a_wrong_result_and_not_an_exact_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, direction: str
) -> None:
    (tmp_path / "nans.py").write_text(NAN_GRADIENTS)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(accuracy.WrongResult, match="has a NaN or an infinite number"):
        measured(*words_of("linear"), "--direction", direction, "--implementation", f"nans:{name}")


def test_what_is_wrong_where_zeros_are_right_is_an_error() -> None:
    assert accuracy._errors(torch.ones(3), torch.zeros(3)) == (1.0, 1.0)
    assert accuracy._errors(torch.zeros(3), torch.zeros(3)) == (0.0, 0.0)


WRONG_KINDS = """
import torch
def expanded(x, weight):
    return (x @ weight.T).expand(3, 8, 6)
def scalar(x, weight):
    return (x @ weight.T).sum()
def whole(x, weight):
    return (x @ weight.T).round().int()
def complex(x, weight):
    return (x @ weight.T).to(torch.complex64)
def nowhere(x, weight):
    return (x @ weight.T).to("meta")
def two(x, weight):
    return x @ weight.T, x @ weight.T
class Later(torch.Tensor):  # computes its numbers when they are read
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            now = [one.x @ one.weight.T if isinstance(one, cls) else one for one in args]
            return function(*now, **(kwargs or {}))
def later(x, weight):
    found = torch.empty(x.shape[0], weight.shape[0]).as_subclass(Later)
    found.x, found.weight = x, weight
    return found
"""


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("expanded", "has the shape [3, 8, 6], and that of the plain function has [8, 6]."),
        ("scalar", "has the shape [], and that of the plain function has [8, 6]."),
        ("whole", "has the type torch.int32, and that of the plain function has floating-point numbers."),
        ("complex", "has the type torch.complex64, and that of the plain function has floating-point numbers."),
        ("nowhere", "is on the device meta, and that of the plain function is on cpu."),
        ("two", "it returns 2 tensors and gradients; the plain function has 1."),
        ("later", "it returns a tensor of the class Later; return a torch.Tensor, whose numbers are there."),
    ],
)
def test_a_result_of_another_kind_is_no_result(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, why: str
) -> None:
    """Also if the result has the right numbers when it is broadcast."""
    (tmp_path / "kinds.py").write_text(WRONG_KINDS)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(accuracy.WrongResult) as error:
        measured(*words_of("linear"), "--direction", "forward", "--implementation", f"kinds:{name}")
    assert str(error.value).endswith(why)


def test_large_results_have_no_error_but_are_tensors_too(monkeypatch: pytest.MonkeyPatch) -> None:
    class Own(torch.Tensor):
        pass

    monkeypatch.setattr(accuracy, "MOST_BYTES", 1)
    tensors = {"x": torch.ones(3)}
    plain = accuracy.error(lambda x: x + 1, lambda x: x + 1, tensors, with_gradients=False)
    assert plain.keys() == {"error_missing"}
    with pytest.raises(accuracy.WrongResult, match="it returns a tensor of the class Own; return"):
        accuracy.error(lambda x: x.as_subclass(Own), lambda x: x, tensors, with_gradients=False)


REMEMBERS = """
import sys
import torch
results = {}
def remembered(key, x, weight):
    if key not in results:
        results[key] = x @ weight.T
    return results[key]
def by_version(x, weight):
    return remembered((x.data_ptr(), x._version), x, weight)
def by_first_number(x, weight):
    return remembered((x.data_ptr(), x[0, 0].item()), x, weight)
def by_address(x, weight):
    return remembered(x.data_ptr(), x, weight)
def by_shape(x, weight):
    return remembered(x.shape, x, weight)
def gated(gate, up):
    key = (gate.data_ptr(), gate._version, up._version)
    if key not in results:
        results[key] = torch.nn.functional.silu(gate) * up
    return results[key]
def by_caller(x, weight):
    caller = sys._getframe()
    while caller := caller.f_back:
        if "timeit" in caller.f_code.co_filename:
            return x.new_zeros(len(x), len(weight))
    return x @ weight.T
prepared = {}
def frozen(x, frozen):
    if frozen.data_ptr() not in prepared:
        prepared[frozen.data_ptr()] = frozen.T.contiguous()
    return x @ prepared[frozen.data_ptr()]
"""


@pytest.fixture
def remembers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "remembers.py").write_text(REMEMBERS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "remembers", raising=False)


@pytest.mark.usefixtures("remembers")
@pytest.mark.parametrize("cache", ["warm", "cold"])
@pytest.mark.parametrize("name", ["by_version", "by_first_number"])
def test_a_function_that_remembers_its_results_has_no_speed(name: str, cache: str) -> None:
    words = ["--operator", "linear", "--shape", "512x1024x512", "--direction", "forward", "--cache", cache]
    with pytest.raises(accuracy.WrongResult, match=r"it remembers results: a call takes .* ms with new numbers"):
        measured(*words, "--implementation", f"remembers:{name}")


@pytest.mark.usefixtures("remembers")
@pytest.mark.parametrize("name", ["by_address", "by_shape", "by_caller"])
def test_a_function_that_returns_old_numbers_or_none_to_the_timer_has_an_error(name: str) -> None:
    words = ["--operator", "linear", "--shape", "8x16x16", "--direction", "forward"]
    assert measured(*words, "--implementation", f"remembers:{name}")["relative_error"] > 0.5


@pytest.mark.usefixtures("remembers")
def test_a_function_may_prepare_weights_that_a_training_does_not_change() -> None:
    new_numbers = pytest.importorskip("new_numbers")
    setting = shipped.Setting(operator="nf4_linear", shapes=((8, 512, 512),))
    tensors = shipped.tensors(setting, torch.Generator().manual_seed(0))
    frozen = importlib.import_module("remembers").frozen
    before = tensors["frozen"].clone()
    new_numbers.refuse_memory(lambda: frozen(**tensors), tensors)
    new_numbers.put(tensors, {name: tensor + 1 for name, tensor in tensors.items()})
    assert torch.equal(before, tensors["frozen"])


@pytest.mark.parametrize(("call_s", "calls"), [(1e-6, 100), (0.01, 20), (0.165, 1), (30.0, 1)])
def test_a_block_of_calls_ends_soon(call_s: float, calls: int) -> None:
    assert pytest.importorskip("timing").fitting(100, call_s, 0.2) == calls


def test_the_first_call_of_a_collective_operation_waits_for_other_processes_so_the_median_counts() -> None:
    of_a_call = pytest.importorskip("timing").of_a_call
    assert of_a_call([500.0, 1.0, 2.0, 1.0, 2.5, 1.0], 3) == 3.5
    assert of_a_call([4.0, 1.0, 2.0], 2) == 3.5
    assert of_a_call([], 2) == 0


def test_fewer_bits_have_a_larger_error() -> None:
    exact = measured(*words_of("linear"))["relative_error"]
    assert 100 * exact < measured(*words_of("linear"), "--dtype", "bfloat16")["relative_error"] < 0.02


def test_operations_and_bytes_are_those_of_the_product() -> None:
    forward = measured("--operator", "linear", "--shape", "8x4x6", "--direction", "forward")
    assert forward["flops_per_call"] == 2 * 8 * 4 * 6
    assert forward["bytes_per_call"] == 4 * (8 * 4 + 4 * 6 + 8 * 6)
    both = measured("--operator", "linear", "--shape", "8x4x6")
    assert both["flops_per_call"] == 3 * forward["flops_per_call"]
    assert both["bytes_per_call"] == forward["bytes_per_call"] + 4 * (8 * 4 + 4 * 6)


def test_a_compiled_function_and_one_of_the_user_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_kernels.py").write_text(
        "import time\n"
        "def slow(x, weight):\n    time.sleep(0.002)\n    return x @ weight.T\n"
        "def wrong(x, weight):\n    return x @ weight.T * 1.01\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    slow = measured(*words_of("linear"), "--implementation", "my_kernels:slow", "--direction", "forward")
    assert slow["call_time_s"] > 0.002 and slow["relative_error"] < 1e-5
    wrong = measured(*words_of("linear"), "--implementation", "my_kernels:wrong", "--direction", "forward")
    assert wrong["relative_error"] == pytest.approx(0.01, rel=1e-3)


def test_a_function_that_becomes_wrong_after_its_first_calls_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tiring.py").write_text(
        "calls = []\ndef product(x, weight):\n    calls.append(1)\n"
        "    return x @ weight.T * (1 if len(calls) < 6 else 1.01)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    found = measured(*words_of("linear"), "--implementation", "tiring:product", "--direction", "forward")
    assert found["relative_error"] == pytest.approx(0.01, rel=1e-3)


BACKWARDS = """
import torch
def with_backward(backward):
    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight):
            ctx.save_for_backward(x, weight)
            return x @ weight.T
        @staticmethod
        def backward(ctx, above):
            return backward(above, *ctx.saved_tensors)
    return Product.apply
right = with_backward(lambda above, x, weight: (above @ weight, above.T @ x))
forgets = with_backward(lambda above, x, weight: (weight.sum(0).expand_as(x), x.sum(0).expand_as(weight)))
mixes_rows = with_backward(lambda above, x, weight: (above.flip(0) @ weight, above.T @ x))
transposes = with_backward(lambda above, x, weight: (above @ weight, x.T @ above))
takes_input = with_backward(lambda above, x, weight: (above @ weight, x.T @ x))
class Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, labels):
        with torch.enable_grad():
            loss = torch.nn.functional.cross_entropy(x @ weight.T, labels)
        ctx.save_for_backward(*torch.autograd.grad(loss, (x, weight)))
        return loss.detach()
    @staticmethod
    def backward(ctx, above):
        return (*ctx.saved_tensors, None)
def forgets_factor(x, weight, labels):
    return Loss.apply(x, weight, labels)
"""


@pytest.mark.parametrize(
    ("name", "operator", "off"),
    [
        ("right", "linear", (0, 1e-5)),
        ("forgets", "linear", (0.5, 9)),
        ("mixes_rows", "linear", (0.5, 9)),
        ("forgets_factor", "linear_cross_entropy", (2.9, 3.1)),
    ],
)
def test_a_backward_pass_that_forgets_the_gradient_of_its_result_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, operator: str, off: tuple[float, float]
) -> None:
    (tmp_path / "backwards.py").write_text(BACKWARDS)
    monkeypatch.syspath_prepend(tmp_path)
    found = measured(*words_of(operator), "--implementation", f"backwards:{name}")
    assert off[0] <= found["relative_error"] <= off[1]


@pytest.mark.parametrize("name", ["transposes", "takes_input"])
def test_the_first_check_finds_a_backward_pass_that_is_right_only_if_the_gradient_is_the_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / "backwards.py").write_text(BACKWARDS)
    monkeypatch.syspath_prepend(tmp_path)
    setting = program.setting_of(program.parsed(["file", "--operator", "linear", "--shape", "8x4x4"]), "cpu")
    function, tensors = getattr(importlib.import_module("backwards"), name), program._maker(setting)()
    found = accuracy.error(function, shipped.function(setting), tensors, with_gradients=True)
    assert found["relative_error"] > 0.5


@pytest.mark.parametrize("seed", [0, 1, program.OF_A_RANK])
def test_no_gradient_has_the_numbers_of_a_tensor(seed: int) -> None:
    setting = program.setting_of(program.parsed(["file", "--operator", "rotary", "--shape", "1x2x8x4"]), "cpu")
    tensors = program._maker(setting, seed=seed)()
    for above in calls.from_above(calls.results(shipped.function(setting)(**tensors))):
        assert not any(torch.allclose(above, tensors[name], atol=0.02) for name in ("query", "key"))


def test_a_norm_of_many_rows_is_right_in_float16() -> None:
    """The gradient of its weight is a sum over the rows. If the gradient were the input, it would be a sum of squares."""
    found = measured("--operator", "rmsnorm", "--shape", "131072x8", "--dtype", "float16")
    assert found["relative_error"] < 1e-2


OPTIMIZERS = """
import torch
def nothing(weights, gradients):
    return None
def nan(weights, gradients):
    with torch.no_grad():
        weights.fill_(float("nan"))
def plain(weights, gradients):
    with torch.no_grad():
        weights.add_(gradients, alpha=-1e-3)
"""


@pytest.mark.parametrize(
    ("name", "why"),
    [("nothing", "it does not change the tensor weights in place"), ("nan", "has a NaN"), ("plain", None)],
)
def test_an_optimizer_of_the_user_must_make_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, why: str | None
) -> None:
    (tmp_path / "optimizers.py").write_text(OPTIMIZERS)
    monkeypatch.syspath_prepend(tmp_path)
    words = ("--operator", "optimizer_step", "--shape", "1000", "--implementation", f"optimizers:{name}")
    if why:
        with pytest.raises(accuracy.WrongResult, match=why):
            measured(*words)
    else:
        assert measured(*words)["call_time_s"] > 0


@pytest.mark.usefixtures("remembers")
@pytest.mark.parametrize("looked_at", [0, 31])
def test_any_copy_of_the_tensors_may_be_the_one_that_gets_new_numbers(
    monkeypatch: pytest.MonkeyPatch, looked_at: int
) -> None:
    """A function that was honest for the first copy only was 125 times as fast as the plain one."""
    monkeypatch.setattr("secrets.randbelow", lambda count: min(looked_at, count - 1))
    words = ["--operator", "swiglu", "--shape", "1024x1024", "--direction", "forward", "--cache", "cold"]
    with pytest.raises(accuracy.WrongResult, match="it remembers results"):
        measured(*words, "--implementation", "remembers:gated")


def test_cold_calls_use_copies_that_no_cache_can_hold() -> None:
    found = measured("--operator", "swiglu", "--shape", "1024x1024", "--direction", "forward", "--cache", "cold")
    assert found["copies"] == 32, "each copy has 8 MiB, and 4 × 64 MiB are needed"


def test_the_first_call_is_apart() -> None:
    calls = []

    def slow_at_first() -> None:
        calls.append(1)
        time.sleep(0.05 if len(calls) == 1 else 0.001)

    import timing

    assert timing.seconds(slow_at_first) > 0.05
    assert 0.001 < timing.total(slow_at_first, least_s=0.01)["call_time_s"] < 0.05


@pytest.mark.parametrize(("words", "sentence"), cases("operators/a_mistake_is_one_sentence"))
def test_a_mistake_is_one_sentence(words: list[str], sentence: str) -> None:
    with pytest.raises(shipped.ArgumentError) as mistake:
        measured(*words)
    assert str(mistake.value) == sentence


def test_the_plan_knows_what_the_program_has() -> None:
    assert set(trainer.OPERATORS) == set(shipped.SHAPES)
    assert trainer.FORWARD_ONLY == shipped.FORWARD_ONLY and trainer.COLLECTIVES == shipped.COLLECTIVES
    options = {action.dest for action in parser_actions()} - {"help", "file", "module_folder"}
    assert options == set(trainer.ARGUMENTS)
    assert set(trainer._NUMBERS) <= METRICS.keys()


def parser_actions() -> list[Any]:
    seen: list[Any] = []
    original = program.argparse.ArgumentParser.parse_args
    program.argparse.ArgumentParser.parse_args = lambda parser, words: seen.extend(parser._actions)
    try:
        program.parsed([])
    finally:
        program.argparse.ArgumentParser.parse_args = original
    return seen


@pytest.mark.parametrize(
    ("arguments", "gpus", "sentence"), cases("operators/the_plan_refuses_what_the_program_would_refuse")
)
def test_the_plan_refuses_what_the_program_would_refuse(
    arguments: dict[str, str], gpus: int, sentence: str | None
) -> None:
    experiment = made(trainer="operators", arguments=arguments, num_gpus=gpus)
    reason = trainers.get("operators").problem(experiment)
    assert (reason.text if reason else None) == sentence


def test_a_word_that_no_operator_has_is_a_mistake_in_the_file(tmp_path: Path) -> None:
    """Also if other cells of the scenario could run. An axis of the command line may be meant for other scenarios."""
    matrix = "matrix: {operator: [rmsnrm, swiglu], shap: [8x8]}"
    given = "arguments: {shape: 8*8, implementation: ligre, dtype: [float32, bfloat16]}"
    text = f"scenarios:\n- {{name: s, trainer: operators, device: cpu, {matrix}, {given}}}\n"
    with pytest.raises(ConfigError) as caught:
        expanded(suite(tmp_path, text))
    said = str(caught.value)
    assert all(":2:" in line for line in said.splitlines()), said
    for mistake in (
        "operator: 'rmsnrm' is invalid; did you mean 'rmsnorm'?",
        "trainer operators has no argument 'shap'; did you mean 'shape'?",
        "shape: '8*8' is invalid; write sizes with an x",
        "implementation: 'ligre' is invalid; did you mean 'liger'?",
        "dtype: the list 'float32', 'bfloat16' is invalid",
    ):
        assert said.count(mistake) == 1, said
    right = text.replace(matrix, "matrix: {operator: [swiglu]}").replace(given, "arguments: {shape: 8x8}")
    elsewhere = expanded(suite(tmp_path, right), Selection(axes={"max_steps": (5,)}))[0]
    assert elsewhere.skip and elsewhere.skip.text.startswith("trainer operators has no argument 'max_steps'. Allowed")


MINE = """
    scenarios:
    - {name: mine, trainer: operators, device: cpu, arguments: {operator: swiglu, shape: 8x8, implementation: "fast:swiglu"}}
    """


def mine(folder: Path, **env: str) -> Experiment:
    text = MINE.replace("device: cpu", f"device: cpu, env: {json.dumps(env)}") if env else MINE
    return expanded(suite(folder, text))[0]


def test_a_module_is_looked_for_next_to_the_scenario_file_and_then_in_pythonpath(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "fast.py").write_text("x = 1\n")
    elsewhere = mine(tmp_path, PYTHONPATH=str(tmp_path / "other"))
    assert (elsewhere.script, [*elsewhere.sources]) == (None, ["fast.py"]), "its id is that of older folders"
    (tmp_path / "fast.py").write_text("import helper\n")
    (tmp_path / "helper.py").write_text("")
    found = mine(tmp_path, PYTHONPATH=str(tmp_path / "other"))
    assert [*found.sources] == ["fast.py", "helper.py"] and found.sources["fast.py"] != elsewhere.sources["fast.py"]
    command = trainers.get("operators").command(found, tmp_path)
    assert command[-2:] == ["--module_folder", str(tmp_path)]
    (tmp_path / "helper.py").write_text("x = 1\n")
    assert mine(tmp_path, PYTHONPATH=str(tmp_path / "other")).id != found.id


def test_the_plan_says_that_a_module_is_missing(tmp_path: Path) -> None:
    reason = mine(tmp_path).cannot_run_here
    assert reason is not None and reason.kind == "no_module"
    assert reason.text == (
        "there is no module 'fast'; put fast.py next to the scenario file, or its folder into PYTHONPATH under 'env:'"
    )
    (tmp_path / "fast.py").write_text("")
    assert mine(tmp_path).cannot_run_here is None


def test_packages_depend_on_the_implementation() -> None:
    needs = trainers.get("operators").requires_for
    assert needs({"operator": "rmsnorm", "implementation": "liger"}) == ("torch", "accelerate", "liger-kernel")
    assert needs({"operator": "nf4_linear"}) == ("torch", "accelerate", "bitsandbytes")


def test_numbers_come_from_the_file_and_missing_ones_have_its_reason(tmp_path: Path) -> None:
    written = {
        "call_time_s": 2e-3,
        "host_time_s": 1e-3,
        "device_time_s": 1e-3,
        "flops_per_call": 4e9,
        "bytes_per_call": 8e6,
    }
    (tmp_path / trainer.RESULTS).write_text(json.dumps({**written, "error_missing": "too large", "first_call_s": 3.0}))
    found = {number.name: number for number in trainers.get("operators").metrics(tmp_path)}
    assert found["call_time_s"].value == 2e-3
    assert found["operator_tflops_per_s"].value == pytest.approx(4.0)
    assert found["operator_bytes_per_s"].value == pytest.approx(8e9)
    assert found["device_busy_share"].value == pytest.approx(0.5)
    assert (found["max_error"].value, found["max_error"].why_missing) == (None, "too large")


@pytest.mark.parametrize(
    ("slower", "regressed"),
    [(("host",), {"host", "call"}), (("device",), {"device"}), (("host", "device"), {"host", "device", "call"})],
)
def test_a_comparison_says_which_part_is_slower(slower: tuple[str, ...], regressed: set[str]) -> None:
    times = {"call_time_s": 65e-6, "host_time_s": 65e-6, "device_time_s": 8e-6}
    noise = (1.0, 1.002, 0.998)
    grown = {"call_time_s": 2 if "host" in slower else 1, **{f"{part}_time_s": 2 for part in slower}}
    base = entry("einsum", {name: [times[name] * part for part in noise] for name in times})
    new = entry("einsum", {name: [times[name] * grown.get(name, 1) * part for part in noise] for name in times})
    rows = compared(paired(base, new)).rows
    assert {row.metric.removesuffix("_time_s") for row in rows if row.verdict is Verdict.REGRESSED} == regressed
    assert {row.metric for row in rows} == times.keys()


@pytest.mark.parametrize(
    ("text", "why"), [(None, "the process ended before"), ("[1]", "no JSON object"), ("{", "cannot be read")]
)
def test_a_file_that_is_missing_or_broken_gives_no_number(tmp_path: Path, text: str | None, why: str) -> None:
    if text is not None:
        (tmp_path / trainer.RESULTS).write_text(text)
    found = trainers.get("operators").metrics(tmp_path)
    assert {number.value for number in found} == {None}
    assert all(why in number.why_missing for number in found)
