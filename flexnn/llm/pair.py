"""An encoder and a decoder that reads its output: both run inside one budget, one input at a time."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from threading import Lock
from typing import Any

import numpy as np

from flexnn.errors import StateError
from flexnn.graph.state import CAPACITY
from flexnn.planning import BudgetError
from flexnn.session import Session
from flexnn.units import parse_bytes

from .sampling import Sampler, Sampling

Path = str | os.PathLike[str]
Feed = Mapping[str, np.ndarray]


class EncoderDecoder:
    """A pair of models that writes tokens: T5, Whisper and their like, as ONNX files or artifacts."""

    def __init__(
        self,
        encoder: Path,
        decoder: Path,
        *,
        start: Sequence[int],
        ends: Collection[int],
        first: Path | None = None,
        memory: str | int | None = None,
        capacity: int = 256,
        rows: int = CAPACITY,
        **how: Any,
    ) -> None:
        """Open both models.

        Args:
            encoder: The encoder, whose first output the decoder reads.
            decoder: The decoder: without a past, with one, or both merged.
            start: Tokens with which each answer begins.
            ends: Tokens that end an answer.
            first: For a decoder that takes keys and values of the encoder's output instead of it (optimum's
                ``decoder_with_past_model.onnx``), the one that makes them (``decoder_model.onnx``).
            memory: Budget of all together.
            capacity: Most tokens of an answer, those of ``start`` among them.
            rows: Most rows of the encoder's output.
            how: Further arguments of the sessions: ``threads``, ``kv``, …

        Raises:
            BudgetError: The budget is too small for both to be open; ``.minimum`` is one that is not. An encoder
                plans when it runs, so its inputs may need more, which that run says.
            FlexNNError, OSError: As sessions do.
        """
        self._lock = Lock()
        self._answers = 0
        """Number of answers that have begun: the decoder has the state of the last one."""
        self.capacity, self._start, self._ends = capacity, list(start), frozenset(ends)
        decoding: dict[str, Any] = {"kv_capacity": capacity, "cross_capacity": rows, **how}
        plain = {name: value for name, value in how.items() if name != "kv"}
        jobs = [(encoder, plain), *([(first, plain)] if first is not None else []), (decoder, decoding)]
        self._sessions = _opened(jobs, None if memory is None else parse_bytes(memory))
        self.encoder, self.decoder = self._sessions[0], self._sessions[-1]
        self._once = [port.name for port in self.decoder.get_inputs()[1:]]

    def __enter__(self) -> EncoderDecoder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the sessions."""
        for session in self._sessions:
            session.close()

    def tokens(self, feed: Feed, *, most: int | None = None, sampling: Sampling | None = None) -> Iterator[int]:
        """Yield the tokens of the answer to the encoder's inputs, at most ``most``, without those that end it. Raises
        StateError where they are too long, or another answer begins before this one ends.
        """
        sampler, text = Sampler(sampling or Sampling()), list(self._start)
        with self._lock:
            self._answers += 1
            answer = self._answers
            given = self._made_once(feed)
            self.decoder.reset()
            step = self._one_by_one(text, given)
        for _ in range(min(self.capacity if most is None else most, self.capacity - len(text))):
            token = sampler.choose(step, text)
            if token in self._ends:
                return
            yield token
            text.append(token)
            with self._lock:
                if answer != self._answers:
                    raise StateError("another answer has begun, which took the state of this one")
                step = self._logits([token], {})

    def _one_by_one(self, tokens: Sequence[int], given: Feed) -> np.ndarray:
        """Return the logits behind the first tokens: some decoders take one at a time."""
        dims = self.decoder.get_inputs()[0].shape
        if len(dims) < 2 or dims[1] != 1:
            return self._logits(tokens, given)
        for token in tokens[:-1]:
            self._logits([token], given)
            given = {}
        return self._logits(tokens[-1:], given)

    def _logits(self, tokens: Sequence[int], given: Feed) -> np.ndarray:
        name = self.decoder.get_inputs()[0].name
        (logits,) = self.decoder.run(None, {name: np.array([tokens], np.int64), **given})
        row: np.ndarray = logits[0, -1]
        return row

    def _made_once(self, feed: Feed) -> dict[str, np.ndarray]:
        """Return what the decoder takes once: the encoder's output, keys and values of it, and the encoder's mask."""
        hidden = self.encoder.run(None, dict(feed))[0]
        known = {f"encoder_{name}": value for name, value in feed.items()} | {"encoder_hidden_states": hidden}
        if len(self._sessions) > 2:
            making = self._sessions[1]
            known["input_ids"] = np.array([self._start[:1]], np.int64)
            given = {port.name: known[port.name] for port in making.get_inputs() if port.name in known}
            names = [port.name for port in making.get_outputs()]
            made = dict(zip(names, making.run(None, given), strict=True))
            known |= {name.replace("present", "past_key_values"): value for name, value in made.items()}
        lacking = [name for name in self._once if name not in known and not name.endswith("mask")]
        if lacking:
            raise ValueError(f"nothing makes the decoder's input {lacking[0]!r}: give the model that does as first")
        return {name: known[name] for name in self._once if name in known}


def _opened(jobs: Sequence[tuple[Path, Mapping[str, Any]]], memory: int | None) -> list[Session]:
    """Open sessions that share a budget by the sizes of their files, as far as each then has what it needs to be open.
    Raises BudgetError.
    """
    if memory is None:
        return [Session(path, **how) for path, how in jobs]
    sizes = [max(1, os.path.getsize(path)) for path, _ in jobs]
    least = [0] * len(jobs)
    while True:
        spare = max(0, memory - sum(least))
        shares = [max(1, low + spare * size // sum(sizes)) for low, size in zip(least, sizes, strict=True)]
        opened, needed = _all(jobs, shares)
        if not needed and sum(least) <= memory:
            return opened
        for session in opened:
            session.close()
        if all(least[number] >= minimum for number, minimum in needed.items()):
            raise BudgetError(sum(least), memory)
        least = [max(low, needed.get(number, 0)) for number, low in enumerate(least)]


def _all(jobs: Sequence[tuple[Path, Mapping[str, Any]]], shares: Sequence[int]) -> tuple[list[Session], dict[int, int]]:
    """Open sessions with their shares of a budget; return them, and what those need that have too little."""
    opened: list[Session] = []
    needed: dict[int, int] = {}
    try:
        for number, ((path, how), share) in enumerate(zip(jobs, shares, strict=True)):
            try:
                opened.append(Session(path, share, **how))
            except BudgetError as error:
                needed[number] = error.minimum
                continue
            if opened[-1].session_bytes > share:  # its shapes are open, so it plans when it runs
                needed[number] = opened[-1].session_bytes
    except BaseException:
        for session in opened:
            session.close()
        raise
    return opened, needed
