"""Pictures of a page as elements that a browser shows: shapes without text in SVG, which stretches to any width, and
names of axes beside it in HTML, which does not. Elements escape all text; the number of shapes is bounded.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from xml.etree.ElementTree import Element, SubElement

from flexnn.errors import printable
from flexnn.units import format_bytes

from .contents import KINDS, Blocks, Contents, Work

WIDE, HIGH = 1000, 400
"""Size of a picture in its own units."""
BLOCKS_MAX, MARKS_MAX, MOMENTS_MAX = 1200, 500, 600
"""Most shapes of a picture."""
NAME_MAX = 90
"""Most characters of a name."""
COLOURS = 8
"""Colours of kinds of steps (style.css has them)."""

APART = 0.21
"""Least distance of ticks whose names lie on a line, as a fraction of the axis."""

Ticks = list[tuple[float, str]]
"""Places (0 to 1) and names along an axis."""


def named(name: str) -> str:
    """Return a name of the model, which may hold anything, as text of bounded length."""
    return printable(name, NAME_MAX) or "(no name)"


def memory(contents: Contents, beside: int, budget: int | None) -> Element:
    """Return the memory over the run by what takes it; ``beside``: bytes out of the arena."""
    rows = [[row[3], beside, row[0], row[1], row[2]] for row in contents.memory]
    kinds = [KINDS[3], "beside the arena", *KINDS[:3]]
    classes = ["pinned", "beside", "activations", "workspace", "streamed"]
    most = max([sum(row) for row in rows] + [budget or 0, 1])
    picture = _svg(HIGH, "memory over the run")
    moments = _thinned(contents.moments, rows)
    for level in reversed(range(len(kinds))):
        points = [f"M0 {HIGH}"]
        for begin, end, sizes in moments:
            y = _number(HIGH * (1 - sum(sizes[: level + 1]) / most))
            points.append(f"L{_x(begin, contents.seconds)} {y}L{_x(end, contents.seconds)} {y}")
        shape = SubElement(picture, "path", {"class": classes[level], "d": "".join([*points, f"L{WIDE} {HIGH}Z"])})
        SubElement(shape, "title").text = kinds[level]
    if budget is not None:
        _line(picture, HIGH * (1 - budget / most), "budget")
    largest = [max((row[i] for row in rows), default=0) for i in range(len(kinds))]
    legend = [(name, f"{kind}, at most {format_bytes(size)}") for name, kind, size in zip(classes, kinds, largest)]  # noqa: B905
    legend += [("budget", f"budget {format_bytes(budget)}")] if budget is not None else []
    return _figure(picture, byte_ticks(most), time_ticks(contents.seconds), legend)


def arena(contents: Contents) -> tuple[Element, int]:
    """Return the arena as a map, addresses upwards and time to the right; and how many blocks are left out of it."""
    blocks, most = contents.blocks, max(contents.arena_bytes, 1)
    picture = _svg(HIGH, "map of the arena")
    picture.set("class", "map")
    chosen = _largest(blocks)
    classes = ["activations", "workspace", "streamed", "pinned"]
    for i in chosen:
        begin, end, address, size = blocks.places[i]
        x, y = _x(begin, contents.seconds), HIGH * (1 - (address + size) / most)
        place = {
            "class": classes[blocks.kinds[i]],
            "x": x,
            "y": _number(y),
            "width": _number(max(WIDE * (end - begin) / max(contents.seconds, 1e-12), 0.4)),
            "height": _number(max(HIGH * size / most, 0.3)),
        }
        told = f"{named(blocks.names[i])}: {format_bytes(size)} at {format_bytes(address)}, {_span(begin, end)}"
        SubElement(SubElement(picture, "rect", place), "title").text = told
    legend = list(zip(classes, KINDS, strict=True))
    figure = _figure(picture, byte_ticks(most), time_ticks(contents.seconds), legend)
    return figure, len(blocks.names) - len(chosen)


def lanes(contents: Contents) -> Element:
    """Return steps, waits and loads on a time line. Neighbours of little width are one mark."""
    reads = bool(contents.loads.names)
    picture = _svg(150 if reads else 70, "loads and steps over time")
    times: dict[str, float] = {}
    for kind, (begin, end) in zip(contents.steps.kinds, contents.steps.spans, strict=True):
        times[kind] = times.get(kind, 0.0) + end - begin
    order = sorted(times, key=lambda kind: -times[kind])
    colour = {kind: f"k{min(i, COLOURS - 1)}" for i, kind in enumerate(order)}
    for name, kind, begin, end in _marks(contents.steps, contents.seconds):
        _mark(picture, (4, 62), colour[kind], f"{name} ({kind})", (begin, end), contents.seconds)
    at = 0.0
    waits = Work()
    for begin, end in [*contents.steps.spans, (contents.seconds, contents.seconds)]:
        if begin - at > 1e-9:
            waits.names.append("waiting for loads")
            waits.kinds.append("wait")
            waits.spans.append((at, begin))
        at = max(at, end)
    for name, _, begin, end in _marks(waits, contents.seconds):
        _mark(picture, (70, 16), "wait", name, (begin, end), contents.seconds)
    for name, _, begin, end in _marks(contents.loads, contents.seconds):
        _mark(picture, (90, 56), "streamed", name, (begin, end), contents.seconds)
    legend = [(colour[kind], f"{kind} {1e3 * times[kind]:.2f} ms") for kind in order[: COLOURS - 1]]
    if rest := order[COLOURS - 1 :]:
        legend.append((f"k{COLOURS - 1}", f"others {1e3 * sum(times[kind] for kind in rest):.2f} ms"))
    legend += [("wait", "waiting for loads"), ("streamed", "loads")] if reads else []
    ticks = [(0.77, "steps"), (0.48, "waits"), (0.2, "loads")] if reads else [(0.5, "steps")]
    return _figure(picture, ticks, time_ticks(contents.seconds), legend, short=True)


def curve(points: Sequence[tuple[int, float]], now: tuple[int, float]) -> Element:
    """Return predicted milliseconds over bytes of budget, and where the plan is."""
    low, high = math.log(max(points[0][0], 1)), math.log(max(points[-1][0], points[0][0] + 1))
    most = max([ms for _, ms in points] + [now[1]]) * 1.08 or 1.0
    picture = _svg(HIGH, "predicted latency over memory")

    def place(size: int, ms: float) -> str:
        x = 20 + (WIDE - 40) * (math.log(max(size, 1)) - low) / max(high - low, 1e-9)
        return f"{_number(min(max(x, 20), WIDE - 20))} {_number(HIGH * (1 - ms / most))}"

    SubElement(picture, "path", {"class": "curve", "d": "M" + "L".join(place(*point) for point in points)})
    for kind, chosen in (("point", points), ("now", [now])):
        for size, ms in chosen:
            shape = SubElement(picture, "path", {"class": kind, "d": f"M{place(size, ms)}h0"})
            SubElement(shape, "title").text = f"{format_bytes(size)}: {ms:.2f} ms"
    wanted = sorted({points[0][0], points[-1][0], *(1 << k << 20 for k in range(24))})
    across = [
        ((20 + (WIDE - 40) * (math.log(size) - low) / max(high - low, 1e-9)) / WIDE, _mib(size))
        for size in wanted
        if points[0][0] <= size <= points[-1][0]
    ]
    up = [(value / most, _ms(value)) for value in _round_steps(most)]
    legend = [("point", "predicted"), ("now", f"this plan: {format_bytes(now[0])}, {now[1]:.2f} ms")]
    return _figure(picture, up, _apart(across), legend)


def byte_ticks(most: int) -> Ticks:
    """Return ticks of an axis of bytes."""
    return [(value * (1 << 20) / most, f"{value:g} MiB") for value in _round_steps(most / (1 << 20))]


def time_ticks(seconds: float) -> Ticks:
    """Return ticks of an axis of time."""
    return [(value * 1e-3 / seconds, _ms(value)) for value in _round_steps(seconds * 1e3)] if seconds > 0 else []


def _round_steps(most: float) -> list[float]:
    """Return round numbers from 0 to ``most``."""
    if most <= 0:
        return [0.0]
    rough = most / 4
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * k for k in (1, 2, 5, 10) if unit * k >= rough * 0.999)
    return [round(step * i, 12) for i in range(int(most / step + 1e-9) + 1)]


def _apart(ticks: Ticks) -> Ticks:
    """Return ticks without those that would lie over others; the first and the last stay."""
    kept = ticks[:1]
    for tick in ticks[1:-1]:
        if tick[0] - kept[-1][0] > APART and ticks[-1][0] - tick[0] > APART:
            kept.append(tick)
    return kept + ticks[-1:] if len(ticks) > 1 else kept


def _figure(
    picture: Element, up: Ticks, across: Ticks, legend: Iterable[tuple[str, str]], *, short: bool = False
) -> Element:
    figure = Element("figure")
    chart = SubElement(figure, "div", {"class": "chart short" if short else "chart"})
    side = SubElement(chart, "div", {"class": "up"})
    for place, text in up:
        SubElement(side, "span", {"style": f"bottom:{_number(100 * place)}%"}).text = text
    chart.append(picture)
    below = SubElement(chart, "div", {"class": "across"})
    for place, text in across:
        SubElement(below, "span", {"style": f"left:{_number(100 * place)}%"}).text = text
    names = SubElement(figure, "ul", {"class": "legend"})
    for kind, text in legend:
        row = SubElement(names, "li")
        SubElement(row, "i", {"class": kind})
        SubElement(row, "span").text = text
    return figure


def _svg(high: int, label: str) -> Element:
    return Element(
        "svg", {"viewBox": f"0 0 {WIDE} {high}", "preserveAspectRatio": "none", "role": "img", "aria-label": label}
    )


def _thinned(moments: Sequence[tuple[float, float]], rows: list[list[int]]) -> list[tuple[float, float, list[int]]]:
    """Return moments with their bytes; of many neighbours, one with the most bytes."""
    group = -(-len(moments) // MOMENTS_MAX) or 1
    found = []
    for first in range(0, len(moments), group):
        largest = max(rows[first : first + group], key=sum)
        found.append((moments[first][0], moments[min(first + group, len(moments)) - 1][1], largest))
    return found


def _largest(blocks: Blocks) -> list[int]:
    """Return the blocks that take the most of the map, in their order."""

    def area(i: int) -> float:
        begin, end, _, size = blocks.places[i]
        return (end - begin) * size

    return sorted(sorted(range(len(blocks.names)), key=lambda i: (-area(i), i))[:BLOCKS_MAX])


def _marks(work: Work, seconds: float) -> list[tuple[str, str, float, float]]:
    """Return name, kind, begin and end of marks: each wide enough to be seen, or of neighbours together."""
    least = seconds / MARKS_MAX
    found: list[tuple[str, str, float, float, int]] = []
    for name, kind, (begin, end) in zip(work.names, work.kinds, work.spans, strict=True):
        last = found[-1] if found else None
        if last and end - last[2] < least and begin - last[3] < least and begin >= last[2]:
            longer = kind if end - begin > last[3] - last[2] else last[1]
            found[-1] = last[0], longer, last[2], max(end, last[3]), last[4] + 1
        else:
            found.append((name, kind, begin, end, 1))
    return [
        (named(name) + (f" and {count - 1} more" if count > 1 else ""), kind, begin, end)
        for name, kind, begin, end, count in found[: 4 * MARKS_MAX]
    ]


def _mark(
    picture: Element, rows: tuple[int, int], kind: str, name: str, span: tuple[float, float], seconds: float
) -> None:
    width = WIDE * (span[1] - span[0]) / max(seconds, 1e-12)
    place = {
        "class": kind,
        "x": _x(span[0], seconds),
        "y": str(rows[0]),
        "width": _number(max(width - 0.5, 0.5)),
        "height": str(rows[1]),
    }
    SubElement(SubElement(picture, "rect", place), "title").text = f"{name}, {_span(*span)}"


def _line(picture: Element, y: float, kind: str) -> None:
    SubElement(picture, "path", {"class": kind, "d": f"M0 {_number(y)}H{WIDE}"})


def _x(moment: float, seconds: float) -> str:
    return _number(WIDE * moment / max(seconds, 1e-12))


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _span(begin: float, end: float) -> str:
    return f"{begin * 1e3:.2f} to {end * 1e3:.2f} ms"


def _ms(value: float) -> str:
    return f"{value:g} ms"


def _mib(size: int) -> str:
    return f"{size / (1 << 20):.3g} MiB"
