"""Secrets by their look and beside their names; what is no secret stays, and JSON stays JSON."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest
from factories.cases import cases, document
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from orchestrator.files.redaction import (
    _FORMS,
    _HINT,
    MASK,
    is_secret_name,
    kind_of_secret,
    redact,
    redact_words,
    redactor,
    secret_words,
)

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
}


@pytest.mark.parametrize("secret", LOOKS)
@pytest.mark.parametrize(
    "form", ["{}", "x {} y", "'{}'", "a={}", "RuntimeError: 401 for {}.", "--x={}", '{{"k": "{}"}}', "({})"]
)
def test_what_looks_like_a_token_is_masked_wherever_it_stands(secret: str, form: str) -> None:
    text = form.format(secret)
    assert redact(text, {}) == text.replace(secret, MASK)
    assert LOOKS[secret] in str(kind_of_secret(text, {}))


@pytest.mark.parametrize(
    ("hint", "pattern"), [(hint, re.compile(form)) for _, hint, form in _FORMS], ids=lambda value: str(value)[:20]
)
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(data=st.data())
def test_nothing_has_a_look_without_its_hint(hint: str, pattern: re.Pattern[str], data: st.DataObject) -> None:
    """Texts without any hint are not searched at all."""
    before = data.draw(st.sampled_from(["", "https://", "http://", "x ", '"']))
    text = before + data.draw(st.from_regex(without_looking_behind(pattern.pattern)))
    assume(pattern.search(text))
    assert re.search(hint, text) and re.search(_HINT, text)


def without_looking_behind(pattern: str) -> str:
    return re.sub(r"\(\?<[=!][^)]*\)", "", pattern)


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
    ],
)
def test_names_of_secrets(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    [
        *("num_virtual_tokens", "max_tokens", "tokens", "text_key", "key", "PATH", "PWD", "response_token", "KEYBOARD"),
        *("TOKENIZERS_PARALLELISM", "pad_token", "num_input_tokens", "model_name_or_path", "model_flops_per_token"),
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
    from urllib.parse import quote

    text = quote(value, safe="") if written == "quoted" else written(value)
    masked = redact(f"<{text}>", {"MY_PASSWORD": value})
    assert value not in masked and text not in masked
    assert MASK in masked


def test_values_of_the_environments_secrets_are_masked() -> None:
    long = {
        "HF_TOKEN": "hf_abcdefghij",
        "HF_TOKEN_LONG_KEY": "hf_abcdefghij_more",
        "SHORT_KEY": "1",
        "HOME": "/home/me",
    }
    assert redact("saw hf_abcdefghij_more, hf_abcdefghij, 1, /home/me", long) == "saw ***, ***, 1, /home/me"


def test_text_that_is_no_utf8_becomes_so() -> None:
    redact("caf\udce9", {}).encode()


def test_the_lines_of_a_long_secret_are_secrets() -> None:
    key = "first line of the key\nsecond line of the key"
    assert redact("saw 'second line of the key'", {"SSH_PRIVATE_KEY": key}) == "saw '***'"


def test_an_argument_is_no_secret_for_being_code() -> None:
    """What is stored must not be refused, nor masked in a script, for a line of Python in it."""
    assert kind_of_secret("token = tokenizer.get_special_token(x)", {}) is None
    assert kind_of_secret('{"hub_token": "hunter2"}', {}) == "the value of hub_token"
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


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "piece",
    [
        *("a.", "a=", "token=", "token ", "--a", "--token ", "-eyJ", "://a:", "https://", "Bearer ", "authorization: "),
        *("-----BEGIN PRIVATE KEY-----", '"token": ', "\\", "x", " ", "hf_", "sk-", "@", "'", "a_"),
    ],
)
def test_no_log_takes_long(piece: str) -> None:
    """The end of a trainer's log, made to be slow."""
    before = time.process_time()
    redact(piece * (256 * 1024 // len(piece)), {"A_TOKEN": "x" * 20})
    assert time.process_time() - before < 20
