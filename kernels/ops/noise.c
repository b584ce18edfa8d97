/* Random numbers: each depends on its place, the seed and the draw alone, so units may be computed in any order.
 * Normal ones are pairs by Box and Muller's transform (1958, "A Note on the Generation of Random Normal Deviates"). */
#include "flexnn/kernels.h"
#include "move.h"
#include "units.h"

#include <math.h>
#include <string.h>

#define BLOCK 1024       /* numbers that are made at once */
#define HALF (BLOCK / 2) /* pairs of them */
#define STEP 0x1p-24f    /* between neighbouring uniform numbers */

static fx_window full_window(const fx_params *u) {
    return (fx_window){0, 1, 0, u->noise.count};
}

static int is_flag(int32_t v) {
    return v == 0 || v == 1;
}

static fx_status check(uint32_t kernel, const fx_params *u) {
    const fx_noise_params *p = &u->noise;
    if (kernel != 0 || !is_flag(p->is_uniform) || !is_flag(p->is_seeded) || !fx_is_element(p->elem_bytes) ||
        p->count < 1 || isnan(p->shift) || isnan(p->factor) || isnan(p->end))
        return FX_ERR_PARAMS;
    return FX_OK;
}

static int64_t element_bytes(const fx_params *u, int operand) {
    return operand == 0 ? u->noise.elem_bytes : (int64_t)sizeof(float);
}

static void extent(const fx_params *u, int operand, int64_t *lo, int64_t *hi) {
    *lo = 0;
    *hi = u->noise.count * element_bytes(u, operand);
}

static int64_t output_bytes(const fx_params *u) {
    return fx_contiguous_bytes(extent, u);
}

typedef struct workspace {
    float *radius, *angle, *made; /* [HALF], [HALF], [BLOCK] */
    int64_t bytes;
} workspace;

static workspace workspace_at(void *base) {
    int64_t at = 0;
    workspace s;
    FX_TAKE(s.radius, base, at, HALF);
    FX_TAKE(s.angle, base, at, HALF);
    FX_TAKE(s.made, base, at, BLOCK);
    s.bytes = at;
    return s;
}

static int64_t workspace_bytes(const fx_kernels *k, uint32_t kernel, const fx_params *u) {
    (void)k, (void)kernel, (void)u;
    return workspace_at(NULL).bytes;
}

static int64_t blocks_of(const fx_noise_params *p) {
    return fx_div_up(p->count, BLOCK);
}

static uint32_t units(const fx_kernels *k, uint32_t kernel, const fx_params *u, fx_window w, int threads) {
    (void)k, (void)kernel;
    if (w.y0 >= w.y1 || w.c0 >= w.c1)
        return 0;
    return fx_units_of(blocks_of(&u->noise), INT64_C(8) * BLOCK * (int64_t)sizeof(float), threads);
}

static void philox(uint32_t x[4], uint32_t lo, uint32_t hi) {
    for (int round = 0; round < 10; round++, lo += 0x9E3779B9u, hi += 0xBB67AE85u) {
        const uint64_t a = UINT64_C(0xD2511F53) * x[0], b = UINT64_C(0xCD9E8D57) * x[2];
        const uint32_t made[4] = {(uint32_t)(b >> 32) ^ x[1] ^ lo, (uint32_t)b, (uint32_t)(a >> 32) ^ x[3] ^ hi,
                                  (uint32_t)a};
        memcpy(x, made, sizeof made);
    }
}

/* Words of 24 bits of a block of numbers: the first two of each four to a[i], the others to b[i]. */
static void draw_words(const fx_call *call, int64_t block, float *a, float *b) {
    const fx_noise_params *p = &call->params->noise;
    const uint64_t draw = p->is_seeded ? 0 : call->draw;
    for (int i = 0; i < HALF; i += 2) {
        const uint64_t number = (uint64_t)block * (BLOCK / 4) + (uint64_t)i / 2;
        uint32_t x[4] = {(uint32_t)number, (uint32_t)(number >> 32), (uint32_t)draw, (uint32_t)(draw >> 32)};
        philox(x, (uint32_t)p->seed_lo, (uint32_t)p->seed_hi);
        a[i] = (float)(x[0] >> 8), a[i + 1] = (float)(x[1] >> 8);
        b[i] = (float)(x[2] >> 8), b[i + 1] = (float)(x[3] >> 8);
    }
}

static void apply(const fx_call *call, int32_t kind, const float *x, float *y) {
    call->kernels->unary_f32(&(fx_unary){.kind = kind, .x = x, .y = y, .rows = 1, .n = HALF, .x_step = 1, .y_step = 1});
}

static void make_uniform(const fx_call *call, int64_t block, const workspace *s) {
    const fx_noise_params *p = &call->params->noise;
    const float last = nextafterf(p->end, p->shift);
    draw_words(call, block, s->made, s->made + HALF);
    for (int i = 0; i < BLOCK; i++) {
        const float y = p->shift + p->factor * (STEP * s->made[i]);
        s->made[i] = p->factor > 0 && y >= p->end ? last : y;
    }
}

static void make_normal(const fx_call *call, int64_t block, const workspace *s) {
    const fx_noise_params *p = &call->params->noise;
    draw_words(call, block, s->radius, s->angle);
    for (int i = 0; i < HALF; i++) { /* above 0 and up to 1; from 0 on and below 2 pi */
        s->radius[i] = STEP * (s->radius[i] + 1);
        s->angle[i] = 6.283185307f * STEP * s->angle[i];
    }
    apply(call, FX_UNARY_LOG, s->radius, s->radius);
    apply(call, FX_UNARY_COS, s->angle, s->made);
    apply(call, FX_UNARY_SIN, s->angle, s->made + HALF);
    for (int i = 0; i < HALF; i++) {
        const float length = p->factor * sqrtf(fabsf(2 * s->radius[i]));
        s->made[i] = p->shift + length * s->made[i];
        s->made[HALF + i] = p->shift + length * s->made[HALF + i];
    }
}

static fx_status run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    const fx_noise_params *p = &call->params->noise;
    const workspace s = workspace_at(call->workspace);
    const uint32_t count = units(call->kernels, 0, call->params, call->window, threads);
    const int64_t end = fx_box_cut(blocks_of(p), count, u1);
    for (int64_t block = fx_box_cut(blocks_of(p), count, u0); block < end; block++) {
        const int64_t left = p->count - block * BLOCK, n = left < BLOCK ? left : BLOCK;
        (p->is_uniform ? make_uniform : make_normal)(call, block, &s);
        memcpy((float *)call->out + block * BLOCK, s.made, (size_t)n * sizeof(float));
    }
    return FX_OK;
}

FX_DRIVER(noise, .traits = 0, .element_bytes = element_bytes, .workspace = workspace_bytes);
