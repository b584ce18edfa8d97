/* gemv_f32 for all instruction sets. A panel is read once, from end to end, for all rows; with few rows several sums
 * for each, so that no multiply-add waits for the one before. */
#include "load_weights.h"

#define STEPS 4 /* channels of a round, and most sums side by side */

/* Prefetches weights, once for each STEPS channels, since a core's own prefetcher stops at the end of a page. On x86
 * the best distance depends on how much there is to compute for each byte (docs/kernels.md): f32 needs each line in L2,
 * for which more reads may be under way than for L1; for f16 it is enough to start the core's prefetcher in a later
 * page; s8 needs each line in L2 early and in L1 shortly before its use. */
FX_INLINE void look_ahead(const unsigned char *from, const int wtype) {
    const int bytes = (int)fx_weights_bytes(wtype, STEPS * FX_NR);
    if (FX_ISA_NEON)
        FX_UNROLL for (int line = 0; line < bytes; line += 64) __builtin_prefetch(from + 4096 + line);
    else if (wtype == FX_WTYPE_F32)
        FX_UNROLL for (int line = 0; line < bytes; line += 64) __builtin_prefetch(from + 16384 + line, 0, 2);
    else if (wtype == FX_WTYPE_S8)
        FX_UNROLL for (int line = 0; line < bytes; line += 64) {
            __builtin_prefetch(from + 16384 + line, 0, 2);
            __builtin_prefetch(from + 768 + line);
        }
    else if (((uintptr_t)from & 4095) < (uintptr_t)bytes)
        FX_UNROLL for (int line = 0; line < bytes; line += 64) __builtin_prefetch(from + 16384 + line, 0, 2);
}

FX_INLINE void finish(const fx_gemv *g, const float *panel, int32_t column, int i, int j, const int wtype, fx_v sum) {
    const int at = column + j * FX_WIDTH;
    if (fx_weight_forms[wtype].scales && !fx_weight_forms[wtype].block)
        sum *= fx_load(panel + g->scales + j * FX_WIDTH);
    if (g->head)
        sum += fx_load(panel + j * FX_WIDTH);
    if (g->r)
        sum += fx_load_below(g->r[i] + g->c_at, at, g->columns);
    fx_store_below(g->c[i] + g->c_at, at, g->columns, fx_activate(&g->finish, sum, panel + FX_NR + j * FX_WIDTH));
}

FX_INLINE void multiply(const fx_gemv *g, const float *panel, int32_t column, const int R, const int chains,
                        const int wtype) {
    fx_v sum[FX_FEW_ROWS][STEPS][VECTORS], w[VECTORS];
    const int bytes = (int)fx_weights_bytes(wtype, FX_NR);
    const unsigned char *from = (const unsigned char *)(panel + g->head);
    FX_UNROLL for (int i = 0; i < R; i++) FX_UNROLL for (int s = 0; s < chains; s++)
        FX_UNROLL for (int j = 0; j < VECTORS; j++) sum[i][s][j] = fx_splat(0);
    for (int32_t q0 = 0; q0 < g->k; q0 += g->block) {
        const int32_t n = g->k - q0 < g->block ? g->k - q0 : g->block;
        const float *const *a = g->a;
        for (int32_t t = 0; t < g->taps; t++, a += R) {
            const float *row[FX_FEW_ROWS];
            FX_UNROLL for (int i = 0; i < R; i++) row[i] = a[i] + q0;
            int32_t q = 0;
            for (; q + STEPS <= n; q += STEPS, from += STEPS * bytes) {
                look_ahead(from, wtype);
                FX_UNROLL for (int s = 0; s < STEPS; s++) {
                    load_weights(w, from + s * bytes, 0, wtype);
                    FX_UNROLL for (int i = 0; i < R; i++) FX_UNROLL for (int j = 0; j < VECTORS; j++)
                        sum[i][s % chains][j] += w[j] * row[i][q + s];
                }
            }
            for (; q < n; q++, from += bytes) {
                load_weights(w, from, 0, wtype);
                FX_UNROLL for (int i = 0; i < R; i++) FX_UNROLL for (int j = 0; j < VECTORS; j++) sum[i][0][j] +=
                    w[j] * row[i][q];
            }
        }
    }
    FX_UNROLL for (int i = 0; i < R; i++) FX_UNROLL for (int j = 0; j < VECTORS; j++) {
        FX_UNROLL for (int s = chains; s > 1; s /= 2) FX_UNROLL for (int l = 0; l < s / 2; l++) sum[i][l][j] +=
            sum[i][l + s / 2][j];
        finish(g, panel, column, i, j, wtype, sum[i][0][j]);
    }
}

