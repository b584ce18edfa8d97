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


def trail_replay(operations, conditions, values, givens=None, given=()):
    """fx_trail_replay: fills ``values`` (int64), those at indices ``givens`` (int32) with the numbers that are ``given``;
    whether every condition holds. ``operations`` and ``conditions`` are int32 [rows, 4]. ValueError if a row is
    malformed, or an index; OverflowError for a number that 64 bits do not hold."""
    cdef _Buffer rows = _Buffer(operations), decisions = _Buffer(conditions), numbers = _Buffer(values, True)
    cdef _Buffer places
    cdef fx_trail trail
    cdef fx_status status
    cdef int holds = 0
    cdef Py_ssize_t i, index
    cdef int64_t *filled = <int64_t *>numbers.view.buf
    if givens is not None:
        places = _Buffer(givens)
        if places.view.len != 4 * <Py_ssize_t>len(given):
            raise ValueError("there are more or fewer numbers than are given")
        for i, number in enumerate(given):
            index = (<const int32_t *>places.view.buf)[i]
            if index < 0 or 8 * (index + 1) > numbers.view.len:
                raise ValueError("the index of a number that is given is out of range")
            filled[index] = number
    if rows.view.len % (4 * FX_TRAIL_ROW) or decisions.view.len % (4 * FX_TRAIL_ROW) or numbers.view.len % 8:
        raise ValueError("a trail has rows of four 32-bit integers, and 64-bit numbers")
    trail.operations, trail.operation_count = <const int32_t *>rows.view.buf, rows.view.len // (4 * FX_TRAIL_ROW)
    trail.conditions = <const int32_t *>decisions.view.buf
    trail.condition_count = decisions.view.len // (4 * FX_TRAIL_ROW)
    trail.value_count = numbers.view.len // 8
    with nogil:
        status = fx_trail_replay(&trail, filled, &holds)
    if status != FX_OK:
        raise ValueError(f"trail: {fx_status_text(status).decode()}")
    return bool(holds)


cdef class _Columns:
    """fx_extents over arrays: shapes and strides, int32 [tensors, rank]; offsets and roots, int32; widths, int64."""

    cdef list buffers
    cdef fx_extents e

    def __cinit__(self, columns):
        cdef _Buffer shapes, strides, offsets, roots, widths
        self.buffers = [_Buffer(column) for column in columns]
        shapes, strides, offsets, roots, widths = self.buffers
        self.e.count = widths.view.len // 8
        self.e.rank = shapes.view.len // (4 * self.e.count) if self.e.count else 0
        if (widths.view.len != 8 * self.e.count or shapes.view.len != 4 * self.e.count * self.e.rank
                or strides.view.len != shapes.view.len or offsets.view.len != 4 * self.e.count
                or roots.view.len != 4 * self.e.count):
            raise ValueError("arrays of other lengths than the tensors have")
        self.e.shapes, self.e.strides = <const int32_t *>shapes.view.buf, <const int32_t *>strides.view.buf
        self.e.offsets, self.e.roots = <const int32_t *>offsets.view.buf, <const int32_t *>roots.view.buf
        self.e.widths = <const int64_t *>widths.view.buf


def trail_extents(columns, values, nbytes, starts):
    """fx_trail_extents: fills ``nbytes`` and ``starts`` (int64, at least one for each tensor); whether these are sizes
    of tensors. ``columns``: shapes and strides, int32 [tensors, rank]; offsets and roots, int32; widths, int64.
    ValueError if an index is out of range."""
    cdef _Columns c = _Columns(columns)
    cdef _Buffer numbers = _Buffer(values), sizes = _Buffer(nbytes, True), places = _Buffer(starts, True)
    cdef fx_status status
    cdef int holds = 0
    c.e.value_count = numbers.view.len // 8
    if numbers.view.len != 8 * c.e.value_count or sizes.view.len < 8 * c.e.count or places.view.len < 8 * c.e.count:
        raise ValueError("arrays of other lengths than the tensors have")
    with nogil:
        status = fx_trail_extents(&c.e, <const int64_t *>numbers.view.buf, <int64_t *>sizes.view.buf,
                                  <int64_t *>places.view.buf, &holds)
    if status != FX_OK:
        raise ValueError(f"trail: {fx_status_text(status).decode()}")
    return bool(holds)


