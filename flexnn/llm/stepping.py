"""Decoders as generation sees them: tokens are appended to the state of a session, and logits come back."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flexnn.errors import StateError
from flexnn.graph.state import WIDTHS
from flexnn.session import Session

CHUNK, ROWS, _ = WIDTHS
"""Rows of the largest pass: no more logits are asked for at once, since those of a row are a whole vocabulary. And of a
pass that verifies a draft, which are the fewest that are worth a pass of several.
"""


class Decoder:
    """A session with state, whose passes take 1, 8 or 32 tokens."""

    def __init__(self, session: Session, capacity: int, *, has_all_rows: bool) -> None:
        """Take a session; ``has_all_rows``: it returns logits of all new tokens."""
        self._session = session
        self.capacity = capacity
        self.has_all_rows = has_all_rows

    @property
    def length(self) -> int:
        """Tokens that the state holds."""
        return self._session.state_length

    def check_room(self, count: int) -> None:
        """Raise StateError if so many tokens do not fit behind those that there are."""
        if self.length + count > self.capacity:
            raise StateError(
                f"{count} tokens after {self.length} do not fit into a state of {self.capacity}: raise its capacity"
            )

    def append(self, tokens: Sequence[int]) -> np.ndarray:
        """Append tokens; return the logits of the last one. Raises StateError."""
        self.check_room(len(tokens))
        if not self.has_all_rows:
            last: np.ndarray = self._run(tokens)[-1]
            return last
        found = np.empty(0, np.float32)
        for first in range(0, len(tokens), CHUNK):
            found = self._padded(tokens[first : first + CHUNK])[-1]
        return found

    def rows(self, tokens: Sequence[int]) -> np.ndarray:
        """Append at most CHUNK tokens; return the logits of each, [tokens, vocabulary]. Raises StateError."""
        self.check_room(len(tokens))
        return self._padded(tokens)

    def _padded(self, tokens: Sequence[int]) -> np.ndarray:
        """Logits of all of at most CHUNK tokens, which are filled up to those of few passes; the rest is forgotten."""
        count, start = len(tokens), self.length
        wanted = 1 if count == 1 else -(-count // ROWS) * ROWS
        filled = [*tokens, *[tokens[-1]] * (min(wanted, self.capacity - start) - count)]
        logits = self._run(filled)[:count]
        if len(filled) > count:
            self._session.reset(start + count)
        return logits

    def _run(self, tokens: Sequence[int]) -> np.ndarray:
        (logits,) = self._session.run(None, {"input_ids": np.array([tokens], np.int64)})
        rows: np.ndarray = logits[0]
        return rows

    def reset(self, length: int = 0) -> None:
        """Forget all tokens but the first ``length``."""
        self._session.reset(min(length, self.length))

    def close(self) -> None:
        """Close the session."""
        self._session.close()
