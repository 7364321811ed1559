"""Secrets by their look and beside their names; what is no secret stays, and JSON stays JSON."""

from __future__ import annotations

import html
import itertools
import json
import re
import shlex
import time
from base64 import b64encode, urlsafe_b64encode
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from factories.cases import cases, document
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from orchestrator.files.redaction import (
    MASK,
    is_secret_name,
    kind_of_secret,
    named_secrets,
    redact,
    redact_words,
    redactor,
    secret_words,
)
from orchestrator.files.redaction.forms import _FORMS, _HINT

HEX = "0123456789abcdef0123"
LOOKS = {
    f"hf_{HEX}AbCd": "Hugging Face",
    f"ghp_{HEX}": "GitHub",
    f"github_pat_11AB_{HEX}": "GitHub",
    f"glpat-{HEX}": "GitLab",
    f"sk-{HEX}": "API",
    f"sk-proj-{HEX}": "API",
    "AKIAIOSFODNN7EXAMPLE": "AWS",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl": "web token",
    f"xoxb-{HEX}": "Slack",
    # In pieces, so that no service that searches for published tokens takes them for real ones.
    f"sk_{'live'}_{HEX}": "Stripe",
    f"SG.{HEX}.{HEX * 2}": "SendGrid",
    f"npm_{HEX * 2}": "registry",
    f"nvapi-{HEX * 2}": "provider of models",
    f"dapi{HEX}0123456789ab": "provider of models",
    f"glrt-{HEX}": "GitLab",
    f"wandb_v1_{HEX}": "service for experiments",
    f"lsv2_pt_{HEX}{HEX}_{HEX}": "service for experiments",
    f"KGAT_{HEX}{HEX}": "service for experiments",
    f"dop_v1_{HEX * 3}": "cloud",
    f"ATATT3xFfGF0{HEX}=0123ABCD": "cloud",
    f"glsa_{HEX}{HEX}_01234567": "cloud",
    f"AGE-SECRET-KEY-1{HEX.upper() * 3}": "age",
    f"xapp-1-A012345-{HEX}": "Slack",
}


@pytest.mark.parametrize("secret", LOOKS)
@pytest.mark.parametrize(
    "form", ["{}", "x {} y", "'{}'", "a={}", "RuntimeError: 401 for {}.", "--x={}", '{{"k": "{}"}}', "({})"]
)
def test_what_looks_like_a_token_is_masked_wherever_it_stands(secret: str, form: str) -> None:
    text = form.format(secret)
    assert redact(text, {}) == text.replace(secret, MASK)
    assert LOOKS[secret] in str(kind_of_secret(text, {}))


@pytest.mark.parametrize("secret", LOOKS)
@pytest.mark.parametrize(
    "before", ["\x1b[31m", "\x1b[m", "\\u001b[1;38;5;208m", "\\x1b[0m", "line\\n", "a\\t", "a%20", "k%3D", "\\u00e9"]
)
def test_a_token_after_a_colour_or_an_escape_is_masked(secret: str, before: str) -> None:
    assert redact(f"x {before}{secret}\x1b[0m y", {}) == f"x {before}{MASK}\x1b[0m y"


@pytest.mark.parametrize("before", ["a", "0", "\\q", "[31", "3m"])
def test_a_token_does_not_begin_inside_a_word(before: str) -> None:
    text = f"x {before}hf_{HEX}AbCd"
    assert redact(text, {}) == text


@pytest.mark.parametrize(
    ("hint", "pattern"), [(hint, re.compile(form)) for _, hint, form in _FORMS], ids=lambda value: str(value)[:20]
)
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(data=st.data())
def test_nothing_has_a_look_without_its_hint(hint: str, pattern: re.Pattern[str], data: st.DataObject) -> None:
    """Texts without any hint are not searched at all."""
    before = data.draw(st.sampled_from(["", "https://", "http://", "x ", '"']))
    text = before + data.draw(st.from_regex(without_looking_around(pattern.pattern, hint)))
    assume(pattern.search(text))
    assert re.search(hint, text) and re.search(_HINT, text)


def without_looking_around(pattern: str, start: str) -> str:
    return re.sub(r"\(\?<[=!][^)]*\)", "", pattern.removeprefix(f"(?={start})"))


@given(
    st.lists(st.sampled_from(["--hub_token", "hub_token=x", "--api-key=", "x", "--x", "", "TOKEN=a b", "--PASSWORD"]))
)
def test_a_secret_in_a_command_line_is_one_whatever_stands_beside_it(words: list[str]) -> None:
    alone = [
        (place, begin, name)
        for place in range(len(words))
        for at, begin, name in secret_words(words[max(0, place - 1) : place + 1])
        if at == min(place, 1)
    ]
    assert list(secret_words(words)) == alone


