"""What only a bundle hides: random values of any variable, and the forms that detect-secrets knows. What is public stays."""

from __future__ import annotations

import json
import os
import random
import string
import sys
import tarfile
import tempfile
from base64 import b64encode
from pathlib import Path
from unittest import mock
from urllib.parse import quote
from uuid import UUID

import pytest
from factories.results import of_command, record_of
from hypothesis import example, given, settings
from hypothesis import strategies as st

from orchestrator.errors import ResultsError
from orchestrator.files.redaction import redact
from orchestrator.records import Status
from orchestrator.report.bundle import bundle, summary
from orchestrator.report.bundle.unnamed_secrets import UnnamedSecrets, random_values
from orchestrator.results.experiment_file import text_of
from orchestrator.results.store import Store, write_record

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = ROOT / "docs" / "sample"
LETTERS = string.ascii_letters + string.digits
MADE = {
    "letters and digits": lambda source: "".join(source.choices(LETTERS, k=24)),
    "small letters and digits": lambda source: "".join(source.choices(LETTERS[:26] + string.digits, k=40)),
    "hexadecimal": lambda source: source.randbytes(16).hex(),
    "base64": lambda source: b64encode(source.randbytes(30)).decode(),
    "UUID": lambda source: str(UUID(bytes=source.randbytes(16))),
    "in a list": lambda source: f"a, key={source.randbytes(20).hex()}; b",
}


@pytest.mark.parametrize("kind", MADE)
def test_what_a_machine_made_is_random(kind: str) -> None:
    source = random.Random(7)
    values = [MADE[kind](source) for _ in range(1000)]
    assert sum(bool(random_values({"X": value})) for value in values) >= 970


PUBLIC = {
    "MODEL": "meta-llama/Llama-3.1-8B-Instruct",
    "OTHER_MODEL": "Qwen2.5-Coder-32B-Instruct-GPTQ-Int4",
    "THIRD_MODEL": "qwen3-30b-a3b-instruct-2507-fp8-dynamic",
    "MODEL_PATH": "/hf/models--meta/snapshots/0e9e39f249a16976918f6564b8830bc894c89659",
    "DATA": "models/snapshots/0e9e39f249a16976918f6564b8830bc894c89659",
    "CUDA_VISIBLE_DEVICES": "GPU-e51978dd-c5cb-2c03-406a-a7a5730d3445,GPU-0bb4dec4-9b99-e4e3-4fd7-06ed5ffc42a9",
    "GITHUB_SHA": "0e9e39f249a16976918f6564b8830bc894c89659",
    "PYTHON_SHA256": "0e9e39f249a16976918f6564b8830bc8" * 2,
    "IMAGE": "pytorch/manylinux-builder@sha256:" + "0e9e39f249a16976918f6564b8830bc8" * 2,
    "LS_COLORS": "rs=0:di=01;34:ln=01;36:mh=00:*.tar=01;31:*.tgz=01;31",
    "PYTHONPATH": "/usr/local/cuda-12.8/lib64:/opt/conda/lib/python3.11/site-packages",
    "NVIDIA_REQUIRE_CUDA": "cuda>=12.4 brand=tesla,driver>=470,driver<471",
    "NV_LIBNCCL_DEV_PACKAGE": "libnccl-dev=2.27.3-1+cuda12.9",
    "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True,max_split_size_mb:128",
    "DBUS_SESSION_BUS_ADDRESS": "unix:path=/run/user/1000/bus",
    "SSH_CONNECTION": "192.0.2.1 50000 192.0.2.2 22",
    "STARTED": "2026-11-23T10:29:42.123456Z",
    "CLASS": "TransformersTrainingArgumentsForCausalLM42",
    "TUNEBENCH_MARKER": "5f8c55f3fbd74aca95d2e2faf7cf6861",
    "PIP_INDEX_URL": "https://packages.example.org/simple/",
}


@pytest.mark.parametrize("name", PUBLIC)
def test_what_is_public_is_not_random(name: str) -> None:
    assert random_values({name: PUBLIC[name]}) == {}


def sample_environment() -> dict[str, str]:
    """Variables whose values are in the records of the sample: identifiers, not secrets."""
    records = [json.loads(path.read_text("utf-8")) for path in SAMPLE.rglob("record.json")]
    facts = {
        "COMMIT_OF_THIS": records[0]["provenance"]["git"]["commit"],
        "BUILD": records[0]["provenance"]["git"]["commit"],
        "EXPERIMENT": records[0]["experiment_id"],
        **{f"DEVICE_{at}": gpu["uuid"] for at, gpu in enumerate(records[0]["provenance"]["gpus"])},
        **{f"WORD_{word.upper()}_PASS": word for word in ("test", "training", "qwen", "baseline", "frameworks")},
    }
    return PUBLIC | facts


