"""A campaign in one file: everything that a real one has is in it, and nothing of what was planted where people have such things.

The campaign is a real one, of trainers that print what they know, in a home folder. What cannot be had here is written into its
files afterwards, as another machine would have: its host's name, a neighbour's address, a user of a cluster.
"""

from __future__ import annotations

import errno
import gzip
import io
import json
import os
import re
import socket
import subprocess
import tarfile
from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import yaml
from campaigns import tunebench
from factories.results import experiment

from orchestrator.errors import OrchestratorError
from orchestrator.report.bundle import MANIFEST, bundle, summary
from orchestrator.report.bundle.contents import LOG_END_BYTES, PICKLE
from orchestrator.report.profile.trace import read
from orchestrator.results import claims
from orchestrator.results.store import Store
from orchestrator.results.table import load
from orchestrator.trainers.instrumented import FILE_NAME, single_file

ROOT = Path(__file__).resolve().parents[2]
HOST, USER, COLLEAGUE = "dgx-a17", "mallory", "trent.w"
SECRETS = {
    "HF_TOKEN": "hf_QwErTyUiOpAsDfGhJkLzXcVb",
    "WANDB_API_KEY": "0f1e2d3c4b5a69788796a5b4c3d2e1f001020304",  # nothing in its look gives it away
    "SERVICE_JWT": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJtZSJ9.dGhlc2lnbmF0dXJl",
    "PGPASSWORD": "tea4two&two4tea",
}
UNNAMED = {"MY_SETTING": "k9XwQ2mZ7pLr4VtB8nHs3JdF"}  # only its owner's environment gives it away
NAMES = (
    HOST,
    USER,
    COLLEAGUE,
    "cluster.example.net",
    "10.11.12.13",
    "fd12::3456:789a",
    "02:42:ac:11:00:02",
    "example.org",
)
PLANTED = (*SECRETS.values(), *NAMES)

TRAINER = """\
import json, os, sys
secrets = [f"{name}={os.environ[name]}" for name in os.environ["NAMES"].split()]
names = [os.environ["HOME"], "/gpfs/home/trent.w/data", "dgx-a17", "DGX-A17.cluster.example.net:29500", "10.11.12.13",
    "fd12::3456:789a", "02:42:ac:11:00:02", "mallory@dgx-a17", "trent.w@example.org", "\\x1b[1mmallory\\x1b[0m", os.getcwd()]
print(*secrets, *names, "it said " + os.environ["MY_SETTING"], sep="\\n")
print(json.dumps(names), repr(names), file=sys.stderr)
os.makedirs("output", exist_ok=True)
open("output/checkpoint.bin", "w").write(os.environ["HF_TOKEN"])
open("mine.json", "w").write(json.dumps(names))
if sys.argv[1] == "raises":
    raise RuntimeError("cannot reach " + " ".join((*names, *secrets)))
print("x" * 200_000 + "\\n" + "\\n".join(names))
print(json.dumps({"train_runtime": 1.0, "train_loss": 1.5, "note": " ".join(names)}))
"""


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results folder, as the machine of the names above would have made it."""
    home = tmp_path_factory.mktemp("x") / "home" / USER
    home.mkdir(parents=True)
    (home / "trainer.py").write_text(TRAINER)
    one: dict[str, Any] = {
        "name": f"{USER}-own-{HOST}",
        "trainer": "custom",
        "device": "cpu",
        "env": {"NAMES": " ".join(SECRETS)},
        "tags": [f"of-{USER}"],
        "matrix": {"kind": ["ok", "raises"]},
        "custom": {
            "command": [
                "{python}",
                str(ROOT / "orchestrator/workers/instrument/instrument.py"),
                "{scenario_dir}/trainer.py",
                "{kind}",
            ],
            "launcher": "none",
            "metrics": {name: {"key": name} for name in ("train_runtime", "train_loss", "note")},
        },
    }
    (home / "scenarios.yaml").write_text(yaml.safe_dump({"scenarios": [one]}))
    words = ("run", str(home / "scenarios.yaml"), "--yes", "--set", "timeout_s=300")
    done = tunebench(home, *words, HOME=str(home), USER=USER, LOGNAME=USER, **SECRETS, **UNNAMED)
    assert done.code == 1, done.err
    report = tunebench(home, "report", "results", "--format", "markdown", HOME=str(home), **SECRETS)
    (home / "results" / "report.md").write_text(report.out)
    _as_if_made_there(home / "results")
    return home / "results"


def _as_if_made_there(results: Path) -> None:
    """Write the other host's name wherever a file of the folder has this one's."""
    here = re.compile(rf"(?<![\w.-]){re.escape(socket.gethostname())}(?![\w-])")
    for path in results.rglob("*"):
        if path.is_file() and path.suffix in (".json", ".csv", ".md"):
            path.write_text(here.sub(HOST, path.read_text("utf-8")))


def unpacked(file: Path, folder: Path) -> Path:
    """As a careful reader does it: no member leads out of the folder."""
    with tarfile.open(file) as archive:
        archive.extractall(folder, filter="data")
    (root,) = folder.iterdir()
    return root


def everything(file: Path) -> dict[str, str]:
    with tarfile.open(file) as archive:
        found = {member.name: archive.extractfile(member) for member in archive.getmembers()}
        return {name: content.read().decode("utf-8", "replace") for name, content in found.items() if content}


def leaks(texts: Mapping[str, str], planted: tuple[str, ...] = PLANTED) -> list[tuple[str, str]]:
    """What stands anywhere, in any case of letters, in a name or in a text."""
    return [(name, one) for name, text in texts.items() for one in planted if one.lower() in f"{name}\n{text}".lower()]


@pytest.fixture(scope="module")
def bundled(campaign: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """By the command, as its owner calls it: the file, and what was said."""
    folder = tmp_path_factory.mktemp("bundled")
    home = str(campaign.parent)
    done = tunebench(folder, "bundle", str(campaign), HOME=home, USER=USER, LOGNAME=USER, **SECRETS, **UNNAMED)
    assert done.code == 0, done.err
    return folder / "results-bundle.tar.gz", done.said


def test_what_was_planted_is_in_the_campaign(campaign: Path) -> None:
    """The test's own premise: each of them stands in a record, in a log and in a report."""
    for pattern in ("record.json", "stdout.log", "benchmarks.csv", "report.md"):
        texts = {str(path): path.read_text("utf-8") for path in campaign.rglob(pattern)}
        assert {planted for _, planted in leaks(texts, NAMES)} == {*NAMES}, pattern
    logs = {str(path): path.read_text("utf-8") for path in campaign.rglob("stdout.log")}
    known = (*PLANTED, *UNNAMED.values())
    assert {planted for _, planted in leaks(logs, known)} == {*known}
    assert USER in next((campaign / "experiments").iterdir()).name


