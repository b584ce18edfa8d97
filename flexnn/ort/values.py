"""Arrays with onnxruntime's wrappers: OrtValue, OrtDevice, IOBinding. All memory is the CPU's, and numpy's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .session import InferenceSession

Array: TypeAlias = "NDArray[Any]"

_NUMBERS = {
    "float32": 1,
    "uint8": 2,
    "int8": 3,
    "uint16": 4,
    "int16": 5,
    "int32": 6,
    "int64": 7,
    "bool": 9,
    "float16": 10,
    "float64": 11,
    "uint32": 12,
    "uint64": 13,
}
"""Numbers of element types (TensorProto.DataType)."""


def type_name(dtype: np.dtype[Any]) -> str:
    """Return onnxruntime's name of an element type."""
    name = {"float32": "float", "float64": "double"}.get(dtype.name, dtype.name)
    return f"tensor({'string' if dtype.kind in 'UOS' else name})"


def _dtype(element_type: Any) -> np.dtype[Any]:
    if isinstance(element_type, int):
        element_type = next(name for name, number in _NUMBERS.items() if number == element_type)
    dtype: np.dtype[Any] = np.dtype(element_type)
    return dtype


class OrtDevice:
    """The CPU."""

    def __init__(self, device_type: int = 0, *_: Any) -> None:
        self._type = device_type

    @staticmethod
    def cpu() -> int:
        """Return the number of CPUs among kinds of devices."""
        return 0

    @staticmethod
    def make(name: str, device_id: int = 0) -> OrtDevice:
        """Return the CPU. Raises RuntimeError for another device."""
        _check_cpu(name)
        return OrtDevice()

    def device_type(self) -> str:
        """Return ``cpu``."""
        return "cpu"

    def device_id(self) -> int:
        """Return 0."""
        return 0


def _check_cpu(name: str) -> None:
    if str(name).lower() not in ("cpu", ""):
        raise RuntimeError(f"Unsupported device type: {name}; FlexNN computes on the CPU")


class OrtValue:
    """A tensor; it shares the memory of the numpy array that it was made of."""

    def __init__(self, array: Array) -> None:
        self._array = array

    @classmethod
    def ortvalue_from_numpy(cls, numpy_obj: Array, device_type: str = "cpu", device_id: int = 0, *_: Any) -> OrtValue:
        """Return a value over an array, without a copy where it is contiguous."""
        _check_cpu(device_type)
        return cls(np.asarray(numpy_obj, order="C"))

    @classmethod
    def ortvalue_from_shape_and_type(
        cls, shape: Sequence[int], element_type: Any, device_type: str = "cpu", device_id: int = 0, *_: Any
    ) -> OrtValue:
        """Return a value of its own memory; ``element_type``: a dtype, or a number as onnx has it."""
        _check_cpu(device_type)
        return cls(np.empty(tuple(shape), _dtype(element_type)))

    def numpy(self) -> Array:
        """Return the array."""
        return self._array

    def update_inplace(self, array: Array) -> None:
        """Copy numbers into the value. Raises ValueError where shapes differ."""
        if array.shape != self._array.shape:
            raise ValueError(f"the value has shape {self._array.shape}, the array {array.shape}")
        np.copyto(self._array, array, casting="no")

    def shape(self) -> list[int]:
        """Return the dimensions."""
        return list(self._array.shape)

    def data_type(self) -> str:
        """Return the type, like ``tensor(float)``."""
        return type_name(self._array.dtype)

    def element_type(self) -> int:
        """Return the number of the element type."""
        return _NUMBERS[self._array.dtype.name]

    def data_ptr(self) -> int:
        """Return the address."""
        return int(self._array.ctypes.data)

    def tensor_size_in_bytes(self) -> int:
        """Return the bytes."""
        return int(self._array.nbytes)

    def device_name(self) -> str:
        """Return ``cpu``."""
        return "cpu"

    def is_tensor(self) -> bool:
        """Return True."""
        return True

    def has_value(self) -> bool:
        """Return True."""
        return True

    def is_sparse_tensor(self) -> bool:
        """Return False."""
        return False

    def is_tensor_sequence(self) -> bool:
        """Return False."""
        return False

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        array = self._array if dtype is None else self._array.astype(dtype, copy=False)
        return array.copy() if copy and array is self._array else array


