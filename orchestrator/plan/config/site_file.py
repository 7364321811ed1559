"""The site file: what Tunebench must know about a Slurm cluster, apart from the scenarios.

`load_site` finds and reads the file. Its values are written into batch scripts, so a value that could add a line or an option to a
script is refused. Nothing in the file enters an experiment's id. This module has no `from __future__ import annotations`, as
`scenario_keys`. It loads the executors only if there is a site to read.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from orchestrator.errors import ConfigError, OrchestratorError, Problem
from orchestrator.plan.config.check import check
from orchestrator.plan.config.keys.model import Model
from orchestrator.plan.config.keys.value_types import Whole
from orchestrator.plan.config.suite import Suite
from orchestrator.plan.config.yaml_file import Document, read_document
from orchestrator.records.price import Price, parse_price

if TYPE_CHECKING:
    from orchestrator.executors.slurm.site import Site

VARIABLE, NAME = "TUNEBENCH_SITE", "site.yaml"
# The executor that needs a site.
_SLURM = "slurm"

# Keys whose values stay as written. YAML 1.1 would make numbers of the time `2:00:00`, the partition `3090` and the account `007`,
# and of the price `2.50`.
TEXTS = frozenset(
    {"executor", "partition", "account", "qos", "constraint", "time", "prologue", "node", "gpu_type", "mem_per_gpu"}
    | {"scratch", "max_pending", "poll", "grace", "price"}
)

_LETTERS = r"[\w.@+:/-]"
_NAME = re.compile(rf"(?!-){_LETTERS}+", re.ASCII)
_NAMES = re.compile(rf"(?!-){_LETTERS}+(,(?!-){_LETTERS}+)*", re.ASCII)
_CONSTRAINT = re.compile(r"(?!-)[\w.@+:/,&|()\[\]*-]+", re.ASCII)
_MEMORY = re.compile(r"[1-9]\d{0,8}[KMGT]", re.ASCII)
_PLACE = re.compile(r"(/|\$\w+|\$\{\w+\})([\w./@+:,=-]|\$\w+|\$\{\w+\})*", re.ASCII)
_DIRECTIVE = re.compile(r"\s*#(SBATCH|PBS|BSUB)\b")


def _one_name(value: str) -> str:
    return _matching(_NAME, value, "one name of letters, digits and . _ - @ + : /")


def _type_name(value: str) -> str:
    return _matching(
        re.compile(r"(?!-)[\w.-]+", re.ASCII), value, "the type in `gpu:TYPE:NUMBER` of sinfo, such as a100"
    )


def _several_names(value: str) -> str:
    return _matching(_NAMES, value, "a name, or several names with commas between them, such as gpu,long")


def _constraint(value: str) -> str:
    return _matching(_CONSTRAINT, value, "an expression of sbatch without blanks, such as a100|h100")


def _memory(value: str) -> str:
    return _matching(_MEMORY, value, "a whole number with the unit K, M, G or T, such as 64G")


def _place(value: str) -> str:
    return _matching(
        _PLACE, value, "an absolute path without blanks and quotes; it may contain $NAME, such as /scratch/$USER"
    )


def _matching(pattern: re.Pattern[str], value: str, allowed: str) -> str:
    if not pattern.fullmatch(value):
        raise ValueError(f"{value!r} is invalid; write {allowed}")
    return value


def _time(value: Any) -> Any:
    """Return a time as seconds. A file's time is a text; see `TEXTS`."""
    if not isinstance(value, str):
        return value
    from orchestrator.executors.slurm.cluster.notation import parse_time

    seconds = parse_time(value)
    if not seconds:
        raise ValueError(f"{value!r} is invalid; write a time above 0, or remove the key for the cluster's default")
    return seconds


def _option(value: str) -> str:
    from orchestrator.executors.slurm.cluster.notation import refuse_option

    refuse_option(value)
    return value


def _shell_lines(value: str) -> str:
    for line in value.split("\n"):
        if _DIRECTIVE.match(line):
            raise ValueError(f"{line.strip()!r} is an option of sbatch, not a shell line; write it under 'lines:'")
        if not line.replace("\t", " ").isprintable():
            raise ValueError(f"{line!r} contains a control character; remove it")
    return value


def _node(value: str) -> str:
    from orchestrator.plan.forecast.assumed_machine import assumed_machine

    try:
        assumed_machine(value, option="")
    except OrchestratorError as error:
        raise ValueError(str(error).strip()) from None
    return value


Text = Annotated[str, Field(min_length=1)]
Time = Annotated[float, BeforeValidator(_time)]


