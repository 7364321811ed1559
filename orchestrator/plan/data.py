"""The model and the training data of an experiment: their files on this machine, and the path of the prepared data.

This module reads local files and writes nothing. A relative path is searched next to the scenario file, then in the working folder.
The path that is found is made absolute, because each run has its own working folder.

The path of prepared data contains a digest of the content, template, tokenizer and length. The tokenizer of a local model counts by
its content, and another tokenizer by its model's name. Experiments and campaigns with the same digest share one copy in the cache
(`$TUNEBENCH_CACHE`, else the user's cache folder). `workers/prepare` writes the copy.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import runpy
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.errors import ConfigError, PreparationError, suggestion
from orchestrator.files import reading
from orchestrator.files.cache import cache_folder
from orchestrator.files.package import WORKERS
from orchestrator.files.printable_text import is_utf8, with_bytes
from orchestrator.files.reading import resolved
from orchestrator.records import DataSpec, Text, whole_number

if TYPE_CHECKING:  # `memory_fit` imports this module and must not load pydantic
    from orchestrator.plan.config import DataProcessing, Suite
    from orchestrator.trainers import Trainer

SYNTHETIC = "builtin:synthetic"
BUILT_IN = ("builtin:stdlib-docs", SYNTHETIC)
OWN_DATA = ("training_data_path", "dataset_name")
_OF_DATA = ("model_name_or_path", "response_template", "response_field", "max_seq_len")

_PATH_STARTS = (".", "/", "~")
_LOOKED_IN = "next to the scenario file or in the working folder"
# Names that are rather folders than organisations on the hub.
_OF_MODELS = frozenset(("model", "models", "checkpoint", "checkpoints", "weights", "output", "outputs", "data"))
DATA_FILES = (".json", ".jsonl", ".parquet")
CONFIGS_FILE, FINGERPRINT_FILE = WORKERS / "sft" / "configs.py", WORKERS / "prepare" / "fingerprint.py"

Prepared = tuple[DataSpec | None, str | None]


def prepared_data(suite: Suite, trainer: Trainer) -> Callable[[Mapping[str, Text]], Prepared]:
    """Return a function that takes an experiment's arguments and returns two values: a DataSpec, and the path of the prepared data.

    Both values are None if nothing is prepared: the trainer has its own data, or the arguments name prepared data. The function
    caches the files that it has read.
    """
    form, folder = trainer.data_form, cache_folder()

    @cache
    def look_up(source: str, *values: Text | None) -> Prepared:
        texts = [value if isinstance(value, str) else None for value in values]
        spec = _spec(suite, form or "text", source, *texts)
        return spec, data_path(spec, folder)

    def prepared(arguments: Mapping[str, Text]) -> Prepared:
        given = next((arguments[name] for name in OWN_DATA if name in arguments), None)
        if form is None or (given is not None and form != "tokens"):
            return None, None
        source = given if isinstance(given, str) else suite.data_processing.dataset_name
        return look_up(source, *map(arguments.get, _OF_DATA))

    return prepared


def _spec(
    suite: Suite,
    form: str,
    source: str,
    model: str | None,
    template: str | None,
    response_field: str | None,
    max_length: str | None,
) -> DataSpec:
    processing = suite.data_processing
    if source.startswith("builtin:") and source not in BUILT_IN:
        message = f"dataset_name: there is no data set {source!r}{suggestion(source, BUILT_IN)}"
        raise ConfigError([suite.document.problem(("data_processing", "dataset_name"), message)])
    local = None if source in BUILT_IN else find_local(source, suite.document.file.parent)
    synthetic = source == SYNTHETIC
    tokenizer = model if form == "tokens" or processing.tokenize or processing.chat_template else None
    return DataSpec(
        source=str(local) if local else source,
        form=form,
        split=processing.dataset_split,
        formatting=None if processing.chat_template else processing.formatting,
        chat_template=processing.chat_template,
        tokenize=processing.tokenize,
        input_field=processing.input_field,
        text_field=processing.dataset_text_field,
        response_field=response_field or processing.response_field,
        response_template=_response_template(processing, form, template),
        tokenizer=tokenizer,
        max_length=whole_number(max_length) if synthetic else None,
        samples=processing.samples if synthetic else None,
        seed=processing.seed if synthetic else 0,
        fingerprint=_fingerprint(local, suite) if local else None,
        tokenizer_fingerprint=_tokenizer_fingerprint(tokenizer) if tokenizer else None,
    )


def _response_template(processing: DataProcessing, form: str, argument: str | None) -> str | None:
    """Return the text that begins a response, or None. The preparation masks the loss of everything before the response.

    A trainer that gets text masks the loss itself.
    """
    if form == "tokens":
        return argument or processing.response_template
    return processing.response_template if processing.tokenize else None


def _fingerprint(path: Path, suite: Suite) -> str:
    """Return a digest over the content of a file or folder, as the preparation makes it again after reading."""
    try:
        return str(worker_functions(FINGERPRINT_FILE)["fingerprint"](str(path)))
    except OSError as error:
        message = f"dataset_name: {path} cannot be read: {reading.reason(error)}"
        raise ConfigError([suite.document.problem(("data_processing", "dataset_name"), message)]) from None


def _tokenizer_fingerprint(model: str) -> str | None:
    with suppress(OSError):  # the preparation of the data names a file that cannot be read
        found: str | None = worker_functions(FINGERPRINT_FILE)["tokenizer_fingerprint"](model)
        return found
    return None


@cache
def data_identity(spec: DataSpec) -> dict[str, Any]:
    """Return the fields that identify the data in an experiment's id.

    A local file is identified by its content, and other data by its name. A model is identified by its name or path.
    """
    left_out = {"tokenizer_fingerprint"} if spec.fingerprint is None else {"tokenizer_fingerprint", "source"}
    return {name: value for name, value in asdict(spec).items() if name not in left_out}


def data_path(spec: DataSpec, cache: Path) -> str:
    """Return the path of the prepared data: a folder of token ids, or a text file for trainers that tokenize themselves.

    Raises PreparationError if the path is not UTF-8, because a record could not contain such a path.
    """
    if not is_utf8(str(cache)):
        message = "the path of prepared data is not UTF-8; set TUNEBENCH_CACHE to another folder"
        raise PreparationError(f"{with_bytes(str(cache))}: {message}")
    identity = data_identity(spec)
    if spec.tokenizer_fingerprint is not None:  # the paths of other data must not change
        identity = {**identity, "tokenizer_fingerprint": spec.tokenizer_fingerprint}
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", spec.source.rstrip("/").rsplit("/", 1)[-1]).strip("-.")[:40] or "data"
    return str(cache / "data" / f"{name}-{digest}")


@cache
def worker_functions(file: Path) -> dict[str, Any]:
    """Return the functions and constants of a module of `workers/` that imports only the standard library."""
    return runpy.run_path(str(file))


def published_models() -> Mapping[str, Mapping[str, Any]]:
    """Return the configurations of the models named `config:NAME`, by their names."""
    configs: Mapping[str, Mapping[str, Any]] = worker_functions(CONFIGS_FILE)["CONFIGS"]
    return configs


def hub_model(name: str) -> Mapping[str, Any] | None:
    """Return the sizes in the configuration of a well-known hub model, or None for any other name."""
    known = worker_functions(CONFIGS_FILE)["HUB_NAMES"].get(name.replace("-Instruct", "").replace("-chat", ""))
    return None if known is None else published_models()[known]


def find_local(name: str, base: Path) -> Path | None:
    """Return the absolute path of a name. Search next to the scenario file, then in the working folder.

    Return None if there is no such file or folder.
    """
    for candidate in (base / os.path.expanduser(name), Path(name)):
        if os.path.exists(candidate):  # Path.exists would raise an error if a name is too long
            return resolved(candidate)
    return None


def local_model(name: str, base: Path) -> str:
    """Return the folder of a model on this machine. If there is no such folder, return the name unchanged."""
    folder = None if name.startswith("config:") else find_local(name, base)
    marks = ("config.json", "model_config.yaml")  # of transformers and of LitGPT
    return str(folder) if folder is not None and any((folder / mark).is_file() for mark in marks) else name


def with_local_data(arguments: dict[str, Text], base: Path) -> None:
    """Make the path of a local data set absolute, because each run has its own working folder."""
    for name in (*OWN_DATA, "dataset_dir"):
        given = arguments.get(name)
        local = find_local(given, base) if isinstance(given, str) else None
        if local is not None:
            arguments[name] = str(local)


def missing_model(name: str) -> str | None:
    """Return a sentence if a name is clearly a path but there is no model at this path. A name on the hub has one slash at most."""
    is_path = name.startswith(_PATH_STARTS) or (name.count("/") > 1 and "://" not in name)
    if not is_path or os.path.isfile(os.path.join(name, "config.json")):
        return None
    where = "" if os.path.isabs(name) or name.startswith("~") else f" {_LOOKED_IN}"
    return f"there is no model in {name!r}{where}; name a folder that contains a config.json"


def note_on_model(name: str, base: Path) -> str | None:
    """Return a sentence if a name that is taken for one on the hub may be meant as a folder of this machine."""
    if name.startswith(("config:", *_PATH_STARTS)) or name.count("/") > 1:
        return None
    taken = "so it is taken for a name on the Hugging Face hub"
    folder = find_local(name, base)
    if folder is not None and folder.is_dir():
        return f"model {name!r}: the folder {folder} contains no config.json, {taken}"
    parent, slash, _ = name.partition("/")
    if folder is None and slash and (parent in _OF_MODELS or find_local(parent, base) is not None):
        return f"model {name!r}: there is no such folder {_LOOKED_IN}, {taken}"
    return None


def missing_data(source: str) -> str | None:
    """Return a sentence if a source of data is clearly a path but the path does not exist."""
    is_path = source.startswith(_PATH_STARTS) or source.endswith(DATA_FILES)
    if not is_path or os.path.exists(source):
        return None
    return f"there is no file or folder {source!r}; put the data next to the scenario file or into the working folder"
