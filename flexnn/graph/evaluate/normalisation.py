"""Normalisations."""

from __future__ import annotations

from math import prod

import numpy as np

from ..ir import Array
from .blocks import ELEMENTS, fill, summed, work_bytes
from .call import Call, copied, evaluates
from .reduction import log_softmax, moments


def _per_channel(values: Array, rank: int) -> Array:
    return values.reshape(-1, *[1] * (rank - 2))


@evaluates("BatchNormalization")
def batch(call: Call) -> list[Array]:
    """Normalise by given statistics; with training_mode, by those of the batch, which are then outputs too."""
    x = call.x(0)
    scale, bias, mean, variance = (call.x(i) for i in range(1, 5))
    epsilon = call.number("epsilon", 1e-5)
    if x.ndim < 2 or any(v.shape != x.shape[1:2] for v in (scale, bias, mean, variance)):
        raise call.error(f"input {x.shape} and statistics {scale.shape}, {mean.shape} do not fit together")
    training = call.integer("training_mode", 0)
    if not training and call.opset < 14 and call.outputs > 1:
        raise call.error("running statistics are not supported (inference only)")
    call.reserve((x.shape, x.dtype), workspace=work_bytes(x.size) + 80 * x.shape[1])
    more: list[Array] = []
    if training:
        momentum, axes = call.number("momentum", 0.9), tuple(i for i in range(x.ndim) if i != 1)
        own_mean, own_variance = (v.astype(x.dtype).reshape(-1) for v in moments(x, axes, _work(x)))
        more = [
            np.asarray(mean * momentum + own_mean * (1 - momentum), mean.dtype),
            np.asarray(variance * momentum + own_variance * (1 - momentum), variance.dtype),
        ]
        mean, variance = own_mean, own_variance
    deviation = np.sqrt(variance + x.dtype.type(epsilon))
    parts = [_per_channel(v, x.ndim) for v in (mean, deviation, scale, bias)]
    y = fill(np.empty(x.shape, x.dtype), lambda v, m, d, s, b: (v - m) / d * s + b, x, *parts)
    return [y, *more]


def _work(x: Array) -> np.dtype:
    """The type that statistics are computed in."""
    return np.promote_types(x.dtype, np.float32)


@evaluates("InstanceNormalization")
def instance(call: Call) -> list[Array]:
    """Statistics over the spatial dimensions."""
    x = call.x(0)
    axes = tuple(range(2, x.ndim))
    call.reserve((x.shape, x.dtype), workspace=work_bytes(x.size) + 48 * prod(x.shape[:2]))
    mean, variance = moments(x, axes, _work(x))
    deviation = np.sqrt(variance + call.number("epsilon", 1e-5))
    parts = mean, deviation, *(_per_channel(call.x(i), x.ndim) for i in (1, 2))
    return [fill(np.empty(x.shape, x.dtype), lambda v, m, d, s, b: (v - m) / d * s + b, x, *parts)]