class SiteFile(Model):
    """A site file: a Slurm cluster, and how much of it Tunebench may use."""

    executor: Text | None = Field(None, description="Executor, unless the command line or the scenario file names one.")
    partition: Annotated[Text, AfterValidator(_several_names)] | None = Field(
        None, description="Partition, or several with commas between them. Default: the cluster's default partition."
    )
    account: Annotated[Text, AfterValidator(_one_name)] | None = Field(None, description="Account that is charged.")
    qos: Annotated[Text, AfterValidator(_one_name)] | None = Field(None, description="Quality of service.")
    constraint: Annotated[Text, AfterValidator(_constraint)] | None = Field(
        None, description="Features that a node must have, such as `a100|h100`."
    )
    time: Time | None = Field(
        None, description="Time limit of one allocation: `2:00:00`, `1-12:00:00`, `30m`, or minutes."
    )
    lines: tuple[Annotated[str, AfterValidator(_option)], ...] = Field(
        (), description="More options of sbatch, each as one text, such as `--exclusive`."
    )
    prologue: Annotated[str, AfterValidator(_shell_lines)] = Field(
        "", description="Shell lines that each job runs first, such as `module load cuda`."
    )
    node: Annotated[Text, AfterValidator(_node)] | None = Field(
        None, description="GPUs of one node, such as `4xH100` or `4x80GiB`. A plan is made for such a node."
    )
    gpu_type: Annotated[Text, AfterValidator(_type_name)] | None = Field(
        None, description="Type of the GPUs to ask for, as in `gpu:TYPE:NUMBER` of sinfo."
    )
    cpus_per_gpu: Whole | None = Field(None, description="CPU cores for each GPU.")
    mem_per_gpu: Annotated[Text, AfterValidator(_memory)] | None = Field(
        None, description="Memory of the node for each GPU, such as `64G`."
    )
    scratch: Annotated[Text, AfterValidator(_place)] | None = Field(
        None, description="Folder on the node for temporary files, such as `/scratch/$USER`."
    )
    throttle: Whole | None = Field(None, description="Largest number of allocations of one array that run at once.")
    max_queued: Whole = Field(1000, description="Largest number of allocations in the queue at once.")
    pilot: Whole | None = Field(
        None, description="Number of runs in one allocation. Default: chosen from the durations of earlier runs."
    )
    max_pending: Time | None = Field(
        None, description="Longest wait of a job whose reason for waiting does not go away by itself."
    )
    poll: Time = Field(30.0, description="Time between two calls of squeue, such as `60s`.")
    grace: Time = Field(
        60.0, description="Time after which a run counts as lost whose job left the queue; a file server may be late."
    )
    price: Annotated[Price, BeforeValidator(parse_price)] | None = Field(
        None, description="Price of the machines' time, such as `2.50USD/GPUh` or `20USD/nodeh@2026-11-01`."
    )

    def site(self, document: Document) -> "Site":
        from orchestrator.executors.slurm.site import Site

        renamed = {"time": "time_s", "max_pending": "max_pending_s", "poll": "poll_s", "grace": "grace_s"}
        values = {renamed.get(name, name): value for name, value in self if name != "executor"}
        written = {key: document.place((key,)) for key in self.model_fields_set if getattr(self, key) is not None}
        places = {key: f"{document.file}:{line}:{column}" for key, (line, column) in written.items()}
        return Site(file=str(document.file), places=places, **values)


@dataclass(frozen=True, kw_only=True)
class LoadedSite:
    """A site file that was read. `executor` is the value of its key."""

    site: "Site"
    executor: str | None
    document: Document


def load_site(
    scenarios: Path | None, environ: Mapping[str, str] = os.environ, *, is_asked: bool = True
) -> LoadedSite | None:
    """Return the site for a scenario file, or None if there is no site file. Raise ConfigError for mistakes in the file.

    Without a scenario file, `site.yaml` is looked for in the current folder. Unless a site `is_asked` for, a file that has none of
    its keys is ignored, because another program may have a `site.yaml`, too.
    """
    file = _find(scenarios, environ)
    if file is None:
        return None
    document = read_document(file, texts=TEXTS)
    if not is_asked and not (isinstance(document.value, dict) and SiteFile.model_fields.keys() & document.value.keys()):
        return None
    problems: list[Problem] = []
    parsed = check(SiteFile, document, problems)
    if parsed is None:
        raise ConfigError(sorted(problems, key=lambda problem: (problem.line, problem.column)))
    return LoadedSite(site=parsed.site(document), executor=parsed.executor, document=document)


def executor_of(suite: Suite, option: str | None, scenarios: Path | None) -> tuple[str, LoadedSite | None]:
    """Return the name of the executor that starts the runs, and the site file if it is needed. Raise ConfigError for its mistakes.

    The option `--executor` comes first, then the scenario file, then the site file. `scenarios` is the scenario file that the user
    named.
    """
    named = option or (suite.executor if "executor" in suite.document.value else None)
    found = load_site(scenarios, is_asked=named is not None) if named in (None, _SLURM) else None
    return named or (found and found.executor) or suite.executor, found


def site_price(scenarios: Path | None, environ: Mapping[str, str] = os.environ) -> Price | None:
    """Return the price in the site file, which counts for every executor, or None. Raise ConfigError for an invalid price.

    Other mistakes in the file matter only to the executor that needs a site: another program may have a `site.yaml`, too.
    """
    file = _find(scenarios, environ)
    try:
        document = file and read_document(file, texts=TEXTS)
    except ConfigError:
        return None
    if not document or not isinstance(document.value, dict) or document.value.get("price") is None:
        return None
    try:
        return parse_price(document.value["price"])
    except ValueError as error:
        raise ConfigError([document.problem(("price",), f"price: {error}")]) from None


def places(scenarios: Path | None, environ: Mapping[str, str] = os.environ) -> tuple[Path, Path]:
    """Return the places of a site file that no variable names: next to the scenario file, and in the user's configuration."""
    config = environ.get("XDG_CONFIG_HOME", "")
    home = config if os.path.isabs(config) else os.path.join(os.path.expanduser("~"), ".config")
    return (scenarios or Path(NAME)).with_name(NAME), Path(home, "tunebench", NAME)


def _find(scenarios: Path | None, environ: Mapping[str, str]) -> Path | None:
    if named := environ.get(VARIABLE):
        file = Path(os.path.expanduser(named))
        if not file.exists():
            message = f"{VARIABLE} names this file, which does not exist; correct the variable, or unset it"
            raise ConfigError([Problem(file=file, message=message)])
        return file
    return next(filter(os.path.isfile, places(scenarios, environ)), None)
