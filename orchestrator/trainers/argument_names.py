"""Translate the names of arguments. Each trainer has a table of names.

Scenario files use the names of the built-in trainer, or older names that new versions of transformers do not know. The table of a
trainer maps these names to the trainer's own names. A name that is not in the table passes unchanged, and the trainer checks it.
Names are translated one layer at a time (see `Trainer.translate`). If a layer has both the old and the new name, the value of
the later one is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from orchestrator.records import Text

Arguments = dict[str, Text | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """The rule for one name: it turns the name's value into one argument, several arguments, or none.

    `note` is the sentence for the user, if any.
    """

    becomes: Callable[[Text | None], Arguments]
    note: str | None = None


Table = Mapping[str, Rule]


def translate(table: Table, arguments: Mapping[str, Text | None]) -> tuple[Arguments, tuple[str, ...]]:
    """Return two values: the layer of arguments with the table's names, and a sentence for each change."""
    translated: Arguments = {}
    notes: list[str] = []
    for name, value in arguments.items():
        rule = table.get(name)
        translated |= {name: value} if rule is None else rule.becomes(value)
        if rule is not None and rule.note is not None:
            notes.append(rule.note)
    return translated, tuple(notes)


def is_true(value: Text | None) -> bool:
    """Return whether a text means yes in YAML 1.1."""
    return isinstance(value, str) and value.strip().lower() in {"true", "yes", "on", "1"}


def _renamed(old: str, new: str, note: str = "") -> tuple[str, Rule]:
    """Return the rule for an old name. The sentence in its `note` helps the user to update the scenario file."""
    return old, Rule(becomes=lambda value: {new: value}, note=f"{old} is called {new} today{note}.")


def _called(canonical: str, theirs: str) -> tuple[str, Rule]:
    """Return the rule that replaces a canonical name by this trainer's own name.

    Both names are valid, so the rule has no note for the user.
    """
    return canonical, Rule(becomes=lambda value: {theirs: value})


def _dropped(name: str, why: str) -> tuple[str, Rule]:
    return name, Rule(becomes=lambda value: {}, note=f"{name} is left out: {why}.")


def _switch(name: str, *, on: Arguments, off: Arguments, called: str) -> tuple[str, Rule]:
    """Return the rule for a yes/no argument that sets other arguments. `null` removes all those other arguments."""

    def becomes(value: Text | None) -> Arguments:
        return dict.fromkeys([*on, *off]) if value is None else dict(on if is_true(value) else off)

    return name, Rule(becomes=becomes, note=f"{name} is called {called}.")


def _by_value(name: str, cases: Mapping[str, Arguments]) -> tuple[str, Rule]:
    """Return the rule for an argument that some values turn into other arguments.

    `cases` maps each such value to these arguments. With any other value, the argument stays as it is.
    """

    def becomes(value: Text | None) -> Arguments:
        if value is None:
            return dict.fromkeys(key for case in cases.values() for key in case)
        return dict(cases[value]) if isinstance(value, str) and value in cases else {name: value}

    return name, Rule(becomes=becomes)


def _table(*rules: tuple[str, Rule]) -> Table:
    return dict(rules)


_RUN_FOLDER = _dropped("output_dir", "every run writes into its own folder")

# Names of transformers 4 that transformers 5 does not have, for the trainers that use transformers 5.
_GONE_FROM_TRANSFORMERS = (
    _renamed("evaluation_strategy", "eval_strategy"),
    _renamed("no_cuda", "use_cpu"),
    _renamed("per_gpu_train_batch_size", "per_device_train_batch_size"),
    _renamed("per_gpu_eval_batch_size", "per_device_eval_batch_size"),
    _renamed("use_liger", "use_liger_kernel"),
    _renamed("torchdynamo", "torch_compile_backend"),
    _renamed("warmup_ratio", "warmup_steps", ", in which a value below 1 is a ratio"),
    _switch("adafactor", on={"optim": "adafactor"}, off={}, called="optim: adafactor today"),
    _switch(
        "group_by_length",
        on={"train_sampling_strategy": "group_by_length"},
        off={},
        called="train_sampling_strategy: group_by_length today",
    ),
    _switch(
        "use_flash_attn",
        on={"attn_implementation": "flash_attention_2"},
        off={"attn_implementation": None},  # a lower layer may have set this argument
        called="attn_implementation today (flash_attention_2, sdpa or eager)",
    ),
    _dropped("include_tokens_per_second", "tokens per second are always measured"),
    _dropped("overwrite_output_dir", "every run writes into its own folder"),
    _dropped("save_safetensors", "safetensors is the only format today"),
    _dropped("half_precision_backend", "PyTorch's backend is the only one today"),
    _dropped("fp16_backend", "PyTorch's backend is the only one today"),
    _dropped("logging_dir", "every run writes into its own folder"),
    _RUN_FOLDER,
)

