"""Packing: a convolution's weights become panels, streamed one panel at a time.

A panel holds ``NR`` consecutive output channels: ``[bias NR][slope NR, only PRELU]`` float32, the scales and minima of
its form (graph/weight_form.py), then ``[block][tap][cin of block][NR]`` weights, and zeros up to the next line of 64
bytes.
Missing output channels of the last panel are zeros. A grouped convolution packs output channels regardless of
their groups: a panel reads the input channels of all groups it touches, ``cin_panel`` of them, and holds zeros where an
output channel does not see an input channel (kernels/include/flexnn/ops.h, ``fx_conv_panel_cin``). Panels of narrow
groups, as many outputs as inputs and 2, 4 or 8 of them, hold no zeros: each lane has its own group's weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from math import prod
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from flexnn import _core
from flexnn.quick_dataclass import quick_dataclass

from .ir import Attr, GraphError, WeightSource
from .panels import NR, conv_cin_panel, is_narrow
from .rounding import Rounded, exactly, integer_bytes, rounded, scale_bytes, shared_bytes, widened
from .weight_form import FORMS, PanelLayout, WeightForm

if TYPE_CHECKING:
    from numpy.typing import NDArray

CIN_BLOCK = 64
"""Input channels that a panel keeps together over all taps (docs/decisions/0001)."""

AT_ONCE_BYTES = 256 << 10
"""Bytes of panels that are made at once: they stay in a CPU's cache until they are written."""

STORED_AS = "f32"
"""How weights are stored of which nothing else is said: an fx_wtype."""

_WIDER = {"q4k": "q4mf", "q5k": "s8mf", "q6k": "s8b16f", "q5": "s8bf", "q5m": "s8mf"}
"""The form with scales of 32 bits that holds what one of fewer bits does, where another letter does not say it."""

F32: TypeAlias = "NDArray[np.float32]"


