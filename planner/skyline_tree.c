/* A skyline of many spans: a treap by addresses. Neighbouring spans differ in their last use. A span that is free keeps
 * FREE as its last use, whatever the floor. */
#include "skyline.h"

#include <stdlib.h>
#include <string.h>

#define FREE INT64_MIN
#define NONE (-1)

struct fx_tree_span { /* of addresses [start, end) */
    int64_t start, end, until;
    int64_t least, most; /* in the subtree: the earliest last use (INT64_MAX: all are free), the most aligned bytes of a
                            free span (-1: none is free) */
    int32_t left, right, before, after; /* before, after: neighbours by address */
    uint32_t priority;
};

typedef struct pair {
    int32_t low, high;
} pair;

static int64_t align_up(const fx_tree *s, int64_t at) {
    return (at + s->align - 1) & -s->align;
}

/* ---- the tree ---- */

static void update(fx_tree *s, int32_t i) {
    fx_tree_span *span = &s->spans[i];
    span->least = span->until == FREE ? INT64_MAX : span->until;
    span->most = span->until == FREE ? span->end - align_up(s, span->start) : -1;
    span->most = span->until == FREE && span->most < 0 ? 0 : span->most;
    const int32_t children[] = {span->left, span->right};
    for (int c = 0; c < 2; c++)
        if (children[c] != NONE) {
            const fx_tree_span *child = &s->spans[children[c]];
            span->least = child->least < span->least ? child->least : span->least;
            span->most = child->most > span->most ? child->most : span->most;
        }
}

/* Parts a tree into spans that begin below an address, and the others. */
static pair split(fx_tree *s, int32_t tree, int64_t at) {
    if (tree == NONE)
        return (pair){NONE, NONE};
    fx_tree_span *span = &s->spans[tree];
    if (span->start < at) {
        const pair parts = split(s, span->right, at);
        span->right = parts.low;
        update(s, tree);
        return (pair){tree, parts.high};
    }
    const pair parts = split(s, span->left, at);
    span->left = parts.high;
    update(s, tree);
    return (pair){parts.low, tree};
}

static int32_t join(fx_tree *s, int32_t low, int32_t high) {
    if (low == NONE || high == NONE)
        return low == NONE ? high : low;
    if (s->spans[low].priority > s->spans[high].priority) {
        s->spans[low].right = join(s, s->spans[low].right, high);
        update(s, low);
        return low;
    }
    s->spans[high].left = join(s, low, s->spans[high].left);
    update(s, high);
    return high;
}

static int32_t first_of(const fx_tree *s, int32_t tree) {
    while (tree != NONE && s->spans[tree].left != NONE)
        tree = s->spans[tree].left;
    return tree;
}

static int32_t last_of(const fx_tree *s, int32_t tree) {
    while (tree != NONE && s->spans[tree].right != NONE)
        tree = s->spans[tree].right;
    return tree;
}

/* Makes room for more spans. */
static fx_status reserve(fx_tree *s, int32_t more) {
    if (s->count <= s->max - more)
        return FX_OK;
    const int32_t max = 2 * s->max + more + 16;
    fx_tree_span *larger = s->max < INT32_MAX / 4 ? realloc(s->spans, (size_t)max * sizeof *larger) : NULL;
    if (!larger)
        return FX_ERR_MEMORY;
    s->spans = larger;
    s->max = max;
    return FX_OK;
}

/* A span that is a tree of its own. */
static int32_t make(fx_tree *s, int64_t start, int64_t end, int64_t until) {
    const int32_t i = s->unused != NONE ? s->unused : s->count++;
    if (i == s->unused)
        s->unused = s->spans[i].after;
    s->random ^= s->random << 13; /* xorshift64 */
    s->random ^= s->random >> 7;
    s->random ^= s->random << 17;
    s->spans[i] = (fx_tree_span){.start = start,
                                 .end = end,
                                 .until = until,
                                 .left = NONE,
                                 .right = NONE,
                                 .before = NONE,
                                 .after = NONE,
                                 .priority = (uint32_t)(s->random >> 32)};
    update(s, i);
    return i;
}

static void drop(fx_tree *s, int32_t i) {
    s->spans[i].after = s->unused;
    s->unused = i;
}

static void link(fx_tree *s, int32_t before, int32_t after) {
    if (before != NONE)
        s->spans[before].after = after;
    if (after != NONE)
        s->spans[after].before = before;
}

/* ---- changes ---- */

fx_status fx_tree_clear(fx_tree *s, int64_t arena, int64_t align, int64_t floor) {
    s->count = 0;
    s->root = s->unused = NONE;
    s->arena = arena;
    s->align = align;
    s->floor = floor;
    s->random = UINT64_C(0x9e3779b97f4a7c15);
    fx_status status = reserve(s, 1);
    if (status == FX_OK && arena > 0)
        s->root = make(s, 0, arena, FREE);
    return status;
}

