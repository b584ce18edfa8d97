"""The classic CNNs, as ``Net``s with random weights.

``thin`` divides every width and ``deep`` cuts every repetition: 1 and full depth give the published networks; the
small variants keep each topology for fast tests. Shapes follow torchvision unless said (names of layers do not).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bench.models.net import Net, Value


@dataclass(frozen=True, slots=True)
class Scale:
    """How much of the published network is built."""

    size: int
    """Height and width of the input picture."""
    thin: int = 1
    """Every width is divided by this."""
    deep: int = 99
    """Every repetition of blocks is at most this."""

    def width(self, channels: int) -> int:
        return max(4, channels // self.thin)

    def repeats(self, count: int) -> int:
        return min(count, self.deep)

    @property
    def classes(self) -> int:
        return 1000 // self.thin


def vgg19(net: Net, s: Scale) -> Value:
    """Simonyan & Zisserman 2015, table 1, configuration E; dropout is gone in inference."""
    x = net.input("input", 1, 3, s.size, s.size)
    for width, count in ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4)):
        for _ in range(s.repeats(count)):
            x = net.relu(net.conv(x, s.width(width), 3, pad=1))
        x = net.pool(x, "MaxPool", 2, 2)
    x = net.flatten(x)
    for _ in range(2):
        x = net.relu(net.gemm(x, s.width(4096)))
    return net.gemm(x, s.classes, gain=1.0)


def _residual_net(net: Net, s: Scale, depths: tuple[int, ...], base: int, groups: int, apart: bool) -> Value:
    """He et al. 2016 with the stride in the 3×3 (v1.5); ``base``: width of the first bottleneck's middle; ``apart``:
    a grouped convolution becomes Split, one Conv for each group, Concat."""

    def conv_norm(x: Value, width: int, kernel: int, stride: int = 1, g: int = 1, gamma: float = 1.0) -> Value:
        if g > 1 and apart:
            parts = [net.conv(p, width // g, kernel, stride, kernel // 2, bias=False) for p in net.split(x, g)]
            return net.norm(net.concat(*parts), gamma=gamma)
        return net.norm(net.conv(x, width, kernel, stride, kernel // 2, groups=g, bias=False), gamma=gamma)

    x = net.input("input", 1, 3, s.size, s.size)
    x = net.relu(conv_norm(x, s.width(64), 7, 2))
    x = net.pool(x, "MaxPool", 3, 2, pad=1)
    groups = max(1, groups // s.thin) if groups > 1 else 1
    for stage, count in enumerate(depths):
        middle, wide = s.width(base << stage), s.width(256 << stage)
        for block in range(s.repeats(count)):
            stride = 2 if stage and block == 0 else 1
            y = net.relu(conv_norm(x, middle, 1))
            y = net.relu(conv_norm(y, middle, 3, stride, groups))
            y = conv_norm(y, wide, 1, gamma=0.3)
            shortcut = conv_norm(x, wide, 1, stride) if block == 0 else x
            x = net.relu(net.add_values(y, shortcut), kept=0.5 if block == 0 else 1.0)
    return net.gemm(net.flatten(net.global_pool(x)), s.classes, gain=1.0)


def resnet152(net: Net, s: Scale) -> Value:
    return _residual_net(net, s, (3, 8, 36, 3), 64, 1, apart=False)


def resnext50(net: Net, s: Scale) -> Value:
    """Xie et al. 2017, 32×4d."""
    return _residual_net(net, s, (3, 4, 6, 3), 128, 32, apart=False)


def resnext50_split(net: Net, s: Scale) -> Value:
    """The same with each group a Conv of its own (Xie et al. 2017, fig. 3b)."""
    return _residual_net(net, s, (3, 4, 6, 3), 128, 32, apart=True)


def mobilenet_v2(net: Net, s: Scale) -> Value:
    """Sandler et al. 2018, table 2."""

    def conv_norm(x: Value, width: int, kernel: int, stride: int = 1, groups: int = 1, gamma: float = 1.0) -> Value:
        return net.norm(net.conv(x, width, kernel, stride, kernel // 2, groups, bias=False), gamma=gamma)

    x = net.input("input", 1, 3, s.size, s.size)
    x = net.relu6(conv_norm(x, s.width(32), 3, 2))
    rows = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
    for expand, width, count, first_stride in rows:
        for block in range(s.repeats(count)):
            stride = first_stride if block == 0 else 1
            inner = x.shape[1] * expand
            y = x if expand == 1 else net.relu6(conv_norm(x, inner, 1))
            y = net.relu6(conv_norm(y, inner, 3, stride, groups=inner))
            linked = stride == 1 and x.shape[1] == s.width(width)
            y = conv_norm(y, s.width(width), 1, gamma=0.3 if linked else 1.0)
            x = net.add_values(x, y) if linked else y
    x = net.relu6(conv_norm(x, s.width(1280), 1))
    return net.gemm(net.flatten(net.global_pool(x)), s.classes, gain=1.0)


def squeezenet1_1(net: Net, s: Scale) -> Value:
    """Iandola et al. 2016, version 1.1; the classifier is a convolution."""
    x = net.input("input", 1, 3, s.size, s.size)
    x = net.relu(net.conv(x, s.width(64), 3, 2))
    for fires in (((16, 64),) * 2, ((32, 128),) * 2, ((48, 192), (48, 192), (64, 256), (64, 256))):
        x = net.pool(x, "MaxPool", 3, 2, ceil=True)
        for squeeze, wide in fires:
            y = net.relu(net.conv(x, s.width(squeeze), 1))
            left = net.relu(net.conv(y, s.width(wide), 1))
            right = net.relu(net.conv(y, s.width(wide), 3, pad=1))
            x = net.concat(left, right)
    x = net.relu(net.conv(x, s.classes, 1))
    return net.flatten(net.global_pool(x))


def googlenet(net: Net, s: Scale) -> Value:
    """Szegedy et al. 2015, table 1, with the local response normalisations of the paper, no auxiliary heads."""

    def conv(x: Value, width: int, kernel: int, stride: int = 1) -> Value:
        return net.relu(net.conv(x, s.width(width), kernel, stride, kernel // 2))

    x = net.input("input", 1, 3, s.size, s.size)
    x = net.lrn(net.pool(conv(x, 64, 7, 2), "MaxPool", 3, 2, ceil=True))
    x = net.lrn(conv(conv(x, 64, 1), 192, 3))
    stages = (
        ((64, 96, 128, 16, 32, 32), (128, 128, 192, 32, 96, 64)),
        (
            (192, 96, 208, 16, 48, 64),
            (160, 112, 224, 24, 64, 64),
            (128, 128, 256, 24, 64, 64),
            (112, 144, 288, 32, 64, 64),
            (256, 160, 320, 32, 128, 128),
        ),
        ((256, 160, 320, 32, 128, 128), (384, 192, 384, 48, 128, 128)),
    )
    for stage in stages:
        x = net.pool(x, "MaxPool", 3, 2, ceil=True)
        for one, squeeze3, three, squeeze5, five, pooled in stage[: s.repeats(len(stage))]:
            x = net.concat(
                conv(x, one, 1),
                conv(conv(x, squeeze3, 1), three, 3),
                conv(conv(x, squeeze5, 1), five, 5),
                conv(net.pool(x, "MaxPool", 3, 1, pad=1), pooled, 1),
            )
    x = net.gemm(net.flatten(net.global_pool(x)), s.classes, gain=1.0)
    return net.add("Softmax", [x.name], x.shape, 1.0, axis=1)


def xception(net: Net, s: Scale) -> Value:
    """Chollet 2017, fig. 5, padding as in Keras ("same")."""

    def separable(x: Value, width: int, gamma: float = 1.0) -> Value:
        y = net.conv(x, x.shape[1], 3, pad="same", groups=x.shape[1], bias=False, gain=1.0)
        return net.norm(net.conv(y, s.width(width), 1, bias=False), eps=1e-3, gamma=gamma)

    def down(x: Value, first: int, second: int, leading: bool) -> Value:
        y = separable(net.relu(x) if leading else x, first)
        y = net.pool(separable(net.relu(y), second, gamma=0.5), "MaxPool", 3, 2, pad="same")
        shortcut = net.norm(net.conv(x, s.width(second), 1, 2, bias=False), eps=1e-3)
        return net.add_values(y, shortcut)

    x = net.input("input", 1, 3, s.size, s.size)
    x = net.relu(net.norm(net.conv(x, s.width(32), 3, 2, bias=False), eps=1e-3))
    x = net.relu(net.norm(net.conv(x, s.width(64), 3, bias=False), eps=1e-3))
    for width in (128, 256, 728):
        x = down(x, width, width, leading=width != 128)
    for _ in range(s.repeats(8)):
        y = x
        for i in range(3):
            y = separable(net.relu(y), 728, gamma=0.3 if i == 2 else 1.0)
        x = net.add_values(y, x)
    x = down(x, 728, 1024, leading=True)
    x = net.relu(separable(x, 1536))
    x = net.relu(separable(x, 2048))
    return net.gemm(net.flatten(net.global_pool(x)), s.classes, gain=1.0)


def inception_v3(net: Net, s: Scale) -> Value:
    """Szegedy et al. 2016, without the auxiliary head."""

    def conv(
        x: Value, width: int, kernel: int | tuple[int, int], stride: int = 1, pad: int | tuple[int, int] = 0
    ) -> Value:
        return net.relu(net.norm(net.conv(x, s.width(width), kernel, stride, pad, bias=False), eps=1e-3))

    def pooled(x: Value, width: int) -> Value:
        return conv(net.pool(x, "AveragePool", 3, 1, pad=1, counted=True), width, 1)

    def block_a(x: Value, width: int) -> Value:
        five = conv(conv(x, 48, 1), 64, 5, pad=2)
        three = conv(conv(conv(x, 64, 1), 96, 3, pad=1), 96, 3, pad=1)
        return net.concat(conv(x, 64, 1), five, three, pooled(x, width))

    def block_b(x: Value) -> Value:
        three = conv(conv(conv(x, 64, 1), 96, 3, pad=1), 96, 3, 2)
        return net.concat(conv(x, 384, 3, 2), three, net.pool(x, "MaxPool", 3, 2))

    def block_c(x: Value, width: int) -> Value:
        row, column = (1, 7), (7, 1)
        seven = conv(conv(conv(x, width, 1), width, row, pad=(0, 3)), 192, column, pad=(3, 0))
        double = conv(conv(x, width, 1), width, column, pad=(3, 0))
        double = conv(conv(double, width, row, pad=(0, 3)), width, column, pad=(3, 0))
        double = conv(double, 192, row, pad=(0, 3))
        return net.concat(conv(x, 192, 1), seven, double, pooled(x, 192))

    def block_d(x: Value) -> Value:
        three = conv(conv(x, 192, 1), 320, 3, 2)
        seven = conv(conv(conv(x, 192, 1), 192, (1, 7), pad=(0, 3)), 192, (7, 1), pad=(3, 0))
        return net.concat(three, conv(seven, 192, 3, 2), net.pool(x, "MaxPool", 3, 2))

    def block_e(x: Value) -> Value:
        three = conv(x, 384, 1)
        double = conv(conv(x, 448, 1), 384, 3, pad=1)
        parts = [conv(x, 320, 1)]
        for y in (three, double):
            parts.append(net.concat(conv(y, 384, (1, 3), pad=(0, 1)), conv(y, 384, (3, 1), pad=(1, 0))))
        return net.concat(*parts, pooled(x, 192))

    x = net.input("input", 1, 3, s.size, s.size)
    x = conv(conv(conv(x, 32, 3, 2), 32, 3), 64, 3, pad=1)
    x = net.pool(x, "MaxPool", 3, 2)
    x = conv(conv(x, 80, 1), 192, 3)
    x = net.pool(x, "MaxPool", 3, 2)
    for width in (32, 64, 64)[: s.repeats(3)]:
        x = block_a(x, width)
    x = block_b(x)
    for width in (128, 160, 160, 192)[: s.repeats(4)]:
        x = block_c(x, width)
    x = block_d(x)
    for _ in range(s.repeats(2)):
        x = block_e(x)
    return net.gemm(net.flatten(net.global_pool(x)), s.classes, gain=1.0)


@dataclass(frozen=True, slots=True)
class Entry:
    """A network of the zoo."""

    build: Callable[[Net, Scale], Value]
    full: Scale
    small: Scale
    parameters: int
    """Of the full network: the published count."""


ZOO = {
    "vgg19": Entry(vgg19, Scale(224), Scale(64, 8, 2), 143_667_240),
    "resnet152": Entry(resnet152, Scale(224), Scale(64, 4, 2), 60_192_808),
    "mobilenet_v2": Entry(mobilenet_v2, Scale(224), Scale(64, 2, 2), 3_504_872),
    "squeezenet1_1": Entry(squeezenet1_1, Scale(224), Scale(64, 4), 1_235_496),
    "resnext50": Entry(resnext50, Scale(224), Scale(64, 4, 2), 25_028_904),
    "resnext50_split": Entry(resnext50_split, Scale(224), Scale(64, 4, 2), 25_028_904),
    "googlenet": Entry(googlenet, Scale(224), Scale(64, 4, 2), 6_998_552),
    "xception": Entry(xception, Scale(299), Scale(64, 8, 2), 22_855_952),
    "inception_v3": Entry(inception_v3, Scale(299), Scale(96, 4, 1), 23_834_568),
}


def make(name: str, small: bool = False) -> Net:
    """The named network; ``small``: its thin, shallow variant, named with ``_small``."""
    entry = ZOO[name]
    net = Net(name + "_small" if small else name)
    result = entry.build(net, entry.small if small else entry.full)
    net.output(result.name, result.shape)
    return net
