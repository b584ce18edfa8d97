"""Storing templates: those that the compiler traced become bytes of the artifact (template_reader.py reads them).

A JSON object, its length before it, and the arrays that it names by number (docs/format.md).
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from flexnn.graph.ir import DTYPES, Array, Graph, GraphError, Weight
from flexnn.graph.late import Late, LateConstant, LateMap, LateShape, LateSizes, Row, Transposed
from flexnn.graph.like_template import Like
from flexnn.graph.likeness import Skeleton, likeness, skeleton
from flexnn.graph.parsed import parsed_bytes
from flexnn.graph.sources import KeptSource, ModelSource
from flexnn.graph.template import Template
from flexnn.graph.template_reader import LATE_DEPTH_MAX, layout

from .keys import Marks
from .region import Region
from .template_reader import PARSED_BYTES_MAX, USES
from .templates import SegmentTemplate, Trace

ARRAY_BYTES_MAX = 1 << 20
"""Most bytes of an array in a template; those with larger ones are not stored."""
BYTES_MAX, NODE_BYTES, LARGEST = 3 << 20, 1 << 10, 7 << 19
"""Most bytes of all templates of a model, or so many for each of its nodes where that is more, but never more than
readers take (4 MiB; these are estimates). A node takes 0.9 KB in a template; those traced last are left out.
"""
ALIGN = 8
"""Alignment of arrays, and bytes of the length of the JSON."""
ARRAYS = {dtype.str: dtype for dtype in DTYPES.values()}
"""Types of arrays, by their names in the file."""
KeyOf = Callable[[Weight], str | None]
"""Key by which the artifact holds a weight; None: the weight is small, or binding makes it. Raises KeyError where the
artifact lacks it."""


FACTS = 6
"""Facts of a value without bounds."""
SAME = "nodes", "inlined", "feeds", "makes", "aliases", "consumed", "constants", "late", "layout", "weights"
"""Parts of a body that are the same in templates of which one tells the other (graph/like_template.py)."""


class _First(NamedTuple):
    """The template that tells others."""

    template: Template
    skeleton: Skeleton
    same: tuple[Any, ...]
    """Facts and parts of its body, which must be theirs, too."""


class UnstorableError(GraphError):
    """A template that cannot be stored; each run traces it."""


def dump_templates(traces: Iterable[Trace], region: Region, key_of: KeyOf) -> bytes:
    """Return the bytes of those templates that can be stored."""
    writer = _Writer(region, key_of)
    for trace in traces:
        writer.add(trace)
    return writer.bytes()


class _Writer:
    """Writer of templates."""

    def __init__(self, region: Region, key_of: KeyOf) -> None:
        self._regions = list(region.walk())
        self._nodes = {id(n): (i, k) for i, r in enumerate(self._regions) for k, n in enumerate(r.nodes)}
        self._most = min(max(BYTES_MAX, NODE_BYTES * len(self._nodes)), LARGEST)
        self._key_of = key_of
        self._arrays: dict[tuple[str, tuple[int, ...], bytes], int] = {}
        self._templates: list[Any] = []
        self._first: _First | None = None
        """The first template of all nodes of the model."""
        self._size = self._used = 0

    def add(self, trace: Trace) -> None:
        """Add a template, if it can be stored and there is room, also where it is read (template_reader.py)."""
        arrays, size, used = len(self._arrays), self._size, self._used
        try:
            head = self._head(trace)
            parts = self._body(trace.template)
            body = json.dumps(parts).encode("ascii")
            head["body"] = self._array(np.frombuffer(body, np.uint8))
            first = self._told(trace, head, parts)
            self._size += len(json.dumps(head))
            sizes = [len(raw) for _, _, raw in self._arrays]
            self._used += len(body) + sum(sizes[number] for number in head["replay"])
            if self._size > self._most or self._used > USES // 2 * self._size:  # half: sizes are estimates
                raise UnstorableError("the templates are too large")
            if max(map(parsed_bytes, (body, self._listed([*self._templates, head])))) > PARSED_BYTES_MAX:
                raise UnstorableError("the templates take too much memory where they are read")
        except (UnstorableError, KeyError):
            self._arrays = dict(list(self._arrays.items())[:arrays])
            self._size, self._used = size, used
            return
        self._templates.append(head)
        self._first = self._first or first

    def _told(self, trace: Trace, head: dict[str, Any], parts: dict[str, Any]) -> _First | None:
        """Note whether what is planned for the first template of the model serves this one, too, and what tells this
        one by the first. Return what tells further ones by this one, where it is the first.
        """
        head["alike"] = False
        if trace.before.remaining != trace.before.region.all or trace.before.region.path:
            return None
        template = trace.template.template
        graph = Graph()
        with contextlib.suppress(GraphError):
            numbers = template.numbers(template.replay.traced)
            graph = template.at(numbers) if numbers is not None else graph
        own = skeleton(graph, lambda weight: weight.nbytes and self._key_of(weight))
        facts = [fact[:3] if len(fact) == FACTS else None for fact in trace.before.facts]
        same = facts, {name: parts[name] for name in SAME}
        if self._first is None:
            return _First(template, own, same)
        found = likeness(own, self._first.skeleton)
        head["alike"] = found is not None
        if found is not None and same == self._first.same and None not in facts:
            like = Like.of(template, self._first.template, found)
            if like is not None:
                head["like"] = [self._array(array) for array in like.arrays]
        return None

    def _listed(self, templates: list[Any]) -> bytes:
        """Return the JSON that lists templates and all arrays."""
        table = [[dtype, list(shape)] for dtype, shape, _ in self._arrays]
        return json.dumps({"arrays": table, "templates": templates}, separators=(",", ":")).encode("ascii")

    def bytes(self) -> bytes:
        """Return all that was added; nothing if that was nothing."""
        if not self._templates:
            return b""
        head = self._listed(self._templates)
        parts = [len(head).to_bytes(ALIGN, "little"), head, bytes(-len(head) % ALIGN)]
        for _, _, raw in self._arrays:
            parts += [raw, bytes(-len(raw) % ALIGN)]
        return b"".join(parts)

    def _array(self, array: Array) -> int:
        key = array.dtype.str, array.shape, np.ascontiguousarray(array).tobytes()
        if key[0] not in ARRAYS:
            raise UnstorableError(f"arrays of {array.dtype}")
        if key not in self._arrays:
            self._size += len(key[2]) + 32
        return self._arrays.setdefault(key, len(self._arrays))

    def _small(self, array: Array) -> int:
        if array.nbytes > ARRAY_BYTES_MAX:
            raise UnstorableError("a constant is too large")
        return self._array(array)

    def _head(self, trace: Trace) -> dict[str, Any]:
        template, replay, key = trace.template, trace.template.template.replay, trace.before
        words = np.append(replay.words, 1)  # the reader pads shapes with it
        return {
            "region": self._regions.index(trace.template.segment.region),
            "remaining": hex(key.remaining),
            "facts": [list(fact) for fact in key.facts],
            "inlines": key.inlines,
            "before": _dump_marks(key.marks),
            "after": _dump_marks(trace.after),
            "found": _dump_marks(trace.found),
            "names": template.names,
            "sized": template.sized,
            "known": {name: self._small(array) for name, array in template.known.items()},
            "replay": [
                self._array(array)
                for array in (
                    replay.operations,
                    replay.conditions,
                    replay.preferences,
                    words,
                    replay.floats,
                    replay.givens,
                )
            ],
        }

    def _body(self, template: SegmentTemplate) -> dict[str, Any]:
        segment, graph = template.segment, template.template
        return {
            "nodes": hex(segment.nodes),
            "inlined": hex(segment.inlined),
            "feeds": segment.feeds,
            "makes": segment.makes,
            "aliases": segment.aliases,
            "consumed": sorted(segment.consumed),
            "constants": {name: self._small(np.asarray(value)) for name, value in segment.constants.items()},
            "late": {name: self._late(value) for name, value in template.late.items()},
            "layout": layout(node.op for node in graph.nodes),
            "lists": graph.lists,
            "tensors": graph.tensors,
            "graph": graph.nodes,
            "weights": [
                [w.name, w.kind, w.nbytes, w.chunk_bytes, size, self._source(w, late)] for w, size, late in graph.known
            ],
            "inputs": graph.inputs,
            "outputs": graph.outputs_at,
            "params": [self._array(array) for array in (graph.packed, graph.whole, graph.floats)],
        }

    def _source(self, weight: Weight, late: Late | None) -> list[Any]:
        if late is not None:
            return ["late", self._late(late)]
        key = self._key_of(weight)
        if key is not None:
            return ["held", key]
        source = weight.source
        if isinstance(source, KeptSource):
            source = source.base
        if weight.nbytes > ARRAY_BYTES_MAX or source is None:
            raise UnstorableError("a constant is too large")
        if isinstance(source, ModelSource):
            source.load()  # marks it as used, so that the section holds it
            return ["constant", source.index]
        return ["array", self._array(np.asarray(source.load()))]

    def _late(self, late: Late | Array | None, depth: int = 0) -> Any:
        if late is None:
            return None
        if depth > LATE_DEPTH_MAX:
            raise UnstorableError("a constant is made of constants of constants and so on")
        if isinstance(late, np.ndarray):
            return ["array", self._small(late)]
        if isinstance(late, LateSizes):
            return ["sizes", late.indices.reshape(-1).tolist(), list(late.indices.shape), late.dtype.str]
        if isinstance(late, LateConstant):
            if not late.source.used:
                raise UnstorableError("a constant that the artifact does not hold")
            return ["constant", late.source.index, list(late.shape)]
        if isinstance(late, LateShape):
            return ["shape", self._late(late.base, depth + 1), late.shape]
        if isinstance(late, LateMap):
            if isinstance(late.function, Transposed):
                return ["transpose", self._late(late.base, depth + 1), list(late.function.perm)]
            if isinstance(late.function, Row):
                return ["row", self._late(late.base, depth + 1), [late.function.index, int(late.function.keeps)]]
            raise UnstorableError(f"a function without a name: {late.function}")
        if id(late.node) not in self._nodes:
            raise UnstorableError("a node that is not the model's")
        inputs = [self._late(value, depth + 1) for value in late.inputs]
        return ["fold", *self._nodes[id(late.node)], late.output, inputs]


def _dump_marks(marks: Marks) -> list[list[Any]]:
    return [sorted(part) for part in marks]
