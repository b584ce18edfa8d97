/* Ensembles of trees, node by node; in some cases an index of the forest is out of range, or a branch leads back. */
#include "check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void draw(check_case *c) {
    fx_trees_params *p = &c->params.trees;
    p->is_wide = check_int(c, 0, 1);
    p->rows = check_one_in(c, 3) ? check_int(c, 20, 90) : check_int(c, 1, 9);
    p->features = check_int(c, 1, 9);
    p->trees = check_int(c, 1, 20);
    p->depth = check_int(c, 0, 4);
    p->nodes = p->trees * ((2 << p->depth) - 1);
    p->entries = check_int(c, 0, 9);
    p->results = check_one_in(c, 2) ? 1 : check_int(c, 2, 5);
    p->is_plain = check_int(c, 0, 1);
    p->aggregate = check_int(c, 0, FX_FOREST_COUNT - 1);
    p->transform = check_int(c, 0, FX_TRANSFORM_SOFTMAX);
    p->classes = check_int(c, 0, FX_CLASS_COUNT - 1);
    p->is_positive = check_int(c, 0, 1);
    p->has_base = check_int(c, 0, 1);
    p->to = FX_DTYPE_F32;
    if (p->classes > FX_CLASS_MANY)
        p->results = 2, p->has_base = 0;
}

/* Numbers of a few values, so that equal ones meet. */
static void put(check_case *c, void *at, int is_wide) {
    const double v = check_one_in(c, 8) ? NAN : check_int(c, -4, 4) * 0.25;
    const float f = (float)v;
    memcpy(at, is_wide ? (const void *)&v : (const void *)&f, is_wide ? 8 : 4);
}

static double get(const void *at, int is_wide) {
    double v;
    float f;
    memcpy(is_wide ? (void *)&v : (void *)&f, at, is_wide ? 8 : 4);
    return is_wide ? v : f;
}

static int words_of(const fx_trees_params *p) {
    return p->is_wide ? 4 : 3;
}

/* Changes a feature, a result or a count, or where a branch leads. */
static void damage(check_case *c) {
    const fx_trees_params *p = &c->params.trees;
    int32_t *node = (int32_t *)c->in[1] + (int64_t)check_int(c, 0, p->nodes - 1) * words_of(p) + words_of(p) - 2;
    if (check_one_in(c, 2) || !(node[0] & 1))
        node[0] = (int32_t)((uint32_t)node[0] ^ 1u << check_int(c, 3, 31));
    else
        node[1] = check_int(c, -2, p->nodes + 1);
}

static void fill(check_case *c) {
    const fx_trees_params *p = &c->params.trees;
    const int words = words_of(p), branches = (1 << p->depth) - 1, each = 2 * branches; /* nodes below a root */
    for (int64_t i = 0; i < (int64_t)p->rows * p->features; i++)
        put(c, (char *)c->in[0] + i * (p->is_wide ? 8 : 4), p->is_wide);
    for (int32_t i = 0; i < p->nodes; i++) {
        /* Place in its tree, level by level; the root is apart. */
        const int tree = i < p->trees ? i : (i - p->trees) / (each ? each : 1);
        const int place = i < p->trees ? 0 : (i - p->trees) % each + 1;
        int32_t *node = (int32_t *)c->in[1] + (int64_t)i * words;
        put(c, node, p->is_wide);
        if (place < branches) {
            const int flags = p->is_plain ? 0 : check_int(c, 0, 3) << 1;
            node[words - 2] = check_int(c, 0, p->features - 1) << 3 | flags | 1;
            node[words - 1] = p->trees + tree * each + 2 * place;
        } else {
            const int first = check_int(c, 0, p->entries);
            const int is_many = check_one_in(c, 4);
            if (is_many)
                node[0] = first;
            node[words - 2] =
                is_many ? check_int(c, 0, p->entries - first) << 3 | 2 : check_int(c, 0, p->results - 1) << 3;
            node[words - 1] = i;
        }
    }
    int32_t *entry = (int32_t *)c->in[1] + (int64_t)p->nodes * words;
    for (int32_t i = 0; i < p->entries; i++, entry += words - 1) {
        put(c, entry, p->is_wide);
        entry[words - 2] = check_int(c, 0, p->results - 1);
    }
    for (int32_t i = 0; i < p->results * p->has_base; i++, entry += words - 2)
        put(c, entry, p->is_wide);
    if (check_one_in(c, 4))
        damage(c);
}

/* The leaf where a row ends; NULL where an index is out of range or a branch leads back. */
static const int32_t *leaf_of(const fx_trees_params *p, const int32_t *forest, const char *x, int32_t at) {
    const int words = words_of(p);
    for (;;) {
        const int32_t *node = forest + (int64_t)at * words;
        const uint32_t meta = (uint32_t)node[words - 2];
        if (!(meta & 1))
            return node;
        if (meta >> 3 >= (uint32_t)p->features)
            return NULL;
        const double v = get(x + (meta >> 3) * (p->is_wide ? 8u : 4u), p->is_wide), t = get(node, p->is_wide);
        const int holds = (!p->is_plain && meta & 2) ? v == t : v <= t;
        const int32_t next = node[words - 1] + !(holds || (!p->is_plain && meta & 4 && isnan(v)));
        if (next <= at || next >= p->nodes)
            return NULL;
        at = next;
    }
}