def check_told(columns, floats, order, also, ports, int64_t value_count):
    """fx_told_check, for trails of so many values. ``columns`` as for trail_extents; ``floats`` and ``ports`` int32,
    ``order`` and ``also`` int64. ValueError where something is wrong."""
    cdef _Columns c = _Columns(columns)
    cdef _Buffer barred = _Buffer(floats), first = _Buffer(order), more = _Buffer(also), owners = _Buffer(ports)
    cdef fx_told told
    cdef fx_status status
    c.e.value_count = value_count
    told.extents = c.e
    told.floats, told.float_count = <const int32_t *>barred.view.buf, barred.view.len // 4
    told.order, told.order_count = <const int64_t *>first.view.buf, first.view.len // 8
    told.also, told.also_count = <const int64_t *>more.view.buf, more.view.len // 8
    told.ports, told.port_count = <const int32_t *>owners.view.buf, owners.view.len // 4
    with nogil:
        status = fx_told_check(&told)
    if status == FX_ERR_MEMORY:
        raise MemoryError
    if status != FX_OK:
        raise ValueError("a tensor that is told is out of range, has a float as a size, or is no owner of its storage")


def trail_params(words, values, int64_t row_count, params=None):
    """fx_trail_params: fills those of ``params`` (int32 [row_count, PARAM_WORDS]) that are sizes; None: nothing is
    filled. Whether 32 bits hold them. ``words``: rows, columns and indices, int32 [3, number]; ``values``: int64.
    ValueError if one is out of range."""
    cdef _Buffer places = _Buffer(words), numbers = _Buffer(values), filled
    cdef fx_trail_words w
    cdef fx_status status
    cdef int32_t *out = NULL
    cdef int holds = 0
    if places.view.len % 12 or numbers.view.len % 8 or row_count < 0:
        raise ValueError("words have three 32-bit integers each, and numbers 64 bits")
    w.count, w.value_count = places.view.len // 12, numbers.view.len // 8
    w.rows = <const int32_t *>places.view.buf
    w.columns, w.indices = w.rows + w.count, w.rows + 2 * w.count
    w.row_count, w.row_words = row_count, FX_PARAM_WORDS
    if params is not None:
        filled = _Buffer(params, True)
        if filled.view.len != 4 * FX_PARAM_WORDS * row_count:
            raise ValueError("there are other parameters than rows")
        out = <int32_t *>filled.view.buf
    with nogil:
        status = fx_trail_params(&w, <const int64_t *>numbers.view.buf, out, &holds)
    if status != FX_OK:
        raise ValueError(f"trail: {fx_status_text(status).decode()}")
    return bool(holds)


def trail_pack(members, ends, parts, nbytes, starts):
    """fx_trail_pack: changes what trail_extents filled, and fills one more for each of ``ends``. Arrays of int32 and
    int64. ValueError if an index is out of range."""
    cdef _Buffer inner = _Buffer(members), last = _Buffer(ends), views = _Buffer(parts)
    cdef _Buffer sizes = _Buffer(nbytes, True), places = _Buffer(starts, True)
    cdef fx_packed p
    cdef fx_status status
    p.members, p.member_count = <const int32_t *>inner.view.buf, inner.view.len // 4
    p.ends, p.group_count = <const int32_t *>last.view.buf, last.view.len // 4
    p.parts, p.part_count = <const int32_t *>views.view.buf, views.view.len // 8
    p.count = sizes.view.len // 8 - p.group_count
    if p.count < 0 or sizes.view.len != places.view.len:
        raise ValueError("arrays of other lengths than the tensors have")
    with nogil:
        status = fx_trail_pack(&p, <int64_t *>sizes.view.buf, <int64_t *>places.view.buf)
    if status != FX_OK:
        raise ValueError(f"trail: {fx_status_text(status).decode()}")
