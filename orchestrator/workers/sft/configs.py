"""The sizes of the models named `config:NAME`, as published in the models' config.json files. Only data.

`models.py` builds models from these sizes. To count parameters in a plan, the orchestrator loads this file by its path, since it
never imports a worker. So this file needs only the standard library.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LLAMA_2 = {"model_type": "llama", "vocab_size": 32000, "rms_norm_eps": 1e-5, "max_position_embeddings": 4096}
LLAMA_3 = {"model_type": "llama", "vocab_size": 128256, "rms_norm_eps": 1e-5, "rope_theta": 500000.0}
MISTRAL = {"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
           "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 32768,
           "rms_norm_eps": 1e-5}  # fmt: skip
QWEN = {"model_type": "qwen2", "max_position_embeddings": 32768, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0}
GRANITE = {"model_type": "granite", "vocab_size": 49155, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
           "rope_theta": 10000.0, "tie_word_embeddings": True, "embedding_multiplier": 12.0,
           "residual_multiplier": 0.22}  # fmt: skip
TINY = {"vocab_size": 4096, "hidden_size": 64, "intermediate_size": 176, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 2048}  # fmt: skip


def sizes(
    base: Mapping[str, Any], hidden: int, intermediate: int, layers: int, heads: int, kv_heads: int, **more: Any
) -> dict[str, Any]:
    return {
        **base, "hidden_size": hidden, "intermediate_size": intermediate, "num_hidden_layers": layers,
        "num_attention_heads": heads, "num_key_value_heads": kv_heads, **more,
    }  # fmt: skip


# llama-1b has the shape of TinyLlama 1.1B.
CONFIGS: dict[str, dict[str, Any]] = {
    "tiny-llama": {"model_type": "llama", **TINY},
    "tiny-moe": {"model_type": "mixtral", **TINY, "num_local_experts": 4, "num_experts_per_tok": 2},
    "llama-1b": sizes(LLAMA_2, 2048, 5632, 22, 32, 4, max_position_embeddings=2048),
    "llama-2-7b": sizes(LLAMA_2, 4096, 11008, 32, 32, 32),
    "llama-2-13b": sizes(LLAMA_2, 5120, 13824, 40, 40, 40),
    "llama-2-70b": sizes(LLAMA_2, 8192, 28672, 80, 64, 8),
    "llama-3-8b": sizes(LLAMA_3, 4096, 14336, 32, 32, 8, max_position_embeddings=8192),
    "llama-3-70b": sizes(LLAMA_3, 8192, 28672, 80, 64, 8, max_position_embeddings=8192),
    "llama-3.2-1b": sizes(LLAMA_3, 2048, 8192, 16, 32, 8, max_position_embeddings=131072, tie_word_embeddings=True),
    "llama-3.2-3b": sizes(LLAMA_3, 3072, 8192, 28, 24, 8, max_position_embeddings=131072, tie_word_embeddings=True),
    "mistral-7b": {"model_type": "mistral", **MISTRAL, "sliding_window": 4096, "rope_theta": 10000.0},
    "mistral-7b-v0.3": {"model_type": "mistral", **MISTRAL, "vocab_size": 32768, "sliding_window": None,
                        "rope_theta": 1000000.0},
    "mixtral-8x7b": {"model_type": "mixtral", **MISTRAL, "num_local_experts": 8, "num_experts_per_tok": 2,
                     "rope_theta": 1000000.0, "sliding_window": None},
    "qwen2.5-0.5b": sizes(QWEN, 896, 4864, 24, 14, 2, vocab_size=151936, tie_word_embeddings=True),
    "qwen2.5-1.5b": sizes(QWEN, 1536, 8960, 28, 12, 2, vocab_size=151936, tie_word_embeddings=True),
    "qwen2.5-7b": sizes(QWEN, 3584, 18944, 28, 28, 4, vocab_size=152064),
    "granite-3-2b": sizes(GRANITE, 2048, 8192, 40, 32, 8, attention_multiplier=0.015625, logits_scaling=8.0),
    "granite-3-8b": sizes(GRANITE, 4096, 12800, 40, 32, 8, attention_multiplier=0.0078125, logits_scaling=16.0),
}  # fmt: skip

# Models of the hub that have these sizes. "-Instruct" and "-chat" are left out of the names. A plan needs no files of these models.
HUB_NAMES: dict[str, str] = {
    "TinyLlama/TinyLlama-1.1B-Chat-v1.0": "llama-1b",
    "meta-llama/Llama-2-7b-hf": "llama-2-7b",
    "meta-llama/Llama-2-13b-hf": "llama-2-13b",
    "meta-llama/Llama-2-70b-hf": "llama-2-70b",
    "meta-llama/Meta-Llama-3-8B": "llama-3-8b",
    "meta-llama/Meta-Llama-3-70B": "llama-3-70b",
    "meta-llama/Llama-3.1-8B": "llama-3-8b",
    "meta-llama/Llama-3.1-70B": "llama-3-70b",
    "meta-llama/Llama-3.2-1B": "llama-3.2-1b",
    "meta-llama/Llama-3.2-3B": "llama-3.2-3b",
    "meta-llama/Llama-3.3-70B": "llama-3-70b",
    "mistralai/Mistral-7B-v0.1": "mistral-7b",
    "mistralai/Mistral-7B-v0.3": "mistral-7b-v0.3",
    "mistralai/Mixtral-8x7B-v0.1": "mixtral-8x7b",
    "Qwen/Qwen2.5-0.5B": "qwen2.5-0.5b",
    "Qwen/Qwen2.5-1.5B": "qwen2.5-1.5b",
    "Qwen/Qwen2.5-7B": "qwen2.5-7b",
}
