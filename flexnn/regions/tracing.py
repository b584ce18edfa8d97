"""Tracing a model's templates before any run, at shapes at which sampling found that it binds, and at some like them.

Sizes of 1 broadcast, so each open dimension is 1 and more than 1 in turn. Equal sizes would hide which is which, so
they differ where the model binds with that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from itertools import chain, islice, zip_longest
from math import prod
from typing import NamedTuple

import numpy as np

from flexnn.graph.ir import DTYPES, GraphError
from flexnn.graph.model import Model
from flexnn.graph.model_sources import unused_sources
from flexnn.graph.ports import Port

from .dimensions import Caches, dimension_names
from .record import Recorder
from .region import Nodes, Region
from .scope import Scope, Value, is_few
from .stretch import Read, Stretch, Turns
from .templates import NODES_MAX, NUMBERS_MAX, Templates, Trace

TRACES_MAX = 12
"""Most templates of the same nodes of a model that are kept."""
KEPT_MAX = 24
"""Most templates of a model that are kept."""
TRIED_MAX = 32
"""Most that are traced."""
SMALL = 4
"""Templates with that many times fewer nodes than another of the same nodes of the model are left out: most nodes
cannot be lowered at such sizes, or are computed while binding.
"""
SHAPES_MAX = 32
"""Most shapes that are tried."""
STEP = 32
"""Difference of sizes that are to differ: what halves a picture five times divides it."""
LONGER = (2, 4)
"""Factors of sizes that are tried, too: a window needs several rows, of which short inputs have one."""
PICTURE = 640
"""Least of sizes that detectors often take: some of what nodes make of a picture's cells is then too much to be
computed while binding, and some is not.
"""
LONG = 2
"""Factor of sizes of which some models take no others, as a branch takes half of them: frames of 256 and 512."""
FEW = 9
"""Least of small sizes that are tried: what is small is computed in another order, or while binding."""
TURNS = 13
"""Turns that are made up for a loop where the nodes behind it take no open dimension for them."""
NUMBERS = TURNS, 1000
"""Numbers that are made up where a run reads some, in turn: what is made of many may be too much to be computed while
binding.
"""
FOLLOWED_MAX = 8
"""Most stretches that are traced behind what only a run knows."""
COMPARES = ("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")
COMPARED_MAX = 3
"""Most numbers of inputs that are tried because nodes compare with them."""
BATCH = 3
"""Least size of what is 1 elsewhere."""
MANY = 128, 1024
"""Larger ones, at which some or all of what nodes make of them is too much to be computed while binding."""
WINDOWS = (512, 256, 1536)
"""Samples of a window of sound: models that are fed one after the other often take only one or two such sizes."""
SECOND = 16000
"""Samples of a channel of sound that are tried, with a batch, too: codecs halve windows until pads are longer."""

Shapes = list[tuple[int, ...]]


def traces(
    model: Model, bound: Sequence[Shapes], ports: Sequence[Port], least: Mapping[str, int]
) -> tuple[list[Trace], Region]:
    """Return the templates of the first stretches at shapes like those ``bound``, and the region that they name.
    ``ports``: the inputs, whose open dimensions may have other sizes; ``least``: the least of some, by their names.
    Which constants count as used stays as it is.
    """
    recorder = Recorder(model)
    recorder.templates = templates = Templates(model.opset)
    templates.keeps_best = False
    found = templates.traces = []
    unused = unused_sources(model)
    for shapes in _variants(ports, bound, least):
        if len(found) >= TRIED_MAX or sum(len(trace.template) for trace in found) > NODES_MAX:
            break
        recorder.region.unmark()
        with np.errstate(all="ignore"):
            stretch = _recorded(recorder, _scope(model, shapes), recorder.region.all)
            sizes = sorted(_sizes(dimension_names(ports), shapes).values(), reverse=True)
            for scope in _known(stretch) if stretch is not None else ():
                _follow(recorder, _recorded(recorder, scope, recorder.region.all), sizes)
            _follow(recorder, stretch, sizes)
    for source in unused:
        source.used = False
    names = {port.name: row for port, row in zip(ports, dimension_names(ports), strict=True)}
    return _kept(_ordered(_large(found), names, Caches.of(ports))), recorder.region


def _ordered(found: list[Trace], names: dict[str, list[str]], caches: Caches) -> list[Trace]:
    """Return the templates, those first that a first run most likely meets: the likeliest, a decoder's prompt, the
    likeliest with a batch, and the others.
    """
    ranks = [_rarity(trace, names, caches) for trace in found]
    order = sorted(range(len(found)), key=ranks.__getitem__)
    likeliest = ranks[order[0]] if order else None
    early: list[int | None] = []
    if likeliest is not None and likeliest.call is Call.TOKEN:
        early.append(next((i for i in order if ranks[i] == likeliest._replace(call=Call.PROMPT)), None))
    early.append(next((i for i in order[1:] if ranks[i].batches and ranks[i][:3] == ranks[order[0]][:3]), None))
    for i in reversed([i for i in early if i is not None]):
        order.remove(i)
        order.insert(1, i)
    return [found[i] for i in order]


def _kept(ordered: list[Trace]) -> list[Trace]:
    """Return the templates that are kept: the first ones of all nodes that a run meets one after the other, then their
    second ones and so on, as an artifact may have no room for all.
    """
    counts: dict[tuple[Region, Nodes], int] = {}
    turns = []
    for trace in ordered:
        nodes = trace.before.region, trace.before.remaining
        turns.append(counts.get(nodes, 0))
        counts[nodes] = turns[-1] + 1
    order = sorted(range(len(ordered)), key=turns.__getitem__)
    return [ordered[i] for i in order if turns[i] < TRACES_MAX][:KEPT_MAX]


class Call(IntEnum):
    """Kind of a run of a decoder that takes its caches from its caller, the most frequent first."""

    TOKEN = 0
    """It takes one token, with several in its caches; or the model is no such decoder."""
    PROMPT = 1
    """It takes several, with none in its caches."""
    SECOND = 2
    """It takes one token, with none or one in its caches."""
    CHUNK = 3
    """It takes several, with some in its caches."""

    @classmethod
    def of(cls, sizes: Mapping[str, int], caches: Caches) -> Call:
        """Return what a run does whose open dimensions have these sizes."""
        held = [sizes[name] for name in caches.held if name in sizes]
        tokens = caches.tokens if isinstance(caches.tokens, int) else sizes.get(caches.tokens, 0)
        if not held or not tokens:
            return cls.TOKEN
        if tokens > 1:
            return cls.CHUNK if any(held) else cls.PROMPT
        return cls.TOKEN if min(held) > 1 else cls.SECOND


class Rarity(NamedTuple):
    """How rarely a first run meets a template's sizes."""

    is_part: bool
    """Whether its nodes are not all of a model."""
    single: int
    """Open dimensions of 1 that are no batch, nor a decoder's."""
    call: Call
    batches: int
    """Dimensions that are a batch of more than one: 0: none is; 1: all of them are; 2: some."""
    small: int
    """Small dimensions."""


