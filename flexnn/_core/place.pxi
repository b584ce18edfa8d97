# Placement: the planner's hot loops. Arrays are contiguous, of the types that place.h and streams.h name.
from flexnn._core.c_place cimport *

SEARCH_BLOCKS_MAX = FX_SEARCH_BLOCKS_MAX
PLACE_ORDERS = FX_ORDER_COUNT


cdef int _placed(fx_status status) except -1:
    if status == FX_ERR_MEMORY:
        raise MemoryError
    if status != FX_OK:
        raise ValueError(f"placement: {fx_status_text(status).decode()}")
    return 0


cdef const int64_t *_int64s(_Buffer buffer, Py_ssize_t count) except? NULL:
    """The values of a buffer of ``count`` 64-bit integers."""
    if buffer.view.len != count * 8:
        raise ValueError(f"{buffer.view.len} bytes are not {count} 64-bit integers")
    return <const int64_t *>buffer.view.buf


cdef class _Blocks:
    """fx_blocks over three arrays."""

    cdef _Buffer sizes, begins, ends
    cdef fx_blocks blocks

    def __cinit__(self, sizes, first, last):
        self.sizes, self.begins, self.ends = _Buffer(sizes), _Buffer(first), _Buffer(last)
        if len(sizes) > FX_PLACE_BLOCKS_MAX:
            raise ValueError(f"{len(sizes)} blocks are more than {FX_PLACE_BLOCKS_MAX}")
        self.blocks.count = len(sizes)
        self.blocks.bytes = _int64s(self.sizes, self.blocks.count)
        if self.begins.view.len != self.blocks.count * 4 or self.ends.view.len != self.blocks.count * 4:
            raise ValueError("first and last are 32-bit integers, as many as blocks")
        self.blocks.first = <const int32_t *>self.begins.view.buf
        self.blocks.last = <const int32_t *>self.ends.view.buf


def place_order(sizes, first, last, int order, numbers):
    """fx_place_order: fills ``numbers`` (int32); ``order``: below PLACE_ORDERS."""
    cdef _Blocks b = _Blocks(sizes, first, last)
    cdef _Buffer out = _Buffer(numbers, True)
    if out.view.len != b.blocks.count * 4:
        raise ValueError("the order is 32-bit integers, as many as blocks")
    _placed(fx_place_order(&b.blocks, <fx_order>order, <int32_t *>out.view.buf))


def blocks_live(sizes, first, last, live):
    """fx_blocks_live: fills ``live`` (int64, one for each moment)."""
    cdef _Blocks b = _Blocks(sizes, first, last)
    cdef _Buffer out = _Buffer(live, True)
    if len(live) > FX_PLACE_BLOCKS_MAX:
        raise ValueError(f"{len(live)} moments are more than {FX_PLACE_BLOCKS_MAX}")
    _placed(fx_blocks_live(&b.blocks, len(live), <int64_t *>_int64s(out, len(live))))


def blocks_pairs(sizes, first, last):
    """fx_blocks_pairs."""
    cdef _Blocks b = _Blocks(sizes, first, last)
    cdef int64_t pairs
    _placed(fx_blocks_pairs(&b.blocks, &pairs))
    return pairs


def blocks_top(sizes, first, last, address):
    """fx_blocks_top."""
    cdef _Blocks b = _Blocks(sizes, first, last)
    cdef _Buffer at = _Buffer(address)
    return fx_blocks_top(&b.blocks, _int64s(at, b.blocks.count))


def place_in_order(sizes, first, last, order, address, *, bint first_fit=False, hangs=None, int64_t ceiling=0):
    """fx_place_in_order: fills ``address``. ``sizes`` and ``address`` int64, ``first``, ``last``, ``order`` int32,
    ``hangs`` uint8."""
    cdef _Blocks b = _Blocks(sizes, first, last)
    cdef _Buffer sequence = _Buffer(order), out = _Buffer(address, True), sides
    cdef const uint8_t *side = NULL
    cdef fx_status status
    cdef int64_t *where = <int64_t *>_int64s(out, b.blocks.count)
    if sequence.view.len != b.blocks.count * 4:
        raise ValueError("the order is 32-bit integers, as many as blocks")
    if hangs is not None:
        sides = _Buffer(hangs)
        if sides.view.len != b.blocks.count:
            raise ValueError("hangs has one byte for each block")
        side = <const uint8_t *>sides.view.buf
    cdef const int32_t *numbers = <const int32_t *>sequence.view.buf
    cdef fx_fit fit = FX_FIT_FIRST if first_fit else FX_FIT_BEST
    with nogil:
        status = fx_place_in_order(&b.blocks, numbers, side, ceiling, fit, where)
    _placed(status)


