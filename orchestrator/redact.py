"""What must not reach a file: tokens, keys and passwords, known by the name of what holds them.

A secret stays in the environment of the person who runs the benchmark: the runs inherit it. Values are never guessed by
how they look, so a secret in an argument with a harmless name is not found.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

_SECRET_WORDS = frozenset(
    ("TOKEN", "TOKENS", "KEY", "KEYS", "APIKEY", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIALS")
)
_HARMLESS = frozenset({"PAD_TOKEN", "EOS_TOKEN", "BOS_TOKEN", "UNK_TOKEN", "USE_AUTH_TOKEN", "NUM_INPUT_TOKENS"})
_SHORTEST_SECRET = 8
_MASK = "***"
_URL_PASSWORD = re.compile(r"(?<=://)[^/\s@]+(?=@)")


def is_secret_name(name: str) -> bool:
    """Whether a variable or argument of this name holds a secret: `HF_TOKEN`, `wandb-api-key`; not `pad_token`."""
    upper = name.lstrip("-").replace("-", "_").replace(".", "_").upper()
    return upper not in _HARMLESS and upper.rsplit("_", 1)[-1] in _SECRET_WORDS


def redact(text: str, environ: Mapping[str, str] = os.environ) -> str:
    """The text with the values of the environment's secrets, and passwords in URLs, masked; always valid UTF-8."""
    text = text.encode("utf-8", "replace").decode()
    secrets = {value for name, value in environ.items() if is_secret_name(name) and len(value) >= _SHORTEST_SECRET}
    for value in sorted(secrets, key=len, reverse=True):
        text = text.replace(value, _MASK)
    return _URL_PASSWORD.sub(_MASK, text)