@pytest.mark.parametrize(("text", "masked"), cases("redaction/secrets_beside_their_names_are_masked"))
def test_secrets_beside_their_names_are_masked(text: str, masked: str) -> None:
    assert redact(text, {}) == masked


@pytest.mark.parametrize("text", document("redaction/what_is_no_secret_stays"))
def test_what_is_no_secret_stays(text: str) -> None:
    assert redact(text, {}) == text
    assert kind_of_secret(text, {}) is None


@pytest.mark.parametrize(
    "name",
    [
        *("HF_TOKEN", "hub_token", "WANDB_API_KEY", "wandb-api-key", "--password", "AWS_SECRET", "hfToken"),
        *("GITHUB_PAT", "SECRET_KEY_BASE", "++trainer.api_key", "HF_TOKENS", "apiKey", "DB_PASSWORD_FILE"),
        *(
            "PGPASSWORD",
            "MYSQL_PWD",
            "DB_PASS",
            "RCLONE_CONFIG_PASS",
            "SESSION_COOKIE",
            "SLACK_WEBHOOK_URL",
            "SENTRY_DSN",
        ),
        *(
            "SESSION_KEY",
            "SESSION_TOKEN",
            "SESSION_SECRET",
            "FTP_PASSWD",
            "smtp_pass",
            "dbPass",
            "SSHPASS",
            "ORACLE_PW",
        ),
        *("HF_TOKEN_2", "PASSWORD2", "RCLONE_CONFIG_X_PASSWORD2", "AZURE_STORAGE_CONNECTION_STRING", "OPENAIAPIKEY"),
        *(
            "JWT",
            "SUPABASE_JWT",
            "AZURE_STORAGE_SAS",
            "AWS_SIGNATURE",
            "X-Amz-Signature",
            "NPM_CONFIG_OTP",
            "APP_SALT",
            "PIN",
        ),
        *("USER_PIN", "VAULT_UNSEAL", "unseal_key_1", "OPENAIAPIKEYS", "AUTHTOKENS", "DB_PASSWORT", "DBKENNWORT"),
        *("DB_PASSPHRASES", "AWS_ACCESS_KEY_ID", "aws_access_key_id"),
    ],
)
def test_names_of_secrets(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    [
        *("num_virtual_tokens", "max_tokens", "tokens", "text_key", "key", "PATH", "PWD", "response_token", "KEYBOARD"),
        *("TOKENIZERS_PARALLELISM", "pad_token", "num_input_tokens", "model_name_or_path", "model_flops_per_token"),
        *(
            "OLDPWD",
            "XDG_SESSION_ID",
            "DBUS_SESSION_BUS_ADDRESS",
            "BYPASS",
            "COMPASS",
            "pass_rate",
            "post_grad_pre_pass",
        ),
        *(
            "PASSES",
            "PGPASSFILE",
            "SSH_AUTH_SOCK",
            "pass@1",
            "pwd",
            "SESSION",
            "SESSION_MANAGER",
            "num_passes",
            "time_per_pass",
        ),
        *(
            "signature",
            "signature_columns",
            "salt",
            "pin_memory",
            "dataloader_pin_memory",
            "I_MPI_PIN",
            "I_MPI_PIN_DOMAIN",
        ),
        *(
            "eos_token",
            "max_new_tokens",
            "tokenizer",
            "MAX_TOKENS",
            "JWT_ALGORITHM",
            "SALTS_PER_S",
            "OTPS",
            "SASL",
            "SPIN",
        ),
        *(
            "HF_HUB_DISABLE_TELEMETRY",
            "TORCH_NCCL_ASYNC_ERROR_HANDLING",
            "PYTORCH_CUDA_ALLOC_CONF",
            "ACCESS_KEY_IDS_SEEN",
        ),
    ],
)
def test_counts_and_fields_are_no_secrets(name: str) -> None:
    assert not is_secret_name(name)


@pytest.mark.parametrize(
    "value", ['pa"ss\\word1', "päss wörd/1", "two lines of a key\nthe second line of it", "a+b/c==d&e"]
)
@pytest.mark.parametrize(
    "written", [str, json.dumps, lambda text: json.dumps(text, ensure_ascii=False), repr, "quoted"]
)
def test_a_value_is_known_however_it_is_written(value: str, written: Any) -> None:
    text = quote(value, safe="") if written == "quoted" else written(value)
    masked = redact(f"<{text}>", {"MY_PASSWORD": value})
    assert value not in masked and text not in masked
    assert MASK in masked


