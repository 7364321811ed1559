"""Runs handed to trackers, into real local stores that are read back as their own tools read them: TensorBoard's and MLflow's.

The packages of Weights & Biases and Trackio are no requirement of the tests. What they are given is the same. A few lines stand in
for Trackio, which warns where others refuse.
"""

from __future__ import annotations

import json
import math
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from email.message import Message
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError

import pytest
from factories.results import ended, experiment
from mlflow.tracking import MlflowClient
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import metadata as hparams

from orchestrator.cli.results.report_show_status import Target
from orchestrator.errors import OrchestratorError
from orchestrator.measure.metrics import METRICS
from orchestrator.records import Device, Framework, Measurement, RunRecord
from orchestrator.records import Status as Ending
from orchestrator.report.export import TARGETS, export, reading, to_wandb
from orchestrator.report.export.series import MOST_POINTS
from orchestrator.report.export.to_wandb import rows
from orchestrator.report.export.tracker import Point, Status, package_of
from orchestrator.results.store import Store, write_record

ROOT = Path(__file__).resolve().parents[2]
BEGIN = 1.7e9
TOKEN = "hf_QwErTyUiOpAsDfGhJkLzXcVb"
STEPS = 2500

LORA = experiment(
    id="lora-tiny-0123456789ab",
    scenario="lora",
    model="config:tiny-llama",
    device=Device.CUDA,
    framework=Framework(name="liger", digest="44136fa355b3"),
    arguments={"model_name_or_path": "config:tiny-llama", "learning_rate": "2e-5", "hub_token": "plain-word-x1"},
    repeats=3,
)


def record(repeat: int, **changes: Any) -> RunRecord:
    numbers: dict[str, Any] = {
        "tokens_per_s": 1000.0 + repeat,
        "peak_allocated_bytes": 44_788_083_200,
        "steady_found_by": "found",
    }
    known = replace(
        ended(LORA, repeat, **numbers),
        started_at=BEGIN + 100 * repeat,
        wall_s=60.0,
        settings={"dtype": "bfloat16", "world_size": 1},
        provenance={"git": {"commit": "abc123", "dirty": False}, "packages": {"torch": "2.13.0"}},
    )
    return replace(known, **changes)


@pytest.fixture
def campaign(tmp_path: Path) -> Path:
    """Two repeats that ended well, one that failed; the first with series longer than a tracker is given."""
    failed = record(3, status=Ending.FAILED, kind="oom_cuda", cause="CUDA out of memory", exit_code=1, measurements=())
    store = Store.create(tmp_path / "campaign", {})
    store.add([replace(LORA, arguments={name: text for name, text in LORA.arguments.items() if name != "hub_token"})])
    plant = store.root / "experiments" / LORA.id / "experiment.json"
    known = json.loads(plant.read_text())  # the store refuses secrets; a folder from elsewhere may hold one
    plant.write_text(json.dumps({**known, "arguments": dict(LORA.arguments)}))
    for one in (record(1), record(2), failed):
        run_dir = store.run_dir(LORA.id, one.repeat, 1)
        run_dir.mkdir(parents=True)
        (run_dir / "command.sh").write_text(f"#!/bin/bash\nexport HF_TOKEN={TOKEN}\nexec true\n")
        (run_dir / "stderr.log").write_text("y" * 100_000 + f"\nlogged in with {TOKEN}\nthe last line\n")
        write_record(run_dir, one)
    _write_series(store.run_dir(LORA.id, 1, 1))
    return store.root


def _write_series(run_dir: Path) -> None:
    lines = [{"step": n, "t": BEGIN + 110 + n / 100, "s": 0.01, "wait_s": 0.001} for n in range(1, STEPS + 1)]
    lines[1233]["s"] = 9.5
    losses = [{"step": n, "t": BEGIN + 110 + n / 100, "loss": 5 - n / 1000} for n in range(100, STEPS, 100)]
    hostile = [{"step": 2**70, "t": 1e300, "s": 1.0}, {"step": 7, "t": 1.0, "loss": None}, {"step": "x", "loss": "nan"}]
    text = "".join(json.dumps(line) + "\n" for line in (*lines, *losses, *hostile))
    (run_dir / "steps-rank0.jsonl").write_text(text + '{"step": 8, "t": 1.0, "loss": NaN}\n{"half')
    samples = [
        f"{BEGIN + 100 + n / 2:.3f},0,{what},{value}"
        for n in range(6)
        for what, value in (("memory", n * 2**30), ("power", 80.5))
    ]
    (run_dir / "samples-nvml.csv").write_text("\n".join(["time,gpu,what,value", *samples, "# {}"]) + "\n")


