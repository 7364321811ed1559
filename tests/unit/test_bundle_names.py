"""Stand-ins for the names of people and machines: whole words, every form of writing, nothing else, the same everywhere."""

from __future__ import annotations

import ipaddress
import json
import re
import string
from base64 import b64encode
from hashlib import sha256
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

from orchestrator.bundle.markup import but_for_its_scripts
from orchestrator.bundle.names import NOBODY, Known, StandIns, users_in
from orchestrator.page.shell import Section, document

KNOWN = Known(
    hosts=frozenset(("gpu-box.corp.example.org", "vm", "H100", "cuda")),
    users=frozenset(("alice", "andré", "root", "step", "1000", "al")),
    versions=frozenset(("9.10.2.21",)),
    words=frozenset(("nvidia", "h100")),
)


def hide(text: str) -> str:
    return StandIns(KNOWN).hide(text)


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("/home/alice/x and alice", "/home/user-1/x and user-1"),
        ('{"tail": "a\\nalice\\tvm"}', '{"tail": "a\\nuser-1\\thost-1"}'),  # behind an escape of JSON
        ("\x1b[1malice\x1b[0m@vm", "\x1b[1muser-1\x1b[0m@host-1"),  # behind one of a terminal
        ("alice_ws/alice-2 malice alice2 ALICE", "user-1_ws/user-1-2 malice alice2 ALICE"),
        ("GPU-BOX gpu-box.corp.example.org:29500", "host-1 host-1:29500"),
        ("gpu-box.elsewhere.net is up. gpu-box. Then vm.", "host-1 is up. host-1. Then host-2."),
        (r"C:\Users\bob\x C:\\Users\\bob", r"C:\Users\user-1\x C:\\Users\\user-1"),
        ("/mnt/home/bob /gpfs/users/bob %2Fhome%2Fbob%2Fx", "/mnt/home/user-1 /gpfs/users/user-1 %2Fhome%2Fuser-1%2Fx"),
        ("andré /home/andr\\u00e9/x %2Fhome%2Fandr%C3%A9 andr\\xe9", "user-1 /home/user-1/x %2Fhome%2Fuser-1 user-1"),
        ("/home/step/x step=3 /home/al/y all al", "/home/user-1/x step=3 /home/user-2/y all al"),
        ("10.1.2.3:80 and 10.1.2.3, 10.1.2.4", "address-1:80 and address-1, address-2"),
        ("fe80::1ff:fe23:4567:890a%eth0 2001:db8::1", "address-1%eth0 address-2"),
        ("link/ether 02:42:ac:11:00:02", "link/ether address-1"),
        ("from a.b+c@mail.example.org", "from mail-1"),
        ('"host": "vm", "x": "vm"', '"host": "host-1", "x": "host-1"'),
        (
            r'"\nbob@example.org \ngpu-box.example.net \n10.0.0.1\nfe80::1\\nbob"',
            r'"\nmail-1 \nhost-1 \naddress-2\naddress-1\\nbob"',
        ),
    ],
)
def test_a_name_is_hidden_as_it_is_written(text: str, hidden: str) -> None:
    assert hide(text) == hidden


@pytest.mark.parametrize(
    "text",
    [
        "cudnn 9.10.2.21, nvidia-cublas==12.8.4.1, 1.2.3.4.5, v1.2.3.4, 560.35.03",  # versions
        "127.0.0.1:29500 0.0.0.0 255.255.255.0 ::1 localhost",
        "2026-11-21T08:30:21+00:00 at 12:34:56, std::vector, 00000000:17:00.0, 999.1.1.1",
        "NVIDIA H100 80GB HBM3, cuda:0, /root/.cache, /home/ubuntu, git@github.com:a/b",
        "a.b@c and x @ y, $HOME, /home/",
        "1000 tokens at 1000.5",
    ],
)
def test_what_is_no_name_stays(text: str) -> None:
    assert hide(text) == text


@pytest.mark.parametrize("name", ["nick", "bob", "ursula", "tess"])
def test_an_escape_before_the_rest_of_a_name_stays_one(name: str) -> None:
    names = StandIns(Known(users=frozenset((name,)), hosts=frozenset(("fx", name))))
    before = {"n": "\n", "b": "\b", "t": "\t"}.get(name[0], "\u00fc")
    value = [f"{before}{name[1:]} {before}{name}", f"C:\\{name}", "\b1::2", "\f2:42:ac:11:00:02", f"\\{name}"]
    hidden = json.loads(names.hide(json.dumps(value)))
    assert hidden[0].startswith(before + name[1:]) and hidden[0].endswith(f"{before}host-1")
    assert (hidden[1], hidden[4]) == ("C:\\host-1", "\\host-1")


def test_names_are_numbered_as_they_turn_up_and_counted() -> None:
    names = StandIns(KNOWN)
    assert [names.hide(text) for text in ("vm", "gpu-box alice", "vm VM alice 10.0.0.1")] == [
        "host-1",
        "host-2 user-1",
        "host-1 host-1 user-1 address-1",
    ]
    assert names.counts() == {
        "host": {"names": 2, "places": 4},
        "user": {"names": 1, "places": 2},
        "address": {"names": 1, "places": 1},
    }


