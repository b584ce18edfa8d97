"""Einsum as transposes, reductions and products, against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from flexnn.graph.ir import GraphError
from tests.support.compare import check_model, load, model_of, ops_of, weights

EQUATIONS = [
    ("ij,jk->ik", (3, 4), (4, 5)), ("ij,kj", (3, 4), (5, 4)), ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)),
    ("bhid,bhjd->bhij", (2, 3, 4, 5), (2, 3, 6, 5)), ("bihd,bjhd->bhij", (2, 4, 3, 5), (2, 6, 3, 5)),
    ("bhij,bjhd->bihd", (2, 3, 4, 6), (2, 6, 3, 5)), ("i,j->ij", (3,), (4,)), ("i,i->", (4,), (4,)),
    ("i,i", (4,), (4,)),
    ("ij->ji", (3, 4)), ("ij->", (3, 4)), ("ij->i", (3, 4)), ("ii->i", (4, 4)), ("ii->", (4, 4)), ("ii", (4, 4)),
    ("iji->ji", (4, 3, 4)), ("...ij,...jk->...ik", (2, 3, 4), (2, 4, 5)), ("...ij,jk->...ik", (2, 7, 3, 4), (4, 5)),
    ("...,...->...", (3, 4), (3, 4)), ("i...->...", (3, 4, 2)), ("bi,bj->bij", (2, 3), (2, 4)),
    ("abc,cd,def->abef", (2, 3, 4), (4, 5), (5, 2, 3)), ("ab,cd,bc->ad", (2, 3), (4, 5), (3, 4)),
    ("a,b,c->abc", (2,), (3,), (4,)), ("ij,ij,ij->ij", (3, 4), (3, 4), (3, 4)), ("bnij,ij->bn", (2, 3, 4, 5), (4, 5)),
    ("i j, j k -> i k", (3, 4), (4, 5)), ("abij,abjk,abkl->abil", (2, 1, 3, 4), (2, 1, 4, 5), (2, 1, 5, 2)),
    ("bqhd,hdm->bqm", (2, 3, 4, 5), (4, 5, 6)), ("...i->...", (3, 1, 4)), ("bij,i->bj", (1, 3, 4), (3,)),
]  # fmt: skip


@pytest.mark.parametrize("case", EQUATIONS, ids=lambda c: c[0])
@pytest.mark.parametrize("constant", [False, True])
def test_as_onnxruntime(case, constant):
    equation, *shapes = case
    names = [f"x{i}" for i in range(len(shapes))]
    node = helper.make_node("Einsum", names, ["y"], equation=equation)
    given_ = dict(zip(names, shapes, strict=True))
    constants = {}
    if constant and len(shapes) > 1:
        constants = {names[-1]: weights(*given_.pop(names[-1]))}
    check_model(model_of([node], given_, ["y"], constants), tolerance=1e-5)


def test_heads_are_multiplied_without_copies():
    node = helper.make_node("Einsum", ["q", "k"], ["y"], equation="bihd,bjhd->bhij")
    graph = check_model(model_of([node], {"q": (1, 9, 4, 8), "k": (1, 7, 4, 8)}, ["y"]))
    assert ops_of(graph) == ["matmul"]
    node = helper.make_node("Einsum", ["x", "w"], ["y"], equation="btd,dk->btk")
    graph = check_model(model_of([node], {"x": (2, 5, 8)}, ["y"], {"w": weights(8, 6)}))
    assert ops_of(graph) == ["conv"]


@settings(max_examples=60)
@given(st.data())
def test_random_equations(data):
    letters = "abcde"
    sizes = {a: data.draw(st.integers(1, 4)) for a in letters}
    terms = [
        "".join(data.draw(st.lists(st.sampled_from(letters), max_size=4, unique=True)))
        for _ in range(data.draw(st.integers(1, 4)))
    ]
    used = sorted(set("".join(terms)))
    result = "".join(
        data.draw(st.permutations(data.draw(st.lists(st.sampled_from(used), unique=True)) if used else []))
    )
    names = [f"x{i}" for i in range(len(terms))]
    shapes = {n: tuple(sizes[a] for a in t) for n, t in zip(names, terms, strict=True)}
    node = helper.make_node("Einsum", names, ["y"], equation=f"{','.join(terms)}->{result}")
    graph = load(model_of([node], shapes, ["y"]))
    from tests.support.compare import feeds_of, run_on_core

    feeds = feeds_of(graph)
    want = np.einsum(node.attribute[0].s.decode(), *(feeds[n].astype(np.float64) for n in names))
    got = run_on_core(graph, feeds)["y"]
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-5 * max(1.0, np.abs(want).max(initial=0)))


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk->ik", [(3, 4), (5, 6)]), ("ij->ij", [(3,)]), ("ij->k", [(3, 4)]), ("i,j", [(3,)]), ("i->ii", [(3,)]),
        ("i1->i", [(3, 4)]), ("i.->i", [(3, 4)]), ("ij->i->j", [(3, 4)]), ("", [(3,)]),
    ],
)  # fmt: skip
def test_refused_in_one_line(equation, shapes):
    names = [f"x{i}" for i in range(len(shapes))]
    node = helper.make_node("Einsum", names, ["y"], name="sum", equation=equation)
    with pytest.raises(GraphError, match="sum") as error:
        load(model_of([node], dict(zip(names, shapes, strict=True)), ["y"]))
    assert "\n" not in str(error.value)
