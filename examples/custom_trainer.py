"""A training loop that knows nothing of Tunebench: a small network fitted to noise, its speed printed as JSON.

The last line of stdout is all that Tunebench reads of it. Run by hand: python custom_trainer.py --width 256 --steps 50
"""

import argparse
import json
import time

import torch
from accelerate import Accelerator

parser = argparse.ArgumentParser()
parser.add_argument("--width", type=int, default=256)
parser.add_argument("--steps", type=int, default=50)
parser.add_argument("--batch", type=int, default=32)
options = parser.parse_args()

torch.manual_seed(0)
accelerator = Accelerator()
inner = 4 * options.width
network = torch.nn.Sequential(
    torch.nn.Linear(options.width, inner), torch.nn.GELU(), torch.nn.Linear(inner, options.width)
)
optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)
network, optimizer = accelerator.prepare(network, optimizer)
rows = torch.randn(options.batch, options.width, device=accelerator.device)

started = time.perf_counter()
for _ in range(options.steps):
    loss = (network(rows) - rows).square().mean()
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
last_loss = loss.item()  # waits for the device, so that the time is the work's
elapsed_ms = 1000 * (time.perf_counter() - started)

if accelerator.is_main_process:
    samples = options.steps * options.batch * accelerator.num_processes
    speed = {"samples_per_s": 1000 * samples / elapsed_ms}
    print(json.dumps({"loss": last_loss, "speed": speed, "time_ms": elapsed_ms}))
accelerator.end_training()