def test_names_that_are_words_of_the_files_are_counted_as_kept() -> None:
    assert StandIns(KNOWN).kept == 3  # step, H100, cuda
    assert StandIns(Known()).kept == 0


def test_users_are_known_by_home_folders() -> None:
    text = '/home/alice/x "C:\\\\Users\\\\bob" /home/andr\\u00e9 /root /home/ubuntu/y /Users/carol'
    assert users_in(text) == {"alice", "bob", "andré", "carol"}


NAMES = st.text(string.ascii_letters + string.digits + "éß._-", min_size=3, max_size=12).filter(
    lambda name: (
        name[0].isalpha()
        and name[-1].isalpha()
        and name.isprintable()
        and not re.search(r"(?i)host|user|mail|address", name)
    )
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=12,
)


@given(
    user=NAMES,
    around=st.lists(
        st.sampled_from(["\n", "/", '"', "=", " ", ":", "\\", "\t", "é(", "\x1b[0m"]), min_size=2, max_size=2
    ),
)
def test_no_user_stays_whatever_stands_around_and_whatever_writes_it(user: str, around: list[str]) -> None:
    names = StandIns(Known(users=frozenset((user,))))
    if names.kept or user in NOBODY:
        return
    text = user.join(around)
    forms = (text, json.dumps(text), json.dumps(text, ensure_ascii=False), repr(text), quote(text, safe=""))
    is_an_escape = around[0] == "\\" and user[0] in "nrtbfux"  # which only JSON tells from a folder's name
    for form in forms[is_an_escape:]:
        assert "user-1" in names.hide(form)
    for form in forms[1:3]:
        assert json.loads(names.hide(form)) == "user-1".join(around)


def numbers(value: Any) -> list[Any]:
    """What of a JSON value is no text, in order."""
    if isinstance(value, dict):
        return [one for inner in value.values() for one in numbers(inner)]
    if isinstance(value, list):
        return [one for inner in value for one in numbers(inner)]
    return [] if isinstance(value, str) else [value]


@given(value=st.lists(JSON), user=NAMES, host=NAMES)
def test_json_stays_json_and_keeps_its_numbers(value: list[Any], user: str, host: str) -> None:
    names = StandIns(Known(users=frozenset((user,)), hosts=frozenset((host,))))
    text = json.dumps([*value, f"/home/{user}/x {host}", {user: 1.5}, 17])
    assert numbers(json.loads(names.hide(text))) == [*numbers(value), 1.5, 17]


@given(st.ip_addresses())
def test_every_address_is_hidden_but_those_of_no_machine(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    for text in (f"at {address} now", json.dumps({"tail": f"\n{address}"}), f"http://[{address}]:80/x"):
        hidden = StandIns(Known()).hide(text)
        stays = (
            address.is_loopback
            or address.is_unspecified
            or str(address).startswith("255.")
            or str(address).endswith("::")
        )
        assert (str(address) in hidden) == stays


def test_a_page_still_runs_when_a_host_has_the_name_of_something_in_its_programs() -> None:
    """Two letters that stand all over plotly.js, whose digest the page's policy names."""
    body = Markup("<p>measured on {}</p><script>vm = 1</script>").format("vm")
    page = document(title="vm", sections=[Section(id="a", title="A", body=body)], data={"host": "vm", "x": 1.5})
    hidden = but_for_its_scripts(page, StandIns(Known(hosts=frozenset(("vm", "el")))).hide)
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', hidden)
    scripts = re.findall(r"<script>(.*?)</script>", hidden, re.DOTALL)
    digests = [b64encode(sha256(script.encode()).digest()).decode() for script in scripts]
    assert [f"sha256-{digest}" in policy for digest in digests] == [False, True, True, True, True]
    assert len(scripts[1]) > 1_000_000 and scripts[0] == "host-1 = 1"
    assert "<p>measured on host-1</p>" in hidden and "<title>host-1</title>" in hidden
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', hidden, re.DOTALL)
    assert json.loads(data) == {"host": "host-1", "x": 1.5}


def test_a_page_that_is_none_of_ours_is_text_like_any_other() -> None:
    assert but_for_its_scripts("<script>vm</script> vm", str.upper) == "<SCRIPT>VM</SCRIPT> VM"


@pytest.mark.timeout(120)
@pytest.mark.parametrize("piece", ["x", "a@", "a.", "ab:", "1.", "/home/", "\\", "vm.", "\\nalice", "%2F", "-"])
def test_a_line_of_a_million_signs_takes_seconds(piece: str) -> None:
    """A log may hold anything; a pattern that looks back from each sign of it would take a day."""
    text = piece * (1_000_000 // len(piece)) + "@"
    assert hide(text).endswith("@")
