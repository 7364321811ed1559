"""The results folder: creation, ownership, what is owed, what a crash leaves."""

import errno
import json
import os
import re
import shutil
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from factories import results
from factories.cases import document
from factories.results import of_command, record_of

from orchestrator.campaign.status.campaign import Reader
from orchestrator.campaign.status.experiment import RepeatState
from orchestrator.errors import ResultsError
from orchestrator.measure import memory_logs
from orchestrator.measure.gpu_timeline import sampler_file
from orchestrator.records import (
    SCHEMA_VERSION,
    Command,
    DataSpec,
    Framework,
    JobState,
    Measurement,
    Reason,
    Script,
    Status,
    dump,
)
from orchestrator.results import claims
from orchestrator.results.due_runs import Retry
from orchestrator.results.folder import is_ours, move_aside, refuse_to_move
from orchestrator.results.store import Store, write_record
from orchestrator.results.unfinished_record import unfinished_record
from orchestrator.run.script import command_script


def experiment(name="a", **more):
    return results.experiment(name, **{"arguments": {"x": name}, **more})


def end(job, status=Status.OK, **more):
    assert claims.claim(job, executor="test")
    assert write_record(job.run_dir, record_of(job, status, **more))


@pytest.fixture(params=["results", 'it\'s "here"\nünï $x'])
def root(request, tmp_path):
    return tmp_path / request.param


@pytest.fixture
def store(tmp_path):
    return Store.create(tmp_path / "results", {})


@pytest.mark.parametrize("target", ["nowhere", "link"])
def test_a_link_to_nothing_is_no_place(tmp_path, target):
    (tmp_path / "link").symlink_to(target)
    with pytest.raises(ResultsError, match="it is a link to nothing; remove the link"):
        Store.create(tmp_path / "link", {})


def test_a_path_with_two_dots_is_a_plain_one(tmp_path: Path) -> None:
    """Files of a run's command were taken for files outside of the run's folder."""
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "link").symlink_to("deep/er")
    for name in ("deep/../results", "link/../results2"):
        store = Store.create(tmp_path / name, {})
        assert store.root == Path(os.path.realpath(tmp_path / name)) == Store.resume(tmp_path / name).root
    assert (tmp_path / "deep" / "results2").is_dir(), "as the system follows the link"


def test_a_results_folder_that_was_renamed_is_not_made_again(root):
    store = Store.create(root, {})
    root.rename(root.with_name("archive"))
    for name in ("report.html", "screens/a.svg"):
        with pytest.raises(ResultsError, match="cannot be written: No such file or directory"):
            store.write(name, "text")
    assert not root.exists()


def test_create_and_resume(root):
    created = Store.create(root, {"argv": ["run", "x.yaml"]}, seed=3)
    suite = Store.resume(root).suite()
    assert (suite["schema"], suite["seed"], suite["asked"]) == (SCHEMA_VERSION, 3, {"argv": ["run", "x.yaml"]})
    assert is_ours(root) and created.root == root
    with pytest.raises(ResultsError, match="resume"):
        Store.create(root, {})


def test_what_is_not_ours_is_refused_and_untouched(root):
    root.mkdir()
    (root / "thesis.txt").write_text("years", encoding="utf-8")
    (root / "suite.json").write_text('{"name": "of another program"}', encoding="utf-8")
    for attempt in (lambda: Store.create(root, {}), lambda: move_aside(root), lambda: Store.resume(root)):
        with pytest.raises(ResultsError, match=r"this is not a results folder|other content than results"):
            attempt()
    assert sorted(path.name for path in root.iterdir()) == ["suite.json", "thesis.txt"]


@pytest.mark.parametrize("content", ["", "{", "[" * 100_000, None, "pipe"])
def test_a_damaged_suite_file_is_named_and_nothing_waits_for_it(content, root):
    ready, path = Store.create(root, {}), root / "suite.json"
    path.unlink()
    if content == "pipe":
        os.mkfifo(path)
    elif content is None:
        path.mkdir()
    else:
        path.write_text(content)
    for attempt in (lambda: Store.create(root, {}), lambda: move_aside(root), lambda: Store.resume(root)):
        with pytest.raises(ResultsError, match=r"suite.json: cannot be read: .*; restore it"):
            attempt()
    assert ready.root.is_dir() and (root / "experiments").is_dir()


