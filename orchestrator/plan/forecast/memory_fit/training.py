"""The settings of an experiment that determine its memory, as one hashable value.

Only the built-in trainer's arguments are known. A setting that the estimate does not cover raises NotKnown with the reason, because
a wrong number is worse than no number. Arguments that do not concern memory are not checked here; the trainer checks them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from orchestrator.plan.forecast.memory_fit.adapters import Adapters, adapters_of
from orchestrator.plan.forecast.memory_fit.launch import (
    BYTES_OF,
    Parallelism,
    autocast_of,
    dtype_of,
    fsdp_settings,
    is_checkpointed,
    is_offloaded,
    parallelism_of,
    quantization_of,
)
from orchestrator.plan.forecast.memory_fit.read_argument import is_off, plain, whole, word
from orchestrator.plan.forecast.memory_fit.shapes import ModelShape, NotKnown, hub_folder, read_shape
from orchestrator.records import Device, Experiment, Text
from orchestrator.trainers.argument_names import is_true

# Arguments that change memory, but have no estimate. A value that means no is allowed.
UNKNOWN_ARGUMENTS: Mapping[str, str] = {
    "load_in_4bit": "quantised weights",
    "load_in_8bit": "quantised weights",
    "deepspeed": "DeepSpeed",
    "fsdp": "FSDP by the Trainer's own argument",
    "auto_find_batch_size": "a batch size that is found by trying",
    "trust_remote_code": "the model's own code",
    "label_smoothing_factor": "label smoothing",
    "neftune_noise_alpha": "noise on the embeddings",
    "optim_args": "optim_args",
    "optim_target_modules": "optim_target_modules",
    "liger_kernel_config": "a choice of Liger's kernels",
    "torch_compile_mode": "torch_compile_mode",
    "parallelism_config": "parallelism_config",
    "attention_dropout": "attention dropout",
    "output_router_logits": "a loss on the router",
    "router_jitter_noise": "noise on the router's input",
    "experts_implementation": "a choice of the experts' kernels",
    "sdpa_backend": "a choice of sdpa's kernel",
    "chunked_loss": "a loss in chunks",
    "activation_offloading": "activations in the host's memory",
}

# Families for which Liger fuses the output matrix with the loss, and replaces only the usual norms.
LIGER_FAMILIES = frozenset({"llama", "mistral", "qwen2"})

# Optimizers whose states the module `optimizer` estimates.
OPTIMIZERS = frozenset({
    *("adamw_torch", "adamw_torch_fused", "adamw_bnb_8bit", "adamw_8bit", "adafactor", "sgd"),
    *("paged_adamw", "paged_adamw_8bit", "paged_adamw_32bit"),
})  # fmt: skip


class Attention(StrEnum):
    """The kind of attention. `EAGER` keeps all scores in memory, `FUSED` keeps none."""

    FUSED = "fused"
    EAGER = "eager"


@dataclass(frozen=True, kw_only=True, slots=True)
class Training:
    """Everything that an estimate depends on.

    - `weight_bytes`: size of a weight in the forward pass; `stored_bytes`: its size between steps. The two differ if FSDP keeps
      float32 weights. `compute_bytes`: size of a number in matrix products. `autocast`: the Trainer uses autocast.
    - A batch is `rows` × `row_tokens`, without padding.
    - `quantized`: frozen matrices are stored in 4 bits. PEFT makes all other weights float32, so the residuals are float32. The
      products of quantised matrices are converted to float32, too. `double_quantized`: the scales of these matrices are also
      quantised.
    - `masked`: attention gets a mask. Then keys and values of grouped queries are copied for every head.
    - `keeps_gathered`: FSDP keeps layers gathered after the forward pass. `offloads`: FSDP keeps its shards on the host.
    - `adapter_bytes`: size of an adapter's weight in the forward pass. Adapters are float32, but FSDP gathers them in the compute
      type.
    """

    shape: ModelShape
    processes: int
    parallelism: Parallelism
    keeps_gathered: bool
    offloads: bool
    weight_bytes: int
    stored_bytes: int
    compute_bytes: int
    autocast: bool
    quantized: bool
    double_quantized: bool
    adapters: Adapters | None
    adapter_bytes: int
    optimizer: str
    decays: bool
    rows: int
    row_tokens: int
    masked: bool
    attention: Attention
    checkpointed: bool
    compiled: bool
    liger: bool
    accumulates: bool

    @property
    def casts(self) -> bool:
        """True if autocast copies weights and the inputs of matrix products."""
        return self.weight_bytes != self.compute_bytes

    @property
    def sharded(self) -> bool:
        """True if FSDP shards weights, gradients and states."""
        return self.parallelism is Parallelism.FSDP

    @property
    def copies_for_adapters(self) -> bool:
        """True if each adapter's input is converted to the adapter's type and back, so that each adapter keeps a copy."""
        return self.adapters is not None and self.adapter_bytes != self.compute_bytes

    @property
    def unmeasured(self) -> tuple[str, ...]:
        """The parts whose estimate was compared with torch on a CPU, but not yet with a run on a GPU (docs/memory-fit.md)."""
        parts = {
            "full fine-tuning with offload": self.offloads and self.adapters is None,
            "checkpointing with offload": self.offloads and self.checkpointed,
            "experts with FSDP and checkpointing": self.sharded and self.checkpointed and self.shape.experts > 0,
            "several micro-batches with FSDP": self.sharded and self.accumulates,
        }
        return tuple(name for name, used in parts.items() if used)

    @property
    def tokens(self) -> int:
        return self.rows * self.row_tokens


def training_of(experiment: Experiment) -> Training:
    """Return the settings of an experiment that determine its memory. Raises NotKnown."""
    _refuse_unknown(experiment)
    arguments = experiment.arguments
    revision = word(arguments, "revision")
    shape = read_shape(experiment.model, arguments, revision=revision, hub=hub_folder(experiment.env))
    parallelism = parallelism_of(experiment)
    sharded = parallelism is Parallelism.FSDP
    autocast = autocast_of(experiment)
    weight, quantized = BYTES_OF[dtype_of(experiment, shape)], quantization_of(experiment)
    compute = 2 if autocast else weight
    attention = _attention(arguments)
    rows, row_tokens = _batch(arguments)
    adapters = adapters_of(arguments, shape)
    training = Training(
        shape=shape,
        processes=experiment.num_gpus,
        parallelism=parallelism,
        keeps_gathered=sharded
        and not is_true(plain(fsdp_settings(experiment).get("fsdp_reshard_after_forward", True))),
        offloads=sharded and is_offloaded(experiment),
        quantized=quantized is not None,
        double_quantized=is_true(arguments.get("double_quantization")),
        weight_bytes=compute if sharded else 4 if quantized else weight,
        stored_bytes=4 if sharded and adapters is None else weight,  # accelerate makes trained weights float32
        compute_bytes=compute,
        autocast=autocast is not None,
        adapters=adapters,
        adapter_bytes=compute if sharded else 4,
        optimizer=word(arguments, "optim") or "adamw_torch_fused",
        decays=not is_off(arguments.get("weight_decay", "0")),
        rows=rows,
        row_tokens=row_tokens,
        masked=_is_masked(experiment, shape, rows, row_tokens),
        attention=Attention.EAGER if attention == "eager" else Attention.FUSED,
        checkpointed=is_checkpointed(experiment),
        compiled=_is_compiled(arguments),
        liger=is_true(arguments.get("use_liger_kernel")),
        accumulates=whole(arguments, "gradient_accumulation_steps", 1) > 1,
    )
    if quantized is not None:
        _refuse_quantized(training, quantized, weight)
    _refuse_combinations(training, attention)
    return training


def _is_compiled(arguments: Mapping[str, Text]) -> bool:
    backend = arguments.get("torch_compile_backend")
    return is_true(arguments.get("torch_compile")) if backend is None else not is_off(backend)


# --- settings without an estimate ------------------------------------------------------------------------------------


def _refuse_unknown(experiment: Experiment) -> None:
    if experiment.device is not Device.CUDA or is_true(experiment.arguments.get("use_cpu")):
        raise NotKnown("the run uses a CPU")
    if experiment.trainer != "huggingface" or experiment.custom is not None:
        raise NotKnown(f"trainer {experiment.trainer}")
    if experiment.framework is not None and experiment.framework.plugin_file is not None:
        raise NotKnown(f"plugin file of {experiment.framework.name}")
    if experiment.arguments.get("torch_compile_backend") == "thunder":
        raise NotKnown("compilation by Thunder")
    for name in UNKNOWN_ARGUMENTS.keys() & experiment.arguments.keys():
        if not is_off(experiment.arguments[name]):
            raise NotKnown(UNKNOWN_ARGUMENTS[name])
    dynamo = experiment.accelerate.get("dynamo_config")
    if isinstance(dynamo, Mapping) and not is_off(plain(dynamo.get("dynamo_backend"))):
        raise NotKnown("compilation by the launcher")


def _refuse_quantized(training: Training, form: str, weight: int) -> None:
    if form not in ("nf4", "fp4"):
        raise NotKnown(f"{form} weights")
    if training.adapters is None:
        raise NotKnown("quantised weights without LoRA")  # the trainer refuses such weights
    if training.shape.experts:
        raise NotKnown(
            "quantised weights with experts: bitsandbytes does not quantise experts, and PEFT makes them float32"
        )
    if not training.autocast or weight != training.compute_bytes:
        raise NotKnown("quantised weights without autocast, or with another type in dtype than in autocast")
    if training.sharded or training.compiled or training.liger or training.attention is Attention.EAGER:
        raise NotKnown("quantised weights with FSDP, compilation, Liger or eager attention")


def _refuse_combinations(training: Training, attention: str) -> None:
    """Raise NotKnown for a combination that the formulas do not cover, although each setting is known by itself."""
    adapters, shape = training.adapters, training.shape
    if training.compiled:
        if training.checkpointed or training.liger or training.attention is Attention.EAGER or shape.head_norms:
            raise NotKnown(
                "compilation together with any of these: checkpointing, Liger, eager attention, norms on queries and keys"
            )
        if attention.startswith("flash"):
            raise NotKnown("compilation with flash attention")
        if adapters is not None and (adapters.dropout or len(adapters.targets) < len(shape.matrices)):
            raise NotKnown("compilation with LoRA that adapts only some matrices or has dropout")
        if training.casts and adapters is not None:
            raise NotKnown("compilation with LoRA under autocast of float32 weights")
    if shape.experts and (training.compiled or training.compute_bytes != 2 or training.weight_bytes != 2):
        raise NotKnown("a mixture of experts with compilation or float32 weights")
    if training.liger and (shape.family not in LIGER_FAMILIES or training.weight_bytes != 2):
        raise NotKnown("Liger for this model, or Liger with float32 weights")
    if training.optimizer not in OPTIMIZERS:
        raise NotKnown(f"optimizer {training.optimizer}")
    if training.sharded:
        if shape.layers == 1:
            raise NotKnown("FSDP with a single layer")
        if shape.experts % training.processes:
            raise NotKnown("experts that FSDP cannot divide evenly")  # FSDP does not divide a single expert
        if training.compiled or training.liger:
            raise NotKnown("FSDP with compilation or Liger")
        if training.optimizer not in ("adamw_torch", "adamw_torch_fused"):
            raise NotKnown(f"optimizer {training.optimizer} under FSDP")


# --- reading ---------------------------------------------------------------------------------------------------------


def _attention(arguments: Mapping[str, Text]) -> str:
    attention = word(arguments, "attn_implementation") or "sdpa"
    if attention not in ("sdpa", "eager", "flash_attention_2"):
        raise NotKnown(f"attn_implementation {attention}")
    if attention.startswith("flash") and (is_true(arguments.get("packing")) or is_true(arguments.get("padding_free"))):
        raise NotKnown("packed rows with flash attention")
    return attention


def _batch(arguments: Mapping[str, Text]) -> tuple[int, int]:
    """Return two values: the number of rows, and the tokens per row. A padding-free batch is one long row."""
    rows, length = whole(arguments, "per_device_train_batch_size", 8), whole(arguments, "max_seq_len", None)
    return (1, rows * length) if is_true(arguments.get("padding_free")) else (rows, length)


def _is_masked(experiment: Experiment, shape: ModelShape, rows: int, row_tokens: int) -> bool:
    """Return whether sdpa gets a mask. It gets a mask for rows of different lengths, several samples in a row, or a short window.

    Compilation is ignored here. With compilation, transformers always makes a mask, because compiled code can't depend on a mask's
    content.
    """
    arguments = experiment.arguments
    if _attention(arguments).startswith("flash"):
        return False
    synthetic = experiment.data is not None and experiment.data.source == "builtin:synthetic"
    several = is_true(arguments.get("packing")) or rows > 1
    masked = is_true(arguments.get("padding_free")) or (several and not synthetic)  # each synthetic sample fills a row
    return masked or (shape.window is not None and row_tokens >= shape.window)
