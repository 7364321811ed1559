"""The sizes of a model, read from its configuration: `config:NAME`, a local folder, or a cached or well-known hub model.

Decoders like Llama and Mixtral are known (FAMILIES), and their counts of parameters are exact. Everything else raises NotKnown with
the reason. Examples are other architectures, weights that are stored quantised, and a configuration that is not on this machine.
This module only reads files. It needs neither a network nor transformers.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from orchestrator.files import reading
from orchestrator.files.printable_text import quoted
from orchestrator.plan.data import hub_model, published_models
from orchestrator.records import Text
from orchestrator.trainers.argument_values import MODEL_CONFIG

# The defaults of each family for fields that a configuration leaves out, in addition to COMMON. A family without a field of
# BIASES ignores that field.
FAMILIES: Mapping[str, Mapping[str, Any]] = {
    "llama": {"vocab_size": 32000, "intermediate_size": 11008, "attention_bias": False, "mlp_bias": False},
    "mistral": {"vocab_size": 32000, "intermediate_size": 14336, "num_key_value_heads": 8, "sliding_window": 4096},
    "qwen2": {"vocab_size": 151936, "intermediate_size": 22016, "num_key_value_heads": 32},
    "qwen3": {"vocab_size": 151936, "intermediate_size": 22016, "num_key_value_heads": 32, "head_dim": 128,
              "attention_bias": False},
    "granite": {"vocab_size": 32000, "intermediate_size": 11008, "attention_bias": False, "mlp_bias": False},
    "mixtral": {"vocab_size": 32000, "intermediate_size": 14336, "num_key_value_heads": 8, "num_local_experts": 8,
                "num_experts_per_tok": 2},
}  # fmt: skip

COMMON: Mapping[str, Any] = {
    "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": None,
    "head_dim": None, "tie_word_embeddings": False, "hidden_act": "silu",
}  # fmt: skip

BIASES = ("attention_bias", "mlp_bias")
LARGEST = 2**63 - 1  # torch stores sizes in 64 bits

_WINDOWS = {"sliding_window": None, "use_sliding_window": False, "layer_types": None}
_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")
# Families whose attention has a window in all layers, if the configuration contains `sliding_window`.
_WINDOWED = ("mistral", "mixtral")
_POINTER_BYTES = 1024  # limit for a branch's file in the hub's cache; the file contains only a commit
_MOST_DIGITS = len(str(LARGEST))  # Python refuses to convert thousands of digits
_NUMBERS = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")


class NotKnown(Exception):
    """The reason, in a few words, why memory can't be estimated. `estimate` catches this error and returns `Unknown`."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """One weight matrix of a layer: the module's name, its number of inputs, and its number of outputs."""

    name: str
    inputs: int
    outputs: int
    bias: bool

    @property
    def parameters(self) -> int:
        return self.inputs * self.outputs + (self.outputs if self.bias else 0)


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    """The sizes that memory and work depend on.

    `head_norms` says whether queries and keys are normed. `window` is the reach of attention in tokens. `dtype` is the number type
    of the stored weights, or None if the configuration does not name it. A dense model has 0 `experts`.
    """

    family: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    tied: bool
    qkv_bias: bool
    output_bias: bool
    mlp_bias: bool
    head_norms: bool
    window: int | None
    dtype: str | None
    experts: int
    experts_per_token: int

    @property
    def query_width(self) -> int:
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        return self.kv_heads * self.head_dim

    @cached_property
    def matrices(self) -> tuple[Matrix, ...]:
        """The linear modules of one layer.

        Router and experts are left out, because they are stacked weights and not linear modules.
        """
        hidden, inner, query, kv = self.hidden_size, self.intermediate_size, self.query_width, self.kv_width
        attention = (
            Matrix("q_proj", hidden, query, self.qkv_bias),
            Matrix("k_proj", hidden, kv, self.qkv_bias),
            Matrix("v_proj", hidden, kv, self.qkv_bias),
            Matrix("o_proj", query, hidden, self.output_bias),
        )
        if self.experts:
            return attention
        return (
            *attention,
            Matrix("gate_proj", hidden, inner, self.mlp_bias),
            Matrix("up_proj", hidden, inner, self.mlp_bias),
            Matrix("down_proj", inner, hidden, self.mlp_bias),
        )

    @property
    def router_parameters(self) -> int:
        """The weights of one layer's router."""
        return self.experts * self.hidden_size

    @property
    def expert_parameters(self) -> int:
        """The weights of all experts of one layer: each has a gated MLP."""
        return 3 * self.experts * self.hidden_size * self.intermediate_size

    @cached_property
    def layer_parameters(self) -> int:
        norms = 2 * self.hidden_size + (2 * self.head_dim if self.head_norms else 0)
        return (
            sum(matrix.parameters for matrix in self.matrices) + self.router_parameters + self.expert_parameters + norms
        )

    @property
    def embedding_parameters(self) -> int:
        return self.vocab_size * self.hidden_size

    @property
    def outside_parameters(self) -> int:
        """The weights of the embedding, of the last norm, and of the output matrix (unless it is the embedding)."""
        return self.embedding_parameters * (1 if self.tied else 2) + self.hidden_size

    @property
    def parameters(self) -> int:
        return self.layers * self.layer_parameters + self.outside_parameters


