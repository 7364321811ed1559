"""The figures of a machine: which of them are off, how they are stored and shown, and what `compare` says about two machines."""

from __future__ import annotations

import json
import sys
import tarfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from factories.results import BASE, ended, stored
from factories.screens import H100, MATMUL, around, of_gpu, screened
from fake_pynvml import FakeGpu, FakeNvml
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.compare.sides import screens
from orchestrator.machine.gpus import active_nvlinks, link_between, pcie_link
from orchestrator.monitors.occupants import computing_here
from orchestrator.records import Gpu
from orchestrator.report.tables.terminal import plain
from orchestrator.screen import judge, measure, view
from orchestrator.screen import stored as on_disk
from orchestrator.screen.figures import CPU, KINDS, Figure, Link, Screen

TERA = 1e12
Call = Callable[..., tuple[int, str, str]]
RATES = st.floats(min_value=1e-6, max_value=1e15)


def off(screen: Screen, *earlier: Screen) -> list[tuple[tuple[int, ...], str]]:
    found = judge.off(screen, judge.history(screen, earlier))
    return [(one.gpus, one.against) for one in found]


# Robust statistics


@given(st.lists(RATES, min_size=1, max_size=40), RATES, st.floats(min_value=0.01, max_value=100))
def test_a_robust_z_is_not_negative_and_has_no_unit(group: list[float], value: float, unit: float) -> None:
    z = judge.robust_z(value, group)
    assert z >= 0
    scaled = judge.robust_z(value * unit, [one * unit for one in group])
    assert scaled == pytest.approx(z, rel=1e-3) or min(z, scaled) > 1e6 or max(z, scaled) < 1e-6


