"""A session: one artifact, one budget, one plan, ready to run (DESIGN §6)."""

from __future__ import annotations

import contextlib
import math
import operator
import os
import sys
from _thread import allocate_lock  # threading takes a twentieth of what importing flexnn may
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from flexnn import _core
from flexnn.artifact import open_artifact
from flexnn.compiler import compiled
from flexnn.errors import CompileError
from flexnn.graph import bind_shapes
from flexnn.graph.ir import ALL_DTYPES, Graph
from flexnn.graph.model import Dim, Port
from flexnn.measure import Watch, keep_refined, measured_machine, throttled
from flexnn.planning import BudgetError, MachineProfile, Plan, Planner, Setting
from flexnn.planning.overhead import overhead_for
from flexnn.planning.types import io_alignment
from flexnn.run.engine import BoundProgram, Engine, SessionError, Switches
from flexnn.run.outputs import Outputs
from flexnn.units import Groups, parse_bytes, parse_groups

if TYPE_CHECKING:
    from flexnn.run.open_shapes import Runner

Array = NDArray[Any]

_TYPES = {"f32": "float", "f64": "double"} | {
    name: str(dtype) for name, dtype in ALL_DTYPES.items() if name not in ("f32", "f64")
}
"""onnxruntime's names of element types."""
THREADS_MAX = 64
PROFILES = ("measure", "analytic")


def default_threads() -> int:
    """The CPUs that this process may use, a part of one counted as one."""
    return min(math.ceil(_core.usable_cpus()), THREADS_MAX)


def default_profile(profile: str | None) -> str:
    """``profile``, or where it is None the environment's, or "measure". ValueError for another name."""
    name = profile or os.environ.get("FLEXNN_PROFILE") or PROFILES[0]
    if name not in PROFILES:
        raise ValueError(f"profile is {name!r}, not {' or '.join(map(repr, PROFILES))}")
    return name


def check_groups_of_regions(groups: Groups, path: str) -> None:
    """ValueError where a number of groups is asked for of a model that is planned while it runs."""
    if isinstance(groups, int):
        raise ValueError(f"{path}: groups are for models of fixed shapes without control flow; this one runs without")


@dataclass(frozen=True, slots=True)
class NodeArg:
    """An input or output as onnxruntime describes it: ``type`` is like ``tensor(float)``; open dimensions in ``shape``
    are names or None.
    """

    name: str
    shape: list[Dim]
    type: str

    @property
    def numpy_dtype(self) -> np.dtype[Any]:
        """The dtype of arrays for it."""
        name = self.type[len("tensor(") : -1]
        return np.dtype({"float": "float32", "double": "float64"}.get(name, name))


