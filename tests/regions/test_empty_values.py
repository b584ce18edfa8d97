"""Values without elements have no numbers, so they are constants when bound, and nothing computes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.support.regions import BOOL, F32, I64, check_run, graph_of, model_of, numbers, opened, value

HEADS, DIM, LAYERS = 2, 8, 3
WIDTH = HEADS * DIM


def layer(i: int, x: str) -> tuple[list[onnx.NodeProto], str]:
    """One layer of a decoder: keys and values that grow, scores, and a product behind them."""
    n = f"l{i}."
    nodes = []
    for kind in "qkv":
        nodes += [
            helper.make_node("MatMul", [x, f"{n}w{kind}"], [f"{n}{kind}0"]),
            helper.make_node("Reshape", [f"{n}{kind}0", "split"], [f"{n}{kind}1"]),
            helper.make_node("Transpose", [f"{n}{kind}1"], [f"{n}{kind}2"], perm=[0, 2, 1, 3]),
        ]
    nodes += [
        helper.make_node("Concat", [f"past{i}.k", f"{n}k2"], [f"now{i}.k"], axis=2),
        helper.make_node("Concat", [f"past{i}.v", f"{n}v2"], [f"now{i}.v"], axis=2),
        helper.make_node("Transpose", [f"now{i}.k"], [f"{n}kt"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", [f"{n}q2", f"{n}kt"], [f"{n}s0"]),
        helper.make_node("Mul", [f"{n}s0", "scale"], [f"{n}s1"]),
        helper.make_node("Softmax", [f"{n}s1"], [f"{n}s2"], axis=-1),
        helper.make_node("MatMul", [f"{n}s2", f"now{i}.v"], [f"{n}o0"]),
        helper.make_node("Transpose", [f"{n}o0"], [f"{n}o1"], perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", [f"{n}o1", "join"], [f"{n}o2"]),
        helper.make_node("MatMul", [f"{n}o2", f"{n}wo"], [f"{n}o3"]),
        helper.make_node("Add", [x, f"{n}o3"], [f"{n}y"]),
    ]
    return nodes, f"{n}y"


def decoder() -> onnx.ModelProto:
    nodes: list[onnx.NodeProto] = []
    x = "x"
    inputs = [value("x", F32, ["batch", "tokens", WIDTH])]
    outputs, constants = [], {"split": np.array([0, 0, HEADS, DIM]), "join": np.array([0, 0, WIDTH])}
    constants["scale"] = np.float32(DIM**-0.5)
    for i in range(LAYERS):
        made, x = layer(i, x)
        nodes += made
        for kind in "kv":
            inputs.append(value(f"past{i}.{kind}", F32, ["batch", HEADS, "past", DIM]))
            outputs.append(value(f"now{i}.{kind}", F32, ["batch", HEADS, "all", DIM]))
        constants |= {f"l{i}.w{kind}": numbers(WIDTH, WIDTH, seed=i) * 0.2 for kind in "qkvo"}
    return model_of(graph_of(nodes, inputs, [value(x, F32, ["batch", "tokens", WIDTH]), *outputs], constants))


def test_a_decoder_that_starts_with_an_empty_past(tmp_path: Path) -> None:
    """It is one program, as with a past, and numpy computes nothing."""
    model = decoder()
    with opened(tmp_path, model) as session:
        for past in (0, 3, 0, 1):
            feed = {"x": numbers(1, 2, WIDTH)}
            feed |= {f"past{i}.{kind}": numbers(1, HEADS, past, DIM, seed=i) for i in range(LAYERS) for kind in "kv"}
            check_run(session, model, feed)
            found = session.statistics()
            assert found["segments_of_last_run"] == 1
            assert not found["hosted_operators"]


PAST = {f"past.{kind}": value(f"past.{kind}", F32, ["batch", HEADS, "past", DIM]) for kind in "kv"}
X = value("x", F32, ["batch", "tokens", WIDTH])
PRESENT = [value(f"now.{kind}", F32, ["batch", HEADS, "all", DIM]) for kind in "kv"]
Y = value("y", F32, ["batch", "tokens", WIDTH])


def multi_head() -> onnx.ModelProto:
    inputs = ["x", "x", "x", "bias", "", "", "past.k", "past.v"]
    made = helper.make_node(
        "MultiHeadAttention", inputs, ["y", "now.k", "now.v"], num_heads=HEADS, domain="com.microsoft"
    )
    graph = graph_of([made], [X, *PAST.values()], [Y, *PRESENT], {"bias": numbers(3 * WIDTH)})
    return helper.make_model(graph, opset_imports=OPSETS, ir_version=8)


def joined_past() -> onnx.ModelProto:
    inputs = ["x", "w", "bias", "", "past"]
    made = helper.make_node("Attention", inputs, ["y", "now"], num_heads=HEADS, domain="com.microsoft")
    past = value("past", F32, [2, "batch", HEADS, "past", DIM])
    constants = {"w": numbers(WIDTH, 3 * WIDTH), "bias": numbers(3 * WIDTH)}
    graph = graph_of([made], [X, past], [Y, value("now", F32, [2, "batch", HEADS, "all", DIM])], constants)
    return helper.make_model(graph, opset_imports=OPSETS, ir_version=8)


def standard() -> onnx.ModelProto:
    inputs = ["x", "x", "x", "", "past.k", "past.v"]
    made = helper.make_node(
        "Attention", inputs, ["y", "now.k", "now.v"], q_num_heads=HEADS, kv_num_heads=HEADS, is_causal=0
    )
    graph = graph_of([made], [X, *PAST.values()], [Y, *PRESENT])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)


OPSETS = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]


@pytest.mark.parametrize("made", [multi_head, joined_past, standard])
def test_attention_with_an_empty_past(tmp_path: Path, made: Callable[[], onnx.ModelProto]) -> None:
    model = made()
    with opened(tmp_path, model) as session:
        for past in (0, 3, 1, 0):
            feed = {"x": numbers(2, 2, WIDTH)}
            for port in session.get_inputs()[1:]:
                sizes = {"batch": 2, "past": past}
                feed[port.name] = numbers(*(sizes[d] if isinstance(d, str) else int(d or 0) for d in port.shape))
            check_run(session, model, feed)
            assert session.statistics()["segments_of_last_run"] == 1
            assert not session.statistics()["hosted_operators"]


def node(op: str, inputs: Sequence[str], **attrs: object) -> onnx.NodeProto:
    return helper.make_node(op, list(inputs), ["y"], **attrs)


ROWS, OTHER = value("x", F32, ["n", 4]), value("z", F32, ["m", 4])
INDICES = value("i", I64, ["n"])
CASES: list[tuple[onnx.NodeProto, dict[str, np.ndarray], list[onnx.ValueInfoProto]]] = [
    (node("Relu", ["x"]), {}, [ROWS]),
    (node("Add", ["x", "r"]), {"r": numbers(4)}, [ROWS]),
    (node("Mul", ["x", "z1"]), {}, [ROWS, value("z1", F32, [1, 4])]),
    (node("Where", ["c", "x", "x"]), {}, [ROWS, value("c", BOOL, [1, 4])]),
    (node("Greater", ["x", "x"]), {}, [ROWS]),
    (node("Cast", ["x"], to=I64), {}, [ROWS]),
    (node("Transpose", ["x"]), {}, [ROWS]),
    (node("Reshape", ["x", "s"]), {"s": np.array([0, 2, 2])}, [ROWS]),
    (node("Unsqueeze", ["x", "s"]), {"s": np.array([0])}, [ROWS]),
    (node("Concat", ["x", "z"], axis=0), {}, [ROWS, OTHER]),
    (node("Concat", ["x", "x"], axis=1), {}, [ROWS]),
    (node("Slice", ["z", "a", "b"]), {"a": np.array([1]), "b": np.array([1])}, [OTHER]),
    (node("Slice", ["x", "a", "b"]), {"a": np.array([0]), "b": np.array([9])}, [ROWS]),
    (node("Gather", ["z", "i"]), {}, [OTHER, INDICES]),
    (node("Gather", ["t", "i"]), {"t": numbers(40, 40)}, [INDICES]),
    (node("Expand", ["x", "s"]), {"s": np.array([2, 1, 4])}, [ROWS]),
    (node("Tile", ["x", "s"]), {"s": np.array([3, 2])}, [ROWS]),
    (node("Tile", ["z", "s"]), {"s": np.array([0, 2])}, [OTHER]),
    (node("MatMul", ["x", "w"]), {"w": numbers(4, 5)}, [ROWS]),
    (node("MatMul", ["zt", "x"]), {}, [ROWS, value("zt", F32, [3, "n"])]),
    (node("MatMul", ["x", "k"]), {}, [ROWS, value("k", F32, [4, 3])]),
    (node("Gemm", ["zt", "x", "k"]), {}, [ROWS, value("zt", F32, [3, "n"]), value("k", F32, [3, 4])]),
    (node("Gemm", ["x", "w", "b"], transB=1), {"w": numbers(5, 4), "b": numbers(5)}, [ROWS]),
    (node("ReduceSum", ["x", "s"], keepdims=0), {"s": np.array([0])}, [ROWS]),
    (node("ReduceSum", ["x"], keepdims=0), {}, [ROWS]),
    (node("ReduceProd", ["x"], axes=[0], keepdims=1), {}, [ROWS]),
    (node("Softmax", ["x"], axis=-1), {}, [ROWS]),
    (node("LayerNormalization", ["x", "g", "b"]), {"g": numbers(4), "b": numbers(4)}, [ROWS]),
    (node("Pad", ["x", "s"]), {"s": np.array([1, 0, 0, 2])}, [ROWS]),
    (node("Conv", ["p", "w"], pads=[1, 1, 1, 1]), {"w": numbers(4, 3, 3, 3)}, [value("p", F32, ["n", 3, 5, 6])]),
    (node("MaxPool", ["p"], kernel_shape=[2, 2]), {}, [value("p", F32, ["n", 3, 5, 6])]),
    (node("ScatterND", ["z", "j", "x"]), {}, [OTHER, ROWS, value("j", I64, ["n", 1])]),
    (node("Shape", ["x"]), {}, [ROWS]),
    (node("NonZero", ["x"]), {}, [ROWS]),
    (node("Size", ["x"]), {}, [ROWS]),
]  # fmt: skip


def kind_of(made: onnx.NodeProto) -> int:
    if made.op_type in ("Shape", "Size", "NonZero", "Cast"):
        return I64
    return BOOL if made.op_type == "Greater" else F32


@pytest.mark.parametrize(
    ("made", "constants", "inputs"), CASES, ids=[f"{i}-{c[0].op_type}" for i, c in enumerate(CASES)]
)
@pytest.mark.parametrize("between", [False, True], ids=["input", "made"])
def test_operators(
    tmp_path: Path,
    made: onnx.NodeProto,
    constants: dict[str, np.ndarray],
    inputs: list[onnx.ValueInfoProto],
    between: bool,
) -> None:
    """An operand without elements, that of the caller or one that a node makes, then others: nothing sticks."""
    rank = {"Reshape": 3, "Unsqueeze": 3, "Expand": 3, "Shape": 1, "Size": 0}.get(made.op_type, 2)
    if made.op_type == "ReduceSum":
        rank = len(constants)
    rank = 4 if made.op_type in ("Conv", "MaxPool") else rank
    given = {port.name for port in inputs}
    nodes = [helper.make_node("Identity", [name], [f"{name}.same"]) for name in sorted(given)] if between else []
    used = onnx.NodeProto.FromString(made.SerializeToString())
    if between:
        used.input[:] = [f"{name}.same" if name in given else name for name in made.input]
    output = value("y", kind_of(made), [None] * rank)
    model = model_of(graph_of([*nodes, used], inputs, [output], constants))
    with opened(tmp_path, model) as session:
        for count in (0, 2, 0):
            check_run(session, model, {port.name: feed(port, count) for port in inputs})
        assert set(session.statistics()["hosted_operators"]) <= {"Identity", "NonZero"}


def feed(port: onnx.ValueInfoProto, count: int) -> np.ndarray:
    sizes = {"n": count, "m": 5}
    shape = tuple(sizes.get(d.dim_param, d.dim_value) for d in port.type.tensor_type.shape.dim)
    kind = port.type.tensor_type.elem_type
    if kind == I64:
        return np.arange(int(np.prod(shape)), dtype=np.int64).reshape(shape)
    return numbers(*shape) > 0 if kind == BOOL else numbers(*shape)


def test_nodes_stay_native_after_an_empty_run(tmp_path: Path) -> None:
    """Padding nothing is left to numpy; padding something is not, also afterwards."""
    nodes = [helper.make_node("Pad", ["x", "s"], ["p"]), helper.make_node("Tanh", ["p"], ["y"])]
    constants = {"s": np.array([1, 0, 0, 2])}
    model = model_of(graph_of(nodes, [ROWS], [value("y", F32, ["m", 6])], constants))
    with opened(tmp_path, model) as session:
        for rows in (0, 3):
            check_run(session, model, {"x": numbers(rows, 4)})
        assert not session.statistics()["hosted_operators"]


def test_shapes_without_elements_when_compiling(tmp_path: Path) -> None:
    """The model is bound when it runs, and returns what has no elements."""
    nodes = [helper.make_node("Concat", ["x", "z"], ["y"], axis=0), helper.make_node("Neg", ["x"], ["v"])]
    model = model_of(graph_of(nodes, [ROWS, OTHER], [value("y", F32, [None, 4]), value("v", F32, [None, 4])]))
    with opened(tmp_path, model, shapes={"x": (0, 4), "z": (3, 4)}) as session:
        check_run(session, model, {"x": numbers(0, 4), "z": numbers(3, 4)})
        with pytest.raises(ValueError, match=r"the model takes float32\[0, 4\]"):
            session.run(None, {"x": numbers(1, 4), "z": numbers(3, 4)})


def test_a_closed_model_with_a_value_without_elements(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Slice", ["x", "a", "a"], ["none"]),
        helper.make_node("Concat", ["none", "x"], ["y"], axis=0),
        helper.make_node("Neg", ["none"], ["v"]),
    ]
    constants = {"a": np.array([1])}
    given = value("x", F32, [3, 4])
    model = model_of(graph_of(nodes, [given], [value("y", F32, [3, 4])], constants))
    with opened(tmp_path, model) as session:
        check_run(session, model, {"x": numbers(3, 4)})
    outputs = [value("y", F32, [3, 4]), value("v", F32, [0, 4])]
    model = model_of(graph_of(nodes, [given], outputs, constants))
    with opened(tmp_path, model) as session:
        check_run(session, model, {"x": numbers(3, 4)})
