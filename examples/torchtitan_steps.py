"""Start torchtitan, and print a line for each of its steps, as `steps: stdout` requires. The last line has its last metrics.

    python torchtitan_steps.py GPUS PORT --module llama3 --config llama3_debugmodel --training.seq_len 2048 …

The arguments after PORT are torchtitan's own. torchtitan logs a line for each step if `--metrics.log_freq` is 1. The tokens of a
step are right if all GPUs are data-parallel (FSDP, HSDP or DDP), and if torchtitan does not accumulate gradients.
"""

import itertools
import json
import re
import subprocess
import sys
from datetime import datetime

# The time is that of torchtitan's line. When the line arrives says little, because torchrun passes lines on in bundles.
TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}")
BEGIN = re.compile(r"- Training starts at step (\d+)")
STEP = re.compile(
    r"- step: +(\d+)  loss: +(\S+)  grad_norm: +\S+  memory: +([\d.]+)GiB\(\S+\)  tps: ([\d,]+)  tflops: \S+  mfu: (\S+)"
)

gpus, port, *arguments = sys.argv[1:]
given = dict(itertools.pairwise(arguments))
samples = int(gpus) * int(given["--training.local_batch_size"])
tokens = samples * int(given["--training.seq_len"])
# As torchtitan's own start script does: only the output of rank 0 is shown.
launch = [
    "torch.distributed.run",
    "--nproc_per_node",
    gpus,
    "--master_port",
    port,
    "--tee",
    "3",
    "--local-ranks-filter",
    "0",
]
words = [sys.executable, "-m", *launch, "-m", "torchtitan.train", *arguments, "--metrics.disable_color_printing"]
metrics: dict[str, float] = {}
with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as training:
    for line in training.stdout or ():
        print(line, end="", flush=True)
        stamp = TIME.search(line)
        now = datetime.strptime(stamp[0], "%Y-%m-%d %H:%M:%S,%f").timestamp() if stamp else None
        if found := BEGIN.search(line):
            print(json.dumps({"step": int(found[1]) - 1, "time": now}), flush=True)
        elif found := STEP.search(line):
            print(json.dumps({"step": int(found[1]), "time": now, "tokens": tokens, "samples": samples}), flush=True)
            names = ("loss_metrics/global_avg_loss", "memory/max_reserved(GiB)", "throughput(tps)", "mfu(%)")
            texts = (text.replace(",", "").removesuffix("%") for text in found.groups()[1:])
            metrics = {name: float(text) for name, text in zip(names, texts, strict=True) if text != "N/A"}
print(json.dumps(metrics))
sys.exit(training.returncode)
