/* Conversion among all element types. Floats to integers: towards zero, saturating, NaN gives 0; integers to narrower
 * ones: the low bits; to bool: whether it is not 0. */
#include "box.h"
#include "dtypes.h"
#include "flexnn/half.h"

static fx_window full_window(const fx_params *u) {
    return (fx_window){0, 1, 0, u->cast.count};
}

static fx_status check(uint32_t kernel, const fx_params *u) {
    const fx_cast_params *p = &u->cast;
    if (kernel != 0 || p->from < 0 || p->from >= FX_DTYPE_COUNT || p->to < 0 || p->to >= FX_DTYPE_COUNT || p->count < 1)
        return FX_ERR_PARAMS;
    return FX_OK;
}

static int64_t element_bytes(const fx_params *u, int operand) {
    return fx_dtype_bytes(operand == FX_OUTPUT ? u->cast.to : u->cast.from);
}

static void extent(const fx_params *u, int operand, int64_t *lo, int64_t *hi) {
    *lo = 0;
    *hi = u->cast.count * element_bytes(u, operand);
}

static int64_t output_bytes(const fx_params *u) {
    return fx_contiguous_bytes(extent, u);
}

static uint32_t units(const fx_kernels *k, uint32_t kernel, const fx_params *u, fx_window w, int threads) {
    (void)k, (void)kernel;
    const fx_cast_params *p = &u->cast;
    return w.y0 >= w.y1 || w.c0 >= w.c1
               ? 0
               : fx_box_units(p->count * (fx_dtype_bytes(p->from) + fx_dtype_bytes(p->to)), threads);
}

static int64_t saturated(double v, int64_t lo, double hi_next) {
    if (v != v)
        return 0;
    return v < (double)lo ? lo : v >= hi_next ? (int64_t)((uint64_t)hi_next - 1) : (int64_t)v;
}

/* The types: how each is stored, and whether it is converted through double or int64_t (its way).
 * X(NAME, stored type, way, value read, value written from a double d, value written from an int64_t i) */
#define TYPES(X)                                                                                                       \
    X(F32, float, double, v, (float)d, (float)i)                                                                       \
    X(I64, int64_t, int64_t, v, saturated(d, INT64_MIN, 0x1p63), i)                                                    \
    X(I32, int32_t, int64_t, v, (int32_t)saturated(d, INT32_MIN, 0x1p31), (int32_t)i)                                  \
    X(BOOL, uint8_t, int64_t, v != 0, d != 0, i != 0)                                                                  \
    X(U8, uint8_t, int64_t, v, (uint8_t)saturated(d, 0, 0x1p8), (uint8_t)i)                                            \
    X(I8, int8_t, int64_t, v, (int8_t)saturated(d, INT8_MIN, 0x1p7), (int8_t)i)                                        \
    X(F16, uint16_t, double, fx_half_to(v), fx_half_from(d), fx_half_from((double)i))                                  \
    X(F64, double, double, v, d, (double)i)

/* Reads at most CHUNK elements of any type into the widest type of their kind, and writes them from it. */
#define CHUNK 512
typedef union way {
    double d[CHUNK];
    int64_t i[CHUNK];
} way;

#define WAY_double d
#define WAY_int64_t i
#define MEMBER_(w) WAY_##w
#define MEMBER(w) MEMBER_(w)
#define READ(NAME, stored, kind, read, from_d, from_i)                                                                 \
    static void read_##NAME(const void *x, int64_t n, way *to) {                                                       \
        for (int64_t e = 0; e < n; e++) {                                                                              \
            const stored v = ((const stored *)x)[e];                                                                   \
            to->MEMBER(kind)[e] = read;                                                                                \
        }                                                                                                              \
    }
TYPES(READ)

#define WRITE(NAME, stored, kind, read, from_d, from_i)                                                                \
    static void write_##NAME(const way *from, int is_double, int64_t n, void *y) {                                     \
        for (int64_t e = 0; is_double && e < n; e++) {                                                                 \
            const double d = from->d[e];                                                                               \
            ((stored *)y)[e] = from_d;                                                                                 \
        }                                                                                                              \
        for (int64_t e = 0; !is_double && e < n; e++) {                                                                \
            const int64_t i = from->i[e];                                                                              \
            ((stored *)y)[e] = from_i;                                                                                 \
        }                                                                                                              \
    }
TYPES(WRITE)

static fx_status run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    typedef void (*reader)(const void *, int64_t, way *);
    typedef void (*writer)(const way *, int, int64_t, void *);
#define READER(NAME, stored, kind, read, from_d, from_i) [FX_DTYPE_##NAME] = read_##NAME,
#define WRITER(NAME, stored, kind, read, from_d, from_i) [FX_DTYPE_##NAME] = write_##NAME,
    static const reader readers[FX_DTYPE_COUNT] = {TYPES(READER)};
    static const writer writers[FX_DTYPE_COUNT] = {TYPES(WRITER)};
    const fx_cast_params *p = &call->params->cast;
    const int is_double = p->from == FX_DTYPE_F32 || p->from == FX_DTYPE_F16 || p->from == FX_DTYPE_F64;
    const uint32_t count = units(call->kernels, 0, call->params, call->window, threads);
    const int64_t from = fx_dtype_bytes(p->from), to = fx_dtype_bytes(p->to), end = fx_box_cut(p->count, count, u1);
    for (int64_t e = fx_box_cut(p->count, count, u0); e < end; e += CHUNK) {
        const int64_t n = end - e < CHUNK ? end - e : CHUNK;
        way between;
        readers[p->from]((const char *)call->in[0] + e * from, n, &between);
        writers[p->to](&between, is_double, n, (char *)call->out + e * to);
    }
    return FX_OK;
}

FX_DRIVER(cast, .traits = 0, .element_bytes = element_bytes);
