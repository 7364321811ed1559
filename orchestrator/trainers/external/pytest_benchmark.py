"""The trainer `pytest_benchmark`: a suite of pytest-benchmark. Each run is one process, `python -m pytest PATH -k KEYWORD`.

The arguments are `path`, a test file, folder or node id as seen from the scenario file, `keyword`, and pytest's own options with
underscores: `benchmark_min_rounds: 20` becomes `--benchmark-min-rounds=20`. Pytest starts in the scenario file's folder. At its
end, pytest-benchmark writes RESULTS with all rounds. A benchmark's value in a run is the median of its rounds, because the rounds
of a process are not independent.

Left out: tests without the fixture `benchmark`, which are skipped; imports, fixtures and calibration; memory.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from statistics import geometric_mean
from types import MappingProxyType
from typing import Any

from orchestrator.errors import suggestion
from orchestrator.files import reading
from orchestrator.files.printable_text import without_styles
from orchestrator.records import Caveat, Experiment, Measurement, Reason, RunFolder, Text, as_items
from orchestrator.records.run_folder import path_text
from orchestrator.trainers import argument_values
from orchestrator.trainers.argument_names import is_true
from orchestrator.trainers.external.pytest_benchmark_file import (
    FULLNAME,
    ROUND_TIME,
    Benchmark,
    benchmarks,
    is_pytest_benchmark,
)
from orchestrator.trainers.trainer import Trainer

NAME, RESULTS, CACHE = "pytest_benchmark", "benchmarks.json", "pytest_cache"
PATH, KEYWORD = "path", "keyword"
_NO_OPTIONS = (PATH, KEYWORD, "model_name_or_path")

# Options that decide what is measured, or where it is written.
_OURS = ("json", "storage", "only", "enable", "disable", "skip", "cprofile")
_OPTION = re.compile(r"[a-z]\w*", re.ASCII)
_WORDS = {"true": "on", "yes": "on", "on": "on", "false": "off", "no": "off", "off": "off"}
_WARMUP = "benchmark_warmup"

# A call of one microsecond has 200,000 rounds in a second, which take 8 MiB. The times are removed before the file is parsed.
_MOST_BYTES = 1024 * reading.MIB
# The plugin's indentation tells the rounds from a parameter named `data`. No text in JSON has a newline, so no text matches.
_ROUNDS = re.compile(rb'(\n {12}"stats": \{\n(?: {16}"(?!data")\w+": [^\n]*\n)* {16}"data": )\[[-+.\w,\s]*\]')
_TAIL_BYTES = 256 * 1024
_ENDED_WELL = (0, 5)  # pytest ends with exit code 5 if it collected no test
_FAILED = re.compile(r"^(?:FAILED|ERROR) (?P<test>\S.*?)(?: - (?P<error>.*))?$", re.MULTILINE)
_ERROR_LINE = re.compile(r"^E   +(\S.*)$", re.MULTILINE)
_USAGE = re.compile(r"^(?:ERROR|.*pytest: error): (?!usage: )(?P<error>\S.*)$", re.MULTILINE)
# Why pytest stopped. Pytest fills the line, unless the reason has several lines; a suite may print a short one of its own.
_WORDS_OF_PYTEST = r"_pytest\.outcomes\.Exit|KeyboardInterrupt|Interrupted|stopping after"
_STOPPED = re.compile(rf"^(?=!+ (?:{_WORDS_OF_PYTEST})|(?=.{{79}})!+ \S.* !+$)!+ (\S.*?)(?: !+)?$", re.MULTILINE)
_SUMMARY = " short test summary info ="
_COUNT = r"\d+ (?:subtests )?(?:passed|failed|errors?|skipped|deselected|xfailed|xpassed|warnings?|rerun)"
_LAST_LINE = re.compile(rf"^(?:=+ )?((?:no tests \w+|{_COUNT}(?:, {_COUNT})*) in [\d.]+s)", re.MULTILINE)
_NOT_PASSED = re.compile(r"\b[1-9]\d* (?:subtests )?(?:failed|errors?)\b")


class PytestBenchmark(Trainer):
    """A suite of benchmarks, in one process without accelerate."""

    name = NAME
    requires: tuple[str, ...] = ("pytest", "pytest-benchmark")
    needs_model = False
    builds_models = False
    takes_defaults = False
    launched = False
    result = ROUND_TIME
    variables: Mapping[str, str] = MappingProxyType({"COLUMNS": "200"})  # else pytest cuts the summary's error messages

    def command(self, experiment: Experiment, run_dir: Path) -> list[str]:
        keyword = experiment.arguments.get(KEYWORD)
        words = ["-m", "pytest", _path(experiment), *(("-k", str(keyword)) if keyword else ()), "-rfE"]
        words += ["--benchmark-only", "--benchmark-enable", f"--benchmark-json={path_text(run_dir, RESULTS)}"]
        own = path_text(run_dir, CACHE)  # else pytest and its plugin make folders in the user's folder
        words += ["-o", f"cache_dir={own}", f"--benchmark-storage=file://{own}"]
        return [*words, *_options(experiment.arguments)]

    def problem(self, experiment: Experiment) -> Reason | None:
        found = _wrong(experiment)
        return Reason(kind=NAME, text=found) if found else None

    def metrics(self, run_dir: Path) -> list[Measurement]:
        """Return the number of benchmarks, and the geometric mean of their times: adaptive repeats need one number of a run."""
        found, why = _read(run_dir)
        times = [benchmark.median for benchmark in found if benchmark.median is not None]
        refused = next((f"{one.fullname}: {one.error}" for one in found if one.is_refused), None)
        why = _unfinished(_tail(RunFolder(run_dir).stdout)) or why or refused
        mean = geometric_mean(times) if times and not why else None
        missing = None if mean else Caveat(detail=why or f"{RESULTS} has no times above 0")
        count = [Measurement(name="benchmarks", value=len(found), source=RESULTS)] if found else []
        return [Measurement(name=ROUND_TIME, value=mean, source=RESULTS, missing=missing), *count]

    def benchmarks(self, run_dir: Path) -> Sequence[Mapping[str, Any]]:
        return [_row(benchmark) for benchmark in _read(run_dir)[0]]

    def failure(self, run_dir: Path, exit_code: int) -> str | None:
        """Return the first failed test with its error, else pytest's own error, else why there is no time or how pytest ended."""
        out, err = (_tail(log) for log in (RunFolder(run_dir).stdout, RunFolder(run_dir).stderr))
        failed = list(_FAILED.finditer(out))
        if failed:
            more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
            errors = _ERROR_LINE.findall(out)  # the summary has no error of a file that could not be imported
            return f"{failed[0]['test']}{more}: {failed[0]['error'] or (errors or ['it failed'])[-1]}"
        if usage := _USAGE.search(err):
            return f"pytest: {usage['error']}"
        missing = self.metrics(run_dir)[0].missing
        if exit_code not in _ENDED_WELL or missing is None:
            return _ending(out, exit_code)
        if (run_dir / RESULTS).exists():
            return missing.detail
        counts = _LAST_LINE.findall(out)[-1:]
        needed = "select a test with the fixture 'benchmark' by path and keyword"
        return f"pytest ran no benchmark ({counts[0]}); {needed}" if counts else None


