"""Decoders whose caches their callers pass: what the compiler traces serves each token, and no token binds a graph."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import flexnn
from flexnn.graph.evaluate import of_node
from flexnn.regions import templates
from flexnn.regions.template_reader import StoredTemplate
from tests.support.regions import BOOL, F32, I64, check_run, compiled, graph_of, model_of, numbers, value

node = onnx.helper.make_node
ROWS, COLUMNS = 40, 32


def masked_attention(tokens: str, hides: bool) -> list[onnx.NodeProto]:
    """Tokens x [1, 1, tokens, columns] look at themselves and at those before them, as exporters write it."""
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "two"], [tokens]),
        node("Range", ["zero", tokens, "one"], ["places"]),
        node("Unsqueeze", ["places", "last"], ["rows"]),
        node("Unsqueeze", ["places", "first"], ["keys"]),
        node("Greater", ["keys", "rows"], ["after"]),
        node("Transpose", ["x"], ["turned"], perm=[0, 1, 3, 2]),
        node("MatMul", ["x", "turned"], ["scores"]),
    ]
    if hides:
        nodes.append(node("Where", ["after", "lowest", "scores"], ["seen"]))
    else:
        nodes += [node("Cast", ["after"], ["far"], to=F32), node("Mul", ["far", "lowest"], ["mask"])]
        nodes.append(node("Add", ["scores", "mask"], ["seen"]))
    return [*nodes, node("Softmax", ["seen"], ["shares"], axis=-1), node("MatMul", ["shares", "x"], ["y"])]


CONSTANTS = {
    "two": np.array(2), "zero": np.array(0), "one": np.array(1), "last": np.array([1]), "first": np.array([0]),
    "lowest": np.array(-1e30, np.float32),
}  # fmt: skip


@pytest.mark.parametrize("hides", [True, False])
def test_a_mask_that_sizes_make_serves_other_lengths(
    hides: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = [1, 1, "tokens", 8]
    model = model_of(
        graph_of(masked_attention("count", hides), [value("x", F32, shape)], [value("y", F32, shape)], CONSTANTS)
    )
    with flexnn.Session(compiled(tmp_path, model)) as session:
        monkeypatch.setattr(templates, "build_segment", None)
        for count in (20, 33, 54, 200):
            check_run(session, model, {"x": numbers(1, 1, count, 8)})


def merged_decoder() -> onnx.ModelProto:
    """A decoder as optimum merges it: a flag says whether there is a cache, and the table of tokens, of integers, is
    read by its rows and, transposed, by the product that scores them.
    """

    def branch(name: str, own: list[onnx.NodeProto]) -> onnx.GraphProto:
        table = [
            node("Gather", ["table", "ids"], ["picked"]),
            node("DequantizeLinear", ["picked", "step", "middle"], ["x"]),
            node("Transpose", ["table"], ["across"], perm=[1, 0]),
            node("DequantizeLinear", ["across", "step", "middle"], ["scorer"]),
        ]
        end = [
            node("Transpose", ["kept"], ["turned"], perm=[0, 2, 1]),
            node("MatMul", ["x", "turned"], ["scores"]),
            node("Softmax", ["scores"], ["shares"], axis=-1),
            node("MatMul", ["shares", "kept"], ["h"]),
            node("MatMul", ["h", "scorer"], [f"{name}.logits"]),
            node("Identity", ["kept"], [f"{name}.present"]),
        ]
        outputs = [value(f"{name}.logits", F32, [1, None, ROWS]), value(f"{name}.present", F32, [1, None, COLUMNS])]
        return graph_of([*table, *own, *end], [], outputs)

    first = branch("first", [node("Identity", ["x"], ["kept"])])
    later = branch("later", [node("Concat", ["past", "x"], ["kept"], axis=1)])
    nodes = [node("If", ["use_cache"], ["logits", "present"], then_branch=later, else_branch=first)]
    inputs = [
        value("ids", I64, [1, "tokens"]),
        value("past", F32, [1, "held", COLUMNS]),
        value("same", F32, [1, "held", COLUMNS]),
        value("use_cache", BOOL, [1]),
    ]
    outputs = [value("logits", F32, [1, None, ROWS]), value("present", F32, [1, None, COLUMNS])]
    weights = {
        "table": np.random.default_rng(3).integers(0, 256, (ROWS, COLUMNS)).astype(np.uint8),
        "step": np.array(0.01, np.float32),
        "middle": np.array(129, np.uint8),
    }
    return model_of(graph_of(nodes, inputs, outputs, weights))


def test_each_token_of_a_merged_decoder_runs_from_what_was_traced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, build, bound = merged_decoder(), templates.build_segment, []

    def noted(*given: Any) -> Any:
        segment = build(*given)  # raises where it asks for the flag
        bound.append(segment)
        return segment

    with flexnn.Session(compiled(tmp_path, model)) as session:
        monkeypatch.setattr(templates, "build_segment", noted)

        def step(tokens: int, held: int) -> None:
            feed: dict[str, Any] = {"ids": np.arange(tokens)[None], "past": numbers(1, held, COLUMNS)}
            feed |= {"same": feed["past"], "use_cache": np.array([held > 0])}
            check_run(session, model, feed)

        for tokens, held in ((1, 0), (1, 1), (1, 2), (1, 7), (5, 0)):
            step(tokens, held)
        assert not bound
        assert not session.statistics()["hosted_operators"]


def masked_decoder(rows: int = ROWS) -> onnx.ModelProto:
    """A decoder whose mask has a dimension of its own, and is added to scores over the cache and the tokens."""
    nodes = [
        node("Gather", ["table", "ids"], ["x"]),
        node("Concat", ["past", "x"], ["kept"], axis=1),
        node("Transpose", ["kept"], ["turned"], perm=[0, 2, 1]),
        node("MatMul", ["x", "turned"], ["scores"]),
        node("Cast", ["mask"], ["seen"], to=F32),
        node("Add", ["scores", "seen"], ["sums"]),
        node("Softmax", ["sums"], ["shares"], axis=-1),
        node("MatMul", ["shares", "kept"], ["h"]),
        node("ReduceSum", ["same", "axis"], ["sum"]),
        node("Add", ["h", "sum"], ["y"]),
    ]
    inputs = [value("ids", I64, [1, "tokens"]), value("mask", I64, [1, "total"])]
    inputs += [value("past", F32, [1, "held", COLUMNS]), value("same", F32, [1, "held", 1])]
    weights = {"table": numbers(rows, COLUMNS), "axis": np.array([1])}
    return model_of(graph_of(nodes, inputs, [value("y", F32, [1, None, COLUMNS])], weights))


def masked(tokens: int, held: int) -> dict[str, Any]:
    """Inputs of such a decoder."""
    ids, mask = np.arange(tokens)[None], np.ones((1, held + tokens), np.int64)
    return {"ids": ids, "mask": mask, "past": numbers(1, held, COLUMNS), "same": numbers(1, held, 1)}


def test_masks_as_long_as_caches_and_tokens_together_are_traced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing in the model says that they are."""
    model = masked_decoder()
    with flexnn.Session(compiled(tmp_path, model)) as session:
        monkeypatch.setattr(templates, "build_segment", None)
        for tokens, held in ((1, 7), (1, 8), (1, 0), (9, 0), (1, 1)):
            check_run(session, model, masked(tokens, held))


