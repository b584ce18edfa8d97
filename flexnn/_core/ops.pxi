# The operators, one at a time: what the planner asks of them, and run_op for tests.
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from libc.math cimport INFINITY
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport free, getenv, malloc
from libc.string cimport memcpy, memset

from flexnn._core.c_ops cimport *
from flexnn._core.c_engine cimport (
    fx_code_cut,
    fx_crc32c_by,
    fx_crc_path,
    fx_crc_path_best,
    fx_measure_rates,
)

cdef extern from "<stdlib.h>" nogil:
    void *aligned_alloc(size_t alignment, size_t size)

NR = FX_NR
PLANAR_PIXELS = FX_PLANAR_PIXELS
PARAM_WORDS = FX_PARAM_WORDS
MAX_INPUTS = FX_MAX_INPUTS
MAX_THREADS = FX_MAX_THREADS


def _names_of_ops():
    return tuple([fx_op_name(i).decode() for i in range(<int>FX_OP_COUNT)])


def _fields_of_op(uint32_t op):
    cdef int is_float = 0
    cdef int i = 0
    fields = []
    while fx_op_field(op, i, &is_float) != NULL:
        fields.append((fx_op_field(op, i, &is_float).decode(), bool(is_float)))
        i += 1
    return tuple(fields)


def _names_of_enums():
    cdef int i, j
    enums = {}
    i = 0
    while fx_enumerations[i] != NULL:
        names = []
        j = 0
        while fx_enum_name(fx_enumerations[i], j) != NULL:
            names.append(fx_enum_name(fx_enumerations[i], j).decode())
            j += 1
        enums[fx_enumerations[i].decode()] = tuple(names)
        i += 1
    return enums


class _Fields(dict):
    """Fields of each operator, by its name; found when they are asked for, as most models have few operators."""

    def __missing__(self, op):
        if op not in OPS:
            raise KeyError(op)
        fields = self[op] = _fields_of_op(OPS.index(op))
        return fields


OPS = _names_of_ops()
FIELDS = _Fields()
ENUMS = _names_of_enums()
WEIGHT_FORMS = {name: (fx_weight_forms[i].bits, fx_weight_forms[i].block, fx_weight_forms[i].scales,
                       fx_weight_forms[i].minimum, fx_weight_forms[i].shared) for i, name in enumerate(ENUMS["wtype"])}
cdef dict _WTYPE_NUMBER = {name: i for i, name in enumerate(ENUMS["wtype"])}
cdef dict _OP_NUMBER = {name: i for i, name in enumerate(OPS)}
cdef dict _CONV_KERNEL_NUMBER = {name: i for i, name in enumerate(ENUMS["conv_kernel"])}


cdef class _Buffer:
    """A contiguous buffer of a Python object, released with this."""

    cdef Py_buffer view
    cdef bint held

    def __cinit__(self, obj, bint writable=False):
        PyObject_GetBuffer(obj, &self.view, PyBUF_WRITABLE if writable else PyBUF_SIMPLE)
        self.held = True

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.view)


cdef const fx_kernels *_best = NULL  # the cores are asked once what they are


cdef const fx_kernels *_kernels(isa) except NULL:
    global _best
    cdef const fx_kernels *k
    cdef bytes own = isa.encode() if isa else b""
    cdef const char *name = getenv("FLEXNN_ISA")  # asked often: os.environ takes longer
    if own:
        name = own
    if name == NULL or name[0] == 0:
        if _best == NULL:
            _best = fx_kernels_for(NULL)
        k = _best
    else:
        k = fx_kernels_for(name)
    if k == NULL:
        raise ValueError(f"no instruction-set level {name.decode(errors='replace')!r} here: "
                         f"there is {', '.join(isa_levels())}")
    return k


