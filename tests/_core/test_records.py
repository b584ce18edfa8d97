"""Records that C and numpy share: their layout is what it has always been, on every machine."""

import numpy as np
import pytest

from flexnn import _core
from flexnn._core._core import PARAM_WORDS, RECORDS

ENGINE = {
    "fx_window": "y0 0, y1 4, c0 8, c1 12, 16",
    "fx_place": "base 0, unused 4, offset 8, 16",
    "fx_node": "op 0, kernel 4, in 8, out 72, workspace_offset 88, workspace_bytes 96, params 104, 296",
    "fx_step": "node 0, wait_loads 4, window 8, panel_offset 24, 32",
    "fx_load": "file_offset 0, bytes 8, address 16, check_lead 24, chunk_bytes 32, check_bytes 40, crc_first 48,"
    " wait_steps 52, 56",
    "fx_slot": "base 0, unused 4, offset 8, bytes 16, 24",
    "fx_entry": "kind 0, a 4, b 8, c 12, d 16, holder 20, n 24, 32",
}
PLANNER = {
    "fx_variant": "workspace_bytes 0, fixed_s 8, channels_s 16, 24",
    "fx_constant": "file_offset 0, bytes 8, room_bytes 16, operand 24, after_node 32, 40",
    "fx_draft_node": "panel_count 0, panel_bytes 8, weight_offset 16, variant_first 24, variant_count 32,"
    " constant_first 40, constant_count 48, gap_first 56, gap_count 64, top_offset 72, live_bytes 80, tight_bytes 88,"
    " 96",
    "fx_gap": "start 0, end 8, 16",
    "fx_lifetime": "start 0, end 8, first_node 16, last_node 24, 32",
    "fx_item": "node 0, constant 8, twin 16, 24",
    "fx_choice": "variant 0, slice_panels 4, pinned_panels 8, pinned_constants 12, 16",
    "fx_draft_step": "node 0, p0 4, p1 8, wait_loads 12, seconds 16, free_bytes 24, 32",
    "fx_draft_slice": "step 0, constant 4, file_offset 8, bytes 16, arena_bytes 24, is_pinned 32, wait_steps 36, 40",
}
LAYOUTS = ENGINE | PLANNER


def test_every_record_has_a_layout():
    assert LAYOUTS.keys() == RECORDS.keys()


@pytest.mark.parametrize("record", LAYOUTS)
def test_the_layout_of_records(record):
    dtype = _core.DTYPES[record]
    offsets = [f"{name} {dtype.fields[name][1]}" for name in dtype.names]
    assert ", ".join([*offsets, str(dtype.itemsize)]) == LAYOUTS[record]


@pytest.mark.parametrize("record", RECORDS)
def test_records_have_no_padding(record):
    nbytes, fields = RECORDS[record]
    dtype = _core.DTYPES[record]
    at = 0
    for name, _, offset, _ in fields:
        assert dtype.fields[name][1] == offset == at
        at += dtype[name].itemsize
    assert at == dtype.itemsize == nbytes


def test_records_nest():
    node = np.zeros(2, _core.NODE_DTYPE)
    assert node["in"].shape == (2, _core.MAX_INPUTS)
    assert node["in"].dtype == _core.DTYPES["fx_place"]
    assert node["params"].shape == (2, PARAM_WORDS)
    assert np.zeros(1, _core.STEP_DTYPE)["window"].dtype == _core.DTYPES["fx_window"]
