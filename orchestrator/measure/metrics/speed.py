"""Columns of a run's speed in its steady state, and of its time before the steady state."""

from __future__ import annotations

from functools import partial

from orchestrator.measure.metrics.metric import Direction, Metric, Show, Where

_STEPS = "steps of all ranks, in steady state"
_STAMPS = "stamps of rank 0"

_of_steps = partial(Metric, source=_STEPS, of_steady_state=True)
_rate = partial(_of_steps, direction=Direction.HIGHER, by_ratio=True)
_end = partial(_rate, unit="tokens/s, all devices", where=Where.FILES)
_time = partial(_of_steps, unit="s", direction=Direction.LOWER, show=Show.SECONDS)

# A time that occurs once in a run depends on caches of files and kernels. On one H100, first steps of 1.5 s differed by 12 to 21 %
# (standard deviation) between runs of one experiment. Steady speeds differed by 0.1 to 0.8 %. Five runs per side can show a change
# of 50 %; single runs can show only a change of 100 %.
_once = partial(_time, min_effect=0.5, one_run_effect=1.0, of_steady_state=False)
_start = partial(_once, source=_STAMPS, where=Where.FILES)

_COMPILATION = "torch's own times of its compilation, of the rank that took longest"
_stage = partial(
    _once, source=_COMPILATION, leaves_out="Other processes, such as those that Inductor starts.", where=Where.FILES
)

_share = partial(_of_steps, unit="share", direction=Direction.LOWER, show=Show.SHARE)
_steps = partial(_of_steps, unit="steps", show=Show.COUNT)

