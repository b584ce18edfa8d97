"""LSTM, GRU and RNN: a product over the whole sequence for the inputs of each direction, then one recurrent node."""

from __future__ import annotations

import numpy as np

from ..build import copy_attrs
from ..ir import Attr
from ..panels import NR
from ..weight_form import FORMS, WeightForm
from .constant import Const, stored_form
from .context import Context, Value, lowers
from .linear import rows_by_constant

_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
_USUAL = {"RNN": ["tanh"], "GRU": ["sigmoid", "tanh"], "LSTM": ["sigmoid", "tanh", "tanh"]}
"""Functions of gates, new cells (of a GRU: hidden values) and an LSTM's cells in hidden values."""
_FUNCTIONS: dict[str, tuple[str, float | None, float | None]] = {
    "sigmoid": ("sigmoid", None, None),
    "tanh": ("tanh", None, None),
    "relu": ("relu", None, None),
    "softplus": ("softplus", None, None),
    "softsign": ("softsign", None, None),
    "leakyrelu": ("leaky_relu", 0.01, None),
    "thresholdedrelu": ("thresholded_relu", 1.0, None),
    "elu": ("elu", 1.0, None),
    "hardsigmoid": ("hardsigmoid", 0.2, 0.5),
}
"""Kinds of unary nodes, with ONNX's alpha and beta (None: it takes none)."""
_DIRECTIONS = {"forward": [0], "reverse": [1], "bidirectional": [0, 1]}


