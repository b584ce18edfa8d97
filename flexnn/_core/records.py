"""numpy dtypes of the records that C reads: fields, types and offsets are C's own."""

from __future__ import annotations

from typing import Any

import numpy as np

from flexnn._core._core import PARAM_WORDS, RECORDS

__all__ = [
    "CHOICE_DTYPE",
    "CONSTANT_DTYPE",
    "DRAFT_NODE_DTYPE",
    "DRAFT_SLICE_DTYPE",
    "DRAFT_STEP_DTYPE",
    "DTYPES",
    "ENTRY_DTYPE",
    "GAP_DTYPE",
    "ITEM_DTYPE",
    "LIFETIME_DTYPE",
    "LOAD_DTYPE",
    "NODE_DTYPE",
    "SLOT_DTYPE",
    "STEP_DTYPE",
    "VARIANT_DTYPE",
]


def _dtypes() -> dict[str, np.dtype[Any]]:
    """Dtypes by the names of the records in C."""
    known: dict[str, np.dtype[Any]] = {
        "int32_t": np.dtype(np.int32),
        "uint32_t": np.dtype(np.uint32),
        "int64_t": np.dtype(np.int64),
        "double": np.dtype(np.float64),
        "fx_params": np.dtype((np.int32, PARAM_WORDS)),
    }
    made = {}
    for record, (nbytes, fields) in RECORDS.items():
        known[record] = made[record] = np.dtype(
            {
                "names": [name for name, _, _, _ in fields],
                "formats": [np.dtype((known[kind], count)) if count else known[kind] for _, kind, _, count in fields],
                "offsets": [offset for _, _, offset, _ in fields],
                "itemsize": nbytes,
            }
        )
    return made


DTYPES = _dtypes()
NODE_DTYPE = DTYPES["fx_node"]
STEP_DTYPE = DTYPES["fx_step"]
LOAD_DTYPE = DTYPES["fx_load"]
VARIANT_DTYPE = DTYPES["fx_variant"]
CONSTANT_DTYPE = DTYPES["fx_constant"]
DRAFT_NODE_DTYPE = DTYPES["fx_draft_node"]
SLOT_DTYPE = DTYPES["fx_slot"]
ENTRY_DTYPE = DTYPES["fx_entry"]
GAP_DTYPE = DTYPES["fx_gap"]
LIFETIME_DTYPE = DTYPES["fx_lifetime"]
ITEM_DTYPE = DTYPES["fx_item"]
CHOICE_DTYPE = DTYPES["fx_choice"]
DRAFT_STEP_DTYPE = DTYPES["fx_draft_step"]
DRAFT_SLICE_DTYPE = DTYPES["fx_draft_slice"]
