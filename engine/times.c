#include "times.h"

#include "last_touch.h"

#include <stdlib.h>

/* Walks the program group by group, or step by step where it has no groups. */
typedef struct cursor {
    uint32_t group, first, count;
    uint32_t waited; /* most loads that a step up to this group waits for */
} cursor;

static void look(const fx_program *p, cursor *c) {
    c->count = p->group_count && c->group < p->group_count ? p->groups[c->group] : 1;
    for (uint32_t i = c->first; i < c->first + c->count && i < p->step_count; i++)
        c->waited = p->steps[i].wait_loads > c->waited ? p->steps[i].wait_loads : c->waited;
}

static cursor cursor_start(const fx_program *p) {
    cursor c = {0};
    look(p, &c);
    return c;
}

static void cursor_next(const fx_program *p, cursor *c) {
    c->first += c->count;
    c->group++;
    look(p, c);
}

/* Steps of a run that are certainly done once `done` of them are: those of whole groups. c: a cursor that only goes
 * forward. */
static int64_t whole_groups(const fx_program *p, cursor *c, int64_t done) {
    while (c->first < done)
        cursor_next(p, c);
    return c->first;
}

/* The times of one load after the other. A load may run from the moment `begin` steps of its run are done (below 0: of
 * the run before) until step `end` begins, the first one of the group that waits for it. Both follow the order of loads
 * and steps, so they are running maxima. */
typedef struct times {
    cursor before, own, use; /* begin, in either run, and end */
    int64_t wait, begin, end;
} times;

static times times_start(const fx_program *p) {
    times t = {.before = cursor_start(p), .wait = -(int64_t)p->step_count};
    t.own = t.use = t.before;
    for (uint32_t i = 0; i < p->load_count; i++) /* the last loads of the run before come first */
        if (p->loads[i].wait_steps - (int64_t)p->step_count > t.wait)
            t.wait = p->loads[i].wait_steps - (int64_t)p->step_count;
    return t;
}

static void times_next(const fx_program *p, times *t, uint32_t load) {
    const int64_t steps = p->step_count;
    t->wait = p->loads[load].wait_steps > t->wait ? p->loads[load].wait_steps : t->wait;
    t->begin = t->wait < 0 ? whole_groups(p, &t->before, t->wait + steps) - steps : whole_groups(p, &t->own, t->wait);
    while (t->use.first < steps && t->use.waited <= load)
        cursor_next(p, &t->use);
    t->end = t->use.first;
}

/* A step of this run, or below 0 of the run before. */
static const fx_step *step_at(const fx_program *p, int64_t step) {
    return &p->steps[step < 0 ? step + p->step_count : step];
}

static int64_t pairs_of(const fx_program *p) {
    int64_t pairs = 0;
    times t = times_start(p);
    for (uint32_t i = 0; i < p->load_count; i++) {
        times_next(p, &t, i);
        pairs += t.end - t.begin;
    }
    return pairs;
}

static fx_status compare_pairs(const fx_program *p, const fx_node_ranges *nodes, fx_poll *poll, fx_error *error) {
    times t = times_start(p);
    for (uint32_t i = 0; i < p->load_count; i++) {
        const fx_range target = fx_load_target(&p->loads[i]);
        times_next(p, &t, i);
        if (fx_polled(poll))
            return fx_overlap_error(error, FX_ERR_CANCELLED, -1, NULL);
        for (int64_t j = t.begin; j < t.end; j++) {
            int bad = fx_ranges_meet(target, fx_step_weights(p, step_at(p, j)));
            for (int k = 0; k < FX_RANGES; k++)
                bad |= fx_ranges_meet(target, nodes[step_at(p, j)->node].ranges[k]);
            if (bad)
                return fx_overlap_error(error, FX_ERR_OVERLAP, i, &p->loads[i]);
        }
    }
    return FX_OK;
}

static fx_status compare_last(const fx_program *p, const fx_node_ranges *nodes, fx_poll *poll, fx_error *error) {
    const int64_t shift = (int64_t)p->step_count + 1; /* times begin at 1 */
    fx_last_touch last;
    fx_range *targets = calloc(p->load_count, sizeof *targets);
    fx_status status = targets ? FX_OK : FX_ERR_MEMORY;
    for (uint32_t i = 0; i < p->load_count && targets; i++)
        targets[i] = fx_load_target(&p->loads[i]);
    if (status == FX_OK)
        status = fx_last_touch_make(&last, targets, p->load_count);
    free(targets);
    if (status != FX_OK)
        return fx_overlap_error(error, status, -1, NULL);
    times t = times_start(p);
    int64_t noted = 0;
    for (uint32_t i = 0; i < p->load_count && status == FX_OK; i++) {
        times_next(p, &t, i);
        noted = i ? noted : t.begin;
        for (; noted < t.end; noted++) {
            const fx_step *step = step_at(p, noted);
            fx_last_touch_note(&last, fx_step_weights(p, step), (uint32_t)(noted + shift));
            for (int k = 0; k < FX_RANGES; k++)
                fx_last_touch_note(&last, nodes[step->node].ranges[k], (uint32_t)(noted + shift));
        }
        if (t.begin < t.end && fx_last_touch_of(&last, fx_load_target(&p->loads[i])) >= t.begin + shift)
            status = fx_overlap_error(error, FX_ERR_OVERLAP, i, &p->loads[i]);
        else if (fx_polled(poll))
            status = fx_overlap_error(error, FX_ERR_CANCELLED, -1, NULL);
    }
    fx_last_touch_free(&last);
    return status;
}

fx_status fx_times_check(const fx_program *p, const fx_node_ranges *nodes, int64_t pairs_max, fx_poll *poll,
                         fx_error *error) {
    return pairs_of(p) <= pairs_max ? compare_pairs(p, nodes, poll, error) : compare_last(p, nodes, poll, error);
}

fx_status fx_overlap_error(fx_error *error, fx_status status, int64_t index, const fx_load *load) {
    *error = (fx_error){.status = status, .index = index, .is_load = load != NULL};
    if (load)
        error->file_offset = load->file_offset;
    return status;
}
