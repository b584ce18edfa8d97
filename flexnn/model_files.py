"""Model files and what is asked of them: checked before a model is read."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable

from flexnn.errors import CompileError

Progress = Callable[[str, int, int], None]
"""Called after each weight, with its name, the bytes done and the bytes in all; while the file is
read, with no name.
"""
_READ_BYTES = 1 << 20
GGUF_MAGIC = b"GGUF"
"""The first bytes of a GGUF file."""


def check_places(source: str, target: str) -> None:
    """Refuse paths that would hang, waste the work or replace a device."""
    check_regular(source)
    folder = os.path.dirname(target) or "."
    if not target or not os.path.isdir(folder):
        raise FileNotFoundError(errno.ENOENT, "no such folder for the artifact", folder if target else "''")
    if os.path.exists(target) and not os.path.isfile(target):
        raise CompileError(f"{target}: not a regular file, so an artifact cannot replace it")


def check_regular(source: str) -> None:
    """Refuse devices, pipes and folders."""
    if not stat.S_ISREG(os.stat(source).st_mode):
        raise CompileError(f"{source}: not a regular file")


def is_gguf(path: str) -> bool:
    """Return whether a file is a GGUF file: its first bytes say so. Raises OSError, CompileError."""
    check_regular(path)
    with open(path, "rb") as file:
        return file.read(len(GGUF_MAGIC)) == GGUF_MAGIC


def checked_rows(source: str, rows: str | None) -> str | None:
    """Return ``rows``, if the model's may be rounded so. Raises ValueError, CompileError."""
    if rows not in (None, "f32", "s8"):
        raise ValueError(f"rows is {rows!r}; it must be f32 or s8")
    if rows == "s8" and not is_gguf(source):
        raise CompileError(f"{source}: rows of 8 bits are for GGUF files")
    return rows


def checked_precision(precision: str) -> str:
    """Return ``precision``, if there is such a one. Raises ValueError."""
    if precision not in ("f32", "f16"):
        raise ValueError(f"precision is {precision!r}; it must be f32 or f16")
    return precision


def sha256(path: str, progress: Progress | None = None) -> bytes:
    """Return the SHA-256 of a file. Raises OSError."""
    import hashlib  # it costs more memory than the rest of ``import flexnn``

    digest, done = hashlib.sha256(), 0
    with open(path, "rb") as file:
        total = os.fstat(file.fileno()).st_size
        while block := file.read(_READ_BYTES):
            digest.update(block)
            done += len(block)
            if progress and done <= total:
                progress("", done, total)
    return digest.digest()
