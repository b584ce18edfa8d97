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