def test_a_minimal_suite_file_gives_the_runs_of_a_damaged_one_back(root):
    stored = Store.create(root, {})
    stored.add([results.BASE])
    (root / "suite.json").write_text('{"tool": "tunebench"}')
    assert [one.experiment.id for one in Store.resume(root).contents().experiments] == [results.BASE.id]


def test_a_file_in_the_way_is_a_sentence(root):
    root.write_text("", encoding="utf-8")
    with pytest.raises(ResultsError, match="not a folder"):
        Store.create(root, {})


def test_an_empty_folder_will_do(root):
    root.mkdir()
    assert move_aside(root) is None
    Store.create(root, {})


def test_moving_aside_keeps_everything_and_overwrites_nothing(root):
    moved = []
    for number in range(3):
        Store.create(root, {"number": number})
        moved.append(move_aside(root))
    assert not root.exists() and len(set(moved)) == 3
    assert [json.loads((path / "suite.json").read_text())["asked"]["number"] for path in moved] == [0, 1, 2]
    assert all(path.name.startswith(f"{root.name}.") for path in moved)


def test_a_folder_with_a_living_run_is_not_moved(store):
    store.add([experiment()])
    claims.claim(store.job(experiment().id, repeat=1, attempt=1), executor="test")
    with pytest.raises(ResultsError, match="have not ended"):
        move_aside(store.root)


def test_a_folder_that_the_campaign_still_needs_is_not_moved(store, tmp_path):
    (store.root / "scenarios.yaml").touch()
    with pytest.raises(ResultsError, match=r"the current folder is in it; name another folder"):
        refuse_to_move(store.root, what={"the current folder": store.root})
    with pytest.raises(ResultsError, match=r"my\.yaml is in it"):
        refuse_to_move(store.root, what={"elsewhere": tmp_path, "my.yaml": store.root / "scenarios.yaml"})
    refuse_to_move(store.root, what={"elsewhere": tmp_path})
    refuse_to_move(tmp_path, what={"not a results folder": tmp_path})


def test_experiments_keep_the_order_they_were_asked_for(store):
    store.add([experiment("b"), experiment("a")])
    store.add([experiment("c"), experiment("a")])
    assert [one.experiment.arguments["x"] for one in store.contents().experiments] == ["b", "a", "c"]


@pytest.mark.parametrize("listed", [None, 5, "text", {"a": 1}, [["nested"], {"a": 1}, 5, None]], ids=str)
def test_a_list_of_experiments_that_is_none_is_written_anew(store, listed):
    """What is no text in the list is left out, whoever wrote it."""
    path = store.root / "suite.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "experiments": listed}))
    store.add([experiment()])
    assert json.loads(path.read_text())["experiments"] == [experiment().id]


def test_an_id_stands_for_one_measurement(store):
    store.add([experiment()])
    store.add([experiment(repeats=5, timeout_s=3.0, tags=("new",), data_path="/elsewhere")])
    assert store.experiment(experiment().id).repeats == 5
    framework = Framework(name="x", digest="1")
    for other in (experiment(arguments={"x": "y"}), experiment(model="n"), experiment(framework=framework)):
        with pytest.raises(ResultsError, match="another experiment with the id"):
            store.add([other])


@pytest.mark.parametrize(
    "words", [("--password=Tr0ub4dor",), ("--password", "Tr0ub4dor"), ("x", "a=1 --token=Tr0ub4dor")]
)
def test_a_secret_among_the_words_of_a_script_is_refused(store, words):
    script = Script(folder="/s", script="t.py", words=words)
    with pytest.raises(ResultsError, match=r"sets (--password|the value of token)"):
        store.add([experiment(script=script)])
    assert not list(store.root.glob("experiments/*"))


@pytest.mark.parametrize("text", document("redaction/secrets_inside_a_value"))
def test_a_secret_inside_a_value_is_refused_wherever_the_value_is(store, text):
    data = DataSpec(source="x.jsonl", form="tokens", response_template=text)
    for one in (
        experiment(env={"CONN": text}),
        experiment(arguments={"note": text}),
        experiment(arguments={text: "note"}),
        experiment(tags=(text,)),
        experiment(data=data),
        experiment(data=replace(data, response_template=None, chat_template=text)),
        of_command("t.py", "-H", text),
        experiment(script=Script(folder="/s", script="t.py", words=("-p", text))),
    ):
        with pytest.raises(
            ResultsError, match=r"sets .*, which would be written into the results folder; .* export it"
        ):
            store.add([one])
    assert not list(store.root.glob("experiments/*"))


