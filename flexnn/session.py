"""A session: one artifact, one budget, one plan, ready to run (DESIGN §6)."""

from __future__ import annotations

import operator
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from flexnn import _core
from flexnn.artifact import open_artifact
from flexnn.artifact.format import PAGE
from flexnn.compiler import compiled
from flexnn.graph.ir import DTYPES
from flexnn.plan import BudgetError, Plan, make_plan
from flexnn.units import parse_bytes

Array = NDArray[Any]

_TYPES = {"f32": "float", "f64": "double"} | {d: str(DTYPES[d]) for d in ("f16", "i64", "i32", "u8", "i8", "bool")}
"""onnxruntime's names of element types."""
_BUFFER_ALIGN = 64
THREADS_MAX = 64


def default_threads() -> int:
    """The CPUs that this process may use."""
    return min(len(os.sched_getaffinity(0)), THREADS_MAX)


def io_align(io: str) -> int:
    """Alignment of reads in bytes, for ``io`` "buffered" or "direct"."""
    return PAGE if io == "direct" else _BUFFER_ALIGN


@dataclass(frozen=True, slots=True)
class NodeArg:
    """An input or output as onnxruntime describes it: ``type`` is like ``tensor(float)``."""

    name: str
    shape: list[int]
    type: str

    @property
    def numpy_dtype(self) -> np.dtype[Any]:
        """The dtype of arrays for it."""
        name = self.type[len("tensor(") : -1]
        return np.dtype({"float": "float32", "double": "float64"}.get(name, name))


class SessionError(RuntimeError):
    """A run or an opening that failed; the message says what, where and what would help."""


