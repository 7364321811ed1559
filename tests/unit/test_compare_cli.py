"""`tunebench compare` on files: the reference's, a whole published table, results folders with and without a planted slowdown."""

from __future__ import annotations

import csv
import json
import math
import random
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from factories.cases import cases
from factories.results import BASE, ended, failed, stored

from orchestrator.compare.view import as_json
from orchestrator.records import Caveat, CaveatKind, DataSpec, Experiment, RunRecord

COMPAT = Path(__file__).parent.parent / "golden" / "compat"
A100 = COMPAT / "refs" / "a100_80gb.csv"
SPEEDS = ("train_tokens_per_second", "train_samples_per_second", "train_steps_per_second")

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def compare(in_process: Call) -> Call:
    """`compare(base, new, …)` in this process, in a folder of its own: exit code, stdout, stderr."""
    return partial(in_process, "compare", width=100)


Line = dict[str, str]


def lines(path: Path) -> list[Line]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def written(path: Path, found: Sequence[Line]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(found[0]))
        writer.writeheader()
        writer.writerows(found)
    return path


# The reference's files


@pytest.mark.parametrize(("case", "code"), [("perturbed", 1), ("ref-has-more", 1), ("same", 0)])
def test_the_references_outliers_are_found_and_told_apart(compare: Call, tmp_path: Path, case: str, code: int) -> None:
    """Its own list of them, with the way that each went; what it drops in silence is there, too."""
    folder = COMPAT / "compare" / case
    ours = tmp_path / "rows.csv"
    assert compare(folder / "reference.csv", folder / "benchmarks.csv", "--output", ours)[0] == code
    expected = {
        (row["framework_config"], row["num_gpus"], row["metric"]): row for row in lines(folder / "outliers.csv")
    }
    found = {(row["framework_config"], row["num_gpus"], row["metric"]): row for row in lines(ours) if row["metric"]}
    assert found.keys() == expected.keys()
    for key, row in found.items():
        for name in ("reference", "new"):
            assert float(row[name]) == pytest.approx(float(expected[key][name]))
        rises = float(row["new"]) > float(row["reference"])
        better = rises == (key[2] == "train_tokens_per_second")
        assert row["verdict"] == ("improved" if better else "regressed")
    missing = [row for row in lines(ours) if row["verdict"] == "missing"]
    assert len(missing) == len(lines(folder / "reference.csv")) - len(lines(folder / "benchmarks.csv"))


def test_a_published_table_held_against_itself(compare: Call) -> None:
    code, out, err = compare(A100, A100)
    assert (code, err) == (0, "")
    assert "124 experiments on both sides" in out
    assert "Rows: 425 same, 39 failed on both sides" in out


def scaled(row: Line, factor: float) -> Line:
    """The row as of a machine that is so much faster."""
    faster = {name: str(float(row[name]) * factor) for name in SPEEDS if row[name]}
    runtime = {"train_runtime": str(float(row["train_runtime"]) / factor)} if row["train_runtime"] else {}
    return {**row, **faster, **runtime}


def test_a_little_less_in_every_row_is_seen_over_all(compare: Call, tmp_path: Path) -> None:
    """-2.1 %: under the threshold in each of the 85 rows, plain in their mean."""
    rng = random.Random(1)
    found = [scaled(row, 0.979 * math.exp(rng.gauss(0, 0.01))) for row in lines(A100)]
    code, out, _ = compare(A100, written(tmp_path / "new.csv", found), "--output", tmp_path / "rows.json")
    document = json.loads((tmp_path / "rows.json").read_text())
    assert {row["verdict"] for row in document["rows"] if row["metric"]} == {"same", "untested"}
    (fleet,) = (line for line in document["fleet"] if line["metric"] == "train_tokens_per_second")
    assert (fleet["verdict"], fleet["pairs"]) == ("regressed", 85)
    assert fleet["ratio"]["interval"]["low"] < 0.979 < fleet["ratio"]["interval"]["high"]
    assert code == 1 and "1 metric regressed over all experiments" in out
    assert compare(A100, tmp_path / "new.csv", "--fail-on", "regressed,failed,missing")[0] == 0