@pytest.fixture
def events(campaign: Path, tmp_path: Path) -> EventAccumulator:
    done = export(campaign, to="tensorboard", destination=str(tmp_path / "events"))
    assert (done.new, done.already, done.warnings) == (3, 0, ())
    return _events(tmp_path / "events", repeat=1)


def _events(folder: Path, *, repeat: int) -> EventAccumulator:
    (run,) = folder.glob(f"campaign/{LORA.id}/r{repeat}-t1-*")
    found = EventAccumulator(str(run), size_guidance={"scalars": 0, "tensors": 0})
    found.Reload()
    return found


def test_the_command_offers_every_target() -> None:
    assert {target.value for target in Target} == {*TARGETS}


def test_tensorboard_shows_what_was_measured(events: EventAccumulator) -> None:
    (speed,) = events.Scalars("tokens_per_s")
    assert (speed.value, speed.wall_time) == (1001.0, BEGIN + 160)
    assert events.Scalars("peak_allocated_bytes")[0].value == pytest.approx(44_788_083_200, rel=1e-7)
    assert "tokens_per_s" in METRICS and "steady_found_by" not in events.Tags()["scalars"]


def test_tensorboard_shows_series_that_are_bounded_and_keep_their_extremes(events: EventAccumulator) -> None:
    times = events.Scalars("steps/step_time_s")
    assert len(times) <= MOST_POINTS
    assert (times[0].step, times[-1].step) == (1, STEPS)
    assert [(one.step, one.value) for one in times if one.value > 1] == [(1234, 9.5)]
    assert times[0].wall_time == pytest.approx(BEGIN + 110.01)
    assert [one.step for one in events.Scalars("steps/loss")] == [*range(100, STEPS, 100)]
    memory = events.Scalars("gpu0/memory_bytes")
    assert [(one.step, one.value) for one in memory] == [(500 * n, n * 2.0**30) for n in range(6)]
    assert [one.value for one in events.Scalars("gpu0/power_w")] == [80.5] * 6


def test_tensorboard_knows_the_arguments_and_how_each_run_ended(events: EventAccumulator, tmp_path: Path) -> None:
    plugin = events.PluginTagToContent("hparams")
    begun = hparams.parse_session_start_info_plugin_data(plugin[hparams.SESSION_START_INFO_TAG])
    assert begun.hparams["learning_rate"].number_value == 2e-5
    assert begun.hparams["framework_config"].string_value == "liger"
    assert begun.group_name == LORA.id  # repeats are sessions of one trial
    endings = []
    for repeat in (1, 3):
        content = _events(tmp_path / "events", repeat=repeat).PluginTagToContent("hparams")
        endings.append(hparams.parse_session_end_info_plugin_data(content[hparams.SESSION_END_INFO_TAG]).status)
    assert endings == [1, 2]


def _shown(events: EventAccumulator, tag: str) -> str:
    return bytes(events.Tensors(tag)[0].tensor_proto.string_val[0]).decode()


def test_tensorboard_holds_files_and_tags_and_no_secret(events: EventAccumulator, tmp_path: Path) -> None:
    assert _shown(events, "command.sh").splitlines()[-1] == "    exec true"
    assert _shown(events, "stderr.log").endswith("the last line")
    assert len(_shown(events, "stderr.log")) < 70_000
    assert "| provenance\\_git\\_commit | abc123 |" in _shown(events, "tags")
    for file in (tmp_path / "events").rglob("*tfevents*"):
        assert TOKEN.encode() not in file.read_bytes()
        assert b"plain-word-x1" not in file.read_bytes()


def test_tensorboard_is_given_each_run_once_and_the_same_bytes(campaign: Path, tmp_path: Path) -> None:
    for place in ("a", "b"):
        export(campaign, to="tensorboard", destination=str(tmp_path / place))
    files = {
        place: {one.relative_to(tmp_path / place): one.read_bytes() for one in (tmp_path / place).rglob("*events*")}
        for place in "ab"
    }
    assert len(files["a"]) == 3 and files["a"] == files["b"]
    again = export(campaign, to="tensorboard", destination=str(tmp_path / "a"))
    assert (again.new, again.already) == (0, 3)
    copy = shutil.copytree(campaign, tmp_path / "elsewhere" / "campaign")  # the same runs, wherever they lie
    assert export(copy, to="tensorboard", destination=str(tmp_path / "a")).new == 0


