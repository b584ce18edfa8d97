/* First members and sizes of groups; some cases have a number out of range or a group without members. */
#include "numbers.h"

static void draw(check_case *c) {
    fx_tally_params *p = &c->params.tally;
    p->kind = check_int(c, 0, FX_TALLY_COUNT - 1);
    p->n = check_int(c, 1, 40);
    p->groups = check_int(c, 1, check_one_in(c, 4) ? 40 : p->n < 5 ? p->n : 5);
}

static void fill(check_case *c) {
    const fx_tally_params *p = &c->params.tally;
    int64_t *x = c->in[0];
    for (int i = 0; i < p->n; i++)
        x[i] = i < p->groups ? p->groups - 1 - i : check_int(c, 0, p->groups - 1);
    if (check_one_in(c, 4))
        x[check_int(c, 0, p->n - 1)] = CHECK_PICK(c, -1, p->groups, INT32_MIN, 0);
}

static int64_t members(const check_case *c, int64_t group, int64_t *first) {
    int64_t n = 0;
    for (int64_t i = c->params.tally.n - 1; i >= 0; i--)
        if (((const int64_t *)c->in[0])[i] == group) {
            *first = i;
            n++;
        }
    return n;
}

static fx_status status(const check_case *c) {
    int64_t known = 0, first;
    for (int64_t g = 0; g < c->params.tally.groups; g++) {
        const int64_t n = members(c, g, &first);
        if (!n)
            return FX_ERR_INDEX;
        known += n;
    }
    return known == c->params.tally.n ? FX_OK : FX_ERR_INDEX;
}

static void expect(const check_case *c, check_expected *e) {
    for (int64_t g = 0; g < c->params.tally.groups; g++) {
        int64_t first = 0;
        const int64_t n = members(c, g, &first);
        check_set_index(e, g, c->params.tally.kind == FX_TALLY_FIRST ? first : n);
    }
}

const check_op check_tally = {.draw = draw, .fill = fill, .expect = expect, .is_exact = 1, .status = status};
