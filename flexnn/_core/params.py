"""Operators' parameters as the C core reads them."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from flexnn._core._core import FIELDS, OPS, PARAM_WORDS

if TYPE_CHECKING:
    from numpy.typing import NDArray


@cache
def _format(op: str) -> struct.Struct:
    """Return the layout of an operator's parameters."""
    return struct.Struct("=" + "".join("f" if is_float else "i" for _, is_float in FIELDS[op]))


def encode_params(op: str, fields: Mapping[str, int | float]) -> NDArray[np.int32]:
    """Return the parameters of operator ``op`` as ``int32[48]``, floats by their bits.

    ValueError if a field is missing, unknown, of the wrong type or beyond 32 bits.
    """
    if op not in OPS:
        raise ValueError(f"no operator {op!r}")
    names = FIELDS[op]
    if len(fields) != len(names) or any(name not in fields for name, _ in names):
        missing = [name for name, _ in names if name not in fields]
        extra = sorted(set(fields) - {name for name, _ in names})
        raise ValueError(f"{op}: missing parameters {missing}, unknown {extra}")
    words = np.zeros(PARAM_WORDS, np.int32)
    try:
        _format(op).pack_into(words.data, 0, *[fields[name] for name, _ in names])
    except (struct.error, OverflowError, TypeError) as error:
        raise ValueError(f"{op}: {error} in {dict(fields)}") from error
    return words
