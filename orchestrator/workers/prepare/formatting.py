"""Turns rows of a training set into text, and text into tokens with labels. This module reads no file.

Text is made in one of three ways:

- a chat template: the row is the only message in the list of messages that the template gets;
- the instruct format (the default): a fixed prompt and the answer;
- `none`: a field of the row is the text.

Either all tokens are labels, or only those of the response. The response is the text after the last `response_template`. Or it is
the content of `response_field`: this content is appended to the rendered text. A tokenizer has `encode` as in `tokenizing.py`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Dict, Optional

Row = Dict[str, Any]
IGNORED = -100
FORMATTINGS = ("instruct", "none")

WITH_INPUT = (
    "Below is an instruction that describes a task, paired with an input that provides further context. "
    "Write a response that appropriately completes the request.\n\n"
    "### Instruction:\n{instruction}\n\n### Input:\n{input}\n\n### Response:"
)
WITHOUT_INPUT = (
    "Below is an instruction that describes a task. "
    "Write a response that appropriately completes the request.\n\n"
    "### Instruction:\n{instruction}\n\n### Response:"
)


class PreparationError(Exception):
    """An error in the preparation of data. Its text is one sentence that says what to do."""


@dataclasses.dataclass(frozen=True)
class Spec:
    """A request to prepare data: the fields of the orchestrator's `DataSpec`, and the folder to make."""

    source: str
    path: str
    form: str = "tokens"
    split: Optional[str] = None
    formatting: Optional[str] = None
    chat_template: Optional[str] = None
    tokenize: bool = False
    input_field: str = "input"
    text_field: str = "output"
    response_field: Optional[str] = None
    response_template: Optional[str] = None
    tokenizer: Optional[str] = None
    vocab_size: Optional[int] = None
    max_length: Optional[int] = None
    samples: Optional[int] = None
    seed: int = 0
    fingerprint: Optional[str] = None
    tokenizer_fingerprint: Optional[str] = None

    @property
    def wants_tokens(self) -> bool:
        return self.form == "tokens" or self.tokenize

    @property
    def response_only(self) -> bool:
        return self.wants_tokens and bool(self.response_template or self.response_field)


@dataclasses.dataclass(frozen=True)
class Sample:
    """The text of a row.

    `prompt` is the part before a separate response; the model does not learn it. `prompt` is None without a separate response.
    """

    text: str
    prompt: Optional[str] = None


@dataclasses.dataclass(frozen=True)
class Tokenized:
    input_ids: Sequence[int]
    labels: Sequence[int]


def check_spec(spec: Spec) -> None:
    """Refuse a spec that cannot be prepared, before any data is read."""
    if spec.form not in ("tokens", "text"):
        raise PreparationError(f"form is {spec.form!r}; allowed are tokens and text.")
    if spec.formatting is not None and spec.formatting not in FORMATTINGS:
        raise PreparationError(f"formatting is {spec.formatting!r}; allowed are {' and '.join(FORMATTINGS)}.")
    if spec.max_length is not None and spec.max_length < 2:
        raise PreparationError(f"the length is {spec.max_length}; give 2 or more.")
    if spec.samples is not None and spec.samples < 1:
        raise PreparationError(f"samples is {spec.samples}; give 1 or more.")
    if spec.seed < 0:
        raise PreparationError(f"seed is {spec.seed}; give 0 or more.")
    if spec.formatting == "none" and not spec.chat_template and not spec.wants_tokens:
        raise PreparationError(
            "formatting 'none' without tokenize leaves nothing to prepare; set tokenize: true, or formatting: instruct."
        )
    unmasked = not spec.response_template and not spec.response_field
    if spec.form == "text" and spec.chat_template and spec.tokenize and unmasked:
        raise PreparationError(
            "a chat_template with tokenize: true needs response_template or response_field, to know where the "
            "response begins; set one of them."
        )


# --- text ------------------------------------------------------------------------------------------------------------


def format_rows(rows: Sequence[Row], spec: Spec, *, special_tokens: Mapping[str, str]) -> list[Sample]:
    """Return every row as text. Raise PreparationError for the first row that cannot become text."""
    template = compiled(spec.chat_template) if spec.chat_template else None
    samples = []
    for number, row in enumerate(rows, start=1):
        with of_row(number, row, spec):
            if template is not None:
                sample = chat(row, spec, template=template, special_tokens=special_tokens)
            elif spec.formatting == "none":
                sample = Sample(text=str(field(row, spec.text_field)))
            else:
                sample = instruct(row, spec)
            sample.text.encode()  # JSON may contain half a character, which no file and no tokenizer takes
            samples.append(sample)
    return samples


