"""The files that a command runs: which words name one, under which name, and that their content is part of the id."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factories.results import experiment
from factories.suites import expanded, suite

from orchestrator.files import content
from orchestrator.plan.identity.experiment_id import Digester
from orchestrator.plan.identity.sources import UNREADABLE, Sources, changed
from orchestrator.records import CustomCommand, Experiment, Script

TREE = {
    "train.py": "import model, torch\n",
    "model.py": "from layers import norm\n",
    "layers/norm.py": "",
    "unused.py": "",
    "conf/a.yaml": "x: 1\n",
    "conf/b.yaml": "x: 2\n",
    "pkg/__init__.py": "",
    "pkg/run.py": "from . import part\n",
    "pkg/part.py": "",
    "start": "#!/usr/bin/env python3\nimport model\n",
    "start.sh": "python train.py\n",
}
WITH_IMPORTS = ["train.py", "model.py", "layers/norm.py"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in TREE.items():
        file = tmp_path / "scenarios" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path / "scenarios"


def of(folder: Path, words: Sequence[str], **fields: Any) -> dict[str, str]:
    """The sources of a command whose scenario file is in this folder."""
    custom = CustomCommand(command=tuple(words), folder=str(folder))
    return dict(Sources().of(experiment(trainer="custom", custom=custom, **fields)))


def names(folder: Path, *words: str, **fields: Any) -> list[str]:
    return list(of(folder, words, **fields))


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["{scenario_dir}/train.py", "--steps", "50"], WITH_IMPORTS),
        (["{python}", "train.py"], WITH_IMPORTS),
        (["./train.py", "{scenario_dir}/train.py"], WITH_IMPORTS),
        (["{scenario_dir}/conf/../train.py"], WITH_IMPORTS),
        (["start"], ["start", "model.py", "layers/norm.py"]),
        (["bash", "start.sh"], ["start.sh"]),
        (["x", "--config=conf/a.yaml", "conf/b.yaml"], ["conf/a.yaml", "conf/b.yaml"]),
        (["x", "--files", "conf/a.yaml,conf/b.yaml"], ["conf/a.yaml", "conf/b.yaml"]),
        (["{python}", "-m", "pkg.run"], ["pkg/__init__.py", "pkg/run.py", "pkg/part.py"]),
        (["{python}", "-m", "torch.distributed.run", "train.py"], WITH_IMPORTS),
        (["bash", "-c", "cd {scenario_dir} && python train.py > unused.py"], WITH_IMPORTS),
        (["bash", "-c", "cd pkg; python part.py 'it''s'"], ["pkg/part.py"]),
        (["bash", "-c", "python -m pkg.run it's conf/a.yaml"], ["pkg/__init__.py", "pkg/run.py", "pkg/part.py", "conf/a.yaml"]),
        (["true", "{run_dir}/train.py", "conf", ".", "", "missing.py", "python"], []),
        (["x", "{config}"], ["conf/b.yaml"]),
        (["x", "{arguments}"], ["conf/b.yaml"]),
    ],
)  # fmt: skip
def test_words_that_name_files(folder: Path, words: list[str], named: list[str]) -> None:
    assert names(folder, *words, arguments={"config": "conf/b.yaml"}) == named


def test_a_digest_is_that_of_sha256sum(folder: Path) -> None:
    assert of(folder, ["conf/a.yaml"]) == {"conf/a.yaml": hashlib.sha256(b"x: 1\n").hexdigest()[:12]}


def test_a_file_of_another_folder_keeps_the_path_of_the_command(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(folder, other)
    (other / "model.py").write_text("")
    assert names(folder, "../other/train.py") == ["../other/train.py", "../other/model.py"]
    assert names(folder, f"{other}/train.py") == [f"{other}/train.py", f"{other}/model.py"]
    assert names(folder, f"{folder}/train.py") == WITH_IMPORTS


def test_behind_a_link_modules_are_looked_for_beside_its_target_as_python_does(folder: Path, tmp_path: Path) -> None:
    (folder / "real").mkdir()
    (folder / "real" / "odd.py").write_text("import helper")
    (folder / "real" / "helper.py").write_text("")
    (folder / "linked.py").symlink_to("real/odd.py")
    assert names(folder, "linked.py") == ["linked.py", "real/helper.py"]


def test_a_file_of_arguments_counts(folder: Path) -> None:
    (folder / "args.txt").write_text("--x 1")
    assert names(folder, "train.py", "@args.txt") == [*WITH_IMPORTS, "args.txt"]


def test_modules_are_also_looked_for_in_the_scenario_s_folder_and_in_the_pythonpath(
    folder: Path, tmp_path: Path
) -> None:
    (folder / "pkg" / "run.py").write_text("import model, own, pkg.part")
    own, installed = tmp_path / "src", tmp_path / "site-packages"
    for place in (own, installed):
        place.mkdir()
        (place / "own.py").write_text("")
    env = {"PYTHONPATH": f"{installed}:{own}:relative"}
    found = ["pkg/run.py", "model.py", f"{own}/own.py", "pkg/__init__.py", "pkg/part.py", "layers/norm.py"]
    assert names(folder, "{scenario_dir}/pkg/run.py", env=env) == found


def test_programs_and_results_are_not_the_user_s_files(folder: Path) -> None:
    venv = folder / "venv" / "bin"
    venv.mkdir(parents=True)
    (folder / "venv" / "pyvenv.cfg").write_text("")
    for name in ("python3.11", "torchrun"):
        (venv / name).write_text("#!/usr/bin/python\nimport model\n")
    results = folder / "results" / "experiments"
    results.mkdir(parents=True)
    (results / "weights.bin").write_text("1")
    (folder / "bin").mkdir()
    (folder / "bin" / "own.sh").write_text("")
    words = ["/bin/sh", "venv/bin/python3.11", "{scenario_dir}/venv/bin/torchrun", "bin/own.sh"]
    assert names(folder, *words, "results/experiments/weights.bin") == ["bin/own.sh", "results/experiments/weights.bin"]
    (folder / "results" / "suite.json").write_text('{"tool": "tunebench"}')
    assert names(folder, *words, "results/experiments/weights.bin") == ["bin/own.sh"]


def test_a_large_file_counts_by_its_size_its_beginning_and_its_end(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(content, "WHOLE_FILE_BYTES", 4)
    zeros = b"0" * 2_000_000

    def digest(data: bytes) -> str:
        (folder / "rows.jsonl").write_bytes(data)
        return of(folder, ["rows.jsonl"])["rows.jsonl"]

    def with_one_at(place: int) -> bytes:
        return zeros[:place] + b"1" + zeros[place + 1 :]

    digests = [digest(zeros), digest(zeros + b"0"), digest(with_one_at(2)), digest(with_one_at(1_999_999))]
    assert len(set(digests)) == 4
    assert digest(with_one_at(500_000)) == digests[0]


def test_a_file_that_cannot_be_read_says_so(folder: Path) -> None:
    (folder / "secret.bin").symlink_to("/proc/self/mem")
    assert of(folder, ["secret.bin"]) == {"secret.bin": UNREADABLE}


def test_a_script_is_python_whatever_its_name(folder: Path) -> None:
    (folder / "train").write_text("import model\n")
    (folder / "data").write_text("import unused\n")
    files = names(folder, "{python}", "train", "data")
    assert files == ["train", "model.py", "layers/norm.py", "data"]
    assert names(folder, "bash", "-c", "python3 train data") == files


@pytest.mark.parametrize(
    ("script", "named"),
    [
        (Script(script="train.py", folder=""), [*WITH_IMPORTS, "conf/b.yaml"]),
        (Script(script="train.py", words=("conf/a.yaml",), folder=""), [*WITH_IMPORTS, "conf/a.yaml", "conf/b.yaml"]),
        (Script(script="../scenarios/train.py", cwd="scenario", folder=""), [*WITH_IMPORTS, "conf/b.yaml"]),
        (Script(module="pkg.run", folder=""), ["pkg/__init__.py", "pkg/run.py", "pkg/part.py", "conf/b.yaml"]),
        (Script(module="installed.elsewhere", folder=""), ["conf/b.yaml"]),
    ],
)
def test_the_files_of_a_script(folder: Path, script: Script, named: list[str]) -> None:
    arguments = {"config": "conf/b.yaml", "learning_rate": "2e-5"}
    one = experiment(trainer="script", script=replace(script, folder=str(folder)), arguments=arguments)
    assert list(Sources().of(one)) == named


def test_other_trainers_have_no_files(folder: Path) -> None:
    arguments = {"training_data_path": str(folder / "train.py")}
    assert not Sources().of(experiment(arguments=arguments))


# ---------------------------------------------------------------------------------------------------- in a plan


def planned(folder: Path, *words: str) -> tuple[Experiment, ...]:
    custom = {"command": list(words), "launcher": "none", "metrics": {"train_loss": {}}}
    scenario = {"name": "own", "trainer": "custom", "device": "cpu", "matrix": {"lr": [1, 2]}, "custom": custom}
    return expanded(suite(folder, {"scenarios": [scenario]}))


def test_an_edited_file_makes_another_experiment_and_the_old_content_the_old_one(folder: Path) -> None:
    words = ("{python}", "train.py", "{lr}")
    before = [one.id for one in planned(folder, *words)]
    (folder / "unused.py").write_text("1")
    assert [one.id for one in planned(folder, *words)] == before
    (folder / "layers" / "norm.py").write_text("1")
    after = [one.id for one in planned(folder, *words)]
    assert not {*before} & {*after}
    (folder / "layers" / "norm.py").write_text("")
    assert [one.id for one in planned(folder, *words)] == before


def test_a_copy_of_the_folder_has_the_same_ids(folder: Path, tmp_path: Path) -> None:
    first = planned(folder, "{python}", "{scenario_dir}/train.py", "{lr}")
    copy = tmp_path / "elsewhere"
    shutil.copytree(folder, copy)
    assert [one.id for one in planned(copy, "{python}", "{scenario_dir}/train.py", "{lr}")] == [one.id for one in first]


def test_a_command_without_files_has_the_id_of_earlier_versions(folder: Path) -> None:
    (one, _) = planned(folder, "{python}", "-c", "print({lr})")
    assert not one.sources
    assert one.id == "own-none.none.gpus1-33663a71b545"


def test_cells_with_the_same_files_share_one_mapping_and_each_file_is_read_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Path] = []
    whole = content.digest
    monkeypatch.setattr(content, "digest", lambda file: read.append(file) or whole(file))
    first, second = planned(folder, "{python}", "train.py", "{lr}")
    assert first.sources is second.sources and list(first.sources) == WITH_IMPORTS
    assert sorted(read) == sorted(folder / name for name in WITH_IMPORTS)


def test_the_files_are_part_of_the_digest_only_where_there_are_some() -> None:
    one = experiment(id="", arguments={"a": "1"})
    digest = Digester(frozenset()).digest
    assert digest(one) == digest(replace(one, sources={})) == "5f71ea676198"
    digests = {digest(replace(one, sources=sources)) for sources in ({}, {"a.py": "1"}, {"b.py": "1"}, {"a.py": "2"})}
    assert len(digests) == 4
    both = {"a.py": "1", "b.py": "2"}
    assert digest(replace(one, sources=both)) == digest(replace(one, sources=dict(reversed(both.items()))))


def test_what_changed_since_the_plan_is_named(folder: Path) -> None:
    (one, _) = planned(folder, "{python}", "train.py", "conf/a.yaml", "{lr}")
    assert changed(one) == ()
    (folder / "model.py").write_text("from layers import norm\n# new\n")
    (folder / "conf" / "a.yaml").unlink()
    assert changed(one) == ("model.py", "conf/a.yaml")


def test_the_module_of_an_operator_s_function_is_a_source(tmp_path: Path) -> None:
    """Its folder is in PYTHONPATH, so the names of the files are relative to that folder."""
    (tmp_path / "kernels" / "fast").mkdir(parents=True)
    (tmp_path / "kernels" / "fast" / "__init__.py").write_text("from helper import scale\n")
    (tmp_path / "kernels" / "helper.py").write_text("scale = 1\n")
    arguments = {"operator": "swiglu", "shape": "8x8", "implementation": "fast:swiglu"}
    env = {"PYTHONPATH": str(tmp_path / "kernels")}
    own = experiment(trainer="operators", arguments=arguments, env=env)
    known = dict(Sources().of(own))
    assert list(known) == ["fast/__init__.py", "helper.py"]
    filed = replace(own, sources=known)
    assert changed(filed) == ()
    (tmp_path / "kernels" / "helper.py").write_text("scale = 2\n")
    assert changed(filed) == ("helper.py",)
    edited = replace(own, sources=dict(Sources().of(own)))
    digest = Digester(frozenset()).digest
    assert digest(edited) != digest(filed)
    for plain in (replace(own, arguments={**arguments, "implementation": "eager"}), replace(own, env={})):
        assert Sources().of(plain) == {}
