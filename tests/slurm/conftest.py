"""Tests against a real Slurm, which `slurm-up.sh` starts on this machine. They run only with TUNEBENCH_TEST_SLURM=1."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parent))

from cluster import Campaign, Cluster
from scenarios import write

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker("slurm")
            if os.environ.get("TUNEBENCH_TEST_SLURM") != "1":
                item.add_marker(
                    pytest.mark.skip(reason="needs TUNEBENCH_TEST_SLURM=1 and the Debian packages of tox -e slurm")
                )


@pytest.fixture(scope="session")
def whole_cluster() -> Iterator[Cluster]:
    """A cluster for all tests. Its path is short, since a socket's path must be."""
    folder = Path(tempfile.mkdtemp(prefix="tb", dir="/tmp"))
    cluster = None
    try:
        cluster = Cluster.started(folder)
        yield cluster
    finally:
        Cluster(folder=folder, port=cluster.port if cluster else 0).script("slurm-down.sh")
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def cluster(whole_cluster: Cluster) -> Iterator[Cluster]:
    """The cluster, with an empty queue before and after a test, and all its daemons up."""
    yield whole_cluster
    whole_cluster.script("slurm-up.sh")
    whole_cluster.empty()


@pytest.fixture
def campaign(cluster: Cluster, tmp_path: Path) -> Iterator[Callable[..., Campaign]]:
    """`campaign("quick", "sleep5", gpus="[1, 2]", pilot=3)`: a campaign of these kinds of trainings on a site with these fields."""

    def made(*kinds: str, gpus: object = 1, repeats: int = 1, **site: Any) -> Campaign:
        write(tmp_path, kinds, gpus=gpus, repeats=repeats)
        campaigns.append(Campaign(folder=tmp_path, cluster=cluster, site=site))
        return campaigns[-1]

    campaigns: list[Campaign] = []
    yield made
    for process in [process for one in campaigns for process in one.submitters if process.poll() is None]:
        process.kill()  # of a test that failed