def _rarity(trace: Trace, names: dict[str, list[str]], caches: Caches) -> Rarity:
    """Return how rarely a first run meets a template's sizes. A session plans for the first ones when it opens."""
    key, sizes = trace.before, iter(trace.template.template.replay.traced)
    firsts = {row[0] for row in names.values() if len(row) > 1} - {""}  # states have the batch elsewhere
    steps = {caches.tokens, *caches.held, *caches.totals} if caches.tokens else set[str | int]()
    single = small = 0
    batches = list[int]()
    known: dict[str, int] = {}
    for name, _, rank, *_ in key.facts:
        row = names.get(name) or [""] * rank
        for own, size in zip(row, islice(sizes, rank), strict=False):
            is_batch = own in firsts
            known[own] = size
            single += bool(own) and not is_batch and size == 1 and own not in steps
            small += bool(own) and not is_batch and size < FEW and own not in steps
            batches += [size] if own and is_batch else []
    is_part = key.remaining != key.region.all or bool(key.region.path)
    kind = 2 if 1 in batches and max(batches) > 1 else int(max(batches, default=1) > 1)
    return Rarity(is_part, single, Call.of(known, caches), kind, small)


def _large(found: list[Trace]) -> list[Trace]:
    """Return the templates without small ones."""
    most: dict[tuple[Region, Nodes], int] = {}
    for trace in found:
        key = trace.before.region, trace.before.remaining
        most[key] = max(most.get(key, 0), len(trace.template))
    return [t for t in found if SMALL * len(t.template) >= most[t.before.region, t.before.remaining]]


def _recorded(recorder: Recorder, scope: Scope, remaining: Nodes) -> Stretch | None:
    """Return a stretch of a run; None, and no template, where the model does not bind at these shapes."""
    assert recorder.templates is not None
    found = recorder.templates.traces or []
    count = len(found)
    try:
        return recorder.record(recorder.region, scope, remaining)
    except GraphError:
        del found[count:]
        return None


