"""Breaking a rule that every operator has: attributes, counts, names, types, versions, as its schema states them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import onnx
from onnx import AttributeProto, TensorProto, defs, helper

from bench.broken.twins import NODE, Twin
from flexnn.graph.standard.schemas import Formal, Schema, Schemas

_OTHERS = (
    TensorProto.BOOL, TensorProto.INT16, TensorProto.FLOAT, TensorProto.UINT64, TensorProto.STRING,
    TensorProto.COMPLEX64,
)  # fmt: skip
"""Types that are tried where an operator must not take one."""


@dataclass(frozen=True, slots=True)
class Case:
    """A model that breaks one rule, and its twin, which does not."""

    name: str
    rule: str
    """The kind of rule."""
    broken: onnx.ModelProto
    twin: onnx.ModelProto
    says: str
    """Part of the answer, beside the node's name."""
    node: str = NODE
    """Name of the node that the answer names; "": the rule is the model's."""


def general(twin: Twin, *, is_open: bool = False) -> Iterator[Case]:
    """Every general rule that applies to the twin's operator, broken."""
    base = twin.model(is_open=is_open)
    schema = Schemas({"": twin.opset, twin.domain: 1 if twin.domain else twin.opset}).find(twin.domain, twin.op)
    assert schema is not None
    for rule, says, broken in (
        *_attributes(base, schema),
        *_counts(base, schema),
        *_types(base, schema),
        *_names(base),
    ):
        yield Case(f"{twin.op}: {rule}{' (open)' if is_open else ''}", rule.partition(" of ")[0], broken, base, says)
    first = _first_version(twin)
    if not twin.domain and first > 7:
        older = _copy(base)
        older.opset_import[0].version = first - 1
        yield Case(f"{twin.op}: older opset", "older opset", older, base, f"of opset {first}")


_Break = tuple[str, str, onnx.ModelProto]
"""The rule, a part of the answer, the broken model."""


def _copy(model: onnx.ModelProto) -> onnx.ModelProto:
    other = onnx.ModelProto()
    other.CopyFrom(model)
    return other


def _first_version(twin: Twin) -> int:
    history = defs.get_all_schemas_with_history()
    return min((s.since_version for s in history if (s.name, s.domain) == (twin.op, twin.domain)), default=0)


def _attributes(base: onnx.ModelProto, schema: Schema) -> Iterator[_Break]:
    broken = _copy(base)
    broken.graph.node[0].attribute.append(helper.make_attribute("nonsense", 1))
    yield "unknown attribute", "attribute nonsense is not supported", broken
    for i, attribute in enumerate(base.graph.node[0].attribute):
        name = attribute.name
        broken = _copy(base)
        broken.graph.node[0].attribute.append(attribute)
        yield f"attribute twice of {name}", f"attribute {name} is stated twice", broken
        broken = _copy(base)
        other = 1 if attribute.type != AttributeProto.INT else [1.5]
        broken.graph.node[0].attribute[i].CopyFrom(helper.make_attribute(name, other))
        yield f"wrong type of {name}", f"attribute {name} has the wrong type", broken
        if schema.attributes[name][1]:
            broken = _copy(base)
            del broken.graph.node[0].attribute[i]
            yield f"missing attribute of {name}", f"attribute {name} is missing", broken
    if base.graph.node[0].attribute:
        name = base.graph.node[0].attribute[0].name
        broken = _copy(base)
        broken.graph.node[0].attribute[0].ClearField("type")
        yield "untyped attribute", f"attribute {name} does not say its type", broken
        broken = _copy(base)
        broken.graph.node[0].attribute[0].strings.append(b"x")
        yield "attribute of two values", f"attribute {name} is of type", broken
        broken = _copy(base)
        broken.graph.node[0].attribute[0].ref_attr_name = "outer"
        yield "attribute of a function", f"attribute {name} refers", broken


def _counts(base: onnx.ModelProto, schema: Schema) -> Iterator[_Break]:
    node = base.graph.node[0]
    least, most = schema.input_counts
    if least:
        broken = _copy(base)
        del broken.graph.node[0].input[least - 1 :]
        yield "too few inputs", f"input {least - 1} is missing", broken
        broken = _copy(base)
        broken.graph.node[0].input[0] = ""
        if schema.inputs[0].is_required:
            yield "missing input", "input 0 is missing", broken
    if most < 100:
        broken = _copy(base)
        broken.graph.node[0].input.extend([node.input[0]] * (most + 1 - len(node.input)))
        yield "too many inputs", f"has {most + 1} inputs", broken
    most = schema.output_counts[1]
    if most < 100:
        broken = _copy(base)
        broken.graph.node[0].output.extend([f"more{k}" for k in range(most + 1 - len(node.output))])
        yield "too many outputs", f"has {most + 1} outputs", broken


def _types(base: onnx.ModelProto, schema: Schema) -> Iterator[_Break]:
    for i, name in enumerate(base.graph.node[0].input):
        formal = schema.inputs[min(i, len(schema.inputs) - 1)]
        other = next((kind for kind in _OTHERS if _text(kind) not in formal.types), None)
        if name and other is not None and (broken := _retyped(base, name, other)) is not None:
            yield f"input type of {i}", f"input {i} {name!r} is {_text(other)}", broken
    pair = _pair(base, schema)
    if pair is not None:
        name, kind = pair
        broken = _retyped(base, name, kind)
        if broken is not None:
            yield "unlike inputs", "they must be the same", broken
    broken = _copy(base)
    wrong = TensorProto.UINT32
    broken.graph.output[0].CopyFrom(helper.make_tensor_value_info("o0", wrong, None))
    yield "declared output", "is declared tensor(uint32)", broken
    broken = _copy(base)
    broken.graph.value_info.append(helper.make_tensor_value_info("o0", TensorProto.UINT32, None))
    yield "declared value", "is declared tensor(uint32)", broken


def _pair(base: onnx.ModelProto, schema: Schema) -> tuple[str, int] | None:
    """An input whose type another input has, too, and another type that the operator allows."""
    seen: set[str] = set()
    for i, name in enumerate(base.graph.node[0].input):
        formal: Formal = schema.inputs[min(i, len(schema.inputs) - 1)]
        if name and formal.variable in seen:
            kinds = (TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.INT8, TensorProto.INT32)
            return next(((name, kind) for kind in kinds if _text(kind) in formal.types), None)
        if name and formal.variable:
            seen.add(formal.variable)
    return None


def _text(kind: int) -> str:
    return f"tensor({TensorProto.DataType.Name(kind).lower()})"


def _retyped(base: onnx.ModelProto, name: str, kind: int) -> onnx.ModelProto | None:
    """A copy in which an input of the graph has another type; a constant becomes such an input."""
    broken = _copy(base)
    for tensor in list(broken.graph.initializer):
        if tensor.name == name:
            broken.graph.input.append(helper.make_tensor_value_info(name, kind, list(tensor.dims)))
            broken.graph.initializer.remove(tensor)
            return broken
    port = next(port for port in broken.graph.input if port.name == name)
    port.type.tensor_type.elem_type = kind
    return broken


def _names(base: onnx.ModelProto) -> Iterator[_Break]:
    broken = _copy(base)
    broken.graph.node[0].input[0] = "nobody"
    yield "unknown input", "no earlier node computes input 'nobody'", broken
    broken = _copy(base)
    broken.graph.node.append(base.graph.node[0])
    yield "computed twice", "a second time", broken
