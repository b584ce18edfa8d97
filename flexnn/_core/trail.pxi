# Trails (flexnn/graph/sizes.py), done again for other numbers.
from flexnn._core.c_trail cimport *


def _names_of_functions():
    cdef int i = 0
    names = []
    while fx_trail_function_name(i) != NULL:
        names.append(fx_trail_function_name(i).decode())
        i += 1
    return tuple(names)


TRAIL_FUNCTIONS = _names_of_functions()
TRAIL_FLOATS = (FX_TRAIL_FLOAT_A, FX_TRAIL_FLOAT_B)


def trail_replay(operations, conditions, values):
    """fx_trail_replay: fills ``values`` (int64); whether every condition holds. ``operations`` and ``conditions`` are
    int32 [rows, 4]. ValueError if a row is malformed."""
    cdef _Buffer rows = _Buffer(operations), decisions = _Buffer(conditions), numbers = _Buffer(values, True)
    cdef fx_trail trail
    cdef fx_status status
    cdef int holds = 0
    if rows.view.len % (4 * FX_TRAIL_ROW) or decisions.view.len % (4 * FX_TRAIL_ROW) or numbers.view.len % 8:
        raise ValueError("a trail has rows of four 32-bit integers, and 64-bit numbers")
    trail.operations, trail.operation_count = <const int32_t *>rows.view.buf, rows.view.len // (4 * FX_TRAIL_ROW)
    trail.conditions = <const int32_t *>decisions.view.buf
    trail.condition_count = decisions.view.len // (4 * FX_TRAIL_ROW)
    trail.value_count = numbers.view.len // 8
    with nogil:
        status = fx_trail_replay(&trail, <int64_t *>numbers.view.buf, &holds)
    if status != FX_OK:
        raise ValueError(f"trail: {fx_status_text(status).decode()}")
    return bool(holds)


def trail_extents(columns, values, nbytes, starts):
    """fx_trail_extents: fills ``nbytes`` and ``starts`` (int64, one for each tensor); whether these are sizes of
    tensors. ``columns``: shapes and strides, int32 [tensors, rank]; offsets and roots, int32; widths, int64. ValueError
    if an index is out of range."""
    cdef _Buffer shapes = _Buffer(columns[0]), strides = _Buffer(columns[1]), offsets = _Buffer(columns[2])
    cdef _Buffer roots = _Buffer(columns[3]), widths = _Buffer(columns[4]), numbers = _Buffer(values)
    cdef _Buffer sizes = _Buffer(nbytes, True), places = _Buffer(starts, True)
    cdef fx_extents e
    cdef fx_status status
    cdef int holds = 0
    e.count = widths.view.len // 8
    e.rank = shapes.view.len // (4 * e.count) if e.count else 0
    e.value_count = numbers.view.len // 8
    if (widths.view.len != 8 * e.count or shapes.view.len != 4 * e.count * e.rank
            or strides.view.len != shapes.view.len or offsets.view.len != 4 * e.count
            or roots.view.len != 4 * e.count or numbers.view.len != 8 * e.value_count
            or sizes.view.len != 8 * e.count or places.view.len != 8 * e.count):
        raise ValueError("arrays of other lengths than the tensors have")
    e.shapes, e.strides = <const int32_t *>shapes.view.buf, <const int32_t *>strides.view.buf
    e.offsets, e.roots = <const int32_t *>offsets.view.buf, <const int32_t *>roots.view.buf
    e.widths = <const int64_t *>widths.view.buf
    with nogil:
        status = fx_trail_extents(&e, <const int64_t *>numbers.view.buf, <int64_t *>sizes.view.buf,
                                  <int64_t *>places.view.buf, &holds)
    if status != FX_OK:
        raise ValueError(f"trail: {fx_status_text(status).decode()}")
    return bool(holds)