@contextlib.contextmanager
def of_row(number: int, row: Row, spec: Spec) -> Iterator[None]:
    """Turn every error in a block into a PreparationError about this row.

    The text of a PreparationError in the block continues the sentence that begins with the row.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, PreparationError):
            said = str(error)
        elif isinstance(error, KeyError):
            none = "formatting: none" if spec.wants_tokens else "formatting: none with tokenize: true"
            other = spec.chat_template or spec.formatting == "none"
            cure = "" if other else f" ({none} takes dataset_text_field as it is)"
            said = f"has no field {error.args[0]!r}; it has {', '.join(map(repr, row))}{cure}."
        else:
            said = f"cannot be prepared: {type(error).__name__}: {error}; correct or remove this row."
        raise PreparationError(f"row {number} of {spec.source!r} {said}") from error


def field(row: Row, name: str) -> Any:
    """Return a field that becomes text. Raise KeyError if it is missing, and PreparationError if it is null."""
    if row[name] is None:
        raise PreparationError(f"has null in the field {name!r}; write a text there, or remove the row.")
    return row[name]


def instruct(row: Row, spec: Spec) -> Sample:
    """Return a sample: the prompt, a space and the answer. The prompt has a section for the input only if the row has an input."""
    if row.get(spec.input_field) in (None, ""):
        prompt = WITHOUT_INPUT.format(instruction=field(row, "instruction"))
    else:
        prompt = WITH_INPUT.format(instruction=field(row, "instruction"), input=field(row, "input"))
    answer = field(row, spec.response_field or spec.text_field)
    return Sample(text=f"{prompt} {answer}", prompt=prompt if spec.response_field else None)


def chat(row: Row, spec: Spec, *, template: Any, special_tokens: Mapping[str, str]) -> Sample:
    """Return the sample that the template makes of this row. If tokens are wanted, append the response field."""
    try:
        text = template.render(messages=[row], add_generation_prompt=False, **special_tokens)
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        raise PreparationError(f"makes the chat template fail: {said}; correct the template or the row.") from error
    if spec.wants_tokens and spec.response_field and not spec.response_template:
        return Sample(text=f"{text}{field(row, spec.response_field)}", prompt=text)
    return Sample(text=text)


def compiled(chat_template: str) -> Any:
    """Return the compiled template, with the sandbox and the block trimming of transformers."""
    try:
        import jinja2
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError as error:
        raise PreparationError(
            "a chat_template needs the package jinja2; install it in the environment that prepares the data."
        ) from error

    def refuse(message: str) -> None:
        raise jinja2.exceptions.TemplateError(message)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = functools.partial(json.dumps, ensure_ascii=False)
    environment.globals["raise_exception"] = refuse
    try:
        return environment.from_string(chat_template)
    except jinja2.exceptions.TemplateSyntaxError as error:
        raise PreparationError(f"the chat template has a mistake in line {error.lineno}: {error.message}") from error
    except (RecursionError, MemoryError, SyntaxError) as error:
        raise PreparationError(f"the chat template cannot be compiled: {error}; simplify it.") from error


# --- tokens ----------------------------------------------------------------------------------------------------------


def tokenize_samples(samples: Sequence[Sample], spec: Spec, *, tokenizer: Any) -> list[Tokenized]:
    """Return every sample as tokens and labels.

    A chat template writes special tokens itself, so no special tokens are added to its text, as in transformers. Other text
    gets the special tokens of the tokenizer. Every row ends with an end-of-sequence token, with one exception: a row that a
    chat template makes for a trainer other than the built-in trainer.
    """
    special = spec.chat_template is None
    close = tokenizer.eos_token_id if special or spec.form == "tokens" else None
    rows = []
    encoded = tokenizer.encode([sample.text for sample in samples], special=special)
    for sample, (ids, ends) in zip(samples, encoded):  # noqa: B905 (Python 3.9)
        start = response_start(sample, spec)
        labels = [token if end > start else IGNORED for token, end in zip(ids, ends)]  # noqa: B905
        ids = list(ids)
        if close is not None:
            if not ids or ids[-1] != close:
                ids.append(close)
                labels.append(close)
            labels[-1] = close if start <= len(sample.text) else IGNORED
        limit = spec.max_length if spec.form == "tokens" else None
        rows.append(Tokenized(input_ids=ids[:limit], labels=labels[:limit]))
    return rows


def response_start(sample: Sample, spec: Spec) -> int:
    """Return the position in the text where the labels begin. It is past the end if the response template is not found."""
    if sample.prompt is not None:
        return len(sample.prompt)
    if not spec.response_template:
        return -1
    place = sample.text.rfind(spec.response_template)
    return len(sample.text) + 1 if place < 0 else place + len(spec.response_template)
