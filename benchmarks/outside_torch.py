"""Measure the GPU memory that torch does not count: context, kernels, libraries, communication.

    python benchmarks/outside_torch.py [--gpus 2] [--layers 6]

A process does the parts of a training one after the other. After each part NVML reads the memory in use on the whole
device. From that this script subtracts what was in use before the process, and what torch's allocator has reserved.
The rest is what torch does not see. It also prints the part of the allocated memory that is workspaces of cuBLAS.
The script frees them to count them; torch makes them again.

The GPUs must be idle, because NVML sees all users. With several GPUs there is a process for each, joined by NCCL at
the end; the first process prints. Kernels are loaded when they are first used (CUDA_MODULE_LOADING: lazy, CUDA's
default).
"""

from __future__ import annotations

import argparse
import ctypes
import os
from collections.abc import Callable, Iterator
from typing import Any

import pynvml
import torch
import torch.distributed as dist
import torch.multiprocessing
from torch.nn.functional import scaled_dot_product_attention
from transformers import LlamaConfig, LlamaForCausalLM

MIB = 2**20
BATCH, LENGTH = 4, 2048


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument(
        "--layers", type=int, default=6, help="of a Llama whose layers have 1.1 billion parameters in 22"
    )
    given = parser.parse_args()
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # as NVML counts
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29537", "WORLD_SIZE": str(given.gpus)}
    torch.multiprocessing.spawn(look, args=(given.gpus, given.layers), nprocs=given.gpus)


def look(rank: int, gpus: int, layers: int) -> None:
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByUUID(uuid(rank))

    def used() -> int:
        return int(pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2).used)

    before, last = used(), 0
    if rank == 0:
        print(f"{pynvml.nvmlDeviceGetName(handle)}, torch {torch.__version__}; in MiB")
        print(f"{'':44}{'outside torch':>14}{'added':>8}{'reserved':>10}{'workspaces':>12}")
    for what, act in deeds(rank, gpus, layers):
        act()
        ready = what != CONTEXT
        if ready:
            torch.cuda.synchronize()
        reserved = torch.cuda.memory_reserved() if ready else 0
        outside, own = used() - before - reserved, workspaces() if ready else 0
        if rank == 0:
            numbers = outside / MIB, (outside - last) / MIB, reserved / MIB, own / MIB
            print(f"{what:44}{numbers[0]:14.0f}{numbers[1]:8.0f}{numbers[2]:10.0f}{numbers[3]:12.1f}", flush=True)
        last = outside
    if gpus > 1:
        dist.destroy_process_group()


CONTEXT = "a context"


def deeds(rank: int, gpus: int, layers: int) -> Iterator[tuple[str, Callable[[], object]]]:
    """Yield the name of each part of a training, with a function that does this part."""
    yield CONTEXT, lambda: make_context(rank)
    torch.cuda.set_device(rank)
    yield "a first tensor", lambda: torch.zeros(1, device="cuda")
    square = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    yield "a product of matrices (cuBLAS)", lambda: square @ square
    heads = torch.randn(BATCH, 32, LENGTH, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    yield (
        "attention, forward and backward",
        lambda: scaled_dot_product_attention(heads, heads, heads, is_causal=True).sum().backward(),
    )
    model, optimizer = made(layers)
    yield "a training step", lambda: step(model, optimizer)
    yield "ten more", lambda: [step(model, optimizer) for _ in range(10)]
    compiled = torch.compile(model)
    yield "ten compiled (Triton's kernels)", lambda: [step(compiled, optimizer) for _ in range(10)]
    if gpus > 1:
        whole, parts = torch.ones(2**26, device="cuda"), torch.ones(2**26 // gpus, device="cuda")
        dist.init_process_group("nccl", rank=rank, world_size=gpus, device_id=torch.device("cuda", rank))
        yield "all-reduce (NCCL)", lambda: [dist.all_reduce(whole) for _ in range(5)]
        yield "all-gather", lambda: [dist.all_gather_into_tensor(whole, parts) for _ in range(5)]
        yield "reduce-scatter", lambda: [dist.reduce_scatter_tensor(parts, whole) for _ in range(5)]


def make_context(rank: int) -> None:
    """Make the device's primary context with only the driver. Torch uses the same context."""
    driver, device, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.c_void_p()
    for code in (
        driver.cuInit(0),
        driver.cuDeviceGet(ctypes.byref(device), rank),
        driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device),
    ):
        assert code == 0, f"the driver answers {code}"


def uuid(rank: int) -> str:
    """Return NVML's name of the GPU that has this number in CUDA. Torch is not used for this, because it would make a context."""
    visible = [word.strip() for word in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if word.strip()]
    word = visible[rank] if visible else str(rank)
    if not word.isdecimal():
        return word
    return str(pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByIndex(int(word))))


def made(layers: int) -> tuple[Any, torch.optim.Optimizer]:
    config = LlamaConfig(
        hidden_size=2048,
        intermediate_size=5632,
        num_hidden_layers=layers,
        num_attention_heads=32,
        num_key_value_heads=4,
    )
    with torch.device("cuda"):
        model = LlamaForCausalLM(config).to(torch.bfloat16)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)


def step(model: Any, optimizer: torch.optim.Optimizer) -> None:
    tokens = torch.randint(0, 32000, (BATCH, LENGTH), device="cuda")
    model(input_ids=tokens, labels=tokens).loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()


def workspaces() -> int:
    """Return the bytes in torch's allocator that workspaces of cuBLAS use."""
    held = torch.cuda.memory_allocated()
    torch._C._cuda_clearCublasWorkspaces()
    return held - torch.cuda.memory_allocated()


if __name__ == "__main__":
    main()