@quick_dataclass(slots=True)
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
    """The name of the form that weights shall be stored in."""
    step: WeightSource | None = None
    """float32 [cout], or [cout, blocks] of a form with blocks: ``weight`` less ``least`` is a multiple of it; None:
    steps are chosen for the weights, so that rounding takes little from them."""
    least: WeightSource | None = None
    """float32 of the shape of ``step``: the minima of a form that has some; with ``step`` only."""
    factors: WeightSource | None = None
    """float32, what float16 holds: of a form with double blocks, for each output channel what ``step``, and then what
    ``least`` are multiples of; with ``step`` only."""

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
        vectors = [v.key if v is not None else "" for v in (self.bias, self.scale, self.slope, self.step)]
        vectors += [source.key for source in (self.least, self.factors) if source is not None]
        return f"{self.op}{self.shape}/{self.group}{self.form.name}({self.weight.key}|{'|'.join(vectors)})"

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
        """The form that weights are stored in: ``wtype``, or one with a scale for each channel where blocks do not fit;
        one with larger scales where a half does not hold what they are multiplied by, or where there are no factors.
        """
        form = FORMS[self.wtype]
        if form.shared and (self.factors is None or self.scale is not None):
            form = FORMS[_WIDER[form.name]]
        if not form.block:
            return form
        narrow = self.is_depthwise or is_narrow(self.shape[0], self.shape[1], self.group)
        if narrow or not form.fits(self.shape[2] * self.shape[3], self.cin_panel, self.cin_block):
            return FORMS["s8"]
        if self.step is None or self.scale is None or form.scales != 2:
            return form
        return FORMS[_WIDER.get(form.name, f"{form.name}f")]

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
        return self._layout.end

    @property
    def _layout(self) -> PanelLayout:
        weights = NR * self.cin_panel * self.shape[2] * self.shape[3]
        return self.form.layout(weights, slopes=self.slope is not None)

    @property
    def nbytes(self) -> int:
        """Bytes of all panels."""
        return self.panels * self.panel_bytes

    def __iter__(self) -> Iterator[F32]:
        """Yield each panel, its bytes as flat float32. Read the weight some panels at a time (graph/rows.py), or whole
        where it is no view of a file's. Raises GraphError for weights that their form cannot hold.
        """
        bias, scale, slope = [_vector(source, self.shape[0]) for source in (self.bias, self.scale, self.slope)]
        form, given = self.form, self._given()
        if not form.scales and form.dtype == np.float32 and (self.is_depthwise or self.shape[1] == self.cin_panel):
            for first, rows in self._batches():
                yield from self._plain(first, rows, bias, scale, slope)
            return
        for c0, c1, part in self._parts():
            head = [_lanes(bias, c0, c1)]
            if slope is not None:
                head.append(_lanes(slope, c0, c1))
            factors = None if scale is None else scale[c0:c1]
            if factors is not None and (not form.scales or (form.block and given is None)):
                part, factors = part * factors[:, None, None, None], None
            if not form.scales:
                parts = [*head, _stored(self._body(part, c0), form)]
            else:
                made = self._rounded(part, c0, given)
                parts = [*head, *_scaled(made, form, factors)]
                at = sum(p.nbytes for p in parts)
                weights = np.frombuffer(integer_bytes(made.integers, form), np.float32)
                parts += [np.zeros((self._layout.weights - at) // 4, np.float32), weights]
            zeros = np.zeros(self.panel_bytes // 4 - sum(p.size for p in parts), np.float32)
            yield np.concatenate([*parts, zeros])

    def _plain(self, first: int, rows: F32, bias: F32 | None, scale: F32 | None, slope: F32 | None) -> Iterator[F32]:
        """Yield the panels of output channels from ``first`` on, whose weights stay as they are. Several are made at
        once: a small one takes longer to begin than to write.
        """
        step = max(AT_ONCE_BYTES // self.panel_bytes, 1) * NR
        for c0 in range(0, len(rows), step):
            part = rows[c0 : c0 + step]
            panels = np.zeros((-(-len(part) // NR), self.panel_bytes // 4), np.float32)
            here, at = slice(first + c0, first + c0 + len(part)), NR
            if bias is not None:
                _fill(panels[:, :NR], bias[here])
            if slope is not None:
                _fill(panels[:, NR : 2 * NR], slope[here])
                at = 2 * NR
            if scale is not None:
                part = part * scale[here, None, None, None]
            taps = part.reshape(*part.shape[:2], -1)
            for b in range(0, self.cin_panel, self.cin_block):
                block = taps[:, b : b + self.cin_block].transpose(2, 1, 0)
                end = at + NR * block.shape[0] * block.shape[1]
                _fill(panels[:, at:end].reshape(len(panels), *block.shape[:2], NR), block)
                at = end
            yield from panels

    def widened(self) -> Iterator[tuple[F32, F32]]:
        """Yield the weights of each panel as [weight][channel]: as given, and as they are stored."""
        form, given = self.form, self._given()
        scale = _vector(self.scale, self.shape[0])
        for c0, c1, part in self._parts():
            factors = np.float32(1) if scale is None else _front(scale[c0:c1])
            if scale is not None and form.block and given is None:
                part, factors = part * scale[c0:c1, None, None, None], np.float32(1)
            body = self._body(part, c0).reshape(-1, NR)
            if form.scales:
                yield body * factors, widened(self._rounded(part, c0, given), form) * factors
            else:
                body = body * factors
                yield body, _stored(body, form).view(form.dtype).astype(np.float32).reshape(body.shape)

    def _given(self) -> tuple[F32, F32 | None, F32 | None] | None:
        """Steps, minima and what they are multiples of, where they are given."""
        if self.step is None:
            return None
        factors = None
        if self.form.shared and self.factors is not None:
            factors = np.asarray(self.factors.load(), np.float32)
        least = None if self.least is None else np.asarray(self.least.load(), np.float32)
        step = np.asarray(self.step.load(), np.float32)
        if len(step) != self.shape[0] or (step.ndim != 1 + bool(self.form.block)):
            raise ValueError(f"{step.shape} steps for {self.shape[0]} output channels")
        return step, least, factors

    def _rounded(self, part: F32, c0: int, given: tuple[F32, F32 | None, F32 | None] | None) -> Rounded:
        """The weights of a panel as integers."""
        body, form = self._body(part, c0).reshape(-1, NR), self.form
        if given is None:
            return rounded(body, form)
        steps = [None if v is None else v[c0 : c0 + NR].reshape(-1, 1 if v.ndim == 1 else v.shape[1]) for v in given]
        lanes = [None if v is None else np.zeros((v.shape[1], NR), np.float32) for v in steps]
        for to, v in zip(lanes, steps, strict=True):
            if to is not None and v is not None:
                to[:, : len(v)] = v.T
        for filled in (lanes[0], lanes[2]):
            if filled is not None:
                filled[:, len(part) :] = 1
        assert lanes[0] is not None
        return exactly(body, form, lanes[0], lanes[1])._replace(factors=lanes[2])

    def _parts(self) -> Iterator[tuple[int, int, F32]]:
        """Yield the weights of each panel, with their first output channel and the one after their last."""
        for first, rows in self._batches():
            for c0 in range(0, len(rows), NR):
                part = np.ascontiguousarray(rows[c0 : c0 + NR], dtype=np.float32)
                yield first + c0, first + c0 + len(part), part

    def _batches(self) -> Iterator[tuple[int, F32]]:
        """Yield the weights of some panels, each time with their first output channel."""
        from .rows import batches  # sessions do without

        done = 0
        for first, rows in batches(self.weight, NR, prod(self.shape) * 4):
            done += len(rows)
            if rows.shape[1:] != self.shape[1:] or rows.dtype != np.float32:
                raise ValueError(f"weight loaded as {rows.dtype}{rows.shape}, expected float32{self.shape}")
            yield first, rows
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


@quick_dataclass(frozen=True, slots=True)
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
    """Weights in a form of floats, their bytes as flat float32."""
    if form.dtype == body.dtype:
        return body
    with np.errstate(over="ignore"):
        stored = body.astype(form.dtype)
    if np.isinf(stored).any():
        most = float(np.finfo(form.dtype).max)
        raise GraphError(f"weights do not fit into {form.bits} bits: their largest value is {most:g}")
    return stored.view(np.float32)


def _scaled(made: Rounded, form: WeightForm, factors: F32 | None) -> list[F32]:
    """Scales and minima times each channel's factor, their bytes as flat float32."""
    if form.shared:
        return [np.frombuffer(shared_bytes(made, form), np.float32)]
    factor = np.float32(1) if factors is None else _front(factors)
    found = [(made.scales, form.scales), *([(made.minima, form.minimum)] if made.minima is not None else [])]
    return [np.frombuffer(scale_bytes(values * factor, nbytes), np.float32) for values, nbytes in found]


def _vector(source: WeightSource | None, cout: int) -> F32 | None:
    if source is None:
        return None
    values = np.asarray(source.load(), np.float32)
    if values.shape != (cout,):
        raise ValueError(f"{values.shape} values for {cout} output channels")
    return values


def _lanes(values: F32 | None, c0: int, c1: int) -> F32:
    return _front(np.zeros(0, np.float32) if values is None else values[c0:c1])


def _fill(panels: F32, values: F32) -> None:
    """Write values [...][channel] to [panel][...][NR]; what no channel is written to stays."""
    whole, rest = divmod(values.shape[-1], NR)
    axes = values.ndim - 1
    if whole:
        split = values[..., : whole * NR].reshape(*values.shape[:-1], whole, NR)
        panels[:whole] = split.transpose(axes, *range(axes), axes + 1)
    if rest:
        panels[whole, ..., :rest] = values[..., whole * NR :]


def _front(values: F32) -> F32:
    """``NR`` numbers: those, then zeros."""
    lanes = np.zeros(NR, np.float32)
    lanes[: values.size] = values
    return lanes