def packed_columns(weights: np.ndarray) -> np.ndarray:
    """Rows [columns, hidden] as panels [hidden][NR] of columns, the last filled up with zeros; flat."""
    columns, hidden = weights.shape
    whole = np.zeros((-(-columns // NR) * NR, hidden), np.float32)
    whole[:columns] = weights
    return whole.reshape(-1, NR, hidden).transpose(0, 2, 1).reshape(-1)


def _functions(ctx: Context, directions: int) -> dict[str, Attr]:
    """The functions of all directions: f_act, g_act and h_act with alpha and beta. Raises GraphError for what the core
    does not compute.
    """
    usual = _USUAL[ctx.node.op_type]
    given = ctx.attr("activations", usual * directions)
    names = [str(name).lower() for name in given] if isinstance(given, list) else []
    alphas, betas = (iter(_numbers(ctx, f"activation_{name}")) for name in ("alpha", "beta"))
    made: list[tuple[str, float, float]] = []
    for name in names:
        if name not in _FUNCTIONS:
            raise ctx.error(f"activation {name} is not supported")
        kind, alpha, beta = _FUNCTIONS[name]
        alpha = 0.0 if alpha is None else next(alphas, alpha)
        made.append((kind, alpha, 0.0 if beta is None else next(betas, beta)))
    count = len(usual)
    each = made[:count]
    if made != each * directions or len(made) != count * directions:
        raise ctx.error(f"activations {', '.join(names)} differ between directions, which is not supported")
    attrs: dict[str, Attr] = {}
    for letter, (kind, alpha, beta) in zip("fgh", [*each, *[("none", 0.0, 0.0)] * (3 - count)], strict=True):
        attrs |= {f"{letter}_act": kind, f"{letter}_alpha": alpha, f"{letter}_beta": beta}
    return attrs


def _numbers(ctx: Context, name: str) -> list[float]:
    given = ctx.attr(name, [])
    return [float(v) for v in given] if isinstance(given, list) else []


def _cell(ctx: Context) -> str:
    """The kind of cell."""
    operator = ctx.node.op_type
    after = ctx.integer("linear_before_reset", 0) if operator == "GRU" else 0
    ctx.attr("output_sequence")  # before opset 7: whether Y is wanted, which its name says
    if operator == "LSTM" and ctx.integer("quantises", 0):  # an expansion's (graph/contrib/quantised.py)
        return "lstm_quantised"
    return "gru_after" if after else operator.lower()


def _biases(ctx: Context, kind: str, direction: int, gates: int, hidden: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the bias of the input's part, and the bias that a GRU_AFTER multiplies by its reset gate."""
    value = ctx.optional(3)
    if value is None:
        return np.zeros(gates * hidden, np.float32), np.zeros(hidden, np.float32)
    known = ctx.known(value, "its bias").load()
    if known.ndim != 2 or known.shape[1] != 2 * gates * hidden:
        raise ctx.error(f"bias of shape {known.shape} does not fit the weights")
    own, recurrent = known[direction, : gates * hidden].copy(), known[direction, gates * hidden :]
    inside = (gates - 1) * hidden if kind == "gru_after" else gates * hidden
    own[:inside] += recurrent[:inside]
    return own, recurrent[-hidden:]


def _packed(weights: Const, kind: str, tails: list[np.ndarray]) -> Const:
    """The recurrent weights of all directions as the core wants them (kernels/include/flexnn/params.h), each with its
    tail. Those that are made of narrower numbers stay as narrow.
    """
    rows = [weights.row(d) for d in range(len(tails))]
    whole = rows[0] if len(rows) == 1 else weights
    columns, hidden = weights.shape[1:]
    cut = 2 * hidden if kind.startswith("gru") else columns
    forms = [stored_form(row, 0) for row in rows]
    wtype, ends = forms[0][0], "".join(tail.tobytes().hex() for tail in tails)
    narrow = whole.narrow if wtype == "s8" or (whole.narrow and whole.narrow.whole.dtype == "f16") else None
    if narrow is None or any(form != wtype for form, _ in forms):

        def pack(v: np.ndarray) -> np.ndarray:
            parts = []
            for own, tail in zip(v.reshape(-1, columns, hidden), tails, strict=True):
                parts += [packed_columns(part) for part in (own[:cut], own[cut:]) if len(part)] + [tail]
            return np.concatenate(parts)

        floats = sum(-(-n // NR) * NR * hidden for n in (cut, columns - cut)) + tails[0].size
        return whole.mapped((len(rows) * floats,), pack, f"{kind}{ends}")

    form = FORMS[wtype]

    def store(v: np.ndarray) -> np.ndarray:
        numbers = (v.astype(np.int16) - 128).astype(np.int8) if v.dtype == np.uint8 else v
        parts = []
        for own, tail, (_, steps) in zip(numbers.reshape(-1, columns, hidden), tails, forms, strict=True):
            scales = np.zeros(0, np.float32) if steps is None else np.asarray(steps.load(), np.float32)
            parts += [_panels(form, own[i:j], scales[i:j]) for i, j in ((0, cut), (cut, columns)) if i < j]
            parts.append(tail.view(np.uint8))
        return np.concatenate(parts).view(form.dtype)

    size = (-(-cut // NR) + -(-(columns - cut) // NR)) * form.layout(hidden * NR).end + tails[0].nbytes
    label = f"{kind}{wtype}{ends}|{'|'.join('' if steps is None else steps.key for _, steps in forms)}"
    stored = narrow.whole.mapped((len(rows) * size // form.dtype.itemsize,), store, label)
    return Const(weights.name, stored.shape, "i8" if wtype == "s8" else "f16", stored.source)


def _panels(form: WeightForm, weights: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """Rows [columns, hidden] as stored panels, bytes."""
    columns, hidden = weights.shape
    layout, count = form.layout(hidden * NR), -(-columns // NR)
    panels = np.zeros((count, layout.end), np.uint8)
    whole = np.zeros((count * NR, hidden), form.dtype)
    whole[:columns] = weights
    turned = np.ascontiguousarray(whole.reshape(count, NR, hidden).transpose(0, 2, 1)).reshape(count, -1)
    panels[:, layout.weights : layout.weights + turned.shape[1] * form.dtype.itemsize] = turned.view(np.uint8)
    if scales.size:
        steps = np.zeros((count, NR), np.float32)
        steps.reshape(-1)[:columns] = scales
        panels[:, layout.scales : layout.scales + NR * 4] = steps.view(np.uint8)
    return panels.reshape(-1)


def _peepholes(ctx: Context, kind: str, direction: int, hidden: int) -> np.ndarray:
    """Factors of the cells in the gates of an LSTM; nothing where there are none."""
    value = ctx.optional(7)
    if value is None or not kind.startswith("lstm"):
        return np.zeros(0, np.float32)
    known = ctx.known(value, "its peepholes").load()
    if known.ndim != 2 or known.shape[1] != 3 * hidden or direction >= len(known):
        raise ctx.error(f"peepholes of shape {known.shape} do not fit {hidden} hidden values")
    return np.asarray(known[direction], np.float32)


def _lengths(ctx: Context, steps: int, batch: int) -> list[Value]:
    """The steps of each row; nothing where all have all."""
    value = ctx.optional(4)
    if value is None or (isinstance(value, Const) and value.shape == (batch,) and (value.load() == steps).all()):
        return []
    if ctx.shape(value) != (batch,) or ctx.dtype(value) != "i32":
        raise ctx.error(f"sequence lengths of shape {ctx.shape(value)} and type {ctx.dtype(value)}")
    return [value]


def _initial(ctx: Context, kind: str, directions: int, shape: tuple[int, int]) -> Value:
    """The initial hidden values, of an LSTM with the cells behind them: [states, directions * batch, hidden]."""
    parts: list[Value] = []
    turned, rows = bool(ctx.integer("layout", 0)), (1, directions * shape[0], shape[1])
    for index in (5, 6) if kind.startswith("lstm") else (5,):
        value = ctx.optional(index)
        if value is None:
            parts.append(ctx.array(np.zeros(rows, np.float32), f"initial{index}"))
            continue
        wanted = (shape[0], directions, shape[1]) if turned else (directions, *shape)
        if ctx.shape(value) != wanted or ctx.dtype(value) != "f32":
            raise ctx.error(f"initial state of shape {ctx.shape(value)}, not {wanted}")
        parts.append(ctx.reshape(ctx.transpose(value, [1, 0, 2]) if turned else value, rows))
    return _joined(ctx, parts, 0)


def _joined(ctx: Context, parts: list[Value], axis: int) -> Value:
    return parts[0] if len(parts) == 1 else ctx.emit("concat", parts, {"axis": axis})


@lowers("LSTM", "GRU", "RNN")
def recurrent(ctx: Context) -> list[Value]:
    """https://onnx.ai/onnx/operators/onnx__LSTM.html: Y, Y_h and of an LSTM Y_c."""
    gates, x = _GATES[ctx.node.op_type], ctx.input(0)
    weights, inner = ctx.known(ctx.input(1), "its weight"), ctx.known(ctx.input(2), "its recurrent weight")
    order = _DIRECTIONS.get(ctx.text("direction", "forward"))
    turned = bool(ctx.integer("layout", 0))
    if turned:
        x = ctx.transpose(x, [1, 0, 2])
    shape, hidden = ctx.shape(x), inner.shape[-1]
    ctx.attr("hidden_size")
    fits = len(shape) == 3 and {ctx.dtype(x), weights.dtype, inner.dtype} == {"f32"} and order is not None
    count = 0 if order is None else len(order)
    if (
        not fits
        or weights.shape != (count, gates * hidden, shape[-1])
        or inner.shape != (count, gates * hidden, hidden)
    ):
        raise ctx.error(f"input {shape}, weights {weights.shape}, recurrent weights {inner.shape} do not fit together")
    steps, batch, _ = shape
    lengths = _lengths(ctx, steps, batch)
    kind, functions = _cell(ctx), _functions(ctx, count)
    products: list[Value] = []
    tails: list[np.ndarray] = []
    for d in range(count):
        own, after = _biases(ctx, kind, d, gates, hidden)
        product = rows_by_constant(ctx, x, weights.row(d), True, 1.0, ctx.array(own, f"bias{d}"))
        products.append(ctx.reshape(product, (steps, batch, gates * hidden)))
        tails.append(after if kind == "gru_after" else _peepholes(ctx, kind, d, hidden))
    inputs = [_joined(ctx, products, 2), _packed(inner, kind, tails), _initial(ctx, kind, count, (batch, hidden))]
    attrs: dict[str, Attr] = {"kind": kind, "is_reverse": int(order == [1]), "clip": max(ctx.number("clip", 0.0), 0.0)}
    attrs |= {"is_coupled": int(kind.startswith("lstm") and ctx.integer("input_forget", 0) != 0)} | functions
    y = ctx.emit("recurrent", [*inputs, *lengths], attrs)
    rows = count * batch
    results = [ctx.reshape(ctx.slice(y, [0, 0, 0], [steps, rows, hidden], [1, 1, 1]), (steps, count, batch, hidden))]
    for i in range(2 if kind.startswith("lstm") else 1):
        last = ctx.slice(y, [steps + i, 0, 0], [1, rows, hidden], [1, 1, 1])
        results.append(ctx.reshape(last, (count, batch, hidden)))
    if not turned:
        return results
    wanted = [bool(name) for name in ctx.node.output] + [False] * 3
    perms = [[2, 0, 1, 3], [1, 0, 2], [1, 0, 2]]
    return [
        ctx.emit("copy", [value], copy_attrs(len(perm), perm=perm)) if is_wanted else value
        for value, perm, is_wanted in zip(results, perms, wanted, strict=False)
    ]
