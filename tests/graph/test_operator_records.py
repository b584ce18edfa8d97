"""Each internal operator has record, lowering, reference, driver and check; an error names what one lacks."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path

import pytest

from flexnn import _core
from flexnn.graph import operators
from flexnn.graph.ir import Attr, Graph, GraphError, Node, Tensor, contiguous_strides
from flexnn.graph.operators import OPERATORS, OUTPUT, Operator, collect
from flexnn.graph.operators.quantised import NO_RESIDUAL
from flexnn.graph.passes.layout import handlers
from tests.support import reference

ROOT = Path(__file__).resolve().parents[2]
FACTS = [fact for fact in Operator.__annotations__ if fact != "name"]

Operand = tuple[tuple[int, ...], str]


@dataclass(frozen=True)
class Ingredients:
    """Names of the operators that have each thing outside the record."""

    made: frozenset[str]
    """A lowering or a pass adds such nodes."""
    referred: frozenset[str]
    """tests/support/reference.py says what they mean."""
    driven: frozenset[str]
    """kernels/ops has a driver."""
    checked: frozenset[str]
    """kernels/check has a check."""

    @classmethod
    def of_the_tree(cls) -> Ingredients:
        graph = ROOT / "flexnn" / "graph"
        sources = [graph / "bind.py", *(graph / "lower").glob("*.py"), *(graph / "passes").glob("*.py")]
        made = {name for path in sources for name in _strings(ast.parse(path.read_text()))}
        return cls(
            frozenset(made & set(_core.OPS)),
            frozenset(reference.OPERATORS),
            frozenset(_defined(ROOT / "kernels" / "ops", r"^FX_(?:HALF_)?DRIVER\((\w+),")),
            frozenset(_defined(ROOT / "kernels" / "check", r"^(?:const check_op check_|HALF_CHECK\()(\w+)(?: =|,)")),
        )

    def lacking(self) -> list[str]:
        """Return a line for each thing that an operator of the core lacks."""
        places = {
            "made by no lowering and no pass": self.made,
            "no reference in tests/support/reference.py": self.referred,
            "no driver in kernels/ops": self.driven,
            "no check in kernels/check": self.checked,
        }
        return [f"operator {name}: {what}" for what, names in places.items() for name in _core.OPS if name not in names]


def _strings(tree: ast.AST) -> Iterator[str]:
    """Strings of a module that are neither compared with nor keys: an operator's name there makes a node of it."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.Constant) and isinstance(child.value, str):
            yield child.value
        elif isinstance(child, ast.Dict):
            for value in child.values:
                yield from _strings(ast.Expression(value))
        elif not isinstance(child, ast.Compare):
            yield from _strings(child)


def _defined(folder: Path, pattern: str) -> Iterator[str]:
    for path in folder.glob("*.c"):
        yield from re.findall(pattern, path.read_text(), re.M)


def test_every_operator_has_every_ingredient() -> None:
    assert list(OPERATORS) == list(_core.OPS)
    assert Ingredients.of_the_tree().lacking() == []


@pytest.mark.parametrize("name", _core.OPS)
def test_what_an_operator_lacks_is_named(name: str) -> None:
    whole = Ingredients.of_the_tree()
    for ingredient in fields(Ingredients):
        (lack,) = replace(whole, **{ingredient.name: getattr(whole, ingredient.name) - {name}}).lacking()
        assert lack.startswith(f"operator {name}: ")
    records = [record for record in OPERATORS.values() if record.name != name]
    with pytest.raises(TypeError, match=f"^operator {name}: no record in flexnn/graph/operators$"):
        collect(records)
    with pytest.raises(TypeError, match=f"^operator {name}: not in FX_OPS"):
        collect(OPERATORS.values(), [op for op in _core.OPS if op != name])
    with pytest.raises(TypeError, match=f"^operator {name}: two records$"):
        collect([*OPERATORS.values(), OPERATORS[name]])
    with pytest.raises(TypeError, match=f"^operator {name}: has_panels"):
        collect([*records, Operator(**vars(OPERATORS[name]) | {"has_panels": not OPERATORS[name].has_panels})])
    if name not in ("copy", "gather", "table_u8", "byte_steps"):
        with pytest.raises(TypeError, match=f"^operator {name}: no handler in flexnn/graph/passes/layout.py$"):
            handlers([Operator(**vars(OPERATORS[name]) | {"order": "own"})])


