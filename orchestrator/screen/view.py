"""Show a screen: the figures of each GPU, of the links and of the host, and sentences about what is off, in use or missing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from orchestrator.files.printable_text import counted
from orchestrator.measure.metrics import DASH
from orchestrator.records.as_json import dump
from orchestrator.screen.figures import CPU, KINDS, OF_A_GPU, Card, Figure, Off, Screen
from orchestrator.screen.judge import busy


def as_json(screen: Screen) -> str:
    """Return a screen as one JSON document."""
    return dump(screen)


def view(screen: Screen, *, stored_in: str) -> RenderableType:
    """Return a screen as it is printed."""
    parts: list[RenderableType] = [Text(_heading(screen), style="bold"), Text("")]
    if screen.cards:
        parts += [_of_gpus(screen), Text("")]
    parts += [_of_host(screen), Text("")]
    parts += [Text(sentence, style="red") for sentence in off_sentences(screen)]
    others = (*busy_sentences(screen), *in_use_sentences(screen), *_missing(screen))
    parts += [Text(sentence, style="yellow") for sentence in others]
    return Group(*parts, Text(_end(screen, stored_in)))


def _heading(screen: Screen) -> str:
    versions = [f"{name} {version}" for name, version in screen.software.items()]
    return f"{screen.host}: " + ", ".join([*([screen.cpu] if screen.cpu else []), *versions, f"{screen.took_s:.0f} s"])


def amount(name: str, value: float | None) -> str:
    """Return a value in its figure's unit, with three digits or more, and without the unit."""
    if value is None:
        return DASH
    shown = value / KINDS[name].scale
    return f"{shown:,.0f}" if shown >= 100 else f"{shown:.3g}"


def _of_gpus(screen: Screen) -> Table:
    """Return a table with a row for each figure and a column for each GPU."""
    table = _table("", "", *(f"GPU {card.index}" for card in screen.cards))
    values = {(figure.name, figure.gpus): figure.value for figure in screen.figures}
    for name in OF_A_GPU:
        kind, gpus = KINDS[name], [(card.index,) for card in screen.cards]
        table.add_row(kind.label, kind.unit, *(amount(name, values.get((name, one))) for one in gpus))
    table.add_row("PCIe", "", *((card.pcie or DASH).removeprefix("PCIe ") for card in screen.cards))
    table.add_row("NVLinks", "", *(DASH if card.nvlinks is None else str(card.nvlinks) for card in screen.cards))
    return table


def _of_host(screen: Screen) -> Table:
    """Return a table with the other figures: the median of five samples, the lowest and the highest."""
    table = _table("", "", "median", "lowest", "highest")
    ways = {link.gpus: link.kind for link in screen.links}
    for figure in screen.figures:
        if figure.name in OF_A_GPU or figure.value is None:
            continue
        way = ways.get((figure.gpus[0], figure.gpus[1])) if len(figure.gpus) == 2 else None
        label = f"{KINDS[figure.name].label}{', ' + subject(figure.gpus) if figure.gpus else ''}"
        label += f" ({way})" if way else "" if figure.gpus or figure.name == CPU else f" ({figure.like})"
        ends = (figure.value, min(figure.samples), max(figure.samples))
        table.add_row(label, KINDS[figure.name].unit, *(amount(figure.name, one) for one in ends))
    return table


def _table(*headings: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="left" if place < 2 else "right", overflow="fold")
    return table


def subject(gpus: Sequence[int]) -> str:
    """Return the GPUs of a figure in words."""
    if len(gpus) == 1:
        return f"GPU {gpus[0]}"
    return f"GPUs {' and '.join(map(str, gpus))}" if gpus else "this machine"


def off_sentences(screen: Screen) -> list[str]:
    """Return a sentence for each figure that is off. It names the other processes on these GPUs."""
    return [f"{subject(one.gpus)}: {off_words(one)}{_processes_on(screen, one)}" for one in screen.off]


def off_words(one: Off) -> str:
    """Return what is off: `bf16 matmul is 4.1% slower than the best of 2 GPUs (683 against 712 TFLOP/s)`."""
    kind = KINDS[one.name]
    both = f"{amount(one.name, one.value)} against {amount(one.name, one.reference)} {kind.unit}"
    return f"{kind.label} is {changed(one.share)} than {one.against} ({both})"


def changed(share: float) -> str:
    """Return a share in words. A share above 0 is faster."""
    return f"{abs(share):.1%} {'faster' if share > 0 else 'slower'}"


def _processes_on(screen: Screen, one: Off) -> str:
    names = [name for card in screen.cards if card.index in one.gpus for name in card.processes]
    if not names:
        return ""
    return f"; on it: {'; '.join(names)}" if len(one.gpus) == 1 else f"; on them: {'; '.join(names)}"


def busy_sentences(screen: Screen) -> list[str]:
    """Return a sentence if the host was busy, so that later screens are not compared with this one."""
    why = busy(screen)
    return [f"{why}; later screens are not compared with this one, so repeat it on an idle host"] if why else []


def in_use_sentences(screen: Screen) -> list[str]:
    """Return a sentence for each GPU that another program uses."""
    return [_in_use(card, card.used_bytes) for card in screen.cards if card.used_bytes is not None]


def _in_use(card: Card, used_bytes: int) -> str:
    names = "; ".join(card.processes) or "by no visible process"
    return f"GPU {card.index} is in use ({used_bytes / 2**30:.1f} GiB): {names}"


def warnings(screen: Screen) -> list[str]:
    """Return sentences about what may disturb a campaign: figures that are off, a busy host, GPUs in use, failed figures."""
    failed = [figure for figure in screen.figures if figure.failed]
    disturbed = (*busy_sentences(screen), *in_use_sentences(screen))
    return [*off_sentences(screen), *disturbed, *_missing(replace(screen, figures=tuple(failed)))]


def _missing(screen: Screen) -> Iterator[str]:
    """Yield a sentence for each reason of missing figures."""
    reasons: dict[str, list[Figure]] = {}
    for figure in screen.figures:
        if figure.missing is not None:
            reasons.setdefault(figure.missing, []).append(figure)
    for why, figures in reasons.items():
        names = dict.fromkeys(KINDS[figure.name].label for figure in figures)
        gpus = sorted({index for figure in figures for index in figure.gpus})
        where = f" of {subject(gpus)}" if gpus and len(gpus) < len(screen.cards) else ""
        yield f"missing: {', '.join(names)}{where}: {why}"


def _end(screen: Screen, stored_in: str) -> str:
    count, earlier = len(screen.off), counted(screen.earlier, "earlier screen")
    if count:
        verdict = f"{counted(count, 'figure')} {'is' if count == 1 else 'are'} off."
    elif screen.earlier:
        verdict = f"Nothing is off, compared with {earlier} of this machine."
    elif len(screen.cards) > 1:
        verdict = "Nothing is off among the GPUs. This machine has no earlier screen to compare with."
    else:
        verdict = "This machine has no earlier screen to compare the figures with."
    return f"{verdict} The figures are stored in {stored_in}."


def has_failed(screen: Screen) -> bool:
    """Return whether a figure is off, or could not be measured although this machine has what it needs."""
    return bool(screen.off) or any(figure.failed for figure in screen.figures)
