"""The reference's scenario files expand to the reference's commands, or to ours where its README lists a fault.

`golden/compat` holds what the reference was seen to do (fms-acceleration 876e2ed): for each case its matrices and, for
every experiment in order, GPUs, framework configuration and trainer arguments. Not compared: output_dir, the prepared
data's path, CUDA_VISIBLE_DEVICES; they are a run's, not a plan's.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import OrchestratorError
from orchestrator.machine.provenance import Machine
from orchestrator.plan import view
from orchestrator.plan.config import load_suite
from orchestrator.plan.expand import expand
from orchestrator.plan.selection import Selection, parse_selection

COMPAT = Path(__file__).parent.parent / "golden" / "compat"
INPUT = COMPAT / "input"
NOT_COMPARED = {"output_dir", "training_data_path"}
Row = dict[str, Any]
Rows = list[Row]


def as_selection(case: dict[str, Any]) -> Selection:
    """The reference's matrices as our options; its own single values are what the trainer starts from."""
    axes = {name: case[name] for name in ("effective_batch_size", "packing", "max_seq_len")}
    axes = {name: values for name, values in axes.items() if values not in ([True], [4096])}
    return parse_selection(
        scenarios=case["scenarios"] or (),
        axes=[f"{name}={','.join(map(str, values))}" for name, values in axes.items()],
        num_gpus=tuple(case["num_gpus"]),
        trainer="fms_hf_tuning",
    )


def plan(folder: Path, case: dict[str, Any]) -> dict[str, Any]:
    """What `tunebench plan --json` prints for the case."""
    suite = load_suite(folder / "scenarios.yaml", defaults=folder / "defaults.yaml", frameworks=INPUT)
    document = "".join(view.json_document(expand(suite, as_selection(case), Machine()), "python"))
    result: dict[str, Any] = json.loads(document)
    return result


def rows(planned: dict[str, Any]) -> Rows:
    return [
        {
            "num_gpus": one["num_gpus"],
            "framework_config": one["framework_config"],
            "arguments": {name: value for name, value in one["arguments"].items() if name not in NOT_COMPARED},
        }
        for one in planned["experiments"]
    ]


def plain(found: Rows) -> Rows:
    """A list of one item and the item are the same words on a command line."""

    def value(one: Any) -> Any:
        return one[0] if isinstance(one, list) and len(one) == 1 else one

    return [{**row, "arguments": {name: value(one) for name, one in row["arguments"].items()}} for row in found]


def names(folder: Path) -> list[str]:
    return sorted(path.stem if path.is_file() else path.name for path in folder.iterdir())


@pytest.mark.parametrize("name", names(COMPAT / "expansion"))
def test_the_main_file_expands_to_the_same_experiments(name: str) -> None:
    case = json.loads((COMPAT / "expansion" / f"{name}.json").read_text())
    planned = plan(INPUT, case)
    assert plain(rows(planned)) == case["experiments"]
    assert not planned["collapsed"]
    assert not any(one["skip"] for one in planned["experiments"])


def with_arguments(index: int, **arguments: str) -> Callable[[Rows], Rows]:
    def changed(reference: Rows) -> Rows:
        row = reference[index]
        new = {**row, "arguments": {**row["arguments"], **arguments}}
        return [*reference[:index], new, *reference[index + 1 :]]

    return changed


def first_alone(reference: Rows) -> Rows:
    assert len(reference) == 2
    return reference[:1]


def accumulation_counted(reference: Rows) -> Rows:
    """The batch asked for is the batch trained with: 8 = 2 × 4 on one GPU, 1 × 4 × 2 on two."""
    return with_arguments(1, per_device_train_batch_size="1")(
        with_arguments(0, per_device_train_batch_size="2")(reference)
    )


def one_model(reference: Rows) -> Rows:
    assert [row["arguments"]["model_name_or_path"] for row in reference] == ["a", "b", "c"]
    return with_arguments(0, model_name_or_path="abc")(reference[:1])