void fx_tree_free(fx_tree *s) {
    free(s->spans);
    *s = (fx_tree){0};
}

fx_status fx_tree_copy(fx_tree *to, const fx_tree *from) {
    to->count = 0;
    fx_status status = reserve(to, from->count);
    if (status != FX_OK)
        return status;
    fx_tree_span *spans = to->spans;
    const int32_t max = to->max;
    *to = *from;
    to->spans = spans;
    to->max = max;
    memcpy(to->spans, from->spans, (size_t)from->count * sizeof *spans);
    return FX_OK;
}

/* Appends a span to a tree; the last one grows where both are in use alike. */
static int32_t append(fx_tree *s, int32_t tree, int64_t start, int64_t end, int64_t until) {
    const int32_t last = last_of(s, tree);
    if (start >= end)
        return tree;
    if (last != NONE && s->spans[last].until == until) {
        const pair parts = split(s, tree, s->spans[last].start);
        s->spans[last].end = end;
        update(s, last);
        return join(s, parts.low, last);
    }
    const int32_t added = make(s, start, end, until);
    link(s, last, added);
    return join(s, tree, added);
}

/* Appends a tree whose first span may be in use as the last one is. */
static int32_t append_tree(fx_tree *s, int32_t tree, int32_t more) {
    const int32_t last = last_of(s, tree), first = first_of(s, more);
    if (last != NONE && first != NONE && s->spans[last].until == s->spans[first].until) {
        const pair rest = split(s, more, s->spans[first].start + 1);
        const int32_t next = s->spans[first].after;
        tree = append(s, tree, s->spans[first].start, s->spans[first].end, s->spans[first].until);
        link(s, last, next);
        drop(s, first);
        return join(s, tree, rest.high);
    }
    link(s, last, first);
    return join(s, tree, more);
}

fx_status fx_tree_add(fx_tree *s, int64_t start, int64_t end, int64_t until) {
    end = end < s->arena ? end : s->arena;
    if (until < s->floor || start >= end)
        return FX_OK;
    fx_status status = reserve(s, 3);
    if (status != FX_OK)
        return status;
    pair parts = split(s, s->root, start + 1);
    const pair above = split(s, parts.high, end);
    const int32_t first = last_of(s, parts.low); /* holds `start`, and is cut there */
    parts = split(s, parts.low, s->spans[first].start);
    const int32_t below = s->spans[first].before;
    link(s, below, NONE);
    int32_t tree = parts.low;
    for (int32_t i = first; i != NONE && s->spans[i].start < end;) {
        const fx_tree_span span = s->spans[i];
        drop(s, i); /* so at most two spans more are made than dropped */
        if (span.start < start)
            tree = append(s, tree, span.start, start, span.until);
        const int64_t from = span.start > start ? span.start : start, to = span.end < end ? span.end : end;
        tree = append(s, tree, from, to, span.until > until ? span.until : until);
        if (span.end > end)
            tree = append(s, tree, end, span.end, span.until);
        i = span.after;
    }
    s->root = append_tree(s, tree, above.high);
    return FX_OK;
}

/* A span whose last use is before the floor, or NONE. */
static int32_t expired(const fx_tree *s) {
    int32_t i = s->root;
    if (i == NONE || s->spans[i].least >= s->floor)
        return NONE;
    for (;;) {
        const fx_tree_span *span = &s->spans[i];
        if (span->until != FREE && span->until < s->floor)
            return i;
        i = span->left != NONE && s->spans[span->left].least < s->floor ? span->left : span->right;
    }
}

void fx_tree_raise(fx_tree *s, int64_t floor) {
    s->floor = floor;
    for (int32_t i = expired(s); i != NONE; i = expired(s)) {
        const pair parts = split(s, s->root, s->spans[i].start), rest = split(s, parts.high, s->spans[i].end);
        const fx_tree_span span = s->spans[i];
        drop(s, i);
        link(s, span.before, NONE);
        const int32_t tree = append(s, parts.low, span.start, span.end, FREE);
        s->root = append_tree(s, tree, rest.high);
    }
}

/* ---- questions ---- */

/* The last step in which any byte from `start`, which lies in a span, to `end` is in use; stops once it is after
 * `enough`. FREE: none. */
static int64_t used_above(const fx_tree *s, int32_t i, int64_t start, int64_t end, int64_t enough) {
    int64_t until = FREE;
    for (; i != NONE && s->spans[i].start < end && until <= enough; i = s->spans[i].after)
        if (s->spans[i].end > start && s->spans[i].until > until)
            until = s->spans[i].until;
    return until;
}

