"""Running a model whose shapes or path are known only at run time (flexnn/regions), inside the budget.

What a run does is recorded as stretches the first time, and replayed by the engine when the same shapes come again.
Python acts between stretches only: where numpy computes a node, where the numbers of values decide what comes next, and
where bodies change shapes from turn to turn. Values that live from one stretch to the next are arrays.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from flexnn._core import Ending
from flexnn.errors import FlexNNError
from flexnn.graph.evaluate import MemoryNeededError
from flexnn.graph.ir import DTYPES, Array
from flexnn.graph.large import empty
from flexnn.graph.model import ModelNode
from flexnn.planning import BudgetError, Plan
from flexnn.regions import Control, Host, Read, Region, Stretch
from flexnn.regions.control import carried_count, check_branches, truth, walked_loop
from flexnn.regions.region import HEAVY
from flexnn.regions.scope import is_few
from flexnn.regions.walk import constant_array

from .arena import Home
from .engine import SessionError, UntracedError
from .growing import Growing, run_growing, stack
from .lacking import LackingRecorder
from .model_file import ModelFile
from .needs import live_bytes
from .open_stretches import OpenStretches
from .options import RunOptions
from .outputs import Outputs
from .recording import ReadyStretch
from .repeats import Found, read_before, shapes_of
from .scopes import begun_scope, followed_scope
from .statistics import FIGURES

KEPT_BYTES_MAX = 8 << 20
"""Most bytes of kept stretches of other shapes than the last run's; beyond, those used longest ago are forgotten."""
PREPARED = 2
"""Stored templates that a session without limit is ready for when it opens: it plans for those that are not alike."""
VARIANTS_MAX = 8
"""Most numbers of a value that are kept apart. Beyond, nodes that need them are left to numpy."""
FOUND_MAX = 1 << 12
"""Most findings that a run keeps."""


