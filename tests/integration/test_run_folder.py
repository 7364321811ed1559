"""What a command may do to the folder of its run, and what somebody does to a record: the campaign goes on, and tells the truth."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from campaigns import ROOT, Call, Campaign, tunebench
from factories.results import of_command, record_of

from orchestrator.campaign.loop import run_benchmark
from orchestrator.errors import ResultsError
from orchestrator.executors import FakeExecutor
from orchestrator.records import RunRecord
from orchestrator.results import claims
from orchestrator.results.store import Store, write_record
from orchestrator.results.unfinished_record import unfinished_record
from orchestrator.run.run_one import run_one

RUN = ("run", "s.yaml", "--yes")
GOOD = """print('{"train_runtime": 2.0}')"""


def scenario(code: str = GOOD, name: str = "a", **more: object) -> dict[str, object]:
    """Make a scenario whose trainer runs this code."""
    custom = {"command": ["{python}", "-c", "{code}", "{run_dir}"], "launcher": "none"}
    custom |= {"metrics": {"train_runtime": {}}, **more}
    return {"name": name, "trainer": "custom", "device": "cpu", "arguments": {"code": code}, "custom": custom}


def carried_out(folder: Path, *scenarios: dict[str, object], words: tuple[str, ...] = ()) -> Campaign:
    (folder / "s.yaml").write_text(json.dumps({"scenarios": scenarios}))
    return tunebench(folder, *RUN, *words)


def records(folder: Path, name: str = "a") -> list[RunRecord]:
    contents = Store.resume(folder / "results").contents()
    return [record for one in contents.experiments if one.experiment.scenario == name for record in one.records]


def test_a_record_that_cannot_be_read_is_no_success_and_is_tried_again_when_asked(tmp_path: Path, call: Call) -> None:
    done = carried_out(tmp_path, scenario())
    record = done.run_dir("a-") / "record.json"
    record.write_text("{")
    code, _, err = call(tmp_path, *RUN)
    assert (done.code, code, record.read_text()) == (0, 1, "{")
    assert "1 run(s) have a record that cannot be read; add --retry-failed lost to repeat them" in err
    assert "and 1 would run" in call(tmp_path, *RUN, "--retry-failed", "lost", "--dry-run")[1]
    code, _, err = call(tmp_path, *RUN, "--retry-failed", "lost")
    assert code == 0, err
    lost, good = records(tmp_path)
    (aside,) = record.parent.glob("record.json.2*")
    assert aside.read_text() == "{"
    assert (lost.status, lost.cause) == ("lost", f"its record could not be read and is now {aside.name}")
    assert (good.status, good.attempt) == ("ok", 2)


def test_a_run_that_nobody_could_begin_is_no_success(tmp_path: Path) -> None:
    one, store = of_command("true"), Store.create(tmp_path / "results", {})
    place = store.run_dir(one.id, 1, 1)
    place.parent.mkdir(parents=True)
    place.write_text("a file in the place of the run's folder")
    summary = run_benchmark([one], store=store, executor=FakeExecutor(record_of))
    assert (summary.records, summary.missing, summary.exit_code) == ((), 1, 1)


LOST = '{"experiment_id": "a", "repeat": 1, "attempt": 1, "status": "lost", "started_at": 1.0, "wall_s": 1.0}'
# Each does something to the folder in which it starts, to the run's folder (argv[1]) or to the record, and then ends well.
DISTURBING = {
    "removes-work": "import os; os.rmdir(os.getcwd())",
    "renames-work": "import os; os.rename(os.getcwd(), os.getcwd() + '-old')",
    "forges-at-work": "open('record.json', 'w').write('{}')",
    "links-record": "import os, sys; os.symlink('/nowhere', sys.argv[1] + '/record.json')",
    "damages-record": "import sys; open(sys.argv[1] + '/record.json', 'w').write('{')",
    "record-is-folder": "import os, sys; os.mkdir(sys.argv[1] + '/record.json')",
    "deep-output": "import os; os.chdir(os.path.dirname(os.getcwd())); os.makedirs('output', exist_ok=True); os.chdir('output'); "
    "[(os.mkdir('d'), os.chdir('d')) for _ in range(1500)]",
    "removes-run": "import shutil, sys; shutil.rmtree(sys.argv[1])",
    "renames-run": "import os, sys; os.rename(sys.argv[1], sys.argv[1] + '-old')",
    "file-for-run": "import shutil, sys; shutil.rmtree(sys.argv[1]); open(sys.argv[1], 'w').close()",
    "removes-all": "import os, shutil, sys; shutil.rmtree(os.path.dirname(os.path.dirname(sys.argv[1])))",
    "runs-are-a-file": "import os, shutil, sys; runs = os.path.dirname(sys.argv[1]); shutil.rmtree(runs); open(runs, 'w').close()",
    "removes-experiment": "import os, sys; os.remove(sys.argv[1] + '/../../experiment.json')",
    "says-lost": "import os, sys; open(sys.argv[1] + '/record.json', 'w').write(LOST)",
    "empties-run": "import os, sys; [os.remove(sys.argv[1] + '/' + name) for name in os.listdir(sys.argv[1]) if '.' in name]",
}
GONE = ("removes-run", "removes-all", "runs-are-a-file", "renames-run", "file-for-run", "empties-run")


@pytest.fixture(scope="module")
def disturbed(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    """A campaign of all of these, and a second call for an experiment.json that was removed."""
    codes = {name: code.replace("LOST", repr(LOST)) for name, code in DISTURBING.items()}
    scenarios = [scenario(f"{code}\n{GOOD}", name) for name, code in codes.items()]
    folder = tmp_path_factory.mktemp("disturbed")
    first = carried_out(folder, *scenarios, words=("--parallel", "2"))
    return replace(carried_out(folder, *scenarios), err=first.err)


@pytest.mark.parametrize("name", DISTURBING)
def test_a_command_that_disturbs_its_folder_spoils_its_own_run_at_most(disturbed: Campaign, name: str) -> None:
    assert disturbed.code == 1 and "Traceback" not in disturbed.said, disturbed.said
    (record,) = records(disturbed.folder, name)
    wanted = ("failed", "folder_gone") if name in GONE else ("ok", None)
    assert (record.status, record.kind) == wanted, record
    assert name not in GONE or str(disturbed.run_dir(name)) in (record.cause or "")


def test_a_record_that_another_program_wrote_is_moved_aside_and_named(disturbed: Campaign) -> None:
    for name in ("links-record", "damages-record", "record-is-folder", "says-lost"):
        (aside,) = disturbed.run_dir(name).glob("record.json.2*")
        (record,) = records(disturbed.folder, name)
        assert aside.name in record.warnings[-1].sentence


SWAP = """import os, shutil, sys, time
print('{"step": 1, "seconds": 0.1}', flush=True)
results = os.path.abspath(sys.argv[1] + "/../../../..")
if os.path.isdir(results + "-done"):
    os.rename(results, results + "-running")
    shutil.copytree(results + "-done", results)