static void say(const fx_trees_params *p, double *score, int *said, double v) {
    const int is_better = !*said || (p->aggregate == FX_FOREST_MIN ? v < *score : v > *score);
    if (p->aggregate == FX_FOREST_SUM || p->aggregate == FX_FOREST_AVERAGE)
        *score = p->is_wide ? *score + v : (double)((float)*score + (float)v);
    else if (is_better)
        *score = v;
    *said = 1;
}

/* Scores of a row; 0 where an index is out of range. */
static int score(const check_case *c, int64_t row, double *scores, int *said) {
    const fx_trees_params *p = &c->params.trees;
    const int words = words_of(p);
    const int32_t *forest = c->in[1], *entries = forest + (int64_t)p->nodes * words;
    for (int32_t i = 0; i < p->results; i++)
        scores[i] = said[i] = 0;
    for (int32_t tree = 0; tree < p->trees; tree++) {
        const char *x = (const char *)c->in[0] + row * p->features * (p->is_wide ? 8 : 4);
        const int32_t *leaf = leaf_of(p, forest, x, tree);
        if (!leaf)
            return 0;
        const uint32_t count = (uint32_t)leaf[words - 2] >> 3;
        if (!(leaf[words - 2] & 2)) {
            if (count >= (uint32_t)p->results)
                return 0;
            say(p, &scores[count], &said[count], get(leaf, p->is_wide));
            continue;
        }
        if (leaf[0] < 0 || leaf[0] > p->entries || count > (uint32_t)(p->entries - leaf[0]))
            return 0;
        for (uint32_t i = 0; i < count; i++) {
            const int32_t *entry = entries + (leaf[0] + (int64_t)i) * (words - 1);
            say(p, &scores[entry[words - 2]], &said[entry[words - 2]], get(entry, p->is_wide));
        }
    }
    const int32_t *base = entries + (int64_t)p->entries * (words - 1);
    for (int32_t i = 0; i < p->results; i++) {
        if (p->aggregate == FX_FOREST_AVERAGE)
            scores[i] /= p->trees;
        if (p->has_base)
            scores[i] += get(base + (int64_t)i * (words - 2), p->is_wide), said[i] = 1;
    }
    return 1;
}

static double logistic(double v) {
    return 1 / (1 + exp(-v));
}

static void transform(const fx_trees_params *p, double *v) {
    double sum = 0, top = -HUGE_VAL;
    for (int32_t i = 0; i < p->results; i++)
        top = fmax(top, v[i]);
    for (int32_t i = 0; i < p->results; i++)
        sum += exp(v[i] - top);
    for (int32_t i = 0; i < p->results; i++)
        v[i] = p->transform == FX_TRANSFORM_NONE       ? v[i]
               : p->transform == FX_TRANSFORM_LOGISTIC ? logistic(v[i])
                                                       : exp(v[i] - top) / sum;
}

/* Outputs from scores; returns the label. */
static int finish(const fx_trees_params *p, double *v, const int *said) {
    int label = -1;
    if (p->classes <= FX_CLASS_MANY) {
        for (int32_t i = 0; i < p->results; i++)
            if (said[i] && (label < 0 || v[i] > v[label]))
                label = i;
        if (p->results > 1)
            transform(p, v);
        return label < 0 ? 0 : label;
    }
    const int which = p->classes == FX_CLASS_SECOND;
    const double s = v[which];
    if (which && said[1])
        transform(p, v);
    else if (p->transform == FX_TRANSFORM_LOGISTIC)
        v[0] = logistic(-s), v[1] = logistic(s);
    else
        v[0] = p->is_positive - s, v[1] = s;
    return s > (p->is_positive ? 0.5 : 0);
}

static fx_status status(const check_case *c) {
    double scores[8];
    int said[8];
    for (int32_t row = 0; row < c->params.trees.rows; row++)
        if (!score(c, row, scores, said))
            return FX_ERR_INDEX;
    return FX_OK;
}

static void expect(const check_case *c, check_expected *e) {
    const fx_trees_params *p = &c->params.trees;
    double v[8];
    int said[8];
    for (int32_t row = 0; row < p->rows; row++) {
        score(c, row, v, said);
        const int label = finish(p, v, said);
        for (int32_t i = 0; i < p->results; i++)
            check_set(c, e, (int64_t)row * p->results + i, v[i], 1e-5 * (1 + fabs(v[i])));
        if (p->classes != FX_CLASS_NONE)
            check_set(c, e, (int64_t)p->rows * p->results + row, label, 0);
    }
}

const check_op check_trees = {.draw = draw, .fill = fill, .expect = expect, .status = status};
