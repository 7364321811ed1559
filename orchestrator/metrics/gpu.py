"""What monitors saw of the devices: memory, energy, clocks, who else was there, and what watching cost."""

from __future__ import annotations

from orchestrator.metrics.metric import Direction, Judged, Metric, Show

_NVML = "NVML, every nvml_period_s (samples-nvml.csv)"
_STEADY = "What happened outside the steady state."


def _bytes(name: str, label: str, text: str, without: str = "", better: Direction = Direction.LOWER) -> Metric:
    return Metric(
        name=name,
        label=label,
        unit="bytes",
        direction=better,
        show=Show.BYTES,
        description=text,
        source=_NVML,
        leaves_out=without,
        judged=Judged.TOLERANCE,
    )


def _number(name: str, label: str, unit: str, text: str, *, without: str = _STEADY, ratio: bool = False) -> Metric:
    return Metric(
        name=name,
        label=label,
        unit=unit,
        direction=Direction.LOWER if ratio else Direction.NONE,
        description=text,
        source=_NVML,
        leaves_out=without,
        by_ratio=ratio,
        min_effect=0.03,
    )


def _share(name: str, label: str, text: str, *, better: Direction, without: str = _STEADY) -> Metric:
    return Metric(
        name=name,
        label=label,
        unit="share",
        direction=better,
        show=Show.SHARE,
        description=text,
        source=_NVML,
        leaves_out=without,
    )


def _cost(name: str, label: str, unit: str, text: str, show: Show) -> Metric:
    return Metric(
        name=name,
        label=label,
        unit=unit,
        direction=Direction.LOWER,
        show=show,
        description=text,
        source="the monitors' own processes",
    )


GPU = (
    Metric(
        name="gpu_device_name",
        label="GPU",
        show=Show.TEXT,
        description="Name of the GPU (the last device in the log; GPUs of a host are taken to be alike).",
        source="nvidia-smi sidecar",
    ),
    Metric(
        name="mem_nvidia_mem_reserved",
        label="GPU mem (smi)",
        unit="MiB",
        direction=Direction.LOWER,
        show=Show.MIB,
        description="Device memory: each device's maximum less its reading before the run, mean over devices.",
        source="nvidia-smi sidecar, one reading a second (samples-nvidia-smi.csv)",
        leaves_out="Peaks shorter than the sampling interval. Whatever else uses the device in the meantime is in.",
        judged=Judged.TOLERANCE,
        min_effect=0.05,
    ),
    _bytes(
        "device_peak_used_bytes",
        "GPU peak",
        "Highest memory in use on a device during the run, on the device where it is highest.",
        "Peaks shorter than the period. Whoever else uses the device is in; the driver's reserve is not.",
    ),
    _bytes("device_mean_peak_used_bytes", "GPU peak mean", "The devices' highest memory in use, mean over devices."),
    _share(
        "device_peak_imbalance",
        "GPU imbalance",
        "Highest device's peak ÷ the mean over devices, less 1.",
        better=Direction.LOWER,
        without="",
    ),
    _bytes("device_baseline_bytes", "GPU before", "Memory in use before the run, highest device."),
    _bytes("device_residue_bytes", "GPU after", "Memory in use after the run less before it, highest device."),
    _number("energy_j", "energy", "J, all devices", "Energy of the steady state by the devices' counters."),
    _number(
        "integrated_energy_j",
        "energy (power)",
        "J, all devices",
        "The same by integrating power readings: a check of the counter.",
    ),
    _number(
        "energy_per_real_token_j",
        "J/token",
        "J/token",
        "energy_j ÷ tokens that are not padding, of the same steps.",
        ratio=True,
        without="The host's energy.",
    ),
    _number("mean_power_w", "power", "W per device", "Mean power in the steady state, mean over devices."),
    _share(
        "gpu_utilization",
        "GPU util",
        "Share of the steady state in which any kernel ran, mean over devices.",
        better=Direction.HIGHER,
        without="How much of the device a kernel used; a wait for another rank is a kernel, too. No measure of efficiency.",
    ),
    _number("sm_clock_mhz", "SM clock", "MHz", "Mean clock of the multiprocessors in the steady state."),
    _number("temperature_c", "temperature", "°C", "Highest temperature in the steady state."),
    _share(
        "throttled_share",
        "throttled",
        "Share of the steady state in which a device's clocks were held down by power or heat.",
        better=Direction.LOWER,
        without="How much was lost by it.",
    ),
    Metric(
        name="throttle_reasons",
        label="throttled by",
        show=Show.TEXT,
        description="What held the clocks down, with the share of each.",
        source=_NVML,
    ),
    Metric(
        name="contaminated",
        label="contaminated",
        show=Show.TEXT,
        description="Processes that were none of the run's and used its devices.",
        source=_NVML,
        leaves_out="Processes that came and went within a second.",
    ),
    _cost(
        "monitor_cpu_s", "monitor CPU", "CPU seconds", "CPU time that the monitors took beside the run.", Show.SECONDS
    ),
    _cost("monitor_rss_bytes", "monitor mem", "bytes", "Highest resident memory of the monitors.", Show.BYTES),
    Metric(
        name="nvml_period_s",
        label="NVML period",
        unit="s",
        show=Show.SECONDS,
        description="Median time between two readings of memory.",
        source=_NVML,
    ),
)