@pytest.mark.parametrize("text", document("redaction/no_secrets_inside_a_value"))
def test_a_value_that_only_names_a_secret_or_may_be_code_is_stored_as_it_is(store, text):
    one = of_command("python", "-c", text, env={"CONN": text}, arguments={"note": text}, tags=(text,))
    store.add([one])
    assert store.experiment(one.id) == one
    assert "is a secret" not in command_script(Command(argv=("python", "-c", text), env={"CONN": text}, cwd=Path("/s")))


FILES = (
    "credentials.py",
    "secret/my_secret.py",
    "password.py",
    "hub_token",
    "api_key",
    "credentials.json",
    "secrets.yaml",
)


@pytest.mark.parametrize("digest", ["7cb9786fd111", "unreadable", "123456789012"])
@pytest.mark.parametrize("file", FILES)
def test_the_digest_of_a_file_is_not_a_secret_whatever_the_file_is_called(store, file, digest):
    """A training with a module `credentials.py` was refused: the scenario sets the value of credentials.py."""
    one = of_command("python", "t.py", sources={"t.py": "0123456789ab", file: digest})
    store.add([one])
    assert store.experiment(one.id) == one


@pytest.mark.parametrize("name", ["hf_QwErTyUiOpAsDfGhJkLzXcVb.py", "t.py --token=Tr0ub4dor"])
def test_a_secret_in_the_name_of_a_file_is_refused(store, name):
    with pytest.raises(ResultsError, match="which would be written into the results folder"):
        store.add([of_command("python", "t.py", sources={name: "0123456789ab"})])


def test_a_half_written_experiment_is_written_anew(store):
    store.add([experiment()])
    path = store.root / "experiments" / experiment().id / "experiment.json"
    path.write_text(dump(experiment())[:40], encoding="utf-8")
    store.add([experiment()])
    assert store.experiment(experiment().id) == experiment()


def test_reading_names_what_a_crash_left_and_goes_on(store):
    good, bad, worse = experiment("good"), experiment("bad"), experiment("worse")
    store.add([good, bad, worse])
    for one in (good, bad):
        end(store.job(one.id, repeat=1, attempt=1))
    (store.run_dir(bad.id, 1, 1) / "record.json").write_text('{"status": "o', encoding="utf-8")
    (store.root / "experiments" / worse.id / "experiment.json").write_text("", encoding="utf-8")
    (store.root / "experiments" / "stray").mkdir()
    (store.root / "experiments" / good.id / "runs" / "notes").mkdir()
    contents = store.contents()
    assert [(one.experiment.id, len(one.records)) for one in contents.experiments] == [(good.id, 1), (bad.id, 0)]
    assert len(contents.warnings) == 2
    assert bad.id in "".join(contents.warnings) and worse.id in "".join(contents.warnings)


def test_a_record_that_is_none_is_named_with_what_is_wrong_in_it(store):
    store.add([experiment()])
    job = store.job(experiment().id, repeat=1, attempt=1)
    end(job)
    record = job.run_dir / "record.json"
    record.write_text(re.sub(r'"wall_s": [^,\n]+', '"wall_s": "long"', record.read_text()))
    (sentence,) = store.contents().warnings
    assert str(record) in sentence and "wall_s: Input should be a valid number" in sentence


def test_of_a_record_with_thousands_of_mistakes_they_are_counted(store):
    store.add([experiment()])
    job = store.job(experiment().id, repeat=1, attempt=1)
    end(job)
    record = job.run_dir / "record.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | {"measurements": [1] * 5000}))
    (sentence,) = store.contents().warnings
    assert sentence.endswith("5,000 of its fields are wrong")
    record.write_text(json.dumps(json.loads(record.read_text()) | {"measurements": [], "ranks": 1, "x" * 10**5: 1}))
    (sentence,) = store.contents().warnings
    assert "ranks: " in sentence and len(sentence) < 1000


