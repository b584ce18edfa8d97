/* Ensembles of trees. Several walks of trees by rows go down at once, one level at a time, so that one waits for memory
 * while the others compare; one that reaches a leaf begins the next tree or row at once. No walk jumps on what it
 * compares, only on leaves: rows that were never seen take little longer than those that come again. The forest comes
 * from a file: each step checks the feature and the node that it names, and leads forward, so that every walk ends.
 * https://onnx.ai/onnx/operators/onnx_aionnxml_TreeEnsemble.html; what that leaves open is as onnxruntime does it. */
#include "units.h"

#include <math.h>
#include <string.h>

#define WALKS 8       /* at once */
#define ROWS 32       /* of a block, walked tree by tree */
#define SCORES 4096   /* of a block, if it has more than one row */
#define LEAVES 8192   /* the same */
#define DEPTH_MAX 128 /* of a tree */

enum { BRANCH = 1, EQUAL = 2, MISSING = 4, MANY = EQUAL, FLAGS = 3 };

static int64_t number_words(const fx_trees_params *p) {
    return p->is_wide ? 2 : 1;
}

static int64_t forest_words(const fx_trees_params *p) {
    const int64_t number = number_words(p);
    return p->nodes * (number + 2) + p->entries * (number + 1) + (p->has_base ? p->results * number : 0);
}

static fx_window full_window(const fx_params *u) {
    return (fx_window){0, u->trees.rows, 0, u->trees.results};
}

static int is_flag(int32_t v) {
    return v == 0 || v == 1;
}

static fx_status check(uint32_t kernel, const fx_params *u) {
    const fx_trees_params *p = &u->trees;
    if (kernel != 0 || !is_flag(p->is_wide) || !is_flag(p->is_plain) || !is_flag(p->is_positive) ||
        !is_flag(p->has_base) || p->rows < 1 || p->features < 1 || p->trees < 1 || p->nodes < p->trees ||
        p->entries < 0 || p->results < 1 || p->depth < 0 || p->depth > DEPTH_MAX)
        return FX_ERR_PARAMS;
    if (p->aggregate < 0 || p->aggregate >= FX_FOREST_COUNT || p->transform < 0 || p->transform >= FX_TRANSFORM_COUNT ||
        p->classes < 0 || p->classes >= FX_CLASS_COUNT)
        return FX_ERR_PARAMS;
    if (p->to != FX_DTYPE_F32 && (p->to != FX_DTYPE_F64 || p->classes != FX_CLASS_NONE))
        return FX_ERR_PARAMS;
    if (p->classes > FX_CLASS_MANY && (p->results != 2 || p->transform == FX_TRANSFORM_PROBIT))
        return FX_ERR_PARAMS;
    return p->rows <= FX_ELEMENTS_MAX / (p->features + (int64_t)p->results + 1) ? FX_OK : FX_ERR_PARAMS;
}

static int64_t element_bytes(const fx_params *u, int operand) {
    const fx_trees_params *p = &u->trees;
    const int is_wide = operand == 0 ? p->is_wide : operand == FX_OUTPUT && p->to == FX_DTYPE_F64;
    return is_wide ? 8 : 4;
}

static void extent(const fx_params *u, int operand, int64_t *lo, int64_t *hi) {
    const fx_trees_params *p = &u->trees;
    *lo = 0;
    if (operand == 0)
        *hi = (int64_t)p->rows * p->features * element_bytes(u, operand);
    else if (operand == 1)
        *hi = forest_words(p) * 4;
    else
        *hi = p->rows * (p->results + (int64_t)(p->classes != FX_CLASS_NONE)) * element_bytes(u, operand);
}

static int64_t output_bytes(const fx_params *u) {
    return fx_contiguous_bytes(extent, u);
}

static int64_t block_rows(const fx_trees_params *p) {
    return fx_max64(1, fx_min64(ROWS, fx_min64(SCORES / p->results, LEAVES / p->trees)));
}

