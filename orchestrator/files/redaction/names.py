"""Recognise the names of secrets: `HF_TOKEN`, `DB_PASS`, `--hub_token`; not `PWD`, `pad_token` or `XDG_SESSION_ID`."""

from __future__ import annotations

import re
from functools import lru_cache

# A name that has one of these words, in any place, is the name of a secret.
_ALWAYS = frozenset(
    (
        *(
            "SECRET",
            "SECRETS",
            "PASSWORD",
            "PASSWORDS",
            "PASSWD",
            "PASSPHRASE",
            "PASSCODE",
            "CREDENTIAL",
            "CREDENTIALS",
        ),
        *("CREDS", "COOKIE", "COOKIES", "WEBHOOK", "WEBHOOKS", "DSN", "PASSPHRASES", "PASSCODES", "UNSEAL"),
    )
)
# These words also count at the end of a longer word, and with an S: `PGPASSWORD`, `OPENAIAPIKEY`, `APITOKENS`.
_JOINED = (
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "APIKEY",
    "APITOKEN",
    "AUTHTOKEN",
    "ACCESSTOKEN",
    "ACCESSKEY",
    "SECRETKEY",
    "PASSWORT",
    "KENNWORT",
)

_AT_THE_END = frozenset(
    ("TOKEN", "KEY", "KEYS", "PAT", "AUTHORIZATION", "BEARER", "AUTH", "SSHPASS", "DBPASS", "JWT", "OTP", "TOTP")
)
# These short words count at the end of a name in capitals, or after the name of an account: `smtp_pass`, not `pre_pass`.
_IN_CAPITALS = frozenset(("PASS", "PW", "SAS", "SALT", "SIGNATURE"))
# A PIN counts only if it is the whole name, or after the name of an account: not `I_MPI_PIN`, which binds processes to cores.
_AFTER_AN_ACCOUNT = frozenset((*_IN_CAPITALS, "PIN"))
_ACCOUNTS = frozenset(
    (
        *("DB", "DATABASE", "USER", "ADMIN", "ROOT", "LOGIN", "CONFIG", "PROXY", "SSH", "SUDO", "LDAP", "REGISTRY"),
        *("SMTP", "MAIL", "EMAIL", "FTP", "HTTP", "PG", "POSTGRES", "MYSQL", "REDIS", "MONGO", "RABBITMQ", "KEY"),
        *("ACCOUNT", "CARD", "PKCS11", "HSM", "AMZ", "GOOG", "AZURE"),
    )
)
_PLURAL = "TOKENS"
# After one of these words, `KEY` or `TOKENS` means a secret. Without such a word, tokens may be counts and keys may be names.
_QUALIFIED = frozenset(
    (
        *("API", "ACCESS", "AUTH", "HF", "HUB", "GITHUB", "GITLAB", "SESSION", "REFRESH", "BEARER", "PRIVATE"),
        *("SIGNING", "ENCRYPTION", "SECRET", "ACCOUNT", "STORAGE", "DEPLOY", "SERVICE", "LICENSE", "WANDB", "OPENAI"),
        "SUBSCRIPTION",
    )
)

_HARMLESS = frozenset(
    (
        *(f"{kind}_TOKEN" for kind in ("PAD", "EOS", "BOS", "UNK", "MASK", "SEP", "CLS", "IMAGE", "RESPONSE", "STOP")),
        *(f"{kind}_KEY" for kind in ("TEXT", "LABEL", "SORT", "PRIMARY", "DATASET", "MESSAGES")),
        *("USE_AUTH_TOKEN", "USE_AUTH", "KEY", "KEYS"),
    )
)


@lru_cache(maxsize=4096)
def is_secret_name(name: str) -> bool:
    """Return whether a variable or argument of this name contains a secret: `HF_TOKEN`, `wandb-api-key`; not `pad_token`."""
    words = _words(name)
    if "_".join(words) in _HARMLESS or words[-2:-1] == ["PER"]:  # flops_per_token
        return False
    if words[-1] == _PLURAL and _QUALIFIED.intersection(words[:-1]):
        return True
    if words[-1] in _AFTER_AN_ACCOUNT and not _ACCOUNTS.isdisjoint(words[-2:-1]):
        return True
    if name.isupper() and (words[-1] in _IN_CAPITALS or words == ["PIN"]):
        return True
    return (
        words[-1] in _AT_THE_END
        or words[-2:] == ["CONNECTION", "STRING"]
        or words[-3:] == ["ACCESS", "KEY", "ID"]
        or (len(words) > 1 and "PWD" in words)
        or not _ALWAYS.isdisjoint(words)
        or any(word.removesuffix("S").endswith(_JOINED) for word in words)
    )


@lru_cache(maxsize=4096)
def says_secret(name: str) -> bool:
    """Return whether a name in a log is the name of a secret. The name in `cache_key = …`, a line of code, is not."""
    words = _words(name)
    if words[-1] in ("KEY", "KEYS"):
        return len(words) > 1 and words[-2] in _QUALIFIED
    return is_secret_name(name) and words[-1] not in ("AUTH", "PAT") and words != ["PASS"]


def _words(name: str) -> list[str]:
    """Return the words of a name, changed to capitals. Leave out a number at the end, as in `HF_TOKEN_2` and `PASSWORD2`."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.lstrip("-+"))
    words = re.split(r"[_. -]+", spaced.upper())
    if len(words) > 2 and words[-1].isdigit():
        words.pop()
    words[-1] = words[-1].rstrip("0123456789") or words[-1]
    return words
