"""Decoders as generation sees them, and a decoder over a session whose keys and values are handed over by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from flexnn.errors import FlexNNError
from flexnn.graph.ir import GraphError
from flexnn.session import Session

PAST, PRESENT = "past_key_values.", "present."
CHUNK = 64
"""Tokens of a prompt that one run takes."""


class StateError(FlexNNError, ValueError):
    """More tokens than the state has room for; the message is one line, and the state is as it was."""


class Decoder(Protocol):
    """A model that appends tokens to its state."""

    @property
    def length(self) -> int:
        """Tokens that the state holds."""
        ...

    @property
    def capacity(self) -> int:
        """Tokens that it can hold."""
        ...

    def append(self, tokens: Sequence[int], *, all_logits: bool = False) -> np.ndarray:
        """Append tokens; return the logits of the last one, or of all, [rows, vocabulary]. Raises StateError."""
        ...

    def reset(self, length: int = 0) -> None:
        """Forget all tokens but the first ``length``."""
        ...

    def close(self) -> None:
        """Give back the memory."""
        ...


def check_room(decoder: Decoder, count: int) -> None:
    """Raise StateError if so many tokens do not fit behind those that there are."""
    if decoder.length + count > decoder.capacity:
        held = f"{decoder.length} tokens" if decoder.length else "none"
        raise StateError(f"{count} tokens do not fit: the state holds {held} of {decoder.capacity}; raise its capacity")


class PastDecoder:
    """A decoder over past and present keys and values."""

    def __init__(self, session: Session, capacity: int) -> None:
        """Take a session. Raises GraphError where its model is no decoder."""
        self._session = session
        self.capacity = capacity
        inputs = {port.name: port for port in session.get_inputs()}
        sizes = {name: port.shape for name, port in inputs.items() if name.startswith(PAST)}
        self._has_positions, self._has_mask = "position_ids" in inputs, "attention_mask" in inputs
        names = [port.name for port in session.get_outputs()]
        known = len(sizes) + self._has_positions + self._has_mask + 1
        if "input_ids" not in inputs or "logits" not in names or known != len(inputs) or not sizes:
            raise GraphError("not a decoder of tokens: it needs input_ids, past_key_values.* and logits")
        self._empty = {name: _nothing(shape) for name, shape in sizes.items()}
        self._names = names
        self._past: dict[str, np.ndarray] = {}
        self.length = 0
        self.reset()

    def append(self, tokens: Sequence[int], *, all_logits: bool = False) -> np.ndarray:
        """Append tokens; return the logits of the last one, or of all. Raises StateError."""
        check_room(self, len(tokens))
        found = []
        for first in range(0, len(tokens), CHUNK):
            logits = self._run(tokens[first : first + CHUNK])
            if all_logits:
                found.append(logits.copy())
            elif first + CHUNK >= len(tokens):
                found.append(logits[-1:].copy())
        return np.concatenate(found) if len(found) > 1 else found[0]

    def _run(self, tokens: Sequence[int]) -> np.ndarray:
        feeds = {"input_ids": np.array([tokens], np.int64), **self._past}
        end = self.length + len(tokens)
        if self._has_positions:
            feeds["position_ids"] = np.arange(self.length, end)[None]
        if self._has_mask:
            feeds["attention_mask"] = np.ones((1, end), np.int64)
        made = dict(zip(self._names, self._session.run(None, feeds), strict=True))
        logits: np.ndarray = made.pop("logits")
        self._past = {name.replace(PRESENT, PAST, 1): value for name, value in made.items()}
        self.length = end
        rows: np.ndarray = logits[0]
        return rows

    def reset(self, length: int = 0) -> None:
        """Forget all tokens but the first ``length``."""
        if length == 0:
            self._past = {name: np.zeros(shape, np.float32) for name, shape in self._empty.items()}
        elif length < self.length:
            self._past = {name: np.ascontiguousarray(value[:, :, :length]) for name, value in self._past.items()}
        self.length = min(length, self.length)

    def close(self) -> None:
        """Close the session."""
        self._session.close()


def _nothing(shape: Sequence[int | str | None]) -> tuple[int, ...]:
    """The shape of past keys or values of no token. Raises GraphError."""
    if len(shape) == 4 and isinstance(shape[1], int) and isinstance(shape[3], int):
        return (1, shape[1], 0, shape[3])
    raise GraphError(f"past keys and values of shape {list(shape)}: heads and their size must be known")
