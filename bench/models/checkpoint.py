"""Reads tensors out of a PyTorch checkpoint (.pth) in its legacy form, without PyTorch and without trusting the file.

The legacy form is a chain of pickles (magic number, protocol, machine, the state dictionary, storage keys) followed by
each storage: its element count as int64 and its elements. The unpickler knows four names and refuses all others, so
nothing in the file can run.
"""

from __future__ import annotations

import io
import pickle
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

MAGIC = 0x1950A86A20F9469CFC6C
ELEMENTS_MAX = 1 << 28


@dataclass(frozen=True, slots=True)
class _Storage:
    key: str
    dtype: np.dtype[Any]
    size: int


@dataclass(frozen=True, slots=True)
class _Tensor:
    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def _rebuild_tensor_v2(
    storage: _Storage, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], *_: object
) -> _Tensor:
    return _Tensor(storage, offset, shape, strides)


class _Unpickler(pickle.Unpickler):
    """Knows an ordered dictionary, a tensor and the storage types; builds descriptions only."""

    NAMES: ClassVar[dict[tuple[str, str], Callable[..., Any] | np.dtype[Any]]] = {
        ("collections", "OrderedDict"): OrderedDict,
        ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor_v2,
        ("torch", "FloatStorage"): np.dtype("<f4"),
        ("torch", "LongStorage"): np.dtype("<i8"),
    }

    def find_class(self, module: str, name: str) -> Any:
        try:
            return self.NAMES[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"the checkpoint names {module}.{name}, which is refused") from None

    def persistent_load(self, pid: Any) -> _Storage:
        kind, dtype, key, _device, size, _view = pid
        if kind != "storage" or not isinstance(size, int) or not 0 <= size <= ELEMENTS_MAX:
            raise pickle.UnpicklingError(f"the checkpoint has an unknown storage {pid!r}")
        return _Storage(key, dtype, size)


def read(content: bytes) -> dict[str, NDArray[np.generic]]:
    """The state dictionary of a legacy checkpoint: name → array. UnpicklingError or ValueError if it is not one."""
    file = io.BytesIO(content)
    magic, _protocol, _machine, state, keys = (_Unpickler(file).load() for _ in range(5))
    if magic != MAGIC:
        raise ValueError("not a PyTorch checkpoint of the legacy form")
    storages = {t.storage.key: t.storage for t in state.values()}
    data: dict[str, NDArray[np.generic]] = {}
    for key in keys:
        storage = storages[key]
        (count,) = np.frombuffer(file.read(8), "<i8")
        if count != storage.size:
            raise ValueError(f"storage {key} holds {count} elements, not {storage.size}")
        data[key] = np.frombuffer(file.read(storage.size * storage.dtype.itemsize), storage.dtype)
    return {name: _view(tensor, data[tensor.storage.key]) for name, tensor in state.items()}


def _view(tensor: _Tensor, storage: NDArray[np.generic]) -> NDArray[np.generic]:
    """A copy of the tensor's elements, its extent checked against the storage."""
    last = tensor.offset + sum((d - 1) * s for d, s in zip(tensor.shape, tensor.strides, strict=True))
    if min(tensor.offset, *tensor.shape, *tensor.strides, 0) < 0 or last >= storage.size:
        raise ValueError("a tensor of the checkpoint reaches outside its storage")
    strides = tuple(s * storage.itemsize for s in tensor.strides)
    return np.lib.stride_tricks.as_strided(storage[tensor.offset :], tensor.shape, strides).copy()
