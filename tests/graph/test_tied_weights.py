"""Tied weights: an embedding that a product reads, too, is stored once, and every number stays what it was."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import pytest
from onnx import helper

import flexnn
from flexnn.artifact import open_artifact
from flexnn.session import open_for_tests
from tests.support.compare import check_model, load
from tests.support.regions import F32, I64, check_run, graph_of, numbers, value

WORDS, WIDTH = 4100, 96
TABLE = numbers(WORDS, WIDTH) / 10
BYTES = TABLE.nbytes


def language_model(head="transpose", tokens="tokens", tied=True, words=WORDS, more=()):
    """Tokens in, scores of tokens out; ``tied``: by one table, else the head's has one word more."""
    last = "table" if tied else "other"
    if head == "transpose":
        nodes = [
            helper.make_node("Transpose", [last], ["t"], perm=[1, 0]),
            helper.make_node("MatMul", ["h", "t"], ["y"]),
        ]
    elif head == "gemm":
        nodes = [
            helper.make_node("Reshape", ["h", "rows"], ["flat"]),
            helper.make_node("Gemm", ["flat", last], ["y"], transB=1),
        ]
    else:
        nodes = [helper.make_node("MatMul", ["h", "t"], ["m"]), helper.make_node("Add", ["m", "bias"], ["y"])]
        nodes = [helper.make_node("Transpose", [last], ["t"], perm=[1, 0]), *nodes]
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["e"]),
        helper.make_node("MatMul", ["e", "w"], ["m0"]),
        helper.make_node("Tanh", ["m0"], ["h"]),
        *nodes,
        *more,
    ]
    constants = {"table": TABLE[:words], "w": numbers(WIDTH, WIDTH, seed=1) / 10, "rows": np.array([-1, WIDTH])}
    if head == "bias":
        constants["bias"] = numbers(words, seed=3)
    if not tied:
        constants["other"] = np.concatenate([TABLE[:words], np.zeros((1, WIDTH), np.float32)])
    outputs = [value("y", F32, None)]
    graph = graph_of(nodes, [value("ids", I64, [1, tokens])], outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def compiled(folder, model, name="m"):
    path = folder / f"{name}.onnx"
    path.write_bytes(model.SerializeToString())
    return flexnn.compile(path)


def picks(tokens, words=WORDS):
    return {"ids": np.random.default_rng(1).integers(-words, words, (1, tokens))}


@pytest.mark.parametrize("head", ["transpose", "gemm"])
@pytest.mark.parametrize("tokens", ["tokens", 5], ids=["open", "fixed"])
def test_a_tied_table_is_stored_once(tmp_path, head, tokens):
    size = {}
    for tied in (True, False):
        model = language_model(head, tokens, tied)
        model.graph.output[0].CopyFrom(value("y", F32, [None] * (2 if head == "gemm" else 3)))
        path = compiled(tmp_path, model, f"tied{tied}")
        size[tied] = (tmp_path / f"tied{tied}.flexnn").stat().st_size
        with open_for_tests(path, threads=2, poison=True) as session:
            check_run(session, model, picks(5))
    assert size[False] - size[True] > 0.9 * BYTES
    assert size[True] < 1.2 * BYTES


@pytest.mark.parametrize("tokens", ["tokens", 7], ids=["open", "fixed"])
def test_bits_are_those_of_two_tables(tmp_path, tokens):
    answers = []
    for tied in (True, False):
        path = compiled(tmp_path, language_model(tokens=tokens, tied=tied), f"tied{tied}")
        with pytest.raises(flexnn.BudgetError) as refusal, flexnn.Session(path, memory=1) as session:
            session.run(None, picks(7))
        for memory in (None, 2 * refusal.value.minimum, 1.2 * refusal.value.minimum):
            with open_for_tests(path, memory=memory and int(memory), threads=2, poison=True) as session:
                answers += [session.run(None, picks(7))[0][..., :WORDS] for _ in range(2)]
    for answer in answers[1:]:
        np.testing.assert_array_equal(answer, answers[0])


def test_the_smallest_budget_does_not_hold_the_table(tmp_path):
    """Rows are read from the file, out of the panels that hold them."""
    for tokens in (3, 300):
        path = compiled(tmp_path, language_model(tokens=tokens), f"of{tokens}")
        with pytest.raises(flexnn.BudgetError) as refusal:
            flexnn.Session(path, memory=1, threads=1)
        with open_for_tests(path, memory=refusal.value.minimum, threads=1, poison=True) as session:
            check_run(session, onnx.load(tmp_path / f"of{tokens}.onnx"), picks(tokens))
            arena = session.plan.arena_bytes
        assert arena < BYTES + 4 * tokens * (WORDS + 4 * WIDTH)
        if tokens == 3:
            assert arena < BYTES / 4


def test_an_index_out_of_range_fails_the_run(tmp_path):
    path = compiled(tmp_path, language_model(tokens=2))
    with flexnn.Session(path) as session:
        for wrong in (WORDS, -WORDS - 1):
            with pytest.raises(flexnn.FlexNNError):
                session.run(None, {"ids": np.array([[0, wrong]])})
        assert np.isfinite(session.run(None, picks(2))[0]).all()


@pytest.mark.parametrize("words", [WORDS, 4097, 4096])
def test_the_graph_computes_the_same(words):
    """The last panel is full, holds one row, or several."""
    model = language_model(tokens=3, words=words)
    graph = check_model(model, feeds=picks(3, words))
    assert [node.op for node in graph.nodes].count("gather_panels") == 1
    (table,) = (w for w in graph.weights if w.kind == "raw" and w.nbytes > BYTES / 2)
    panels = max((w for w in graph.weights if w.kind == "panels"), key=lambda w: w.nbytes)
    assert (table.nbytes, table.chunk_bytes) == (panels.nbytes, panels.chunk_bytes)


def test_what_is_not_tied():
    """A bias goes into the panels of the product, so they are its own; small tables are made anew while binding."""
    assert "gather_panels" not in [node.op for node in load(language_model("bias", 3)).nodes]
    assert "gather_panels" not in [node.op for node in load(language_model(tokens=3, tied=False)).nodes]
    assert "gather_panels" not in [node.op for node in load(language_model(tokens=3, words=64)).nodes]


def test_a_table_under_two_names_is_tied(tmp_path):
    model = language_model(tied=False)
    other = next(tensor for tensor in model.graph.initializer if tensor.name == "other")
    other.CopyFrom(onnx.numpy_helper.from_array(TABLE, "other"))
    compiled(tmp_path, model)
    assert (tmp_path / "m.flexnn").stat().st_size < 1.2 * BYTES


def test_equal_constants_are_stored_once(tmp_path):
    """Under two names, too."""
    nodes = [helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"x{i + 1}"]) for i in range(3)]
    w = numbers(256, 256) / 16
    for dims in ([2, 256], ["n", 256]):
        graph = graph_of(nodes, [value("x0", F32, dims)], [value("x3", F32, dims)], {f"w{i}": w for i in range(3)})
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        path = compiled(tmp_path, model, f"alike{len(str(dims))}")
        with open_for_tests(path, threads=2, poison=True) as session:
            check_run(session, model, {"x0": numbers(2, 256)})
        with open_artifact(path) as artifact:
            assert artifact.header.data_bytes < 1.5 * w.nbytes


