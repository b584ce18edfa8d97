"""Fewer bits for weights by choice: which constants of a model are stored in which form, and what that costs.

A model of floats becomes an artifact of fewer bytes whose outputs differ a little from the model's. ``layers`` finds
the constants that may be narrowed, ``trial`` measures how far outputs are off, ``choice`` chooses, ``wanted`` reads
what the user asks for.
"""

from __future__ import annotations

from .choice import narrowed
from .wanted import Wanted, parse_wanted

__all__ = ["Wanted", "narrowed", "parse_wanted"]
