"""Inputs as onnxruntime takes them: arrays of the exact type; lists and numbers become arrays of the model's type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from flexnn.errors import printable

from .errors import Fail, InvalidArgument
from .values import OrtValue, type_name

if TYPE_CHECKING:
    from flexnn.session import NodeArg

    from .values import Array

_REPAIR = "Please fix either the inputs/outputs or the model."


def arrays_of(feed: Mapping[str, Any], inputs: Sequence[NodeArg]) -> dict[str, Array]:
    """Return the arrays of a feed. Raises what onnxruntime raises: ValueError, InvalidArgument, RuntimeError."""
    given, wanted = list(feed.keys()), [port.name for port in inputs]
    missing = [name for name in wanted if name not in feed]
    if missing:
        raise ValueError(f"Required inputs ({missing}) are missing from input feed ({given}).")
    for name in given:
        if name not in wanted:
            raise InvalidArgument(f"{InvalidArgument.prefix}Invalid input name: {printable(str(name))}")
    return {port.name: _fitting(_array(feed[port.name], port), port) for port in inputs}


def _array(value: Any, port: NodeArg) -> Array:
    if isinstance(value, OrtValue):
        value = value.numpy()
    if isinstance(value, np.ndarray):
        array = value.view(np.ndarray).astype(value.dtype.newbyteorder("="), copy=False)
    elif value is None:
        raise Fail(f"{Fail.prefix}Missing Input: {printable(port.name)}")
    elif isinstance(value, (list, tuple, int, float, np.generic)):
        array = np.array(value, port.numpy_dtype)
    else:
        raise RuntimeError(f"Unable to handle object of type {type(value)}")
    is_text = port.type == "tensor(string)" and array.dtype.kind in "OSU"
    if array.dtype != port.numpy_dtype and not is_text:
        actual = f"Actual: ({type_name(array.dtype)}) , expected: ({port.type})"
        raise InvalidArgument(f"{InvalidArgument.prefix}Unexpected input data type. {actual}")
    return array


def _fitting(array: Array, port: NodeArg) -> Array:
    """Return the array in the shape that the model states; onnxruntime takes any for one without dimensions."""
    dims = port.shape
    if not dims and array.size == 1:
        return array.reshape(())
    if len(dims) != array.ndim:
        ranks = f"Got: {array.ndim} Expected: {len(dims)} {_REPAIR}"
        raise InvalidArgument(f"{InvalidArgument.prefix}Invalid rank for input: {printable(port.name)} {ranks}")
    wrong = [(i, n, d) for i, (n, d) in enumerate(zip(array.shape, dims, strict=True)) if isinstance(d, int) and d != n]
    if wrong:
        lines = "".join(f"\n index: {i} Got: {n} Expected: {d}" for i, n, d in wrong)
        start = f"Got invalid dimensions for input: {printable(port.name)} for the following indices"
        raise InvalidArgument(f"{InvalidArgument.prefix}{start}{lines}\n {_REPAIR}")
    return array