def test_what_a_tracker_cannot_hold_is_said(tmp_path: Path) -> None:
    names = {"a b": 1.0, "café": 2.0, "../up": 3.0, "large": 1e100}
    numbers = tuple(Measurement(name=name, value=value, source="x") for name, value in names.items())
    words = (
        Measurement(name="mlflow.user", value="root", source="x"),
        Measurement(name="long", value="w" * 9000, source="x"),
    )
    store = Store.create(tmp_path / "odd", {})
    store.add([replace(LORA, arguments={"model_name_or_path": "m", "text": "x" * 7000})])
    run_dir = store.run_dir(LORA.id, 1, 1)
    run_dir.mkdir(parents=True)
    write_record(run_dir, record(1, measurements=(*numbers, *words)))
    (said,) = export(store.root, to="tensorboard", destination=str(tmp_path / "t")).warnings
    assert said.startswith(f"{LORA.id} r1-t1-") and "large has values beyond the range of a 32-bit float" in said
    (run,) = (tmp_path / "t" / "odd" / LORA.id).iterdir()
    shown = EventAccumulator(str(run))
    shown.Reload()
    assert {*shown.Tags()["scalars"]} == {"a b", "café", "../up", "wall_s"}
    done = export(store.root, to="mlflow", destination=str(tmp_path / "m"))
    said = "\n".join(done.warnings)
    for piece in (
        "'café' is not a valid name",
        "'../up' is not a valid name",
        "'mlflow.user' is not a valid name",
        "argument text is cut to 6000 characters of 7000",
        "tag long is cut to 8000 characters of 9000",
    ):
        assert piece in said
    (run,) = _runs(tmp_path / "m", "odd")
    assert run.data.metrics == {"a b": 1.0, "large": 1e100, "wall_s": 60.0}
    assert "mlflow.user" not in run.data.tags


def _client(folder: Path) -> MlflowClient:
    return MlflowClient(
        tracking_uri=f"sqlite:///{folder / 'mlflow.db'}", registry_uri=f"sqlite:///{folder / 'mlflow.db'}"
    )


