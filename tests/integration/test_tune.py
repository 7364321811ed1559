"""`tunebench tune`: few runs for what is clearly slower, all repeats for the fastest, and a race that goes on where it was."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from campaigns import Campaign, begun, ended, tunebench
from factories.results import BASE
from trees import wait_until

from orchestrator.campaign.steps import with_all_rounds
from orchestrator.plan.expand import Plan
from orchestrator.report.page.charts.curves.race import races as races_chart

# The noise depends on the run's name only: `r3-t1` of two experiments differs, and a repeated test sees the same numbers.
TRAINER = """
import json, random, sys
kind, run_dir = sys.argv[1:]
speeds = {"a": 100, "b": 99.8, "c": 80, "d": 60, "e": 93, "large": 120, "wrong": 130, "broken": None}
speeds |= {str(2**at): 100 * 2**at / (2**at + 8) for at in range(7)}
noise = random.Random(kind + run_dir.rsplit("/", 1)[-1]).gauss(0, 0.004)
print(json.dumps({
    "tokens_per_s": speeds[kind] * (1 + noise),
    "peak_allocated_bytes": 2**30 * (3 if kind == "large" else 1),
    "energy_per_real_token_j": (3 if kind == "a" else 2) * (1 + noise),
    "train_loss": 2.0 if kind == "wrong" else 1.0,
}))
"""
BATCH = "per_device_train_batch_size"
SCENARIOS = """
scenarios:
- name: kinds
  trainer: custom
  device: cpu
  repeats: 6
  matrix: {kind: [KINDS]}
  custom:
    command: ['{python}', '{scenario_dir}/t.py', '{kind}', '{run_dir}']
    launcher: none
    metrics:
      tokens_per_s: {key: tokens_per_s}
      peak_allocated_bytes: {key: peak_allocated_bytes}
      train_loss: {key: train_loss}
      energy_per_real_token_j: {key: energy_per_real_token_j}