def _follow(recorder: Recorder, stretch: Stretch | None, sizes: Sequence[int]) -> None:
    """Record what comes behind loops whose turns only a run knows: they are the most that a loop's condition allows, or
    an open dimension says them (``sizes``, the largest first), or they are made up. So are numbers that a run reads,
    few and many in turn.
    """
    assert recorder.templates is not None
    turns = [*dict.fromkeys(sizes), TURNS]
    for _ in range(FOLLOWED_MAX):
        if stretch is not None and isinstance(stretch.action, Read) and stretch.remaining != stretch.region.all:
            known = [t for t in recorder.templates.traces or () if t.before.remaining == stretch.remaining]
            scope = _numbered(stretch, stretch.action, NUMBERS[len(known) % len(NUMBERS)])
            stretch = _recorded(recorder, scope, stretch.remaining) if scope is not None else None
            continue
        if stretch is None or not isinstance(stretch.action, Turns):
            return
        before = stretch
        is_bounded = all(output.counter < 0 or output.turns_max is not None for output in before.outputs)
        counts = turns[:1] if is_bounded else turns
        tried = (_recorded(recorder, _turned(before, count), before.remaining) for count in counts)
        stretch = next(filter(None, tried), None)


def _turned(stretch: Stretch, turns: int) -> Scope:
    """Return the scope behind a stretch whose loops have taken as many turns as they may, or ``turns``."""
    scope = stretch.scope.copy()
    for output in stretch.outputs:
        if output.counter >= 0:
            most = turns if output.turns_max is None else output.turns_max
            scope.own[output.name] = Value((most, *output.shape), output.dtype)
    return scope


def _numbered(stretch: Stretch, action: Read, number: int) -> Scope | None:
    """Return the scope behind a stretch with made-up numbers where a run reads some; None: they are no integers."""
    scope = stretch.scope.copy()
    for name in action.names:
        value = scope[name]
        if value.dtype.kind not in "iu" or value.size > NUMBERS_MAX:
            return None
        array = np.full(value.size, number, value.dtype)
        if value.bounds is not None:
            array = np.clip(array, *np.array(value.bounds, np.int64).T).astype(value.dtype)
        array = array.reshape(value.shape)
        scope.own[name] = Value(value.shape, value.dtype, array, value.is_settled, value.is_steady)
    return scope


def _known(stretch: Stretch) -> Iterator[Scope]:
    """Iterate over scopes with numbers of the inputs that a first stretch needs, if it needs any before all else."""
    if not isinstance(stretch.action, Read) or stretch.tape.entries or stretch.remaining != stretch.region.all:
        return
    is_truth = all(stretch.scope[name].dtype == np.bool_ for name in stretch.action.names)
    for number in (1, 0) if is_truth else _compared(stretch.region):
        scope = stretch.scope.copy()
        for name in stretch.action.names:
            value = scope[name]
            array = np.full(value.shape, number, value.dtype)
            scope.own[name] = Value(value.shape, value.dtype, array, value.is_settled, value.is_steady)
        yield scope


def _compared(region: Region) -> list[int]:
    """Return integers with which a region's nodes compare others, and one that is none of them."""
    names = {name for node in region.nodes if node.op_type in COMPARES for name in node.input}
    constants = [region.constants[name] for name in sorted(names) if name in region.constants]
    found = [int(c.source.load().reshape(-1)[0]) for c in constants if prod(c.shape) == 1 and c.dtype in ("i32", "i64")]
    numbers = list(dict.fromkeys(found))[:COMPARED_MAX]
    return [*numbers, 1 + max(numbers, default=0)]


def _scope(model: Model, shapes: Shapes) -> Scope:
    """Return the scope of a first stretch, as a run begins it."""
    values = {}
    for port, shape in zip(model.graph.inputs, shapes, strict=True):
        dtype = DTYPES[str(port.dtype)]
        values[port.name] = Value(shape, dtype)
        values[port.name].is_steady = is_few(dtype, values[port.name].nbytes)
    return Scope(values)


