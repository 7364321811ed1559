"""The metrics that an argument makes incomparable, for all known arguments, for invented ones, and for several at once."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path

import pytest
from factories.tables import Made, made_table
from hypothesis import given
from hypothesis import strategies as st

from orchestrator import trainers
from orchestrator.compare.rules import DEFAULT
from orchestrator.measure.metrics import METRICS
from orchestrator.results.table.baseline import pairs_of
from orchestrator.results.table.baseline.other_work import other_padding, other_work, work_of

KNOWN = json.loads((Path(trainers.__file__).parent / "argument_types.json").read_text(encoding="utf-8"))
STEP = {"step_time_s", "first_step_s", "train_runtime", "train_loss", "steps_to_target"}
CALL = {"call_time_s", "host_time_s", "device_time_s"}
SAMPLE = {"train_samples_per_second", "time_to_target_s"}
RUN = {"train_runtime", "train_loss"}
OTHER_TIMES = {*CALL, "round_time_s"}


def untested(*arguments: str, among: Collection[str] = DEFAULT) -> set[str]:
    return {name for name in among if other_work(name, arguments) is not None}


def test_of_all_known_arguments_only_these_change_the_work() -> None:
    names = {name for table in KNOWN.values() for name in table}
    assert {name for name in names if untested(name)} == {
        *("batch_size", "global_batch_size", "micro_batch_size", "per_device_train_batch_size"),
        *("gradient_accumulation_steps", "max_seq_len", "block_size", "packing"),
        *("max_iters", "max_steps", "num_train_epochs"),
    }


def test_the_work_of_a_metric_is_that_of_its_arguments_with_their_values() -> None:
    short = {"max_seq_len": 128, "optim": "sgd", "packing": None}
    assert work_of("samples_per_s", short) == (("max_seq_len", "128"),)
    assert work_of("samples_per_s", short) != work_of("samples_per_s", {**short, "max_seq_len": 256})
    assert work_of("samples_per_s", short) == work_of("samples_per_s", {**short, "optim": "adam"})
    assert work_of("tokens_per_s", short) == ()
    assert work_of("train_tokens_per_second", {**short, "num_gpus": 2}) == (("num_gpus", "2"),)
    assert work_of("tokens_per_s", short, is_padding_known=False) == (("max_seq_len", "128"),)
    assert work_of("real_tokens_per_s", short, is_padding_known=False) == ()


@pytest.mark.parametrize(
    "argument",
    [
        *("per_device_eval_batch_size", "eval_accumulation_steps", "group_by_length", "silent", "skip_special_tokens"),
        *("logging_steps", "save_steps", "warmup_steps", "torch_empty_cache_steps", "eval_steps", "eval.max_iters"),
        *("eval_max_length", "log_every_n_steps", "train.lr_warmup_steps", "save_total_limit", "auto_find_batch_size"),
        *(
            "include_num_input_tokens_seen",
            "length_column_name",
            "max_new_tokens",
            "lora_rank",
            "r",
            "optim",
            "package",
        ),
        *(
            "effective_packed_attention",
            "average_tokens_across_devices",
            "dataset_batch_size",
            "sequence_parallel_size",
        ),
        *("precompute_ref_batch_size", "dataset.num_proc", "val_loader.dataset.max_seq_len", "profiler.num_steps"),
        *("lr_scheduler.max_steps", "checkpoint.steps", "tokenizer.path", "rope.original_seq_len", "lora.block_sizes"),
        *("generation.max_length", "flex_attention.block_size", "quantization.block_size"),
    ],
)
def test_an_argument_that_changes_no_work_hides_nothing(argument: str) -> None:
    """A real regression of the time of a step was untested, because `silent` contains `len`."""
    assert untested(argument, among=METRICS) == set()


@pytest.mark.parametrize(
    ("arguments", "metrics"),
    [
        (
            ["per_device_train_batch_size", "gradient_accumulation_steps", "global_batch", "effective_batch_size"],
            STEP | OTHER_TIMES,
        ),
        (["train.global_batch_size", "micro_batch", "effective_global_batch", "argument_batch"], STEP | OTHER_TIMES),
        (["max_seq_len", "max_length", "cutoff_len", "sequence_len", "block_size"], STEP | SAMPLE | OTHER_TIMES),
        (["packing", "sample_packing", "context_length", "training.seq_len"], STEP | SAMPLE | OTHER_TIMES),
        (
            ["train_micro_batch_size_per_gpu", "batch_size_per_device", "step_scheduler.local_batch_size"],
            STEP | OTHER_TIMES,
        ),
        (
            ["batch_size_training", "tokens.batch_accumulation_per_replica", "trainer.accumulate_grad_batches"],
            STEP | OTHER_TIMES,
        ),
        (
            ["tokenizer.max_seq_len", "task.max_seq_len", "datasets.seq_len", "dataset.max_length"],
            STEP | SAMPLE | OTHER_TIMES,
        ),
        (["dataset.packed", "dataset_packed", "dataset_max_length", "--data.seq-len"], STEP | SAMPLE | OTHER_TIMES),
        (["packed_sequence.packed_sequence_size", "decoder_seq_length"], STEP | SAMPLE | OTHER_TIMES),
        (["step_scheduler.max_steps", "train_samples", "max_train_samples", "trainer.limit_train_batches"], RUN),
        (["max_steps", "num_train_epochs", "epochs", "steps", "train.max_steps", "max_iters", "num_epochs"], RUN),
        (["argument_steps", "effective_max_steps", "--Max-Steps"], RUN),
        (["operator", "shape", "equation", "direction", "rank", "tensor_shape"], CALL | {"relative_error"}),
        (["fullname", "group"], {"round_time_s"}),
        (["num_gpus"], STEP | OTHER_TIMES | {"relative_error", "train_tokens_per_second"}),
    ],
)
def test_an_argument_that_changes_the_work_leaves_rates_and_memory(arguments: list[str], metrics: set[str]) -> None:
    for argument in arguments:
        assert untested(argument) == metrics, argument


@pytest.mark.parametrize(
    ("arguments", "surely", "perhaps"),
    [
        (["max_seq_len", "cutoff_len", "packing", "sample_packing", "effective_packing"], True, True),
        (["padding_free", "effective_padding_free", "dataset_kwargs.padding", "pad_to_multiple_of"], True, True),
        (["group_by_length", "train_sampling_strategy"], True, True),
        (["per_device_train_batch_size", "gradient_accumulation_steps"], False, True),
        (
            ["max_steps", "optim", "padding_side", "per_device_eval_batch_size", "eval_max_length", "shape"],
            False,
            False,
        ),
    ],
)
def test_an_argument_that_changes_the_padding_is_known(arguments: list[str], surely: bool, perhaps: bool) -> None:
    for argument in arguments:
        for name in ("tokens_per_s", "train_tokens_per_second"):
            found = [other_padding(name, [argument]), other_padding(name, [argument], perhaps=True)]
            assert [one is not None for one in found] == [surely, perhaps], argument
        assert other_padding("real_tokens_per_s", [argument], perhaps=True) is None


def test_every_time_of_a_step_is_one_and_what_comes_before_the_steps_is_none() -> None:
    times = {name for name, one in METRICS.items() if one.unit == "s"}
    before = {"startup_s", "model_load_s", "trainer_setup_s", "compile_s"}
    compilers = {"dynamo_compile_s", "inductor_compile_s", "other_compile_s"}
    assert times - untested("train_batch", among=times) == {*before, *compilers, "time_to_target_s"}
    assert not untested("train_batch", among=["monitor_cpu_s", "model_flops_per_token"])
    own = ["epoch_time_ms", "pass_us", "words_per_s", "kernel_ns", "answers"]
    assert untested("train_batch", among=own) == {"epoch_time_ms", "pass_us", "kernel_ns"}


ARGUMENTS = st.lists(
    st.sampled_from(["optim", "silent", "batch_size", "max_steps", "max_length", "shape"]), unique=True
)


@given(ARGUMENTS, st.sampled_from(DEFAULT))
def test_of_several_arguments_the_first_that_counts_is_the_reason(arguments: list[str], name: str) -> None:
    assert other_work(name, arguments) == next((one for one in arguments if untested(one, among=[name])), None)


def test_an_argument_that_changes_with_the_axis_counts_too() -> None:
    """The axis is `kind`, and each kind has its own batch."""

    def kind(name: str, batch: str, seconds: float) -> Made:
        return Made(
            framework=None,
            runs=[{"step_time_s": seconds}],
            arguments={"kind": name, "per_device_train_batch_size": batch},
        )

    (alike,) = pairs_of(made_table(kind("a", "1", 1.0), kind("b", "1", 2.0)))
    assert alike.speed is not None
    (pair,) = pairs_of(made_table(kind("a", "1", 1.0), kind("b", "4", 2.0)))
    assert {pair.match.axis, *pair.match.others} == {"kind", "per_device_train_batch_size"}
    assert pair.speed is None


def speed_of_a_pair(base: dict[str, float], new: dict[str, float], **differing: object) -> str | None:
    (pair,) = pairs_of(made_table(Made(runs=[base] * 2), Made(runs=[new] * 2, **differing)))  # type: ignore[arg-type]
    return pair.speed.metric if pair.speed else None


@pytest.mark.parametrize("differing", ["arguments", "sets"])
@pytest.mark.parametrize(
    ("argument", "other"), [("packing", None), ("max_seq_len", None), ("padding_free", "samples_per_s")]
)
def test_a_speed_with_unknown_padding_is_not_compared_over_what_changes_the_padding(
    differing: str, argument: str, other: str | None
) -> None:
    """Packing looked 20 % slower, although the other side's tokens per second may have been half padding."""
    fields = {differing: {argument: "1"}, "framework": "baseline" if differing == "arguments" else "new"}
    unknown: dict[str, float] = {"tokens_per_s": 5000.0, "samples_per_s": 10.0, "step_time_s": 0.1}
    known = {**unknown, "real_tokens_per_s": 4000.0}
    for base, new in ((unknown, known), (known, unknown), (unknown, unknown)):
        assert speed_of_a_pair(base, new, **fields) == other
        assert speed_of_a_pair(base, new, arguments={"optim": "sgd"}) == "tokens_per_s"
    assert speed_of_a_pair(known, known, **fields) == "real_tokens_per_s"
    whole = {"train_tokens_per_second": 5000.0}
    assert speed_of_a_pair(whole, whole, **fields) is None
