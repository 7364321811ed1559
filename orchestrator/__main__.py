"""The program of the command `tunebench`. It can also be started with `python -m orchestrator`."""

import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    del sys.path[0]  # the current folder: a module in it would replace one of the standard library

import os
import signal
from pathlib import Path

INTERRUPTED = 130


def main() -> None:
    """Import the command and run it. A signal before or after the command ends this process without a traceback."""
    asked_to_stop = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
    # A process inherits the signals that its caller blocks, as threads of some services do. They would wait for ever.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, asked_to_stop)
    before = {number: signal.getsignal(number) for number in asked_to_stop}
    # The caller ignores the other signals.
    heeded = [number for number, how in before.items() if how in (signal.default_int_handler, signal.SIG_DFL)]
    for number in heeded:
        signal.signal(number, lambda *_: os._exit(INTERRUPTED))
    from orchestrator import cli

    for number in heeded:  # each is a Ctrl-C, so that a command removes its unfinished files
        signal.signal(number, signal.default_int_handler)
    try:
        cli.main()
    except KeyboardInterrupt:  # a second signal, while the last output was written
        os._exit(INTERRUPTED)
    finally:
        for number in heeded:  # everything is written, so a signal can change only the exit code
            signal.signal(number, signal.SIG_IGN)


if __name__ == "__main__":
    if (here := str(Path(__file__).resolve().parents[1])) not in sys.path:
        sys.path.insert(0, here)  # if this package is not installed
    main()