def test_rounds_are_interleaved_shuffled_and_repeatable(tmp_path):
    many = [experiment(f"{number:02}", repeats=3) for number in range(12)]

    def order(name, seed):
        store = Store.create(tmp_path / name, {}, seed=seed)
        store.add(many)
        return [(job.repeat, job.experiment_id) for job in store.plan(many)]

    first = order("a", 1)
    assert [repeat for repeat, _ in first] == [1] * 12 + [2] * 12 + [3] * 12
    rounds = [[name for repeat, name in first if repeat == number] for number in (1, 2, 3)]
    assert all(sorted(one) == [experiment.id for experiment in many] for one in rounds)
    assert rounds[0] != rounds[1] != rounds[2]
    assert order("b", 1) == first != order("c", 2)


def test_what_is_owed(store):
    one = experiment(repeats=2)
    store.add([one])

    def owed(**more):
        return [job.name for job in store.plan([one], **more)]

    assert owed() == ["r1-t1", "r2-t1"]
    end(store.job(one.id, repeat=1, attempt=1), Status.LOST)
    assert owed() == ["r1-t2", "r2-t1"]
    end(store.job(one.id, repeat=1, attempt=2), Status.FAILED, kind="port_in_use")
    assert owed() == ["r1-t3", "r2-t1"]
    end(store.job(one.id, repeat=1, attempt=3), Status.FAILED, kind="oom_cuda")
    assert owed() == ["r2-t1"]
    assert owed(retry=Retry(failed=True)) == ["r1-t4", "r2-t1"]
    claims.claim(store.job(one.id, repeat=2, attempt=1), executor="test")
    assert owed() == []


def test_skipped_experiments_owe_nothing(store):
    reason = Reason(kind="x", text="y")
    assert store.plan([experiment(skip=reason), experiment("b", cannot_run_here=reason)]) == ()


def test_the_first_record_stands(store):
    job = store.job(experiment().id, repeat=1, attempt=1)
    end(job, measurements=(Measurement(name="x", value=float("nan"), source="s"),))
    assert not write_record(job.run_dir, record_of(job, Status.FAILED))
    stored = store.run(job)
    assert (stored.record.status, stored.record.measurements[0].value, stored.state) == ("ok", None, JobState.ENDED)
    assert [path.name for path in job.run_dir.iterdir() if path.name.startswith(".")] == []


def test_a_lost_runs_record_says_what_its_process_complained_about(store):
    job = store.job(experiment().id, repeat=1, attempt=1)
    claims.claim(job, executor="test")
    (job.run_dir / "run-one.log").write_text("ImportError: x\n", encoding="utf-8")
    lost = unfinished_record(job)
    assert (lost.status, lost.tail) == (Status.LOST, "ImportError: x\n")


@pytest.mark.parametrize(("ago", "lived"), [(259_200.0, 100.0), (259_200.0, 0.0), (150.0, 140.0)])
def test_a_lost_run_took_the_time_until_its_last_change_and_not_until_the_next_call(store, ago, lived):
    """A machine that is down over the weekend uses no budget."""
    job = store.job(experiment().id, repeat=1, attempt=1)
    claims.claim(job, executor="test")
    began = time.time() - ago
    content = json.loads(job.folder.claim.read_text())
    job.folder.claim.write_text(json.dumps({**content, "claimed_at": began}))
    for name in ("heartbeat", "stdout.log", "run-one.log"):
        (job.run_dir / name).touch()
    for path in job.run_dir.iterdir():
        os.utime(path, (began, began))
    os.utime(job.run_dir / "stdout.log", (began + lived, began + lived))
    (job.run_dir / "record.json").write_text("{")  # damaged later
    (job.run_dir / "note.txt").write_text("why did it end?")
    expected = ago if ago - lived < 2 * claims.HEARTBEAT_S else lived
    assert unfinished_record(job).wall_s == pytest.approx(expected, abs=2.0)


