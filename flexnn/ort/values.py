"""Arrays with onnxruntime's wrappers: OrtValue, OrtDevice, IOBinding. All memory is the CPU's, and numpy's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import numpy as np

from .errors import InvalidArgument
from .lacking import refuse
from .memory import OrtDeviceMemoryType

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
_DLPACK_CPU = 1


def type_name(dtype: np.dtype[Any]) -> str:
    """Return onnxruntime's name of an element type."""
    name = {"float32": "float", "float64": "double"}.get(dtype.name, dtype.name)
    return f"tensor({'string' if dtype.kind in 'UOS' else name})"


def _dtype(element_type: Any) -> np.dtype[Any]:
    if isinstance(element_type, int):
        number = element_type
        element_type = next((name for name, known in _NUMBERS.items() if known == number), None)
        if element_type is None:
            refuse(f"element type {number}", "values have the types of numpy's numbers and bool")
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
    def make(name: str, device_id: int = 0, vendor_id: int = -1) -> OrtDevice:
        """Return the CPU. Raises RuntimeError for another device."""
        _check_cpu(name)
        return OrtDevice()

    def device_type(self) -> str:
        """Return ``cpu``."""
        return "cpu"

    def device_id(self) -> int:
        """Return 0."""
        return 0

    def device_mem_type(self) -> int:
        """Return the number of the CPU's own memory."""
        return int(OrtDeviceMemoryType.DEFAULT)

    def device_vendor_id(self) -> int:
        """Return 0: nobody's."""
        return 0


def _check_cpu(name: str) -> None:
    if str(name).lower() not in ("cpu", ""):
        raise RuntimeError(f"Unsupported device type: {name}; FlexNN computes on the CPU")


class _Capsule:
    """A tensor that only has a capsule."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return _DLPACK_CPU, 0


def _writable(array: Array) -> Array:
    """Return an array over the same memory that may be written; it keeps that alive."""
    import ctypes

    raw = (ctypes.c_char * array.nbytes).from_address(array.ctypes.data)
    raw._owner = array  # type: ignore[attr-defined]
    found: Array = np.frombuffer(memoryview(raw), array.dtype).reshape(array.shape)
    return found


class OrtValue:
    """A tensor; it shares the memory of the numpy array that it was made of."""

    _owner: Any = None
    """Owner of its memory, where that is no array's."""

    def __init__(self, array: Array) -> None:
        self._array = array

    @classmethod
    def ortvalue_from_numpy(
        cls, numpy_obj: Array, device_type: str = "cpu", device_id: int = 0, vendor_id: int = -1
    ) -> OrtValue:
        """Return a value over an array, without a copy where it is contiguous."""
        _check_cpu(device_type)
        return cls(np.asarray(numpy_obj, order="C"))

    @classmethod
    def ortvalue_from_shape_and_type(
        cls,
        shape: Sequence[int],
        element_type: Any,
        device_type: str = "cpu",
        device_id: int = 0,
        vendor_id: int = -1,
        memory_info: Any = None,
    ) -> OrtValue:
        """Return a value of its own memory; ``element_type``: a dtype, or a number as onnx has it."""
        _check_cpu("cpu" if memory_info is not None else device_type)
        return cls(np.empty(tuple(shape), _dtype(element_type)))

    @classmethod
    def ortvalue_from_numpy_with_onnx_type(cls, data: Array, onnx_element_type: int) -> OrtValue:
        """Return a value over an array whose bytes are numbers of another type of the same size."""
        dtype = _dtype(onnx_element_type)
        if dtype.itemsize != data.dtype.itemsize:
            raise ValueError(f"{dtype} takes {dtype.itemsize} bytes, {data.dtype} {data.dtype.itemsize}")
        return cls(np.asarray(data, order="C").view(dtype))

    @classmethod
    def from_dlpack(cls, data: Any) -> OrtValue:
        """Return a value over the memory of another library's tensor, or of a capsule of one. Raises TypeError for what
        is neither, RuntimeError for one that is not contiguous, lies elsewhere or has no type of ours.
        """
        if not hasattr(data, "__dlpack__"):
            if type(data).__name__ != "PyCapsule":
                raise TypeError("from_dlpack expected a valid DLPack capsule named 'dltensor'")
            data = _Capsule(data)
        device = data.__dlpack_device__()[0] if hasattr(data, "__dlpack_device__") else _DLPACK_CPU
        if device != _DLPACK_CPU:
            raise RuntimeError(f"Unsupported DLPack device type: {int(device)}; FlexNN computes on the CPU")
        array = np.from_dlpack(data)
        if array.dtype.name not in _NUMBERS:
            raise RuntimeError(f"Unsupported DLPack data type: {array.dtype}")
        if not array.flags.c_contiguous:
            raise RuntimeError("FlexNN takes contiguous tensors only; make the tensor contiguous before")
        if isinstance(data, _Capsule) and not array.flags.writeable:
            array = _writable(array)  # older capsules cannot say that they are not
        return cls(array)

    @classmethod
    def ort_value_from_sparse_tensor(cls, sparse_tensor: Any) -> NoReturn:
        """Raise NotImplemented."""
        refuse("sparse tensors", "pass a dense array")

    def as_sparse_tensor(self) -> NoReturn:
        """Raise NotImplemented."""
        refuse("sparse tensors", "numpy() has the numbers")

    def __dlpack__(self, **how: Any) -> Any:
        return self._array.__dlpack__(**how)

    def __dlpack_device__(self) -> tuple[int, int]:
        return _DLPACK_CPU, 0

    def numpy(self) -> Array:
        """Return the array."""
        return self._array

    def update_inplace(self, data: Array | OrtValue) -> None:
        """Copy numbers of an array or a value into this one. Raises ValueError where shapes differ."""
        array = data.numpy() if isinstance(data, OrtValue) else data
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


