"""Graphs as the artifact's reader gives them, without an artifact: sizes and places of weights, no bytes."""

from __future__ import annotations

import random

from flexnn.graph import operators
from flexnn.graph.ir import RAW_CHUNK_BYTES, Attr, Graph, Node, Tensor, Weight
from flexnn.graph.panels import NR, conv_cin_panel

PAGE = 4096
CIN_BLOCK = 64


class Builder:
    """Adds nodes one by one; tensors are named by their index."""

    def __init__(self) -> None:
        self.graph = Graph()
        self.file_at = PAGE
        self.chunks = 0

    def tensor(self, shape: tuple[int, ...], **fields: object) -> int:
        self.graph.tensors.append(Tensor(f"t{len(self.graph.tensors)}", shape, **fields))  # type: ignore[arg-type]
        return len(self.graph.tensors) - 1

    def view(self, root: int, shape: tuple[int, ...], offset: int = 0, strides: tuple[int, ...] = ()) -> int:
        owner = self.graph.tensors[root]
        base = owner.offset + offset
        return self.tensor(shape, root=self.graph.root(root), offset=base, strides=strides)

    def input(self, *shape: int) -> int:
        self.graph.inputs.append(self.tensor(shape))
        return self.graph.inputs[-1]

    def weight(self, kind: str, nbytes: int, chunk: int) -> int:
        stored = Weight(f"w{len(self.graph.weights)}", kind, nbytes, chunk, offset=self.file_at, crc_first=self.chunks)
        self.file_at += -(-nbytes // PAGE) * PAGE
        self.chunks += stored.chunks
        self.graph.weights.append(stored)
        return len(self.graph.weights) - 1

    def constant(self, *shape: int) -> int:
        at = self.tensor(shape)
        nbytes = self.graph.tensors[at].nbytes
        self.graph.tensors[at].weight = self.weight("raw", nbytes, RAW_CHUNK_BYTES)
        return at

    def node(self, op: str, inputs: list[int], attrs: dict[str, Attr], out: int = -1, weight: int = -1) -> int:
        node = Node(f"n{len(self.graph.nodes)}", op, inputs, [out], attrs, weight)
        if out < 0:
            ((shape, dtype),) = operators.infer(self.graph, node)
            node.outputs = [self.tensor(shape, dtype=dtype)]
        operators.check(node)
        self.graph.nodes.append(node)
        return node.outputs[0]

    def conv(
        self,
        x: int,
        cout: int,
        k: int = 3,
        s: int = 1,
        group: int = 1,
        residual: int = -1,
        out: int = -1,
        pad: int = -1,
        dilation: int = 1,
    ) -> int:
        """A convolution with its panels; ``residual`` is added in place (the output takes its storage)."""
        cin = self.graph.tensors[x].shape[-1]
        p = k // 2 * dilation if pad < 0 else pad
        depthwise = group == cin == cout and group > 1
        attrs: dict[str, Attr] = {"kernel": [k, k], "strides": [s, s], "dilations": [dilation] * 2, "pads": [p] * 4}
        attrs |= {"act": "relu", "alpha": 0.0, "beta": 0.0, "wtype": "f32", "sums": "f32"}
        cin_panel = 1 if depthwise else conv_cin_panel(cout, cin // group, group)
        if not depthwise:
            attrs |= {"group": group, "cout": cout, "cin_block": min(CIN_BLOCK, cin_panel)}
        panel = 4 * NR * (1 + k * k * cin_panel)
        weight = self.weight("panels", panel * -(-cout // NR), panel)
        inputs = [x] if residual < 0 else [x, residual]
        if residual >= 0 and out < 0:
            out = self.view(residual, self.graph.tensors[residual].shape)
        return self.node("dwconv" if depthwise else "conv", inputs, attrs, out, weight)

    def pool(self, x: int, k: int = 2, s: int = 2, p: int = 0, kind: str = "max") -> int:
        attrs: dict[str, Attr] = {"kind": kind, "kernel": [k, k], "strides": [s, s], "dilations": [1, 1]}
        attrs |= {"pads": [p, p, p, p], "ceil_mode": 0, "count_include_pad": 0}
        return self.node("pool", [x], attrs)

    def fc(self, x: int, cout: int) -> int:
        """A Gemm over everything in ``x``: a 1x1 convolution of one pixel."""
        size = self.graph.tensors[x].size
        return self.conv(self.view(x, (1, 1, 1, size)), cout, 1)

    def concat(self, shape: tuple[int, ...], parts: list[int]) -> tuple[int, list[int]]:
        """The whole, and a view of it for each part of its channels."""
        whole = self.tensor(shape)
        strides = self.graph.tensors[whole].strides
        views, at = [], 0
        for channels in parts:
            views.append(self.view(whole, (*shape[:-1], channels), at, strides))
            at += channels
        return whole, views

    def finish(self, *outputs: int) -> Graph:
        """Ends with an output for each of ``outputs``."""
        for out in outputs:
            self.graph.outputs.append(self.pool(out, 1, 1))
        return self.graph


def vgg19(size: int = 224, scale: int = 1) -> Graph:
    b = Builder()
    x = b.input(1, size, size, 3)
    for channels, count in ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4)):
        for _ in range(count):
            x = b.conv(x, channels // scale)
        x = b.pool(x)
    for channels in (4096, 4096, 1000):
        x = b.fc(x, channels // scale)
    return b.finish(x)


def resnet(blocks: tuple[int, ...] = (3, 8, 36, 3), size: int = 224, scale: int = 1) -> Graph:
    """152 layers by default, residuals added in place."""
    b = Builder()
    x = b.pool(b.conv(b.input(1, size, size, 3), 64 // scale, 7, 2), 3, 2, 1)
    for stage, count in enumerate(blocks):
        wide = 64 * 2**stage // scale
        for block in range(count):
            s = 2 if stage and not block else 1
            short = b.conv(x, 4 * wide, 1, s) if not block else x
            y = b.conv(b.conv(x, wide, 1), wide, 3, s)
            x = b.conv(y, 4 * wide, 1, residual=short)
    side = b.graph.tensors[x].shape[1]
    return b.finish(b.fc(b.pool(x, side, 1, kind="avg"), 1000 // scale))


def mobilenet(size: int = 224, scale: int = 1) -> Graph:
    b = Builder()
    x = b.conv(b.input(1, size, size, 3), 32 // scale, 3, 2)
    for t, c, n, s in ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2)):
        for i in range(n):
            cin = b.graph.tensors[x].shape[-1]
            y = b.conv(x, cin * t, 1)
            y = b.conv(y, cin * t, 3, s if not i else 1, group=cin * t)
            x = b.conv(y, c // scale, 1, residual=x if i else -1)
    x = b.conv(x, 1280 // scale, 1)
    side = b.graph.tensors[x].shape[1]
    return b.finish(b.fc(b.pool(x, side, 1, kind="avg"), 1000 // scale))


def squeezenet(size: int = 224, scale: int = 1) -> Graph:
    b = Builder()
    x = b.conv(b.input(1, size, size, 3), 64 // scale, 3, 2, pad=0)
    plan = ((16, 64), (16, 64), (0, 0), (32, 128), (32, 128), (0, 0), (48, 192), (48, 192), (64, 256), (64, 256))
    x = b.pool(x, 3, 2)
    for squeeze, expand in plan:
        if not squeeze:
            x = b.pool(x, 3, 2)
            continue
        s = b.conv(x, squeeze // scale, 1)
        n, h, w, _ = b.graph.tensors[s].shape
        wide = expand // scale
        x, (left, right) = b.concat((n, h, w, 2 * wide), [wide, wide])
        b.conv(s, wide, 1, out=left)
        b.conv(s, wide, 3, out=right)
    x = b.conv(x, 1000 // scale, 1)
    return b.finish(b.pool(x, b.graph.tensors[x].shape[1], 1, kind="avg"))


def random_graph(seed: int) -> Graph:
    """Convolutions, residuals, concatenations, big and small constants, several outputs, in random order."""
    rng = random.Random(seed)
    b = Builder()
    side = rng.choice((5, 8, 14))
    live = [b.conv(b.input(1, side, side, rng.choice((3, 16))), rng.choice((16, 40)))]
    for _ in range(rng.randint(3, 25)):
        x = rng.choice(live[-4:])
        n, h, w, c = b.graph.tensors[x].shape
        what = rng.random()
        if what < 0.5:
            live.append(b.conv(x, rng.choice((8, 16, 33, 64, 256)), rng.choice((1, 3, 3, 5))))
        elif what < 0.65:
            short = b.conv(x, 48, 1)
            live.append(b.conv(b.conv(x, 24, 3), 48, 1, residual=short))
        elif what < 0.8:
            whole, parts = b.concat((n, h, w, 48), [16, 32])
            b.conv(x, 16, 1, out=parts[0])
            b.conv(x, 32, 3, out=parts[1])
            live.append(whole)
        else:
            other = b.constant(1, h, w, c) if rng.random() < 0.6 else b.constant(c)
            attrs: dict[str, Attr] = {"kind": "add", "act": "none", "alpha": 0.0, "beta": 0.0}
            live.append(b.node("binary", [x, other], attrs))
    return _read(b.finish(*dict.fromkeys((live[-1], rng.choice(live)))))


def _read(graph: Graph) -> Graph:
    """Return the graph without nodes that nothing reads, as compiling leaves them out: forms in bands do, too."""
    wanted = {graph.root(i) for i in graph.outputs}
    kept = []
    for node in reversed(graph.nodes):
        if graph.root(node.outputs[0]) in wanted:
            wanted.update(graph.root(i) for i in node.inputs)
            kept.append(node)
    graph.nodes[:] = kept[::-1]
    return graph


def random_volume(seed: int) -> Graph:
    """Convolutions of volumes: depths are images, and each depth of a kernel adds to what the one before left. Some are
    dilated or pointwise, some residual.
    """
    rng = random.Random(seed)
    b = Builder()
    d, side = rng.choice((2, 3, 6)), rng.choice((5, 8, 14))
    x = b.conv(b.input(d, side, side, rng.choice((3, 16))), rng.choice((16, 40)))
    made = [x]
    for _ in range(rng.randint(1, 6)):
        *_, c = b.graph.tensors[x].shape
        shift, dilation, k = rng.randint(1, d - 1), rng.choice((1, 1, 2, 6)), rng.choice((1, 3, 3))
        depths = rng.sample((0, shift, -shift), rng.randint(1, 3))
        cout = c if rng.random() < 0.3 else rng.choice((8, 33, 64))
        short = b.conv(x, cout, 1) if rng.random() < 0.3 else -1
        y = b.conv(x, cout, k, residual=short, dilation=dilation)
        for at in depths:
            if at:
                near, far = _depths(b, y, max(-at, 0), d - abs(at)), _depths(b, x, max(at, 0), d - abs(at))
                b.conv(far, cout, k, residual=near, dilation=dilation)
        made.append(y)
        x = y
    return b.finish(*dict.fromkeys((x, rng.choice(made))))


def _depths(b: Builder, tensor: int, first: int, count: int) -> int:
    """Return a view of some depths of a volume."""
    _, *rest = b.graph.tensors[tensor].shape
    return b.view(tensor, (count, *rest), first * b.graph.tensors[tensor].size // b.graph.tensors[tensor].shape[0])


CLASSICS = {"vgg19": vgg19, "resnet152": resnet, "mobilenet_v2": mobilenet, "squeezenet1_1": squeezenet}