@pytest.mark.parametrize("ahead", [0.0, 40.0, 400.0, 86_400.0])
def test_the_clock_of_a_file_server_may_be_ahead_of_a_lost_run(store, ahead):
    """The newest files were left out, so a run of hours had taken seconds, and no budget counted it."""
    job = store.job(experiment().id, repeat=1, attempt=1)
    claims.claim(job, executor="test")
    began = time.time() - 18_000
    content = json.loads(job.folder.claim.read_text())
    job.folder.claim.write_text(json.dumps({**content, "claimed_at": began}))
    for name, at in (("job.json", began), ("owner.json", began), ("heartbeat", time.time() - 5)):
        (job.run_dir / name).touch()
        os.utime(job.run_dir / name, (at + ahead, at + ahead))
    assert unfinished_record(job).wall_s == pytest.approx(18_000, abs=6.0)


def test_a_lost_run_without_its_claim_is_as_old_as_its_folder(store: Store) -> None:
    job = store.job(experiment().id, repeat=1, attempt=1)
    claims.claim(job, executor="test")
    job.folder.claim.unlink()
    job.folder.heartbeat.touch()
    for path, ago in ((job.folder.heartbeat, 400.0), (job.run_dir, 900.0)):
        os.utime(path, (time.time() - ago, time.time() - ago))
    assert unfinished_record(job).wall_s == pytest.approx(500.0, abs=2.0)


@pytest.mark.parametrize("wrong_by", [-86_400.0, 86_400.0])
@pytest.mark.parametrize("ended", [400.0, 0.0])
def test_the_clock_of_a_lost_runs_host_may_be_wrong(store: Store, wrong_by: float, ended: float) -> None:
    """The file server dates the run's files. A run of 100 s took a day, or no time."""
    job = store.job(experiment().id, repeat=1, attempt=1)
    claims.claim(job, executor="test")
    began = time.time() - ended - 100.0
    content = json.loads(job.folder.claim.read_text())
    job.folder.claim.write_text(json.dumps({**content, "claimed_at": began + wrong_by}))
    for name, at in (("job.json", began), ("owner.json", began), ("heartbeat", began + 100.0)):
        (job.run_dir / name).touch()
        os.utime(job.run_dir / name, (at, at))
    assert unfinished_record(job).wall_s == pytest.approx(100.0, abs=2.0)


def test_states_of_a_run(store):
    job = store.job(experiment().id, repeat=1, attempt=1)
    assert claims.state(job.run_dir) is JobState.PENDING
    assert claims.claim(job, executor="test")
    assert claims.state(job.run_dir) is JobState.RUNNING
    assert claims.claim(job, executor="test") is None
    owner = claims.this_process()
    for gone in (replace(owner, pid=2**22 - 1), replace(owner, start_time=1.0)):
        (job.run_dir / "owner.json").write_text(json.dumps(fields(gone)), encoding="utf-8")
        assert claims.state(job.run_dir) is JobState.LOST
    (job.run_dir / "owner.json").write_text(json.dumps(fields(replace(owner, host="far", pid=1))), encoding="utf-8")
    assert claims.state(job.run_dir) is JobState.RUNNING
    write_record(job.run_dir, record_of(job))
    assert claims.state(job.run_dir) is JobState.ENDED


def fields(owner):
    return {name: getattr(owner, name) for name in ("host", "boot_id", "pid", "start_time")}


def test_a_folder_without_a_claim_is_lost(store):
    job = store.job(experiment().id, repeat=1, attempt=1)
    job.run_dir.mkdir(parents=True)
    (job.run_dir / "job.json").write_text('{"mark', encoding="utf-8")
    assert claims.state(job.run_dir) is JobState.LOST


ODD_CLAIMS = [{"marker": marker} for marker in (None, 7, [], "", "/../../x", "0" * 31, "0" * 32 + "\n")]
ODD_CLAIMS += [{"claimed_at": moment} for moment in (None, "x", [1], -1, 1e300, float("nan"))]
ODD_CLAIMS += [{"repeat": "x"}, {"details": [1]}, {"owner": None}]


@pytest.mark.parametrize("odd", ODD_CLAIMS, ids=str)
def test_a_claim_with_a_value_that_cannot_be_is_none(store, odd):
    """Above all, one without a marker must not name every process without the variable."""
    store.add([experiment()])
    job = store.job(experiment().id, repeat=1, attempt=1)
    assert claims.claim(job, executor="test") == claims.read_claim(job.run_dir)
    content = json.loads(job.folder.claim.read_text())
    job.folder.claim.write_text(json.dumps({**content, **odd}))
    assert claims.read_claim(job.run_dir) is None
    assert claims.state(job.run_dir) is JobState.LOST and unfinished_record(job).status is Status.LOST
    assert "job.json: missing or damaged" in Reader(store).look().warnings[0]


