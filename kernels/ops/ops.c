/* The operators behind one set of functions: dispatch to their drivers, and the names that Python and messages use. */
#include "flush.h"
#include "impl.h"

#include <string.h>

static const fx_op_impl *const impls[FX_OP_COUNT] = {
#define FX_ENTRY(NAME, name, inputs, panels) [FX_OP_##NAME] = &fx_##name##_impl,
    FX_OPS(FX_ENTRY)
#undef FX_ENTRY
};

uint32_t fx_op_traits(uint32_t op) {
    return op < FX_OP_COUNT ? impls[op]->traits : 0;
}

fx_window fx_op_full_window(uint32_t op, const fx_params *p) {
    return impls[op]->full_window(p);
}

fx_status fx_op_check(uint32_t op, uint32_t kernel, const fx_params *p) {
    return op < FX_OP_COUNT ? impls[op]->check(kernel, p) : FX_ERR_PARAMS;
}

void fx_op_extent(uint32_t op, const fx_params *p, int operand, int64_t *lo, int64_t *hi) {
    *lo = *hi = 0;
    if (operand == FX_OUTPUT || (operand >= 0 && operand < fx_op_inputs(op)))
        impls[op]->extent(p, operand, lo, hi);
}

int64_t fx_op_element_bytes(uint32_t op, const fx_params *p, int operand) {
    return impls[op]->element_bytes ? impls[op]->element_bytes(p, operand) : (int64_t)sizeof(float);
}

int64_t fx_dtype_bytes(int32_t dtype) {
    static const int8_t bytes[FX_DTYPE_COUNT] = {[FX_DTYPE_F32] = 4,  [FX_DTYPE_I64] = 8, [FX_DTYPE_I32] = 4,
                                                 [FX_DTYPE_BOOL] = 1, [FX_DTYPE_U8] = 1,  [FX_DTYPE_I8] = 1,
                                                 [FX_DTYPE_F16] = 2,  [FX_DTYPE_F64] = 8, [FX_DTYPE_U16] = 2,
                                                 [FX_DTYPE_I16] = 2,  [FX_DTYPE_U32] = 4, [FX_DTYPE_U64] = 8};
    return bytes[dtype];
}

int64_t fx_op_output_bytes(uint32_t op, const fx_params *p) {
    return impls[op]->output_bytes(p);
}

int64_t fx_op_panel_bytes(uint32_t op, const fx_params *p) {
    return impls[op]->panel_bytes ? impls[op]->panel_bytes(p) : 0;
}

int32_t fx_op_panels(uint32_t op, const fx_params *p) {
    return impls[op]->panels ? impls[op]->panels(p) : 0;
}

int64_t fx_op_workspace(const fx_kernels *k, uint32_t op, uint32_t kernel, const fx_params *p) {
    return impls[op]->workspace ? impls[op]->workspace(k, kernel, p) : 0;
}

int64_t fx_op_zeros(uint32_t op, const fx_params *p) {
    return impls[op]->zeros ? impls[op]->zeros(p) : 0;
}

uint32_t fx_op_units(const fx_kernels *k, uint32_t op, uint32_t kernel, const fx_params *p, fx_window w, int threads) {
    return impls[op]->units(k, kernel, p, w, threads);
}

fx_phases fx_op_phases(const fx_kernels *k, uint32_t op, const fx_params *p, int threads) {
    return impls[op]->phases ? impls[op]->phases(k, p, threads) : (fx_phases){.count = 1};
}

fx_status fx_op_run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    const fx_op_impl *impl = impls[call->op];
    const uint64_t mode = impl->traits & FX_TRAIT_FLUSHES ? fx_float_mode() : FX_FLUSH_BITS;
    if ((mode & FX_FLUSH_BITS) == FX_FLUSH_BITS)
        return impl->run(call, threads, u0, u1);
    fx_set_float_mode(mode | FX_FLUSH_BITS);
    const fx_status status = impl->run(call, threads, u0, u1);
    fx_set_float_mode(mode);
    return status;
}

/* ---- names ---- */