def test_rows_that_are_gone_are_missing(compare: Call, tmp_path: Path) -> None:
    found = lines(A100)
    fewer = written(tmp_path / "fewer.csv", [*found[:1], *found[11:]])
    code, out, _ = compare(A100, fewer)
    assert code == 1 and "10 missing" in out and "114 experiments on both sides, 10 only on base" in out


def test_rows_that_are_gone_and_had_failed_are_no_loss(compare: Call, tmp_path: Path) -> None:
    found = lines(A100)
    fewer = written(tmp_path / "fewer.csv", [*found[:20], *found[30:]])
    code, out, _ = compare(A100, fewer, "--all")
    assert code == 0 and "missing" not in out and "114 experiments on both sides, 10 only on base" in out
    assert out.count("only on base, where it failed: ") == 10
    code, out, _ = compare(fewer, A100)
    assert code == 0 and "10 new" in out


# Results folders


def campaign(root: Path, *, seed: int, factor: float = 1.0, noise: float = 0.01, experiments: int = 4) -> Path:
    """Five repeats of each experiment, with so much noise between runs; all of the steps take `factor` as long."""
    rng = random.Random(seed)
    cells: list[tuple[Experiment, list[RunRecord]]] = []
    for number in range(experiments):
        experiment = replace(
            BASE,
            id=f"full-tiny-{number:012x}",
            arguments={**BASE.arguments, "per_device_train_batch_size": str(2**number)},
            repeats=5,
        )
        records = []
        for repeat in range(1, 6):
            step = 0.1 * 2**number * factor * math.exp(rng.gauss(0, noise))
            speeds = {
                "tokens_per_s": 16384 / step,
                "step_time_s": step,
                "first_step_s": 1.5 * math.exp(rng.gauss(0, 0.15)),
            }
            record = ended(experiment, repeat, **speeds, peak_allocated_bytes=2**30, train_loss=2.5)
            records.append(replace(record, started_at=1.7e9 + 100 * repeat + 10 * number + seed))
        cells.append((experiment, records))
    return stored(root, *cells)


def test_a_planted_slowdown_is_found_and_noise_is_not(compare: Call, tmp_path: Path) -> None:
    """3 % in every step, 1 % between runs, five repeats that took turns with the base's."""
    base, slow, same = (
        campaign(tmp_path / str(seed), seed=seed, factor=factor, experiments=10)
        for seed, factor in ((1, 1.0), (2, 1.03), (3, 1.0))
    )
    code, out, _ = compare(base, slow, "--output", tmp_path / "rows.csv")
    found = Counter((row["metric"], row["verdict"]) for row in lines(tmp_path / "rows.csv"))
    assert code == 1 and "in turns" in out and "improved" not in out
    for metric in ("tokens_per_s", "step_time_s"):
        assert found[metric, "regressed"] >= 7, "3 % is found in 92 % of rows, and the others are called inconclusive"
        assert found[metric, "regressed"] + found[metric, "inconclusive"] == 10
    slower = {row["label"] for row in lines(tmp_path / "rows.csv") if row["verdict"] == "regressed"}
    assert f"worse: {len(slower)} experiments regressed, 2 metrics regressed" in out, "an experiment counts once"
    code, out, _ = compare(base, same, "--fail-on", "regressed,failed,missing,fleet")
    assert code == 0 and "regressed" not in out and "improved" not in out


def test_a_folder_split_by_its_repeats(compare: Call, tmp_path: Path) -> None:
    folder = campaign(tmp_path / "one", seed=1)
    code, out, _ = compare("--aa", folder)
    assert code in (0, 3) and "(odd rounds)" in out and "(even rounds)" in out
    assert "regressed" not in out and "improved" not in out


def test_several_places_make_one_side(compare: Call, tmp_path: Path) -> None:
    """Three folders of five repeats each tell what five alone could not."""
    places = [campaign(tmp_path / f"c{seed}", seed=seed, noise=0.03, experiments=1) for seed in (1, 2, 3)]
    others = [campaign(tmp_path / f"d{seed}", seed=seed, noise=0.03, factor=1.05, experiments=1) for seed in (4, 5, 6)]
    base, new = (",".join(map(str, side)) for side in (places, others))
    code, out, _ = compare(base, new, "--metrics", "step_time_s", width=160)
    assert code == 1 and "15+15 runs" in out
    shutil.copytree(places[0], tmp_path / "a,b")
    assert compare(tmp_path / "a,b", places[1])[0] in (0, 3), "a comma may be part of a name"


