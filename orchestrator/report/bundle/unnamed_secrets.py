"""Recognises secrets that `files.redaction` does not find by a name or a form. Only bundles, which other people get, hide them.

- Words in the values of environment variables, if the words are long and look random.
- Tokens in a form that the package detect-secrets knows. Tunebench uses only detectors that raise no false alarm in results. If
  the package is missing, the bundle is still made, and its manifest says so.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from importlib import import_module, metadata

from orchestrator.files.redaction import Secret, by_value

_DETECTORS = {
    "azure_storage_key": "AzureStorageKeyDetector",
    "discord": "DiscordBotTokenDetector",
    "gitlab_token": "GitLabTokenDetector",
    "mailchimp": "MailchimpDetector",
    "npm": "NpmDetector",
    "openai": "OpenAIDetector",
    "pypi_token": "PypiTokenDetector",
    "sendgrid": "SendGridDetector",
    "slack": "SlackDetector",
    "square_oauth": "SquareOAuthDetector",
    "stripe": "StripeDetector",
    "telegram_token": "TelegramBotTokenDetector",
    "twilio": "TwilioKeyDetector",
}
# Names of variables whose values are long and look random, but are public.
_PUBLIC = re.compile(
    r"(?:.*_)?(?:SHA\d*|COMMIT|REVISION|REV|DIGEST|CHECKSUM|HASH|UUID|FINGERPRINT)(?:_.*)?|TUNEBENCH_.*"
)
_WORD = re.compile(r"(?<!sha256:)(?<![\w+/-])(?!(?:GPU|MIG)-)[\w+/-]{16,}(?![\w+/-]*[:.]//)", re.ASCII)
_KINDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+|[^A-Za-z\d]+")
_PATH = re.compile(r"/|(?:.*/)?(?:[a-z]{4,}|[A-Z][a-z]{3,})/")
_UUID = re.compile(r"(?i:[\da-f]{8}(-[\da-f]{4}){3}-[\da-f]{12})")
_SIGNS = re.compile(r"(?=.*\d)(?=.*[a-z])(?=.*[A-Z])(?=.*[!#%&*?@^~$])[^\s/:;]{12,}")


def is_random(word: str) -> bool:
    """Return whether a word looks random: it is long, and often changes between digits, small letters and capital letters."""
    runs = re.findall(r"[A-Za-z\d]+", word)
    if _UUID.fullmatch(word) or any(len(run) >= 16 and _changes(run) >= max(4, 0.17 * len(run)) for run in runs):
        return True
    letters = sum(map(len, runs))
    changes = sum(map(_changes, runs))
    if "/" in word or "+" in word:  # base64, but not a path
        return letters >= 20 and changes >= 0.2 * letters and not _PATH.match(word)
    return letters >= 20 and changes >= 0.3 * letters


def _changes(run: str) -> int:
    return len(_KINDS.findall(run)) - 1


def random_values(environ: Mapping[str, str], identifiers: Collection[str] = ()) -> dict[str, str]:
    """Return a dict of the words in the values of `environ`, if the words are long and look random.

    The dict maps each word to itself. `identifiers` are not secrets.
    """
    found = set()
    for name, value in environ.items():
        if _PUBLIC.fullmatch(name.upper()):
            continue
        if _SIGNS.fullmatch(value) and len(_KINDS.findall(value)) >= 6:
            found.add(value)
        found |= {word for word in _WORD.findall(value) if is_random(word) and not _PATH.match(word)}
    return {word: word for word in found.difference(identifiers)}


class UnnamedSecrets:
    """The secrets that only a bundle hides.

    `source` is the package that knows the forms of tokens; it is None if the package is missing.
    """

    def __init__(self, environ: Mapping[str, str], identifiers: Collection[str]) -> None:
        self._values = random_values(environ, identifiers)
        self._patterns: list[re.Pattern[str]] = []
        self.source: str | None = None
        with suppress(ImportError):
            modules = {name: import_module(f"detect_secrets.plugins.{name}") for name in _DETECTORS}
            detectors = [getattr(module, _DETECTORS[name], None) for name, module in modules.items()]
            self._patterns = [pattern for detector in detectors if detector for pattern in detector.denylist]
            self.source = f"detect-secrets {metadata.version('detect-secrets')}"

    def find(self, text: str) -> Iterator[Secret]:
        """Yield the secrets in a text. A token in a known form counts only if it looks random."""
        yield from by_value(text, self._values)
        for pattern in self._patterns:
            for match in pattern.finditer(text):
                if any(map(is_random, re.findall(r"[\w+/-]+", match[0]))):
                    yield Secret(start=match.start(), end=match.end(), what="a token")