def place_by_time(sizes, first, last, address):
    """fx_place_by_time: fills ``address``. Arrays as for ``place_in_order``."""
    cdef _Blocks b = _Blocks(sizes, first, last)
    cdef _Buffer out = _Buffer(address, True)
    cdef int64_t *where = <int64_t *>_int64s(out, b.blocks.count)
    cdef fx_status status
    with nogil:
        status = fx_place_by_time(&b.blocks, where)
    _placed(status)


def place_gaps(sizes, first, last, address, begins, tops, int64_t most):
    """fx_place_gaps: bytes of the gaps (int64 pairs of start and end); fills ``begins`` (int64, a number more than
    there are moments) and ``tops`` (int64, one for each moment)."""
    cdef _Blocks b = _Blocks(sizes, first, last)
    cdef _Buffer at = _Buffer(address), begin = _Buffer(begins, True), above = _Buffer(tops, True)
    cdef const int64_t *where = _int64s(at, b.blocks.count)
    cdef Py_ssize_t moments = len(tops)
    if moments > FX_PLACE_BLOCKS_MAX:
        raise ValueError(f"{moments} moments are more than {FX_PLACE_BLOCKS_MAX}")
    cdef int64_t *own = <int64_t *>_int64s(begin, moments + 1)
    cdef int64_t *top = <int64_t *>_int64s(above, moments)
    cdef fx_gaps gaps = fx_gaps(NULL, 0, 0)
    cdef fx_status status
    own[0] = 0
    try:
        with nogil:
            status = fx_place_gaps(&b.blocks, where, moments, most, own, top, &gaps)
        _placed(status)
        return (<char *>gaps.holes)[:gaps.count * <int64_t>sizeof(fx_hole)] if gaps.count else b""
    finally:
        free(gaps.holes)


def place_search(sizes, first, last, int64_t capacity, int64_t nodes_max, address):
    """fx_place_search: ("some", nodes) with ``address`` filled, ("none", nodes): proven, or ("unknown", nodes)."""
    cdef _Blocks b = _Blocks(sizes, first, last)
    cdef _Buffer out = _Buffer(address, True)
    cdef int64_t *where = <int64_t *>_int64s(out, b.blocks.count)
    cdef fx_found found
    cdef int64_t nodes
    cdef fx_status status
    with nogil:
        status = fx_place_search(&b.blocks, capacity, nodes_max, where, &found, &nodes)
    _placed(status)
    return ("some" if found == FX_FOUND_SOME else "none" if found == FX_FOUND_NONE else "unknown"), nodes


def place_streams(int64_t steps, int64_t arena, int64_t align, fixed, sizes, use, forced, address, wait_steps, *,
                  bint from_top=False, bint is_large=False):
    """fx_place_streams: fills ``address`` and ``wait_steps``. All int64; ``fixed`` [4, blocks]: start, end, first step,
    last step."""
    cdef _Buffer blocks = _Buffer(fixed), bytes_ = _Buffer(sizes), uses = _Buffer(use), only = _Buffer(forced)
    cdef _Buffer out = _Buffer(address, True), waits = _Buffer(wait_steps, True)
    cdef fx_streams p
    cdef fx_status status
    p.steps, p.arena, p.align = steps, arena, align
    p.fixed_count, p.count = fixed.shape[1], len(sizes)
    p.from_top, p.is_large = from_top, is_large
    p.stored, p.interrupt = NULL, NULL
    p.fixed_start = _int64s(blocks, 4 * p.fixed_count)
    p.fixed_end, p.fixed_first = p.fixed_start + p.fixed_count, p.fixed_start + 2 * p.fixed_count
    p.fixed_last = p.fixed_start + 3 * p.fixed_count
    p.bytes, p.use, p.forced = _int64s(bytes_, p.count), _int64s(uses, p.count), _int64s(only, p.count)
    cdef int64_t *where = <int64_t *>_int64s(out, p.count)
    cdef int64_t *wait = <int64_t *>_int64s(waits, p.count)
    with nogil:
        status = fx_place_streams(&p, where, wait)
    _placed(status)
