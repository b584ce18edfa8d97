"""Networks for segmentation, whose activations outweigh their weights: each level is read again when the map has come
back to its size. Random weights; pictures of 1,024² at the published widths.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench import MODELS
from bench.models.net import Net, Value


def _conv(net: Net, x: Value, width: int) -> Value:
    return net.relu(net.conv(x, width, 3, pad=1))


def _resized(net: Net, x: Value, factor: int, mode: str) -> Value:
    n, c, height, width = x.shape
    scales = net.constant(f"scales{net.counts.get('Resize', -1) + 1}", _scales(factor))
    how = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"} if mode == "nearest" else {}
    return net.add("Resize", [x.name, "", scales], (n, c, height * factor, width * factor), x.moment, mode=mode, **how)


def _scales(factor: int) -> NDArray[np.float32]:
    return np.array([1, 1, factor, factor], np.float32)


def unet(net: Net, size: int = 1024, base: int = 64, levels: int = 4, classes: int = 1) -> Value:
    """Ronneberger et al. 2015, figure 1, padded, with Resize and a convolution in place of transposed ones. Several
    classes are left as they are.
    """
    x = net.input("input", 1, 3, size, size)
    skips = []
    for level in range(levels):
        x = _conv(net, _conv(net, x, base << level), base << level)
        skips.append(x)
        x = net.pool(x, "MaxPool", 2, 2)
    x = _conv(net, _conv(net, x, base << levels), base << levels)
    for level in reversed(range(levels)):
        up = net.conv(_resized(net, x, 2, "nearest"), base << level, 3, pad=1)
        x = net.concat(skips[level], up)
        x = _conv(net, _conv(net, x, base << level), base << level)
    result = net.conv(x, classes, 1)
    return result if classes > 1 else net.add("Sigmoid", [result.name], (1, 1, size, size), 0.3)


def strided(net: Net, size: int = 512, base: int = 64, classes: int = 21) -> Value:
    """A head of classes at an eighth of the size, resized at the end, as in Chen et al. 2017 (DeepLabv3)."""
    x = net.input("input", 1, 3, size, size)
    for width, stride in ((base // 4, 2), (base // 2, 2), (base, 2), (base, 1), (base, 1)):
        x = net.relu(net.conv(x, width, 3, stride, pad=1))
    return _resized(net, net.conv(x, classes, 1), 8, "linear")


def _nested(net: Net, x: Value, depth: int, middle: int, out: int) -> Value:
    """A residual U-block: a small U-Net whose result is added to its first map."""
    first = _conv(net, x, out)
    y, skips = first, []
    for _ in range(depth - 1):
        y = _conv(net, y, middle)
        skips.append(y)
        y = net.pool(y, "MaxPool", 2, 2, ceil=True)
    y = _conv(net, _conv(net, y, middle), middle)
    for skip in reversed(skips):
        y = _conv(net, net.concat(skip, _resized(net, y, 2, "linear")), out if skip is skips[0] else middle)
    return net.add_values(first, y)


def u2net(net: Net, size: int = 1024, base: int = 64) -> Value:
    """A network of the kind of Qin et al. 2020: U-blocks in a U, one map for each level, all fused at full size."""
    x = net.input("input", 1, 3, size, size)
    widths = ((base // 2, base), (base // 2, 2 * base), (base, 4 * base), (2 * base, 8 * base))
    skips = []
    for level, (middle, out) in enumerate(widths):
        x = _nested(net, x, 5 - level, middle, out)
        skips.append(x)
        x = net.pool(x, "MaxPool", 2, 2)
    x = _nested(net, x, 2, 4 * base, 8 * base)
    sides = [x]
    for level in reversed(range(len(widths))):
        middle, out = widths[level]
        x = _nested(net, net.concat(skips[level], _resized(net, x, 2, "linear")), 5 - level, middle, out)
        sides.append(x)
    maps = []
    for side in sides:
        one = net.conv(side, 1, 3, pad=1)
        maps.append(one if one.shape[2] == size else _resized(net, one, size // one.shape[2], "linear"))
    return net.add("Sigmoid", [net.conv(net.concat(*maps), 1, 1).name], (1, 1, size, size), 0.3)


NETS = {"unet": unet, "u2net": u2net, "strided": strided}


def build(name: str, folder: Path = MODELS, **sizes: int) -> Path:
    """Makes sure that the named network lies in ``folder``; its path."""
    net = Net("_".join([name, *(f"{key}{value}" for key, value in sizes.items())]))
    path = folder / f"{net.name}.onnx"
    if not path.is_file():
        result = NETS[name](net, **sizes)
        net.output(result.name, result.shape)
        folder.mkdir(parents=True, exist_ok=True)
        net.write(path)
    return path
