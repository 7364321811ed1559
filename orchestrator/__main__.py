"""The program of the command `tunebench`. It can also be started with `python -m orchestrator`."""

import signal
import sys
from pathlib import Path


def main() -> None:
    """Import the command and run it. A Ctrl-C during the import ends this process without a traceback."""
    heard = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # else the caller ignores Ctrl-C
    if heard:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from orchestrator import cli

    if heard:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    cli.main()


if __name__ == "__main__":
    if (here := str(Path(__file__).resolve().parents[1])) not in sys.path:
        sys.path.insert(0, here)  # for `python -P`, if this package is not installed
    main()
