"""A YAML file as plain values, with the line and column of each key and item.

Too large or too deep files, alias bombs, encodings other than UTF-8 and duplicate keys are refused. Anchors and merge keys work.
Values follow YAML 1.1 (`yes` is True, `2e-5` is a text), as users' files for trainers do. Other modules of `config` check the keys.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import yaml

from orchestrator.errors import ConfigError, Problem
from orchestrator.files.printable_text import quoted
from orchestrator.files.redaction import named_secrets, redact_values

MAX_BYTES, MAX_DEPTH = 8 * 1024 * 1024, 60
MAX_VALUES, MAX_EXPANDED = 200_000, 1_000_000
# A whole number with more digits may not fit into a float. Python refuses to print a number with more than 4,300 digits.
MAX_DIGITS = 300

YamlPath = tuple[str | int, ...]
_CLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NO_VALUE = (ValueError, OverflowError, KeyError, IndexError, AttributeError)  # raised by YAML's tags: `!!bool perhaps`
_SURROGATE = re.compile("[\\ud800-\\udfff]")
# Part of a message of PyYAML → what to do.
_CURES = (
    ("mapping values are not allowed", "; quote a text that contains ': ', and check the indentation"),
    ("unexpected end of stream", "; close the quote or bracket"),
    ("undefined alias", "; define the anchor (&name) before its alias (*name)"),
    ("did not find expected", "; check the indentation, the brackets and the quotes"),
    ("found another document", "; keep one of them"),
    ("a tab", "; indent with spaces"),
    ("unknown escape", "; in double quotes write \\\\ for a backslash, or use single quotes"),
    ("block sequence entries", "; begin the list on a new line, or write [a, b]"),
    ("second occurrence", "; give each anchor (&name) another name"),
)
_TAG = "tag:yaml.org,2002:"
_MAP, _SEQ, _MERGE, _VALUE, _NULL = (_TAG + word for word in ("map", "seq", "merge", "value", "null"))


class _Loader(_CLoader):  # type: ignore[misc]
    """PyYAML's loader, with a limit for the size of whole numbers, and with dates as texts."""

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        # The length is checked first, because numbers in base 60 (`1:59:59`) take quadratic time.
        if len(node.value) > 4 * MAX_DIGITS or abs(value := super().construct_yaml_int(node)) >= 10**MAX_DIGITS:
            raise OverflowError
        return int(value)

    def construct_yaml_timestamp(self, node: yaml.ScalarNode) -> str:
        return str(super().construct_yaml_timestamp(node))


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)
_Loader.add_constructor("tag:yaml.org,2002:timestamp", _Loader.construct_yaml_timestamp)


@dataclass(frozen=True, kw_only=True)
class Document:
    """The content of a file. `marks` maps the path of a key or item to its line and column. Lines and columns count from 1."""

    file: Path
    value: Any
    marks: Mapping[YamlPath, tuple[int, int]] = field(default_factory=dict)

    def place(self, path: YamlPath) -> tuple[int, int]:
        """Return line and column of `path`, or of its nearest parent that is in the file."""
        parents = (path[:length] for length in range(len(path), -1, -1))
        return next((self.marks[parent] for parent in parents if parent in self.marks), (1, 1))

    def problem(self, path: YamlPath, message: str) -> Problem:
        line, column = self.place(path)
        return Problem(file=self.file, line=line, column=column, message=redact_values(message, self._secrets))

    @cached_property
    def _secrets(self) -> Mapping[str, str]:
        """The texts in the file that must not be in a message, because their names are those of secrets."""
        return named_secrets(self.value)


def read_document(file: Path, *, texts: Collection[str] = ()) -> Document:
    """Return the content of one YAML file. Raises ConfigError. Its problems name file, line and column.

    The values of the file's keys `texts` stay as written. Other values are read as YAML 1.1, in which `2:00:00` is the number 7200.
    """
    text = _read_text(file)
    try:
        _refuse_extent(file, text)
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                raise _error(file, None, "the file is empty; write its keys or remove the file")
            _refuse_bomb(file, node)
            reader = _Reader(file, loader, texts)
            value = reader.construct(node, ())
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise _yaml_error(file, error, text) from None
    if reader.problems:
        raise ConfigError(reader.problems)
    return Document(file=file, value=value, marks=reader.marks)


