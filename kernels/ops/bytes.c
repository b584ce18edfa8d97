#include "bytes.h"

int fx_byte_clamp_fits(int32_t zero, float lo, float hi) {
    return zero >= 0 && zero <= UINT8_MAX && lo >= (float)-zero && lo <= hi && hi <= (float)(UINT8_MAX - zero);
}

int fx_byte_finish_fits(const fx_byte_finish *f, int32_t has_residual) {
    if (f->to == FX_DTYPE_F32)
        return !has_residual && f->lo <= f->hi;
    if (f->to != FX_DTYPE_U8 || has_residual < 0 || has_residual > 1 || !fx_byte_clamp_fits(f->zero, f->lo, f->hi))
        return 0;
    return !has_residual ||
           (f->r_zero >= 0 && f->r_zero <= UINT8_MAX && fx_byte_clamp_fits(f->sum_zero, f->sum_lo, f->sum_hi));
}

void fx_byte_maps_extent(const fx_maps *m, int operand, int32_t to, int64_t *lo, int64_t *hi) {
    const fx_operand o = operand == 0 ? m->x : operand == 1 ? m->residual : m->y;
    if (operand != 1 || m->has_residual)
        fx_box_extent(4, o.d, o.s, operand == FX_OUTPUT ? fx_byte_or_float(to) : 1, lo, hi);
}

int64_t fx_byte_maps_bytes(const fx_maps *m, int32_t to) {
    const int32_t *d = m->y.d;
    return (int64_t)d[0] * d[1] * d[2] * d[3] * fx_byte_or_float(to);
}

fx_steps fx_measured(const void *measured) {
    const float *v = measured;
    return (fx_steps){v[0], v[1] >= 0 && v[1] <= UINT8_MAX ? (uint8_t)v[1] : 0};
}

fx_steps fx_steps_of(const void *const *in, int32_t is_dynamic) {
    return is_dynamic == 2 ? fx_measured(in[1]) : (fx_steps){*(const float *)in[1], *(const uint8_t *)in[2]};
}

void fx_steps_head(const void *panel, fx_steps steps, int32_t *bias, float *scales) {
    const uint32_t *words = panel, zero = steps.zero;
    const float *own = (const float *)panel + 2 * FX_NR;
    for (int j = 0; j < FX_NR; j++) {
        bias[j] = (int32_t)(words[j] - zero * words[FX_NR + j]);
        scales[j] = own[j] * steps.step;
    }
}
