"""Addresses of what lives in the arena at fixed times (FlexNN §3.3.2, Oplachko algorithm 2, Wang et al. §1.1)."""

from .activations import alternative_placements, best_placement, node_needs, place_activations
from .blocks import Blocks
from .gaps import arena_for, fit
from .strategies import SEARCH_NODES, STRATEGIES, Found, search

__all__ = [
    "SEARCH_NODES",
    "STRATEGIES",
    "Blocks",
    "Found",
    "alternative_placements",
    "arena_for",
    "best_placement",
    "fit",
    "node_needs",
    "place_activations",
    "search",
]
