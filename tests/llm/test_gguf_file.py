"""Files that are damaged or lie about themselves end in one line, before anything is made of what they say."""

from __future__ import annotations

import re
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import flexnn
from flexnn.graph.ir import GraphError
from flexnn.llm.gguf_file import open_gguf
from tests.support.gguf_models import SMALL, write_small


def _text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def _file(
    path: Path, keys: bytes = b"", tensors: bytes = b"", counts: tuple[int, int] = (0, 0), version: int = 3
) -> Path:
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", version, *counts) + keys + tensors + bytes(64))
    return path


def _tensor(name: str, dims: tuple[int, ...], kind: int = 0, offset: int = 0) -> bytes:
    return _text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"version": 1}, "version 1 of GGUF"),
        ({"version": 3 << 24}, "big-endian"),
        ({"counts": (1 << 60, 0)}, "at most"),
        ({"counts": (0, 1 << 40)}, "at most"),
        ({"counts": (0, 9)}, "a key of 0 bytes"),
        ({"counts": (0, 1), "keys": struct.pack("<Q", 1 << 62)}, "at most 2048"),
        ({"counts": (0, 1), "keys": _text("a") + struct.pack("<IQ", 8, 1 << 62)}, "ends within its head"),
        ({"counts": (0, 1), "keys": _text("a") + struct.pack("<IIQ", 9, 0, 1 << 62)}, "elements"),
        ({"counts": (0, 1), "keys": _text("a") + struct.pack("<IIQ", 9, 0, 1 << 20)}, "ends within its head"),
        ({"counts": (0, 1), "keys": _text("a") + struct.pack("<IIQ", 9, 9, 1)}, "lists of type 9"),
        ({"counts": (0, 1), "keys": _text("a") + struct.pack("<I", 99)}, "type 99"),
        ({"counts": (0, 2), "keys": 2 * (_text("a") + struct.pack("<IB", 0, 1))}, "twice"),
        ({"counts": (1, 0), "tensors": _tensor("t", (1 << 40,))}, "shape"),
        ({"counts": (1, 0), "tensors": _tensor("t", (1 << 32, 1 << 32))}, "shape"),
        ({"counts": (1, 0), "tensors": _tensor("t", (0,))}, "shape"),
        ({"counts": (1, 0), "tensors": _tensor("t", (1,) * 5)}, "5 dimensions"),
        ({"counts": (1, 0), "tensors": _tensor("t", (33,), 8)}, "shape [33] of Q8_0"),
        ({"counts": (1, 0), "tensors": _tensor("t", (256,), 10)}, "type Q2_K is not supported"),
        ({"counts": (1, 0), "tensors": _tensor("t", (4,), 0, 1 << 63)}, "bytes at"),
        ({"counts": (1, 0), "tensors": _tensor("t", (4,), 0, 4)}, "not aligned"),
        ({"counts": (2, 0), "tensors": 2 * _tensor("t", (4,))}, "twice"),
        ({"counts": (0, 1), "keys": _text("general.alignment") + struct.pack("<II", 4, 0)}, "alignment 0"),
    ],
)
def test_lies_are_refused(tmp_path: Path, given: dict, said: str) -> None:
    path = _file(tmp_path / "bad.gguf", **given)
    with pytest.raises(GraphError, match=re.escape(said)) as found:
        open_gguf(str(path))
    assert "\n" not in str(found.value)


def test_strings_of_all_lists_are_counted_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flexnn.llm.gguf_file.ITEMS_MAX", 5)
    lists = [_text(key) + struct.pack("<IIQ", 9, 8, 3) + 3 * _text("x") for key in "ab"]
    assert open_gguf(str(_file(tmp_path / "one.gguf", counts=(0, 1), keys=lists[0]))).texts("a") == 3 * [b"x"]
    with pytest.raises(GraphError, match="metadata: b: more than 5 strings"):
        open_gguf(str(_file(tmp_path / "two.gguf", counts=(0, 2), keys=b"".join(lists))))


def test_every_cut_of_a_file_is_refused(tmp_path: Path) -> None:
    write_small(tmp_path / "whole.gguf", replace(SMALL["llama"], layers=1))
    whole = (tmp_path / "whole.gguf").read_bytes()
    for size in [*range(0, 3000, 37), len(whole) - 5000, len(whole) // 2]:
        (tmp_path / "cut.gguf").write_bytes(whole[:size])
        with pytest.raises((GraphError, OSError)):
            open_gguf(str(tmp_path / "cut.gguf"))


@pytest.mark.parametrize("seed", range(3))
def test_flipped_bytes_raise_errors_of_one_line(tmp_path: Path, seed: int) -> None:
    from flexnn.llm.decoder import load_gguf

    write_small(tmp_path / "whole.gguf", replace(SMALL["llama"], layers=1))
    whole = np.frombuffer((tmp_path / "whole.gguf").read_bytes(), np.uint8)
    rng = np.random.default_rng(seed)
    for _ in range(60):
        bad = whole.copy()
        bad[rng.integers(0, 1900, 3)] = rng.integers(0, 256, 3)
        (tmp_path / "bad.gguf").write_bytes(bad.tobytes())
        try:
            load_gguf(str(tmp_path / "bad.gguf"))
        except GraphError as error:
            assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"arch": "rwkv6"}, "architecture 'rwkv6' is not supported"),
        ({"extra": {"rope.scaling.type": "yarn"}}, "rope.scaling.type 'yarn' is not supported"),
        ({"extra": {"expert_count": 8}}, "expert_count is not supported"),
        ({"kv_heads": 3}, "4 heads on 3"),
    ],
)
def test_what_is_not_supported_is_named(tmp_path: Path, change: dict, said: str) -> None:
    write_small(tmp_path / "other.gguf", replace(SMALL["llama"], **change))
    with pytest.raises(GraphError, match=re.escape(said)):
        flexnn.compile(tmp_path / "other.gguf")


def test_a_session_opens_a_gguf_file_like_an_onnx_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write_small(tmp_path / "small.gguf", SMALL["qwen3"])
    (tmp_path / "small.gguf").rename(tmp_path / "model")  # the first bytes say what it is
    session = flexnn.Session(tmp_path / "model")
    assert session.get_inputs()[0].name == "input_ids"
