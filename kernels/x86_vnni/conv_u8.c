/* Products of 8-bit activations (byte_kernels.h): VPDPBUSD adds four of them to each sum. */
#include "../vec/load_weights.h"
#include "../x86/byte_finish.h"
#include "../x86/tiles.h"

typedef int32_t four_in_memory __attribute__((aligned(1), may_alias));

/* As assembly, because gcc 12 spills the sums of a tile that intrinsics make. */
#define DOT(sum, a, w) __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(w))

/* Finishes and stores the sums of a tile as bytes. */
FX_INLINE void pack(const fx_pack512 *f, const fx_dot_u8 *d, __m512i sum[14][2], const int R, const int P,
                    const int is_plain) {
    FX_UNROLL for (int i = 0; i < R; i += 4 / P) {
        if (P == 2) {
            fx_pack_two(f, d, i, sum[i], sum[i + (i + 1 < R)], is_plain);
        } else {
            const __m512i four[4] = {sum[i][0], sum[i + (i + 1 < R ? 1 : 0)][0], sum[i + (i + 2 < R ? 2 : 0)][0],
                                     sum[i + (i + 3 < R ? 3 : 0)][0]};
            fx_pack_four(f, d, i, four, is_plain);
        }
    }
}

/* A tile of R rows and P panels. Bytes without residual are finished in registers; else the sums are stored, and the
 * result is 0. */
FX_INLINE int multiply(const fx_dot_u8 *d, __m512i *sums, const int R, const int P) {
    const int64_t head = fx_byte_panel_head(d->finish.to), second = d->w_panel;
    const char *w = d->w + head;
    const uint8_t *const *a = d->a;
    uintptr_t ahead = (uintptr_t)(d->ahead ? d->ahead : w); /* an address: it may be past the last panel */
    const uintptr_t step = (uintptr_t)d->ahead_step;
    __m512i sum[14][2];
    FX_UNROLL for (int i = 0; i < R; i++) FX_UNROLL for (int j = 0; j < P; j++) sum[i][j] =
        _mm512_loadu_si512(d->bias ? (const void *)(d->bias + j * FX_NR) : d->w + j * second);
    for (int32_t t = 0; t < d->runs; t++, a += R) {
        const uint8_t *row[14];
        FX_UNROLL for (int i = 0; i < R; i++) row[i] = a[i];
        for (int64_t q = 0; q < d->run; q += 4, w += FX_FOUR_BYTES) {
            __m512i b[2];
            if (P == 2) {
                __builtin_prefetch((const void *)ahead, 0, 3);
                __builtin_prefetch((const void *)(ahead + 64), 0, 3);
                ahead += step;
            }
            FX_UNROLL for (int j = 0; j < P; j++) b[j] = _mm512_loadu_si512(w + j * second);
            FX_UNROLL for (int i = 0; i < R; i++) {
                const __m512i x = _mm512_set1_epi32(*(const four_in_memory *)(row[i] + q));
                FX_UNROLL for (int j = 0; j < P; j++) DOT(sum[i][j], x, b[j]);
            }
        }
    }
    if (d->more)
        FX_UNROLL for (int i = 0; i < R; i++) FX_UNROLL for (int j = 0; j < P; j++) sum[i][j] =
            _mm512_add_epi32(sum[i][j], _mm512_set1_epi32(d->more[i]));
    if (d->finish.to == FX_DTYPE_U8 && !d->r) {
        fx_pack512 f;
        fx_pack512_of(&f, d, &d->finish);
        f.is_plain ? pack(&f, d, sum, R, P, 1) : pack(&f, d, sum, R, P, 0);
        return 1;
    }
    FX_UNROLL for (int i = 0; i < R; i++) FX_UNROLL for (int j = 0; j < P; j++) sums[i * P + j] = sum[i][j];
    return 0;
}

#define TILE(R, P)                                                                                                     \
    static int tile_##R##x##P(const fx_dot_u8 *d, __m512i *sums) {                                                     \
        return multiply(d, sums, R, P);                                                                                \
    }
EVERY_TILE(TILE)

void FX_SYMBOL(dot_u8)(const fx_dot_u8 *d) {
    static int (*const tiles[][MR])(const fx_dot_u8 *, __m512i *) = NAMES(tile);
    __m512i sums[(MR + 2) * MOST_PANELS]; /* finishing reads whole fours of vectors */
    if (!tiles[d->panels - 1][d->rows - 1](d, sums))
        d->r ? fx_finish_added(d, sums) : fx_finish_floats(d, sums);
}
