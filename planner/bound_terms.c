/* Terms of the bound: see flexnn/bound_terms.h. The numbers are those of flexnn/planning/bound.py. */
#include "flexnn/bound_terms.h"

#include <math.h>

static int64_t least_of(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int64_t most_of(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static int64_t up_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

/* A node's weights: each constant once, however often the node reads it. */
typedef struct weights {
    int64_t panel_bytes, panel_count; /* 0 without panels */
    int64_t panel;                    /* bytes, at least 1 */
    int64_t constants, constant_bytes, smallest;
} weights;

static weights weights_of(const fx_problem *p, const fx_draft_node *n) {
    weights w = {n->panel_bytes, n->panel_count, most_of(n->panel_bytes, 1), 0, 0, 0};
    const fx_constant *all = p->constants + n->constant_first;
    for (int64_t i = 0; i < n->constant_count; i++) {
        int is_new = 1;
        for (int64_t j = 0; j < i; j++)
            is_new = is_new && (all[j].file_offset != all[i].file_offset || all[j].bytes != all[i].bytes);
        if (!is_new)
            continue;
        w.smallest = w.constants ? least_of(w.smallest, all[i].bytes) : all[i].bytes;
        w.constants++, w.constant_bytes += all[i].bytes;
    }
    return w;
}

static int64_t bytes_of(const weights *w) {
    return w->panel_count * w->panel_bytes + w->constant_bytes;
}

/* Time of a node's steps in addition to its channels (5). room: bytes for slices. */
static double step_seconds(const fx_problem *p, const weights *w, int64_t room, int64_t pinned, double fixed) {
    const double stall = p->load_speed == 1 ? p->compute_speed : 0.0; /* of a second in which nothing computes */
    const double wait = stall / p->storage_bytes_per_second * (double)w->panel, request = stall * p->request_s;
    const int64_t most = room > w->panel ? room / w->panel : 1;
    double each = fmin((fixed + request + wait) / (double)(most + 1),
                       (fixed + request + wait * (double)most) / (double)(2 * most));
    if (most > 1)
        each = fmin(each, fixed / (double)most);
    const int64_t streamed = w->panel_count - least_of(w->panel_count, up_div(pinned, w->panel));
    const double few = fixed * (double)most_of(up_div(w->panel_count, most), 1);
    return streamed > most ? fmax(few, fixed + 2 * each * (double)(streamed - most)) : few;
}

/* Least seconds of a node, and the least of its channels and of its steps' fixed parts. */
typedef struct fastest {
    double seconds, channels, fixed;
} fastest;

static void take(fastest *f, double seconds, const fx_variant *v) {
    f->seconds = fmin(f->seconds, seconds);
    f->channels = fmin(f->channels, v->channels_s);
    f->fixed = fmin(f->fixed, v->fixed_s);
}

static fastest fastest_of(const fx_problem *p, const fx_draft_node *n, const weights *w, int64_t arena,
                          int64_t pinned) {
    fastest f = {INFINITY, INFINITY, INFINITY};
    const fx_variant *all = p->variants + n->variant_first;
    int any = 0;
    for (int pass = 0; pass < 2 && !any; pass++) /* where none fits, all are taken to */
        for (int64_t i = 0; i < n->variant_count; i++) {
            const int64_t beside = arena - n->live_bytes - all[i].workspace_bytes - w->constant_bytes;
            if (arena < 0)
                take(&f, all[i].fixed_s + all[i].channels_s, &all[i]);
            else if (beside >= w->panel_bytes || pass)
                take(&f, step_seconds(p, w, beside, pinned, all[i].fixed_s) + all[i].channels_s, &all[i]);
            else
                continue;
            any = 1;
        }
    return f;
}

/* Time of requests for a node's panels in addition to their bytes, and the most that each byte less saves of it (4). */
static double slice_requests(const fx_problem *p, const weights *w, int64_t free_bytes, int64_t free_least,
                             const fastest *f, double *saved) {
    const double idle = p->compute_speed == 1 ? p->load_speed : 0.0; /* of a second in which nothing is read */
    const double waits = idle > 0 ? idle * f->channels / (double)most_of(w->panel_count, 1) : 0.0;
    const double alone = p->request_s + (idle > 0 ? idle * f->fixed : 0.0);
    const int64_t panels = w->panel_bytes ? w->panel_count : 0;
    const int64_t most = most_of(least_of(free_bytes / w->panel, most_of(panels, 1)), 1);
    *saved = 0;
    if (!panels)
        return 0;
    double each = fmin((alone + waits) / (double)(most + 1), (alone + waits * (double)most) / (double)(2 * most));
    if (most > 1)
        each = fmin(each, p->request_s / (double)most);
    /* A line near the cost of all panels; or, where much may be pinned, one near that of the last that are left. */
    if (panels > most && (panels - most) * w->panel >= free_least) {
        *saved = 2 * each / (double)w->panel;
        return p->request_s + 2 * each * (double)(panels - most);
    }
    *saved = p->request_s / (double)most / (double)w->panel;
    return p->request_s * (double)panels / (double)most;
}

/* Fills bytes and free bytes; returns the least free ones. */
static int64_t fill_bytes(const fx_problem *p, int64_t arena, const fx_bound_terms *terms) {
    int64_t sum = 0;
    for (uint32_t i = 0; i < p->node_count; i++) {
        const weights w = weights_of(p, &p->nodes[i]);
        terms->bytes[i] = bytes_of(&w), sum += terms->bytes[i];
    }
    int64_t least = sum;
    for (uint32_t i = 0; i < p->node_count; i++) {
        const fx_draft_node *n = &p->nodes[i];
        const int64_t beside =
            n->variant_count ? p->variants[n->variant_first + n->variant_count - 1].workspace_bytes : 0;
        terms->free_bytes[i] = arena < 0 ? sum : most_of(arena - n->live_bytes - beside, 0);
        least = least_of(least, terms->free_bytes[i]);
    }
    return least;
}

void fx_bound_terms_of(const fx_problem *p, int64_t arena_bytes, const fx_bound_terms *terms) {
    const int64_t least = fill_bytes(p, arena_bytes, terms);
    const double byte_s = 1 / p->storage_bytes_per_second;
    for (uint32_t i = 0; i < p->node_count; i++) {
        const weights w = weights_of(p, &p->nodes[i]);
        const fastest f = fastest_of(p, &p->nodes[i], &w, arena_bytes, least);
        double saved;
        double requests = slice_requests(p, &w, terms->free_bytes[i], least, &f, &saved);
        requests += p->request_s * (double)w.constants;
        if (w.constants)
            saved = fmax(saved, p->request_s / (double)most_of(w.smallest, 1));
        terms->seconds[i] = f.seconds;
        terms->read_s[i] = (double)terms->bytes[i] * byte_s + requests;
        terms->byte_s[i] = byte_s + saved;
    }
}
