"""The model and the training data of an experiment: what is on this machine, and where the prepared copy of the data belongs.

Looks at local files, and writes nothing. Paths are looked for next to the scenario file, then in the working folder. A run works in
its own folder, where a relative path would lead nowhere, so what is found becomes an absolute path.

The path of prepared data is made of the content: the same data, template, tokenizer and length are prepared once and shared by all
experiments and campaigns (`$TUNEBENCH_CACHE`, else the user's cache folder). Making it is `workers/prepare/prepare.py`'s.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import runpy
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orchestrator
from orchestrator.errors import ConfigError, PreparationError, suggestion
from orchestrator.files.printable_text import is_utf8, with_bytes
from orchestrator.records import DataSpec, Text

if TYPE_CHECKING:  # an estimate of memory looks up models here, and loads no pydantic
    from orchestrator.plan.config import DataProcessing, Suite
    from orchestrator.trainers import Trainer

SYNTHETIC = "builtin:synthetic"
BUILT_IN = ("builtin:stdlib-docs", SYNTHETIC)
OWN_DATA = ("training_data_path", "dataset_name")
_OF_DATA = ("model_name_or_path", "response_template", "response_field", "max_seq_len")
WHOLE_FILE_BYTES = 64 * 1024 * 1024
MAX_FILES = 10_000

_PATHS = (".", "/", "~")
DATA_FILES = (".json", ".jsonl", ".parquet")
CONFIGS_FILE = Path(orchestrator.__file__).parent / "workers" / "sft" / "configs.py"

Prepared = tuple[DataSpec | None, str | None]


def prepared_data(suite: Suite, trainer: Trainer) -> Callable[[Mapping[str, Text]], Prepared]:
    """A function: arguments → what is to be prepared for them and where it will lie; (None, None) where the trainer or the
    user brings data of their own. It remembers what it has looked at, for as long as it lives: a later plan looks again.
    """
    form, folder = trainer.data_form, cache_folder()

    @cache
    def look_up(source: str, *words: str | None) -> Prepared:
        spec = _spec(suite, form or "text", source, *words)
        return spec, data_path(spec, folder)

    def prepared(arguments: Mapping[str, Text]) -> Prepared:
        given = next((arguments[name] for name in OWN_DATA if name in arguments), None)
        if form is None or (given is not None and form != "tokens"):
            return None, None
        source = given if isinstance(given, str) else suite.data_processing.dataset_name
        return look_up(source, *(_word(arguments, name) for name in _OF_DATA))

    return prepared


def _word(arguments: Mapping[str, Text], name: str) -> str | None:
    value = arguments.get(name)
    return value if isinstance(value, str) else None


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
    tokens = form == "tokens" or processing.tokenize
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
        tokenizer=model if tokens or processing.chat_template else None,
        max_length=int(max_length) if synthetic and max_length and max_length.isdecimal() else None,
        samples=processing.samples if synthetic else None,
        seed=processing.seed if synthetic else 0,
        fingerprint=_fingerprint(local, suite) if local else None,
    )


def _response_template(processing: DataProcessing, form: str, argument: str | None) -> str | None:
    """Loss is masked while preparing where tokens are prepared; a text trainer masks by its own argument."""
    if form == "tokens":
        return argument or processing.response_template
    return processing.response_template if processing.tokenize else None


def _fingerprint(path: Path, suite: Suite) -> str:
    """Over the content; of files too large to read for a plan, over size, beginning and end."""
    digest = hashlib.sha256()
    try:
        for file in _files(path):
            size = file.stat().st_size
            digest.update(f"{file.relative_to(path) if file != path else ''}:{size}:".encode(errors="surrogateescape"))
            with file.open("rb") as stream:
                digest.update(stream.read(WHOLE_FILE_BYTES))
                if size > WHOLE_FILE_BYTES:
                    stream.seek(-1024 * 1024, os.SEEK_END)
                    digest.update(stream.read())
    except OSError as error:
        message = f"dataset_name: {path} cannot be read: {error.strerror or error}"
        raise ConfigError([suite.document.problem(("data_processing", "dataset_name"), message)]) from None
    return digest.hexdigest()[:16]


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = list(islice((file for file in path.rglob("*") if file.is_file()), MAX_FILES + 1))
    if len(found) > MAX_FILES:
        raise OSError(f"the folder holds more than {MAX_FILES:,} files; name the one that the data lies in")
    return sorted(found)


def cache_folder() -> Path:
    """Where prepared data lies: `$TUNEBENCH_CACHE`, else `tunebench` in the user's cache folder."""
    own = os.environ.get("TUNEBENCH_CACHE")
    if own:
        return Path(own).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "tunebench"


def data_path(spec: DataSpec, cache: Path) -> str:
    """The prepared data of `spec`: a folder of token ids, or the one text file that other trainers are handed.

    Raises PreparationError for a folder whose name no experiment's file can hold.
    """
    if not is_utf8(str(cache)):
        said = "the path of prepared data holds bytes that are no UTF-8; set TUNEBENCH_CACHE to another folder"
        raise PreparationError(f"{with_bytes(str(cache))}: {said}")
    fields = {name: value for name, value in asdict(spec).items() if name != "source" or spec.fingerprint is None}
    digest = hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:16]
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", spec.source.rstrip("/").rsplit("/", 1)[-1]).strip("-.")[:40] or "data"
    return str(cache / "data" / f"{name}-{digest}")


@cache
def published_models() -> Mapping[str, Mapping[str, Any]]:
    """Return the configurations of the models named `config:NAME`, by their names."""
    configs: Mapping[str, Mapping[str, Any]] = runpy.run_path(str(CONFIGS_FILE))["CONFIGS"]
    return configs


def find_local(name: str, base: Path) -> Path | None:
    """Return what a name leads to, next to the scenario file or in the working folder; None where nothing is there."""
    for candidate in (base / os.path.expanduser(name), Path(name)):
        if os.path.exists(candidate):  # unlike Path.exists, no exception for a name that no disk can hold
            return candidate.resolve()
    return None


def local_model(name: str, base: Path) -> str:
    """Return the folder of a model on this machine, else the name as it is: a hub's, a `config:`, or a path that leads nowhere."""
    found = None if name.startswith("config:") else find_local(name, base)
    return str(found) if found is not None and (found / "config.json").is_file() else name


def missing_model(name: str) -> str | None:
    """Return a sentence where a name can only be a path and no model is there."""
    if not name.startswith(_PATHS) or os.path.isfile(os.path.join(name, "config.json")):
        return None
    return f"there is no model in {name!r}; a local model is a folder with a config.json"


def missing_data(source: str) -> str | None:
    """Return a sentence where a source can only be a file or folder and is not there."""
    is_path = source.startswith(_PATHS) or source.endswith(DATA_FILES)
    if not is_path or os.path.exists(source):
        return None
    return f"there is no file or folder {source!r}; data is looked for beside the scenario file, then where you stand"
