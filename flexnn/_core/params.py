"""Operators' parameters as the C core reads them."""

from __future__ import annotations

import struct
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from flexnn._core._core import FIELDS, PARAM_WORDS

_FORMATS = {op: struct.Struct("=" + "".join("f" if is_float else "i" for _, is_float in FIELDS[op])) for op in FIELDS}

# Of the planner's drafts (draft.h).
LAYER_DTYPE = np.dtype(
    [
        (name, "i8")
        for name in (
            *("panels", "panel_bytes", "weight_offset", "variant", "variants", "constant", "constants"),
            *("gap", "gaps", "top", "live_bytes", "tight_bytes"),
        )
    ]
)
VARIANT_DTYPE = np.dtype([("workspace_bytes", "i8"), ("fixed_s", "f8"), ("channels_s", "f8")])
CONSTANT_DTYPE = np.dtype([("file_offset", "i8"), ("bytes", "i8"), ("room", "i8"), ("operand", "i8")])
GAP_DTYPE = np.dtype([("start", "i8"), ("end", "i8")])
ITEM_DTYPE = np.dtype([("layer", "i8"), ("constant", "i8")])
HELD_DTYPE = np.dtype([("low", "i8"), ("high", "i8"), ("first", "i8"), ("last", "i8")])
CHOICE_DTYPE = np.dtype(
    [("variant", "i4"), ("slice_panels", "i4"), ("pinned_panels", "i4"), ("pinned_constants", "u4")]
)
DRAFT_STEP_DTYPE = np.dtype(
    [("node", "i4"), ("p0", "i4"), ("p1", "i4"), ("loads", "i4"), ("seconds", "f8"), ("free_bytes", "i8")]
)
DRAFT_PIECE_DTYPE = np.dtype(
    [
        ("step", "i4"),
        ("constant", "i4"),
        ("file_offset", "i8"),
        ("bytes", "i8"),
        ("arena_bytes", "i8"),
        ("stays", "i4"),
        ("wait_steps", "i4"),
    ]
)


def encode_params(op: str, fields: Mapping[str, int | float]) -> NDArray[np.int32]:
    """The parameters of operator ``op`` as ``int32[48]``, floats by their bits.

    ValueError if a field is missing, unknown, of the wrong type or beyond 32 bits.
    """
    if op not in FIELDS:
        raise ValueError(f"no operator {op!r}")
    names = FIELDS[op]
    if len(fields) != len(names) or any(name not in fields for name, _ in names):
        missing = [name for name, _ in names if name not in fields]
        extra = sorted(set(fields) - {name for name, _ in names})
        raise ValueError(f"{op}: missing parameters {missing}, unknown {extra}")
    words = np.zeros(PARAM_WORDS, np.int32)
    try:
        _FORMATS[op].pack_into(words.data, 0, *[fields[name] for name, _ in names])
    except (struct.error, OverflowError, TypeError) as error:
        raise ValueError(f"{op}: {error} in {dict(fields)}") from error
    return words
