"""The command `tunebench` on a site that the first argument describes in JSON: tests are quicker than a site file may ask for."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from orchestrator import cli, executors
from orchestrator.executors.slurm.site import Site


def main() -> None:
    fields = json.loads(sys.argv.pop(1))
    fields["lines"] = tuple(fields.get("lines", ()))
    executors.EXECUTORS["slurm"] = executors.SlurmExecutor(Site(**fields))  # type: ignore[index]
    cli.main()


if __name__ == "__main__":
    main()
