# The planner's hot loops: drafts of plans, addresses of streams, the bound.
from flexnn._core.c_plan cimport *

CONSTANTS_MAX = FX_CONSTANTS_MAX
ROUNDS_MAX = FX_ROUNDS_MAX

_add_records(fx_planner_records)


cdef class Drafts:
    """Drafts of one graph (flexnn/draft.h). Tables are records: ``nodes``, ``variants``, ``constants``, ``gaps``,
    ``items`` and ``lifetimes``. ``choices`` are records of CHOICE_DTYPE, one for each node; a method that changes them
    says so. ``bytes_max``: most bytes of a draft (fx_draft_bytes). ValueError for tables that do not fit together."""

    cdef fx_problem problem
    cdef fx_draft draft
    cdef tuple buffers

    def __cinit__(self, *, nodes, variants, constants, gaps, items, lifetimes, int64_t io_align, int64_t step_bytes,
                  double storage_bytes_per_second, double request_s, double latency_s=0.0,
                  double compute_speed=1.0, double load_speed=1.0):
        cdef _Buffer node_buffer = _records(nodes, sizeof(fx_draft_node), "nodes")
        cdef _Buffer variant_buffer = _records(variants, sizeof(fx_variant), "variants")
        cdef _Buffer constant_buffer = _records(constants, sizeof(fx_constant), "constants")
        cdef _Buffer gap_buffer = _records(gaps, sizeof(fx_gap), "gaps")
        cdef _Buffer item_buffer = _records(items, sizeof(fx_item), "items")
        cdef _Buffer lifetime_buffer = _records(lifetimes, sizeof(fx_lifetime), "lifetimes")
        cdef fx_problem *p = &self.problem
        self.buffers = (node_buffer, variant_buffer, constant_buffer, gap_buffer, item_buffer, lifetime_buffer)
        p.nodes, p.node_count = <const fx_draft_node *>node_buffer.view.buf, len(nodes)
        p.variants, p.variant_count = <const fx_variant *>variant_buffer.view.buf, len(variants)
        p.constants, p.constant_count = <const fx_constant *>constant_buffer.view.buf, len(constants)
        p.gaps, p.gap_count = <const fx_gap *>gap_buffer.view.buf, len(gaps)
        p.items, p.item_count = <const fx_item *>item_buffer.view.buf, len(items)
        p.lifetimes, p.lifetime_count = <const fx_lifetime *>lifetime_buffer.view.buf, len(lifetimes)
        p.io_align, p.step_bytes = io_align, step_bytes
        p.storage_bytes_per_second, p.request_s = storage_bytes_per_second, request_s
        p.latency_s, p.compute_speed = latency_s, compute_speed
        p.load_speed = load_speed
        _plan_check(fx_problem_check(p))
        cdef uint32_t i
        named = bytearray(p.item_count)
        for i in range(p.item_count):
            if named[p.items[i].twin]:
                raise ValueError(f"two items name {p.items[i].twin} as their twin")
            named[p.items[i].twin] = 1
            p.has_twins = p.has_twins or p.items[i].twin != i

    def __dealloc__(self):
        fx_draft_free(&self.draft)

    def release(self):
        """Free the memory that drafts are made in; the next method that makes one takes it again."""
        fx_draft_free(&self.draft)

    cdef int _take(self) except -1:
        if not self.draft.steps:
            _plan_check(fx_draft_make(&self.draft, &self.problem))
        return 0

    cdef _Buffer _choices(self, choices, bint writable, bint given=True):
        cdef _Buffer buffer = _Buffer(choices, writable)
        if buffer.view.len != <Py_ssize_t>(self.problem.node_count * sizeof(fx_choice)):
            raise ValueError(f"choices have {buffer.view.len} bytes, not "
                             f"{self.problem.node_count * sizeof(fx_choice)}")
        if given and not fx_choices_fit(&self.problem, <const fx_choice *>buffer.view.buf):
            raise ValueError("a choice names no variant, or more panels than there are")
        return buffer

    cdef tuple _outcome(self, int64_t working_bytes):
        return self.draft.seconds, self.draft.stall_s, fx_draft_bytes(&self.draft, &self.problem, working_bytes)

    def choose(self, choices, order, int64_t working_bytes, int64_t bytes_max, int slices_in_room,
               bint smallest=False):
        """Write ``choices`` (fx_choose); return (seconds, stall seconds, bytes) of their draft without addresses."""
        cdef _Buffer given = self._choices(choices, True, False)
        cdef _Buffer ranks = _Buffer(order)
        cdef const int32_t *rank = <const int32_t *>ranks.view.buf
        cdef fx_recipe recipe = fx_recipe(rank, working_bytes, bytes_max, slices_in_room, smallest)
        cdef uint32_t i
        if ranks.view.len != <Py_ssize_t>(self.problem.item_count * sizeof(int32_t)) or slices_in_room < 1:
            raise ValueError("order is not int32 for each item, or slices_in_room is below 1")
        for i in range(self.problem.item_count):
            if rank[i] < 0 or <uint32_t>rank[i] >= self.problem.item_count:
                raise ValueError(f"order names item {rank[i]}")
        self._take()
        with nogil:
            fx_choose(&self.draft, &self.problem, &recipe, <fx_choice *>given.view.buf)
        return self._outcome(working_bytes)

    def improve(self, choices, int64_t working_bytes, int64_t bytes_max, int tries):
        """Change ``choices`` for the better (fx_improve); return (seconds, stall seconds, bytes) as ``choose``."""
        cdef _Buffer given = self._choices(choices, True)
        self._take()
        with nogil:
            fx_improve(&self.draft, &self.problem, <fx_choice *>given.view.buf, working_bytes, bytes_max, tries)
        return self._outcome(working_bytes)

    def anneal(self, choices, int64_t working_bytes, int64_t bytes_max, int tries):
        """Change ``choices`` for the better (fx_anneal). Return bytes of the working part, and whether places are from above;
        None, and nothing changed, where they have no places in ``bytes_max``."""
        cdef _Buffer given = self._choices(choices, True)
        cdef int top = 0
        cdef fx_status status
        self._take()
        with nogil:
            status = fx_anneal(&self.draft, &self.problem, <fx_choice *>given.view.buf, &working_bytes, &top,
                               bytes_max, tries)
        if status == FX_ERR_BOUNDS:
            return None
        _plan_check(status)
        return working_bytes, bool(top)

    def place(self, choices, int64_t working_bytes, bint from_top=False, below=None):
        """The draft of ``choices`` with addresses (fx_draft_place): (seconds, stall seconds, bytes), and bytes of the
        arrays of steps (fx_draft_step), slices (fx_draft_slice), slices' addresses and nodes' addresses (int64). None
        where its run does not take less than ``below`` seconds, or, if there is such a limit, where something has no
        place. Ctrl-C ends it within some ms."""
        cdef double limit = INFINITY if below is None else below
        cdef _Buffer given = self._choices(choices, False)
        cdef const fx_choice *chosen = <const fx_choice *>given.view.buf
        cdef fx_status status
        cdef int64_t *node_address
        self._take()
        pending = []
        cdef fx_interrupt interrupt = fx_interrupt(_interrupted, <void *>pending)
        cdef Py_ssize_t rows = self.draft.slice_max + (1 + FX_CONSTANTS_MAX) * <Py_ssize_t>self.problem.node_count
        cdef int64_t *address = <int64_t *>malloc(sizeof(int64_t) * (rows + 1))
        if not address:
            raise MemoryError()
        try:
            node_address = address + self.draft.slice_max
            self.draft.interrupt = &interrupt
            with nogil:
                fx_draft_build(&self.draft, &self.problem, chosen, working_bytes)
                status = fx_draft_place(&self.draft, &self.problem, chosen, working_bytes, from_top, address,
                                        node_address)
            if pending:
                raise pending[0]
            if status == FX_ERR_BOUNDS and limit != INFINITY:
                return None
            _plan_check(status)
            if self.draft.seconds >= limit:
                return None
            return (self._outcome(working_bytes), *self._arrays(), (<char *>address)[:8 * self.draft.slice_count],
                    (<char *>node_address)[:8 * (1 + FX_CONSTANTS_MAX) * <Py_ssize_t>self.problem.node_count])
        finally:
            self.draft.interrupt = NULL
            free(address)

    def fill(self, steps, slices, order, int64_t working_bytes, int64_t bytes_max, int64_t next_bytes_max,
             int looks):
        """Pin more ``slices`` of a draft that ``place`` made, in ``order`` (int32, indices of streamed slices) up to
        ``bytes_max`` (fx_fill): outcome and bytes of steps and slices, as ``place``. Ctrl-C ends it within some ms."""
        cdef _Buffer step_buffer = _Buffer(steps)
        cdef _Buffer slice_buffer = _Buffer(slices)
        cdef _Buffer rank_buffer = _Buffer(order)
        cdef const int32_t *rank = <const int32_t *>rank_buffer.view.buf
        cdef Py_ssize_t step_count = step_buffer.view.len // <Py_ssize_t>sizeof(fx_draft_step)
        cdef Py_ssize_t slice_count = slice_buffer.view.len // <Py_ssize_t>sizeof(fx_draft_slice)
        cdef uint32_t count = rank_buffer.view.len // <Py_ssize_t>sizeof(int32_t)
        cdef fx_limits limits = fx_limits(working_bytes, bytes_max, next_bytes_max)
        self._take()
        if step_count > self.draft.step_max or slice_count > self.draft.slice_max:
            raise ValueError("more steps or slices than the graph can have")
        memcpy(self.draft.steps, step_buffer.view.buf, step_count * sizeof(fx_draft_step))
        memcpy(self.draft.slices, slice_buffer.view.buf, slice_count * sizeof(fx_draft_slice))
        self.draft.step_count, self.draft.slice_count = step_count, slice_count
        if not fx_draft_sane(&self.draft, rank, count) or count > self.draft.slice_count:
            raise ValueError("a wait, a count or an index is out of range")
        pending = []
        cdef fx_interrupt interrupt = fx_interrupt(_interrupted, <void *>pending)
        cdef fx_status status
        with nogil:
            status = fx_fill(&self.draft, &self.problem, rank, count, &limits, looks, &interrupt)
        if pending:
            raise pending[0]
        _plan_check(status)
        return self._outcome(working_bytes), *self._arrays()

    def bound_terms(self, int64_t arena_bytes):
        """What ``fluid_bound`` takes of each node: seconds, bytes, seconds of reading, seconds of a byte, free bytes
        (fx_bound_terms_of). ``arena_bytes``: negative without a limit."""
        cdef Py_ssize_t nbytes = self.problem.node_count * sizeof(double)
        found = [memoryview(bytearray(nbytes)).cast(kind) for kind in "dqddq"]
        cdef list rooms = [_Buffer(view, True) for view in found]
        cdef fx_bound_terms terms
        terms.seconds, terms.bytes = <double *>(<_Buffer>rooms[0]).view.buf, <int64_t *>(<_Buffer>rooms[1]).view.buf
        terms.read_s, terms.byte_s = <double *>(<_Buffer>rooms[2]).view.buf, <double *>(<_Buffer>rooms[3]).view.buf
        terms.free_bytes = <int64_t *>(<_Buffer>rooms[4]).view.buf
        with nogil:
            fx_bound_terms_of(&self.problem, arena_bytes, &terms)
        return found

    cdef tuple _arrays(self):
        steps = (<char *>self.draft.steps)[:self.draft.step_count * sizeof(fx_draft_step)]
        slices = (<char *>self.draft.slices)[:self.draft.slice_count * sizeof(fx_draft_slice)]
        return steps, slices


