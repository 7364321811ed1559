"""A campaign as one file for other people.

It has records, series, reports and the ends of logs, but no secrets and no machine names.

Secrets are masked, also those that other reports do not recognise (`unnamed_secrets`). Names of hosts and users are replaced by
fixed words (`names`). MANIFEST.json lists the files and everything that was left out or cut, and counts what was hidden.
The same folder gives the same bytes. Nothing in the folder is run or changed.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from orchestrator.errors import OrchestratorError, ResultsError
from orchestrator.files import reading
from orchestrator.files.markdown import EMPTY_COMMENT
from orchestrator.files.printable_text import counted
from orchestrator.files.redaction import MASK, redact, redact_end
from orchestrator.report.bundle.archive import Add, archive, new_file
from orchestrator.report.bundle.contents import LOG_END_BYTES, PICKLE, Content, LeftOut, Piece, content, survey
from orchestrator.report.bundle.gathering import gather
from orchestrator.report.bundle.names import Names
from orchestrator.report.bundle.progress import Say, announced
from orchestrator.report.bundle.unnamed_secrets import UnnamedSecrets
from orchestrator.results.folder import TOOL
from orchestrator.results.store import Store

__all__ = ["MANIFEST", "Bundled", "bundle", "summary"]

MANIFEST, SCHEMA = "MANIFEST.json", 2

# Parts of a page that are the same in every campaign. The policy in the head names each script by its digest.
_PROGRAMS = re.compile(
    r"""(<meta http-equiv=[^>]*>|<script(?: type="text/plain" id="plotly")?>.*?</script>)""", re.DOTALL
)

_MISSING = "the folder does not have this experiment, although it was requested"


def _silent(_sentence: str) -> None:
    """Say nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Bundled:
    """A written bundle: its file, its size in bytes, its manifest, and a warning for each experiment that the folder lacks."""

    path: Path
    size: int
    manifest: dict[str, Any]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class _Hide:
    """A function that returns a text without secrets and names."""

    names: Names
    unnamed: UnnamedSecrets

    def __call__(self, text: str) -> str:
        return self.names.hide(self.secrets(text))

    def secrets(self, text: str) -> str:
        return redact(text, also=self.unnamed.find)


def bundle(folder: Path, *, output: Path | None = None, whole_logs: bool = False, say: Say = _silent) -> Bundled:
    """Write the bundle of a campaign. If this takes long, `say` gets sentences about the progress.

    Raise OrchestratorError if the folder is not a results folder, if the output file exists already, or if results go away
    meanwhile.
    """
    store = Store.resume(folder)
    root = reading.resolved(store.root)
    if reading.resolved(output or Path.cwd()).is_relative_to(root):
        place = output or "the current folder"
        raise OrchestratorError(
            f"{place} is in the results folder, which contains only results; name another file with --output"
        )
    present = store.ids()
    # An experiment whose folder is there is packed as it is.
    missing = {name: why for name, why in store.missing(present).items() if not (root / "experiments" / name).is_dir()}
    contents = [*survey(root), *(LeftOut(path=f"experiments/{name}", why=_MISSING) for name in missing)]
    pieces = [entry for entry in contents if isinstance(entry, Piece)]
    results = [*(root / "experiments" / name for name in present), *(one.source for one in pieces if one.is_a_result)]
    known = gather(announced(pieces, "looking for names", whole_logs=whole_logs, say=say), whole_logs=whole_logs)
    hide = _Hide(names=Names(known), unnamed=UnnamedSecrets(os.environ, known.identifiers))
    name = _folder_name(root, hide)
    target = output or Path(f"{name}.tar.gz")
    left_out = [entry for entry in contents if isinstance(entry, LeftOut)]
    manifest: dict[str, Any] = {"tool": TOOL, "schema": SCHEMA, "files": [], "cut": [], "secrets": 0}
    manifest["forms"] = hide.unnamed.source
    with new_file(target) as file:
        with archive(file, folder=name) as add:
            for piece in announced(pieces, "packing", whole_logs=whole_logs, say=say):
                refusal = _add(add, piece, hide, manifest, whole_logs=whole_logs)
                left_out += [LeftOut(path=piece.path, why=refusal)] if refusal else []
            manifest["left_out"] = [asdict(entry) | {"path": hide(entry.path)} for entry in left_out]
            manifest["hidden"] = {kind: len(names) for kind, names in sorted(hide.names.found.items()) if names}
            add(MANIFEST, json.dumps(manifest, indent=2) + "\n")
        _check_none_went(results)
        size = file.tell()
    return Bundled(path=target, size=size, manifest=manifest, warnings=tuple(missing.values()))