def later(folder: Path, *, by_s: float, runs: int = 5) -> Path:
    """A folder whose runs 1 to `runs` were made so much later than they say."""
    for run in range(1, runs + 1):
        for path in folder.glob(f"experiments/*/runs/r{run}-t1/record.json"):
            record = json.loads(path.read_text())
            path.write_text(json.dumps({**record, "started_at": record["started_at"] + by_s}))
    return folder


@pytest.mark.parametrize("table", [False, True], ids=["folders", "a folder and its table"])
def test_a_copy_of_base_is_nothing_to_compare(compare: Call, in_process: Call, tmp_path: Path, table: bool) -> None:
    """As a job that resumed the folder of the night before, and measured nothing."""
    base = campaign(tmp_path / "base", seed=1)
    new = shutil.copytree(base, tmp_path / "new")
    if table:
        assert in_process("report", new)[0] == 0
        new /= "raw_summary.csv"
    code, out, err = compare(base, new, "--fail-on", "none")
    assert code == 4 and out.endswith(
        "\nnothing comparable: both sides have the same runs; run the new side with another --results folder, or with "
        "--move-aside (exit code 4)\n"
    )
    assert "4 experiments are left out: both sides have the same runs, so nothing was measured anew" in err


def test_rows_of_the_same_runs_are_left_out_and_the_others_judged(compare: Call, tmp_path: Path) -> None:
    base = campaign(tmp_path / "base", seed=1, experiments=3)
    new = shutil.copytree(base, tmp_path / "new")
    *_, last = sorted((new / "experiments").iterdir())
    later(new, by_s=1e4)
    shutil.copytree(base / "experiments" / last.name, last, dirs_exist_ok=True)
    code, out, err = compare(base, new)
    assert code == 0 and "2 experiments on both sides" in out
    assert "1 experiment is left out: both sides have the same runs" in err


def test_of_a_folder_that_went_on_the_new_runs_count(compare: Call, tmp_path: Path) -> None:
    """Three of five runs were made anew: they are the new side, and base keeps its five."""
    base = campaign(tmp_path / "base", seed=1, experiments=1)
    new = later(shutil.copytree(base, tmp_path / "new"), by_s=1e4, runs=3)
    code, _, err = compare(base, new, "--output", tmp_path / "found.json")
    (row, *_) = as_json.load(tmp_path / "found.json").rows
    assert row.ratio is not None and (row.ratio.n_base, row.ratio.n_new) == (5, 3)
    assert (
        code in (0, 3)
        and "1 experiment has some runs that are on both sides: these runs are counted only for base" in err
    )


def test_a_place_and_its_copy_on_one_side_count_once(compare: Call, tmp_path: Path) -> None:
    base, new = (campaign(tmp_path / name, seed=seed, experiments=1) for seed, name in enumerate(("base", "new")))
    copy = shutil.copytree(new, tmp_path / "copy")
    found = tmp_path / "found.json"
    _, _, err = compare(base, f"{new},{copy}", "--output", found)
    assert {row.ratio.n_new for row in as_json.load(found).rows if row.ratio} == {5}
    assert "5 copies of runs in these folders or files: each run counts once" in err


def test_what_does_not_run_any_more_fails_the_build(compare: Call, tmp_path: Path) -> None:
    works = stored(tmp_path / "base", (BASE, [ended(BASE, 1, tokens_per_s=100.0)]))
    broken = stored(tmp_path / "new", (BASE, [failed(BASE, 1)]))
    code, out, _ = compare(works, broken)
    assert code == 1 and "oom_cuda" in out and "1 experiment newly failed" in out
    assert compare(broken, works)[0] == 4
    assert compare(broken, broken)[0] == 4


