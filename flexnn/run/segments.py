"""Bound segments: weights found in the artifact, planned for what a budget leaves (flexnn/regions, flexnn/planning).

Segments that come from one template differ in sizes only, so what is planned for one serves others (planning/refit.py):
they share its pinned weights, and cost little beside it.
"""

from __future__ import annotations

import weakref
from _blake2 import blake2b
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator

from flexnn.artifact.model_section import StoredModel, source_of, weight_key
from flexnn.graph.ir import Array, Graph, Weight
from flexnn.graph.like_template import LikeTemplate
from flexnn.graph.likeness import Likeness
from flexnn.graph.sources import ArraySource
from flexnn.planning import BudgetError, MachineProfile, Plan, Planner, Setting
from flexnn.planning.overhead import PART_NAMES
from flexnn.planning.refit import Refit, Sizes
from flexnn.planning.types import align_up
from flexnn.regions import Segment
from flexnn.regions.templates import SegmentTemplate, Templates

from .bases import Base, Decided, Pins, likeness_to
from .bound_segment import BoundSegment
from .constants import Packing
from .holding import own_pins

MODEL_NODE_BYTES = 3 << 10
"""Bytes of an ONNX node in Python, with its attributes and its part of the artifact's section."""
CODE_BYTES = 83 << 16
"""Bytes of the modules that binding imports, of the heap that it leaves, and of numpy's code that it touches, which
planning does without: 5.2 MiB.
"""
READING, READ, TRACING_BYTES, ROOM = 4, 2, 10 << 10, 2
"""Bytes that reading the artifact's templates takes for each of theirs (measured 2.5), and that stay (1.5 to 2.1);
bytes that tracing takes for each node of the model (3 to 10 KiB); and how many times that much a budget must leave.
"""
BASES_MAX = 4
"""Most plans of one template that others are refitted from."""
DECIDED_MAX = 64
"""Most decisions that are kept for plans of other sizes."""
AGAIN = 1.25
"""Growth of a budget for which what had no room before is tried again."""
GROWTH = 1.25
"""Sizes are planned this many times as large where they have grown before, if the budget allows."""


