"""State on the command line: artifacts that keep it by themselves, and running and planning with it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import flexnn
from flexnn.cli import main
from tests.support.decoders import USUAL, write_grouped
from tests.support.pairs import write_pair

IDS = np.random.default_rng(1).integers(0, USUAL.vocabulary, (1, 30))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_grouped(tmp_path_factory.mktemp("decoder") / "decoder.onnx")


@pytest.fixture(scope="module")
def stateful(model: Path) -> str:
    """An artifact that keeps state of 48 tokens by itself."""
    return flexnn.compile(model, model.with_suffix(".state.flexnn"), kv_capacity=48)


def test_an_artifact_keeps_state_by_itself(model: Path, stateful: str) -> None:
    with flexnn.Session(stateful) as session, flexnn.Session(model, kv_capacity=48) as asked:
        assert session.state_capacity == asked.state_capacity == 48
        assert [port.name for port in session.get_inputs()] == ["input_ids"]
        (made,) = session.run(None, {"input_ids": IDS})
        np.testing.assert_array_equal(made, asked.run(None, {"input_ids": IDS})[0])
        assert session.state_length == 30
    with flexnn.Session(stateful, kv_capacity=64) as session:
        assert session.state_capacity == 64
    with flexnn.Session(model) as session:
        assert session.state_capacity is None


def write_cast(path: Path, tokens: str | int) -> Path:
    """A model without attention."""
    ids, y = (helper.make_tensor_value_info(n, t, [1, tokens]) for n, t in (("input_ids", 7), ("y", 1)))
    graph = helper.make_graph([helper.make_node("Cast", ["input_ids"], ["y"], to=1)], "g", [ids], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


def test_what_has_no_state_is_refused(tmp_path: Path, model: Path) -> None:
    with pytest.raises(flexnn.GraphError, match="no past keys and values were recognised"):
        flexnn.compile(write_cast(tmp_path / "a.onnx", "tokens"), kv_capacity=16)
    with pytest.raises(flexnn.CompileError, match="its shapes are fixed, so it keeps no state"):
        flexnn.compile(write_cast(tmp_path / "b.onnx", 4), kv_capacity=16)
    with pytest.raises(ValueError, match="must be from 1 to"):
        flexnn.compile(model, tmp_path / "b.flexnn", kv_capacity=0)


def test_a_pair_keeps_state_by_itself(tmp_path: Path) -> None:
    artifact = flexnn.compile(write_pair(tmp_path / "d.onnx", "t5", "alone"), kv_capacity=16)
    with flexnn.Session(artifact) as session:
        assert session.state_capacity == 16


@pytest.mark.parametrize("kv", ["f16", "s8"])
def test_run_appends_and_starts_again(stateful: str, capsys: pytest.CaptureFixture[str], kv: str) -> None:
    """48 tokens have room for 16 runs of 3; the 17th starts again."""
    arguments = ["run", stateful, "--set", "input_ids=1,2,3", "--repeat", "40", "--json", "--kv", kv]
    assert main(arguments) == 0
    assert json.loads(capsys.readouterr().out)["latency_ms"]["runs"] == 40


def test_plan_counts_the_session(stateful: str, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = {}
    for kv in ("f32", "f16", "s8"):
        plan = flexnn.plan(stateful, kv_capacity=1000, kv=kv, profile="analytic")  # type: ignore[arg-type]
        with flexnn.Session(stateful, kv_capacity=1000, kv=kv, profile="analytic") as session:  # type: ignore[arg-type]
            assert plan.session_bytes == session.session_bytes
        sizes[kv] = plan.overhead["state"]
    assert sizes["f32"] == 2 * sizes["f16"]
    assert sizes["s8"] < sizes["f16"]
    plan = flexnn.plan(stateful, memory=plan.minimum_memory, kv_capacity=1000, kv="s8", profile="analytic")
    assert plan.session_bytes <= plan.minimum_memory
    assert main(["plan", stateful, "--memory", "1KiB", "--json", "--profile", "analytic"]) == 2
    told = json.loads(capsys.readouterr().out)
    assert not told["feasible"]
    assert main(["plan", stateful, "--memory", str(told["minimum_memory"]), "--profile", "analytic", "--check"]) == 0


def test_compile_takes_a_capacity(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.flexnn"
    assert main(["compile", str(model), "-o", str(out), "--kv-capacity", "24", "--quiet"]) == 0
    with flexnn.Session(out) as session:
        assert session.state_capacity == 24
