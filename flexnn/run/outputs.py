"""Arrays for a session's outputs. A run writes straight into the arrays that the caller gets; memory that the caller
has dropped serves again.
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from flexnn import _core
from flexnn.graph.ir import Array
from flexnn.graph.large import LARGE_BYTES, mapping

if TYPE_CHECKING:
    from flexnn.regions import Output  # which sessions of fixed shapes do without


class Outputs:
    """Maker of the output arrays of each run. With ``reuse``, all runs use the same memory, even if the caller still
    holds the last arrays.
    """

    def __init__(self, *, reuse: bool = False) -> None:
        self._reuse = reuse
        self._kept_max = 1 if reuse else 2  # what a budget counts: callers hold the last ones while the next are made
        self._kept: dict[str, list[_Memory]] = {}
        self.given: dict[str, Array] = {}
        """Arrays of the caller's for outputs of the run under way."""

    @contextlib.contextmanager
    def writing(self, names: Sequence[str], into: Sequence[Array | None] | None) -> Iterator[None]:
        """Have outputs of these names written into arrays of the caller's; None: none for it, or for any."""
        if into is not None:
            self.given = {name: array for name, array in zip(names, into, strict=True) if array is not None}
        try:
            yield
        finally:
            self.given = {}

    def delivered(self, names: Sequence[str], outputs: list[Array]) -> list[Array]:
        """Return outputs, those in the caller's arrays for which there are some. Raises ValueError where one does not
        fit.
        """
        for number, name in enumerate(names if self.given else ()):
            array, made = self.given.get(name), outputs[number]
            if array is not None and array is not made:
                check_fits(name, array, made.shape, made.dtype)
                array[...] = made
                outputs[number] = array
        return outputs

    def array(self, name: str, shape: Sequence[int], dtype: np.dtype[Any], inputs: Iterable[Array]) -> Array:
        """Return an uninitialised array for an output. It belongs to the caller as long as the array or a view of it
        lives, unless outputs are reused, and never shares memory with the run's ``inputs``. It is the caller's where
        one is given. Raises MemoryError if there is none, ValueError where what is given does not fit.
        """
        if name in self.given:
            check_fits(name, self.given[name], shape, dtype)
            return self.given[name]
        nbytes = math.prod(shape) * dtype.itemsize
        if not nbytes or (nbytes < LARGE_BYTES and not self._reuse):
            return np.empty(shape, dtype)
        kept = [memory for memory in self._kept.pop(name, []) if memory.nbytes == nbytes]
        memory = next((memory for memory in kept if self._is_free(memory, inputs)), None) or _Memory(nbytes)
        self._kept[name] = [memory, *(other for other in kept if other is not memory)][: self._kept_max]
        return np.ndarray(shape, dtype, buffer=memory.mapping)

    def arrays(self, outputs: Iterable[Output], inputs: Iterable[Array]) -> list[Array]:
        """Return an array for each output, as ``array`` does."""
        return [self.array(made.name, made.shape, made.dtype, inputs) for made in outputs]

    def signature(
        self,
        feed: Mapping[str, Array],
        taken: Sequence[str],
        constants: Sequence[Array],
        outputs: Sequence[tuple[str, Sequence[int], np.dtype[Any]]],
        numbers: Mapping[str, bytes] | None = None,
    ) -> _core.Signature:
        """Return what runs have in common whose inputs are like those of ``feed``; ``numbers``: the bytes of those that
        are always the same. Their buffers: the inputs that are ``taken``, in this order, ``constants``, and ``outputs``
        (name, shape, dtype).
        """

        def make(inputs: list[Array]) -> list[Array]:
            return [self.array(name, shape, dtype, inputs) for name, shape, dtype in outputs]

        names = list(feed)
        are_small = all(math.prod(shape) * dtype.itemsize < LARGE_BYTES for _, shape, dtype in outputs)
        return _core.Signature(
            names,
            list(feed.values()),
            [names.index(name) for name in taken],
            constants,
            [(shape, dtype) for _, shape, dtype in outputs],
            np.empty,
            None if are_small and not self._reuse else make,
            {names.index(name): array for name, array in (numbers or {}).items()},
        )

    def _is_free(self, memory: _Memory, inputs: Iterable[Array]) -> bool:
        if not memory.is_held:
            return True
        return self._reuse and not any(np.may_share_memory(memory.array, x) for x in inputs)

    def clear(self) -> None:
        """Drop all memory that callers do not hold."""
        self._kept.clear()


class _Memory:
    def __init__(self, nbytes: int) -> None:
        self.nbytes, self.mapping = nbytes, mapping(nbytes)
        self._alone = self._references()

    @property
    def array(self) -> Array:
        """All its bytes."""
        return np.frombuffer(self.mapping, np.uint8)

    @property
    def is_held(self) -> bool:
        """Whether an array uses it: arrays refer to the mapping, and views to arrays."""
        return self._references() > self._alone

    def _references(self) -> int:
        return sys.getrefcount(self.mapping)


def check_fits(name: str, array: Array, shape: Sequence[int], dtype: np.dtype[Any]) -> None:
    """Raise ValueError unless an array has the shape and type of an output."""
    if array.dtype != dtype or array.shape != tuple(shape):
        raise ValueError(f"out: {name!r} is {array.dtype}{list(array.shape)}, the output {dtype}{list(shape)}")