def array_at(address: int, element_type: Any, shape: Sequence[int]) -> Array:
    """Return an array over memory of the caller's."""
    import ctypes

    dtype = _dtype(element_type)
    size = dtype.itemsize * int(np.prod(shape, dtype=np.int64))
    raw = memoryview((ctypes.c_char * size).from_address(address))
    array: Array = np.frombuffer(raw, dtype).reshape(tuple(shape))
    return array


class IOBinding:
    """Inputs and outputs of a run that keep their places from run to run."""

    def __init__(self, session: InferenceSession) -> None:
        self._session = session
        self._inputs: dict[str, Array] = {}
        self._outputs: dict[str, Array | None] = {}
        self._results: list[OrtValue] = []

    def bind_cpu_input(self, name: str, arr_on_cpu: Array) -> None:
        """Bind an array to an input."""
        self._inputs[name] = arr_on_cpu

    def bind_input(
        self, name: str, device_type: str, device_id: int, element_type: Any, shape: Sequence[int], buffer_ptr: int
    ) -> None:
        """Bind memory to an input."""
        _check_cpu(device_type)
        self._inputs[name] = array_at(buffer_ptr, element_type, shape)

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Bind a value to an input."""
        self._inputs[name] = ortvalue.numpy()

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Have an output computed, into memory of the caller's where it says which."""
        _check_cpu(device_type)
        self._outputs[name] = None if buffer_ptr is None else array_at(buffer_ptr, element_type, shape or ())

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Have an output computed into a value."""
        self._outputs[name] = ortvalue.numpy()

    def clear_binding_inputs(self) -> None:
        """Forget the inputs."""
        self._inputs.clear()

    def clear_binding_outputs(self) -> None:
        """Forget the outputs."""
        self._outputs.clear()

    def synchronize_inputs(self) -> None:
        """Do nothing: nothing is copied in the background."""

    def synchronize_outputs(self) -> None:
        """Do nothing: nothing is copied in the background."""

    def get_outputs(self) -> list[OrtValue]:
        """Return the outputs of the last run, in the order in which they were bound."""
        return self._results

    get_outputs_as_ortvaluevector = get_outputs

    def copy_outputs_to_cpu(self) -> list[Array]:
        """Return the outputs of the last run as arrays."""
        return [value.numpy() for value in self._results]

    def run(self, run_options: Any = None) -> None:
        """Run the session on what is bound. Raises as ``InferenceSession.run``."""
        places = {name: place for name, place in self._outputs.items() if place is not None}
        out = places if places and _are_apart([*places.values()], self._inputs) else None
        names = list(self._outputs)
        arrays = self._session._run_into(names, self._inputs, run_options, out) if names else []
        self._results = []
        for place, array in zip(self._outputs.values(), arrays, strict=True):
            if place is not None and place is not array:
                if place.shape != array.shape:
                    raise ValueError(f"an output has shape {array.shape}, the memory bound to it {place.shape}")
                np.copyto(place, array, casting="no")
            self._results.append(OrtValue(array if place is None else place))


def _are_apart(places: list[Array], inputs: Mapping[str, Any]) -> bool:
    """Return whether a run may write into all places while it reads the inputs; else outputs are copied after it."""
    others = [array for array in inputs.values() if isinstance(array, np.ndarray)]
    for place in places:
        flags = place.flags
        if not (flags.c_contiguous and flags.aligned and flags.writeable):
            return False
        if any(np.may_share_memory(place, other) for other in others):
            return False
        others.append(place)
    return True
