"""Whole campaigns in containers: with stand-ins for podman and apptainer that run the command here, and with podman itself."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from campaigns import Campaign, tunebench

# Each stand-in knows one image, whose content is the file IMAGE. It runs the command without a container, with the variables
# and in the folder that it was given.
PODMAN = f"""#!{sys.executable}
import json, os, sys
log = open(os.environ["LOG"], "a")
print(json.dumps(sys.argv[1:]), file=log, flush=True)
image = os.path.join(os.environ["STORE"], "IMAGE")
match sys.argv[1:]:
    case ["--version"]:
        print("podman version 9.9")
    case ["image", "inspect", _] if os.environ.get("BROKEN"):
        sys.exit("Error: database is locked")
    case ["image", "inspect", _] if os.path.exists(image):
        print(json.dumps([{{"Id": open(image).read().strip(), "Size": 1234, "RepoDigests": ["x/y@sha256:feed"]}}]))
    case ["pull", "--quiet", _] if os.environ.get("REGISTRY"):
        open(image, "w").write(os.environ["REGISTRY"])
    case ["run", *words]:
        kept, env = [], {{"PATH": os.environ["PATH"], "container": "podman"}}
        while words[0].startswith("-"):
            word = words.pop(0)
            name, equals, value = word.removeprefix("--env=").partition("=")
            if word.startswith("--env=") and (equals or name in os.environ):
                env[name] = value if equals else os.environ[name]
            if word.startswith("--workdir="):
                os.chdir(word.removeprefix("--workdir="))
        assert words[0] == open(image).read().strip(), words
        os.execvpe(words[1], words[1:], env)
    case _:
        sys.exit("Error: " + sys.argv[-1] + ": not known to the registry")
"""
APPTAINER = f"""#!{sys.executable}
import os, sys
match sys.argv[1:]:
    case ["--version"]:
        print("apptainer version 1.9")
    case ["pull", "--force", file, name] if name.startswith("docker://"):
        open(file, "w").write(name)
    case ["exec", *words]:
        prefix = "APPTAINERENV_"
        env = {{name.removeprefix(prefix): value for name, value in os.environ.items() if name.startswith(prefix)}}
        while words[0].startswith("-"):
            word = words.pop(0)
            if word.startswith("--pwd="):
                os.chdir(word.removeprefix("--pwd="))
        assert os.path.isfile(words[0]), words
        os.execvpe(words[1], words[1:], {{"PATH": os.environ["PATH"], "container": "apptainer", **env}})
    case _:
        sys.exit("FATAL: " + " ".join(sys.argv[1:]))
"""
PYTHON = f"""#!/bin/sh
exec {sys.executable} "$@"
"""
TRAINER = """
import json, os, sys
there = {name: os.environ.get(name) for name in ("container", "MY_TOKEN", "UNRELATED", "A", "TUNEBENCH_RUN_DIR")}
json.dump({**there, "cwd": os.getcwd()}, open(os.path.join(os.environ["TUNEBENCH_RUN_DIR"], "there.json"), "w"))
print(json.dumps({"train_runtime": 2.0, "train_loss": 0.5}))
"""
SCENARIO = """
environments:
  box: {container: %s, env: {A: '1'}}
scenarios:
- name: s
  device: cpu
  environment: %s
  trainer: custom
  arguments: {model_name_or_path: m}
  custom: {command: ['{python}', '{scenario_dir}/train.py'], launcher: none}
"""
ID = "sha256:" + "ab" * 32


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a trainer and with stand-ins for podman and apptainer on PATH."""
    (tmp_path / "bin").mkdir()
    for name, text in (("podman", PODMAN), ("apptainer", APPTAINER), ("python", PYTHON)):
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(stat.S_IRWXU)
    (tmp_path / "train.py").write_text(TRAINER)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("STORE", str(tmp_path))
    monkeypatch.setenv("LOG", str(tmp_path / "podman.log"))
    monkeypatch.delenv("TUNEBENCH_ENVIRONMENTS", raising=False)
    return tmp_path


def write(folder: Path, container: str, environment: str = "box") -> None:
    (folder / "s.yaml").write_text(SCENARIO % (container, environment))


def run(folder: Path, *words: str, **env: str) -> Campaign:
    return tunebench(folder, "run", "s.yaml", *words, **env)


def there(campaign: Campaign, part: str) -> dict[str, str | None]:
    content: dict[str, str | None] = json.loads((campaign.run_dir(part) / "there.json").read_text())
    return content


