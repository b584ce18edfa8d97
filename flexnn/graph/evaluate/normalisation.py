"""Normalisations."""

from __future__ import annotations

from math import prod

import numpy as np

from ..ir import Array
from .call import Call, evaluates


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
    more: list[Array] = []
    if call.integer("training_mode", 0):
        momentum, axes = call.number("momentum", 0.9), tuple(i for i in range(x.ndim) if i != 1)
        own_mean, own_variance = np.mean(x, axes), np.var(x, axes)
        more = [
            np.asarray(mean * momentum + own_mean * (1 - momentum), mean.dtype),
            np.asarray(variance * momentum + own_variance * (1 - momentum), variance.dtype),
        ]
        mean, variance = own_mean, own_variance
    elif call.opset < 14 and call.outputs > 1:
        raise call.error("running statistics are not supported (inference only)")
    parts = [_per_channel(v, x.ndim) for v in (mean, variance, scale, bias)]
    y = (x - parts[0]) / np.sqrt(parts[1] + x.dtype.type(epsilon)) * parts[2] + parts[3]
    return [np.asarray(y, x.dtype), *more]


@evaluates("InstanceNormalization")
def instance(call: Call) -> list[Array]:
    """Statistics over the spatial dimensions."""
    x = call.x(0)
    axes = tuple(range(2, x.ndim))
    y = (x - np.mean(x, axes, keepdims=True)) / np.sqrt(np.var(x, axes, keepdims=True) + call.number("epsilon", 1e-5))
    return [np.asarray(y * _per_channel(call.x(1), x.ndim) + _per_channel(call.x(2), x.ndim), x.dtype)]


@evaluates("GroupNormalization")
def group(call: Call) -> list[Array]:
    """Statistics over groups of channels; scale and bias for each channel, before opset 21 for each group."""
    x, scale, bias, groups = call.x(0), call.x(1), call.x(2), call.integer("num_groups", 0)
    if x.ndim < 2 or groups < 1 or x.shape[1] % groups:
        raise call.error(f"input {x.shape} does not divide into num_groups {groups}")
    each = x.astype(np.float32 if call.integer("stash_type", 1) == 1 else x.dtype).reshape(x.shape[0], groups, -1)
    mean, variance = each.mean(2, keepdims=True), each.var(2, keepdims=True)
    y = ((each - mean) / np.sqrt(variance + call.number("epsilon", 1e-5))).astype(x.dtype).reshape(x.shape)
    if call.opset < 21:
        scale, bias = (np.repeat(v, x.shape[1] // groups) for v in (scale, bias))
    return [np.asarray(y * _per_channel(scale, x.ndim) + _per_channel(bias, x.ndim), x.dtype)]


@evaluates("LayerNormalization")
def layer(call: Call) -> list[Array]:
    """Over the axes from one on; also the mean and the reciprocal of the deviation."""
    x, scale, bias = call.x(0), call.x(1), call.get(2)
    axis = call.axis(call.integer("axis", -1), x.ndim)
    axes, work = tuple(range(axis, x.ndim)), x.astype(np.float32) if x.dtype == np.float16 else x
    mean = np.mean(work, axes, keepdims=True)
    inverse = 1 / np.sqrt(np.mean((work - mean) ** 2, axes, keepdims=True) + call.number("epsilon", 1e-5))
    y = ((work - mean) * inverse).astype(x.dtype) * scale
    results = [np.asarray(y if bias is None else y + bias, x.dtype), mean, inverse]
    return [results[0], *(np.asarray(r, work.dtype) for r in results[1:])]


@evaluates("RMSNormalization")
def root_mean_square(call: Call) -> list[Array]:
    """Divided by the root of the mean square over the axes from one on."""
    x, scale = call.x(0), call.x(1)
    axis = call.axis(call.integer("axis", -1), x.ndim)
    axes, work = tuple(range(axis, x.ndim)), x.astype(np.float32) if x.dtype == np.float16 else x
    y = work / np.sqrt(np.mean(work * work, axes, keepdims=True) + call.number("epsilon", 1e-5))
    return [np.asarray(y.astype(x.dtype) * scale, x.dtype)]


@evaluates("LRN")
def local_response(call: Call) -> list[Array]:
    """Divided by a power of the sum of squares of neighbouring channels."""
    x, size = call.x(0), call.integer("size", 1)
    if x.ndim < 2 or size < 1:
        raise call.error(f"input {x.shape}, size {size}")
    total = np.zeros(x.shape, x.dtype)
    for shift in range(-((size - 1) // 2), size - 1 - (size - 1) // 2 + 1):
        low, high = max(0, -shift), min(x.shape[1], x.shape[1] - shift)
        if low < high:
            total[:, low:high] += x[:, low + shift : high + shift] ** 2
    alpha, beta, bias = call.number("alpha", 1e-4), call.number("beta", 0.75), call.number("bias", 1.0)
    return [np.asarray(x / (bias + alpha / size * total) ** beta, x.dtype)]


@evaluates("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
def losses(call: Call) -> list[Array]:
    """The loss of the labels' scores (or log probabilities), weighted, without ignored labels."""
    x, labels, weight = call.x(0), call.x(1), call.get(2)
    reduction = call.text("reduction", "mean")
    if x.ndim < 2 or labels.shape != (x.shape[0], *x.shape[2:]) or reduction not in ("none", "sum", "mean"):
        raise call.error(f"scores {x.shape}, labels {labels.shape} and reduction {reduction!r} do not fit together")
    log = x
    if call.op == "SoftmaxCrossEntropyLoss":
        shifted = x - np.max(x, 1, keepdims=True)
        log = shifted - np.log(np.sum(np.exp(shifted), 1, keepdims=True))
    kept = labels != call.integer("ignore_index", 0) if call.has("ignore_index") else np.ones(labels.shape, np.bool_)
    if ((labels < 0) | (labels >= x.shape[1]))[kept].any():
        raise call.error(f"a label is outside [0, {x.shape[1] - 1}]")
    own = np.where(kept, labels, 0).astype(np.int64)
    shares = np.where(kept, 1 if weight is None else weight[own], 0).astype(x.dtype)
    loss = -np.take_along_axis(log, own[:, None], 1)[:, 0] * shares
    if reduction != "none":
        loss = np.sum(loss) / (np.sum(shares) if reduction == "mean" and prod(shares.shape) else 1)
    return [np.asarray(loss, x.dtype), np.asarray(log, x.dtype)][: max(call.outputs, 1)]