def test_nothing_of_it_is_in_the_bundle_nor_was_said(bundled: tuple[Path, str]) -> None:
    file, said = bundled
    assert leaks({**everything(file), "": said}, (*PLANTED, *UNNAMED.values())) == []


def test_a_stranger_who_bundles_hides_what_shows_itself(campaign: Path, tmp_path: Path) -> None:
    """Someone who knows neither the secrets nor the people: all but what nothing but its value gives away."""
    done = tunebench(
        tmp_path, "bundle", str(campaign), "--output", "b.tgz", HOME="/root", USER="carol", LOGNAME="carol"
    )
    assert done.code == 0, done.err
    assert leaks(everything(tmp_path / "b.tgz")) == []


def test_all_that_a_campaign_is_made_of_is_in_it(bundled: tuple[Path, str], campaign: Path) -> None:
    names = {re.sub(r"experiments/[^/]+", "experiments/ID", name.partition("/")[2]) for name in everything(bundled[0])}
    run = "experiments/ID/runs/r1-t1/"
    parts = ("record.json", "job.json", "owner.json", "command.sh", "stdout.log", "stderr.log", "worker-rank0.json")
    assert {*(run + part for part in parts), "experiments/ID/experiment.json"} <= names
    assert {"suite.json", "requirements.txt", "benchmarks.csv", "raw_summary.csv", "report.md", MANIFEST} <= names
    assert {name for name in names if name.startswith("asked/")}
    there = {
        re.sub(r"experiments/[^/]+", "experiments/ID", str(path.relative_to(campaign)))
        for path in campaign.rglob("*")
        if path.is_file()
    }
    assert there - names == {run + "work/mine.json"}  # output/ was removed when the runs had ended