class OrtValueVector(list[OrtValue]):
    """A list of values."""

    def push_back(self, value: Any) -> None:
        """Append a value, or another library's tensor."""
        self.append(value if isinstance(value, OrtValue) else OrtValue.from_dlpack(value))

    def push_back_batch(
        self, tensors: Iterable[Any], data_ptrs: Iterable[int], element_types: Iterable[Any], shapes: Any, devices: Any
    ) -> None:
        """Append values over memory of the caller's; ``tensors`` are what it belongs to."""
        for tensor, address, element_type, shape in zip(tensors, data_ptrs, element_types, shapes, strict=True):
            value = OrtValue(array_at(address, element_type, shape))
            value._owner = tensor
            self.append(value)

    def reserve(self, count: int) -> None:
        """Do nothing: lists grow."""

    def shrink_to_fit(self) -> None:
        """Do nothing: lists are as long as they are."""

    def element_type_at(self, index: int) -> int:
        """Return the number of a value's element type."""
        return self[index].element_type()

    def dlpack_at(self, index: int) -> Any:
        """Return a value as a capsule that other libraries take."""
        return self[index].__dlpack__()

    def to_dlpacks(self, to_tensor: Any = None) -> list[Any]:
        """Return all values as capsules, or what ``to_tensor`` makes of each."""
        capsules = [value.__dlpack__() for value in self]
        return capsules if to_tensor is None else [to_tensor(capsule) for capsule in capsules]


def run_into(
    session: InferenceSession,
    names: Sequence[str],
    places: Sequence[Array | None],
    inputs: Mapping[str, Any],
    options: Any,
) -> list[OrtValue]:
    """Run a session; return the outputs of these names, in their places where they have such."""
    given = {name: place for name, place in zip(names, places, strict=True) if place is not None}
    out = given if given and _are_apart([*given.values()], inputs) else None
    made = []
    for place, array in zip(places, session._run_into(names, inputs, options, out) if names else [], strict=True):
        if place is not None and place is not array:
            if place.shape != array.shape:
                raise ValueError(f"an output has shape {array.shape}, the memory bound to it {place.shape}")
            np.copyto(place, array, casting="no")
        made.append(OrtValue(array if place is None else place))
    return made


def run_vectors(
    session: InferenceSession,
    options: Any,
    feeds: Mapping[str, OrtValue],
    names: Sequence[str],
    fetches: list[OrtValue],
) -> None:
    """Run a session on values; ``fetches`` gets the outputs of these names, or has values for them already. Raises
    InvalidArgument where it has another number of values.
    """
    if fetches and len(fetches) != len(names):
        raise InvalidArgument(
            f"{InvalidArgument.prefix}fetch names has {len(names)} elements, but fetch has {len(fetches)} elements."
        )
    places: list[Array | None] = [value.numpy() for value in fetches]
    places += [None] * (len(names) - len(places))
    fetches[:] = run_into(session, names, places, {name: value.numpy() for name, value in feeds.items()}, options)


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
        self._results = run_into(self._session, [*self._outputs], [*self._outputs.values()], self._inputs, run_options)


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
