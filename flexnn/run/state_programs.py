"""Programs of a session with state, and their plans: all that is known without running one."""

from __future__ import annotations

from flexnn.graph.ir import Graph
from flexnn.graph.lengths import MASK_BYTES_MAX, OpeningError
from flexnn.graph.model import Model
from flexnn.graph.state import CROSS_LENGTH, LENGTH, WIDTHS
from flexnn.graph.stateful import Stateful, stateful
from flexnn.planning import BudgetError, MachineProfile, Plan
from flexnn.planning.overhead import overhead_bytes
from flexnn.planning.types import align_up

from .model_file import ModelFile
from .options import RunOptions
from .segments import BoundSegments
from .state_once import StateOnce
from .state_plans import Placed, StatePlans
from .state_width import StateBudget, Width, bound_graph, finished, program_overhead

OPENING_BYTES = 16 << 20
"""Bytes that opening may take to find out that a budget is too small."""
MODULE_BYTES = 1 << 19
"""Bytes of modules and heap of a session with state beyond those of binding: up to 0.3 MiB measured."""


class StatePrograms:
    """The programs of the open model in ``file``, each for a number of new tokens."""

    def __init__(self, file: ModelFile, options: RunOptions, machine: MachineProfile) -> None:
        stored = file.open_model
        assert stored is not None
        self._file, self._options, self.artifact = file, options, file.artifact
        self.capacity = options.kv_capacity or 0
        self._all_rows = options.all_logits
        made = self._made(stored.model)
        self._tokens, self._opening_bytes = made.tokens, made.opening_bytes
        self._stored_inputs = stored.model.graph.inputs
        segments = BoundSegments(stored, options.memory, options.setting(machine, file.io_align))
        self._model_bytes = segments.model_bytes
        self._shapes: dict[str, tuple[int, ...]] = {LENGTH: (1,), CROSS_LENGTH: (1,)}
        self._once: StateOnce | None = None
        if made.once is not None:
            self._once = StateOnce(made.once, lambda graph: finished(graph, segments), poison=options.poison)
            self._shapes |= self._once.shapes
        dims = next(port.dims for port in made.model.graph.inputs if port.name == made.tokens)
        fixed = dims[1] if dims is not None and isinstance(dims[1], int) else 0
        widths = [width for width in WIDTHS if width <= self.capacity and (not fixed or width == fixed)] or [fixed]
        self._widths = [self._width(made, width, segments) for width in widths]
        self._plan_for(machine)
        self._input_names = [port.name for port in made.model.graph.inputs]
        graph = self._widths[-1].graph
        self._state_tensors = [graph.tensors[i] for i in graph.outputs[1:]]
        self._state_bytes = sum(align_up(tensor.nbytes) for tensor in self._state_tensors)

    def _width(self, made: Stateful, tokens: int, segments: BoundSegments) -> Width:
        graph = bound_graph(made, tokens, self._shapes)
        return Width(tokens, graph, finished(graph, segments))

    def _made(self, model: Model) -> Stateful:
        """Return the model with state. Raises BudgetError where computing its masks takes much more than the budget."""
        options = self._options
        most = MASK_BYTES_MAX if options.memory is None else max(options.memory, OPENING_BYTES)
        try:
            return stateful(
                model,
                self.capacity,
                "i8" if options.kv == "s8" else options.kv,
                all_rows=options.all_logits,
                cross_capacity=options.cross_capacity,
                most_bytes=most,
            )
        except OpeningError as error:
            if options.memory is None or error.nbytes > MASK_BYTES_MAX:
                raise
            raise BudgetError(error.nbytes, options.memory) from None

    def _plan_for(self, machine: MachineProfile) -> None:
        """Have plans be made for a machine."""
        setting = self._options.setting(machine, self._file.io_align)._replace(overhead=program_overhead)
        self._machine = machine
        self._plans = StatePlans([width.graph for width in self._widths], setting, self._file.io_align)
        if self._once is not None:
            self._once.plan_for(setting)

    def plan_for(self, memory: int | None) -> Plan:
        """Return the plan of one new token in a budget, with the bytes of the whole session. Raises BudgetError."""
        budget = self._planned(memory)
        placed = [*budget.once, *budget.placed]
        parts = self._fixed() | {"program": sum(plan.overhead["program"] for plan, _ in placed)}
        arena = max(program.arena_bytes for _, program in placed)
        plan, program = budget.placed[-1]
        if arena > program.arena_bytes:
            parts["arena of others"] = arena - program.arena_bytes
        return plan.but(program=program, overhead=parts, minimum_memory=self._smallest)

    def _smallest(self) -> int:
        """Return the smallest budget."""
        try:
            self._planned(1)
        except BudgetError as error:
            return error.minimum
        raise AssertionError("a byte is no budget")

    def _fixed(self) -> dict[str, int]:
        """Return the bytes of everything but arena and programs, by purpose."""
        logits = max(int(w.graph.tensors[w.graph.outputs[0]].nbytes) for w in self._widths)
        parts = overhead_bytes(Graph(), 0, 0, self._options.threads)
        constants = sum(array.nbytes for width in self._widths for array in width.constants)
        return {
            "state": self._state_bytes + (self._once.nbytes if self._once is not None else 0),
            "io": logits * max(1, self._options.output_sets)
            + 8 * self.capacity
            + constants
            + (self._once.io_bytes if self._once is not None else 0),
            "model": self._model_bytes + MODULE_BYTES,
            "stacks": parts["stacks"],
            "base": parts["base"],
        }

    def _planned(self, memory: int | None) -> StateBudget:
        """Return the plan of each program, and it at its place in the arena. Raises BudgetError."""
        fixed = self._fixed()
        least = self._opening_bytes + fixed["model"] + fixed["base"]
        try:
            if self._once is None:
                found, once = self._plans.placed(memory, fixed), Placed()
            else:
                found, once = self._once.placed(self._plans, memory, fixed)
        except BudgetError as error:
            raise error if error.minimum >= least else BudgetError(least, error.budget) from None
        if memory is not None and memory < least:
            raise BudgetError(least, memory)
        return StateBudget(memory, found, once)
