"""A real language model (SmolLM2-135M) answers, with drafts and without, inside a budget."""

from __future__ import annotations

from pathlib import Path

import pytest

import flexnn
from bench.models.fetch import fetch
from flexnn.llm.language import LanguageModel

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("drafts", [False, True])
def test_the_capital_of_germany(drafts: bool) -> None:
    (path,) = fetch("smollm2_135m")
    with LanguageModel(path, memory="96MiB", drafts=drafts, capacity=256) as model:
        asked = model.chat_tokens([{"role": "user", "content": "What is the capital of Germany?"}])
        assert len(asked) == 37
        assert "".join(model.answer(asked, tokens=32)) == "The capital of Germany is Berlin."
        assert model.speed.finish == "stop"


@pytest.mark.parametrize("drafts", [False, True])
def test_the_capital_of_france_by_rows_of_floats(drafts: bool, tmp_path: Path) -> None:
    """Rounded rows answer something else, as llama.cpp's do (docs/decisions/0059-rounded-rows.md)."""
    (path,) = fetch("smollm2_135m")
    exact = flexnn.compile(path, tmp_path / "exact.flexnn", rows="f32")
    with LanguageModel(path, artifact=exact, memory="96MiB", drafts=drafts, capacity=256) as model:
        asked = model.chat_tokens([{"role": "user", "content": "What is the capital of France?"}])
        assert "".join(model.answer(asked, tokens=32)) == "The capital of France is Paris."
        assert model.speed.finish == "stop"


def test_greedy_text_does_not_depend_on_drafts_or_budget() -> None:
    """Drafts are verified, and a budget changes when weights are read, not what is computed of them."""
    (path,) = fetch("smollm2_135m")
    prompt = "Repeat this list twice: apples, pears, plums, cherries, grapes."
    texts = set()
    for memory, drafts in (("64MiB", False), ("80MiB", True), (None, False), (None, True)):
        with LanguageModel(path, memory=memory, drafts=drafts, capacity=160, deterministic=True) as model:
            asked = model.chat_tokens([{"role": "user", "content": prompt}])
            texts.add("".join(model.answer(asked, tokens=64)))
            assert not drafts or memory is not None or model.speed.passes < model.speed.tokens
    assert len(texts) == 1
