"""Names of people and machines: whole words, every form of writing, a fixed word for each kind, and nothing else."""

from __future__ import annotations

import ipaddress
import json
import string
from typing import Any

import pytest
from factories.cases import cases, document
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.report.bundle.names import Known, Names, users_in

KNOWN = Known(
    hosts=frozenset(("gpu-box.corp.example.org", "vm1", "H100", "cuda")),
    users=frozenset(("alice", "andré", "root", "step", "1000", "al")),
    versions=frozenset(("9.10.2.21",)),
)


def hide(text: str) -> str:
    return Names(KNOWN).hide(text)


@pytest.mark.parametrize(("text", "hidden"), cases("bundle_names/a_name_is_hidden_as_it_is_written"))
def test_a_name_is_hidden_as_it_is_written(text: str, hidden: str) -> None:
    assert hide(text) == hidden


@pytest.mark.parametrize("text", document("bundle_names/what_is_no_name_stays"))
def test_what_is_no_name_stays(text: str) -> None:
    assert hide(text) == text


def test_every_name_is_counted_once() -> None:
    names = Names(KNOWN)
    names.hide("gpu-box alice gpu-box.corp.example.org")
    names.hide('vm1 VM1 /home/alice 10.0.0.1 {"host": "vm1"} 10.0.0.1')
    assert {kind: len(found) for kind, found in names.found.items()} == {"host": 2, "user": 1, "address": 1}


@pytest.mark.parametrize("name", ["vm", "VM.corp", "a", "node", "gpu", "train"])
def test_a_host_with_any_name_is_hidden_where_only_a_host_can_be(name: str) -> None:
    """In free text, `vm` and `train` are words."""
    names = Names(Known(hosts=frozenset((name.lower(), "gpu-box"))))
    value = {
        **{"host": {"cpu": "X", "name": name, "count": 2}, "nodes": [{"host": name}], "node": name},
        **{"provenance_host_name": name, "name": name, "owner": {"host": name, "pid": 7}},
    }
    text = json.dumps(value, indent=2)
    hidden = json.loads(names.hide(text))
    assert hidden == json.loads(text.replace(f': "{name}"', ': "hidden-host"')) | {"name": name}
    table = f'id,host,provenance_nodes,x\n"a,\n{name}",{name},"{name}, gpu-box",{name}\r\n{name},other,{name},'
    assert names.hide(table, is_csv=True) == (
        f'id,host,provenance_nodes,x\n"a,\n{name}",hidden-host,"hidden-host, hidden-host",{name}\r\n{name},other,hidden-host,'
    )
    broken = f'"x\ny",host\n1,{name}\n'  # a name of an argument may have a line break
    assert names.hide(broken, is_csv=True) == '"x\ny",host\n1,hidden-host\n'
    assert names.hide(f"{name} trains") == f"{name} trains" and names.found["host"] == {_plain_host(name), "gpu-box"}


def _plain_host(name: str) -> str:
    return name.partition(".")[0].lower()


def test_users_are_known_by_home_folders() -> None:
    assert users_in("/home/alice/x /home/andr\\u00e9 /root /home/ubuntu/y /Users/carol") == {"alice", "andré", "carol"}


NAMES = st.text(string.ascii_letters + string.digits + "éß._-", min_size=3, max_size=12)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=12,
)


def numbers(value: Any) -> list[Any]:
    """Return the values of a JSON document that are not text, in order."""
    if isinstance(value, dict):
        return [number for inner in value.values() for number in numbers(inner)]
    if isinstance(value, list):
        return [number for inner in value for number in numbers(inner)]
    return [] if isinstance(value, str) else [value]


@given(value=st.lists(JSON), user=NAMES, host=NAMES, escape=st.sampled_from("\n\b\t\f\\é\x1b/ "))
def test_json_stays_json_and_keeps_its_numbers(value: list[Any], user: str, host: str, escape: str) -> None:
    names = Names(Known(users=frozenset((user,)), hosts=frozenset((host,))))
    text = json.dumps([*value, f"/home/{user}/x {host}{escape}{host}{escape}{user[1:]}", {user: 1.5}, 17])
    assert numbers(json.loads(names.hide(text))) == [*numbers(value), 1.5, 17]


@given(st.ip_addresses())
def test_every_address_is_hidden_but_those_of_no_machine(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    for text in (f"at {address} now", json.dumps({"tail": f"\n{address}"}), f"http://[{address}]:80/x"):
        stays = (
            address.is_loopback
            or address.is_unspecified
            or str(address).startswith("255.")
            or str(address).endswith("::")
        )
        assert (str(address) in hide(text)) == stays


@pytest.mark.timeout(120)
@pytest.mark.parametrize("piece", ["x", "a@", "a.", "ab:", "1.", "/home/", "\\", "vm1.", "\\nalice", "%2F", "-"])
def test_a_line_of_a_million_signs_takes_seconds(piece: str) -> None:
    """A log may hold anything; a pattern that looks back from each sign of it would take a day."""
    text = piece * (1_000_000 // len(piece)) + "@"
    assert hide(text).endswith("@")
