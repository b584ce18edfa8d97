"""Pairs of an encoder and a decoder, against onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import flexnn
from flexnn.llm.pair import EncoderDecoder
from flexnn.llm.sampling import Sampling
from tests.support.pairs import SMALL, PairCaller, write_pair

ENDS = (2, 7)


def write_encoder(path: Path) -> Path:
    """An encoder that looks tokens up and weighs them."""
    random = np.random.default_rng(5)
    weights = [
        numpy_helper.from_array(random.standard_normal(shape).astype(np.float32), name)
        for name, shape in (("table", (SMALL.vocabulary, SMALL.hidden)), ("weight", (SMALL.hidden, SMALL.hidden)))
    ]
    nodes = [
        helper.make_node("Gather", ["table", "input_ids"], ["x"]),
        helper.make_node("MatMul", ["x", "weight"], ["y"]),
        helper.make_node("Cast", ["attention_mask"], ["seen"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["seen", "axis"], ["column"]),
        helper.make_node("Mul", ["y", "column"], ["last_hidden_state"]),
    ]
    weights.append(numpy_helper.from_array(np.array([2], np.int64), "axis"))
    names = ("input_ids", "attention_mask")
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "rows"]) for name in names]
    dims = ["batch", "rows", SMALL.hidden]
    outputs = [helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, dims)]
    graph = helper.make_graph(nodes, "encoder", inputs, outputs, weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    return path


def compiled(model: Path) -> str:
    return flexnn.compile(model, model.with_suffix(".flexnn"))


def feed_of(rows: int) -> dict[str, Any]:
    ids = np.random.default_rng(rows).integers(0, SMALL.vocabulary, (1, rows))
    return {"input_ids": ids, "attention_mask": np.ones_like(ids)}


def greedy(folder: Path, kind: str, feed: dict[str, Any], most: int) -> list[int]:
    """The answer by onnxruntime, which takes all tokens in each run."""
    encoder = onnxruntime.InferenceSession(str(write_encoder(folder / "encoder.onnx")))
    decoder = PairCaller(onnxruntime.InferenceSession(str(write_pair(folder / "alone.onnx", kind, "alone"))), kind)
    hidden, text = encoder.run(None, feed)[0], [0, 5]
    while len(text) < most + 2:
        logits = decoder.outputs(np.array([text]), hidden, hidden.shape[1])["logits"]
        token = int(logits[0, -1].argmax())
        if token in ENDS:
            break
        text.append(token)
    return text[2:]


@pytest.mark.parametrize("kind", ["t5", "whisper"])
@pytest.mark.parametrize("form", ["alone", "past", "merged"])
def test_answers_are_those_of_onnxruntime(tmp_path: Path, kind: str, form: str) -> None:
    decoder, first = compiled(write_pair(tmp_path / "decoder.onnx", kind, form)), None
    if form == "past":
        first = compiled(write_pair(tmp_path / "first.onnx", kind, "alone"))
    encoder = compiled(write_encoder(tmp_path / "encoder.onnx"))
    how: dict[str, Any] = {"start": [0, 5], "ends": ENDS, "capacity": 32, "rows": 40, "kv": "f32"}
    with EncoderDecoder(encoder, decoder, first=first, **how) as pair:
        for rows in (6, 33):
            assert list(pair.tokens(feed_of(rows), most=20)) == greedy(tmp_path, kind, feed_of(rows), 20)
        drawn = [list(pair.tokens(feed_of(6), most=8, sampling=Sampling(0.9, seed=seed))) for seed in (1, 1, 2)]
        assert drawn[0] == drawn[1] != drawn[2]
        with pytest.raises(flexnn.StateError, match="41 rows"):
            list(pair.tokens(feed_of(41)))


def test_a_budget_holds_both(tmp_path: Path) -> None:
    encoder = compiled(write_encoder(tmp_path / "encoder.onnx"))
    decoder = compiled(write_pair(tmp_path / "decoder.onnx", "t5", "alone"))
    how: dict[str, Any] = {"start": [0, 5], "ends": ENDS, "capacity": 24, "rows": 40}
    with pytest.raises(flexnn.BudgetError) as refused:
        EncoderDecoder(encoder, decoder, memory="2MiB", **how)
    for memory in (refused.value.minimum, refused.value.minimum + (4 << 20)):
        with EncoderDecoder(encoder, decoder, memory=memory, **how) as pair:
            assert sum(session.session_bytes for session in (pair.encoder, pair.decoder)) <= memory
            if memory > refused.value.minimum:
                assert len(list(pair.tokens(feed_of(9), most=5))) <= 5
                assert sum(session.session_bytes for session in (pair.encoder, pair.decoder)) <= memory


def test_a_decoder_that_lacks_keys_and_values_says_so(tmp_path: Path) -> None:
    encoder = compiled(write_encoder(tmp_path / "encoder.onnx"))
    decoder = compiled(write_pair(tmp_path / "decoder.onnx", "t5", "past"))
    with (
        EncoderDecoder(encoder, decoder, start=[0], ends=ENDS, capacity=24, rows=40) as pair,
        pytest.raises(ValueError, match=r"decoder's input 'past_key_values\.0\.encoder\.key': give the model"),
    ):
        list(pair.tokens(feed_of(3)))


def test_an_answer_whose_state_another_took_ends_with_an_error(tmp_path: Path) -> None:
    """Was: it went on with tokens of the other one."""
    encoder = compiled(write_encoder(tmp_path / "encoder.onnx"))
    decoder = compiled(write_pair(tmp_path / "decoder.onnx", "t5", "alone"))
    with EncoderDecoder(encoder, decoder, start=[0, 5], ends=(), capacity=24, rows=40, memory="64MiB") as pair:
        alone = list(pair.tokens(feed_of(9), most=5))
        first, second = pair.tokens(feed_of(3), most=5), pair.tokens(feed_of(9), most=5)
        made = [next(first), next(second)]
        with pytest.raises(flexnn.StateError, match="another answer has begun"):
            next(first)
        assert [made[1], *second] == alone
        assert list(pair.tokens(feed_of(9), most=0)) == []


def test_empty_files_are_no_models(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    with pytest.raises(flexnn.FlexNNError):
        EncoderDecoder(tmp_path / "empty", tmp_path / "empty", start=[0], ends=(), memory="64MiB")
