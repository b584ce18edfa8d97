/* Fields of operators that resize maps, for params.h. */
#ifndef FLEXNN_PARAMS_RESIZE_H
#define FLEXNN_PARAMS_RESIZE_H

/* clang-format off */

/* x[n,h,w,c] -> y[n,oh,ow,c]. scale_*: output / input as the model states it; coord: fx_resize_coord;
 * nearest: fx_resize_nearest, used when mode is FX_RESIZE_NEAREST. A part of a map: y is rows from y_row of all_oh, x is
 * rows from x_row of all_h; all_oh and all_h are 0 where y and x are whole. */
#define FX_RESIZE_FIELDS(I, F)                                                                                        \
    I(mode) I(coord) I(nearest) I(n) I(h) I(w) I(c) I(oh) I(ow) I(x_sn) I(x_sh) I(x_sw) I(y_sn) I(y_sh) I(y_sw)       \
    F(scale_h) F(scale_w) I(y_row) I(all_oh) I(x_row) I(all_h)

/* resize whose pixels are weighted sums of more than two neighbours a side. is_cubic: by the cubic of coefficient a, else
 * by a triangle; is_antialiased: widened where the map shrinks; is_exclusive: what is outside does not count, else the
 * edge's value goes on there. An axis of the same length and scale 1 stays as it is. */
#define FX_RESAMPLE_FIELDS(I, F)                                                                                      \
    I(is_cubic) I(is_antialiased) I(is_exclusive) I(coord) I(n) I(h) I(w) I(c) I(oh) I(ow) I(x_sn) I(x_sh) I(x_sw)    \
    I(y_sn) I(y_sh) I(y_sw) F(scale_h) F(scale_w) F(a) I(y_row) I(all_oh) I(x_row) I(all_h)

/* clang-format on */

#endif