@pytest.mark.parametrize("name", _core.OPS)
def test_a_record_without_a_fact_is_refused(name: str) -> None:
    given = {fact: getattr(OPERATORS[name], fact) for fact in FACTS}
    for fact in FACTS:
        with pytest.raises(TypeError, match=f"^operator {name}: no {fact}$"):
            Operator(name=name, **{other: value for other, value in given.items() if other != fact})
    with pytest.raises(TypeError, match=f"^operator {name}: no {', no '.join(FACTS)}$"):
        Operator(name=name)


def test_a_record_with_too_few_rules_is_refused() -> None:
    rotary = OPERATORS["rotary"]
    with pytest.raises(TypeError, match="operator rotary: 3 rules for strides of 4 operands"):
        Operator(**vars(rotary) | {"strided": rotary.strided[:-1]})
    with pytest.raises(TypeError, match="operator rotary: in_place"):
        Operator(**vars(rotary) | {"in_place": (3,)})


# ---- a node of each operator ----

WINDOW: dict[str, Attr] = {"kernel": [3, 3], "strides": [1, 1], "dilations": [1, 1], "pads": [1, 1, 1, 1]}
NO_ACT: dict[str, Attr] = {"act": "none", "alpha": 0.0, "beta": 0.0}
PAD: dict[str, Attr] = {"mode": "constant", "before": [0, 1], "after": [0, 1], "interior": [0, 0], "value": 0.0}
TREES: dict[str, Attr] = {
    "to": "f32", "trees": 1, "nodes": 3, "entries": 0, "results": 1, "depth": 1, "is_plain": 1, "is_positive": 0,
    "has_base": 0, "aggregate": "sum", "transform": "none", "classes": "none",
}  # fmt: skip
FOURIER: dict[str, Attr] = {"n": 8, "size": 8, "frames": 1, "hop": 1, "bins": 5, "parts": 2, "inverse": 0}
RESIZE: dict[str, Attr] = {"mode": "linear", "coord": "half_pixel", "nearest": "floor", "sizes": [8, 8]}
RESAMPLE: dict[str, Attr] = {"is_cubic": 1, "is_antialiased": 1, "is_exclusive": 0, "coord": "half_pixel", "a": -0.75}


FINISH: dict[str, Attr] = {"to": "u8", "x_zero": 128, "zero": 0, "lo": 0.0, "hi": 255.0, **NO_RESIDUAL}


def f32(*shapes: tuple[int, ...]) -> list[Operand]:
    return [(shape, "f32") for shape in shapes]


