"""Slurm's notation for times, GPUs and options. Pure functions from texts to values."""

from __future__ import annotations

import re
from collections.abc import Mapping

_TIME = re.compile(r"(?:(?P<days>\d{1,5})-)?(?P<fields>\d{1,7}(?::\d{1,2}){0,2})", re.ASCII)
_UNITS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_WITH_UNITS = re.compile(r"(?:\d{1,7}[dhms])+", re.ASCII)
_NO_LIMIT = frozenset({"UNLIMITED", "INFINITE", "NONE", "N/A"})
_GPU = re.compile(r"gpu(?::(?P<type>[^:]+))?:(?P<count>\d{1,9})")

_OPTION = re.compile(r"--(?P<name>[a-z][a-z0-9-]*)(?:(?P<join>=|\s+)(?P<value>\S+))?", re.ASCII)
_FILES = "Tunebench reads the job's files at their own place"
_ARRAY = "Tunebench sets it for each array"
_ENVIRONMENT = "Tunebench sets the job's environment; for a variable write `export NAME=value` under 'prologue:'"
_ANSWER = "Tunebench reads the answer of sbatch"
_NO_JOB = "with it sbatch submits no job"
# Options of sbatch that a site file may not set: name → reason.
_REFUSED: Mapping[str, str] = {
    **dict.fromkeys(("array", "job-name", "wrap", "nodes", "ntasks", "ntasks-per-node", "gres", "gpus"), _ARRAY),
    **dict.fromkeys(("gpus-per-node", "gpus-per-task", "gpus-per-socket"), _ARRAY),
    **dict.fromkeys(("output", "error", "input", "chdir", "open-mode"), _FILES),
    **dict.fromkeys(("export", "export-file", "get-user-env"), _ENVIRONMENT),
    **dict.fromkeys(("requeue", "no-requeue"), "Tunebench decides which runs are repeated"),
    **dict.fromkeys(("parsable", "quiet"), _ANSWER),
    **dict.fromkeys(("test-only", "help", "usage", "version"), _NO_JOB),
    "wait": "Tunebench waits for all arrays at once",
    "hold": "a held job does not start by itself",
    "signal": "Tunebench chooses the signal before the time limit",
    "clusters": "Tunebench asks only one cluster for its jobs",
}
# Options of sbatch that have a key in the site file: name → key.
_KEYS: Mapping[str, str] = {
    **{name: name for name in ("partition", "account", "qos", "constraint", "time")},
    **{"cpus-per-gpu": "cpus_per_gpu", "cpus-per-task": "cpus_per_gpu", "mem-per-gpu": "mem_per_gpu"},
}
# A name of its own, although longer names of refused options begin with it.
_WHOLE = frozenset({"mem"})


def parse_time(text: str) -> float | None:
    """Return the seconds of a time, or None for a time without an end (`UNLIMITED`).

    The forms are Slurm's own (minutes, `H:M:S`, `D-H:M:S`), and numbers with units such as `1h30m`. Raise ValueError for other
    texts.
    """
    text = text.strip()
    if text.upper() in _NO_LIMIT:
        return None
    if _WITH_UNITS.fullmatch(text.lower()):
        return float(sum(int(part[:-1]) * _UNITS[part[-1]] for part in re.findall(r"\d+[dhms]", text.lower())))
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a time; write it like 2:00:00, 1-12:00:00, 30m, or 90 for minutes")
    fields = [int(field) for field in match["fields"].split(":")]
    if match["days"] is None:  # `M`, `M:S` or `H:M:S`
        hours, minutes, seconds = ([0, fields[0], 0], [0, *fields], fields)[len(fields) - 1]
    else:  # `D-H`, `D-H:M` or `D-H:M:S`
        hours, minutes, seconds = [*fields, 0, 0][:3]
    return float(int(match["days"] or 0) * 86_400 + hours * 3_600 + minutes * 60 + seconds)


def time_text(seconds: float | None) -> str:
    """Return seconds in Slurm's form `D-HH:MM:SS`, without the days if there are none. None is `UNLIMITED`."""
    if seconds is None:
        return "UNLIMITED"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return (f"{days}-{hours:02}" if days else f"{hours}") + f":{minutes:02}:{rest:02}"


def gpus_of_gres(text: str) -> dict[str, int]:
    """Return the GPUs in a node's `Gres`, as type → number. GPUs without a type have the type ''.

    For example, `gpu:a100:8(S:0-1),shard:8` gives `{'a100': 8}`.
    """
    found: dict[str, int] = {}
    for part in re.sub(r"\([^)]*\)", "", text).split(","):
        if match := _GPU.fullmatch(part.strip()):
            kind = match["type"] or ""
            found[kind] = found.get(kind, 0) + int(match["count"])
    return found


def refuse_option(line: str) -> None:
    """Raise ValueError if `line` is not one option of sbatch, or if it contradicts the options that Tunebench sets.

    sbatch accepts a shortened name, so a name that begins a refused name is refused as well.
    """
    if line.lstrip().startswith("#"):
        raise ValueError(f"{line!r} begins with #; write only the option, such as --exclusive")
    match = _OPTION.fullmatch(line)
    value = match["value"] or "" if match else ""
    if match is None or not value.isprintable() or (match["join"] != "=" and value.startswith("-")):
        raise ValueError(f"{line!r} is not one long option of sbatch; write it like --exclusive or --reservation=NAME")
    if any(character in value for character in "\"'\\`$#"):
        raise ValueError(f"{line!r} contains a quote, \\, `, $ or #; write a value without them")
    name = match["name"]
    if key := _meant_by(name, _KEYS):
        raise ValueError(f"--{name} has a key of its own; write it under '{_KEYS[key]}:'")
    if option := _meant_by(name, _REFUSED):
        short = "" if option == name else f" (it means --{option})"
        raise ValueError(f"--{name}{short} is not allowed: {_REFUSED[option]}; remove it")


def _meant_by(name: str, options: Mapping[str, str]) -> str | None:
    """Return the option that `name` names or shortens, or None."""
    if name in options or name in _WHOLE:
        return name if name in options else None
    return next((option for option in options if option.startswith(name)), None)