class BoundSegments:
    """The bound segments of a stored model for ``memory`` bytes (None: no limit), kept as long as their segments.
    ``rewrite`` changes each plan that is made.
    """

    def __init__(
        self,
        stored: StoredModel,
        memory: int | None,
        setting: Setting,
        rewrite: Callable[[Plan], Plan] | None = None,
    ) -> None:
        self.stored = stored
        self.memory, self.setting, self._rewrite = memory, setting, rewrite
        self.floor_bytes = 0
        """Bytes of the arena's shared part, slots and working part, that others need in a pool."""
        self._bound: dict[Segment, BoundSegment] = {}
        self._packings: dict[SegmentTemplate, Packing] = {}
        self._bases: dict[SegmentTemplate, list[Base]] = {}
        """Plans of each template's segments, the newest first."""
        self._decided: OrderedDict[Hashable, Decided] = OrderedDict()
        """Outcomes of searches for plans in a budget, by the kind of segment; the newest at the end."""
        self._pins: dict[tuple[int, bytes], Pins] = {}
        self.templates: Templates | None = None
        """Templates that the session keeps."""
        self.plans_larger = True
        """Whether plans may be for larger sizes than those that are asked for."""
        self._lacked = 0
        """Largest budget for which templates were dropped."""
        self._model_nodes = sum(len(graph.nodes) for graph in self.stored.model.graph.walk())
        inline = (c for c in self.stored.constants if isinstance(source_of(c).base, ArraySource))
        values = sum(constant.nbytes for constant in inline)
        self.model_bytes = CODE_BYTES + MODEL_NODE_BYTES * self._model_nodes + 2 * values

    def __len__(self) -> int:
        return len(self._bound)

    def __iter__(self) -> Iterator[BoundSegment]:
        return iter(self._bound.values())

    def of(self, segment: Segment) -> BoundSegment:
        """Return the bound form of a segment, made when it is first asked for."""
        found = self._bound.get(segment)
        if found is None:
            found = self._bound[segment] = BoundSegment(segment, self._constants(segment), weakref.ref(self))
        return found

    def know(self, machine: MachineProfile) -> None:
        """Plan for ``machine`` from now on, also those that are there."""
        self.setting = self.setting._replace(machine=machine)
        for segment in self:
            segment.known_planner = None
        self.drop_plans()

    def drop_plans(self) -> None:
        """Forget all plans."""
        self._bases.clear()
        self._decided.clear()
        self._pins.clear()
        for segment in self:
            segment.drop_plan()

    def pop(self, segment: Segment) -> BoundSegment | None:
        """Forget a segment that will not run again; return its bound form."""
        return self._bound.pop(segment, None)

    def drop_unused_bases(self) -> None:
        """Forget plans that no segment has."""
        used = {id(segment.base) for segment in self}
        for template, bases in self._bases.items():
            self._bases[template] = [base for base in bases if id(base) in used]

    def prune(self) -> None:
        """Forget what is kept for templates that are gone."""
        used = {segment.segment.template for segment in self}
        for template in self._packings.keys() | self._bases.keys():
            if template not in used and (self.templates is None or not self.templates.holds(template)):
                self._packings.pop(template, None)
                self._bases.pop(template, None)

    def lacking(self, segment: Segment) -> set[str]:
        """Return the names of nodes whose weights the artifact does not hold in the form that the segment reads."""
        template = segment.template
        if template is None:
            return {weight.name for weight in segment.weights if not self._has(weight)}
        if template.lacking is None:
            template.lacking = {weight.name for weight in segment.weights if not self._has(weight)}
        return template.lacking

    @property
    def stacks_bytes(self) -> int:
        """Bytes of the threads' stacks."""
        return self.setting.overhead(Graph(), 0, 0, self.setting.threads)["stacks"]

    @property
    def templates_bytes(self) -> int:
        """Bytes of the templates that are kept, or that segments come from."""
        used = {id(s.segment.template): s.segment.template.template for s in self if s.segment.template is not None}
        traced = sum([template.nbytes for template in used.values()])
        if self.templates is None:
            return traced
        source = self.stored.template_source
        return max(self.templates.nbytes, traced) + (READ * source.weight.nbytes if source is not None else 0)

    def may_hold_templates(self, room_bytes: int) -> bool:
        """Return whether the artifact's templates, or new ones where it has none, take little of what is left."""
        needed = self.reading_bytes or TRACING_BYTES * self._model_nodes
        return (self.memory is None or self.memory > AGAIN * self._lacked) and ROOM * needed <= room_bytes

    def may_trace_templates(self, room_bytes: int) -> bool:
        """Return whether tracing new templates beside the artifact's takes little of the bytes that a budget leaves."""
        return ROOM * max(self.reading_bytes, TRACING_BYTES * self._model_nodes) <= room_bytes

    def may_read_templates(self, room_bytes: int) -> bool:
        """Return whether the artifact has templates, and a budget leaves bytes for reading them once."""
        return 0 < self.reading_bytes <= room_bytes

    @property
    def reading_bytes(self) -> int:
        """Bytes that it takes to read the artifact's templates; 0 where there are none."""
        source = self.stored.template_source
        return READING * source.weight.nbytes if source is not None else 0

    def drop_templates(self) -> bool:
        """Forget the templates; segments keep their graphs. Return whether there were any."""
        found = {other.segment.template for other in self if other.segment.template is not None}
        if not found and self.templates is None:
            return False
        if self.templates is not None:
            self.templates.close()
            self.templates = None
        self._lacked = max(self._lacked, self.memory or 0)
        for other in self:
            other.segment.leave_template()
        self._packings.clear()
        return True

    @property
    def bases_bytes(self) -> int:
        """Bytes of graphs and plans that segments are refitted from, but for those of segments that are there; and of
        decisions.
        """
        used = [segment.base for segment in self if segment.base is not None]
        bases = {id(base): base for found in (*self._bases.values(), used) for base in found}
        for segment in self:
            if segment.is_own:
                bases.pop(id(segment.base), None)
        return sum([base.plan.overhead["program"] for base in bases.values()]) + self.decided_bytes

    @property
    def decided_bytes(self) -> int:
        """Bytes of decisions."""
        return sum([found.nbytes for found in self._decided.values()])

    def io_bytes(self, segment: BoundSegment) -> int:
        """Return the bytes that a plan of the segment counts for its inputs and outputs."""
        return self.setting.overhead(segment.graph, 0, 0, self.setting.threads)["io"]

    def more_bytes(self, segment: BoundSegment) -> int:
        """Return the bytes of a segment at further shapes, if it was met at several; else 0."""
        template = segment.segment.template
        alike = [other for other in self if template is not None and other.segment.template is template]
        return segment.refit_bytes if len(alike) > 1 else 0

    # ---- plans ----

    def refit(self, segment: BoundSegment) -> bool:
        """Take over the plan of another segment of the same template, or without a limit of one like it, if one serves;
        return whether.
        """
        template = segment.segment.template
        bases = list(self._bases.get(template, ())) if template is not None else []
        if template is not None and self.memory is None:
            bases += [base for other, found in self._bases.items() if other is not template for base in found]
        sizes = self._sizes(segment) if bases else None
        for base in bases:
            if base.held is not None and segment.loop is None:
                continue
            plan = self.refitted(segment, base, sizes)
            if plan is not None:
                segment.base, segment.is_own, segment.made = base, False, plan
                segment.refit_bytes = plan.overhead["program"]
                segment.working_bytes = align_up(plan.working_bytes, self.setting.io_align)
                segment.is_measured = True
                return True
        return False

    def refitted(self, segment: BoundSegment, base: Base, sizes: Sizes | None = None) -> Plan | None:
        """Return a base's plan for the sizes of a segment, which may be given; None where these need another plan."""
        template, sizes = segment.segment.template, sizes or self._sizes(segment)
        made = base.at(template, sizes, self._likeness_to) if template is not None and sizes is not None else None
        if made is None:
            return None
        overhead = base.plan.overhead | {"program": segment.bytes_with(made.edits)}
        return base.plan.but(program=made.program, working_bytes=made.working_bytes, overhead=overhead)

    def _sizes(self, segment: BoundSegment) -> Sizes | None:
        """Return the sizes of a segment's graph as it is planned; None where it is none of a template."""
        template, numbers = segment.segment.template, segment.segment.numbers
        if template is None or numbers is None:
            return None
        return self._packings[template].sizes(template.template, numbers)

    def planned(self, segment: BoundSegment, own: int | None, around: dict[str, int]) -> None:
        """Plan a segment for ``own`` bytes, its inputs and outputs not counted (None: no limit), beside ``around``:
        bytes of all else, by what takes them. Raises BudgetError.
        """
        segment.holds = None if own is None else segment.holds
        base = segment.base
        if segment.is_own and base is not None and (base.planned_for, base.holds) == (own, segment.holds):
            return
        if own is not None and self.plans_larger and self._planned_larger(segment, own):
            return
        io = self.io_bytes(segment)
        try:
            plan = segment.planner.plan(None if own is None else own + io)
        except BudgetError as error:
            parts = {name: size for name, size in error.parts.items() if name != PART_NAMES["io"]}
            parts |= {PART_NAMES.get(name, name): size for name, size in around.items()}
            raise BudgetError(error.minimum - io + sum(around.values()), self.memory or 0, parts=parts) from None
        self._decide(segment, plan, own)
        self._take(segment, plan, own, io)

    def _take(self, segment: BoundSegment, plan: Plan, own: int | None, io: int) -> None:
        """Have a segment use a plan of its own graph."""
        segment.base = self._based(segment, segment.graph, plan, own, io)
        segment.is_own, segment.made = True, None
        segment.working_bytes = align_up(plan.working_bytes, self.setting.io_align)

    def _decide(self, segment: BoundSegment, plan: Plan, own: int | None) -> None:
        """Keep what the search for a plan of a segment decided, for others of its kind, if there is room for more."""
        if own is not None and self.plans_larger:
            self._decided.pop(segment.kind, None)
            self._decided[segment.kind] = Decided(plan.decisions, own, segment.holds)
            while len(self._decided) > DECIDED_MAX:
                self._decided.popitem(last=False)
        plan.decisions = None

    def share(self, segment: BoundSegment) -> int | None:
        """Return the budget that the last plan of a segment of this kind had, and let this one hold as much; None:
        there was none.
        """
        found = self._decided.get(segment.kind)
        segment.holds = found.holds if found is not None and segment.loop is not None else None
        return found.planned_for if found is not None else None

    def follow(self, segment: BoundSegment) -> bool:
        """Plan a segment as the last search for a plan of its kind decided, which was for other sizes; return whether
        that makes a plan of as many bytes.
        """
        found = self._decided.get(segment.kind)
        if found is None or found.decisions is None or found is segment.unfollowed or self._rewrite:
            return False
        if found.holds is not None and segment.loop is None:
            return False
        io = self.io_bytes(segment)
        plan = segment.planner.follow(found.decisions, found.planned_for + io, resized=True)
        if plan is None:
            segment.unfollowed = found
            return False
        segment.holds = found.holds
        self._take(segment, plan, found.planned_for, io)
        segment.is_measured = True
        return True

    def in_form(self, segment: BoundSegment, own: int) -> bool:
        """Plan a segment for ``own`` bytes in the form of the graph that the last search for a plan of its kind chose;
        return whether that makes a plan.
        """
        found = self._decided.get(segment.kind)
        if found is None or found.decisions is None or found.holds is not None or self._rewrite:
            return False
        io = self.io_bytes(segment)
        plan = segment.planner.in_form(found.decisions, own + io)
        if plan is None:
            return False
        segment.holds = None
        self._take(segment, plan, own, io)
        return True

    def _planned_larger(self, segment: BoundSegment, own: int) -> bool:
        """Plan for the largest sizes that segments of the same template had, or somewhat larger ones, if that fits into
        ``own`` bytes and serves this segment; return whether.
        """
        template, numbers = segment.segment.template, segment.segment.numbers
        if template is None or numbers is None or self._rewrite:
            return False
        givens = template.template.replay.givens.tolist()
        mine = [int(numbers[i]) for i in givens]
        alike = [other.segment.numbers for other in self if other.segment.template is template and other.place]
        rows = [[int(other[i]) for i in givens] for other in alike if other is not None and other is not numbers]
        if not rows:
            return False
        most = list(map(max, zip(mine, *rows, strict=True)))
        least = list(map(min, zip(mine, *rows, strict=True)))
        grown = [int(GROWTH * high) if low < high else high for low, high in zip(least, most, strict=True)]
        for sizes in (grown, most) if most != mine else (grown,):
            found = template.template.numbers(sizes)
            if found is None or not template.template.takes(found):
                continue
            graph = template.template.at(found)
            self._packings[template].apply(graph)
            self.find_weights(graph)
            io = self.setting.overhead(graph, 0, 0, self.setting.threads)["io"]
            try:
                plan = Planner(graph, self.setting).plan(own + io)
            except BudgetError:
                continue
            self._decide(segment, plan, own)
            base = self._based(segment, graph, plan, own, io)
            if self.refit(segment) and segment.base is base:
                return True
            if base.refit is None and self.follow(segment):  # it is in bands
                return True
        return False

    def _based(self, segment: BoundSegment, graph: Graph, plan: Plan, own: int | None, io: int) -> Base:
        """Return a base for a plan; others of the segment's template may be refitted from it."""
        plan = self._rewrite(plan) if self._rewrite else plan
        program, align = plan.program, self.setting.io_align
        nbytes = align_up(plan.arena_bytes - plan.working_bytes, align)
        zeros = b"%d %d" % (program.zeros_offset, program.zeros_count)
        count, own_bytes = own_pins(program, nbytes, segment.holds)
        pins = self._pins_of(own_bytes, program.pinned[:count].tobytes() + zeros)
        held = self._pins_of(nbytes - own_bytes, program.pinned[count:].tobytes()) if own_bytes < nbytes else None
        template = segment.segment.template
        is_whole = template is not None and len(graph.nodes) == len(plan.program.nodes) and not self._rewrite
        setting = self.setting if self.memory is None else None
        refit = Refit(plan, graph, setting) if is_whole and plan.graph is graph else None
        plan = plan.but(overhead=plan.overhead | {"io": 0})
        base = Base(graph, plan, own, io, pins, refit, template, held, own_bytes, segment.holds)
        if refit is not None and template is not None:
            most = BASES_MAX if self.memory is None else 1
            self._bases[template] = [base, *self._bases.get(template, [])][:most]
        return base

    def _pins_of(self, nbytes: int, contents: bytes) -> Pins:
        """Return pins of so many bytes, the same for the same contents."""
        return self._pins.setdefault((nbytes, blake2b(contents).digest()), Pins(nbytes))

    def settled(self, segment: BoundSegment, around: dict[str, int]) -> Plan:
        """Return the plan of a segment as the session states it, beside ``around``."""
        plan, base = segment.plan, segment.base
        assert plan is not None
        assert base is not None
        beside = sum(around.values()) - base.io_bytes
        return plan.but(
            graph=segment.graph,
            memory=self.memory,
            minimum_memory=lambda: base.plan.minimum_memory + beside,
            overhead=plan.overhead | {"io": 0} | around,
        )

    # ---- graphs ----

    def bound_graph(self, segment: Segment) -> Graph:
        """Return a segment's graph; its weights are found in the artifact, its other constants are inputs."""
        if segment.fixed is None:  # not where it is bound again after it was dropped
            graph = segment.own_graph()  # an exception in between leaves the segment as it was
            packing = self._packings.get(segment.template) if segment.template is not None else None
            packing = Packing.of(graph) if packing is None else packing.fitting(graph)
            fixed = packing.arrays(graph)
            packing.apply(graph)
            self.find_weights(graph)
            if segment.template is not None:
                self._packings.setdefault(segment.template, packing)
            segment.built, segment.fixed = graph, fixed
        return segment.graph

    def _constants(self, segment: Segment) -> list[Array]:
        template, numbers = segment.template, segment.numbers
        if template is None or numbers is None or not (template in self._packings or self._is_alike(template)):
            self.bound_graph(segment)
            return segment.fixed or []
        return self._packings[template].arrays_at(template.template, numbers)

    def _is_alike(self, template: SegmentTemplate) -> bool:
        """Return whether what is planned for another template serves one that is new, so that it needs no graph."""
        bases = [base for found in self._bases.values() for base in found] if self.memory is None else []
        own = template.template
        for base in bases:
            if isinstance(own, LikeTemplate) and base.template is not None and own.base is base.template.template:
                self._packings[template] = self._packings[base.template].told(own)
                return True
        if not any(self._likeness_to(template, base) is not None for base in bases):
            return False
        self._packings[template] = Packing.of_template(own)
        return True

    def _likeness_to(self, template: SegmentTemplate, base: Base) -> Likeness | None:
        return likeness_to(template, base, self._packings, self.stored)

    def find_weights(self, graph: Graph) -> None:
        """Let the weights of a graph be those of the artifact."""
        for weight in graph.weights:
            stored = self.stored.weights[self.stored.keys[str(weight_key(weight))]]
            weight.offset, weight.crc_first = stored.offset, stored.crc_first
            weight.source = weight.panels = None
            weight.chunk_bytes = stored.chunk_bytes

    def _has(self, weight: Weight) -> bool:
        key = weight_key(weight)
        if key is None:
            return True
        if key not in self.stored.keys:
            return False
        stored = self.stored.weights[self.stored.keys[key]]
        if stored.nbytes != weight.nbytes:
            return False
        return stored.kind == weight.kind == "raw" or stored.chunk_bytes == weight.chunk_bytes
