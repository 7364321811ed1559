"""Secrets that are recognised by their form: `hf_…`, `ghp_…`, a password in a URL, an address of a webhook."""

from __future__ import annotations

import re
from collections.abc import Iterator

from orchestrator.files.redaction.secret import Secret

# A secret does not begin inside a word. The last character of a colour code, of an escape or of an encoded character is not a part
# of a word. Each alternative has a fixed width, as `re` requires.
_COLOURED = "|".join(rf"(?<=\[[\d;]{{{length}}}m)" for length in range(16))
_ESCAPED = r"(?<=\\[abfnrtv])|(?<=\\x[0-9A-Fa-f]{2})|(?<=\\u[0-9A-Fa-f]{4})|(?<=%[0-9A-Fa-f]{2})"
_FREE = rf"(?:(?<![A-Za-z0-9])|{_ESCAPED}|{_COLOURED})"


def _token(what: str, start: str, form: str) -> tuple[str, str, str]:
    """Return the entry of a token that begins with `start`. Searching for the start first is faster."""
    return what, start, f"(?={start}){_FREE}{form}"


# A key without its end, such as the beginning of a log: long lines of letters and digits, perhaps quoted, after lines such as
# `Version: 1`.
_KEY_BEGIN = r"-----BEGIN [A-Z ]{0,20}PRIVATE KEY(?: BLOCK)?-----"
_BETWEEN_LINES = r"""(?:\\[nr]|[\s"',\[\]>|]){1,16}"""
_KEY_LINES = (
    rf"(?:{_BETWEEN_LINES}[A-Z][A-Za-z-]{{2,20}}: [^\r\n]{{1,100}}){{0,5}}"
    rf"(?:{_BETWEEN_LINES}[A-Za-z0-9+/]{{40,}}={{0,2}}){{1,200}}(?:{_BETWEEN_LINES}[A-Za-z0-9+/=]{{1,80}})?"
)

