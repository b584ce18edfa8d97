"""The meaning of an internal graph: a plain numpy interpreter with one function for each operator.

Slow and short on purpose. It walks the same storage as the engine (roots and views), so it sees wrong aliasing too:
every root starts as NaN (integers: a pattern), and graph inputs and constants are read-only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import product

import numpy as np
from numpy.lib.stride_tricks import as_strided

from flexnn.graph.ir import DTYPES, Graph, Node, Tensor
from flexnn.graph.panels import NR, conv_cin_panel
from flexnn.graph.weight_form import FORMS, WeightForm
from tests.support import reference_bytes, reference_half, reference_indexing, reference_state, typed_reference

Array = np.ndarray


def run_graph(graph: Graph, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Outputs by name, for inputs by name. Weights are loaded from their sources."""
    storage: dict[int, Array] = {}
    for i, tensor in enumerate(graph.tensors):
        if tensor.root >= 0:
            continue
        if i in graph.inputs:
            storage[i] = np.array(feeds[tensor.name], DTYPES[tensor.dtype]).reshape(-1)
            assert storage[i].size == tensor.size
            storage[i].flags.writeable = False
        elif tensor.weight >= 0:
            source = graph.weights[tensor.weight].source
            assert source is not None
            storage[i] = np.array(source.load(), DTYPES[tensor.dtype]).reshape(-1)
            storage[i].flags.writeable = False
        else:
            storage[i] = np.full(tensor.size, np.nan if tensor.dtype in ("f32", "f64", "f16") else 77).astype(
                DTYPES[tensor.dtype]
            )

    def view(i: int) -> Array:
        tensor = graph.tensors[i]
        flat = storage[graph.root(i)]
        strides = [s * flat.itemsize for s in tensor.strides]
        last = tensor.offset + sum((d - 1) * s for d, s in zip(tensor.shape, tensor.strides, strict=True))
        assert 0 <= last < flat.size, f"{tensor.name}: outside its root"
        return as_strided(flat[tensor.offset :], tensor.shape, strides, writeable=flat.flags.writeable)

    for node in graph.nodes:
        with np.errstate(all="ignore"):
            result = OPERATORS[node.op](graph, node, *[view(i) for i in node.inputs])
        out = view(node.outputs[0])
        assert result.shape == out.shape, f"{node.name}: {result.shape}, stored as {out.shape}"
        assert result.dtype == out.dtype, f"{node.name}: {result.dtype}, stored as {out.dtype}"
        out[...] = result
    return {graph.tensors[i].name: np.array(view(i)) for i in graph.outputs}


# ---- functions of one element ----

_erf = np.vectorize(math.erf, otypes=[np.float64])


def _sigmoid(v: Array) -> Array:
    return 1 / (1 + np.exp(-v))


def _elu(v: Array, alpha: float) -> Array:
    return np.where(v > 0, v, alpha * np.expm1(np.minimum(v, 0)))


