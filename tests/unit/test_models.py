"""The registry of `config:` models: the published sizes, built without weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from arguments import ArgumentError, Own
from factories.cases import cases
from models import CONFIGS, count_parameters, load_config

# Billions of parameters, from the models' own cards.
PUBLISHED = {
    "llama-1b": 1.10, "llama-2-7b": 6.74, "llama-2-13b": 13.02, "llama-2-70b": 68.98, "llama-3-8b": 8.03,
    "llama-3-70b": 70.55, "llama-3.2-1b": 1.24, "llama-3.2-3b": 3.21, "mistral-7b": 7.24,
    "mistral-7b-v0.3": 7.25, "mixtral-8x7b": 46.70,
    "qwen2.5-0.5b": 0.49, "qwen2.5-1.5b": 1.54, "qwen2.5-7b": 7.62, "granite-3-2b": 2.53, "granite-3-8b": 8.17,
}  # fmt: skip


def own(name: str, **more: Any) -> Own:
    return Own(model_name_or_path=name, training_data_path="data", **more)


@pytest.mark.parametrize("name", CONFIGS)
def test_every_model_has_the_size_that_its_name_says(name: str) -> None:
    billions = count_parameters(load_config(own(f"config:{name}"), {})) / 1e9
    if name in PUBLISHED:
        assert round(billions, 2) == PUBLISHED[name]
    else:
        assert name.startswith("tiny-")
        assert billions < 0.001


def test_any_field_of_the_configuration_can_be_overridden() -> None:
    words = {"num_hidden_layers": ["1"], "rope_theta": ["5000"], "tie_word_embeddings": ["True"]}
    config = load_config(own("config:tiny-llama"), words)
    assert (config.num_hidden_layers, config.tie_word_embeddings) == (1, True)
    assert (getattr(config, "rope_parameters", None) or vars(config))["rope_theta"] == 5000.0


def test_a_field_that_is_marked_as_the_configurations_is_handed_on_unchecked(tmp_path: Path) -> None:
    words = {"model_config.of_my_own": ["3"], "model_config.num_hidden_layers": ["1"]}
    config = load_config(own("config:tiny-llama"), words)
    assert (config.of_my_own, config.num_hidden_layers) == (3, 1)
    config.save_pretrained(tmp_path)
    again = load_config(own(str(tmp_path)), {"model_config.another": ["yes"]})
    assert (again.of_my_own, again.another, again.num_hidden_layers) == (3, "yes", 1)


@pytest.mark.parametrize(("model", "words", "sentence"), cases("models/a_wrong_model_or_field_is_one_sentence"))
def test_a_wrong_model_or_field_is_one_sentence(model: str, words: dict[str, list[str]], sentence: str) -> None:
    with pytest.raises(ArgumentError) as error:
        load_config(own(model), words)
    assert sentence in str(error.value)
