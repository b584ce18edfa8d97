"""onnxruntime's words about devices and providers: one device, the CPU, and one provider, which computes all."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

from flexnn.graph.ir import Graph

from .lacking import OrtHardwareDeviceType, OrtSyncStream, refuse
from .memory import CPU, OrtAllocatorType, OrtMemoryInfo

if TYPE_CHECKING:
    from flexnn.session import Session

PROVIDER = "CPUExecutionProvider"
VENDOR = "FlexNN"
RECORDS = "session.record_ep_graph_assignment_info"
"""Entry of a session's options with which it says who computes what."""


class OrtHardwareDevice:
    """A device: the CPU."""

    def __init__(self) -> None:
        self.type = OrtHardwareDeviceType.CPU
        self.device_id, self.vendor_id, self.vendor = 0, 0, _vendor()
        self.metadata: dict[str, str] = {}


class OrtEpDevice:
    """A device as a provider offers it."""

    def __init__(self) -> None:
        self.ep_name, self.ep_vendor, self.device = PROVIDER, VENDOR, OrtHardwareDevice()
        self.ep_metadata: dict[str, str] = {}
        self.ep_options: dict[str, str] = {}

    def memory_info(self, memory_type: object = None) -> OrtMemoryInfo:
        """Return the CPU's memory."""
        return OrtMemoryInfo(CPU, OrtAllocatorType.ORT_DEVICE_ALLOCATOR)

    def create_sync_stream(self, options: object = None) -> OrtSyncStream:
        """Raise NotImplemented: the CPU has no streams."""
        refuse("OrtSyncStream", "it computes on the CPU, which has no streams")


class OrtEpAssignedNode:
    """A node that a provider computes. ``op_type`` is FlexNN's operator where nodes were fused when compiling."""

    def __init__(self, name: str, op_type: str, domain: str = "") -> None:
        self.name, self.op_type, self.domain = name, op_type, domain


class OrtEpAssignedSubgraph:
    """Nodes that a provider computes."""

    def __init__(self, nodes: list[OrtEpAssignedNode]) -> None:
        self.ep_name, self._nodes = PROVIDER, nodes

    def get_nodes(self) -> list[OrtEpAssignedNode]:
        """Return the nodes."""
        return list(self._nodes)


@cache
def cpu() -> OrtEpDevice:
    """Return the CPU."""
    return OrtEpDevice()


def get_ep_devices() -> list[OrtEpDevice]:
    """Return the CPU."""
    return [cpu()]


def assigned(session: Any) -> list[OrtEpAssignedSubgraph]:
    """Return all nodes of a session's model, each by itself, as onnxruntime's CPU provider has them; or what a session
    of an installed onnxruntime says.
    """
    if not hasattr(session, "_run"):
        theirs: list[OrtEpAssignedSubgraph] = session.get_provider_graph_assignment_info()
        return theirs
    return [OrtEpAssignedSubgraph([node]) for node in _nodes(session)]


def _nodes(session: Session) -> Iterator[OrtEpAssignedNode]:
    contents = session._run.artifact.contents
    if isinstance(contents, Graph):
        yield from (OrtEpAssignedNode(node.name, node.op) for node in contents.nodes)
    else:
        yield from (OrtEpAssignedNode(node.name, node.op_type, node.domain) for node in contents.model.graph.nodes)


def _vendor() -> str:
    """Return the maker of the CPU, as far as the system says it."""
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            names = (line.partition(":")[2].strip() for line in file if line.startswith("vendor_id"))
            return {"AuthenticAMD": "AMD", "GenuineIntel": "Intel"}.get(found := next(names, ""), found)
    except OSError:
        return ""