typedef struct workspace {
    double *scores;  /* [rows of a block][results] */
    uint8_t *said;   /* the same: whether a leaf said that result */
    int32_t *leaves; /* [rows of a block][trees]: where walks end */
    int64_t bytes;
} workspace;

static workspace workspace_at(void *base, const fx_trees_params *p) {
    int64_t at = 0;
    workspace s;
    FX_TAKE(s.scores, base, at, block_rows(p) * p->results);
    FX_TAKE(s.said, base, at, block_rows(p) * p->results);
    FX_TAKE(s.leaves, base, at, block_rows(p) * p->trees);
    s.bytes = at;
    return s;
}

static int64_t workspace_bytes(const fx_kernels *k, uint32_t kernel, const fx_params *u) {
    (void)k, (void)kernel;
    return workspace_at(NULL, &u->trees).bytes;
}

static uint32_t units(const fx_kernels *k, uint32_t kernel, const fx_params *u, fx_window w, int threads) {
    (void)k, (void)kernel;
    const fx_trees_params *p = &u->trees;
    if (w.y0 >= w.y1 || w.c0 >= w.c1)
        return 0;
    return fx_units_of(p->rows, fx_min64(INT32_MAX, p->trees * (p->depth + INT64_C(1)) * 16), threads);
}

/* ---- walking ---- */

typedef struct forest {
    const fx_trees_params *p;
    const int32_t *nodes, *entries, *base;
} forest;

static double number_at(const int32_t *words, int is_wide) {
    double wide;
    float narrow;
    if (is_wide) {
        memcpy(&wide, words, sizeof wide);
        return wide;
    }
    memcpy(&narrow, words, sizeof narrow);
    return narrow;
}

/* What comparisons have to look at besides numbers. */
typedef enum kind { NUMBERS, EQUALITY, ALL } kind;

static int64_t row_bytes(const fx_trees_params *p) {
    return p->features * (p->is_wide ? INT64_C(8) : 4);
}

/* Whether a row of numbers has a missing one. */
static int has_missing(const forest *f, const char *x) {
    const int64_t features = f->p->features;
    int found = 0;
    if (f->p->is_wide)
        for (int64_t i = 0; i < features; i++)
            found |= ((const double *)x)[i] != ((const double *)x)[i];
    else
        for (int64_t i = 0; i < features; i++)
            found |= ((const float *)x)[i] != ((const float *)x)[i];
    return found;
}

/* 1 where x leads to the second child. Equality and missing values are rare: jumps that are foreseen cost less than
 * computing both. */
static inline __attribute__((always_inline)) uint32_t leads_on(double x, double number, uint32_t meta, kind of) {
    uint32_t leads = !(x <= number);
    if (of >= EQUALITY && __builtin_expect(meta & EQUAL, 0))
        leads |= x < number;
    if (of == ALL && __builtin_expect(x != x, 0))
        leads = !(meta & MISSING);
    return leads;
}

/* A walk down a tree by a row. */
typedef struct walk {
    const char *x;
    int32_t *leaf; /* where it ends; NULL: it is over, and none was left to begin */
    uint32_t at;
} walk;

/* What is left to walk: from a tree's row on; the rows of a tree come one after another. */
typedef struct rest {
    const char *x;
    int32_t *leaves; /* [rows][trees] */
    int64_t rows, row, tree;
} rest;

static inline walk next_walk(const forest *f, rest *r) {
    if (r->tree == f->p->trees)
        return (walk){r->x, NULL, 0};
    const walk w = {r->x + r->row * row_bytes(f->p), r->leaves + r->row * f->p->trees + r->tree, (uint32_t)r->tree};
    r->row = r->row + 1 < r->rows ? r->row + 1 : 0;
    r->tree += r->row == 0;
    return w;
}

/* Takes a walk one level down, or begins the next one at a leaf; -1 where an index is out of range, else how many walks
 * ended. is_wide and of are constants where this is called, so each combination is a loop of its own. */
