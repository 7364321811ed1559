"""How fast a run was in its steady state, where its time went before, how much it worked for it."""

from __future__ import annotations

from orchestrator.metrics.metric import Direction, Metric, Show

_STEPS = "steps of all ranks, in steady state"
_STAMPS = "stamps of rank 0"
_PADDING = "Counts padding as work."

_ALWAYS, _ONCE, _ONCE_IN_ONE_RUN = 0.02, 0.5, 1.0
"""What happens once a run hangs on caches of files and kernels: first steps of 1.5 s differed by 12 to 21 % (standard
deviation) between runs of one experiment on one H100, steady speeds by 0.1 to 0.8 %. By 50 % five runs a side can tell; of a
single run only twice as long says anything."""


def _rate(name: str, label: str, unit: str, text: str, without: str) -> Metric:
    return Metric(
        name=name,
        label=label,
        unit=unit,
        direction=Direction.HIGHER,
        description=text,
        source=_STEPS,
        leaves_out=without,
        by_ratio=True,
    )


def _time(
    name: str,
    label: str,
    text: str,
    without: str = "",
    *,
    source: str = _STEPS,
    ratio: bool = False,
    once: bool = False,
) -> Metric:
    return Metric(
        name=name,
        label=label,
        unit="s",
        direction=Direction.LOWER,
        show=Show.SECONDS,
        description=text,
        source=source,
        leaves_out=without,
        by_ratio=ratio,
        min_effect=_ONCE if once else _ALWAYS,
        one_run_effect=_ONCE_IN_ONE_RUN if once else None,
    )


def _share(name: str, label: str, text: str, without: str = "", *, better: Direction = Direction.LOWER) -> Metric:
    return Metric(
        name=name,
        label=label,
        unit="share",
        direction=better,
        show=Show.SHARE,
        description=text,
        source=_STEPS,
        leaves_out=without,
    )


def _count(name: str, label: str, unit: str, text: str, without: str = "", *, source: str = _STEPS) -> Metric:
    return Metric(
        name=name, label=label, unit=unit, show=Show.COUNT, description=text, source=source, leaves_out=without
    )


def _word(name: str, label: str, text: str, source: str) -> Metric:
    return Metric(name=name, label=label, show=Show.TEXT, description=text, source=source)


_OVER_RUNS = "experiments with two ok runs or more"