cdef class _Op:
    """An operator with checked parameters."""

    cdef uint32_t op, kernel
    cdef fx_params params

    def __cinit__(self, str op not None, str kernel not None, params):
        cdef _Buffer words = _Buffer(params)
        if op not in _OP_NUMBER:
            raise ValueError(f"no operator {op!r}")
        self.op = _OP_NUMBER[op]
        if not kernel:
            self.kernel = 0
        elif self.op in (FX_OP_CONV, FX_OP_CONV_F16) and kernel in _CONV_KERNEL_NUMBER:
            self.kernel = _CONV_KERNEL_NUMBER[kernel]
        else:
            raise ValueError(f"operator {op} has no kernel {kernel!r}")
        if words.view.len != sizeof(fx_params):
            raise ValueError(f"parameters have {words.view.len} bytes, not {sizeof(fx_params)}")
        memcpy(&self.params, words.view.buf, sizeof(fx_params))
        cdef fx_status status = fx_op_check(self.op, self.kernel, &self.params)
        if status != FX_OK:
            raise ValueError(f"operator {op}{'/' if kernel else ''}{kernel}: {fx_status_text(status).decode()}")


def op_check(str op not None, str kernel not None, params):
    """ValueError if a parameter is out of range, a size overflows or the kernel cannot compute it; says nothing of
    memory. The other op_ functions check the same first."""
    _Op(op, kernel, params)


def op_traits(str op not None):
    """{"rows", "channels", "panels"} that the operator has."""
    if op not in _OP_NUMBER:
        raise ValueError(f"no operator {op!r}")
    cdef uint32_t traits = fx_op_traits(_OP_NUMBER[op])
    return frozenset([name for bit, name in ((FX_TRAIT_ROWS, "rows"), (FX_TRAIT_CHANNELS, "channels"),
                                             (FX_TRAIT_PANELS, "panels")) if traits & bit])


def op_panels(str op not None, params):
    """Number of weight panels."""
    cdef _Op o = _Op(op, "", params)
    return fx_op_panels(o.op, &o.params)


def op_panel_bytes(str op not None, params):
    """Bytes of one weight panel; 0 for an operator without."""
    cdef _Op o = _Op(op, "", params)
    return fx_op_panel_bytes(o.op, &o.params)


def op_workspace(str op not None, str kernel not None, params, isa=None):
    """Workspace bytes per thread for any window."""
    cdef _Op o = _Op(op, kernel, params)
    return fx_op_workspace(_kernels(isa), o.op, o.kernel, &o.params)


def op_zeros(str op not None, params):
    """Floats of 0.0 that the operator reads."""
    cdef _Op o = _Op(op, "", params)
    return fx_op_zeros(o.op, &o.params)


def op_full_window(str op not None, params):
    """(y0, y1, c0, c1) of the whole output."""
    cdef _Op o = _Op(op, "", params)
    cdef fx_window w = fx_op_full_window(o.op, &o.params)
    return w.y0, w.y1, w.c0, w.c1


def node_needs(nodes, needs, windows):
    """Fill ``needs``, an int64 array [nodes, 4], with what each record of ``nodes`` (NODE_DTYPE) needs: workspace bytes
    per thread, floats of 0.0, panels, bytes of a panel; and ``windows``, an int32 array [nodes, 4], with its whole output
    (y0, y1, c0, c1). Return the number of the first node whose parameters are wrong, or -1."""
    cdef _Buffer records = _Buffer(nodes)
    cdef _Buffer found = _Buffer(needs, True)
    cdef _Buffer whole = _Buffer(windows, True)
    cdef Py_ssize_t count = records.view.len // <Py_ssize_t>sizeof(fx_node)
    if (records.view.len != count * <Py_ssize_t>sizeof(fx_node) or found.view.len != count * 4 * 8
            or whole.view.len != count * <Py_ssize_t>sizeof(fx_window)):
        raise ValueError("arrays of other lengths than the nodes have")
    cdef const fx_node *node = <const fx_node *>records.view.buf
    cdef int64_t *need = <int64_t *>found.view.buf
    cdef fx_window *window = <fx_window *>whole.view.buf
    cdef const fx_kernels *kernels = _kernels(None)
    cdef Py_ssize_t i
    with nogil:
        for i in range(count):
            if node[i].op >= FX_OP_COUNT or fx_op_check(node[i].op, node[i].kernel, &node[i].params) != FX_OK:
                break
            need[4 * i] = fx_op_workspace(kernels, node[i].op, node[i].kernel, &node[i].params)
            need[4 * i + 1] = fx_op_zeros(node[i].op, &node[i].params)
            need[4 * i + 3] = fx_op_panel_bytes(node[i].op, &node[i].params)
            need[4 * i + 2] = fx_op_panels(node[i].op, &node[i].params) if need[4 * i + 3] else 0
            window[i] = fx_op_full_window(node[i].op, &node[i].params)
        else:
            i = -1
    return i