static inline __attribute__((always_inline)) int step(const forest *f, rest *r, walk *w, int is_wide, kind of) {
    const int64_t words = is_wide ? 4 : 3;
    const int32_t *node = f->nodes + w->at * words;
    const uint32_t meta = (uint32_t)node[words - 2], feature = meta >> FLAGS;
    if (!(meta & BRANCH)) {
        if (!w->leaf)
            return 0;
        *w->leaf = (int32_t)w->at;
        *w = next_walk(f, r);
        return 1;
    }
    if (__builtin_expect(feature >= (uint32_t)f->p->features, 0))
        return -1;
    const double v = is_wide ? ((const double *)w->x)[feature] : (double)((const float *)w->x)[feature];
    const uint32_t next = (uint32_t)node[words - 1] + leads_on(v, number_at(node, is_wide), meta, of);
    if (__builtin_expect(next <= w->at || next >= (uint32_t)f->p->nodes, 0))
        return -1;
    w->at = next;
    return 0;
}

/* Finds the leaves of `r`. */
static inline __attribute__((always_inline)) fx_status descend(const forest *f, rest *r, int is_wide, kind of) {
    walk walks[WALKS];
    for (int i = 0; i < WALKS; i++)
        walks[i] = next_walk(f, r);
    for (int64_t left = r->rows * f->p->trees; left > 0;) {
#define STEP(i)                                                                                                        \
    do {                                                                                                               \
        const int ended = step(f, r, &walks[i], is_wide, of);                                                          \
        if (ended < 0)                                                                                                 \
            return FX_ERR_INDEX;                                                                                       \
        left -= ended;                                                                                                 \
    } while (0)
        STEP(0);
        STEP(1);
        STEP(2);
        STEP(3);
        STEP(4);
        STEP(5);
        STEP(6);
        STEP(7);
    }
    return FX_OK;
}

static fx_status find_leaves(const forest *f, const char *x, int64_t rows, kind of, int32_t *leaves) {
    rest r = {.x = x, .leaves = leaves, .rows = rows};
    if (f->p->is_wide)
        return of == NUMBERS    ? descend(f, &r, 1, NUMBERS)
               : of == EQUALITY ? descend(f, &r, 1, EQUALITY)
                                : descend(f, &r, 1, ALL);
    return of == NUMBERS    ? descend(f, &r, 0, NUMBERS)
           : of == EQUALITY ? descend(f, &r, 0, EQUALITY)
                            : descend(f, &r, 0, ALL);
}

/* ---- what leaves say ---- */

static double rounded(const fx_trees_params *p, double v) {
    return p->is_wide ? v : (double)(float)v;
}

static void say(const fx_trees_params *p, double *score, uint8_t *said, double v) {
    if (p->aggregate == FX_FOREST_MIN)
        *score = !*said || v < *score ? v : *score;
    else if (p->aggregate == FX_FOREST_MAX)
        *score = !*said || v > *score ? v : *score;
    else
        *score = rounded(p, *score + v);
    *said = 1;
}

/* Adds what a leaf says to a row's scores. */
static inline __attribute__((always_inline)) fx_status add_leaf(const forest *f, int32_t at, double *scores,
                                                                uint8_t *said) {
    const fx_trees_params *p = f->p;
    const int64_t number = number_words(p);
    const int32_t *node = f->nodes + at * (number + 2);
    const uint32_t count = (uint32_t)node[number] >> FLAGS;
    if (!(node[number] & MANY)) {
        if (count >= (uint32_t)p->results)
            return FX_ERR_INDEX;
        say(p, &scores[count], &said[count], number_at(node, p->is_wide));
        return FX_OK;
    }
    if (node[0] < 0 || node[0] > p->entries || count > (uint32_t)(p->entries - node[0]))
        return FX_ERR_INDEX;
    const int32_t *entry = f->entries + node[0] * (number + 1);
    for (uint32_t i = 0; i < count; i++, entry += number + 1) {
        const uint32_t result = (uint32_t)entry[number];
        if (result >= (uint32_t)p->results)
            return FX_ERR_INDEX;
        say(p, &scores[result], &said[result], number_at(entry, p->is_wide));
    }
    return FX_OK;
}

