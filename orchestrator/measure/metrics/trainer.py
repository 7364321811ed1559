"""Columns that the Trainer or another training program reports at the end of a run, and columns of the Trainer's memory tracker."""

from __future__ import annotations

from functools import partial

from orchestrator.measure.metrics.metric import Direction, Judged, Metric, Show, Where

_final = partial(Metric, source="final metrics of the Trainer")
_speed = partial(_final, direction=Direction.HIGHER)
_target = partial(
    Metric,
    source="logged losses of rank 0, in scenarios with target:",
    by_ratio=True,
    leaves_out="Loading the model. A run that did not reach the target has no value; then the experiment has no mean.",
)
_reported = partial(
    Metric,
    source="results file of the training program (trainer thunder)",
    leaves_out="Iterations before the program's own warm-up ended, and the steady state that Tunebench finds.",
    where=Where.FILES,
)
_memory = partial(
    Metric,
    source="memory tracker of the Trainer (skip_memory_metrics: False)",
    unit="bytes",
    direction=Direction.LOWER,
    show=Show.BYTES,
    judged=Judged.TOLERANCE,
    min_effect=0.05,
)
_stage = partial(
    Metric,
    source="memory tracker of the Trainer",
    unit="bytes",
    show=Show.BYTES,
    leaves_out="Other ranks, other processes, the allocator's reserve.",
    where=Where.RAW,
)

FINAL = (
    _speed(
        "train_tokens_per_second",
        "Trainer tok/s",
        "Processed tokens, padding included, ÷ train_runtime ÷ world size. The reference system reports this number.",
        unit="tokens/s per device",
        leaves_out="Padding is counted as work. Warm-up, compilation, evaluation and saving are included: "
        "this is not a steady-state speed.",
        where=Where.FIRST | Where.KEPT | Where.PAGE | Where.SPEED,
        order=30,
    ),
    _speed(
        "train_samples_per_second",
        "samples/s",
        "Samples ÷ train_runtime, over all processes.",
        unit="samples/s, all devices",
        leaves_out="A packed row counts as one sample. Warm-up and compilation are included.",
        where=Where.FILES | Where.SPEED,
        order=40,
    ),
    _speed(
        "train_steps_per_second",
        "steps/s",
        "Optimizer steps ÷ train_runtime.",
        unit="optimizer steps/s",
        leaves_out="Steps of different global batches are not comparable. Warm-up and compilation are included.",
        where=Where.FILES,
    ),
    _final(
        "train_runtime",
        "train time",
        "Wall time from the start of the training loop to its end.",
        unit="s",
        direction=Direction.LOWER,
        show=Show.SECONDS,
        leaves_out="Loading the model. Compilation, first-step set-up, evaluation and saving are included.",
        where=Where.FIRST | Where.KEPT | Where.SPEED,
        order=230,
    ),
    # Runs of a scenario share data and seed, so the losses of correct kernels differ only by rounding. 5 % leaves room for
    # quantised weights, and for batches that are composed differently.
    _final(
        "train_loss",
        "loss",
        "Mean training loss over all steps of the run.",
        unit="nats",
        direction=Direction.LOWER,
        judged=Judged.GUARD,
        min_effect=0.05,
        leaves_out="The final loss, and the loss on held-out data. Compare only runs with the same data, length and global batch.",
        where=Where.FIRST | Where.KEPT | Where.PAGE | Where.COMPARED,
        order=210,
    ),
    _final(
        "logged_losses",
        "losses",
        (
            "The course of the loss, as points `step:loss`. The loss of a point is the mean since the previous point. Each "
            "doubling of the step number has at most four points. The last logged step also has a point."
        ),
        show=Show.TEXT,
        source="worker file of rank 0",
        leaves_out="If the Trainer logged more often, neighbouring points are merged. Commas separate several runs.",
        where=Where.RAW,
    ),
    _target(
        "time_to_target_s",
        "time to target",
        "Time from the start of the training loop to the moment when the mean of the last 10 logged losses reached the target.",
        unit="s",
        direction=Direction.LOWER,
        show=Show.SECONDS,
        min_effect=0.05,
        one_run_effect=0.3,
        where=Where.FIRST | Where.KEPT | Where.PAGE | Where.COMPARED,
        order=212,
    ),
    _target(
        "tokens_to_target",
        "tokens to target",
        "Tokens of all steps until the target was reached, padding included.",
        unit="tokens, all devices",
        show=Show.COUNT,
        where=Where.FILES | Where.KEPT,
        order=214,
    ),
    _target(
        "steps_to_target",
        "steps to target",
        (
            "Optimizer steps until the target was reached. Clearly fewer steps than the baseline are a reason for doubt, and not a "
            "success: see `doubt`."
        ),
        unit="steps",
        direction=Direction.LOWER,
        min_effect=0.05,
        one_run_effect=0.3,
        where=Where.FIRST | Where.KEPT | Where.COMPARED,
        order=216,
    ),
    _final(
        "steps_to_target_spread",
        "target spread",
        "Typical factor between a run and the mean of steps_to_target, minus 1: exp(standard deviation of the logs) − 1.",
        source="experiments with two ok runs or more",
        unit="share",
        direction=Direction.LOWER,
        show=Show.SHARE,
        where=Where.FILES,
    ),
    _final(
        "steps_to_target_runs",
        "reached",
        "Number of repeats that ended ok and reached the target. If it is below runs_ok, there are no means.",
        source="experiments with two ok runs or more",
        show=Show.COUNT,
        where=Where.FILES,
    ),
    _final("epoch", "epoch", "Number of passes over the data.", unit="epochs", where=Where.FILES),
    _final(
        "total_flos",
        "FLOPs (HF)",
        "Floating-point work as the Trainer estimates it.",
        unit="FLOP",
        leaves_out="Attention and PEFT. Padding is counted, and versions of FSDP differ: do not compute an efficiency from this.",
        where=Where.RAW,
    ),
    _final(
        "num_input_tokens_seen",
        "tokens seen",
        "Input tokens that the Trainer counted; only with include_num_input_tokens_seen.",
        unit="tokens, all devices",
        show=Show.COUNT,
        leaves_out="Whether padding is included depends on include_num_input_tokens_seen.",
    ),
)