@pytest.mark.parametrize("where", ["bundle", "files"])
def test_nothing_in_ordinary_results_is_a_secret(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if where == "bundle":
        for name, value in sample_environment().items():
            monkeypatch.setenv(name, value)
        assert bundle(SAMPLE, output=tmp_path / "b.tar.gz").manifest["secrets"] == 0
        return
    unnamed = UnnamedSecrets(PUBLIC, ())
    hidden = ("golden/cases/redaction", "golden/containers", "golden/script")
    for folder in (SAMPLE, ROOT / "tests" / "golden"):
        for path in folder.rglob("*"):
            if path.is_file() and path.suffix not in (".gz", ".html") and not any(name in str(path) for name in hidden):
                text = path.read_text("utf-8", "replace")
                assert redact(text, PUBLIC, also=unnamed.find) == text, path


def token(prefix: str, length: int, *, digits: str = LETTERS) -> str:
    return prefix + "".join(random.Random(3).choices(digits, k=length))


LOW = string.ascii_lowercase + string.digits
FORMS = {
    "Square": token("sq0csp" + "-", 43),
    "Telegram": token("123456789" + ":", 35),
    "Twilio": token("S" + "K", 32, digits=LOW),
    "Mailchimp": token("", 32, digits=LOW) + "-us12",
    "GitLab": token("GR134" + "8941", 24),
    "Discord": token("M", 25) + token(".", 6) + token(".", 27),
}


@pytest.mark.parametrize("kind", FORMS)
def test_forms_that_detect_secrets_knows(kind: str) -> None:
    pytest.importorskip("detect_secrets")
    unnamed = UnnamedSecrets({}, ())
    assert unnamed.source and unnamed.source.startswith("detect-secrets 1.")
    assert redact(f"saw {FORMS[kind]}, then", {}, also=unnamed.find) == "saw ***, then"
    assert redact(f"saw {FORMS[kind]}, then", {}) != "saw ***, then", "the package is of use"


def test_a_path_of_python_modules_is_no_token_of_discord() -> None:
    text = "MistralForCausalLMWithHeads.layers.post_attention_layernorm_ab"
    assert redact(text, {}, also=UnnamedSecrets({}, ()).find) == text


def test_without_the_package_a_bundle_is_made_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "detect_secrets.plugins.azure_storage_key", None)
    store = Store.create(tmp_path / "r", {})
    store.add([of_command("x")])
    done = bundle(store.root, output=tmp_path / "b.tar.gz")
    assert done.manifest["forms"] is None
    assert any("detect-secrets is not installed" in line for line in summary(done))


NAMES = ("PGPASSWORD", "MYSQL_PWD", "DB_PASS", "RCLONE_CONFIG_PASS", "SESSION_COOKIE", "SLACK_WEBHOOK_URL", "HF_TOKEN")
VALUES = st.text("".join(map(chr, range(33, 127))) + " äß", min_size=12, max_size=40).filter(
    lambda text: any(map(str.isdigit, text)) and any(map(str.isalpha, text)) and text == text.strip()
)
WRITTEN = {
    "next to its name": lambda name, value: f"{name}={value}",
    "alone": lambda name, value: f"saw {value}.",
    "as an option": lambda name, value: f"run --hub_token {value} --x",
    "as an option with =": lambda name, value: f"run --api-key={value} --x",
    "in a URL": lambda name, value: f"get https://me:{quote(value, safe='')}@example.org/x",
    "in base64": lambda name, value: b64encode(f"me:{value}".encode()).decode(),
    "in JSON": lambda name, value: json.dumps({"a": {name: value}}),
    "in Python": lambda name, value: repr([value]),
    "over two lines": lambda name, value: f"saw {value[:6]}\n{value[6:]}",
}


@settings(max_examples=30, deadline=None)
@example("PGPASSWORD", "000000\\0000A", "over two lines", 0)
@example("PGPASSWORD", "0000000000A\\", "over two lines", 0)
@example("PGPASSWORD", "000000\\0000ß", "in Python", 0)
@given(st.sampled_from((*NAMES, "MY_SETTING")), VALUES, st.sampled_from(sorted(WRITTEN)), st.integers(0, 99))
def test_no_file_of_a_bundle_has_a_secret(name: str, value: str, way: str, seed: int) -> None:
    """In the log, in the cause and the tail of a failure; under a name that says nothing only if it is random."""
    value = value if name in NAMES else token("", 24 + seed % 8)
    said = WRITTEN[way](name, value)
    with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, {name: value}):
        store = Store.create(Path(folder) / "r", {"argv": ["run", said]})
        one = of_command("x")
        store.add([one])
        job = store.job(one.id, repeat=1, attempt=1)
        job.run_dir.mkdir(parents=True)
        (job.run_dir / "stdout.log").write_text(f"begin\n{said}\nend\n")
        write_record(job.run_dir, record_of(job, Status.FAILED, kind="unknown", cause=said, tail=f"x\n{said}\n"))
        done = bundle(store.root, output=Path(folder) / "b.tar.gz")
        with tarfile.open(done.path) as archive:
            members = {member.name: archive.extractfile(member) for member in archive}
            texts = {path: file.read().decode() for path, file in members.items() if file}
    records = [json.loads(text) for path, text in texts.items() if path.endswith("record.json")]
    assert len(records) == 1
    for path, text in texts.items():
        for form in (value, json.dumps(value)[1:-1], repr(value)[1:-1], quote(value, safe=""), value[6:]):
            assert form not in text, path
    assert any("***" in text for text in texts.values())


@pytest.mark.parametrize("name", NAMES)
@given(value=VALUES)
def test_no_scenario_may_set_one(name: str, value: str) -> None:
    for one in (
        of_command("x", env={name: value}),
        of_command("x", f"--{name.lower()}", f"v{value}"),
        of_command("x", f"--{name.lower()}={value}"),
        of_command("x", arguments={name.lower(): value}),
    ):
        with pytest.raises(ResultsError, match="export it in the shell"):
            text_of(one)
