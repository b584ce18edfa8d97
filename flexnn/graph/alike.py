"""Equal constants under different names: they get one source, so that all that is made of them is stored once."""

from __future__ import annotations

from _blake2 import blake2b
from collections.abc import Iterator

import numpy as np

from .ir import WeightSource
from .model import Constant, Model
from .sources import ArraySource, FileSource, ModelSource

BYTES_MIN = 64 << 10
"""Fewest bytes of constants that are compared."""
SAMPLE_BYTES = 4 << 10
"""Bytes at both ends of a constant that are compared first: most constants of one shape differ there."""
_PART_BYTES = 1 << 20


def share_equal(model: Model) -> None:
    """Give constants of the same type, shape and numbers the source of the first of them. Raises OSError."""
    by_ends: dict[tuple[object, ...], list[Constant]] = {}
    for constant in _constants(model):
        ends = b"".join(_parts(constant, 0, SAMPLE_BYTES)), b"".join(_parts(constant, -SAMPLE_BYTES, SAMPLE_BYTES))
        by_ends.setdefault((constant.dtype, constant.shape, *ends), []).append(constant)
    for candidates in by_ends.values():
        first: dict[bytes, Constant] = {}
        for constant in candidates if len(candidates) > 1 else ():
            digest = blake2b(digest_size=16)
            for part in _parts(constant, 0, constant.nbytes):
                digest.update(part)
            constant.source = first.setdefault(digest.digest(), constant).source


def _constants(model: Model) -> Iterator[Constant]:
    for graph in model.graph.walk():
        for constant in graph.constants.values():
            if constant.nbytes > BYTES_MIN and isinstance(_base(constant), FileSource | ArraySource):
                yield constant


def _base(constant: Constant) -> WeightSource:
    assert isinstance(constant.source, ModelSource)
    return constant.source.base


def _parts(constant: Constant, start: int, size: int) -> Iterator[bytes]:
    """Iterate over bytes of a constant from ``start``, which counts from the end where it is negative."""
    start += constant.nbytes if start < 0 else 0
    base = _base(constant)
    if isinstance(base, FileSource):
        for at in range(start, start + size, _PART_BYTES):
            yield base.file.read(base.offset + at, min(_PART_BYTES, start + size - at))
    else:
        yield np.ascontiguousarray(base.load()).reshape(-1).view(np.uint8)[start : start + size].tobytes()