SPEED = (
    _rate(
        "tokens_per_s",
        "tok/s",
        "tokens/s, all devices",
        "Tokens of the steady steps of all ranks ÷ the time until the last rank was done with them. Over repeats: mean of logs.",
        _PADDING + " Warm-up, compilation and whatever came before them.",
    ),
    _rate(
        "tokens_per_s_per_gpu",
        "tok/s/GPU",
        "tokens/s per device",
        "tokens_per_s ÷ processes.",
        _PADDING,
    ),
    _rate(
        "real_tokens_per_s",
        "real tok/s",
        "tokens/s, all devices",
        "The same with tokens that are not padding (sum of the attention mask; without one all, but several zeros at the end of a "
        "row's positions).",
        "Whether a token bears loss.",
    ),
    _rate(
        "real_tokens_per_s_per_gpu",
        "real tok/s/GPU",
        "tokens/s per device",
        "real_tokens_per_s ÷ processes.",
        "Whether a token bears loss.",
    ),
    _rate(
        "labelled_tokens_per_s",
        "labelled tok/s",
        "tokens/s, all devices",
        "The same with tokens that have a label (≠ -100).",
        "That the first token of a row is never predicted.",
    ),
    _rate(
        "samples_per_s",
        "samples/s (steady)",
        "samples/s, all devices",
        "Samples of the steady steps ÷ their time; rows that hold several count as several.",
        "A sample that packing cuts counts twice.",
    ),
    _rate(
        "steps_per_s",
        "steps/s (steady)",
        "optimizer steps/s",
        "Steady steps ÷ their time.",
        "Steps of different global batches are not comparable.",
    ),
    _time(
        "step_time_s",
        "step time",
        "Median time of a steady optimizer step, from the end of one to the end of the next.",
        "Spikes move it little; spike_share says what they cost.",
        ratio=True,
    ),
    _time(
        "step_time_low_s",
        "step time low",
        "Lower end of the 95 % interval of step_time_s: over repeats (t, of logs) where there are several, else within the run.",
        "Of one run: how runs differ.",
    ),
    _time("step_time_high_s", "step time high", "Upper end of that interval."),
    _time("step_time_p5_s", "step p5", "5 % of the steady steps were faster."),
    _time("step_time_p95_s", "step p95", "5 % of the steady steps were slower."),
    _rate(
        "tokens_per_s_low",
        "tok/s low",
        "tokens/s, all devices",
        "Lower end of the 95 % t interval of tokens_per_s over repeats (of logs).",
        "Differences that all repeats share: machine, day, versions.",
    ),
    _rate(
        "tokens_per_s_high",
        "tok/s high",
        "tokens/s, all devices",
        "Upper end of that interval.",
        "",
    ),
    _rate(
        "real_tokens_per_s_low",
        "real tok/s low",
        "tokens/s, all devices",
        "Lower end of the 95 % t interval of real_tokens_per_s over repeats (of logs).",
        "Differences that all repeats share: machine, day, versions.",
    ),
    _rate(
        "real_tokens_per_s_high",
        "real tok/s high",
        "tokens/s, all devices",
        "Upper end of that interval.",
        "",
    ),
    Metric(
        name="tokens_per_s_spread",
        label="spread",
        unit="share",
        direction=Direction.LOWER,
        show=Show.SHARE,
        description="By which factor runs lie apart, less 1: exp(standard deviation of the logs of tokens_per_s over repeats) − 1, "
        "which is the relative standard deviation where that is small.",
        source=_OVER_RUNS,
    ),
    Metric(
        name="tokens_per_s_runs",
        label="n",
        direction=Direction.NONE,
        show=Show.COUNT,
        description="Repeats that tokens_per_s is the mean of: those that ended ok and reached a steady state.",
        source=_OVER_RUNS,
    ),
    _time(
        "first_step_s",
        "first step",
        "The first step, from when the last rank began the loop to its end.",
        ratio=True,
        once=True,
    ),
    _time(
        "compile_s",
        "compile",
        "What the steps before the steady state took above as many steady ones, where torch.compile was on.",
        "Recompilation later on, which shows as spikes.",
        once=True,
    ),
    _time("warmup_s", "warm-up", "Time of the steps before the steady state.", once=True),
    Metric(
        name="steady_s",
        label="steady",
        unit="s",
        show=Show.SECONDS,
        description="Time of the steps that the steady state's numbers are of.",
        source=_STEPS,
        leaves_out="How long it is depends on how many steps were asked for: it is no speed.",
    ),
    _time(
        "startup_s",
        "start-up",
        "From the training process' start until its libraries were imported.",
        source=_STAMPS,
        once=True,
    ),
    _time(
        "model_load_s",
        "model load",
        "From there until the Trainer was given its model: data, configuration, weights.",
        source=_STAMPS,
        once=True,
    ),
    _time(
        "trainer_setup_s",
        "set-up",
        "From there until the loop began: wrapping, sharding, optimizer.",
        source=_STAMPS,
        once=True,
    ),
    _count(
        "discarded_steps",
        "cut",
        "steps",
        "Where the steady state begins: as many steps are left out of its numbers.",
    ),
    _count("steady_steps", "steady steps", "steps", "Steps that the steady state's numbers are of."),
    _word(
        "steady_found_by", "cut by", "How that place came about: `declared` by the scenario, or `found`.", "steady.py"
    ),
    _word(
        "stopped_early",
        "stopped",
        "Why training ended before its last step: `within` or `at_most_steps` of `measure:`.",
        "worker file",
    ),
    _share(
        "data_wait_share",
        "data wait",
        "Share of the steady time between the end of a step and the next one's beginning.",
        "It holds logging, evaluation and saving too. Loading that the GPU's work hides is not in it.",
    ),
    _share(
        "padding_share",
        "padding",
        "Tokens of the steady steps that are padding.",
    ),
    _count("spikes", "spikes", "steps", "Steady steps with a modified z-score above 14.8: late recompiles, stalls."),
    _share("spike_share", "spike cost", "Time of the spikes above the median step, as a share of the steady time."),
)