class Session:
    """Runs an artifact (or an ONNX file, compiled first) inside ``memory`` bytes.

    ``memory``: what opening and running may add to the process, in bytes or like ``"48MiB"``; None: no limit,
    everything pinned. ``threads``: compute threads (default: the CPUs this process may use). ``io``: ``"buffered"``, or
    ``"direct"`` to read past the page cache where the file system can. ``shapes``: only for an ONNX file.

    Raises BudgetError (``.minimum`` bytes would do), ArtifactError, CompileError, OSError. Several threads may call
    ``run``; runs take turns.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        memory: str | int | None = None,
        threads: int | None = None,
        *,
        io: str = "buffered",
        shapes: Mapping[str, tuple[int, ...]] | None = None,
        _poison: bool = False,
        _jitter_seed: int = 0,
        _read_bytes_per_second: int = 0,
    ) -> None:
        if io not in ("buffered", "direct"):
            raise ValueError(f"io is {io!r}, not 'buffered' or 'direct'")
        self._threads = default_threads() if threads is None else operator.index(threads)
        if not 1 <= self._threads <= THREADS_MAX:
            raise ValueError(f"threads is {threads}, not 1 to {THREADS_MAX}")
        self._memory = None if memory is None else parse_bytes(memory)
        self._test_switches = (_poison, _jitter_seed, _read_bytes_per_second)
        self._engine: _core.EngineSession | None = None
        self._direct_fd = -1
        self._lock = threading.Lock()
        self._process = os.getpid()
        self.last_run: dict[str, int] = {}
        """Of the last run: ``run_ns``, ``stall_ns`` (compute waiting for loads), ``bytes_read``."""
        with compiled(os.fsdecode(path), dict(shapes or {})) as artifact_path:
            self._artifact = open_artifact(artifact_path)
            if io == "direct":
                self._direct_fd = self._artifact.open_direct()
        try:
            self._plan = self._make_plan(self._memory)
            self._open_engine()
        except BaseException:
            self.close()
            raise

    @property
    def plan(self) -> Plan:
        """What the session does: steps, loads, addresses, ``predicted_ms``, ``bound_ms``."""
        return self._plan

    @property
    def memory(self) -> int | None:
        """The budget in bytes. Assigning (bytes, or like ``"24MiB"``, or None) plans anew; takes effect after the run
        in flight. Where that fails (BudgetError, out of memory, Ctrl-C) the session is as it was.
        """
        return self._memory

    @memory.setter
    def memory(self, memory: str | int | None) -> None:
        budget = None if memory is None else parse_bytes(memory)
        self._check_process()
        with self._lock:
            engine = self._opened()
            plan = self._make_plan(budget)
            before = self._memory, self._plan
            try:
                engine.close()  # first: two arenas at once would break either budget
                self._engine = None
                self._memory, self._plan = budget, plan
                self._open_engine()
            except BaseException:
                self._engine = None
                self._memory, self._plan = before
                self._open_engine()
                raise

    @property
    def threads(self) -> int:
        """Compute threads."""
        return self._threads

    @property
    def session_bytes(self) -> int:
        """Everything the session owns, as its plan accounts for it (not more than ``memory``)."""
        return self._plan.session_bytes

    def get_inputs(self) -> list[NodeArg]:
        """The model's inputs, in its order."""
        return self._describe(self._artifact.graph.inputs)

    def get_outputs(self) -> list[NodeArg]:
        """The model's outputs, in its order."""
        return self._describe(self._artifact.graph.outputs)

    def run(self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any]) -> list[Array]:
        """Outputs named in ``output_names`` (None: all, in the model's order) for the inputs in ``input_feed``.

        Arrays have the model's shapes and types. Raises ValueError for wrong names, shapes or types (TypeError where
        there is no list or mapping of names), SessionError when the artifact cannot be read or fails its checksums; the
        session can run again.
        """
        if isinstance(output_names, str):
            raise TypeError(f"output_names is the text {output_names!r}, not a list of names")
        graph = self._artifact.graph
        inputs = self._feed(input_feed)
        names = [graph.tensors[i].name for i in graph.outputs]
        wanted = names if output_names is None else list(output_names)
        for name in wanted:
            if name not in names:
                raise ValueError(f"no output {name!r}; the outputs are {', '.join(names)}")
        outputs = []
        for i in graph.outputs:
            tensor = graph.tensors[i]
            outputs.append(np.empty(tensor.shape, DTYPES[tensor.dtype]))
        self._check_process()
        with self._lock:
            engine = self._opened()
            try:
                self.last_run = engine.run([*inputs, *outputs])
            except _core.EngineError as error:
                raise SessionError(self._explain(error)) from None
        return [outputs[names.index(name)] for name in wanted]

    def close(self) -> None:
        """Gives everything back, after the run in flight. The session cannot run any more; closing twice is fine."""
        if os.getpid() != self._process:  # the lock may be held by a thread that this process does not have
            self._give_back()
            return
        with self._lock:
            if self._engine is not None:
                self._engine.close()
            self._give_back()

    def _give_back(self) -> None:
        self._engine = None
        if self._direct_fd >= 0:
            os.close(self._direct_fd)
            self._direct_fd = -1
        self._artifact.close()

    def __del__(self) -> None:
        if hasattr(self, "_artifact"):
            self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a session cannot be copied or pickled: open another one of the same artifact")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise SessionError("the session belongs to the process that this one was forked from: open another one")

    def _opened(self) -> _core.EngineSession:
        if self._engine is None:
            raise SessionError("the session is closed")
        return self._engine

    def _make_plan(self, memory: int | None) -> Plan:
        align = io_align("direct" if self._direct_fd >= 0 else "buffered")
        return make_plan(self._artifact.graph, memory=memory, threads=self._threads, io_align=align)

    def _open_engine(self) -> None:
        program = self._plan.program
        poison, jitter_seed, read_bytes_per_second = self._test_switches
        try:
            self._engine = _core.EngineSession(
                nodes=program.nodes,
                steps=program.steps,
                pinned=program.pinned,
                loads=program.loads,
                crcs=self._artifact.crcs,
                arena_bytes=program.arena_bytes,
                zeros=program.zeros,
                zeros_count=program.zeros_count,
                io_bytes=program.io_bytes,
                input_count=len(self._artifact.graph.inputs),
                fd=self._artifact.fd,
                direct_fd=self._direct_fd,
                threads=self._threads,
                poison=poison,
                jitter_seed=jitter_seed,
                read_bytes_per_second=read_bytes_per_second,
            )
        except _core.EngineError as error:
            raise SessionError(self._explain(error)) from None

    def _describe(self, indices: list[int]) -> list[NodeArg]:
        tensors = [self._artifact.graph.tensors[i] for i in indices]
        return [NodeArg(t.name, list(t.shape), f"tensor({_TYPES[t.dtype]})") for t in tensors]

    def _feed(self, feed: Mapping[str, Any]) -> list[Array]:
        graph = self._artifact.graph
        tensors = [graph.tensors[i] for i in graph.inputs]
        names = [tensor.name for tensor in tensors]
        if not isinstance(feed, Mapping):
            raise TypeError(f"input_feed is a {type(feed).__name__}, not a mapping of names to arrays")
        for name in feed:
            if name not in names:
                raise ValueError(f"no input {name!r}; the inputs are {', '.join(names)}")
        arrays = []
        for tensor in tensors:
            if tensor.name not in feed:
                raise ValueError(f"input {tensor.name!r} is missing")
            try:
                array = np.asarray(feed[tensor.name])
            except ValueError as error:
                raise ValueError(f"input {tensor.name!r} is not an array: {error}") from None
            if array.dtype != DTYPES[tensor.dtype] or array.shape != tensor.shape:
                raise ValueError(
                    f"input {tensor.name!r} is {array.dtype}{list(array.shape)},"
                    f" the model takes {DTYPES[tensor.dtype]}{list(tensor.shape)}"
                )
            arrays.append(np.require(array, requirements=["C", "ALIGNED"]))
        return arrays

    def _explain(self, error: _core.EngineError) -> str:
        """The engine's error with the name of the weight or node that it is about."""
        program, graph = self._plan.program, self._artifact.graph
        if error.status in ("io", "eof", "checksum") and error.index >= 0:
            loads = program.pinned if error.is_pinned else program.loads
            offset = int(loads[error.index]["file_offset"])
            first = offset + int(loads[error.index]["check_lead"])
            name = next((w.name for w in graph.weights if w.offset <= first < w.offset + w.nbytes), "?")
            return f"{self._artifact.path}: weight {name!r} at offset {offset}: {error}"
        if error.index >= 0 and error.index < len(graph.nodes):
            return f"node {graph.nodes[error.index].name!r}: {error}"
        return str(error)


__all__ = ["BudgetError", "NodeArg", "Session", "SessionError"]