HUGGINGFACE = _table(
    *_GONE_FROM_TRANSFORMERS,
    _renamed("torch_dtype", "dtype"),
    _renamed("max_seq_length", "max_seq_len"),
    _renamed("max_length", "max_seq_len"),
    _renamed("lora_r", "r"),
    _renamed("lora_target_modules", "target_modules"),
    _renamed("model_revision", "revision"),
    _renamed("dataset_name", "training_data_path"),
    _switch(
        "use_peft",
        on={"peft_method": "lora"},
        off={"peft_method": "none"},
        called="peft_method here (lora or none)",
    ),
    _switch("load_in_4bit", on={"quantization": "nf4"}, off={"quantization": None}, called="quantization: nf4 here"),
    _switch("load_in_8bit", on={"quantization": "int8"}, off={"quantization": None}, called="quantization: int8 here"),
)

# A user's script has its own names.
SCRIPT = _table(
    ("output_dir", Rule(becomes=lambda value: {"output_dir": value}, note="output_dir becomes the run's own folder."))
)

# fms-hf-tuning's own names pass unchanged, so that the reference's files expand to the same arguments.
FMS_HF_TUNING = _table(
    _called("dtype", "torch_dtype"),
    _called("activation_checkpointing", "gradient_checkpointing"),
    # Without flash attention, transformers uses sdpa.
    _by_value(
        "attn_implementation",
        {"flash_attention_2": {"use_flash_attn": "True"}, "sdpa": {"use_flash_attn": "False"}},
    ),
    _by_value("peft_method", {"none": {"peft_method": None}}),
    _RUN_FOLDER,
)

TRL = _table(
    *_GONE_FROM_TRANSFORMERS,
    _renamed("torch_dtype", "dtype"),
    _called("max_seq_len", "max_length"),
    _renamed("max_seq_length", "max_length"),
    _called("r", "lora_r"),
    _called("target_modules", "lora_target_modules"),
    _called("revision", "model_revision"),
    _called("training_data_path", "dataset_name"),
    _by_value("peft_method", {"lora": {"use_peft": "True"}, "none": {"use_peft": "False"}}),
    _called("double_quantization", "use_bnb_nested_quant"),
    _by_value(
        "quantization",
        {
            "nf4": {"load_in_4bit": "True", "bnb_4bit_quant_type": "nf4"},
            "fp4": {"load_in_4bit": "True", "bnb_4bit_quant_type": "fp4"},
            "int8": {"load_in_8bit": "True"},
        },
    ),
    _dropped("response_template", "trl computes the loss on the whole text of a row"),
    _dropped("response_field", "trl computes the loss on the whole text of a row"),
)

# defaults.yaml says that rows are not packed, and DPO never packs them.
TRL_DPO = {**TRL, **_table(_by_value("packing", {"False": {}}))}

# LLaMA-Factory's own names and those of the Trainer of transformers 4 pass unchanged.
LLAMAFACTORY = _table(
    _called("max_seq_len", "cutoff_len"),
    _called("max_seq_length", "cutoff_len"),
    _called("r", "lora_rank"),
    _called("target_modules", "lora_target"),
    _called("revision", "model_revision"),
    _switch(
        "gradient_checkpointing",
        on={"disable_gradient_checkpointing": "False"},
        off={"disable_gradient_checkpointing": "True"},
        called="disable_gradient_checkpointing by LLaMA-Factory, with the opposite meaning",
    ),
    _by_value(
        "attn_implementation",
        {
            "flash_attention_2": {"flash_attn": "fa2"},
            "sdpa": {"flash_attn": "sdpa"},
            "eager": {"flash_attn": "disabled"},
        },
    ),
    _by_value("peft_method", {"lora": {"finetuning_type": "lora"}, "none": {"finetuning_type": "full"}}),
    _by_value(
        "quantization",
        {
            "nf4": {"quantization_bit": "4", "quantization_type": "nf4"},
            "fp4": {"quantization_bit": "4", "quantization_type": "fp4"},
            "int8": {"quantization_bit": "8"},
        },
    ),
    _RUN_FOLDER,
)

# Axolotl's own names pass unchanged, except for the batch, whose name is Tunebench's until the file is written.
AXOLOTL = _table(
    _called("micro_batch_size", "per_device_train_batch_size"),
    _called("max_seq_len", "sequence_len"),
    _called("max_seq_length", "sequence_len"),
    _called("packing", "sample_packing"),
    _called("num_train_epochs", "num_epochs"),
    _called("optim", "optimizer"),
    _called("lr_scheduler_type", "lr_scheduler"),
    _called("r", "lora_r"),
    _called("target_modules", "lora_target_modules"),
    _by_value("peft_method", {"lora": {"adapter": "lora"}, "none": {"adapter": None}}),
    _dropped("base_model", "the model is model_name_or_path"),
    _RUN_FOLDER,
)

# The names of LitGPT pass unchanged.
LITGPT = _table(
    _dropped("checkpoint_dir", "the checkpoint is model_name_or_path"),
    _dropped("out_dir", "every run writes into its own folder"),
    _dropped("logger_name", "Tunebench reads the file of the logger csv"),
    _dropped("train.log_interval", "every micro-batch is logged"),
    _dropped("devices", "num_gpus says how many processes train"),
    _dropped("num_nodes", "the key num_nodes of the scenario says it"),
)

# The names of Thunder's benchmark pass unchanged.
THUNDER = _table(
    _dropped("model_name", "the model is model_name_or_path"),
    _dropped("json_path", "every run writes into its own folder"),
    _dropped("return_metrics_as_json", "the metrics are always written"),
)
