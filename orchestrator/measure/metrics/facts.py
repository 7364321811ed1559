"""Columns that are not measured: descriptions of experiments, the ends of runs, and the settings in effect."""

from __future__ import annotations

from functools import partial

from orchestrator.measure.metrics.metric import TEXT, TRUTH, WHOLE, Metric, Show, Where

_RECORD = "record.json"
_KEPT, _PAGE = Where.TABLES | Where.KEPT, Where.TABLES | Where.PAGE
_KEPT_PAGE = _KEPT | Where.PAGE

_fact = partial(Metric, show=Show.TEXT, source="experiment.json")
_count = partial(_fact, show=Show.COUNT)
_outcome = partial(_fact, source=_RECORD)
_ending = partial(_outcome, show=Show.COUNT, where=Where.FILES)

_FACTS = (
    _fact("results", "results", "Results folder of the row; only if several are reported at once.", where=_KEPT_PAGE),
    _fact(
        "id",
        "experiment",
        "Id of the experiment: scenario, readable tag, and a digest of everything that can change the measurement.",
    ),
    _fact("scenario", "scenario", "Name of the scenario in its file.", where=_PAGE),
    _fact(
        "framework_config",
        "framework",
        "Short name of the framework configuration; `none` if there is none.",
        where=_KEPT_PAGE,
    ),
    _fact("model_name_or_path", "model", "Model: a folder, a hub name, or `config:<name>`.", where=_KEPT_PAGE),
    _count(
        "num_gpus",
        "GPUs",
        "Number of training processes: one for each GPU, or CPU processes (see device).",
        where=_KEPT_PAGE,
    ),
    _count(
        "num_nodes",
        "nodes",
        "Number of machines that share the processes; only if a row has several.",
        where=_KEPT_PAGE,
    ),
    _fact("device", "device", "`cuda` or `cpu`."),
    _fact("trainer", "trainer", "Trainer that was started."),
    _fact("python", "python", "Interpreter that the scenario names."),
    _fact(
        "environment",
        "environment",
        "Name of the software environment; `none` for Tunebench's own. Only if a row has an environment.",
        where=_KEPT_PAGE,
    ),
    _fact("environment_lock", "lock", "Digest of the packages of the software environment."),
    _fact("monitors", "monitors", "Monitors that observed the run."),
    _fact("data", "data", "Source of the training data."),
    _fact(
        "sources",
        "files",
        "Files of a script or a command that are not the same in all rows of this table, each with the first digits of its digest. "
        "Only rows with the same files are compared.",
        where=_PAGE,
    ),
    _fact("tags", "tags", "Tags of the scenario."),
    _outcome(
        "status",
        "status",
        "`ok` if all repeats ended ok, else the status of the last repeat that did not end ok.",
        where=_KEPT_PAGE,
    ),
    _outcome("failure_kind", "kind", "Word for the failure, such as `oom_cuda`.", where=_KEPT_PAGE),
    _outcome("failure_cause", "cause", "The failure in a sentence.", where=_KEPT),
    _outcome("failure_hint", "hint", "What to do about the failure, if that is known.", where=_KEPT),
    _count("runs", "runs", "Repeats that ended.", source="run folders"),
    _count(
        "runs_ok", "ok runs", "Repeats that ended ok. Means are over these repeats.", source="run folders", where=_PAGE
    ),
    _count("repeat", "repeat", "Number of the repeat, from 1.", source=_RECORD),
    _count("attempt", "attempt", "Number of the try at this repeat, from 1.", source=_RECORD),
    _outcome("started_at", "started", "Start of the run, UTC."),
    _ending("exit_code", "exit code", "Exit code of the trainer, if its launcher reports it."),
    _ending("signal", "signal", "Signal that ended the trainer, if its launcher reports it."),
    _outcome("warnings", "warnings", "Warnings about the numbers.", where=Where.FILES),
    _fact("dtype", "dtype", "Argument: requested type of the weights (`torch_dtype` in older files).", where=_KEPT),
    _fact("torch_dtype", "dtype", "Argument: requested type of the weights.", where=_KEPT),
    _fact("peft_method", "peft", "Argument: `lora`, or empty for full fine-tuning.", where=_KEPT),
    _count(
        "per_device_train_batch_size", "batch/device", "Argument: samples per device and micro-batch.", where=_KEPT_PAGE
    ),
)