class OpenShapesRun:
    """The ``Run`` of a model that is bound to the shapes of each run's inputs. It owns ``file`` once it is made.
    ``look_ahead`` tells the smallest budget of a run that was refused, which has these inputs.
    """

    def __init__(
        self,
        file: ModelFile,
        options: RunOptions,
        look_ahead: Callable[[OpenShapesRun, Sequence[Array]], int] | None = None,
        home: Home | None = None,
    ) -> None:
        stored = file.open_model
        assert stored is not None
        file.refuse_groups(options.groups)
        self._file, self.artifact = file, file.artifact
        self.inputs, self.outputs = stored.model.graph.inputs, stored.model.graph.outputs
        self._names = [port.name for port in self.inputs]
        self._plain = [(port.name, DTYPES[str(port.dtype)]) for port in self.inputs]
        self._is_pooled = home is not None
        self._look_ahead = look_ahead
        self._open = self.stretches = OpenStretches(file, options, home)
        self._hold = self._open.hold
        self._recorder = self.new_recorder()
        self._recorder.left = self._open.left
        self._recorder.keep_templates(wanted=options.memory is None)
        self._root = self._recorder.region
        self._results = Outputs(reuse=options.reuse_outputs)
        self._repeats: ReadyStretch | None = None
        """The stretch that was all of the last run; None: it needs a walk."""
        self._first: OrderedDict[Hashable, Stretch] = OrderedDict()
        """First stretch of each region that was walked, by region and shapes; the one used last at the end."""
        self.output_sets = options.output_sets
        """Number of sets of outputs at a time."""
        self.found: list[Found] = []
        """Findings of the run under way, or of the last, in order."""
        self._hosted: dict[str, int] = {}
        """Operators that numpy computed in the last run, and how often."""
        self._feeds: Sequence[Array] = ()  # the inputs of the run under way
        self._shapes: tuple[object, ...] = ()  # of the inputs of the last run
        if options.memory is None:
            self._prepare()

    def _prepare(self) -> None:
        """Bring the weights, plan for sizes that the compiler tried, record a run; what fails is left to the runs."""
        if (templates := self._recorder.templates) is not None:
            dims = {port.name: port.dims or () for port in self.inputs}
            with contextlib.suppress(FlexNNError):
                typical = [t for t in templates.typical(dims, PREPARED) if not self._recorder.lacking(t[0])]
                self._open.prepare([segment for segment, _ in typical])
                with self._root.without_marks():
                    for _, values in typical[:1]:
                        self._rehearse(values)

    def _rehearse(self, values: dict[str, Array]) -> None:
        """Record and open the first stretch of a run of such inputs, as that run would, but without running it."""
        for port in self.inputs:  # those that no node reads
            ones = [d if isinstance(d, int) else 1 for d in port.dims or ()]
            values.setdefault(port.name, np.broadcast_to(np.zeros((), DTYPES[str(port.dtype)]), ones))
        key = self._root, tuple([values[name].shape for name in self._names])
        stretch = self._first[key] = self._begun(self._root, values)
        if isinstance(stretch.action, Read) and not stretch.tape.entries:
            if any(not is_few(values[name].dtype, values[name].nbytes) for name in stretch.action.names):
                return
            stretch = self._followed(stretch, self._act(stretch, values), values, key)
        self._open.rehearse(stretch, values)

    # ---- what the session asks for ----

    @property
    def memory(self) -> int | None:
        """The budget in bytes; None: no limit."""
        return self._open.segments.memory

    @property
    def threads(self) -> int:
        """Compute threads that run."""
        return self._open.threads

    @property
    def last_run(self) -> dict[str, int]:
        """Figures of the last complete run; empty before the first."""
        return dict(zip(FIGURES, self._open.figures, strict=False))

    @property
    def plan(self) -> Plan:
        """The plan of the last run's largest segment. Raises SessionError before the first run."""
        if not self._open.figures:
            raise SessionError("the model has open shapes, so there is no plan before its first run")
        plans = self._open.plans or [self._open.empty_plan()]
        return max(plans, key=lambda plan: plan.arena_bytes).but(minimum_memory=self._open.minimum_bytes)

    @property
    def session_bytes(self) -> int:
        """Bytes of everything that is open, and of the model."""
        return sum(self._open.bytes().values())

    def run(self, inputs: Sequence[Array], into: Sequence[Array | None] | None = None) -> list[Array]:
        """Return all outputs, in the model's order; ``into``: the array of each, None where it is to be made. Raises
        BudgetError, SessionError, GraphError, and ValueError where an array does not fit.
        """
        names = [port.name for port in self.outputs]
        with self._results.writing(names, into):
            return self._results.delivered(names, self._run_all(inputs))

    def _run_all(self, inputs: Sequence[Array]) -> list[Array]:
        shapes = tuple([array.shape for array in inputs])
        if shapes != self._shapes:
            self._change(shapes, inputs)
        repeated = self.repeat(dict(zip(self._names, inputs, strict=True)))
        if repeated is not None:
            return repeated
        while True:
            try:
                outputs = self._whole(inputs, shapes)
                self._open.finish()
                self._open.give(sum(array.nbytes for array in outputs))
                break
            except BudgetError as error:
                refused = error.with_traceback(None)  # whose frames hold the values of the run
            if self._recorder.read_no_more():  # nodes may have to stand in the order that binding finds
                self._drop_all()
            elif not self._open.crowd():
                raise self._named(refused, inputs)
        if self._open.has_more:
            self._open.has_more = False
            self._trim()
        self._repeats = self._repeating(inputs)
        return outputs

    def _change(self, shapes: tuple[object, ...], inputs: Sequence[Array]) -> None:
        """Begin a run of other shapes: repeat what ran at these before, if that is open."""
        is_first = not self._shapes
        if self._take_up(shapes) is not None:
            return
        self._shapes = shapes
        self._results.clear()
        self._recorder.may_read = True
        if not is_first and self._recorder.templates is None:
            self._recorder.begin_templates(sum(array.nbytes for array in inputs), self._drop_all)
        self._open.change()

    def _take_up(self, shapes: tuple[object, ...]) -> ReadyStretch | None:
        """Return what was all of a run at other shapes, to be repeated like the last; None where it is not open."""
        ready = self._open.take_up(self._first.get(key := (self._root, shapes)))
        if ready is None:
            return None
        self._results.clear()
        self._shapes, self._repeats = shapes, ready
        self._first.move_to_end(key)
        self._hosted, self.found = {}, []
        return ready

    def repeat(self, feed: Mapping[str, Any]) -> list[Array] | None:
        """Return all outputs of a run like the last, or of one like another before it where that may be repeated at
        once, if one stretch is all of it; else None. Raises SessionError.
        """
        ready = self._repeats
        if ready is None:
            return None
        into = self._results.arrays(ready.stretch.outputs, feed.values()) if self._results.given else None
        outputs = self._open.repeat(ready, feed, into)
        if outputs is None and into is None and not self._is_pooled:
            shapes = shapes_of(feed, self._plain)
            if shapes is not None and shapes != self._shapes and (other := self._take_up(shapes)) is not None:
                return self._open.repeat(other, feed)
        return outputs

    def _repeating(self, inputs: Sequence[Array]) -> ReadyStretch | None:
        """Return the stretch that was all of the last run, which had these inputs; None: there is none."""
        ready = self._open.only
        if ready is None or ready.grown:
            return None
        stretch = ready.stretch
        names, wanted = [output.name for output in stretch.outputs], self._root.outputs
        numbers = read_before(self._first.get((self._root, self._shapes)), stretch, self.found, self._names)
        if numbers is None or stretch.action is not None or sorted(names) != sorted(wanted):
            return None
        ready.order = None if names == wanted else [names.index(name) for name in wanted]
        if ready.signature is None:
            feed = dict(zip(self._names, inputs, strict=True))
            made = [(output.name, output.shape, output.dtype) for output in stretch.outputs]
            ready.signature = self._results.signature(feed, stretch.inputs, ready.constants, made, numbers)
        return ready

    def _whole(self, inputs: Sequence[Array], shapes: Hashable) -> list[Array]:
        """Return all outputs of a run from its beginning."""
        self._feeds, self._hosted, self.found = inputs, {}, []
        if self.memory is not None:
            self._results.clear()  # what waits for the next outputs is in the way of all that comes before them
        self._open.start()
        live = {port.name: array for port, array in zip(self.inputs, inputs, strict=True)}
        try:
            return self._walk(self._root, live, shapes)
        finally:
            self._feeds = ()

    def _named(self, refused: BudgetError, inputs: Sequence[Array]) -> BudgetError:
        """Return the refusal that names the smallest budget of the whole run."""
        if self._look_ahead is None:
            return refused
        self._open.close_all()
        needed = self._look_ahead(self, inputs)
        return BudgetError(needed, refused.budget) if needed > refused.budget and needed != refused.minimum else refused

    def new_recorder(self) -> LackingRecorder:
        """Return a recorder of the model that knows nothing of any run."""
        return LackingRecorder(self._open.segments)

    def rebudget(self, memory: int | None) -> None:
        """Plan the stretches of the last run again for another budget, or close them where they do not fit."""
        self._repeats = None
        if memory is not None and not all(segment.segment.is_best for segment in self._open.segments):
            self._drop_all()  # their nodes do not stand in the order that needs least
        try:
            self._recorder.keep_templates(wanted=False)  # what is planned need not leave room for them
            self._open.rebudget(memory)
        finally:
            self._recorder.keep_templates(wanted=self.memory is None)

    def watch(self, look: Callable[[], None] | None) -> None:
        """Have a function called every 20 ms of runs; what it raises breaks the run off. None: no more."""
        self._open.watch(look)

    def give_back(self) -> None:
        """Close all segments and give back the arena."""
        self._repeats = None
        self._open.close_all()
        self._open.give_back()

    def suspect(self) -> None:
        """Have the programs and recordings checked before the next run. Templates are read or traced again."""
        self._open.suspect()
        self._recorder.renew_templates()

    def statistics(self) -> dict[str, Any]:
        """Return figures of the run (Session.statistics)."""
        return self._open.statistics() | {"hosted_operators": dict(sorted(self._hosted.items()))}

    def trace_events(self) -> dict[str, Any]:
        """Raise UntracedError: only models of fixed shapes are traced."""
        raise UntracedError("there is no trace: open the session with trace=True, and run a model of fixed shapes")

    def close(self, *, learn: bool = True) -> None:
        """Give everything back. With ``learn``, keep what runs showed about the machine for later sessions."""
        self._repeats = None
        self._first.clear()
        self._open.close(learn=learn)
        self.release()

    def ending(self) -> Ending:
        """Return what closes engine and files when nobody closed the session; neither those of a pool."""
        return self._open.ending()

    def release(self) -> None:
        """Give back descriptors and arrays."""
        self._recorder.left = None  # which leads back to what leads here
        self._results.clear()
        self._file.close()

    # ---- walking ----

    def _walk(self, region: Region, live: dict[str, Array], shapes: Hashable) -> list[Array]:
        """Return a region's outputs over inputs and captured values (dropped as it goes) of these shapes and types."""
        key = region, shapes
        stretch = self._first.get(key)
        if stretch is not None and stretch.is_forgotten:
            self._forget(stretch)
            stretch = None
        if stretch is None:
            stretch = self._begun(region, live)
        self._first[key] = stretch
        self._first.move_to_end(key)
        while True:
            if stretch.tape.entries:
                self._run(stretch, live)
            else:
                self._hold(0, live_bytes(live))
            live.update(stretch.known)
            for name, other in stretch.aliases.items():
                live[name] = live[other]
            if stretch.action is None:
                return [self._result(region, live, stretch, name) for name in region.outputs]
            found = self._act(stretch, live)
            self._keep(found)
            for name in stretch.dropped:
                live.pop(name, None)
            following = stretch.following.get(found)
            if following is None or following.is_forgotten:
                if following is not None:
                    self._forget(following)
                following = self._followed(stretch, found, live, key)
            stretch = following

    def _keep(self, found: Found) -> None:
        if len(self.found) < FOUND_MAX:
            self.found.append(found)

    def _result(self, region: Region, live: Mapping[str, Array], stretch: Stretch, name: str) -> Array:
        array = live.get(name)
        if array is None:
            return constant_array(region.constants[name]).copy()
        return array.copy() if name in stretch.known and region is self._root else array

    def _begun(self, region: Region, live: Mapping[str, Array]) -> Stretch:
        """Record the first stretch of a region."""
        steady = [port.name for port in self.inputs] if region is self._root else ()
        return self._recorder.record(region, begun_scope(live, steady), region.all)

    def _followed(self, stretch: Stretch, found: Hashable, live: Mapping[str, Array], first: Hashable) -> Stretch:
        """Record what comes after a stretch and what its action found."""
        if isinstance(stretch.action, Read) and len(stretch.following) >= VARIANTS_MAX:
            self._recorder.leave_to_numpy(stretch.region, stretch.action.names)
            self._forget(stretch)
            self._first[first].is_forgotten = True  # those before it go with what follows now, when this run is over
        scope = followed_scope(stretch, live)
        made = stretch.following[found] = self._recorder.record(stretch.region, scope, stretch.remaining)
        return made

    def _trim(self) -> None:
        """Forget what was used longest ago until the rest is small enough; the last run's stretches stay."""
        for key in [key for key, stretch in self._first.items() if stretch.is_forgotten]:
            self._drop(key)
        self._open.segments.prune()
        for key in list(self._first)[:-1]:
            if self._open.kept_bytes <= KEPT_BYTES_MAX:
                return
            if not self._is_used(self._first[key]):
                self._drop(key)
                self._open.segments.drop_unused_bases()

    def _is_used(self, stretch: Stretch) -> bool:
        return self._open.is_used(stretch) or any(map(self._is_used, stretch.following.values()))

    def _drop_all(self) -> None:
        """Forget and close all stretches."""
        for key in list(self._first):
            self._drop(key)
        self._open.close_all()

    def _drop(self, key: Hashable) -> None:
        """Forget the first stretch of a region and all that follow it."""
        self._forget(self._first[key])
        del self._first[key]  # last: nobody would find what is left of it

    def _forget(self, stretch: Stretch) -> None:
        for after in stretch.following.values():
            self._forget(after)
        stretch.following.clear()
        self._open.forget(stretch)

    def _run(self, stretch: Stretch, live: dict[str, Array]) -> None:
        """Let the engine run a stretch; put what it makes among the live values."""
        ready = self._open.ready(stretch, live)
        made, growing = [], dict[int, Growing]()
        is_root = stretch.region is self._root
        for number, output in enumerate(stretch.outputs):
            if output.counter >= 0:
                growing[number] = stack(self._open, ready, number)
                made.append(np.empty(0, np.uint8))
            elif is_root and output.name in self._root.outputs:
                made.append(self._results.array(output.name, output.shape, output.dtype, self._feeds))
            else:
                made.append(empty(output.shape, output.dtype))
        buffers = [*[live[name] for name in stretch.inputs], *ready.constants, *made]
        if growing:
            for number, grown in growing.items():
                buffers[number - len(made)] = grown.bytes
            run_growing(self._open, ready, buffers, growing)
        else:
            self._open.run(ready, buffers)
        live.update(zip([output.name for output in stretch.outputs], made, strict=True))
        for number, grown in growing.items():
            output = stretch.outputs[number]
            turns = ready.turns(output.counter)
            ready.capacities[number] = turns
            live[output.name] = grown.array(turns)
        if growing:
            self._open.needs.run(ready)

    # ---- what Python does between stretches ----

    def _act(self, stretch: Stretch, live: dict[str, Array]) -> Found:
        """Do what comes after a stretch; return what it found."""
        action, region = stretch.action, stretch.region
        if isinstance(action, Read):
            return tuple([live[name].tobytes() for name in action.names])
        if isinstance(action, Host | Control):
            node = region.nodes[action.node]
            arrays = self._host(region, node, live) if isinstance(action, Host) else self._control(stretch, live)
            names = [name for name in node.output if name]
            live.update((name, array) for name, array in zip(node.output, arrays, strict=False) if name)
        else:
            names = [output.name for output in stretch.outputs if output.counter >= 0]
        return tuple([(live[name].shape, live[name].dtype.num) for name in names if name in live])

    def _host(self, region: Region, node: ModelNode, live: Mapping[str, Array]) -> list[Array]:
        """Return the outputs of a node that numpy computes."""
        idle = node.op_type in HEAVY and any(name in live and not live[name].size for name in node.input)
        inputs = [self._array(region, live, name, idle) if name else None for name in node.input]
        self._hosted[node.op_type] = self._hosted.get(node.op_type, 0) + 1
        beside, stated = live_bytes(live), list[int]()
        try:
            values = self._recorder.evaluated(node, inputs, self._open.left(beside), stated)
        except MemoryNeededError as error:
            self._open.hold(error.needed, beside)
            values = self._recorder.evaluated(node, inputs, error.needed)
        else:
            self._open.needs.count(sum(stated) + beside)
        return [np.require(value, requirements=["C", "ALIGNED"]) for value in values]

    def _array(self, region: Region, live: Mapping[str, Array], name: str, idle: bool = False) -> Array:
        return live[name] if name in live else constant_array(region.constants[name], idle=idle)

    def _control(self, stretch: Stretch, live: Mapping[str, Array]) -> list[Array]:
        """Return the outputs of a node whose bodies Python walks."""
        assert isinstance(stretch.action, Control)
        region, i = stretch.region, stretch.action.node
        node, bodies = region.nodes[i], region.children[i]
        inputs = [self._array(region, live, name) if name else None for name in node.input]

        def walk(body: Region, values: Mapping[str, Array]) -> list[Array]:
            self._keep(body.path)
            inner = {name: live[name] for name in sorted(body.needed(body.all)) if name in live}
            inner |= {name: np.asarray(x, order="C") for name, x in values.items()}
            shapes = tuple([(name, array.dtype.num, array.shape) for name, array in inner.items()])
            arrays = self._walk(body, inner, shapes)
            rows = sum(array.nbytes for array in arrays[carried:])
            self._open.hold(2 * rows, 0)  # when they are stacked, there are two of each
            self._open.needs.held_bytes += 2 * rows
            return arrays

        carried = carried_count(node)
        held, self._open.needs.held_bytes = self._open.needs.held_bytes, self._open.needs.held_bytes + live_bytes(live)
        try:
            if node.op_type == "If":
                check_branches(node, bodies)
                return walk(bodies["then_branch" if truth(node, inputs[0] if inputs else None) else "else_branch"], {})
            return walked_loop(node, bodies, inputs, walk, self._recorder.model.opset)
        finally:
            self._open.needs.held_bytes = held
