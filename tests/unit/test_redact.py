"""What counts as a secret, and that its value does not pass."""

import pytest

from orchestrator.redact import is_secret_name, redact


@pytest.mark.parametrize(
    "name", ["HF_TOKEN", "hub_token", "WANDB_API_KEY", "wandb-api-key", "--password", "AWS_SECRET"]
)
def test_names_of_secrets(name):
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "TOKENIZERS_PARALLELISM",
        "pad_token",
        "num_input_tokens",
        "KEYBOARD",
        "model_name_or_path",
        "model_flops_per_token",
    ],
)
def test_harmless_names(name):
    assert not is_secret_name(name)


def test_values_of_the_environments_secrets_are_masked():
    environ = {
        "HF_TOKEN": "hf_abcdefghij",
        "HF_TOKEN_LONG_KEY": "hf_abcdefghij_more",
        "SHORT_KEY": "1",
        "HOME": "/home/me",
    }
    assert redact("saw hf_abcdefghij_more, hf_abcdefghij, 1, /home/me", environ) == "saw ***, ***, 1, /home/me"


def test_passwords_in_urls_are_masked():
    assert redact("pkg @ git+https://me:pw@example.org/x.git", {}) == "pkg @ git+https://***@example.org/x.git"


def test_text_that_is_no_utf8_becomes_so():
    redact("caf\udce9", {}).encode()
