"""Decoders that read an encoder's output: what they make of it is made once, against onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import flexnn
from flexnn.run.stateful import StateRun
from flexnn.session import open_for_tests
from tests.support.pairs import SMALL, PairCaller, write_pair

Array = np.ndarray[Any, Any]
FORMS = [
    ("t5", "alone"),
    ("whisper", "alone"),
    ("t5", "past"),
    ("whisper", "past"),
    ("t5", "merged"),
    ("whisper", "merged"),
]


def hidden_of(rows: int, seed: int = 3) -> Array:
    return np.random.default_rng(seed).standard_normal((1, rows, SMALL.hidden)).astype(np.float32)


class Pair:
    """The forms of a decoder, and the calls that a user makes."""

    def __init__(self, folder: Path, kind: str, form: str) -> None:
        self.kind, self.form = kind, form
        self.theirs = PairCaller(
            onnxruntime.InferenceSession(str(write_pair(folder / "alone.onnx", kind, "alone"))), kind
        )
        self.artifact = flexnn.compile(write_pair(folder / f"{form}.onnx", kind, form), folder / "m.flexnn")

    def given(self, hidden: Array, seen: int) -> dict[str, Array]:
        """Inputs that a session takes once."""
        mask = np.zeros((1, hidden.shape[1]), np.int64)
        mask[:, :seen] = 1
        feed = {"encoder_attention_mask": mask} if self.kind == "t5" else {}
        if self.form != "past":
            return feed | {"encoder_hidden_states": hidden}
        outputs = self.theirs.outputs(np.zeros((1, 1), np.int64), hidden, seen)
        made = {name: value for name, value in outputs.items() if ".encoder." in name}
        return feed | {name.replace("present", "past_key_values"): value for name, value in made.items()}


@pytest.mark.parametrize(("kind", "form"), FORMS)
def test_logits_are_those_of_onnxruntime(tmp_path: Path, kind: str, form: str) -> None:
    pair = Pair(tmp_path, kind, form)
    ids = np.random.default_rng(1).integers(0, SMALL.vocabulary, (1, 40))
    with open_for_tests(pair.artifact, kv_capacity=48, cross_capacity=80, kv="f32", poison=True) as session:
        for rows, seen in ((7, 7), (70, 66), (1, 1), (80, 80)):
            seen = seen if kind == "t5" else rows
            hidden, at = hidden_of(rows, rows), 0
            given = pair.given(hidden, seen)
            for count in (1, 1, 1, 9, 1, 27):
                for new in [1] * count if (kind, form) in (("whisper", "past"), ("whisper", "merged")) else [count]:
                    (made,) = session.run(None, {"input_ids": ids[:, at : at + new], **given})
                    given, at = {}, at + new
                wanted = pair.theirs.outputs(ids[:, :at], hidden, seen)["logits"][:, -1:]
                np.testing.assert_allclose(made, wanted, atol=3e-5)
                assert session.state_length == at
            session.reset()


@pytest.mark.parametrize(("kv", "most"), [("f16", 1e-2), ("s8", 5e-2)])
def test_narrow_state_is_near(tmp_path: Path, kv: Any, most: float) -> None:
    pair, hidden = Pair(tmp_path, "t5", "alone"), hidden_of(20)
    ids = np.random.default_rng(1).integers(0, SMALL.vocabulary, (1, 9))
    with flexnn.Session(pair.artifact, kv_capacity=16, cross_capacity=32, kv=kv) as session:
        run = session._run
        assert isinstance(run, StateRun)
        assert all(node.op != "cast" for node in run._widths[-1].graph.nodes)  # attention widens what it reads
        (made,) = session.run(None, {"input_ids": ids, **pair.given(hidden, 20)})
    np.testing.assert_allclose(made, pair.theirs.outputs(ids, hidden, 20)["logits"][:, -1:], atol=most)


@pytest.mark.parametrize("kv", ["f16", "s8"])
@pytest.mark.parametrize("form", ["alone", "past"])
def test_a_state_in_a_file_has_what_the_encoder_made(tmp_path: Path, form: str, kv: Any) -> None:
    pair, path = Pair(tmp_path, "t5", form), tmp_path / "state"
    ids = np.random.default_rng(2).integers(0, SMALL.vocabulary, (1, 12))
    with flexnn.Session(pair.artifact, kv_capacity=16, cross_capacity=32, kv=kv) as session:
        session.run(None, {"input_ids": ids[:, :5], **pair.given(hidden_of(20), 17)})
        session.save_state(path)
        (wanted,) = session.run(None, {"input_ids": ids[:, 5:]})
    with flexnn.Session(pair.artifact, kv_capacity=12, cross_capacity=24, kv=kv) as session:
        session.load_state(path)
        np.testing.assert_array_equal(session.run(None, {"input_ids": ids[:, 5:]})[0], wanted)
        session.reset()
        (other,) = session.run(None, {"input_ids": ids[:, :1], **pair.given(hidden_of(9, seed=4), 9)})
        with pytest.raises(flexnn.StateError, match="was cut"):
            path.write_bytes(path.read_bytes()[:-9])
            session.load_state(path)
        session.reset()
        np.testing.assert_array_equal(session.run(None, {"input_ids": ids[:, :1]})[0], other)  # the state stayed
    small = flexnn.Session(pair.artifact, kv_capacity=12, cross_capacity=16, kv=kv)
    with small as session, pytest.raises(flexnn.StateError, match="its 17 tokens are beyond"):
        session.load_state(path)


def test_what_is_given_once_is_asked_for_and_refused_in_between(tmp_path: Path) -> None:
    pair, hidden, token = Pair(tmp_path, "t5", "alone"), hidden_of(9), np.array([[3]])
    with flexnn.Session(pair.artifact, kv_capacity=16, cross_capacity=16, kv="f32") as session:
        names = [port.name for port in session.get_inputs()]
        assert names == ["input_ids", "encoder_hidden_states", "encoder_attention_mask"]
        with pytest.raises(flexnn.StateError, match="first run of an input gives what the encoder made"):
            session.run(None, {"input_ids": token})
        (first,) = session.run(None, {"input_ids": token, **pair.given(hidden, 9)})
        with pytest.raises(flexnn.StateError, match="has 1 tokens of another input: reset it"):
            session.run(None, {"input_ids": token, **pair.given(hidden, 9)})
        assert session.state_length == 1
        session.reset()
        np.testing.assert_array_equal(session.run(None, {"input_ids": token})[0], first)  # of the same input
        session.reset()
        for rows, mask, error in (
            (17, np.ones((1, 17)), "17 rows of an encoder's output: from 1 to 16"),
            (9, np.zeros((1, 9)), "from 1 to 16"),
            (9, np.arange(9)[None] % 2, "does not count the first"),
            (9, np.ones((1, 8)), "does not count the first"),
        ):
            feed = {"input_ids": token, "encoder_hidden_states": hidden_of(rows)}
            with pytest.raises(flexnn.StateError, match=error):
                session.run(None, feed | {"encoder_attention_mask": mask.astype(np.int64)})
        with pytest.raises(flexnn.StateError, match="all of what an encoder made, or nothing"):
            session.run(None, {"input_ids": token, "encoder_attention_mask": np.ones((1, 9), np.int64)})
        feed = {"input_ids": token, "encoder_hidden_states": hidden}  # a mask that is left out counts all rows
        np.testing.assert_array_equal(session.run(None, feed)[0], first)


@pytest.mark.parametrize("form", ["alone", "merged"])
def test_any_budget_computes_the_same(tmp_path: Path, form: str) -> None:
    pair, hidden = Pair(tmp_path, "t5", form), hidden_of(30)
    with pytest.raises(flexnn.BudgetError) as refused:
        flexnn.Session(pair.artifact, memory="1MiB", kv_capacity=32, cross_capacity=64)
    least, texts = refused.value.minimum, []
    for memory in (None, least, least + (1 << 18), least + (4 << 20)):
        with open_for_tests(
            pair.artifact, memory, kv_capacity=32, cross_capacity=64, poison=True, deterministic=True
        ) as session:
            assert memory is None or session.session_bytes <= memory
            given, text = pair.given(hidden, 30), [0]
            while len(text) < 20:
                (logits,) = session.run(None, {"input_ids": np.array([text[-1:]]), **given})
                given = {}
                text.append(int(logits[0, -1].argmax()))
            texts.append(text)
            if memory == least:
                session.memory = None
    assert all(text == texts[0] for text in texts)
