"""Breaking rules of single operators, of control flow, of declarations and versions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from bench.broken.breaks import Case
from bench.broken.twins import BOOL, FLOAT, INT64, NODE, TWINS, Twin, model_of

_TWIN = {twin.op: twin for twin in TWINS}
_VALUES: tuple[tuple[str, Mapping[str, Any], str], ...] = (
    ("ArgMax", {"axis": 2}, "axis 2 is outside"),
    ("ArgMax", {"axis": -3}, "axis -3 is outside"),
    ("AveragePool", {"auto_pad": "SAME"}, "auto_pad is 'SAME'"),
    ("AveragePool", {"kernel_shape": [2]}, "dimensions"),
    ("AveragePool", {"kernel_shape": [0, 2]}, "attribute kernel_shape="),
    ("AveragePool", {"strides": [0, 1]}, "attribute strides="),
    ("BatchNormalization", {"epsilon": -1.0}, "epsilon is -1"),
    ("Cast", {"to": 0}, "to is 0, which is no type"),
    ("Cast", {"to": 99}, "to is 99, which is no type"),
    ("Cast", {"to": 2**40}, "which is no type"),
    ("Concat", {"axis": 2}, "axis 2 is outside"),
    ("Concat", {"axis": -3}, "axis -3 is outside"),
    ("Conv", {"group": 0}, "attribute group="),
    ("Conv", {"group": -1}, "attribute group="),
    ("Conv", {"group": 2}, "attribute group=2"),
    ("Conv", {"kernel_shape": [5, 5]}, "attribute kernel_shape=[5, 5]"),
    ("Conv", {"kernel_shape": [3, 3, 3]}, "dimensions"),
    ("Conv", {"strides": [0, 1]}, "attribute strides="),
    ("Conv", {"strides": [1, 1, 1]}, "dimensions"),
    ("Conv", {"dilations": [-1, 1]}, "attribute dilations="),
    ("Conv", {"pads": [-1, 1, 1, 1]}, "attribute pads="),
    ("Conv", {"pads": [1, 1]}, "pads has 2 values"),
    ("Conv", {"auto_pad": "same_upper"}, "auto_pad is 'same_upper'"),
    ("ConvTranspose", {"strides": [2]}, "strides has 1 value"),
    ("ConvTranspose", {"strides": [2, -2]}, "attribute strides="),
    ("DepthToSpace", {"blocksize": 0}, "attribute blocksize="),
    ("DepthToSpace", {"blocksize": 3}, "attribute blocksize=3"),
    ("DepthToSpace", {"mode": "RCD"}, "mode is 'RCD'"),
    ("Flatten", {"axis": 4}, "axis 4 is outside"),
    ("GRU", {"activations": ["Sigmoid"]}, "activations has 1 names"),
    ("GRU", {"activations": ["Sigmoid", "Foo"]}, "'Foo', which is no activation"),
    ("GRU", {"direction": "sideways"}, "direction is 'sideways'"),
    ("GRU", {"hidden_size": 0}, "attribute hidden_size="),
    ("GRU", {"hidden_size": 4}, "must be 12"),
    ("GRU", {"layout": 2}, "layout is 2"),
    ("GRU", {"direction": "bidirectional"}, "directions of input 1"),
    ("Gather", {"axis": 2}, "axis 2 is outside"),
    ("LRN", {"size": 0}, "attribute size="),
    ("LSTM", {"direction": ""}, "direction is ''"),
    ("LSTM", {"hidden_size": -3}, "attribute hidden_size="),
    ("LSTM", {"hidden_size": 5}, "must be 20"),
    ("LSTM", {"activations": ["Tanh", "Tanh"]}, "activations has 2 names"),
    ("LayerNormalization", {"axis": 2}, "axis 2 is outside"),
    ("LayerNormalization", {"epsilon": float("nan")}, "epsilon is nan"),
    ("MaxPool", {"dilations": [0, 1]}, "attribute dilations="),
    ("MaxPool", {"pads": [0, 0, 0]}, "dimensions"),
    ("OneHot", {"axis": 5}, "axis 5"),
    ("Pad", {"mode": "mirror"}, "mode is 'mirror'"),
    ("RNN", {"activations": ["Nothing"]}, "'Nothing', which is no activation"),
    ("RNN", {"hidden_size": 7}, "must be 7"),
    ("ReduceMean", {"axes": [2]}, "axis 2 is outside"),
    ("ReduceMean", {"axes": [1, 1]}, "names an axis twice"),
    ("ReduceMean", {"axes": [1, -1]}, "name an axis twice"),
    ("Resize", {"coordinate_transformation_mode": "half"}, "coordinate_transformation_mode is 'half'"),
    ("Resize", {"mode": "area"}, "mode is 'area'"),
    ("Resize", {"nearest_mode": "near"}, "nearest_mode is 'near'"),
    ("ScatterElements", {"axis": 3}, "axis 3 is outside"),
    ("ScatterElements", {"reduction": "sum"}, "reduction is 'sum'"),
    ("Softmax", {"axis": 2}, "axis 2 is outside"),
    ("SpaceToDepth", {"blocksize": -2}, "attribute blocksize="),
    ("SpaceToDepth", {"blocksize": 3}, "attribute blocksize=3"),
    ("Split", {"axis": -3}, "axis -3 is outside"),
    ("TopK", {"axis": 2}, "axis 2 is outside"),
    ("TopK", {"largest": 2}, "largest is 2"),
    ("ArgMax", {"keepdims": 8}, "keepdims is 8"),
    ("AveragePool", {"count_include_pad": 2}, "count_include_pad is 2"),
    ("CumSum", {"exclusive": -1}, "exclusive is -1"),
    ("GRU", {"linear_before_reset": 2}, "linear_before_reset is 2"),
    ("Gemm", {"transB": 3}, "transB is 3"),
    ("MaxPool", {"ceil_mode": -1}, "ceil_mode is -1"),
    ("Mod", {"fmod": 2}, "fmod is 2"),
    ("ReduceMean", {"keepdims": 8}, "keepdims is 8"),
    ("ReduceSum", {"noop_with_empty_axes": 2}, "noop_with_empty_axes is 2"),
    ("Reshape", {"allowzero": 2}, "allowzero is 2"),
    ("Trilu", {"upper": 2}, "upper is 2"),
    ("Transpose", {"perm": [0, 0]}, "is no permutation"),
    ("Transpose", {"perm": [0, 2]}, "is no permutation"),
    ("Transpose", {"perm": [2, 1, 0]}, "has 2 dimensions"),
    ("Einsum", {"equation": "ij,jk,kl->il"}, "terms of its equation: 3"),
    ("Einsum", {"equation": "ij,jk->iz"}, "makes 'z' of nothing"),
)
"""Values of attributes that are out of range: the twin's operator, the values, a part of the answer."""
_SHAPES: tuple[tuple[str, int, Any, str], ...] = (
    ("Add", 1, (2, 4), "shapes do not broadcast"),
    ("BatchNormalization", 1, np.ones(5, np.float32), "size of input 1"),
    ("BatchNormalization", 1, np.ones((2, 1), np.float32), "has 2 dimensions"),
    ("Concat", 1, (3, 4), "dimension 0 of input 1"),
    ("Concat", 1, (2, 4, 1), "dimensions of input 1"),
    ("Conv", 0, (2, 8), "has 2 dimensions"),
    ("Conv", 1, np.ones((3, 3, 3, 3), np.float32), "channels of its weight"),
    ("Conv", 1, np.ones((3, 2, 3), np.float32), "its weight has 3 dimensions"),
    ("CumSum", 1, np.array(4), "axis 4 is outside"),
    ("GRU", 0, (5, 4), "has 2 dimensions"),
    ("GRU", 1, np.ones((1, 9, 5), np.float32), "columns of input 1"),
    ("GRU", 2, np.ones((1, 9, 4), np.float32), "columns of input 2"),
    ("Gemm", 0, (2, 3, 4), "has 3 dimensions"),
    ("Gemm", 1, np.ones((4, 5), np.float32), "rows of input 1"),
    ("LSTM", 1, np.ones((12, 4), np.float32), "has 2 dimensions"),
    ("MatMul", 1, (4, 4), "rows of input 1"),
    ("MaxPool", 0, (2, 8), "has 2 dimensions"),
    ("Pad", 1, np.array([0, 1, 0]), "number of pads"),
    ("Pad", 1, np.array([0, 9, 0, 9]), "reflects 9"),
    ("ReduceSum", 1, np.array([7]), "axis 7 is outside"),
    ("Reshape", 1, np.array([5, 5]), "does not reshape"),
    ("Reshape", 1, np.array([-1, -1]), "is no shape"),
    ("Reshape", 1, np.array([[3, 4]]), "has 2 dimensions"),
    ("Slice", 3, np.array([2]), "axis 2 is outside"),
    ("Split", 1, np.array([2, 5]), "sum of its sizes"),
    ("Squeeze", 1, np.array([0]), "dimension 0"),
    ("Squeeze", 1, np.array([3]), "axis 3 is outside"),
    ("TopK", 1, np.array([6]), "takes 6 of 5"),
    ("TopK", 1, np.array([-1]), "takes -1"),
    ("Unsqueeze", 1, np.array([5]), "axis 5 is outside"),
    ("Unsqueeze", 1, np.array([0, 0]), "name an axis twice"),
)
"""Inputs that do not fit the others: the twin's operator, which input, its shape or value, a part of the answer."""
_LENGTHS = (([9], "has length 9"), ([-1], "has length -1"), ([5, 5], "number of lengths"))
"""Lengths of sequences that a recurrent layer of 5 steps and a batch of 1 cannot have."""


