"""Any axis: which experiments are compared with which, their columns, and their sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from factories.tables import Made, made_table, speeds
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.errors import SelectionError
from orchestrator.report.highlights import HighlightKind, highlights
from orchestrator.report.tables import as_markdown, terminal
from orchestrator.results.table import column_choice as shown
from orchestrator.results.table.baseline import COLUMNS, COMPARED_WITH, pairs_of, with_baseline
from orchestrator.results.table.column_choice import cells, column
from orchestrator.results.table.load import ResultsTable
from orchestrator.results.table.pivots import group_by
from orchestrator.results.table.rows import argument_column

SGD, ADAMW, LION = (100.0, 101.0, 99.0), (131.0, 132.0, 130.0), (112.0, 113.0, 111.0)
RUNS = st.lists(st.floats(50.0, 500.0), min_size=1, max_size=4)


def made(optim: str | None = None, runs: Sequence[object] = (), **fields: object) -> Made:
    """Make an experiment of an optimizer without a framework. `fields` with other names than those of `Made` are arguments."""
    own = {name: value for name, value in fields.items() if name in Made.__dataclass_fields__}
    arguments = {name: str(value) for name, value in fields.items() if name not in own}
    own["runs"] = runs if runs and isinstance(runs[0], dict) else speeds(*runs)  # type: ignore[arg-type]
    return Made(**{"framework": None, "arguments": {**({"optim": optim} if optim else {}), **arguments}, **own})  # type: ignore[arg-type]


THREE = (made("sgd", SGD), made("adamw", ADAMW), made("lion", LION))


def compared(table: ResultsTable) -> set[tuple[int, int, str]]:
    return {(pair.new, pair.base, str(pair.match.reference)) for pair in pairs_of(table)}


def said(*some: Made, baseline: Sequence[str] = ()) -> list[str]:
    found = highlights(with_baseline(made_table(*some), baseline))
    return [one.text for one in found if one.kind is HighlightKind.GAIN]


def ratios(table: ResultsTable) -> list[float | None]:
    return [None if value is None else round(float(value), 2) for value in column(table.experiments, "speedup")]


# ------------------------------------------------------------------------------------------------- without a name


def test_nine_runs_of_three_settings_have_speed_ups_with_intervals_and_findings() -> None:
    table = with_baseline(made_table(*THREE))
    assert ratios(table) == [1.0, 1.31, 1.12]
    assert column(table.experiments, COMPARED_WITH) == ["optim=sgd"] * 3
    lows, highs = (column(table.experiments, f"speedup_{end}") for end in ("low", "high"))
    assert lows[0] is highs[0] is None
    for low, ratio, high in list(zip(lows, column(table.experiments, "speedup"), highs, strict=True))[1:]:
        assert low < ratio < high < low * 1.1  # type: ignore[operator]
    assert said(*THREE) == [
        "optim adamw is 31 % faster (1.31×, 1.28 to 1.34) than sgd on llama-1b at 1 GPU",
        "optim lion is 12 % faster (1.12×, 1.10 to 1.14) than sgd on llama-1b at 1 GPU",
    ]


def test_the_reference_that_was_chosen_is_named_in_a_note_and_not_as_a_finding() -> None:
    table = with_baseline(made_table(*THREE))
    text = "optim is compared with sgd, its first value; --baseline optim=VALUE compares with another"
    found = highlights(table)
    assert [one.text for one in found if one.kind is HighlightKind.NOTE] == [text]
    assert text not in said(*THREE)
    assert f"note: {text}" in " ".join(terminal.text(table, width=200, highlights=found).split())
    assert f"- **Note:** {text}" in as_markdown.findings(found)
    assert not [one for one in highlights(with_baseline(made_table(*THREE), ["optim=lion"])) if one.kind == "note"]


def test_the_first_value_that_was_measured_is_the_reference() -> None:
    failed = Made(framework=None, arguments={"optim": "sgd"}, kinds=["oom_cuda"])
    assert compared(made_table(failed, *THREE[1:])) == {(0, 1, "optim=adamw"), (2, 1, "optim=adamw")}
    assert ratios(with_baseline(made_table(failed, *THREE[1:]))) == [None, 1.0, 0.85]


def test_framework_configurations_come_first() -> None:
    some = [
        made(optim, runs, framework=name)
        for optim, runs in (("sgd", SGD), ("adamw", ADAMW))
        for name in ("baseline", "x")
    ]
    table = with_baseline(made_table(*some))
    assert compared(table) == {(1, 0, "baseline"), (3, 2, "baseline")}
    assert not {*COLUMNS, COMPARED_WITH} & set(table.experiments.columns)
    other = [made("sgd", SGD, scenario="b", framework="x"), made("lion", LION, scenario="b", framework="x")]
    both = with_baseline(made_table(*some, *other))
    assert (5, 4, "optim=sgd") in compared(both) and len(pairs_of(both)) == 3
    assert ratios(both)[4:] == [1.0, 1.12]


def test_each_of_two_axes_is_judged_with_the_other_held_fixed() -> None:
    table = made_table(*(made(optim, SGD, lr=lr) for optim in ("sgd", "adamw") for lr in ("1e-3", "1e-4", "1e-5")))
    assert compared(table) == {
        *((3, 0, "optim=sgd"), (4, 1, "optim=sgd"), (5, 2, "optim=sgd")),
        *((1, 0, "lr=1e-3"), (2, 0, "lr=1e-3"), (4, 3, "lr=1e-3"), (5, 3, "lr=1e-3")),
    }
    shown = with_baseline(table)
    assert column(shown.experiments, COMPARED_WITH) == ["optim=sgd"] * 6  # the outermost axis has the columns
    assert column(with_baseline(table, ["lr=1e-5"]).experiments, COMPARED_WITH) == ["lr=1e-5"] * 6
    both = with_baseline(table, ["lr=1e-5", "optim=adamw"])
    assert len(pairs_of(both)) == 4 + 3
    assert column(both.experiments, COMPARED_WITH) == ["lr=1e-5"] * 6


@pytest.mark.parametrize(
    "other", [{"model": "org/other"}, {"num_gpus": 2}, {"scenario": "b"}, {"trainer": "trl"}, {"framework": "x"}]
)
def test_what_differs_in_a_fact_is_not_compared(other: dict[str, object]) -> None:
    assert compared(made_table(made("sgd", SGD), made("adamw", ADAMW, **other))) == set()


def test_runs_of_an_edited_file_are_compared_with_runs_of_the_same_content_only() -> None:
    old, new = {"train.py": "a" * 12, "data.py": "c" * 12}, {"train.py": "b" * 12, "data.py": "c" * 12}
    some = [
        made(optim, runs, sources=sources, framework=None)
        for sources in (old, new)
        for optim, runs in (("sgd", SGD), ("adamw", ADAMW))
    ]
    table = made_table(*some)
    assert list(table.experiments["sources"]) == ["train.py aaaaaa"] * 2 + ["train.py bbbbbb"] * 2
    assert compared(table) == {(1, 0, "optim=sgd"), (3, 2, "optim=sgd")}
    assert "sources" not in made_table(*some[:2]).experiments


def test_files_that_cells_choose_are_compared() -> None:
    some = [
        made(name, runs, sources={"train.py": "a" * 12, name: digest * 12})
        for name, digest, runs in (("a.yaml", "b", SGD), ("b.yaml", "c", ADAMW))
    ]
    assert compared(made_table(*some)) == {(1, 0, "optim=a.yaml")}


def test_a_cell_without_a_partner_is_not_compared() -> None:
    some = [made("sgd", SGD, lr=1), made("adamw", ADAMW, lr=1), made("lion", LION, lr=2), made("sgd", SGD, lr=3)]
    assert compared(made_table(*some)) == {(1, 0, "optim=sgd"), (3, 0, "lr=1")}


def test_arguments_that_follow_from_an_axis_belong_to_it_and_are_named() -> None:
    zipped = [made("sgd", SGD, learning_rate="0.1"), made("adamw", ADAMW, learning_rate="0.001")]
    assert said(*zipped)[0] == (
        "optim adamw with learning_rate 0.001 is 31 % faster (1.31×, 1.28 to 1.34) than sgd with learning_rate 0.1 "
        "on llama-1b at 1 GPU"
    )
    added = [made("sgd", SGD, momentum="0.9", lr=lr) for lr in (1, 2)] + [made("lion", LION, lr=lr) for lr in (1, 2)]
    assert {(2, 0, "optim=sgd"), (3, 1, "optim=sgd")} < compared(made_table(*added))
    assert said(*added)[0].startswith(
        "optim lion with no momentum is 12 % faster (1.12×, 1.10 to 1.14) than sgd with momentum 0.9"
    )


def test_names_of_files_do_not_distinguish_experiments() -> None:
    some = [
        made(one, runs, output_dir=f"/{one}{lr}", lr=lr)
        for one, runs in (("sgd", SGD), ("lion", LION))
        for lr in (1, 2)
    ]
    assert {(2, 0, "optim=sgd"), (3, 1, "optim=sgd")} < compared(made_table(*some))


# ----------------------------------------------------------------------------------------------------- with a name


@given(RUNS, RUNS)
@settings(deadline=None)
def test_a_speed_up_against_itself_is_1_and_exchanging_the_baseline_inverts_it(
    base: list[float], new: list[float]
) -> None:
    table = made_table(made("sgd", base), made("lion", new))
    one, other = with_baseline(table, ["optim=sgd"]).experiments, with_baseline(table, ["optim=lion"]).experiments
    assert cells(one["speedup"])[0] == cells(other["speedup"])[1] == 1.0
    assert cells(one["speedup"])[1] == pytest.approx(1 / float(cells(other["speedup"])[0]))  # type: ignore[arg-type]
    if "speedup_low" in one:
        low, high = cells(one["speedup_low"])[1], cells(other["speedup_high"])[0]
        assert low == pytest.approx(1 / float(high))  # type: ignore[arg-type]


def test_any_fact_may_be_the_axis() -> None:
    models = made_table(made("sgd", SGD), made("sgd", ADAMW, model="config:tiny"))
    assert compared(with_baseline(models, ["model_name_or_path=config:tiny"])) == {
        (0, 1, "model_name_or_path=config:tiny")
    }
    gpus = [made("sgd", SGD), made("sgd", ADAMW, num_gpus=2)]
    assert (
        said(*gpus, baseline=["num_gpus=1"])[0] == "2 GPUs is 31 % faster (1.31×, 1.28 to 1.34) than 1 GPU on llama-1b"
    )
    batches = [made(None, SGD, per_device_train_batch_size=size, global_batch=2 * size, num_gpus=2) for size in (4, 8)]
    table = made_table(*batches)
    assert compared(with_baseline(table, ["effective_batch_size=16"])) == {(0, 1, "global_batch=16")}
    assert compared(with_baseline(table, ["framework_config=none"])) == set()


def test_a_framework_and_an_axis_may_both_be_named() -> None:
    some = [made(optim, SGD, framework=name) for optim in ("sgd", "adamw") for name in ("baseline", "x")]
    table = with_baseline(made_table(*some), ["optim=adamw", "x"])
    assert compared(table) == {(0, 2, "optim=adamw"), (1, 3, "optim=adamw"), (0, 1, "x"), (2, 3, "x")}


@pytest.mark.parametrize(("word", "same"), [("True", "true"), ("2e-5", "0.00002"), ("8", "8.0")])
def test_a_value_may_be_written_in_another_way(word: str, same: str) -> None:
    table = made_table(made("sgd", SGD, a="other"), made("sgd", SGD, a=word))
    assert compared(with_baseline(table, [f"a={same}"])) == {(0, 1, f"a={word}")}


def test_an_argument_that_is_not_set_is_null() -> None:
    table = made_table(made("sgd", SGD, peft_method="lora"), made("sgd", ADAMW))
    assert compared(with_baseline(table, ["peft_method=null"])) == {(0, 1, "peft_method=null")}


@pytest.mark.parametrize(
    ("baseline", "message"),
    [
        ("optimm=sgd", "--baseline optimm=sgd: no experiment has 'optimm'; did you mean 'optim'?"),
        (
            "optim=sdg",
            "--baseline optim=sdg: no experiment has optim 'sdg'; did you mean 'sgd'? Allowed: adamw, lion, sgd",
        ),
        ("optim", "--baseline optim: no experiment has this framework; write optim=VALUE"),
        ("tokens_per_s=1", "--baseline tokens_per_s=1: no experiment has 'tokens_per_s'"),
    ],
)
def test_a_name_that_no_experiment_has_is_refused(baseline: str, message: str) -> None:
    with pytest.raises(SelectionError) as error:
        with_baseline(made_table(*THREE), [baseline])
    assert str(error.value).startswith(message)


def test_a_baseline_without_a_partner_is_a_warning() -> None:
    table = with_baseline(made_table(made("sgd", SGD, lr=1), made("lion", LION, lr=1)), ["lr=1"])
    assert table.warnings == ("--baseline lr=1: no experiment has a partner that differs only in lr",)
    assert not {*COLUMNS, COMPARED_WITH} & set(table.experiments.columns)


# ------------------------------------------------------------------------------------------------ of the scenario


def test_a_scenario_names_its_baseline_and_the_option_wins() -> None:
    own = {"optim": "lion"}
    table = made_table(*(made(name, SGD, baseline=own) for name in ("sgd", "lion")), made("sgd", scenario="b"))
    assert compared(with_baseline(table)) == {(0, 1, "optim=lion")}
    assert compared(with_baseline(table, ["optim=sgd"])) == {(1, 0, "optim=sgd")}
    assert not any("first value" in text for text in said(*(made(name, SGD, baseline=own) for name in ("sgd", "lion"))))


def test_a_framework_that_a_scenario_names_gives_the_columns() -> None:
    some = [Made(framework=name, runs=speeds(*SGD), baseline={"framework_config": "x"}) for name in ("baseline", "x")]
    table = with_baseline(made_table(*some))
    assert compared(table) == {(0, 1, "x")} and ratios(table) == [1.0, 1.0]


def test_a_baseline_that_was_not_run_is_a_warning() -> None:
    table = with_baseline(made_table(*(made(name, SGD, baseline={"optim": "muon"}) for name in ("sgd", "lion"))))
    assert table.warnings == (
        "scenario 'full': baseline optim=muon: no experiment has a partner that differs only in optim",
    )


# ----------------------------------------------------------------------------------------- which speed, which loss


def test_without_tokens_the_time_of_a_step_is_a_speed() -> None:
    some = [
        made(name, runs=[{"step_time_s": one} for one in times])
        for name, times in (("sgd", (2.0, 2.02)), ("lion", (1.0, 1.01)))
    ]
    assert ratios(with_baseline(made_table(*some))) == [1.0, 2.0]
    assert (
        said(*some)[0]
        == "optim lion is 100 % faster (2.00×, 1.94 to 2.06) than sgd on llama-1b at 1 GPU, by the time of a step"
    )


@pytest.mark.parametrize(("axis", "metric", "has_speed"), [
    ("batch_size", "step_time_s", False), ("batch_size", "tokens_per_s", True), ("max_seq_len", "samples_per_s", False),
    ("epochs", "train_runtime", False), ("epochs", "step_time_s", True), ("optim", "train_runtime", True),
])  # fmt: skip
def test_a_time_is_no_speed_where_the_work_differs(axis: str, metric: str, has_speed: bool) -> None:
    table = made_table(*(made(runs=[{metric: 1.0 + n}], **{axis: str(n)}) for n in (1, 2)))
    (pair,) = pairs_of(table)
    assert (pair.speed is not None) is has_speed


def test_the_time_of_a_whole_run_counts_only_for_trainers_without_steps() -> None:
    both = [
        made(name, runs=[{"train_runtime": 2.0 + n, "tokens_per_s": None}]) for n, name in enumerate(("sgd", "lion"))
    ]
    steps = made("sgd", SGD, scenario="b")
    assert [pair.speed is None for pair in pairs_of(made_table(*both))] == [False]
    assert [pair.speed is None for pair in pairs_of(made_table(*both, steps))] == [True]
    own = made("sgd", SGD, scenario="b", trainer="custom")
    assert [pair.speed is None for pair in pairs_of(made_table(*both, own))] == [False]


def of_losses(axis: str, new: float) -> list[Made]:
    numbers = {"steps": 40, "tokens_per_s_per_gpu": 100.0}
    return [
        made(
            runs=[
                {**one, **numbers, "train_loss": loss, "tokens_per_s_per_gpu": one["tokens_per_s"]}
                for one in speeds(*runs)
            ],
            **{axis: value},
        )
        for value, runs, loss in (("a", SGD, 2.0), ("b", ADAMW, new))
    ]


def test_a_wrong_loss_is_a_warning_where_both_should_learn_alike() -> None:
    table = with_baseline(made_table(*of_losses("attn_implementation", 3.0)))
    found = {one.kind: one.text for one in highlights(table)}
    assert HighlightKind.GAIN not in found or "faster" not in found[HighlightKind.GAIN]
    assert found[HighlightKind.WARNING].startswith(
        "no framework on llama-1b at 1 GPU, attn_implementation b is faster but wrong: its training loss is 50 % above"
    )


def test_a_loss_that_may_differ_is_said_with_the_speed() -> None:
    table = with_baseline(made_table(*of_losses("optim", 3.0)))
    assert column(table.experiments, "loss_difference") == [None, 0.5]
    assert said(*of_losses("optim", 3.0))[0].endswith(
        "on llama-1b at 1 GPU; with optim b, the training loss is 50 % higher"
    )
    assert said(*of_losses("optim", 2.05))[0].endswith("on llama-1b at 1 GPU")
    assert said(*of_losses("train_batch", 3.0))[0].endswith("on llama-1b at 1 GPU")


def test_an_experiment_without_a_model_and_a_framework_has_the_name_of_its_scenario() -> None:
    some = [
        made(name, model="none", trainer="custom", kinds=kinds, scenario="mine")
        for name, kinds in (("a", ["killed"]), ("b", []))
    ]
    found = highlights(made_table(made("c", SGD, model="none", trainer="custom", scenario="mine"), *some))
    assert "mine on 1 GPU, optim a" in next(one.text for one in found if one.kind is HighlightKind.FAILURE)


@pytest.mark.parametrize("name", ["samples_per_s", "train_samples_per_second"])
def test_the_terminal_shows_samples_per_second_where_a_row_has_no_tokens(name: str) -> None:
    samples = [[{name: value} for value in values] for values in (SGD, ADAMW)]
    without, both = made("sgd", samples[0]), made("adamw", [{**run, "tokens_per_s": 5.0} for run in samples[1]])
    heading = "samples/s"
    assert heading in terminal.text(made_table(without), width=120).partition("Columns that")[0]
    assert heading in terminal.text(made_table(without, both), width=120).partition("Columns that")[0]
    assert heading not in terminal.text(made_table(both), width=120).partition("Columns that")[0]


# ------------------------------------------------------------------------- values that are equal only as numbers


VERSIONS = tuple(made("sgd", runs, version=version) for version, runs in (("1.10", SGD), ("1.1", ADAMW), ("1.2", LION)))


def test_a_version_is_compared_with_the_version_of_exactly_this_text() -> None:
    own = [replace(one, baseline={"version": "1.1"}) for one in VERSIONS]
    for table in (with_baseline(made_table(*own)), with_baseline(made_table(*VERSIONS), ["version=1.1"])):
        assert compared(table) == {(0, 1, "version=1.1"), (2, 1, "version=1.1")}
        assert ratios(table) == [0.76, 1.0, 0.85]
    assert not with_baseline(made_table(*VERSIONS[:2]), ["version=1.1"]).warnings


def test_a_value_that_equals_two_versions_is_the_baseline_of_none() -> None:
    table = made_table(*VERSIONS)
    with pytest.raises(SelectionError, match=r"no experiment has version '1\.100'; did you mean"):
        with_baseline(table, ["version=1.100"])
    other = made("sgd", SGD, version="1.100", scenario="b")
    assert compared(with_baseline(made_table(*VERSIONS, other), ["version=1.100"])) == set()


def test_a_number_written_differently_is_still_the_baseline() -> None:
    some = made("sgd", SGD, lr="2e-5"), made("sgd", ADAMW, lr="1e-4")
    other = [replace(one, scenario="b") for one in (made("sgd", SGD, lr="0.00002"), made("sgd", ADAMW, lr="1e-4"))]
    table = with_baseline(made_table(*some, *other), ["lr=2.0e-05"])
    assert compared(table) == {(1, 0, "lr=2e-5"), (3, 2, "lr=0.00002")}


# -------------------------------------------------------------------- arguments named like a column of another kind


TAKEN = (
    "data",
    "device",
    "sources",
    "results",
    "global_batch",
    "effective_lr",
    "provenance_x",
    "measured_x",
    "run_name",
)


@pytest.mark.parametrize("name", TAKEN)
def test_an_axis_with_the_name_of_another_column_is_an_axis(name: str) -> None:
    some = [
        Made(framework=None, arguments={name: value}, runs=speeds(*runs)) for value, runs in (("a", SGD), ("b", ADAMW))
    ]
    own = [replace(one, baseline={name: "b"}) for one in some]
    for table in (with_baseline(made_table(*own)), with_baseline(made_table(*some), [f"{name}=b"])):
        assert compared(table) == {(0, 1, f"{name}=b")}
        assert not table.warnings
        assert f"argument_{name}" in shown.varying(table.experiments, drop=shown.DEFAULT_DROP).shown
        assert list(group_by(table, name).frame[f"argument_{name}"]) == ["a", "b"]
    assert compared(with_baseline(made_table(*some), [f"argument_{name}=b"])) == {(0, 1, f"{name}=b")}


def test_arguments_of_similar_names_have_a_column_each() -> None:
    assert [argument_column(name) for name in ("data", "argument_data", "argument_x", "effective_batch_size")] == [
        *("argument_data", "argument_argument_data", "argument_x", "effective_batch_size")
    ]


def test_an_empty_text_and_no_value_are_two_values() -> None:
    some = [Made(framework=None, arguments=given, runs=speeds(*SGD)) for given in ({}, {"y": ""})]
    table = made_table(*(replace(one, baseline={"y": ""}) for one in some))
    assert column(table.experiments, "y") == [None, '""']
    assert compared(with_baseline(table)) == {(0, 1, 'y=""')}
    assert compared(with_baseline(table, ["y=null"])) == {(1, 0, "y=null")}


FORMS = (("a", "b"), "a b", (), "[]", "a", ("a",))


def test_a_list_and_a_text_of_the_same_words_are_two_values() -> None:
    some = [Made(framework=None, arguments={"y": value}, runs=speeds(*SGD)) for value in FORMS]  # type: ignore[dict-item]
    table = made_table(*(replace(one, baseline={"y": "a b"}) for one in some))
    written = ['["a", "b"]', '"a b"', "[]", '"[]"', '"a"', '["a"]']
    assert column(table.experiments, "y") == column(table.runs, "y")[::3] == written
    assert compared(with_baseline(table)) == {(row, 1, 'y="a b"') for row in (0, 2, 3, 4, 5)}
    assert column(made_table(*some[:1], *some[3:5]).experiments, "y") == ["a b", "[]", "a"]


def test_lists_of_the_same_words_are_two_values() -> None:
    lists = ("a", "b c"), ("a b", "c"), ("a",)
    some = [Made(framework=None, arguments={"y": value}, runs=speeds(*SGD)) for value in lists]  # type: ignore[dict-item]
    table = made_table(*(replace(one, baseline={"y": lists[1]}) for one in some))
    written = ['["a", "b c"]', '["a b", "c"]', "a"]
    assert column(table.experiments, "y") == written
    assert compared(with_baseline(table)) == {(row, 1, f"y={written[1]}") for row in (0, 2)}


WORDS = st.text('a "[]\\,', max_size=6)


@given(st.sets(WORDS | st.lists(WORDS, max_size=3).map(tuple), max_size=6))
def test_two_values_never_have_the_same_cell(values: set[str | tuple[str, ...]]) -> None:
    some = [Made(framework=None, arguments={"y": value}, runs=speeds(*SGD)) for value in values]  # type: ignore[dict-item]
    assert len({*column(made_table(*some).experiments, "y")}) == len(values)