FACTS: dict[str, Metric] = {fact.name: fact for fact in _FACTS}

# Maps the name of a setting to its pandas type and its meaning. The setting's column is `effective_<name>`.
SETTINGS: dict[str, tuple[str, str]] = {
    "model_class": (TEXT, "Class of the model."),
    "wrapper_classes": (TEXT, "Classes around the model, outermost first (DDP, FSDP, compiled)."),
    "attn_implementation": (TEXT, "Attention that the model uses."),
    "sdpa_backend": (TEXT, "The only kernel that sdpa may use, or `any`."),
    "chunked_loss": (TRUTH, "Whether the loss is computed in chunks of rows, by the built-in trainer."),
    "activation_offloading": (TRUTH, "Whether activations are kept in the host's memory until the backward pass."),
    "dtype": (TEXT, "Type of most parameters."),
    "mixed_precision": (TEXT, "Autocast type: bf16, fp16 or no."),
    "trainable_parameters": (WHOLE, "Parameters that receive gradients."),
    "total_parameters": (WHOLE, "All parameters."),
    "peft_method": (TEXT, "Adapter on the model."),
    "lora_rank": (WHOLE, "Rank of the adapter's matrices."),
    "quantization": (TEXT, "Quantisation of the weights."),
    "gradient_checkpointing": (TRUTH, "Whether activations are recomputed."),
    "torch_compile": (TRUTH, "Whether the model is compiled."),
    "torch_compile_mode": (TEXT, "Mode of torch.compile."),
    "thunder_executors": (
        TEXT,
        "Executors that Thunder uses by default, if it compiled the model. Without nvFuser, its speed is another one.",
    ),
    "optimizer": (TEXT, "Class of the optimizer."),
    "optimizer_fused": (TRUTH, "Whether the optimizer's kernels are fused."),
    "liger": (TRUTH, "Whether liger kernels are in place."),
    "world_size": (WHOLE, "Size of the process group."),
    "data_parallel_ranks": (WHOLE, "Processes with a batch of their own; ranks that divide a batch count as one."),
    "distributed_type": (TEXT, "How accelerate distributes (NO, MULTI_GPU, FSDP…)."),
    "device": (TEXT, "Device of rank 0."),
    "device_name": (TEXT, "Name of that device."),
    "num_threads": (WHOLE, "CPU threads of torch in a process."),
    "per_device_train_batch_size": (WHOLE, "Samples per device and micro-batch."),
    "gradient_accumulation_steps": (WHOLE, "Micro-batches per step."),
    "global_batch": (WHOLE, "Samples of one optimizer step over all data-parallel ranks."),
    "max_steps": (WHOLE, "Steps that the Trainer should make."),
    "packing": (TRUTH, "Whether rows are packed."),
    "packed_attention": (
        TEXT,
        "What a packed sample attends to. `block-diagonal`: only itself; `concatenated`: also the earlier samples of the row.",
    ),
    "padding_free": (TRUTH, "Whether batches are flattened without padding."),
    "max_seq_len": (WHOLE, "Longest row."),
    "train_rows": (WHOLE, "Rows of the training data."),
    "model_fingerprint": (TEXT, "Digest of a local model folder, or of the saved random weights (`weights: saved`)."),
    "model_revision": (TEXT, "Commit of a hub model."),
    "recomputation": (
        TEXT,
        "What checkpointing computes again: none, whole layers, or up to the last needed tensor (early_stop).",
    ),
    "skip_memory_metrics": (TRUTH, "False: the Trainer's memory tracker ran and slowed the run."),
}