#include "gemv_blocks.h"

/* A function for each number of rows and of sums side by side, and each form of weights. The sums are what the
 * registers hold for all rows of the product, so that one row of many is added up as it is among them. */
#define GEMV(R, C, T)                                                                                                  \
    static void gemv_##R##x##C##_##T(const fx_gemv *g) {                                                               \
        const float *panel = g->w;                                                                                     \
        for (int32_t column = 0; column < g->columns; column += FX_NR, panel += g->w_panel)                            \
            if (fx_weight_forms[FX_WTYPE_##T].block)                                                                   \
                multiply_blocks(g, panel, column, R, C, FX_WTYPE_##T);                                                 \
            else                                                                                                       \
                multiply(g, panel, column, R, C, FX_WTYPE_##T);                                                        \
    }
#define GEMV_ALL(X, R, C)                                                                                              \
    X(R, C, F32)                                                                                                       \
    X(R, C, F16)                                                                                                       \
    X(R, C, S8)                                                                                                        \
    X(R, C, S8B)                                                                                                       \
    X(R, C, S8BF)                                                                                                      \
    X(R, C, Q4)                                                                                                        \
    X(R, C, Q4F)                                                                                                       \
    X(R, C, Q4M)                                                                                                       \
    X(R, C, Q4MF) X(R, C, S8B16F) X(R, C, S8MF) X(R, C, Q5) X(R, C, Q5M) X(R, C, Q4K) X(R, C, Q5K) X(R, C, Q6K)
#define NAME(R, C, T) [FX_WTYPE_##T] = gemv_##R##x##C##_##T,
#define FORMS(R, C) GEMV_ALL(GEMV, R, C)
#define NAMES(R, C) {GEMV_ALL(NAME, R, C)}
typedef void (*const kernel)(const fx_gemv *);

#if FX_ISA_AVX512 /* 28 sums of 32 registers */
#include "gemv_near.h"
#include "gemv_s8.h"

FORMS(1, 4)
FORMS(2, 4)
FORMS(3, 4)
FORMS(4, 4)
FORMS(5, 4)
FORMS(6, 4)
FORMS(7, 4)

void FX_SYMBOL(gemv_f32)(const fx_gemv *g) {
    static kernel kernels[FX_FEW_ROWS][FX_WTYPE_COUNT] = {NAMES(1, 4), NAMES(2, 4), NAMES(3, 4), NAMES(4, 4),
                                                          NAMES(5, 4), NAMES(6, 4), NAMES(7, 4)};
    (is_near(g)                                    ? gemv_near
     : g->all_rows == 1 && g->wtype == FX_WTYPE_S8 ? gemv_s8
     : is_one_row(g)                               ? gemv_row
                                                   : kernels[g->rows - 1][g->wtype])(g);
}
#else
FORMS(1, 4)
FORMS(1, 2)
FORMS(2, 2)
FORMS(3, 2)
FORMS(1, 1)
FORMS(2, 1)
FORMS(3, 1)
FORMS(4, 1)
FORMS(5, 1)
FORMS(6, 1)
FORMS(7, 1)

void FX_SYMBOL(gemv_f32)(const fx_gemv *g) {
    static kernel single[FX_WTYPE_COUNT] = NAMES(1, 4);
    static kernel few[3][FX_WTYPE_COUNT] = {NAMES(1, 2), NAMES(2, 2), NAMES(3, 2)};
    static kernel many[FX_FEW_ROWS][FX_WTYPE_COUNT] = {NAMES(1, 1), NAMES(2, 1), NAMES(3, 1), NAMES(4, 1),
                                                       NAMES(5, 1), NAMES(6, 1), NAMES(7, 1)};
    if (is_one_row(g))
        gemv_row(g);
    else if (g->all_rows == 1)
        single[g->wtype](g);
    else if (g->all_rows <= 3)
        few[g->rows - 1][g->wtype](g);
    else
        many[g->rows - 1][g->wtype](g);
}
#endif
