"""Text as it streams: bytes of tokens become characters when they are whole, and words that stop the text are found
over the borders of tokens.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence


class Stream:
    """Text that comes token by token."""

    def __init__(self, stops: Sequence[str] = ()) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._stops = [stop for stop in stops if stop]
        self._held = ""
        self.is_stopped = False
        """Whether a stop word was found: nothing comes any more."""

    def add(self, raw: bytes) -> str:
        """The text that is sure after these bytes."""
        return self._sure(self._decoder.decode(raw))

    def end(self) -> str:
        """Return what was held back, at the end of all tokens."""
        text = self._sure(self._decoder.decode(b"", final=True)) + ("" if self.is_stopped else self._held)
        self._held = ""
        return text

    def _sure(self, text: str) -> str:
        if self.is_stopped:
            return ""
        text = self._held + text
        found = [at for at in (text.find(stop) for stop in self._stops) if at >= 0]
        if found:
            self.is_stopped, self._held = True, ""
            return text[: min(found)]
        kept = max((_overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - kept :]
        return text[: len(text) - kept]


def _overlap(text: str, stop: str) -> int:
    """Return how many characters at the end of ``text`` may be the beginning of ``stop``."""
    return next((n for n in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:n])), 0)
