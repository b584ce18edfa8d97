"""The verified reader: it believes nothing in the file before it has checked it.

After ``open_artifact`` the graph is consistent: indices are in range, views lie inside their roots, weights lie inside
the file and have the size that their node reads, and shapes are those that each operator computes from its inputs. The
engine checks the bytes of the weights against their checksums at each read.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, NamedTuple, Self, cast

import numpy as np

from flexnn import _core
from flexnn.garbage import Uncollected
from flexnn.graph import operators
from flexnn.graph.descriptor import Descriptor
from flexnn.graph.ir import RAW_CHUNK_BYTES, TENSOR_BYTES_MAX, Graph, Node, Tensor, Weight
from flexnn.graph.panels import NR
from flexnn.graph.tables import PANEL_BYTES_MIN

from .format import ABOUT, GRAPH, HEADER_BYTES, LABELLED, PAGE, ArtifactError, Header, again
from .section import load_graph

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from flexnn.graph.about import About

    from .model_section import StoredModel


class Artifact:
    """An open artifact. Close it, or use it as a context manager.

    ``contents`` is a bound graph or a model whose shapes are open, as ``kind`` says. ``crcs`` holds one uint32 for each
    chunk. The file stays open, so later changes of the path do not matter.
    """

    def __init__(
        self,
        file: Descriptor,
        header: Header,
        contents: Graph | StoredModel,
        crcs: NDArray[np.uint32],
        about: Weight | None = None,
    ) -> None:
        self._file, self._about = file, about
        self.path = file.path
        self.header = header
        self.contents = contents
        self.crcs = crcs

    @property
    def fd(self) -> int:
        """Descriptor of the open file; -1 once it is closed."""
        return self._file.fd

    @property
    def file(self) -> _core.OpenFile:
        """The open file."""
        return self._file.file

    @property
    def kind(self) -> int:
        """GRAPH or MODEL."""
        return self.header.kind

    @property
    def graph(self) -> Graph:
        """The bound graph. Raises ArtifactError where shapes are open."""
        if self.kind == GRAPH:
            return cast("Graph", self.contents)
        raise ArtifactError(f"{self.path}: the model has open shapes, which are bound when it runs")

    def about(self) -> About:
        """Return what the model says about itself. Raises ArtifactError, or GraphError if the file was cut."""
        from flexnn.graph.about import About  # most sessions are not asked

        from .about_weight import ABOUT_BYTES_MAX, load_about
        from .stored_source import StoredSource

        weight = self._about
        if weight is None:
            return About()
        if weight.nbytes > ABOUT_BYTES_MAX:
            raise ArtifactError(f"{self.path}: what the model says about itself has {weight.nbytes} bytes")
        raw = StoredSource(self._file, self.crcs, weight, "u8", (weight.nbytes,)).load().tobytes()
        return load_about(raw, has_labels=self.has_labels)

    @property
    def has_labels(self) -> bool:
        """Whether numbers of outputs stand for labels, which ``about`` tells."""
        return self._about is not None and self._about.name == LABELLED

    def close(self) -> None:
        """Close the file; twice is fine."""
        self._file.close()

    def open_direct(self) -> _core.OpenFile | None:
        """Open the file a second time with O_DIRECT; return None if the file system refuses."""
        try:
            return _core.OpenFile(f"/proc/self/fd/{self.fd}", os.O_RDONLY | os.O_DIRECT)
        except OSError:
            return None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_artifact(path: str) -> Artifact:
    """Open and check the artifact at ``path``. Raises OSError, or ArtifactError with ``path`` in its message."""
    file = Descriptor(path, os.O_NONBLOCK)  # a FIFO must not make us wait
    try:
        with Uncollected():
            return _read(file)
    except ValueError as error:  # ours, or the C core about parameters
        file.close()
        raise ArtifactError(f"{path}: {error}") from None
    except BaseException:
        file.close()
        raise


def _read(file: Descriptor) -> Artifact:
    if not stat.S_ISREG(os.fstat(file.fd).st_mode):
        raise ArtifactError("not a regular file")
    head = bytearray(HEADER_BYTES)
    count = file.read_some(memoryview(head), 0)
    header = Header.unpack(bytes(head[:count]), file.size, file.path)
    if header.panel_width != NR:
        raise ArtifactError(f"panels have {header.panel_width} channels, this FlexNN computes {NR}: {again(file.path)}")
    section = _section(file, header.graph_offset, header.graph_bytes, header.graph_crc, "graph")
    table = _section(file, header.crc_offset, 4 * header.crc_count, header.crcs_crc, "checksum table")
    crcs = np.frombuffer(table, "<u4")
    contents: Graph | StoredModel
    if header.kind == GRAPH:
        contents = load_graph(section)
        check_graph(contents)
    else:  # lazily: most artifacts hold a graph
        from .model_section import attach_values, load_stored

        contents = load_stored(section)
        attach_values(contents, file, crcs)
    _check_places(contents.weights, header)
    return Artifact(file, header, contents, crcs, _take_about(contents))


def _take_about(contents: Graph | StoredModel) -> Weight | None:
    """Remove the last weight from the others if nothing reads it and it has the name, so that no plan counts it."""
    if not contents.weights or contents.weights[-1].name not in (ABOUT, LABELLED) or contents.weights[-1].kind != "raw":
        return None
    if isinstance(contents, Graph):
        read = (item.weight for items in (contents.tensors, contents.nodes) for item in items)
    else:
        read = (i for i in (len(contents.keys) - 1, contents.templates, *contents.values.values()))
    return contents.weights.pop() if max(read, default=-1) < len(contents.weights) - 1 else None


def _section(file: Descriptor, offset: int, size: int, crc: int, what: str) -> bytes:
    raw = file.read(offset, size)
    if _core.crc32c(raw) != crc:
        raise ArtifactError(f"the checksum of the {what} does not match: the file is damaged")
    return raw


def check_graph(graph: Graph) -> None:
    """Check that the graph is consistent in itself; the writer does so, too. Raises ArtifactError or GraphError."""
    for i, tensor in enumerate(graph.tensors):
        _check_tensor(graph, i, tensor)
    ready = set(graph.inputs) | {i for i, t in enumerate(graph.tensors) if t.weight >= 0}
    # A pure view (a concat's whole, a split's part, a reshape) is no node's output: something of its root was written.
    written_roots = set(ready)
    if len(set(graph.inputs)) != len(graph.inputs) or len(set(graph.outputs)) != len(graph.outputs):
        raise ArtifactError("an input or output is listed twice")
    if not graph.outputs:
        raise ArtifactError("the graph has no outputs")
    for i in graph.inputs:
        if graph.tensors[i].root >= 0 or graph.tensors[i].weight >= 0:
            raise ArtifactError(f"input {graph.tensors[i].name!r} does not own its storage")
    alike: Alike = {}
    for node in graph.nodes:
        _check_node(graph, node, ready, written_roots, alike)
    for i in graph.outputs:
        if i not in written_roots or graph.tensors[i].root >= 0 or graph.tensors[i].weight >= 0 or i in graph.inputs:
            raise ArtifactError(f"output {graph.tensors[i].name!r} does not own its storage, or no node computes it")


def _check_tensor(graph: Graph, index: int, tensor: Tensor) -> None:
    if tensor.nbytes > TENSOR_BYTES_MAX:
        raise ArtifactError(f"tensor {tensor.name!r}: shape {tensor.shape} is too large")
    if len(tensor.strides) != len(tensor.shape):
        raise ArtifactError(
            f"tensor {tensor.name!r}: has {len(tensor.strides)} strides for {len(tensor.shape)} dimensions"
        )
    if tensor.root < 0:
        if tensor.offset or not tensor.contiguous:
            raise ArtifactError(f"tensor {tensor.name!r}: owns its storage, but is strided")
    else:
        root = graph.tensors[tensor.root]
        last = tensor.offset + sum((d - 1) * s for d, s in zip(tensor.shape, tensor.strides, strict=True) if d > 1)
        if tensor.weight >= 0:
            raise ArtifactError(f"tensor {tensor.name!r}: is a constant, but also a view")
        if tensor.root == index or root.root >= 0:
            raise ArtifactError(f"tensor {tensor.name!r}: its root tensor is itself a view")
        if root.dtype != tensor.dtype:
            raise ArtifactError(f"tensor {tensor.name!r}: is {tensor.dtype}, its root is {root.dtype}")
        if tensor.size and last >= root.size:
            raise ArtifactError(f"tensor {tensor.name!r}: reaches outside its root")
    if tensor.weight >= 0:
        weight = graph.weights[tensor.weight]
        if weight.kind != "raw" or weight.nbytes != tensor.nbytes:
            raise ArtifactError(
                f"constant {tensor.name!r}: its weight has {weight.nbytes} bytes instead of {tensor.nbytes}"
            )


class _Facts(NamedTuple):
    """Facts of a node that equal nodes have in common."""

    params: NDArray[np.int32]
    panel_bytes: int
    weight_bytes: int


Alike = dict[tuple[object, ...], _Facts]
"""Facts of nodes, by all that these depend on. Attributes are told apart as objects: the reader makes equal ones once.
"""


def _facts(graph: Graph, node: Node, alike: Alike) -> _Facts:
    """Return a node's facts, whose outputs are what it computes. Raises ArtifactError, GraphError, or ValueError of the
    C core about parameters.
    """
    tensors = graph.tensors
    operands = [(tensors[i].shape, tensors[i].dtype, tensors[i].strides) for i in (*node.inputs, *node.outputs)]
    key = node.op, id(node.attrs), len(node.inputs), *operands
    found = alike.get(key)
    if found is None:
        operators.check(node)
        for i, (shape, dtype) in zip(node.outputs, operators.infer(graph, node), strict=True):
            tensor = tensors[i]
            if tensor.shape != shape or tensor.dtype != dtype:
                computed = f"computes {dtype}{shape}, but {tensor.name!r} is {tensor.dtype}{tensor.shape}"
                raise ArtifactError(f"node {node.name!r} ({node.op}): {computed}")
        params = _core.encode_params(node.op, operators.encode(graph, node))
        panel_bytes = _core.op_panel_bytes(node.op, params)
        weight_bytes = panel_bytes * _core.op_panels(node.op, params) if panel_bytes else 0
        found = alike[key] = _Facts(params, panel_bytes, weight_bytes)
    return found


def _check_node(graph: Graph, node: Node, ready: set[int], written_roots: set[int], alike: Alike) -> None:
    where = f"node {node.name!r} ({node.op})"
    for i in node.inputs:
        if i not in ready and graph.root(i) not in written_roots:
            raise ArtifactError(f"{where}: reads {graph.tensors[i].name!r} before it is computed")
    written = {graph.root(i) for i in node.outputs}
    constants = any(graph.tensors[i].weight >= 0 for i in written)
    if constants or written & set(graph.inputs):
        raise ArtifactError(f"{where}: writes an input or a constant")
    for i in node.outputs:
        if i in ready:
            raise ArtifactError(f"{where}: computes {graph.tensors[i].name!r} a second time")
        ready.add(i)
    written_roots |= written
    facts = _facts(graph, node, alike)
    node.params = facts.params
    if (node.weight >= 0) != bool(facts.panel_bytes):
        raise ArtifactError(f"{where}: lacks its panels, or has panels that it does not read")
    if node.weight >= 0:
        weight, expected = graph.weights[node.weight], facts.weight_bytes
        if weight.kind != "panels" or weight.nbytes != expected or weight.chunk_bytes != facts.panel_bytes:
            raise ArtifactError(f"{where}: its weight has {weight.nbytes} bytes, but it reads {expected}")


def _check_places(weights: list[Weight], header: Header) -> None:
    for weight in weights:
        end = weight.offset + weight.nbytes
        if weight.offset % PAGE or weight.offset < header.data_offset or end > header.file_bytes:
            raise ArtifactError(f"weight {weight.name!r} lies outside the data section")
        if weight.kind == "raw" and not PANEL_BYTES_MIN <= weight.chunk_bytes <= RAW_CHUNK_BYTES:
            raise ArtifactError(f"weight {weight.name!r}: chunks of {weight.chunk_bytes} bytes")
        if weight.crc_first + weight.chunks > header.crc_count:
            raise ArtifactError(f"weight {weight.name!r} has no checksums")