SAMPLES: dict[str, tuple[list[Operand], dict[str, Attr]]] = {
    "conv": (
        f32((1, 4, 4, 3)),
        {**WINDOW, "group": 1, "cout": 8, "cin_block": 3, "wtype": "f32", "sums": "f32", **NO_ACT},
    ),
    "dwconv": (f32((1, 4, 4, 3)), {**WINDOW, "wtype": "f32", "sums": "f32", **NO_ACT}),
    "pool": (f32((1, 4, 4, 3)), {"kind": "max", **WINDOW, "ceil_mode": 0, "count_include_pad": 0}),
    "unary": (f32((2, 3)), {"kind": "relu", "alpha": 0.0, "beta": 0.0}),
    "binary": (f32((2, 3), (3,)), {"kind": "add", **NO_ACT}),
    "softmax": (f32((2, 3)), {"axis": 1, "log": 0}),
    "reduce": (f32((2, 3)), {"kind": "sum", "axes": [1], "keepdims": 1}),
    "lrn": (f32((1, 4, 4, 3)), {"size": 3, "alpha": 1.0, "beta": 1.0, "bias": 1.0}),
    "instance_norm": (f32((1, 4, 4, 3), (3,), (3,)), {"epsilon": 1e-5}),
    "resize": (f32((1, 4, 4, 3)), {**RESIZE, "scale_h": 2.0, "scale_w": 2.0}),
    "resample": (f32((1, 4, 4, 3)), {**RESAMPLE, "sizes": [8, 8], "scale_h": 2.0, "scale_w": 2.0}),
    "copy": (f32((2, 3)), {"perm": [1, 0], "expand": [0, 0]}),
    "pad": (f32((2, 3)), {**PAD, "value_int": 0}),
    "depth_to_space": (f32((1, 4, 4, 12)), {"blocks": [2, 2], "crop": [1, 1, 0, 1]}),
    "gather": ([((4, 3), "f32"), ((2,), "i64")], {"axis": 0}),
    "cast": (f32((2, 3)), {"to": "i64"}),
    "matmul": (f32((2, 3), (3, 4)), {"sums": "f32", **NO_ACT}),
    "layer_norm": (f32((2, 3), (3,), (3,)), {"is_rms": 0, "epsilon": 1e-5}),
    "attention": (
        f32((1, 2, 3, 4), (1, 2, 5, 4), (1, 2, 5, 6)),
        {"scale": 1.0, "softcap": 0.0, "is_causal": 0, "past": 0, "window": 0},
    ),
    "pointwise": ([((2, 3), "i64"), ((3,), "i64")], {"kind": "less"}),
    "recurrent": (
        f32((5, 1, 16), (1 * 16 * 16,), (1, 1, 16)),
        {"kind": "rnn", "is_reverse": 0, "is_coupled": 0, "clip": 0.0}
        | {f"{letter}_act": "tanh" for letter in "fgh"}
        | {f"{letter}_{name}": 0.0 for letter in "fgh" for name in ("alpha", "beta")},
    ),
    "quantize": ([((2, 3), "f32"), ((), "f32"), ((), "u8")], {"to": "u8", "axis": 0}),
    "gather_at": ([((4, 3), "f32"), ((2, 3), "i64")], {"axis": 0, "batch": 0}),
    "scatter_at": ([((4, 3), "f32"), ((2, 1), "i64"), ((2, 3), "f32")], {"axis": -1, "batch": 0, "kind": "add"}),
    "top_k": (f32((4, 3)), {"axis": 0, "k": 2, "is_largest": 1}),
    "count_nonzero": ([((4, 3), "bool")], {}),
    "nonzero": ([((4, 3), "bool")], {"count": 5}),
    "unique": ([((4, 3), "i32")], {"is_sorted": 1}),
    "tally": ([((9,), "i64")], {"kind": "first", "groups": 4}),
    "grid_sample": (f32((2, 4, 5, 3), (2, 6, 7, 2)), {"mode": "linear", "border": "zeros", "is_aligned": 0}),
    "roi_align": (
        [((2, 4, 5, 3), "f32"), ((6, 4), "f32"), ((6,), "i64")],
        {"sizes": [2, 3], "is_max": 0, "is_half": 1, "ratio": 0, "scale": 1.0},
    ),
    "nms": (f32((2, 9, 4), (2, 3, 9), (1,), (1,)), {"most": 4, "is_centered": 0}),
    "argmax": (f32((2, 3)), {"axis": 1, "is_min": 0, "is_last": 0}),
    "cumulate": (f32((2, 3)), {"axis": 1, "is_product": 0, "is_exclusive": 0, "is_reverse": 0}),
    "trilu": (f32((2, 3)), {"k": 0, "is_upper": 1}),
    "one_hot": ([((3,), "i64"), ((2,), "f32")], {"axis": 1, "depth": 4}),
    "couple": (f32((4, 3)), {"classes": 3}),
    "noise": (
        f32((2, 3)),
        {"is_uniform": 0, "is_seeded": 0, "seed_lo": 1, "seed_hi": 2, "shift": 0.0, "factor": 1.0, "end": 1.0},
    ),
    "trees": ([((4, 3), "f32"), ((9,), "i32")], TREES),
    "fourier": (f32((2, 8, 1, 1), (16,)), FOURIER),
    "gather_panels": ([((2, 48), "f32"), ((2,), "i64")], {"rows": 20, "inner": 2, "wtype": "f32"}),
    "conv_u8": (
        [((1, 4, 4, 3), "u8")],
        {**WINDOW, "cout": 8, "by_rows": 1, **FINISH},
    ),
    "binary_u8": (
        [((2, 3), "u8"), ((3,), "u8")],
        {"kind": "add", "a_zero": 0, "b_zero": 0, "a_scale": 1.0, "b_scale": 1.0, "zero": 0, "lo": 0.0, "hi": 255.0},
    ),
    "byte_steps": (f32((2, 3)), {"part": "all"}),
    "rows_u8": (
        [((2, 3), "u8"), ((3,), "f32"), ((3,), "f32")],
        {"kind": "layer_norm", "epsilon": 1e-5, "x_zero": 0, "x_scale": 1.0, "zero": 0, "scale": 1.0},
    ),
    "matmul_u8": (
        [((2, 3), "u8"), ((3, 4), "u8")],
        {"a_zero": 0, "b_zero": 0, "scale": 1.0, "to": "u8", "zero": 0, "lo": 0.0, "hi": 255.0},
    ),
    "table_u8": ([((2, 3), "u8"), ((256,), "u8")], {}),
    "pool_u8": (
        [((1, 4, 4, 3), "u8")],
        {"kind": "max", **WINDOW, "ceil_mode": 0, "count_include_pad": 0, "x_zero": 0, "scale": 1.0, "zero": 0}
        | {"lo": 0.0, "hi": 255.0},
    ),
    "resize_u8": ([((1, 4, 4, 3), "u8")], {**RESIZE, "scale_h": 2.0, "scale_w": 2.0}),
    "dwconv_u8": ([((1, 4, 4, 3), "u8")], {**WINDOW, **FINISH}),
    "state_append": (
        [((1, 2, 3, 4), "f32"), ((1, 2, 3, 4), "f32"), ((1,), "i64")],
        {"capacity": 8, "dtype": "f16"},
    ),
    "state_attention": (
        [((1, 4, 3, 4), "f32"), ((2, 2, 8, 4), "f16"), ((1,), "i64"), ((4,), "f32")],
        {"scale": 0.5, "softcap": 0.0, "window": 0},
    ),
    "rotary": (f32((1, 2, 3, 4), (1, 1, 3, 2), (1, 1, 3, 2)), {"turned": 4, "is_interleaved": 0}),
}


