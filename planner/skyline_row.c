/* A skyline of few spans: a row. Neighbours differ in their last use. */
#include "skyline.h"

#include <stdlib.h>
#include <string.h>

struct fx_row_span { /* of addresses, from start to the next span's; the last one, at the arena's end, has no memory */
    int64_t start, until;
};

static fx_status reserve(fx_row *s, int64_t count) {
    if (count <= s->max)
        return FX_OK;
    const int64_t max = 2 * count + 16;
    fx_row_span *spans = malloc(2 * (size_t)max * sizeof *spans); /* the other half: what spans become */
    if (!spans)
        return FX_ERR_MEMORY;
    if (s->count)
        memcpy(spans, s->spans, (size_t)s->count * sizeof *spans);
    free(s->spans);
    s->spans = spans;
    s->made = spans + max;
    s->max = max;
    return FX_OK;
}

fx_status fx_row_clear(fx_row *s, int64_t arena, int64_t align, int64_t floor) {
    s->count = 0;
    fx_status status = reserve(s, 2);
    if (status != FX_OK)
        return status;
    s->spans[0] = (fx_row_span){0, floor - 1};
    s->spans[1] = (fx_row_span){arena, INT64_MAX};
    s->count = 2;
    s->align = align;
    s->floor = floor;
    return FX_OK;
}

void fx_row_free(fx_row *s) {
    free(s->spans);
    *s = (fx_row){0};
}

fx_status fx_row_copy(fx_row *to, const fx_row *from) {
    to->count = 0;
    fx_status status = reserve(to, from->count);
    if (status != FX_OK)
        return status;
    memcpy(to->spans, from->spans, (size_t)from->count * sizeof *to->spans);
    to->count = from->count;
    to->align = from->align;
    to->floor = from->floor;
    return FX_OK;
}

/* The span that holds an address below the arena's end. */
static int64_t span_at(const fx_row *s, int64_t at) {
    int64_t found = 0;
    for (int64_t left = s->count - 1; left > 1;) { /* it is one of the `left` from `found` on */
        const int64_t half = left / 2;
        found += s->spans[found + half].start <= at ? half : 0;
        left -= half;
    }
    return found;
}

fx_status fx_row_add(fx_row *s, int64_t start, int64_t end, int64_t until) {
    const int64_t arena = s->spans[s->count - 1].start;
    end = end < arena ? end : arena;
    if (until < s->floor || start >= end)
        return FX_OK;
    fx_status status = reserve(s, s->count + 2);
    if (status != FX_OK)
        return status;
    const int64_t first = span_at(s, start);
    int64_t count = 0, last = first, now = first ? s->spans[first - 1].until : INT64_MIN;
    if (s->spans[first].start < start) {
        now = s->spans[first].until;
        s->made[count++] = s->spans[first];
    }
    for (int64_t at = start;; at = s->spans[++last].start) {
        const int64_t used = s->spans[last].until > until ? s->spans[last].until : until;
        if (used != now)
            s->made[count++] = (fx_row_span){at, used};
        now = used;
        if (s->spans[last + 1].start >= end)
            break;
    }
    if (end < s->spans[last + 1].start && s->spans[last].until != now) {
        now = s->spans[last].until;
        s->made[count++] = (fx_row_span){end, now};
    }
    const int64_t rest = s->spans[last + 1].until == now ? last + 2 : last + 1, to = first + count;
    if (to != rest) {
        memmove(s->spans + to, s->spans + rest, (size_t)(s->count - rest) * sizeof *s->spans);
        s->count += to - rest;
    }
    for (int64_t i = 0; i < count; i++)
        s->spans[first + i] = s->made[i];
    return FX_OK;
}

void fx_row_raise(fx_row *s, int64_t floor) {
    int64_t count = 0;
    s->floor = floor;
    for (int64_t i = 0; i < s->count; i++) {
        const int64_t until = s->spans[i].until < floor - 1 ? floor - 1 : s->spans[i].until;
        if (!count || until != s->spans[count - 1].until)
            s->spans[count++] = (fx_row_span){s->spans[i].start, until};
    }
    s->count = count;
}

/* The last step in which any byte of [start, end) is in use, at least `until`; stops early once it is after `enough`.
 * No span from `beyond` on reaches into the range. */
static int64_t used_below(const fx_row_span *spans, int64_t start, int64_t end, int64_t beyond, int64_t until,
                          int64_t enough) {
    for (int64_t i = beyond - 1; i >= 0 && spans[i + 1].start > start && until <= enough; i--)
        if (spans[i].start < end && spans[i].until > until)
            until = spans[i].until;
    return until;
}

/* The same; no span before `first` reaches into the range. */
static int64_t used_above(const fx_row_span *spans, int64_t start, int64_t end, int64_t first, int64_t until,
                          int64_t enough) {
    for (int64_t i = first; spans[i].start < end && until <= enough; i++)
        if (spans[i + 1].start > start && spans[i].until > until)
            until = spans[i].until;
    return until;
}

/* Spans are visited from the preferred end, so the first place that nothing uses is the best. */
int64_t fx_row_find(const fx_row *s, const fx_wish *wish, int64_t *until) {
    const int64_t bytes = wish->bytes, forced = wish->forced, align = s->align, none = s->floor - 1;
    const int64_t count = s->count, arena = s->spans[count - 1].start, from_top = wish->from_top;
    const fx_row_span *spans = s->spans;
    int64_t best = -1, least = INT64_MAX;
    if (forced >= 0) {
        *until =
            forced + bytes <= arena ? used_below(spans, forced, forced + bytes, count - 1, none, INT64_MAX) : least;
        return forced;
    }
    for (int64_t n = 0; n < count && least > none; n++) {
        const int64_t i = from_top ? count - 1 - n : n, edge = spans[i].start;
        const int64_t above = (edge + align - 1) & -align, below = (edge - bytes) & -align;
        if (above + bytes <= arena) {
            const int64_t now = used_above(spans, above, above + bytes, i, none, least);
            if (now < least || (now == least && (from_top ? above > best : above < best))) {
                least = now;
                best = above;
            }
        }
        if (below >= 0) {
            const int64_t now = used_below(spans, below, below + bytes, i, none, least);
            if (now < least || (now == least && (from_top ? below > best : below < best))) {
                least = now;
                best = below;
            }
        }
    }
    *until = least;
    return best;
}
