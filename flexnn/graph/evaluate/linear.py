"""Products of matrices."""

from __future__ import annotations

import numpy as np

from ..ir import Array
from .call import Call, evaluates


@evaluates("MatMul")
def matmul(call: Call) -> list[Array]:
    """numpy.matmul."""
    a, b = call.x(0), call.x(1)
    if not a.ndim or not b.ndim or a.dtype != b.dtype:
        raise call.error(f"operands {a.shape} of {a.dtype} and {b.shape} of {b.dtype} do not multiply")
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    call.allow((*batch, a.shape[-2] if a.ndim > 1 else 1, b.shape[-1] if b.ndim > 1 else 1), a.dtype)
    return [np.asarray(np.matmul(a, b), a.dtype)]


@evaluates("Gemm")
def gemm(call: Call) -> list[Array]:
    """Alpha A' B' + beta C."""
    a, b, c = call.x(0), call.x(1), call.get(2)
    if a.ndim != 2 or b.ndim != 2:
        raise call.error(f"operands of shapes {a.shape} and {b.shape} are not matrices")
    a, b = (a.T if call.integer("transA", 0) else a), (b.T if call.integer("transB", 0) else b)
    call.allow((a.shape[0], b.shape[1]), a.dtype)
    y = a @ b
    scale = [call.number("alpha", 1.0), call.number("beta", 1.0)]
    if scale[0] != 1:
        y = y * a.dtype.type(scale[0])
    if c is not None:
        y = y + (c if scale[1] == 1 else c * a.dtype.type(scale[1]))
    return [np.asarray(y, a.dtype)]


@evaluates("Einsum")
def einsum(call: Call) -> list[Array]:
    """Sums of products by an equation of subscripts."""
    equation, values = call.text("equation").replace(" ", ""), call.all()
    if len(equation) > 256 or len(values) > 8:
        raise call.error(f"equation {equation[:60]!r} is too long")
    sides = equation.split("->")
    terms = sides[0].split(",")
    if len(terms) != len(values):
        raise call.error(f"equation {equation!r} does not fit {len(values)} inputs")
    sizes: dict[str, int] = {}
    for term, value in zip(terms, values, strict=True):
        if "..." not in term:
            sizes.update(zip(term, value.shape, strict=True))
    if len(sides) == 2 and "..." not in sides[1]:
        call.allow([sizes[s] for s in sides[1] if s in sizes], values[0].dtype)
    return [np.asarray(np.einsum(equation, *values, optimize=len(values) > 2), values[0].dtype)]
