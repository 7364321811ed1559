"""A campaign over two versions of torch, each in a software environment that `run` builds, from the same saved weights.

`tox -e environments` runs it where pip's configuration names a package index on this disk that has a second torch. Elsewhere it is
skipped: torch from a public index would be 4 GB.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlparse

import pytest
import torch
from campaigns import Campaign, tunebench

from orchestrator.records import Status

FIRST = torch.__version__.partition("+")[0]
PYTHON = f"cp{sys.version_info[0]}{sys.version_info[1]}"
FREE_BYTES = 8 * 2**30


def second() -> str | None:
    """A version of torch beside the installed one, in an index on this disk."""
    words = [sys.executable, "-m", "pip", "config", "get", "global.extra-index-url"]
    indexes = subprocess.run(words, capture_output=True, text=True, check=False).stdout.split()
    pages = [Path(urlparse(index).path, "torch", "index.html") for index in indexes if index.startswith("file:")]
    text = "".join(page.read_text(encoding="utf-8") for page in pages if page.exists())
    found = re.findall(rf"torch-([\d.]+)-{PYTHON}-", text)
    return next((version for version in found if version != FIRST), None)


SECOND = second() if os.environ.get("TUNEBENCH_TEST_ENVIRONMENTS") else None
pytestmark = [
    pytest.mark.skipif(not os.environ.get("TUNEBENCH_TEST_ENVIRONMENTS"), reason="needs TUNEBENCH_TEST_ENVIRONMENTS=1"),
    pytest.mark.skipif(SECOND is None, reason="no package index on this disk has a second torch"),
    pytest.mark.timeout(1800),
]


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Campaign:
    folder = tmp_path_factory.mktemp("torches")
    if shutil.disk_usage(folder).free < FREE_BYTES:
        pytest.skip("two environments with torch need 8 GB on this disk")
    others = "transformers==5.23.0, accelerate, peft"
    (folder / "scenarios.yaml").write_text(f"""
environments:
  old: [torch=={FIRST}, {others}]
  new: [torch=={SECOND}, {others}]
scenarios:
- name: torches
  environment: [old, new]
  device: cpu
  arguments: {{model_name_or_path: config:tiny-llama, weights: saved, max_seq_len: 64, per_device_train_batch_size: 2, max_steps: 8,
    logging_steps: 1}}
data_processing: {{dataset_name: builtin:synthetic, samples: 40}}
""")
    done = tunebench(folder, "run", "scenarios.yaml")
    assert done.code == 0, done.said
    return done


def test_each_run_had_its_own_torch(campaign: Campaign) -> None:
    for name, version in (("old", FIRST), ("new", SECOND)):
        record = campaign.record(f".{name}-")
        assert record.status is Status.OK
        assert record.provenance["worker_versions"]["torch"].partition("+")[0] == version


def test_both_began_with_the_same_weights(campaign: Campaign) -> None:
    old, new = (float(row["train_loss"]) for row in campaign.rows())
    assert old == pytest.approx(new, rel=1e-3)
