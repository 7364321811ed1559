"""Makes a fingerprint of local files: a digest over their names, sizes and content. Of a large file, it covers only parts.

The plan makes the fingerprint of the data before the preparation. The preparation makes it again after it has read the data.
If the two differ, the data changed in between. The tokenizer of a local model has a fingerprint, too. The orchestrator runs
this file to use its functions.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Optional

MAX_FILES = 10_000
MIB = 2**20
WHOLE_FILE_BYTES = 64 * MIB

# A model's folder with one of these files has a tokenizer.
MARKS = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json")

# The files that transformers reads for a tokenizer. `config.json` names its class if `tokenizer_config.json` does not.
LOADED = (
    *("config.json", "tokenizer*.json", "*_tokens*.json", "*vocab*.json", "tekken.json", "*.jinja", "*.model", "*.spm"),
    *("vocab*.txt", "merges.txt", "dict.txt", "vocab.bpe", "bpe.codes", "*.tiktoken"),
)


def fingerprint(path: str) -> str:
    """Return the fingerprint of a file, or of all files below a folder. Raise OSError if a file cannot be read."""
    return digest_of(files_of(Path(path)), Path(path))


def tokenizer_fingerprint(model: str) -> Optional[str]:
    """Return the fingerprint of the files of a model's tokenizer. Weights are not read.

    Return None if the model is not a folder with a tokenizer. Raise OSError if a file cannot be read.
    """
    if not os.path.isabs(model) or not has_tokenizer(model):
        return None
    loaded = (file for file in Path(model).iterdir() if any(map(file.match, LOADED)))
    return digest_of(sorted(file for file in loaded if file.is_file()), Path(model))


def has_tokenizer(folder: str) -> bool:
    return any(os.path.isfile(os.path.join(folder, name)) for name in MARKS)


def digest_of(files: Sequence[Path], path: Path) -> str:
    digest = hashlib.sha256()
    for file in files:
        status = file.stat()
        if not stat.S_ISREG(status.st_mode):
            raise OSError("it is not a regular file")
        name = "" if file == path else file.relative_to(path)
        digest.update(f"{name}:{status.st_size}:".encode(errors="surrogateescape"))
        for piece in pieces(file, status.st_size):
            digest.update(piece)
    return digest.hexdigest()[:16]


def files_of(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = list(islice((file for file in path.rglob("*") if file.is_file()), MAX_FILES + 1))
    if len(files) > MAX_FILES:
        raise OSError(f"the folder contains more than {MAX_FILES:,} files; name a file or a smaller folder")
    return sorted(files)


def pieces(file: Path, size: int) -> Iterator[bytes]:
    """Yield the content of a file that has `size` bytes. For a large file, yield only the first 64 MiB and the last MiB."""
    left = WHOLE_FILE_BYTES
    with os.fdopen(os.open(file, os.O_RDONLY | os.O_NONBLOCK), "rb") as stream:  # a pipe may have replaced the file
        while left > 0:
            piece = stream.read(min(left, MIB))
            if not piece:
                break
            left -= len(piece)
            yield piece
        if size > WHOLE_FILE_BYTES:
            stream.seek(-MIB, os.SEEK_END)
            yield stream.read()
