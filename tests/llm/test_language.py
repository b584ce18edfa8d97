"""Language models write text: the same one with drafts, until a stop word, or until the state is full."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import flexnn
from flexnn.cli import main
from flexnn.errors import StateError
from flexnn.llm.drafting import Lookup, Width
from flexnn.llm.language import LanguageModel
from flexnn.llm.sampling import Sampling
from tests.support.gguf_models import SMALL, write_small, write_talker


@pytest.fixture(scope="module")
def talker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("talker") / "talker.gguf"
    write_talker(path)
    return path


@pytest.fixture
def model(talker: Path) -> Iterator[LanguageModel]:
    with LanguageModel(talker, capacity=128) as opened:
        yield opened


def _plain(model: LanguageModel, prompt: list[int], count: int) -> list[int]:
    """Greedy tokens, one pass over everything for each."""
    found = []
    for _ in range(count):
        model.decoder.reset()
        found.append(int(model.decoder.append(prompt + found).argmax()))
        if found[-1] in model.tokens.ends:
            break
    model.drop(0)
    return found


def test_greedy_text_is_what_whole_passes_say_with_drafts_and_without(talker: Path, model: LanguageModel) -> None:
    prompt = model.tokens.cut("hello hello hello hello")
    wanted = model.tokens.text(_plain(model, prompt, 40))
    with LanguageModel(talker, capacity=128, drafts=False) as single:
        assert "".join(single.answer(prompt, tokens=40)) == wanted
        assert single.speed.passes == single.speed.tokens
    assert "".join(model.answer(prompt, tokens=40)) == wanted
    assert model.speed.passes < model.speed.tokens  # a random decoder repeats itself soon
    assert len(model.speed.token_seconds) == model.speed.tokens


def test_an_artifact_runs_in_place_of_the_file(
    talker: Path, model: LanguageModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prompt = model.tokens.cut("hello world")
    wanted = "".join(model.answer(prompt, tokens=12))
    same = flexnn.compile(talker, tmp_path / "same.flexnn", rows="f32")
    assert "".join(flexnn.generate(talker, "hello world", tokens=12, artifact=same, capacity=128)) == wanted
    write_small(tmp_path / "other.gguf", SMALL["llama"])
    other_words = flexnn.compile(tmp_path / "other.gguf", tmp_path / "other.flexnn")
    assert main(["chat", str(talker), "--artifact", str(other_words), "--prompt", "hello", "--plain"]) == 2
    assert "was not compiled from" in capsys.readouterr().err


def test_what_the_state_holds_is_not_read_again(model: LanguageModel) -> None:
    prompt = model.tokens.cut("hello world")
    first = "".join(model.answer(prompt, tokens=5))
    assert model.speed.prefill_tokens == len(prompt)
    assert "".join(model.answer(prompt, tokens=5)) == first
    assert model.speed.prefill_tokens == 1
    assert model.speed.prompt_tokens == len(prompt)


def test_a_stop_word_ends_the_text_before_it(model: LanguageModel) -> None:
    prompt = model.tokens.cut("hello")
    whole = "".join(model.answer(prompt, tokens=30))
    stop = whole[10:13]
    at = whole.index(stop)
    assert "".join(model.answer(prompt, tokens=30, stop=[stop])) == whole[:at]
    assert model.speed.finish == "stop"


def test_a_prompt_beyond_the_capacity_is_refused_and_the_state_goes_on(model: LanguageModel) -> None:
    with pytest.raises(StateError, match="200 tokens after 0 do not fit"):
        list(model.answer([1] * 200))
    assert "".join(model.answer([1] * 120, tokens=50)) is not None
    assert model.decoder.length <= 128
    assert model.speed.finish == "length"


def test_seeded_draws_repeat(model: LanguageModel) -> None:
    prompt = model.tokens.cut("hello")
    how = Sampling(temperature=1.5, seed=4)
    assert list(model.answer(prompt, sampling=how)) == list(model.answer(prompt, sampling=how))


def test_generate_takes_text_and_messages(talker: Path) -> None:
    assert "".join(flexnn.generate(talker, "hello", tokens=4, memory="64MiB"))
    assert "".join(flexnn.generate(talker, [{"role": "user", "content": "hello"}], tokens=4, stop="zzz"))


def test_lookup_finds_what_followed() -> None:
    lookup = Lookup()
    lookup.add([1, 2, 3, 4, 5, 1, 2, 3])
    assert lookup.draft(3) == [4, 5, 1]
    lookup.add([9])
    assert lookup.draft(3) == []


def test_width_follows_time_and_luck() -> None:
    width = Width()
    assert width.is_worth()  # nothing is known: it is tried
    for drafted, seconds in ((0, 1.0), (7, 1.2)):
        width.passed(drafted, drafted, seconds)
    assert width.is_worth()
    for _ in range(30):
        width.passed(7, 0, 3.0)
    assert sum(width.is_worth() for _ in range(32)) == 2  # now and then it is tried again


JSON = {"text", "tokens", "prefill_tokens_per_s", "tokens_per_s", "ms_per_token", "memory_budget", "baseline_rss"}
JSON |= {"peak_rss", "bytes_read_per_token", "bound_ms"}


@pytest.mark.parametrize("kv", ["f16", "s8"])
def test_chat_prints_one_object(talker: Path, capsys: pytest.CaptureFixture[str], kv: str) -> None:
    given = [str(talker), "--prompt", "hello", "--tokens", "8", "--greedy", "--memory", "64MiB", "--json", "--kv", kv]
    assert main(["chat", *given]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found) == JSON
    assert set(found["ms_per_token"]) == {"p50", "p95"}
    assert 0 < found["tokens"] <= 8
    assert found["memory_budget"] == 64 << 20


def _end() -> str:
    raise EOFError


def test_chat_talks_until_the_input_ends(
    talker: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = iter(["hello", "x" * 200, "/reset", "hello again"])
    monkeypatch.setattr("builtins.input", lambda _: next(lines, None) or _end())
    assert main(["chat", str(talker), "--kv-capacity", "128", "--tokens", "8", "--seed", "1"]) == 0
    told = capsys.readouterr()
    assert told.err.count("tokens/s") == 2
    assert "error: " in told.err
    assert "\x1b" not in told.out


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--json"], "--json needs --prompt"),
        (["--prompt", "a", "--top-p", "7"], "top_p must be"),
        (["--prompt", "a", "--memory", "1KiB"], "budget"),
    ],
)
def test_chat_refuses_in_one_line(
    talker: Path, capsys: pytest.CaptureFixture[str], given: list[str], said: str
) -> None:
    assert main(["chat", str(talker), *given]) == 2
    told = capsys.readouterr()
    assert said in told.err
    assert told.err.count("\n") == 1


def test_a_file_that_is_no_gguf_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.onnx").write_bytes(b"\x08\x01")
    with pytest.raises(flexnn.GraphError, match="not a GGUF file"):
        LanguageModel(tmp_path / "x.onnx")


@pytest.mark.parametrize("messages", [[], b"hello", {"role": "user"}, [{"role": "user"}], [{"role": 1, "content": "a"}],
                                      [{"role": "user", "content": None}], [b"hello"]])  # fmt: skip
def test_messages_that_are_none_are_named(model: LanguageModel, messages: object) -> None:
    """Was an answer to nothing, or what the template said of a number that has no role."""
    with pytest.raises(flexnn.FlexNNError, match=r"a chat is a list|a message needs role and content"):
        list(flexnn.generate(model, messages, tokens=2))  # type: ignore[arg-type]


def test_fewer_tokens_than_none_are_refused(model: LanguageModel) -> None:
    assert list(flexnn.generate(model, "hello", tokens=0)) == []
    with pytest.raises(ValueError, match="-1 tokens"):
        list(flexnn.generate(model, "hello", tokens=-1))


def test_an_answer_inside_another_is_refused(model: LanguageModel) -> None:
    """Was a hang."""
    prompt = model.tokens.cut("hello")
    first = model.answer(prompt, tokens=20)
    next(first)
    with pytest.raises(StateError, match="another answer"):
        list(model.answer(prompt, tokens=2))
    first.close()  # type: ignore[attr-defined]
    assert "".join(model.answer(prompt, tokens=2)) is not None
