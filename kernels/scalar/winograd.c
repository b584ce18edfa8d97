/* The definition of Winograd's transforms (kernels.h): the matrices, and their products written out. */
#include "finish.h"

#define S2 1.41421356237309505f

/* For m = 2 and 4: B^T [m + 2][m + 2], G [m + 2][3], A^T [m][m + 2]. */
static const float input2[] = {1, 0, -1, 0, 0, 1, 1, 0, 0, -1, 1, 0, 0, -1, 0, 1};
static const float weight2[] = {1, 0, 0, .5f, .5f, .5f, .5f, -.5f, .5f, 0, 0, 1};
static const float output2[] = {1, 1, 1, 0, 0, 1, -1, 1};
static const float input4[] = {
    1, 0,       -2.5f, 0,       1, 0, /* point 0 */
    0, -S2,     -2,    S2 / 2,  1, 0, /* sqrt(1/2) */
    0, S2,      -2,    -S2 / 2, 1, 0, /* -sqrt(1/2) */
    0, -S2 / 2, -.5f,  S2,      1, 0, /* sqrt(2) */
    0, S2 / 2,  -.5f,  -S2,     1, 0, /* -sqrt(2) */
    0, 1,       0,     -2.5f,   0, 1, /* infinity */
};
static const float weight4[] = {
    1,       0,      0,       -2.f / 3, -S2 / 3, -1.f / 3, -2.f / 3, S2 / 3, -1.f / 3,
    1.f / 6, S2 / 6, 1.f / 3, 1.f / 6,  -S2 / 6, 1.f / 3,  0,        0,      1,
};
static const float output4[] = {
    1, 1,      1,       1,      1,       0, /* 1 */
    0, S2 / 2, -S2 / 2, S2,     -S2,     0, /* p */
    0, .5f,    .5f,     2,      2,       0, /* p^2 */
    0, S2 / 4, -S2 / 4, 2 * S2, -2 * S2, 1, /* p^3 */
};

/* out[rows][rows] = t in t^T, where t is [rows][columns] and in [columns][columns]. */
static void sandwich(const float *t, int rows, int columns, const float *in, float *out) {
    float half[6][6];
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++) {
            half[i][j] = 0;
            for (int l = 0; l < columns; l++)
                half[i][j] += t[i * columns + l] * in[l * columns + j];
        }
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < rows; j++) {
            out[i * rows + j] = 0;
            for (int l = 0; l < columns; l++)
                out[i * rows + j] += half[i][l] * t[j * columns + l];
        }
}

void FX_SYMBOL(wino_input_f32)(const fx_wino_input *t) {
    const int n = t->m + 2;
    for (int32_t c = 0; c < t->channels; c++) {
        float pixels[FX_WINO_PLANES_MAX] = {0}, planes[FX_WINO_PLANES_MAX];
        for (int q = 0; q < n * n; q++)
            pixels[q] = t->x[q][c];
        sandwich(t->m == 2 ? input2 : input4, n, n, pixels, planes);
        for (int q = 0; q < n * n; q++)
            t->v[q * t->plane + c] = planes[q];
    }
}

void FX_SYMBOL(wino_weight_f32)(const fx_wino_weight *t) {
    const int n = t->m + 2;
    for (int64_t i = 0; i < (int64_t)t->channels * FX_NR; i++) {
        float taps[9] = {0}, planes[FX_WINO_PLANES_MAX];
        for (int q = 0; q < 9; q++)
            taps[q] = t->g[q * t->tap + i];
        sandwich(t->m == 2 ? weight2 : weight4, n, 3, taps, planes);
        for (int q = 0; q < n * n; q++)
            t->u[q * t->plane + i] = planes[q];
    }
}

void FX_SYMBOL(wino_gemm_f32)(const fx_wino_gemm *g) {
    for (int32_t i = 0; i < g->rows; i++)
        for (int32_t j = 0; j < g->panels * FX_NR; j++) {
            const float *w = g->w + j / FX_NR * g->w_panel + j % FX_NR;
            float sum = 0;
            for (int64_t q = 0; q < g->k; q++)
                sum += g->a[i * g->lda + q] * w[q * FX_NR];
            g->c[i * g->ldc + j] = g->is_first ? sum : g->c[i * g->ldc + j] + sum;
        }
}

void FX_SYMBOL(wino_output_f32)(const fx_wino_output *t) {
    const int n = t->m + 2;
    for (int32_t j = 0; j < t->columns; j++) {
        float planes[FX_WINO_PLANES_MAX] = {0}, pixels[16];
        for (int q = 0; q < n * n; q++)
            planes[q] = t->s[q * t->plane + j];
        sandwich(t->m == 2 ? output2 : output4, t->m, n, planes, pixels);
        const float slope = t->finish.act == FX_ACT_PRELU ? t->panel[FX_NR + j] : t->finish.lo;
        for (int i = 0; i < t->rows; i++)
            for (int l = 0; l < t->pixels; l++)
                t->y[i * t->y_row + l * t->y_pixel + j] =
                    fx_finish_scalar(&t->finish, t->panel[j] + pixels[i * t->m + l],
                                     t->r ? &t->r[i * t->r_row + l * t->r_pixel + j] : NULL, slope);
    }
}
