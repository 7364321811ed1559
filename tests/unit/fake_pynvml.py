"""A pynvml that answers from values: two GPUs or more, each of which may be lost, or not support what it is asked.

`FakeNvml([...])` is handed where the module is expected; a test that starts a process puts one in the place of the module.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

TEXTS = {3: "Not Supported", 6: "Not Found", 9: "Driver Not Loaded", 15: "GPU is lost"}


class NVMLError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(TEXTS.get(value, "Unknown Error"))
        self.value = value


@dataclass(kw_only=True)
class FakeGpu:
    """Values in NVML's own units (mW, mJ, %); None is not supported."""

    uuid: str = "GPU-aaaa-0"
    name: str = "NVIDIA H100 80GB HBM3"
    used: int | None = 2**30
    total: int | None = 80 * 2**30
    use: int | None = 50
    power: int | None = 350_500
    limit: int | None = 700_000
    energy: int | None = 1_000_000_000
    clock: int | None = 1980
    heat: int | None = 61
    reasons: int | None = 0
    pids: list[int] | None = field(default_factory=list)
    error: int | None = None
    """An error of every question, as of a GPU that is lost."""
    energy_step: int = 0
    """By how much the energy counter moves with each reading."""
    asked: list[str] = field(default_factory=list)


class FakeNvml:
    NVMLError = NVMLError
    NVML_ERROR_NOT_SUPPORTED, NVML_ERROR_GPU_IS_LOST = 3, 15
    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0
    nvmlMemory_v2 = 0x2000028

    def __init__(self, gpus: list[FakeGpu], *, start_error: int | None = None) -> None:
        self.gpus = gpus
        self.start_error = start_error

    def nvmlInit(self) -> None:
        if self.start_error is not None:
            raise NVMLError(self.start_error)

    def nvmlShutdown(self) -> None:
        pass

    def nvmlDeviceGetCount(self) -> int:
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeGpu:
        return self._answering(self.gpus[index])

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> FakeGpu:
        found = [gpu for gpu in self.gpus if gpu.uuid == uuid]
        if not found:
            raise NVMLError(6)
        return self._answering(found[0])

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, gpu: FakeGpu) -> FakeGpu:
        return self.gpus[0]

    def nvmlDeviceGetIndex(self, gpu: FakeGpu) -> int:
        return self.gpus.index(gpu)

    def nvmlDeviceGetUUID(self, gpu: FakeGpu) -> Any:
        return self._value(gpu, "uuid")

    def nvmlDeviceGetName(self, gpu: FakeGpu) -> Any:
        return self._value(gpu, "name")

    def nvmlDeviceGetMemoryInfo(self, gpu: FakeGpu, version: int | None = None) -> Any:
        reserve = 0 if version else 480 * 2**20  # the first version counts the driver's reserve as used
        return SimpleNamespace(used=self._value(gpu, "used") + reserve, total=self._value(gpu, "total"))

    def nvmlDeviceGetUtilizationRates(self, gpu: FakeGpu) -> Any:
        return SimpleNamespace(gpu=self._value(gpu, "use"))

    def nvmlDeviceGetPowerUsage(self, gpu: FakeGpu) -> Any:
        return self._value(gpu, "power")

    def nvmlDeviceGetEnforcedPowerLimit(self, gpu: FakeGpu) -> Any:
        return self._value(gpu, "limit")

    def nvmlDeviceGetTotalEnergyConsumption(self, gpu: FakeGpu) -> Any:
        counter = self._value(gpu, "energy")
        gpu.energy = counter + gpu.energy_step
        return counter

    def nvmlDeviceGetClockInfo(self, gpu: FakeGpu, clock: int) -> Any:
        assert clock == self.NVML_CLOCK_SM
        return self._value(gpu, "clock")

    def nvmlDeviceGetTemperature(self, gpu: FakeGpu, sensor: int) -> Any:
        return self._value(gpu, "heat")

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, gpu: FakeGpu) -> Any:
        return self._value(gpu, "reasons")

    def nvmlDeviceGetComputeRunningProcesses(self, gpu: FakeGpu) -> Any:
        return [SimpleNamespace(pid=pid, usedGpuMemory=None) for pid in self._value(gpu, "pids")]

    def _value(self, gpu: FakeGpu, what: str) -> Any:
        gpu.asked.append(what)
        value = getattr(self._answering(gpu), what)
        if value is None:
            raise NVMLError(3)
        return value

    def _answering(self, gpu: FakeGpu) -> FakeGpu:
        if gpu.error is not None:
            raise NVMLError(gpu.error)
        return gpu
