# Bands of rows (flexnn/planning/bands.py).
from flexnn._core.c_bands cimport *


BANDS_BARRED, BANDS_NO_START, BANDS_NO_END = FX_BANDS_BARRED, FX_BANDS_NO_START, FX_BANDS_NO_END


cdef _told_pairs(const fx_band_pair *pairs, int64_t count):
    return tuple([(pairs[i].ends, pairs[i].grows, pairs[i].shift, pairs[i].nbytes) for i in range(count)])


cdef class _BandGraph:
    """Tables of nodes, uses and roots (int64, a row each), as flexnn/bands.h has them."""

    cdef _Buffer nodes, uses, roots
    cdef fx_band_graph graph

    def __init__(self, nodes, uses, roots):
        self.nodes, self.uses, self.roots = _Buffer(nodes), _Buffer(uses), _Buffer(roots)
        for table, size in ((self.nodes, sizeof(fx_band_node)), (self.uses, sizeof(fx_band_use)),
                            (self.roots, sizeof(fx_band_root))):
            if (<_Buffer>table).view.len % <Py_ssize_t>size:
                raise ValueError("tables of other widths than bands have")
        self.graph.nodes = <const fx_band_node *>self.nodes.view.buf
        self.graph.uses = <const fx_band_use *>self.uses.view.buf
        self.graph.roots = <const fx_band_root *>self.roots.view.buf
        self.graph.node_count = self.nodes.view.len // <Py_ssize_t>sizeof(fx_band_node)
        self.graph.use_count = self.uses.view.len // <Py_ssize_t>sizeof(fx_band_use)
        self.graph.root_count = self.roots.view.len // <Py_ssize_t>sizeof(fx_band_root)


def bands_find(tables, limits, enough, worst, barred, memo=None):
    """fx_bands_find: (first, last, bands, need_bytes, added_work, pairs) of the best bands around node ``worst``, None
    where there are none; and the least work that was refused. ``tables``: nodes, uses, roots; ``limits``: the integers
    of fx_band_limits; ``barred``: a byte for each node; ``memo``: zeros (int64 [a power of two, 4]), which the searches
    of one graph share. A pair is (root that ends, root that grows, shift, bytes)."""
    cdef _BandGraph graph = _BandGraph(*tables)
    cdef _Buffer closed = _Buffer(barred)
    cdef _Buffer known = _Buffer(b"" if memo is None else memo, memo is not None)
    cdef int64_t room = known.view.len // <Py_ssize_t>sizeof(fx_band_memo)
    cdef fx_band_limits most
    cdef fx_status status
    cdef int64_t node = worst
    cdef fx_band_found pairs
    if closed.view.len != graph.graph.node_count:
        raise ValueError("a byte for each node")
    if room & (room - 1) or known.view.len % <Py_ssize_t>sizeof(fx_band_memo):
        raise ValueError("a memo of a power of two")
    most.nodes_max, most.bands_max, most.added_work_max, most.node_bytes, most.floor_bytes = limits[:5]
    most.counts_others, most.below_bytes = limits[5:]
    most.enough = enough
    with nogil:
        status = fx_bands_find(&graph.graph, &most, node, <const uint8_t *>closed.view.buf,
                               <fx_band_memo *>known.view.buf, room, &pairs)
    if status != FX_OK:
        raise MemoryError("bands")
    if not pairs.choice.bands:
        return None, pairs.refused_work
    told, found = _told_pairs(pairs.pairs, pairs.count), pairs.choice
    return (found.first, found.last, found.bands, found.need_bytes, found.added_work, told), pairs.refused_work


def bands_rows(tables, first, last, bands, may_pair, rows):
    """fx_bands_rows: fills ``rows`` (int64 [bands, nodes, 2]) and returns the pairs (see bands_find); ValueError where
    these nodes have no bands."""
    cdef _BandGraph graph = _BandGraph(*tables)
    cdef _Buffer filled = _Buffer(rows, True)
    cdef fx_band_choice choice
    cdef fx_status status
    cdef int64_t may
    cdef fx_band_found pairs
    choice.first, choice.last, choice.bands = first, last, bands
    may = may_pair
    if not 0 <= first <= last < graph.graph.node_count or bands < 1 or (
            filled.view.len != 16 * bands * (last - first + 1)):
        raise ValueError("rows for each band and node")
    with nogil:
        status = fx_bands_rows(&graph.graph, &choice, may, <int64_t *>filled.view.buf, &pairs)
    if status == FX_ERR_MEMORY:
        raise MemoryError("bands")
    if status != FX_OK:
        raise ValueError("these nodes have no bands")
    return _told_pairs(pairs.pairs, pairs.count)
