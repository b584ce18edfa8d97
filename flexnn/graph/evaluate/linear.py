"""Products of matrices."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from ..ir import Array
from .blocks import work_bytes
from .call import Call, common_shape, copied, evaluates

_WORK_AT_ONCE = 1 << 26, 1 << 31
"""Products that numpy computes in one call: of types that it multiplies one by one, and of float32 and float64."""


@evaluates("MatMul")
def matmul(call: Call) -> list[Array]:
    """numpy.matmul."""
    a, b = call.x(0), call.x(1)
    if not a.ndim or not b.ndim or a.dtype != b.dtype:
        raise call.error(f"operands {a.shape} of {a.dtype} and {b.shape} of {b.dtype} do not multiply")
    batch = common_shape(call, a.shape[:-2], b.shape[:-2])
    call.reserve(((*batch, *a.shape[-2:-1], *(b.shape[-1:] if b.ndim > 1 else ())), a.dtype))
    return [_product(a, b)]


def _product(a: Array, b: Array) -> Array:
    """Return numpy.matmul of operands of one type; many rows one part after the other: signals wait for a call."""
    work = prod(a.shape) * (b.shape[-1] if b.ndim > 1 else 1)
    rows = a.shape[-2] if a.ndim > 1 < b.ndim else 1
    parts = min(-(-work // _WORK_AT_ONCE[a.dtype.char in "fd"]), rows)
    if parts < 2:
        return np.asarray(np.matmul(a, b), a.dtype)
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    made = np.empty((*batch, rows, b.shape[-1]), a.dtype)
    for part in range(parts):
        at = slice(rows * part // parts, rows * (part + 1) // parts)
        np.matmul(a[..., at, :], b, out=made[..., at, :])
    return made


@evaluates("Gemm")
def gemm(call: Call) -> list[Array]:
    """Alpha A' B' + beta C."""
    a, b, c = call.x(0), call.x(1), call.get(2)
    if a.ndim != 2 or b.ndim != 2:
        raise call.error(f"operands of shapes {a.shape} and {b.shape} are not matrices")
    a, b = (a.T if call.integer("transA", 0) else a), (b.T if call.integer("transB", 0) else b)
    scale = [call.number("alpha", 1.0), call.number("beta", 1.0)]
    work = work_bytes(a.shape[0] * b.shape[1]) + (0 if c is None or scale[1] == 1 else c.nbytes)
    call.reserve(((a.shape[0], b.shape[1]), a.dtype), workspace=work)
    y = _product(a, b)
    if scale[0] != 1:
        y *= a.dtype.type(scale[0])
    if c is not None:
        y += c if scale[1] == 1 else c * a.dtype.type(scale[1])
    return [y]


def _spelled(call: Call, terms: Sequence[str], values: Sequence[Array]) -> tuple[list[str], str]:
    """Terms with a letter for each dimension of their ellipsis, and the letters of the longest."""
    free = [chr(i) for i in range(ord("A"), ord("z") + 1) if chr(i).isalpha() and chr(i) not in "".join(terms)]
    ranks = [v.ndim - len(t.replace("...", "")) if "..." in t else 0 for t, v in zip(terms, values, strict=True)]
    rank = max(ranks)
    letters = "".join(free[:rank])
    if len(letters) < rank or min(ranks) < 0:
        raise call.error(f"terms {', '.join(terms)} do not fit the inputs")
    return [t.replace("...", letters[rank - r :]) for t, r in zip(terms, ranks, strict=True)], letters


def _pairs(terms: list[str], out: str, sizes: dict[str, int]) -> list[tuple[int, int, str]]:
    """Which operands to multiply next, and the letters of their product, which joins the end: the smallest first."""
    terms, found = list(terms), []
    while len(terms) > 2:
        best: tuple[int, int, int, str] | None = None
        for i in range(len(terms)):
            for j in range(i + 1, len(terms)):
                needed = set(out).union(*(t for k, t in enumerate(terms) if k not in (i, j)))
                product = "".join(dict.fromkeys(s for s in terms[i] + terms[j] if s in needed))
                size = prod(sizes[s] for s in product)
                best = (size, i, j, product) if best is None or size < best[0] else best
        assert best is not None
        found.append(best[1:])
        terms = [t for k, t in enumerate(terms) if k not in best[1:3]] + [best[3]]
    return found


@evaluates("Einsum")
def einsum(call: Call) -> list[Array]:
    """Sums of products by an equation of subscripts, two operands at a time."""
    equation, values = call.text("equation").replace(" ", ""), call.all()
    if len(equation) > 256 or len(values) > 8:
        raise call.error(f"equation {equation[:60]!r} is too long")
    left, arrow, out = equation.partition("->")
    if len(left.split(",")) != len(values):
        raise call.error(f"equation {equation!r} does not fit {len(values)} inputs")
    terms, letters = _spelled(call, left.split(","), values)
    if arrow:
        out = out.replace("...", letters)
    else:
        joined = left.replace("...", "").replace(",", "")
        out = letters + "".join(sorted(s for s in set(joined) if joined.count(s) == 1))
    sizes: dict[str, int] = {}
    for term, value in zip(terms, values, strict=True):
        if len(term) != value.ndim:
            raise call.error(f"term {term!r} does not fit an input of shape {value.shape}")
        for s, d in zip(term, value.shape, strict=True):
            sizes[s] = d if sizes.get(s, 1) == 1 else sizes[s]
    if not set(out) <= sizes.keys():
        raise call.error(f"equation {equation!r} makes dimensions from nothing")
    dtype, pairs = values[0].dtype, _pairs(terms, out, sizes)
    between = sum(prod(sizes[s] for s in product) for _, _, product in pairs) * dtype.itemsize
    call.reserve(([sizes[s] for s in out], dtype), workspace=between + copied(*values))
    for i, j, product in pairs:
        value = np.einsum(f"{terms[i]},{terms[j]}->{product}", values[i], values[j])
        values = [v for k, v in enumerate(values) if k not in (i, j)] + [value]
        terms = [t for k, t in enumerate(terms) if k not in (i, j)] + [product]
    return [np.asarray(np.einsum(f"{','.join(terms)}->{out}", *values), dtype)]
