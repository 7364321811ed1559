"""No file of `report`, `compare`, `history` or `status` has a secret in a name, a parameter, a host or a folder of others."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factories.results import BASE, ended, failed, stored

from orchestrator.records import Caveat
from orchestrator.results.table.load import load

Call = Callable[..., tuple[int, str, str]]
TOKEN = "hf_QwErTyUiOpAsDfGhJkLzXcVb"
NAMED = "correct-horse-9-staple"  # only the name `hub_token` gives it away
COMPARISONS = ("html", "csv", "json", "md", "svg", "txt")


def leaks(folder: Path) -> list[str]:
    """The files below a folder that contain a secret, in their content or in their name."""
    secrets = (TOKEN, NAMED)
    return [
        str(path)
        for path in folder.rglob("*")
        if path.is_file() and any(secret.encode() in path.read_bytes() or secret in path.name for secret in secrets)
    ]


def benchmark(name: str, median: float, **params: object) -> dict[str, Any]:
    data = [median * noise for noise in (0.99, 1.0, 1.01)]
    return {"fullname": name, "name": name, "group": f"of {TOKEN}", "params": params, "stats": {"data": data}}


def pytest_file(path: Path, factor: float) -> Path:
    machine = {"node": f"host-{TOKEN}", "system": "Linux", "python_version": "3.11.7", "cpu": {"brand_raw": TOKEN}}
    benchmarks = [
        benchmark(f"test_a.py::test[{TOKEN}]", 0.001, hub_token=NAMED, url=f"https://me:{NAMED}@host/x"),
        benchmark(f"test_a.py::test[{TOKEN}x]", 0.002 * factor, n=1, **{TOKEN: 2}),
    ]
    document = {"machine_info": machine, "commit_info": {"id": TOKEN}, "benchmarks": benchmarks, "version": "5.1.0"}
    path.write_text(json.dumps(document))
    return path


def csv_file(path: Path, speed: float) -> Path:
    header = f"id,scenario,framework_config,model_name_or_path,num_gpus,hub_token,{TOKEN},provenance_host,train_tokens_per_second"
    line = f"{TOKEN},s-{TOKEN},f-{TOKEN},m-{TOKEN},1,{NAMED},1,h-{TOKEN},"
    other = f"{TOKEN}x,s,f,m,1,{NAMED},2,h,"
    path.write_text(
        f"{header},repeat,status,warnings\n"
        + "".join(
            f"{start}{speed + number},{number},ok,see {TOKEN}\n" for start in (line, other) for number in (1, 2, 3)
        )
    )
    return path


def campaign(root: Path, factor: float = 1.0) -> Path:
    """A results folder whose files someone else edited: Tunebench itself masks what it writes."""
    cell = replace(BASE, id="full-tiny-1", scenario="masked-name", tags=("tag-masked-name",))
    runs = [
        replace(ended(cell, n, tokens_per_s=factor * (1000 + n)), warnings=(Caveat(detail="see masked-name"),))
        for n in (1, 2, 3)
    ]
    other = replace(BASE, id="full-tiny-2", model="masked-name", baseline={"learning_rate": "masked-name"})
    stored(root, (cell, runs), (other, [replace(failed(other, 1), cause="it said masked-name")]))
    for path in root.rglob("*.json"):
        path.write_text(path.read_text().replace("masked-name", TOKEN))
    return root


@pytest.mark.parametrize("make", [pytest_file, csv_file])
def test_a_comparison_of_files(make: Callable[[Path, float], Path], in_process: Call, tmp_path: Path) -> None:
    base, new = make(tmp_path / "base", 1.0), make(tmp_path / "new", 2.0)
    folder = tmp_path / "written"
    folder.mkdir()
    words = [word for form in COMPARISONS for word in ("--output", folder / f"c.{form}")]
    code, out, err = in_process("compare", base, new, *words, "--all", "--format", "csv")
    assert code in (0, 1, 3), err
    assert len([*folder.iterdir()]) == len(COMPARISONS)
    assert leaks(folder) == []
    assert not any(secret in out + err for secret in (TOKEN, NAMED))


def test_two_benchmarks_whose_names_are_masked_stay_two(in_process: Call, tmp_path: Path) -> None:
    base, new = pytest_file(tmp_path / "base", 1.0), pytest_file(tmp_path / "new", 2.0)
    in_process("compare", base, new, "--output", tmp_path / "c.json")
    written = json.loads((tmp_path / "c.json").read_text())
    assert [round(row["ratio"]["value"], 2) for row in written["rows"]] == [1.0, 2.0]


def test_a_comparison_and_a_history_of_folders_with_such_names(in_process: Call, tmp_path: Path) -> None:
    base, new = campaign(tmp_path / TOKEN / "a"), campaign(tmp_path / TOKEN / "b", 1.5)
    folder = tmp_path / "written"
    folder.mkdir()
    words = [word for form in COMPARISONS for word in ("--output", folder / f"c.{form}")]
    assert in_process("compare", base, new, *words, "--all")[0] in (0, 1, 3)
    assert in_process("history", base, new, "--output", folder / "history")[0] == 0
    assert leaks(folder) == []
    assert TOKEN not in in_process("history", base, new, "--output", folder / "history", "--json")[1]


@pytest.mark.parametrize("several", [False, True])
def test_a_report(several: bool, in_process: Call, tmp_path: Path) -> None:
    folders = [campaign(tmp_path / name) for name in ((TOKEN, f"{TOKEN}x") if several else ("a",))]
    code, _, err = in_process(
        "report", *folders, "--output", tmp_path / "rep", "--format", "csv,json,markdown,html,parquet"
    )
    assert code == 0, err
    assert leaks(tmp_path / "rep") == []
    page = (tmp_path / "rep" / "report.html").read_text()
    assert "command.sh" in page or not several  # the folders of the runs are still found
    rows = json.loads((tmp_path / "rep" / "benchmarks.json").read_text())
    assert len(json.dumps(rows)) > 100


def test_a_report_of_a_csv_file_keeps_its_experiments_apart(in_process: Call, tmp_path: Path) -> None:
    file = csv_file(tmp_path / "runs.csv", 1000.0)
    code, out, err = in_process("report", file, "--format", "csv")
    assert code == 0, err
    assert TOKEN not in out and NAMED not in out
    assert len(out.splitlines()) == 3


def test_the_status(in_process: Call, tmp_path: Path) -> None:
    root = campaign(tmp_path / TOKEN)
    _, out, err = in_process("status", root, "--json")
    assert "full-tiny-1" in out, err
    assert TOKEN not in out + err


@pytest.mark.parametrize("file", ["credentials.py", "credentials.json", "my_api_key", "t.py"])
def test_two_versions_of_a_file_stay_apart_whatever_the_file_is_called(
    file: str, in_process: Call, tmp_path: Path
) -> None:
    """The digest of a file is not a secret. Masked, the digests of two versions were equal."""
    cells = [replace(BASE, id=f"full-tiny-{n}", sources={file: str(n) * 12}) for n in (1, 2)]
    roots = [stored(tmp_path / one.id, (one, [ended(one, n, tokens_per_s=1e3 + n) for n in (1, 2)])) for one in cells]
    assert [*load(roots).experiments["sources"]] == [f"{file} 111111", f"{file} 222222"]
    _, out, _ = in_process("compare", *roots)
    assert f"content of {file}: sha256:111111111111 → sha256:222222222222" in out
