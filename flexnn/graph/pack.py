"""Packing: a convolution's weights become panels, streamed one panel at a time.

A panel holds ``NR`` consecutive output channels: ``[bias NR][slope NR, only PRELU]`` float32, the scales of its form
(graph/weight_form.py), then ``[block][tap][cin of block][NR]`` weights, and zeros up to the next line of 64 bytes.
Missing output channels of the last panel are zeros. A grouped convolution packs output channels regardless of
their groups: a panel reads the input channels of all groups it touches, ``cin_panel`` of them, and holds zeros where an
output channel does not see an input channel (kernels/include/flexnn/ops.h, ``fx_conv_panel_cin``). Panels of narrow
groups, as many outputs as inputs and 2, 4 or 8 of them, hold no zeros: each lane has its own group's weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod

import numpy as np
from numpy.typing import NDArray

from flexnn import _core

from .ir import Attr, GraphError, WeightSource
from .panels import NR, conv_cin_panel, is_narrow
from .weight_form import FORMS, WeightForm

CIN_BLOCK = 64
"""Input channels that a panel keeps together over all taps (docs/decisions/0001)."""

STORED_AS = "f32"
"""How weights are stored of which nothing else is said: an fx_wtype."""

F32 = NDArray[np.float32]


@dataclass(slots=True)
class PanelSource:
    """The panels of one ``conv`` or ``dwconv`` node. Arrays are loaded when panels are asked for, and dropped then."""

    op: str
    shape: tuple[int, int, int, int]
    """(cout, cin / group, kh, kw)."""
    group: int
    weight: WeightSource
    """Source of float32 of ``shape``; it may load a view of a file, or a transposed one."""
    bias: WeightSource | None = None
    """float32 [cout]; None: zeros. Not multiplied by ``scale``."""
    scale: WeightSource | None = None
    """float32 [cout]: multiplies each output channel's weights (a folded BatchNormalization); None: ones."""
    slope: WeightSource | None = None
    """float32 [cout], of a PRelu; None: the panels have no slopes."""
    wtype: str = field(default_factory=lambda: STORED_AS)
    """The name of the form that weights are stored in."""
    step: WeightSource | None = None
    """float32 [cout], of s8: ``weight`` is a multiple of it; None: each channel's largest weight becomes 127."""

    def __post_init__(self) -> None:
        cout, cin_group = self.shape[:2]
        if self.wtype not in FORMS:
            raise ValueError(f"weights stored as {self.wtype}")
        if min(self.shape) < 1 or self.group < 1 or cout % self.group:
            raise ValueError(f"weights of shape {self.shape} in {self.group} groups")
        if self.is_depthwise and (cin_group != 1 or self.group != cout):
            raise ValueError(f"not depthwise: shape {self.shape}, {self.group} groups")

    @property
    def key(self) -> str:
        """Name of the packed numbers, as a source's key is of its own (graph/sources.py)."""
        vectors = "|".join(v.key if v is not None else "" for v in (self.bias, self.scale, self.slope, self.step))
        return f"{self.op}{self.shape}/{self.group}{self.wtype}({self.weight.key}|{vectors})"

    @property
    def is_depthwise(self) -> bool:
        """Whether each output channel sees only the input channel of the same number."""
        return self.op == "dwconv"

    @property
    def attrs(self) -> dict[str, Attr]:
        """Attributes of the node that these panels decide; the form comes last (graph/passes)."""
        if self.is_depthwise:
            return {}
        return {"group": self.group, "cout": self.shape[0], "cin_block": self.cin_block}

    @property
    def form(self) -> WeightForm:
        """The form that weights are stored in."""
        return FORMS[self.wtype]

    @property
    def cin(self) -> int:
        """Input channels of the node."""
        return self.shape[1] * self.group

    @property
    def cin_panel(self) -> int:
        """Input channels that one panel reads."""
        if self.is_depthwise:
            return 1
        return conv_cin_panel(self.shape[0], self.shape[1], self.group)

    @property
    def cin_block(self) -> int:
        """Input channels that a panel keeps together over all taps."""
        return min(CIN_BLOCK, self.cin_panel)

    @property
    def panels(self) -> int:
        """Number of panels; the last may hold fewer than ``NR`` output channels."""
        return -(-self.shape[0] // NR)

    @property
    def panel_bytes(self) -> int:
        """Bytes of one panel."""
        weights = NR * self.cin_panel * self.shape[2] * self.shape[3]
        return self.form.layout(weights, slopes=self.slope is not None).end

    @property
    def nbytes(self) -> int:
        """Bytes of all panels."""
        return self.panels * self.panel_bytes

    def __iter__(self) -> Iterator[F32]:
        """Yield each panel, its bytes as flat float32. Read the weight some panels at a time (graph/rows.py), or whole
        where it is no view of a file's. Raises GraphError for weights that their form cannot hold.
        """
        cout = self.shape[0]
        vectors = [_vector(source, cout) for source in (self.bias, self.scale, self.slope, self.step)]
        bias, scale, slope, step = vectors
        for c0, c1, part in self._parts():
            head = [_lanes(bias, c0, c1)]
            if slope is not None:
                head.append(_lanes(slope, c0, c1))
            if self.form.scales:
                steps = _steps(part) if step is None else step[c0:c1]
                part = _whole(part / steps[:, None, None, None])
                head.append(_front(steps if scale is None else steps * scale[c0:c1]))
            elif scale is not None:
                part = part * scale[c0:c1, None, None, None]
            parts = [*head, _stored(self._body(part, c0), self.form)]
            zeros = np.zeros(self.panel_bytes // 4 - sum(p.size for p in parts), np.float32)
            yield np.concatenate([*parts, zeros])

    def _parts(self) -> Iterator[tuple[int, int, F32]]:
        """Yield the weights of each panel, with their first output channel and the one after their last."""
        from .rows import batches  # sessions do without

        done = 0
        for first, rows in batches(self.weight, NR, prod(self.shape) * 4):
            done += len(rows)
            if rows.shape[1:] != self.shape[1:] or rows.dtype != np.float32:
                raise ValueError(f"weight loaded as {rows.dtype}{rows.shape}, expected float32{self.shape}")
            for c0 in range(first, done, NR):
                c1 = min(c0 + NR, done)
                yield c0, c1, np.ascontiguousarray(rows[c0 - first : c1 - first], dtype=np.float32)
        if done != self.shape[0]:
            raise ValueError(f"weight has {done} output channels, expected {self.shape[0]}")

    def _body(self, part: F32, c0: int) -> F32:
        """[block][tap][cin of block][NR] of output channels from ``c0``."""
        count, cin_group, kh, kw = part.shape
        wide = self.cin_panel
        body = np.zeros((kh * kw, wide, NR), np.float32)
        taps = part.reshape(count, cin_group, kh * kw)
        if self.is_depthwise:
            body[:, 0, :count] = taps[:, 0].T
        elif self.group == 1 or is_narrow(self.shape[0], cin_group, self.group):
            body[:, :, :count] = taps.transpose(2, 1, 0)
        else:
            first = _core.conv_panel_cin(self.cin, self.shape[0], self.group, c0 // NR)
            per_group = self.shape[0] // self.group
            for lane in range(count):
                at = (c0 + lane) // per_group * cin_group - first
                body[:, at : at + cin_group, lane] = taps[lane].T
        block = self.cin_block
        if block == wide:
            return body.reshape(-1)
        return np.concatenate([body[:, b : b + block].reshape(-1) for b in range(0, wide, block)])


@dataclass(frozen=True, slots=True)
class PackedSource:
    """The numbers of panels as a raw weight, a row for each panel."""

    panels: PanelSource

    @property
    def key(self) -> str:
        """Key of the panels."""
        return self.panels.key

    @property
    def shape(self) -> tuple[int, int]:
        """Number of panels, and of float32 in each."""
        return self.panels.panels, self.panels.panel_bytes // 4

    def load(self) -> F32:
        """Pack all panels."""
        return np.concatenate(list(self.panels)).reshape(self.shape)


def _stored(body: F32, form: WeightForm) -> F32:
    """Weights in their form, their bytes as flat float32."""
    if form.dtype == body.dtype:
        return body
    with np.errstate(over="ignore"):
        stored = body.astype(form.dtype)
    if not form.scales and np.isinf(stored).any():
        most = float(np.finfo(form.dtype).max)
        raise GraphError(f"weights do not fit into {form.bits} bits: their largest value is {most:g}")
    return stored.view(np.float32)


def _steps(part: F32) -> F32:
    """Return the scale of each channel: 127 of its steps make the largest weight."""
    most = np.abs(part).max(axis=(1, 2, 3))
    return np.where(most > 0, most / np.float32(127), np.float32(1)).astype(np.float32)


def _whole(counts: F32) -> F32:
    whole = np.rint(counts)
    if not (np.abs(whole) <= 128).all() or (whole == 128).any():
        raise GraphError("weights do not fit into 8 bits")
    return whole


def _vector(source: WeightSource | None, cout: int) -> F32 | None:
    if source is None:
        return None
    values = np.asarray(source.load(), np.float32)
    if values.shape != (cout,):
        raise ValueError(f"{values.shape} values for {cout} output channels")
    return values


def _lanes(values: F32 | None, c0: int, c1: int) -> F32:
    return _front(np.zeros(0, np.float32) if values is None else values[c0:c1])


def _front(values: F32) -> F32:
    """``NR`` numbers: those, then zeros."""
    lanes = np.zeros(NR, np.float32)
    lanes[: values.size] = values
    return lanes