def _unfinished(out: str) -> str | None:
    """Return why the benchmarks are not those of the suite, as pytest's summary says. A plugin may set the exit code to 0."""
    summary = out.rpartition(_SUMMARY)[2] if _SUMMARY in out else ""
    if failed := _FAILED.search(summary):
        return f"{failed['test']} failed"
    if stopped := _STOPPED.findall(out):
        return f"pytest stopped: {stopped[-1]}"
    counts = _LAST_LINE.findall(out)[-1:]  # with `--no-summary` only these tell
    return f"pytest ended with {counts[0]}" if counts and _NOT_PASSED.search(counts[0]) else None


def _ending(out: str, exit_code: int) -> str | None:
    """Return how pytest ended, in the words of its last lines. Return None if the log has no such lines."""
    lines = [*_STOPPED.findall(out)[-1:], *_LAST_LINE.findall(out)[-1:]]
    return f"pytest ended with exit code {exit_code}: {'; '.join(lines)}" if lines else None


def file_of(arguments: Mapping[str, Text]) -> str:
    """Return the file or folder in the argument `path`, which may be a node id such as `bench.py::test_sort[10]`."""
    return str(arguments.get(PATH, "")).partition("::")[0]


def _path(experiment: Experiment) -> str:
    """Return the absolute path, with the node of a node id. The scenario file's folder is the base."""
    written = str(experiment.arguments.get(PATH, ""))
    file = experiment.script.path if experiment.script is not None else file_of(experiment.arguments)
    return file + written[len(file_of(experiment.arguments)) :]


