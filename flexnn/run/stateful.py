"""Runs of a model with state: a program for each number of new tokens, over the same arena, state and weights.

All are bound and planned when the session opens; a run cuts its tokens into chunks that programs take, and the length
of the state is a number that each program reads (docs/decisions/0053-state.md).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from flexnn import _core
from flexnn.errors import StateError
from flexnn.graph.ir import DTYPES, Array, Graph
from flexnn.graph.large import mapping
from flexnn.graph.ports import Port
from flexnn.graph.state import CROSS_LENGTH
from flexnn.measure import Watch
from flexnn.measure.parts import Parts
from flexnn.planning import MachineProfile, Plan
from flexnn.planning.types import align_up

from . import state_file
from .engine import BoundProgram, Engine, SessionError
from .model_file import ModelFile
from .options import RunOptions
from .outputs import Outputs
from .state_once import OnceProgram
from .state_plans import Placed
from .state_programs import StatePrograms
from .state_width import StateBudget, Width, spans_of
from .statistics import FIGURES, machine_statistics


class StateRun(StatePrograms):
    """The ``Run`` of a model with state; it owns ``file`` once it is made."""

    def __init__(self, file: ModelFile, options: RunOptions) -> None:
        self._parts: Parts | None = None
        if options.measures:
            self._parts = Parts(file.artifact, file.direct_fd, options.threads, options.progress, options.throttled)
        machine = self._parts.machine if self._parts else options.throttled(MachineProfile.measure())
        self._beside: dict[str, Array] = {}
        """Inputs of the programs that are no tokens, by name; all others are the length."""
        super().__init__(file, options, machine)
        self._find_ports()
        self.length = 0
        """Rows of the state that hold tokens."""
        self.last_run: dict[str, int] = {}
        self._make_state()
        self._budget = self._measured(self._planned(options.memory))
        switches = options.switches(direct=file.direct_fd >= 0)._replace(streams_last=True)
        self._engine = Engine(switches, trace=2 if options.trace else int(options.measures))
        self.threads = self._engine.threads
        try:
            self._bind(self._budget)
            if options.memory is None:
                self._engine.back()
        except BaseException:
            self._engine.close(file.files)
            raise

    @property
    def _timed(self) -> Graph:
        """The graph of one token without what reads the state, whose time depends on the length."""
        graph = self._widths[-1].graph
        return replace(graph, nodes=[node for node in graph.nodes if not node.op.startswith("state_")])

    def _measured(self, budget: StateBudget) -> StateBudget:
        """Return plans by measured times, if the machine is to be measured: by the program of one token, in an arena of
        its first plan's size.
        """
        parts, timed = self._parts, self._timed
        arena = budget.placed[-1][0].arena_bytes
        lack = parts.lacks_any(timed, arena) if parts else None
        if parts is None or lack is None:
            return budget
        parts.measure(timed, arena, lack)
        self._plan_for(parts.machine)
        return self._planned(self._options.memory)

    def _find_ports(self) -> None:
        graph = self._widths[-1].graph
        ids, logits = graph.tensors[graph.inputs[0]], graph.tensors[graph.outputs[0]]
        self._at = self._input_names.index(self._tokens)
        self.inputs: Sequence[Port] = [Port(self._tokens, ids.dtype, (1, None, *ids.shape[2:]))]
        if self._once is not None:
            given = {port.name: port for port in self._stored_inputs}
            self.inputs = [*self.inputs, *self._once.ports, *(given[name] for name in self._once.once.masks)]
            self._beside = {CROSS_LENGTH: self._once.length, **self._once.states}
        self.may_lack = frozenset(port.name for port in self.inputs[1:])
        rows = (None,) if self._all_rows else (1,)
        self.outputs: Sequence[Port] = [Port(logits.name, logits.dtype, (1, *rows, *logits.shape[2:]))]
        self._logits = logits.shape[2:], DTYPES[logits.dtype]
        self._all = [(graph.tensors[i].shape, DTYPES[graph.tensors[i].dtype]) for i in graph.outputs]
        self._results = Outputs(reuse=self._options.reuse_outputs)
        self._last: Array | None = None
        """The last logits, where the next run may overwrite them."""
        self._gives: list[Array] = []
        """Arrays that the run of one token makes: its logits and the states."""
        self._one = ids.shape, DTYPES[ids.dtype]
        self._length = np.zeros(1, np.int64)

    def _make_state(self) -> None:
        """Take the memory of all states at once. The system gives it where rows are written."""
        sizes = [align_up(tensor.nbytes) for tensor in self._state_tensors]
        memory = mapping(self._state_bytes)
        if self._options.poison:
            memory.write(b"\xff" * self._state_bytes)
        ends = np.cumsum([0, *sizes]).tolist()
        self._states = [
            np.ndarray(tensor.shape, DTYPES[tensor.dtype], buffer=memory, offset=at)
            for tensor, at in zip(self._state_tensors, ends[:-1], strict=True)
        ]

    # ---- budgets ----

    def _bind(self, budget: StateBudget) -> None:
        """Bind the programs of a budget, which is the session's from then on. Raises SessionError, with some of them
        bound.
        """
        placed = [*budget.once, *budget.placed]
        for each, (plan, program) in zip(self._each, placed, strict=True):
            each.program = BoundProgram(self._engine, self.artifact, plan, program, direct_fd=self._file.direct_fd)
        self._engine.trim()
        self._budget, self._is_bound = budget, True
        self._watch = Watch(placed[-1][1], self._machine) if self._parts is not None else None

    @property
    def _each(self) -> list[OnceProgram | Width]:
        """All programs, in the order in which they are bound."""
        return [*(self._once.programs if self._once is not None else ()), *self._widths]

    @property
    def _all_placed(self) -> Placed:
        return [*self._budget.once, *self._budget.placed]

    @property
    def _arena_bytes(self) -> int:
        return max(program.arena_bytes for _, program in self._all_placed)

    # ---- the Run ----

    @property
    def memory(self) -> int | None:
        """The budget in bytes; None: no limit."""
        return self._budget.memory

    @property
    def plan(self) -> Plan:
        """The plan of one new token."""
        return self._budget.placed[-1][0]

    @property
    def session_bytes(self) -> int:
        """Bytes that the session owns, as its plans account for them."""
        return self._arena_bytes + sum(self._fixed().values()) + self._programs_bytes()

    def _programs_bytes(self) -> int:
        return sum(plan.overhead["program"] for plan, _ in self._all_placed)

    def run(self, inputs: Sequence[Array], into: Sequence[Array | None] | None = None) -> list[Array]:
        """Append the tokens to the state; return the logits of the last, or of all. Raises StateError beyond the
        capacity, with the state as it was, and SessionError.
        """
        tokens, *given_once = inputs
        inputs = inputs[:1]
        count = tokens.shape[1]
        if not count or count % self._widths[-1].tokens:
            raise StateError(f"{count} new tokens are not a multiple of the model's {self._widths[-1].tokens}")
        if self.length + count > self.capacity:
            raise StateError(
                f"{count} tokens after {self.length} are beyond the state's capacity of {self.capacity}: "
                "open the session with a larger kv_capacity, or reset it"
            )
        if not self._is_bound:
            self._bind_again()
        if self._once is not None:
            self._give(given_once)
        given = into[0] if into is not None else None
        logits = self._array(count if self._all_rows else 1, inputs)
        before, done = self.length, 0
        figures = dict.fromkeys(FIGURES, 0)
        try:
            while done < count:
                width = next(w for w in self._widths if w.tokens <= count - done)
                own = logits[:, done : done + width.tokens] if self._all_rows else logits
                stats = self._step(width, tokens[:, done : done + width.tokens], own, count - done)
                for name, number in zip(figures, stats, strict=True):
                    figures[name] += number
                done += width.tokens
                self.length += width.tokens
        except BaseException:
            self.length = before
            raise
        self.last_run = figures
        if given is not None:
            given[...] = logits
            return [given]
        return [logits]

    def _give(self, arrays: Sequence[Array | None]) -> None:
        """Take what an encoder made, if it is given. Raises StateError where it is missing, or comes too late."""
        once = self._once
        assert once is not None
        own, masks = arrays[: len(once.ports)], [array for array in arrays[len(once.ports) :] if array is not None]
        given = [array for array in own if array is not None]
        if not given and not masks:
            if not once.length[0]:
                names = ", ".join(repr(port.name) for port in once.ports)
                raise StateError(f"the first run of an input gives what the encoder made: {names}")
            return
        if len(given) < len(once.ports):
            raise StateError("a run gives all of what an encoder made, or nothing")
        if self.length:
            raise StateError(f"the state has {self.length} tokens of another input: reset it before a new one is given")
        following = self._widths[-1].program
        assert following is not None
        once.give(given, masks, following)

    def _step(self, width: Width, tokens: Array, logits: Array, left: int) -> tuple[int, int, int]:
        """Run one program; return its figures. ``left``: new tokens that are not in the state yet."""
        assert width.program is not None
        self._length[0] = self.length
        left -= width.tokens
        following = next((w for w in self._widths if w.tokens <= left), self._widths[-1])
        assert following.program is not None
        feed = dict.fromkeys(self._input_names, self._length) | self._beside
        feed[self._tokens] = np.ascontiguousarray(tokens)
        self._gives[:] = logits, *self._states
        if width.signature is None:
            width.signature = self._signature(width, feed)
        ran = width.program.repeat(width.signature, feed, [following.program])
        if ran is None:
            raise SessionError(f"input {self._tokens!r} is not as the session's programs take it")
        if self._watch is not None and width is self._widths[-1]:
            self._watch.ran(lambda: spans_of(width))
        return ran[1]

    def _signature(self, width: Width, feed: dict[str, Array]) -> _core.Signature:
        """Return what all runs of a program have in common: its constants, and the state."""
        made, order = self._gives, range(len(feed))  # nothing that refers to the session, which refers to it
        return _core.Signature(
            list(feed), list(feed.values()), order, width.constants, self._all, np.empty, lambda _: list(made)
        )

    def reset(self, length: int) -> None:
        """Forget all rows but the first ``length``. Raises StateError if there are fewer."""
        if not 0 <= length <= self.length:
            raise StateError(f"the state has {self.length} tokens, so it cannot be reset to {length}")
        self.length = length

    def save(self, path: str) -> None:
        """Write the state to a file. Raises OSError."""
        lengths = [self.length, *([int(self._once.length[0])] if self._once is not None else [])]
        state_file.save(path, self.artifact.header.source_sha256, list(zip(self._parts_kept(), lengths, strict=True)))

    def load(self, path: str) -> None:
        """Replace the state by that of a file. Raises StateError and OSError, with the state as it was, or empty where
        the file changes or fails while its rows are taken.
        """
        once = self._once
        with state_file.checked(path, self.artifact.header.source_sha256, self._parts_kept()) as file:
            self.length = 0  # a file that changes while it is read leaves no state
            if once is not None:
                once.length[0] = 0
            self.length, *given = file.read()
            if once is not None:
                once.length[0] = given[0]

    def _parts_kept(self) -> list[Sequence[Array]]:
        """Return the states that files hold: those of tokens, and those of an encoder's output."""
        return [self._states, *([list(self._once.states.values())] if self._once is not None else [])]

    def repeat(self, feed: Mapping[str, Any]) -> list[Array] | None:
        """Return the logits of one more token: most runs are that. None, without a run, for all others. Raises
        SessionError.
        """
        width = self._widths[-1]
        tokens = feed.get(self._tokens) if type(feed) is dict and len(feed) == 1 else None
        if type(tokens) is not np.ndarray or width.signature is None or not self._is_bound:
            return None
        if self._once is not None and not self._once.length[0]:
            return None
        if tokens.shape != self._one[0] or tokens.dtype != self._one[1] or self.length + width.tokens > self.capacity:
            return None
        if not tokens.flags.c_contiguous or not tokens.flags.aligned:
            return None
        logits = self._array(width.tokens if self._all_rows else 1, (tokens,))
        self.last_run = dict(zip(FIGURES, self._step(width, tokens, logits, width.tokens), strict=True))
        self.length += width.tokens
        return [logits]

    def _array(self, rows: int, inputs: Sequence[Array]) -> Array:
        """Return an array for the logits of so many rows."""
        shape, dtype = self._logits
        if rows > max(1, self._widths[0].tokens):  # more than a budget counts, so it is the caller's alone
            return np.empty((1, rows, *shape), dtype)
        last = self._last
        if last is not None and last.shape[1] == rows and inputs[0].dtype.kind == "i":
            return last
        made = self._results.array(self.outputs[0].name, (1, rows, *shape), dtype, inputs)
        self._last = made if self._options.reuse_outputs else None
        return made

    def rebudget(self, memory: int | None) -> None:
        """Plan again for another budget, in place; the state stays. If that fails (BudgetError, SessionError, Ctrl-C),
        the old plans stay, too. Their programs are bound again, at once or, where storage fails or after Ctrl-C, at the
        next run.
        """
        budget = self._planned(memory)
        self._unbind()
        try:
            self._engine.trim(keep=True)  # pinned weights stay, and those that the new plans have are not read again
            self._bind(budget)
        except BaseException as error:
            self.give_back()
            if isinstance(error, SessionError):
                with contextlib.suppress(SessionError):  # the next run says why
                    self._bind_again()
            raise

    def _bind_again(self) -> None:
        """Bind the programs of the budget. Raises SessionError, with none of them bound."""
        self._unbind()  # what was bound before a fault
        try:
            self._bind(self._budget)
        except BaseException:
            self.give_back()
            raise

    def watch(self, look: Callable[[], None] | None) -> None:
        """Have a function called every 20 ms of runs; what it raises breaks the run off. None: no more."""
        self._engine.core.watch = look

    def give_back(self) -> None:
        """Unbind the programs and give back the arena; the state stays."""
        self._unbind()
        self._engine.give_back()

    def _unbind(self) -> None:
        self._is_bound = False
        for each in self._each:
            if each.program is not None:
                each.program.close()
                each.program = None

    def suspect(self) -> None:
        """Have the programs checked before the next run."""
        self._engine.suspect()

    def statistics(self) -> dict[str, Any]:
        """Return figures of the run (Session.statistics)."""
        return {
            "segments": len(self._widths),
            "segments_of_last_run": 1 if self.last_run else 0,
            "kept_nodes": sum(len(width.graph.nodes) for width in self._widths),
            "hosted_operators": {},
            "bytes": {"arena": self._arena_bytes, "programs": self._programs_bytes(), **self._fixed()},
            "engine_bytes": self._engine.nbytes,
            "pinning": self._pinning(),
            "machine": machine_statistics(self._machine),
        }

    def _pinning(self) -> dict[str, int]:
        """Return how the last binding brought pinned weights. Programs pin the same: the first one that needs a weight
        reads or moves it.
        """
        each = [one.program.pinning for one in self._each if one.program is not None]
        moved, read = (sum(pinning[name] for pinning in each) for name in ("moved", "read"))
        return {"kept": max(self.plan.pinned_bytes - moved - read, 0), "moved": moved, "read": read}

    def trace_events(self) -> dict[str, Any]:
        """Return the last run of one token as trace events. Raises SessionError if it was not traced."""
        from .trace import traced

        return traced(self.plan, self._widths[-1].program if self._options.trace and self.last_run else None)

    def close(self, *, learn: bool = True) -> None:
        """Give everything back. With ``learn``, keep what runs of one token showed about the machine for later
        sessions.
        """
        self._engine.close(self._file.files)
        if learn and self._parts is not None and self._watch is not None:
            self._parts.learn(self._watch, self._timed, None, self.plan)
        self.release()

    def ending(self) -> _core.Ending:
        """Return what closes engine and files when nobody closed the session."""
        return _core.Ending(self._engine.core, self._file.files)

    def release(self) -> None:
        """Give back descriptors and arrays."""
        self._states, self._last, self._once, self._beside = [], None, None, {}
        self._gives.clear()
        self._results.clear()
        self._file.close()
