"""A training of no work. `quick…` ends at once, `bad…` fails, and `sleep<N>…` takes N seconds. Each start is noted in FOLDER."""

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
print({"train_runtime": 1.0 + time.time() - began})
