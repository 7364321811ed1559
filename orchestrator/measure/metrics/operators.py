"""Columns of the trainer `operators`: the times of one call of an operator, its work, and its numerical error."""

from __future__ import annotations

from functools import partial

from orchestrator.measure.metrics.metric import Direction, Judged, Metric, Show, Where

_one = partial(Metric, source="operators.json, written in the run")
_time = partial(_one, unit="s", direction=Direction.LOWER, show=Show.SECONDS, by_ratio=True)
_error = partial(_one, direction=Direction.LOWER, judged=Judged.TOLERANCE, min_effect=0.5, where=Where.TABLES)

OPERATORS = (
    _time(
        "call_time_s",
        "call",
        "Time of one call: the median of blocks of calls, with a wait for the device at both ends of a block.",
        leaves_out="The first call, which may compile. Making the tensors.",
        where=Where.FIRST | Where.KEPT | Where.PAGE | Where.SPEED,
        order=25,
    ),
    _time(
        "host_time_s",
        "host",
        "Time that the host needs to launch one call, without waiting for the device.",
        leaves_out="On a CPU it is the time of the call.",
        where=Where.FIRST | Where.PAGE | Where.COMPARED,
        order=26,
    ),
    _time(
        "device_time_s",
        "device",
        "Sum of the times of the kernels of one call, by the profiler: the median of several calls.",
        leaves_out="Pauses between kernels. A CPU has no such time.",
        where=Where.FIRST | Where.PAGE | Where.COMPARED,
        order=27,
    ),
    _time(
        "device_span_s",
        "device span",
        "Time of one call on the device, by events, while the host is ahead. It checks the sum of the kernels' times.",
        leaves_out="The host. Missing if the calls of a measurement take the host longer than 0.25 s.",
        where=Where.FILES,
    ),
    _time(
        "call_time_iqr_s",
        "call spread",
        "Distance between the quartiles of the blocks' times of a call.",
        leaves_out="Differences between processes: compare repeats instead.",
        by_ratio=False,  # all blocks may have the same time
        where=Where.FILES,
    ),
    _time(
        "first_call_s",
        "first call",
        "Time of the first call, with compilation if there is any.",
        where=Where.TABLES,
        one_run_effect=0.5,
    ),
    _one(
        "device_busy_share",
        "device busy",
        "Device time ÷ time of a call. A small share means that the call waits for the host.",
        direction=Direction.HIGHER,
        show=Show.SHARE,
        where=Where.TABLES | Where.PAGE,
    ),
    _one("launches_per_call", "launches", "Number of kernels and copies that one call launches.", show=Show.NUMBER),
    _one(
        "operator_tflops_per_s",
        "TFLOP/s",
        "Operations of matrix products and attention, as torch counts them for the plain function, ÷ device time.",
        unit="TFLOP/s per device",
        direction=Direction.HIGHER,
        leaves_out="All other operations. If the device's time is missing, the time of the call is used.",
    ),
    _one(
        "operator_bytes_per_s",
        "bandwidth",
        (
            "Bytes of all inputs, results and gradients, each once, ÷ device time. Of a collective operation, the bytes that a "
            "device must at least send (the bus bandwidth)."
        ),
        unit="bytes/s per device",
        direction=Direction.HIGHER,
        show=Show.BYTES_PER_S,
        leaves_out="Bytes that are moved more than once. If the device's time is missing, the time of the call is used.",
    ),
    _error(
        "max_error",
        "max error",
        "Largest absolute difference of a result or gradient from that of the plain function in float64, in the worst run.",
        where=Where.FILES,
    ),
    _error(
        "relative_error",
        "rel. error",
        "Norm of the difference of a result or gradient from that of the plain function in float64 ÷ its norm. The largest counts.",
        where=Where.TABLES | Where.PAGE | Where.COMPARED,
        order=215,
    ),
)