@pytest.mark.parametrize("pid", [-1, 0, 2**31, 2**70, "x", None])
@pytest.mark.parametrize("name", ["owner.json", "job.json"])
def test_a_number_that_no_process_can_have_names_no_owner(store, name, pid):
    job = store.job(experiment().id, repeat=1, attempt=1)
    assert claims.claim(job, executor="test")
    claims.take_over(job.run_dir)
    content = json.loads((job.run_dir / name).read_text())
    content.get("owner", content)["pid"] = pid
    (job.run_dir / name).write_text(json.dumps(content))
    claimed = claims.read_claim(job.run_dir)
    assert claims.owners(job.run_dir) == ((claimed.owner,) if claimed else (claims.this_process(),))
    assert claims.state(job.run_dir) is JobState.RUNNING


def aside(runs, marker, owner):
    """The folder of a claim whose process was killed before the rename."""
    folder = runs / f".{marker}"
    folder.mkdir(parents=True)
    claim = {"experiment_id": "e", "repeat": 1, "attempt": 1, "marker": marker, "executor": "x", "claimed_at": 0.0}
    (folder / "job.json").write_text(json.dumps({**claim, "details": {}, "owner": fields(owner)}))
    return folder


def long_ago(path):
    moment = time.time() - claims.SILENT_AFTER_S - 60
    os.utime(path, (moment, moment), follow_symlinks=False)


def test_what_a_killed_claimant_left_is_swept_and_a_living_one_is_left_alone(store):
    runs = store.job(experiment().id, repeat=1, attempt=1).run_dir.parent
    owner = claims.this_process()
    dead, half = aside(runs, "d" * 32, replace(owner, start_time=1.0)), runs / f".{'a' * 32}"
    alive, far = aside(runs, "b" * 32, owner), aside(runs, "f" * 32, replace(owner, host="far", boot_id="far"))
    half.mkdir()
    (half / f".job.json.{'0' * 32}").write_text('{"exp')
    just_begun = runs / f".{'c' * 32}"
    just_begun.mkdir()
    long_ago(half)
    store.remove_unfinished_claims()
    assert not dead.exists() and not half.exists()
    assert {*runs.iterdir()} == {alive, far, just_begun}


def test_what_a_user_keeps_beside_the_runs_is_never_removed(store, tmp_path):
    """Neither by a dot, nor by age, nor through a link, nor with a name or a claim like ours."""
    runs = store.job(experiment().id, repeat=1, attempt=1).run_dir.parent
    gone = replace(claims.this_process(), start_time=1.0)
    named, with_notes = aside(runs, "notes", gone), aside(runs, "e" * 32, gone)
    elsewhere = aside(tmp_path / "elsewhere", "1" * 32, gone)
    (with_notes / "notes.txt").write_text("mine")
    (runs / f".{'1' * 32}").symlink_to(elsewhere)
    for name in (".git", ".ipynb_checkpoints"):
        (runs / name).mkdir()
        (runs / name / "HEAD").write_text("mine")
    for path in [*runs.rglob("*"), elsewhere]:
        long_ago(path)
    kept = [*runs.iterdir(), named / "job.json", *with_notes.iterdir(), elsewhere / "job.json", runs / ".git" / "HEAD"]
    before = {path: path.lstat().st_mtime_ns for path in (runs / ".git", runs / ".ipynb_checkpoints")}
    store.remove_unfinished_claims()
    assert [path for path in kept if not os.path.lexists(path)] == []
    assert {path: path.lstat().st_mtime_ns for path in before} == before, "not even a file was made in them"