class Session:
    """Runs an artifact (or an ONNX file, compiled first) inside ``memory`` bytes.

    ``memory``: what opening and running may add to the process, in bytes or like ``"48MiB"``; None: no limit,
    everything pinned. ``threads``: compute threads (default: the CPUs this process may use). ``io``: ``"buffered"``, or
    ``"direct"`` to read past the page cache where the file system can. ``shapes``: of inputs whose dimensions are open.
    ``profile``: ``"measure"`` kernels and storage when an artifact is first opened here, where dimensions are open when
    it first runs (about 2 s, inside ``memory``; kept in the user's cache folder), or ``"analytic"``, rates alone;
    default: the environment's FLEXNN_PROFILE, or "measure". ``progress`` is told what takes a while. ``trace``: keep
    what ``trace_events`` tells. ``groups``: nodes that do not need each other run at the same time, with one barrier
    for a group, where all weights are pinned: each layer of such nodes in so many groups (a budget that does not pin
    all is refused), or ``"auto"``, as many as are predicted to be the fastest, if any are faster; default ``"off"``.
    ``reuse_outputs``: each run may overwrite the arrays that the one before returned, so the budget holds outputs once,
    not twice.

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
        profile: str | None = None,
        groups: str | int | None = None,
        progress: Callable[[str], None] | None = None,
        trace: bool = False,
        reuse_outputs: bool = False,
        _poison: bool = False,
        _jitter_seed: int = 0,
        _read_bytes_per_second: int = 0,
    ) -> None:
        if io not in ("buffered", "direct"):
            raise ValueError(f"io is {io!r}, not 'buffered' or 'direct'")
        self._profile = default_profile(profile)
        self._groups = parse_groups(groups)
        self._traced = trace
        self._threads = default_threads() if threads is None else operator.index(threads)
        if not 1 <= self._threads <= THREADS_MAX:
            raise ValueError(f"threads is {threads}, not 1 to {THREADS_MAX}")
        self._memory = None if memory is None else parse_bytes(memory)
        self._test_switches = (_poison, _jitter_seed, _read_bytes_per_second)
        self._plan: Plan
        self._host: Engine | None = None
        self._engine: BoundProgram | None = None
        self._runner: Runner | None = None
        self._watch: Watch | None = None
        self._direct_fd = -1
        self._lock = allocate_lock()
        self._results = Outputs(reuse=reuse_outputs)
        self._reuse_outputs = reuse_outputs
        self._process = os.getpid()
        self.last_run: dict[str, int] = {}
        """Of the last run: ``run_ns``, ``stall_ns`` (compute waiting for loads), ``bytes_read``."""
        with compiled(os.fsdecode(path), dict(shapes or {})) as artifact_path:
            self._artifact = open_artifact(artifact_path)
            if io == "direct":
                self._direct_fd = self._artifact.open_direct()
        contents = self._artifact.contents
        try:
            if not isinstance(contents, Graph):
                if artifact_path == os.fsdecode(path):
                    bind_shapes(contents.model, shapes or {})
                check_groups_of_regions(self._groups, artifact_path)
                self._inputs, self._outputs = contents.model.graph.inputs, contents.model.graph.outputs
                self._open_runner(progress or (lambda _: None))
            else:
                if shapes and artifact_path == os.fsdecode(path):
                    raise CompileError(f"{artifact_path}: shapes are bound when the model is compiled; give them there")
                self._inputs, self._outputs = _ports(contents, contents.inputs), _ports(contents, contents.outputs)
                self._machine = MachineProfile.measure()
                self._plan_anew(None if self._profile == "measure" else self._groups)
                if self._profile == "measure":
                    self._measure(progress or (lambda _: None))
                self._host = Engine(
                    self._artifact, self._switches(), trace=2 if trace else int(self._profile == "measure")
                )
                self._bind()
        except BaseException:
            self.close()
            raise

    @property
    def plan(self) -> Plan:
        """What the session does: steps, loads, addresses, ``predicted_ms``, ``bound_ms``. Where shapes are open, the
        plan of the last run's largest program; raises SessionError before the first run.
        """
        return self._runner.plan if self._runner is not None else self._plan

    @property
    def memory(self) -> int | None:
        """The budget in bytes. Assigning (bytes, or like ``"24MiB"``, or None) plans anew; takes effect after the run
        in flight. Pinned weights that stay pinned are not read again; memory that is not needed any more goes back.
        Where that fails (BudgetError, out of memory, Ctrl-C) the session is as it was.
        """
        return self._memory

    @memory.setter
    def memory(self, memory: str | int | None) -> None:
        budget = None if memory is None else parse_bytes(memory)
        self._check_process()
        with self._lock:
            if self._runner is not None:
                self._runner.rebudget(budget)
                self._memory = budget
                return
            engine = self._opened()
            plan = self._planner.plan(budget)
            before = self._memory, self._plan
            self._learn()
            try:
                engine.close()  # its pinned weights stay where they are for now
                self._memory, self._plan = budget, plan
                self._bind()
            except BaseException:
                self._memory, self._plan = before
                self._bind()
                raise

    @property
    def threads(self) -> int:
        """Compute threads."""
        return self._threads

    @property
    def session_bytes(self) -> int:
        """Everything the session owns, as its plan accounts for it (not more than ``memory``)."""
        return self._runner.session_bytes if self._runner is not None else self._plan.session_bytes

    def get_inputs(self) -> list[NodeArg]:
        """The model's inputs, in its order."""
        return [_described(port) for port in self._inputs]

    def get_outputs(self) -> list[NodeArg]:
        """The model's outputs, in its order."""
        return [_described(port) for port in self._outputs]

    def run(self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any]) -> list[Array]:
        """Outputs named in ``output_names`` (None: all, in the model's order) for the inputs in ``input_feed``.

        Arrays have the model's shapes and types. Raises ValueError for wrong names, shapes or types (TypeError where
        there is no list or mapping of names), SessionError when the artifact cannot be read or fails its checksums; the
        session can run again. Where shapes are open, the first run at new ones binds and plans; it raises BudgetError
        for those that do not fit the budget. The budget has room for the outputs of this run and of the one before;
        older ones that the caller holds are beside it.
        """
        if isinstance(output_names, str):
            raise TypeError(f"output_names is the text {output_names!r}, not a list of names")
        inputs = self._feed(input_feed)
        names = [port.name for port in self._outputs]
        wanted = names if output_names is None else list(output_names)
        for name in wanted:
            if name not in names:
                raise ValueError(f"no output {name!r}; the outputs are {', '.join(names)}")
        self._check_process()
        with self._lock:
            if self._runner is not None:
                outputs = self._runner({port.name: x for port, x in zip(self._inputs, inputs, strict=True)})
                self.last_run = self._runner.last_run
            else:
                graph = self._artifact.graph
                tensors = [graph.tensors[i] for i in graph.outputs]
                outputs = [self._results.array(t.name, t.shape, ALL_DTYPES[t.dtype], inputs) for t in tensors]
                engine = self._opened()
                self.last_run = engine.run([*inputs, *outputs], [engine])
                if self._watch:
                    self._watch.ran(lambda: engine.spans)
        return [outputs[names.index(name)] for name in wanted]

    def trace_events(self) -> dict[str, Any]:
        """The last run as Chrome and Perfetto show it (ui.perfetto.dev), to be written as JSON: lanes of the loader, of
        stalls, each with the load that it waited for, and of each compute thread; memory over time. Raises SessionError
        where ``trace`` was not asked for, before the first run, and where shapes are open.
        """
        from flexnn.run.trace import trace_events

        with self._lock:
            engine = self._engine if self._traced and self.last_run else None
            trace, lanes, stalls = (engine.trace, engine.lanes, engine.stalls) if engine is not None else (None,) * 3
            if trace is None or lanes is None or stalls is None:
                raise SessionError(
                    "there is no trace: open the session with trace=True, and run a model of fixed shapes"
                )
            return trace_events(self._plan, trace, lanes, stalls)

    def close(self) -> None:
        """Gives everything back, after the run in flight. The session cannot run any more; closing twice is fine."""
        if os.getpid() != self._process:  # the lock may be held by a thread that this process does not have
            self._give_back()
            return
        with self._lock:
            if self._host is not None:
                self._host.close()
                self._learn()
            self._give_back()

    def _give_back(self) -> None:
        self._engine = self._runner = self._host = None
        self._results.clear()
        if self._direct_fd >= 0:
            os.close(self._direct_fd)
            self._direct_fd = -1
        self._artifact.close()

    def __del__(self) -> None:
        if sys.is_finalizing():  # Python is being taken apart: nothing can be kept for other sessions
            self._watch = self._runner = None
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

    def _opened(self) -> BoundProgram:
        if self._engine is None:
            raise SessionError("the session is closed")
        return self._engine

    def _plan_anew(self, groups: Groups) -> None:
        """The planner for the machine as it is known, and its plan."""
        setting = self._setting(self._throttled(self._machine))
        self._planner = Planner(self._artifact.graph, setting, groups=groups)
        self._plan = self._planner.plan(self._memory)

    def _setting(self, machine: MachineProfile) -> Setting:
        align = io_alignment(direct=self._direct_fd >= 0)
        return Setting(machine, self._threads, align, overhead_for(reuse_outputs=self._reuse_outputs))

    def _throttled(self, machine: MachineProfile) -> MachineProfile:
        """The machine with the loader's throttle."""
        rate = self._test_switches[2]
        return throttled(machine, rate) if rate else machine

    def _measure(self, progress: Callable[[str], None]) -> None:
        """Plans anew with what is measured in an arena of the first plan's size."""
        arena = self._plan.arena_bytes
        del self._plan, self._planner
        with contextlib.suppress(_core.EngineError, OSError):  # a damaged file: the first run says what and where
            self._machine = measured_machine(self._artifact, self._direct_fd, self._threads, arena, progress)
        self._plan_anew(self._groups)

    def _learn(self) -> None:
        """Keeps what the runs of this plan have told, for sessions to come: this one stays with its profile, so that it
        plans each budget the same way again.
        """
        if self._runner is not None:
            self._runner.learn()
        refined = self._watch.learnt(self._machine) if self._watch else None
        if refined:
            keep_refined(self._artifact, self._direct_fd, self._threads, refined)

    def _bind(self) -> None:
        """Puts the plan into the host. The times of groups say nothing of single steps, so nobody learns from them."""
        assert self._host is not None
        learns = self._profile == "measure" and self._plan.groups is None
        self._watch = Watch(self._plan.program, self._throttled(self._machine)) if learns else None
        self._engine = BoundProgram(self._host, self._plan)
        self._host.trim()

    def _open_runner(self, progress: Callable[[str], None]) -> None:
        from flexnn.measure.parts import Parts
        from flexnn.run.open_shapes import Runner
        from flexnn.run.segments import Programs  # what binds shapes is imported where shapes are open only

        self._host = Engine(self._artifact, self._switches(), trace=int(self._profile == "measure"))
        parts = None
        if self._profile == "measure":
            parts = Parts(self._artifact, self._direct_fd, self._threads, progress, self._throttled)
        machine = parts.machine if parts else self._throttled(MachineProfile.measure())
        programs = Programs(self._artifact, self._memory, self._setting(machine))
        self._runner = Runner(self._host, programs, self._results, parts)

    def _switches(self) -> Switches:
        return Switches(self._threads, self._direct_fd, *self._test_switches)

    def _feed(self, feed: Mapping[str, Any]) -> list[Array]:
        names = [port.name for port in self._inputs]
        if not isinstance(feed, Mapping):
            raise TypeError(f"input_feed is a {type(feed).__name__}, not a mapping of names to arrays")
        for name in feed:
            if name not in names:
                raise ValueError(f"no input {name!r}; the inputs are {', '.join(names)}")
        arrays = []
        for port in self._inputs:
            if port.name not in feed:
                raise ValueError(f"input {port.name!r} is missing")
            try:
                array = np.asarray(feed[port.name])
            except ValueError as error:
                raise ValueError(f"input {port.name!r} is not an array: {error}") from None
            dtype = ALL_DTYPES[str(port.dtype)]
            if array.dtype != dtype or not _fits(array.shape, port.dims):
                dims = "any shape" if port.dims is None else [d or "?" for d in port.dims]
                raise ValueError(
                    f"input {port.name!r} is {array.dtype}{list(array.shape)}, the model takes {dtype}{dims}"
                )
            arrays.append(np.require(array, requirements=["C", "ALIGNED"]))
        return arrays


def _ports(graph: Graph, tensors: Sequence[int]) -> list[Port]:
    return [Port(graph.tensors[i].name, graph.tensors[i].dtype, graph.tensors[i].shape) for i in tensors]


def _described(port: Port) -> NodeArg:
    kind = _TYPES[port.dtype] if port.dtype is not None else "unknown"
    return NodeArg(port.name, list(port.dims or ()), f"tensor({kind})")


def _fits(shape: tuple[int, ...], dims: tuple[Dim, ...] | None) -> bool:
    """Whether an array of ``shape`` may be an input declared as ``dims``."""
    if dims is None:
        return True
    return len(shape) == len(dims) and all(not isinstance(d, int) or d == n for n, d in zip(shape, dims, strict=True))


__all__ = ["BudgetError", "NodeArg", "Session", "SessionError"]