# Where ours differs, README's "must not agree" says why; each line is ours, made of the reference's.
OURS: dict[str, Callable[[Rows], Rows]] = {
    "batch-ga-4": accumulation_counted,
    "fc-two-nulls": first_alone,
    "leak-drops-default": with_arguments(1, max_steps="100"),
    "list-of-models-string": one_model,
    "packing-matrix-bool": first_alone,
    "scenario-beats-matrix": first_alone,
}

# What the reference raises as a traceback, or drops in silence, is a sentence with its place.
OUR_ERRORS = {
    "batch-both": "scenarios.yaml:5:5: scenario 's': effective_batch_size needs exactly one of",
    "batch-neither": "scenarios.yaml:2:3: scenario 's': effective_batch_size needs exactly one of",
    "fc-null": "scenarios.yaml:3:3: scenario 's': framework_config: the list is blank",
    "fc-typo-key": "scenarios.yaml:3:3: scenario 's': unknown key 'framework_configs'; did you mean 'framework_config'?",
    "filter-unknown": "there is no scenario 'nope'",
    "no-model": "scenarios.yaml:2:3: scenario 's': model_name_or_path is missing",
    "second-scenario-broken": "scenarios.yaml:4:3: scenario 'b': model_name_or_path is missing",
}

APART = {"batch-pdtbs-2", "fc-unknown", "slow-string-false"}  # have a test of their own


def quirk(name: str) -> tuple[Path, dict[str, Any]]:
    folder = COMPAT / "quirks" / name
    return folder, json.loads((folder / "expected.json").read_text())


@pytest.mark.parametrize("name", [name for name in names(COMPAT / "quirks") if name not in OUR_ERRORS.keys() | APART])
def test_quirks_agree_or_are_mended(name: str) -> None:
    folder, case = quirk(name)
    assert case["error"] is None
    ours = OURS.get(name, lambda reference: reference)(case["experiments"])
    planned = plan(folder, case)
    assert plain(rows(planned)) == ours
    assert len(planned["collapsed"]) == len(case["experiments"]) - len(ours) or name == "list-of-models-string"


@pytest.mark.parametrize("name", OUR_ERRORS)
def test_what_the_reference_drops_or_dies_of_is_a_sentence(name: str) -> None:
    folder, case = quirk(name)
    with pytest.raises(OrchestratorError) as caught:
        plan(folder, case)
    assert OUR_ERRORS[name] in str(caught.value)


def test_a_batch_that_does_not_divide_is_refused_instead_of_floored() -> None:
    """batch-pdtbs-2: 4, 5 and 16 samples at 2 a device on 1, 2 and 4 GPUs."""
    folder, case = quirk("batch-pdtbs-2")
    planned = plan(folder, case)
    fit = [one["skip"] is None for one in planned["experiments"]]
    assert fit == [True, True, False, False, False, False, True, True, True]
    for ours, reference, divides in zip(plain(rows(planned)), case["experiments"], fit, strict=True):
        assert (ours == reference) is divides
    skip = planned["experiments"][2]["skip"]
    assert skip["kind"] == "batch_does_not_divide"
    assert skip["reason"] == "effective_batch_size 4 is not divisible by 4 GPUs × per_device_train_batch_size 2"


def test_an_unknown_short_name_is_a_skipped_cell_with_its_place() -> None:
    """fc-unknown: the reference drops the name in silence. Ours keeps the cell, so that its stale names block no other cell."""
    folder, case = quirk("fc-unknown")
    known, unknown = plan(folder, case)["experiments"]
    assert plain(rows({"experiments": [known]})) == case["experiments"]
    assert unknown["skip"]["kind"] == "stale_framework"
    assert unknown["skip"]["reason"].startswith(
        f"{folder / 'scenarios.yaml'}:3:41: unknown framework configuration 'no-such-config'"
    )


def test_slow_is_a_truth_value_not_any_text() -> None:
    """slow-string-false: the reference takes the text "False" for true."""
    folder, case = quirk("slow-string-false")
    assert case["experiments"] == []
    planned = plan(folder, case)
    assert [one["scenario"] for one in planned["experiments"]] == ["s"]