SAMPLES |= {
    f"{name}_f16": ([(shape, "f16") for shape, _ in operands], {**attrs, "to": "f32" if name == "reduce" else "f16"})
    for name, (operands, attrs) in SAMPLES.items()
    if f"{name}_f16" in _core.OPS
}


def node_of(name: str) -> tuple[Graph, Node]:
    """A graph with one node of this operator."""
    operands, attrs = SAMPLES[name]
    graph = Graph()
    graph.tensors = [Tensor(f"in{i}", shape, dtype) for i, (shape, dtype) in enumerate(operands)]
    node = Node("n", name, list(range(len(operands))), [len(operands)], dict(attrs))
    operators.check(node)
    ((shape, dtype),) = operators.infer(graph, node)
    graph.tensors.append(Tensor("out", shape, dtype))
    return graph, node


@pytest.mark.parametrize("name", _core.OPS)
def test_a_record_encodes_every_field_of_the_struct_and_no_other(name: str) -> None:
    assert name in SAMPLES, f"operator {name}: no sample here"
    graph, node = node_of(name)
    values = operators.encode(graph, node)
    assert values.keys() == {field for field, _ in _core.FIELDS[name]}
    kernel = "direct" if OPERATORS[name].kernels else ""
    _core.op_check(name, kernel, _core.encode_params(name, values))


@pytest.mark.parametrize("name", _core.OPS)
def test_a_record_refuses_what_its_attributes_do_not_allow(name: str) -> None:
    _, node = node_of(name)
    with pytest.raises(GraphError, match=rf"^node 'n' \({name}\): attributes "):
        operators.check(replace(node, attrs=node.attrs | {"more": 1}))
    for attr in node.attrs:
        with pytest.raises(GraphError, match=rf"^node 'n' \({name}\): attribute {attr} = None is out of range"):
            operators.check(replace(node, attrs=node.attrs | {attr: None}))
    with pytest.raises(GraphError, match=rf"^node 'n' \({name}\): 0 inputs"):
        operators.check(replace(node, inputs=[]))


@pytest.mark.parametrize("name", _core.OPS)
def test_contiguous_operands_are_always_taken(name: str) -> None:
    graph, node = node_of(name)
    for operand, tensor in [*enumerate(node.inputs), (OUTPUT, node.outputs[0])]:
        shape = graph.tensors[tensor].shape
        assert operators.fits(name, operand, shape, contiguous_strides(shape))
    assert OPERATORS[name].together(graph.tensors)