const char *fx_op_name(uint32_t op) {
    static const char *const names[FX_OP_COUNT] = {
#define FX_NAME(NAME, name, inputs, panels) #name,
        FX_OPS(FX_NAME)
#undef FX_NAME
    };
    return op < FX_OP_COUNT ? names[op] : NULL;
}

int fx_op_inputs(uint32_t op) {
    static const int counts[FX_OP_COUNT] = {
#define FX_INPUTS(NAME, name, inputs, panels) inputs,
        FX_OPS(FX_INPUTS)
#undef FX_INPUTS
    };
    return op < FX_OP_COUNT ? counts[op] : 0;
}

typedef struct field {
    const char *name;
    int is_float;
} field;

const char *fx_op_field(uint32_t op, int i, int *is_float) {
#define FX_FIELD_ENTRY_I(n) {#n, 0},
#define FX_FIELD_ENTRY_F(n) {#n, 1},
#define FX_FIELD_TABLE(NAME, name, inputs, panels)                                                                     \
    static const field name##_fields[] = {FX_##NAME##_FIELDS(FX_FIELD_ENTRY_I, FX_FIELD_ENTRY_F)};                     \
    _Static_assert(sizeof name##_fields / sizeof *name##_fields == sizeof(fx_##name##_params) / 4, "one word a "       \
                                                                                                   "field");
    FX_OPS(FX_FIELD_TABLE)
#undef FX_FIELD_TABLE
    static const struct {
        const field *fields;
        int count;
    } tables[FX_OP_COUNT] = {
#define FX_FIELD_LIST(NAME, name, inputs, panels) {name##_fields, (int)(sizeof name##_fields / sizeof *name##_fields)},
        FX_OPS(FX_FIELD_LIST)
#undef FX_FIELD_LIST
    };
    if (op >= FX_OP_COUNT || i < 0 || i >= tables[op].count)
        return NULL;
    *is_float = tables[op].fields[i].is_float;
    return tables[op].fields[i].name;
}

const char *fx_enum_name(const char *enumeration, int i) {
#define FX_NAME_ENTRY(E, NAME, name) #name,
#define FX_NAME_TABLE(E, e, list) static const char *const e##_names[] = {list(FX_NAME_ENTRY, E)};
    FX_ENUMS(FX_NAME_TABLE)
#undef FX_NAME_TABLE
    static const struct {
        const char *enumeration;
        const char *const *names;
        int count;
    } tables[] = {
#define FX_NAME_LIST(E, e, list) {#e, e##_names, FX_##E##_COUNT},
        FX_ENUMS(FX_NAME_LIST)
#undef FX_NAME_LIST
    };
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
        if (!strcmp(tables[t].enumeration, enumeration))
            return i >= 0 && i < tables[t].count ? tables[t].names[i] : NULL;
    return NULL;
}

const char *fx_status_text(fx_status s) {
    static const char *const texts[FX_STATUS_COUNT] = {
        [FX_OK] = "no error",
        [FX_ERR_PARAMS] = "a parameter is out of its range",
        [FX_ERR_BOUNDS] = "an operand reaches outside its memory",
        [FX_ERR_INDEX] = "an index is out of range",
        [FX_ERR_MEMORY] = "not enough memory",
        [FX_ERR_IO] = "reading failed",
        [FX_ERR_EOF] = "the file is shorter than its program says",
        [FX_ERR_CHECKSUM] = "a checksum does not match",
        [FX_ERR_THREAD] = "threads could not be started",
        [FX_ERR_CANCELLED] = "cancelled",
        [FX_ERR_FORK] = "the session was opened before a fork, in the parent process",
        [FX_ERR_OVERLAP] = "a load or an output overlaps memory that is in use",
        [FX_ERR_RUNNING] = "a run is going on",
        [FX_ERR_SEAL] = "a bound program has changed in memory",
        [FX_ERR_RANGE] = "a number is beyond 65,504, the largest of 16 bits; compile without --precision f16",
    };
    return (unsigned)s < FX_STATUS_COUNT ? texts[s] : "unknown error";
}