/* Adds what the leaves of all trees say to the sum of one result, up to one that says something else; returns how many
 * did. The sum stays in a register. */
static inline __attribute__((always_inline)) int64_t add_first(const forest *f, const int32_t *leaves, double *score,
                                                               int is_wide) {
    const int64_t words = is_wide ? 4 : 3;
    double wide = 0;
    float narrow = 0;
    int64_t tree = 0;
    for (; tree < f->p->trees; tree++) {
        const int32_t *node = f->nodes + leaves[tree] * words;
        if (node[words - 2] & ~BRANCH)
            break;
        if (is_wide)
            wide += number_at(node, 1);
        else
            narrow += (float)number_at(node, 0);
    }
    *score = is_wide ? wide : (double)narrow;
    return tree;
}

/* Adds what a row's leaves say, in the order of the trees. */
static fx_status add_leaves(const forest *f, const int32_t *leaves, double *scores, uint8_t *said) {
    const fx_trees_params *p = f->p;
    int64_t tree = 0;
    if (p->results == 1 && (p->aggregate == FX_FOREST_SUM || p->aggregate == FX_FOREST_AVERAGE)) {
        tree = p->is_wide ? add_first(f, leaves, scores, 1) : add_first(f, leaves, scores, 0);
        said[0] = tree > 0;
    }
    fx_status status = FX_OK;
    for (; tree < p->trees && status == FX_OK; tree++)
        status = add_leaf(f, leaves[tree], scores, said);
    return status;
}

/* The scores of `rows` rows from x on. */
static fx_status score_block(const forest *f, const char *x, int64_t rows, const workspace *s) {
    const fx_trees_params *p = f->p;
    kind of = p->is_plain ? NUMBERS : EQUALITY;
    memset(s->scores, 0, (size_t)(rows * p->results) * sizeof *s->scores);
    memset(s->said, 0, (size_t)(rows * p->results));
    for (int64_t row = 0; row < rows && of == EQUALITY; row++)
        of = has_missing(f, x + row * row_bytes(p)) ? ALL : EQUALITY;
    fx_status status = find_leaves(f, x, rows, of, s->leaves);
    for (int64_t row = 0; row < rows && status == FX_OK; row++)
        status = add_leaves(f, s->leaves + row * p->trees, s->scores + row * p->results, s->said + row * p->results);
    return status;
}

/* ---- what scores become ---- */

static double logistic(double v) {
    return 1 / (1 + exp(-v));
}

/* sqrt(2) times the inverse error function of 2 v - 1, by Winitzki's formula with the digits that onnxruntime uses. */
static double probit(double v) {
    const double x = 2 * v - 1, logarithm = log((1 - x) * (1 + x)), a = 2 / (3.14159 * 0.147) + 0.5 * logarithm;
    return 1.41421356 * (x < 0 ? -1 : 1) * sqrt(-a + sqrt(a * a - 1 / 0.147 * logarithm));
}

/* keeps_zeros: values of about 0 take no part. */
static void softmax(double *v, int64_t n, int keeps_zeros) {
    double top = -HUGE_VAL, sum = 0;
    for (int64_t i = 0; i < n; i++)
        top = v[i] > top ? v[i] : top;
    for (int64_t i = 0; i < n; i++) {
        if (keeps_zeros && fabs(v[i]) <= 1e-7) {
            v[i] *= exp(-top);
            continue;
        }
        v[i] = exp(v[i] - top);
        sum += v[i];
    }
    for (int64_t i = 0; i < n; i++)
        v[i] /= sum;
}

