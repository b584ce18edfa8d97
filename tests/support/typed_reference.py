"""The meaning of operators that compute any element type, in numpy: a part of the interpreter in reference.py."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from flexnn.graph.ir import Graph, Node

Array = np.ndarray

_erf = np.vectorize(math.erf, otypes=[np.float64])


def _quotient(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return a / b
    safe = np.where(b == 0, np.ones_like(b), b)
    whole = a // safe
    return np.where(b == 0, 0, whole + ((whole * safe != a) & ((a < 0) != (b < 0)))).astype(a.dtype)


def _power(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return np.power(a.astype(np.float64), b)
    bits, flat = 8 * a.itemsize, np.broadcast_arrays(a, b)
    each = [_integer_power(int(v), int(w), bits) for v, w in zip(flat[0].flat, flat[1].flat, strict=True)]
    return np.array(each, np.uint64).reshape(flat[0].shape).astype(a.dtype)


def _integer_power(v: int, w: int, bits: int) -> int:
    if w >= 0:
        return pow(v, w, 1 << bits)
    return v ** (w % 2) % (1 << bits) if v in (1, -1) else 0


POINTWISE: dict[str, Callable[..., Array]] = {
    "where": lambda a, b, c: np.where(c, a, b), "equal": np.equal, "less": np.less, "less_equal": np.less_equal,
    "is_nan": np.isnan, "is_inf": np.isinf, "is_inf_above": np.isposinf, "is_inf_below": np.isneginf,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.invert,
    "shift_left": np.left_shift, "shift_right": np.right_shift,
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": _quotient, "mod": np.mod, "fmod": np.fmod,
    "pow": _power, "max": np.maximum, "min": np.minimum, "neg": np.negative, "abs": np.abs, "sign": np.sign,
    "floor": np.floor, "ceil": np.ceil, "round": np.rint, "sqrt": np.sqrt, "reciprocal": lambda v: 1 / v,
    "exp": np.exp, "log": np.log, "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos,
    "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "asinh": np.arcsinh, "acosh": np.arccosh,
    "atanh": np.arctanh, "erf": _erf, "sigmoid": lambda v: 1 / (1 + np.exp(-v)),
    "softplus": lambda v: np.logaddexp(0, v),
}  # fmt: skip


def _pointwise(graph: Graph, node: Node, *operands: Array) -> Array:
    result = POINTWISE[str(node.attrs["kind"])](*operands)
    return result if result.dtype == np.bool_ else result.astype(operands[0].dtype)


def reduce_integers(kind: str, x: Array, axes: tuple[int, ...], keep: bool) -> Array:
    """Reduce integers and bool: sums and products wrap, means are towards zero."""
    if kind in ("max", "min"):
        return np.asarray((np.max if kind == "max" else np.min)(x, axes, keepdims=keep))
    if kind == "mean":
        total, count = np.sum(x.astype(object), axes, keepdims=True), math.prod(x.shape[a] for a in axes)
        y = np.vectorize(lambda v: abs(v) // count * (-1 if v < 0 else 1), otypes=[object])(total).astype(x.dtype)
        return y if keep else np.squeeze(y, axes)
    terms = {"sum": x, "prod": x, "l1": np.abs(x), "sum_square": x * x}[kind]
    return np.asarray((np.prod if kind == "prod" else np.sum)(terms, axes, x.dtype, keepdims=keep))


def converted(x: Array, to: np.dtype) -> Array:
    """Convert; numbers that an integer does not have as x86-64 does it, one at a time."""
    if x.dtype.kind != "f" or to.kind not in "iu":
        return x.astype(to)
    bits = 64 if to.itemsize == 8 else 32
    half = 1 << (bits - 1)
    whole = []
    for v in x.astype(np.float64).reshape(-1).tolist():
        upper = half if to.kind == "u" and to.itemsize >= 4 and v >= half else 0
        inside = math.isfinite(v) and -half <= int(v) - upper < half
        whole.append((int(v) if inside else upper - half) % (1 << 8 * to.itemsize))
    return np.array(whole, f"u{to.itemsize}").view(to).reshape(x.shape)


def _argmax(graph: Graph, node: Node, x: Array) -> Array:
    axis, find = int(node.attrs["axis"]), np.argmin if node.attrs["is_min"] else np.argmax
    if node.attrs["is_last"]:
        return np.asarray(x.shape[axis] - 1 - find(np.flip(x, axis), axis, keepdims=True), np.int64)
    return np.asarray(find(x, axis, keepdims=True), np.int64)


def _cumulate(graph: Graph, node: Node, x: Array) -> Array:
    axis, is_product = int(node.attrs["axis"]), node.attrs["is_product"]
    moved = np.moveaxis(x, axis, 0)[:: -1 if node.attrs["is_reverse"] else 1]
    y, total = np.empty_like(moved), np.full(moved.shape[1:], is_product, x.dtype)
    for i, row in enumerate(moved):
        before = total
        total = (total * row if is_product else total + row).astype(x.dtype)
        y[i] = before if node.attrs["is_exclusive"] else total
    return np.moveaxis(y[:: -1 if node.attrs["is_reverse"] else 1], 0, axis)


def _trilu(graph: Graph, node: Node, x: Array) -> Array:
    rows, columns = np.ogrid[: x.shape[-2], : x.shape[-1]]
    k = int(node.attrs["k"])
    kept = columns - rows >= k if node.attrs["is_upper"] else columns - rows <= k
    return np.where(kept, x, np.zeros_like(x))


def _one_hot(graph: Graph, node: Node, indices: Array, values: Array) -> Array:
    axis, depth = int(node.attrs["axis"]), int(node.attrs["depth"])
    places = np.arange(depth).reshape([-1 if i == axis else 1 for i in range(indices.ndim + 1)])
    own = np.expand_dims(indices.astype(np.int64), axis)
    return np.where((own == places) | (own + depth == places), values[1], values[0])


def _couple(graph: Graph, node: Node, x: Array) -> Array:
    """Rounds over the classes, as kernels/include/flexnn/params.h says, until all are as probable as they should be."""
    classes = int(node.attrs["classes"])
    first, second = np.triu_indices(classes, 1)
    made = []
    for row in x.astype(np.float64):
        pairs = np.zeros((classes, classes))
        pairs[first, second], pairs[second, first] = row, 1 - row
        matrix = -pairs * pairs.T + np.diag(np.square(pairs).sum(0))
        y = np.full(classes, 1 / classes)
        for _ in range(100):
            if np.abs(matrix @ y - y @ matrix @ y).max() < 0.005 / classes:
                break
            for i in range(classes):
                y[i] += (y @ matrix @ y - matrix[i] @ y) / matrix[i, i]
                y /= y.sum()
        made.append(y)
    return np.array(made, np.float32)


def _noise(graph: Graph, node: Node, x: Array) -> Array:
    """Numbers of a seed, or of the first draw: kernels/include/flexnn/params.h says how they are made."""
    size, half = 1024, 512
    blocks = -(-x.size // size) * size // 4
    number = np.arange(blocks, dtype=np.uint64)
    words = [number & 0xFFFFFFFF, number >> np.uint64(32), np.zeros_like(number), np.zeros_like(number)]
    keys = [int(node.attrs["seed_lo"]), int(node.attrs["seed_hi"])]
    for _ in range(10):
        a, b = words[0] * np.uint64(0xD2511F53), words[2] * np.uint64(0xCD9E8D57)
        (a_high, a_low), (b_high, b_low) = ((v >> np.uint64(32), v & np.uint64(0xFFFFFFFF)) for v in (a, b))
        words = [b_high ^ words[1] ^ np.uint64(keys[0]), b_low, a_high ^ words[3] ^ np.uint64(keys[1]), a_low]
        keys = [(keys[0] + 0x9E3779B9) & 0xFFFFFFFF, (keys[1] + 0xBB67AE85) & 0xFFFFFFFF]
    shares = np.stack(words).astype(np.int64) // 256 / 2.0**24  # [4, blocks]
    first, second = (shares[i : i + 2].T.reshape(-1, half) for i in (0, 2))
    if node.attrs["is_uniform"]:
        drawn = np.concatenate([first, second], axis=1)
    else:
        radius, angle = np.sqrt(-2 * np.log(first + 2.0**-24)), 2 * np.pi * second
        drawn = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    y = node.attrs["shift"] + node.attrs["factor"] * drawn.reshape(-1)[: x.size]
    return y.astype(np.float32).reshape(x.shape)


OPERATORS: dict[str, Callable[..., Array]] = {
    "pointwise": _pointwise,
    "argmax": _argmax,
    "cumulate": _cumulate,
    "trilu": _trilu,
    "one_hot": _one_hot,
    "noise": _noise,
    "couple": _couple,
}