cdef fx_window _window(_Op o, window) except *:
    """The window asked for, checked (None: the full one)."""
    cdef fx_window full = fx_op_full_window(o.op, &o.params)
    cdef fx_window w = full
    if window is not None:
        w.y0, w.y1, w.c0, w.c1 = window
    cdef uint32_t traits = fx_op_traits(o.op)
    cdef bint good = (0 <= w.y0 <= w.y1 <= full.y1 and 0 <= w.c0 <= w.c1 <= full.c1 and w.c0 % FX_NR == 0
                      and (w.c1 % FX_NR == 0 or w.c1 == full.c1))
    if not traits & FX_TRAIT_ROWS:
        good = good and w.y0 == full.y0 and w.y1 == full.y1
    if not traits & FX_TRAIT_CHANNELS:
        good = good and w.c0 == full.c0 and w.c1 == full.c1
    if not good:
        raise ValueError(f"window {window} of {(full.y0, full.y1, full.c0, full.c1)}")
    return w


def op_units(str op not None, str kernel not None, params, window, int threads, isa=None):
    """Independent units of work in a window, for this many threads."""
    cdef _Op o = _Op(op, kernel, params)
    if not 1 <= threads <= FX_MAX_THREADS:
        raise ValueError(f"{threads} threads")
    return fx_op_units(_kernels(isa), o.op, o.kernel, &o.params, _window(o, window), threads)


def op_extent(str op not None, params, int operand):
    """(lo, hi): bytes of an operand, relative to its address, that the operator may touch. Operands: the inputs from
    0, then MAX_INPUTS for the output."""
    cdef _Op o = _Op(op, "", params)
    cdef int64_t lo = 0, hi = 0
    fx_op_extent(o.op, &o.params, operand, &lo, &hi)
    return lo, hi


def conv_kernel_fits(str kernel not None, params):
    """Whether a conv kernel can compute this convolution."""
    cdef _Op o = _Op("conv", "", params)
    if kernel not in _CONV_KERNEL_NUMBER:
        raise ValueError(f"no conv kernel {kernel!r}")
    return bool(fx_conv_kernel_fits(_CONV_KERNEL_NUMBER[kernel], &o.params.conv))


def conv_half_fits(params):
    """Whether the kernel that adds up halves can compute this convolution over maps of 16 bits."""
    cdef _Op o = _Op("conv_f16", "", params)
    return fx_op_check(FX_OP_CONV_F16, _CONV_KERNEL_NUMBER["half"], &o.params) == FX_OK


def adds_halves(isa=None):
    """Whether a level (default: the one that runs) adds up halves faster than floats."""
    return bool(fx_kernels_add_halves(_kernels(isa)))


def panel_layout(str wtype not None, bint slopes, int64_t weights):
    """(scales, minimum, weights, end): offsets in bytes of a panel's parts from its start. ``weights``: their number,
    a multiple of NR; ``slopes``: whether the panel holds PRelu's."""
    if wtype not in _WTYPE_NUMBER or weights < 0 or weights % FX_NR:
        raise ValueError(f"panel of {weights} weights stored as {wtype}")
    cdef fx_panel_layout layout = fx_panel_layout_of(FX_ACT_PRELU if slopes else FX_ACT_NONE, _WTYPE_NUMBER[wtype],
                                                     weights)
    return layout.scales, layout.minimum, layout.weights, layout.bytes


def form_fits(str wtype not None, int64_t taps, int64_t cin_panel, int64_t cin_block):
    """Whether a panel of these sizes may have the form."""
    if wtype not in _WTYPE_NUMBER:
        raise ValueError(f"weights stored as {wtype}")
    return bool(fx_form_fits(_WTYPE_NUMBER[wtype], taps, cin_panel, cin_block))