@pytest.mark.parametrize("content", [b"", b'{"status": "ok"', b"\x00\xff\xfe"])
def test_a_record_that_cannot_be_read_is_unknown_in_every_output(content: bytes, compare: Call, tmp_path: Path) -> None:
    other = replace(BASE, id="full-tiny-000000000001", arguments={**BASE.arguments, "learning_rate": "3e-5"})
    for name in ("base", "new"):
        began = 1.7e9 if name == "base" else 1.8e9
        cells = ((one, [replace(ended(one, 1, tokens_per_s=100.0), started_at=began)]) for one in (BASE, other))
        root = stored(tmp_path / name, *cells)
    record = root / "experiments" / other.id / "runs" / "r1-t1" / "record.json"
    record.write_bytes(content)
    outputs = [tmp_path / f"c.{suffix}" for suffix in ("txt", "csv", "json", "md", "html", "svg")]
    words = [word for path in outputs for word in ("--output", path)]
    code, out, err = compare(tmp_path / "base", root, *words)
    assert code == 3 and out.splitlines()[-1] == "inconclusive: 1 experiment unknown (exit code 3)"
    assert f"{record}: cannot be read as a record" in err
    for path in outputs:
        text = path.read_text()
        assert "unknown" in text.lower() and "newly failed" not in text, path
        assert path.suffix == ".svg" or "on the new side, its record cannot be read" in text, path
    code, out, _ = compare(tmp_path / "base", root, "--fail-on", "failed,regressed,missing")
    assert code == 0 and "not counted: 1 experiment unknown" in out


def test_other_data_is_not_comparable_unless_it_is_to_be(compare: Call, tmp_path: Path) -> None:
    sides = []
    for name, source in (("base", "builtin:synthetic"), ("new", "builtin:stdlib-docs")):
        experiment = replace(BASE, id=f"full-{name}-000000000000", data=DataSpec(source=source, form="tokens"))
        sides.append(stored(tmp_path / name, (experiment, [ended(experiment, 1, tokens_per_s=100.0)])))
    code, out, _ = compare(*sides)
    assert code == 4 and "not comparable: other data" in out and "builtin:synthetic → builtin:stdlib-docs" in out
    assert compare(*sides, "--ignore", "data")[0] == 0


# Output and mistakes


def test_files_are_written_in_their_form_and_the_terminal_besides(compare: Call, tmp_path: Path) -> None:
    folder = COMPAT / "compare" / "perturbed"
    names = ("rows.csv", "comment.md", "comparison.json", "view.txt")
    options = [word for name in names for word in ("--output", tmp_path / name)]
    code, out, err = compare(folder / "reference.csv", folder / "benchmarks.csv", *options)
    assert code == 1 and out.startswith("base ") and err.count("wrote ") == 4
    assert as_json.load(tmp_path / "comparison.json").rules["threshold"] == "0.1"
    assert (tmp_path / "comment.md").read_text().startswith("<!-- tunebench compare -->")
    for name in names:
        again = compare(folder / "reference.csv", folder / "benchmarks.csv", "--output", tmp_path / name)
        assert again[0] == 1, f"an older {name} makes room"


