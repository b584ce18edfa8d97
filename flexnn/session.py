"""A session: one artifact, one budget, one plan, ready to run."""

from __future__ import annotations

import os
import sys
from _thread import allocate_lock  # threading takes a twentieth of what importing flexnn may
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from flexnn.compiler import compiled
from flexnn.graph.ir import ALL_DTYPES
from flexnn.graph.model import Dim, Port
from flexnn.planning import BudgetError, Plan
from flexnn.run.engine import SessionError
from flexnn.run.opening import open_run
from flexnn.run.options import RunOptions, run_options
from flexnn.units import parse_bytes

if TYPE_CHECKING:
    from flexnn.run.protocol import Run

Array = NDArray[Any]

_TYPES = {"f32": "float", "f64": "double"} | {
    name: str(dtype) for name, dtype in ALL_DTYPES.items() if name not in ("f32", "f64")
}
"""onnxruntime's names of element types."""


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

    _run: Run

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
    ) -> None:
        options = run_options(
            memory,
            threads,
            io=io,
            profile=profile,
            groups=groups,
            reuse_outputs=reuse_outputs,
            progress=progress,
            trace=trace,
        )
        self._open(os.fsdecode(path), shapes or {}, options)

    def _open(self, path: str, shapes: Mapping[str, tuple[int, ...]], options: RunOptions) -> None:
        self._memory, self._threads = options.memory, options.threads
        self._process = os.getpid()
        self._lock = allocate_lock()
        self._is_closed = False
        with compiled(path, shapes) as artifact:
            self._run = open_run(artifact, shapes if artifact == path else {}, options)

    @property
    def plan(self) -> Plan:
        """What the session does: steps, loads, addresses, ``predicted_ms``, ``bound_ms``. Where shapes are open, the
        plan of the last run's largest segment; raises SessionError before the first run.
        """
        return self._run.plan

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
            self._opened().rebudget(budget)
            self._memory = budget

    @property
    def threads(self) -> int:
        """Compute threads."""
        return self._threads

    @property
    def session_bytes(self) -> int:
        """Everything the session owns, as its plan accounts for it (not more than ``memory``)."""
        return self._run.session_bytes

    @property
    def last_run(self) -> dict[str, int]:
        """Of the last run: ``run_ns``, ``stall_ns`` (compute waiting for loads), ``bytes_read``. Empty before it."""
        return self._run.last_run

    def get_inputs(self) -> list[NodeArg]:
        """The model's inputs, in its order."""
        return [_described(port) for port in self._run.inputs]

    def get_outputs(self) -> list[NodeArg]:
        """The model's outputs, in its order."""
        return [_described(port) for port in self._run.outputs]

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
        inputs = _arrays(self._run.inputs, input_feed)
        names = [port.name for port in self._run.outputs]
        wanted = names if output_names is None else list(output_names)
        for name in wanted:
            if name not in names:
                raise ValueError(f"no output {name!r}; the outputs are {', '.join(names)}")
        self._check_process()
        with self._lock:
            outputs = self._opened().run(inputs)
        return [outputs[names.index(name)] for name in wanted]

    def statistics(self) -> dict[str, Any]:
        """Return figures of the session and of its last run.

        Returns:
            A dictionary that JSON takes:

            - ``segments``: parts of the model that are bound and kept; 1 where shapes are fixed.
            - ``segments_of_last_run``: those of them that the last run ran; 0 before it.
            - ``kept_nodes``: nodes of all segments.
            - ``hosted_operators``: ONNX operators that numpy computed in the last run, and how often.
            - ``bytes``: what ``session_bytes`` is made of: ``arena``, ``base``, ``stacks``; where shapes are fixed,
              ``io`` (the caller's arrays), ``program`` and, with groups, ``groups``; where they are open, ``values``
              (the caller's arrays and those between segments), ``programs`` and ``model``.
            - ``engine_bytes``: what the engine holds now: arena, programs, stacks.
            - ``pinning``: bytes of pinned weights that the last binding ``kept`` in place, ``moved`` in the arena, and
              ``read`` from the file.
            - ``machine``: what plans know of it: ``measured_times`` of kernels, ``storage_bytes_per_second``.

        Raises:
            SessionError: The session is closed.
        """
        self._check_process()
        with self._lock:
            return self._opened().statistics()

    def trace_events(self) -> dict[str, Any]:
        """The last run as Chrome and Perfetto show it (ui.perfetto.dev), to be written as JSON: lanes of the loader, of
        stalls, each with the load that it waited for, and of each compute thread; memory over time. Raises SessionError
        where ``trace`` was not asked for, before the first run, and where shapes are open.
        """
        self._check_process()
        with self._lock:
            return self._opened().trace_events()

    def close(self) -> None:
        """Gives everything back, after the run in flight. The session cannot run any more; closing twice is fine."""
        if os.getpid() != self._process:  # the lock may be held by a thread that this process does not have
            self._is_closed = True
            self._run.release()
            return
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                self._run.close(learn=not sys.is_finalizing())  # then nothing can be kept for other sessions

    def __del__(self) -> None:
        if hasattr(self, "_run"):
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

    def _opened(self) -> Run:
        if self._is_closed:
            raise SessionError("the session is closed")
        return self._run


