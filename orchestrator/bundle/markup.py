"""A page of ours with its texts changed and its programs as they were. Pure.

A page runs only the scripts whose digests its policy names (`page.shell`): they are the same for every campaign, hold no name of
anybody, and one changed letter would end them all. Data and markup are text like any other; so is a script that is not named.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable
from hashlib import sha256

_POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy" [^>]*>')
_PARTS = re.compile(r"(<script>.*?</script>)", re.DOTALL)
_BEGIN, _END = "<script>", "</script>"


def but_for_its_scripts(page: str, change: Callable[[str], str]) -> str:
    """The page with `change` made to everything but its policy and the scripts that this names."""
    policy = _POLICY.search(page)
    if policy is None:
        return change(page)
    before, behind = page[: policy.start()], _PARTS.split(page[policy.end() :])
    parts = (part if _is_named(part, policy[0]) else change(part) for part in behind)
    return "".join((change(before), policy[0], *parts))


def _is_named(part: str, policy: str) -> bool:
    if not (part.startswith(_BEGIN) and part.endswith(_END)):
        return False
    script = part.removeprefix(_BEGIN).removesuffix(_END)
    return f"sha256-{b64encode(sha256(script.encode()).digest()).decode()}" in policy