def read_shape(model: str, arguments: Mapping[str, Text], *, revision: str | None, hub: str) -> ModelShape:
    """Return the shape of a model; `arguments` may override fields of its configuration. Raises NotKnown."""
    fields = _fields(model, revision, hub)
    known = {*FAMILIES.get(str(fields.get("model_type")), ()), *COMMON, *_WINDOWS}
    plain = {name.removeprefix(MODEL_CONFIG): value for name, value in arguments.items()}
    given = frozenset((name, value) for name, value in plain.items() if name in known)
    return _shape(model, revision, hub, given)


def hub_folder(env: Mapping[str, str | None]) -> str:
    """Return the folder of the hub's cache for a run with these environment variables. It is HF_HUB_CACHE, or `hub` in HF_HOME."""
    names = ("HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME")
    cached, home, caches = (env[name] if name in env else os.environ.get(name) for name in names)
    return cached or os.path.join(home or os.path.join(caches or "~/.cache", "huggingface"), "hub")


@cache
def _shape(model: str, revision: str | None, hub: str, given: frozenset[tuple[str, Text]]) -> ModelShape:
    own = _fields(model, revision, hub)
    family = str(own.get("model_type"))
    if family not in FAMILIES:
        mixture = "a mixture of experts of " if any(own.get(name) for name in _EXPERTS) else ""
        raise NotKnown(f"{mixture}architecture {quoted(family)}")
    if own.get("quantization_config"):
        raise NotKnown("quantised weights")
    fields = {**COMMON, **_WINDOWS, **FAMILIES[family], **own, **{name: _value(text) for name, text in given}}
    if fields["hidden_act"] not in ("silu", "swish"):
        raise NotKnown(f"activation {quoted(fields['hidden_act'])}")
    if fields.get("output_router_logits"):
        raise NotKnown("a loss on the router")
    kinds = fields["layer_types"] or []
    if fields["use_sliding_window"] or not isinstance(kinds, list) or any(kind != kinds[0] for kind in kinds):
        raise NotKnown("attention windows in some layers")
    window = fields["sliding_window"] if family in _WINDOWED else None
    dtype = own.get("dtype") or own.get("torch_dtype")
    if dtype and not isinstance(dtype, str):
        raise NotKnown(f"dtype {quoted(dtype)}")
    numbers = {name: _number(name, fields[name]) for name in _NUMBERS}
    heads, kv_heads, head_dim = _heads(numbers["hidden_size"], numbers["num_attention_heads"], fields)
    attention_bias, mlp_bias = (name in FAMILIES[family] and _switch(name, fields[name]) for name in BIASES)
    return ModelShape(
        family=family,
        vocab_size=numbers["vocab_size"],
        hidden_size=numbers["hidden_size"],
        intermediate_size=numbers["intermediate_size"],
        layers=numbers["num_hidden_layers"],
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        tied=_switch("tie_word_embeddings", fields["tie_word_embeddings"]),
        qkv_bias=attention_bias or family == "qwen2",
        output_bias=attention_bias,
        mlp_bias=mlp_bias,
        head_norms=family == "qwen3",
        window=None if window is None else _number("sliding_window", window),
        dtype=dtype or None,
        experts=_number("num_local_experts", fields["num_local_experts"]) if family == "mixtral" else 0,
        experts_per_token=_number("num_experts_per_tok", fields["num_experts_per_tok"]) if family == "mixtral" else 0,
    )


