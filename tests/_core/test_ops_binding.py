"""The operators' half of the binding: encoding, checks, and run_op's own guards."""

import os
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flexnn import _core
from flexnn.graph.weight_form import FORMS
from tests.support.programs import conv_params


def fields(op: str) -> dict[str, int | float]:
    return {name: 1.5 if is_float else 7 for name, is_float in _core.FIELDS[op]}


@pytest.mark.parametrize("op", _core.OPS)
def test_encode_puts_each_field_in_its_word(op):
    words = _core.encode_params(op, fields(op))
    assert words.dtype == np.int32
    assert words.shape == (48,)
    for i, (_, is_float) in enumerate(_core.FIELDS[op]):
        assert (words[i : i + 1].view(np.float32)[0] == 1.5) if is_float else words[i] == 7
    assert not words[len(_core.FIELDS[op]) :].any()


@pytest.mark.parametrize("op", _core.OPS)
def test_encode_refuses(op):
    good = fields(op)
    name = next(name for name, is_float in _core.FIELDS[op] if not is_float)
    for bad in (
        {k: v for k, v in good.items() if k != name},
        {**good, "extra": 1},
        {**{k: v for k, v in good.items() if k != name}, "extra": 1},
        {**good, name: 1 << 31},
        {**good, name: -(1 << 31) - 1},
        {**good, name: 0.5},
        {**good, name: "1"},
        {**good, name: None},
    ):
        with pytest.raises(ValueError, match=op):
            _core.encode_params(op, bad)
    with pytest.raises(ValueError, match="nonsense"):
        _core.encode_params("nonsense", good)


def test_lists():
    assert len(set(_core.OPS)) == len(_core.OPS)
    assert all(_core.FIELDS[op] for op in _core.OPS)
    assert _core.ENUMS["dtype"][0] == "f32"
    assert "wino4" in _core.ENUMS["conv_kernel"]
    assert _core.ENUMS["unary_kind"][: len(_core.ENUMS["act"])] == _core.ENUMS["act"]
    assert _core.NODE_DTYPE.itemsize == 8 + 5 * 16 + 16 + 48 * 4
    assert _core.STEP_DTYPE.itemsize == 32
    assert _core.LOAD_DTYPE.itemsize == 56


def test_levels(monkeypatch):
    assert "scalar" in _core.isa_levels()
    for level in _core.isa_levels():
        assert _core.isa_level(level) == level
        monkeypatch.setenv("FLEXNN_ISA", level)
        assert _core.isa_level() == level
    monkeypatch.setenv("FLEXNN_ISA", "mmx")
    with pytest.raises(ValueError, match="mmx"):
        _core.isa_level()


def test_queries_check_the_parameters_first():
    params = conv_params(side=4, channels=16)
    params[0] = -1
    for call in (
        lambda: _core.op_check("conv", "direct", params),
        lambda: _core.op_panels("conv", params),
        lambda: _core.op_panel_bytes("conv", params),
        lambda: _core.op_workspace("conv", "", params),
        lambda: _core.op_extent("conv", params, 0),
        lambda: _core.op_full_window("conv", params),
        lambda: _core.op_units("conv", "", params, None, 1),
    ):
        with pytest.raises(ValueError, match="conv"):
            call()
    good = conv_params(side=4, channels=16)
    with pytest.raises(ValueError, match="kernel"):
        _core.op_check("conv", "nonsense", good)
    with pytest.raises(ValueError, match="bytes"):
        _core.op_check("conv", "direct", good[:10])
    with pytest.raises(ValueError, match="operator"):
        _core.op_check("nonsense", "", good)
    with pytest.raises(ValueError, match="panel"):
        _core.conv_panel_cin(16, 16, 1, 1)
    for window in [(0, 5, 0, 16), (-1, 4, 0, 16), (0, 4, 8, 16), (0, 4, 0, 8), (3, 2, 0, 16)]:
        with pytest.raises(ValueError, match="window"):
            _core.op_units("conv", "direct", good, window, 1)


def test_extent_and_traits():
    params = conv_params(side=4, channels=20)
    assert _core.op_traits("conv") == {"rows", "channels", "panels"}
    assert _core.op_full_window("conv", params) == (0, 4, 0, 20)
    assert _core.op_extent("conv", params, 0) == (0, 4 * 4 * 4 * 20)
    assert _core.op_extent("conv", params, 1) == (0, 0)
    assert _core.op_extent("conv", params, _core.MAX_INPUTS) == (0, 4 * 4 * 4 * 20)
    assert _core.op_panels("conv", params) == 2
    assert _core.op_panel_bytes("conv", params) == 4 * (16 + 20 * 16)