@pytest.mark.parametrize(
    ("container", "image"),
    [
        ("{image: docker://x/y:1, program: podman}", ID),
        ("{image: docker://x/y:1, program: apptainer}", None),
    ],
)
def test_a_campaign_in_a_container(folder: Path, container: str, image: str | None) -> None:
    write(folder, container, "[null, box]")
    (folder / "s.yaml").write_text((folder / "s.yaml").read_text().replace("'{python}'", sys.executable))
    before = tunebench(folder, "plan", "s.yaml", "--json")
    box = next(one for one in json.loads(before.out)["experiments"] if one.get("software"))
    assert box["id"] is None and box["software"]["image"] is None
    assert not (folder / "podman.log").exists(), "a plan never asks the program, and never pulls"

    campaign = run(folder, REGISTRY=ID, MY_TOKEN="of-the-shell-1234567", UNRELATED="x")
    assert campaign.code == 0, campaign.said
    program = "podman" if image else "apptainer"
    found = there(campaign, "box")
    assert (found["container"], found["A"], found["UNRELATED"]) == (program, "1", None)
    assert found["MY_TOKEN"] == "of-the-shell-1234567"
    assert found["cwd"] == str(campaign.run_dir("box") / "work")
    assert there(campaign, "none.gpus1-")["container"] is None
    text = (campaign.run_dir("box") / "command.sh").read_text()
    assert "of-the-shell" not in text and program in text

    record = campaign.record("box")
    kept = record.provenance["container"]
    assert kept["program"] == program and kept["digest"].startswith("sha256:") and image in (None, kept["digest"])
    assert record.provenance["packages"]["pytest"] == campaign.record("none.gpus1-").provenance["packages"]["pytest"]

    after = json.loads(tunebench(folder, "plan", "s.yaml", "--json").out)["experiments"]
    assert {one["id"] for one in after} == set(campaign.records())
    shown = tunebench(folder, "env", "show", "s.yaml", "box").out
    assert kept["digest"] in shown and "pytest==" in shown
    assert "built" in tunebench(folder, "env", "list").out


def test_the_image_that_was_locked_is_used_until_its_environment_is_removed(folder: Path) -> None:
    write(folder, "{image: x/y:1, program: podman}")
    first = run(folder, REGISTRY=ID)
    assert first.code == 0, first.said
    assert tunebench(folder, "env", "lock", "s.yaml", "box").out == "x/y@sha256:feed\n"
    newer = "sha256:" + "cd" * 32
    (folder / "IMAGE").write_text(newer)  # the tag names another image now
    (only,) = first.records()
    assert only in tunebench(folder, "plan", "s.yaml", "--json").out
    removed = tunebench(folder, "env", "rm", "box")
    assert removed.code == 0 and "the image stays in podman's store" in removed.said and ID in removed.said
    second = run(folder, "--results", "second")
    assert second.code == 0, second.said
    (other,) = (path.name for path in (folder / "second" / "experiments").iterdir())
    assert other != only and other.rpartition("-")[0] == only.rpartition("-")[0], "another image, another experiment"
    compared = tunebench(folder, "compare", "results", "second")
    assert "environment_lock" in compared.out, compared.said


def test_a_changed_image_file_is_another_environment(folder: Path) -> None:
    (folder / "image.sif").write_text("one")
    write(folder, "image.sif")
    first = run(folder)
    assert first.code == 0, first.said
    (folder / "image.sif").write_text("another")
    assert json.loads(tunebench(folder, "plan", "s.yaml", "--json").out)["experiments"][0]["id"] is None
    assert len(run(folder).records()) == 2
    removed = tunebench(folder, "env", "rm", "box")
    assert f"the file {folder / 'image.sif'} stays" in removed.said and (folder / "image.sif").exists()


def test_an_image_that_cannot_be_pulled_is_explained(folder: Path) -> None:
    write(folder, "{image: x/y:1, program: podman}")
    campaign = run(folder)
    assert campaign.code != 0 and "Traceback" not in campaign.said
    assert (
        "environment 'box': pulling the image failed: Error: x/y:1: not known to the registry; correct" in campaign.said
    )


def test_a_podman_that_fails_is_not_a_missing_image(folder: Path) -> None:
    write(folder, "{image: x/y:1, program: podman}")
    assert tunebench(folder, "env", "build", "s.yaml", REGISTRY=ID).code == 0
    campaign = run(folder, BROKEN="1")
    (records,) = campaign.records().values()
    cause = records[0].cause or ""
    assert "Error: database is locked" in cause and "not on this machine" not in cause


def test_an_interpreter_that_the_image_lacks_is_explained(folder: Path) -> None:
    write(folder, "{image: x/y:1, program: podman, interpreter: /opt/none/bin/python}")
    campaign = run(folder, REGISTRY=ID)
    assert campaign.code != 0 and "environment 'box': starting its interpreter failed: " in campaign.said


