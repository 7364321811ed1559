"""Two sides as pairs: nothing lost, nothing paired with what it is not, and every difference told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from factories.cases import cases
from factories.results import BASE, ended, experiment, stored
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.compare.comparison import Entry, Pair, Run, Side
from orchestrator.compare.sides import environment, keys
from orchestrator.compare.sides.pairing import pair
from orchestrator.compare.sides.read import read
from orchestrator.errors import SelectionError
from orchestrator.records import DataSpec, Device, Experiment, Framework, RunRecord
from orchestrator.report import tables
from orchestrator.results.table.load import load
from orchestrator.results.table.rows import Value

GOLDEN = Path(__file__).parent.parent / "golden"
A100 = GOLDEN / "compat" / "refs" / "a100_80gb.csv"
CASES = GOLDEN / "compat" / "compare"
SCENARIO = "scenario,framework_config,model_name_or_path,num_gpus,per_device_train_batch_size,peft_method"


def entry(
    model: str = "m",
    arguments: Mapping[str, Value] | None = None,
    around: Mapping[str, Value] | None = None,
    *,
    framework: str = "none",
    id: str | None = None,
    whole: bool = True,
) -> Entry:
    """An experiment of ours as `sides` gives it, but for arguments that tell it from its like: these pairing finds itself."""
    key = {"scenario": "s", "framework_config": framework, "model_name_or_path": model, "num_gpus": 1, "trainer": "t"}
    return Entry(
        key=key,
        label=f"{model} {framework} {dict(arguments or {})}",
        status="ok",
        runs=(Run(repeat=1, numbers={"tokens_per_s": 1.0}),),
        arguments=arguments or {},
        environment=around or {},
        id=id,
        whole=whole,
    )


def side(*entries: Entry) -> Side:
    return Side(name="side", entries=entries)


def sides_of(pairs: Sequence[Pair]) -> list[tuple[str | None, str | None]]:
    return [(one.base and one.base.label, one.new and one.new.label) for one in pairs]


def only(pairs: Sequence[Pair]) -> Pair:
    (found,) = pairs
    return found


# properties

VALUES = st.sampled_from([None, "1", 1, "2", 2.0, "a", True])
ARGUMENTS = st.dictionaries(st.sampled_from(["lr", "batch", "dtype", "effective_liger"]), VALUES, max_size=3)
AROUND = st.fixed_dictionaries(
    {},
    optional={
        "gpu": st.sampled_from(["H100", "H200"]),
        "torch": st.sampled_from(["2.11", "2.13"]),
        "neighbours": st.sampled_from([0, 1, 2, "0, 2"]),
        "device": st.sampled_from(["cpu", "cuda"]),
        "data": st.sampled_from(["x", "y"]),
    },
)
ENTRIES = st.builds(
    entry,
    st.sampled_from(["m", "n"]),
    ARGUMENTS,
    AROUND,
    framework=st.sampled_from(["none", "liger"]),
    whole=st.booleans(),
)
SIDES = st.lists(ENTRIES, max_size=6).map(
    lambda found: side(*(replace(one, label=f"{number}: {one.label}") for number, one in enumerate(found)))
)


def places(pairs: Sequence[Pair], base: Side, new: Side) -> list[tuple[int | None, int | None]]:
    at = {id(one): number for whole in (base, new) for number, one in enumerate(whole.entries)}
    return [(one.base and at[id(one.base)], one.new and at[id(one.new)]) for one in pairs]


@given(SIDES)
def test_a_side_with_itself_pairs_every_entry_with_itself_without_differences(one: Side) -> None:
    pairs = pair(one, one)
    assert [(found.base, found.new) for found in pairs] == [(found, found) for found in one.entries]
    assert not any(found.environment or found.arguments or found.disqualifying for found in pairs)


@given(SIDES, SIDES)
def test_every_entry_is_in_one_pair_and_the_order_is_bases(base: Side, new: Side) -> None:
    pairs = pair(base, new)
    found = places(pairs, base, new)
    assert [one for one, _ in found if one is not None] == list(range(len(base.entries)))
    assert sorted(other for _, other in found if other is not None) == list(range(len(new.entries)))
    alone = [other for one, other in found if one is None]
    assert alone == sorted(alone, key=lambda other: other or 0)
    assert all(one is None for one, _ in found[len(base.entries) :])


@given(SIDES, SIDES)
def test_swapping_the_sides_swaps_base_and_new(base: Side, new: Side) -> None:
    there, back = pair(base, new), pair(new, base)
    found = {(id(one.base), id(one.new)): one for one in there}
    for one in back:
        other = found.pop((id(one.new), id(one.base)))
        assert {(d.name, d.base, d.new) for d in one.environment} == {
            (d.name, d.new, d.base) for d in other.environment
        }
        assert {(d.name, d.base, d.new) for d in one.arguments} == {(d.name, d.new, d.base) for d in other.arguments}
        assert set(one.disqualifying) == set(other.disqualifying)
    assert not found


@given(SIDES, SIDES, st.booleans(), ARGUMENTS, AROUND)
def test_an_unrelated_entry_changes_no_other_pair(
    base: Side, new: Side, on_base: bool, arguments: Mapping[str, Value], around: Mapping[str, Value]
) -> None:
    extra = entry("unrelated", arguments, around)
    before = pair(base, new)
    if on_base:
        after = pair(replace(base, entries=(extra, *base.entries)), new)
    else:
        after = pair(base, replace(new, entries=(extra, *new.entries)))
    assert [one for one in after if extra not in (one.base, one.new)] == list(before)
    assert len(after) == len(before) + 1


# what is paired with what


def test_arguments_tell_experiments_apart_only_where_a_side_has_several() -> None:
    base = side(entry(arguments={"lr": "1e-4", "seed": 1}))
    new = side(entry(arguments={"lr": "2e-4", "seed": 1}))
    found = only(pair(base, new))
    assert found.base and found.new
    assert [(one.name, one.base, one.new) for one in found.arguments] == [("lr", "1e-4", "2e-4")]
    assert found.disqualifying == ()


def test_of_several_those_are_paired_that_are_alike_in_what_tells_them_apart() -> None:
    base = side(entry(arguments={"batch": 4, "seed": 1}), entry(arguments={"batch": 8, "seed": 1}))
    new = side(entry(arguments={"batch": "8", "seed": 2}), entry(arguments={"batch": "16", "seed": 2}))
    pairs = pair(base, new)
    assert sides_of(pairs) == [
        ("m none {'batch': 4, 'seed': 1}", None),
        ("m none {'batch': 8, 'seed': 1}", "m none {'batch': '8', 'seed': 2}"),
        (None, "m none {'batch': '16', 'seed': 2}"),
    ]
    assert [one.name for one in pairs[1].arguments] == ["seed"]


def test_what_neither_side_shares_makes_other_experiments() -> None:
    base = side(*(entry(arguments={"lr": lr}) for lr in ("1", "2")))
    new = side(*(entry(arguments={"lr": lr}) for lr in ("3", "4")))
    assert all(one.base is None or one.new is None for one in pair(base, new))


def test_what_differs_in_every_run_keeps_no_experiment_from_its_like() -> None:
    base = side(*(entry(arguments={"batch": n, "out": f"/a/{n}", "output_dir": f"x{n}"}) for n in (1, 2)))
    new = side(*(entry(arguments={"batch": n, "out": f"/b/{n}", "output_dir": f"y{n}"}) for n in (1, 2)))
    pairs = pair(base, new)
    assert [(one.base is not None, one.new is not None) for one in pairs] == [(True, True)] * 2
    assert [one.name for one in pairs[0].arguments] == ["out", "output_dir"]


@pytest.mark.parametrize("name", ["output_dir", "run_name", "training_data_path", "effective_liger"])
def test_places_and_what_took_effect_make_no_experiment(name: str) -> None:
    base = side(*(entry(arguments={"batch": n, name: value}) for n, value in ((1, "a"), (2, "b"))))
    new = side(*(entry(arguments={"batch": n, name: value}) for n, value in ((1, "b"), (2, "a"))))
    pairs = pair(base, new)
    assert places(pairs, base, new) == [(0, 0), (1, 1)]
    assert [(one.name, one.base, one.new) for one in pairs[0].arguments] == [(name, "a", "b")]


def test_a_setting_is_no_difference_beside_an_argument_of_its_name() -> None:
    """The side that says it as an argument has no such setting."""
    base, new = side(entry(arguments={"effective_liger": "a"}, id="e")), side(entry(arguments={"liger": "a"}, id="e"))
    ((one,),) = [pair_.arguments for pair_ in pair(base, new)]
    assert (one.name, one.base, one.new) == ("liger", None, "a")


def test_an_argument_that_only_new_sets_comes_before_the_settings_that_follow_from_it() -> None:
    base = side(entry(arguments={"lr": "1", "effective_total_parameters": 1, "effective_lr": "1"}))
    new = side(
        entry(arguments={"lr": "2", "num_hidden_layers": 12, "effective_total_parameters": 6, "effective_lr": "2"})
    )
    ((one, two, three),) = [found.arguments for found in pair(base, new)]
    assert [one.name, two.name, three.name] == ["lr", "num_hidden_layers", "effective_total_parameters"]


@pytest.mark.parametrize("name", ["version", "framework_config"])
@pytest.mark.parametrize("values", [("2.10", "2.1", "2.2"), ("1e3", "1000", "1000.0"), ("0", "-0.0", "0.0")])
def test_values_that_are_equal_as_numbers_are_paired_by_their_texts(name: str, values: Sequence[str]) -> None:
    def of(value: str) -> Entry:
        return entry(framework=value) if name == "framework_config" else entry(arguments={name: value})

    base, new = side(*map(of, values)), side(*map(of, reversed(values)))
    pairs = pair(base, new)
    assert places(pairs, base, new) == [(0, 2), (1, 1), (2, 0)]
    assert not any(one.arguments for one in pairs)


def test_one_value_written_differently_on_the_sides_is_the_same() -> None:
    base, new = (side(*(entry(arguments={"lr": lr}) for lr in some)) for some in (("1e-3", "2e-3"), ("0.002", "0.001")))
    assert places(pair(base, new), base, new) == [(0, 1), (1, 0)]


def test_the_same_id_is_the_same_experiment() -> None:
    base = side(entry("m", {"lr": 1}, id="a"), entry("m", {"lr": 2}, id="b"))
    new = side(entry("moved/m", {"lr": 2}, id="b"), entry("m", {"lr": 1}, id="c"))
    pairs = pair(base, new)
    assert [(one.base and one.base.id, one.new and one.new.id) for one in pairs] == [("a", "c"), ("b", "b")]


def test_what_nothing_tells_apart_is_paired_in_its_order() -> None:
    base, new = side(entry(), entry(), entry()), side(entry(), entry())
    pairs = pair(base, new)
    assert places(pairs, base, new) == [(0, 0), (1, 1), (2, None)]
    assert all(one.disqualifying == () for one in pairs)


def test_what_one_side_alone_can_tell_apart_is_not_comparable() -> None:
    base = side(*(entry(arguments={"peft": peft}, whole=False) for peft in (None, "lora")))
    new = side(*(entry(whole=False) for _ in range(2)))
    pairs = pair(base, new)
    assert [one.disqualifying for one in pairs] == [("peft",)] * 2
    assert [one.disqualifying for one in pair(base, new, ignore=["all"])] == [()] * 2


def test_an_argument_of_which_a_side_says_nothing_is_no_difference() -> None:
    given_, silent = entry(arguments={"lr": 1}, whole=False), entry(whole=False)
    assert only(pair(side(given_), side(silent))).arguments == ()
    without = entry(whole=True)
    assert [one.name for one in only(pair(side(given_), side(without))).arguments] == ["lr"]


def test_by_pairs_what_the_default_would_not() -> None:
    base, new = side(entry(framework="none"), entry("n")), side(entry(framework="liger"), entry("n", framework="liger"))
    assert all(one.base is None or one.new is None for one in pair(base, new))
    pairs = pair(base, new, by=("model_name_or_path", "num_gpus"))
    assert [(one.base is not None, one.new is not None) for one in pairs] == [(True, True)] * 2
    assert [one.name for one in pairs[0].arguments] == ["framework_config"]


def test_by_stands_above_ids() -> None:
    base, new = side(entry("m", id="a"), entry("n", id="b")), side(entry("n", id="a"))
    assert [one.new is not None for one in pair(base, new, by=("model_name_or_path",))] == [False, True]


def test_names_that_no_side_has_are_refused() -> None:
    with pytest.raises(SelectionError, match=r"--by: no experiment has 'modl'"):
        pair(side(entry()), side(entry()), by=("modl",))
    with pytest.raises(SelectionError, match=r"--ignore: the environment has no 'gpus'; did you mean 'gpu'"):
        pair(side(entry()), side(entry()), ignore=("gpus",))


@pytest.mark.parametrize("facts", [{}, {"data": "x"}])
def test_by_takes_the_own_name_of_an_argument_that_is_named_like_a_fact(facts: Mapping[str, Value]) -> None:
    base, new = (
        side(*(entry(arguments={"argument_data": value, "size": size + value}, around=facts) for value in values))
        for values, size in (("ab", "1"), ("ba", "2"))
    )
    pairs = pair(base, new, by=("data",))
    assert [one.new and one.new.arguments["argument_data"] for one in pairs] == ["a", "b"]
    assert pairs == pair(base, new, by=("argument_data",))
    other = side(*(replace(one, environment={"data": "y"}) for one in new.entries))
    assert all(one.base and one.new for one in pair(base, other, by=("data",))), "another data set pairs no less"


def test_sides_that_know_no_name_in_common_pair_nothing() -> None:
    micro = read([GOLDEN / "compare" / "pytest_benchmark.json"])
    assert all(one.base is None or one.new is None for one in pair(side(entry()), micro))
    assert all(one.base and one.new for one in pair(micro, micro))


# environment

H100 = {
    "gpu": "H100",
    "device": "cuda",
    "data": "x",
    "neighbours": 0,
    "monitors": "none",
    "torch": "2.11",
    "cpu": "Xeon",
}


@pytest.mark.parametrize(
    ("change", "forbids"), cases("compare_pairing/what_forbids_a_comparison_and_what_is_only_told")
)
def test_what_forbids_a_comparison_and_what_is_only_told(change: dict[str, Value], forbids: list[str]) -> None:
    there = {name: value for name, value in {**H100, **change}.items() if value is not None}
    for base, new in ((H100, there), (there, H100)):
        found = only(pair(side(entry(around=base)), side(entry(around=new))))
        assert sorted(one.name for one in found.environment) == sorted(change)
        assert list(found.disqualifying) == forbids
        assert only(pair(side(entry(around=base)), side(entry(around=new)), ignore=forbids)).disqualifying == ()
        ignored = only(pair(side(entry(around=base)), side(entry(around=new)), ignore=["all"]))
        assert ignored.disqualifying == () and ignored.environment == found.environment


@pytest.mark.parametrize(("base", "new", "forbids"), cases("compare_pairing/both_sides_say_something"))
def test_both_sides_say_something(base: dict[str, Value], new: dict[str, Value], forbids: list[str]) -> None:
    found = only(pair(side(entry(around=base)), side(entry(around=new))))
    assert [one.name for one in found.environment] == list(base)
    assert list(found.disqualifying) == forbids


def test_what_a_table_does_not_say_is_neither_told_nor_forbidden() -> None:
    for base, new in ((H100, {}), ({}, H100), ({"gpu": "H100"}, {"torch": "1"})):
        found = only(pair(side(entry(around=base, whole=False)), side(entry(around=new))))
        assert (found.environment, found.disqualifying) == ((), ())


def test_a_table_and_a_record_say_the_same_in_other_types() -> None:
    base = {"cpu_count": 64, "git_dirty": True, "neighbours": 0, "gpu_power_limit_w": 700.0}
    new = {"cpu_count": "64", "git_dirty": "True", "neighbours": "0", "gpu_power_limit_w": 700}
    assert only(pair(side(entry(around=base)), side(entry(around=new)))).environment == ()


def test_what_forbids_is_told_first() -> None:
    base = {"host": "a", "torch": "1", "gpu": "H100", "driver": "5", "zlib": "1"}
    new = {"host": "b", "torch": "2", "gpu": "H200", "driver": "6", "zlib": "2"}
    found = only(pair(side(entry(around=base)), side(entry(around=new))))
    assert [one.name for one in found.environment] == ["gpu", "driver", "torch", "host", "zlib"]


def test_every_disqualifying_name_can_be_ignored_though_no_side_has_it() -> None:
    assert pair(side(entry()), side(entry()), ignore=list(environment.DISQUALIFYING))


# values

NUMBERS = st.one_of(st.integers(-(10**9), 10**9), st.floats(allow_nan=False, allow_infinity=False, width=16))


@given(NUMBERS)
def test_a_number_is_alike_to_its_text(value: float) -> None:
    assert keys.canonical(value) == keys.canonical(str(value)) == keys.canonical(float(value))


@pytest.mark.parametrize(("one", "other", "same"), cases("compare_pairing/values_that_mean_the_same"))
def test_values_that_mean_the_same(one: Value, other: Value, same: bool) -> None:
    assert (keys.canonical(one) == keys.canonical(other)) is same


def test_a_number_beyond_all_numbers_is_a_text() -> None:
    assert keys.canonical("9" * 5000) == "9" * 5000
    assert keys.canonical(10**400) == str(10**400) != keys.canonical(10**401)


# real places


def campaign(root: Path, *, learning_rate: str = "2e-5", **more: object) -> Path:
    cells = []
    for number, batch in enumerate(("4", "8")):
        for framework in (None, Framework(name="liger", digest=f"d{more.get('digest', 1)}")):
            arguments = {**BASE.arguments, "per_device_train_batch_size": batch, "learning_rate": learning_rate}
            experiment = replace(
                BASE,
                id=f"full-{number}-{framework.name if framework else 'none'}-{learning_rate}",
                arguments={**arguments, "peft_method": "none"},
                framework=framework,
                data=DataSpec(source=str(more.get("data", "builtin:synthetic")), form="tokens"),
            )
            cells.append((experiment, _runs(experiment)))
    return stored(root, *cells)


def _runs(experiment: Experiment) -> list[RunRecord]:
    return [ended(experiment, repeat, tokens_per_s=100.0 + repeat, train_loss=1.0) for repeat in (1, 2)]


def test_campaigns_that_differ_in_an_argument_are_paired_and_it_is_told(tmp_path: Path) -> None:
    base = read([campaign(tmp_path / "base")])
    new = read([campaign(tmp_path / "new", learning_rate="1e-4", digest=2)])
    pairs = pair(base, new)
    assert len(pairs) == 4 and [one.base.label == one.new.label for one in pairs if one.base and one.new] == [True] * 4
    assert [sorted(one.name for one in found.arguments) for found in pairs] == [
        ["learning_rate"],
        ["framework_digest", "learning_rate"],
    ] * 2


def test_a_folder_and_the_tables_made_of_it_agree(tmp_path: Path) -> None:
    root = campaign(tmp_path / "r")
    table = load([root])
    for name, text in (("raw_summary.csv", tables.raw_summary(table)), ("benchmarks.csv", tables.benchmarks(table))):
        (tmp_path / name).write_text(text)
        pairs = pair(read([root]), read([tmp_path / name]))
        assert len(pairs) == 4, name
        assert all(one.base and one.new and not one.arguments and not one.disqualifying for one in pairs), name


def on(
    folder: Path, *, gpu: str | None = None, cpu: str = "Xeon", data: str = "builtin:synthetic", monitor: bool = True
) -> Path:
    """The benchmarks.csv of an experiment on this machine: it leaves out what all rows share. A monitor names the GPU, too."""
    one = experiment(device=Device.CUDA if gpu else Device.CPU, data=DataSpec(source=data, form="text"))
    record = ended(one, 1, tokens_per_s=1000.0, **({"gpu_device_name": gpu} if gpu and monitor else {}))
    machine = {"host": {"name": "h", "cpu": cpu}, "gpus": [{"name": gpu}] if gpu else []}
    made = replace(record, provenance={**record.provenance, **machine})
    folder.mkdir()
    (folder / "benchmarks.csv").write_text(tables.benchmarks(load([stored(folder / "r", (one, [made]))])))
    return folder / "benchmarks.csv"


@pytest.mark.parametrize(
    ("base", "new", "other"),
    [
        ({"gpu": "H100"}, {"gpu": "A100"}, "gpu"),
        ({"gpu": "H100"}, {}, "device"),
        ({"cpu": "Xeon"}, {"cpu": "EPYC"}, "cpu"),
        ({"gpu": "H100", "cpu": "Xeon"}, {"gpu": "H100", "cpu": "EPYC"}, None),
        ({"gpu": "H100", "monitor": False}, {"gpu": "A100", "monitor": False}, "gpu"),
        ({"gpu": "H100", "cpu": "Xeon", "monitor": False}, {"gpu": "H100", "cpu": "EPYC", "monitor": False}, None),
        ({"data": "a.jsonl"}, {"data": "b.jsonl"}, "data"),
    ],
)
def test_the_means_of_two_machines_are_not_compared(
    tmp_path: Path, base: dict[str, Any], new: dict[str, Any], other: str | None
) -> None:
    """Another GPU was a regression of 40 %: all rows of a file had the same one, so the file did not name it."""
    (one,) = pair(read([on(tmp_path / "base", **base)]), read([on(tmp_path / "new", **new)]))
    assert one.disqualifying == (() if other is None else (other,))


def test_ours_is_paired_with_the_references_table_by_the_names_that_both_have(tmp_path: Path) -> None:
    file = tmp_path / "theirs.csv"
    lines = ["framework_config,peft_method,model_name_or_path,num_gpus,per_device_train_batch_size,train_loss"]
    lines += [f"{name},,config:tiny-llama,1,{batch},1.0" for batch in (8, 4, 16) for name in ("liger", "none")]
    file.write_text("\n".join(lines) + "\n")
    pairs = pair(read([campaign(tmp_path / "r")]), read([file]))
    batches = [
        (
            one.base
            and one.base.arguments.get("per_device_train_batch_size", one.base.key.get("per_device_train_batch_size"))
        )
        for one in pairs
    ]
    assert batches == ["4", "4", "8", "8", None, None]
    for one in pairs[:4]:
        assert one.new is not None and one.base is not None
        assert one.new.key["framework_config"] == one.base.key["framework_config"]
        assert one.arguments == () and one.environment == ()