def _variants(ports: Sequence[Port], bound: Sequence[Shapes], least: Mapping[str, int]) -> Iterator[Shapes]:
    """Iterate over shapes, no two the same: each shape at which the model bound, smaller and larger, with a batch, and
    with each open dimension 1; and without what caches hold. Shapes of a batch of one come first, as windows of sound.
    None has a size below the least.
    """
    names = dimension_names(ports)
    seen: set[tuple[tuple[int, ...], ...]] = set()
    bases = sorted(bound, key=lambda shapes: -sum(shape.count(1) for shape in shapes))
    tried = [[(base, other) for other in _changed(_sizes(names, base))] for base in bases]
    first, *others = [*zip_longest(*tried)] or [()]
    caches = Caches.of(ports)
    prompts: list[dict[str, int]] = (
        [{}, {caches.tokens: FEW}] if isinstance(caches.tokens, str) and caches.tokens else [{}]
    )
    emptied = [
        (base, _sizes(names, base) | prompt | dict.fromkeys(caches.held, 0))
        for base in bases[:1]
        for prompt in (prompts if caches.held else ())
    ]
    steps = [(base, other) for base in bases[-1:] for other in _steps(_sizes(names, base), caches)]
    for base, other in filter(
        None, chain(_sounds(ports, bases), steps[:1], first[:1], steps[1:], emptied, first[1:], *others)
    ):
        own = _sizes(names, base)
        other = caches.summed(other) if own == caches.summed(own) else other
        if any(other[name] < size for name, size in least.items()):
            continue
        shapes = [
            tuple([other[name] if name else d for name, d in zip(row, shape, strict=True)])
            for row, shape in zip(names, base, strict=True)
        ]
        if tuple(shapes) not in seen and len(seen) < SHAPES_MAX:
            seen.add(tuple(shapes))
            yield shapes


def _steps(sizes: dict[str, int], caches: Caches) -> Iterator[dict[str, int]]:
    """Iterate over sizes of open dimensions like these at which a decoder takes one token: with some tokens in its
    caches, the first one, and the second one, whichever of the caches grows.
    """
    if not caches.held or not caches.tokens:
        return
    apart = {name: d + STEP * i for i, (name, d) in enumerate(sizes.items()) if d > 1}
    single = {caches.tokens: 1} if isinstance(caches.tokens, str) else {}
    for held in ({}, dict.fromkeys(caches.held, 0), *({name: 1} for name in caches.held)):
        yield sizes | apart | single | held


def _sounds(ports: Sequence[Port], bases: Sequence[Shapes]) -> Iterator[tuple[Shapes, dict[str, int]]]:
    """Iterate over sizes of windows of sound, and of a second of it for networks that take it with a channel, alone and
    as a batch; at shapes at which, of all open dimensions, only samples are more than 1.
    """
    names = dimension_names(ports)
    for rank, counts in ((2, WINDOWS), (3, (SECOND,))):
        channels = [1] * (rank - 2)
        rows = [
            row
            for row, port in zip(names, ports, strict=True)
            if port.dtype == "f32" and len(row) == rank and list(port.dims or ())[1:-1] == channels
        ]
        samples = {row[-1] for row in rows} - {""}
        for base in bases:
            own = _sizes(names, base)
            if samples and {name for name, d in own.items() if d > 1} == samples:
                for count in counts:
                    yield base, own | dict.fromkeys(samples, count)
                    if rank == 3:
                        yield base, {name: count if name in samples else BATCH for name in own}


def _sizes(names: list[list[str]], shapes: Shapes) -> dict[str, int]:
    """Return the size of each open dimension, by its name."""
    pairs = chain(*(zip(row, shape, strict=True) for row, shape in zip(names, shapes, strict=True)))
    return {name: d for name, d in pairs if name}


def _changed(sizes: dict[str, int]) -> Iterator[dict[str, int]]:
    """Iterate over sizes of open dimensions like these."""
    large = [name for name, d in sizes.items() if d > 1]
    single = [name for name, d in sizes.items() if d == 1]
    apart = {name: sizes[name] + STEP * i for i, name in enumerate(large)}
    few = {name: FEW + 2 * i for i, name in enumerate(large)}
    batch = {name: BATCH + i for i, name in enumerate(single)}
    long = {name: LONG * sizes[name] for name in large}
    picture = {name: PICTURE + STEP * i for i, name in enumerate(large)} if len(large) > 1 else apart
    for own in (apart, long, few, picture):
        for others in ({}, batch):
            yield sizes | own | others
    for name in large:
        yield sizes | apart | batch | {name: 1}
    for own in (*({name: k * d for name, d in apart.items()} for k in LONGER), {}):
        for others in ({}, batch):
            yield sizes | own | others
    yield sizes | dict.fromkeys(single, BATCH)
    for name in large:
        yield sizes | apart | {name: 1}
    for name in single if len(single) > 1 else ():  # texts and pictures have batches of their own
        yield sizes | apart | {name: batch[name]}
    for size in MANY if single else ():
        yield sizes | dict.fromkeys(single, size)