static void transform(const fx_trees_params *p, double *v) {
    if (p->transform == FX_TRANSFORM_SOFTMAX || p->transform == FX_TRANSFORM_SOFTMAX_ZERO)
        softmax(v, p->results, p->transform == FX_TRANSFORM_SOFTMAX_ZERO);
    else if (p->transform != FX_TRANSFORM_NONE)
        for (int64_t i = 0; i < p->results; i++)
            v[i] = p->transform == FX_TRANSFORM_LOGISTIC ? logistic(v[i]) : probit(v[i]);
}

/* Sums become scores: averages, base values; scores that no leaf said are 0. */
static void finish(const forest *f, double *v, uint8_t *said) {
    const fx_trees_params *p = f->p;
    for (int64_t i = 0; i < p->results; i++) {
        if (p->aggregate == FX_FOREST_AVERAGE)
            v[i] = rounded(p, v[i] / p->trees);
        if (!f->base)
            continue;
        v[i] = rounded(p, v[i] + number_at(f->base + i * number_words(p), p->is_wide));
        said[i] |= p->classes <= FX_CLASS_MANY;
    }
    for (int64_t i = 0; i < p->results; i++)
        v[i] = said[i] ? v[i] : 0;
}

/* One score of two classes: both of the output, and which wins. */
static int64_t choose_one(const fx_trees_params *p, double *v, const uint8_t *said) {
    const int which = p->classes == FX_CLASS_SECOND;
    const double score = v[which];
    if (which && said[1]) {
        transform(p, v);
    } else if (p->transform == FX_TRANSFORM_LOGISTIC) {
        v[0] = logistic(-score);
        v[1] = logistic(score);
    } else {
        v[0] = (p->is_positive ? 1 : 0) - score;
        v[1] = score;
    }
    return score > (p->is_positive ? 0.5 : 0);
}

/* The class of the highest score that a leaf said. */
static int64_t choose(const fx_trees_params *p, const double *v, const uint8_t *said) {
    int64_t best = -1;
    for (int64_t i = 0; i < p->results; i++)
        if (said[i] && (best < 0 || v[i] > v[best]))
            best = i;
    return fx_max64(best, 0);
}

static void write_row(const forest *f, double *v, uint8_t *said, void *y, int64_t row) {
    const fx_trees_params *p = f->p;
    finish(f, v, said);
    int64_t label = 0;
    if (p->classes > FX_CLASS_MANY) {
        label = choose_one(p, v, said);
    } else {
        label = choose(p, v, said);
        if (p->results > 1 || p->transform == FX_TRANSFORM_PROBIT)
            transform(p, v);
    }
    for (int64_t i = 0; i < p->results; i++) {
        if (p->to == FX_DTYPE_F64)
            ((double *)y)[row * p->results + i] = v[i];
        else
            ((float *)y)[row * p->results + i] = (float)v[i];
    }
    if (p->classes != FX_CLASS_NONE)
        ((float *)y)[(int64_t)p->rows * p->results + row] = (float)label;
}

static fx_status run(const fx_call *call, int threads, uint32_t u0, uint32_t u1) {
    const fx_trees_params *p = &call->params->trees;
    const uint32_t count = units(call->kernels, 0, call->params, call->window, threads);
    const workspace s = workspace_at(call->workspace, p);
    const int64_t number = number_words(p), end = fx_cut_at(p->rows, count, u1);
    forest f = {.p = p, .nodes = call->in[1]};
    f.entries = f.nodes + p->nodes * (number + 2);
    f.base = p->has_base ? f.entries + p->entries * (number + 1) : NULL;
    int64_t rows;
    for (int64_t row = fx_cut_at(p->rows, count, u0); row < end; row += rows) {
        rows = fx_min64(block_rows(p), end - row);
        const char *x = (const char *)call->in[0] + row * row_bytes(p);
        const fx_status status = score_block(&f, x, rows, &s);
        if (status != FX_OK)
            return status;
        for (int64_t i = 0; i < rows; i++)
            write_row(&f, s.scores + i * p->results, s.said + i * p->results, call->out, row + i);
    }
    return FX_OK;
}

FX_DRIVER(trees, .traits = 0, .element_bytes = element_bytes, .workspace = workspace_bytes);
