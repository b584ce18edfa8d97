/* gconv_f32: neon/gconv.c and x86/gconv.c include it after they have defined MULTIPLY and, for groups whose terms stand
 * in two sums to the end, PAIRED(wide) and JOIN(sum, other).
 *
 * The taps' columns slide over the strip's input pixels as in dwconv.c. Panels are the outer loop, so that a panel's
 * weights, up to `wide` times those of a depthwise one, stay in L1 over the strip. */

#define START(i) sum[i] = paired ? fx_splat(0) : fx_load(panel), other[i] = fx_splat(0)
#define END(i) sum[i] = paired ? fx_load(panel) + JOIN(sum[i], other[i]) : sum[i]

/* Pixels are prefetched a line of channels before they are read and written: the next panel comes after the whole strip
 * is done with this one, and no hardware prefetcher sees how a line of each pixel leads to the next. */
#define LINE_FLOATS 16
#define ASKS (!FX_ISA_NEON) /* it makes NEON's strips slower, by llvm-mca */

/* Output pixels [i0, i0 + N), three taps in a row, stride S, dilation 1, of one vector of channels. */
#define STRIP(N, S)                                                                                                    \
    FX_INLINE void part_##N##_##S(const fx_gconv *c, int i0, const float *panel, int j, const int full,                \
                                  const int paired) {                                                                  \
        enum { POSITIONS = (N - 1) * S + 3 };                                                                          \
        const fx_dwconv *const d = &c->strip;                                                                          \
        const int wide = c->wide;                                                                                      \
        const float *w = panel + d->head;                                                                              \
        const float *const *x = d->x + i0 * S;                                                                         \
        const int asks = ASKS && d->asks && j % LINE_FLOATS == 0 && j + LINE_FLOATS < d->channels;                     \
        const int64_t next = d->at + j + LINE_FLOATS;                                                                  \
        fx_v sum[N], other[N];                                                                                         \
        FX_UNROLL for (int i = 0; i < N; i++) START(i);                                                                \
        for (int ky = 0; ky < d->kh; ky++, w += 3 * wide * FX_NR, x += d->positions) {                                 \
            if (asks)                                                                                                  \
                FX_UNROLL for (int p = 0; p < POSITIONS; p++) __builtin_prefetch(x[p] + next, 0, 2);                   \
            MULTIPLY(N, 3, S, POSITIONS, x[p])                                                                         \
        }                                                                                                              \
        if (asks)                                                                                                      \
            FX_UNROLL for (int i = 0; i < N; i++) __builtin_prefetch(d->y + next + (i0 + i) * d->y_step, 0, 2);        \
        FX_UNROLL for (int i = 0; i < N; i++) END(i);                                                                  \
        FINISH(N, full, 0, i0, sum);                                                                                   \
    }                                                                                                                  \
    static void strip_##N##_##S(const fx_gconv *c, int i0, int j) {                                                    \
        const float *panel = panel_of(&c->strip, j);                                                                   \
        if (j + FX_WIDTH > c->strip.channels)                                                                          \
            PAIRED(c->wide) ? part_##N##_##S(c, i0, panel, j, 0, 1) : part_##N##_##S(c, i0, panel, j, 0, 0);           \
        else                                                                                                           \
            PAIRED(c->wide) ? part_##N##_##S(c, i0, panel, j, 1, 1) : part_##N##_##S(c, i0, panel, j, 1, 0);           \
    }

#define STRIPS(S) STRIP(1, S) STRIP(2, S) STRIP(3, S) STRIP(4, S) STRIP(5, S) STRIP(6, S) STRIP(7, S) STRIP(8, S)
STRIPS(1)
STRIPS(2)

/* Any taps, stride and dilation: output pixels [i0, i0 + N), a tap at a time. */
#define ANY(N)                                                                                                         \
    static void any_##N(const fx_gconv *c, int i0, int j) {                                                            \
        const fx_dwconv *const d = &c->strip;                                                                          \
        const int wide = c->wide, full = j + FX_WIDTH <= d->channels, paired = PAIRED(wide);                           \
        const float *panel = panel_of(d, j), *w = panel + d->head;                                                     \
        fx_v sum[N], other[N];                                                                                         \
        FX_UNROLL for (int i = 0; i < N; i++) START(i);                                                                \
        for (int ky = 0; ky < d->kh; ky++) {                                                                           \
            const float *const *x = d->x + ky * d->positions + i0 * d->stride;                                         \
            for (int kx = 0; kx < d->kw; kx++, w += wide * FX_NR, x += d->dilation)                                    \
                MULTIPLY(N, 1, 1, N, x[p * d->stride])                                                                 \
        }                                                                                                              \
        FX_UNROLL for (int i = 0; i < N; i++) END(i);                                                                  \
        FINISH(N, full, 0, i0, sum);                                                                                   \
    }
ANY(1)
ANY(4)

void FX_SYMBOL(gconv_f32)(const fx_gconv *c) {
#define LIST(S)                                                                                                        \
    {                                                                                                                  \
        strip_1_##S, strip_2_##S, strip_3_##S, strip_4_##S, strip_5_##S, strip_6_##S, strip_7_##S, strip_8_##S         \
    }
    static void (*const strips[2][8])(const fx_gconv *, int, int) = {LIST(1), LIST(2)};
    const fx_dwconv *const d = &c->strip;
    const int slides = d->dilation == 1 && d->kw == 3 && d->stride <= 2;
    const int count = (d->pixels + 7) / 8;
    for (int j = 0; j < d->channels; j += FX_WIDTH) {
        int i = 0;
        if (slides)
            for (int s = 0, end; s < count; s++, i = end) {
                end = d->pixels * (s + 1) / count;
                strips[d->stride - 1][end - i - 1](c, i, j);
            }
        for (; i + 4 <= d->pixels; i += 4)
            any_4(c, i, j);
        for (; i < d->pixels; i++)
            any_1(c, i, j);
    }
}