def open_for_tests(
    path: str | os.PathLike[str],
    memory: str | int | None = None,
    threads: int | None = None,
    *,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    poison: bool = False,
    jitter_seed: int = 0,
    read_bytes_per_second: int = 0,
    prefetches: bool = True,
    rewrite: Callable[[Plan], Plan] | None = None,
    **options: Any,
) -> Session:
    """Open a session with what only tests and benches change (RunOptions says what each is); ``options`` as Session's.
    No part of the public interface.
    """
    chosen = run_options(memory, threads, **options)._replace(
        poison=poison,
        jitter_seed=jitter_seed,
        read_bytes_per_second=read_bytes_per_second,
        prefetches=prefetches,
        rewrite=rewrite,
    )
    session = Session.__new__(Session)
    session._open(os.fsdecode(path), shapes or {}, chosen)
    return session


def _arrays(ports: Sequence[Port], feed: Mapping[str, Any]) -> list[Array]:
    """Arrays of a feed in the order of ``ports``. Raises ValueError, TypeError."""
    names = [port.name for port in ports]
    if not isinstance(feed, Mapping):
        raise TypeError(f"input_feed is a {type(feed).__name__}, not a mapping of names to arrays")
    for name in feed:
        if name not in names:
            raise ValueError(f"no input {name!r}; the inputs are {', '.join(names)}")
    arrays = []
    for port in ports:
        if port.name not in feed:
            raise ValueError(f"input {port.name!r} is missing")
        try:
            array = np.asarray(feed[port.name])
        except ValueError as error:
            raise ValueError(f"input {port.name!r} is not an array: {error}") from None
        dtype = ALL_DTYPES[str(port.dtype)]
        if array.dtype != dtype or not _fits(array.shape, port.dims):
            dims = "any shape" if port.dims is None else [d or "?" for d in port.dims]
            raise ValueError(f"input {port.name!r} is {array.dtype}{list(array.shape)}, the model takes {dtype}{dims}")
        arrays.append(np.require(array, requirements=["C", "ALIGNED"]))
    return arrays


def _described(port: Port) -> NodeArg:
    kind = _TYPES[port.dtype] if port.dtype is not None else "unknown"
    return NodeArg(port.name, list(port.dims or ()), f"tensor({kind})")


def _fits(shape: tuple[int, ...], dims: tuple[Dim, ...] | None) -> bool:
    """Whether an array of ``shape`` may be an input declared as ``dims``."""
    if dims is None:
        return True
    return len(shape) == len(dims) and all(not isinstance(d, int) or d == n for n, d in zip(shape, dims, strict=True))


__all__ = ["BudgetError", "NodeArg", "Session", "SessionError"]
