"""A language model: a GGUF file with its tokenizer, a session and what it holds of the text so far."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from threading import Lock, get_ident
from typing import Any

import numpy as np

from flexnn.errors import StateError
from flexnn.graph.ir import GraphError
from flexnn.graph.state import CAPACITY
from flexnn.planning import BudgetError
from flexnn.quick_dataclass import quick_dataclass
from flexnn.session import Session

from .drafting import Lookup, Width
from .gguf_file import open_gguf
from .pieces import Stream
from .sampling import Sampler, Sampling
from .stepping import ROWS, Decoder
from .template import TemplateError, check_messages, rendered
from .tokens import Tokens

TOKENS = 256
"""Tokens of an answer where nobody says how many."""
Message = Mapping[str, str]


@quick_dataclass(slots=True)
class Speed:
    """Times of one answer."""

    prompt_tokens: int = 0
    """Tokens of the prompt in all."""
    prefill_tokens: int = 0
    """Those of them that the state did not hold already."""
    prefill_seconds: float = 0.0
    tokens: int = 0
    """Tokens of the answer."""
    token_seconds: list[float] = field(default_factory=list)
    """Time of each token; those of one pass share its time."""
    passes: int = 0
    finish: str = "length"
    """Why the answer ended: "stop" or "length"."""

    @property
    def seconds(self) -> float:
        """Time of all tokens."""
        return sum(self.token_seconds)


class LanguageModel:
    """A model that writes text; one answer at a time."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        artifact: str | os.PathLike[str] | None = None,
        capacity: int = CAPACITY,
        drafts: bool = True,
        loaded: Callable[[], object] = lambda: None,
        **how: Any,
    ) -> None:
        """Open the GGUF file at ``path`` with a state for ``capacity`` tokens. ``artifact``: what ``flexnn.compile``
        made of it, with other ``rows`` or ``weights``, which runs in place of what opening makes. ``drafts``: whether
        greedy answers may verify several tokens in one pass, where the budget holds the logits of it. ``loaded`` is
        called when the tokenizer is there; ``how`` goes to the session (``memory``, ``threads``, …). Raises OSError and
        FlexNNError.
        """
        name = os.fsdecode(path)
        opened = open_gguf(name)
        try:
            self.tokens = Tokens(opened)
            self.template = opened.text("tokenizer.chat_template", "")
            table = opened.tensors.get("token_embd.weight")
            if table is not None and table.shape[0] != len(self.tokens):
                raise GraphError(f"{len(self.tokens)} tokens have a text, and {table.shape[0]} a row of the table")
        except GraphError as error:
            raise GraphError(f"{name}: {error}") from None
        opened.file.close()
        loaded()
        runs = name if artifact is None else os.fsdecode(artifact)
        try:
            self.session = Session(runs, kv_capacity=capacity, all_logits=drafts, reuse_outputs=True, **how)
        except BudgetError:
            if not drafts:
                raise
            drafts = False  # logits of many rows are what the budget does not hold
            self.session = Session(runs, kv_capacity=capacity, reuse_outputs=True, **how)
        if artifact is not None:
            self._check_artifact(runs, name, len(self.tokens))
        self.decoder = Decoder(self.session, capacity, has_all_rows=drafts)
        self.speed = Speed()
        self._held: list[int] = []
        self._lock = Lock()
        self._answering = 0
        """Thread that began the last answer."""

    def _check_artifact(self, artifact: str, model: str, vocabulary: int) -> None:
        """Raise GraphError, and close the session, if the artifact takes or gives something else than the model."""
        inputs = [port.name for port in self.session.get_inputs()]
        outputs = [port.shape[-1:] for port in self.session.get_outputs()]
        if inputs != ["input_ids"] or [list(dims) for dims in outputs] != [[vocabulary]]:
            self.session.close()
            raise GraphError(f"{artifact}: was not compiled from {model}, which knows {vocabulary} tokens")

    def close(self) -> None:
        """Close the session."""
        self.decoder.close()

    def __enter__(self) -> LanguageModel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def chat_tokens(self, messages: Sequence[Message]) -> list[int]:
        """The tokens of a chat before the next answer. Raises TemplateError."""
        check_messages(messages)
        if not self.template:
            raise TemplateError("the file has no chat template: give the prompt as plain text")
        return self.text_tokens(rendered(self.template, messages, self.tokens.first_text, self.tokens.end_text))

    def text_tokens(self, text: str) -> list[int]:
        """The tokens of a text. Raises StateError where it is surely longer than the state has room for, before what
        cutting it takes, which is up to some hundred bytes for each of the text.
        """
        most = self.tokens.longest * self.decoder.capacity
        if len(text) > most:
            raise StateError(f"a text of {len(text)} characters is beyond the state's {self.decoder.capacity} tokens")
        return self.tokens.cut(text)

    def answer(
        self,
        prompt: Sequence[int],
        *,
        tokens: int = TOKENS,
        sampling: Sampling | None = None,
        stop: Sequence[str] = (),
    ) -> Iterator[str]:
        """Yield the text that follows the tokens of ``prompt``, as soon as it is sure. Raises StateError before the
        first where the state has no room for them, or this thread has begun another answer that has not ended: those of
        other threads are waited for.
        """
        if self._lock.locked() and self._answering == get_ident():
            raise StateError("this thread has begun another answer: it ends first, or is closed")
        with self._lock:
            self._answering = get_ident()
            yield from self._answer(list(prompt), tokens, Sampler(sampling or Sampling()), Stream(stop))

    def _answer(self, prompt: list[int], tokens: int, sampler: Sampler, stream: Stream) -> Iterator[str]:
        if not prompt:
            raise ValueError("the prompt has no tokens")
        if tokens < 0:
            raise ValueError(f"an answer of {tokens} tokens is asked for")
        self.speed = speed = Speed(prompt_tokens=len(prompt))
        run = _Run(self, prompt, sampler)
        run.begin(speed)
        while speed.tokens < tokens:
            for token in run.next(min(tokens - speed.tokens, self.decoder.capacity - self.decoder.length)):
                speed.tokens += 1
                if token in self.tokens.ends:
                    speed.finish = "stop"
                    break
                text = stream.add(self.tokens.raw(token))
                if text:
                    yield text
                if stream.is_stopped:
                    speed.finish = "stop"
                    break
            if speed.finish == "stop" or self.decoder.length >= self.decoder.capacity:
                break
        rest = stream.end()
        if rest:
            yield rest

    def kept(self, prompt: Sequence[int]) -> int:
        """Let the state keep what it holds of the beginning of ``prompt``, but its last token; return how much."""
        count = 0
        for a, b in zip(self._held[: self.decoder.length], prompt[:-1], strict=False):
            if a != b:
                break
            count += 1
        self.decoder.reset(count)
        self._held = list(prompt[:count])
        return count

    def append(self, tokens: Sequence[int]) -> np.ndarray:
        """Append tokens to the state; return the logits of the last one."""
        logits = self.decoder.append(tokens)
        self._held += tokens
        return logits

    def rows(self, tokens: Sequence[int]) -> np.ndarray:
        """Append a few tokens to the state; return the logits of each."""
        logits = self.decoder.rows(tokens)
        self._held += tokens
        return logits

    def drop(self, length: int) -> None:
        """Forget all tokens but the first ``length``."""
        self.decoder.reset(length)
        del self._held[length:]


