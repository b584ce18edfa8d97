"""Files of `flexnn run`: arrays that it reads, and files that it writes completely or not at all."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import stat
from collections.abc import Iterator, Mapping
from typing import IO, Any, cast

import numpy as np

from flexnn.files import replacing
from flexnn.graph.labels import Mappings
from flexnn.system.limits import HALF, half_of_free
from flexnn.units import format_bytes

NPY = b"\x93NUMPY"
"""First bytes of a member that is an array; numpy would read any other one whole, as bytes."""


class ArraysTooLargeError(ValueError):
    """Arrays of a file that memory does not hold."""

    def __init__(self, path: str, taken: int, most: int) -> None:
        super().__init__(
            f"{path}: its arrays take {format_bytes(taken)}, and at most {HALF}, {format_bytes(most)}, is allowed"
        )


def load_arrays(path: str) -> dict[str, np.ndarray[Any, Any]]:
    """Return the arrays of an .npz file by name. Raises ValueError for any other file, OSError, MemoryError;
    ArraysTooLargeError before arrays are unpacked that memory does not hold.
    """
    damaged = ValueError(f"{path}: not an .npz file of arrays, or a damaged one")
    if stat.S_ISFIFO(os.stat(path).st_mode):  # opening it waits for somebody who writes
        raise damaged
    taken = 0
    try:
        with np.load(path, allow_pickle=False) as arrays:
            taken = sum(member.file_size for member in arrays.zip.infolist())  # zipfile unpacks no more than that
            most = half_of_free()
            if taken > most:
                raise ArraysTooLargeError(path, taken, most)
            for member in arrays.zip.infolist():
                with arrays.zip.open(member) as file:
                    if file.read(len(NPY)) != NPY:
                        raise damaged
            return {name: arrays[name] for name in arrays.files}
    except (OSError, ArraysTooLargeError):
        raise
    except MemoryError as error:  # numpy makes the array that a head asks for before it reads it
        shape, dtype = getattr(error, "shape", ()), getattr(error, "dtype", None)
        if dtype is None or math.prod(shape) * dtype.itemsize <= taken:
            raise
    except Exception:  # a damaged file makes numpy and zipfile raise nearly anything
        pass
    raise damaged


def check_writable(path: str) -> None:
    """Raise OSError if ``written`` could not begin, before a run that would be for nothing."""
    folder = os.path.dirname(path) or "."
    if not path or not os.path.isdir(folder):
        raise FileNotFoundError(errno.ENOENT, "no such folder for the outputs", folder if path else "''")
    if os.path.isdir(path):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)


@contextlib.contextmanager
def written(path: str) -> Iterator[IO[bytes]]:
    """Open a file that gets its name when the block ends without an error, and is removed otherwise. If ``path`` is not
    a regular file (a pipe, /dev/null), it is written to, not replaced. An OSError of the block names ``path``.
    """
    special = os.path.exists(path) and not stat.S_ISREG(os.stat(path).st_mode)
    try:
        with open(path, "wb") if special else replacing(path) as file:
            yield cast(IO[bytes], _Stream(file)) if special else file
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None


class _Stream:
    """A file that is written front to back, although it may say that it has places: zipfile believed /dev/null."""

    def __init__(self, file: IO[bytes]) -> None:
        self.write, self.flush = file.write, file.flush


def _stored(outputs: Mapping[str, Any]) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """Outputs as arrays that need no pickle: of mappings, the scores and ``NAME.labels``; texts in a width for all."""
    for name, value in outputs.items():
        if isinstance(value, Mappings):
            yield f"{name}.labels", np.array(value.names)
            value = value.scores
        yield name, value.astype(str) if value.dtype == object else value


def write_npz(file: IO[bytes], outputs: Mapping[str, Any]) -> None:
    """Write outputs as np.savez does, under any names: that takes a name like ``file`` for a parameter of its own."""
    import zipfile

    with zipfile.ZipFile(file, "w", allowZip64=True) as archive:
        for name, array in _stored(outputs):
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