def _podman(folder: Path) -> str | None:
    """Make podman's configuration and an image of the host's busybox. Return why podman cannot start a container here."""
    busybox, podman = shutil.which("busybox"), shutil.which("podman")
    if podman is None or busybox is None:
        return "podman or busybox is not installed"
    runtime = "runc" if shutil.which("runc") else "crun"
    (folder / "containers.conf").write_text(
        f'[containers]\ndefault_ulimits = ["nofile=1000:1000", "nproc=1000:1000"]\n'
        f'[engine]\nruntime = "{runtime}"\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n'
    )
    (folder / "storage.conf").write_text(
        f'[storage]\ndriver = "vfs"\ngraphroot = "{folder}/store"\nrunroot = "{folder}/run"\n'
    )
    (folder / "root" / "bin").mkdir(parents=True)
    shutil.copy(busybox, folder / "root" / "bin" / "busybox")
    for name in ("sh", "sleep", "env", "setsid", "pwd", "cp"):
        (folder / "root" / "bin" / name).symlink_to("busybox")
    subprocess.run(["tar", "-C", folder / "root", "-cf", folder / "root.tar", "."], check=True)
    for words in (["import", folder / "root.tar", "localhost/tiny:1"], ["run", "--rm", "localhost/tiny:1", "pwd"]):
        done = subprocess.run([podman, *words], capture_output=True, text=True, timeout=60)
        if done.returncode:
            return f"podman cannot start a container here: {done.stderr.strip()[-200:]}"
    return None


@pytest.fixture
def podman(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder in which the real podman has the image localhost/tiny:1. The test is skipped where no container can start."""
    monkeypatch.setenv("CONTAINERS_CONF", str(tmp_path / "containers.conf"))
    monkeypatch.setenv("CONTAINERS_STORAGE_CONF", str(tmp_path / "storage.conf"))
    monkeypatch.delenv("TUNEBENCH_ENVIRONMENTS", raising=False)
    if why := _podman(tmp_path):
        pytest.skip(why)
    yield tmp_path


REAL = """
environments:
  box: {container: {image: localhost/tiny:1, program: podman, mounts: ['extra:/data']}}
scenarios:
- {name: good, KEYS, custom: {command: [sh, '{scenario_dir}/train.sh'], launcher: none}}
- {name: hung, KEYS, timeout_s: 3, custom: {command: [sh, '{scenario_dir}/hang.sh'], launcher: none}}
- {name: bad, KEYS, custom: {command: [sh, -c, 'exit 7'], launcher: none}}
""".replace("KEYS", "device: cpu, environment: box, trainer: custom, arguments: {model_name_or_path: m}")
GOOD = """pwd >"$TUNEBENCH_RUN_DIR/pwd.txt"
cp /data/file.txt "$TUNEBENCH_RUN_DIR/copied.txt"
[ ! -e /usr/bin/env ] || exit 9  # the image has no such file
echo '{"train_runtime": 2.0, "train_loss": 0.5}'
"""
# One process keeps everything, one loses its parent, and one has neither its variables nor its session.
HANGS = "(sleep 7654 &)\nenv -i /bin/setsid /bin/sleep 7654 &\nexec sleep 7654\n"


def test_podman_runs_a_training_in_a_container_and_leaves_nothing(podman: Path) -> None:
    (podman / "s.yaml").write_text(REAL)
    (podman / "train.sh").write_text(GOOD)
    (podman / "hang.sh").write_text(HANGS)
    (podman / "extra").mkdir()
    (podman / "extra" / "file.txt").write_text("from a mount\n")
    campaign = run(podman)
    assert campaign.code == 1, campaign.said
    good, hung, bad = (campaign.record(name) for name in ("good", "hung", "bad"))
    assert (good.status, hung.status, bad.exit_code) == ("ok", "timeout", 7), campaign.said
    folder = campaign.run_dir("good")
    assert (folder / "pwd.txt").read_text() == f"{folder}/work\n"
    assert (folder / "copied.txt").read_text() == "from a mount\n"
    assert (folder / "copied.txt").stat().st_uid == os.geteuid()
    known = subprocess.run(["podman", "image", "inspect", "localhost/tiny:1"], capture_output=True, check=True)
    assert good.provenance["container"]["digest"] == f"sha256:{json.loads(known.stdout)[0]['Id']}"
    left = [one.info["cmdline"] for one in psutil.process_iter(["cmdline"]) if "7654" in (one.info["cmdline"] or ())]
    assert not left and not [one for one in hung.warnings if "could not be ended" in (one.detail or "")]
    until = time.monotonic() + 30.0
    while listed := subprocess.run(["podman", "ps", "-aq"], capture_output=True, check=True).stdout:
        assert time.monotonic() < until, f"podman did not remove {listed.decode()}"
        time.sleep(0.2)
    repeated = subprocess.run(["bash", folder / "command.sh", podman / "again"], capture_output=True, text=True)
    assert repeated.returncode == 0 and (podman / "again" / "copied.txt").exists(), repeated.stderr