def special() -> Iterator[Case]:
    """Every case."""
    yield from _values()
    yield from _control()
    for name, rule, broken, twin, says in (*_declarations(), *_versions(), *_tensors()):
        node = NODE if rule == "names" else ""
        yield Case(name, rule, broken, twin, says, node)


def _values() -> Iterator[Case]:
    for op, attrs, says in _VALUES:
        twin = _TWIN[op]
        for is_open in (False, True):
            broken = Twin(op, twin.inputs, {**twin.attrs, **attrs}, twin.outputs, twin.opset)
            name = f"{op}: {attrs}{' (open)' if is_open else ''}"
            yield Case(name, "number", broken.model(is_open=is_open), twin.model(is_open=is_open), says)
    for op, index, value, says in _SHAPES:
        twin = _TWIN[op]
        inputs = [*twin.inputs[:index], value, *twin.inputs[index + 1 :]]
        if op == "Slice":
            inputs[1:3] = [twin.inputs[1], twin.inputs[2]]
        name = f"{op}: input {index} {value if isinstance(value, tuple) else value.tolist()}"[:80]
        yield Case(name, "shape", Twin(op, inputs, twin.attrs, twin.outputs, twin.opset).model(), twin.model(), says)
    for op in ("GRU", "LSTM", "RNN"):
        twin = _TWIN[op]
        for lengths, says in _LENGTHS:
            models = [
                Twin(op, [*twin.inputs, None, np.array(given, np.int32)], twin.attrs, twin.outputs).model()
                for given in (lengths, [4])
            ]
            yield Case(f"{op}: lengths {lengths}", "number", models[0], models[1], says)


