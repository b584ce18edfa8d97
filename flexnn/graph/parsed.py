"""JSON of files that nobody vouches for: what it takes as Python's objects is counted before it is parsed."""

from __future__ import annotations

from typing import Any


def parsed_bytes(raw: bytes) -> int:
    """Return an upper bound of the bytes that Python takes for the JSON in ``raw``, counted without parsing it."""
    lists, tables, texts = raw.count(b"["), raw.count(b"{"), raw.count(b'"') // 2
    return len(raw) + 104 * lists + 256 * tables + 44 * raw.count(b",") + 56 * texts


def parsed(raw: bytes, most: int) -> Any:
    """Return the JSON in ``raw``. Raises ValueError, also where it takes more than ``most`` bytes."""
    import json  # importing flexnn does without

    taken = parsed_bytes(raw)
    if taken > most:
        raise ValueError(f"JSON that would take {taken >> 20} MiB of memory, at most {most >> 20} are read")
    try:
        return json.loads(raw)
    except RecursionError:
        raise ValueError("nested too deeply") from None