def _runs(folder: Path, name: str) -> list[Any]:
    client = _client(folder)
    found = client.get_experiment_by_name(name)
    assert found is not None
    return sorted(client.search_runs([found.experiment_id]), key=lambda run: str(run.info.run_name))


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One for the tests that read: to make its tables takes two seconds."""
    yield tmp_path_factory.mktemp("mlflow")


def test_mlflow_holds_every_run(campaign: Path, database: Path, tmp_path: Path) -> None:
    done = export(campaign, to="mlflow", destination=str(database), project="all")
    assert (done.new, done.already, done.warnings) == (3, 0, ())
    one, two, three = _runs(database, "all")
    assert [run.info.status for run in (one, two, three)] == ["FINISHED", "FINISHED", "FAILED"]
    assert one.info.run_name.startswith(f"{LORA.id} r1-t1-")
    assert (one.info.start_time, one.info.end_time) == (int((BEGIN + 100) * 1000), int((BEGIN + 160) * 1000))
    assert one.data.params["learning_rate"] == "2e-5" and one.data.params["hub_token"] == "***"
    assert one.data.params["framework_config"] == "liger"
    assert two.data.metrics == {"tokens_per_s": 1002.0, "peak_allocated_bytes": 44_788_083_200.0, "wall_s": 60.0}
    known = {
        "status": "ok",
        "provenance_git_commit": "abc123",
        "effective_dtype": "bfloat16",
        "steady_found_by": "found",
    }
    assert known.items() <= one.data.tags.items()
    assert three.data.tags["failure_kind"] == "oom_cuda"


def test_mlflow_holds_series_and_files(campaign: Path, database: Path) -> None:
    export(campaign, to="mlflow", destination=str(database), project="series")
    client, (one, *_) = _client(database), _runs(database, "series")
    times = client.get_metric_history(one.info.run_id, "steps/step_time_s")
    assert len(times) <= MOST_POINTS and max(time.value for time in times) == 9.5
    assert (times[0].step, times[0].timestamp) == (1, int((BEGIN + 110.01) * 1000))
    assert len(client.get_metric_history(one.info.run_id, "steps/loss")) == 24
    files = {one.path for one in client.list_artifacts(one.info.run_id)}
    assert files == {"command.sh", "record.json", "experiment.json", "stderr.log"}
    written = [file for file in database.rglob("*") if file.is_file()]
    assert any(file.name == "stderr.log" for file in written)
    for file in written:
        assert TOKEN.encode() not in file.read_bytes(), file
        assert b"plain-word-x1" not in file.read_bytes(), file


def test_mlflow_is_given_each_run_once(campaign: Path, database: Path) -> None:
    for expected in ((3, 0), (0, 3)):
        done = export(campaign, to="mlflow", destination=str(database), project="once")
        assert (done.new, done.already) == expected
    assert len(_runs(database, "once")) == 3


def test_what_a_killed_export_left_in_mlflow_is_made_whole(campaign: Path, database: Path) -> None:
    run = next(reading.read(campaign).runs)
    client = _client(database)
    place = client.create_experiment("killed", (database / "mlruns").as_uri())
    half = client.create_run(place, tags={"tunebench.run": run.key}, run_name="half")
    client.log_param(half.info.run_id, "learning_rate", "2e-5")
    client.log_metric(half.info.run_id, "tokens_per_s", 1001.0, int((BEGIN + 160) * 1000), 0)
    done = export(campaign, to="mlflow", destination=str(database), project="killed")
    assert (done.new, done.already) == (3, 0)
    found = {one.info.run_id: one for one in _runs(database, "killed")}
    assert len(found) == 3
    assert found[half.info.run_id].info.status == "FINISHED"
    assert len(client.get_metric_history(half.info.run_id, "tokens_per_s")) == 1


def test_a_deleted_experiment_of_mlflow_is_told(campaign: Path, database: Path) -> None:
    client = _client(database)
    client.delete_experiment(client.create_experiment("gone"))
    with pytest.raises(
        OrchestratorError, match="was deleted, and its name is still taken; restore it in MLflow, or name another"
    ):
        export(campaign, to="mlflow", destination=str(database), project="gone")


@pytest.mark.parametrize(
    ("to", "place"), [("tensorboard", "file"), ("mlflow", "file/there"), ("mlflow", "sqlite:///{}/x.db")]
)
def test_a_place_that_cannot_be_written_is_no_refusal_of_the_tracker(
    to: str, place: str, campaign: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    place = place.format(tmp_path / "file") if "{}" in place else f"{tmp_path}/{place}"
    with pytest.raises(OrchestratorError) as caught:
        export(campaign, to=to, destination=place)
    assert str(caught.value).startswith(f"{tmp_path}/file") and str(caught.value).endswith(
        "; check the path and its disk"
    )


def test_a_full_disk_names_the_file_and_leaves_none(campaign: Path, tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (700, before[1]))
    try:
        with pytest.raises(
            OrchestratorError, match=r"/events\.out\.tfevents\.tunebench: File too large; raise the limit"
        ):
            export(campaign, to="tensorboard", destination=str(tmp_path / "there"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not [path for path in (tmp_path / "there").rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    "error",
    [
        ConnectionRefusedError(111, "Connection refused"),
        URLError("no host"),
        HTTPError("http://x", 503, "x", Message(), None),
    ],
)
def test_an_error_of_the_network_is_one_of_the_tracker(
    error: OSError, campaign: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("orchestrator.report.export.TARGETS", {"mlflow": refuses})
    with pytest.raises(OrchestratorError, match=r"^mlflow refused: .*the same command sends the rest"):
        export(campaign, to="mlflow", destination="http://x")


@pytest.mark.parametrize("address", ["no-such-scheme://x", "sqlite:///{}"])
def test_a_tracker_that_refuses_is_a_sentence(campaign: Path, address: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("this is not a database")
    address = address.format(tmp_path / "file")
    with pytest.raises(OrchestratorError, match=r"^mlflow refused: .*the same command sends the rest"):
        export(campaign, to="mlflow", destination=address)


def test_a_run_is_known_by_what_it_is_and_not_by_where_it_lies(campaign: Path) -> None:
    keys = [run.key for run in reading.read(campaign).runs]
    assert len({*keys}) == 3
    later = campaign / "experiments" / LORA.id / "runs" / "r1-t1" / "record.json"
    text = later.read_text()
    later.write_text(
        text.replace(json.dumps(BEGIN + 100), json.dumps(BEGIN + 101))
    )  # the same cell of a later campaign
    assert next(reading.read(campaign).runs).key not in keys


def test_what_is_not_to_be_believed_is_left_out_and_said(campaign: Path, tmp_path: Path) -> None:
    runs = campaign / "experiments" / LORA.id / "runs"
    stranger = json.loads((runs / "r1-t1" / "record.json").read_text())
    (runs / "r2-t1" / "record.json").write_text(json.dumps(stranger))  # says that it is r1-t1
    (runs / "r3-t1" / "record.json").write_text("{")
    done = export(campaign, to="tensorboard", destination=str(tmp_path / "events"))
    assert done.new == 1
    assert any("another run's" in said for said in done.warnings) and any(
        "cannot be read" in said for said in done.warnings
    )


def test_a_failed_repeat_that_is_no_longer_requested_is_left_out_and_said(campaign: Path) -> None:
    file = campaign / "experiments" / LORA.id / "experiment.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "repeats": 1}))
    found = reading.read(campaign)
    assert [run.status for run in found.runs] == [Status.OK, Status.OK], "a surplus ok run counts"
    assert any("r3-t1 did not end ok and is left out" in said for said in found.warnings)


def test_a_results_folder_of_the_reference_is_handed_over_too(tmp_path: Path) -> None:
    folder = tmp_path / "theirs" / "exp_0"
    folder.mkdir(parents=True)
    final = {"train_runtime": 10.0, "train_samples_per_second": 2.0, "train_steps_per_second": 1.0, "train_loss": 1.5}
    (folder / "results.json").write_text(json.dumps({"model_name_or_path": "m", "learning_rate": 2e-5, **final}))
    (folder / "command.sh").write_text(f"accelerate launch --num_processes=2 x.py --token {TOKEN}\n")
    (folder / "stdout").write_text("noise\n")
    (run,) = reading.read(folder.parent).runs
    assert (run.experiment, run.status, run.started_at) == ("exp_0", Status.OK, None)
    assert run.metrics["train_loss"] == 1.5 and run.params["model_name_or_path"] == "m"
    assert TOKEN not in run.texts["command.sh"] and run.texts["stdout"] == "noise\n"
    for expected in ((1, 0), (0, 1)):
        done = export(folder.parent, to="tensorboard", destination=str(tmp_path / "events"))
        assert (done.new, done.already) == expected


def test_folders_without_results_are_refused(tmp_path: Path) -> None:
    for place, said in ((tmp_path / "none", "there is no such folder"), (tmp_path, "not a results folder")):
        with pytest.raises(OrchestratorError, match=said):
            export(place, to="tensorboard", destination=str(tmp_path / "events"))
    assert not (tmp_path / "events").exists()


@pytest.mark.parametrize("to", ["tensorboard", "mlflow"])
def test_nothing_is_written_into_a_results_folder(
    campaign: Path, tmp_path: Path, to: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "results"
    shutil.copytree(campaign, copy)
    before = sorted(copy.rglob("*"))
    for destination in (copy, copy / "inside"):
        with pytest.raises(OrchestratorError, match="is in the results folder"):
            export(copy, to=to, destination=str(destination))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(copy)
    with pytest.raises(OrchestratorError, match="is in the results folder"):
        export(Path(), to=to)
    assert sorted(copy.rglob("*")) == before


def test_a_secret_in_the_name_of_the_results_is_not_in_the_name_of_the_project(campaign: Path, tmp_path: Path) -> None:
    copy = tmp_path / f"of-{TOKEN}"
    shutil.copytree(campaign, copy)
    export(copy, to="tensorboard", destination=str(tmp_path / "events"))
    (project,) = (tmp_path / "events").iterdir()
    assert project.name.startswith("of-") and TOKEN not in project.name


def test_rows_of_series_stand_on_one_axis_each() -> None:
    steps = tuple(Point(step=n, at=0.0, value=float(n)) for n in (1, 2))
    seen = (Point(step=1500, at=0.0, value=7.0),)
    found = [*rows({"steps/step_time_s": steps, "steps/loss": steps[1:], "gpu0/power_w": seen})]
    assert {"optimizer_step": 1.0, "steps/step_time_s": 1.0} in found
    assert {"optimizer_step": 2.0, "steps/step_time_s": 2.0, "steps/loss": 2.0} in found
    assert {"time_s": 1.5, "gpu0/power_w": 7.0} in found
    assert len(found) == 3 and all(math.isfinite(value) for row in found for value in row.values())


def test_a_missing_package_is_named_with_its_extra() -> None:
    with pytest.raises(OrchestratorError, match=r"pip install 'tunebench\[trackio\]'"), package_of("trackio"):
        import there_is_no_such_module  # type: ignore[import-not-found]  # noqa: F401


TRACKIO = """
import os, warnings
from types import SimpleNamespace
TRACKIO_DIR, names, Markdown = os.environ["TRACKIO_DIR"], [], str

