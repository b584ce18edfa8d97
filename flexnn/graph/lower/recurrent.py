"""LSTM, GRU and RNN: one product over the whole sequence for the inputs, then a recurrent node for each direction."""

from __future__ import annotations

import numpy as np

from ..build import copy_attrs
from ..ir import Attr
from ..late import Row
from ..panels import NR
from ..weight_form import FORMS, WeightForm
from .constant import Const, stored_form
from .context import Context, Value, lowers
from .linear import rows_by_constant

_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
_ACTIVATIONS: dict[str, dict[tuple[str, ...], str]] = {
    "RNN": {("tanh",): "rnn_tanh", ("relu",): "rnn_relu"},
    "GRU": {("sigmoid", "tanh"): "gru"},
    "LSTM": {("sigmoid", "tanh", "tanh"): "lstm"},
}
_DIRECTIONS = {"forward": [0], "reverse": [1], "bidirectional": [0, 1]}


def packed_columns(weights: np.ndarray) -> np.ndarray:
    """Rows [columns, hidden] as panels [hidden][NR] of columns, the last filled up with zeros; flat."""
    columns, hidden = weights.shape
    whole = np.zeros((-(-columns // NR) * NR, hidden), np.float32)
    whole[:columns] = weights
    return whole.reshape(-1, NR, hidden).transpose(0, 2, 1).reshape(-1)


def _cell(ctx: Context, directions: int) -> str:
    """The kind of cell. Raises GraphError for what the core does not compute."""
    operator = ctx.node.op_type
    known = _ACTIVATIONS[operator]
    default = [*next(iter(known))] * directions
    given = ctx.attr("activations", default)
    names = [str(name).lower() for name in given] if isinstance(given, list) else []
    each = len(default) // directions
    kinds = {known.get(tuple(names[i : i + each])) for i in range(0, len(default), each)}
    kind = kinds.pop()
    if kind is None or kinds or len(names) != len(default):
        raise ctx.error(f"activations {', '.join(names)} are not supported")
    if ctx.number("clip", 0.0) or ctx.integer("input_forget", 0):
        raise ctx.error("clip and input_forget are not supported")
    if any(ctx.attr(name, []) for name in ("activation_alpha", "activation_beta")):
        raise ctx.error("activation_alpha and activation_beta are not supported")
    after = ctx.integer("linear_before_reset", 0) if operator == "GRU" else 0
    ctx.attr("output_sequence")  # before opset 7: whether Y is wanted, which its name says
    if operator == "LSTM" and ctx.integer("quantises", 0):  # an expansion's (graph/contrib/quantised.py)
        return "lstm_quantised"
    return "gru_after" if after else kind


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


def _packed(weights: Const, kind: str, tail: np.ndarray) -> Const:
    """The recurrent weights of a direction as the core wants them (kernels/include/flexnn/params.h), then ``tail``.
    Those that are made of narrower numbers stay as narrow.
    """
    columns, hidden = weights.shape
    cut = 2 * hidden if kind.startswith("gru") else columns
    wtype, steps = stored_form(weights, 0)
    narrow = weights.narrow if wtype == "s8" or (weights.narrow and weights.narrow.whole.dtype == "f16") else None
    if narrow is None:

        def pack(v: np.ndarray) -> np.ndarray:
            parts = [packed_columns(part) for part in (v[:cut], v[cut:]) if len(part)]
            return np.concatenate([*parts, tail])

        floats = sum(-(-n // NR) * NR * hidden for n in (cut, columns - cut))
        return weights.mapped((floats + tail.size,), pack, f"{kind}{tail.tobytes().hex()}")

    form, whole = FORMS[wtype], narrow.whole
    layout = form.layout(hidden * NR)

    def store(v: np.ndarray) -> np.ndarray:
        numbers = (v.astype(np.int16) - 128).astype(np.int8) if v.dtype == np.uint8 else v
        scales = np.zeros(0, np.float32) if steps is None else np.asarray(steps.load(), np.float32)
        parts = [_panels(form, numbers[i:j], scales[i:j]) for i, j in ((0, cut), (cut, columns)) if i < j]
        return np.concatenate([*parts, tail.view(np.uint8)]).view(form.dtype)

    size = (-(-cut // NR) + -(-(columns - cut) // NR)) * layout.end + tail.nbytes
    label = f"{kind}{wtype}{tail.tobytes().hex()}|{'' if steps is None else steps.key}"
    stored = whole.mapped((size // form.dtype.itemsize,), store, label)
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


def _initial(ctx: Context, kind: str, direction: int, directions: int, shape: tuple[int, int]) -> Value:
    """The initial hidden values, of an LSTM with the cells behind them: [states, batch, hidden]."""
    parts: list[Value] = []
    turned = bool(ctx.integer("layout", 0))
    for index in (5, 6) if kind.startswith("lstm") else (5,):
        value = ctx.optional(index)
        if value is None:
            parts.append(ctx.array(np.zeros((1, *shape), np.float32), f"initial{index}"))
            continue
        wanted = (shape[0], directions, shape[1]) if turned else (directions, *shape)
        if ctx.shape(value) != wanted or ctx.dtype(value) != "f32":
            raise ctx.error(f"initial state of shape {ctx.shape(value)}, not {wanted}")
        if turned:
            value = ctx.transpose(value, [1, 0, 2])
        parts.append(_one(ctx, value, direction))
    return parts[0] if len(parts) == 1 else ctx.emit("concat", parts, {"axis": 0})


def _one(ctx: Context, value: Value, index: int) -> Value:
    """Row ``index`` of the first dimension, which stays."""
    shape = ctx.shape(value)
    starts, sizes = [index, *[0] * (len(shape) - 1)], [1, *shape[1:]]
    if isinstance(value, Const):
        return value.mapped(tuple(sizes), Row(index, keeps=True), f"row{index}")
    return ctx.slice(value, starts, sizes, [1] * len(shape))


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
    kind = _cell(ctx, count)
    states: list[list[Value]] = [[], [], []]
    for d, is_reverse in enumerate(order or []):
        own, after = _biases(ctx, kind, d, gates, hidden)
        product = rows_by_constant(ctx, x, weights.row(d), True, 1.0, ctx.array(own, f"bias{d}"))
        inputs: list[Value] = [
            ctx.reshape(product, (steps, batch, gates * hidden)),
            _packed(inner.row(d), kind, after if kind == "gru_after" else _peepholes(ctx, kind, d, hidden)),
            _initial(ctx, kind, d, count, (batch, hidden)),
            *lengths,
        ]
        attrs: dict[str, Attr] = {"kind": kind, "is_reverse": is_reverse}
        y = ctx.emit("recurrent", inputs, attrs)
        whole = ctx.slice(y, [0, 0, 0], [steps, batch, hidden], [1, 1, 1])
        states[0].append(ctx.reshape(whole, (steps, 1, batch, hidden)))
        for i in range(2 if kind.startswith("lstm") else 1):
            states[1 + i].append(ctx.slice(y, [steps + i, 0, 0], [1, batch, hidden], [1, 1, 1]))
    wanted = [bool(name) for name in ctx.node.output] + [False] * 3
    results: list[Value] = []
    for i, parts in enumerate(states[: 3 if kind.startswith("lstm") else 2]):
        value = _joined(ctx, parts, 1 if i == 0 else 0) if wanted[i] else parts[0]
        if turned and wanted[i]:
            perm = [2, 0, 1, 3] if i == 0 else [1, 0, 2]
            value = ctx.emit("copy", [value], copy_attrs(len(perm), perm=perm))
        results.append(value)
    return results
