"""A program that searches a log for a user's pattern: `log_search.py LOG BYTES SECONDS LINES PATTERN`.

It writes the last match as JSON. LINES is `all` or `whole`. If it is `whole`, a last line without a line end does not count.

The search for a pattern that backtracks may take years, and a signal handler in Python cannot reliably end the search. So the
search has a process of its own. This process ends by itself after SECONDS, even if the process that started it is gone. The program
imports only the standard library.
"""

from __future__ import annotations

import json
import re
import signal
import sys


def last_match(pattern: str, text: str) -> str | None:
    """Return the group of the last match, or the whole match if the pattern has no group. Return None if nothing matches."""
    last: str | None = None
    for match in re.finditer(pattern, text, re.MULTILINE):
        last = match[1] if match.re.groups else match[0]
    return last


def main(log: str, limit: str, seconds: str, lines: str, pattern: str) -> None:
    signal.setitimer(signal.ITIMER_REAL, float(seconds))  # without a handler, the signal ends the process at once
    with open(log, "rb") as file:
        file.seek(max(0, file.seek(0, 2) - int(limit)))
        text = file.read(int(limit)).decode("utf-8", "replace")
    if lines == "whole":
        text = text[: max(map(text.rfind, "\r\n")) + 1]
    sys.stdout.write(json.dumps(last_match(pattern, text)))


if __name__ == "__main__":
    main(*sys.argv[1:])
