"""Runs Thunder's benchmark of LitGPT models, and first writes which executors Thunder has: `thunder_benchmark.py FILE ARGUMENTS…`.

FILE is written by rank 0. It has the names of the executors that Thunder uses by default, and of all executors that can be imported
(`{"default": […], "all": […]}`). nvFuser is among them only if it is installed. A failure to find them is written as `error`, and
does not end the benchmark.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import sys

MODULE = "thunder.benchmarks.benchmark_litgpt"


def executors() -> dict[str, object]:
    """Return the names of Thunder's executors, or the error."""
    try:
        thunder = importlib.import_module("thunder")
        found = {"default": thunder.get_default_executors(), "all": thunder.get_all_executors()}
        return {kind: [str(executor.name) for executor in several] for kind, several in found.items()}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


def main(file: str, *arguments: str) -> None:
    if os.environ.get("RANK", "0") == "0":
        with open(file, "w", encoding="utf-8") as written:
            json.dump(executors(), written)
    sys.path[0] = os.getcwd()  # as `python -m` does
    sys.argv[1:] = arguments
    runpy.run_module(MODULE, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
