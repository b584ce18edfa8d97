/* Conversion among all element types. Floats to integers: towards zero; what lies outside, and NaN, as x86-64 does it
 * and so onnxruntime there: to int32_t or int64_t, whose smallest number stands for all that it does not have, and from
 * there on like integers; the upper half of uint32_t and uint64_t less that half, which is put back. Integers to
 * narrower ones: the low bits; to bool: whether it is not 0. */
#include "box.h"
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

static void extent(const fx_params *u, int operand, int64_t *lo, int64_t *hi) {
    const fx_cast_params *p = &u->cast;
    *lo = 0;
    *hi = p->count * fx_dtype_bytes(operand == FX_OUTPUT ? p->to : p->from);
}

static int64_t output_bytes(const fx_params *u) {
    return fx_contiguous_bytes(extent, u);
}

static int64_t element_bytes(const fx_params *u, int operand) {
    return fx_dtype_bytes(operand == FX_OUTPUT ? u->cast.to : u->cast.from);
}

static uint32_t units(const fx_kernels *k, uint32_t kernel, const fx_params *u, fx_window w, int threads) {
    (void)k, (void)kernel;
    const fx_cast_params *p = &u->cast;
    return w.y0 >= w.y1 || w.c0 >= w.c1
               ? 0
               : fx_box_units(p->count * (fx_dtype_bytes(p->from) + fx_dtype_bytes(p->to)), threads);
}

static inline int32_t to_i32(double v) {
    return fabs(v) < 0x1p31 ? (int32_t)v : INT32_MIN;
}

static inline int64_t to_i64(double v) {
    return fabs(v) < 0x1p63 ? (int64_t)v : INT64_MIN;
}

static inline uint32_t to_u32(double v) {
    return v >= 0x1p31 ? (uint32_t)to_i32(v - 0x1p31) ^ (uint32_t)INT32_MIN : (uint32_t)to_i32(v);
}

static inline uint64_t to_u64(double v) {
    return v >= 0x1p63 ? (uint64_t)to_i64(v - 0x1p63) ^ (uint64_t)INT64_MIN : (uint64_t)to_i64(v);
}

/* The types: how each is stored, whether it is converted through double, int64_t or uint64_t (its way).
 * X(NAME, stored type, way, value read, value written from a double d, value written from an integer i) */
#define TYPES(X)                                                                                                       \
    X(F32, float, d, v, (float)d, (float)i)                                                                            \
    X(I64, int64_t, i, v, to_i64(d), (int64_t)i)                                                                       \
    X(I32, int32_t, i, v, to_i32(d), (int32_t)i)                                                                       \
    X(BOOL, uint8_t, i, v != 0, d != 0, i != 0)                                                                        \
    X(U8, uint8_t, i, v, (uint8_t)to_i32(d), (uint8_t)i)                                                               \
    X(I8, int8_t, i, v, (int8_t)to_i32(d), (int8_t)i)                                                                  \
    X(F16, uint16_t, d, fx_half_to(v), fx_half_from(d), fx_half_from((double)i))                                       \
    X(F64, double, d, v, d, (double)i)                                                                                 \
    X(U16, uint16_t, i, v, (uint16_t)to_i32(d), (uint16_t)i)                                                           \
    X(I16, int16_t, i, v, (int16_t)to_i32(d), (int16_t)i)                                                              \
    X(U32, uint32_t, i, v, to_u32(d), (uint32_t)i)                                                                     \
    X(U64, uint64_t, u, v, to_u64(d), (uint64_t)i)

/* Reads at most CHUNK elements of any type into the widest type of their kind, and writes them from it. */
#define CHUNK 512
typedef union way {
    double d[CHUNK];
    int64_t i[CHUNK];
    uint64_t u[CHUNK];
} way;

#define READ(NAME, stored, kind, read, from_d, from_i)                                                                 \
    static void read_##NAME(const void *x, int64_t n, way *to) {                                                       \
        for (int64_t e = 0; e < n; e++) {                                                                              \
            const stored v = ((const stored *)x)[e];                                                                   \
            to->kind[e] = read;                                                                                        \
        }                                                                                                              \
    }
