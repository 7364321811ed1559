"""Columns that monitors measure on the devices: memory, energy, clocks, other processes, and the cost of monitoring."""

from __future__ import annotations

from functools import partial

from orchestrator.measure.metrics.metric import Direction, Judged, Metric, Show, Where

_NVML = "NVML, every nvml_period_s (samples-nvml.csv)"
_STEADY = "Everything outside the steady state."

_nvml = partial(Metric, source=_NVML)
_text = partial(_nvml, show=Show.TEXT)
_bytes = partial(_nvml, unit="bytes", direction=Direction.LOWER, show=Show.BYTES, judged=Judged.TOLERANCE)
_more_bytes = partial(_bytes, where=Where.FILES)
_of_window = partial(_nvml, leaves_out=_STEADY, of_steady_state=True)
_steady = partial(_of_window, min_effect=0.03)
_more_steady = partial(_steady, where=Where.FILES)
_share = partial(_of_window, unit="share", direction=Direction.LOWER, show=Show.SHARE)
_cost = partial(Metric, source="the monitors' own processes", direction=Direction.LOWER, where=Where.FILES)

GPU = (
    _text(
        "gpu_device_name",
        "GPU",
        "Name of the GPU (the last device in the log; GPUs of a host are assumed to be alike).",
        source="nvidia-smi sidecar",
    ),
    _bytes(
        "mem_nvidia_mem_reserved",
        "GPU mem (smi)",
        "Highest memory in use on a device, minus the reading before the run. Mean over devices.",
        unit="MiB",
        show=Show.MIB,
        min_effect=0.05,
        source="nvidia-smi sidecar, one reading per second (samples-nvidia-smi.csv)",
        leaves_out="Peaks shorter than the sampling interval. Other users of the device are included.",
        where=Where.FIRST | Where.KEPT | Where.PAGE | Where.COMPARED,
        order=190,
    ),
    _bytes(
        "device_peak_used_bytes",
        "GPU peak",
        "Highest memory in use on any device during the run.",
        leaves_out="Peaks shorter than the sampling period, and the driver's reserve. Other users of the device are included.",
        where=Where.FIRST | Where.PAGE | Where.COMPARED,
        order=160,
    ),
    _more_bytes(
        "device_mean_peak_used_bytes", "GPU peak mean", "Highest memory in use on a device, mean over devices."
    ),
    _share(
        "device_peak_imbalance",
        "GPU imbalance",
        "Highest peak memory of a device ÷ mean of the peaks over devices, minus 1.",
        leaves_out="",
        of_steady_state=False,
        where=Where.FILES,
    ),
    _more_bytes(
        "device_baseline_bytes", "GPU before", "Memory in use before the run, on the device with the highest value."
    ),
    _more_bytes(
        "device_residue_bytes",
        "GPU after",
        "Memory in use after the run, minus memory in use before the run, on the device with the largest difference.",
    ),
    _steady(
        "energy_j",
        "energy",
        "Energy that the devices used in the steady state, from their counters.",
        unit="J, all devices",
    ),
    _more_steady(
        "integrated_energy_j",
        "energy (power)",
        "Energy that the devices used in the steady state, computed from the power readings to check energy_j.",
        unit="J, all devices",
    ),
    _steady(
        "energy_per_real_token_j",
        "energy/token",
        "energy_j ÷ tokens of the same steps, padding not counted.",
        unit="J/token",
        show=Show.JOULES,
        direction=Direction.LOWER,
        by_ratio=True,
        leaves_out="The host's energy.",
        where=Where.TABLES | Where.PAGE | Where.COMPARED,
        order=200,
    ),
    _steady("mean_power_w", "power", "Mean power in the steady state, mean over devices.", unit="W per device"),
    _share(
        "gpu_utilization",
        "GPU util",
        "Share of the steady state in which any kernel ran, mean over devices.",
        direction=Direction.HIGHER,
        leaves_out="How much of the device a kernel used. A kernel also counts while it waits for another rank.",
        where=Where.FILES,
    ),
    _more_steady("sm_clock_mhz", "SM clock", "Mean clock of the multiprocessors in the steady state.", unit="MHz"),
    _more_steady("temperature_c", "temperature", "Highest temperature in the steady state.", unit="°C"),
    _share(
        "throttled_share",
        "throttled",
        "Share of the steady state in which power or heat limited a device's clocks.",
        leaves_out="How much speed the limit cost.",
    ),
    _text("throttle_reasons", "throttled by", "Reasons that limited the clocks, with the share of each."),
    _text(
        "contaminated",
        "contaminated",
        "Processes of other programs that used the run's devices.",
        leaves_out="Processes that lived less than a second.",
    ),
    Metric(
        "profiled_steps",
        "profiled",
        "Number of steps in the traces of `torch_profiler`, which are in the run's folder `profile/`.",
        source="torch_profiler",
        where=Where.FILES,
    ),
    _cost(
        "monitor_cpu_s",
        "monitor CPU",
        "CPU time that the monitors took during the run.",
        unit="CPU seconds",
        show=Show.SECONDS,
    ),
    _cost(
        "monitor_rss_bytes", "monitor mem", "Highest resident memory of the monitors.", unit="bytes", show=Show.BYTES
    ),
    _nvml(
        "nvml_period_s",
        "NVML period",
        "Median time between two readings of memory.",
        unit="s",
        show=Show.SECONDS,
        where=Where.FILES,
    ),
)
