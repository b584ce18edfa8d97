"""Recurrent networks; https://onnx.ai/onnx/operators/onnx__LSTM.html and its kin."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..ir import Array
from .blocks import work_bytes
from .call import Call, copied, evaluates
from .elementwise import sigmoid, softplus

Activation = Callable[[Array], Array]
_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
_DEFAULTS = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}
_ALPHAS = {"leakyrelu": 0.01, "thresholdedrelu": 1.0, "hardsigmoid": 0.2, "elu": 1.0, "affine": 1.0, "scaledtanh": 1.0}
_BETAS = {"hardsigmoid": 0.5, "affine": 0.0, "scaledtanh": 1.0}


def _activation(call: Call, name: str, alpha: float | None, beta: float | None) -> Activation:
    key = name.lower()
    a, b = _ALPHAS.get(key, 0.0) if alpha is None else alpha, _BETAS.get(key, 0.0) if beta is None else beta
    functions: dict[str, Activation] = {
        "sigmoid": sigmoid,
        "tanh": np.tanh,
        "relu": lambda v: np.maximum(v, 0),
        "softplus": softplus,
        "softsign": lambda v: v / (1 + np.abs(v)),
        "leakyrelu": lambda v: np.where(v < 0, a * v, v),
        "thresholdedrelu": lambda v: np.where(v > a, v, 0),
        "hardsigmoid": lambda v: np.clip(a * v + b, 0, 1),
        "elu": lambda v: np.where(v > 0, v, a * np.expm1(np.minimum(v, 0))),
        "affine": lambda v: a * v + b,
        "scaledtanh": lambda v: a * np.tanh(b * v),
    }
    if key not in functions:
        raise call.error(f"activation {name!r} is not supported")
    return functions[key]


def _activations(call: Call, directions: int) -> list[list[Activation]]:
    """The functions of each direction; the lists of alphas and betas serve those that take one, in order."""
    each = len(_DEFAULTS[call.op])
    names = call.texts("activations", _DEFAULTS[call.op] * directions)
    if len(names) != each * directions:
        raise call.error(f"{len(names)} activations do not fit {directions} directions")
    alphas, betas = iter(call.numbers("activation_alpha", [])), iter(call.numbers("activation_beta", []))
    made = []
    for name in names:
        alpha = next(alphas, None) if name.lower() in _ALPHAS else None
        made.append(_activation(call, name, alpha, next(betas, None) if name.lower() in _BETAS else None))
    return [made[i * each : (i + 1) * each] for i in range(directions)]


@evaluates("RNN", "GRU", "LSTM")
def recurrent(call: Call) -> list[Array]:
    """The hidden values of all steps, and the last hidden values (and cells)."""
    gates, op = _GATES[call.op], call.op
    x, weights, recurrence, bias = call.x(0), call.x(1), call.x(2), call.get(3)
    if call.integer("layout", 0):
        x = x.swapaxes(0, 1)
    directions, hidden = weights.shape[0], recurrence.shape[-1]
    names = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}
    reverse = names.get(call.text("direction", "forward"))
    if (
        x.ndim != 3
        or reverse is None
        or len(reverse) != directions
        or weights.shape[1:] != (gates * hidden, x.shape[2])
    ):
        raise call.error(f"input {x.shape}, weights {weights.shape}, recurrence {recurrence.shape} do not fit")
    steps, batch = x.shape[:2]
    each = batch * hidden
    made = [((steps, directions, batch, hidden), x.dtype), *[((directions, batch, hidden), x.dtype)] * 4]
    work = x.itemsize * (steps * batch * gates * hidden + each * (3 * gates + 40)) + batch * (64 + gates * hidden * 8)
    work += work_bytes(steps * each * gates)
    call.reserve(*made, workspace=work + copied(x))
    lengths = call.get(4)
    valid = np.full(batch, steps) if lengths is None else np.clip(lengths.astype(np.int64), 0, steps)
    functions, peepholes = _activations(call, directions), call.get(7) if op == "LSTM" else None
    quantises = bool(call.integer("quantises", 0))  # an expansion's of DynamicQuantizeLSTM, for LSTM alone
    starts = [call.get(5), call.get(6) if op == "LSTM" else None]
    if call.integer("layout", 0):
        starts = [None if s is None else s.swapaxes(0, 1) for s in starts]
    y = np.zeros((steps, directions, batch, hidden), x.dtype)
    last, cells = [], []
    for d in range(directions):
        h, c = (np.zeros((batch, hidden), x.dtype) if s is None else s[d] for s in starts)
        both = np.zeros(2 * gates * hidden, x.dtype) if bias is None else bias[d]
        cell = _Cell(call, functions[d], weights[d], recurrence[d], both, None if peepholes is None else peepholes[d])
        inputs = x @ cell.w.T
        inputs += cell.bias_w
        for t in range(steps):
            # of a reversed sequence, each row runs through its own valid steps from their end
            at = np.where(t < valid, valid - 1 - t, 0) if reverse[d] else np.full(batch, t)
            live = (t < valid)[:, None]
            seen = _rounded(h, live) if quantises else h
            new_h, new_c = cell.step(inputs[at, np.arange(batch)], seen, c)
            h, c = np.where(live, new_h, h), np.where(live, new_c, c)
            rows = np.flatnonzero(t < valid)
            y[at[rows], d, rows] = h[rows]
        last.append(h)
        cells.append(c)
    results = [y, np.stack(last), np.stack(cells)]
    if call.integer("layout", 0):
        results = [results[0].transpose(2, 0, 1, 3), results[1].swapaxes(0, 1), results[2].swapaxes(0, 1)]
    return [np.asarray(r, x.dtype) for r in results[: 3 if op == "LSTM" else 2]]


def _rounded(h: Array, live: Array) -> Array:
    """Values rounded to 8 bits by the range of the rows that are ``live``, as DynamicQuantizeLinear does it."""
    least, most = np.min(h, initial=0, where=live), np.max(h, initial=0, where=live)
    scale = np.asarray((most - least) / 255 if most > least else 1, h.dtype)
    zero = np.rint(-least / scale)
    return np.asarray((np.clip(np.rint(h / scale) + zero, 0, 255) - zero) * scale, h.dtype)


class _Cell:
    """One direction's step."""

    def __init__(
        self,
        call: Call,
        functions: list[Activation],
        w: Array,
        r: Array,
        bias: Array,
        peepholes: Array | None,
    ) -> None:
        self.op, self.functions, self.w, self.r = call.op, functions, w, r
        self.hidden = r.shape[-1]
        self.bias_w, self.bias_r = bias[: w.shape[0]], bias[w.shape[0] :]
        self.peepholes = np.zeros(3 * self.hidden, w.dtype) if peepholes is None else peepholes
        self.clip = call.number("clip", 0.0)
        self.after = bool(call.integer("linear_before_reset", 0))
        self.coupled = bool(call.integer("input_forget", 0))

    def _clipped(self, v: Array) -> Array:
        return np.clip(v, -self.clip, self.clip) if self.clip > 0 else v

    def step(self, x: Array, h: Array, c: Array) -> tuple[Array, Array]:
        """The next hidden value and cell from the input's part of the gates."""
        f, n = self.functions, self.hidden
        if self.op == "RNN":
            return f[0](self._clipped(x + h @ self.r.T + self.bias_r)), c
        if self.op == "GRU":
            gates = self._clipped(x[:, : 2 * n] + h @ self.r[: 2 * n].T + self.bias_r[: 2 * n])
            z, reset = f[0](gates[:, :n]), f[0](gates[:, n:])
            if self.after:
                inner = reset * (h @ self.r[2 * n :].T + self.bias_r[2 * n :])
            else:
                inner = (reset * h) @ self.r[2 * n :].T + self.bias_r[2 * n :]
            new = f[1](self._clipped(x[:, 2 * n :] + inner))
            return (1 - z) * new + z * h, c
        gates = x + h @ self.r.T + self.bias_r  # input, output, forget, cell
        p = self.peepholes
        i = f[0](self._clipped(gates[:, :n] + p[:n] * c))
        forget = 1 - i if self.coupled else f[0](self._clipped(gates[:, 2 * n : 3 * n] + p[2 * n :] * c))
        cell = forget * c + i * f[1](self._clipped(gates[:, 3 * n :]))
        o = f[0](self._clipped(gates[:, n : 2 * n] + p[n : 2 * n] * cell))
        return o * f[2](cell), cell
