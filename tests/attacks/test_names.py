"""Names in a model that would act on a terminal, or are too long for an artifact."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import flexnn
from flexnn import ort
from flexnn.cli import main
from flexnn.errors import TEXT_MAX, printable
from flexnn.graph.stated import NAME_MAX

EVIL = "\x1b[2J\x1b]0;owned\x07\r\n\x9b31m\u202egnp.exe"
"""A name that clears the screen, sets the window's title, begins a line and turns the direction of text around."""


def model_of(op: str = "Relu", evil: str = EVIL, **attrs: object) -> onnx.ModelProto:
    """A product and another node between an input and an output, all of whose names are evil."""
    nodes = [
        helper.make_node("MatMul", [f"x{evil}", f"w{evil}"], [f"h{evil}"], f"first{evil}"),
        helper.make_node(op, [f"h{evil}"], [f"y{evil}"], f"second{evil}", **attrs),
    ]
    graph = helper.make_graph(
        nodes,
        f"graph{evil}",
        [helper.make_tensor_value_info(f"x{evil}", TensorProto.FLOAT, [2, 64])],
        [onnx.ValueInfoProto(name=f"y{evil}")],
        [numpy_helper.from_array(np.ones((64, 64), np.float32), f"w{evil}")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def saved(folder: Path, model: onnx.ModelProto) -> str:
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return str(path)


def check_harmless(text: str) -> None:
    assert all(line.isprintable() for line in text.split("\n")), repr(text)


def broken() -> list[onnx.ModelProto]:
    """Models of which compiling says something that quotes a name: of a node, value, operator, attribute, domain."""
    models = [model_of(f"Op{EVIL}"), model_of("Cast"), model_of("Relu", **{f"a{EVIL}": 1}), model_of("Softmax", axis=7)]
    lost, foreign, twice, typed, open_dim = (model_of() for _ in range(5))
    lost.graph.node[1].input[0] = f"lost{EVIL}"
    foreign.graph.node[1].domain = f"domain{EVIL}"
    twice.graph.node.append(twice.graph.node[1])
    typed.graph.value_info.append(helper.make_tensor_value_info(f"h{EVIL}", TensorProto.INT64, [1]))
    open_dim.graph.node[1].op_type = "NoSuchOperator"
    open_dim.graph.input[0].type.tensor_type.shape.dim[0].dim_param = f"n{EVIL}"
    return [*models, lost, foreign, twice, typed, open_dim]


@pytest.mark.parametrize("number", range(len(broken())))
def test_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str], number: int) -> None:
    path = saved(tmp_path, broken()[number])
    with pytest.raises(flexnn.GraphError) as caught:
        flexnn.compile(path)
    assert str(caught.value).isprintable()
    assert main(["compile", path]) == 2
    told = capsys.readouterr()
    check_harmless(told.out + told.err)
    assert "\\x1b[2J" in told.err
    assert told.err.count("\n") == 1