def test_the_manifest_lists_what_is_there_and_what_is_not(bundled: tuple[Path, str]) -> None:
    file, said = bundled
    texts = {name.partition("/")[2]: text for name, text in everything(file).items()}
    manifest = json.loads(texts.pop(MANIFEST))
    assert [(one["path"], one["bytes"]) for one in manifest["files"]] == [
        (name, len(text.encode())) for name, text in texts.items()
    ]
    assert {one["path"].rpartition("/")[2] for one in manifest["left_out"]} >= {"work"}
    assert [path.rpartition("/")[2] for path in manifest["cut"]] == ["stdout.log"]
    assert manifest["secrets"] >= 6
    assert {*manifest["hidden"]} == {"host", "user", "address", "mail"} and min(manifest["hidden"].values()) > 0
    for piece in (
        "secret(s)",
        "left out: 2 file(s)",
        "cut: 1 log(s) to the last 64 KiB",
        "look before you send it",
    ):
        assert piece in said


def test_the_page_in_it_still_runs(bundled: tuple[Path, str]) -> None:
    """Its policy names each script by its digest, whatever the campaign's host is called."""
    (page,) = [text for name, text in everything(bundled[0]).items() if name.endswith("/report.html")]
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    scripts = re.findall(r'<script(?: type="text/plain" id="plotly")?>(.*?)</script>', page, re.DOTALL)
    assert any("Plotly" in script for script in scripts)
    assert all(b64encode(sha256(script.encode()).digest()).decode() in policy for script in scripts)
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert json.loads(data)["table"]["rows"] == 2


def test_logs_end_where_they_ended_unless_they_are_wanted_whole(campaign: Path, tmp_path: Path) -> None:
    lengths = []
    for whole in (False, True):
        file = bundle(campaign, output=tmp_path / f"{whole}.tar.gz", whole_logs=whole).path
        (log,) = [text for name, text in everything(file).items() if name.endswith("stdout.log") and "xxx" in text]
        assert '"train_runtime": 1.0' in log.splitlines()[-1]
        lengths.append(len(log))
    assert lengths[0] < LOG_END_BYTES + 1000 < 200_000 < lengths[1]  # the fixed words are longer than some names


def test_what_is_unpacked_is_reported_as_the_campaign_is(
    bundled: tuple[Path, str], campaign: Path, tmp_path: Path
) -> None:
    root = unpacked(bundled[0], tmp_path / "u")
    assert root.name == "results-bundle"
    theirs, ours = load.load([root]), load.load([campaign])
    assert [sentence for sentence in theirs.warnings if "left out" in sentence] == []
    assert (len(theirs.runs), len(theirs.experiments)) == (2, 2)
    numbers = ours.runs.select_dtypes("number").columns
    assert len(numbers) > 5 and theirs.runs[numbers].equals(ours.runs[numbers])
    for words in (("status", str(root)), ("report", str(root), "--format", "json")):
        done = tunebench(tmp_path, *words)
        assert done.code == 0, done.err
        assert leaks({"": done.said}) == []
    report = json.loads(
        tunebench(tmp_path, "report", str(root), "--format", "json", "--keep", "provenance_host_name").out
    )
    assert "hidden-host" in json.dumps(report)


def test_what_is_unpacked_is_compared_as_any_results_are(
    bundled: tuple[Path, str], campaign: Path, tmp_path: Path
) -> None:
    root, later = (unpacked(bundled[0], tmp_path / name) for name in ("u", "v"))
    for path in later.rglob("record.json"):
        record = json.loads(path.read_text())
        path.write_text(json.dumps({**record, "started_at": record["started_at"] + 1000}))
    done = tunebench(tmp_path, "compare", str(root), str(later), "--format", "json")
    assert done.code == 0, done.said
    assert {row["verdict"] for row in json.loads(done.out)["rows"]} == {"same", "failed"}
    assert leaks({"": done.said}) == []


def test_the_same_campaign_gives_the_same_bytes_and_nothing_that_runs(campaign: Path, tmp_path: Path) -> None:
    first, second = (bundle(campaign, output=tmp_path / name).path for name in ("a.tar.gz", "b.tar.gz"))
    assert first.read_bytes() == second.read_bytes()
    with tarfile.open(first) as archive:
        members = archive.getmembers()
    assert {(member.type, member.mode, member.mtime, member.uid, member.uname) for member in members} == {
        (tarfile.REGTYPE, 0o644, 0, 0, "")
    }
    assert all(member.name.startswith("results-bundle/") and ".." not in member.name.split("/") for member in members)