time.sleep(1.5)  # several looks at the steps
print('{"step": 2, "seconds": 0.1}', flush=True)
"""


def files_of_runs(root: Path) -> dict[Path, bytes]:
    paths = root.glob("experiments/*/runs/**/*")
    return {path.relative_to(root): path.read_bytes() for path in paths if path.is_file()}


def test_a_results_folder_that_takes_the_place_of_a_running_one_keeps_its_records(tmp_path: Path) -> None:
    swapping = {**scenario(SWAP + GOOD), "steps": "stdout", "stall_timeout_s": 30}
    assert carried_out(tmp_path, swapping).code == 0
    (tmp_path / "results").rename(tmp_path / "results-done")
    again = carried_out(tmp_path, swapping)
    (running,) = (tmp_path / "results-running").glob("experiments/*/runs/r1-t1")
    assert not (running / "record.json").exists()
    assert (again.code, [record.status for record in records(tmp_path)]) == (0, ["ok"]), again.said
    assert files_of_runs(tmp_path / "results") == files_of_runs(tmp_path / "results-done")


def test_a_copied_run_does_not_count_and_is_made_again(tmp_path: Path) -> None:
    command = "custom: {command: ['{python}', -c, 'print(1)'], launcher: none}"
    (tmp_path / "s.yaml").write_text(
        f"scenarios:\n- {{name: s, trainer: custom, device: cpu, repeats: 2, {command}}}\n"
    )
    tunebench(tmp_path, "run", "s.yaml", "--repeats", "1")
    (first,) = (tmp_path / "results").glob("experiments/*/runs/r1-t1")
    shutil.copytree(first, first.with_name("r2-t1"))
    again = tunebench(tmp_path, "run", "s.yaml")
    assert again.code == 1 and "--retry-failed lost" in again.said
    assert "1 of 2 done" in tunebench(tmp_path, "status", "results").out
    assert tunebench(tmp_path, "run", "s.yaml", "--retry-failed", "lost").code == 0
    assert len([*first.parent.glob("r2-*")]) == 2 and len([*first.with_name("r2-t1").glob("record.json*")]) == 2


def test_a_record_that_this_user_may_not_read_is_not_moved_aside(tmp_path: Path) -> None:
    store = Store.create(tmp_path / "results", {})
    one = of_command("true")
    store.add([one])
    job = store.job(one.id, repeat=1, attempt=1)
    assert claims.claim(job, executor="test") and write_record(job.run_dir, unfinished_record(job))
    job.folder.record.chmod(0)
    user = os.geteuid()
    os.seteuid(user or 65534)  # root may read all files
    try:
        with pytest.raises(ResultsError, match=r"record.json: it cannot be read: Permission denied; make it readable"):
            store.refuse_if_hidden(job)
    finally:
        os.seteuid(user)


def test_a_record_that_another_program_forged_does_not_count(disturbed: Campaign, tmp_path: Path) -> None:
    forged = next(disturbed.results.glob("experiments/removes-work*/runs/*/record.json"))
    code = f"import shutil, sys; shutil.copy({str(forged)!r}, sys.argv[1] + '/record.json'); sys.exit(3)"
    assert carried_out(tmp_path, scenario(code)).code == 1
    (record,) = records(tmp_path)
    assert (record.status, record.exit_code) == ("failed", 3)


def record_of_run(folder: Path, code: str, results: str) -> RunRecord:
    """Carry out one run of this code in this process, and return its record."""
    one = of_command("{python}", "-c", "{code}", "{run_dir}", arguments={"code": code})
    assert one.custom is not None
    store = Store.create(folder / "results", {})
    store.add([replace(one, custom=replace(one.custom, results=results))])
    job = store.job(one.id, repeat=1, attempt=1)
    assert claims.claim(job, executor="test")
    return run_one(job.run_dir)


@pytest.mark.parametrize("place", ["'r.json'", "sys.argv[1] + '/r.json'"])
def test_a_file_of_results_is_found_where_the_command_starts_and_in_its_run_s_folder(
    tmp_path: Path, place: str
) -> None:
    code = f"import sys; open({place}, 'w').write('{{\"train_runtime\": 2.0}}')"
    record = record_of_run(tmp_path, code, "file:r.json")
    assert record.status == "ok", record


@pytest.mark.parametrize(
    ("code", "results", "why"),
    [
        ("import os; open('r.json', 'w').write(OLD); os.utime('r.json', (1e9, 1e9))", "file:r.json", "older than the run"),
        ("import os; open('../../r.json', 'w').write(OLD)", "file:../../r.json", "outside the run's folder"),
        ("open('/dev/shm/old.json', 'w').write(OLD)", "file:/dev/shm/old.json", "outside the run's folder"),
    ],
)  # fmt: skip
def test_results_from_elsewhere_or_from_earlier_are_not_results_of_the_run(
    tmp_path: Path, code: str, results: str, why: str
) -> None:
    elsewhere = str(tmp_path / "old.json")
    code = code.replace("OLD", repr('{"train_runtime": 2.0}')).replace("/dev/shm/old.json", elsewhere)
    record = record_of_run(tmp_path, code, results.replace("/dev/shm/old.json", elsewhere))
    assert (record.status, record.kind) == ("failed", "no_metrics")
    assert any(f"cannot be read: it is {why}" in caveat.sentence for caveat in record.warnings), record.warnings
    assert f"cannot be read: it is {why}" in (record.cause or "") and "custom command" in (record.hint or ""), record


def test_a_run_that_was_lost_with_a_record_that_leads_nowhere_is_recorded(tmp_path: Path) -> None:
    store, one = Store.create(tmp_path / "results", {}), of_command("true")
    run = store.job(one.id, repeat=1, attempt=1)
    run.run_dir.mkdir(parents=True)
    run.folder.record.symlink_to("/nowhere/record.json")
    assert write_record(run.run_dir, unfinished_record(run)) and not write_record(run.run_dir, unfinished_record(run))
    assert store.run(run).record is not None and not run.folder.record.is_symlink()


def test_the_campaign_goes_on_without_the_folder_in_which_it_was_started(tmp_path: Path) -> None:
    folder, results = tmp_path / "scenarios", tmp_path / "results"
    folder.mkdir()
    removes = f"import shutil; shutil.rmtree({str(folder)!r}, ignore_errors=True)\n{GOOD}"
    done = carried_out(folder, scenario(removes, "a"), scenario(removes, "b"), words=("--results", str(results)))
    assert done.code == 0, done.err
    assert sum(len(one.records) for one in Store.resume(results).contents().experiments) == 2


# Each takes away the rights to a folder.
LOCKING = {
    "locks-work": "import os; os.mkdir('output'); os.chmod('.', 0)",
    "locks-run": "import os, sys; os.chmod(sys.argv[1], 0)",
    "locks-runs": "import os, sys; os.chmod(os.path.dirname(sys.argv[1]), 0o500)",
}
# Root may do everything, unless it lacks these rights.
AS_USER = ["setpriv", *(f"--{option}=-dac_override,-dac_read_search" for option in ("bounding-set", "inh-caps"))]


def test_a_command_that_takes_rights_away_does_not_stop_the_campaign(tmp_path: Path) -> None:
    as_user = [] if os.geteuid() else AS_USER
    if as_user and (not shutil.which("setpriv") or subprocess.run([*AS_USER, "true"], check=False).returncode):
        pytest.skip("nobody can give up the rights of root here")
    scenarios = [{**scenario(f"{code}\n{GOOD}", name), "repeats": 2} for name, code in LOCKING.items()]
    (tmp_path / "s.yaml").write_text(json.dumps({"scenarios": scenarios}))
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    words = [*as_user, sys.executable, "-m", "orchestrator", *RUN]
    done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [[one.status for one in records(tmp_path, name)] for name in LOCKING] == [["ok", "ok"]] * 3


def test_checkpoints_in_a_deep_tree_are_removed_and_the_run_has_its_record(disturbed: Campaign) -> None:
    """Python's own removal ends with an error after about a thousand folders."""
    assert disturbed.record("deep-output").status == "ok"
    assert not (disturbed.run_dir("deep-output") / "output").exists()


def test_a_log_that_the_system_refuses_to_look_at_stays(tmp_path: Path) -> None:
    """Earlier, the campaign ended after this run with "Bad file descriptor"."""
    code = f"import os; os.remove('../run-one.log'); os.symlink({'x' * 300!r}, '../run-one.log'); {GOOD}"
    done = carried_out(tmp_path, scenario(code), scenario(name="b"))
    assert done.code == 0, done.said
    assert [record.status for name in "ab" for record in records(tmp_path, name)] == ["ok", "ok"]