def test_values_of_the_environments_secrets_are_masked() -> None:
    long = {
        "HF_TOKEN": "hf_abcdefghij",
        "HF_TOKEN_LONG_KEY": "hf_abcdefghij_m0re",
        "SHORT_KEY": "1",
        "HOME": "/home/me",
    }
    assert redact("saw hf_abcdefghij_m0re, hf_abcdefghij, 1, /home/me", long) == "saw ***, ***, 1, /home/me"


@pytest.mark.parametrize("value", ["a'b\"c<d>&e/f g", "pä+ss w/örd?x=1", HEX])
@pytest.mark.parametrize("name", ["DB_PASS", "MYSQL_PWD", "SESSION_COOKIE"])
def test_a_value_is_known_in_every_encoding(name: str, value: str) -> None:
    """Also inside a longer text that was encoded as a whole, at any offset."""
    written = {
        "JSON in JSON": json.dumps(json.dumps({"k": value})),
        "JSON of PHP": json.dumps(value).replace("/", "\\/"),
        "JSON of PHP in JSON": json.dumps(json.dumps(value).replace("/", "\\/")),
        "JSON of PHP, twice": json.dumps(json.dumps(value).replace("/", "\\/")).replace("/", "\\/"),
        "JSON for HTML": json.dumps(value).replace("/", "\\u002f").replace("<", "\\u003C"),
        "JSON with escapes only": "".join(f"\\u{ord(character):04x}" for character in value),
        "HTML with numbers only": "".join(f"&#{ord(character)};" for character in value),
        "HTML": html.escape(value),
        "CSV": value.replace('"', '""'),
        "a form": quote_plus(value),
        "URL": quote(value),
        "URL in small letters": re.sub("%..", lambda code: code[0].lower(), quote(value, safe="")),
        "shell": shlex.quote(value),
        "hex": value.encode().hex(),
        "UTF-16 in a log": value.encode("utf-16-le").decode("utf-8", "replace"),
        **{f"base64 after {before}": b64encode(b"user:"[:before] + value.encode()).decode() for before in range(5)},
        "base64 for URLs": urlsafe_b64encode(value.encode()).decode(),
    }
    if value.isascii():
        written["URL with codes only"] = "".join(f"%{byte:02X}" for byte in value.encode())
    for kind, text in written.items():
        masked = redact(f"<{text}>", {name: value})
        assert MASK in masked and len(masked) < 25, (kind, masked)


@given(
    st.integers(0, 3), st.lists(st.integers(1, 19), max_size=3, unique=True), st.sampled_from(["\n", "\r\n", "\x1b[0m"])
)
def test_a_value_is_known_across_the_ends_of_lines_and_colours(before: int, cuts: list[int], end: str) -> None:
    pieces = [HEX[start:stop] for start, stop in itertools.pairwise([0, *sorted(cuts), len(HEX)])]
    text = "x\n" * before + "saw " + end.join(pieces) + ", then\nmore"
    expected = "x\n" * before + "saw ***, then\nmore"
    assert redact(text, {"DB_PASS": HEX}) == expected
    assert json.loads(redact(json.dumps({"tail": text}), {"DB_PASS": HEX})) == {"tail": expected}


@pytest.mark.parametrize(
    "value", ["test", "training", "benchmark", "postgres", "12345678", "1234567890.5", "2026-11-13"]
)
def test_an_ordinary_word_or_number_is_masked_only_next_to_its_name(value: str) -> None:
    """A record in which every such word is masked is no record: its keys and numbers would be gone."""
    text = json.dumps({value: value, "n": 12345678, "x": [1234567890.5], "said": f"a {value} of DB_PASS={value}."})
    masked = redact(text, {"DB_PASS": value})
    beside, elsewhere = masked.rpartition("DB_PASS=")[2], masked.rpartition("DB_PASS=")[0]
    assert MASK in beside and value not in beside and MASK not in elsewhere
    json.loads(masked)


def test_the_name_of_a_metric_is_no_secret_for_being_the_value_of_a_key() -> None:
    assert redact('{"name": "tokens_per_s"}', {"METRIC_KEY": "tokens_per_s"}) == '{"name": "tokens_per_s"}'


def test_a_short_secret_is_masked_next_to_its_own_name() -> None:
    assert redact("DB_PASS=abc and abc; token: the", {"DB_PASS": "abc"}) == "DB_PASS=*** and abc; token: the"


def test_text_that_is_no_utf8_becomes_so() -> None:
    redact("caf\udce9", {}).encode()