@given(st.lists(RATES, min_size=5, max_size=40))
def test_the_median_is_not_off_and_half_of_a_group_is_near(group: list[float]) -> None:
    zs = sorted(judge.robust_z(value, group) for value in group)
    assert zs[(len(zs) - 1) // 2] <= 1 / judge.TO_DEVIATION + 1e-9


@given(st.sampled_from([*KINDS]), RATES, st.floats(min_value=1.031, max_value=10))
def test_a_share_is_positive_if_the_value_is_better(name: str, reference: float, factor: float) -> None:
    better = reference / factor if KINDS[name].smaller_is_better else reference * factor
    assert judge.share(name, better, reference) > 0 > judge.share(name, reference, better)


@given(st.sampled_from([*KINDS]), st.lists(RATES, min_size=5, max_size=5), RATES)
def test_samples_on_both_sides_of_a_reference_do_not_differ(name: str, samples: list[float], reference: float) -> None:
    share = judge.differs(name, samples, reference)
    if min(samples) <= reference <= max(samples):
        assert share == 0
    assert share == 0 or abs(share) > KINDS[name].least_share


# Peers and earlier screens


@given(st.integers(2, 4), st.floats(min_value=0.2, max_value=0.965), st.integers(0, 3))
def test_with_few_gpus_the_best_of_them_is_the_reference(count: int, factor: float, place: int) -> None:
    rates = [700 * TERA] * count
    rates[place % count] *= factor
    assert off(screened(rates)) == [((place % count,), f"the best of {count} GPUs")]


@given(st.lists(st.floats(min_value=0.99, max_value=1.01), min_size=1, max_size=16))
def test_gpus_within_a_percent_are_not_off(factors: list[float]) -> None:
    assert off(screened([700 * TERA * factor for factor in factors])) == []


def test_with_five_gpus_an_outlier_needs_a_z_above_5_and_more_than_3_percent() -> None:
    near = [700, 701, 699, 700.5, 699.5, 700.2, 699.8]
    assert off(screened([rate * TERA for rate in (*near, 680)])) == []  # z is far above 5, and it is 2.9 %
    assert off(screened([rate * TERA for rate in (*near, 670)])) == [((7,), "the median of 8 GPUs")]
    apart = [700, 640, 760, 720, 660, 740, 680]
    assert off(screened([rate * TERA for rate in (*apart, 620)])) == []  # 11 %, and z is below 5


def test_other_products_are_not_peers() -> None:
    slower = of_gpu(1, 300 * TERA, like="NVIDIA A100")
    assert off(screened([700 * TERA], slower)) == []


def test_a_single_gpu_is_compared_with_earlier_screens_of_this_machine() -> None:
    before = [screened([rate * TERA]) for rate in (699, 700, 701)]
    assert off(screened([670 * TERA]), *before) == [((0,), "the median of 3 earlier screens of this machine")]
    assert off(screened([690 * TERA]), *before) == []
    assert off(screened([800 * TERA]), *before) == []  # faster than before


@pytest.mark.parametrize(
    "other",
    [
        {"host": "node2"},
        {"software": {"python": "3.11.7", "torch": "2.12.0"}},
        {"software": {"python": "3.12.1", "torch": "2.11.0"}},
    ],
)
def test_screens_of_other_hosts_or_versions_do_not_count(other: dict[str, Any]) -> None:
    assert off(screened([600 * TERA]), screened([700 * TERA], **other)) == []


def test_a_disturbed_screen_does_not_become_the_reference() -> None:
    disturbed = screened([350 * TERA], busy=[0])
    assert judge.history(screened([700 * TERA]), [disturbed]) == {}
    assert off(screened([600 * TERA]), disturbed, screened([700 * TERA])) != []


def test_a_screen_of_a_busy_host_says_so_and_does_not_become_the_reference() -> None:
    loaded = screened([350 * TERA], core_wait_share=0.21)
    assert judge.history(screened([700 * TERA]), [loaded]) == {}
    assert judge.history(screened([700 * TERA]), [screened([700 * TERA], core_wait_share=0.09)]) != {}
    said = "the host was busy: a process's threads waited for a core in 21% of the time"
    again = f"{said}; later screens are not compared with this one, so repeat it on an idle host"
    assert view.warnings(loaded) == [again] and not view.has_failed(loaded)
    assert f"new: node1: {said}" in screens.differences([screened([350 * TERA])], [loaded])


def test_figures_of_the_host_differ_between_screens_of_an_idle_machine() -> None:
    """Two screens of two idle H100: the launch latency differed by 6 %, and a pair's bandwidth with 1 MiB by 12 %."""
    cards = [figure_of("launch_s", 0, 3.92e-6, 3.86e-6, 4.04e-6), figure_of("launch_s", 1, 3.77e-6, 3.66e-6, 3.84e-6)]
    pair = Figure(name="pair_1mib_bytes_per_s", gpus=(0, 1), samples=(1.96e10, 1.93e10, 2.0e10))
    known = screened([], replace(pair, samples=(2.2e10, 2.1e10, 2.25e10)))
    assert off(screened([], *cards, pair), known) == []
    slow = figure_of("launch_s", 1, 4.9e-6, 4.8e-6, 5e-6)
    assert off(screened([], cards[0], slow), known) == [((1,), "the best of 2 GPUs")]


def figure_of(name: str, gpu: int, *samples: float) -> Figure:
    return Figure(name=name, gpus=(gpu,), like="H100", samples=samples)


def test_a_figure_that_fluctuates_is_not_off() -> None:
    shaky = Figure(name=CPU, samples=around(7e6, spread=0.4))
    steady = Figure(name=CPU, samples=around(7e6))
    known = screened([], Figure(name=CPU, samples=around(9e6)))
    assert off(screened([], shaky), known) == []
    assert off(screened([], steady), known) == [((), "the earlier screen of this machine")]


def test_a_longer_launch_is_slower() -> None:
    launches = [of_gpu(gpu, seconds, "launch_s") for gpu, seconds in enumerate((4e-6, 5e-6))]
    screen = screened([], *launches)
    (found,) = judge.off(screen, {})
    assert found.gpus == (1,) and found.share == pytest.approx(-0.25)


# Sentences and tables


def test_the_gpu_that_is_off_and_the_process_on_it_are_named() -> None:
    screen = screened([700 * TERA, 350 * TERA], busy=[1])
    screen = replace(screen, off=judge.off(screen, {}))
    assert view.off_sentences(screen) == [
        "GPU 1: bf16 matmul is 50.0% slower than the best of 2 GPUs (350 against 700 TFLOP/s); "
        "on it: process 812 (python), 5.0 GiB"
    ]
    assert view.in_use_sentences(screen) == ["GPU 1 is in use (5.0 GiB): process 812 (python), 5.0 GiB"]
    assert view.has_failed(screen)


def of_two_gpus() -> Screen:
    pair = Figure(name="pair_256mib_bytes_per_s", gpus=(0, 1), like=f"NVLink, {H100}", samples=around(365e9))
    ring = Figure(name="all_reduce_256mib_bytes_per_s", like=f"2 × {H100}", samples=around(340e9))
    lost = of_gpu(1, 0, "hbm_bytes_per_s", samples=(), missing="OutOfMemoryError: CUDA out of memory", failed=True)
    cpu = Figure(name=CPU, samples=around(9.2e6))
    more = (of_gpu(0, 2.75e12, "hbm_bytes_per_s"), lost, of_gpu(0, 4.1e-6, "launch_s"), cpu, ring, pair)
    screen = screened([700 * TERA, 650 * TERA], *more, links=(Link(gpus=(0, 1), kind="NVLink"),), cpu="AMD EPYC 9654")
    cards = tuple(replace(card, pcie="PCIe 5 ×16", nvlinks=18) for card in screen.cards)
    screen = replace(screen, cards=cards)
    return replace(screen, off=judge.off(screen, {}))


def test_it_is_shown_as_tables_and_sentences(golden: Callable[[str, str], None]) -> None:
    golden("screen/two-gpus.txt", plain(view.view(of_two_gpus(), stored_in="~/.cache/tunebench/screens"), width=100))


def test_missing_figures_are_not_0(golden: Callable[[str, str], None]) -> None:
    document = json.loads(view.as_json(of_two_gpus()))
    (lost,) = (one for one in document["figures"] if one["missing"])
    assert lost["samples"] == [] and lost["gpus"] == [1]


# Files


def test_screens_are_stored_side_by_side_and_read_in_order(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TUNEBENCH_CACHE", str(tmp_path))
    later, first = (screened([rate * TERA], taken_at=f"2026-11-2{day}T08:00:00+0000") for day, rate in ((6, 1), (5, 2)))
    paths = [on_disk.keep(one) for one in (later, first, later)]
    assert len({*paths}) == 3 and {path.parent for path in paths} == {tmp_path / "screens" / "node1"}
    assert [*on_disk.read(paths[0].parent)] == [first, later, later]


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{", '{"host": 1}', "null", '{"host":"a","taken_at":"b","took_s":NaN}', "[" * 100_000],
)
def test_what_is_not_a_screen_is_left_out(tmp_path: Path, content: str) -> None:
    (tmp_path / "20261126080000-abcdef.json").write_text(content)
    (tmp_path / "folder.json").mkdir()
    (tmp_path / "link.json").symlink_to("nowhere")
    assert [*on_disk.read(tmp_path)] == [*on_disk.read(tmp_path / "missing")] == []


def kept_in(folder: Path, text: str) -> list[Screen]:
    """Return what is read of a file with this text."""
    (folder / "20261126080000-abcdef.json").write_text(text)
    return [*on_disk.read(folder)]


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("sample", ["0.0", "-1.0", "1e-300", "1e308", "1e400", "1" + "0" * 400])
def test_a_file_with_a_figure_that_no_machine_has_is_left_out(tmp_path: Path, name: str, sample: str) -> None:
    text = on_disk.text(screened([], Figure(name=name, samples=(0.015625,) * 5)))
    assert kept_in(tmp_path, text.replace("0.015625", sample)) == []


@pytest.mark.parametrize("wrong", [{"value": 1e308}, {"reference": 1e308}, {"share": 1e308}, {"share": -0.9}])
def test_a_file_with_a_difference_that_no_machine_has_is_left_out(tmp_path: Path, wrong: dict[str, float]) -> None:
    new = screened([700 * TERA, 650 * TERA])
    (known,) = judge.off(new, {})
    assert kept_in(tmp_path, on_disk.text(replace(new, off=(known,))))
    assert kept_in(tmp_path, on_disk.text(replace(new, off=(replace(known, **wrong),)))) == []
    assert kept_in(tmp_path, on_disk.text(replace(new, core_wait_share=1e308))) == []


def test_a_bundle_has_the_screens_of_its_campaign_and_hides_the_host(in_process: Call, tmp_path: Path) -> None:
    folder = stored(tmp_path / "results", (BASE, [ended(BASE, 1, tokens_per_s=100.0)]))
    screen, name = screened([700 * TERA], host="secret-host-of-mine"), "20261126080000-abcdef.json"
    (folder / "screens").mkdir()
    for file in (name, "notes.txt"):
        (folder / "screens" / file).write_text(on_disk.text(screen))
    assert in_process("bundle", folder, "--output", tmp_path / "b.tar.gz")[0] == 0
    with tarfile.open(tmp_path / "b.tar.gz") as archive:
        (member,) = (one for one in archive.getmembers() if "/screens/" in one.name)
        content = archive.extractfile(member)
        assert member.name.endswith(name) and content and b"secret-host-of-mine" not in content.read()


# A machine with two GPUs, whose driver and whose measuring program are told what they say

PROGRAM = """\
#!{python}
import json, pathlib, sys
folder, words = pathlib.Path(sys.argv[2]), sys.argv[3:]
assert words == ["--processes", "2", "--gpus", "unknown,unknown"], words
for name, content in {files}.items():
    (folder / name).write_text(json.dumps(content))
print("Segmentation fault", file=sys.stderr)
sys.exit(1)
"""


def measured(name: str, ranks: list[int], value: float) -> dict[str, Any]:
    return {"name": name, "ranks": ranks, "samples": [*around(value)]}


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Screen]:
    """`two_gpus(files)`: the screen of a machine where the program writes these files and then crashes."""
    gpus = [FakeGpu(uuid="GPU-a", name=H100), FakeGpu(uuid="GPU-b", name=H100, used=3 * 2**30, pids=[2**31 - 1])]
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(gpus))
    monkeypatch.setattr("orchestrator.machine.gpus._DRIVER", ("/dev/null",))
    monkeypatch.setenv("TUNEBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def screen(files: dict[str, Any]) -> Screen:
        program = tmp_path / "python"
        program.write_text(PROGRAM.format(python=sys.executable, files=repr(files)))
        program.chmod(0o755)
        return measure.screen(str(program))

    return screen


def test_the_files_of_the_processes_become_figures_of_gpus(two_gpus: Callable[..., Screen]) -> None:
    ring = measured("all_reduce_256mib_bytes_per_s", [0, 1], 340e9)
    found = two_gpus(
        {
            "host.json": {
                "python": "3.11.7",
                "figures": [measured(CPU, [], 9e6)],
                "core_wait": {"waited_s": 0.2, "wall_s": 0.8},
            },
            "rank0.json": {"torch": "2.11.0", "figures": [measured(MATMUL, [0], 700 * TERA), ring]},
            "rank1.json": {"torch": "2.11.0", "figures": [measured(MATMUL, [1], 340 * TERA)]},
        }
    )
    values = {(figure.name, figure.gpus): figure.value for figure in found.figures if figure.samples}
    assert values == {
        (CPU, ()): 9e6,
        (MATMUL, (0,)): 700 * TERA,
        (MATMUL, (1,)): 340 * TERA,
        (ring["name"], ()): 340e9,
    }
    assert {figure.missing for figure in found.figures if not figure.samples} == {"Segmentation fault"}
    assert (found.software["torch"], found.software["python"]) == ("2.11.0", "3.11.7")
    assert found.core_wait_share == 0.25
    (sentence,) = view.off_sentences(found)
    assert sentence.startswith(
        "GPU 1: bf16 matmul is 51.4% slower than the best of 2 GPUs (340 against 700 TFLOP/s); on it: "
    )
    assert f"process {2**31 - 1} of another container" in sentence
    assert [*on_disk.read(on_disk.folder_of(found.host))] == [found]


@pytest.mark.parametrize("figures", [None, 7, [1, 2], {"a": 1}, [{}], [{"name": MATMUL, "ranks": 0, "samples": [1]}]])
def test_figures_of_another_form_are_missing_with_a_reason(two_gpus: Callable[..., Screen], figures: object) -> None:
    found = two_gpus({name: {"figures": figures} for name in ("host.json", "rank0.json", "rank1.json")})
    assert {figure.missing for figure in found.figures} == {"Segmentation fault"}


def test_a_missing_figure_has_the_reason_of_its_own_process(two_gpus: Callable[..., Screen]) -> None:
    lost = {"name": "hbm_bytes_per_s", "ranks": [0], "missing": "OutOfMemoryError: 2 GiB"}
    found = two_gpus(
        {
            "rank0.json": {"figures": [lost], "collective_problem": "the GPU of process 1 cannot be used"},
            "rank1.json": {"figures": [], "problem": "RuntimeError: the device is gone"},
        }
    )
    reasons = {(figure.name, figure.gpus): figure.missing for figure in found.figures}
    assert reasons["hbm_bytes_per_s", (0,)] == "OutOfMemoryError: 2 GiB"
    assert reasons["hbm_bytes_per_s", (1,)] == "RuntimeError: the device is gone"
    assert reasons["pair_1mib_bytes_per_s", (0, 1)] == "the GPU of process 1 cannot be used"
    assert all(figure.failed and figure.value is None for figure in found.figures) and view.has_failed(found)


# Two machines


def test_a_slower_host_is_named_with_both_values() -> None:
    base, new = screened([712 * TERA] * 2), screened([683 * TERA] * 2, host="node2")
    assert screens.differences([base], [new]) == (
        "the bf16 matmul of node2 is 4.1% slower than that of node1 in base (683 against 712 TFLOP/s)",
    )
    assert screens.differences([new], [base]) == (
        "the bf16 matmul of node1 is 4.2% faster than that of node2 in base (712 against 683 TFLOP/s)",
    )
    assert screens.differences([base], [base]) == screens.differences([base], []) == ()


def test_a_host_is_compared_with_itself_before_other_hosts() -> None:
    base = [screened([712 * TERA]), screened([600 * TERA], host="node2")]
    (sentence,) = screens.differences(base, [screened([683 * TERA])])
    assert sentence == "the bf16 matmul of node1 is 4.1% slower than it was in base (683 against 712 TFLOP/s)"


def test_what_was_off_in_a_screen_is_repeated() -> None:
    new = screened([700 * TERA, 650 * TERA])
    new = replace(new, off=judge.off(new, {}))
    assert screens.differences([screened([700 * TERA])], [new]) == (
        "new: node1: GPU 1: bf16 matmul is 7.1% slower than the best of 2 GPUs (650 against 700 TFLOP/s)",
    )


def test_a_figure_that_only_a_newer_version_knows_is_left_out(tmp_path: Path) -> None:
    new = screened([700 * TERA, 650 * TERA])
    (known,) = judge.off(new, {})
    new = replace(new, off=(replace(known, name="newer_figure"), known))
    (tmp_path / on_disk.file_name(new)).write_text(on_disk.text(new))
    (read,) = on_disk.read(tmp_path)
    assert read.off == (known,)


def test_a_secret_in_the_screen_of_another_person_is_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_0123456789abcdefghij")
    new = screened([700 * TERA, 650 * TERA], host="hf_0123456789abcdefghij", busy=[1])
    new = replace(new, off=judge.off(new, {}))
    sentences = screens.differences([screened([800 * TERA])], [new])
    assert len(sentences) == 2 and "hf_0123456789" not in "".join(sentences)


def test_compare_says_it_before_any_verdict(in_process: Call, tmp_path: Path) -> None:
    sides = []
    for name, host, rate in (("base", "node1", 712), ("new", "node2", 683)):
        folder = stored(tmp_path / name, (BASE, [ended(BASE, repeat, tokens_per_s=rate / 7) for repeat in (1, 2, 3)]))
        screen = screened([rate * TERA], host=host)
        (folder / "screens").mkdir()
        (folder / "screens" / on_disk.file_name(screen)).write_text(on_disk.text(screen))
        sides.append(folder)
    told = "the bf16 matmul of node2 is 4.1% slower than that of node1 in base (683 against 712 TFLOP/s)"
    compare = partial(in_process, "compare", *sides, "--min-effect", "0.5")
    _, out, _ = compare("--all")
    assert 0 < out.index(told) < out.index("tok/s")
    for form in ("markdown", "html"):
        assert told.partition(" (")[0] in compare("--format", form)[1]
    assert json.loads(compare("--format", "json")[1])["machines"] == [told]


# The driver's answers


class LinkedNvml(FakeNvml):
    """An NVML that also knows links: 17 of 18 NVLinks are active."""

    NVML_P2P_CAPS_INDEX_NVLINK = 2

    def __init__(self, status: int, shared: int) -> None:
        super().__init__([FakeGpu(uuid="GPU-a"), FakeGpu(uuid="GPU-b")])
        self.status, self.shared = status, shared

    def nvmlDeviceGetP2PStatus(self, first: FakeGpu, second: FakeGpu, index: int) -> int:
        return self.status

    def nvmlDeviceGetTopologyCommonAncestor(self, first: FakeGpu, second: FakeGpu) -> int:
        return self.shared

    def nvmlDeviceGetNvLinkState(self, gpu: FakeGpu, link: int) -> int:
        return int(link != 3)

    def nvmlDeviceGetMaxPcieLinkGeneration(self, gpu: FakeGpu) -> int:
        return 5

    def nvmlDeviceGetCurrPcieLinkWidth(self, gpu: FakeGpu) -> int:
        return 8


A, B = Gpu(index=0, uuid="GPU-a", name=H100), Gpu(index=1, uuid="GPU-b", name=H100)


@pytest.mark.parametrize(
    ("status", "shared", "kind"),
    [(0, 50, "NVLink"), (3, 50, "PCIe between sockets"), (3, 10, "PCIe through one switch")],
)
def test_links_are_in_words(status: int, shared: int, kind: str) -> None:
    nvml = LinkedNvml(status, shared)
    assert link_between(nvml, A, B) == kind
    assert (pcie_link(nvml, A), active_nvlinks(nvml, A)) == ("PCIe 5 ×8", 17)


def test_a_driver_that_does_not_know_links_says_nothing() -> None:
    nvml = FakeNvml([FakeGpu(uuid="GPU-a"), FakeGpu(uuid="GPU-b")])
    assert (link_between(nvml, A, B), pcie_link(nvml, A), active_nvlinks(nvml, A)) == (None, None, None)


def test_processes_that_compute_on_some_gpu_are_found_by_their_open_device(tmp_path: Path) -> None:
    for pid, device in ((7, "/dev/null"), (812, "/dev/nvidia-uvm"), (90, "/dev/nvidiactl")):
        (tmp_path / str(pid) / "fd").mkdir(parents=True)
        (tmp_path / str(pid) / "fd" / "3").symlink_to(device)
        (tmp_path / str(pid) / "comm").write_text("python\n")
    (tmp_path / "13").mkdir()
    assert computing_here(tmp_path) == ("process 812 (python)",)
