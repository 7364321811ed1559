"""Three runs on a Slurm with accounting: an account is charged, `site check` knows the accounts, and nobody calls sacct."""

from __future__ import annotations

import os
import pwd
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cluster import PARTITIONS, Campaign, Cluster

Call = Callable[..., tuple[int, str, str]]

ENFORCED = f"{PARTITIONS}\nAccountingStorageEnforce=associations,qos"


@pytest.fixture(scope="module")
def accounting() -> Iterator[Cluster]:
    folder = Path(tempfile.mkdtemp(prefix="tb", dir="/tmp"))
    cluster = None
    try:
        cluster = Cluster.started(folder, SLURM_DBD="1", SLURM_EXTRA=ENFORCED)
        cluster.call("sacctmgr", "-i", "add", "account", "physics", "Description=physics", "Organization=lab")
        cluster.call("sacctmgr", "-i", "add", "user", pwd.getpwuid(os.getuid()).pw_name, "Account=physics")
        yield cluster
    finally:
        Cluster(folder=folder, port=cluster.port if cluster else 0).script("slurm-down.sh", SLURM_DBD="1")


def test_three_runs_are_charged_to_an_account(campaign: Callable[..., Campaign], accounting: Cluster) -> None:
    three = campaign("quick-1", "quick-2", "quick-3", account="physics")
    three.cluster = accounting
    three.fake("sacct", "touch $HERE/sacct-was-called; exit 1")
    code, said = three.run()
    assert code == 0 and three.statuses() == ["r1-t1 ok"] * 3, said
    assert not (three.folder / "sacct-was-called").exists()
    charged = accounting.call("sacct", "-X", "-n", "-P", "-o", "Account,State").split()
    assert charged == ["physics|COMPLETED"] * 3


@pytest.mark.parametrize("site", [{"account": "chemistry"}, {"account": "physics", "qos": "gone"}])
def test_a_refused_account_or_qos_is_named_with_its_line(
    campaign: Callable[..., Campaign], accounting: Cluster, site: dict[str, str]
) -> None:
    refused = campaign("quick", **site)
    refused.cluster = accounting
    code, said = refused.run()
    assert code == 2 and f"; change `{[*site][-1]}:`; " in said and "error: site.yaml:1:" in said, said


def test_site_check_knows_the_accounts(
    in_process: Call, accounting: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", accounting.env["SLURM_CONF"])
    (tmp_path / "site.yaml").write_text("account: chemistry\n", encoding="utf-8")
    code, out, err = in_process("site", "check")
    line = next(line for line in out.splitlines() if line.startswith("account"))
    assert code == 1 and "missing" in line and "physics" in line, out + err