_rounds = partial(Metric, source="benchmarks.json, written by pytest-benchmark in the run")
_round = partial(_rounds, unit="s", direction=Direction.LOWER, show=Show.SECONDS)

ROUNDS = (
    _round(
        "round_time_s",
        "round",
        (
            "Time of one call in a benchmark: the median of its rounds in a process. Over repeats: geometric mean. The record of a "
            "run has the geometric mean of its benchmarks, too."
        ),
        by_ratio=True,
        leaves_out="Imports, fixtures, calibration and warm-up. The rounds of one process are one value.",
        where=Where.FIRST | Where.KEPT | Where.PAGE | Where.SPEED,
        order=235,
    ),
    _rounds(
        "round_time_spread",
        "round spread",
        "Typical factor between a process and the mean of round_time_s, minus 1: exp(standard deviation of the logs) − 1.",
        source="experiments with two ok runs or more",
        unit="share",
        direction=Direction.LOWER,
        show=Show.SHARE,
        where=Where.FIRST | Where.PAGE,
        order=236,
    ),
    _rounds(
        "rounds",
        "rounds",
        "Number of rounds of a benchmark in a process.",
        show=Show.COUNT,
        where=Where.FIRST,
        order=237,
    ),
    _round(
        "round_iqr_s",
        "round IQR",
        "Distance between the quartiles of the rounds of a benchmark in a process.",
        leaves_out="Differences between processes: see round_time_spread.",
        where=Where.FILES,
    ),
    _rounds(
        "benchmarks",
        "benchmarks",
        "Number of benchmarks that a run of the suite measured.",
        show=Show.COUNT,
        where=Where.FILES,
    ),
)

REPORTED = (
    _reported(
        "reported_step_time_s",
        "own step time",
        "Mean time of an optimizer step, as the program computes it.",
        unit="s",
        direction=Direction.LOWER,
        show=Show.SECONDS,
    ),
    _reported(
        "reported_tokens_per_s",
        "own tok/s",
        "Tokens per second, as the program computes them.",
        unit="tokens/s, all devices",
        direction=Direction.HIGHER,
    ),
    _reported(
        "reported_tflops_per_s_per_gpu",
        "own TFLOP/s/GPU",
        "Operations of the model per second and GPU, as the program counts them.",
        unit="TFLOP/s per device",
        direction=Direction.HIGHER,
    ),
    _reported(
        "thunder_executors",
        "executors",
        "Executors that Thunder uses by default. Without nvFuser, its speed is another one.",
        show=Show.TEXT,
        source="thunder-executors.json, written in the run before the training",
        leaves_out="Executors that the argument compile adds.",
    ),
)

MEMORY = (
    _memory(
        "mem_peak_torch_mem_alloc_in_bytes",
        "peak torch mem",
        "Highest GPU memory that tensors held: for each stage, memory at its end plus the peak above it; the highest sum counts.",
        leaves_out="The allocator's reserve, contexts and communication buffers; ranks other than 0.",
        where=Where.FIRST | Where.KEPT | Where.COMPARED,
        order=170,
    ),
    _memory(
        "mem_torch_mem_alloc_in_bytes",
        "torch mem",
        "Highest GPU memory that tensors held at the end of a stage (before init, init, train).",
        leaves_out="Memory between the ends of stages, such as activations; ranks other than 0.",
        where=Where.TABLES | Where.KEPT | Where.COMPARED,
        order=180,
    ),
    _stage(
        "before_init_mem_cpu", "before_init_mem_cpu", "Resident memory of the process before the Trainer was built."
    ),
    _stage("before_init_mem_gpu", "before_init_mem_gpu", "GPU memory allocated by torch before the Trainer was built."),
    *(
        _stage(name, name, text.format(where=where, when=when))
        for stage, when in (("init", "while the Trainer was built"), ("train", "in training"))
        for device, where in (("cpu", "of the process (resident)"), ("gpu", "on the GPU"))
        for change, text in (
            ("alloc", "Change of memory {where} {when}."),
            ("peaked", "Highest memory {where} {when}, minus the memory at the end of that stage."),
        )
        for name in [f"{stage}_mem_{device}_{change}_delta"]
    ),
)
