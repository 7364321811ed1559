"""A campaign as one file for other people: its records, series, reports and logs' ends, without what is nobody's business.

Secrets are masked as everywhere (`redact`); names of hosts and users and addresses have stand-ins, everywhere the same (`names`).
What was left out, cut or hidden is listed in MANIFEST.json, never by what it was. The same folder gives the same bytes. Nothing of
the folder is run, nothing in it written. To read a bundle needs no code of ours: tar unpacks it, for `report` to read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from orchestrator import untrusted
from orchestrator.bundle.archive import Archive, new_file
from orchestrator.bundle.contents import LOG_END_BYTES, Content, LeftOut, Piece, content, survey
from orchestrator.bundle.gathering import gather
from orchestrator.bundle.markup import but_for_its_scripts
from orchestrator.bundle.names import StandIns
from orchestrator.errors import OrchestratorError
from orchestrator.markdown import NOTHING
from orchestrator.redact import MASK, redact, redact_end
from orchestrator.results_folder import TOOL
from orchestrator.store import Store

__all__ = ["MANIFEST", "Bundled", "bundle", "summary"]

MANIFEST, SCHEMA = "MANIFEST.json", 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Bundled:
    """A bundle that was written: where, how large (bytes), and what its manifest says."""

    path: Path
    size: int
    manifest: dict[str, Any]


def bundle(folder: Path, *, output: Path | None = None, whole_logs: bool = False) -> Bundled:
    """Writes a campaign's bundle. Raises OrchestratorError where the folder is not ours, or the file exists."""
    root = Store.resume(folder).root.resolve()
    target = output or Path(f"{root.name}-bundle.tar.gz")
    if target.resolve().is_relative_to(root):
        raise OrchestratorError(
            f"{target} lies in the results folder, which holds results alone: name another --output"
        )
    found = [*survey(root)]
    pieces = [one for one in found if isinstance(one, Piece)]
    names = StandIns(gather(pieces, whole_logs=whole_logs))
    left_out = [one for one in found if isinstance(one, LeftOut)]
    manifest: dict[str, Any] = {"tool": TOOL, "schema": SCHEMA, "files": [], "cut": [], "secrets": 0}
    with new_file(target) as file:
        with Archive(file, folder=_folder_name(root, names)) as archive:
            for piece in pieces:
                wrong = _add(archive, piece, names, manifest, whole_logs=whole_logs)
                left_out += [LeftOut(path=piece.path, why=wrong)] if wrong else []
            manifest["left_out"] = [asdict(one) | {"path": names.hide(redact(one.path))} for one in left_out]
            manifest |= {"hidden": names.counts(), "kept": names.kept}
            archive.add(MANIFEST, json.dumps(manifest, indent=2) + "\n")
        size = file.tell()
    return Bundled(path=target, size=size, manifest=manifest)


def _folder_name(root: Path, names: StandIns) -> str:
    """What it unpacks to: never the campaign's own name, which may stand beside it."""
    tame = "".join(letter if letter.isalnum() or letter in "._-" else "-" for letter in names.hide(redact(root.name)))
    return f"{tame[:100].strip('.') or 'campaign'}-bundle"


def _add(archive: Archive, piece: Piece, names: StandIns, manifest: dict[str, Any], *, whole_logs: bool) -> str | None:
    """Puts a piece into the archive; returns why it can't be."""
    try:
        read = content(piece, whole_logs=whole_logs)
    except (OSError, untrusted.Unreadable) as error:
        return untrusted.reason(error)
    path, text = names.hide(piece.path), _clean(piece, read, names)
    manifest["secrets"] += max(0, text.count(MASK) - read.text.count(MASK))
    manifest["cut"] += [path] if read.cut else []
    manifest["files"].append({"path": path, **archive.add(path, text)})
    return None


def _clean(piece: Piece, read: Content, names: StandIns) -> str:
    if piece.path.endswith(".html"):
        return but_for_its_scripts(read.text, lambda part: names.hide(redact(part)))
    text = read.text
    if piece.path.endswith(".md"):
        text = text.replace(NOTHING, "")  # it stands in the midst of addresses, which are not known by it
    return names.hide(redact_end(text, cut=read.cut))


def summary(done: Bundled) -> Iterator[str]:
    """What to tell who bundled, in a few lines."""
    manifest = done.manifest
    yield f"wrote {done.path}: {len(manifest['files'])} files, {done.size / untrusted.MIB:.2f} MiB"
    hidden = [f"{one['names']} {kind}(s) in {one['places']} places" for kind, one in manifest["hidden"].items()]
    secrets = [f"{manifest['secrets']} secret(s)"] if manifest["secrets"] else []
    yield f"hidden: {', '.join((*secrets, *hidden)) or 'nothing was found that had to be'}"
    if manifest["kept"]:
        yield f"not hidden but in home folders: {manifest['kept']} name(s) that are also words of the files' own language"
    if manifest["left_out"]:
        yield f"left out: {len(manifest['left_out'])} file(s) or folder(s), such as {manifest['left_out'][0]['path']}"
    if manifest["cut"]:
        yield f"cut: of {len(manifest['cut'])} log(s) the last {LOG_END_BYTES // 1024} KiB are in it; --whole-logs takes them whole"
    yield f"{MANIFEST} in it lists all of this. Names of projects, models and data are in it as they are: look before you send it."
