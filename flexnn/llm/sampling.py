"""Choosing the next token: the most probable one, or one drawn from the most probable ones, repeatable by its seed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flexnn.errors import FlexNNError
from flexnn.quick_dataclass import quick_dataclass


class NumbersError(FlexNNError, ValueError):
    """Numbers of which no token can be chosen."""


@quick_dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are drawn; with ``temperature`` 0 none is: the most probable one is taken."""

    temperature: float = 0.0
    top_k: int = 40
    """Only so many of the most probable ones; 0: all."""
    top_p: float = 0.95
    """Only the most probable ones that together have this share."""
    min_p: float = 0.05
    """Only those that have this share of the most probable one's."""
    repeat_penalty: float = 1.0
    """Logits of tokens that came lately are divided by it, or multiplied where they are negative."""
    repeat_last: int = 64
    seed: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.temperature <= 100 or self.top_k < 0 or self.repeat_last < 0:
            raise ValueError("temperature (0 to 100), top_k and repeat_last must not be negative")
        if not 0 < self.top_p <= 1 or not 0 <= self.min_p <= 1 or not 0.01 <= self.repeat_penalty <= 100:
            raise ValueError("top_p must be in (0, 1], min_p in [0, 1], repeat_penalty in [0.01, 100]")
        if self.seed is not None and self.seed < 0:
            raise ValueError("the seed must not be negative")


class Sampler:
    """The choice of one token after the other."""

    def __init__(self, how: Sampling) -> None:
        self.how = how
        self._random = np.random.default_rng(how.seed)

    @property
    def is_greedy(self) -> bool:
        """Whether the choice is a function of logits and tokens alone."""
        return self.how.temperature == 0

    def choose(self, logits: np.ndarray, before: Sequence[int]) -> int:
        """The next token after those ``before``. Raises NumbersError where the logits have no largest number."""
        how = self.how
        logits = np.asarray(logits, np.float32)
        if not np.isfinite(logits.max()):
            raise NumbersError("the model's logits are not finite: its weights are damaged, or too large")
        if how.repeat_penalty != 1 and how.repeat_last and before:
            lately = np.unique(np.asarray(before[-how.repeat_last :], np.int64))
            logits = logits.copy()
            own = logits[lately]
            logits[lately] = np.where(own > 0, own / how.repeat_penalty, own * how.repeat_penalty)
        if self.is_greedy:
            return int(logits.argmax())
        count = min(how.top_k or len(logits), len(logits))
        best = np.argpartition(logits, -count)[-count:] if count < len(logits) else np.arange(len(logits))
        best = best[np.lexsort((best, -logits[best]))]
        shares = _shares(logits[best].astype(np.float64))
        kept = max(int((np.cumsum(shares) - shares < how.top_p).sum()), 1)
        kept = max(int((shares[:kept] >= how.min_p * shares[0]).sum()), 1)
        drawn = np.cumsum(_shares(logits[best[:kept]].astype(np.float64) / how.temperature))
        return int(best[min(int(np.searchsorted(drawn, self._random.random() * drawn[-1], "right")), kept - 1)])


def _shares(logits: np.ndarray) -> np.ndarray:
    found = np.exp(logits - logits.max())
    return np.asarray(found / found.sum())
