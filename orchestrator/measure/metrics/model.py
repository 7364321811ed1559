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
        "Samples of one optimizer step over all processes: per-device batch × accumulation × processes.",
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
        "Runs of this campaign that went on at the same time on its machine (`--parallel`).",
        unit="runs",
        show=Show.COUNT,
        source="the executor",
        leaves_out="Other programs on the machine.",
    ),
    Metric(
        "wall_s",
        "wall time",
        "Wall time of the whole run, from starting the launcher to its end.",
        unit="s",
        direction=Direction.LOWER,
        show=Show.SECONDS,
        source="the orchestrator's clock",
        leaves_out="Preparing data. Interpreter start, imports and model loading are included.",
        where=Where.FILES,
    ),
)