class _Run:
    """One answer: passes, each of which makes one token or several."""

    def __init__(self, model: LanguageModel, prompt: list[int], sampler: Sampler) -> None:
        self.model, self.sampler, self.text = model, sampler, prompt
        self.lookup = Lookup() if model.decoder.has_all_rows and sampler.is_greedy else None
        self.width = Width()
        self.logits = np.empty(0, np.float32)

    def begin(self, speed: Speed) -> None:
        """Bring the state behind the prompt. Raises StateError."""
        model, start = self.model, time.perf_counter()
        count = model.kept(self.text)
        self.logits = model.append(self.text[count:])
        speed.prefill_tokens, speed.prefill_seconds = len(self.text) - count, time.perf_counter() - start
        if self.lookup is not None:
            self.lookup.add(self.text)

    def next(self, most: int) -> list[int]:
        """The next tokens, at most ``most``, chosen by the logits of the pass before; the pass after them has run."""
        start = time.perf_counter()
        token = self.sampler.choose(self.logits, self.text)
        made = [token]
        self._note(token)
        if token in self.model.tokens.ends or self.model.decoder.length >= self.model.decoder.capacity:
            self._passed(made, 0, start)
            return made
        room = min(most - 1, self.model.decoder.capacity - self.model.decoder.length - 1)
        draft = self.lookup.draft(min(ROWS - 1, room)) if self.lookup is not None and room > 0 else []
        if not (draft and self.width.is_worth()):
            self.logits = self.model.append([token])
            self._passed(made, 0, start)
            return made
        before = self.model.decoder.length
        rows = self.model.rows([token, *draft])
        right = 0
        for guess in draft:
            if self.sampler.choose(rows[right], self.text) != guess:
                break
            self._note(guess)
            made.append(guess)
            right += 1
        if right < len(draft):
            self.model.drop(before + 1 + right)
        self.logits = rows[right]
        self._passed(made, len(draft), start)
        return made

    def _note(self, token: int) -> None:
        self.text.append(token)
        if self.lookup is not None:
            self.lookup.add([token])

    def _passed(self, made: list[int], drafted: int, start: float) -> None:
        """Note a pass that made these tokens, of which all but the first were drafted."""
        seconds = time.perf_counter() - start
        self.width.passed(drafted, len(made) - 1, seconds)
        self.model.speed.token_seconds += [seconds / len(made)] * len(made)
        self.model.speed.passes += 1


def generate(
    model: str | os.PathLike[str] | LanguageModel,
    prompt: str | Sequence[Message],
    *,
    tokens: int = TOKENS,
    stop: str | Sequence[str] = (),
    sampling: Sampling | None = None,
    **how: Any,
) -> Iterator[str]:
    """Yield the text that follows ``prompt``, in pieces.

    Args:
        model: Path of a GGUF file, or an open `flexnn.llm.LanguageModel`, which keeps what it has read.
        prompt: Text that goes on, or the messages of a chat: mappings with ``role`` and ``content``.
        tokens: Most tokens of the answer.
        stop: Words at which it ends; they are no part of it.
        sampling: How tokens are drawn; None: always the most probable one (greedy).
        how: Arguments of LanguageModel: ``memory``, ``capacity``, ``threads``, ``artifact``, and ``drafts``: whether
            greedy answers may verify several tokens in one pass, which changes their time alone.
    """
    opened = model if isinstance(model, LanguageModel) else LanguageModel(model, **how)
    try:
        given = opened.text_tokens(prompt) if isinstance(prompt, str) else opened.chat_tokens(prompt)
        stops = [stop] if isinstance(stop, str) else stop
        yield from opened.answer(given, tokens=tokens, sampling=sampling, stop=stops)
    finally:
        if opened is not model:
            opened.close()
