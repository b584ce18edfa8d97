/* Where resize reads its input. */
#ifndef FLEXNN_OPS_RESIZE_H
#define FLEXNN_OPS_RESIZE_H

#include "impl.h"

typedef struct fx_resize_way {
    int32_t mode, coord, nearest; /* fx_resize_mode, fx_resize_coord, fx_resize_nearest */
} fx_resize_way;

typedef struct fx_resize_place {
    int32_t low, high; /* neighbours inside the input */
    float fraction;    /* of high; 0 when nearest */
} fx_resize_place;

/* Where output i of `out` lies in an input of `in`: its coordinate by `coord`, and its neighbours. */
double fx_resize_source(int32_t coord, int32_t i, int32_t in, int32_t out, float scale);
fx_resize_place fx_resize_place_of(fx_resize_way way, int32_t i, int32_t in, int32_t out, float scale);

/* The rows of x that row y of the output lies between. */
fx_resize_place fx_resize_row(const fx_resize_params *p, int64_t y);

/* Whether the rows that are read lie in x, of a part of a map. */
int fx_resize_has_rows(const fx_resize_params *p);

#endif
