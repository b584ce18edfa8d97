"""Text: tokens and back, pieces that are held back until they are sure, chat templates within limits, samplers."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest

from flexnn.graph.ir import GraphError
from flexnn.llm import tokens
from flexnn.llm.gguf_file import open_gguf
from flexnn.llm.pieces import Stream
from flexnn.llm.sampling import Sampler, Sampling
from flexnn.llm.template import TemplateError, rendered
from flexnn.llm.tokens import Tokens
from tests.support.gguf_models import SMALL, Small, byte_tokens, piece_tokens, write_small


def _bytes(path: Path) -> Tokens:
    write_small(path, Small("llama", vocabulary=264), tokenizer=byte_tokens)
    return Tokens(open_gguf(str(path)))


def _pieces(path: Path) -> Tokens:
    write_small(path, Small("llama", vocabulary=273), tokenizer=piece_tokens)
    return Tokens(open_gguf(str(path)))


TEXTS = ["hello world", "  12 é 日本 🙂\n\n\ttab", "", " ", "w w"]


@pytest.mark.parametrize("text", TEXTS)
def test_tokens_of_bytes_give_the_text_back(tmp_path: Path, text: str) -> None:
    made = _bytes(tmp_path / "t.gguf")
    assert made.text(made.cut(text)) == text


def test_merges_digits_and_control_tokens(tmp_path: Path) -> None:
    made = _bytes(tmp_path / "t.gguf")
    assert [made.raw(t) for t in made.cut("hello 12 w<|end|>")] == [b"hell", b"o", b" ", b"1", b"2", b" w", b""]
    assert made.ends == {260}


@pytest.mark.parametrize("text", TEXTS)
def test_pieces_give_the_text_back_behind_a_space(tmp_path: Path, text: str) -> None:
    made = _pieces(tmp_path / "t.gguf")
    found = made.cut(text)
    assert found[0] == 1  # the token that begins a text
    assert made.text(found) == (" " + text if text else "")


def test_the_best_scores_are_joined_first(tmp_path: Path) -> None:
    made = _pieces(tmp_path / "t.gguf")
    assert [made.raw(t) for t in made.cut("hello wo", begins=False)] == [b" hello", b" wo"]


@pytest.mark.parametrize("byte", ["<0xZZ>", "<0x-1>", "<0x 1>", "a"])
@pytest.mark.parametrize("model", ["llama", "gpt2"])
def test_a_byte_that_is_none_is_refused(tmp_path: Path, byte: str, model: str) -> None:
    """Was an error of int() in the middle of an answer."""

    def other(writer: gguf.GGUFWriter) -> int:
        writer.add_tokenizer_model(model)
        writer.add_token_list([*(f"t{i}" for i in range(95)), byte])
        writer.add_token_types([1] * 95 + [6])
        writer.add_token_scores([0.0] * 96)
        writer.add_token_merges([])
        return 96

    write_small(tmp_path / "t.gguf", SMALL["llama"], tokenizer=other)
    with pytest.raises(GraphError, match="a byte is not written"):
        Tokens(open_gguf(str(tmp_path / "t.gguf")))


def test_pieces_that_join_in_too_many_ways_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces of one letter each join any two shorter ones: 4,000 of them took gigabytes."""
    monkeypatch.setattr(tokens, "JOINS_MAX", 1000)

    def other(writer: gguf.GGUFWriter) -> int:
        writer.add_tokenizer_model("llama")
        writer.add_token_list(["a" * (i + 1) for i in range(96)])
        writer.add_token_types([1] * 96)
        writer.add_token_scores([0.0] * 96)
        return 96

    write_small(tmp_path / "t.gguf", SMALL["llama"], tokenizer=other)
    with pytest.raises(GraphError, match="ways to join pieces"):
        Tokens(open_gguf(str(tmp_path / "t.gguf")))