def multiplies_rounded(str wtype not None):
    """Whether there are products of rows rounded to 8 bits by weights of this form, in blocks of its own."""
    if wtype not in _WTYPE_NUMBER:
        raise ValueError(f"weights stored as {wtype}")
    return bool(fx_multiplies_rounded(_WTYPE_NUMBER[wtype]))


def exact_terms(str wtype not None):
    """Most products of integers by weights of this form whose sum is exact in floats."""
    if wtype not in _WTYPE_NUMBER:
        raise ValueError(f"weights stored as {wtype}")
    return fx_exact_terms(_WTYPE_NUMBER[wtype])


cdef int _check_groups(int64_t cin, int64_t cout, int64_t group) except -1:
    if group < 1 or cin < group or cout < group or cin % group or cout % group:
        raise ValueError(f"{cin} input and {cout} output channels in {group} groups")
    return 0


def conv_is_narrow(int64_t cin, int64_t cout, int64_t group):
    """Whether a convolution's groups are narrow: their panels hold no zeros."""
    _check_groups(cin, cout, group)
    return bool(fx_conv_groups_are_narrow(cin, cout, group))


def conv_cin_panel(int64_t cin, int64_t cout, int64_t group):
    """Input channels that each panel of a convolution reads; of narrow groups, that each output channel sees."""
    _check_groups(cin, cout, group)
    return fx_conv_cin_panel(cin, cout, group)


def conv_panel_cin(int32_t cin, int32_t cout, int32_t group, int32_t panel):
    """First input channel that a panel of a convolution reads."""
    _check_groups(cin, cout, group)
    cdef int32_t panels = (cout + FX_NR - 1) // FX_NR
    if not 0 <= panel < panels:
        raise ValueError(f"panel {panel} of {panels}")
    cdef fx_conv_params p
    p.cin, p.cout, p.group, p.cin_panel = cin, cout, group, <int32_t>fx_conv_cin_panel(cin, cout, group)
    return fx_conv_panel_cin(&p, panel)


def isa_level(name=None):
    """Name of the level that runs: ``name`` if given, else FLEXNN_ISA, else the best. ValueError if it cannot."""
    return fx_kernels_level(_kernels(name)).decode()


def isa_levels():
    """The levels that this build and this CPU have."""
    cdef int i = 0
    levels = []
    while fx_levels[i] != NULL:
        if fx_kernels_for(fx_levels[i]) != NULL:
            levels.append(fx_levels[i].decode())
        i += 1
    return tuple(levels)


cdef int _CRC_PATH = fx_crc_path_best()  # asking takes 10 us in a virtual machine


cdef bint _IS_CUT = False


def cut_code():
    """Have what is touched of this library map 8 KiB instead of 64, and forget what importing it has touched. Later
    calls do nothing."""
    global _IS_CUT
    if not _IS_CUT:
        _IS_CUT = True
        with nogil:
            fx_code_cut()


def crc32c_paths():
    """Number of ways to compute CRC32C that this CPU has: 0 is the table, the last is the fastest."""
    return _CRC_PATH + 1


def crc32c(buffer, uint32_t value=0, *, path=None):
    """CRC32C of a buffer, following bytes whose CRC is ``value``. ``path``: one of crc32c_paths, for tests."""
    cdef int by = _CRC_PATH if path is None else path
    if not 0 <= by <= _CRC_PATH:
        raise ValueError(f"crc32c path {by}: this CPU has 0 to {_CRC_PATH}")
    cdef _Buffer b = _Buffer(buffer)
    cdef const void *data = b.view.buf
    cdef size_t n = b.view.len
    with nogil:
        value = fx_crc32c_by(<fx_crc_path>by, value, data, n)
    return value


def measure_rates(isa=None):
    """(flop/s of one thread, bytes/s that it reads from memory), measured in about 2 ms."""
    cdef const fx_kernels *k = _kernels(isa)
    cdef double flops = 0, rate = 0
    cdef fx_status status
    with nogil:
        status = fx_measure_rates(k, &flops, &rate)
    if status != FX_OK:
        raise MemoryError(fx_status_text(status).decode())
    return flops, rate


