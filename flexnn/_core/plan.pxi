# The planner's hot loops: drafts of plans, addresses of streams, the bound.
from flexnn._core.c_plan cimport *

CONSTANTS_MAX = FX_CONSTANTS_MAX
ROUNDS_MAX = FX_ROUNDS_MAX


cdef class Drafts:
    """What kernels, slices and pins make of one graph (draft.h). Tables as records: ``layers``, ``variants``,
    ``constants``, ``gaps``, ``items``, ``held``. ``choices``, where a method takes them, are records of CHOICE_DTYPE, one
    for each layer; a method that changes them says so. ValueError for tables that do not fit together."""

    cdef fx_problem problem
    cdef fx_draft draft
    cdef tuple buffers

    def __cinit__(self, *, layers, variants, constants, gaps, items, held, int64_t io_align, int64_t step_bytes,
                  double storage_bytes_per_second, double request_s, double compute_share=1.0,
                  double load_share=1.0):
        cdef _Buffer layer_buffer = _records(layers, sizeof(fx_layer), "layers")
        cdef _Buffer variant_buffer = _records(variants, sizeof(fx_variant), "variants")
        cdef _Buffer constant_buffer = _records(constants, sizeof(fx_constant), "constants")
        cdef _Buffer gap_buffer = _records(gaps, sizeof(fx_gap), "gaps")
        cdef _Buffer item_buffer = _records(items, sizeof(fx_item), "items")
        cdef _Buffer held_buffer = _records(held, sizeof(fx_held), "held ranges")
        cdef fx_problem *p = &self.problem
        self.buffers = (layer_buffer, variant_buffer, constant_buffer, gap_buffer, item_buffer, held_buffer)
        p.layers, p.layer_count = <const fx_layer *>layer_buffer.view.buf, len(layers)
        p.variants, p.variant_count = <const fx_variant *>variant_buffer.view.buf, len(variants)
        p.constants, p.constant_count = <const fx_constant *>constant_buffer.view.buf, len(constants)
        p.gaps, p.gap_count = <const fx_gap *>gap_buffer.view.buf, len(gaps)
        p.items, p.item_count = <const fx_item *>item_buffer.view.buf, len(items)
        p.held, p.held_count = <const fx_held *>held_buffer.view.buf, len(held)
        p.io_align, p.step_bytes = io_align, step_bytes
        p.storage_bytes_per_second, p.request_s = storage_bytes_per_second, request_s
        p.compute_share, p.load_share = compute_share, load_share
        _plan_check(fx_problem_check(p))

    def __dealloc__(self):
        fx_draft_free(&self.draft)

    def release(self):
        """Frees what drafts are made in; the next method that makes one takes it again."""
        fx_draft_free(&self.draft)

    cdef int _take(self) except -1:
        if not self.draft.steps:
            _plan_check(fx_draft_make(&self.draft, &self.problem))
        return 0

    cdef _Buffer _choices(self, choices, bint writable, bint given=True):
        cdef _Buffer buffer = _Buffer(choices, writable)
        if buffer.view.len != <Py_ssize_t>(self.problem.layer_count * sizeof(fx_choice)):
            raise ValueError(f"choices have {buffer.view.len} bytes, not "
                             f"{self.problem.layer_count * sizeof(fx_choice)}")
        if given and not fx_choices_fit(&self.problem, <const fx_choice *>buffer.view.buf):
            raise ValueError("a choice names no variant, or more panels than there are")
        return buffer

    cdef tuple _outcome(self, int64_t region):
        return self.draft.seconds, self.draft.stall_s, fx_draft_bytes(&self.draft, &self.problem, region)

    def choose(self, choices, order, int64_t region, int64_t memory, int share, bint smallest=False):
        """Writes ``choices`` (fx_choose); (seconds, stall seconds, bytes) of their draft without addresses."""
        cdef _Buffer given = self._choices(choices, True, False)
        cdef _Buffer ranks = _Buffer(order)
        cdef const int32_t *rank = <const int32_t *>ranks.view.buf
        cdef uint32_t i
        if ranks.view.len != <Py_ssize_t>(self.problem.item_count * sizeof(int32_t)) or share < 1:
            raise ValueError("order is not int32 for each item, or share below 1")
        for i in range(self.problem.item_count):
            if rank[i] < 0 or <uint32_t>rank[i] >= self.problem.item_count:
                raise ValueError(f"order names item {rank[i]}")
        self._take()
        with nogil:
            fx_choose(&self.draft, &self.problem, rank, region, memory, share, smallest, <fx_choice *>given.view.buf)
        return self._outcome(region)

    def improve(self, choices, int64_t region, int64_t memory, int tries):
        """Changes ``choices`` for the better (fx_improve); (seconds, stall seconds, bytes) as ``choose``."""
        cdef _Buffer given = self._choices(choices, True)
        self._take()
        with nogil:
            fx_improve(&self.draft, &self.problem, <fx_choice *>given.view.buf, region, memory, tries)
        return self._outcome(region)

    def anneal(self, choices, int64_t region, int64_t memory, int tries):
        """Changes ``choices`` for the better (fx_anneal): the region and whether places are from above; None, and
        nothing changed, where they have no places in ``memory``."""
        cdef _Buffer given = self._choices(choices, True)
        cdef int top = 0
        cdef fx_status status
        self._take()
        with nogil:
            status = fx_anneal(&self.draft, &self.problem, <fx_choice *>given.view.buf, &region, &top, memory, tries)
        if status == FX_ERR_BOUNDS:
            return None
        _plan_check(status)
        return region, bool(top)

    def place(self, choices, int64_t region, bint from_top=False, double below=INFINITY):
        """The draft of ``choices`` with addresses (fx_draft_place): (seconds, stall seconds, bytes), and bytes of the
        arrays of steps (fx_step_draft), pieces (fx_piece_draft), pieces' addresses and layers' addresses (int64). None
        where its run does not take less than ``below`` seconds."""
        cdef _Buffer given = self._choices(choices, False)
        cdef const fx_choice *chosen = <const fx_choice *>given.view.buf
        cdef fx_status status
        cdef int64_t *layer_address
        self._take()
        cdef Py_ssize_t rows = self.draft.piece_max + (1 + FX_CONSTANTS_MAX) * <Py_ssize_t>self.problem.layer_count
        cdef int64_t *address = <int64_t *>malloc(sizeof(int64_t) * (rows + 1))
        if not address:
            raise MemoryError()
        try:
            layer_address = address + self.draft.piece_max
            with nogil:
                fx_draft_build(&self.draft, &self.problem, chosen, region)
                status = fx_draft_place(&self.draft, &self.problem, chosen, region, from_top, address, layer_address)
            _plan_check(status)
            if self.draft.seconds >= below:
                return None
            return (self._outcome(region), *self._arrays(), (<char *>address)[:8 * self.draft.piece_count],
                    (<char *>layer_address)[:8 * (1 + FX_CONSTANTS_MAX) * <Py_ssize_t>self.problem.layer_count])
        finally:
            free(address)

    def fill(self, steps, pieces, order, int64_t region, int64_t nbytes, int64_t most, int looks):
        """Pins more ``pieces`` of a draft that ``place`` made, in ``order`` (int32, indices of streamed pieces, which
        changes) while ``nbytes`` last (fx_fill): outcome and bytes of steps and pieces, as ``place``."""
        cdef _Buffer step_buffer = _Buffer(steps)
        cdef _Buffer piece_buffer = _Buffer(pieces)
        cdef _Buffer rank_buffer = _Buffer(order, True)
        cdef int32_t *rank = <int32_t *>rank_buffer.view.buf
        cdef Py_ssize_t step_count = step_buffer.view.len // <Py_ssize_t>sizeof(fx_step_draft)
        cdef Py_ssize_t piece_count = piece_buffer.view.len // <Py_ssize_t>sizeof(fx_piece_draft)
        cdef uint32_t count = rank_buffer.view.len // <Py_ssize_t>sizeof(int32_t)
        self._take()
        if step_count > self.draft.step_max or piece_count > self.draft.piece_max:
            raise ValueError("more steps or pieces than the graph can have")
        memcpy(self.draft.steps, step_buffer.view.buf, step_count * sizeof(fx_step_draft))
        memcpy(self.draft.pieces, piece_buffer.view.buf, piece_count * sizeof(fx_piece_draft))
        self.draft.step_count, self.draft.piece_count = step_count, piece_count
        if not fx_draft_sane(&self.draft, rank, count) or count > self.draft.piece_count:
            raise ValueError("a wait, a count or an index is out of range")
        with nogil:
            fx_fill(&self.draft, &self.problem, rank, count, nbytes, most, looks)
        return self._outcome(region), *self._arrays()

    cdef tuple _arrays(self):
        steps = (<char *>self.draft.steps)[:self.draft.step_count * sizeof(fx_step_draft)]
        pieces = (<char *>self.draft.pieces)[:self.draft.piece_count * sizeof(fx_piece_draft)]
        return steps, pieces