def test_only_a_whole_record_of_this_run_is_taken_for_the_one_that_its_process_kept(store):
    job, other = (store.job(experiment().id, repeat=repeat, attempt=1) for repeat in (1, 2))
    assert claims.claim(job, executor="test")
    for text in ("\0" * 512, dump(record_of(job))[:-20], dump(record_of(other))):
        job.folder.kept_record.write_text(text)
        assert unfinished_record(job).status is Status.LOST
    job.folder.kept_record.write_text(dump(record_of(job)))
    assert write_record(job.run_dir, unfinished_record(job))
    assert store.run(job).record == record_of(job) and not job.folder.kept_record.exists()


def test_an_interrupted_run_without_a_record_says_if_it_had_begun(store):
    job = store.job(experiment().id, repeat=1, attempt=1)
    assert claims.claim(job, executor="test")
    assert "had not begun" in (unfinished_record(job, Status.CANCELLED).cause or "")
    claims.take_over(job.run_dir)
    assert "left no record" in (unfinished_record(job, Status.CANCELLED).cause or "")


def test_a_run_of_another_host_is_judged_by_its_heartbeat(store):
    job = store.job(experiment().id, repeat=1, attempt=1)
    assert claims.claim(job, executor="test")
    owner = replace(claims.this_process(), host="far", pid=1)
    (job.run_dir / "owner.json").write_text(json.dumps(fields(owner)))
    assert claims.state(job.run_dir) is JobState.RUNNING
    long_ago = time.time() - claims.SILENT_AFTER_S - 60
    for name in ("job.json", "owner.json"):
        os.utime(job.run_dir / name, (long_ago, long_ago))
    assert claims.state(job.run_dir) is JobState.SILENT, "unknown, never taken for dead"
    claims.beat(job.run_dir)
    assert claims.state(job.run_dir) is JobState.RUNNING
    os.utime(job.run_dir / "heartbeat", (long_ago, long_ago))
    assert [one.name for one in store.plan([experiment()])] == []
    write_record(job.run_dir, record_of(job))
    assert claims.state(job.run_dir) is JobState.ENDED


def far_run(store):
    """A run that a process of another host has, of which something was heard just now."""
    store.add([experiment()])
    job = store.job(experiment().id, repeat=1, attempt=1)
    assert claims.claim(job, executor="test")
    owner = replace(claims.this_process(), host="far", pid=1)
    (job.run_dir / "owner.json").write_text(json.dumps(fields(owner)))
    return job


def test_an_experiment_whose_folder_cannot_be_read_is_named_and_not_missing(store):
    """A link to itself stands for a folder that another user hides: it cannot be read, and it exists."""
    store.add([results.BASE])
    folder = store.root / "experiments" / results.BASE.id
    shutil.rmtree(folder)
    folder.symlink_to(folder)
    (warning,) = store.contents().warnings
    why = os.strerror(errno.ELOOP)
    assert warning == f"{folder / 'experiment.json'}: cannot be read as an experiment: {why}"
    folder.unlink()
    with pytest.raises(ResultsError, match="none of them is there"):
        store.contents()


def test_an_unreadable_list_of_experiments_is_not_another_kind_of_folder(store):
    suite = store.root / "suite.json"
    suite.unlink()
    suite.symlink_to(suite)
    with pytest.raises(ResultsError, match=r"suite.json: cannot be read: .*; restore it"):
        Store.resume(store.root)


def test_reading_writes_nothing(store):
    """A file that is made and removed leaves its trace: the folder's time."""
    far_run(store)
    before = {path: path.stat().st_mtime_ns for path in [store.root, *store.root.rglob("*")]}
    (run,) = store.contents().experiments[0].runs
    assert run.state is JobState.RUNNING
    (cell,) = Reader(store).look().experiments
    assert [one.state for one in cell.repeats] == [RepeatState.RUNNING]
    assert store.plan([experiment()]) == ()
    assert {path: path.stat().st_mtime_ns for path in [store.root, *store.root.rglob("*")]} == before


