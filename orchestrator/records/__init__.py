"""The frozen values that the steps of a campaign pass to each other, and their form in JSON files (`dump`, `load`).

Suite → Experiment → Job → Command → ProcessOutcome → RunRecord → ResultsTable. The values in `experiment` say what to run. The
values in `run` say how it ran. `Suite` is in `plan/config`, since it is the content of YAML files. `ResultsTable` is in
`results/table`, since it contains data frames.
"""

from orchestrator.records.as_json import dump, load
from orchestrator.records.caveat import Caveat, CaveatKind, unsteady
from orchestrator.records.environment import Container, Environment, EnvironmentRequest
from orchestrator.records.experiment import (
    AT_LEAST_STEPS,
    CustomCommand,
    DataSpec,
    Device,
    Experiment,
    Framework,
    Measure,
    MetricSource,
    Reason,
    Repeats,
    Script,
    StepSource,
    Target,
    Text,
    as_items,
    whole_number,
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
    Start,
    Status,
)
from orchestrator.records.run_folder import RunFolder
