"""The place of the arena: its start is on a huge page, or its end is, where loads go there."""

from __future__ import annotations

import pytest

from tests._core.test_stored_tables import Stored

HUGE = 2 << 20


def mappings() -> set[tuple[int, int]]:
    """Begin and end of each mapping of this process."""
    with open("/proc/self/maps", encoding="ascii") as lines:
        spans = [line.split()[0].split("-") for line in lines]
    return {(int(begin, 16), int(end, 16)) for begin, end in spans}


@pytest.mark.parametrize("streams_last", [False, True])
def test_one_end_lies_on_whole_huge_pages(streams_last: bool) -> None:
    """Devices write several times as fast into huge pages: what is streamed should not lie in the small ones behind."""
    stored = Stored()
    size = 2 * HUGE + 13 * 4096
    before = mappings()
    session = stored.open(spare=size - int(stored.nodes["workspace_bytes"][0]), streams_last=streams_last)
    stored.good(session)
    found = [(begin, end) for begin, end in mappings() - before if end - begin == size]
    assert found
    assert any((end if streams_last else begin) % HUGE == 0 for begin, end in found)
    session.close()
