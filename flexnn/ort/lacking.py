"""onnxruntime's names that FlexNN has nothing for. Programs import them, and may never use them: whoever does is told
what to do instead.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NoReturn

from .errors import NotImplemented  # noqa: A004


def refuse(what: str, instead: str) -> NoReturn:
    """Raise onnxruntime's NotImplemented, which is a NotImplementedError here."""
    raise LackingError(f"{NotImplemented.prefix}FlexNN has no {what}: {instead}")


class LackingError(NotImplemented, NotImplementedError):
    """Something that onnxruntime has was used, and FlexNN has it not."""


class _Lacking(type):
    """Type of classes of which there are no objects; any method of theirs says what to do instead."""

    instead = ""

    def __call__(cls, *_: Any, **__: Any) -> Any:
        refuse(cls.__name__, cls.instead)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)

        def method(*_: Any, **__: Any) -> NoReturn:
            refuse(f"{cls.__name__}.{name}", cls.instead)

        return method


class LoraAdapter(metaclass=_Lacking):
    """Changes of weights that a run adds."""

    instead = "merge the adapter into the model's weights, and open the merged model"


class AdapterFormat(LoraAdapter):
    """The file of such."""


class SparseTensor(metaclass=_Lacking):
    """A tensor of few numbers beside zeros."""

    instead = "pass a dense array"


class ModelCompiler(metaclass=_Lacking):
    """The compiler of a provider."""

    instead = "flexnn.compile makes an artifact, which InferenceSession opens"


class ModelPackage(metaclass=_Lacking):
    """Several models in one file."""

    instead = "open each model by itself"


class ModelPackageContext(ModelPackage):
    """The contents of such a file."""


class ModelPackageOptions(ModelPackage):
    """How such a file is read."""


class ModelPackageComponentContext(ModelPackage):
    """A model of such a file."""


class OrtSyncStream(metaclass=_Lacking):
    """Work of a device in order."""

    instead = "it computes on the CPU, which has no streams"


class OrtEpContextData(OrtSyncStream):
    """The code that a provider compiled."""


class OrtEpContextDataBuffer(OrtSyncStream):
    """Memory of such."""


class OrtExternalInitializerInfo(metaclass=_Lacking):
    """The place of a weight outside of its model."""

    instead = "weights are read from the files that the model names"


class OrtSparseFormat(IntEnum):
    """How sparse tensors are stored."""

    ORT_SPARSE_UNDEFINED = 0
    ORT_SPARSE_COO = 1
    ORT_SPARSE_CSRC = 2
    ORT_SPARSE_BLOCK_SPARSE = 4


class OrtDeviceVendorId(IntEnum):
    """Makers of devices."""

    NONE = 0
    AMD = 0x1002
    NVIDIA = 0x10DE
    ARM = 0x13B5
    MICROSOFT = 0x1414
    HUAWEI = 0x19E5
    QUALCOMM = 0x5143
    INTEL = 0x8086


class OrtExecutionProviderDevicePolicy(IntEnum):
    """Which devices are preferred; FlexNN computes on the CPU."""

    DEFAULT = 0
    PREFER_CPU = 1
    PREFER_NPU = 2
    PREFER_GPU = 3
    MAX_PERFORMANCE = 4
    MAX_EFFICIENCY = 5
    MIN_OVERALL_POWER = 6


class OrtHardwareDeviceType(IntEnum):
    """Kinds of devices."""

    CPU = 0
    GPU = 1
    NPU = 2


class OrtCompileApiFlags(IntEnum):
    """How a provider compiles."""

    NONE = 0
    ERROR_IF_NO_NODES_COMPILED = 1
    ERROR_IF_OUTPUT_FILE_EXISTS = 2


class ModelPackageWriteMode(IntEnum):
    """How a file of several models is written."""

    PRESERVE = 0
    DENSE = 1


def copy_tensors(src: Any, dst: Any, stream: Any = None) -> None:
    """Copy values into others of the same shapes and types. Raises ValueError."""
    if len(src) != len(dst):
        raise ValueError(f"{len(src)} values to copy into {len(dst)}")
    for one, other in zip(src, dst, strict=True):
        other.update_inplace(one)


def register_execution_provider_library(name: str, path: Any) -> NoReturn:
    """Raise NotImplemented."""
    refuse("libraries of providers", "it computes on the CPU by itself")


def unregister_execution_provider_library(name: str) -> NoReturn:
    """Raise NotImplemented."""
    refuse("libraries of providers", "it computes on the CPU by itself")
