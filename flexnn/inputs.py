"""Inputs for users who bring none: random ones, the same each time, and numbers of the command line."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from flexnn.graph.ir import GraphError
from flexnn.graph.ports import Port, open_hint
from flexnn.graph.random_array import random_array
from flexnn.run.arguments import NodeArg
from flexnn.units import format_bytes

SEED = 0
LARGE_BYTES = 64 << 20
"""Bytes of an array above which the system is asked whether it has them."""


def seeded() -> np.random.Generator:
    """Return the generator of all random inputs, seeded."""
    return np.random.default_rng(SEED)


def random_input(generator: np.random.Generator, argument: NodeArg) -> np.ndarray[Any, Any]:
    """Return a random array that the input takes. Raises GraphError if its shape is open, ValueError if memory has no
    room for it.
    """
    dtype = argument.numpy_dtype
    shape = [d for d in argument.shape if isinstance(d, int)]
    if len(shape) < len(argument.shape):
        raise GraphError(f"input {argument.name!r}: {open_hint(Port(argument.name, None, tuple(argument.shape)))}")
    _check_room(argument, shape)
    return random_array(generator, tuple(shape), dtype)


def _check_room(argument: NodeArg, shape: Sequence[int]) -> None:
    """Raise ValueError where memory has no room for an array of the input."""
    taken = math.prod(shape) * argument.numpy_dtype.itemsize
    if taken > LARGE_BYTES:
        from flexnn.system.limits import HALF, half_of_free

        most = half_of_free()
        if taken > most:
            took = f"input {argument.name!r} of shape {list(shape)} takes {format_bytes(taken)}"
            raise ValueError(f"{took}, and at most {HALF}, {format_bytes(most)}, is allowed")


def set_input(argument: NodeArg, numbers: Sequence[float]) -> np.ndarray[Any, Any]:
    """Return the array of an input that has these numbers; one alone fills its shape, in which open dimensions are 1.
    Raises ValueError.
    """
    dtype, name = argument.numpy_dtype, argument.name
    with np.errstate(all="ignore"):
        values = np.array(numbers).astype(dtype)
    if dtype.kind != "f" and any(value != number for value, number in zip(values.tolist(), numbers, strict=True)):
        raise ValueError(f"input {name!r} takes {dtype}, which {numbers} are not")
    dims = argument.shape
    if len(numbers) == 1:
        shape = [d if isinstance(d, int) else 1 for d in dims]
        _check_room(argument, shape)
        return np.full(shape, values[0], dtype)
    free = [at for at, d in enumerate(dims) if not isinstance(d, int)]
    if free:
        at = free[-1]
        known = [d if isinstance(d, int) else 1 for i, d in enumerate(dims) if i != at]
        dims = [*known[:at], len(numbers) // max(math.prod(known), 1), *known[at:]]
    if math.prod(d for d in dims if isinstance(d, int)) != len(numbers):
        raise ValueError(f"input {name!r} has shape {argument.shape}, which {len(numbers)} numbers do not fill")
    return values.reshape([d for d in dims if isinstance(d, int)])


def make_feed(
    inputs: Sequence[NodeArg], numbers: Mapping[str, Sequence[float]], given: Mapping[str, np.ndarray[Any, Any]] | None
) -> tuple[dict[str, np.ndarray[Any, Any]], list[str]]:
    """Return arrays for all inputs, and the names of those that are random: what is neither in ``numbers`` nor, where
    that is not None, to be ``given``. Raises ValueError.
    """
    names = [i.name for i in inputs]
    for name in numbers:
        if name not in names:
            raise ValueError(f"no input {name!r}; the inputs are {', '.join(names)}")
    feed, random, generator = dict(given or {}), [], seeded()
    for i in inputs:
        if i.name in numbers:
            feed[i.name] = set_input(i, numbers[i.name])
        elif given is None:
            random.append(i.name)
            feed[i.name] = random_input(generator, i)
    return feed, random