def test_a_tokenizer_that_is_not_known_is_named(tmp_path: Path) -> None:
    def other(writer: gguf.GGUFWriter) -> int:
        writer.add_tokenizer_model("bert")
        writer.add_token_list(["a"] * 96)
        return 96

    write_small(tmp_path / "t.gguf", SMALL["llama"], tokenizer=other)
    with pytest.raises(GraphError, match="'bert' is not supported"):
        Tokens(open_gguf(str(tmp_path / "t.gguf")))


def test_characters_and_stop_words_are_held_back_until_they_are_whole() -> None:
    stream = Stream(["STOP", "END"])
    raw = "aé日🙂ST".encode()
    shown = [stream.add(raw[i : i + 1]) for i in range(len(raw))]
    assert "".join(shown) == "aé日🙂"
    assert stream.add(b"AR S") == "STAR "
    assert stream.add(b"TO") == ""
    assert stream.add(b"P and more") == ""
    assert stream.is_stopped
    assert stream.add(b"x") + stream.end() == ""


def test_what_was_held_back_comes_at_the_end() -> None:
    stream = Stream(["STOP"])
    assert stream.add(b"a ST") == "a "
    assert stream.add(b"\xf0\x9f") == ""
    assert stream.end() == "ST\ufffd"


MESSAGES = [{"role": "user", "content": "hi"}]


def test_a_template_is_rendered() -> None:
    text = rendered(
        "{{ bos_token }}{% for m in messages %}[{{ m['content'] | trim }}]{% endfor %}", MESSAGES, "<s>", ""
    )
    assert text == "<s>[hi]"


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ cycler.__init__.__globals__.os.system('id') }}",
        "{% include '/etc/passwd' %}",
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% set x = namespace(a='aaaaaaaa') %}{% for i in range(40) %}{% set x.a = x.a ~ x.a %}{% endfor %}{{ x.a }}",
        "{{ 'a' * 10000000000 }}",
        "{{ raise_exception('no system\nhere') }}",
        "{% nonsense %}",
    ],
)
def test_a_hostile_template_ends_in_one_line(template: str) -> None:
    with pytest.raises(TemplateError, match="the chat template") as found:
        rendered(template, MESSAGES, "", "")
    assert "\n" not in str(found.value)


def test_greedy_takes_the_largest_and_penalties_count() -> None:
    logits = np.array([0.0, 3.0, 2.0, -1.0], np.float32)
    assert Sampler(Sampling()).choose(logits, []) == 1
    assert Sampler(Sampling(repeat_penalty=2.0)).choose(logits, [0, 1]) == 2
    assert logits[1] == 3  # the caller's logits stay


def test_draws_repeat_by_the_seed_and_keep_to_their_limits() -> None:
    logits = np.random.default_rng(0).standard_normal(1000).astype(np.float32) * 3

    def drawn(**how: float) -> list[int]:
        sampler = Sampler(Sampling(temperature=1.0, **how))  # type: ignore[arg-type]
        return [sampler.choose(logits, []) for _ in range(300)]

    assert drawn(seed=7) == drawn(seed=7) != drawn(seed=8)
    order = np.argsort(-logits)
    assert set(drawn(seed=1, top_k=3, top_p=1.0, min_p=0.0)) == set(order[:3].tolist())
    assert set(drawn(seed=1, min_p=1.0)) == {order[0]}
    assert set(drawn(seed=1, top_p=1e-6)) == {order[0]}
    assert len(set(drawn(seed=1, top_k=0, top_p=1.0, min_p=0.0))) > 50
    shares = np.exp(logits[order[:2]].astype(float))
    found = np.mean([d == order[0] for d in drawn(seed=3, top_k=2, top_p=1.0, min_p=0.0)])
    assert abs(found - shares[0] / shares.sum()) < 0.1


@pytest.mark.parametrize("how", [{"temperature": -1}, {"top_p": 0}, {"min_p": 2}, {"repeat_penalty": 0}, {"top_k": -1}])
def test_wrong_settings_are_refused(how: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must"):
        Sampling(**how)  # type: ignore[arg-type]
