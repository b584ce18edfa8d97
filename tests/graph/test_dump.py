"""``flexnn compile --dump`` shows what each stage made; a model that is bound when it runs has fewer of them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from onnx import TensorProto, helper, numpy_helper

import flexnn
from flexnn.compiler import dump_stage
from flexnn.graph.dump import stages
from tests.support.compare import weights


def write(path: Path, rows: int | str = 1) -> Path:
    """x -> MatMul -> If flag: Relu, else: itself -> y; without the If where ``rows`` is known."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, 6])
    nodes, ports = [helper.make_node("MatMul", ["x", "w"], ["h"], name="product")], [x]
    if isinstance(rows, str):
        sides = {}
        for side, op in (("then_branch", "Relu"), ("else_branch", "Identity")):
            out = helper.make_tensor_value_info(f"{side}_y", TensorProto.FLOAT, None)
            sides[side] = helper.make_graph([helper.make_node(op, ["h"], [f"{side}_y"])], side, [], [out])
        nodes.append(helper.make_node("If", ["flag"], ["y"], **sides))
        ports.append(helper.make_tensor_value_info("flag", TensorProto.BOOL, []))
    else:
        nodes.append(helper.make_node("Relu", ["h"], ["y"]))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "dump", ports, [y], [numpy_helper.from_array(weights(6, 20), "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    return path


def dumped(path: Path, stage: str) -> str:
    parts: list[str] = []
    dump_stage(path, stage, parts.append)
    return "".join(parts)


def compile_(*arguments: object, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "flexnn", "compile", *map(str, arguments)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_each_stage_of_a_graph(tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx")
    whole = dumped(path, "all")
    assert re.findall(r"^== (.*)", whole, re.M) == stages()
    for stage, text in zip(stages(), re.split(r"^== .*\n", whole, flags=re.M)[1:], strict=True):
        assert dumped(path, stage) == text
    assert "h = MatMul x w  # product\ny = Relu h\n" in dumped(path, "imported")
    assert "conv" in dumped(path, "bound")
    assert "= unary" in dumped(path, "bound")
    packed = dumped(path, "packed")
    assert "act=relu" in packed
    assert "unary" not in packed
    assert re.search(r"^#0 panels bytes=896 chunk_bytes=448  # product$", packed, re.M)


def test_stages_of_a_model_that_is_bound_when_it_runs(tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx", "n")
    assert "x:f32[n,6]" in dumped(path, "imported")
    assert "  then_branch:\n    inputs \n    then_branch_y = Relu h\n" in dumped(path, "imported")
    assert "#0 panels" in dumped(path, "packed")
    headings = re.findall(r"^== (.*)", dumped(path, "all"), re.M)
    lacking = "no stages between imported and packed: the model is bound when it runs: input 'x': dimensions [n,6]"
    assert headings[1].startswith(lacking)
    assert [headings[0], headings[2]] == ["imported", "packed"]
    for stage in ("bound", "layout", "cleanup-2"):
        with pytest.raises(flexnn.CompileError, match=re.escape(f"{path}: {lacking}")):
            dumped(path, stage)


def test_what_does_not_compile_is_shown_as_far_as_it_goes(tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx")
    path.write_bytes(path.read_bytes().replace(b"Relu", b"Rulu"))
    assert "y = Rulu h" in dumped(path, "imported")
    with pytest.raises(flexnn.GraphError, match="Rulu"):
        dumped(path, "bound")


def test_the_command_writes_an_artifact_only_where_it_is_told(tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx")
    done = compile_("--dump", "order", path.name, folder=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, dumped(path, "order"), "")
    assert list(tmp_path.iterdir()) == [path]
    done = compile_("--dump", "order", path.name, "-o", "a.flexnn", folder=tmp_path)
    assert (done.returncode, done.stdout) == (0, dumped(path, "order"))
    assert done.stderr.startswith("a.flexnn  ")
    flexnn.Session(tmp_path / "a.flexnn").close()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "MODEL.onnx is missing"),
        (["--dump", "bound"], "MODEL.onnx is missing"),
        (["--dump", "bond", "m.onnx"], "no stage 'bond'; the stages are imported, bound, "),
        (["--dump", "bound", "n.onnx"], "n.onnx: No such file"),
        (["--dump", "bound", "/dev/zero"], "not a regular file"),
    ],
)
def test_misuse(tmp_path: Path, arguments: list[str], words: str) -> None:
    write(tmp_path / "m.onnx")
    done = compile_(*arguments, folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert words in done.stderr


def test_the_names_of_the_stages(tmp_path: Path) -> None:
    done = compile_("--dump", "list", folder=tmp_path)
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, stages(), "")
    assert len(set(stages())) == len(stages())