def test_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Output of compile, plan and run for a model that compiles."""
    path = saved(tmp_path, model_of())
    names: list[str] = []
    artifact = flexnn.compile(path, progress=lambda name, done, total: names.append(name))
    assert names
    assert all(name.isprintable() for name in names)
    commands = (["compile", "--dump", "all", path], ["plan", artifact, "--profile", "analytic"])
    for command in (*commands, ["plan", artifact, "--json", "--profile", "analytic"]):
        assert main(command) == 0
        told = capsys.readouterr()
        check_harmless(told.out + told.err)
    assert "first" in told.out
    assert main(["run", artifact, "--input", saved(tmp_path, model_of())]) == 2
    check_harmless(capsys.readouterr().err)
    plan = flexnn.plan(artifact, profile="analytic", explain=True)
    check_harmless(plan.summary())


def test_names_that_the_terminal_has_no_letters_for(tmp_path: Path) -> None:
    """Ended the command in an error of the codec."""
    artifact = flexnn.compile(saved(tmp_path, model_of(evil="模型")))
    command = [sys.executable, "-P", "-m", "flexnn", "plan", artifact, "--profile", "analytic"]
    for how in ({"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}):
        done = subprocess.run(command, capture_output=True, env=os.environ | how)
        assert done.returncode == 0, done.stderr
        assert b"first\\u6a21\\u578b" in done.stdout


def test_inputs_keep_their_names(tmp_path: Path) -> None:
    with flexnn.Session(flexnn.compile(saved(tmp_path, model_of())), profile="analytic") as session:
        assert session.get_inputs()[0].name == f"x{EVIL}"
        with pytest.raises(ValueError, match="input") as caught:
            session.run(None, {})
        assert str(caught.value).isprintable()
        x = np.zeros((2, 64), np.float32)
        for names, feed in (([EVIL], {f"x{EVIL}": x}), (None, {EVIL: x}), (None, {f"x{EVIL}": x[:1]})):
            with pytest.raises(ValueError, match="put") as caught:
                session.run(names, feed)
            assert str(caught.value).isprintable()


def test_the_names_of_onnxruntime(tmp_path: Path) -> None:
    """Its texts quoted them raw; they have lines of their own, which stay."""
    path = saved(tmp_path, model_of())
    session = ort.InferenceSession(path)
    x, good = f"x{EVIL}", np.zeros((2, 64), np.float32)
    feeds = [{x: good[:1]}, {x: good[0]}, {x: None}, {}, {x: good, EVIL: good}, {x: good.astype(np.float64)}]
    for names, feed in [([EVIL], {x: good}), *((None, feed) for feed in feeds)]:
        with pytest.raises(Exception, match=r"nput|output") as caught:
            session.run(names, feed)
        check_harmless(str(caught.value))
    for content in (None, b"\x08junk"):
        other = tmp_path / f"{EVIL.replace('/', '')}.onnx"
        if content is not None:
            other.write_bytes(content)
        with pytest.raises(Exception, match="Load model") as caught:
            ort.InferenceSession(str(other))
        check_harmless(str(caught.value))


def test_plans_of_open_shapes(tmp_path: Path) -> None:
    """Regions are named by their nodes and attributes."""
    body = model_of().graph
    del body.input[:]
    x = helper.make_tensor_value_info(f"x{EVIL}", TensorProto.FLOAT, [f"n{EVIL}", 64])
    flag = helper.make_tensor_value_info("flag", TensorProto.BOOL, [])
    node = helper.make_node("If", ["flag"], ["y"], f"if{EVIL}", then_branch=body, else_branch=body)
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph([node], "graph", [x, flag], outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    artifact = flexnn.compile(saved(tmp_path, model))
    plan = flexnn.plan(artifact, shapes={f"x{EVIL}": (2, 64)}, profile="analytic")
    assert "\\x1b[2J" in plan.summary()
    check_harmless(plan.summary())


def test_long_names(tmp_path: Path) -> None:
    """Compiling refuses what the artifact's reader would; a message is bounded."""
    fits = flexnn.compile(saved(tmp_path, model_of(evil="a" * (NAME_MAX - 6))))
    with flexnn.Session(fits, profile="analytic") as session:
        assert len(session.get_inputs()[0].name) == NAME_MAX - 5
    for evil in ("a" * NAME_MAX, "\x1b" * 5000, "a" * 1_000_000):
        with pytest.raises(flexnn.GraphError, match=f"at most {NAME_MAX} are supported") as caught:
            flexnn.compile(saved(tmp_path, model_of(evil=evil)))
        assert len(str(caught.value)) <= TEXT_MAX + 3
    with pytest.raises(flexnn.GraphError, match="has no such") as caught:
        raise flexnn.GraphError(f"has no such{EVIL * 1000}")
    assert len(str(caught.value)) <= TEXT_MAX + 3


def test_what_is_said_of_values_is_no_name(tmp_path: Path) -> None:
    """PyTorch's exporter writes long texts there."""
    model = model_of("Relu", "")
    values = model.graph.input[0], model.graph.output[0], model.graph.value_info.add(name="h")
    for said in (*values, model.graph.node[0], model.graph.initializer[0], model.graph):
        said.doc_string = "d" * (NAME_MAX + 1)
        said.metadata_props.add(key="fx", value="v" * (NAME_MAX + 1))
    model.graph.value_info[0].metadata_props[0].value += "\u2028"
    with flexnn.Session(flexnn.compile(saved(tmp_path, model)), profile="analytic") as session:
        assert session.run(None, {"x": np.ones((2, 64), np.float32)})[0].shape == (2, 64)


@pytest.mark.parametrize("text", ["", "plain", "Ünïcode 模型", "a\\b", "tab\t", "\udc80", "\x00", "\u2028"])
def test_printable(text: str) -> None:
    assert printable(text).isprintable()
    assert (printable(text) == text) == text.isprintable()
    assert printable(printable(text)) == printable(text)