def _check_none_went(results: Sequence[Path]) -> None:
    """Raise ResultsError if one of these files and folders is gone: a bundle without it would look complete."""
    for path in results:
        if not os.path.lexists(path):
            raise ResultsError(
                f"{path}: it went away while the bundle was written, so there is no bundle; mount the disk of this folder, or "
                "restore the folder, and repeat the command"
            )


def _folder_name(root: Path, hide: _Hide) -> str:
    """Return the name of the folder inside the bundle.

    This name differs from the name of the campaign's folder, so that the bundle can be unpacked next to that folder.
    """
    tame = "".join(letter if letter.isalnum() or letter in "._-" else "-" for letter in hide(root.name))
    return f"{tame[:100].strip('.') or 'campaign'}-bundle"


def _add(add: Add, piece: Piece, hide: _Hide, manifest: dict[str, Any], *, whole_logs: bool) -> str | None:
    """Put a file into the archive. Return None, or the reason why the file is left out."""
    if hide.secrets(piece.path) != piece.path:
        return "its name contains a secret"
    try:
        read = content(piece, whole_logs=whole_logs)
    except (OSError, reading.Unreadable) as error:
        return reading.reason(error)
    path, text = hide.names.hide(piece.path), _clean(piece, read, hide)
    manifest["secrets"] += max(0, text.count(MASK) - read.text.count(MASK))
    manifest["cut"] += [path] if read.cut else []
    manifest["files"].append({"path": path, **add(path, text)})
    return None


def _clean(piece: Piece, read: Content, hide: _Hide) -> str:
    if piece.path.endswith(".html"):
        parts = _PROGRAMS.split(read.text)
        parts[::2] = [hide(part) for part in parts[::2]]
        return "".join(parts)
    text = read.text
    if piece.path.endswith(".md"):
        text = text.replace(EMPTY_COMMENT, "")  # an address that contains this comment would not be recognised
    is_csv = piece.path.endswith(".csv")
    return hide.names.hide(redact_end(text, cut=read.cut, also=hide.unnamed.find), is_csv=is_csv)


def summary(done: Bundled) -> Iterator[str]:
    """Yield the lines that report a written bundle to the user."""
    manifest = done.manifest
    yield f"wrote {done.path}: {len(manifest['files'])} files, {done.size / reading.MIB:.2f} MiB"
    counts = {"secret": manifest["secrets"], **manifest["hidden"]}
    hidden = ", ".join(f"{count} {kind}(s)" for kind, count in counts.items() if count)
    yield f"hidden: {hidden or 'nothing'}"
    if not manifest["forms"]:
        yield "detect-secrets is not installed, so tokens of some providers are not recognised; install it and bundle again"
    if manifest["left_out"]:
        yield f"left out: {len(manifest['left_out'])} file(s) or folder(s), such as {manifest['left_out'][0]['path']}"
    if pickles := sum(entry["why"] == PICKLE for entry in manifest["left_out"]):
        yield f"{counted(pickles, 'pickle')} left out: {PICKLE}"
    if manifest["cut"]:
        yield f"cut: {len(manifest['cut'])} log(s) to the last {LOG_END_BYTES // 1024} KiB; --whole-logs takes whole logs"
    yield f"{MANIFEST} in the bundle lists all of this. Names of projects, models and data are not hidden: look before you send it."
