"""Values of attributes: numbers in the range, and texts among the names, that the standard states.

Here are those that hold whatever the shapes are; lowerings and evaluators check what depends on shapes.
"""

from __future__ import annotations

from collections.abc import Callable

import onnx
from onnx import AttributeProto, TensorProto

from .names import node_error

_WINDOWED = (
    "AveragePool", "Col2Im", "Conv", "ConvInteger", "ConvTranspose", "DeformConv", "LpPool", "MaxPool", "MaxUnpool",
    "QLinearConv",
)  # fmt: skip
_RECURRENT = ("GRU", "LSTM", "RNN")
_TYPED = (
    "Bernoulli", "Cast", "EyeLike", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",
    "RandomUniformLike",
)  # fmt: skip
_PADDED = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
_ACTIVATIONS = (
    "relu", "tanh", "sigmoid", "affine", "leakyrelu", "thresholdedrelu", "scaledtanh", "hardsigmoid", "elu",
    "softsign", "softplus",
)  # fmt: skip
_LEAST: dict[str, dict[str, int]] = {
    **{op: {"dilations": 1, "group": 1, "kernel_shape": 1, "strides": 1, "pads": 0} for op in _WINDOWED},
    **{op: {"hidden_size": 1} for op in _RECURRENT},
    "DepthToSpace": {"blocksize": 1},
    "GroupNormalization": {"num_groups": 1},
    "LRN": {"size": 1},
    "MaxRoiPool": {"pooled_shape": 1},
    **{op: {"shape": 0} for op in ("RandomNormal", "RandomUniform")},
    "RoiAlign": {"output_height": 1, "output_width": 1},
    "SpaceToDepth": {"blocksize": 1},
    "Split": {"num_outputs": 1, "split": 0},
    "TopK": {"k": 1},
    "Multinomial": {"sample_size": 1},
}
"""Least values of integers and of all integers in lists."""
_NAMES: dict[str, dict[str, tuple[str, ...]]] = {
    **{op: {"auto_pad": _PADDED} for op in _WINDOWED},
    **{op: {"direction": ("forward", "reverse", "bidirectional")} for op in _RECURRENT},
    "BitShift": {"direction": ("LEFT", "RIGHT")},
    "DepthToSpace": {"mode": ("DCR", "CRD")},
    "Gelu": {"approximate": ("none", "tanh")},
    "GridSample": {
        "mode": ("bilinear", "nearest", "bicubic", "linear", "cubic"),
        "padding_mode": ("zeros", "border", "reflection"),
    },
    "Pad": {"mode": ("constant", "reflect", "edge", "wrap")},
    "Resize": {
        "coordinate_transformation_mode": (
            "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
            "tf_crop_and_resize", "tf_half_pixel_for_nn",
        ),
        "keep_aspect_ratio_policy": ("stretch", "not_larger", "not_smaller"),
        "mode": ("nearest", "linear", "cubic"),
        "nearest_mode": ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil", "simple", ""),
    },
    "RoiAlign": {
        "coordinate_transformation_mode": ("half_pixel", "output_half_pixel"),
        "mode": ("avg", "max"),
    },
    **{op: {"reduction": ("none", "add", "mul", "max", "min")} for op in ("ScatterElements", "ScatterND")},
    **{
        op: {"reduction": ("none", "mean", "sum")} for op in ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
    },
    "Upsample": {"mode": ("nearest", "linear")},
}  # fmt: skip
"""Texts that are allowed."""
_REDUCTIONS = (
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
    "ReduceSum", "ReduceSumSquare",
)  # fmt: skip
_FLAGS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(_RECURRENT, ("layout", "linear_before_reset", "input_forget")),
    **dict.fromkeys(_REDUCTIONS, ("keepdims", "noop_with_empty_axes")),
    **dict.fromkeys(("ArgMax", "ArgMin"), ("keepdims", "select_last_index")),
    **dict.fromkeys(("AveragePool", "LpPool", "MaxPool"), ("ceil_mode", "count_include_pad", "storage_order")),
    "CumSum": ("exclusive", "reverse"),
    "Gemm": ("transA", "transB"),
    "GridSample": ("align_corners",),
    "Mod": ("fmod",),
    "NonMaxSuppression": ("center_point_box",),
    "Reshape": ("allowzero",),
    "Resize": ("antialias", "exclude_outside"),
    "TopK": ("largest", "sorted"),
    "Trilu": ("upper",),
    "Unique": ("sorted",),
}
"""Integers that must be 0 or 1."""