UNARY: dict[str, Callable[[Array, float, float], Array]] = {
    "none": lambda v, a, b: v,
    "relu": lambda v, a, b: np.maximum(v, 0),
    "clip": lambda v, a, b: np.minimum(np.maximum(v, a), b),
    "leaky_relu": lambda v, a, b: np.where(v < 0, a * v, v),
    "sigmoid": lambda v, a, b: _sigmoid(v),
    "hardsigmoid": lambda v, a, b: np.clip(a * v + b, 0, 1),
    "hardswish": lambda v, a, b: v * np.clip(v / 6 + 0.5, 0, 1),
    "silu": lambda v, a, b: v * _sigmoid(v),
    "tanh": lambda v, a, b: np.tanh(v),
    "exp": lambda v, a, b: np.exp(v),
    "log": lambda v, a, b: np.log(v),
    "sqrt": lambda v, a, b: np.sqrt(v),
    "reciprocal": lambda v, a, b: 1 / v,
    "abs": lambda v, a, b: np.abs(v),
    "neg": lambda v, a, b: -v,
    "floor": lambda v, a, b: np.floor(v),
    "ceil": lambda v, a, b: np.ceil(v),
    "round": lambda v, a, b: np.round(v),
    "sign": lambda v, a, b: np.sign(v),
    "erf": lambda v, a, b: _erf(v),
    "gelu": lambda v, a, b: 0.5 * v * (1 + _erf(v / math.sqrt(2))),
    "gelu_tanh": lambda v, a, b: 0.5 * v * (1 + np.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3))),
    "softplus": lambda v, a, b: np.logaddexp(0, v),
    "softsign": lambda v, a, b: v / (1 + np.abs(v)),
    "elu": lambda v, a, b: _elu(v, a),
    "selu": lambda v, a, b: b * _elu(v, a),
    "celu": lambda v, a, b: np.where(v > 0, v, a * np.expm1(np.minimum(v, 0) / a)),
    "mish": lambda v, a, b: v * np.tanh(np.logaddexp(0, v)),
    "thresholded_relu": lambda v, a, b: np.where(v > a, v, 0),
    "sin": lambda v, a, b: np.sin(v),
    "cos": lambda v, a, b: np.cos(v),
}
BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "max": np.maximum,
    "min": np.minimum,
    "pow": np.power,
    "prelu": lambda a, b: np.where(a < 0, a * b, a),
}
REDUCE: dict[str, Callable[[Array, tuple[int, ...], bool], Array]] = {
    "sum": lambda v, a, k: v.sum(axis=a, keepdims=k),
    "mean": lambda v, a, k: v.mean(axis=a, keepdims=k),
    "max": lambda v, a, k: v.max(axis=a, keepdims=k),
    "min": lambda v, a, k: v.min(axis=a, keepdims=k),
    "prod": lambda v, a, k: v.prod(axis=a, keepdims=k),
    "l1": lambda v, a, k: np.abs(v).sum(axis=a, keepdims=k),
    "l2": lambda v, a, k: np.sqrt((v * v).sum(axis=a, keepdims=k)),
    "sum_square": lambda v, a, k: (v * v).sum(axis=a, keepdims=k),
    "log_sum": lambda v, a, k: np.log(v.sum(axis=a, keepdims=k)),
    "log_sum_exp": lambda v, a, k: np.log(np.exp(v).sum(axis=a, keepdims=k)),
}


def _f32(v: Array) -> Array:
    return np.asarray(v).astype(np.float32)


def _act(node: Node, v: Array) -> Array:
    return UNARY[str(node.attrs["act"])](v, node.attrs["alpha"], node.attrs["beta"])


# ---- operators ----


def _windows(node: Node, x: Array, fill: float, end: tuple[int, int] | None = None) -> tuple[Array, int, int]:
    """x padded with ``fill``, as [n, oh, ow, tap, c]; and the output's height and width."""
    (kh, kw), (sh, sw), (dh, dw) = node.attrs["kernel"], node.attrs["strides"], node.attrs["dilations"]
    top, left, bottom, right = node.attrs["pads"]
    n, h, w, c = x.shape
    if end:
        oh, ow = end
    else:
        oh = (h + top + bottom - (kh - 1) * dh - 1) // sh + 1
        ow = (w + left + right - (kw - 1) * dw - 1) // sw + 1
    tall = max((oh - 1) * sh + (kh - 1) * dh + 1, top + h)
    wide = max((ow - 1) * sw + (kw - 1) * dw + 1, left + w)
    padded = np.full((n, tall, wide, c), fill, np.float64)
    padded[:, top : top + h, left : left + w] = x
    taps = [
        padded[:, i * dh : i * dh + (oh - 1) * sh + 1 : sh, j * dw : j * dw + (ow - 1) * sw + 1 : sw]
        for i, j in product(range(kh), range(kw))
    ]
    return np.stack(taps, axis=3), oh, ow