class Api:
    def runs(self, project):
        if not os.path.isdir(TRACKIO_DIR):
            raise ValueError("no such project")
        return [SimpleNamespace(name=name) for name in os.listdir(TRACKIO_DIR)]

def init(project, name, config, **more):
    if project == "refused" or any(key.startswith("_") for key in config):
        raise ValueError("it is reserved")
    names.append(name)
    return SimpleNamespace(log=lambda row, step: None)

def finish():
    try:
        os.makedirs(TRACKIO_DIR, exist_ok=True)
        open(os.path.join(TRACKIO_DIR, names[-1]), "w").close()
    except OSError as error:
        warnings.warn(f"failed to flush: {error.strerror}. User code will continue, but this batch could not be persisted.")
"""


def test_what_trackio_does_not_store_is_refused_and_no_argument_stops_it(campaign: Path, tmp_path: Path) -> None:
    (tmp_path / "trackio.py").write_text(TRACKIO)
    (tmp_path / "file").touch()
    for path in campaign.glob("experiments/*/experiment.json"):
        written = json.loads(path.read_text())
        path.write_text(json.dumps({**written, "arguments": {**written["arguments"], "_private": "1"}}))

    def sent(*words: str) -> tuple[int, str]:
        argv = [sys.executable, "-m", "orchestrator", "export", "--to", "trackio", str(campaign), *words]
        environ = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}", "COLUMNS": "500"}
        done = subprocess.run(argv, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    code, said = sent("--dest", "file")
    assert (
        code == 2
        and "error: trackio did not store " in said
        and ": failed to flush: File exists; name another folder" in said
    )
    code, said = sent("--dest", "there", "--experiment", "refused")
    assert code == 2 and "error: trackio refused: it is reserved" in said
    code, said = sent("--dest", "there")
    assert code == 0 and "3 new run(s)" in said and "so it has no _private" in said
    assert "0 new run(s), 3 there already" in sent("--dest", "there")[1]


@pytest.mark.parametrize(("written", "known"), [(None, False), ("one", True), ("", True), ("other", False)])
def test_a_run_of_wandb_is_there_only_if_its_project_has_it(
    campaign: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: str | None, known: bool
) -> None:
    """Markers of older versions are empty."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    run = next(reading.read(campaign).runs)
    folder = tmp_path / f"wandb/offline-run-20261127_210525-{run.key}"
    folder.mkdir(parents=True)
    if written is not None:
        (folder / to_wandb.WHOLE).write_text(written)
    assert to_wandb._Project(None, tmp_path, name="one").has(run) == known


