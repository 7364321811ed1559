"""Builds the model to fine-tune: from a local folder, a hub name, or `config:<name>`, with LoRA adapters and quantisation.

A `config:` model has random weights at the sizes of a published model. Such a model is for measuring speed and memory: it has
the shapes of the published model, and so the same kernels and bytes. Any field of the configuration can be overridden. In `--NAME`,
NAME must be a field of the configuration; `--model_config.NAME` is passed on unchecked. The random weights depend only on the seed
and on the kind of device that draws them. torch and transformers are imported in functions.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any, Optional

from arguments import ArgumentError, Own, check_unknown, describe, literal
from configs import CONFIGS
from saved_weights import use_saved

UNCHECKED = "model_config."


def load_config(own: Own, words: Mapping[str, Sequence[str]]) -> Any:
    """Return the model's configuration, with `words` of the command line as overrides. Load no weights."""
    from transformers import AutoConfig

    name = own.model_name_or_path
    unchecked = {key[len(UNCHECKED) :]: items for key, items in words.items() if key.startswith(UNCHECKED)}
    words = {key: items for key, items in words.items() if not key.startswith(UNCHECKED)}
    more = {key: override(key, items, None) for key, items in unchecked.items()}
    if name.startswith("config:"):
        fields = CONFIGS.get(name[len("config:") :])
        if fields is None:
            raise ArgumentError(f"there is no model {name!r}; the known sizes are {', '.join(CONFIGS)}.")
        plain = AutoConfig.for_model(**fields)
        return AutoConfig.for_model(**{**fields, **overrides(plain, words, name), **more})
    if name.startswith((".", "/", "~")) and not os.path.isfile(os.path.join(name, "config.json")):
        raise ArgumentError(f"there is no model in {name!r}; a local model is a folder with a config.json.")
    try:
        plain = AutoConfig.from_pretrained(name, **hub_options(own))
    except (OSError, ValueError) as error:
        first = str(error).strip().splitlines()[0]
        raise ArgumentError(f"the model {name!r} has no configuration that can be read: {first}") from error
    changed = {**overrides(plain, words, name), **more}
    config = AutoConfig.from_pretrained(name, **hub_options(own), **changed) if changed else plain
    for key, value in more.items():  # from_pretrained drops what the class does not know
        setattr(config, key, value)
    return config


def hub_options(own: Own) -> dict[str, Any]:
    return {"trust_remote_code": own.trust_remote_code, **({"revision": own.revision} if own.revision else {})}


def overrides(config: Any, words: Mapping[str, Sequence[str]], model: str) -> dict[str, Any]:
    """Return the words as values of the configuration's fields. Each value gets the type of the value that the field has now."""
    from transformers import TrainingArguments

    known = fields_of(config)
    names = set(known) | set(getattr(config, "attribute_map", {}))
    from_trainer = {*Own.__dataclass_fields__, *TrainingArguments.__dataclass_fields__}
    check_unknown((name for name in words if name not in names), {*names, *from_trainer}, what=f"the model {model}")
    return {name: override(name, items, known.get(name)) for name, items in words.items()}


def fields_of(config: Any) -> dict[str, Any]:
    """Return the fields that can be overridden, with their values. transformers 5 has rope_theta in `rope_parameters`."""
    known = config.to_dict()
    return {**(known.get("rope_parameters") or {}), **known}


def override(name: str, items: Sequence[str], now: Any) -> Any:
    if len(items) != 1:
        return [read_value(item) for item in items]
    value = read_value(items[0])
    fits = now is None or value is None or isinstance(value, type(now)) or (type(now) is float and type(value) is int)
    if not fits or (type(now) is int and isinstance(value, bool)):
        raise ArgumentError(
            f"--{name} is {items[0]!r}; the model's configuration has {now!r} there; give {describe([type(now)])}."
        )
    return float(value) if type(now) is float and value is not None else value


def read_value(text: str) -> Any:
    """Return the value that a text represents: None, a Boolean, a number, a list or a mapping. Return other text unchanged."""
    plain = {"none": None, "null": None, "true": True, "false": False}
    value = literal(text)
    return plain.get(text.lower(), text if value is None else value)


# --- building --------------------------------------------------------------------------------------------------------


def dtype_option(own: Own) -> dict[str, Any]:
    """Return `dtype` under its name in the installed transformers: `torch_dtype` before 4.56."""
    import torch
    import transformers

    major, minor = (int(part) for part in transformers.__version__.split(".")[:2])
    value = own.dtype if own.dtype == "auto" else getattr(torch, own.dtype)
    return {"dtype" if (major, minor) >= (4, 56) else "torch_dtype": value}


