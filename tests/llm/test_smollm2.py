"""A real language model (SmolLM2-135M) answers, with drafts and without, inside a budget."""

from __future__ import annotations

import pytest

from bench.models.fetch import fetch
from flexnn.llm.language import LanguageModel

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("drafts", [False, True])
def test_the_capital_of_france(drafts: bool) -> None:
    (path,) = fetch("smollm2_135m")
    with LanguageModel(path, memory="96MiB", drafts=drafts, capacity=256) as model:
        asked = model.chat_tokens([{"role": "user", "content": "What is the capital of France?"}])
        assert len(asked) == 37
        assert "".join(model.answer(asked, tokens=32)) == "The capital of France is Paris."
        assert model.speed.finish == "stop"
