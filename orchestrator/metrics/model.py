"""What was trained: counts of parameters, processes and samples, and the run as a whole."""

from __future__ import annotations

from orchestrator.metrics.metric import Direction, Metric, Show

MODEL = (
    Metric(
        name="trainable_parameters",
        label="trainable",
        unit="parameters",
        show=Show.MAGNITUDE,
        description="Parameters that receive gradients.",
        source="the built model",
        leaves_out="Under sharding the whole model is counted, not a rank's share.",
    ),
    Metric(
        name="total_parameters",
        label="parameters",
        unit="parameters",
        show=Show.MAGNITUDE,
        description="All parameters of the model, adapters included.",
        source="the built model",
        leaves_out="Quantised weights are counted by their real number, not by their storage.",
    ),
    Metric(
        name="global_batch",
        label="global batch",
        unit="samples a step",
        show=Show.COUNT,
        description="Samples of one optimizer step over all processes: per-device batch × accumulation × processes.",
        source="the arguments; what took effect is effective_global_batch",
    ),
    Metric(
        name="world_size",
        label="world size",
        unit="processes",
        show=Show.COUNT,
        description="Training processes that took part.",
        source="the process group",
    ),
    Metric(
        name="neighbours",
        label="neighbours",
        unit="runs",
        show=Show.COUNT,
        description="Runs of this campaign that went on beside it on its machine (`--parallel`); none where it ran alone.",
        source="the executor",
        leaves_out="What else ran there.",
    ),
    Metric(
        name="wall_s",
        label="wall time",
        unit="s",
        direction=Direction.LOWER,
        show=Show.SECONDS,
        description="Wall time of the whole run, from starting the launcher to its end.",
        source="the orchestrator's clock",
        leaves_out="Preparing data. Interpreter start, imports and model loading are in.",
    ),
)
