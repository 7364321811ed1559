"""The file of what the Trainer's arguments take, against the installed transformers of whatever version.

`--accept` writes the file anew, from the installed transformers and the built-in trainer.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing

import pytest
from arguments import CHOICES, SHORT_NAMES, Own
from configs import CONFIGS
from models import fields_of

from orchestrator.trainers import argument_values
from orchestrator.trainers.argument_values import ANY, NUMBER, TRUTH, WHOLE

KINDS = {int: WHOLE, float: NUMBER, bool: TRUTH}
# The families of models whose fields a plan knows: those of the `config:` models, and others that people train.
FAMILIES = (
    *(
        "bamba",
        "bloom",
        "cohere",
        "deepseek_v3",
        "falcon",
        "gemma",
        "gemma2",
        "gemma3_text",
        "glm4",
        "gpt2",
        "gpt_bigcode",
    ),
    *(
        "gpt_neox",
        "gpt_oss",
        "granite",
        "granitemoe",
        "granitemoehybrid",
        "llama",
        "mamba2",
        "mistral",
        "mixtral",
        "mpt",
    ),
    *(
        "olmo",
        "olmo2",
        "olmoe",
        "opt",
        "phi",
        "phi3",
        "qwen2",
        "qwen2_moe",
        "qwen3",
        "qwen3_moe",
        "smollm3",
        "stablelm",
    ),
    "starcoder2",
)
# Parts of the file that nothing installed here can tell: they are kept.
KEPT = ("earlier transformers", "fms_hf_tuning", "thunder", "pytest_benchmark")


def kind(annotation: typing.Any) -> str:
    """Return what a field takes, in the words of the file."""
    is_union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
    members = {*(typing.get_args(annotation) if is_union else (annotation,))} - {type(None)}
    return KINDS.get(members.pop(), ANY) if len(members) == 1 else ANY


def kinds(dataclass: typing.Any) -> dict[str, str]:
    hints = typing.get_type_hints(dataclass)
    return {field.name: kind(hints[field.name]) for field in dataclasses.fields(dataclass) if field.init}


def configuration_fields() -> set[str]:
    """Return the fields of the families' configurations, of those that the installed transformers has."""
    from transformers import CONFIG_MAPPING, AutoConfig

    found: set[str] = set()
    for family in (family for family in FAMILIES if family in CONFIG_MAPPING):
        config = AutoConfig.for_model(family)
        found |= {*fields_of(config), *config.attribute_map}
    return {name for name in found if not name.startswith("_")} - {"model_type", "transformers_version"}


def arguments_of_trl(config: str) -> set[str]:
    """Return the arguments of trl's script with this configuration that the Trainer does not have."""
    import transformers

    trl = pytest.importorskip("trl")
    classes = (getattr(trl, config), trl.ModelConfig, trl.ScriptArguments)
    names = {field.name for one in classes for field in dataclasses.fields(one)}
    return names - {*kinds(transformers.TrainingArguments)}


def test_the_file_is_made_from_transformers_and_the_built_in_trainer(
    golden: typing.Callable[[str, str], None], request: pytest.FixtureRequest
) -> None:
    transformers = pytest.importorskip("transformers")
    held = json.loads(argument_values.TYPES_FILE.read_text())
    made = {
        "transformers": transformers.__version__,
        "Trainer": kinds(transformers.TrainingArguments),
        "built-in trainer": {**kinds(Own), **{name: list(words) for name, words in CHOICES.items()}},
        "short names": SHORT_NAMES,
        "model configurations": " ".join(sorted(configuration_fields())),
        "trl": " ".join(sorted(arguments_of_trl("SFTConfig"))),
        "trl_dpo": " ".join(sorted(arguments_of_trl("DPOConfig") | {"datasets"})),
        **{part: held[part] for part in KEPT},
    }
    if request.config.getoption("--accept") or held["transformers"] == transformers.__version__:
        golden(str(argument_values.TYPES_FILE), json.dumps(made, indent=1) + "\n")
    assert held["built-in trainer"] == made["built-in trainer"]


def test_the_file_holds_for_the_installed_transformers() -> None:
    """A whole number may be a number in another version. Names that this version does not have are another version's."""
    transformers = pytest.importorskip("transformers")
    known, there = argument_values.types("Trainer"), kinds(transformers.TrainingArguments)
    both = {*known} & {*there}
    assert len(both) > 0.8 * len(known)
    for name in both:
        assert known[name] in (ANY, there[name]) or (known[name], there[name]) == (NUMBER, WHOLE), name
    for trainer in argument_values.ON_TRAINING_ARGUMENTS:
        assert [name for name in there if argument_values.doubt(name, trainer)] == [], "no name of its own is doubtful"


def test_the_fields_of_published_models_are_known() -> None:
    """Other versions of transformers have other fields: of those only the ones of the shipped models must be known."""
    transformers = pytest.importorskip("transformers")
    fields = {name for config in CONFIGS.values() for name in config} - {"model_type"}
    if json.loads(argument_values.TYPES_FILE.read_text())["transformers"] == transformers.__version__:
        fields |= {*configuration_fields()}
    assert [name for name in fields if argument_values.doubt(name, "huggingface")] == []