# Each entry has the kind of secret, a hint that every such secret contains, and the secret's form. If the form has a group
# `secret`, only this group is masked. `re` compiles a form at its first use. `--help` and most plans use no form.
_FORMS: tuple[tuple[str, str, str], ...] = (
    ("a password in a URL", "://", r"""(?<=://)[^/\s@:"'\\<>]*:[^/\s"'\\<>]*(?=@)"""),
    # A password of a database may have a slash, against the rules of URLs. Digits and a slash are a port and a path.
    (
        "a password in a URL of a database",
        "(?:postgres(?:ql)?|mysql|mariadb|mongodb|rediss?|amqps?)(?:\\+[a-z0-9]{1,20})?://",
        r"""(?:postgres(?:ql)?|mysql|mariadb|mongodb|rediss?|amqps?)(?:\+[a-z0-9]{1,20})?://"""
        r"""(?P<secret>[^/\s@:"'\\<>]{0,80}:(?!\d{1,5}/)[^\s"'\\<>]{1,80})(?=@)""",
    ),
    (
        "a password in a connection string",
        "(?i:; ?pwd ?=)",
        r"""(?i:(?:uid|user id|user|server|data source|database) ?=[^;\n]{0,99};(?:[^;\n]{0,99};){0,4} ?pwd ?= ?)"""
        r"""(?P<secret>[^;\s"'\\$/~][^;\s"'\\]{3,})""",
    ),
    ("a token in a URL", "://", r"""(?:(?<=https://)|(?<=http://))[^/\s:"'\\<>]+(?=@)"""),
    _token("a token of Hugging Face", "hf_|api_org_", r"(?:hf|api_org)_[A-Za-z0-9]{16,}"),
    _token("a token of GitHub", "gh[pousr]_|github_pat_", r"(?:gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{16,})"),
    _token(
        "a token of GitLab",
        "gl(?:pat|dt|ft|rt|cbt|ptt|soat|agent)-",
        r"gl(?:pat|dt|ft|rt|cbt|ptt|soat|agent)-[\w-]{16,}",
    ),
    _token("a key of an API", "sk-", r"sk-(?:(?:proj|ant|svcacct|admin|or)-[\w-]{16,}|[A-Za-z0-9]{16,})"),
    _token("a key of Google", "AIza", r"AIza[\w-]{30,}"),
    _token("a key of AWS", "AKIA|ASIA", r"A(?:KIA|SIA)[0-9A-Z]{16}(?![A-Za-z0-9])"),
    (
        "an address of a webhook",  # of Slack, Discord, Teams and Power Automate
        r"(?i:hooks?)",
        r"""(?i:hooks\.slack(?:-gov)?\.com/(?:services|workflows|triggers)/|discord(?:app)?\.com/api/(?:v\d+/)?webhooks/"""
        r"""|webhook\.office\.com/webhookb2/)(?P<secret>[\w/@.%-]{8,512})""",
    ),
    (
        "a signature in a URL",
        "(?i:[?&;](?:sig|signature|key|x-amz-signature|x-goog-signature)=)",
        r"(?i:[?&;](?:sig|signature|key|x-amz-signature|x-goog-signature)=)(?P<secret>[\w%+/.~-]{16,})",
    ),
    (
        "a cookie in a header",
        "(?i:cookie:)",
        r"""(?i:\bcookie:)[ \t]*(?P<secret>[\w!#$%&*+.^|~-]{1,100}=[^"'\\<>\r\n]+)""",
    ),
    ("a key of an account of Azure", "AccountKey=", r"AccountKey=(?P<secret>[A-Za-z0-9+/=]{40,})"),
    _token("a key of Stripe", "[rsw]k_live_", r"[rsw]k_live_[0-9A-Za-z]{16,}"),
    _token("a key of SendGrid", r"SG\.", r"SG\.[\w-]{16,}\.[\w-]{32,}"),
    _token("a token of a registry of packages", "npm_|pypi-", r"(?:npm_[A-Za-z0-9]{30,}|pypi-AgE[\w-]{50,})"),
    _token(
        "a key of a provider of models",
        "nvapi-|gsk_|xai-|r8_|dapi|hvs\\.|ya29\\.|dckr_pat_|GOCSPX-",
        r"(?:nvapi-[\w-]{30,}|gsk_[A-Za-z0-9]{30,}|xai-[A-Za-z0-9]{40,}|r8_[A-Za-z0-9]{30,}|dapi[0-9a-f]{32}"
        r"|hvs\.[\w-]{24,}|ya29\.[\w-]{24,}|dckr_pat_[\w-]{20,}|GOCSPX-[\w-]{20,})",
    ),
    _token(
        "a token of a service for experiments",  # Weights & Biases, LangSmith, Kaggle, RunPod, Together, Perplexity
        "wandb_v1_|lsv2_|KGAT_|rpa_|tgp_v1_|pplx-",
        r"(?:wandb_v1_\w{20,}|lsv2_(?:pt|sk)_\w{30,}|KGAT_[0-9a-f]{30,}|rpa_[A-Za-z0-9]{30,}|tgp_v1_[\w-]{30,}"
        r"|pplx-[A-Za-z0-9]{30,})",
    ),
    _token(
        "a token of a cloud or of a service for teams",  # DigitalOcean, Alibaba, Pulumi, Tailscale; Atlassian, Linear, Notion, …
        r"do[por]_v1_|LTAI|pul-|tskey-|AT[AC]TT3x|lin_api_|ntn_|gls?a_|glc_|sntry[su]_|dp\.(?:pt|st)\.|shpat_|rubygems_|PMAK-"
        r"|ops_eyJ",
        r"(?:do[por]_v1_[0-9a-f]{40,}|LTAI[A-Za-z0-9]{16,24}(?![A-Za-z0-9])|pul-[0-9a-f]{40}|tskey-[a-z]+-[\w-]{16,}"
        r"|AT[AC]TT3x[\w-]{20,}(?:=[0-9A-F]{8})?|lin_api_[A-Za-z0-9]{30,}|ntn_[A-Za-z0-9]{40,}|gls?a_[A-Za-z0-9_]{30,}"
        r"|glc_[A-Za-z0-9+/=]{30,}|sntry[su]_[\w+/=-]{30,}|dp\.(?:pt|st)\.[\w.-]{40,}|shpat_[0-9a-fA-F]{32}"
        r"|rubygems_[0-9a-f]{40,}|PMAK-[0-9a-f]{24}-[0-9a-f]{34}|ops_eyJ[A-Za-z0-9+/]{100,}={0,2})",
    ),
    _token("a key of age", "AGE-SECRET-KEY-1", r"AGE-SECRET-KEY-1[0-9A-Z]{50,}"),
    _token("a token of Slack", "xox|xapp-", r"(?:xox[abeoprs]-[\w-]{10,}|xapp-\d-[A-Z0-9]{6,}-[\w-]{10,})"),
    _token("a JSON web token", "eyJ", r"(?<![-_])eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?"),
    (
        "an Authorization header",
        "(?i:authorization)",
        r"""(?i:authorization)(?:\\*["'])?\s*[:=]\s*(?:\\*["'])?(?i:(?:bearer|basic|token|negotiate)\s+)?"""
        r"""(?P<secret>(?!(?i:bearer|basic|token|negotiate)\b)[^\s"'\\,;}<>]{6,})""",
    ),
    ("a bearer token", "(?i:bearer)", r"(?i:bearer)\s+(?P<secret>(?=[\w.~+/=-]*\d)[\w.~+/=-]{8,})"),
    (
        "a key of Weights & Biases",  # the key looks like a Git commit, so a word before it must say what it is
        "(?i:api[ _-]?key|wandb[ -]login)",
        r"""(?i:api[ _-]?key|wandb[ -]login)[\s:\\"']{1,6}(?P<secret>(?:local-)?[0-9a-f]{40})(?![0-9a-f])""",
    ),
    (
        "a private key",
        "-----BEGIN",
        rf"{_KEY_BEGIN}(?:(?:(?!-----BEGIN)[\s\S]){{0,10000}}?-----END [A-Z ]{{0,20}}PRIVATE KEY(?: BLOCK)?-----|{_KEY_LINES})",
    ),
    ("a password in a .netrc", "machine", r"\bmachine\s+\S+\s+login\s+\S+\s+password\s+(?P<secret>\S{4,})"),
    ("a login to a registry of images", '"auth"', r"""\"auth\"\s*:\s*\"(?P<secret>[A-Za-z0-9+/=]{16,})\""""),
)

# If this pattern finds nothing in a text, the text contains no secret of these forms.
_HINT = "|".join(dict.fromkeys(hint for _, hint, _ in _FORMS))


def by_form(text: str) -> Iterator[Secret]:
    """Yield the secrets with a known form. For speed, search most texts only for the hints: a plan may have very many commands."""
    if not re.search(_HINT, text):
        return
    for what, hint, pattern in _FORMS:
        for match in re.finditer(pattern, text) if re.search(hint, text) else ():
            group = "secret" if "secret" in match.re.groupindex else 0
            yield Secret(start=match.start(group), end=match.end(group), what=what)