def test_nothing_is_overwritten_and_nothing_written_into_the_results(campaign: Path, tmp_path: Path) -> None:
    before = sorted((path, path.stat().st_mtime_ns) for path in campaign.rglob("*"))
    taken = tmp_path / "taken.tar.gz"
    taken.write_text("mine")
    (tmp_path / "link.tar.gz").symlink_to(tmp_path / "nowhere")
    for target, said in (
        (taken, "exists, and nothing is overwritten"),
        (tmp_path / "link.tar.gz", "exists, and nothing is overwritten"),
        (campaign / "b.tar.gz", "is in the results folder"),
        (tmp_path / "none" / "b.tar.gz", "cannot be written: No such file or directory"),
        (tmp_path / f"{'b' * 300}.tar.gz", "cannot be written: File name too long"),
    ):
        with pytest.raises(OrchestratorError, match=said):
            bundle(campaign, output=target)
    assert taken.read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.tar.gz", "taken.tar.gz"]
    assert sorted((path, path.stat().st_mtime_ns) for path in campaign.rglob("*")) == before


def test_a_disk_without_hard_links_is_enough(campaign: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = bundle(campaign, output=tmp_path / "a.tar.gz").path.read_bytes()
    meanwhile = iter([lambda: None, lambda: (tmp_path / "c.tar.gz").write_text("mine")])

    def refuse(*_: object) -> None:
        next(meanwhile)()
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refuse)
    assert bundle(campaign, output=tmp_path / "b.tar.gz").path.read_bytes() == expected
    with pytest.raises(OrchestratorError, match="exists, and nothing is overwritten"):
        bundle(campaign, output=tmp_path / "c.tar.gz")
    assert (tmp_path / "c.tar.gz").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tar.gz", "b.tar.gz", "c.tar.gz"]


def test_a_folder_that_is_not_ours_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(OrchestratorError, match="not a results folder"):
        bundle(tmp_path, output=tmp_path / "b.tar.gz")


PLAIN = experiment(id="plain-0123456789ab", scenario="plain", trainer="custom")


def test_what_is_not_ours_stays_and_is_named(tmp_path: Path) -> None:
    """Links, pipes, strangers, a run that goes on: none of them is opened."""
    secret = tmp_path / "secret.txt"
    secret.write_text("top secret")
    store = Store.create(tmp_path / "r", {})
    store.add([PLAIN])
    run_dir = store.run_dir(PLAIN.id, 1, 1)
    run_dir.mkdir(parents=True)
    (run_dir / "stdout.log").symlink_to(secret)
    (run_dir / "steps-rank0.jsonl").symlink_to("/dev/zero")
    os.mkfifo(run_dir / "stderr.log")
    (run_dir / "core.1234").write_text("top secret")
    (run_dir / FILE_NAME).write_text(single_file())
    (run_dir / "modules" / "tunebench").mkdir(parents=True)
    (store.root / "notes.txt").write_text("top secret")
    (store.root / "experiments" / "$(touch x)\n").mkdir()
    going_on = claims.claim(store.job(PLAIN.id, repeat=2, attempt=1), executor="local")
    assert going_on is not None
    done = bundle(store.root, output=tmp_path / "b.tar.gz")
    why = {one["path"].rpartition("/")[2]: one["why"] for one in done.manifest["left_out"]}
    assert why == {
        "notes.txt": "not a file that Tunebench makes",
        "core.1234": "not a file that Tunebench makes",
        "stdout.log": "it is not a regular file; links are not followed",
        "steps-rank0.jsonl": "it is not a regular file; links are not followed",
        "stderr.log": "it is not a regular file; links are not followed",
        "r2-t1": "it is still running",
        "$(touch x)\n": "its name is not the id of an experiment",
    }
    assert leaks(everything(done.path), ("top secret",)) == []
    assert not any(name.endswith(FILE_NAME) for name in everything(done.path))
    assert any(line.startswith("left out: 7") for line in summary(done))