def read_or_report(file: Path, problems: list[Problem]) -> Document | None:
    """Return the content of one YAML file. If it has mistakes, append them to `problems` and return None."""
    try:
        return read_document(file)
    except ConfigError as error:
        problems.extend(error.problems)
        return None


def parse_scalar(text: str) -> Any:
    """Parse a text from the command line as YAML 1.1, and return its value.

    Return the text itself if it is not valid YAML, or if it has what would be a comment in a file: a command line has no comments.
    """
    if text.count("[") + text.count("{") > MAX_DEPTH:
        return text
    try:
        if "#" in text and (
            (node := yaml.compose(text, Loader=_Loader)) is None or text[node.end_mark.index :].strip()
        ):
            return text
        value = yaml.load(text, Loader=_Loader)
    except (yaml.YAMLError, RecursionError, *_NO_VALUE):
        return text
    if "\\x00" in repr(value):  # no command line can contain NUL
        return text
    return text if value is None and text.strip() not in ("null", "~", "Null", "NULL") else value


def _read_text(file: Path) -> str:
    try:
        with file.open("rb") as stream:  # limited, because a pipe has no size, and a device has no end
            raw = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise _error(file, None, f"cannot be read ({error.strerror or error}); check the path") from None
    if len(raw) > MAX_BYTES:
        raise _error(
            file, None, f"the file exceeds the limit of {MAX_BYTES // 2**20} MiB; check that it is the right file"
        )
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        message = f"byte {raw[error.start]:#04x} is not UTF-8; save the file as UTF-8"
        raise ConfigError([Problem(file=file, line=line, message=message)]) from None
    unprintable = yaml.reader.Reader.NON_PRINTABLE.search(text)
    if unprintable:
        line, start = text.count("\n", 0, unprintable.start()) + 1, text.rfind("\n", 0, unprintable.start())
        message = f"the control character {unprintable[0]!r} is not allowed in YAML; remove it"
        raise ConfigError([Problem(file=file, line=line, column=unprintable.start() - start, message=message)])
    return text


def _refuse_extent(file: Path, text: str) -> None:
    """Raise ConfigError if the file is nested too deeply, or has so many values that reading takes too long."""
    depth = values = 0
    for event in yaml.parse(text, Loader=_Loader):
        values += isinstance(event, yaml.NodeEvent)
        if values > MAX_VALUES:
            cure = "write many cells as axes of matrix:, or split the file"
            raise _error(file, event.start_mark, f"the file has more than {MAX_VALUES:,} values; {cure}")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                raise _error(file, event.start_mark, f"the value is nested deeper than {MAX_DEPTH} levels; flatten it")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _refuse_bomb(file: Path, root: yaml.Node) -> None:
    """Count the values that the file would have with its aliases expanded.

    Raises ConfigError if the memory cannot hold so many values.
    """
    measured: dict[int, tuple[int, int] | None] = {}

    def measure(node: yaml.Node) -> tuple[int, int]:
        if id(node) in measured:
            known = measured[id(node)]
            if known is None:  # the node is being measured
                raise _error(file, node.start_mark, "the anchor contains itself; remove the alias inside it")
            return known
        measured[id(node)] = None
        children = [measure(child) for child in _children(node)]
        values = 1 + sum(count for count, _ in children)
        depth = 1 + max((level for _, level in children), default=0)
        if values > MAX_EXPANDED:
            raise _error(file, node.start_mark, f"the aliases expand to more than {MAX_EXPANDED:,} values; remove some")
        if depth > MAX_DEPTH + 1:
            raise _error(file, node.start_mark, f"the aliases nest deeper than {MAX_DEPTH} levels; remove some")
        measured[id(node)] = values, depth
        return values, depth

    measure(root)


