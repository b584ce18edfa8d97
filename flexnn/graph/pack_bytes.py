"""Packing for 8-bit activations: int8 weights of a ``conv_u8`` or ``dwconv_u8`` node become panels.

A panel holds ``NR`` consecutive output channels: ``[bias NR]`` int32 with the zero point's share, ``[sums of weights
NR]`` int32, ``[scale NR]`` float32, for outputs of float32 ``[offset NR]`` float32, then ``[run][four of it][NR][4]``
weights (kernels/include/flexnn/params_bytes.h). Missing output channels of the last panel are zeros.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from flexnn.quick_dataclass import quick_dataclass

from .ir import Attr, GraphError, WeightSource
from .panels import NR

if TYPE_CHECKING:
    from numpy.typing import NDArray

F32: TypeAlias = "NDArray[np.float32]"
I8: TypeAlias = "NDArray[np.int8]"
I32: TypeAlias = "NDArray[np.int32]"


@quick_dataclass(slots=True)
class BytePanels:
    """The panels of one ``conv_u8`` or ``dwconv_u8`` node. Arrays are loaded when panels are asked for."""

    op: str
    shape: tuple[int, int, int, int]
    """(cout, cin, kh, kw); of ``dwconv_u8`` (channels, 1, kh, kw)."""
    weight: WeightSource
    """int8 of ``shape``."""
    scale: WeightSource
    """float32 [cout]: what a sum is multiplied by, before the output's zero point is added."""
    x_zero: int
    """The input's zero point, whose share the bias gets; of a node that learns it while it runs, 0."""
    to: str
    """Type of the output: u8 or f32."""
    bias: WeightSource | None = None
    """int32 [cout], in steps of the sums; None: zeros."""
    offset: WeightSource | None = None
    """float32 [cout], which is added behind the scale, where the output is float32; None: zeros."""
    by_rows: bool = False
    """Whether a run is a row of taps, not one tap: better where a tap has fewer than 4 channels; not if dilated."""

    def __post_init__(self) -> None:
        if self.to not in ("u8", "f32") or (self.offset is not None and self.to == "u8"):
            raise ValueError(f"panels for outputs of {self.to}")
        if min(self.shape) < 1 or (self.is_depthwise and (self.shape[1] != 1 or self.by_rows)):
            raise ValueError(f"weights of shape {self.shape}")

    @property
    def key(self) -> str:
        """Name of the packed numbers, as a source's key is of its own (graph/sources.py)."""
        vectors = "|".join(v.key if v is not None else "" for v in (self.scale, self.bias, self.offset))
        kind = f"{self.op}{self.shape}{self.to}{self.x_zero}{'r' if self.by_rows else ''}"
        return f"{kind}({self.weight.key}|{vectors})"

    @property
    def is_depthwise(self) -> bool:
        """Whether each output channel sees only the input channel of the same number."""
        return self.op == "dwconv_u8"

    @property
    def attrs(self) -> dict[str, Attr]:
        """Attributes of the node that these panels decide."""
        shared: dict[str, Attr] = {"to": self.to, "x_zero": self.x_zero}
        if self.is_depthwise:
            return shared
        return {**shared, "cout": self.shape[0], "by_rows": int(self.by_rows)}

    @property
    def fours(self) -> int:
        """Fours of weights of an output channel."""
        _, cin, kh, kw = self.shape
        if self.is_depthwise:
            return kw * -(-kh // 4)
        return kh * -(-kw * cin // 4) if self.by_rows else kh * kw * -(-cin // 4)

    @property
    def panels(self) -> int:
        """Number of panels; the last may hold fewer than ``NR`` output channels."""
        return -(-self.shape[0] // NR)

    @property
    def panel_bytes(self) -> int:
        """Bytes of one panel."""
        return NR * 4 * ((4 if self.to == "f32" else 3) + self.fours)

    @property
    def nbytes(self) -> int:
        """Bytes of all panels."""
        return self.panels * self.panel_bytes

    def __iter__(self) -> Iterator[F32]:
        """Yield each panel, its bytes as flat float32."""
        cout = self.shape[0]
        weight = np.asarray(self.weight.load())
        if weight.dtype != np.int8 or weight.size != prod(self.shape):
            raise GraphError(f"weight loaded as {weight.dtype}{weight.shape}, expected int8{self.shape}")
        weight = weight.reshape(self.shape)
        scale, bias, offset = (
            _vector(source, dtype, cout)
            for source, dtype in ((self.scale, np.float32), (self.bias, np.int32), (self.offset, np.float32))
        )
        for c0 in range(0, cout, NR):
            part = np.zeros((NR, *self.shape[1:]), np.int8)
            part[: min(NR, cout - c0)] = weight[c0 : c0 + NR]
            sums = part.reshape(NR, -1).sum(axis=1, dtype=np.int64)
            own = (_lanes(bias, c0).astype(np.int64) - self.x_zero * sums).astype(np.int32)
            head: list[NDArray[np.generic]] = [own, sums.astype(np.int32), _lanes(scale, c0)]
            if self.to == "f32":
                head.append(_lanes(offset, c0))
            yield np.concatenate([v.view(np.float32) for v in (*head, self._body(part))])

    def _body(self, part: I8) -> I8:
        """[run][four][NR][4] of NR output channels."""
        if self.is_depthwise:
            runs = part[:, 0].transpose(0, 2, 1)  # a run is a column of taps
        else:
            runs = part.transpose(0, 2, 3, 1)
            runs = runs.reshape(NR, part.shape[2], -1) if self.by_rows else runs.reshape(NR, -1, part.shape[1])
        filled = np.zeros((*runs.shape[:2], -(-runs.shape[2] // 4) * 4), np.int8)
        filled[:, :, : runs.shape[2]] = runs
        fours = filled.reshape(NR, runs.shape[1], -1, 4).transpose(1, 2, 0, 3)
        return np.ascontiguousarray(fours).reshape(-1)


def _vector(source: WeightSource | None, dtype: type[np.generic], cout: int) -> NDArray[np.generic]:
    if source is None:
        return np.zeros(cout, dtype)
    values = np.asarray(source.load())
    if values.shape != (cout,) or values.dtype != dtype:
        raise GraphError(f"{values.dtype}{values.shape} for {cout} output channels of {np.dtype(dtype)}")
    return values


def _lanes(values: NDArray[np.generic], c0: int) -> NDArray[np.generic]:
    """``NR`` numbers: those from ``c0`` on, then zeros."""
    lanes = np.zeros(NR, values.dtype)
    part = values[c0 : c0 + NR]
    lanes[: part.size] = part
    return lanes
