"""Make text from anywhere safe to show: characters that control a terminal or hide text become visible signs.

Names, arguments and lines of logs may contain escape sequences. Such sequences set colours, set the window's title, or make the
terminal type text. Carriage returns overwrite a line, and some marks reverse the direction of reading. Each of these control
characters and marks becomes one visible sign, so that columns stay aligned. Stored text is not changed.
"""

from __future__ import annotations

import math
import re
import shlex
from typing import Final

from orchestrator.errors import remedy
from orchestrator.files.redaction import redact

_TURNING = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_LINES = (0x2028, 0x2029)
_UNKNOWN = "\N{REPLACEMENT CHARACTER}"

_SHOWN: Final[dict[int, int | str]] = {
    **dict.fromkeys((*range(0x80, 0xA0), *_TURNING, *_LINES, *range(0xD800, 0xE000)), _UNKNOWN),
    # Unicode's pictures of control characters: ␀ for 0, ␛ for 27.
    **{code: 0x2400 + code for code in range(0x20) if code not in (0x09, 0x0A)},
    0x7F: 0x2421,
}
_UNFIT: Final = re.compile(
    "[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069\\ud800-\\udfff]"
)
_HALF: Final = re.compile("[\\ud800-\\udfff]")
_NUMBER: Final = re.compile(r"\d[\d.,]*")
_STYLE: Final = re.compile(r"\x1b\[[0-9;:]*m")


def printable(text: str) -> str:
    """Return the text with visible signs instead of control characters and marks of direction. Tabs and newlines stay."""
    return text.translate(_SHOWN) if _UNFIT.search(text) else text


def one_line(value: object, *, longest: int = 60) -> str:
    """Return any value as printable text on one line of at most `longest` characters.

    Mask secrets before the text is cut, because half a secret is not recognised.
    """
    text = _joined_words(str(value))
    text = text if len(text) <= longest else _joined_words(redact(str(value)))
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def quoted(value: object, *, longest: int = 80) -> str:
    """Return any value as Python writes it, as `one_line` does."""
    return one_line(repr(value), longest=longest)


def _joined_words(text: str) -> str:
    return " ".join(printable(text).split())


def refusal(error: OSError) -> str:
    """Return a sentence about a file that the system refused to read or write: its path, the reason, and what to do."""
    return f"{one_line(str(error.filename or 'a file'), longest=300)}: {error.strerror}; {remedy(error)}"


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun: "1 row", "12 rows"."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def from_the_difference(text: str, other: str, *, longest: int) -> tuple[str, str]:
    """Return two texts. If they begin alike and are too long, each is without its beginning, so that the difference is seen."""
    shorter = min(len(text), len(other))
    alike = next((at for at in range(shorter) if text[at] != other[at]), shorter)
    if max(len(text), len(other)) <= longest or alike <= longest // 2:
        return text, other
    start = alike - longest // 4
    return f"…{text[start:]}", f"…{other[start:]}"


def without_numbers(text: str) -> str:
    """Return the text with 0 for each number. Sentences about alike events then are equal."""
    return _NUMBER.sub("0", text)


def rounded(number: float, digits: int) -> str:
    """Return a number with this many significant digits, or a larger one as a whole number: never as `1e+03` or `1e-05`."""
    text = f"{number:,.0f}" if abs(number) >= 10**digits - 0.5 else f"{number:.{digits}g}"
    return f"{number:.{digits - 1 - math.floor(math.log10(abs(number)))}f}" if "e-" in text else text


def joined_lines(text: str) -> str:
    """Return a text of several lines as one line. A second line would end a comment or a table's cell."""
    return printable(" ".join(text.splitlines()))


def without_styles(text: str) -> str:
    """Return a log's text without its colours."""
    return _STYLE.sub("", text)


def is_printable(text: str) -> bool:
    """Return whether a terminal shows the text unchanged."""
    return _UNFIT.search(text) is None


def is_utf8(text: str) -> bool:
    """Return whether a UTF-8 file can store the text.

    In arguments, variables and paths, Python represents bytes that are not UTF-8 as surrogates ("half characters").
    """
    return _HALF.search(text) is None


def with_bytes(text: str) -> str:
    """Return the text with each half character as an escape that people can read: `\\xff`."""

    def written(match: re.Match[str]) -> str:
        half = ord(match[0])
        return f"\\x{half - 0xDC00:02x}" if 0xDC80 <= half <= 0xDCFF else f"\\u{half:04x}"

    return _HALF.sub(written, text)


def escaped(text: str) -> str:
    """Return JSON text with `\\uXXXX` instead of each character that is unfit for a terminal.

    Valid JSON has such characters only inside strings.
    """
    return _UNFIT.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def shell_word(text: str) -> str:
    """Return the text as one word for bash, quoted only where needed. A character unfit for a terminal becomes `$'\\x1b'`."""
    if is_printable(text):
        return shlex.quote(text)
    return "$'" + "".join(_for_bash(character) for character in text) + "'"


def _for_bash(character: str) -> str:
    if character in "'\\":
        return f"\\{character}"
    if is_printable(character):
        return character
    return "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", "surrogateescape"))