"""


def tune(folder: Path, *words: str, kinds: str = "a, b, c, d, e", command: str = "tune") -> Campaign:
    (folder / "t.py").write_text(TRAINER)
    (folder / "s.yaml").write_text(SCENARIOS.replace("KINDS", kinds))
    return tunebench(folder, command, "s.yaml", "--results", "results", *words)


def runs(campaign: Campaign) -> dict[str, int]:
    """Return the number of records of each kind."""
    found: Counter[str] = Counter()
    for file in campaign.results.glob("experiments/*/runs/*/record.json"):
        experiment = json.loads((file.parents[2] / "experiment.json").read_text())
        found[experiment["arguments"]["kind"]] += json.loads(file.read_text())["status"] in ("ok", "failed")
    return dict(found)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    return tune(tmp_path_factory.mktemp("tuned"))


def test_what_is_clearly_slower_gets_few_runs_and_the_fastest_gets_all_repeats(tuned: Campaign) -> None:
    assert tuned.code == 0, tuned.said
    made = runs(tuned)
    assert made["d"] == 1 and made["c"] == made["e"] == 2
    assert max(made["a"], made["b"]) >= 6, "the repeats of the scenario"
    assert sum(made.values()) < 5 * 6


def test_it_says_who_left_and_why_and_what_is_fastest(tuned: Campaign) -> None:
    assert "3 of 5 dropped; " in tuned.out and ", where a grid with 6 runs of each has 30, in about " in tuned.out
    assert "dropped in round 2: at most" in tuned.out and "leads" in tuned.out
    assert "kinds with 1 CPU process: kind " in tuned.out.splitlines()[-1]


def test_the_times_of_a_race_include_the_starts_of_its_commands(tuned: Campaign) -> None:
    (line,) = (line for line in tuned.out.splitlines() if line.startswith("kinds: 1 process: "))
    seconds = float(line.partition(" runs in ")[2].partition(" s, where")[0])
    training = sum(record.wall_s for records in tuned.records().values() for record in records)
    assert seconds > training + 0.05 * sum(runs(tuned).values()), "Python needs longer than this to start"


def test_the_report_misses_no_run(tuned: Campaign) -> None:
    report = tunebench(tuned.folder, "report", "results")
    assert "fewer runs than were asked for" not in report.said
    assert "nothing left to do" in tunebench(tuned.folder, "status", "results").out


def test_a_race_that_is_over_starts_nothing_more(tuned: Campaign) -> None:
    before = runs(tuned)
    again = tunebench(tuned.folder, "tune", "s.yaml", "--results", "results")
    assert again.code == 0 and runs(again) == before
    assert again.out.splitlines()[-1] == tuned.out.splitlines()[-1]


def test_runs_of_an_earlier_campaign_count_and_run_fills_the_grid_afterwards(tmp_path: Path) -> None:
    first = tune(tmp_path, "--repeats", "1", command="run")
    assert runs(first) == dict.fromkeys("abcde", 1)
    race = tune(tmp_path)
    assert "5 experiments race: at most 25 more runs; 5 runs have ended already\n" in race.err
    made = runs(race)
    assert made["d"] == 1 and made["c"] == 2
    grid = tune(tmp_path, "--repeats", "2", command="run")
    assert grid.code == 0 and min(runs(grid).values()) == 2


def test_of_several_batch_sizes_only_those_near_the_fastest_run(tmp_path: Path) -> None:
    text = SCENARIOS.replace("{kind: [KINDS]}", f"{{{BATCH}: [1, 2, 4, 8, 16, 32, 64]}}")
    (tmp_path / "t.py").write_text(TRAINER)
    (tmp_path / "s.yaml").write_text(text.replace("'{kind}'", f"'{{{BATCH}}}'").replace("repeats: 6", "repeats: 3"))
    race = tunebench(tmp_path, "tune", "s.yaml", "--results", "results")
    assert race.code == 0, race.said
    assert "3 skipped" in race.said and "not run: the fastest value is not next to it" in race.out
    status = tunebench(tmp_path, "status", "results").out
    assert "nothing left to do" in status and "3 skipped" in status
    page = (race.results / "report.html").read_text()
    assert "not run: the fastest value is not next to it" in page
    again = tunebench(tmp_path, "tune", "s.yaml", "--results", "results")
    assert again.code == 0 and "1/1" not in again.err and again.out.splitlines()[-1] == race.out.splitlines()[-1]
    grid = tunebench(tmp_path, "run", "s.yaml", "--results", "results")
    assert grid.code == 0 and "skipped" not in grid.said, "the full grid has them all"


def test_an_experiment_that_fails_leaves_after_two_runs(tmp_path: Path) -> None:
    race = tune(tmp_path, kinds="a, broken, d")
    assert race.code == 1
    assert runs(race)["broken"] == 2 and "dropped in round 2: it failed" in race.out


def test_each_number_of_processes_has_its_own_race(tmp_path: Path) -> None:
    race = tune(tmp_path, "--num-gpus", "1,2", kinds="a, d")
    assert race.code == 0, race.said
    titles = [line for line in race.out.splitlines() if line.startswith("kinds: ")]
    assert [title.split(": ")[1] for title in titles] == ["1 process", "2 processes"]
    assert "kinds with 2 CPU processes: " in race.out


def test_it_says_what_it_costs_at_most_and_who_is_dropped_after_each_round(tuned: Campaign) -> None:
    assert "5 experiments race: at most 30 runs, as many as the full grid\n" in tuned.err
    assert "kinds: 1 process: round 1, 5 runs\n" in tuned.err
    assert "kinds: 1 process: round 3, 2 runs; dropped: kind e (at most " in tuned.err
    assert re.search(r"^kinds: 1 process: over after round \d; the leader gets \d more runs?$", tuned.err, re.MULTILINE)


def test_the_report_draws_the_race(tuned: Campaign) -> None:
    races = json.loads((tuned.results / "race.json").read_text())["races"]
    rows = {one["name"]: one for one in races[0]["experiments"]}
    assert races[0]["is_over"] and races[0]["experiments"][0]["speed"] == 1.0
    assert rows["kind d"]["is_dropped"] and rows["kind d"]["runs"] == 1
    assert rows["kind c"]["low"] < rows["kind c"]["speed"] < rows["kind c"]["high"]
    chart = races_chart([tuned.results])
    assert [view.at for view in chart.views] == [("kinds: 1 process", "all")]
    assert ("kind d", "1", f"{rows['kind d']['speed']:.1%}", rows["kind d"]["became"]) in chart.views[0].rows
    figure = chart.views[0].figure
    ticks, lowest = figure["layout"]["xaxis"]["tickvals"], min(one["low"] or one["speed"] for one in rows.values())
    assert ticks[-1] == 1.0 and lowest - 0.05 < ticks[0] < 0.95, "none below the words to the right of the dots"
    assert "The race" in (tuned.results / "report.html").read_text()


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"tool": "tunebench"}', '{"tool": "tunebench", "races": [{"experiments": [{}, 3]}, 1]}']
)
def test_a_report_reads_any_race_file(tmp_path: Path, content: str) -> None:
    (tmp_path / "race.json").write_text(content)
    races_chart([tmp_path])


def test_a_record_that_cannot_be_read_does_not_stop_the_race(tmp_path: Path) -> None:
    race = tune(tmp_path, kinds="a, c, d")
    record = next(race.results.glob("experiments/*/runs/r1-t1/record.json"))
    record.write_text("{")
    again = tunebench(tmp_path, "tune", "s.yaml", "--results", "results")
    assert again.code == 1 and "is not over" not in again.out
    mended = tunebench(tmp_path, "tune", "s.yaml", "--results", "results", "--retry-failed", "lost")
    assert mended.code == 0, mended.said


SLEEPS = """
import os, sys, time
open(os.path.join(os.path.dirname(sys.argv[0]), "started"), "a").write(sys.argv[1])
time.sleep(300 if sys.argv[1] == "a" else 0)
print('{"tokens_per_s": 1}')
"""


def test_a_cancelled_run_is_not_started_again(tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text(SLEEPS)
    (tmp_path / "s.yaml").write_text(SCENARIOS.replace("KINDS", "a, b"))
    race = begun(tmp_path, "tune", "s.yaml", "--results", "results")
    wait_until(lambda: (tmp_path / "started").exists() and "a" in (tmp_path / "started").read_text())
    assert tunebench(tmp_path, "cancel", "results").code == 0
    assert ended(tmp_path, race).code == 1
    assert (tmp_path / "started").read_text().count("a") == 1


def test_a_race_without_a_speed_has_no_winner(tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text("print('{}')")
    (tmp_path / "s.yaml").write_text(SCENARIOS.replace("KINDS", "a, b").replace("tokens_per_s", "steps"))
    race = tunebench(tmp_path, "tune", "s.yaml", "--results", "results", "--price", "2USD/GPUh")
    assert race.code == 1, race.said
    assert "note: 2USD/GPUh counts GPUs only, so these runs are without a cost; for CPUs, write " in race.err


def test_a_limit_drops_at_once(tmp_path: Path) -> None:
    race = tune(tmp_path, "--limit", "memory=2GiB", "--limit", "loss=+5%", kinds="a, b, c, large, wrong")
    assert race.code == 0, race.said
    assert runs(race)["large"] == 1 and runs(race)["wrong"] == 1
    assert race.out.count("dropped in round 1: over the limit") == 2
    assert "kinds: 1 process: kind a leads within the limits; kind b, the next, is 0." in race.out
    assert race.out.splitlines()[-1].endswith("), not a clear difference.")
    assert "kind wrong" not in race.out.splitlines()[-1] and "was not applied" not in race.out
    (kept,) = json.loads((race.results / "race.json").read_text())["races"]
    assert (kept["objective"], kept["limits"]) == ("tokens_per_s", {"memory_bytes": 2 * 2**30, "loss": 0.05})
    over = [one["name"] for one in kept["experiments"] if one["is_over_limit"]]
    assert sorted(over) == ["kind large", "kind wrong"]
    (chart,) = races_chart([race.results]).views
    assert chart.summary.endswith(
        ". Its limits: at most 2.00 GiB of memory per device and a loss at most 5 % above the lowest."
    )


def test_both_answers_are_said_if_the_report_sees_no_clear_difference(tmp_path: Path) -> None:
    """The race takes the noise from all experiments, and the report from the runs of two, which are few."""
    speeds = {"a": [100, 100.2, 100.1], "b": [96.5, 94.5, 95], "c": [60, 60], "d": [60.1, 60.1]}
    (tmp_path / "t.py").write_text(
        f"import sys\nkind, folder = sys.argv[1:]\nat = int(folder.rsplit('/r', 1)[1][0]) - 1\n"
        f"print('{{{{\"tokens_per_s\": %s}}}}' % {speeds}[kind][at])\n".replace("{{", "{").replace("}}", "}")
    )
    lines = [
        line
        for line in SCENARIOS.replace("KINDS", "a, b, c, d").splitlines()
        if "key: tok" in line or "{key" not in line
    ]
    (tmp_path / "s.yaml").write_text("\n".join(lines).replace("repeats: 6", "repeats: 2"))
    race = tunebench(tmp_path, "tune", "s.yaml", "--results", "results")
    assert race.code == 0, race.said
    *_, answer, report = race.out.splitlines()
    next_one = r"kind b, the next, {} \(\d\.\d to \d\.\d\)\."
    assert re.fullmatch(r"kinds: 1 process: kind a is the fastest; " + next_one.format(r"is 4\.\d % slower"), answer)
    said = "The report says: kinds with 1 CPU process: kind a or kind b: no clear difference, 1.0"
    assert report.startswith(said)
    again = tunebench(
        tmp_path, "tune", "s.yaml", "--results", "results", "--objective", "cost", "--price", "20USD/nodeh"
    )
    *_, answer, report = again.out.splitlines()
    needs = "kinds: 1 process: kind a needs the least money per token; "
    assert re.fullmatch(needs + next_one.format(r"needs \d\.\d % more"), answer)
    said = "The report says: kinds: the cheapest is kind a or kind b (no clear difference, 0.9"
    assert report.startswith(said) and report.endswith(") at 20USD/nodeh.")


def test_the_cheapest_may_use_fewer_devices(tmp_path: Path) -> None:
    words = ("--objective", "cost", "--price", "20USD/nodeh", "--num-gpus", "1,2")
    (race,) = [tune(tmp_path, *words, kinds="a, d")]
    assert race.code == 0, race.said
    (title,) = [line for line in race.out.splitlines() if line.startswith("kinds: ")][:1]
    assert title.startswith("kinds: 2 of 4 dropped"), "one race over all numbers of processes"
    assert "kind a on 1 CPU process leads in money per token; kind a on " in race.out
    again = tunebench(tmp_path, "plan", "s.yaml", "--tune", "--objective", "cost", "--results", "results")
    assert again.code == 0, "the folder has the price"
    new = tune(tmp_path, "--objective", "cost", "--move-aside", kinds="a")
    assert new.code == 2 and "needs a price" in new.err and (tmp_path / "results/race.json").exists()


def test_rows_per_second_do_not_race_over_the_length_of_rows(tmp_path: Path) -> None:
    """Rows of 128 tokens were the fastest. The work is known after the first runs only, so the race splits then."""
    (tmp_path / "s.yaml").write_text(
        SCENARIOS.split("  matrix")[0].replace("repeats: 6", "repeats: 1")
        + "  matrix: {max_seq_len: [128, 256, 384, 512]}\n"
        "  custom: {command: ['{python}', '-c', 'print(128000 / {max_seq_len})'], launcher: none, results: log, "
        "metrics: {train_samples_per_second: {pattern: '(.+)'}}}\n"
    )
    race = tunebench(tmp_path, "tune", "s.yaml", "--results", "results")
    assert race.code == 0, race.said
    assert "4 experiments race: at most 12 runs" in race.err
    for length in (128, 256, 384, 512):
        name = f"kinds: max_seq_len {length}, 1 process"
        assert f"{name}: decided after round 1" in race.err
        assert f"{name}: max_seq_len {length} is the only experiment of its race." in race.out
    said = "kinds: each value of max_seq_len has a race of its own, because it changes the work that train_samples_per_second "
    assert race.out.count(said) == 1 and "The report says" not in race.out
    assert len(races_chart([race.results]).views) == 4
    again = tunebench(tmp_path, "tune", "s.yaml", "--results", "results")
    assert again.code == 0 and " r1 " not in again.err and said in again.out


def test_a_folder_keeps_the_races_of_other_experiments(tmp_path: Path) -> None:
    tune(tmp_path, "--limit", "memory=2GiB", kinds="a, d")
    tune(tmp_path, kinds="c, large")
    tune(tmp_path, "--objective", "energy", kinds="c, large")
    tune(tmp_path, kinds="c")
    views = races_chart([tmp_path / "results"]).views
    races = [(one.at[0], one.summary.count("2.00 GiB"), len(one.rows)) for one in views]
    assert races == [("kinds: 1 process", 0, 1), ("kinds: 1 process (2)", 0, 2), ("kinds: 1 process (3)", 1, 2)]


def test_the_least_energy_wins(tmp_path: Path) -> None:
    race = tune(tmp_path, "--objective", "energy", kinds="a, d")
    assert race.code == 0, race.said
    assert "kinds: 1 process: kind d needs the least energy per token; kind a, the next, needs " in race.out
    (chart,) = races_chart([race.results]).views
    assert chart.figure["layout"]["xaxis"]["title"]["text"] == "tokens for the same energy relative to the leader"
    assert "Its limits" not in chart.summary


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--objective", "cost"), "--objective cost needs a price above 0; add one, such as --price 2.50USD/GPUh"),
        (
            ("--objective", "cost", "--price", "2USD/GPUh"),
            "scenario 'kinds' uses no GPU, so a price per GPU-hour gives it no cost; write a price per node-hour",
        ),
    ],
)
def test_an_objective_that_cannot_be_measured_is_refused(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    refused = tune(tmp_path, *words)
    assert refused.code == 2 and said in refused.err and not refused.results.exists()


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        ("memory=2", "--limit memory '2' has no unit; write 2GiB, 2GB or MiB"),
        ("loss=1%", "--limit 'loss=1%' is invalid; write memory=80GiB, or loss=+1%"),
        ("speed=3", "--limit 'speed=3' is invalid; write memory=80GiB, or loss=+1%"),
    ],
)
def test_a_wrong_limit_is_refused(tmp_path: Path, limit: str, said: str) -> None:
    refused = tune(tmp_path, "--limit", limit)
    assert refused.code == 2 and said in refused.err and not refused.results.exists()


@pytest.mark.parametrize("words", [("--limit", "memory=2GiB"), ("--objective", "energy", "--memory", "all")])
def test_what_is_measured_on_gpus_only_is_refused_on_a_cpu(tmp_path: Path, words: tuple[str, ...]) -> None:
    refused = tunebench(tmp_path, "tune", *words, "--results", "results")
    assert refused.code == 2 and "'quickstart' uses no GPU" in refused.err and not refused.results.exists()


def test_a_plan_says_what_a_race_costs_at_most(tuned: Campaign) -> None:
    planned = tunebench(tuned.folder, "plan", "s.yaml", "--tune", "--num-gpus", "1,2", "--results", "new")
    assert planned.code == 0, planned.said
    assert "10 experiments, 60 runs can be made here." in planned.out
    assert "tunebench tune: 2 races, which make 22 to 60 runs; the full grid has 60." in planned.out
    words = ("--objective", "cost", "--price", "20USD/nodeh", "--num-gpus", "1,2")
    planned = tunebench(tuned.folder, "plan", "s.yaml", "--tune", *words, "--assume", "1x80GiB")
    assert "tunebench tune: 1 race, which makes 16 to 60 runs; the full grid has 60." in planned.out


def test_a_plan_counts_the_runs_that_have_ended(tuned: Campaign) -> None:
    ended_runs = sum(runs(tuned).values())
    planned = tunebench(tuned.folder, "plan", "s.yaml", "--tune")
    assert "tunebench tune: 1 race, which makes no more runs; the full grid has 30." in planned.out
    assert f"results: of {ended_runs} runs {ended_runs} have ended there, and 0 would run." in planned.out
    refused = tunebench(tuned.folder, "plan", "s.yaml", "--limit", "loss=+1%")
    assert refused.code == 2
    assert refused.err == "error: --objective and --limit are for a race; add --tune, or leave them out\n"


def test_the_question_before_a_race_counts_all_its_rounds() -> None:
    most = with_all_rounds(
        Plan(experiments=(replace(BASE, repeats=3), replace(BASE, repeats=20)), collapsed=(), notes=())
    )
    assert [one.repeats for one in most.experiments] == [3, 20]
    few = with_all_rounds(Plan(experiments=(replace(BASE, repeats=1),), collapsed=(), notes=()))
    assert [one.repeats for one in few.experiments] == [3], "a race of single runs may make three of each"


def test_a_suite_of_benchmarks_cannot_race(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("def test_it(benchmark): benchmark(int)")
    (tmp_path / "s.yaml").write_text(
        "scenarios:\n- name: suite\n  trainer: pytest_benchmark\n  device: cpu\n  arguments: {path: test_it.py}\n"
    )
    refused = tunebench(tmp_path, "tune", "s.yaml", "--results", "results")
    assert refused.code == 2 and not refused.results.exists()
    assert "scenario 'suite': trainer pytest_benchmark has many times and no speed, so it cannot race" in refused.err
