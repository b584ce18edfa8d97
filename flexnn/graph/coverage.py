"""Which ONNX operators are supported, and how: the answer that documentation and reports are made from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from .contrib import expanded
from .evaluate import EVALUATORS
from .lower import LOWERINGS, OWN

Support = Literal["native", "numpy", "rewritten", "walked", "unsupported"]
"""How an operator is supported.

native: the C core computes it for the element types that it has; numpy computes constants and other types. numpy: numpy
computes it, while compiling or between two parts of the graph. rewritten: importing turns it into operators of the
default domain, or into one of the core. walked: control flow; the run time decides which of its graphs runs, and how
often. unsupported: a model that needs it is refused by its name.
"""

CONTROL_FLOW = ("If", "Loop", "Scan")
DEFAULT_DOMAINS = ("", "ai.onnx")
PARTED = {name.partition(".")[0] for name in LOWERINGS if "." in name and not name.startswith(OWN)}
"""Operators that importing splits into parts, which have lowerings (contrib/selection.py)."""


def support(names: Iterable[str], domain: str = "") -> dict[str, Support]:
    """Return how each operator of ``domain`` is supported, by name and in the order given.

    The names come from the caller, for example from ``onnx.defs``: this module does not import onnx.
    """
    return {name: _support(name, domain) for name in names}


def supported(domain: str = "") -> dict[str, Support]:
    """Return the supported operators of ``domain``, by name in alphabetical order."""
    if domain in DEFAULT_DOMAINS:
        known = {name for name in (*LOWERINGS, *EVALUATORS) if "." not in name}
        known |= {*CONTROL_FLOW, "Constant", *expanded("")}
    else:
        known = set(expanded(domain))
    return support(sorted(known), domain)


def _support(name: str, domain: str) -> Support:
    own = domain in DEFAULT_DOMAINS
    if own and (name in LOWERINGS or name in PARTED or name == "Constant"):
        return "native"
    if name in expanded("" if own else domain):
        return "rewritten"
    if not own:
        return "unsupported"
    if name in CONTROL_FLOW:
        return "walked"
    return "numpy" if name in EVALUATORS else "unsupported"
