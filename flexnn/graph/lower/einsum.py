"""Einsum as transposes, reductions and products of two operands at a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import NamedTuple

from ..build import NO_ACT
from ..ir import RANK_MAX
from .context import Context, Value, lowers
from .linear import multiply

TERMS_MAX = 16

Labels = list[str]
"""A letter for each dimension; those of an ellipsis are "0", "1" … from the last one on."""


class _Operand(NamedTuple):
    value: Value
    labels: Labels


@lowers("Einsum")
def einsum(ctx: Context) -> list[Value]:
    """Operand after operand is multiplied into the product so far, and summed over what nothing reads any more."""
    values = [ctx.input(i) for i in range(len(ctx.inputs))]
    if {ctx.dtype(v) for v in values} != {"f32"} or len(values) > TERMS_MAX:
        raise ctx.error(f"{len(values)} operands, not all float32")
    terms, result = _parsed(ctx, [len(ctx.shape(v)) for v in values])
    sizes: dict[str, int] = {}
    for value, labels in zip(values, terms, strict=True):
        for label, size in zip(labels, ctx.shape(value), strict=True):
            if sizes.setdefault(label, size) == 1:
                sizes[label] = size
            if size not in (1, sizes[label]):
                raise ctx.error(f"subscript {label} is of size {sizes[label]} and {size}")
    if any(label not in sizes for label in result):
        raise ctx.error("its result has a subscript that no operand has")
    rest = [_plain(ctx, value, labels) for value, labels in zip(values, terms, strict=True)]
    product = rest.pop(0)
    while rest:
        shared = (i for i, operand in enumerate(rest) if set(operand.labels) & set(product.labels))
        other = rest.pop(next(shared, 0))
        product = _product(ctx, product, other, set(result).union(*(operand.labels for operand in rest)))
    product = _summed(ctx, product, result)
    order = [product.labels.index(label) for label in result if label in product.labels]
    return [ctx.reshape(ctx.transpose(product.value, order), tuple(sizes[label] for label in result))]


def _parsed(ctx: Context, ranks: Sequence[int]) -> tuple[list[Labels], Labels]:
    """Subscripts of the operands, and of the result."""
    equation = ctx.text("equation", "").replace(" ", "")
    left, arrow, right = equation.partition("->")
    texts = left.split(",")
    if len(texts) != len(ranks):
        raise ctx.error(f"equation {equation[:60]!r} does not fit {len(ranks)} operands")
    terms = [_labels(ctx, text, rank) for text, rank in zip(texts, ranks, strict=True)]
    dots = max(sum(label.isdigit() for label in term) for term in terms)
    if arrow:
        result = _labels(ctx, right, len(right) - 3 + dots if "..." in right else len(right))
    else:
        letters = sorted(label for term in terms for label in term if label.isalpha())
        result = [*map(str, reversed(range(dots))), *(a for a in letters if letters.count(a) == 1)]
    if len(set(result)) != len(result) or len(result) > RANK_MAX:
        raise ctx.error(f"equation {equation[:60]!r}: its result is not supported")
    return terms, result


def _labels(ctx: Context, text: str, rank: int) -> Labels:
    before, dots, after = text.partition("...")
    open_ = rank - len(before) - len(after)
    letters = before + after
    if not (letters.isascii() and (letters.isalpha() or not letters)) or open_ < 0 or (open_ and not dots):
        raise ctx.error(f"subscripts {text[:60]!r} of {rank} dimensions")
    return [*before, *map(str, reversed(range(open_))), *after]


def _plain(ctx: Context, value: Value, labels: Labels) -> _Operand:
    """An operand without dimensions of size 1, and of repeated subscripts only the diagonal."""
    shape = ctx.shape(value)
    kept = [i for i, d in enumerate(shape) if d != 1]
    value, labels = ctx.reshape(value, tuple(shape[i] for i in kept)), [labels[i] for i in kept]
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            rest = [i for i in range(len(labels)) if i not in (first, second)]
            value = ctx.transpose(value, [*rest, first, second])
            *outer, _, n = ctx.shape(value)
            value = ctx.reshape(value, (*outer, n * n))
            value = ctx.slice(value, [0] * len(rest) + [0], [*outer, n], [1] * len(rest) + [n + 1])
            labels = [*(labels[i] for i in rest), label]
    return _Operand(value, labels)


def _summed(ctx: Context, x: _Operand, kept: Iterable[str]) -> _Operand:
    """``x`` summed over subscripts that are not among ``kept``."""
    wanted = set(kept)
    axes = [i for i, label in enumerate(x.labels) if label not in wanted]
    if not axes:
        return x
    value = ctx.emit("reduction", [x.value], {"kind": "sum", "axes": list(axes), "keepdims": 0})
    return _Operand(value, [label for label in x.labels if label in wanted])


def _ordered(ctx: Context, x: _Operand, *runs: Labels) -> Value:
    return ctx.transpose(x.value, [x.labels.index(label) for run in runs for label in run])


def _product(ctx: Context, a: _Operand, b: _Operand, later: set[str]) -> _Operand:
    """The product of two operands, summed over subscripts that are not read ``later``."""
    a, b = _summed(ctx, a, later.union(b.labels)), _summed(ctx, b, later.union(a.labels))
    both = [label for label in a.labels if label in b.labels]
    batch, inner = [label for label in both if label in later], [label for label in both if label not in later]
    rows, columns = ([label for label in x.labels if label not in both] for x in (a, b))
    labels = [*batch, *rows, *columns]
    left = _ordered(ctx, a, batch, rows, inner)
    right = _ordered(ctx, b, batch, inner, columns)
    shape_a, shape_b, n = ctx.shape(left), ctx.shape(right), len(batch)
    if not inner:
        left = ctx.reshape(left, (*shape_a, *[1] * len(columns)))
        right = ctx.reshape(right, (*shape_b[:n], *[1] * len(rows), *shape_b[n:]))
        if len(labels) > RANK_MAX:
            raise ctx.error(f"a product of {len(labels)} dimensions")
        return _Operand(ctx.emit("binary", [left, right], {"kind": "mul", **NO_ACT}), labels)
    wide, high = shape_b[n + len(inner) :], shape_a[n : n + len(rows)]
    k = prod(shape_b[n : n + len(inner)])
    left, right = ctx.reshape(left, (*shape_a[:n], prod(high), k)), ctx.reshape(right, (*shape_b[:n], k, prod(wide)))
    return _Operand(ctx.reshape(multiply(ctx, left, right), (*shape_a[:n], *high, *wide)), labels)
