"""Small models of bytes between operators: restored, computed, rounded, as onnxruntime's quantiser writes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper

from flexnn.graph.ir import Graph
from tests.support.compare import Array, expected, load, model_of, numbers_of_type, run_on_core
from tests.support.reference import run_graph

F32 = np.float32
TYPES = {np.uint8: TensorProto.UINT8, np.int8: TensorProto.INT8}


class Quantised:
    """A model of pairs. Tensors of bytes have names; steps are constants."""

    def __init__(self, dtype: type = np.uint8, seed: int = 0) -> None:
        self.dtype = dtype
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, Array] = {}
        self.inputs: dict[str, tuple[int, ...]] = {}
        self.steps: dict[str, tuple[str, str]] = {}
        self._count = 0

    def name(self, stem: str) -> str:
        """A new name."""
        self._count += 1
        return f"{stem}{self._count}"

    def constant(self, stem: str, value: Array) -> str:
        """A new initializer."""
        name = self.name(stem)
        self.constants[name] = np.asarray(value)
        return name

    def zero(self) -> np.generic:
        """Some zero point near the middle."""
        middle = 128 if self.dtype is np.uint8 else 0
        return self.dtype(middle + int(self.rng.integers(-30, 30)))

    def given(self, *shape: int, scale: float = 0.03) -> str:
        """An input of bytes, restored."""
        name = self.name("q")
        self.inputs[name] = shape
        self.steps[name] = self.own_steps(scale)
        return name

    def own_steps(self, scale: float) -> tuple[str, str]:
        """New steps, of which no round numbers make halves."""
        return self.constant("s", F32(scale * self.rng.uniform(1, 1.1))), self.constant("z", self.zero())

    def restore(self, name: str) -> str:
        """The floats of a tensor of bytes."""
        out = self.name("f")
        self.nodes.append(helper.make_node("DequantizeLinear", [name, *self.steps[name]], [out]))
        return out

    def add(self, op: str, inputs: Sequence[str], **attrs: object) -> str:
        """Floats that an operator makes of floats."""
        out = self.name("f")
        self.nodes.append(helper.make_node(op, list(inputs), [out], **attrs))
        return out

    def round(self, value: str, scale: float = 0.05, like: str = "") -> str:
        """Floats as bytes, in new steps or those of ``like``."""
        out = self.name("q")
        self.steps[out] = self.steps[like] if like else self.own_steps(scale)
        self.nodes.append(helper.make_node("QuantizeLinear", [value, *self.steps[out]], [out]))
        return out

    def weights(self, *shape: int, axis: int = 0, scale: float = 0.01) -> str:
        """Restored weights of 8 bits, a step for each slice of ``axis``."""
        whole = self.rng.integers(-127, 128, shape).astype(np.int8)
        steps = (scale * self.rng.uniform(0.5, 1.5, shape[axis])).astype(F32)
        names = [
            self.constant("w", whole),
            self.constant("s", steps),
            self.constant("z", np.zeros(shape[axis], np.int8)),
        ]
        out = self.name("f")
        self.nodes.append(helper.make_node("DequantizeLinear", names, [out], axis=axis))
        return out

    def model(self, *outputs: str) -> onnx.ModelProto:
        """The model; outputs are tensors of bytes or floats."""
        kinds = dict.fromkeys((*self.inputs, *(o for o in outputs if o in self.steps)), TYPES[self.dtype])
        return model_of(self.nodes, self.inputs, outputs, self.constants, 17, kinds)

    def feeds(self, seed: int = 3) -> dict[str, Array]:
        """Random bytes for the inputs."""
        return {name: numbers_of_type(self.dtype, *shape, seed=seed) for name, shape in self.inputs.items()}


def check_steps(
    model: onnx.ModelProto, feeds: Mapping[str, Array], steps: int = 1, share: float = 0.02, levels: Sequence[str] = ()
) -> Graph:
    """Assert that bytes are at most ``steps`` from onnxruntime's, all but a ``share`` of them equal, and floats near;
    and that reference and core, on all ``levels``, have the same bytes. Return the graph.
    """
    graph = load(model)
    want = expected(model, feeds)
    whole = run_graph(graph, feeds)
    for got in (whole, *(run_on_core(graph, feeds, level) for level in (None, *levels))):
        for name, values in want.items():
            assert got[name].dtype == values.dtype, name
            if values.dtype == np.float32:
                np.testing.assert_allclose(got[name], values, rtol=0, atol=1e-5 * np.abs(values).max(initial=1e-6))
                continue
            apart = np.abs(got[name].astype(int) - values.astype(int))
            assert apart.max(initial=0) <= steps, name
            assert np.count_nonzero(apart) <= share * apart.size + 1, name
            np.testing.assert_array_equal(got[name], whole[name])
    return graph
