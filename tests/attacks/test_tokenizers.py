"""Attack: the tokens of a GGUF file take far more memory than they have bytes, or are not those of its model.

Answer: GraphError, before memory is taken and the model is opened.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

import gguf
import pytest

from flexnn.graph.ir import GraphError
from flexnn.llm import tokens
from flexnn.llm.gguf_file import open_gguf
from flexnn.llm.language import LanguageModel
from flexnn.llm.tokens import Tokens
from tests.support.gguf_models import SMALL, Small, byte_tokens, write_small


def refused(folder: Path, texts: list[str], kind: int, match: str) -> None:
    """Check that a tokenizer of these tokens is refused."""

    def tokenizer(writer: gguf.GGUFWriter) -> int:
        writer.add_tokenizer_model("llama")
        writer.add_token_list(texts)
        writer.add_token_types([kind] * len(texts))
        writer.add_token_scores([0.0] * len(texts))
        return SMALL["llama"].vocabulary

    write_small(folder / "t.gguf", SMALL["llama"], tokenizer=tokenizer)
    with pytest.raises(GraphError, match=match):
        Tokens(open_gguf(str(folder / "t.gguf")))


@pytest.mark.parametrize("kind", [3, 4])
def test_many_bytes_of_control_tokens(tmp_path: Path, kind: int) -> None:
    """Took 80 bytes for each: 640 MiB for 8."""
    refused(tmp_path, [f"{i:04}" * 1024 for i in range(257)], kind, "bytes of control tokens")


def test_long_pieces_that_join(tmp_path: Path) -> None:
    """Each way to join two of them kept copies of both: 1,250 MiB for 1 MiB."""
    refused(tmp_path, ["a" * (i + 1) for i in range(512)], 1, "or too long")


@pytest.mark.parametrize("rows", [263, 265])
def test_more_or_fewer_tokens_than_the_model_has(tmp_path: Path, rows: int) -> None:
    """A token without a text was an IndexError in the middle of an answer."""

    def tokenizer(writer: gguf.GGUFWriter) -> int:
        byte_tokens(writer)
        return rows

    write_small(tmp_path / "t.gguf", Small("llama", vocabulary=rows, tied=True), tokenizer=tokenizer)
    with pytest.raises(GraphError, match=f"264 tokens have a text, and {rows} a row"):
        LanguageModel(tmp_path / "t.gguf")


def test_long_pieces(tmp_path: Path) -> None:
    """Looking for ways to join them copied both parts at each place: 5.6 s for 8 MiB."""
    texts = [f"{i:05}" * 819 for i in range(2000)]

    def tokenizer(writer: gguf.GGUFWriter) -> int:
        writer.add_tokenizer_model("llama")
        writer.add_token_list(texts)
        writer.add_token_types([1] * len(texts))
        writer.add_token_scores([0.0] * len(texts))
        return SMALL["llama"].vocabulary

    write_small(tmp_path / "t.gguf", SMALL["llama"], tokenizer=tokenizer)
    opened = open_gguf(str(tmp_path / "t.gguf"))
    began = time.process_time()
    Tokens(opened)
    assert time.process_time() - began < 2


@pytest.mark.parametrize("seed", range(20))
def test_ways_to_join_long_pieces_are_those_of_short_ones(seed: int) -> None:
    rng = random.Random(seed)
    texts = {"".join(rng.choices("abé\u2581", k=rng.randint(1, rng.choice((3, 6, 12))))) for _ in range(200)}
    assert sorted(tokens._cuts_of_long(texts)) == sorted(tokens._cuts(texts))
