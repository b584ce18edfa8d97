/* Indices of the elements that are not zero; in some cases they are more or fewer than the parameters say. */
#include "numbers.h"

#include <string.h>

static int32_t *sizes(const check_case *c) {
    return &((check_case *)c)->params.nonzero.d0;
}

static int64_t elements(const check_case *c) {
    int64_t n = 1;
    for (int i = 0; i < FX_RANK_MAX; i++)
        n *= sizes(c)[i];
    return n;
}

static void draw(check_case *c) {
    fx_nonzero_params *p = &c->params.nonzero;
    p->dtype = check_int(c, 0, FX_DTYPE_COUNT - 1);
    p->rank = check_int(c, 1, check_one_in(c, 4) ? FX_RANK_MAX : 3);
    for (int i = 0; i < FX_RANK_MAX; i++)
        sizes(c)[i] = i < p->rank ? check_int(c, 1, p->rank > 3 ? 3 : 9) : 1;
    p->count = check_int(c, 1, (int32_t)elements(c));
}

static int64_t found(const check_case *c) {
    int64_t n = 0;
    for (int64_t i = 0; i < elements(c); i++)
        n += check_number(c->params.nonzero.dtype, c->in[0], i) != 0;
    return n;
}

/* As many as the parameters say, at random, or about as many. */
static void fill(check_case *c) {
    const fx_nonzero_params *p = &c->params.nonzero;
    const int64_t bytes = fx_dtype_bytes(p->dtype), n = elements(c);
    check_fill_numbers(c, p->dtype, c->in[0], n, 2);
    for (int64_t i = check_int(c, 0, (int32_t)n - 1); check_int(c, 0, 19) && found(c) != p->count; i = (i + 1) % n) {
        const int is_zero = check_number(p->dtype, c->in[0], i) == 0;
        if (is_zero == (found(c) < p->count))
            memset((char *)c->in[0] + i * bytes, is_zero, (size_t)bytes);
    }
}

static fx_status status(const check_case *c) {
    return found(c) == c->params.nonzero.count ? FX_OK : FX_ERR_INDEX;
}

static void expect(const check_case *c, check_expected *e) {
    const fx_nonzero_params *p = &c->params.nonzero;
    int64_t at = 0;
    for (int64_t i = 0; i < elements(c); i++) {
        if (check_number(p->dtype, c->in[0], i) == 0)
            continue;
        int64_t rest = i;
        for (int k = p->rank - 1; k >= 0; k--) {
            check_set_index(e, (int64_t)k * p->count + at, rest % sizes(c)[k]);
            rest /= sizes(c)[k];
        }
        at++;
    }
}

const check_op check_nonzero = {.draw = draw, .fill = fill, .expect = expect, .is_exact = 1, .status = status};
