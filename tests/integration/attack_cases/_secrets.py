"""A secret, and a search for it in everything that a scene wrote."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator

from attack_cases.scene import Scene

# It has no form by which it could be known: only its variable, or the name before it, says what it is.
PLAIN = "Tr0ub4dor-and-3xtra-Horse9"
THEIRS = ("stdout.log", "stderr.log", "trainer.py", "scenarios.yaml")


def texts(scene: Scene) -> Iterator[tuple[str, str]]:
    """Yield the name and text of every file that Tunebench wrote, and of every member of a bundle."""
    for path in scene.folder.rglob("*"):
        if not path.is_file() or path.is_symlink() or path.name in THEIRS:
            continue
        if path.name.endswith(".tar.gz"):
            with tarfile.open(path) as bundle:
                for member in bundle:
                    yield f"{path.name}:{member.name}", f"{member.name} "
                    if (file := bundle.extractfile(member)) is not None:
                        yield f"{path.name}:{member.name}", file.read().decode(errors="replace")
        else:
            yield str(path), path.read_text(errors="replace")


def assert_hidden(scene: Scene, secret: str = PLAIN, *, part: int | None = None) -> None:
    """Check that no text contains the secret, or `part` characters from its beginning or its end."""
    pieces = {secret} if part is None else {secret[:part], secret[-part:]}
    found = [name for name, text in texts(scene) if any(piece in text for piece in pieces)]
    assert not found, f"the secret is in {found[:6]}"