SPEED = (
    _rate(
        "tokens_per_s",
        "tok/s",
        (
            "Tokens of all ranks' steady steps ÷ the time until the last rank finished these steps. Ranks that divide a batch "
            "count it once. Over repeats: geometric mean."
        ),
        unit="tokens/s, all devices",
        leaves_out="Padding is counted as work. Warm-up, compilation and everything before them are left out.",
        where=Where.FIRST | Where.KEPT | Where.PAGE | Where.SPEED,
        order=10,
    ),
    _rate(
        "tokens_per_s_per_gpu",
        "tok/s/GPU",
        "tokens_per_s ÷ processes.",
        unit="tokens/s per device",
        leaves_out="Counts padding as work.",
        where=Where.TABLES | Where.KEPT,
    ),
    _rate(
        "real_tokens_per_s",
        "real tok/s",
        (
            "tokens_per_s without padding: the attention mask says which tokens count. Without a mask all tokens count, except "
            "several tokens with position 0 at the end of a row."
        ),
        unit="tokens/s, all devices",
        leaves_out="Tokens without a loss are counted, too.",
        where=Where.TABLES | Where.KEPT | Where.PAGE,
    ),
    _rate(
        "real_tokens_per_s_per_gpu",
        "real tok/s/GPU",
        "real_tokens_per_s ÷ processes.",
        unit="tokens/s per device",
        leaves_out="Tokens without a loss are counted, too.",
        where=Where.FILES,
    ),
    _rate(
        "labelled_tokens_per_s",
        "labelled tok/s",
        "tokens_per_s with only the tokens that have a label (≠ -100).",
        unit="tokens/s, all devices",
        leaves_out="The first token of a row counts, although it is never predicted.",
        where=Where.FILES,
    ),
    _rate(
        "samples_per_s",
        "samples/s (steady)",
        "Samples of the steady steps ÷ the time of these steps; a row with several samples counts as several.",
        unit="samples/s, all devices",
        leaves_out="A sample that was cut by packing is counted twice.",
        where=Where.FILES,
    ),
    _rate(
        "pairs_per_s",
        "pairs/s (steady)",
        "Pairs of a chosen and a rejected answer ÷ the time of the steady steps; only with trainer trl_dpo.",
        unit="pairs/s, all devices",
        where=Where.FILES,
    ),
    _rate(
        "steps_per_s",
        "steps/s (steady)",
        "Number of steady steps ÷ the time of these steps.",
        unit="optimizer steps/s",
        leaves_out="Steps of different global batches are not comparable.",
        where=Where.FILES,
    ),
    _time(
        "step_time_s",
        "step time",
        "Median time of a steady optimizer step, from the end of the previous step to the end of this step.",
        by_ratio=True,
        leaves_out="Spikes hardly change the median; spike_share is the cost of the spikes.",
        where=Where.FIRST | Where.KEPT | Where.PAGE | Where.COMPARED,
        order=90,
    ),
    _time(
        "step_time_low_s",
        "step time low",
        (
            "Lower end of the 95 % interval of step_time_s. With several repeats, it is the t interval of the logarithms over "
            "repeats. With one run, it is computed from the steps of the run."
        ),
        leaves_out="With one run: the differences between runs.",
        where=Where.FILES,
    ),
    _time("step_time_high_s", "step time high", "Upper end of the interval of step_time_s.", where=Where.FILES),
    _time("step_time_p5_s", "step p5", "5 % of the steady steps were faster than this.", where=Where.FILES),
    _time("step_time_p95_s", "step p95", "5 % of the steady steps were slower than this.", where=Where.FILES),
    _end(
        "tokens_per_s_low",
        "tok/s low",
        "Lower end of the 95 % t interval of tokens_per_s over repeats, computed from logarithms.",
        leaves_out="Effects that all repeats share, such as machine, day and versions.",
    ),
    _end("tokens_per_s_high", "tok/s high", "Upper end of the interval of tokens_per_s."),
    _end(
        "real_tokens_per_s_low",
        "real tok/s low",
        "Lower end of the 95 % t interval of real_tokens_per_s over repeats, computed from logarithms.",
        leaves_out="Effects that all repeats share, such as machine, day and versions.",
    ),
    _end("real_tokens_per_s_high", "real tok/s high", "Upper end of the interval of real_tokens_per_s."),
    _share(
        "tokens_per_s_spread",
        "spread",
        (
            "Typical factor between a run and the mean, minus 1: exp(standard deviation of the logs of "
            "tokens_per_s over repeats) − 1. A small value nearly equals the relative standard deviation."
        ),
        source="experiments with two ok runs or more",
        where=Where.FIRST | Where.PAGE,
        order=20,
    ),
    _steps(
        "tokens_per_s_runs",
        "n",
        "Number of repeats in the mean of tokens_per_s: the repeats that ended ok and reached a steady state.",
        unit=None,
        source="experiments with two ok runs or more",
        where=Where.FILES,
    ),
    _once(
        "first_step_s",
        "first step",
        "Time of the first step: from the moment when the last rank began the loop to the step's end.",
        by_ratio=True,
        where=Where.TABLES | Where.COMPARED,
        order=100,
    ),
    _once(
        "compile_s",
        "compile",
        "Time of the steps before the steady state, minus the time of the same number of steady steps; only with torch.compile.",
        of_steady_state=True,
        leaves_out="Recompilation in the steady state: such steps are counted as spikes.",
        where=Where.TABLES | Where.COMPARED,
        order=110,
    ),
    _stage(
        "dynamo_compile_s",
        "dynamo",
        "Time in which Dynamo traced Python code into graphs.",
    ),
    _stage(
        "inductor_compile_s",
        "inductor",
        "Time in which Inductor compiled graphs.",
        leaves_out="Graphs that its cache had.",
    ),
    _stage(
        "other_compile_s",
        "other compilation",
        "The other time of compilation: AOTAutograd, other compilers, and the loading of graphs from a cache.",
    ),
    _share(
        "compile_cache_hit_share",
        "compile cache",
        "Share of the graphs that Inductor's cache had. 0 is a cold cache and 1 a warm one.",
        source=_COMPILATION,
        direction=Direction.NONE,
        of_steady_state=False,
        leaves_out="Graphs of other compilers.",
        where=Where.FILES,
    ),
    _steps(
        "recompiled_steps",
        "recompiled",
        (
            "Number of steps in which torch.compile compiled again. The training's first step and the first step that compiled "
            "are not counted; later warm-up steps are. 0 if nothing was compiled again."
        ),
        source="torch's count of compiled graphs, in steps of all ranks",
        of_steady_state=False,
        direction=Direction.LOWER,
        leaves_out="Compilation between steps, such as for an evaluation. Missing if nothing was compiled.",
    ),
    _once("warmup_s", "warm-up", "Time of the steps before the steady state.", of_steady_state=True, where=Where.FILES),
    _time(
        "steady_s",
        "steady",
        "Total time of the steady steps.",
        direction=Direction.NONE,
        leaves_out="It depends on the number of steps in the scenario: it is not a speed.",
        where=Where.FILES,
    ),
    _start("startup_s", "start-up", "Time from the start of the training process until its libraries were imported."),
    _start(
        "model_load_s",
        "model load",
        "Time from the end of startup_s until the Trainer got its model: data, configuration, weights.",
    ),
    _start(
        "trainer_setup_s",
        "set-up",
        "Time from the end of model_load_s until the loop began: wrapping, sharding, optimizer.",
    ),
    _steps(
        "discarded_steps",
        "warm-up steps",
        "Number of steps before the steady state. Speeds do not include these steps.",
        where=Where.TABLES | Where.KEPT,
    ),
    _steps("steady_steps", "steady steps", "Number of steady steps.", where=Where.FILES),
    Metric(
        "steady_found_by",
        "cut by",
        "How the beginning of the steady state was set: `declared` by the scenario, or `found`.",
        show=Show.TEXT,
        source="the rule of the steady state",
        where=Where.FILES,
    ),
    Metric(
        "stopped_early",
        "stopped",
        "Why training ended before its last step: `within` or `at_most_steps` of `measure:`.",
        show=Show.TEXT,
        source="worker file",
    ),
    _share(
        "data_wait_share",
        "data wait",
        "Share of the steady time that is between the end of a step and the beginning of the next step.",
        leaves_out="Data loading while the GPU still works is not included. Logging, evaluation and saving are included.",
        step_part="between steps",
    ),
    _share("padding_share", "padding", "Share of the steady steps' tokens that are padding."),
    _steps(
        "spikes",
        "spikes",
        "Number of steady steps with a modified z-score above 14.8, such as late recompilations and stalls.",
        where=Where.FILES,
    ),
    _share(
        "spike_share",
        "spike cost",
        "Extra time of the spikes over the median step time, as a share of the steady time.",
    ),
)