def _value(text: Text) -> Any:
    """Return an argument's text as the value of a configuration's field."""
    words = {"true": True, "false": False, "none": None, "null": None}
    if not isinstance(text, str):
        return text
    is_number = text.strip().isdecimal() and len(text) <= _MOST_DIGITS
    return int(text) if is_number else words.get(text.lower(), text)


def _heads(hidden_size: int, heads: int, fields: Mapping[str, Any]) -> tuple[int, int, int]:
    """Return three numbers: the query heads, the heads of keys and values, and the size of a head. Raises NotKnown."""
    given_heads, given_size = fields["num_key_value_heads"], fields["head_dim"]
    kv_heads = heads if given_heads is None else _number("num_key_value_heads", given_heads)
    if given_size is None and hidden_size % heads:
        raise NotKnown(f"hidden_size {hidden_size} is not a multiple of num_attention_heads {heads}")
    if heads % kv_heads:
        raise NotKnown(f"num_attention_heads {heads} is not a multiple of num_key_value_heads {kv_heads}")
    return heads, kv_heads, hidden_size // heads if given_size is None else _number("head_dim", given_size)


def _number(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise NotKnown(f"{name} {quoted(value)} is not a whole number from 1")
    if value > LARGEST:
        raise NotKnown(f"{name} is larger than {LARGEST}")
    return value


def _switch(name: str, value: Any) -> bool:
    if value is not None and not isinstance(value, bool):
        raise NotKnown(f"{name} {quoted(value)} is neither true nor false")
    return bool(value)


@cache
def _fields(model: str, revision: str | None, hub: str) -> Mapping[str, Any]:
    """Return the model's configuration without any defaults. Raises NotKnown."""
    if model.startswith("config:"):
        configs = published_models()
        if model.removeprefix("config:") not in configs:
            raise NotKnown(f"there is no model {model}")
        return configs[model.removeprefix("config:")]
    file = _config_file(model, revision, hub)
    known = hub_model(model) if file is None and revision is None else None
    if known is not None:
        return known
    if file is None:
        raise NotKnown(f"no config.json of {model} on this machine")
    try:
        fields = reading.read_json(reading.resolved(file), limit=reading.RECORD_BYTES, finite=False)
    except (OSError, ValueError) as error:
        raise NotKnown(f"{file} can't be read: {reading.reason(error)}") from error
    if not isinstance(fields, dict):
        raise NotKnown(f"{file} is not a configuration")
    return fields


def _config_file(model: str, revision: str | None, hub: str) -> Path | None:
    """Return the path of config.json in a local folder, or in the cached snapshot of the revision.

    Return None if there is no such file.
    """
    try:
        local = Path(model).expanduser() / "config.json"
        if local.is_file():
            return local
        stored = Path(hub).expanduser() / ("models--" + model.replace("/", "--"))
        name = revision or "main"
        pointer = stored / "refs" / name
        commit = (
            reading.read_text(reading.resolved(pointer), limit=_POINTER_BYTES).strip() if pointer.is_file() else name
        )
        file = stored / "snapshots" / commit / "config.json"
        return file if file.is_file() else None
    except (OSError, ValueError, RuntimeError):  # an impossible file name, or an unknown home folder
        return None
