"""A sentence about operators that wait for the host: faster kernels would not make their calls faster."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.files.printable_text import counted
from orchestrator.report.highlights.highlight import Highlight, HighlightKind, Known
from orchestrator.report.highlights.labels import listed
from orchestrator.report.highlights.wording import percent
from orchestrator.results.table.column_choice import column

# With a larger share, the time of the device decides.
LEAST_BUSY = 0.5


def host_bound(known: Known) -> Iterator[Highlight]:
    """Yield a sentence if the device computes for less than LEAST_BUSY of a call. The smallest shares come first.

    Experiments in doubt are left out: a busy host needs longer for each launch.
    """
    count = len(column(known.table.experiments, "id"))
    busy = {row: share for row in range(count) if (share := known.numbers("device_busy_share", row)) is not None}
    is_waiting = (row for row in busy if busy[row] < LEAST_BUSY and not known.in_doubt(row))
    waiting = sorted(is_waiting, key=lambda row: busy[row])
    if waiting:
        names = listed([f"{known.names.whole(row)}: {percent(busy[row])}" for row in waiting])
        verb = "is" if len(waiting) == 1 else "are"
        text = (
            f"{counted(len(waiting), 'experiment')} {verb} host-bound: the device computes for less than half of a call ({names}), "
            "so compare the host's time; fewer launches or a CUDA graph help, faster kernels do not"
        )
        yield known.sentence(HighlightKind.GAIN, text, waiting)