def test_the_lines_of_a_long_secret_are_secrets() -> None:
    key = "first line of the key\nsecond line of the key"
    assert redact("saw 'second line of the key'", {"SSH_PRIVATE_KEY": key}) == "saw '***'"


def test_an_argument_is_no_secret_for_being_code() -> None:
    """What is stored must not be refused, nor masked in a script, for a line of Python in it."""
    assert kind_of_secret("token = tokenizer.get_special_token(x)", {}) is None
    assert kind_of_secret('API_KEY=read(1234) TOKEN=keys["mine"]', {}) is None
    assert (
        kind_of_secret("bash -c \"t.py --token $HF_TOKEN --api-key='$(cat key)'; HF_TOKEN=${MINE} t.py\"", {}) is None
    )
    assert kind_of_secret('{"hub_token": "hunter2"}', {}) == "the value of hub_token"
    assert (
        kind_of_secret("t.py --token=hunter2 1", {})
        == kind_of_secret("t.py --token 'hunter2'", {})
        == "the value of token"
    )
    assert kind_of_secret("export HF_TOKEN=hunter2; t.py", {}) == "the value of HF_TOKEN"
    assert kind_of_secret("x my-own-secret y", {"A_TOKEN": "my-own-secret"}) == "the value of A_TOKEN"


def test_words_of_a_command() -> None:
    words = [
        "run",
        "--hub_token",
        "hunter2",
        "--api-key=a",
        "x.password=b",
        "--flag",
        "--pad_token",
        "c",
        "--token",
        "--x",
        "d",
    ]
    masked = {2: "***", 3: "--api-key=***", 4: "x.password=***"}
    assert redact_words(words, redactor({})) == [masked.get(place, word) for place, word in enumerate(words)]
    assert [place for place, _, _ in secret_words(words)] == [2, 3, 4]


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.sampled_from([*LOOKS, "a b", 'q"\\'])
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["hub_token", "a", "password"]), inner),
    max_leaves=8,
)


@given(VALUES, st.sampled_from(['"', "\\", "a\nb c", "secret value", "nulltrue"]))
def test_json_is_json_still(value: Any, secret: str) -> None:
    environ = {"A_TOKEN": secret * 8, "PASSWORD": "password"}
    for text in (json.dumps(value), json.dumps(value, indent=2, ensure_ascii=False), json.dumps(json.dumps(value))):
        masked = redact(text.encode("utf-8", "replace").decode(), environ)
        json.loads(masked)
        assert not any(one in masked for one in LOOKS)
        assert redact(masked, environ) == masked


KEY_LINES = [("b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQ" + "AZ09+/"[n] * 28)[:70] for n in range(6)]


@pytest.mark.parametrize(
    ("begin", "end"),
    [
        ("-----BEGIN OPENSSH PRIVATE KEY-----", ""),
        ("-----BEGIN OPENSSH PRIVATE KEY-----", "-----END OPENSSH PRIVATE KEY-----"),
        ("-----BEGIN PGP PRIVATE KEY BLOCK-----\nVersion: GnuPG v2\n", "-----END PGP PRIVATE KEY BLOCK-----"),
        ("-----BEGIN PGP PRIVATE KEY BLOCK-----\nVersion: GnuPG v2\n", ""),
        ("-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,0A\n", ""),
    ],
)
@pytest.mark.parametrize("between", ["\n", "\r\n", "\\n", "', '", "\n> ", '",\n  "'])
def test_each_line_of_a_private_key_is_masked(begin: str, end: str, between: str) -> None:
    masked = redact(between.join(["seen:", begin, *KEY_LINES, end, "RuntimeError: stop"]), {})
    assert not any(line in masked for line in KEY_LINES), masked
    assert masked.startswith("seen:") and (not end or masked.endswith("RuntimeError: stop"))


