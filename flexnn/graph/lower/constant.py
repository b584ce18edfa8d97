"""Constants while lowering: where their numbers come from, and in how few bits these could be stored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, replace
from itertools import accumulate
from math import prod
from operator import mul

import numpy as np

from flexnn.quick_dataclass import quick_dataclass

from .. import pack, sources
from ..ir import DTYPE_NAMES, DTYPES, GraphError, Shape, WeightSource
from ..late import Row, Transposed
from ..pack import PanelSource
from ..sources import ArraySource, KeptSource, MappedSource, ModelSource, RestoredSource, SizesSource
from ..tied import COLUMNS_MAX, COLUMNS_MIN
from ..weight_form import FORMS

OPERAND_BYTES = 64
"""Most bytes of a constant that is an operand (axes, bounds) rather than what is moved or computed."""
SMALL_BYTES = 1 << 20
"""Constants up to this size keep their value in memory while importing."""

DOUBLE_BLOCK = 256
"""Numbers of a slice whose scales have one factor, where they have one."""


@quick_dataclass(slots=True, eq=False)
class Const:
    """A value known at compile time."""

    name: str
    shape: Shape
    dtype: str
    source: WeightSource
    tensor: int = -1
    """Index of its tensor, once something computed reads it."""
    narrow: Narrow | None = field(default=None, repr=False)
    """Narrower numbers that a float32 constant is made of, where there are such."""
    is_of_run: bool = False
    """Whether it is computed of shapes or numbers that only a run knows."""

    @property
    def nbytes(self) -> int:
        """Bytes of the value."""
        return prod(self.shape) * DTYPES[self.dtype].itemsize

    def load(self) -> np.ndarray:
        """The value; a small one stays loaded."""
        values = np.asarray(self.source.load()).reshape(self.shape)
        if self.nbytes <= SMALL_BYTES and not isinstance(self.source, (ArraySource, KeptSource)) and not depends(self):
            self.source = KeptSource(self.source, values)
        return values

    def known(self) -> np.ndarray | Const:
        """The value; the constant itself where its numbers depend on sizes (graph/size_fold.py)."""
        return self if depends(self) else self.load()

    def mapped(self, shape: Shape, function: Callable[[np.ndarray], np.ndarray], label: str) -> Const:
        """A constant of the same type that ``function`` will make of this one. ``label``: as of a MappedSource."""
        own = self.shape
        if depends(self):
            shaped = sources.ShapedSource(self.source, own)
            return Const(self.name, shape, self.dtype, MappedSource(shaped, function, label))
        return Const(
            self.name, shape, self.dtype, MappedSource(self.source, lambda v: function(v.reshape(own)), f"{own}{label}")
        )

    def converted(self, dtype: str, function: Callable[[np.ndarray], np.ndarray], label: str) -> Const:
        """Map to another type, in the same shape."""
        return Const(self.name, self.shape, dtype, self.mapped(self.shape, function, f"{dtype}{label}").source)

    def reshaped(self, shape: Shape) -> Const:
        """The same numbers in another shape of the same size."""
        if depends(self):
            return Const(self.name, shape, self.dtype, sources.ShapedSource(self.source, shape))
        value = self.mapped(shape, lambda v: v.reshape(shape), f"reshape{shape}")
        value.narrow = self.narrow and self.narrow.reshaped(shape)
        return value

    def transposed(self, perm: list[int]) -> Const:
        """The same numbers with their dimensions permuted."""
        shape = tuple(self.shape[p] for p in perm)
        value = self.mapped(shape, Transposed(perm), f"transpose{perm}")
        value.narrow = self.narrow and self.narrow.transposed(perm)
        return value

    def taps(self, rows: range, columns: range) -> Const:
        """The weights [a, b, kh, kw] of some neighbouring taps of a kernel."""
        shape = (*self.shape[:2], len(rows), len(columns))
        window = slice(rows.start, rows.stop), slice(columns.start, columns.stop)
        value = self.mapped(shape, lambda v: v[:, :, *window], f"taps{rows}{columns}")
        value.narrow = self.narrow and replace(self.narrow, whole=self.narrow.whole.taps(rows, columns))
        return value

    def depths(self, taps: range) -> Const:
        """The weights [a, b, kd, kh, kw] of some neighbouring depths of a kernel."""
        shape = (*self.shape[:2], len(taps), *self.shape[3:])
        value = self.mapped(shape, lambda v: v[:, :, taps.start : taps.stop], f"depths{taps}")
        value.narrow = self.narrow and replace(self.narrow, whole=self.narrow.whole.depths(taps))
        return value

    def depth(self, tap: int) -> Const:
        """The weights [a, b, kh, kw] of one depth of a kernel."""
        shape = (*self.shape[:2], *self.shape[3:])
        value = self.mapped(shape, lambda v: v[:, :, tap], f"depth{tap}")
        value.narrow = self.narrow and replace(self.narrow, whole=self.narrow.whole.depth(tap))
        return value

    def row(self, index: int) -> Const:
        """Slice ``index`` of the first dimension, without it."""
        value = self.mapped(self.shape[1:], Row(index), f"row{index}")
        value.narrow = self.narrow and self.narrow.row(index)
        return value


@quick_dataclass(frozen=True, slots=True, eq=False)
class Narrow:
    """The parts of a float32 constant (``whole`` - ``zero``) * ``steps``; ``whole`` is float16 or 8-bit integers."""

    whole: Const
    steps: Const | None = None
    """float32, one or one for each slice of ``axis``; None: ones."""
    zero: Const | None = None
    """Zero points, of the type of ``whole``: one, or as many as ``steps``; None: zeros."""
    axis: int = 0
    block: int = 0
    """Numbers of a slice that share a step and a zero, of a matrix; 0: all. Steps and zeros are then matrices, a row
    for each slice of ``axis``."""
    bits: int = 8
    """Bits that the integers are sure to fit into."""
    least: Const | None = None
    """Numbers that are added last, of blocks: as many as ``steps``; None: there are none."""
    factors: Const | None = None
    """Factors of double blocks, float16 numbers as float32, [slice, runs of blocks]: ``steps``, and then
    ``least``, are multiples of them by integers of few bits; None: they are any numbers."""

    @property
    def is_even(self) -> bool:
        """Whether all numbers have the same step and zero."""
        return not self.block and all(v is None or prod(v.shape) == 1 for v in (self.steps, self.zero))

    @property
    def is_signed(self) -> bool:
        """Whether the integers less their zero are sure to fit into 8 bits with a sign."""
        if self.block:
            return self.whole.dtype == "i8" and self.zero is None
        middle = {"i8": 0, "u8": 128}.get(self.whole.dtype)
        return middle is not None and bool(np.all((0 if self.zero is None else self.zero.load()) == np.int64(middle)))

    def row(self, index: int) -> Narrow | None:
        """Slice of the first dimension, like Const.row; None where it has blocks."""
        if self.block:
            return None
        whole = self.whole.row(index)
        if self.is_even or self.axis:
            return replace(self, whole=whole, axis=max(self.axis - 1, 0))

        def own(v: Const | None) -> Const | None:
            if v is None or prod(v.shape) == 1:
                return v
            return v.mapped((1,), lambda a: a.reshape(-1)[index : index + 1], f"step{index}")

        return Narrow(whole, own(self.steps), own(self.zero))

    def reshaped(self, shape: Shape) -> Narrow | None:
        """Reshape, like Const.reshaped; None where slices of the axis are no longer slices."""
        axis = 0
        if self.block:
            return None
        if not self.is_even:
            before = [1, *accumulate(shape, mul)]
            own = self.whole.shape
            starts = (i for i, d in enumerate(shape) if d == own[self.axis] and before[i] == prod(own[: self.axis]))
            axis = next(starts, -1)
            if axis < 0:
                return None
        return replace(self, whole=self.whole.reshaped(shape), axis=axis)

    def transposed(self, perm: list[int]) -> Narrow:
        """Transpose, like Const.transposed."""
        return replace(self, whole=self.whole.transposed(perm), axis=0 if self.is_even else perm.index(self.axis))


def sizes_const(name: str, numbers: np.ndarray, dtype: str = "i64") -> Const:
    """A constant of sizes, an array of objects."""
    return Const(name, numbers.shape, dtype, SizesSource(numbers, DTYPES[dtype]))


def depends(value: Const | None) -> bool:
    """Whether a constant is made of sizes, or has a shape or numbers that depend on some (graph/size_fold.py)."""
    return value is not None and sources.depends(value.source)


def is_sizes(value: Const | None) -> bool:
    """Whether a constant is made of sizes."""
    return value is not None and isinstance(value.source, SizesSource)


def same_number(value: Const | int) -> int | None:
    """Return the number, maybe a size, that all elements of integers are, as far as that is known; None: others."""
    if not isinstance(value, Const):
        return None
    if depends(value):
        return sources.same(value.source)
    numbers = value.load().reshape(-1)
    return int(numbers[0]) if numbers.size and (numbers == numbers[0]).all() else None


def array_const(name: str, values: np.ndarray) -> Const:
    """A constant of an array. Raises GraphError for a dtype that there is not."""
    if not isinstance(values, np.ndarray):
        return values.const(name)
    dtype = DTYPE_NAMES.get(values.dtype)
    if dtype is None:
        raise GraphError(f"tensor {name!r}: data type {values.dtype} is not supported")
    return Const(name, values.shape, dtype, ArraySource(values))


def of_integers(x: Const, scale: Const | None = None, zero: Const | None = None, axis: int = 0) -> Const:
    """(x - zero) scale as float32, of integers. ``scale`` and ``zero`` have one element, or one for each slice of
    ``axis``. Those of 8 bits may be stored as they are.
    """
    rank = len(x.shape)

    def along(v: np.ndarray) -> np.ndarray:
        return v.reshape(()) if v.size == 1 else v.reshape(-1, *[1] * (rank - 1 - axis))

    def restored(v: np.ndarray) -> np.ndarray:
        wide = v.astype(np.float64) if v.itemsize > 2 else v.astype(np.float32)
        values = wide if zero is None else wide - along(zero.load()).astype(wide.dtype)
        return np.asarray(values if scale is None else values * along(scale.load()), np.float32)

    said = "|".join("" if v is None else v.source.key for v in (scale, zero))
    value = x.converted("f32", restored, f"restored{axis}|{said}")
    if x.dtype in ("i8", "u8"):
        value.narrow = Narrow(x, scale, zero, axis)
        source = value.source
        if isinstance(source, MappedSource) and scale is not None and value.narrow.is_even:
            step, middle = (0 if v is None else v.load().reshape(-1)[0] for v in (scale, zero))
            value.source = RestoredSource(
                source.base, source.function, source.label, whole=x.source, scale=float(step), zero=int(middle)
            )
    return value


def of_blocks(
    x: Const, scale: Const, zero: Const | None, axis: int, block: int, bits: int = 8, least: Const | None = None
) -> Const:
    """(x - zero) scale + least as float32, of integers of so many bits in a matrix. ``scale``, ``zero`` and ``least``
    have a number for each ``block`` along ``axis``. Those of 4, 5 and 8 bits may be stored as they are.
    """
    shape = x.shape

    def spread(v: np.ndarray) -> np.ndarray:
        wide = np.repeat(v, block, axis=axis)
        return wide[: shape[0]] if axis == 0 else wide[:, : shape[1]]

    def restored(v: np.ndarray) -> np.ndarray:
        wide = v.astype(np.float32)
        if zero is not None:
            wide -= spread(zero.load().astype(np.float32))
        wide = np.asarray(wide * spread(scale.load()), np.float32)
        if least is not None:
            wide += spread(least.load())
        return wide

    said = "|".join("" if v is None else v.source.key for v in (scale, zero, *([least] if least else [])))
    value = x.converted("f32", restored, f"restored{axis}by{block}|{said}")
    steps, zeros, lowest = (v if v is None or axis else v.transposed([1, 0]) for v in (scale, zero, least))
    value.narrow = Narrow(x, steps, zeros, 1 - axis, block, bits, lowest)
    return value


def rescaled(x: Const, factor: Const) -> Const | None:
    """X factor, where x is made of integers without steps and the factor can be their steps; else None."""
    narrow, rank = x.narrow, len(x.shape)
    if narrow is None or narrow.block or narrow.steps is not None or narrow.zero is not None:
        return None
    if len(factor.shape) > rank:
        return None
    axes = [i + rank - len(factor.shape) for i, d in enumerate(factor.shape) if d != 1]
    if factor.dtype != "f32" or narrow.whole.dtype == "f16" or len(axes) > 1:
        return None
    axis = axes[0] if axes else 0
    if axes and prod(factor.shape) != x.shape[axis]:
        return None
    return of_integers(narrow.whole, factor.reshaped((prod(factor.shape),)), None, axis)


def tied_source(x: Const) -> ModelSource | None:
    """Source of a tied table (graph/tied.py); None for any other constant."""
    source = x.source.base if isinstance(x.source, KeptSource) else x.source
    return source if isinstance(source, ModelSource) and source.is_tied else None


def untransposed(x: Const) -> Const | None:
    """The table of which ``x`` is the transposed one, where it is tied or made of narrower numbers; else None."""
    source, shape = x.source, x.shape[::-1]
    if not isinstance(source, MappedSource) or source.label != f"{shape}transpose[1, 0]":
        return None
    table = Const(x.name, shape, x.dtype, source.base)
    table.narrow = x.narrow and x.narrow.transposed([1, 0])
    return table if table.narrow or tied_source(table) is not None else None


def rows_source(source: WeightSource, shape: Shape) -> WeightSource:
    """Weights [N, K] as those of a convolution of one tap."""
    whole = (*shape, 1, 1)
    return MappedSource(source, lambda v: v.reshape(whole), f"kept{whole}", is_view=True)


def of_halves(x: Const) -> Const:
    """Float16 as float32."""
    value = x.converted("f32", lambda v: v.astype(np.float32), "widened")
    value.narrow = Narrow(x)
    return value


def _chosen_form(weights: Const) -> str:
    """The form that was chosen for the constant of which weights are a view, or for the integers of which their blocks
    are made; "": there is none.
    """
    if weights.narrow is not None and not weights.narrow.block:
        return ""
    source = sources.model_source(weights.source)
    return source.form if source is not None else ""


def stored_form(weights: Const, axis: int, repeats: int = 1) -> tuple[str, WeightSource | None]:
    """Return wtype and step of a PanelSource that stores these weights; its output channels are the slices of
    ``axis``, one after the other, ``repeats`` times. Integers that do not fit are stored as halves, which round them.
    """
    narrow, count = weights.narrow, weights.shape[axis]
    if chosen := _chosen_form(weights):
        return chosen, None
    if narrow is None:
        return pack.STORED_AS, None
    if narrow.block or not narrow.is_signed or (narrow.axis != axis and not narrow.is_even):
        return "f16", None
    steps = narrow.steps or array_const(weights.name, np.ones(1, np.float32))

    def tiled(v: np.ndarray) -> np.ndarray:
        return np.tile(np.broadcast_to(v.reshape(-1), count), repeats)

    return "s8", MappedSource(steps.source, tiled, f"steps{count}x{repeats}")


def _is_halves(x: Const) -> bool:
    """Whether float16 holds the numbers of a float32 constant exactly."""
    return x.narrow is not None and x.narrow.whole.dtype == "f16" and x.narrow.steps is None


def table_panels(x: Const) -> PanelSource | None:
    """The panels that a product by the transposed of ``x``, a matrix, reads, where rows of it are picked from them as
    well: of a tied table, and of one with steps in blocks, which is stored in no other way. None: of any other, and of
    integers, whose rows are picked as they are.
    """
    if x.dtype not in ("f32", "f16") or not COLUMNS_MIN <= x.shape[1] < COLUMNS_MAX:
        return None
    made_of = x.narrow.whole if x.narrow else x
    wtype, step, least, factors = block_form(x, 0) or (*stored_form(x, 0), None, None)
    is_in_blocks = x.narrow is not None and (FORMS[wtype].block > 0 or _chosen_form(x) != "")
    is_rounded = x.narrow is not None and wtype == "f16" and made_of.dtype != "f16"
    if is_rounded or (not is_in_blocks and tied_source(made_of) is None):
        return None
    rows, columns = x.shape
    source = rows_source(tied_source(x) or x.source, x.shape)
    return PanelSource("conv", (rows, columns, 1, 1), 1, source, wtype=wtype, step=step, least=least, factors=factors)


BlockForm = tuple[str, WeightSource, WeightSource | None, WeightSource | None]


def _double_form(narrow: Narrow) -> BlockForm | None:
    """The form of double blocks, as block_form returns it; None: the numbers have none that a form holds."""
    form = FORMS.get(f"q{narrow.bits}k")
    if narrow.factors is None or narrow.steps is None or form is None or narrow.zero is not None:
        return None
    columns = narrow.whole.shape[1 - narrow.axis]
    if narrow.block != form.block or columns % form.shared or bool(form.minimum) != (narrow.least is not None):
        return None
    least = None if narrow.least is None else narrow.least.source
    return form.name, narrow.steps.source, least, narrow.factors.source


def shifted_form(weights: Const, axis: int) -> BlockForm | None:
    """The form of blocks with minima, as block_form returns it, of bytes in a matrix whose zero points leave some of
    them outside 8 bits with a sign: a byte less its middle fits, and what is left of its zero point goes into the
    minima. Halves, the other form of such weights, would round them. None: of any others.
    """
    narrow, form, columns = weights.narrow, FORMS["s8mf"], weights.shape[1 - axis]
    if narrow is None or narrow.block or narrow.steps is None or narrow.zero is None or narrow.is_signed:
        return None
    is_apart = narrow.axis != axis and not narrow.is_even
    if is_apart or narrow.whole.dtype not in ("i8", "u8") or not columns or columns % form.block:
        return None
    steps, zero, middle = narrow.steps, narrow.zero, 128 if narrow.whole.dtype == "u8" else 0
    rows, blocks = weights.shape[axis], columns // form.block

    def by_block(v: np.ndarray) -> np.ndarray:
        return np.broadcast_to(v.astype(np.float32).reshape(-1, 1), (rows, blocks))

    def least(v: np.ndarray) -> np.ndarray:
        return by_block(v.reshape(-1) * (middle - zero.load().reshape(-1).astype(np.float32)))

    label = f"{rows}by{blocks}"
    minima = MappedSource(steps.source, least, f"shift{label}|{zero.source.key}")
    return form.name, MappedSource(steps.source, by_block, f"steps{label}"), minima, None


def block_form(weights: Const, axis: int) -> BlockForm | None:
    """Return wtype, step, least and factors of a PanelSource that stores a matrix whose numbers have steps in blocks
    exactly; its output channels are the slices of ``axis``. None: no form does, or another one was chosen.
    """
    narrow = weights.narrow
    if narrow is None or narrow.axis != axis or narrow.steps is None or _chosen_form(weights):
        return None
    if (double := _double_form(narrow)) is not None:
        return double
    has_least = narrow.zero is not None or narrow.least is not None
    form = ("q4m" if has_least else "q4") if narrow.bits == 4 else "s8m" if narrow.least is not None else "s8b"
    halves = narrow.zero is None and all(_is_halves(v) for v in (narrow.steps, narrow.least) if v is not None)
    if narrow.bits == 5 and halves and narrow.block == FORMS["q5"].block:
        form = "q5m" if has_least else "q5"
    elif form == "s8m":
        form = "s8mf"
    elif narrow.block == FORMS["s8b16f"].block and form == "s8b":
        form = "s8b16f"
    elif not halves:
        form += "f"
    own, count = FORMS[form].block, weights.shape[1 - axis]
    if not narrow.block or narrow.block % own or not (narrow.is_signed or form.startswith("q4m")):
        return None
    times, blocks = narrow.block // own, -(-count // own)
    steps, zero, lowest = narrow.steps, narrow.zero, narrow.least

    def by_channel(v: np.ndarray) -> np.ndarray:
        return np.repeat(v, times, axis=1)[:, :blocks].astype(np.float32)

    step = MappedSource(steps.source, by_channel, f"blocks{blocks}x{times}")
    if lowest is not None:
        return form, step, MappedSource(lowest.source, by_channel, f"blocks{blocks}x{times}"), None
    if zero is None:
        return form, step, None, None

    def least(v: np.ndarray) -> np.ndarray:
        return by_channel(-v * zero.load().astype(np.float32))

    return form, step, MappedSource(steps.source, least, f"least{blocks}x{times}|{zero.source.key}"), None