def test_only_the_targets_own_package_is_imported(campaign: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from orchestrator.report.export import export; before = set(sys.modules);"
        "export(Path(sys.argv[1]), to='tensorboard', destination=sys.argv[2]); print(*sorted(before)); print(*sorted(sys.modules))"
    )
    argv = [sys.executable, "-c", code, str(campaign), str(tmp_path / "events")]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(argv, env=environ, capture_output=True, text=True, check=True)
    before, after = ({name.partition(".")[0] for name in line.split()} for line in done.stdout.splitlines())
    assert not before & {*TARGETS, "numpy", "pandas", "torch"}
    assert after & {*TARGETS} == {"tensorboard"} and not after & {"pandas", "torch", "tensorflow"}


def test_the_command_says_how_many_were_new(campaign: Path, tmp_path: Path) -> None:
    said = []
    for _ in range(2):
        words = ("export", "--to", "tensorboard", str(campaign), "--dest", "events", "--experiment", "../mine")
        argv = [sys.executable, "-m", "orchestrator", *words]
        environ = {**os.environ, "PYTHONPATH": str(ROOT)}
        said.append(subprocess.run(argv, cwd=tmp_path, env=environ, capture_output=True, text=True, check=True).stdout)
    assert said == [
        "3 new run(s), 0 there already: tensorboard --logdir events\n",
        "0 new run(s), 3 there already: tensorboard --logdir events\n",
    ]
    assert [*(tmp_path / "events").iterdir()] == [tmp_path / "events" / "-mine"]


def test_an_address_is_not_the_name_of_a_folder(
    campaign: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OrchestratorError, match=r"--dest https://x\.y/z: an address needs --to mlflow"):
        export(campaign, to="tensorboard", destination="https://x.y/z")
    assert not (tmp_path / "https:").exists()
