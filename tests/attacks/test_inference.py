"""Attack: a model at which onnx's shape inference ends the process, as some operators read types that nobody knows.

Answer: these nodes are hidden from it; then the model compiles, or is refused for what is wrong with it.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import onnx
from onnx import TensorProto, helper

F32, STRING, I64 = TensorProto.FLOAT, TensorProto.STRING, TensorProto.INT64
NODES = {
    "EyeLike": helper.make_node("EyeLike", ["t"], ["y"]),
    "RegexFullMatch": helper.make_node("RegexFullMatch", ["t"], ["y"], pattern="a"),
    "DictVectorizer": helper.make_node("DictVectorizer", ["t"], ["y"], domain="ai.onnx.ml", string_vocabulary=["a"]),
    "LabelEncoder": helper.make_node("LabelEncoder", ["t"], ["y"], domain="ai.onnx.ml", classes_strings=["a"]),
    "Split": helper.make_node("Split", ["x"], ["y", "z", "u"], num_outputs=1),
    "GatherND": helper.make_node("GatherND", ["x", "i"], ["y"], batch_dims=-1),
}
SCRIPT = """
import sys, flexnn
for path in sys.argv[1:]:
    try:
        flexnn.compile(path)
        print("compiled")
    except flexnn.FlexNNError as error:
        print("refused:", error)
"""


def write(name: str, node: onnx.NodeProto, path: Path) -> str:
    """Write a model in which onnx does not know the type of ``t``."""
    gelu = helper.make_node("Gelu", ["x"], ["t"], domain="com.microsoft")
    inputs = [helper.make_tensor_value_info("x", F32, [0, 5]), helper.make_tensor_value_info("i", I64, [0, 0])]
    graph = helper.make_graph([gelu, node], name, inputs, [onnx.ValueInfoProto(name="y")])
    opsets = {"": 22, "com.microsoft": 1, "ai.onnx.ml": 1}
    imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=10), path)
    return str(path)


def test_inference_ends_no_process(tmp_path: Path) -> None:
    paths = [write(name, node, tmp_path / f"{name}.onnx") for name, node in NODES.items()]
    command = [sys.executable, "-P", "-c", SCRIPT, *paths]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"status {done.returncode} after {done.stdout}"
    assert len(done.stdout.splitlines()) == len(NODES), done.stdout


def test_what_is_hidden_comes_back(tmp_path: Path) -> None:
    from flexnn.graph.declared import infer_outputs

    inner = helper.make_graph([helper.make_node("EyeLike", ["x"], ["e"])], "inner", [], [onnx.ValueInfoProto(name="e")])
    nodes = [
        helper.make_node("If", ["c"], ["b"], then_branch=inner, else_branch=inner),
        helper.make_node("Scaler", ["b"], ["s"], domain="ai.onnx.ml"),
        helper.make_node("Relu", ["x"], ["y"]),
    ]
    inputs = [helper.make_tensor_value_info("x", F32, [2, 3]), helper.make_tensor_value_info("c", TensorProto.BOOL, [])]
    graph = helper.make_graph(nodes, "hidden", inputs, [onnx.ValueInfoProto(name="y")])
    imports = [helper.make_opsetid("", 22), helper.make_opsetid("ai.onnx.ml", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    inferred, (port,) = infer_outputs(model)
    assert port.dims == (2, 3)
    for one in model, inferred:
        assert [node.domain for node in one.graph.node] == ["", "ai.onnx.ml", ""]
        assert len(one.opset_import) == 2
        assert one.graph.node[0].attribute[0].g.node[0].domain == ""
