"""Arrays of the caller's that a run writes its outputs into (``Session.run(out=…)``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from flexnn.errors import printable
from flexnn.graph.ir import DTYPES, Array
from flexnn.graph.ports import Port

from .outputs import check_fits

Given = Mapping[str, Array | None] | Sequence[Array | None]
"""Arrays of the caller's."""


def placed(
    out: Given | None,
    wanted: Sequence[int] | None,
    ports: Sequence[Port],
    inputs: Sequence[Array],
    *,
    all_needed: bool = False,
) -> list[Array | None]:
    """Return the array that each output goes to, in the model's order; None: one of the session's.

    ``out`` has them by name, or in the order of the outputs that are ``wanted`` (None: all); None stands for one of the
    session's there, too. Raises ValueError, TypeError.
    """
    arrays: list[Array | None] = [None] * len(ports)
    for number, array in _numbered(out, wanted, ports):
        if array is None:
            continue
        if arrays[number] is not None:
            raise ValueError(f"out has two arrays for output {ports[number].name!r}")
        _check(array, ports[number])
        arrays[number] = array
    if all_needed:
        for array, port in zip(arrays, ports, strict=True):
            if array is None:
                raise ValueError(f"the session was opened with own_outputs=False, and out has none for {port.name!r}")
    _check_apart(arrays, ports, inputs)
    return arrays


def _numbered(out: Given | None, wanted: Sequence[int] | None, ports: Sequence[Port]) -> list[tuple[int, Any]]:
    numbers = range(len(ports)) if wanted is None else wanted
    if out is None:
        return []
    if isinstance(out, Mapping):
        places = {port.name: number for number, port in enumerate(ports)}
        for name in out:
            if name not in places:
                raise ValueError(f"out: no output {name!r}; the outputs are {printable(', '.join(places))}")
        return [(places[name], array) for name, array in out.items()]
    if isinstance(out, np.ndarray) or not isinstance(out, Sequence):
        raise TypeError(f"out is a {type(out).__name__}, not a list of arrays, or a mapping of names to arrays")
    if len(out) != len(numbers):
        raise ValueError(f"out has {len(out)} arrays for {len(numbers)} outputs")
    return list(zip(numbers, out, strict=True))


def _check(array: Any, port: Port) -> None:
    name = port.name
    if not isinstance(array, np.ndarray):
        raise TypeError(f"out: {name!r} is a {type(array).__name__}, not an array")
    if port.dtype is not None:
        check_fits(name, array, array.shape, DTYPES[port.dtype])
    dims = port.dims
    if dims is not None and (
        len(dims) != array.ndim or any(isinstance(d, int) and d != n for d, n in zip(dims, array.shape, strict=True))
    ):
        shape = ["?" if dim is None else dim for dim in dims]
        raise ValueError(f"out: {name!r} has shape {list(array.shape)}, the model's output {shape}")
    flags = array.flags
    for is_so, what in ((flags.c_contiguous, "contiguous"), (flags.aligned, "aligned"), (flags.writeable, "writable")):
        if not is_so:
            raise ValueError(f"out: the array for {name!r} is not {what}")


def _check_apart(arrays: Sequence[Array | None], ports: Sequence[Port], inputs: Sequence[Array]) -> None:
    others = [(array, "an input") for array in inputs if array is not None]
    for array, port in zip(arrays, ports, strict=True):
        if array is None:
            continue
        for other, what in others:
            if np.may_share_memory(array, other):
                raise ValueError(f"out: the array for {port.name!r} shares memory with {what}")
        others.append((array, f"that for {port.name!r}"))
