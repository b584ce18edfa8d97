"""The standard ONNX backend interface: ``flexnn.backend.Backend.run_model(model, inputs)``.

https://onnx.ai/onnx/api/backend.html. It serves tests and tools that know this interface, and imports onnx. The
keyword ``memory`` of ``prepare`` is the memory budget.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from flexnn.compiler import ONNX_LACKS, compile  # noqa: A004

try:
    import onnx
    from onnx import helper
    from onnx.backend.base import Backend as OnnxBackend
    from onnx.backend.base import BackendRep, Device, DeviceType
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(f"flexnn.backend needs {ONNX_LACKS}", name=error.name) from None

from flexnn.graph.ir import GraphError
from flexnn.session import Session


class PreparedModel(BackendRep):
    """A model that is ready to run."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._names = [port.name for port in session.get_inputs()]

    def run(self, inputs: Any, **_: Any) -> tuple[Any, ...]:
        """Run the model; return all outputs in the model's order.

        ``inputs`` is a list in the model's order, a mapping by name, or one array. Raises ValueError for wrong inputs,
        GraphError or SessionError if the run fails.
        """
        if isinstance(inputs, Mapping):
            feed = dict(inputs)
        else:
            values = inputs if isinstance(inputs, (list, tuple)) else [inputs]
            if len(values) > len(self._names):
                raise ValueError(f"{len(values)} inputs for a model with {len(self._names)}")
            feed = dict(zip(self._names, values, strict=False))
        for name, value in feed.items():
            if not isinstance(value, np.ndarray):
                feed[name] = np.asarray(value)
        return tuple(self._session.run(None, feed))


class Backend(OnnxBackend):
    """FlexNN as an ONNX backend, on the CPU."""

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Return whether ``device`` is a CPU."""
        return bool(Device(device).type == DeviceType.CPU)

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **_: Any) -> bool:
        """Return whether the model compiles."""
        try:
            cls.prepare(model, device)
        except GraphError:
            return False
        return True

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> PreparedModel:
        """Compile and open ``model``. ``kwargs`` may hold ``memory``, ``threads`` and ``io``, as Session takes them.

        Raises GraphError for a model that is not supported, BudgetError for a budget that is too small, ValueError for
        a device other than CPU.
        """
        if not cls.supports_device(device):
            raise ValueError(f"device {device!r}: only CPU is supported")
        options = {name: value for name, value in kwargs.items() if name in ("memory", "threads", "io")}
        with tempfile.TemporaryDirectory(prefix="flexnn-") as folder:
            source, target = os.path.join(folder, "model.onnx"), os.path.join(folder, "model.flexnn")
            with open(source, "wb") as file:
                file.write(model.SerializeToString())
            compile(source, target)
            return PreparedModel(Session(target, **options))

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[np.dtype, tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Run one operator, of the opset that the keyword ``opset_version`` states."""
        names = list(dict.fromkeys(name for name in node.input if name))
        arrays = [np.asarray(value) for value in (inputs.values() if isinstance(inputs, Mapping) else inputs)]
        ports = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for name, a in zip(names, arrays, strict=True)
        ]
        graph = helper.make_graph([node], "node", ports, [onnx.ValueInfoProto(name=n) for n in node.output if n])
        opset = kwargs.pop("opset_version", None) or min(onnx.defs.onnx_opset_version(), 25)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
        return cls.prepare(model, device, **kwargs).run(arrays)


prepare = Backend.prepare
run_model = Backend.run_model
run_node = Backend.run_node
supports_device = Backend.supports_device
