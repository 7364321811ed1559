"""The frozen values that travel between the steps of the journey.

Suite → Experiment → Job → Command → ProcessOutcome → RunRecord → ResultsTable. (`Suite` lives in `config`, being what
the YAML files say; `ResultsTable` in `table`, being a data frame.) Nothing here does anything: the steps are functions
elsewhere. `experiment` holds what is to be run, `run` how it is run and what comes of it; values that cross a file do so as JSON,
by `dump` and `load`.
"""

from orchestrator.records.as_json import (
    dump,
    load,
)
from orchestrator.records.caveat import Caveat, CaveatKind
from orchestrator.records.experiment import (
    CustomCommand,
    DataSpec,
    Device,
    Experiment,
    Framework,
    Measure,
    MetricSource,
    Reason,
    Repeats,
    Text,
    as_items,
)
from orchestrator.records.run import (
    SCHEMA_VERSION,
    Command,
    Gpu,
    Job,
    JobState,
    Limit,
    Measurement,
    ProcessOutcome,
    RunRecord,
    Status,
)
from orchestrator.records.run_folder import RunFolder

__all__ = [
    "SCHEMA_VERSION",
    "Caveat",
    "CaveatKind",
    "Command",
    "CustomCommand",
    "DataSpec",
    "Device",
    "Experiment",
    "Framework",
    "Gpu",
    "Job",
    "JobState",
    "Limit",
    "Measure",
    "Measurement",
    "MetricSource",
    "ProcessOutcome",
    "Reason",
    "Repeats",
    "RunFolder",
    "RunRecord",
    "Status",
    "Text",
    "as_items",
    "dump",
    "load",
]