@evaluates("GroupNormalization")
def group(call: Call) -> list[Array]:
    """Statistics over groups of channels; scale and bias for each channel, before opset 21 for each group."""
    x, scale, bias, groups = call.x(0), call.x(1), call.x(2), call.integer("num_groups", 0)
    if x.ndim < 2 or groups < 1 or x.shape[1] % groups:
        raise call.error(f"input {x.shape} does not divide into num_groups {groups}")
    work = 32 * x.shape[1] + 48 * x.shape[0] * groups + copied(x)
    call.reserve((x.shape, x.dtype), workspace=work_bytes(x.size) + work)
    each = x.reshape(x.shape[0], groups, -1)
    stash = np.dtype(np.float32) if call.integer("stash_type", 1) == 1 else _work(x)
    mean, variance = moments(each, (2,), stash)
    y = np.empty(x.shape, x.dtype)
    deviation = np.sqrt(variance + call.number("epsilon", 1e-5))
    fill(y.reshape(each.shape), lambda v, m, d: (v - m) / d, each, mean, deviation)
    if call.opset < 21:
        scale, bias = (np.repeat(v, x.shape[1] // groups) for v in (scale, bias))
    return [fill(y, lambda v, s, b: v * s + b, y, _per_channel(scale, x.ndim), _per_channel(bias, x.ndim))]


@evaluates("LayerNormalization")
def layer(call: Call) -> list[Array]:
    """Over the axes from one on; also the mean and the reciprocal of the deviation."""
    x, scale, bias = call.x(0), call.x(1), call.get(2)
    axis = call.axis(call.integer("axis", -1), x.ndim)
    axes, kind = tuple(range(axis, x.ndim)), _work(x)
    call.reserve((x.shape, x.dtype), workspace=work_bytes(x.size) + 48 * prod(x.shape[:axis]))
    mean, inverse = moments(x, axes, kind)
    inverse += call.number("epsilon", 1e-5)
    np.divide(1, np.sqrt(inverse, out=inverse), out=inverse)
    y = np.empty(x.shape, x.dtype)
    if bias is None:
        fill(y, lambda v, m, i, s: ((v - m) * i).astype(x.dtype) * s, x, mean, inverse, scale)
    else:
        fill(y, lambda v, m, i, s, b: ((v - m) * i).astype(x.dtype) * s + b, x, mean, inverse, scale, bias)
    return [y, mean, inverse]


@evaluates("RMSNormalization")
def root_mean_square(call: Call) -> list[Array]:
    """Divided by the root of the mean square over the axes from one on."""
    x, scale = call.x(0), call.x(1)
    axis = call.axis(call.integer("axis", -1), x.ndim)
    axes = tuple(range(axis, x.ndim))
    call.reserve((x.shape, x.dtype), workspace=work_bytes(x.size) + 32 * prod(x.shape[:axis]))
    square = summed(x, axes, lambda v: np.square(v.astype(_work(x), copy=False)), _work(x)) / prod(x.shape[axis:])
    root = np.sqrt(square + call.number("epsilon", 1e-5))
    return [fill(np.empty(x.shape, x.dtype), lambda v, r, s: (v / r).astype(x.dtype) * s, x, root, scale)]


@evaluates("LRN")
def local_response(call: Call) -> list[Array]:
    """Divided by a power of the sum of squares of neighbouring channels."""
    x, size = call.x(0), call.integer("size", 1)
    if x.ndim < 2 or size < 1:
        raise call.error(f"input {x.shape}, size {size}")
    alpha, beta, bias = call.number("alpha", 1e-4), call.number("beta", 0.75), call.number("bias", 1.0)
    before, after = (size - 1) // 2, size - 1 - (size - 1) // 2
    channel = x.size // max(x.shape[1], 1)
    call.reserve((x.shape, x.dtype), workspace=8 * channel + work_bytes(channel))
    y = np.empty(x.shape, x.dtype)
    total = np.empty((x.shape[0], *x.shape[2:]), x.dtype)
    for c in range(x.shape[1]):
        total[...] = 0
        for near in range(max(0, c - before), min(x.shape[1], c + after + 1)):
            fill(total, lambda t, v: t + v**2, total, x[:, near])
        fill(y[:, c], lambda v, t: v / (bias + alpha / size * t) ** beta, x[:, c], total)
    return [y]


@evaluates("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
def losses(call: Call) -> list[Array]:
    """The loss of the labels' scores (or log probabilities), weighted, without ignored labels."""
    x, labels, weight = call.x(0), call.x(1), call.get(2)
    reduction = call.text("reduction", "mean")
    if x.ndim < 2 or labels.shape != (x.shape[0], *x.shape[2:]) or reduction not in ("none", "sum", "mean"):
        raise call.error(f"scores {x.shape}, labels {labels.shape} and reduction {reduction!r} do not fit together")
    entropy = call.op == "SoftmaxCrossEntropyLoss"
    work = 72 * labels.size + 24 * x.shape[0] + 16 * ELEMENTS
    call.reserve(*[(x.shape, x.dtype)] * entropy, workspace=work)
    log = log_softmax(x, 1) if entropy else x
    kept = labels != call.integer("ignore_index", 0) if call.has("ignore_index") else np.ones(labels.shape, np.bool_)
    if ((labels < 0) | (labels >= x.shape[1]))[kept].any():
        raise call.error(f"a label is outside [0, {x.shape[1] - 1}]")
    own = np.where(kept, labels, 0).astype(np.int64)
    shares = np.where(kept, 1 if weight is None else weight[own], 0).astype(x.dtype)
    loss = -np.take_along_axis(log, own[:, None], 1)[:, 0] * shares
    if reduction != "none":
        loss = np.sum(loss) / (np.sum(shares) if reduction == "mean" and prod(shares.shape) else 1)
    return [np.asarray(loss, x.dtype), np.asarray(log, x.dtype)][: max(call.outputs, 1)]
