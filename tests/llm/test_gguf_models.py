"""Decoders of every family, and every type of tensors, compute what a plain decoder in numpy does."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import gguf
import numpy as np
import pytest

import flexnn
from flexnn import _core
from flexnn.artifact import open_artifact
from flexnn.graph import rounding
from flexnn.graph.pack import PanelSource
from flexnn.graph.sources import ArraySource
from flexnn.graph.weight_form import FORMS
from flexnn.llm import weights
from tests.support.gguf_models import SMALL, TYPES, Small, logits, write_small


def _run(session: flexnn.Session, small: Small, ids: list[int], cuts: list[int]) -> np.ndarray:
    """Logits of all positions, of a session that gets the tokens in parts."""
    size = (1, small.kv_heads, 0, small.key)
    state = {i.name: np.zeros(size, np.float32) for i in session.get_inputs() if i.name.startswith("past")}
    found = []
    for first, end in zip([0, *cuts], [*cuts, len(ids)], strict=True):
        feeds = {"input_ids": np.array([ids[first:end]]), "position_ids": np.arange(first, end)[None], **state}
        made = dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds), strict=True))
        found.append(made.pop("logits")[0])
        state = {name.replace("present", "past_key_values"): value for name, value in made.items()}
    return np.concatenate(found)


@pytest.mark.parametrize("name", SMALL)
def test_family_computes_what_numpy_does(tmp_path: Path, name: str) -> None:
    small = SMALL[name]
    tensors = write_small(tmp_path / "small.gguf", small)
    ids = np.random.default_rng(1).integers(0, small.vocabulary, 11).tolist()
    flexnn.compile(tmp_path / "small.gguf")
    session = flexnn.Session(tmp_path / "small.flexnn")
    found = _run(session, small, ids, [5, 6])
    np.testing.assert_allclose(found, logits(small, tensors, ids), atol=2e-4)


@pytest.mark.parametrize("name", SMALL)
def test_family_computes_the_same_with_state(tmp_path: Path, name: str) -> None:
    small = SMALL[name]
    tensors = write_small(tmp_path / "small.gguf", small)
    ids = np.random.default_rng(1).integers(0, small.vocabulary, 43).tolist()
    wanted = logits(small, tensors, ids)
    with flexnn.Session(flexnn.compile(tmp_path / "small.gguf"), kv_capacity=64, kv="f32", all_logits=True) as session:
        cuts = [0, 33, 41, 43]
        made = [session.run(None, {"input_ids": np.array([ids[a:b]])})[0][0] for a, b in pairwise(cuts)]
    np.testing.assert_allclose(np.concatenate(made), wanted, atol=2e-4)
    with flexnn.Session(tmp_path / "small.flexnn", kv_capacity=64) as session:  # halves, the last row alone
        (last,) = session.run(None, {"input_ids": np.array([ids])})
    assert last.shape == (1, 1, small.vocabulary)
    np.testing.assert_allclose(last[0, 0], wanted[-1], atol=2e-2)


@pytest.mark.parametrize("kind", TYPES)
def test_type_of_tensors_is_exact(tmp_path: Path, kind: str) -> None:
    small = replace(SMALL["llama"], kind=kind, tied=True, width=256, hidden=256, key=64)
    tensors = write_small(tmp_path / "small.gguf", small)
    ids = np.random.default_rng(2).integers(0, small.vocabulary, 7).tolist()
    session = flexnn.Session(flexnn.compile(tmp_path / "small.gguf", rows="f32"))
    np.testing.assert_allclose(_run(session, small, ids, [6]), logits(small, tensors, ids), atol=2e-4)


@pytest.mark.parametrize("kind", TYPES)
def test_a_large_tied_table_is_found_again(tmp_path: Path, kind: str) -> None:
    """Was: tables of floats above 1 MiB were stored for picking rows alone, and sessions missed the panels."""
    small = replace(SMALL["llama"], kind=kind, tied=True, width=256, hidden=256, key=64, vocabulary=1100)
    tensors = write_small(tmp_path / "small.gguf", small)
    ids = np.random.default_rng(2).integers(0, small.vocabulary, 7).tolist()
    artifact = flexnn.compile(tmp_path / "small.gguf", rows="f32")
    with flexnn.Session(artifact, kv_capacity=16, kv="f32", all_logits=True) as session:
        (made,) = session.run(None, {"input_ids": np.array([ids])})
    np.testing.assert_allclose(made[0], logits(small, tensors, ids), atol=1e-3)


@pytest.mark.parametrize("kind", ["Q4_K", "Q5_K", "Q6_K"])
def test_scales_of_double_blocks_are_stored_in_panels_alone(tmp_path: Path, kind: str) -> None:
    small = replace(SMALL["llama"], kind=kind, tied=True, width=256, hidden=256, key=64)
    write_small(tmp_path / "small.gguf", small)
    with open_artifact(flexnn.compile(tmp_path / "small.gguf")) as artifact:
        names = [weight.name for weight in artifact.contents.weights]
    assert names
    assert not [name for name in names if name.endswith((".scales", ".least", ".factors"))]


@pytest.mark.parametrize("kind", [kind for kind in TYPES if kind.startswith("Q")])
def test_numbers_of_blocks_are_those_of_gguf(kind: str) -> None:
    """Bit for bit, as integers with scales and minima, and again out of the form that stores them."""
    rng = np.random.default_rng(4)
    block, nbytes = gguf.GGML_QUANT_SIZES[TYPES[kind]]
    raw = rng.integers(0, 256, (16, 1024 // block, nbytes), dtype=np.uint8)
    scales = (rng.standard_normal((*raw.shape[:2], 2)) / 100).astype(np.float16).view(np.uint8)
    has_least = kind.endswith("_1") or kind in ("Q4_K", "Q5_K")
    at, size = (208, 2) if kind == "Q6_K" else (0, 4 if has_least else 2)
    raw[..., at : at + size] = scales[..., :size]
    wanted = gguf.dequantize(raw.reshape(16, -1), TYPES[kind])
    parts = {part: read(raw).reshape(16, -1).astype(np.float32) for part, (_, read) in weights.SPLITS[kind].items()}
    whole, steps, factors = parts["whole"], parts["scales"], parts.get("factors")
    least = [parts["least"]] if "least" in parts else []
    each = whole.shape[1] // steps.shape[1]
    found = whole * np.repeat(steps, each, 1) + (np.repeat(least[0], each, 1) if least else np.float32(0))
    np.testing.assert_array_equal(found, wanted)
    name = ("q4" if kind[1] == "4" else "s8" if least else "s8b") + ("m" if least else "") + "f"
    name = f"q{kind[1]}k" if factors is not None else "q5" + "m" * bool(least) if kind[1] == "5" else name
    form = FORMS[name]
    made = rounding.exactly(wanted.T, form, steps.T, least[0].T if least else None)
    np.testing.assert_array_equal(rounding.widened(made, form).T, wanted)
    source = PanelSource("conv", (16, 1024, 1, 1), 1, ArraySource(wanted.reshape(16, 1024, 1, 1)), wtype=name)
    source.step, source.least = ArraySource(steps), ArraySource(least[0]) if least else None
    source.factors = None if factors is None else ArraySource(factors)
    (panel,) = source
    fields = {"index_bytes": 8, "rows": 16, "inner": 1024, "count": 16, "wtype": list(FORMS).index(name)}
    out = np.zeros((16, 1024), np.float32)
    _core.run_op("gather_panels", "", _core.encode_params("gather_panels", fields), [panel, np.arange(16)], out)
    np.testing.assert_array_equal(out, wanted)
    assert panel.nbytes - 64 == raw.nbytes or name.endswith("f")


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q8_0"])
def test_rows_of_8_bits(tmp_path: Path, kind: str) -> None:
    """They change logits, and only a little."""
    small = SMALL["llama"]
    write_small(tmp_path / "small.gguf", replace(small, kind=kind))
    ids = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]
    found = {}
    for rows in ("f32", "s8", None):
        path = flexnn.compile(tmp_path / "small.gguf", tmp_path / f"{rows}.flexnn", rows=rows)
        with flexnn.Session(path, kv_capacity=64, kv="f32", all_logits=True) as session:
            (found[rows],) = session.run(None, {"input_ids": np.array([ids], np.int64)})
    np.testing.assert_array_equal(found[None], found["s8"])  # what is done by default
    error = np.linalg.norm(found["s8"] - found["f32"]) / np.linalg.norm(found["f32"])
    assert 1e-5 < error < 0.05


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q8_0"])
def test_eight_tokens_at_once_are_those_of_one_by_one(tmp_path: Path, kind: str) -> None:
    """To the bit: else a draft could change a text, since a last bit decides how a row is rounded."""
    small = SMALL["llama"]
    write_small(tmp_path / "small.gguf", replace(small, kind=kind))
    ids = np.random.default_rng(3).integers(0, small.vocabulary, (1, 48))
    path, found = flexnn.compile(tmp_path / "small.gguf"), []
    for step in (8, 1):
        with flexnn.Session(path, kv_capacity=64, all_logits=True) as session:
            session.run(None, {"input_ids": ids[:, :32]})
            rows = [session.run(None, {"input_ids": ids[:, i : i + step]})[0] for i in range(32, 48, step)]
        found.append(np.concatenate(rows, 1))
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("kind", ["Q4_K", "Q5_1", "Q6_K"])
def test_rows_of_other_types_are_not_rounded(tmp_path: Path, kind: str) -> None:
    small = replace(SMALL["llama"], kind=kind, tied=True, width=256, hidden=256, key=64)
    write_small(tmp_path / "small.gguf", small)
    ids, found = [3, 1, 4, 1, 5, 9, 2], {}
    for rows in ("f32", "s8", None):
        path = flexnn.compile(tmp_path / "small.gguf", tmp_path / f"{rows}.flexnn", rows=rows)
        with flexnn.Session(path, kv_capacity=64, kv="f32", all_logits=True) as session:
            (found[rows],) = session.run(None, {"input_ids": np.array([ids], np.int64)})
    np.testing.assert_array_equal(found[None], found["f32"])
    np.testing.assert_array_equal(found["s8"], found["f32"])


def test_rows_of_8_bits_are_for_gguf_files(tmp_path: Path) -> None:
    """Other models, and other words, are refused."""
    (tmp_path / "model.onnx").write_bytes(b"\x08\x08")
    with pytest.raises(flexnn.CompileError, match="GGUF"):
        flexnn.compile(tmp_path / "model.onnx", rows="s8")
    with pytest.raises(ValueError, match="f32 or s8"):
        flexnn.compile(tmp_path / "model.onnx", rows="s4")


def test_damaged_weights_are_named(tmp_path: Path) -> None:
    """Was: weights do not fit into 4 bits, of no name."""
    path = tmp_path / "small.gguf"
    write_small(path, replace(SMALL["llama"], kind="Q4_1", width=256, hidden=256, key=64))
    reader = gguf.GGUFReader(path)
    at = next(tensor.data_offset for tensor in reader.tensors if tensor.name == "blk.1.ffn_down.weight")
    raw = bytearray(path.read_bytes())
    raw[at : at + 200] = b"\xff" * 200
    path.write_bytes(raw)
    with pytest.raises(flexnn.GraphError, match=r"weight '.*blk\.1\.ffn_down.*': weights do not fit into 4 bits"):
        flexnn.compile(path)
