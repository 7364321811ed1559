"""The error about a job that sbatch refuses, or whose script would contain a secret. Pure.

It names the line of the site file that has the refused value, if Slurm's message says which value this is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from orchestrator.errors import LaunchError
from orchestrator.executors.slurm.site import Site
from orchestrator.files.redaction import kind_of_secret

# A part of Slurm's message → the keys that may be the reason. The first part that fits counts.
_REASONS: Mapping[str, tuple[str, ...]] = {
    r"accounting/QOS policy": ("qos", "account", "time"),
    r"account": ("account", "partition"),
    r"\bqos\b": ("qos",),
    r"time limit": ("time",),
    r"feature": ("constraint",),
    r"\bgres\b": ("gpu_type",),
    r"node configuration|memory|cpu count|processors": (
        *("gpu_type", "node", "cpus_per_gpu", "mem_per_gpu", "constraint", "lines"),
    ),
    r"partition": ("partition",),
    r"option|reservation|license|node name|--[a-z]": ("lines",),
}
_NO_TIME = "write `time:` into the site file, or a smaller `timeout_s:` into the scenario"


def refusal(error: LaunchError, site: Site) -> LaunchError:
    """Return the error for a user whose job was refused with this message of Slurm."""
    reasons = (keys for part, keys in _REASONS.items() if re.search(part, str(error), re.IGNORECASE))
    keys = next(reasons, ())
    written = [key for key in keys if key in site.places]
    place = site.places[written[0]] if written else site.file
    lines = " or ".join(f"`{key}:`{_line(site.places[key]) if key != written[0] else ''}" for key in written)
    cures = [f"change {lines}"] if written else [_NO_TIME] if keys == ("time",) else []
    cures.append("`tunebench site check` shows what the cluster has")
    return LaunchError(f"{f'{place}: ' if place else ''}Slurm refused the job: {error}; {'; '.join(cures)}")


def refuse_secrets(site: Site) -> None:
    """Raise LaunchError if the site's shell lines or options contain a secret: the results folder keeps the script."""
    for key, texts in (("prologue", [site.prologue]), ("lines", site.lines)):
        if kind := next(filter(None, map(kind_of_secret, texts)), None):
            raise LaunchError(
                f"{site.places.get(key, key)}: `{key}:` contains {kind}, which would be written into the results folder; "
                "remove it from the site file and export it in the shell, so that runs inherit it"
            )


def _line(place: str) -> str:
    return f" (line {place.rsplit(':', 2)[1]})"