def unpack(graph: Graph, node: Node, cin: int, cout: int) -> tuple[Array, Array, Array]:
    """Dense weights [tap, cin, cout], bias and slope [cout], out of a node's panels as they are stored."""
    taps = math.prod(node.attrs["kernel"])
    depthwise = node.op == "dwconv"
    group = cin if depthwise else int(node.attrs["group"])
    weights = np.zeros((taps, cin, cout), np.float32)
    bias, slope = np.zeros(cout, np.float32), np.zeros(cout, np.float32)
    per_group, cin_group = cout // group, cin // group
    panels = graph.weights[node.weight].panels
    assert panels is not None
    sizes = []
    for p, panel in enumerate(panels):
        sizes.append(panel.nbytes)
        lanes = slice(p * NR, min((p + 1) * NR, cout))
        count = lanes.stop - lanes.start
        rows = panel[: panel.size // NR * NR].reshape(-1, NR)
        bias[lanes] = rows[0, :count]
        at = 1
        if node.attrs["act"] == "prelu":
            slope[lanes] = rows[1, :count]
            at = 2
        form = FORMS[str(node.attrs["wtype"])]
        wide = 1 if depthwise else conv_cin_panel(cout, cin_group, group)
        body = _body(panel, form, taps * wide, at * NR * 4)
        assert panel.nbytes == form.layout(body.size, slopes=node.attrs["act"] == "prelu").end
        assert panel.nbytes % 64 == 0
        if depthwise:
            weights[:, range(lanes.start, lanes.stop), range(lanes.start, lanes.stop)] = body[:, :count]
            continue
        if group > 1 and cin == cout and cin_group in (2, 4, 8):
            assert wide == cin_group
            for o in range(lanes.start, lanes.stop):
                inputs = o // cin_group * cin_group
                weights[:, inputs : inputs + cin_group, o] = body.reshape(taps, wide, NR)[:, :, o % NR]
            continue
        first = 0 if group == 1 else min(lanes.start // per_group * cin_group, cin - wide)
        block = min(int(node.attrs["cin_block"]), wide)
        at = 0
        for b in range(0, wide, block):
            size = min(block, wide - b)
            part = body[at : at + taps * size].reshape(taps, size, NR)
            weights[:, first + b : first + b + size, lanes] = part[:, :, :count]
            at += taps * size
        assert at == len(body)
    assert {graph.weights[node.weight].chunk_bytes} == set(sizes)
    assert graph.weights[node.weight].nbytes == sum(sizes)
    return weights, bias, slope


def _body(panel: Array, form: WeightForm, count: int, at: int) -> Array:
    """The weights of a panel, ``count`` of each channel, whose head ends at byte ``at``: by the page on the format."""
    raw = panel.view(np.uint8)
    blocks = -(-count // form.block) if form.block else 1
    beside = []
    for nbytes in (form.scales, form.minimum):
        size = blocks * NR * nbytes
        beside.append(raw[at : at + size].view(f"f{nbytes or 4}").astype(np.float32).reshape(-1, NR))
        at += size
    at += -at % 64 if form.block else 0
    if form.bits == 4:
        lanes = raw[at:].view(np.uint32)[: -(-count // 8) * NR].reshape(-1, 1, NR)
        whole = (lanes >> np.arange(0, 32, 4, dtype=np.uint32)[:, None] & 15).reshape(-1, NR)[:count].astype(np.int32)
        whole = whole if form.minimum else np.where(whole > 7, whole - 16, whole)
    else:
        whole = raw[at:].view(form.dtype)[: count * NR].reshape(-1, NR)
    body = whole.astype(np.float32)
    if form.scales:
        body *= np.repeat(beside[0], form.block or count, axis=0)[:count]
    return body + np.repeat(beside[1], form.block, axis=0)[:count] if form.minimum else body


def _conv(graph: Graph, node: Node, x: Array, residual: Array | None = None) -> Array:
    cin = x.shape[-1]
    cout = cin if node.op == "dwconv" else int(node.attrs["cout"])
    weights, bias, slope = unpack(graph, node, cin, cout)
    columns, oh, ow = _windows(node, x, 0.0)
    whole = node.attrs["sums"] == "i32"
    kind = np.float64 if whole else np.float32
    if node.op == "dwconv":
        taps = np.stack([np.diagonal(w) for w in weights])
        y = (columns * taps).sum(axis=3)
    else:
        flat = columns.reshape(-1, weights.shape[0] * cin).astype(kind)
        y = (flat @ weights.reshape(-1, cout).astype(kind)).reshape(x.shape[0], oh, ow, cout)
    if whole:
        assert not bias.any()
        assert (residual, node.attrs["act"]) == (None, "none")
        return y.astype(np.int64).astype(np.int32)
    y = y + bias
    if residual is not None:
        y = y + residual
    return _f32(np.where(y < 0, slope * y, y) if node.attrs["act"] == "prelu" else _act(node, y))


def _pool(graph: Graph, node: Node, x: Array) -> Array:
    out = graph.tensors[node.outputs[0]].shape
    end = (out[1], out[2])
    if node.attrs["kind"] == "max":
        return _f32(_windows(node, x, -np.inf, end)[0].max(axis=3))
    inside = np.ones_like(x)
    if node.attrs["count_include_pad"]:
        top, left, bottom, right = node.attrs["pads"]
        frame = np.ones((x.shape[0], x.shape[1] + top + bottom, x.shape[2] + left + right, x.shape[3]))
        bare = Node("", "pool", [], [], node.attrs | {"pads": [0, 0, 0, 0]})
        counted = _windows(bare, frame, 0.0, end)[0].sum(axis=3)
    else:
        counted = _windows(node, inside, 0.0, end)[0].sum(axis=3)
    return _f32(_windows(node, x, 0.0, end)[0].sum(axis=3) / counted)


def _unary(graph: Graph, node: Node, x: Array) -> Array:
    return _f32(UNARY[str(node.attrs["kind"])](x.astype(np.float64), node.attrs["alpha"], node.attrs["beta"]))


def _binary(graph: Graph, node: Node, a: Array, b: Array) -> Array:
    return _f32(_act(node, BINARY[str(node.attrs["kind"])](a.astype(np.float64), b.astype(np.float64))))


def _softmax(graph: Graph, node: Node, x: Array) -> Array:
    axis = int(node.attrs["axis"])
    shifted = x.astype(np.float64) - x.max(axis=axis, keepdims=True)
    log = shifted - np.log(np.exp(shifted).sum(axis=axis, keepdims=True))
    return _f32(log if node.attrs["log"] else np.exp(log))


def _reduce(graph: Graph, node: Node, x: Array) -> Array:
    axes, keep = tuple(node.attrs["axes"]), bool(node.attrs["keepdims"])
    kind = str(node.attrs["kind"])
    if x.dtype.kind != "f":
        return typed_reference.reduce_integers(kind, x, axes, keep)
    return np.asarray(REDUCE[kind](x.astype(np.float64), axes, keep), x.dtype)


def _lrn(graph: Graph, node: Node, x: Array) -> Array:
    size, c = int(node.attrs["size"]), x.shape[-1]
    squares = x.astype(np.float64) ** 2
    sums = np.zeros_like(squares)
    for i in range(c):
        first, last = max(0, i - (size - 1) // 2), min(c, i + size // 2 + 1)
        sums[..., i] = squares[..., first:last].sum(axis=-1)
    return _f32(x / (node.attrs["bias"] + node.attrs["alpha"] / size * sums) ** node.attrs["beta"])


def _instance_norm(graph: Graph, node: Node, x: Array, scale: Array, bias: Array) -> Array:
    axes = tuple(range(1, x.ndim - 1))
    wide = x.astype(np.float64)
    mean, variance = wide.mean(axis=axes, keepdims=True), wide.var(axis=axes, keepdims=True)
    return _f32((wide - mean) / np.sqrt(variance + node.attrs["epsilon"]) * scale + bias)


def _source(node: Node, out: int, size: int, scale: float, length: int) -> float:
    """Return the position of output pixel ``out`` in the input (onnx.ai/onnx/operators/onnx__Resize.html)."""
    coord = node.attrs["coord"]
    if coord == "asymmetric":
        return out / scale
    if coord == "align_corners":
        return 0.0 if length == 1 else out * (size - 1) / (length - 1)
    if coord == "pytorch_half_pixel" and length == 1:
        return 0.0
    if coord == "half_pixel_symmetric":
        return (size - 1) / 2 + (out + 0.5 - length / 2) / scale
    return (out + 0.5) / scale - 0.5


def _resize(graph: Graph, node: Node, x: Array) -> Array:
    y = x.astype(np.float64)
    scales = (node.attrs["scale_h"], node.attrs["scale_w"])
    for axis, length, scale in zip((1, 2), node.attrs["sizes"], scales, strict=True):
        size = y.shape[axis]
        at = [_source(node, i, size, np.float32(scale), length) for i in range(length)]
        if node.attrs["mode"] == "nearest":
            rounding = {
                "round_prefer_floor": lambda v: math.ceil(v - 0.5),
                "round_prefer_ceil": lambda v: math.floor(v + 0.5),
                "floor": math.floor,
                "ceil": math.ceil,
            }[str(node.attrs["nearest"])]
            y = y.take([min(max(rounding(v), 0), size - 1) for v in at], axis=axis)
            continue
        at = [min(max(v, 0.0), size - 1.0) for v in at]
        low = [min(math.floor(v), size - 1) for v in at]
        high = [min(i + 1, size - 1) for i in low]
        share = np.array([v - i for v, i in zip(at, low, strict=True)])
        share = share.reshape((-1,) + (1,) * (3 - axis))
        y = y.take(low, axis=axis) * (1 - share) + y.take(high, axis=axis) * share
    return _f32(y)


def _shares(node: Node, at: float, size: int, scale: float) -> Array:
    """Return what each place of the input counts for an output at ``at``."""
    narrow = min(float(scale), 1.0) if node.attrs["is_antialiased"] else 1.0
    shares, a = np.zeros(size), float(node.attrs["a"])
    for place in range(math.floor(at - 2 / narrow), math.ceil(at + 2 / narrow) + 1):
        d = abs(place - at) * narrow
        share = max(1 - d, 0.0)
        if node.attrs["is_cubic"]:
            near, far = (a + 2) * d**3 - (a + 3) * d**2 + 1, a * (d**3 - 5 * d**2 + 8 * d - 4)
            share = near if d <= 1 else far if d < 2 else 0.0
        if 0 <= place < size or not node.attrs["is_exclusive"]:
            shares[min(max(place, 0), size - 1)] += share
    return shares / shares.sum()


def _resample(graph: Graph, node: Node, x: Array) -> Array:
    y = x.astype(np.float64)
    scales = (node.attrs["scale_h"], node.attrs["scale_w"])
    for axis, length, scale in zip((1, 2), node.attrs["sizes"], scales, strict=True):
        size = y.shape[axis]
        if length == size and scale == 1:
            continue
        at = [_source(node, i, size, np.float32(scale), length) for i in range(length)]
        shares = np.stack([_shares(node, v, size, scale) for v in at])
        y = np.moveaxis(np.tensordot(shares, y, (1, axis)), 0, axis)
    return _f32(y)


def _copy(graph: Graph, node: Node, x: Array) -> Array:
    moved = x.transpose(node.attrs["perm"])
    shape = [e or d for e, d in zip(node.attrs["expand"], moved.shape, strict=True)]
    return np.broadcast_to(moved, shape)


def _pad(graph: Graph, node: Node, x: Array) -> Array:
    before, after = node.attrs["before"], node.attrs["after"]
    if node.attrs["mode"] != "constant":
        cropped = x[tuple(slice(max(-b, 0), d - max(-a, 0)) for b, a, d in zip(before, after, x.shape, strict=True))]
        amounts = [(max(b, 0), max(a, 0)) for b, a in zip(before, after, strict=True)]
        return np.pad(cropped, amounts, mode="reflect" if node.attrs["mode"] == "reflect" else "edge")
    value = node.attrs["value"] if x.dtype.kind == "f" else node.attrs["value_int"]
    apart = [(d - 1) * (i + 1) + 1 for d, i in zip(x.shape, node.attrs["interior"], strict=True)]
    spread = np.full(apart, value, x.dtype)
    spread[tuple(slice(None, None, i + 1) for i in node.attrs["interior"])] = x
    wide = np.pad(spread, [(max(b, 0), max(a, 0)) for b, a in zip(before, after, strict=True)], constant_values=value)
    return wide[tuple(slice(max(-b, 0), d - max(-a, 0)) for b, a, d in zip(before, after, wide.shape, strict=True))]


def _depth_to_space(graph: Graph, node: Node, x: Array) -> Array:
    (sh, sw), (top, left, bottom, right) = node.attrs["blocks"], node.attrs["crop"]
    n, h, w, c = x.shape
    whole = x.reshape(n, h, w, sh, sw, -1).transpose(0, 1, 3, 2, 4, 5).reshape(n, h * sh, w * sw, c // (sh * sw))
    return whole[:, top : h * sh - bottom, left : w * sw - right]


def _gather(graph: Graph, node: Node, data: Array, indices: Array) -> Array:
    return data.take(indices, axis=int(node.attrs["axis"]))


def _gather_panels(graph: Graph, node: Node, panels: Array, indices: Array) -> Array:
    form, inner = FORMS[str(node.attrs["wtype"])], int(node.attrs["inner"])
    rows = np.stack([_body(panel, form, inner, NR * 4).T for panel in panels])
    return rows.reshape(-1, rows.shape[-1])[: int(node.attrs["rows"])].take(indices, axis=0)


def _cast(graph: Graph, node: Node, x: Array) -> Array:
    return typed_reference.converted(x, DTYPES[str(node.attrs["to"])])


def _matmul(graph: Graph, node: Node, a: Array, b: Array) -> Array:
    y = a.astype(np.float64) @ b.astype(np.float64)
    return y.astype(np.int64).astype(np.int32) if node.attrs["sums"] == "i32" else _f32(_act(node, y))


def _layer_norm(graph: Graph, node: Node, x: Array, scale: Array, bias: Array | None = None) -> Array:
    wide = x.astype(np.float64)
    if not node.attrs["is_rms"]:
        wide = wide - wide.mean(axis=-1, keepdims=True)
    y = wide / np.sqrt((wide**2).mean(axis=-1, keepdims=True) + node.attrs["epsilon"]) * scale
    return _f32(y if bias is None else y + bias)


def _rotary(graph: Graph, node: Node, x: Array, cosines: Array, sines: Array) -> Array:
    turned = int(node.attrs["turned"])
    half = turned // 2
    y = x.astype(np.float64).copy()
    first, later = (slice(0, turned, 2), slice(1, turned, 2)) if node.attrs["is_interleaved"] else (
        slice(0, half), slice(half, turned)
    )  # fmt: skip
    c, s = (angles.astype(np.float64) for angles in (cosines, sines))
    y[..., first] = x[..., first] * c[..., :half] - x[..., later] * s[..., :half]
    y[..., later] = x[..., later] * c[..., -half:] + x[..., first] * s[..., -half:]
    return _f32(y)


def _trees(graph: Graph, node: Node, x: Array, forest: Array) -> Array:
    """Return one score of each row, for each result: the walk of one row by one tree at a time."""
    a, size = node.attrs, x.itemsize // 4
    words = forest[: a["nodes"] * (size + 2)].reshape(-1, size + 2)
    entries = forest[words.size : words.size + a["entries"] * (size + 1)].reshape(-1, size + 1)
    base = np.ascontiguousarray(forest[words.size + entries.size :]).view(x.dtype)
    numbers = np.ascontiguousarray(words[:, :size]).view(x.dtype)[:, 0]
    said = np.ascontiguousarray(entries[:, :size]).view(x.dtype)[:, 0]
    assert (a["aggregate"], a["transform"], a["classes"]) == ("sum", "none", "none"), "others: against onnxruntime"
    y = np.zeros((len(x), a["results"]), x.dtype)
    for row, tree in product(range(len(x)), range(a["trees"])):
        at = tree
        while (meta := int(words[at, size])) & 1:
            v, t = x[row, meta >> 3], numbers[at]
            holds = v == t if meta & 2 else v <= t
            at = int(words[at, size + 1]) + (not (holds or (meta & 4 and np.isnan(v))))
        if meta & 2:
            for i in range(words[at, 0], words[at, 0] + (meta >> 3)):
                y[row, entries[i, size]] += said[i]
        else:
            y[row, meta >> 3] += numbers[at]
    return np.asarray(y + base if base.size else y, DTYPES[str(a["to"])])


def _fourier(graph: Graph, node: Node, x: Array, table: Array, window: Array | None = None) -> Array:
    a, n = node.attrs, int(node.attrs["n"])
    signal = x[..., 0].astype(np.complex128) if x.shape[-1] == 1 else x[..., 0] + 1j * x[..., 1].astype(np.float64)
    starts = [f * int(a["hop"]) for f in range(int(a["frames"]))]
    frames = np.stack([signal[:, start : start + n] for start in starts], 1)
    if window is not None:
        frames = frames * window[:, None]
    if a["parts"] == 1:
        return _f32(np.fft.irfft(frames, n, 2)[..., None])
    y = (np.fft.ifft if a["inverse"] else np.fft.fft)(frames, n, 2)[:, :, : a["bins"]]
    return _f32(np.stack([y.real, y.imag], -1))


def _attention(graph: Graph, node: Node, q: Array, k: Array, v: Array, mask: Array | None = None) -> Array:
    repeat, (m, n) = q.shape[1] // k.shape[1], (q.shape[2], k.shape[2])
    k, v = (np.repeat(w.astype(np.float64), repeat, axis=1) for w in (k, v))
    scores = q.astype(np.float64) @ k.swapaxes(2, 3) * node.attrs["scale"]
    if cap := node.attrs["softcap"]:
        scores = cap * np.tanh(scores / cap)
    if mask is not None:
        scores = scores + mask
    if node.attrs["is_causal"]:
        behind = np.arange(m)[:, None] + node.attrs["past"] - np.arange(n)
        scores = np.where((behind >= 0) & (behind < (node.attrs["window"] or m + n + behind.max())), scores, -np.inf)
    top = scores.max(axis=-1, keepdims=True)
    shares = np.exp(scores - np.where(np.isneginf(top), 0, top))  # a row that sees nothing: zeros
    total = shares.sum(axis=-1, keepdims=True)
    return _f32((shares / np.where(total == 0, 1, total) @ v).swapaxes(1, 2))


def _unpacked(packed: Array, columns: int, hidden: int) -> tuple[Array, Array]:
    """Weights [columns, hidden] of the first panels, and what follows these."""
    count = -(-columns // NR)
    if packed.dtype == np.float32:
        end = count * NR * hidden
        panels = packed[:end].reshape(count, hidden, NR)
        return panels.transpose(0, 2, 1).reshape(-1, hidden)[:columns].astype(np.float64), packed[end:]
    form = FORMS["f16" if packed.dtype == np.float16 else "s8"]
    layout, stored = form.layout(hidden * NR), packed.view(np.uint8)
    parts = stored[: count * layout.end].reshape(count, layout.end)
    numbers = parts[:, layout.weights : layout.weights + hidden * NR * form.dtype.itemsize].copy().view(form.dtype)
    weights = numbers.reshape(count, hidden, NR).transpose(0, 2, 1).astype(np.float64)
    if form.scales:
        weights *= parts[:, layout.scales : layout.scales + NR * 4].copy().view(np.float32)[:, :, None]
    return weights.reshape(-1, hidden)[:columns], stored[count * layout.end :].view(packed.dtype)


def _rounded(h: Array) -> Array:
    """Values rounded to 8 bits by their range."""
    least, most = min(h.min(), 0), max(h.max(), 0)
    scale = (most - least) / 255 if most > least else 1
    zero = np.rint(-least / scale)
    return (np.clip(np.rint(h / scale) + zero, 0, 255) - zero) * scale


def _recurrent(
    graph: Graph, node: Node, x: Array, packed: Array, initial: Array, lengths: Array | None = None
) -> Array:
    batch, count = x.shape[1], initial.shape[1] // x.shape[1]
    if count > 1:  # each direction by itself
        parts = []
        for d, (own, inner, start) in enumerate(
            zip(np.split(x, 2, 2), np.split(packed, 2), np.split(initial, 2, 1), strict=True)
        ):
            one = Node(node.name, node.op, node.inputs, node.outputs, node.attrs | {"is_reverse": d})
            parts.append(_recurrent(graph, one, own, inner, start, lengths))
        return np.concatenate(parts, axis=1)
    if lengths is not None:  # each row by itself
        assert node.attrs["kind"] != "lstm_quantised"
        rows = []
        for b, given in enumerate(lengths.tolist()):
            own = _recurrent(graph, node, x[:given, b : b + 1], packed, initial[:, b : b + 1])
            rows.append(np.insert(own, [given] * (len(x) - given), 0, axis=0))
        return np.concatenate(rows, axis=1)
    kind, steps, n = str(node.attrs["kind"]), len(x), initial.shape[2]
    first = {"lstm": 4, "lstm_quantised": 4, "gru": 2, "gru_after": 2}.get(kind, 1) * n
    w, rest = _unpacked(packed, first, n)
    if kind.startswith("gru"):
        second, rest = _unpacked(rest, n, n)
    rest = rest.view(np.float32)
    h, c = initial[0].astype(np.float64), initial[-1].astype(np.float64)
    y = np.zeros((steps, batch, n))
    clip = float(node.attrs["clip"]) or np.inf

    def function(letter: str, v: Array) -> Array:
        kind, alpha, beta = (node.attrs[f"{letter}_{name}"] for name in ("act", "alpha", "beta"))
        return UNARY[kind](v if letter == "h" else np.clip(v, -clip, clip), alpha, beta)

    for t in range(steps)[:: -1 if node.attrs["is_reverse"] else 1]:
        g = x[t, :, :first] + (_rounded(h) if kind == "lstm_quantised" else h) @ w.T
        if kind.startswith("lstm"):
            look = rest.reshape(-1, n) if rest.size else np.zeros((3, n))
            i, f = (function("f", g[:, k * n : (k + 1) * n] + look[k] * c) for k in (0, 2))
            c = (1 - i if node.attrs["is_coupled"] else f) * c + i * function("g", g[:, 3 * n :])
            h = function("f", g[:, n : 2 * n] + look[1] * c) * function("h", c)
        elif kind.startswith("gru"):
            z, r = function("f", g[:, :n]), function("f", g[:, n:])
            inner = r * (h @ second.T + rest) if kind == "gru_after" else (r * h) @ second.T
            h = (1 - z) * function("g", x[t, :, 2 * n :] + inner) + z * h
        else:
            h = function("f", g)
        y[t] = h
    return _f32(np.concatenate([y, h[None], *([c[None]] if kind.startswith("lstm") else [])]))


def _quantize(
    graph: Graph, node: Node, x: Array, scale: Array, zero: Array | None = None, bias: Array | None = None
) -> Array:
    if zero is None and x.dtype == np.float32 and node.attrs["to"] == "u8":  # as byte_steps leaves them
        scale, zero = scale[:1], scale[1:]
    shape = [-1 if i == node.attrs["axis"] else 1 for i in range(x.ndim)] if scale.size > 1 else ()
    scale, zero = scale.reshape(shape), np.zeros((), np.int64) if zero is None else zero.reshape(shape).astype(np.int64)
    if node.attrs["to"] == "f32":
        return _f32((x.astype(np.int64) - zero) * scale.astype(np.float64))
    to = DTYPES[str(node.attrs["to"])]
    if x.dtype == np.int32:
        sums = x if bias is None else x + bias.reshape(shape)
        steps = np.rint(sums.astype(np.float32) * scale).astype(np.float64)
    else:
        steps = np.nan_to_num(np.rint(x / scale), posinf=1e6, neginf=-1e6)
    return np.clip(steps + zero, np.iinfo(to).min, np.iinfo(to).max).astype(to)


OPERATORS: dict[str, Callable[..., Array]] = {
    "conv": _conv,
    "dwconv": _conv,
    "pool": _pool,
    "unary": _unary,
    "binary": _binary,
    "softmax": _softmax,
    "reduce": _reduce,
    "lrn": _lrn,
    "instance_norm": _instance_norm,
    "resize": _resize,
    "resample": _resample,
    "copy": _copy,
    "pad": _pad,
    "depth_to_space": _depth_to_space,
    "gather": _gather,
    "gather_panels": _gather_panels,
    "cast": _cast,
    "matmul": _matmul,
    "recurrent": _recurrent,
    "fourier": _fourier,
    "trees": _trees,
    "quantize": _quantize,
    "layer_norm": _layer_norm,
    "rotary": _rotary,
    "attention": _attention,
    **reference_bytes.OPERATORS,
    **reference_indexing.OPERATORS,
    **reference_state.OPERATORS,
    **typed_reference.OPERATORS,
}
OPERATORS |= reference_half.operators_of(OPERATORS)

__all__ = ["BINARY", "OPERATORS", "REDUCE", "UNARY", "Tensor", "run_graph", "unpack"]
