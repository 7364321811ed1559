"""What an experiment was, how its runs ended, and which settings took effect: columns that nothing measured."""

from __future__ import annotations

from orchestrator.metrics.metric import Metric, Show


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
    _fact("failure_hint", "hint", "What to do about it, where one is known that helps.", source=_RECORD),
    _fact("runs", "runs", "Repeats that ended.", Show.COUNT, "run folders"),
    _fact("runs_ok", "ok runs", "Repeats that ended ok: means are over these.", Show.COUNT, "run folders"),
    _fact("repeat", "repeat", "Number of the repeat, from 1.", Show.COUNT, _RECORD),
    _fact("attempt", "attempt", "Number of the try at this repeat, from 1.", Show.COUNT, _RECORD),
    _fact("started_at", "started", "Start of the run, UTC.", source=_RECORD),
    _fact("exit_code", "exit code", "Exit code of the trainer, as far as its launcher tells it.", Show.COUNT, _RECORD),
    _fact("signal", "signal", "Signal that ended the trainer, as far as its launcher tells it.", Show.COUNT, _RECORD),
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
    "lora_rank": "Rank of the adapter's matrices.",
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
    "recomputation": "What checkpointing computes again: none, whole layers, or up to the last thing needed (early_stop).",
    "skip_memory_metrics": "False: the Trainer's memory tracker ran and slowed the run.",
}