@pytest.mark.parametrize("first", [(1, 7), (9, 0)])
def test_the_first_token_and_the_first_prompt_find_their_templates_read(
    first: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of several tokens with some in the caches came first; a token of a session that was just opened took 8 ms
    for 60 nodes, a prompt 10.
    """
    model = masked_decoder()
    with flexnn.Session(compiled(tmp_path, model)) as session:
        monkeypatch.setattr(StoredTemplate, "_read", None)
        check_run(session, model, masked(*first))


@pytest.mark.parametrize(("first", "then"), [((1, 7), (1, 1)), ((64, 0), (9, 0))])
def test_a_cache_of_one_and_short_prompts_need_no_other_template(
    first: tuple[int, int], then: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How a copy is walked is right for a size of 1, too, and where rows of a table are read from is the artifact's
    matter: the second token of OPT took 12.3 ms where further ones took 1.7, a prompt of 9 tokens 8.5.
    """
    model = masked_decoder(rows=4000)
    with flexnn.Session(compiled(tmp_path, model)) as session:
        check_run(session, model, masked(*first))
        monkeypatch.setattr(StoredTemplate, "loaded", None)
        check_run(session, model, masked(*then))


def test_a_diagonal_that_moves_with_the_cache_binds_no_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mistral's sliding window is a triangle, moved by the length of the cache: each token bound a graph, for 60 ms."""
    nodes = [
        node("Shape", ["past"], ["shape"]),
        node("Gather", ["shape", "one"], ["held"]),
        node("Sub", ["held", "window"], ["moved"]),
        node("Concat", ["past", "x"], ["kept"], axis=1),
        node("Shape", ["kept"], ["whole"]),
        node("Slice", ["whole", "ones", "twos"], ["total"]),
        node("Concat", ["ones", "total"], ["square"], axis=0),
        node("ConstantOfShape", ["square"], ["all"], value=onnx.numpy_helper.from_array(np.ones(1, np.float32))),
        node("Trilu", ["all", "moved"], ["seen"], upper=1),
        node("MatMul", ["seen", "kept"], ["y"]),
    ]
    weights = {"one": np.array(1), "window": np.array(4), "ones": np.array([1]), "twos": np.array([2])}
    inputs = [value("x", F32, [1, 1, COLUMNS]), value("past", F32, [1, "held", COLUMNS])]
    model = model_of(graph_of(nodes, inputs, [value("y", F32, [1, None, COLUMNS])], weights))
    with flexnn.Session(compiled(tmp_path, model)) as session:
        monkeypatch.setattr(templates, "build_segment", None)
        for held in (7, 8, 3):
            check_run(session, model, {"x": numbers(1, 1, COLUMNS), "past": numbers(1, held, COLUMNS)})


def test_what_layers_make_of_the_same_numbers_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each layer cuts its rotation out of one table by the length of its own cache: the lengths are others in a trail,
    and always the same. A token of GPT-NeoX took 9.0 ms, of which such slices were 6.
    """
    nodes, made = [], []
    for layer in ("0", "1", "2"):
        nodes += [
            node("Shape", [f"past{layer}"], [f"shape{layer}"]),
            node("Slice", [f"shape{layer}", "one", "two"], [f"length{layer}"]),
            node("Slice", ["table", "nought", f"length{layer}", "nought"], [f"cut{layer}"]),
            node("Neg", [f"cut{layer}"], [f"turn{layer}"]),
            node("Mul", [f"past{layer}", f"turn{layer}"], [f"y{layer}"]),
        ]
    weights = {"table": numbers(ROWS, COLUMNS), "nought": np.array([0]), "one": np.array([1]), "two": np.array([2])}
    pasts, outputs = ([value(f"{name}{i}", F32, [1, "held", COLUMNS]) for i in range(3)] for name in ("past", "y"))
    model = model_of(graph_of(nodes, pasts, outputs, weights))
    own = of_node.evaluate_node

    def told(made_by: Any, *rest: Any) -> Any:
        made.append(made_by.op_type)
        return own(made_by, *rest)

    with flexnn.Session(compiled(tmp_path, model)) as session:
        for held in (7, 8, 11):
            monkeypatch.setattr(of_node, "evaluate_node", told)
            made.clear()
            feed = {f"past{i}": numbers(1, held, COLUMNS, seed=i) for i in range(3)}
            session.run(None, feed)
            assert sorted(made) == ["Neg", "Slice"]
            monkeypatch.setattr(of_node, "evaluate_node", own)
            check_run(session, model, feed)
