"""The page: one file without scripts that loads nothing, so that it shows the same anywhere and a model's names, which
may be an attacker's, are text and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from xml.etree.ElementTree import Element, SubElement, tostring

from flexnn.errors import printable
from flexnn.planning import MachineProfile, Plan
from flexnn.planning.overhead import PART_NAMES
from flexnn.quick_dataclass import quick_dataclass
from flexnn.units import format_bytes

from . import pictures
from .contents import Contents, Thing, contents
from .pictures import named

ROWS_MAX = 12
"""Most rows of a table."""
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


@quick_dataclass(frozen=True, slots=True)
class Subject:
    """All that a page tells."""

    model: str
    plan: Plan
    parts: Sequence[tuple[str, Plan]]
    """Names and plans of the parts that run one after the other; one where shapes are fixed."""
    machine: MachineProfile
    threads: int
    curve: Sequence[tuple[int, float]]
    """Budgets in bytes and predicted milliseconds, the smallest first."""
    offers: Sequence[tuple[int, float]]
    """Bytes more than the plan's budget, and predicted milliseconds."""
    about: str = ""
    """A line that says where the figures come from."""


def page(subject: Subject) -> str:
    """Return the page as HTML."""
    plan = subject.plan
    made = contents(subject.parts, subject.machine)
    html = Element("html", {"lang": "en"})
    head = SubElement(html, "head")
    SubElement(head, "meta", {"charset": "utf-8"})
    SubElement(head, "meta", {"http-equiv": "Content-Security-Policy", "content": POLICY})
    SubElement(head, "meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"})
    SubElement(head, "title").text = f"FlexNN plan of {named(subject.model)}"
    SubElement(head, "style").text = resources.files(__package__).joinpath("style.css").read_text("utf-8")
    body = SubElement(html, "body")
    main = SubElement(body, "main")
    SubElement(main, "h1").text = named(subject.model)
    _facts(main, subject)
    beside = sum(plan.overhead.values())
    _section(main, "Memory over the run", "What the process takes, by what takes it. Predicted, not measured.").append(
        pictures.memory(made, beside, plan.memory)
    )
    _beside(main, plan)
    chart, missing = pictures.arena(made)
    section = _section(
        main,
        "The arena",
        "Every address is fixed before the run: addresses go upwards, time to the right. Pinned weights lie below.",
    )
    section.append(chart)
    if missing:
        SubElement(section, "p", {"class": "note"}).text = f"{missing} smaller blocks are not drawn."
    _section(
        main,
        "Loads and steps",
        f"One run of {plan.predicted_ms:.2f} ms: the model's nodes one after the other, and what is read meanwhile.",
    ).append(pictures.lanes(made))
    _latency(main, subject)
    _tables(main, made)
    _parts(main, made, subject)
    return "<!DOCTYPE html>\n" + tostring(html, encoding="unicode", method="html") + "\n"


def _section(main: Element, title: str, text: str) -> Element:
    section = SubElement(main, "section")
    SubElement(section, "h2").text = title
    SubElement(section, "p").text = text
    return section


def _facts(main: Element, subject: Subject) -> None:
    plan = subject.plan
    budget = "no limit" if plan.memory is None else format_bytes(plan.memory)
    reads = format_bytes(plan.bytes_read_per_run)
    facts = {
        "Memory": (format_bytes(plan.session_bytes), f"budget {budget}"),
        "Smallest budget": (format_bytes(plan.minimum_memory), "below it, the model is refused"),
        "Latency": (f"{plan.predicted_ms:.2f} ms", f"predicted; no plan below {plan.bound_ms:.2f} ms"),
        "Waiting": (f"{plan.stall_ms:.2f} ms", f"for {reads} that each run reads"),
        "Pinned": (format_bytes(plan.pinned_bytes), "weights that stay in memory"),
        "Threads": (str(subject.threads), f"storage at {subject.machine.storage_bytes_per_second / 1e6:.0f} MB/s"),
    }
    rows = SubElement(main, "dl", {"class": "facts"})
    for name, (value, more) in facts.items():
        one = SubElement(rows, "div")
        SubElement(one, "dt").text = name
        SubElement(one, "dd").text = value
        SubElement(one, "dd", {"class": "note"}).text = more
    if subject.about:
        SubElement(main, "p", {"class": "note"}).text = subject.about


def _beside(main: Element, plan: Plan) -> None:
    rows = [(PART_NAMES.get(name, name), format_bytes(size), "") for name, size in plan.overhead.items() if size]
    _table(main[-1], "Beside the arena", ("what", "memory", ""), rows)


def _latency(main: Element, subject: Subject) -> None:
    plan = subject.plan
    section = _section(main, "Latency against memory", "What other budgets are predicted to cost.")
    if len(subject.curve) > 1:
        section.append(pictures.curve(subject.curve, (plan.memory or plan.session_bytes, plan.predicted_ms)))
    if subject.offers:
        rows = [
            (f"+{format_bytes(more)}", f"{ms:.2f} ms", f"{ms - plan.predicted_ms:+.2f} ms")
            for more, ms in subject.offers
        ]
        _table(section, "What the next megabytes would buy", ("memory", "latency", "change"), rows)
    elif plan.memory is None or not plan.is_streaming:
        text = "Nothing is read while this plan runs: more memory would buy nothing."
        SubElement(section, "p", {"class": "note"}).text = text


def _tables(main: Element, made: Contents) -> None:
    section = _section(main, "The largest tensors", "Activations live from their first node to their last reader.")
    for title, things in (("Activations", made.tensors), ("Weights", made.weights)):
        rows = [(named(thing.name), format_bytes(thing.nbytes), _cut(thing)) for thing in things[:ROWS_MAX]]
        _table(section, title, ("name", "memory", ""), rows)
        if rest := things[ROWS_MAX:]:
            text = f"and {len(rest)} smaller ones, {format_bytes(sum(thing.nbytes for thing in rest))}"
            SubElement(section, "p", {"class": "note"}).text = text


def _cut(thing: Thing) -> str:
    return printable(thing.about, 2 * pictures.NAME_MAX)


def _parts(main: Element, made: Contents, subject: Subject) -> None:
    if len(subject.parts) < 2:
        return
    section = _section(
        main,
        "Parts",
        "The model branches, loops, or decides shapes while it runs. Here its parts follow each other as in the longest"
        " way through it, with one turn of each loop.",
    )
    ordered = sorted(subject.parts, key=lambda part: -part[1].predicted_ms)
    rows = [
        (named(name), f"{plan.predicted_ms:.2f} ms", format_bytes(plan.arena_bytes))
        for name, plan in ordered[:ROWS_MAX]
    ]
    _table(section, "", ("part", "latency", "arena"), rows)
    if rest := ordered[ROWS_MAX:]:
        text = f"and {len(rest)} smaller ones, {sum(plan.predicted_ms for _, plan in rest):.2f} ms"
        SubElement(section, "p", {"class": "note"}).text = text


def _table(parent: Element, title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    if title:
        SubElement(parent, "h3").text = title
    table = SubElement(parent, "table")
    line = SubElement(SubElement(table, "thead"), "tr")
    for text in head:
        SubElement(line, "th").text = text
    content = SubElement(table, "tbody")
    for row in rows:
        line = SubElement(content, "tr")
        for text in row:
            SubElement(line, "td").text = text