def test_run_op_guards():
    params = conv_params(side=4, channels=16)
    x = np.ones((4, 4, 16), np.float32)
    weight = np.ones(16 + 256, np.float32)
    out = np.zeros_like(x)
    _core.run_op("conv", "direct", params, [x], out, weight)
    assert (out == 17).all()
    for inputs, target, panels in (
        ([x[:3]], out, weight),
        ([x], out[:3].copy(), weight),
        ([x], out, weight[1:]),
        ([x], out, None),
        ([], out, weight),
        ([x, x, x], out, weight),
    ):
        with pytest.raises((ValueError, TypeError)):
            _core.run_op("conv", "direct", params, inputs, target, panels)
    with pytest.raises(ValueError, match="threads"):
        _core.run_op("conv", "direct", params, [x], out, weight, threads=0)
    with pytest.raises(ValueError, match="reaches"):
        _core.run_op("conv", "direct", params, [x], out, weight, offsets=[4])
    padded = np.concatenate([np.full(8, np.nan, np.float32), x.ravel()])
    out[:] = 0
    _core.run_op("conv", "direct", params, [padded], out, weight, offsets=[32])
    assert (out == 17).all()


def crc32c_by_the_book(data: bytes) -> int:
    """RFC 3720: bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def test_crc32c_known_answers():
    assert _core.crc32c(b"123456789") == 0xE3069283
    assert _core.crc32c(bytes(32)) == 0x8A9136AA
    assert _core.crc32c(b"\xff" * 32) == 0x62A8AB43
    assert _core.crc32c(b"") == 0
    assert _core.crc32c(b"123456789") != zlib.crc32(b"123456789")


@given(st.binary(max_size=200))
def test_crc32c_by_the_book(data):
    for path in range(_core.crc32c_paths()):
        assert _core.crc32c(data, path=path) == crc32c_by_the_book(data)
    assert _core.crc32c(data) == crc32c_by_the_book(data)


@pytest.mark.parametrize("size", [8, 8191, 24575, 24576, 24577, 24583, 49152, 100_000, 1 << 20])
def test_crc32c_of_long_buffers(size):
    data = os.urandom(size)
    crc, third = _core.crc32c(data, path=0), size // 3
    assert _core.crc32c(data) == crc
    for path in range(_core.crc32c_paths()):
        assert _core.crc32c(data, path=path) == crc
        assert _core.crc32c(data[third:], _core.crc32c(data[:third], path=path), path=path) == crc
        assert _core.crc32c(memoryview(data)[1:], path=path) == _core.crc32c(data[1:], path=0)


def test_crc32c_path_that_is_not_there():
    for path in (-1, _core.crc32c_paths()):
        with pytest.raises(ValueError, match="path"):
            _core.crc32c(b"", path=path)


def test_measured_rates_are_plausible():
    flops, rate = _core.measure_rates()
    assert 1e7 < flops < 1e13
    assert 1e7 < rate < 1e13
    assert _core.measure_rates("scalar")[0] < flops * 1.5


@pytest.mark.parametrize("form", _core.ENUMS["wtype"])
def test_rounded_rows_are_multiplied_by_integers_of_4_and_8_bits_alone(form):
    """Others have no such product: theirs are refused, as levels would read them as something else."""
    words = conv_params(1, 256, act="none")
    at = [name for name, _ in _core.FIELDS["conv"]].index
    words[at("wtype")] = _core.ENUMS["wtype"].index(form)
    words[at("sums")] = _core.ENUMS["dtype"].index("i8")
    x, y = np.zeros((1, 256), np.float32), np.empty((1, 256), np.float32)
    kept = FORMS[form]
    panels = np.zeros(16 * (64 + 256 * 16 * kept.bits // 8 + 8 * 16 * (kept.scales + kept.minimum)), np.uint8)
    fits = form in ("s8b", "s8bf", "s8mf", "q4", "q4f", "q4m", "q4mf")
    assert _core.multiplies_rounded(form) == fits
    if fits:
        _core.run_op("conv", "direct", words, [x], y, panels)
        assert not y.any()
    else:
        with pytest.raises(ValueError, match="out of its range"):
            _core.run_op("conv", "direct", words, [x], y, panels)


@pytest.mark.parametrize(
    ("sums", "is_one"), [("f32", True), ("i32", True), ("i8", True), ("u8", False), ("u32", False)]
)
def test_sums_of_convolutions_are_of_types_that_they_have(sums, is_one):
    words = conv_params(1, 256, act="none")
    at = [name for name, _ in _core.FIELDS["conv"]].index
    words[at("sums")] = _core.ENUMS["dtype"].index(sums)
    words[at("wtype")] = _core.ENUMS["wtype"].index("q4" if sums == "i8" else "f32")
    x, y = np.zeros((1, 256), np.float32), np.zeros((1, 256), np.float32)
    panels = np.zeros(16 * (2368 if sums == "i8" else 16448), np.uint8)
    if is_one:
        _core.run_op("conv", "direct", words, [x], y.view(np.int32) if sums == "i32" else y, panels)
    else:
        with pytest.raises(ValueError, match="out of its range"):
            _core.run_op("conv", "direct", words, [x], y, panels)
