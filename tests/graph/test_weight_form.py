"""Forms of weights and the panels of convolutions: what Python packs is what C reads."""

from __future__ import annotations

import numpy as np
import pytest

from flexnn import _core
from flexnn.graph.pack import PanelSource
from flexnn.graph.panels import NR
from flexnn.graph.sources import ArraySource
from flexnn.graph.weight_form import FORMS, PanelLayout


def test_the_forms_are_these() -> None:
    fields = {name: (form.bits, form.block, form.scales, form.minimum, form.shared) for name, form in FORMS.items()}
    single = {
        "f32": (32, 0, 0, 0), "f16": (16, 0, 0, 0), "s8": (8, 0, 4, 0), "s8b": (8, 32, 2, 0), "s8bf": (8, 32, 4, 0),
        "q4": (4, 32, 2, 0), "q4f": (4, 32, 4, 0), "q4m": (4, 32, 2, 2), "q4mf": (4, 32, 4, 4), "s8b16f": (8, 16, 4, 0),
        "s8mf": (8, 32, 4, 4), "q5": (5, 32, 2, 0), "q5m": (5, 32, 2, 2),
    }  # fmt: skip
    double = {"q4k": (4, 32, 1, 1, 256), "q5k": (5, 32, 1, 1, 256), "q6k": (6, 16, 1, 0, 256)}
    assert fields == {name: (*each, 0) for name, each in single.items()} | double
    dtypes = {name: form.dtype for name, form in FORMS.items()}
    assert dtypes == {
        name: np.float32 if name == "f32" else np.float16 if name == "f16" else np.int8 if name[0] == "s" else np.uint32
        for name in FORMS
    }


@pytest.mark.parametrize(
    ("name", "slopes", "layout"),
    [
        ("f32", False, (64, 64, 64, 64 + 9 * 64)),
        ("f32", True, (128, 128, 128, 128 + 9 * 64)),
        ("f16", False, (64, 64, 64, 64 + 9 * 32 + 32)),
        ("s8", False, (64, 128, 128, 128 + 9 * 16 + 48)),
        ("s8", True, (128, 192, 192, 192 + 9 * 16 + 48)),
        ("s8b", False, (64, 96, 128, 128 + 9 * 16 + 48)),
        ("q4", False, (64, 96, 128, 128 + 2 * 64)),
        ("q4m", True, (128, 160, 192, 192 + 2 * 64)),
        ("q4mf", False, (64, 128, 192, 192 + 2 * 64)),
    ],
)
def test_parts_of_a_panel_lie_where_they_always_lay(name: str, slopes: bool, layout: tuple[int, ...]) -> None:
    assert FORMS[name].layout(9 * NR, slopes=slopes) == PanelLayout(*layout)


@pytest.mark.parametrize(("name", "nbytes"), [("q4k", 144), ("q5k", 176), ("q6k", 210)])
def test_double_blocks_take_the_bytes_that_gguf_takes(name: str, nbytes: int) -> None:
    layout = FORMS[name].layout(4 * 256 * NR)
    assert layout.scales == 64
    assert layout.end == 64 + 4 * nbytes * NR


def test_a_layout_is_asked_for_by_a_known_form_and_whole_rows() -> None:
    for name, weights in (("f8", 16), ("f32", 15), ("f32", -16)):
        with pytest.raises(ValueError, match="weights stored as"):
            _core.panel_layout(name, False, weights)


def random_convolutions(count: int) -> list[tuple[int, int, int]]:
    """Input channels of a group, output channels of a group, groups."""
    rng = np.random.default_rng(13)
    shapes = [tuple(int(n) for n in rng.integers(1, 40, 3)) for _ in range(count)]
    return [*shapes, *((g, g, n) for g in (1, 2, 4, 8, 16) for n in (2, 3, 16))]  # type: ignore[list-item]


@pytest.mark.parametrize("name", FORMS)
def test_a_panel_source_has_the_bytes_that_the_operator_reads(name: str) -> None:
    for cin_group, cout_group, group in random_convolutions(60):
        shape = (cout_group * group, cin_group, 3, 1)
        weight = ArraySource(np.ones(shape, np.float32))
        source = PanelSource("conv", shape, group, weight, wtype=name)
        params = _core.encode_params(
            "conv",
            {"n": 1, "h": 3, "w": 1, "cin": source.cin, "oh": 1, "ow": 1, "cout": shape[0], "kh": 3, "kw": 1}
            | {"sh": 1, "sw": 1, "dh": 1, "dw": 1, "pt": 0, "pl": 0, "group": group, "cin_panel": source.cin_panel}
            | {"cin_block": source.cin_block, "nr": NR, "x_sn": 3 * source.cin, "x_sh": source.cin, "x_sw": source.cin}
            | {"y_sn": shape[0], "y_sh": shape[0], "y_sw": shape[0], "has_residual": 0, "r_sn": 0, "r_sh": 0, "r_sw": 0}
            | {
                "act": 0,
                "alpha": 0.0,
                "beta": 0.0,
                "tile_block": 0,
                "wtype": list(FORMS).index(source.form.name),
                "sums": 0,
            },
        )
        assert source.panel_bytes == _core.op_panel_bytes("conv", params)
        assert source.panels == _core.op_panels("conv", params)
        assert {panel.nbytes for panel in source} == {source.panel_bytes}


def test_a_panel_reads_the_groups_that_it_touches() -> None:
    """Counted here group by group: the first and the most input channels of the panels of random convolutions."""
    for cin_group, cout_group, group in random_convolutions(300):
        cin, cout = cin_group * group, cout_group * group
        narrow = _core.conv_is_narrow(cin, cout, group)
        assert narrow == (group > 1 and cin_group == cout_group and cin_group in (2, 4, 8))
        touched = [sorted({o // cout_group for o in range(c0, min(c0 + NR, cout))}) for c0 in range(0, cout, NR)]
        most = max(len(groups) for groups in touched) * cin_group
        assert _core.conv_cin_panel(cin, cout, group) == (cin_group if narrow else most)
        for panel, groups in enumerate(touched):
            first = _core.conv_panel_cin(cin, cout, group, panel)
            assert first <= groups[0] * cin_group
            if not narrow:
                assert first >= 0
                assert (groups[-1] + 1) * cin_group <= first + most <= cin
    for cin, cout, group in ((4, 4, 0), (4, 6, 4), (6, 4, 4), (0, 4, 1)):
        with pytest.raises(ValueError, match="groups"):
            _core.conv_cin_panel(cin, cout, group)
