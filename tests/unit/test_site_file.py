"""The site file: where it is found, how its values are read, and which values could change a batch script and are refused."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from orchestrator.errors import ConfigError
from orchestrator.executors.slurm.cluster.notation import gpus_of_gres, parse_time, time_text
from orchestrator.executors.slurm.site import Site
from orchestrator.plan.config import site_file
from orchestrator.plan.config.site_file import SiteFile, load_site
from orchestrator.records.price import Price

GOLDEN = Path(__file__).parents[1] / "golden" / "slurm"
Golden = Callable[[str, str], None]

FULL = """\
executor: slurm
partition: 3090        # YAML 1.1 reads a number
account: 007
qos: yes
constraint: a100|h100
time: 1:30:00
lines: [--exclusive, --mem=0, --mail-type END]
prologue: |
  module load cuda
node: 4xH100
gpu_type: nvidia_a100_1g.5gb
cpus_per_gpu: 8
mem_per_gpu: 64G
scratch: /scratch/$USER
throttle: 12
max_queued: 100
pilot: 5
max_pending: 90
price: 2.5
"""


def site_of(folder: Path, content: str) -> Site:
    (folder / "site.yaml").write_text(content, encoding="utf-8")
    found = load_site(folder / "scenarios.yaml", {})
    assert found is not None
    return found.site


def refusal(folder: Path, content: str) -> str:
    with pytest.raises(ConfigError) as caught:
        site_of(folder, content)
    return str(caught.value).replace(f"{folder}/", "")


def test_a_site_has_the_values_of_its_file_as_they_are_written(tmp_path: Path) -> None:
    assert site_of(tmp_path, FULL) == Site(
        file=str(tmp_path / "site.yaml"),
        partition="3090",
        account="007",
        qos="yes",
        constraint="a100|h100",
        time_s=5400.0,
        lines=("--exclusive", "--mem=0", "--mail-type END"),
        prologue="module load cuda\n",
        node="4xH100",
        gpu_type="nvidia_a100_1g.5gb",
        cpus_per_gpu=8,
        mem_per_gpu="64G",
        scratch="/scratch/$USER",
        throttle=12,
        max_queued=100,
        pilot=5,
        max_pending_s=5400.0,
        price=Price(amount=2.5),
    )
    found = load_site(tmp_path / "scenarios.yaml", {})
    assert found is not None and found.executor == "slurm"
    assert found.site.places["partition"].endswith("site.yaml:2:1")


def test_the_page_has_a_valid_site_file_and_all_keys(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "clusters.md").read_text(encoding="utf-8")
    assert site_of(tmp_path, page.partition("```yaml\n")[2].partition("```")[0]).node == "4xH100"
    rows = [line.partition("|")[2].partition("|")[0] for line in page.splitlines() if line.startswith("| `")]
    assert {key for row in rows for key in re.findall("`(.*?)`", row)} == SiteFile.model_fields.keys()


def test_a_blank_key_is_a_missing_key(tmp_path: Path) -> None:
    assert site_of(tmp_path, "partition:\ntime: ~\n") == Site(file=str(tmp_path / "site.yaml"))
    assert not site_of(tmp_path, "partition:\n").places


def test_the_file_and_the_site_have_the_same_keys_and_defaults() -> None:
    renamed = {name: name.removesuffix("_s") for name in ("time_s", "max_pending_s", "poll_s", "grace_s")}
    values = {renamed.get(name, name): value for name, value in dataclasses.asdict(Site()).items()}
    values = {name: value for name, value in values.items() if name not in ("file", "places")}
    assert SiteFile().model_dump() == {"executor": None, **values}
    texts = {name for name, key in SiteFile.model_fields.items() if "str" in str(key.annotation)} - {"lines"}
    assert texts | {"time", "max_pending", "poll", "grace"} == site_file.TEXTS


def test_a_wrong_site_file_is_refused_with_all_its_mistakes(tmp_path: Path, golden: Golden) -> None:
    content = (GOLDEN / "bad-site.yaml").read_text(encoding="utf-8")
    golden("slurm/bad-site.txt", refusal(tmp_path, content) + "\n")


@pytest.mark.parametrize("key", ["partition", "account", "qos", "constraint", "gpu_type", "mem_per_gpu", "scratch"])
@given(text=st.text(min_size=1, max_size=20))
@example(text="-")
def test_no_value_adds_a_line_a_quote_or_an_option_to_a_script(key: str, text: str) -> None:
    try:
        value = getattr(SiteFile(**{key: text}), key)
    except ValueError:
        return
    assert value == text
    assert value.isprintable() and not value.startswith("-")
    assert not set(value) & set(" \"'\\`#;<>")
    assert "$(" not in value


@given(name=st.sampled_from(["array", "job-name", "output", "error", "chdir", "export", "wait", "time"]), end=st.data())
def test_a_shortened_name_of_a_refused_option_is_refused(name: str, end: st.DataObject) -> None:
    short = name[: end.draw(st.integers(1, len(name)))]
    with pytest.raises(ValueError, match=r"not allowed|key of its own"):
        SiteFile(lines=(f"--{short}=x",))


def test_a_site_file_is_found_by_the_variable_then_beside_the_scenarios_then_in_the_users_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    environ = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    scenarios = tmp_path / "project" / "scenarios.yaml"
    files = [tmp_path / "config" / "tunebench" / "site.yaml", tmp_path / "project" / "site.yaml", tmp_path / "my.yaml"]
    assert load_site(scenarios, environ) is None
    for place, file in enumerate(files):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"partition: p{place}\n", encoding="utf-8")
        if file.name == "my.yaml":
            environ["TUNEBENCH_SITE"] = "my.yaml"
        found = load_site(scenarios, environ)
        assert found is not None and found.site.partition == f"p{place}"
    assert load_site(None, {"XDG_CONFIG_HOME": "config"}) is None, "a relative XDG_CONFIG_HOME does not count"


def test_a_variable_that_names_no_file_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone\.yaml: TUNEBENCH_SITE names this file, which does not exist; correct"):
        load_site(None, {"TUNEBENCH_SITE": str(tmp_path / "gone.yaml")})


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *(("90", 5400), ("90:30", 5430), ("2:00:00", 7200), ("1-12", 129600), ("1-12:30", 131400)),
        *(("1-12:30:05", 131405), ("30m", 1800), ("1h30m", 5400), ("2D", 172800), ("45s", 45)),
        *(("UNLIMITED", None), ("infinite", None)),
    ],
)
def test_times_are_read_as_slurm_writes_them(text: str, seconds: float | None) -> None:
    assert parse_time(text) == seconds


@given(st.integers(0, 99999 * 86400))
def test_a_time_that_is_written_is_read_as_the_same(seconds: int) -> None:
    assert parse_time(time_text(seconds)) == seconds


@pytest.mark.parametrize("text", ["", "soon", "1:2:3:4", "-5", "1.5h", "2 h", "1-", "٣"])
def test_other_texts_are_no_times(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time"):
        parse_time(text)


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        ("gpu:4", {"": 4}),
        ("gpu:a100:8(S:0-1)", {"a100": 8}),
        ("gpu:a100:4(S:0,2),gpu:v100:2,gpu:v100:1,shard:8", {"a100": 4, "v100": 3}),
        ("(null)", {}),
        ("craynetwork:4", {}),
    ],
)
def test_gpus_are_read_from_gres(text: str, gpus: dict[str, int]) -> None:
    assert gpus_of_gres(text) == gpus