def test_ties_do_not_depend_on_the_order_of_nodes(tmp_path):
    model = language_model()
    for order in itertools.islice(itertools.permutations(range(5)), 0, 120, 17):
        nodes = list(model.graph.node)
        shuffled = onnx.ModelProto()
        shuffled.CopyFrom(model)
        del shuffled.graph.node[:]
        shuffled.graph.node.extend(nodes[i] for i in order)
        (tmp_path / "m.onnx").write_bytes(shuffled.SerializeToString())
        flexnn.compile(tmp_path / "m.onnx")
        assert (tmp_path / "m.flexnn").stat().st_size < 1.2 * BYTES


def narrow_model(kind: str, tied: bool = True) -> onnx.ModelProto:
    """Tokens in, scores out, by a table of integers with a step for each row, or of float16."""
    model = language_model(tokens=3)
    table = next(tensor for tensor in model.graph.initializer if tensor.name == "table")
    if kind == "f16":
        table.CopyFrom(onnx.numpy_helper.from_array(TABLE.astype(np.float16), "narrow"))
        made = [helper.make_node("Cast", ["narrow"], ["table"], to=F32)]
    else:
        steps = np.abs(TABLE).max(axis=1) / 127
        whole = np.rint(TABLE / steps[:, None]).astype(np.int8)
        zero = np.full(WORDS, 3 if kind == "moved" else 0, np.int8)
        table.CopyFrom(onnx.numpy_helper.from_array(whole, "narrow"))
        model.graph.initializer.append(onnx.numpy_helper.from_array(steps.astype(np.float32), "steps"))
        model.graph.initializer.append(onnx.numpy_helper.from_array(zero, "zero"))
        made = [helper.make_node("DequantizeLinear", ["narrow", "steps", "zero"], ["table"], axis=0)]
    nodes = [*made, *model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model


@pytest.mark.parametrize("kind", ["f16", "s8"])
def test_a_tied_table_of_narrow_numbers_is_stored_once(tmp_path, kind):
    """Rows are widened as they are picked, out of the panels that the product reads."""
    path = compiled(tmp_path, narrow_model(kind))
    part = {"f16": 2, "s8": 4}[kind]
    assert (tmp_path / "m.flexnn").stat().st_size < 1.2 * BYTES / part + 8 * WORDS + (128 << 10)
    with flexnn.Session(path) as session:
        check_run(session, narrow_model(kind), picks(3))
    with pytest.raises(flexnn.BudgetError) as refusal:
        flexnn.Session(path, memory=1, threads=1)
    with open_for_tests(path, memory=refusal.value.minimum, threads=1, poison=True) as session:
        check_run(session, narrow_model(kind), picks(3))
        assert session.plan.arena_bytes < BYTES / 4


def test_integers_that_panels_would_round_are_picked_as_they_are():
    assert "gather_panels" not in [node.op for node in load(narrow_model("moved")).nodes]


@pytest.mark.parametrize("tokens", ["tokens", 5], ids=["open", "fixed"])
def test_a_tied_table_takes_the_form_that_is_asked_for(tmp_path, tokens):
    (tmp_path / "m.onnx").write_bytes(language_model(tokens=tokens).SerializeToString())
    with open_for_tests(flexnn.compile(tmp_path / "m.onnx"), threads=2) as session:
        (exact,) = session.run(None, picks(5))
    with open_for_tests(flexnn.compile(tmp_path / "m.onnx", weights="s8"), threads=2, poison=True) as session:
        (found,) = session.run(None, picks(5))
    assert (tmp_path / "m.flexnn").stat().st_size < 0.35 * BYTES
    assert 0 < np.linalg.norm(found - exact) < 0.02 * np.linalg.norm(exact)
