"""Tensors of a GGUF file as constants of a model: numbers in the type or the blocks that the file has, never rounded.

A tensor is read when somebody asks for its numbers, and forgotten after that: compiling takes the memory of one.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from flexnn.graph.ir import Array, GraphError, WeightSource
from flexnn.graph.model import Constant, ModelAttr, ModelGraph, ModelNode
from flexnn.graph.sources import ArraySource, FileSource, MappedSource, ModelSource

from .gguf_file import GgufFile, GgufTensor

_BLOCK = 32
_U8 = np.dtype("u1")


class Nodes:
    """The graph that is being made, and the tensors that it has taken from the file."""

    def __init__(self, opened: GgufFile, rounded: frozenset[str] = frozenset()) -> None:
        self.opened, self.rounded = opened, rounded
        self.graph = ModelGraph()
        self.taken: set[str] = set()
        self._count = 0

    # ---- nodes ----

    def add(self, op: str, *inputs: str, output: str = "", **attrs: ModelAttr) -> str:
        """Add a node, and return the name of its output, by default a new one."""
        return self.split(op, inputs, [output], attrs)[0]

    def split(
        self, op: str, inputs: tuple[str, ...], outputs: list[str], attrs: dict[str, ModelAttr], node: str = ""
    ) -> list[str]:
        """Add a node of several outputs; "": a new name, also of the ``node``."""
        name = f"{op}.{len(self.graph.nodes)}"
        names = [output or (name if i == 0 else f"{name}.{i}") for i, output in enumerate(outputs)]
        self.graph.nodes.append(ModelNode(op, node or name, list(inputs), names, attrs))
        return names

    def array(self, values: Array) -> str:
        """The name of a constant with these numbers; equal ones are one."""
        dtype = {"<f4": "f32", "<i8": "i64"}[values.dtype.str]
        source = ArraySource(values)
        name = source.key
        return name if name in self.graph.constants else self._stored(name, values.shape, dtype, source)

    def _stored(self, name: str, shape: tuple[int, ...], dtype: str, source: WeightSource) -> str:
        if name not in self.graph.constants:
            self.graph.constants[name] = Constant(name, shape, dtype, ModelSource(self._count, source))
            self._count += 1
        return name

    # ---- tensors ----

    def has(self, name: str) -> bool:
        """Whether the file has this tensor."""
        return name in self.opened.tensors

    def tensor(self, name: str, *shapes: tuple[int, ...]) -> GgufTensor:
        """The tensor, which must have one of these shapes. Raises GraphError."""
        found = self.opened.tensors.get(name)
        if found is None:
            raise GraphError(f"tensor {name!r} is missing")
        if found.shape not in shapes:
            raise GraphError(f"tensor {name!r}: shape {list(found.shape)}, needs {' or '.join(map(str, shapes))}")
        self.taken.add(name)
        return found

    def vector(self, name: str, size: int) -> str:
        """The name of a constant of ``size`` numbers in float32."""
        return self._wide(self.tensor(name, (size,)))

    def linear(self, x: str, name: str, rows: int, columns: int) -> str:
        """``x`` times the transposed of a matrix, plus its bias where the file has one."""
        found = self.tensor(f"{name}.weight", (rows, columns))
        weight = self.add("Transpose", self._matrix(found), perm=[1, 0])
        op = "flexnn.RoundedMatMul" if found.kind.name in self.rounded else "MatMul"
        (y,) = self.split(op, (x, weight), [""], {}, name)  # traces and errors say whose weights they are
        return self.add("Add", y, self.vector(f"{name}.bias", rows)) if self.has(f"{name}.bias") else y

    def picked(self, name: str, ids: str, rows: int, columns: int) -> str:
        """The rows of a matrix that ``ids``, [1, n], says: [1, n, columns]."""
        return self.add("Gather", self._matrix(self.tensor(name, (rows, columns))), ids)

    def _matrix(self, found: GgufTensor) -> str:
        """The name of a matrix in float32; what it is made of is narrow where the file's numbers are."""
        if found.kind.name in ("F32", "BF16"):
            return self._wide(found)
        if found.kind.name == "F16":
            return self.add("Cast", self._halves(found), to=1)
        kind, parts = found.kind.name, self._blocks(found)
        scales, least, factors = (self._as_f32(parts[part]) if part in parts else "" for part in PARTS)
        bits = int(kind[1])
        inputs = [parts["whole"], scales, "", least, factors]
        while not inputs[-1]:
            inputs.pop()
        return self.add("DequantizeLinear", *inputs, axis=1, block_size=_block(kind), bits=bits, output_dtype=1)

    def _as_f32(self, name: str) -> str:
        """The name of a constant's numbers in float32. One that is float32 is not cast: that would read it while a
        model is bound, so that it were stored beside the panels.
        """
        return name if self.graph.constants[name].dtype == "f32" else self.add("Cast", name, to=1)

    def _halves(self, found: GgufTensor) -> str:
        return self._stored(found.name, found.shape, "f16", self._file(found, np.dtype("<f2"), found.shape))

    def _wide(self, found: GgufTensor) -> str:
        """The name of a constant in float32."""
        source = self._file(found, np.dtype("<f4"), found.shape)
        match found.kind.name:
            case "F32":
                return self._stored(found.name, found.shape, "f32", source)
            case "F16":
                halves = self._file(found, np.dtype("<f2"), found.shape)
                return self._stored(found.name, found.shape, "f32", MappedSource(halves, _from_halves, "widened"))
            case "BF16":
                raw = self._file(found, np.dtype("<u2"), found.shape)
                return self._stored(found.name, found.shape, "f32", MappedSource(raw, _from_upper, "bf16"))
        raise GraphError(f"tensor {found.name!r}: type {found.kind.name} is not supported for vectors")

    def _blocks(self, found: GgufTensor) -> dict[str, str]:
        """Names of the parts of a matrix's blocks, as SPLITS has them."""
        split = SPLITS.get(found.kind.name)
        if split is None:
            raise GraphError(f"tensor {found.name!r}: type {found.kind.name} is not supported")
        rows, columns = found.shape
        raw = self._file(found, _U8, (rows, columns // found.kind.block, found.kind.nbytes))
        names = {}
        for part, (dtype, function) in split.items():
            of_factors = columns // found.kind.block * (2 if "least" in split else 1)
            shape = (rows, {"whole": columns, "factors": of_factors}.get(part, columns // _block(found.kind.name)))
            source = MappedSource(raw, _shaped(function, shape), f"{found.kind.name}.{part}")
            names[part] = self._stored(f"{found.name}.{part}", shape, dtype, source)
        return names

    def _file(self, found: GgufTensor, dtype: np.dtype[np.generic], shape: tuple[int, ...]) -> FileSource:
        return FileSource(self.opened.file, found.offset, dtype, shape)


def _shaped(function: Callable[[Array], Array], shape: tuple[int, ...]) -> Callable[[Array], Array]:
    return lambda raw: np.ascontiguousarray(function(raw)).reshape(shape)


def _from_halves(values: Array) -> Array:
    return values.astype(np.float32)


def _from_upper(values: Array) -> Array:
    upper: np.ndarray = values.astype(np.uint32) << np.uint32(16)
    wide: Array = upper.view(np.float32)
    return wide


def _half_at(start: int) -> Callable[[Array], Array]:
    """Return the reader of a float16 at a byte of each block."""
    return lambda raw: np.ascontiguousarray(raw[..., start : start + 2]).view("<f2")


def _halves_at(raw: Array, *starts: int) -> Array:
    """The float16 numbers at these bytes of each block: first the first one of all blocks."""
    return np.concatenate([_half_at(start)(raw)[..., 0] for start in starts], -1)


def _nibbles(raw: Array) -> Array:
    """The 32 numbers of 4 bits of each block: the low ones first."""
    return np.concatenate([raw & np.uint8(15), raw >> np.uint8(4)], -1)


def _fifths(raw: Array, start: int) -> Array:
    """The 32 numbers of 5 bits of each block: the fifth bits lie in 4 bytes before the others."""
    upper = np.unpackbits(np.ascontiguousarray(raw[..., start : start + 4]), -1, bitorder="little")
    whole: Array = _nibbles(raw[..., start + 4 :]) | upper << np.uint8(4)
    return whole


def _fifths_of_256(raw: Array) -> Array:
    """The 256 numbers of 5 bits: bit b of 32 bytes is the fifth one of block b, the others lie as those of 4 bits."""
    upper = np.concatenate([raw[..., 16:48] >> np.uint8(b) & np.uint8(1) for b in range(8)], -1) << np.uint8(4)
    low = _nibbles(raw[..., 48:176].reshape(*raw.shape[:-1], 4, 32)).reshape(upper.shape)
    whole: Array = low | upper
    return whole


def _of_256(raw: Array, start: int, part: int) -> Array:
    """Numbers of the 8 blocks of 32 in each block of 256: the float16 at ``start`` times the block's 6 bits. ``part``:
    0 of scales, 1 of minima. Float32 holds the products exactly.
    """
    packed = raw[..., 4:16]
    own = packed[..., 4 * part : 4 * part + 4]
    more = packed[..., 8:12] >> np.uint8(4 * part) & np.uint8(15) | own >> np.uint8(6) << np.uint8(4)
    factor = _half_at(start)(raw).astype(np.float32)
    product: Array = factor * np.concatenate([own & np.uint8(63), more], -1).astype(np.float32)
    return product


def _nibbles_of_256(raw: Array) -> Array:
    """The 256 numbers of 4 bits: 32 low ones, the 32 high ones of the same bytes, and so on."""
    return _nibbles(raw[..., 16:144].reshape(*raw.shape[:-1], 4, 32))


def _scales_of_16(raw: Array) -> Array:
    """Scales of the 16 blocks of 16 in each block of 256: 8 bits times a float16, which float32 holds exactly."""
    product: Array = _half_at(208)(raw).astype(np.float32) * raw[..., 192:208].view(np.int8)
    return product


def _sixths(raw: Array) -> Array:
    """The 256 numbers of 6 bits, less 32: of each half the low 4 bits in 64 bytes, two of the upper bits in 32."""
    low = raw[..., :128].reshape(*raw.shape[:-1], 2, 64)
    high = raw[..., 128:192].reshape(*raw.shape[:-1], 2, 32)
    upper = np.concatenate([high >> np.uint8(2 * i) & np.uint8(3) for i in range(4)], -1) << np.uint8(4)
    whole: Array = (_nibbles(low) | upper).view(np.int8) - np.int8(32)
    return whole


def _block(kind: str) -> int:
    """Numbers that share a scale."""
    return 16 if kind == "Q6_K" else _BLOCK


PARTS = "scales", "least", "factors"
_Split = dict[str, tuple[str, Callable[[Array], Array]]]
SPLITS: dict[str, _Split] = {
    "Q4_0": {
        "whole": ("i8", lambda raw: _nibbles(raw[..., 2:]).view(np.int8) - np.int8(8)),
        "scales": ("f16", _half_at(0)),
    },
    "Q4_1": {
        "whole": ("u8", lambda raw: _nibbles(raw[..., 4:])),
        "scales": ("f16", _half_at(0)),
        "least": ("f16", _half_at(2)),
    },
    "Q4_K": {
        "whole": ("u8", _nibbles_of_256),
        "scales": ("f32", lambda raw: _of_256(raw, 0, 0)),
        "least": ("f32", lambda raw: -_of_256(raw, 2, 1)),
        "factors": ("f16", lambda raw: _halves_at(raw, 0, 2)),
    },
    "Q5_K": {
        "whole": ("i8", lambda raw: _fifths_of_256(raw).view(np.int8)),
        "scales": ("f32", lambda raw: _of_256(raw, 0, 0)),
        "least": ("f32", lambda raw: -_of_256(raw, 2, 1)),
        "factors": ("f16", lambda raw: _halves_at(raw, 0, 2)),
    },
    "Q6_K": {
        "whole": ("i8", _sixths),
        "scales": ("f32", _scales_of_16),
        "factors": ("f16", lambda raw: _halves_at(raw, 208)),
    },
    "Q5_0": {
        "whole": ("i8", lambda raw: _fifths(raw, 2).view(np.int8) - np.int8(16)),
        "scales": ("f16", _half_at(0)),
    },
    "Q5_1": {
        "whole": ("i8", lambda raw: _fifths(raw, 4).view(np.int8)),
        "scales": ("f16", _half_at(0)),
        "least": ("f16", _half_at(2)),
    },
    "Q8_0": {"whole": ("i8", lambda raw: raw[..., 2:].view(np.int8)), "scales": ("f16", _half_at(0))},
}
"""The parts of blocks: integers, scales, what is added last, and what scales and the latter are multiples of."""