/* The same, from a span that holds the last byte downwards, or is above it. */
static int64_t used_below(const fx_tree *s, int32_t i, int64_t start, int64_t end, int64_t enough) {
    int64_t until = FREE;
    for (; i != NONE && s->spans[i].end > start && until <= enough; i = s->spans[i].before)
        if (s->spans[i].start < end && s->spans[i].until > until)
            until = s->spans[i].until;
    return until;
}

/* The lowest or highest free span with room for aligned bytes, or NONE. */
static int32_t free_span(const fx_tree *s, int64_t bytes, int from_top) {
    int32_t i = s->root;
    if (i == NONE || s->spans[i].most < bytes)
        return NONE;
    for (;;) {
        const fx_tree_span *span = &s->spans[i];
        const int32_t preferred = from_top ? span->right : span->left, other = from_top ? span->left : span->right;
        if (preferred != NONE && s->spans[preferred].most >= bytes)
            i = preferred;
        else if (span->until == FREE && span->end - align_up(s, span->start) >= bytes)
            return i;
        else
            i = other;
    }
}

typedef struct look {
    const fx_tree *s;
    const fx_wish *wish;
    int64_t best, least;
} look;

static void offer(look *l, int64_t at, int64_t until) {
    const int better = l->wish->from_top ? at > l->best : at < l->best;
    if (until < l->least || (until == l->least && (l->best < 0 || better))) {
        l->least = until;
        l->best = at;
    }
}

/* Looks at the places that begin or end with a span. */
static void look_at(look *l, int32_t i) {
    const fx_tree *s = l->s;
    const int64_t bytes = l->wish->bytes;
    const int64_t above = align_up(s, s->spans[i].start), below = (s->spans[i].end - bytes) & -s->align;
    if (above + bytes <= s->arena)
        offer(l, above, used_above(s, i, above, above + bytes, l->least));
    if (below >= 0)
        offer(l, below, used_below(s, i, below, below + bytes, l->least));
}

/* Looks at a span in use and at free ones beside it: places that begin or end with these reach into it, as free spans
 * are too small here. */
static void look_around(look *l, int32_t i) {
    const fx_tree *s = l->s;
    const int32_t beside[] = {s->spans[i].before, s->spans[i].after};
    look_at(l, i);
    for (int n = 0; n < 2; n++)
        if (beside[n] != NONE && s->spans[beside[n]].until == FREE)
            look_at(l, beside[n]);
}

/* Looks at all spans of a tree that are not in use for too long. */
static void look_in(look *l, int32_t tree) {
    const fx_tree *s = l->s;
    if (tree == NONE || s->spans[tree].least > l->least)
        return;
    const fx_tree_span *span = &s->spans[tree];
    look_in(l, l->wish->from_top ? span->right : span->left);
    if (span->until != FREE && span->until <= l->least)
        look_around(l, tree);
    look_in(l, l->wish->from_top ? span->left : span->right);
}

/* The span in use that is free the earliest, or NONE. */
static int32_t earliest(const fx_tree *s) {
    int32_t i = s->root;
    while (i != NONE && s->spans[i].until != s->spans[i].least) {
        const int32_t left = s->spans[i].left;
        i = left != NONE && s->spans[left].least == s->spans[i].least ? left : s->spans[i].right;
    }
    return i;
}

static int64_t find_forced(const fx_tree *s, const fx_wish *wish, int64_t *until) {
    const int64_t none = s->floor - 1, end = wish->forced + wish->bytes;
    if (end > s->arena) {
        *until = INT64_MAX;
        return wish->forced;
    }
    int32_t i = s->root, holds = NONE;
    while (i != NONE) {
        holds = s->spans[i].start <= wish->forced ? i : holds;
        i = s->spans[i].start <= wish->forced ? s->spans[i].right : s->spans[i].left;
    }
    const int64_t used = used_above(s, holds, wish->forced, end, INT64_MAX);
    *until = used > none ? used : none;
    return wish->forced;
}

int64_t fx_tree_find(const fx_tree *s, const fx_wish *wish, int64_t *until) {
    if (wish->forced >= 0)
        return find_forced(s, wish, until);
    const int32_t span = free_span(s, wish->bytes, wish->from_top);
    *until = s->floor - 1;
    if (span != NONE)
        return wish->from_top ? (s->spans[span].end - wish->bytes) & -s->align : align_up(s, s->spans[span].start);
    look l = {s, wish, -1, wish->before - 1};
    const int32_t first = earliest(s); /* most others are worse, and need no look */
    if (first != NONE)
        look_around(&l, first);
    look_in(&l, s->root);
    *until = l.best < 0 ? INT64_MAX : l.least;
    return l.best;
}