cdef const char *_operand(_Op o, int operand, _Buffer b, int64_t offset, what) except NULL:
    """Address of an operand ``offset`` bytes into its array; ValueError unless its extent lies inside."""
    cdef int64_t lo = 0, hi = 0
    fx_op_extent(o.op, &o.params, operand, &lo, &hi)
    if offset < 0 or offset + lo < 0 or offset + hi > b.view.len:
        raise ValueError(f"{what} has {b.view.len} bytes; the operator reaches {offset + lo} to {offset + hi}")
    return <const char *>b.view.buf + offset


def run_op(str op not None, str kernel not None, params, inputs, out, weight=None, window=None, int threads=1,
           isa=None, offsets=()):
    """Run one operator, for tests. ``inputs``, ``out``, ``weight``: contiguous arrays, the whole storage of each
    operand; operand i starts ``offsets[i]`` bytes into its array (0 where ``offsets`` ends; the output is last, after
    ``inputs``). ``weight``: all panels. Units for ``threads`` run one by one, last first, each with workspace full of NaN.
    ValueError if an array is too small; RuntimeError if the operator fails."""
    cdef const fx_kernels *k = _kernels(isa)
    cdef _Op o = _Op(op, kernel, params)
    cdef fx_call call
    memset(&call, 0, sizeof(call))
    cdef fx_window w = _window(o, window)
    cdef uint32_t unit, units
    cdef int i
    cdef int64_t workspace_bytes, zeros_bytes, panel_bytes
    cdef fx_status status = FX_OK
    cdef void *workspace = NULL
    cdef void *zeros = NULL
    if not 1 <= threads <= FX_MAX_THREADS:
        raise ValueError(f"{threads} threads")
    if len(inputs) > fx_op_inputs(o.op):
        raise ValueError(f"{len(inputs)} inputs for {op}")
    memset(&call, 0, sizeof(call))
    held = []
    padded = list(offsets) + [0] * (FX_MAX_INPUTS + 1)
    for i in range(len(inputs)):
        held.append(_Buffer(inputs[i]))
        call.in_[i] = _operand(o, i, held[i], padded[i], f"input {i}")
    cdef int64_t lo = 0, hi = 0
    for i in range(len(inputs), FX_MAX_INPUTS):
        fx_op_extent(o.op, &o.params, i, &lo, &hi)
        if lo != hi:
            raise ValueError(f"input {i} of {op} is missing")
    cdef _Buffer out_buffer = _Buffer(out, True)
    call.out = <void *>_operand(o, FX_OUTPUT, out_buffer, padded[len(inputs)], "the output")
    cdef _Buffer weight_buffer
    panel_bytes = fx_op_panel_bytes(o.op, &o.params)
    if panel_bytes:
        weight_buffer = _Buffer(weight)
        if weight_buffer.view.len != panel_bytes * fx_op_panels(o.op, &o.params):
            raise ValueError(f"weight has {weight_buffer.view.len} bytes, not "
                             f"{fx_op_panels(o.op, &o.params)} panels of {panel_bytes}")
        call.weight = <const float *>(<const char *>weight_buffer.view.buf + w.c0 // FX_NR * panel_bytes)
    elif weight is not None:
        raise ValueError(f"{op} has no panel weight")
    call.kernels, call.params, call.op, call.kernel, call.window = k, &o.params, o.op, o.kernel, w
    workspace_bytes = (fx_op_workspace(k, o.op, o.kernel, &o.params) + 63) // 64 * 64
    zeros_bytes = (fx_op_zeros(o.op, &o.params) * 4 + 63) // 64 * 64
    try:
        workspace = aligned_alloc(64, workspace_bytes + 64)
        zeros = aligned_alloc(64, zeros_bytes + 64)
        if workspace == NULL or zeros == NULL:
            raise MemoryError()
        call.workspace, call.zeros = workspace, <const float *>zeros
        memset(zeros, 0, zeros_bytes)
        with nogil:
            units = fx_op_units(k, o.op, o.kernel, &o.params, w, threads)
            for unit in range(units):
                memset(workspace, 0xff, workspace_bytes)
                status = fx_op_run(&call, threads, units - 1 - unit, units - unit)
                if status != FX_OK:
                    break
    finally:
        free(workspace)
        free(zeros)
    if status != FX_OK:
        raise RuntimeError(f"{op}: {fx_status_text(status).decode()}")
