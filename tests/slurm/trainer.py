"""A training of no work. `quick…` ends at once, `bad…` fails, `sleep<N>…` takes N seconds, `large<N>…` holds N MB for a while.

Each start is noted in FOLDER.
"""

import os
import sys
import time
from pathlib import Path

kind, folder = sys.argv[1], Path(sys.argv[2])
run = next(path for path in (Path.cwd(), *Path.cwd().parents) if path.parent.name == "runs")
(folder / f"started-{os.getpid()}-{time.time_ns()}").write_text(f"{run.parents[1].name}/{run.name}")
began = time.time()
if kind.startswith("bad"):
    raise SystemExit("it was asked to fail")
if kind.startswith("sleep"):
    time.sleep(float(kind.removeprefix("sleep").partition("-")[0]))
if kind.startswith("large"):
    held = [b"x" * 1_000_000 for _ in range(int(kind.removeprefix("large").partition("-")[0]))]
    time.sleep(10)  # some clusters look at the memory only now and then
print({"train_runtime": 1.0 + time.time() - began})