TYPES(READ)

enum { DOUBLES, SIGNED, UNSIGNED };

#define LOOP(type, name, member, write)                                                                                \
    for (int64_t e = 0; e < n; e++) {                                                                                  \
        const type name = from->member[e];                                                                             \
        to[e] = write;                                                                                                 \
    }
#define WRITE(NAME, stored, kind, read, from_d, from_i)                                                                \
    static void write_##NAME(const way *from, int are, int64_t n, void *y) {                                           \
        stored *to = y;                                                                                                \
        if (are == DOUBLES)                                                                                            \
            LOOP(double, d, d, from_d)                                                                                 \
        else if (are == SIGNED)                                                                                        \
            LOOP(int64_t, i, i, from_i)                                                                                \
        else                                                                                                           \
            LOOP(uint64_t, i, u, from_i)                                                                               \
    }
TYPES(WRITE)

/* Pairs of types that are converted often, and at once. */
#define DIRECT(FROM, from_type, TO, to_type)                                                                           \
    case FX_DTYPE_##FROM *FX_DTYPE_COUNT + FX_DTYPE_##TO:                                                              \
        for (int64_t e = 0; e < n; e++)                                                                                \
            ((to_type *)y)[e] = (to_type)((const from_type *)x)[e];                                                    \
        return 1;

/* 1 if from and to are such a pair. */
static int directly(int32_t from, int32_t to, const void *restrict x, void *restrict y, int64_t n) {
    switch (from * FX_DTYPE_COUNT + to) {
        DIRECT(BOOL, uint8_t, F32, float)
        DIRECT(U8, uint8_t, F32, float)
        DIRECT(I8, int8_t, F32, float)
        DIRECT(I32, int32_t, F32, float)
        DIRECT(I64, int64_t, F32, float)
        DIRECT(F64, double, F32, float)
        DIRECT(F32, float, F64, double)
        DIRECT(BOOL, uint8_t, I64, int64_t)
        DIRECT(BOOL, uint8_t, I32, int32_t)
        DIRECT(I32, int32_t, I64, int64_t)
        DIRECT(I64, int64_t, I32, int32_t)
    default:
        return 0;
    }
}

static int way_of(int32_t dtype) {
    if (dtype == FX_DTYPE_F32 || dtype == FX_DTYPE_F16 || dtype == FX_DTYPE_F64)
        return DOUBLES;
    return dtype == FX_DTYPE_U64 ? UNSIGNED : SIGNED;
}

static fx_status run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    typedef void (*reader)(const void *, int64_t, way *);
    typedef void (*writer)(const way *, int, int64_t, void *);
#define READER(NAME, stored, kind, read, from_d, from_i) [FX_DTYPE_##NAME] = read_##NAME,
#define WRITER(NAME, stored, kind, read, from_d, from_i) [FX_DTYPE_##NAME] = write_##NAME,
    static const reader readers[FX_DTYPE_COUNT] = {TYPES(READER)};
    static const writer writers[FX_DTYPE_COUNT] = {TYPES(WRITER)};
    const fx_cast_params *p = &call->params->cast;
    const int are = way_of(p->from);
    const uint32_t count = units(call->kernels, 0, call->params, call->window, threads);
    const int64_t from = fx_dtype_bytes(p->from), to = fx_dtype_bytes(p->to), end = fx_box_cut(p->count, count, u1);
    const int64_t start = fx_box_cut(p->count, count, u0);
    if (start < end &&
        directly(p->from, p->to, (const char *)call->in[0] + start * from, (char *)call->out + start * to, end - start))
        return FX_OK;
    for (int64_t e = start; e < end; e += CHUNK) {
        const int64_t n = end - e < CHUNK ? end - e : CHUNK;
        way between;
        readers[p->from]((const char *)call->in[0] + e * from, n, &between);
        writers[p->to](&between, are, n, (char *)call->out + e * to);
    }
    return FX_OK;
}

FX_DRIVER(cast, .traits = 0, .element_bytes = element_bytes);
