"""A session: one artifact opened with one budget, ready to run."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar

from flexnn.artifact.format import ArtifactError, is_onnx
from flexnn.graph.ir import GraphError
from flexnn.planning import BudgetError, Plan
from flexnn.run.arguments import NodeArg, described
from flexnn.run.engine import DamageError, SessionError
from flexnn.run.feeds import Feeds
from flexnn.run.opening import open_run, prepare
from flexnn.run.options import GivenGroups, Io, Kv, Profile, RunOptions, run_options
from flexnn.run.turns import Ending, Turns
from flexnn.stateful import StateCalls
from flexnn.units import asks_system, format_bytes, parse_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from flexnn.asynchronous import Calls
    from flexnn.graph.about import About
    from flexnn.graph.labels import Labels
    from flexnn.run.protocol import Run

Array: TypeAlias = "NDArray[Any]"
Shapes: TypeAlias = Mapping[str, tuple[int, ...]]
_T = TypeVar("_T")


class Session(StateCalls):
    """A model opened for running inside a memory budget.

    Opening and running the session adds at most ``memory`` bytes to the process. Several threads may call ``run``;
    their runs take turns. A session belongs to the process that opened it; where a pickle of it is loaded, the file is
    opened again with the same options (but ``progress``) and the budget of then. Close it, or use it as a context
    manager.

    Args:
        path: Artifact, or ONNX file, which is compiled when it is first opened, in a process of its own; the artifact
            is kept in the user's cache folder (``flexnn cache``).
        memory: Budget in bytes, or text like ``"48MiB"``; None: no limit, all weights stay in memory. ``"50%"``: that
            part of what control groups, the system and RLIMIT_AS leave to this process when the session opens.
            ``"auto"``: all that they leave but a reserve of 16 MiB or a tenth of the limit, whichever is more, or of
            16 MiB with ``"auto:16MiB"``; before each run the session looks again, and gives back or takes more.
        threads: Number of compute threads; default: the CPUs that this process may use.
        io: ``"buffered"``, or ``"direct"`` to read past the page cache where the file system supports it.
        shapes: Shapes of open inputs, by name.
        profile: ``"measure"``: time kernels and storage when an artifact is first opened on this machine (some 20 ms,
            inside ``memory``; with open shapes, as much of the first run), and when a session is closed that ran for
            long (5 % of that time), and keep the times in the user's cache folder. ``"analytic"``: estimate times from
            rates. Default: the environment's FLEXNN_PROFILE, or "measure".
        groups: Number of groups into which each layer of independent nodes is split; the nodes of a group run at the
            same time. Needs all weights pinned, so a smaller budget is refused. ``"auto"``: the number that is
            predicted to be fastest, if any is faster; ``"off"``, the default: nodes run one by one.
        progress: Function that is told what takes a while.
        trace: Whether runs are recorded for ``trace_events``.
        reuse_outputs: Whether a run may overwrite the arrays that the run before returned; the budget then holds the
            outputs once, not twice.
        own_outputs: Whether runs return arrays of the session's; if not, each run is given arrays for all outputs
            (``out``), and the budget does not hold outputs (with open shapes, it holds them once).
        deterministic: Whether kernels are chosen by rule, not by time, so that outputs are equal bit for bit whatever
            the threads, the budget and the session, on all machines of one instruction-set level. By default they
            are chosen by measured times, and may differ in the last bits.
        spill: Folder on a device in which activations may be stored until they are read again, where that lets the
            budget hold the model or run it faster: in a file without a name that only this user could read, and that
            ends with the session. Fixed shapes only. By default nothing is written.
        kv_capacity: Rows of keys and values that a decoder keeps from run to run, as state of the session: it takes
            new tokens only, and no past. Default: 1024 for a model that was imported with state, else no state.
        kv: Type of keys and values in the state: ``"f16"``, ``"f32"``, or ``"s8"``: 8 bits and a scale for 32 numbers.
        cross_capacity: With state, most rows of an encoder's output of which a decoder keeps keys and values: they are
            made once, in the first run of an input, and later runs take the decoder's tokens alone.
        all_logits: Whether runs with state return logits of all new tokens, not of the last one alone.

    Raises:
        BudgetError: The budget is too small; ``.minimum`` is the smallest that works, in bytes.
        ArtifactError: The file is not a usable artifact.
        CompileError: The ONNX file does not compile, or shapes are given for an artifact that has no open ones.
        GraphError: The model or a shape cannot be used.
        SessionError: Threads do not start, or weights cannot be read.
        ValueError: An option is none of those above.
        OSError: A file cannot be read.
    """

    _run: Run

    def __init__(
        self,
        path: str | os.PathLike[str],
        memory: str | int | None = None,
        threads: int | None = None,
        *,
        io: Io = "buffered",
        shapes: Mapping[str, tuple[int, ...]] | None = None,
        profile: Profile | None = None,
        groups: GivenGroups = None,
        progress: Callable[[str], None] | None = None,
        trace: bool = False,
        reuse_outputs: bool = False,
        own_outputs: bool = True,
        deterministic: bool = False,
        spill: str | os.PathLike[str] | None = None,
        kv_capacity: int | None = None,
        kv: Kv = "f16",
        cross_capacity: int = 1024,
        all_logits: bool = False,
    ) -> None:
        given: dict[str, Any] = {
            "threads": threads,
            "io": io,
            "profile": profile,
            "groups": groups,
            "trace": trace,
            "reuse_outputs": reuse_outputs,
            "own_outputs": own_outputs,
            "deterministic": deterministic,
            "spill": None if spill is None else os.path.abspath(os.fsdecode(spill)),
            "kv_capacity": kv_capacity,
            "kv": kv,
            "cross_capacity": cross_capacity,
            "all_logits": all_logits,
        }
        self._open(os.fsdecode(path), shapes or {}, run_options(memory, progress=progress, **given), given)

    def __repr__(self) -> str:
        if not hasattr(self, "_run"):
            return "<flexnn.Session, not open>"
        budget = "no limit" if self._run.memory is None else format_bytes(self._run.memory)
        state = "closed" if self._is_closed else "running" if self._turns.is_busy else "ready"
        return f"<flexnn.Session of {self._path!r}, budget {budget}, {self._run.threads} threads, {state}>"

    def _open(
        self,
        path: str,
        shapes: Shapes,
        options: RunOptions,
        given: dict[str, Any],
        opened: Callable[[str, Shapes, RunOptions], Run] = open_run,
        turns: Turns | None = None,
    ) -> None:
        """Open the model with ``opened``; a pool's sessions share their ``turns``."""
        self._path = path
        self._opened_with = os.path.abspath(path), given | {"shapes": shapes}
        self._calls: Calls | None = None
        self._is_pooled, self._turns = turns is not None, turns or Turns()
        self._is_closed, self._owns_outputs = False, given.get("own_outputs", True)
        self._ending: Ending | None = None
        if is_onnx(path):
            self._open_compiled(path, shapes, lambda artifact: opened(artifact, {}, options), measures=options.measures)
        else:
            self._run = opened(path, shapes, options)
        self._ending = self._run.ending()
        if self._is_pooled:
            self._ending.leave(self._run, self._turns.leaving)
        self._asked = options.asked
        if self._asked is not None:
            self._follow()
        lacking: frozenset[str] = getattr(getattr(self._run, "inner", self._run), "may_lack", frozenset())
        artifact = self._run.artifact
        self._labels: dict[str, Labels] = artifact.about().labels if artifact.has_labels else {}
        self._feeds = Feeds(self._run.inputs, self._run.outputs, lacking, self._labels)

    def _open_compiled(self, path: str, shapes: Shapes, opened: Callable[[str], Run], *, measures: bool) -> None:
        """Open the artifact of an ONNX file; one whose bits have changed is made anew, once."""
        from flexnn.kept_artifacts import compiled  # sessions of artifacts do without

        heard = partial(prepare, measures=measures)
        for is_first in (True, False):
            try:
                with compiled(path, shapes, (DamageError,), heard=heard) as artifact:
                    self._run = opened(artifact)
                return
            except (ArtifactError, DamageError):
                if not is_first:
                    raise

    @property
    def plan(self) -> Plan:
        """The plan: steps, loads, addresses, ``predicted_ms``, ``bound_ms``. With open shapes, the plan of the last
        run's largest segment.

        Raises:
            SessionError: Shapes are open and nothing has run yet.
        """
        return self._in_turn(lambda run: run.plan)

    @property
    def memory(self) -> int | None:
        """The budget in bytes; None: no limit. Assign bytes, text like ``"24MiB"``, ``"50%"`` or ``"auto"``, or None to
        change it. One that follows the system is as it was last changed.

        The session plans again in place, after the run in flight. Pinned weights that stay pinned are not read again;
        memory that is no longer needed is given back. If the change fails, the session keeps the old budget and plan;
        where storage failed, the next run reads again what they need.

        Raises:
            BudgetError: The new budget is too small; ``.minimum`` is the smallest that works, in bytes.
            ValueError: The new budget is not a size.
            SessionError: The session is closed or from another process, or weights cannot be read.
        """
        return self._run.memory

    @memory.setter
    def memory(self, memory: str | int | None) -> None:
        if asks_system(memory):
            self._while_open(lambda run: self._ask(run, str(memory)))
        else:
            budget = None if memory is None else parse_bytes(memory)
            self._while_open(lambda run: run.rebudget(budget))
            self._asked = None

    @property
    def closed(self) -> bool:
        """Whether the session was closed."""
        return self._is_closed

    @property
    def threads(self) -> int:
        """Number of compute threads that run: fewer than asked for where the system has no more."""
        return self._run.threads

    @property
    def session_bytes(self) -> int:
        """Bytes that the session owns, as its plan counts them; never more than ``memory``."""
        return self._in_turn(lambda run: run.session_bytes)

    @property
    def last_run(self) -> dict[str, int]:
        """Figures of the last run: ``run_ns``, ``stall_ns`` (compute waiting for loads), ``bytes_read``, and with a
        spill file ``bytes_written``. Empty before
        the first run.
        """
        return self._run.last_run

    def get_inputs(self) -> list[NodeArg]:
        """Return descriptions of the model's inputs, in its order."""
        return [described(port, self._labels) for port in self._run.inputs]

    def get_outputs(self) -> list[NodeArg]:
        """Return descriptions of the model's outputs, in its order."""
        return [described(port, self._labels) for port in self._run.outputs]

    def get_modelmeta(self) -> About:
        """Return what the model says about itself: ``custom_metadata_map``, ``producer_name``, ``graph_name`` …

        Raises:
            SessionError: The session is closed.
            ArtifactError: The artifact was damaged since it was opened.
        """
        return self._while_open(lambda run: run.artifact.about())

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        *,
        out: Mapping[str, Array | None] | Sequence[Array | None] | None = None,
    ) -> list[Array]:
        """Run the model.

        With open shapes, the first run at new shapes also binds and plans. The budget reserves memory for two sets of
        outputs, those of this run and of the one before; arrays that the caller keeps longer come on top.

        Args:
            output_names: Names of the outputs to return; None: all, in the model's order.
            input_feed: Input arrays by name, with the model's shapes and types; texts as arrays of str.
            out: Arrays to write outputs into, by name, or in the order of ``output_names``: contiguous, of the output's
                shape and type, apart from each other and from the inputs; None where the session shall make one. The
                session takes no memory for these outputs; its budget still reserves it, unless it was opened with
                ``own_outputs=False``. A run that fails may have written some.

        Returns:
            One array for each name; those of ``out`` where it has them. Where numbers of a classifier stand for labels,
            an array of texts, or a sequence with a mapping for each row (``get_outputs()`` says so); ``out`` has the
            numbers themselves.

        Raises:
            ValueError: A name, shape or type is wrong, or an array of ``out`` cannot be written into.
            TypeError: ``output_names`` is no list, ``input_feed`` no mapping, or ``out`` neither.
            SessionError: The artifact cannot be read or fails its checksums (the session can run again), or what was
                bound has changed in memory when a run follows a fault (until it is bound anew), or the session is
                closed, from another process, or called by a signal handler that interrupted a call of the session.
            BudgetError: Shapes are open, and these do not fit the budget.
            GraphError: Shapes are open, and the model cannot be computed at these.
        """
        wanted = None if output_names is None else self._feeds.wanted(output_names)
        outputs, owns, turns = None, self._owns_outputs, self._turns
        if self._feeds.words is not None:
            input_feed = self._feeds.words.places(input_feed)
        if out is None and owns and not turns.is_foreign:  # most runs are like the last: few calls lead to the engine
            outputs = turns.take(self._repeat, self._failed, input_feed)
        if outputs is None:
            inputs, into = self._feeds.arrays(input_feed), None
            if out is not None or not owns:
                from flexnn.run.given import placed

                into = placed(out, wanted, self._run.outputs, inputs, all_needed=not owns)
            outputs = self._while_open(lambda run: run.run(inputs, into))
        if self._feeds.labelled is not None and out is None:
            outputs = self._feeds.labelled.of(outputs)
        return outputs if wanted is None else [outputs[i] for i in wanted]

    async def arun(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        *,
        out: Mapping[str, Array | None] | Sequence[Array | None] | None = None,
    ) -> list[Array]:
        """Run the model as ``run`` does, in a thread, while the event loop goes on.

        Arrays of the feed and of ``out`` are in use until it returns. Runs that are awaited together take turns in one
        thread, which takes about 0.1 MiB beside the budget. A task
        that is cancelled breaks its run off, as Ctrl-C would, and goes on when the run has ended; the session can run
        again.

        Raises:
            RuntimeError: No thread starts.
        """
        from flexnn.asynchronous import Calls, awaited

        self._check_process()
        self._calls = self._calls or Calls()
        return await awaited(self._calls, self._turns.lock, lambda: self.run(output_names, input_feed, out=out))

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
        return self._while_open(lambda run: run.statistics())

    def trace_events(self) -> dict[str, Any]:
        """Return the last run as trace events, which Chrome and Perfetto (ui.perfetto.dev) show.

        Returns:
            An object to write as JSON. It has lanes for the loader, for stalls (each names the load that it waited for)
            and for each compute thread, and memory over time.

        Raises:
            SessionError: The session was opened without ``trace``, has not run yet, or has open shapes.
        """
        return self._while_open(lambda run: run.trace_events())

    def close(self) -> None:
        """Give back memory, threads and files, after the run in flight; that run itself does it where a signal handler
        closes the session that it interrupted. The session cannot run again; closing twice is fine.
        """
        is_first, self._is_closed = not self._is_closed, True
        if self._turns.is_foreign:
            self._run.release()
        else:
            self._turns.leave(self._run if is_first else None)
        if self._ending is not None:
            self._ending.stay()

    def _discard(self) -> None:
        """Remove the artifact if it is a kept one: opening the model again makes it anew."""
        from flexnn.kept_artifacts import discard

        artifact = self._run.artifact
        discard(artifact.path, os.fstat(artifact.fd).st_ino)

    def __reduce__(self) -> tuple[Any, ...]:
        if self._is_closed:
            raise SessionError("the session is closed")
        if self._is_pooled:
            raise TypeError("a session of a pool cannot be pickled; open the model in a pool of the other process")
        path, given = self._opened_with
        others = {name: value for name, value in self.__dict__.items() if name not in _OWN}
        return _opened_again, (type(self), path, given | {"memory": self._asked or self.memory}), others or None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, run: Run, memory: str) -> None:
        from flexnn.run.watched import rebudgeted  # most budgets are sizes

        self._run = rebudgeted(run, memory, self._opened_with[0])
        self._asked = memory
        self._follow()

    def _follow(self) -> None:
        """Have what runs look at the system's memory between runs, too, if it follows that."""
        if self._idle():
            from flexnn.system.idle import watch

            watch(self._idle)

    def _idle(self) -> bool:
        """Give back what others need, unless a call is going on; return whether the budget follows the system."""
        from flexnn.run.watched import WatchedRun

        watched = self._run
        if self._is_closed or self._turns.is_foreign or not isinstance(watched, WatchedRun):
            return False
        self._turns.take_if_free(lambda: None if self._is_closed else watched.idle(), self._failed)
        return True

    def _check_process(self) -> None:
        if self._turns.is_foreign:
            raise SessionError("this session was opened before fork(); open a new one in this process")

    def _while_open(self, call: Callable[[Run], _T]) -> _T:
        """Return what ``call`` does, when the calls of other threads are done. Raises SessionError."""
        self._check_process()
        return self._in_turn(call, while_open=True)

    def _in_turn(self, call: Callable[[Run], _T], *, while_open: bool = False) -> _T:
        def called() -> _T:
            if while_open:
                self._check_open()
            return call(self._run)

        return self._turns.take(called, self._failed)

    def _repeat(self, feed: Mapping[str, Any]) -> list[Array] | None:
        """Return all outputs of a run like the last, or None."""
        return None if self._is_closed else self._run.repeat(feed)

    def _check_open(self) -> None:
        if self._is_closed:
            raise SessionError("the session is closed")

    def _failed(self, error: BaseException) -> None:
        if not isinstance(error, BudgetError | GraphError):  # what is refused has broken nothing
            self._run.suspect()
        if isinstance(error, ArtifactError | DamageError):
            self._discard()


_OWN = frozenset(
    "_path _opened_with _calls _is_pooled _turns _is_closed _owns_outputs _ending _run _asked _feeds".split()  # noqa: SIM905
)
"""Attributes of a session that its pickle does not hold; others are those of derived classes."""


def _opened_again(kind: type[Session], path: str, given: dict[str, Any]) -> Session:
    """Return the session of a pickle."""
    session = kind.__new__(kind)
    Session.__init__(session, path, **given)
    return session


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
    """Open a session with switches that only tests and benches have (``RunOptions`` describes them). ``options`` are
    those of Session. Not part of the public interface.
    """
    chosen = run_options(memory, threads, **options)._replace(
        poison=poison,
        jitter_seed=jitter_seed,
        read_bytes_per_second=read_bytes_per_second,
        prefetches=prefetches,
        rewrite=rewrite,
    )
    session = Session.__new__(Session)
    session._open(os.fsdecode(path), shapes or {}, chosen, {"threads": threads, **options})
    return session


__all__ = ["BudgetError", "NodeArg", "Session", "SessionError"]