def test_words_after_the_name_of_a_key_are_not_a_key() -> None:
    text = "a file begins with -----BEGIN PRIVATE KEY----- and has lines; none was found in /home/me/some/long/path/of/a/key"
    assert redact(text, {}) == text


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "piece",
    [
        *("\n", " \n", "name: x\n", "; pwd=", "postgres://a:", '"a", '),
        *("a.", "a=", "token=", "token ", "--a", "--token ", "-eyJ", "://a:", "https://", "Bearer ", "authorization: "),
        *("-----BEGIN PRIVATE KEY-----", '"token": ', "\\", "x", " ", "hf_", "sk-", "@", "'", "a_"),
        *("%22", "%2522token", "&quot;", "\x1b[0m", "\x1b[", "\\u0022", "hf_\x1b[0m", "\x1b[0mpassword\x1b[0m="),
    ],
)
def test_no_log_takes_long(piece: str) -> None:
    """The end of a trainer's log, made to be slow."""
    before = time.process_time()
    redact(piece * (256 * 1024 // len(piece)), {"A_TOKEN": "x" * 20})
    assert time.process_time() - before < 20


@pytest.mark.parametrize("name", ["token", "hub_token", "password", "api_key"])
def test_a_text_under_the_name_of_a_secret_is_one_however_short_the_name_is(name: str) -> None:
    assert [*named_secrets({name: ["abcdefgh12345", "disabled"]}).values()] == ["abcdefgh12345"]


HUNTER = "hunter2hunter2"
_HIDES = {
    "a colour in a token": "x hf_0123\x1b[1;31m456789abcdef0123 y",
    "a colour in a token, in JSON": '{"a": "hf_0123\\u001b[0m456789abcdef0123"}',
    "a colour in a token, in Python": "'hf_0123\\x1b[0m456789abcdef0123'",
    "a command of the terminal in a token": "x hf_0123\x1b[K456789abcdef0123",
    "an invisible character in a token": "x hf_0123\u200b456789abcdef0123",
    "a colour after an option": f"--password\x1b[0m {HUNTER}",
    "a colour between an option and its value": f"--password \x1b[0m{HUNTER}",
    "a colour inside a name": f"pass\x1b[0mword={HUNTER}",
    "colours around a sign": f"password\x1b[0m\x1b[2m=\x1b[0m\x1b[1m{HUNTER}",
    "JSON in a URL": f"?q=%7B%22token%22%3A%22{HUNTER}%22%7D",
    "JSON in a URL, in small letters": f"?q=%7b%22token%22%3a+%22{HUNTER}%22%7d",
    "JSON in a URL in a URL": f"?q=%257B%2522token%2522%253A%2522{HUNTER}%2522%257D",
    "an assignment in a URL": f"?q=token%3D{HUNTER}%26a%3D1",
    "JSON in HTML": f"&quot;token&quot;: &quot;{HUNTER}&quot;",
    "JSON in HTML, in numbers": f"&#34;token&#34;: &#x22;{HUNTER}&#x22;",
    "JSON in HTML in HTML": f"&amp;quot;token&amp;quot;: &amp;quot;{HUNTER}&amp;quot;",
    "JSON for HTML": f"\\u0022token\\u0022: \\u0022{HUNTER}\\u0022",
    "a token in JSON with escapes": "hf_0123\\u0034\\u003556789abcdef0123",
    "an address in JSON of PHP": f"https:\\/\\/me:{HUNTER}@host\\/x",
    "an address in JSON of PHP in JSON": f"https:\\\\/\\\\/me:{HUNTER}@host\\\\/x",
    "an address in a URL": f"?next=https%3A%2F%2Fme%3A{HUNTER}%40host%2Fx",
}


@pytest.mark.parametrize("text", _HIDES.values(), ids=_HIDES)
def test_a_secret_is_masked_in_a_text_that_is_coloured_or_encoded(text: str) -> None:
    masked = redact(text, {})
    assert MASK in masked and not any(piece in masked for piece in (HUNTER, "hf_0123", "cdef0123"))
    record = json.dumps({"cause": f"before {text} after"})
    assert json.loads(redact(record, {}))["cause"].endswith(" after")


@pytest.mark.parametrize(
    "text",
    [
        *("tokens%3A%2012345678", "100%25 of the token: %20s", "&quot;pad_token&quot;: &quot;endoftext1&quot;"),
        *("key%3Avalue12345", "\x1b[32mtokens\x1b[0m: \x1b[1m12345678\x1b[0m", "/a%20b/token%20file.txt"),
    ],
)
def test_what_is_no_secret_stays_also_when_it_is_coloured_or_encoded(text: str) -> None:
    assert redact(text, {}) == text


@given(
    st.lists(
        st.sampled_from(
            ["hub_token", ": ", '"', "\\", "/", "%22", "%253A", "&quot;", "\x1b[0m", "\\u0022", HUNTER, "hf_", HEX]
        )
    )
)
def test_coloured_and_encoded_json_is_json_still(pieces: list[str]) -> None:
    for text in (json.dumps({"a": "".join(pieces)}), json.dumps(["".join(pieces), json.dumps("".join(pieces))])):
        json.loads(redact(text, {}))
        json.loads(redact(text.replace("/", "\\/"), {"MY_TOKEN": '/\\x2"%22/'}))
