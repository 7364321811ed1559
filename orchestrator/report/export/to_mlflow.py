"""Runs in MLflow: on a tracking server, or in a local database if no server is named.

MLflow 3 keeps local runs in a database. If the destination is a folder, it gets `mlflow.db` and `mlruns/`. `mlflow ui` expects
them in its working folder. A run is recognised by the tag `tunebench.run`. If the run's status in MLflow is still RUNNING, an
earlier export was killed. Then the run is sent again, into the same MLflow run. Exports into one local database run one after
the other.

What it leaves out: names that MLflow does not allow, and text beyond MLflow's limits of length. The export reports each omission.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from orchestrator.errors import OrchestratorError
from orchestrator.files.locking import locked
from orchestrator.files.printable_text import quoted
from orchestrator.files.reading import resolved
from orchestrator.report.export.tracker import Status, Tracker, TrackerRun, outside_of_results, package_of

KEY_TAG, ADDRESS_VARIABLE = "tunebench.run", "MLFLOW_TRACKING_URI"
# Letters, digits and some signs, without paths and the names that MLflow and Tunebench use.
_ALLOWED = re.compile(r"(?!mlflow\.|tunebench\.|[./])(?!.*(//|/\.))[\w.\-/ :]{1,250}(?<!/)", re.ASCII)

# An address of a database in a file.
_LOCAL = re.compile(r"sqlite:///(?!:memory:|file:|\?|$)")

_LONGEST_PARAM, _LONGEST_TAG = 6000, 8000
_METRICS_AT_ONCE, _WORDS_AT_ONCE = 1000, 100
_ENDINGS = {Status.OK: "FINISHED", Status.FAILED: "FAILED", Status.KILLED: "KILLED"}

T = TypeVar("T")


@contextmanager
def opened(destination: str | None, *, project: str, say: Callable[[str], None]) -> Iterator[Tracker]:
    """Open a tracking address, or a folder with a local database.

    The default is MLFLOW_TRACKING_URI, or else the working folder.
    """
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # an export is not reported to MLflow
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")  # with MLflow's seven, a wrong address takes minutes
    with package_of("mlflow"):
        import mlflow.entities as entities
        from mlflow.tracking import MlflowClient
    address, artifacts = _address(destination or os.environ.get(ADDRESS_VARIABLE) or ".")
    if address.startswith("sqlite:"):
        with package_of("mlflow"):
            for name in ("sqlalchemy", "alembic"):  # mlflow-skinny lacks them, and its own error does not name them
                import_module(name)
    with _made_and_locked(address, say) if _LOCAL.match(address) else nullcontext():
        client = MlflowClient(tracking_uri=address, registry_uri=address)
        yield _Experiment(client, entities, name=project, place=address, artifacts=artifacts)


@contextmanager
def _made_and_locked(address: str, say: Callable[[str], None]) -> Iterator[None]:
    """Keep other exports out of a local database during a `with` block. Make the database if it is missing.

    If another export has the database, give `say` one sentence and wait.
    """
    from sqlalchemy.engine import make_url

    url = make_url(address)
    database = resolved(Path(url.database or ""))
    database.parent.mkdir(parents=True, exist_ok=True)
    lock = database.with_name(f".{database.name}.lock")
    with ExitStack() as held:
        if held.enter_context(locked(lock, fcntl.LOCK_EX | fcntl.LOCK_NB, option="--dest")) is None:
            say(f"waiting for another export, which writes into {database}")
            held.enter_context(locked(lock, fcntl.LOCK_EX, option="--dest"))
        try:
            _make_if_missing(url, database)
            yield
        finally:
            with suppress(OSError):
                lock.unlink()


def _make_if_missing(url: Any, database: Path) -> None:
    """Make the database under a temporary name, and rename it when its tables are complete. The caller has the lock.

    MLflow needs seconds for the tables, and cannot use a database in which some are missing.
    """
    aside = database.with_name(f".{database.name}.new")
    for left in (aside, aside.with_name(f"{aside.name}-journal")):  # by an export that was killed
        left.unlink(missing_ok=True)
    if database.exists():
        return
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    store = SqlAlchemyStore(url.set(database=str(aside)).render_as_string(hide_password=False), "./mlruns")
    store.engine.dispose()
    if not database.exists():  # `mlflow ui` makes one, too
        aside.rename(database)


def _address(destination: str) -> tuple[str, str | None]:
    """Return two values: the tracking address, and the place for the artifacts of a new local experiment.

    The second value is None if the server decides.
    """
    if "://" in destination or destination == "databricks":
        return destination, None
    folder = outside_of_results(resolved(Path(destination)))
    if folder.exists() and not folder.is_dir():
        raise OrchestratorError(
            f"--dest {destination}: this is not a folder; name a folder, or an address such as http://…"
        )
    (folder / "mlruns").mkdir(parents=True, exist_ok=True)
    return f"sqlite:///{folder / 'mlflow.db'}", (folder / "mlruns").as_uri()


class _Experiment:
    def __init__(self, client: Any, entities: Any, *, name: str, place: str, artifacts: str | None) -> None:
        self.place = place
        self._client, self._entities = client, entities
        known = client.get_experiment_by_name(name)
        if known is not None and known.lifecycle_stage != "active":
            raise OrchestratorError(
                f"MLflow's experiment {name!r} was deleted, and its name is still taken; restore it in MLflow, or name "
                "another experiment with --experiment"
            )
        self._id = known.experiment_id if known is not None else client.create_experiment(name, artifacts)

    def has(self, run: TrackerRun) -> bool:
        stored = self._find(run)
        return stored is not None and stored.info.status != "RUNNING"

    def _find(self, run: TrackerRun) -> Any:
        return next(iter(self._client.search_runs([self._id], f"tags.`{KEY_TAG}` = '{run.key}'", max_results=1)), None)

    def add(self, run: TrackerRun) -> list[str]:
        stored = self._find(run) or self._client.create_run(
            self._id,
            start_time=_milliseconds(run.started_at),
            tags={KEY_TAG: run.key, "tunebench.experiment": run.experiment},
            run_name=run.full_name,
        )
        run_id, notes = stored.info.run_id, list[str]()
        self._log_words(run_id, run, notes)
        self._log_numbers(run_id, run, notes)
        for name, text in run.texts.items():
            self._client.log_text(run_id, text, name)
        self._client.set_terminated(run_id, _ENDINGS[run.status], _milliseconds(run.ended_at))
        return notes

    def _log_words(self, run_id: str, run: TrackerRun, notes: list[str]) -> None:
        params = _fitting(run.params, _LONGEST_PARAM, "argument", notes)
        tags = _fitting(run.tags, _LONGEST_TAG, "tag", notes)
        for part in _batches([self._entities.Param(name, text) for name, text in params.items()], _WORDS_AT_ONCE):
            self._client.log_batch(run_id, params=part)
        for part in _batches([self._entities.RunTag(name, text) for name, text in tags.items()], _WORDS_AT_ONCE):
            self._client.log_batch(run_id, tags=part)

    def _log_numbers(self, run_id: str, run: TrackerRun, notes: list[str]) -> None:
        end = _milliseconds(run.ended_at) or 0
        names = [name for name in (*run.metrics, *run.series) if not _ALLOWED.fullmatch(name)]
        notes += [f"{quoted(name, longest=300)} is not a valid name of a metric in MLflow: left out" for name in names]
        metric = self._entities.Metric
        points = [metric(name, value, end, 0) for name, value in run.metrics.items() if name not in names]
        points += [
            metric(name, point.value, _milliseconds(point.at), point.step)
            for name, series in run.series.items()
            if name not in names
            for point in series
        ]
        for part in _batches(points, _METRICS_AT_ONCE):
            self._client.log_batch(run_id, metrics=part)


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds * 1000)


def _fitting(words: Mapping[str, str], longest: int, what: str, notes: list[str]) -> dict[str, str]:
    """Return the texts that MLflow can store. Skip invalid names and cut long texts; `notes` gets a sentence for each."""
    fitting = {name: text for name, text in words.items() if _ALLOWED.fullmatch(name)}
    notes += [
        f"{quoted(name, longest=300)} is not a valid name of {what} in MLflow: left out"
        for name in words
        if name not in fitting
    ]
    long = [name for name, text in fitting.items() if len(text) > longest]
    notes += [f"{what} {name} is cut to {longest} characters of {len(fitting[name])}" for name in long]
    return {name: text[:longest] for name, text in fitting.items()}


def _batches(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (items[start : start + size] for start in range(0, len(items), size))