cdef int _plan_check(fx_status status) except -1:
    if status == FX_ERR_MEMORY:
        raise MemoryError()
    if status != FX_OK:
        raise ValueError(f"planning: {fx_status_text(status).decode()}")
    return 0


def fluid_bound(seconds, nbytes, read_s, byte_s, free_bytes, double bytes_per_second, double compute_share=1.0,
                double load_share=1.0, int rounds=FX_ROUNDS_MAX):
    """(seconds, price of each node) from float64, int64, float64, float64, int64 of each node (fluid.h)."""
    cdef _Buffer second_buffer = _Buffer(seconds), byte_buffer = _Buffer(nbytes)
    cdef _Buffer read_buffer = _Buffer(read_s), rate_buffer = _Buffer(byte_s), free_buffer = _Buffer(free_bytes)
    cdef fx_fluid f
    cdef double bound = 0.0
    cdef fx_status status
    f.count = len(seconds)
    for buffer in (second_buffer, byte_buffer, read_buffer, rate_buffer, free_buffer):
        if (<_Buffer>buffer).view.len != <Py_ssize_t>(f.count * 8):
            raise ValueError("arrays of different lengths, or not of 64-bit numbers")
    if not (bytes_per_second > 0 and 0 < compute_share <= 1 and 0 < load_share <= 1):
        raise ValueError("no rate, or a share that is none")
    f.seconds = <const double *>second_buffer.view.buf
    f.bytes = <const int64_t *>byte_buffer.view.buf
    f.read_s = <const double *>read_buffer.view.buf
    f.byte_s = <const double *>rate_buffer.view.buf
    f.free_bytes = <const int64_t *>free_buffer.view.buf
    f.bytes_per_second, f.compute_share, f.load_share = bytes_per_second, compute_share, load_share
    f.rounds = rounds
    price = memoryview(bytearray(sizeof(double) * f.count)).cast("d")
    cdef _Buffer price_buffer = _Buffer(price, True)
    with nogil:
        status = fx_fluid_bound(&f, &bound, <double *>price_buffer.view.buf)
    _plan_check(status)
    return bound, price
