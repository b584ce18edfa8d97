# Programs for other sizes (flexnn/refit.h), and at other addresses.
from flexnn._core.c_refit cimport *


cdef const void *_items(list buffers, array, size_t size, what, uint32_t *count, bint writable=False) except *:
    """The items of an array, of ``size`` bytes each, and how many; what keeps them is added to ``buffers``."""
    cdef _Buffer buffer = _Buffer(array, writable)
    if <size_t>buffer.view.len % size or <size_t>buffer.view.len // size > 0x7fffffff:
        raise ValueError(f"{what}: {buffer.view.len} bytes are no items of {size}")
    buffers.append(buffer)
    count[0] = <uint32_t>(<size_t>buffer.view.len // size)
    return buffer.view.buf


cdef const void *_counted(list buffers, array, size_t size, what, uint32_t count, bint writable=False) except *:
    """The items of an array of which there are ``count``. ValueError if there are more or fewer."""
    cdef uint32_t found = 0
    cdef const void *items = _items(buffers, array, size, what, &found, writable)
    if found != count:
        raise ValueError(f"{what}: {found} items, not {count}")
    return items


cdef class Refit:
    """A planned program that is taken over to other sizes; arguments as fx_refit names them, arrays of its types.
    ``first``, ``last`` and ``order`` of blocks as for ``place_in_order``, int32. ValueError if an index is wrong."""

    cdef fx_refit refit
    cdef list buffers
    cdef fx_blocks blocks
    cdef const int32_t *order

    def __init__(self, *, nodes, steps, step_counts, offsets, roots, room, working, places, moved, first, last, order,
                 int64_t base, int64_t zeros_count, int threads, bint is_pinned):
        cdef fx_refit *r = &self.refit
        cdef list kept = []
        cdef uint32_t count
        r.nodes = <const fx_node *>_items(kept, nodes, sizeof(fx_node), "nodes", &r.node_count)
        r.steps = <const fx_step *>_items(kept, steps, sizeof(fx_step), "steps", &r.step_count)
        r.step_counts = <const int32_t *>_counted(kept, step_counts, 4, "counts of steps", r.node_count)
        r.offsets = <const int64_t *>_items(kept, offsets, 8, "offsets", &r.tensor_count)
        r.roots = <const int32_t *>_items(kept, roots, 4, "roots", &r.root_count)
        r.room = <const int64_t *>_counted(kept, room, 8, "room", r.root_count)
        r.working = <const int32_t *>_items(kept, working, 4, "working", &r.working_count)
        count = r.root_count + r.working_count
        r.places = <const int64_t *>_counted(kept, places, 8, "places", count)
        r.moved = <const fx_moved *>_items(kept, moved, sizeof(fx_moved), "moved", &r.moved_count)
        r.base, r.zeros_count, r.threads, r.is_pinned = base, zeros_count, threads, is_pinned
        if fx_refit_check(r) != FX_OK:
            raise ValueError("an index of a refit is out of range")
        self.blocks.count = count
        self.blocks.first = <const int32_t *>_counted(kept, first, 4, "first moments", count)
        self.blocks.last = <const int32_t *>_counted(kept, last, 4, "last moments", count)
        self.order = <const int32_t *>_counted(kept, order, 4, "the order", count)
        self.buffers = kept

    def at(self, params, nbytes, offsets, chosen, nodes, steps, alike=None):
        """Fill ``nodes`` and ``steps`` for other sizes: ``params`` int32 [nodes, PARAM_WORDS], ``nbytes`` and ``offsets``
        int64 [tensors], ``chosen`` int32 [3, number]: nodes that get other kernels, these, and their tile blocks. With
        ``alike``, sizes are those of another graph, whose tensors it tells (fx_likeness): ``order`` and ``also``, int64.
        Return the bytes of the working part, -1 where these sizes need another plan; and the number of words in which
        nodes and steps differ from the plan's."""
        cdef fx_refit *r = &self.refit
        cdef fx_likeness like
        cdef fx_sizes s
        cdef fx_status status
        cdef int fits = 1
        cdef uint32_t count = 0
        cdef int64_t end
        cdef list kept = []
        cdef const fx_kernels *kernels = _kernels(None)
        if self.buffers is None:
            raise ValueError("the refit was not made")
        cdef int64_t block_count = self.blocks.count, tensor_count = r.tensor_count
        cdef bytearray spare = bytearray(8 * (2 * block_count + 2 * tensor_count + 1))
        cdef int64_t *blocks = <int64_t *><char *>spare
        cdef int64_t *address = blocks + block_count
        cdef int64_t *own = address + block_count
        s.params = <const fx_params *>_counted(kept, params, sizeof(fx_params), "params", r.node_count)
        s.nbytes = <const int64_t *>_items(kept, nbytes, 8, "nbytes", &like.count)
        s.offsets = <const int64_t *>_counted(kept, offsets, 8, "offsets", like.count)
        s.chosen = <const int32_t *>_items(kept, chosen, 12, "chosen", &s.chosen_count)
        s.kernels, s.tile_blocks = s.chosen + s.chosen_count, s.chosen + 2 * s.chosen_count
        cdef fx_node *made = <fx_node *>_counted(kept, nodes, sizeof(fx_node), "nodes", r.node_count, True)
        cdef fx_step *run = <fx_step *>_counted(kept, steps, sizeof(fx_step), "steps", r.step_count, True)
        if alike is not None:
            like.order = <const int64_t *>_counted(kept, alike[0], 8, "the order of tensors", r.tensor_count)
            like.also = <const int64_t *>_items(kept, alike[1], 16, "pairs of tensors", &like.pair_count)
            if fx_refit_order(r, &like, s.nbytes, s.offsets, own, own + tensor_count, &fits) != FX_OK:
                raise ValueError("a tensor that is told is out of range")
            s.nbytes, s.offsets = own, own + tensor_count
        elif like.count != r.tensor_count:
            raise ValueError(f"nbytes: {like.count} items, not {r.tensor_count}")
        if not fits:
            return -1, 0
        with nogil:
            status = fx_refit_nodes(r, kernels, &s, made, blocks, &fits)
        if status != FX_OK:
            raise ValueError("a kernel is chosen for another node than a convolution")
        if not fits:
            return -1, 0
        cdef fx_blocks placed = self.blocks
        cdef const int64_t *places = r.places
        if r.is_pinned and block_count:
            placed.bytes, places = blocks, address
            with nogil:
                status = fx_place_in_order(&placed, self.order, NULL, 0, FX_FIT_BEST, address)
            _placed(status)
        with nogil:
            end = fx_refit_places(r, &s, blocks, places, made, run)
        return end, fx_refit_edits(r, made, run) if end >= 0 else 0


def relocate(nodes, steps, pinned, loads, int64_t split, int64_t front, int64_t rest):
    """Move the addresses in tables of a program: those below arena offset ``split`` by ``front``, others by ``rest``."""
    cdef fx_movable p
    cdef list kept = []
    p.nodes = <fx_node *>_items(kept, nodes, sizeof(fx_node), "nodes", &p.node_count, True)
    p.steps = <fx_step *>_items(kept, steps, sizeof(fx_step), "steps", &p.step_count, True)
    p.pinned = <fx_load *>_items(kept, pinned, sizeof(fx_load), "pinned", &p.pinned_count, True)
    p.loads = <fx_load *>_items(kept, loads, sizeof(fx_load), "loads", &p.load_count, True)
    with nogil:
        fx_relocate(&p, split, front, rest)
