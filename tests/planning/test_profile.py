"""Profiles: lifetimes over views, variants in order, what always stays."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flexnn.planning import MachineProfile, Setting
from flexnn.planning.costs import SMALL_CONSTANT_BYTES, graph_costs, with_tile_block
from flexnn.planning.machine import variant_key
from tests.support.plan_graphs import CLASSICS, Builder, resnet, vgg19
from tests.support.plans import FAST_DISK


def test_a_view_keeps_its_root_alive() -> None:
    b = Builder()
    x = b.conv(b.input(1, 8, 8, 16), 16)
    whole, (left, right) = b.concat((1, 8, 8, 48), [16, 32])
    b.conv(x, 16, out=left)
    b.conv(x, 32, out=right)
    y = b.conv(whole, 16)
    graph = b.finish(b.conv(y, 16, 1, residual=x))
    costs = graph_costs(graph, Setting(FAST_DISK))
    spans = dict(zip(costs.roots, zip(costs.first_node, costs.last_node, strict=True), strict=True))
    assert spans == {x: (0, 5), whole: (1, 3), y: (3, 4)}
    assert costs.io_bytes == [8 * 8 * 16 * 4, 8 * 8 * 16 * 4]


@pytest.mark.parametrize("name", CLASSICS)
def test_variants_are_ordered(name: str) -> None:
    costs = graph_costs(CLASSICS[name](), Setting(FAST_DISK, threads=2))
    for node in costs.nodes:
        times = [variant.seconds() for variant in node.variants]
        assert times == sorted(times)
        assert node.variants[-1].workspace_bytes == min(variant.workspace_bytes for variant in node.variants)
        assert all(variant.workspace_bytes % 64 == 0 for variant in node.variants)


def test_kernels_suit_their_layers() -> None:
    """The stem gathers rows of few channels, 3x3 layers of stride 1 take Winograd, others compute directly."""
    graph = resnet()
    costs = graph_costs(graph, Setting(FAST_DISK, threads=2))
    for node, known in zip(graph.nodes, costs.nodes, strict=True):
        if node.op == "conv":
            channels = graph.tensors[node.inputs[0]].shape[-1]
            plain = node.attrs["kernel"] == [3, 3] and node.attrs["strides"] == [1, 1]
            expected = "im2col" if channels == 3 else "wino4" if plain else "direct"
            assert known.variants[0].kernel == expected


@pytest.mark.parametrize("kernel", [[1, 7], [7, 1]])
def test_lines_of_taps_take_winograd(kernel: list[int]) -> None:
    """17 pixels are five tiles of four outputs and ten inputs: 50 products instead of 119."""
    b = Builder()
    graph = b.finish(b.conv(b.input(1, 17, 17, 192), 192, 7))
    graph.nodes[0].attrs |= {"kernel": kernel, "pads": [kernel[0] // 2, kernel[1] // 2] * 2}
    fastest, *others = graph_costs(graph, Setting(FAST_DISK)).nodes[0].variants
    assert fastest.kernel == "wino_line"
    assert fastest.workspace_bytes <= 2 << 20
    direct = next(variant for variant in others if variant.kernel == "direct")
    assert 0.4 < fastest.seconds() / direct.seconds() < 0.65


@pytest.mark.parametrize("channels", [1, 3])
def test_few_input_channels_gather_rows(channels: int) -> None:
    """A Winograd transform of three channels takes as long as one of a whole vector."""
    b = Builder()
    graph = b.finish(b.conv(b.input(1, 80, 160, channels), 32, 3))
    assert graph_costs(graph, Setting(FAST_DISK)).nodes[0].variants[0].kernel == "im2col"


@pytest.mark.parametrize(("outputs", "kernel"), [(1, "planar"), (12, "planar"), (13, "im2col"), (32, "im2col")])
def test_few_output_channels_take_vectors_of_pixels(outputs: int, kernel: str) -> None:
    b = Builder()
    graph = b.finish(b.conv(b.input(1, 60, 264, 8), outputs, 5))
    assert graph_costs(graph, Setting(FAST_DISK)).nodes[0].variants[0].kernel == kernel


@pytest.mark.parametrize(("width", "kernel"), [(64, "planar"), (5, "direct")])
def test_vectors_of_pixels_do_not_fit_narrow_maps(width: int, kernel: str) -> None:
    b = Builder()
    graph = b.finish(b.conv(b.input(1, 60, width, 32), 12, 5))
    assert graph_costs(graph, Setting(FAST_DISK)).nodes[0].variants[0].kernel == kernel


def test_only_big_constants_are_streamed() -> None:
    b = Builder()
    x = b.conv(b.input(1, 64, 64, 16), 32)
    add = {"kind": "add", "act": "none", "alpha": 0.0, "beta": 0.0}
    y = b.node("binary", [x, b.constant(32)], dict(add))
    z = b.node("binary", [y, b.constant(1, 64, 64, 32)], dict(add))
    costs = graph_costs(b.finish(z), Setting(FAST_DISK))
    assert len(costs.small_constants) == 1
    assert [len(node.constants) for node in costs.nodes] == [0, 0, 1, 0]
    assert costs.nodes[2].constants[0][2] > SMALL_CONSTANT_BYTES
    assert costs.small_bytes == 32 * 4


@pytest.mark.parametrize(("scale", "is_cold"), [(1, True), (8, False)])
def test_samples_in_a_cache_do_not_make_memory_faster(scale: int, is_cold: bool) -> None:
    """Weights of more bytes than caches hold come from memory in each run, whatever samples of a few of them took."""
    machine = replace(FAST_DISK, scales={"direct": 0.1})
    graph = vgg19(scale=scale)
    costs = graph_costs(graph, Setting(machine, threads=2))
    known = costs.nodes[max(range(len(costs.nodes)), key=lambda i: costs.nodes[i].weight_bytes)]
    least = known.weight_bytes / machine.bytes_per_second
    (direct,) = (variant for variant in known.variants if variant.kernel == "direct")
    assert direct.channels_s == pytest.approx(least if is_cold else 0.1 * least)
    measured = replace(machine, times={variant_key("conv", known.params, direct): (1e-6, 0.5 * least)})
    of_measured = graph_costs(graph, Setting(measured, threads=2)).nodes[costs.nodes.index(known)]
    assert of_measured.variants[0].channels_s == 0.5 * least


def test_tile_block_goes_into_a_copy() -> None:
    costs = graph_costs(resnet((1, 1, 1, 1), 64), Setting(FAST_DISK))
    params = costs.nodes[0].params
    changed = with_tile_block(params, 7)
    assert (changed != params).sum() == 1
    assert 7 in changed


def test_rates_are_measured() -> None:
    machine = MachineProfile.measure()
    assert 1e8 < machine.flops_per_second < 1e13
    assert 1e8 < machine.bytes_per_second < 1e13