# ---- control flow ----


def _port(name: str, kind: int, shape: list[int] | None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def _graph(*, name: str = "inner", steps: Any = (), inputs: Any = (), outputs: Any = ()) -> onnx.GraphProto:
    """A graph; steps: operator, inputs, output, attributes."""
    nodes = [helper.make_node(op, list(given), [out], f"{op} inside", **attrs) for op, given, out, attrs in steps]
    return helper.make_graph(nodes, name, [_port(*p) for p in inputs], [_port(*p) for p in outputs])


def _branch(op: str = "Relu", kind: int = FLOAT, shape: list[int] | None = None, outputs: int = 1) -> onnx.GraphProto:
    steps: list[Any] = [(op, ["x"], "y0", {} if op != "Cast" else {"to": kind})]
    steps += [("Abs", ["x"], f"y{k}", {}) for k in range(1, outputs)]
    return _graph(steps=steps, outputs=[(f"y{k}", kind if k == 0 else FLOAT, shape) for k in range(outputs)])


def _if(then: onnx.GraphProto, other: onnx.GraphProto, outputs: int = 1, condition: int = BOOL) -> onnx.ModelProto:
    names = [f"o{k}" for k in range(outputs)]
    node = helper.make_node("If", ["c"], names, NODE, then_branch=then, else_branch=other)
    return model_of([node], [_port("c", condition, []), _port("x", FLOAT, [2, 3])], names)


def _loop(**changes: Any) -> onnx.ModelProto:
    """A Loop whose body carries one value and stacks another."""
    given: dict[str, Any] = {
        "inputs": [("i", INT64, []), ("go", BOOL, []), ("s", FLOAT, [2, 3])],
        "steps": [
            ("Identity", ["go"], "on", {}),
            ("Relu", ["s"], "t", {}),
            ("Abs", ["s"], "each", {}),
        ],
        "outputs": [("on", BOOL, []), ("t", FLOAT, [2, 3]), ("each", FLOAT, [2, 3])],
    }
    count = changes.pop("count", 2)
    kinds = changes.pop("kinds", (INT64, BOOL))
    names = [f"o{k}" for k in range(count)]
    body = _graph(name="body", **{**given, **changes})
    node = helper.make_node("Loop", ["n", "c", "x"], names, NODE, body=body)
    ports = [_port("n", kinds[0], []), _port("c", kinds[1], []), _port("x", FLOAT, [2, 3])]
    return model_of([node], ports, names)


def _scan(attrs: Mapping[str, Any] | None = None, count: int = 2, **changes: Any) -> onnx.ModelProto:
    """A Scan whose body carries one value and stacks another."""
    given: dict[str, Any] = {
        "inputs": [("s", FLOAT, [3]), ("row", FLOAT, [3])],
        "steps": [("Add", ["s", "row"], "t", {}), ("Mul", ["s", "row"], "each", {})],
        "outputs": [("t", FLOAT, [3]), ("each", FLOAT, [3])],
    }
    names = [f"o{k}" for k in range(count)]
    body = _graph(name="body", **{**given, **changes})
    node = helper.make_node("Scan", ["a", "x"], names, NODE, body=body, **{"num_scan_inputs": 1, **(attrs or {})})
    return model_of([node], [_port("a", FLOAT, [3]), _port("x", FLOAT, [4, 3])], names)


def _control() -> Iterator[Case]:
    plain = _if(_branch(), _branch("Abs"))
    cast = _branch("Cast", INT64)
    with_input = _branch()
    with_input.input.append(_port("p", FLOAT, [2, 3]))
    lost = _branch()
    lost.node[0].input[0] = "nobody"
    branches: list[tuple[str, str, onnx.ModelProto]] = [
        ("types differ", "in then_branch, but tensor(int64)", _if(_branch(), cast)),
        ("then has two outputs", "outputs of then_branch: 2", _if(_branch(outputs=2), _branch())),
        ("else has two outputs", "outputs of else_branch: 2", _if(_branch(), _branch(outputs=2))),
        ("the node has two outputs", "outputs of then_branch: 1", _if(_branch(), _branch(), 2)),
        ("a branch has an input", "then_branch has 1 inputs", _if(with_input, _branch())),
        ("the condition is a number", "input 0 'c' is tensor(float)", _if(_branch(), _branch(), condition=FLOAT)),
    ]
    loops = [
        ("the condition is a number", "'c' is tensor(int64)", _loop(kinds=(INT64, INT64))),
        ("the count is a float", "'n' is tensor(float)", _loop(kinds=(FLOAT, BOOL))),
        ("the body has too few inputs", "inputs of its body: 2", _loop(**_less(2))),
        ("the body has too many inputs", "inputs of its body: 4", _loop(**_less(4))),
        ("too many outputs", "outputs of its body: 3", _loop(count=3)),
        ("too few outputs", "outputs of its body: 3", _loop(count=1)),
        ("the carried value changes", "carried value 0 is tensor(float)", _loop(**_changed("t"))),
        ("the body's condition is a number", "not tensor(bool)", _loop(**_changed("on"))),
        ("the body's input is declared otherwise", "is declared tensor(int64)", _loop(**_declared("s"))),
        ("the counter is declared otherwise", "is declared tensor(float)", _loop(**_declared("i"))),
    ]
    scans = [
        ("no scanned input", "num_scan_inputs is 0", _scan({"num_scan_inputs": 0})),
        ("too many scanned inputs", "num_scan_inputs is 3", _scan({"num_scan_inputs": 3})),
        ("a direction of 2", "a direction is 0 or 1", _scan({"scan_input_directions": [2]})),
        ("too many directions", "scan_input_directions: 2", _scan({"scan_input_directions": [0, 1]})),
        ("too many axes", "scan_output_axes: 2", _scan({"scan_output_axes": [0, 0]})),
        ("too many outputs", "outputs of its body: 2", _scan(count=3)),
        ("the body has one input", "inputs of its body: 1", _scan(inputs=[("s", FLOAT, [3])], steps=_SCAN_STEPS)),
    ]
    for op, twin, cases in (("If", plain, branches), ("Loop", _loop(), loops), ("Scan", _scan(), scans)):
        for name, says, broken in cases:
            yield Case(f"{op}: {name}", "bodies", broken, twin, says)
    yield Case(
        "If: a branch reads nothing", "bodies", _if(lost, _branch()), plain, "computes input 'nobody'", "Relu inside"
    )


_SCAN_STEPS = [("Relu", ["s"], "t", {}), ("Abs", ["s"], "each", {})]


def _less(count: int) -> dict[str, Any]:
    ports = [("i", INT64, []), ("go", BOOL, []), ("s", FLOAT, [2, 3]), ("u", FLOAT, [2, 3])]
    source = "s" if count > 2 else "x"
    return {
        "inputs": ports[:count],
        "steps": [("Identity", ["go"], "on", {}), ("Relu", [source], "t", {}), ("Abs", [source], "each", {})],
    }


def _changed(name: str) -> dict[str, Any]:
    """A body in which an output has another type than it must have."""
    ways = {"t": ("Cast", ["s"], "t", {"to": INT64}), "on": ("Cast", ["go"], "on", {"to": INT64})}
    steps = [("Identity", ["go"], "on", {}), ("Relu", ["s"], "t", {}), ("Abs", ["s"], "each", {})]
    kinds = {"on": BOOL, "t": FLOAT, "each": FLOAT, name: INT64}
    return {
        "steps": [ways[name] if step[2] == name else step for step in steps],
        "outputs": [(port, kind, None) for port, kind in kinds.items()],
    }


def _declared(name: str) -> dict[str, Any]:
    kinds = {"i": INT64, "go": BOOL, "s": FLOAT}
    kinds[name] = INT64 if name == "s" else FLOAT
    return {"inputs": [(port, kind, None) for port, kind in kinds.items()]}


# ---- declarations, versions, tensors ----

_Break = tuple[str, str, onnx.ModelProto, onnx.ModelProto, str]
"""Name, rule, broken model, twin, a part of the answer."""


def _changes(
    rule: str, twin: onnx.ModelProto, ways: Mapping[str, tuple[Callable[[onnx.ModelProto], object], str]]
) -> Iterator[_Break]:
    for name, (change, says) in ways.items():
        broken = onnx.ModelProto()
        broken.CopyFrom(twin)
        change(broken)
        yield f"{rule}: {name}", rule, broken, twin, says


def _declarations() -> Iterator[_Break]:
    twin = Twin("Gemm", [(2, 3), np.ones((3, 4), np.float32)]).model()
    twin.graph.input.append(_port("i1", FLOAT, [3, 4]))
    twin.graph.value_info.append(_port("v", FLOAT, [1]))
    weight = twin.graph.input[1].type.tensor_type

    def add(*ports: onnx.ValueInfoProto) -> Callable[[onnx.ModelProto], object]:
        return lambda m: m.graph.value_info.extend(ports)

    def dims(model: onnx.ModelProto) -> None:
        model.graph.input[1].type.tensor_type.shape.dim[0].dim_value = 4

    def rank(model: onnx.ModelProto) -> None:
        model.graph.input[1].type.tensor_type.shape.dim.add(dim_value=1)

    def kind(model: onnx.ModelProto) -> None:
        model.graph.input[1].type.tensor_type.elem_type = INT64

    def sequence(model: onnx.ModelProto) -> None:
        model.graph.value_info[0].CopyFrom(helper.make_tensor_sequence_value_info("o0", FLOAT, None))

    assert weight.elem_type == FLOAT
    ways: dict[str, tuple[Callable[[onnx.ModelProto], object], str]] = {
        "a value twice": (add(_port("v", INT64, None)), "'v' is tensor(int64), but is declared tensor(float)"),
        "an initializer's shape": (dims, "initializer 'i1' of shape [3, 4]"),
        "an initializer's rank": (rank, "initializer 'i1' of shape [3, 4]"),
        "an initializer's type": (kind, "'i1' is tensor(float), but is declared tensor(int64)"),
        "a sequence": (sequence, "declared seq(tensor(float))"),
        "an input's type": (add(_port("i0", INT64, None)), "'i0' is tensor(float), but is declared tensor(int64)"),
    }
    yield from _changes("declarations", twin, ways)
    names: dict[str, tuple[Callable[[onnx.ModelProto], object], str]] = {
        "an input twice": (lambda m: m.graph.input.append(m.graph.input[0]), "the name of another"),
        "an input without a name": (lambda m: m.graph.input.add(), "no name"),
        "an initializer twice": (lambda m: m.graph.initializer.append(m.graph.initializer[0]), "the name of another"),
        "an output nobody computes": (lambda m: m.graph.output.add(name="z"), "no node computes output 'z'"),
        "no outputs": (lambda m: m.graph.ClearField("output"), "the model has no outputs"),
    }
    yield from _changes("graph", twin, names)


def _versions() -> Iterator[_Break]:
    def imports(*versions: tuple[str, int]) -> Callable[[onnx.ModelProto], object]:
        def change(model: onnx.ModelProto) -> None:
            del model.opset_import[:]
            model.opset_import.extend(helper.make_opsetid(*version) for version in versions)

        return change

    def ir(version: int) -> Callable[[onnx.ModelProto], object]:
        return lambda m: setattr(m, "ir_version", version)

    twin = _TWIN["Relu"].model()
    ways: dict[str, tuple[Callable[[onnx.ModelProto], object], str]] = {
        **{f"ir_version {v}": (ir(v), f"ir_version {v}") for v in (0, -1, 15, 2**31, 2**62)},
        "no ir_version": (lambda m: m.ClearField("ir_version"), "ir_version 0"),
        **{f"opset {v}": (imports(("", v)), f"opset {v}") for v in (-1, 0, 99, 2**31, 2**62)},
        "no opset": (imports(), "opset"),
        "two versions": (imports(("", 17), ("", 13)), "has versions 17 and 13"),
        "two names of one domain": (imports(("", 17), ("ai.onnx", 13)), "has versions 17 and 13"),
        "another domain's version": (imports(("", 17), ("com.microsoft", 0)), "has version 0"),
    }
    yield from _changes("versions", twin, ways)
    contrib = _TWIN["BiasGelu"].model()
    yield "versions: a domain without a version", "names", _with(contrib, imports(("", 17))), contrib, "opset imports"
    function = _with(twin, _add_function)
    yield "versions: a function of the model", "names", function, twin, "defines the operator itself"


def _with(model: onnx.ModelProto, change: Callable[[onnx.ModelProto], object]) -> onnx.ModelProto:
    other = onnx.ModelProto()
    other.CopyFrom(model)
    change(other)
    return other


def _add_function(model: onnx.ModelProto) -> None:
    nodes = [helper.make_node("Neg", ["a"], ["b"])]
    model.functions.append(helper.make_function("", "Relu", ["a"], ["b"], nodes, [helper.make_opsetid("", 17)]))


def _tensors() -> Iterator[_Break]:
    twin = Twin("Add", [(2, 3), np.ones((2, 3), np.float32)]).model()

    def tensor(change: Callable[[TensorProto], object]) -> Callable[[onnx.ModelProto], object]:
        return lambda m: change(m.graph.initializer[0])

    ways: dict[str, tuple[Callable[[onnx.ModelProto], object], str]] = {
        "too few bytes": (tensor(lambda t: setattr(t, "raw_data", t.raw_data[:-1])), "'i1'"),
        "too many bytes": (tensor(lambda t: setattr(t, "raw_data", t.raw_data + b"1234")), "'i1'"),
        "a negative dimension": (tensor(lambda t: t.dims.__setitem__(0, -2)), "'i1'"),
        "data in two fields": (tensor(lambda t: t.float_data.extend([1.0] * 12)), "'i1' has data in two places"),
        "huge dimensions": (tensor(lambda t: t.dims.__setitem__(0, 2**62)), "'i1'"),
        "no type": (tensor(lambda t: setattr(t, "data_type", 0)), "'i1'"),
        "an unknown type": (tensor(lambda t: setattr(t, "data_type", 77)), "'i1'"),
        "no name": (tensor(lambda t: t.ClearField("name")), "no name"),
    }
    yield from _changes("tensors", twin, ways)
    empty = numpy_helper.from_array(np.ones(2, np.float32), "v")
    filled = [
        Twin("ConstantOfShape", [np.array([2, 3])], {"value": numpy_helper.from_array(v)}).model()
        for v in (np.ones(2, np.float32), np.ones(1, np.float32))
    ]
    assert empty.dims
    yield "tensors: a value of two elements", "names", filled[0], filled[1], "it must have one element"
