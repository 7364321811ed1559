"""`tunebench report`: what goes to stdout, which files are written where; a page that cannot be made costs nothing else."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pandas as pd
import pytest
from factories.cases import cases
from factories.results import BASE, ended, failed, stored

from orchestrator.cli.results.report_show_status import write_report
from orchestrator.errors import ResultsError, SelectionError
from orchestrator.files.printable_text import is_printable
from orchestrator.records import Caveat, CaveatKind, Device, Framework
from orchestrator.report import write
from orchestrator.report.format import Format

Call = Callable[..., tuple[int, str, str]]
Golden = Callable[[str, str], None]
CSV_FILES = {"benchmarks.csv", "raw_summary.csv", "ranks.csv"}
REFERENCE = Path(__file__).parents[1] / "golden" / "report" / "mixed" / "results"


@pytest.fixture
def call(in_process: Call) -> Call:
    """`call("results", …)`: exit code, stdout, stderr of `tunebench report` in this process."""
    return partial(in_process, "report", width=200)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return made(tmp_path / "results")


def made(root: Path, *, began_at: float = 1.7e9) -> Path:
    """Three frameworks at one and two GPUs: one faster, one contaminated, one that does not fit."""
    cells = []
    for name, factor, marks in (
        ("baseline", 1.0, {}),
        ("liger", 1.21, {}),
        ("sdpa", 1.1, {"contaminated": "python (7)"}),
    ):
        for gpus in (1, 2):
            one = replace(
                BASE,
                id=f"full-{name}-gpus{gpus}",
                framework=Framework(name=name, digest=name),
                num_gpus=gpus,
                device=Device.CUDA,
            )
            speeds = [1000 * factor * noise for noise in (0.99, 1.0, 1.02)]
            peak = int(2**34 / factor)
            caveats = tuple(Caveat(kind=CaveatKind(kind), detail=detail) for kind, detail in marks.items())
            runs = [
                ended(
                    one,
                    n,
                    tokens_per_s=speed * gpus * 0.96 ** (gpus - 1),
                    tokens_per_s_per_gpu=speed * 0.96 ** (gpus - 1),
                    peak_allocated_bytes=peak,
                    **marks,
                )
                for n, speed in enumerate(speeds, start=1)
            ]
            cells.append(
                (one, [replace(run, ranks=({"rank": 0},), warnings=caveats, started_at=began_at) for run in runs])
            )
    big = replace(BASE, id="full-big", framework=Framework(name="fsdp", digest="f"), device=Device.CUDA)
    return stored(root, *cells, (big, [replace(failed(big, 1), started_at=began_at)]))


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.is_file()}


def test_a_report_is_the_table_the_findings_and_the_files(call: Call, results: Path) -> None:
    code, out, err = call("results")
    assert code == 0
    assert "liger is 21 % faster (1.21×" in out and "than baseline" in out
    assert "2 GPUs 96.0 %" in out
    assert "ran on GPUs that other processes used" in out and "full-big failed: oom_cuda" in out
    assert names(results) >= CSV_FILES | {"report.html"}
    assert [line.split()[-1].rpartition("/")[2] for line in err.splitlines() if line.startswith("wrote")] == [
        *("benchmarks.csv", "raw_summary.csv", "ranks.csv", "report.html")
    ]
    assert "liger is 21 % faster (1.21×" in (results / "report.html").read_text()


@pytest.mark.parametrize("width", [80, 200])
def test_the_terminal(call: Call, results: Path, golden: Golden, width: int) -> None:
    out = call("results", "--baseline", "baseline", width=width)[1]
    assert max(map(len, out.splitlines())) <= width
    golden(f"table/report-{width}.txt", "\n".join(line.rstrip() for line in out.splitlines()) + "\n")


def test_markdown_for_a_pull_request(call: Call, results: Path, golden: Golden) -> None:
    code, out, _ = call("results", "--baseline", "baseline", "--format", "markdown")
    assert code == 0
    golden("table/report.md", out)


@pytest.mark.parametrize("form", ["csv", "json", "markdown"])
def test_one_text_alone_goes_to_stdout_and_nothing_is_written(call: Call, results: Path, form: str) -> None:
    before = names(results)
    code, out, _ = call("results", "--format", form)
    assert code == 0 and names(results) == before
    if form == "csv":
        call("results")
        assert out == (results / "benchmarks.csv").read_text()
        assert len(list(csv.DictReader(io.StringIO(out)))) == 7
    if form == "json":
        document = json.loads(out)
        assert len(document["experiments"]) == 7
        assert {one["kind"] for one in document["highlights"]} == {"best", "gain", "warning", "failure"}
    if form == "markdown":
        assert out.startswith("### 7 experiments: 6 ok, 1 failed\n\n- **Best:** tiny-llama: ")


def test_several_forms_are_files(call: Call, results: Path) -> None:
    code, out, err = call("results", "--format", "markdown,json,parquet,html")
    assert (code, out) == (0, "")
    written = {"report.md", "benchmarks.json", "report.html"} | {
        f"{name}.parquet" for name in ("benchmarks", "raw_summary", "ranks")
    }
    assert names(results) >= written and not CSV_FILES & names(results)
    assert err.count("wrote ") == len(written)
    assert len(pd.read_parquet(results / "benchmarks.parquet")) == 7
    assert (
        (results / "report.md").read_text().startswith("### 7 experiments: 6 ok, 1 failed\n\n- **Best:** tiny-llama: ")
    )


def test_a_file_form_alone_tells_its_path(call: Call, results: Path) -> None:
    code, out, err = call("results", "--format", "html")
    assert (code, out) == (0, "") and err.endswith(f"\nwrote {results / 'report.html'}\n")
    code, out, _ = call("results", "--format", "table,html")
    assert code == 0 and "7 experiments" in out


@pytest.mark.parametrize(("words", "said"), cases("report_files/a_mistake_is_a_sentence"))
def test_a_mistake_is_a_sentence(call: Call, results: Path, words: tuple[str, ...], said: str) -> None:
    code, out, err = call("results", *words)
    assert (code, out) == (2, "")
    assert said in err and "Traceback" not in err
    assert names(results) == {"suite.json"}


def test_a_baseline_is_in_every_form(call: Call, results: Path) -> None:
    for form in ("csv", "json", "markdown", "table"):
        out = call("results", "--baseline", "baseline", "--format", form)[1]
        assert ("speedup" in out) if form in ("csv", "json") else ("speed-up" in " ".join(out.split()))
    frame = pd.read_csv(results / "benchmarks.csv")
    by_name = frame[frame["num_gpus"] == 1].set_index("framework_config")
    assert by_name["speedup"]["liger"] == pytest.approx(1.21) and by_name["speedup"]["baseline"] == 1.0
    assert by_name["memory_ratio"]["liger"] == pytest.approx(1 / 1.21, rel=1e-6)
    assert by_name["speedup_low"]["liger"] < 1.21 < by_name["speedup_high"]["liger"]


def test_a_pivot_is_looked_at_and_changes_no_file(call: Call, results: Path) -> None:
    code, out, err = call("results", "--pivot", "framework_config,num_gpus:tokens_per_s")
    assert code == 0 and "wrote" not in err
    assert "liger" in out and "1,214" in out
    assert names(results) == {"suite.json"}
    assert (
        json.loads(call("results", "--group-by", "framework_config", "--format", "json")[1])["rows"][0]["experiments"]
        == 2
    )


def test_a_pivot_in_several_forms_is_files(call: Call, results: Path) -> None:
    code, _, err = call("results", "--pivot", "framework_config,num_gpus", "--format", "csv,json,markdown,parquet,html")
    assert code == 0
    assert names(results) == {"suite.json", *(f"pivot.{ending}" for ending in ("csv", "json", "md", "parquet", "html"))}
    assert len(pd.read_parquet(results / "pivot.parquet")) == 4
    assert "<script>" not in err


# --------------------------------------------------------------------------------------------------- where files lie


def test_several_folders_and_folders_of_others_stay_as_they_are(call: Call, results: Path, tmp_path: Path) -> None:
    made(tmp_path / "other")
    for words in (("results", "other"), (REFERENCE,)):
        code, out, _ = call(*words)
        assert code == 0 and "experiments" in out
        code, _, err = call(*words, "--format", "html")
        assert code == 2 and "name a folder with --output" in err
    assert names(results) == names(tmp_path / "other") == {"suite.json"}
    assert names(REFERENCE) == {"raw_summary.csv", "script.json"}


def test_files_of_several_folders_go_into_a_folder_of_their_own(call: Call, results: Path, tmp_path: Path) -> None:
    made(tmp_path / "other", began_at=1.8e9)
    for _ in range(2):  # the second time over the first
        code, _, err = call("results", "other", "--output", "deep/out")
        assert code == 0, err
    assert names(tmp_path / "deep" / "out") == CSV_FILES | {"report.html", write.MARKER}
    assert len(pd.read_csv(tmp_path / "deep" / "out" / "benchmarks.csv")) == 14
    assert names(results) == {"suite.json"}


def test_a_folder_of_the_users_is_never_written_into(call: Call, results: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "benchmarks.csv").write_text("my numbers")
    code, _, err = call("results", "--output", "mine")
    assert code == 2 and "the folder has other files" in err
    assert (mine / "benchmarks.csv").read_text() == "my numbers" and names(mine) == {"benchmarks.csv"}
    file = tmp_path / "file"
    file.write_text("")
    assert call("results", "--output", "file")[0] == 2
    other = made(tmp_path / "other")
    code, _, err = call("results", "--output", "other")
    assert code == 2 and "is a results folder" in err and names(other) == {"suite.json"}
    assert call("results", "--output", "results")[0] == 0 and "report.html" in names(results)
    code, _, err = call("results", "--output", "new.md", "--format", "markdown")
    assert code == 2 and "this is the name of a file" in err and not Path("new.md").exists()


def test_a_csv_file_of_runs_gives_the_findings_of_its_folder(call: Call, results: Path, tmp_path: Path) -> None:
    call(results)
    file = tmp_path / "saved by a spreadsheet.csv"
    file.write_text((results / "raw_summary.csv").read_text().replace(",True", ",TRUE").replace(",False", ",FALSE"))
    code, shown, said = call(file)
    of_folder = call(results, "--format", "markdown")[1].splitlines(keepends=True)
    assert code == 0 and "wrote" not in shown + said
    known = [
        line for line in of_folder if "fewer runs than were asked for" not in line
    ]  # a file of runs cannot say this
    assert len(known) == len(of_folder) - 1 and call(file, "--format", "markdown")[1] == "".join(known)
    code, shown, _ = call(file, "--output", tmp_path / "page", "--format", "html")
    assert code == 0 and (tmp_path / "page" / "report.html").stat().st_size > 10_000


def test_a_csv_file_of_means_or_of_something_else_is_refused(call: Call, results: Path, tmp_path: Path) -> None:
    call(results)
    code, _, said = call(results / "benchmarks.csv")
    assert code == 2 and said.endswith(
        "has means over repeats; give raw_summary.csv of the same folder instead, which has the runs\n"
    )
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    code, _, said = call(tmp_path / "other.csv")
    assert code == 2 and "is not a CSV file of results: its first line must name one of" in said


def test_the_reference_s_published_file_is_a_table(call: Call) -> None:
    refs = next((Path(__file__).parents[1] / "golden" / "compat" / "refs").glob("*.csv"))
    code, shown, _ = call(refs)
    assert code == 0 and "124 experiments: 85 ok, 39 failed" in shown


def test_a_marker_that_is_none_of_ours_opens_nothing(call: Call, results: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    for content in ("", "[]", '{"tool": "other"}', "{" * 100):
        (mine / write.MARKER).write_text(content)
        assert call("results", "--output", "mine")[0] == 2


# ------------------------------------------------------------------------------------------ a page that cannot be made


def test_a_page_that_cannot_be_written_takes_nothing_along(call: Call, results: Path, capsys) -> None:
    (results / "report.html").mkdir()
    code, out, err = call("results")
    assert code == 2 and "7 experiments" in out
    assert "error: the page cannot be made: " in err and "Traceback" not in err
    assert "benchmarks.csv" in err and names(results) >= CSV_FILES
    write_report([results], keep=(), drop=(), form=None)
    said = capsys.readouterr()
    assert said.out == "" and "the page cannot be made" in said.err
    code, _, err = call("results", "--format", "html")
    assert code == 2 and "cannot be written" in err


def test_a_defect_is_a_sentence_once_the_numbers_are_written() -> None:
    def defect() -> str:
        return {}["a\nb"]  # type: ignore[no-any-return]

    def full() -> str:
        raise ResultsError("no space left on device")

    assert write.or_sentence(lambda: "page", what="the page") == ("page", None)
    made_of, problem = write.or_sentence(defect, what="the page")
    assert (
        made_of is None
        and problem is not None
        and "a defect of tunebench (KeyError: " in problem
        and is_printable(problem)
    )
    assert write.or_sentence(full, what="the page") == (None, "the page cannot be made: no space left on device")


def test_half_a_file_is_none(tmp_path: Path, results: Path) -> None:
    """What was written aside is gone when it could not be put in place."""
    (results / "report.html").mkdir()
    with pytest.raises(ResultsError, match="cannot be written"):
        writer = write.writer([results], None)
        assert writer is not None
        writer("report.html", b"x" * 1000)
    assert not [path for path in results.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize(
    "words",
    [
        "nowhere",
        "empty",
        "results nowhere",
        "results --baseline nix",
        "results --pivot a --group-by b",
        "results --pivot framework_config,num_gpus",
    ],
)
def test_a_report_that_is_refused_or_only_shown_makes_no_folder(words: str, call: Call, results: Path) -> None:
    (results.parent / "empty").mkdir()
    code, _, _ = call(*words.split(), "--output", "new/report")
    assert code == (0 if words.endswith("num_gpus") else 2) and not (results.parent / "new").exists()


@pytest.mark.parametrize("output", ["file/report", "file/a/b", "link", "link/report"])
def test_an_output_that_cannot_be_made_is_refused_before_the_results_are_read(
    output: str, call: Call, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("nowhere")
    code, _, err = call("no-such-results", "--output", output)
    assert code == 2
    assert err == f"error: --output {output}: nothing can be written into {output[:4]}; name another folder\n"


def test_the_campaigns_end_makes_csv_and_page(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_report([results], keep=(), drop=(), form=Format.TABLE)
    said = capsys.readouterr()
    assert "liger is 21 % faster (1.21×" in " ".join(said.out.split())
    assert names(results) >= CSV_FILES | {"report.html"}


def test_forms_are_words_with_commas() -> None:
    assert write.forms_of(None) == ()
    assert write.forms_of("csv, html,csv") == (Format.CSV, Format.HTML)
    with pytest.raises(SelectionError, match="Allowed: csv, html, json, markdown, parquet, table"):
        write.forms_of("xml")


def test_json_is_not_called_a_table_with_a_column_twice(call: Call, tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text('{"a": 1, "b": 1, "b": 1}')
    code, _, said = call(tmp_path / "other.json")
    assert code == 2 and "it looks like JSON" in said


@pytest.mark.parametrize("content", [gzip.compress(b"x", mtime=0)], ids=["gzip"])
def test_a_packed_file_is_to_be_unpacked_first(call: Call, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bundle").write_bytes(content)
    code, _, said = call(tmp_path / "bundle")
    assert code == 2 and "it is packed; unpack it first, a bundle with `tar -xzf`" in said