def test_who_only_looks_takes_his_own_clock_and_who_decides_the_file_servers(store):
    job = far_run(store)
    (job.run_dir / "heartbeat").touch()
    ahead = time.time() + claims.SILENT_AFTER_S + 60
    late = time.time() - claims.SILENT_AFTER_S - 60
    for moment, by_ours in ((ahead, JobState.SILENT), (late, JobState.SILENT)):
        for name in ("job.json", "owner.json", "heartbeat"):
            os.utime(job.run_dir / name, (moment, moment))
        assert claims.state(job.run_dir) is by_ours
        assert claims.state(job.run_dir, clock=lambda _, now=moment + 1: now) is JobState.RUNNING
        assert claims.state(job.run_dir, clock=lambda _: None) is JobState.SILENT, "what can't be told is not alive"
    os.utime(job.run_dir, (late, late))  # what was changed within one tick of the kernel has one time
    now = claims.file_servers_clock(job.run_dir)
    assert now == pytest.approx(time.time(), abs=30)
    assert job.run_dir.stat().st_mtime > late and not list(job.run_dir.glob(".*"))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("worker-rank0.json", json.dumps({"status": "error", "error": {"message": "SAID"}})),
        (sampler_file.SAMPLES, "time,gpu,what,value\n1.5,0,memory,7\n1.5,0,failed,power: SAID\n"),
        (memory_logs.SAMPLES, "SAID\n2026/11/29 10:00:00.000, NVIDIA SAID, 0, 7 MiB\n"),
        (f"nodes/n2/{sampler_file.SAMPLES}", "SAID\n"),
    ],
)
def test_a_killed_run_leaves_no_secret_in_files_with_messages(store: Store, name: str, text: str) -> None:
    """`run-one` redacts them, unless it was killed."""
    store.add([experiment()])
    (job,) = store.plan([experiment()])
    assert claims.claim(job, executor="local")
    (file := job.run_dir / name).parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text.replace("SAID", "password=s3cretpw99x"))
    assert write_record(job.run_dir, unfinished_record(job))
    assert file.read_text() == text.replace("SAID", "password=***")


def test_dates_at_the_epoch_are_dates(store):
    """Archives and some file servers write them. The folder's date is no sign of life, since anyone may write into it."""
    job = far_run(store)
    for name in ("job.json", "owner.json"):
        os.utime(job.run_dir / name, (0, 0))
    assert claims.state(job.run_dir) is JobState.SILENT


def test_another_container_of_this_host_is_judged_by_its_heartbeat_and_an_earlier_boot_is_over(store):
    job = store.job(experiment().id, repeat=1, attempt=1)
    assert claims.claim(job, executor="test")
    owner = claims.this_process()
    inside = {**fields(owner), "pid_namespace": "pid:[1]", "pid": 2**22 - 1}
    (job.run_dir / "owner.json").write_text(json.dumps(inside))
    assert claims.state(job.run_dir) is JobState.RUNNING
    (job.run_dir / "owner.json").write_text(json.dumps({**inside, "boot_id": "before"}))
    assert claims.state(job.run_dir) is JobState.RUNNING, (
        "another host of this name, since its files changed in this boot"
    )
    for path in job.run_dir.iterdir():
        long_ago(path)
    assert claims.state(job.run_dir) is JobState.LOST


def test_dates_in_the_future_are_no_signs_of_life(store):
    job = far_run(store)
    tomorrow = time.time() + 86400
    for path in job.run_dir.iterdir():
        os.utime(path, (tomorrow, tomorrow))
    assert claims.state(job.run_dir, clock=claims.file_servers_clock) is JobState.SILENT
    claims.beat(job.run_dir)
    assert claims.state(job.run_dir, clock=claims.file_servers_clock) is JobState.RUNNING


def test_a_host_that_got_another_name_knows_its_own_runs(store):
    job = store.job(experiment().id, repeat=1, attempt=1)
    assert claims.claim(job, executor="test")
    mine = asdict(replace(claims.this_process(), host="renamed"))
    (job.run_dir / "owner.json").write_text(json.dumps(mine))
    assert claims.owners(job.run_dir)[0].lives() and claims.state(job.run_dir) is JobState.RUNNING
    (job.run_dir / "owner.json").write_text(json.dumps({**mine, "start_time": 1.0}))
    assert claims.state(job.run_dir) is JobState.LOST


def test_neighbours_are_counted_at_one_time_and_not_over_the_whole_run(tmp_path: Path) -> None:
    assert claims.neighbours(tmp_path) == ((), 0)
    for beside in (["a", "b"], ["b"], ["b", "c"]):  # b stays, a ends, c follows
        claims.note_neighbours(tmp_path, beside)
    assert claims.neighbours(tmp_path) == (("a", "b", "c"), 2)
