"""The registry: what every column of a report means, in which unit, which way is better, and how people see it.

METRICS are numbers (or words) that a run measured; FACTS are what an experiment was and how its runs ended; SETTINGS
are what really took effect in the training process (columns `effective_<name>`). A name that is not here is allowed (a
custom trainer brings its own) and is shown as it is. Nothing here measures or reads anything; `report/metrics_page`
makes docs/metrics.md of it. Base units everywhere (seconds, bytes, tokens); the one exception, MiB, is what the
reference's users know.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

DASH = "-"
"""What people see where a value is missing. A missing value is never 0."""

MIB = 2**20

_TRACKER = " Rank 0 and its device only; resets the peak and empties caches, so the run is slowed by it."


class Direction(StrEnum):
    """Which way a metric is better."""

    HIGHER = "higher"
    LOWER = "lower"
    NONE = "none"


class Show(StrEnum):
    """How a value is written for people; files hold base units at full precision."""

    NUMBER = "number"
    COUNT = "count"
    MAGNITUDE = "magnitude"
    SECONDS = "seconds"
    BYTES = "bytes"
    MIB = "mib"
    TEXT = "text"


@dataclass(frozen=True, kw_only=True, slots=True)
class Metric:
    """One column. `label` is its short heading, `source` what it is read from, `leaves_out` what it does not say."""

    name: str
    label: str
    description: str
    source: str
    unit: str | None = None
    direction: Direction = Direction.NONE
    show: Show = Show.NUMBER
    leaves_out: str = ""


def _trainer(name: str, label: str, unit: str, better: Direction, text: str, without: str, show: Show) -> Metric:
    return Metric(
        name=name,
        label=label,
        unit=unit,
        direction=better,
        description=text,
        source="final metrics of the Trainer",
        leaves_out=without,
        show=show,
    )


def _stage_memory(name: str, text: str) -> Metric:
    return Metric(
        name=name,
        label=name,
        unit="bytes",
        show=Show.BYTES,
        description=text,
        source="memory tracker of the Trainer",
        leaves_out="Other ranks, other processes, the allocator's reserve.",
    )


def _stages() -> tuple[Metric, ...]:
    stages = {"init": "while the Trainer was built", "train": "in training"}
    devices = {"cpu": "of the process (resident)", "gpu": "on the GPU"}
    changes = {
        "alloc": "Change of memory {where} {when}.",
        "peaked": "Peak {when} above what was held at the end of it, {where}.",
    }
    before = (
        _stage_memory("before_init_mem_cpu", "Resident memory of the process before the Trainer was built."),
        _stage_memory("before_init_mem_gpu", "GPU memory allocated by torch before the Trainer was built."),
    )
    deltas = (
        _stage_memory(f"{stage}_mem_{device}_{change}_delta", text.format(where=where, when=when))
        for stage, when in stages.items()
        for device, where in devices.items()
        for change, text in changes.items()
    )
    return (*before, *deltas)


_METRICS = (
    _trainer(
        "train_tokens_per_second",
        "tok/s/device",
        "tokens/s per device",
        Direction.HIGHER,
        "Processed tokens ÷ train_runtime ÷ world size, padding counted: the number that the reference's users know.",
        "Counts padding as work; warm-up, compilation, evaluation and saving are in: no steady-state speed.",
        Show.NUMBER,
    ),
    _trainer(
        "train_samples_per_second",
        "samples/s",
        "samples/s, all devices",
        Direction.HIGHER,
        "Samples ÷ train_runtime, over all processes.",
        "A packed row counts as one sample. Holds warm-up and compilation.",
        Show.NUMBER,
    ),
    _trainer(
        "train_steps_per_second",
        "steps/s",
        "optimizer steps/s",
        Direction.HIGHER,
        "Optimizer steps ÷ train_runtime.",
        "Steps of different global batches are not comparable. Holds warm-up and compilation.",
        Show.NUMBER,
    ),
    _trainer(
        "train_runtime",
        "train time",
        "s",
        Direction.LOWER,
        "Wall time from the start of the training loop to its end.",
        "Loading the model. Compilation, first-step set-up, evaluation and saving are in.",
        Show.SECONDS,
    ),
    _trainer(
        "train_loss",
        "loss",
        "nats",
        Direction.LOWER,
        "Mean training loss over all steps of the run.",
        "Not the final loss, and no held-out data: compare only runs with the same data, length and global batch.",
        Show.NUMBER,
    ),
    _trainer(
        "epoch",
        "epoch",
        "epochs",
        Direction.NONE,
        "Passes over the data that were made.",
        "",
        Show.NUMBER,
    ),
    _trainer(
        "total_flos",
        "FLOPs (HF)",
        "FLOP",
        Direction.NONE,
        "Floating-point work as the Trainer estimates it.",
        "Attention and PEFT; counts padding, and differs between FSDP versions: no base for efficiency.",
        Show.NUMBER,
    ),
    _trainer(
        "num_input_tokens_seen",
        "tokens seen",
        "tokens, all devices",
        Direction.NONE,
        "Input tokens as the Trainer counts them, where it was asked to.",
        "Whether padding is in depends on include_num_input_tokens_seen.",
        Show.COUNT,
    ),
    Metric(
        name="mem_nvidia_mem_reserved",
        label="GPU mem (smi)",
        unit="MiB",
        direction=Direction.LOWER,
        show=Show.MIB,
        description="Device memory: each device's maximum less its reading before the run, mean over devices.",
        source="nvidia-smi sidecar, one reading a second (samples-nvidia-smi.csv)",
        leaves_out="Peaks shorter than the sampling interval. Whatever else uses the device in the meantime is in.",
    ),
    Metric(
        name="mem_peak_torch_mem_alloc_in_bytes",
        label="peak torch mem",
        unit="bytes",
        direction=Direction.LOWER,
        show=Show.BYTES,
        description="Highest GPU memory held by tensors: running sum of the stage deltas plus each stage's peak.",
        source="memory tracker of the Trainer (skip_memory_metrics: False)",
        leaves_out="The allocator's reserve, contexts and communication buffers; other ranks than 0." + _TRACKER,
    ),
    Metric(
        name="mem_torch_mem_alloc_in_bytes",
        label="torch mem",
        unit="bytes",
        direction=Direction.LOWER,
        show=Show.BYTES,
        description="GPU memory held by tensors at the end of a stage (before init, init, train): the highest.",
        source="memory tracker of the Trainer (skip_memory_metrics: False)",
        leaves_out="Everything between the ends of stages: activations are not in." + _TRACKER,
    ),
    *_stages(),
    Metric(
        name="gpu_device_name",
        label="GPU",
        show=Show.TEXT,
        description="Name of the GPU (the last device in the log; GPUs of a host are taken to be alike).",
        source="nvidia-smi sidecar",
    ),
    Metric(
        name="trainable_parameters",
        label="trainable",
        unit="parameters",
        show=Show.MAGNITUDE,
        description="Parameters that receive gradients.",
        source="the built model",
        leaves_out="Under sharding the whole model is counted, not a rank's share.",
    ),
    Metric(
        name="total_parameters",
        label="parameters",
        unit="parameters",
        show=Show.MAGNITUDE,
        description="All parameters of the model, adapters included.",
        source="the built model",
        leaves_out="Quantised weights are counted by their real number, not by their storage.",
    ),
    Metric(
        name="global_batch",
        label="global batch",
        unit="samples a step",
        show=Show.COUNT,
        description="Samples of one optimizer step over all processes: per-device batch × accumulation × processes.",
        source="the arguments; what took effect is effective_global_batch",
    ),
    Metric(
        name="world_size",
        label="world size",
        unit="processes",
        show=Show.COUNT,
        description="Training processes that took part.",
        source="the process group",
    ),
    Metric(
        name="wall_s",
        label="wall time",
        unit="s",
        direction=Direction.LOWER,
        show=Show.SECONDS,
        description="Wall time of the whole run, from starting the launcher to its end.",
        source="the orchestrator's clock",
        leaves_out="Preparing data. Interpreter start, imports and model loading are in.",
    ),
)

METRICS: dict[str, Metric] = {metric.name: metric for metric in _METRICS}


def _fact(name: str, label: str, description: str, show: Show = Show.TEXT, source: str = "experiment.json") -> Metric:
    return Metric(name=name, label=label, description=description, source=source, show=show)


_RECORD = "record.json"

_FACTS = (
    _fact("results", "results", "Results folder that the row comes from; only where several are reported at once."),
    _fact("id", "experiment", "Identity: scenario, readable tag, digest of what changes the measurement."),
    _fact("scenario", "scenario", "Scenario of the file that it comes from."),
    _fact("framework_config", "framework", "Framework configuration by its short name; `none` without."),
    _fact("model_name_or_path", "model", "Model: a folder, a hub name, or `config:<name>`."),
    _fact("num_gpus", "GPUs", "Training processes, one a GPU (or CPU processes, see device).", Show.COUNT),
    _fact("device", "device", "`cuda` or `cpu`."),
    _fact("trainer", "trainer", "Trainer that was started."),
    _fact("python", "python", "Interpreter that the scenario names, where it names one."),
    _fact("monitors", "monitors", "What observed the run."),
    _fact("data", "data", "Source of the training data."),
    _fact("tags", "tags", "Tags of the scenario."),
    _fact("status", "status", "`ok`, or how its last repeat that is not ok ended.", source=_RECORD),
    _fact("failure_kind", "kind", "Word for the failure, such as `oom_cuda`.", source=_RECORD),
    _fact("failure_cause", "cause", "The failure in a sentence.", source=_RECORD),
    _fact("runs", "runs", "Repeats that ended.", Show.COUNT, "run folders"),
    _fact("runs_ok", "ok runs", "Repeats that ended ok: means are over these.", Show.COUNT, "run folders"),
    _fact("repeat", "repeat", "Number of the repeat, from 1.", Show.COUNT, _RECORD),
    _fact("attempt", "attempt", "Number of the try at this repeat, from 1.", Show.COUNT, _RECORD),
    _fact("started_at", "started", "Start of the run, UTC.", source=_RECORD),
    _fact("exit_code", "exit code", "Exit code of the launcher.", Show.COUNT, _RECORD),
    _fact("signal", "signal", "Signal that ended the launcher.", Show.COUNT, _RECORD),
    _fact("warnings", "warnings", "What to know beside the numbers.", source=_RECORD),
    _fact("dtype", "dtype", "Argument: type of the weights, as asked for (`torch_dtype` in older files)."),
    _fact("torch_dtype", "dtype", "Argument: type of the weights, as asked for."),
    _fact("peft_method", "peft", "Argument: `lora`, or empty for full fine-tuning."),
    _fact("per_device_train_batch_size", "batch/device", "Argument: samples a device and micro-batch.", Show.COUNT),
)

FACTS: dict[str, Metric] = {fact.name: fact for fact in _FACTS}

SETTINGS: dict[str, str] = {
    "model_class": "Class of the model.",
    "wrapper_classes": "Classes around the model, outermost first (DDP, FSDP, compiled).",
    "attn_implementation": "Attention that the model uses.",
    "dtype": "Type of most parameters.",
    "mixed_precision": "Autocast type: bf16, fp16 or no.",
    "trainable_parameters": "Parameters that receive gradients.",
    "total_parameters": "All parameters.",
    "peft_method": "Adapter on the model.",
    "quantization": "Quantisation of the weights.",
    "gradient_checkpointing": "Whether activations are recomputed.",
    "torch_compile": "Whether the model is compiled.",
    "torch_compile_mode": "Mode of torch.compile.",
    "optimizer": "Class of the optimizer.",
    "optimizer_fused": "Whether the optimizer's kernels are fused.",
    "liger": "Whether liger kernels are in place.",
    "world_size": "Size of the process group.",
    "distributed_type": "How accelerate distributes (NO, MULTI_GPU, FSDP…).",
    "device": "Device of rank 0.",
    "device_name": "Name of that device.",
    "num_threads": "CPU threads of torch in a process.",
    "per_device_train_batch_size": "Samples a device and micro-batch.",
    "gradient_accumulation_steps": "Micro-batches a step.",
    "global_batch": "Samples of one optimizer step over all processes.",
    "max_steps": "Steps that the Trainer was to make.",
    "packing": "Whether rows are packed.",
    "padding_free": "Whether batches are flattened without padding.",
    "max_seq_len": "Longest row.",
    "train_rows": "Rows of the training data.",
    "model_fingerprint": "Digest of a local model folder.",
    "model_revision": "Commit of a hub model.",
    "skip_memory_metrics": "False: the Trainer's memory tracker ran and slowed the run.",
}


def metric(name: str) -> Metric:
    """What is known about a column; a plain entry for a name that is not registered."""
    known = METRICS.get(name) or FACTS.get(name)
    if known:
        return known
    setting = name.removeprefix("effective_")
    like = METRICS.get(setting)
    return Metric(
        name=name,
        label=name,
        description=SETTINGS.get(setting, ""),
        source="",
        unit=like.unit if like else None,
        show=like.show if like else Show.NUMBER,
    )


def show(name: str, value: object) -> str:
    """A value as people read it, with its unit where the heading does not say it; a dash for None."""
    if value is None:
        return DASH
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    return _FORMATS[metric(name).show](value)


def _number(value: float) -> str:
    if isinstance(value, int):
        return str(value)
    if abs(value) >= 1e9:
        return f"{value:.3g}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _count(value: float) -> str:
    return f"{value:,}" if float(value).is_integer() else f"{value:,.1f}"


def _magnitude(value: float) -> str:
    for size, letter in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.2f} {letter}"
    return _count(value)


def _seconds(value: float) -> str:
    if value < 120:
        return f"{value:.3g} s" if value < 100 else f"{value:.0f} s"
    minutes, seconds = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {seconds:02} s"


def _bytes(value: float) -> str:
    for size, unit in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if abs(value) >= size:
            return f"{value / size:.2f} {unit}"
    return f"{value:.0f} B"


def _mib(value: float) -> str:
    return _bytes(value * MIB)


_FORMATS: dict[Show, Callable[[float], str]] = {
    Show.NUMBER: _number,
    Show.COUNT: _count,
    Show.MAGNITUDE: _magnitude,
    Show.SECONDS: _seconds,
    Show.BYTES: _bytes,
    Show.MIB: _mib,
    Show.TEXT: str,
}
