"""EfficientNet-Lite0 (Tan & Le 2019, scaled for edge devices: no squeeze-and-excite, ReLU6) around trained weights.

Names of layers are the checkpoint's. Padding is TensorFlow's "same", as the weights were trained; pictures go in as
RGB, (byte − 127) / 128.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.models.checkpoint import read
from bench.models.net import Net, Value

BLOCKS = (  # repeats, kernel, stride, expansion, channels out
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
EPSILON = 1e-3


def from_checkpoint(content: bytes) -> bytes:
    """The ONNX model of a .pth file's bytes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        network(read(content)).write(path)
        return path.read_bytes()


def network(state: dict[str, NDArray[np.generic]]) -> Net:
    """The network with the weights of ``state``; ValueError if some are missing or left over."""
    left = dict(state)
    net = Net("efficientnet_lite0")

    def take(name: str) -> str:
        if name not in left:
            raise ValueError(f"the checkpoint lacks {name}")
        return net.constant(name, left.pop(name))

    def conv_norm(
        x: Value, conv: str, norm: str, channels: int, kernel: int, stride: int = 1, groups: int = 1
    ) -> Value:
        height, width = (-(-d // stride) for d in x.shape[2:])
        shape = (1, channels, height, width)
        y = net.add(
            "Conv",
            [x.name, take(f"{conv}.weight")],
            shape,
            1.0,
            kernel_shape=[kernel, kernel],
            strides=[stride, stride],
            group=groups,
            auto_pad="SAME_UPPER",
        )
        left.pop(f"{norm}.num_batches_tracked", None)
        parts = [take(f"{norm}.{part}") for part in ("weight", "bias", "running_mean", "running_var")]
        return net.add("BatchNormalization", [y.name, *parts], shape, 1.0, epsilon=EPSILON)

    x = net.relu6(conv_norm(net.input("input", 1, 3, 224, 224), "_conv_stem", "_bn0", 32, 3, 2))
    number = 0
    for repeats, kernel, first_stride, expansion, channels in BLOCKS:
        for repeat in range(repeats):
            stem, inner = f"_blocks.{number}.", x.shape[1] * expansion
            stride = first_stride if repeat == 0 else 1
            y = x
            if expansion != 1:
                y = net.relu6(conv_norm(y, stem + "_expand_conv", stem + "_bn0", inner, 1))
            y = net.relu6(conv_norm(y, stem + "_depthwise_conv", stem + "_bn1", inner, kernel, stride, inner))
            y = conv_norm(y, stem + "_project_conv", stem + "_bn2", channels, 1)
            x = net.add_values(x, y) if repeat else y
            number += 1
    x = net.relu6(conv_norm(x, "_conv_head", "_bn1", 1280, 1))
    x = net.flatten(net.global_pool(x))
    x = net.add("Gemm", [x.name, take("_fc.weight"), take("_fc.bias")], (1, 1000), 1.0, transB=1)
    net.output(x.name, x.shape)
    if left:
        raise ValueError(f"the checkpoint has {len(left)} tensors that the network has not, such as {next(iter(left))}")
    return net
