"""What the arguments of the Trainer take, as far as a plan can tell without transformers: numbers, yes or no, a few words.

Only what every version that we know agrees on stands here (a test asks the installed one); an argument that does not, and a
value that only some version takes, is left to the trainer. Names that are near a known one are pointed out and pass: they
may be the model's own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from functools import lru_cache
from types import MappingProxyType

from orchestrator.records import Text

ON_TRAINING_ARGUMENTS = ("huggingface", "trl", "fms_hf_tuning")
WHOLE = frozenset(
    {
        *(
            "per_device_train_batch_size",
            "per_device_eval_batch_size",
            "gradient_accumulation_steps",
            "max_steps",
            "seed",
        ),
        *("data_seed", "dataloader_num_workers", "dataloader_prefetch_factor", "ddp_timeout", "ddp_bucket_cap_mb"),
        *("save_total_limit", "eval_accumulation_steps", "torch_empty_cache_steps"),
    }
)
NUMBER = frozenset(
    {
        *(
            "num_train_epochs",
            "learning_rate",
            "warmup_steps",
            "weight_decay",
            "adam_beta1",
            "adam_beta2",
            "adam_epsilon",
        ),
        *("max_grad_norm", "label_smoothing_factor", "logging_steps", "eval_delay", "eval_steps", "save_steps"),
        "neftune_noise_alpha",
    }
)
TRUTH = frozenset(
    {
        *("bf16", "fp16", "tf32", "bf16_full_eval", "fp16_full_eval", "torch_compile", "use_liger_kernel", "use_cpu"),
        *("gradient_checkpointing", "logging_first_step", "logging_nan_inf_filter", "remove_unused_columns"),
        *("dataloader_drop_last", "dataloader_pin_memory", "dataloader_persistent_workers", "skip_memory_metrics"),
        *(
            "ddp_find_unused_parameters",
            "ddp_broadcast_buffers",
            "full_determinism",
            "auto_find_batch_size",
            "disable_tqdm",
        ),
        *(
            "average_tokens_across_devices",
            "load_best_model_at_end",
            "save_only_model",
            "ignore_data_skip",
            "push_to_hub",
        ),
        *("do_train", "do_eval", "do_predict", "prediction_loss_only", "eval_on_start", "greater_is_better"),
    }
)
OWN_WHOLE, OWN_NUMBER = frozenset({"max_seq_len", "r"}), frozenset({"lora_alpha", "lora_dropout"})
OWN_TRUTH = frozenset({"packing", "padding_free", "trust_remote_code"})
OWN_WORDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "dtype": ("float32", "bfloat16", "float16", "auto"),
        "peft_method": ("lora", "none"),
        "quantization": ("nf4", "fp4", "int8", "gptq"),
    }
)
"""What the built-in trainer has beside the Trainer's."""

YES, NO = ("true", "yes", "on"), ("false", "no", "off")
_OTHERS_YES_NO = (*YES, *NO, "t", "y", "1", "f", "n", "0")
_NEAR = 0.85
_OTHER_NAMES = (
    *(
        "optim",
        "optim_args",
        "lr_scheduler_type",
        "lr_scheduler_kwargs",
        "logging_strategy",
        "eval_strategy",
        "save_strategy",
    ),
    *(
        "report_to",
        "run_name",
        "deepspeed",
        "fsdp",
        "fsdp_config",
        "accelerator_config",
        "ddp_backend",
        "ddp_static_graph",
    ),
    *("torch_compile_backend", "torch_compile_mode", "activation_checkpointing", "activation_checkpointing_kwargs"),
    *(
        "gradient_checkpointing_kwargs",
        "include_num_input_tokens_seen",
        "train_sampling_strategy",
        "length_column_name",
    ),
    *(
        "model_name_or_path",
        "training_data_path",
        "attn_implementation",
        "target_modules",
        "revision",
        "response_template",
    ),
    *(
        "response_field",
        "dataset_text_field",
        "log_level",
        "metric_for_best_model",
        "label_names",
        "use_cache",
    ),
)
_NAMES = frozenset({*WHOLE, *NUMBER, *TRUTH, *OWN_WHOLE, *OWN_NUMBER, *OWN_TRUTH, *OWN_WORDS, *_OTHER_NAMES})


@lru_cache(maxsize=4096)
def wrong(name: str, value: Text, trainer: str) -> str | None:
    """What the argument takes instead, where this value is none of it; None where it may be right."""
    own = trainer == "huggingface"
    if isinstance(value, tuple) and len(value) == 1:  # it becomes the same words as its item
        return wrong(name, value[0], trainer)
    if trainer not in ON_TRAINING_ARGUMENTS or value == "None":
        return None
    if value == () and not own:  # a flag without a value, which others take for yes
        return None
    if name in WHOLE or (own and name in OWN_WHOLE):
        return None if _is_number(value, whole=True) else "a whole number"
    if name in NUMBER or (own and name in OWN_NUMBER):
        return None if _is_number(value, whole=False) else "a number"
    if name in TRUTH or (own and name in OWN_TRUTH):
        allowed = (*YES, *NO) if own else _OTHERS_YES_NO
        return None if isinstance(value, str) and value.lower() in allowed else "true or false"
    if own and name in OWN_WORDS:
        return None if value in OWN_WORDS[name] else f"one of {', '.join(OWN_WORDS[name])}"
    return None


@lru_cache(maxsize=4096)
def meant(name: str) -> str | None:
    """The argument of the built-in trainer that a name comes near to; None for one that it has, and for one near to none."""
    near = [] if name in _NAMES else get_close_matches(name, _NAMES, n=1, cutoff=_NEAR)
    return near[0] if near else None


def known(arguments: Collection[str]) -> list[str]:
    """Those of the arguments that `wrong` knows, in their order."""
    return [name for name in arguments if name in _NAMES]


def _is_number(value: Text, *, whole: bool) -> bool:
    try:
        number = float(value) if isinstance(value, str) else float("nan")
    except ValueError:
        return False
    return number.is_integer() if whole else number == number
