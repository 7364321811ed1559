"""The built-in trainer: fine-tunes a causal language model with the Hugging Face Trainer.

This is a plain Trainer script. It measures nothing itself, and also runs without `instrument.py`. Its arguments are the fields of
`arguments.Own`, of the installed TrainingArguments, and of the model's configuration. A mistake in these arguments ends the script
with one sentence and exit code 2, before the model is loaded. The data come from `prepare.py`.

Some defaults differ from the Trainer's. There are no reports, checkpoints or progress bars. No loss is tested for NaN, and unused
parameters are not searched for, since both cost time in every step. Gradient checkpointing is non-reentrant. The script writes
`all_results.json` and `trainer_state.json` to `output_dir`.
"""

from __future__ import annotations

import dataclasses
import os
import sys
import typing
from typing import Any

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # PYTHONSAFEPATH leaves the script's folder out

import arguments
from arguments import ArgumentError, Own

DEFAULTS = {
    "report_to": "none",
    "save_strategy": "no",
    "disable_tqdm": True,
    "logging_nan_inf_filter": False,
    "ddp_find_unused_parameters": False,
    "remove_unused_columns": False,
}
# Two names of one argument; the newer name comes first.
CHECKPOINTING = ("activation_checkpointing", "gradient_checkpointing")


def training_fields() -> dict[str, Any]:
    """Return the fields of the installed TrainingArguments with their types."""
    from transformers import TrainingArguments

    try:
        types = typing.get_type_hints(TrainingArguments)
    except (NameError, TypeError):  # a type is from a package that is not installed, or needs a newer Python
        types = {}
    fields = [field for field in dataclasses.fields(TrainingArguments) if field.init]
    return {field.name: types.get(field.name, field.type) for field in fields}


def training_arguments(given: typing.Mapping[str, Any]) -> Any:
    """Return TrainingArguments with the given values and our defaults. Raise ArgumentError if TrainingArguments refuses them."""
    from transformers import TrainingArguments

    known = training_fields()
    folder = os.path.join(os.environ.get("TUNEBENCH_RUN_DIR", "."), "output")
    values = {"output_dir": folder, **DEFAULTS, **on_device(known), **given}
    newest = next(name for name in CHECKPOINTING if name + "_kwargs" in known)
    for old in CHECKPOINTING:  # use the name that the installed version prefers, so that this version does not warn
        for ending in ("", "_kwargs"):
            if old + ending in values:
                values.setdefault(newest + ending, values[old + ending])
                values = {name: value for name, value in values.items() if name != old + ending or old == newest}
    if values.get(newest) and not values.get(newest + "_kwargs"):
        values[newest + "_kwargs"] = {"use_reentrant": False}
    try:
        return TrainingArguments(**values)
    except (ValueError, TypeError, ImportError) as error:
        raise ArgumentError(f"TrainingArguments refuses these arguments: {' '.join(str(error).split())}") from error


def in_both_names(known: typing.Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields, and those of checkpointing under both names. `training_arguments` passes on the name that is installed."""
    newer, older = CHECKPOINTING
    pairs = [(newer + ending, older + ending) for ending in ("", "_kwargs")]
    return {**{a: known[b] for pair in pairs for a, b in (pair, pair[::-1]) if b in known}, **known}


def on_device(known: typing.Container[str]) -> dict[str, Any]:
    """Return the arguments for a CPU if there is no accelerator, or if `ACCELERATE_USE_CPU` is true. Else return an empty dict."""
    import torch

    accelerated = getattr(torch, "accelerator", torch.cuda).is_available()
    if accelerated and os.environ.get("ACCELERATE_USE_CPU", "").lower() not in ("1", "true", "yes"):
        return {}
    return {"dataloader_pin_memory": False, **({"use_cpu": True} if "use_cpu" in known else {"no_cuda": True})}


def checkpointing(args: Any) -> tuple[bool, bool]:
    """Return two values: whether activations are recomputed, and whether checkpointing is re-entrant."""
    on = any(getattr(args, name, None) for name in CHECKPOINTING)
    options = [getattr(args, name + "_kwargs", None) or {} for name in CHECKPOINTING]
    return on, any(option.get("use_reentrant") for option in options)


def check_data(own: Own, manifest: typing.Mapping[str, Any], config: Any) -> None:
    """Raise ArgumentError if the data and the model or the arguments do not fit together.

    The model may lack a token of the data. Or labels on the response only are asked for, and the data has labels on everything.
    """
    size = getattr(config, "vocab_size", None)
    largest = manifest.get("largest_token_id")
    if size and largest is not None and largest >= size:
        raise ArgumentError(
            f"the training data contain token {largest}, but the model's vocabulary ends at {size - 1}; "
            "prepare them with this model's tokenizer, or raise vocab_size."
        )
    if (own.response_template or own.response_field) and not manifest.get("response_only", True):
        raise ArgumentError(
            "--response_template or --response_field asks for a loss on the response only, but the data were "
            "prepared with a loss on everything; prepare them with the same setting."
        )


def build_trainer(argv: typing.Sequence[str]) -> Any:
    """Return the Trainer that the command line asks for. Check the arguments first, then load the data, then build the model."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    parsed = arguments.parse(argv, in_both_names(training_fields()))
    own = parsed.own
    import compiling
    import data
    import memory_savers
    import models
    from transformers import Trainer  # ends `startup_s`, so it comes before configuration, data and weights

    config = models.load_config(own, parsed.model)
    tokens, manifest = data.load_tokens(own.training_data_path)
    check_data(own, manifest, config)
    args = training_arguments(compiling.without_own_backends(parsed.training))
    if str(getattr(args.eval_strategy, "value", args.eval_strategy)) != "no":
        raise ArgumentError("--eval_strategy must be no: the built-in trainer has no evaluation data.")
    if own.packing or own.padding_free:  # find mistakes before the model is loaded, as far as possible
        data.build_rows(own, tokens, attention=own.attn_implementation)
    memory_savers.use_backend(own)
    model = models.build_model(own, config, words=parsed.model, seed=args.seed)
    memory_savers.set_loss(model, own, args)
    attention = getattr(model.config, "_attn_implementation", None)
    rows = data.build_rows(own, tokens, attention=attention)
    collator = data.build_collator(own, attention=attention, pad_token_id=manifest.get("pad_token_id") or 0)
    recomputed, reentrant = checkpointing(args)
    model = models.adapt(model, own, checkpointing=recomputed, reentrant=reentrant)
    compiling.compile_by_thunder(model, parsed.training)
    kind = memory_savers.offloading(Trainer) if own.activation_offloading else Trainer
    return kind(model=model, args=args, train_dataset=rows, data_collator=collator)


def train(argv: typing.Sequence[str]) -> None:
    """Build the model, train it, and save the metrics. No object of the Trainer exists after this function."""
    trainer = build_trainer(argv)
    result = trainer.train(resume_from_checkpoint=trainer.args.resume_from_checkpoint)
    trainer.save_metrics("train", result.metrics)
    trainer.save_state()


def leave_process_group() -> None:
    """Leave the process group, so that no rank waits for this one and NCCL does not warn.

    The wrapped model must be deleted first. Otherwise DDP's reducer holds the last reference to the group. The reducer then
    waits for the threads of gloo and keeps the interpreter's lock. These threads may need the lock. This made runs with two ranks
    hang.
    """
    import gc

    import torch

    gc.collect()
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def main() -> None:
    try:
        train(sys.argv[1:])
    except ArgumentError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from error
    leave_process_group()


if __name__ == "__main__":
    main()