@pytest.mark.parametrize("name", ["rows.csv", "comment.md", "comparison.json", "view.txt", "page.html", "card.svg"])
def test_what_is_a_users_is_not_replaced(compare: Call, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("base  of my own\n")
    code, out, err = compare(A100, A100, "--output", tmp_path / name)
    assert (code, out) == (2, "") and "another file is there" in err
    assert (tmp_path / name).read_text() == "base  of my own\n"


@pytest.mark.parametrize(
    ("fail_on", "code", "said"),
    [
        (
            "none",
            0,
            "nothing that counts is worse; not counted: 1 experiment regressed, 1 with another loss (exit code 0)",
        ),
        ("guard", 1, "worse: 1 experiment with another loss; not counted: 1 experiment regressed (exit code 1)"),
        ("regressed,guard", 1, "worse: 1 experiment regressed, 1 with another loss (exit code 1)"),
    ],
)
def test_what_does_not_count_is_said_all_the_same(compare: Call, fail_on: str, code: int, said: str) -> None:
    folder = COMPAT / "compare" / "perturbed"
    found, out, _ = compare(folder / "reference.csv", folder / "benchmarks.csv", "--fail-on", fail_on)
    assert found == code and out.endswith(f"\n{said}\n")


def test_scenarios_that_differ_in_their_name_only_are_told_how_to_be_paired(compare: Call, tmp_path: Path) -> None:
    """It said `missing`, `new` and `nothing comparable`, and no option."""

    def side(scenario: str, batches: Sequence[str]) -> Path:
        alike = [replace(BASE, scenario=scenario, arguments={**BASE.arguments, "max_steps": n}) for n in batches]
        cells = [replace(one, id=f"{scenario}-{n}-000000000000") for one, n in zip(alike, batches, strict=True)]
        return stored(
            tmp_path / scenario, *((one, [ended(one, n, tokens_per_s=9.0 + n) for n in (1, 2, 3)]) for one in cells)
        )

    sides = side("old", "123"), side("new", "245")
    code, _, err = compare(*sides)
    (said,) = [line for line in err.splitlines() if "--by" in line]
    assert (
        code == 4 and "1 experiment on base differs from one on the new side only in the name of the scenario" in said
    )
    code, out, err = compare(*sides, "--by", said.rpartition(" ")[2])
    assert (
        code == 1 and "1 experiment on both sides, 2 only on base, 2 only on the new side" in out and "--by" not in err
    )
    assert "--by" not in compare(side("other", "67"), sides[1])[2], "these differ in another setting, too"


def test_a_speed_that_every_new_run_lost_is_missing(compare: Call, tmp_path: Path) -> None:
    """As where no run reaches a steady state any more: the Trainer's speed in its place would hide it."""
    both = {"train_tokens_per_second": 900.0, "train_loss": 2.0}
    base = [ended(BASE, n, tokens_per_s=1000.0 + n, device_peak_used_bytes=1e9, **both) for n in (1, 2, 3)]
    new = [replace(ended(BASE, n, **both), started_at=1.8e9) for n in (1, 2, 3)]
    sides = stored(tmp_path / "base", (BASE, base)), stored(tmp_path / "new", (BASE, new))
    code, out, err = compare(*sides)
    assert code == 1 and "worse: 1 experiment with something missing" in out and "measured only on base" in out
    assert "device_peak_used_bytes: only base has it" in err and "tokens_per_s" not in err
    assert compare(*reversed(sides))[0] == 0, "that base lacks it is no fault of the new side"


def test_a_single_run_without_a_steady_state_asks_for_more_runs(compare: Call, tmp_path: Path) -> None:
    refused = Caveat(kind=CaveatKind.NOT_LEVEL, detail="the second half is 5 % slower")
    base = [ended(BASE, 1, tokens_per_s=1000.0, train_loss=2.0)]
    new = [replace(ended(BASE, 1, train_loss=2.0), started_at=1.8e9, warnings=(refused,))]
    sides = stored(tmp_path / "base", (BASE, base)), stored(tmp_path / "new", (BASE, new))
    code, out, _ = compare(*sides, width=200)
    assert (
        code == 3
        and "no steady state in the only run of the new side, 5% worse is not ruled out, needs about 1 more" in out
    )


@pytest.mark.parametrize("form", ["json", "csv", "markdown"])
def test_stdout_has_the_form_alone(compare: Call, tmp_path: Path, form: str) -> None:
    folder = COMPAT / "compare" / "perturbed"
    code, out, err = compare(folder / "reference.csv", folder / "benchmarks.csv", "--format", form)
    assert code == 1 and err == "worse: 1 experiment regressed, 1 with another loss (exit code 1)\n"
    assert out.startswith({"json": "{", "csv": "framework_config,", "markdown": "<!--"}[form])
    if form == "json":
        assert as_json.parse(json.loads(out)).rows
    file = tmp_path / f"again.{'md' if form == 'markdown' else form}"
    code, out, _ = compare(folder / "reference.csv", folder / "benchmarks.csv", "--format", form, "--output", file)
    assert out == "" and file.read_text()


@pytest.mark.parametrize(("words", "said"), cases("compare_cli/mistakes_end_in_a_sentence"))
def test_mistakes_end_in_a_sentence(compare: Call, words: list[str], said: str) -> None:
    code, out, err = compare(*(A100 if word == "A100" else word for word in words))
    assert (code, out) == (2, "")
    assert said in err and "Traceback" not in err