def _children(node: yaml.Node) -> Iterable[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return chain.from_iterable(node.value)
    return node.value if isinstance(node, yaml.SequenceNode) else ()


class _Reader:
    """Turns nodes into values, and collects their marks and problems."""

    def __init__(self, file: Path, loader: Any, texts: Collection[str] = ()) -> None:
        self.file, self.loader, self.texts = file, loader, texts
        self.marks: dict[YamlPath, tuple[int, int]] = {}
        self.problems: list[Problem] = []

    def construct(self, node: yaml.Node, path: YamlPath) -> Any:
        self.marks.setdefault(path, (node.start_mark.line + 1, node.start_mark.column + 1))
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            if node.tag != _SEQ:
                return self._refuse_tag(node)
            return [self.construct(item, (*path, index)) for index, item in enumerate(node.value)]
        return self._scalar(node, is_text=len(path) == 1 and path[0] in self.texts and node.tag != _NULL)

    def _scalar(self, node: yaml.Node, *, is_text: bool = False) -> Any:
        if node.tag == _VALUE:  # YAML 1.1 gives a bare `=` a tag that no one uses
            return node.value
        try:
            value = str(node.value) if is_text else self.loader.construct_object(node)
        except yaml.YAMLError:
            return self._refuse_tag(node)
        except OverflowError:
            return self._note(node, f"{quoted(node.value, longest=60)} is too large a number; quote it if it is a text")
        except _NO_VALUE:
            kind = node.tag.rsplit(":", 1)[-1]
            return self._note(node, f"{quoted(node.value, longest=60)} is not a valid {kind}; quote it if it is a text")
        if isinstance(value, str):
            if "\0" in value:
                return self._note(node, "the text contains the character NUL; remove it")
            if _SURROGATE.search(value):
                return self._note(node, "the text contains half of a surrogate pair; write the character itself")
        return value

    def _mapping(self, node: yaml.MappingNode, path: YamlPath) -> Any:
        if node.tag != _MAP:
            return self._refuse_tag(node)
        own: dict[Any, yaml.Node] = {}
        merged: dict[Any, yaml.Node] = {}
        for key_node, value_node in node.value:
            if key_node.tag == _MERGE:
                merged = {**self._merged(value_node), **merged}
                continue
            key = self._key(key_node)
            if key in own:
                self._note(key_node, f"the key {key!r} is used twice; keep one of them")
            own[key] = value_node
            self.marks[(*path, str(key))] = (key_node.start_mark.line + 1, key_node.start_mark.column + 1)
        return {key: self.construct(value, (*path, str(key))) for key, value in {**merged, **own}.items()}

    def _merged(self, node: yaml.Node) -> dict[Any, yaml.Node]:
        """Return the keys that `<<:` adds. If several mappings have the same key, the first mapping counts.

        Each of these mappings may itself contain `<<:`.
        """
        if isinstance(node, yaml.SequenceNode):
            result: dict[Any, yaml.Node] = {}
            for item in node.value:
                result = {**self._merged(item), **result}
            return result
        if not isinstance(node, yaml.MappingNode):
            self._note(node, "'<<' needs a mapping or a list of mappings; write an alias such as *name")
            return {}
        own = {self._key(key): value for key, value in node.value if key.tag != _MERGE}
        for key, value in node.value:
            if key.tag == _MERGE:
                own = {**self._merged(value), **own}
        return own

    def _key(self, node: yaml.Node) -> Any:
        if not isinstance(node, yaml.ScalarNode):
            self._note(node, "a list or a mapping can't be a key; write a single word")
            return None
        return self._scalar(node)

    def _refuse_tag(self, node: yaml.Node) -> None:
        self._note(node, f"the tag {node.tag.replace(_TAG, '!!')} is not allowed; write a plain value without it")

    def _note(self, node: yaml.Node, message: str) -> None:
        mark = node.start_mark
        self.problems.append(Problem(file=self.file, line=mark.line + 1, column=mark.column + 1, message=message))


def _error(file: Path, mark: Any, message: str) -> ConfigError:
    line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
    return ConfigError([Problem(file=file, line=line, column=column, message=message)])


def _yaml_error(file: Path, error: yaml.YAMLError, text: str) -> ConfigError:
    """Return PyYAML's message with its position in the file. For a frequent mistake, also say what to do."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    message = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error).splitlines()[0]
    if "cannot start any token" in message and mark:
        first = text[mark.index : mark.index + 1]
        message = f"a text that begins with {first} must be quoted" if first != "\t" else "a tab is here"
    cure = next((cure for words, cure in _CURES if words in message), "")
    opened = getattr(error, "context_mark", None)
    begin = f" (it began in line {opened.line + 1})" if opened and mark and opened.line != mark.line else ""
    return _error(file, mark, f"not valid YAML: {message.removeprefix('but ')}{begin}{cure}")
