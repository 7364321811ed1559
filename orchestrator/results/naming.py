"""The experiment of a results folder that a word on the command line means: by its id, by its values, or by a benchmark's name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from itertools import islice

from orchestrator.errors import ResultsError
from orchestrator.files.printable_text import one_line
from orchestrator.files.redaction import redact
from orchestrator.records import Experiment
from orchestrator.records.experiment import ids_named
from orchestrator.records.labels import labels, listed
from orchestrator.results.store import Store

_MOST_BENCHMARKS = 3


class NothingNamed(ResultsError):
    """A word that names no experiment of a results folder."""


def find(store: Store, word: str) -> str:
    """Return the only id that a word means. Raise NothingNamed if it means none, and ResultsError if it means several.

    The word is an id or a part of it (`ids_named`); else values that distinguish an experiment, such as `optim=sgd` or `sgd`; else
    the name of a benchmark, or a part of this name.
    """
    ids = store.ids()
    by_id = ids_named(word, ids)
    if len(by_id) == 1:
        return by_id[0]
    experiments = [*_readable(store, by_id or ids)]
    values = labels(experiments)
    matches = by_id or _with_values(word, {name: label.split() for name, label in values.items()})
    if not matches:
        tests = {name: found for name in ids if (found := _benchmarks(store, name))}
        matches = _with_values(word, tests)
        values |= {name: _few(found) for name, found in tests.items()}
    if len(matches) == 1:
        return matches[0]
    shown = listed(matches or ids, values)
    if matches:
        what = "ids" if by_id else "values"
        raise ResultsError(
            f"{store.root}: the {what} of {len(matches)} experiments contain {word!r}; name one of: {shown}"
        )
    raise NothingNamed(
        f"{store.root}: there is no experiment {word!r}{'. Allowed: ' if shown else '; the folder has none'}{shown}"
    )


def _readable(store: Store, ids: Iterable[str]) -> Iterable[Experiment]:
    for name in ids:
        with suppress(ResultsError):
            yield store.experiment(name)


def _benchmarks(store: Store, experiment_id: str) -> list[str]:
    """Return the names of the benchmarks in an experiment's records."""
    records = (run.record for run in store.runs(experiment_id) if run.record is not None)
    names = (str(row.get("fullname", "")) for record in records for row in record.benchmarks)
    return [one_line(redact(name)) for name in dict.fromkeys(names) if name]


def _few(names: Iterable[str]) -> str:
    several = list(names)
    more = len(several) - _MOST_BENCHMARKS
    return ", ".join(islice(several, _MOST_BENCHMARKS)) + (f" and {more} more" if more > 0 else "")


def _with_values(text: str, named: Mapping[str, Iterable[str]]) -> list[str]:
    """Return the ids with a value for each word of the text. A whole value comes before a part of a value."""
    ways: tuple[Callable[[str, str], bool], ...] = (_is_whole, _is_part)
    found = ([name for name, values in named.items() if _fits(text, values, fits)] for fits in ways)
    return next(filter(None, found), [])


def _fits(text: str, values: Iterable[str], fits: Callable[[str, str], bool]) -> bool:
    words, several = text.split(), list(values)
    return bool(words) and all(any(fits(word, value) for value in several) for word in words)


def _is_whole(word: str, value: str) -> bool:
    return word in (value, value.partition("=")[2], value.rpartition("::")[2])


def _is_part(word: str, value: str) -> bool:
    return word in value