def check_numbers(node: onnx.NodeProto) -> None:
    """Check the values of the attributes of a node that fits its schema. Raises GraphError."""
    attributes = {attribute.name: attribute for attribute in node.attribute}
    for name, least in _LEAST.get(node.op_type, {}).items():
        values = _ints(attributes, name)
        if min(values, default=least) < least:
            stated = values if attributes[name].type == AttributeProto.INTS else values[0]
            raise node_error(node, f"attribute {name}={stated}: the least is {least}")
    for name, names in _NAMES.get(node.op_type, {}).items():
        text = attributes[name].s.decode("utf-8", "replace") if name in attributes else names[0]
        if text not in names:
            raise node_error(node, f"attribute {name} is {text!r}; it may be {', '.join(filter(None, names))}")
    for name in _FLAGS.get(node.op_type, ()):
        if name in attributes and attributes[name].i not in (0, 1):
            raise node_error(node, f"attribute {name} is {attributes[name].i}; it may be 0 or 1")
    if node.op_type in _SPECIAL:
        _SPECIAL[node.op_type](node, attributes)


def _ints(attributes: dict[str, AttributeProto], name: str) -> list[int]:
    if name not in attributes:
        return []
    attribute = attributes[name]
    return list(attribute.ints) if attribute.type == AttributeProto.INTS else [attribute.i]


def _check_recurrent(node: onnx.NodeProto, attributes: dict[str, AttributeProto]) -> None:
    if "activations" not in attributes:
        return
    names = [text.decode("utf-8", "replace") for text in attributes["activations"].strings]
    for name in names:
        if name.lower() not in _ACTIVATIONS:
            raise node_error(node, f"attribute activations names {name!r}, which is no activation")
    both = "direction" in attributes and attributes["direction"].s == b"bidirectional"
    wanted = {"GRU": 2, "LSTM": 3, "RNN": 1}[node.op_type] * (2 if both else 1)
    if len(names) != wanted:
        raise node_error(node, f"attribute activations has {len(names)} names; the node needs {wanted}")


def _check_windows(node: onnx.NodeProto, attributes: dict[str, AttributeProto]) -> None:
    """Check that lists of a window speak of equally many dimensions."""
    counts = {name: len(_ints(attributes, name)) for name in ("kernel_shape", "strides", "dilations")}
    counts["pads"] = len(_ints(attributes, "pads")) / 2  # type: ignore[assignment]
    stated = {name: count for name, count in counts.items() if count}
    if len(set(stated.values())) > 1:
        text = ", ".join(f"{name} of {count:g}" for name, count in stated.items())
        raise node_error(node, f"attributes speak of different numbers of dimensions: {text}")


def _check_perm(node: onnx.NodeProto, attributes: dict[str, AttributeProto]) -> None:
    perm = _ints(attributes, "perm")
    if sorted(perm) != list(range(len(perm))):
        raise node_error(node, f"attribute perm={perm} is no permutation")


def _check_type(node: onnx.NodeProto, attributes: dict[str, AttributeProto]) -> None:
    for name in {"to", "dtype"}.intersection(attributes):
        number = attributes[name].i
        if not number or number not in TensorProto.DataType.values():
            raise node_error(node, f"attribute {name} is {number}, which is no type")


def _check_axes(node: onnx.NodeProto, attributes: dict[str, AttributeProto]) -> None:
    axes = _ints(attributes, "axes")
    if len(set(axes)) != len(axes):
        raise node_error(node, f"attribute axes is {axes}, which names an axis twice")


def _check_constant(node: onnx.NodeProto, attributes: dict[str, AttributeProto]) -> None:
    if len(attributes) != 1:
        raise node_error(node, f"has {len(attributes)} attributes with a value; a constant has one")


def _check_filled(node: onnx.NodeProto, attributes: dict[str, AttributeProto]) -> None:
    dims = list(attributes["value"].t.dims) if "value" in attributes else [1]
    if dims not in ([1], []):
        raise node_error(node, f"attribute value has shape {dims}; it must have one element")


def _check_negative(node: onnx.NodeProto, attributes: dict[str, AttributeProto]) -> None:
    epsilon = attributes.get("epsilon")
    if epsilon is not None and not epsilon.f >= 0:
        raise node_error(node, f"attribute epsilon is {epsilon.f:g}; the least is 0")


_Special = Callable[[onnx.NodeProto, dict[str, AttributeProto]], None]
_SPECIAL: dict[str, _Special] = {
    **dict.fromkeys(_RECURRENT, _check_recurrent),
    **dict.fromkeys(_WINDOWED, _check_windows),
    **dict.fromkeys(_TYPED, _check_type),
    **dict.fromkeys(("Squeeze", "Unsqueeze", "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin"), _check_axes),
    **dict.fromkeys(
        ("BatchNormalization", "InstanceNormalization", "LayerNormalization", "GroupNormalization"), _check_negative
    ),
    "Constant": _check_constant,
    "ConstantOfShape": _check_filled,
    "Transpose": _check_perm,
}
