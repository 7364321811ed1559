"""Software environments without building any: digests of requests, commands, variables, locks between threads, sizes."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factories.claimed_runs import claimed, of_the_dead
from factories.results import BASE
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.campaign import loop
from orchestrator.errors import BuildError
from orchestrator.executors.local import LocalExecutor
from orchestrator.machine import environments
from orchestrator.machine.environments import contents, installers, sources
from orchestrator.machine.environments.places import Place, place_with
from orchestrator.records import Container, Environment, JobState
from orchestrator.records.environment import EnvironmentRequest
from orchestrator.results.due_runs import NO_RETRY
from orchestrator.results.store import Store

LINES = ("torch==2.13.0", "transformers>=4.55,<5", "peft[extra,other]", "accelerate>=1.2; python_version > '3.8'")
NOISE = ("# a comment", "", "   ")


def request_of(*lines: str, **fields: Any) -> EnvironmentRequest:
    return EnvironmentRequest(name=fields.pop("name", "e"), requirements=lines, **fields)


def digest(*lines: str, **fields: Any) -> str:
    return environments.digest(request_of(*lines, **fields))


@given(st.permutations([*LINES, *NOISE]), st.booleans())
def test_order_case_comments_and_blanks_do_not_matter(lines: list[str], upper: bool) -> None:
    written = [f"{line.title() if upper and line.startswith(('torch', 'peft')) else line}  # why" for line in lines]
    assert digest(*written) == digest(*LINES)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("transformers>=4.55,<5", "transformers <5, >= 4.55"),
        ("my_lib==1", "My-Lib==1"),
        ("peft[b,a]", "peft[a, b]"),
        ("a==1 \\\n  --hash=sha256:00", "a==1 --hash=sha256:00"),
        ("a @ git+https://user:secret1234@example.org/a@0123", "a @ git+https://example.org/a@0123"),
    ],
)
def test_two_spellings_are_one_request(one: str, other: str) -> None:
    assert digest(one) == digest(other)


def test_whatever_changes_the_packages_changes_the_digest() -> None:
    changed = [
        request_of("torch==2.13.0"),
        request_of("torch==2.13.1"),
        request_of("torch[x]==2.13.0"),
        request_of("torch==2.13.0", constraints=("numpy<2",)),
        request_of("torch==2.13.0", overrides=("numpy<2",)),
        request_of("torch==2.13.0", indexes=("https://example.org/simple",)),
        request_of("torch==2.13.0", find_links=("https://example.org/wheels",)),
        request_of("torch==2.13.0", folders={"/a/lib": "1"}),
        request_of("torch==2.13.0", folders={"/a/lib": "2"}),
        request_of(lock="torch==2.13.0"),
    ]
    assert len({environments.digest(request) for request in changed}) == len(changed)
    assert all(len(environments.digest(request)) == 12 for request in changed)


def test_the_version_of_the_interpreter_matters_and_its_path_does_not(tmp_path: Path) -> None:
    link = tmp_path / "python"
    link.symlink_to(sys.executable)
    assert digest("a", python=str(link)) == digest("a", python=sys.executable) == digest("a")
    other = tmp_path / "other-python"
    other.write_text('#!/bin/sh\necho \'<tunebench>["cpython", [3, 9], "linux-x86_64"]</tunebench>\'\n')
    other.chmod(0o755)
    assert digest("a", python=str(other)) != digest("a")


def test_an_interpreter_that_does_not_start_is_a_mistake_of_the_user(tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"environment 'e': the interpreter .*gone does not start; name another"):
        digest("a", python=str(tmp_path / "gone"))
    assert environments.lock_digest(request_of(existing=str(tmp_path / "gone"))) is None


def test_names_paths_and_credentials_do_not_matter() -> None:
    assert digest("a", name="one") == digest("a", name="two")
    here, there = (
        digest(f"lib @ file://{home}/lib", f"{home}/lib[x]", folders={f"{home}/lib": "1234"}) for home in ("/a", "/b/c")
    )
    assert here == there
    secret, plain = (digest("a", indexes=(f"https://{who}example.org/simple/",)) for who in ("me:secret1@", ""))
    assert secret == plain


def test_an_interpreter_of_the_user_is_told_by_its_packages(tmp_path: Path) -> None:
    own = request_of(existing=sys.executable)
    assert environments.interpreter(own) == Path(sys.executable)
    assert environments.lock_digest(own) and environments.digest(own) != digest()


def test_places_follow_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNEBENCH_CACHE", str(tmp_path / "cache"))
    assert environments.environments_folder() == tmp_path / "cache/environments"
    monkeypatch.setenv("TUNEBENCH_ENVIRONMENTS", str(tmp_path / "here"))
    request = request_of("a")
    assert environments.place(request) == tmp_path / "here" / environments.digest(request)
    interpreter = environments.interpreter(request)
    assert place_with(interpreter) == Place(environments.place(request)) and place_with(Path(sys.executable)) is None
    with pytest.raises(BuildError, match="is not there; build it again"), environments.using(interpreter):
        pass
    with environments.using(Path(sys.executable)):
        pass


PIP = sources.PipSettings(find_links=("/w",), index="https://i/simple", extra_indexes=("https://x/simple",))


def test_uv_gets_the_places_of_pips_configuration(tmp_path: Path) -> None:
    variables = sources.for_uv(request_of("a", find_links=("/own",)), PIP, {})
    assert variables["UV_FIND_LINKS"] == "/own,/w"
    assert (variables["UV_DEFAULT_INDEX"], variables["UV_INDEX"]) == (PIP.index, "https://x/simple")
    assert variables["UV_INDEX_STRATEGY"] == "unsafe-best-match"
    missing = replace(PIP, extra_indexes=(f"file://{tmp_path}/gone",))
    assert sources.for_uv(request_of("a"), missing, {})["UV_INDEX"] is None, "uv fails where pip goes on"
    there = replace(PIP, extra_indexes=(f"file://{tmp_path}",))
    assert sources.for_uv(request_of("a"), there, {})["UV_INDEX"] == f"file://{tmp_path}"


def test_the_requests_indexes_replace_pips_and_those_of_uv() -> None:
    asked = request_of("a", indexes=("https://first/simple", "https://second/simple"))
    variables = sources.for_uv(asked, PIP, {"UV_INDEX_URL": "https://u/simple"})
    assert (variables["UV_DEFAULT_INDEX"], variables["UV_INDEX"]) == asked.indexes
    assert variables["UV_INDEX_URL"] is None
    assert sources.for_uv(request_of("a"), PIP, {"UV_INDEX_URL": "https://u/simple"}) == {"UV_FIND_LINKS": "/w"}
    assert sources.uv_options(asked, replace(PIP, no_index=True)) == ()
    assert sources.uv_options(request_of("a"), replace(PIP, no_index=True)) == ("--no-index",)


def test_pips_configuration_is_read_from_its_files_and_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "pip.conf"
    file.write_text("[global]\nfind-links = /g\nindex-url = https://g/simple\n[install]\nfind-links =\n  /i\n  /j\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(file))
    for name in [name for name in os.environ if name.startswith("PIP_") and name != "PIP_CONFIG_FILE"]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "https://e/simple https://f/simple")
    monkeypatch.setenv("PIP_NO_INDEX", "0")
    found = sources.pip_settings()
    assert (found.find_links, found.extra_indexes) == (("/i", "/j"), ("https://e/simple", "https://f/simple"))
    assert found.index == "https://g/simple" and not found.no_index


def test_pip_gets_no_constraint_but_the_requests(tmp_path: Path) -> None:
    variables = sources.for_pip(request_of("a", find_links=("/own",)), PIP, tmp_path / "constraints.txt")
    assert variables["PIP_CONSTRAINT"] == str(tmp_path / "constraints.txt")
    assert variables["PIP_FIND_LINKS"] == "/own /w" and "PIP_INDEX_URL" not in variables


PLACE = Place(Path("/e/0123456789ab"))


def test_without_uv_the_commands_are_those_of_venv_and_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = installers.Pip().steps(request_of("a", python="/p/bin/python"), PLACE)
    python = "/e/0123456789ab/venv/bin/python"
    assert [" ".join(step.argv) for step in steps] == [
        "/p/bin/python -m venv /e/0123456789ab/venv",
        f"{python} -m pip install --no-input --requirement requirements.txt",
        f"{python} -m pip check",
    ]
    assert "lock.txt" in installers.Pip().steps(request_of(lock="a==1"), PLACE)[1].argv


def test_a_given_lock_is_not_locked_again() -> None:
    uv = installers.Uv(argv=("uv",))
    assert next(step.what.split()[0] for step in uv.steps(request_of("a"), PLACE)) == "locking"
    assert next(step.what.split()[0] for step in uv.steps(request_of(lock="a==1"), PLACE)) == "making"


def test_a_local_package_is_never_taken_from_uvs_cache() -> None:
    uv = installers.Uv(argv=("uv",))
    named = uv.steps(request_of("my_lib @ file:///a/lib", folders={"/a/lib": "1"}), PLACE)
    assert all(
        step.argv[-3:] != () and "--refresh-package my_lib" in " ".join(step.argv) for step in (named[0], named[2])
    )
    assert "--refresh" in uv.steps(request_of("/a/lib", folders={"/a/lib": "1"}), PLACE)[2].argv


def test_torch_is_imported_if_it_is_installed() -> None:
    (step,) = installers.import_check({"numpy": "2"}, PLACE)
    assert step.argv == (str(PLACE.interpreter), "-c", "")
    (step,) = installers.import_check({"torch": "2.13", "torchvision": "0.28", "numpy": "2"}, PLACE)
    assert step.argv[-1] == "import torch, torchvision"


def test_the_digest_of_a_lock_has_versions_hashes_and_origins() -> None:
    hashes = contents.hashes_in("Alpha==1.0 \\\n    --hash=sha256:00 \\\n    --hash=sha256:11\n    # via -r x\nb==2\n")
    assert hashes == {"alpha": frozenset({"sha256:00", "sha256:11"}), "b": frozenset()}
    plain = contents.digest_of({"alpha": "1.0", "b": "2"}, {}, {})
    assert plain == contents.digest_of({"b": "2", "alpha": "1.0"}, {}, {})
    others = [
        contents.digest_of({"alpha": "1.0", "b": "2"}, hashes, {}),
        contents.digest_of({"alpha": "1.1", "b": "2"}, {}, {}),
        contents.digest_of({"alpha": "1.0", "b": "2"}, {}, {"b": "a-commit"}),
    ]
    assert len({plain, *others}) == 4


def test_a_file_with_two_links_counts_once_and_is_freed_only_with_its_last_link(tmp_path: Path) -> None:
    folder = tmp_path / "environment"
    folder.mkdir()
    (folder / "own").write_bytes(b"x" * 10)
    os.link(folder / "own", folder / "again")
    (tmp_path / "cached").write_bytes(b"x" * 100)
    os.link(tmp_path / "cached", folder / "shared")
    assert contents.size(folder) == (110, 10)


def test_a_password_in_a_requirement_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNEBENCH_ENVIRONMENTS", str(tmp_path / "environments"))
    with pytest.raises(BuildError, match=r"contains a password in a URL; write \$\{NAME\}") as refused:
        environments.build(request_of("a @ git+https://me:hunter2hunter2@example.org/a"), print)
    assert "hunter2" not in str(refused.value) and not (tmp_path / "environments").exists()


def test_the_container_of_a_run_whose_process_was_killed_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the call that started it, and by the next call if both were killed. A command outside may write a file of this name."""
    (tmp_path / "podman").write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/called\n')
    (tmp_path / "podman").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    box = Environment(name="box", request="0123456789ab", container=Container(program="podman", image="tiny:1"))
    inside = replace(BASE, id="inside-0123456789ab", environment=box)
    store = Store.create(tmp_path / "r", {})
    store.add([inside, BASE])
    job, outside = (store.job(one.id, repeat=1, attempt=1) for one in (inside, BASE))
    dies = "import os, sys; open(sys.argv[1] + '/container.id', 'w'); os.abort()"
    killed = LocalExecutor((sys.executable, "-c", dies))
    assert [*killed.run([job, outside])] == [(job, JobState.LOST), (outside, JobState.LOST)]
    other = of_the_dead(claimed(store, inside, 2))
    other.folder.container.touch()
    loop._record_lost([inside], store, lambda event: None, take_over=False, retry=NO_RETRY)
    assert [line for line in (tmp_path / "called").read_text().splitlines() if "--cidfile" in line] == [
        f"rm --force --ignore --cidfile={one.folder.container}" for one in (job, other)
    ]
