"""The notations of a secret next to its name: `NAME=…`, `"name": "…"`, `--name …`, a list of names and values."""

from __future__ import annotations

import re

# A name may be two words with a blank between them: `API key`.
_NAME = r"(?P<name>(?:(?i:api|access|auth|private|secret) )?[A-Za-z_][\w.-]{0,80})"
# A quote, as JSON escapes it, or as Python writes it before a text of bytes (`b'`), a formatted text (`f"`) or a long text.
_QUOTE = r"""(?:(?<![A-Za-z0-9_])(?i:[bru]|f|[bf]r|r[bf])(?=\\*["']))?\\*(?:\"{3}|'{3}|["'])"""
_COLOUR = r"(?:(?:\x1b|\\u001b)\[[\d;]{0,20}m)"
# `password: str = "…"` has a type between the name and the value.
_TYPE = rf"""(?::\s*[A-Za-z_][\w.\[\] |]{{0,40}}=\s*(?={_QUOTE}))"""
NAMED = rf"""(?:(?<![\w.-])-{{0,2}}|{_COLOUR}){_NAME}(?P<closed>\\*["']\]?)?\s*(?:{_TYPE}|[=:]\s*)"""
OPTION = rf"""--{_NAME}(?P<closed>\\*["'],)?\s+"""
# The name of a secret as a value, and the secret next to it: `{"name": "HF_TOKEN", "value": "…"}`, also as YAML. Each pattern has a
# hint, which is searched first because that is faster.
LISTED = (
    (
        r"""value\\*["']\s{0,9}:""",
        rf"""(?P<quote>\\*["']){_NAME}(?P=quote)\s{{0,99}},\s{{0,99}}\\*["']value\\*["']\s{{0,9}}:\s{{0,9}}(?P<opened>\\*["'])"""
        r"""(?P<value>[^"'\\\n]{6,8192})(?P=opened)""",
    ),
    (
        r"\n[ \t]{0,99}value:",
        rf"""\bname:[ \t]{{0,9}}{_NAME}[ \t]{{0,9}}\n[ \t]{{0,99}}value:[ \t]{{0,9}}["']?(?P<value>[^\s"'\\]{{6,8192}})""",
    ),
)
# The digest of a user's file, as a comparison shows it after the file's name (`content of credentials.json: sha256:…`), and as
# `experiment.json` has it after the name of a Python file.
FINGERPRINT = r"""sha256:[0-9a-f]{12}(?=[\s"'\\,;)}\]]|$)"""
DIGEST = re.compile("[0-9a-f]{12}")
# `==` with a version is not a value: a list of packages has it (`detect-secrets==1.5.0`).
# A shell writes a sign after a backslash, and a value with escapes as $'…'.
VALUE = re.compile(
    rf"""(?P<opened>\$?{_QUOTE})?"""
    rf"""(?P<value>(?!--|:|\$?\{{\w+[:}}]|={{1,2}}\d+\.\d|{FINGERPRINT})"""
    r"""(?:[^\s"'\\,;&)}\]<>]|\\[ ,;&(){}\[\]<>$!#*?|~])+)"""
)
# A value in plain quotes. A value in single quotes may not contain a double quote: the mask would cross the end of a JSON string.
QUOTED = re.compile(r""""(?:[^"\\\n]|\\.){1,8192}"|'(?:[^"'\\\n]|\\.){1,8192}'""")
# The rest of an assignment in quotes, as a shell and Python's shlex write it: 'NAME=two words'. In JSON, a quote has a backslash.
REST = {
    quote: re.compile(rf"(?:{inside}){{1,8192}}(?={re.escape(quote)})")
    for quote, inside in (
        ('"', r'[^"\\\n]|\\.'),
        ("'", r"""[^"'\\\n]|\\."""),
        ('\\"', r"""[^"'\\\n]"""),
        ("\\'", r"""[^"'\\\n]"""),
    )
}
# What a shell or a template replaces: `$NAME`, `$(command)`, `command` in backticks, and `{{ name }}` of Jinja.
REPLACED = re.compile(r"\$[\w{(]|`|\{\{")
