"""Results that somebody edited or damaged: a command names what is wrong, waits for nothing, and shows no number that cannot be."""

from __future__ import annotations

import csv
import json
import os
import shutil
import tarfile
from pathlib import Path

from attack_cases.register import case
from attack_cases.scene import SECRET, Scene

READERS = {
    "report": ("report", "results"),
    "status": ("status", "results"),
    "show": ("show", "quick", "--results", "results"),
    "cancel": ("cancel", "results"),
    "bundle": ("bundle", "results"),
    "export": ("export", "--to", "tensorboard", "results"),
    "run": ("run", "scenarios.yaml", "--yes"),
    "move-aside": ("run", "scenarios.yaml", "--yes", "--move-aside"),
}


@case(words=READERS)
def pipe_for_suite_file(scene: Scene, words: tuple[str, ...]) -> None:
    """Put a pipe in the place of `suite.json`. A command that opens it waits for ever."""
    scene.run()
    (scene.results / "suite.json").unlink()
    os.mkfifo(scene.results / "suite.json")
    said = scene.call(*words, timeout_s=40)
    assert said.code == 2 and "suite.json: cannot be read: it is not a regular file" in said.err, said


@case(words=READERS)
def cut_suite_file(scene: Scene, words: tuple[str, ...]) -> None:
    """Cut `suite.json`. The command names the file, and the cure that it names gives the runs back."""
    scene.run()
    suite = scene.results / "suite.json"
    suite.write_text(suite.read_text()[:20])
    said = scene.call(*words, timeout_s=40)
    assert said.code == 2 and "suite.json: cannot be read: it is not JSON" in said.err, said
    suite.write_text(said.err.partition("replace it by ")[2].partition(": the runs")[0])
    assert scene.run().code == 0 and scene.statuses() == ["ok"]


@case(value={"negative": -5.0, "beyond-machines": 1e30})
def speed_that_cannot_be(scene: Scene, value: float) -> None:
    """Edit the speed of one of two runs. It is missing in the tables, and it is not averaged with the other run."""
    scene.scenario(
        'print(json.dumps({"train_tokens_per_second": 1000, "train_runtime": 0.1}), flush=True); os._exit(0)',
        repeats=2,
        custom={"metrics": {name: {"key": name} for name in ("train_runtime", "train_tokens_per_second")}},
    )
    scene.run()
    scene.records_may_go = True
    path = scene.runs()[0] / "record.json"
    record = json.loads(path.read_text())
    for number in record["measurements"]:
        if number["name"] == "train_tokens_per_second":
            number["value"] = value
    path.write_text(json.dumps(record))
    said = scene.call("report", "results")
    (row,) = csv.DictReader((scene.results / "benchmarks.csv").open(newline=""))
    assert float(row["train_tokens_per_second"]) == 1000, row
    assert "train_tokens_per_second: not a number that can be used" in said.err, said


@case()
def experiment_file_is_gone(scene: Scene) -> None:
    """Remove `experiment.json`. The report names the file, and the next run brings the experiment back with its run."""
    scene.scenario(numbers=2)
    scene.run()
    file = next(scene.results.glob("experiments/*/experiment.json"))
    file.unlink()
    said = scene.call("report", "results")
    assert f"{file.parent.name}/experiment.json: the file is missing" in said.err, said
    assert scene.run().code == 0 and scene.statuses() == ["ok", "ok"]


@case(encoding=("utf-16-le", "utf-16-be"))
def secret_in_wide_characters(scene: Scene, encoding: str) -> None:
    """Print a secret in UTF-16. It reaches no record, page or bundle, not even with a NUL between its letters."""
    scene.scenario(
        f'sys.stderr.buffer.write(os.environ["ATTACK_API_TOKEN"].encode("{encoding}")); sys.exit(1)',
    )
    scene.run()
    scene.call("bundle", "results")
    with tarfile.open(scene.folder / "results-bundle.tar.gz") as bundle:
        bundle.extractall(scene.folder / "unpacked", filter="data")
    for path in (*scene.results.rglob("*"), *(scene.folder / "unpacked").rglob("*")):
        if path.is_file() and not (path.is_relative_to(scene.results) and path.name == "stderr.log"):
            assert SECRET not in _without_nul(path), path


def _without_nul(path: Path) -> str:
    text = path.read_bytes().decode("utf-8", "replace")
    for sign in ("\\u0000", "\\u2400", "\u2400", "\0"):
        text = text.replace(sign, "")
    return text


@case(log=("stdout.log", "stderr.log"), target=("/dev/zero", "elsewhere.log"))
def log_becomes_a_link(scene: Scene, log: str, target: str) -> None:
    """Replace a log by a link while the training runs. The numbers of a result file are kept."""
    scene.scenario(
        f'open("r.json", "w").write(json.dumps({{"train_runtime": 0.1}})); (run_dir / "{log}").unlink();'
        f'(run_dir / "{log}").symlink_to("{target}"); os._exit(0)',
        custom={"results": "file:r.json", "metrics": {"train_runtime": {"key": "train_runtime"}}},
    )
    said = scene.run()
    assert said.code == 0 and scene.statuses() == ["ok"], said


@case()
def requirements_behind_a_link(scene: Scene) -> None:
    """Name a link to a file of requirements, and a folder in place of a lock."""
    (scene.folder / "base.txt").write_text("six\n")
    (scene.folder / "requirements.txt").symlink_to("base.txt")
    scene.scenario(environment=["e"])
    shutil.copy(scene.folder / "scenarios.yaml", scene.folder / "first.yaml")
    for entry, code in ((["requirements.txt"], 0), ({"lock": "./"}, 2)):
        document = json.loads((scene.folder / "first.yaml").read_text())
        (scene.folder / "scenarios.yaml").write_text(json.dumps({**document, "environments": {"e": entry}}))
        said = scene.call("plan", "scenarios.yaml")
        assert said.code == code and ("it is not a regular file" in said.err) == (code == 2), said