def test_traces_are_kept_without_names_and_pickles_are_left_out(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "r", {})
    store.add([PLAIN])
    run_dir = store.run_dir(PLAIN.id, 1, 1)
    events = [
        {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "ts": 0, "dur": 9, "pid": 0, "tid": 1},
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 0, "dur": 5, "pid": 0, "tid": 1},
    ]
    trace = {"host": HOST, "traceEvents": events, "path": "/home/mallory/data", "token": SECRETS["HF_TOKEN"]}
    (run_dir / "profile").mkdir(parents=True)
    (run_dir / "job.json").write_text(json.dumps({"host": HOST}))
    (run_dir / "profile" / "rank0.json.gz").write_bytes(gzip.compress(json.dumps(trace).encode()))
    (run_dir / "profile" / "rank3.json.gz").write_bytes(b"damaged")
    for name in ("memory.pickle", "profile/rank0.pickle"):
        (run_dir / name).write_bytes(b"pickle")
    done, again = (bundle(store.root, output=tmp_path / f"{name}.tar.gz") for name in ("b", "again"))
    assert done.path.read_bytes() == again.path.read_bytes()
    why = {one["path"].rpartition("/")[2]: one["why"] for one in done.manifest["left_out"]}
    assert why.keys() == {"memory.pickle", "rank0.pickle", "rank3.json.gz"}
    assert why["memory.pickle"] == why["rank0.pickle"] == PICKLE
    assert f"2 pickles left out: {PICKLE}" in list(summary(done))
    with tarfile.open(done.path) as tar:
        tar.extractall(tmp_path / "unpacked", filter="data")
    (kept,) = (tmp_path / "unpacked").rglob("rank0.json.gz")
    assert leaks({"trace": gzip.decompress(kept.read_bytes()).decode()}, (HOST, USER, SECRETS["HF_TOKEN"])) == []
    assert read(kept).host["aten::mm"].calls == 1


def test_probes_and_a_moved_experiments_folder_come_along(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "r", {})
    store.add([PLAIN])
    (store.root / "experiments").rename(tmp_path / "disk")
    (store.root / "experiments").symlink_to(tmp_path / "disk")
    Store.create(store.root / "probes", {}).add([PLAIN])
    names = {*everything(bundle(store.root, output=tmp_path / "b.tar.gz").path)}
    assert {f"r-bundle/{inside}experiments/{PLAIN.id}/experiment.json" for inside in ("", "probes/")} <= names


def test_no_other_link_to_a_folder_is_followed(tmp_path: Path) -> None:
    """Not even to a folder of files whose names are those of requests, screens or runs."""
    mine = tmp_path / "mine"
    for name in ("aa.json", "20261127000000-0a0a0a.json", "r1-t1/stdout.log", "suite.json"):
        (mine / name).parent.mkdir(parents=True, exist_ok=True)
        (mine / name).write_text("top secret")
    store = Store.create(tmp_path / "r", {})
    store.add([PLAIN])
    linked = ["screens", "probes", f"experiments/{PLAIN.id}/runs", "experiments/other-0123456789ab"]
    (store.root / "asked").rmdir() if (store.root / "asked").exists() else None
    for place in ("asked", *linked):
        (store.root / place).symlink_to(mine)
    done = bundle(store.root, output=tmp_path / "b.tar.gz")
    assert {one["path"] for one in done.manifest["left_out"]} == {"asked", *linked}
    assert leaks(everything(done.path), ("top secret",)) == []


def test_a_secret_in_the_name_of_a_folder_is_not_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store.create(tmp_path / "r", {})
    store.add([PLAIN])
    monkeypatch.setenv("MY_TOKEN", PLAIN.id)
    done = bundle(store.root, output=tmp_path / "b.tar.gz")
    assert leaks(everything(done.path), (PLAIN.id,)) == []
    assert {"path": "experiments/***", "why": "its name contains a secret"} in done.manifest["left_out"]


def test_a_secret_in_the_name_of_the_results_is_not_in_the_name_of_the_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = SECRETS["HF_TOKEN"]
    store = Store.create(tmp_path / f"of-{secret}", {})
    store.add([PLAIN])
    monkeypatch.chdir(tmp_path)
    done = bundle(store.root)
    assert done.path.name == "of-----bundle.tar.gz" and done.path.exists()
    assert all(name.startswith("of-----bundle/") for name in everything(done.path))
    monkeypatch.chdir(store.root)
    with pytest.raises(OrchestratorError, match="the current folder is in the results folder"):
        bundle(store.root)


def test_an_archive_is_read_by_any_tar(campaign: Path, tmp_path: Path) -> None:
    file = bundle(campaign, output=tmp_path / "b.tar.gz").path
    done = subprocess.run(["tar", "-tzf", str(file)], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [*everything(file)]
    assert io.BytesIO(file.read_bytes()).read(10)[3:8] == bytes(5)  # no name and no time in its head