def _options(arguments: Mapping[str, Text]) -> Iterator[str]:
    """Yield pytest's options. Those without a value are there if they are true."""
    kinds = argument_values.types(NAME)
    for name, value in arguments.items():
        if name in _NO_OPTIONS:
            continue
        option = f"--{name.replace('_', '-')}"
        if kinds.get(name) == argument_values.TRUTH:
            yield from [option] if is_true(value) else []
        else:
            items = as_items(value)
            yield from (f"{option}={_WORDS.get(item.lower(), item) if name == _WARMUP else item}" for item in items)


def _wrong(experiment: Experiment) -> str | None:
    """Return a sentence about arguments that pytest would refuse, or None."""
    arguments = experiment.arguments
    if not isinstance(arguments.get(PATH), str) or not isinstance(arguments.get(KEYWORD, ""), str):
        name = KEYWORD if isinstance(arguments.get(PATH), str) else PATH
        return f"{name} must be one text; write it under 'arguments:', or several values under 'matrix:'"
    for name in arguments:
        if name.removeprefix("benchmark_") in _OURS and name.startswith("benchmark_"):
            return f"Tunebench decides {name}; remove it"
        if not _OPTION.fullmatch(name):
            return f"{name} is not the name of an option of pytest; write it with underscores, as benchmark_min_rounds"
    if experiment.num_gpus > 1:
        return "pytest_benchmark runs in one process; write num_gpus: 1"
    if experiment.framework is not None and experiment.framework.accelerate:
        return f"framework configuration {experiment.framework.name!r} configures accelerate, which pytest does not use; remove it"
    return _missing_file(experiment)


def _missing_file(experiment: Experiment) -> str | None:
    if experiment.script is None or os.path.exists(experiment.script.path):
        return None
    folder = Path(experiment.script.path).parent
    names = [file.name for file in folder.glob("*.py")]
    near = (
        suggestion(Path(experiment.script.path).name, names)
        if names
        else "; write its path as seen from the scenario file"
    )
    return f"there is no test file or folder {file_of(experiment.arguments)!r} in {experiment.script.folder}{near}"


def _row(benchmark: Benchmark) -> dict[str, Any]:
    numbers = {ROUND_TIME: benchmark.median, "round_iqr_s": benchmark.iqr, "rounds": benchmark.rounds or None}
    known = {name: value for name, value in numbers.items() if value is not None}
    more = {name: value for name, value in {"params": benchmark.params, "group": benchmark.group}.items() if value}
    return {FULLNAME: benchmark.fullname, **more, **known}


def _read(run_dir: Path) -> tuple[tuple[Benchmark, ...], str | None]:
    """Return the benchmarks in the run's file, and a reason if the file cannot be used."""
    place, started = run_dir / RESULTS, RunFolder(run_dir).script  # that file is written just before pytest starts
    try:
        written = place.stat()
        if started.exists() and written.st_mtime_ns < started.stat().st_mtime_ns:
            return (), f"{RESULTS} is older than the run"
        return _parsed(place, written.st_mtime_ns, written.st_size), None
    except FileNotFoundError:
        return (), f"pytest ended before it wrote {RESULTS}"
    except (OSError, ValueError) as error:
        return (), f"{RESULTS} cannot be read: {reading.reason(error)}"


@lru_cache(maxsize=1)
def _parsed(place: Path, modified_ns: int, size: int) -> tuple[Benchmark, ...]:
    """Return the benchmarks in a file. The file is read once for all questions about the run."""
    content = _ROUNDS.sub(rb"\1[]", reading.read_bytes(place, limit=_MOST_BYTES))
    document = reading.parse_json(content, finite=False)
    if not is_pytest_benchmark(document):
        raise reading.Unreadable("it is not from pytest-benchmark")
    return tuple(benchmarks(document))


def _tail(log: Path) -> str:
    try:
        return without_styles(reading.read_tail(log, limit=_TAIL_BYTES))
    except (OSError, ValueError):
        return ""