cdef int _plan_check(fx_status status) except -1:
    if status == FX_ERR_MEMORY:
        raise MemoryError()
    if status != FX_OK:
        raise ValueError(f"planning: {fx_status_text(status).decode()}")
    return 0


def fluid_bound(seconds, nbytes, read_s, byte_s, uses, free_bytes, *, double bytes_per_second,
                double compute_speed=1.0, double load_speed=1.0, rounds=None):
    """(seconds, price of each node) from float64, int64, float64, float64, float64, int64 of each node
    (flexnn/fluid_bound.h)."""
    cdef _Buffer second_buffer = _Buffer(seconds), byte_buffer = _Buffer(nbytes)
    cdef _Buffer read_buffer = _Buffer(read_s), rate_buffer = _Buffer(byte_s), free_buffer = _Buffer(free_bytes)
    cdef _Buffer use_buffer = _Buffer(uses)
    cdef fx_fluid f
    cdef double bound = 0.0
    cdef fx_status status
    f.count = len(seconds)
    for buffer in (second_buffer, byte_buffer, read_buffer, rate_buffer, use_buffer, free_buffer):
        if (<_Buffer>buffer).view.len != <Py_ssize_t>(f.count * 8):
            raise ValueError("arrays of different lengths, or not of 64-bit numbers")
    if not (bytes_per_second > 0 and 0 < compute_speed <= 1 and 0 < load_speed <= 1):
        raise ValueError("no rate, or a speed that is no fraction")
    f.seconds = <const double *>second_buffer.view.buf
    f.bytes = <const int64_t *>byte_buffer.view.buf
    f.read_s = <const double *>read_buffer.view.buf
    f.byte_s = <const double *>rate_buffer.view.buf
    f.uses = <const double *>use_buffer.view.buf
    f.free_bytes = <const int64_t *>free_buffer.view.buf
    f.bytes_per_second, f.rounds = bytes_per_second, FX_ROUNDS_MAX if rounds is None else rounds
    f.compute_speed = compute_speed
    f.load_speed = load_speed
    price = memoryview(bytearray(sizeof(double) * f.count)).cast("d")
    cdef _Buffer price_buffer = _Buffer(price, True)
    with nogil:
        status = fx_fluid_bound(&f, &bound, <double *>price_buffer.view.buf)
    _plan_check(status)
    return bound, price
