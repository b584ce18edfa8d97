"""onnxruntime's words about memory: what a value lies in, and who allocates it. All of it is the CPU's."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

CPU = "Cpu"
_SETTINGS = (
    "max_mem",
    "arena_extend_strategy",
    "initial_chunk_size_bytes",
    "max_dead_bytes_per_chunk",
    "initial_growth_chunk_size_bytes",
    "max_power_of_two_extend_bytes",
)


class OrtAllocatorType(IntEnum):
    """Kinds of allocators."""

    INVALID = -1
    ORT_DEVICE_ALLOCATOR = 0
    ORT_ARENA_ALLOCATOR = 1


class OrtMemType(IntEnum):
    """Uses of memory."""

    CPU_INPUT = -2
    CPU_OUTPUT = -1
    CPU = -1
    DEFAULT = 0


class OrtDeviceMemoryType(IntEnum):
    """Kinds of a device's memory."""

    DEFAULT = 0
    HOST_ACCESSIBLE = 5


class OrtMemoryInfoDeviceType(IntEnum):
    """Kinds of devices."""

    CPU = 0
    GPU = 1
    FPGA = 2
    NPU = 3


class OrtMemoryInfo:
    """Memory that values lie in. Raises RuntimeError for a device's."""

    def __init__(
        self, name: str, allocator_type: OrtAllocatorType, device_id: int = 0, mem_type: OrtMemType = OrtMemType.DEFAULT
    ) -> None:
        if name != CPU:
            raise RuntimeError(
                f"Specified device is not supported: {name}; FlexNN computes on the CPU, whose name is Cpu"
            )
        self.name, self.device_id = name, int(device_id)
        self.allocator_type, self.mem_type = OrtAllocatorType(allocator_type), OrtMemType(mem_type)
        self.device_mem_type, self.device_vendor_id = OrtDeviceMemoryType.DEFAULT, 0

    @staticmethod
    def create_v2(
        name: str,
        device_type: OrtMemoryInfoDeviceType,
        vendor_id: int,
        device_id: int,
        device_mem_type: OrtDeviceMemoryType,
        alignment: int,
        allocator_type: OrtAllocatorType,
    ) -> OrtMemoryInfo:
        """Return the CPU's memory under this name. Raises RuntimeError for a device's."""
        if device_type != OrtMemoryInfoDeviceType.CPU:
            raise RuntimeError(f"Specified device is not supported: {name}; FlexNN computes on the CPU")
        found = OrtMemoryInfo(CPU, allocator_type, device_id)
        found.name, found.device_vendor_id = name, int(vendor_id)
        found.device_mem_type = OrtDeviceMemoryType(device_mem_type)
        return found


class OrtArenaCfg:
    """Settings of an arena: kept, and they change nothing, since each session plans its own."""

    def __init__(self, *settings: Any) -> None:
        given = (
            settings[0]
            if settings and isinstance(settings[0], Mapping)
            else dict(zip(_SETTINGS, settings, strict=False))
        )
        for name in given:
            if name not in _SETTINGS:
                raise ValueError(f"Invalid OrtArenaCfg option: {name}")
        for name in _SETTINGS:
            setattr(self, name, int(given.get(name, 0 if name == "max_mem" else -1)))
