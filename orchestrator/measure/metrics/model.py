"""Columns of the model and the run: counts of parameters, processes and samples, and the time of the whole run."""

from __future__ import annotations

from orchestrator.measure.metrics.metric import Direction, Metric, Show, Where

MODEL = (
    Metric(
        "trainable_parameters",
        "trainable",
        "Parameters that receive gradients.",
        unit="parameters",
        show=Show.MAGNITUDE,
        source="the built model",
        leaves_out="Under sharding the whole model is counted, not a rank's share.",
    ),
    Metric(
        "total_parameters",
        "parameters",
        "All parameters of the model, adapters included.",
        unit="parameters",
        show=Show.MAGNITUDE,
        source="the built model",
        leaves_out="Quantised weights count by their real number, not by their storage.",
    ),
    Metric(
        "global_batch",
        "global batch",
        "Samples of one optimizer step: per-device batch × accumulation × data-parallel ranks (`effective_data_parallel_ranks`).",
        unit="samples/step",
        show=Show.COUNT,
        source="the arguments; effective_global_batch is the value in effect",
    ),
    Metric(
        "world_size",
        "world size",
        "Training processes that took part.",
        unit="processes",
        show=Show.COUNT,
        source="the process group",
    ),
    Metric(
        "neighbours",
        "neighbours",
        "Number of other runs of this campaign that were in progress on the same machine at the same time (`--parallel`).",
        unit="runs",
        show=Show.COUNT,
        source="the executor",
        leaves_out="Other programs on the machine.",
    ),
    Metric(
        "core_wait_share",
        "waited for a core",
        (
            "Time for which the threads of a training process were ready to run but had no core, as a share of the time after "
            "the first step. The process with the highest share counts. Above 10 %, the host is too busy, and no finding uses "
            "the speed."
        ),
        unit="share",
        direction=Direction.LOWER,
        show=Show.SHARE,
        source="the kernel's schedstat, added up over the threads of a process",
        leaves_out=(
            "With a Trainer: data loader processes, and threads that ended before the training did. Other programs are observed "
            "from outside, so their first and last moments are missing; a custom command without `steps:` is observed from its "
            "start. Programs that are observed for less than a second, and systems other than Linux, have no value."
        ),
        where=Where.FILES,
    ),
    Metric(
        "load_per_core",
        "load/core",
        "Load average over the last minute of the run, per core of the machine.",
        unit="runnable threads per core",
        show=Show.NUMBER,
        source="the operating system",
        leaves_out="Which program causes the load: the run's own threads count, too.",
        where=Where.FILES,
    ),
    Metric(
        "steal_share",
        "steal",
        "Core time that a hypervisor gave to other guests during the run, as a share of all core time.",
        unit="share",
        direction=Direction.LOWER,
        show=Show.SHARE,
        source="the operating system",
        leaves_out="Missing if the operating system has no such counter.",
        where=Where.FILES,
    ),
    Metric(
        "wall_s",
        "wall time",
        "Wall time of the whole run, from the start of the launcher to its end.",
        unit="s",
        direction=Direction.LOWER,
        show=Show.SECONDS,
        source="the orchestrator's clock",
        leaves_out="Preparing data. Interpreter start, imports and model loading are included.",
        where=Where.FILES,
    ),
)