def build_model(
    own: Own, config: Any, *, words: Mapping[str, Sequence[str]], seed: int, device: Optional[Any] = None
) -> Any:
    """Return the model with the requested dtype, attention and quantisation, or raise ArgumentError.

    `words` of the command line have changed the configuration of a `config:` model. The random weights of such a model are drawn on
    `device`.
    """
    from transformers import AutoModelForCausalLM, set_seed

    config.use_cache = False  # a cache is for generation; it would turn off the block-diagonal attention of packed rows
    options: dict[str, Any] = dtype_option(own)
    if own.attn_implementation:
        options["attn_implementation"] = own.attn_implementation
    quantized = quantization_options(own, config)
    set_seed(seed)
    if not own.model_name_or_path.startswith("config:"):
        options.update(quantized, **hub_options(own))
        return AutoModelForCausalLM.from_pretrained(own.model_name_or_path, config=config, **options)
    with device or drawing_device(own, config):
        # A configuration has no weights to take a dtype from.
        drawn = {name: value for name, value in options.items() if value != "auto"}
        model = AutoModelForCausalLM.from_config(config, **drawn)
    loaded = use_saved(model, own, words, seed=seed) if own.weights == "saved" else None
    model = load_quantized(model, **quantized, **options) if quantized else model
    model.saved_weights = loaded  # the instrument reads it
    return model


def load_quantized(model: Any, **options: Any) -> Any:
    """Return the quantised model. The library quantises only while loading, so save the model first."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("TUNEBENCH_RUN_DIR")) as folder:
        model.save_pretrained(folder)
        return type(model).from_pretrained(folder, **options)


def drawing_device(own: Own, config: Any) -> Any:
    """Return the device that draws random weights: this rank's GPU if the model fits easily, else the CPU.

    Drawing the weights of a 7B model on a CPU takes minutes. FSDP, DeepSpeed and quantisation use the CPU: the whole model may
    not fit on one GPU.
    """
    import torch

    sharded = any(os.environ.get(name) == "true" for name in ("ACCELERATE_USE_FSDP", "ACCELERATE_USE_DEEPSPEED"))
    on_cpu = os.environ.get("ACCELERATE_USE_CPU", "").lower() in ("1", "true", "yes")
    if sharded or on_cpu or own.quantization or not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
    per_number = 2 if own.dtype in ("bfloat16", "float16") else 4
    free, _ = torch.cuda.mem_get_info(device)
    return device if count_parameters(config) * per_number < 0.4 * free else torch.device("cpu")


def count_parameters(config: Any) -> int:
    """Return the number of parameters of a model with this configuration, without making it."""
    import torch
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        return sum(parameter.numel() for parameter in AutoModelForCausalLM.from_config(config).parameters())


def quantization_options(own: Own, config: Any) -> dict[str, Any]:
    """Return the options of from_pretrained for quantisation.

    A GPTQ model is already quantised; other models are quantised while loading.
    """
    import torch

    ready = getattr(config, "quantization_config", None)
    here = {"": int(os.environ.get("LOCAL_RANK", 0)) if torch.cuda.is_available() else "cpu"}  # this rank's device
    if own.quantization == "gptq":
        method = ready.get("quant_method") if isinstance(ready, dict) else getattr(ready, "quant_method", None)
        if str(getattr(method, "value", method)) != "gptq":
            raise ArgumentError(f"--quantization gptq needs a GPTQ model, and {own.model_name_or_path!r} is not one.")
        return {"device_map": here}
    if own.quantization is None:
        return {"device_map": here} if ready else {}
    require("bitsandbytes", f"--quantization {own.quantization}")
    from transformers import BitsAndBytesConfig

    if own.quantization == "int8":
        return {"quantization_config": BitsAndBytesConfig(load_in_8bit=True), "device_map": here}
    compute = torch.bfloat16 if own.dtype == "auto" else getattr(torch, own.dtype)
    four_bit = BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type=own.quantization, bnb_4bit_compute_dtype=compute,
        bnb_4bit_use_double_quant=own.double_quantization,
    )  # fmt: skip
    return {"quantization_config": four_bit, "device_map": here}


def require(package: str, wanted_by: str) -> None:
    import importlib.util

    if importlib.util.find_spec(package) is None:
        raise ArgumentError(f"{wanted_by} needs the package {package}; install it in the training environment.")


def adapt(model: Any, own: Own, *, checkpointing: bool, reentrant: bool) -> Any:
    """Return the model, with LoRA adapters on a frozen base if requested. Prepare a quantised base for training."""
    if own.peft_method == "none":
        return model
    require("peft", "--peft_method lora")
    from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training

    if own.quantization:
        options = {"use_reentrant": reentrant} if checkpointing else None
        model = prepare_model_for_kbit_training(
            model, use_gradient_checkpointing=checkpointing, gradient_checkpointing_kwargs=options
        )
    elif checkpointing and reentrant:
        model.enable_input_require_grads()  # else re-entrant checkpointing sees only frozen inputs and computes no gradient
    targets: Any = "all-linear" if own.target_modules == ["all-linear"] else own.target_modules or None
    config = LoraConfig(
        r=own.r, lora_alpha=own.lora_alpha, lora_dropout=own.lora_dropout, target_modules=targets,
        task_type="CAUSAL_LM",
    )  # type: ignore[arg-type,unused-ignore]  # fmt: skip
    return get_peft_model(model, config)
