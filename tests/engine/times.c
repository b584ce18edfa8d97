/* When loads may run: programs of a few steps against a map of every byte, the two ways to check against each other,
 * and a program of more pairs of loads and steps than could be compared.
 * usage: flexnn-times [programs] */
#include "times.h"
#include "last_touch.h"
#include "overlaps.h"
#include "random_programs.h"

#include <string.h>
#include <time.h>

enum { BYTES = 256, NODES = 5, STEPS = 9, LOADS = 7 };

typedef struct random_program {
    fx_node nodes[NODES];
    fx_step steps[STEPS];
    fx_load loads[LOADS];
    uint32_t groups[STEPS];
    fx_node_ranges ranges[NODES];
    fx_program program;
} random_program;

/* Nodes and loads of few bytes, so that about half of the programs are good. */
static void make(random_program *r) {
    const uint32_t steps = (uint32_t)(1 + below(STEPS)), loads = (uint32_t)(1 + below(LOADS));
    memset(r, 0, sizeof *r);
    for (int i = 0; i < NODES; i++)
        for (int k = 0; k < FX_RANGES; k++) {
            const int64_t low = below(BYTES);
            r->ranges[i].ranges[k] = below(3) ? (fx_range){0, 0} : (fx_range){low, low + below(24)};
            r->nodes[i].op = FX_OP_COPY; /* without panels */
        }
    uint32_t waits = 0;
    for (uint32_t i = 0; i < steps; i++) {
        waits += (uint32_t)below(3);
        r->steps[i] = (fx_step){.node = (uint32_t)below(NODES), .wait_loads = waits < loads ? waits : loads};
    }
    for (uint32_t i = 0; i < loads; i++)
        r->loads[i] = (fx_load){.address = below(BYTES),
                                .bytes = below(16),
                                .file_offset = i,
                                .wait_steps = (int32_t)(below(2 * steps) - steps)};
    uint32_t group_count = 0;
    for (uint32_t i = 0; i < steps; i += r->groups[group_count++])
        r->groups[group_count] = (uint32_t)(1 + below(steps - i < 3 ? steps - i : 3));
    r->program = (fx_program){.nodes = r->nodes,
                              .node_count = NODES,
                              .steps = r->steps,
                              .step_count = steps,
                              .loads = r->loads,
                              .load_count = loads,
                              .groups = r->groups,
                              .group_count = below(2) ? group_count : 0};
}

/* The first step of a step's group, and the first behind it. */
static void group_of(const fx_program *p, int64_t step, int64_t *first, int64_t *end) {
    *first = step, *end = step + 1;
    for (uint32_t g = 0, at = 0; g < p->group_count; at += p->groups[g++])
        if (at <= step && step < at + p->groups[g])
            *first = at, *end = at + p->groups[g];
}

/* The first load that may run while a step touches its target, byte by byte; -1: none. */
static int64_t bad_load(const random_program *r) {
    const fx_program *p = &r->program;
    const int64_t steps = p->step_count;
    for (int64_t i = 0; i < p->load_count; i++)
        for (int64_t j = -steps; j < steps; j++) { /* of the run before, and of this one */
            const int64_t inside = j < 0 ? j + steps : j;
            int64_t first, end, begins = -steps, waits = 0;
            group_of(p, inside, &first, &end);
            for (int64_t k = 0; k < 2 * p->load_count; k++) /* of the run before, and up to this load */
                if (k < p->load_count || k - p->load_count <= i) {
                    const int64_t wait = p->loads[k % p->load_count].wait_steps - (k < p->load_count ? steps : 0);
                    begins = wait > begins ? wait : begins;
                }
            for (int64_t k = 0; k < end; k++) /* its group has begun: what any of it waited for is loaded */
                waits = p->steps[k].wait_loads > waits ? p->steps[k].wait_loads : waits;
            if (first - (j < 0 ? steps : 0) < begins || (j >= 0 && waits > i))
                continue; /* its group was done before, as steps are counted in whole groups, or begins after it */
            for (int k = 0; k < FX_RANGES; k++)
                for (int64_t at = 0; at < 2 * BYTES; at++) {
                    const fx_range range = r->ranges[p->steps[inside].node].ranges[k];
                    if (at >= range.lo && at < range.hi && at >= p->loads[i].address &&
                        at < p->loads[i].address + p->loads[i].bytes)
                        return i;
                }
        }
    return -1;
}

static void check_program(int *bad) {
    random_program r;
    make(&r);
    const int64_t expected = bad_load(&r);
    for (int is_swept = 0; is_swept < 2; is_swept++) {
        fx_error error;
        const fx_status status = fx_times_check(&r.program, r.ranges, is_swept ? -1 : INT64_MAX, NULL, &error);
        CHECK(status == (expected < 0 ? FX_OK : FX_ERR_OVERLAP));
        CHECK(expected < 0 || (error.is_load && error.index == expected && error.file_offset == expected));
    }
    *bad += expected >= 0;
}

/* The tree against a time for each byte. */
static void check_touches(void) {
    random_program r;
    uint32_t times[3 * BYTES] = {0};
    fx_last_touch t;
    make(&r);
    fx_range targets[LOADS];
    for (uint32_t i = 0; i < r.program.load_count; i++)
        targets[i] = fx_load_target(&r.loads[i]);
    CHECK(fx_last_touch_make(&t, targets, r.program.load_count) == FX_OK);
    for (int round = 0; round < 40; round++) {
        const uint32_t time = (uint32_t)(1 + below(40));
        const int64_t low = below(BYTES), high = low + below(40);
        for (int64_t i = low; i < high; i++)
            times[i] = time > times[i] ? time : times[i];
        fx_last_touch_note(&t, (fx_range){low, high}, time);
        for (uint32_t i = 0; i < r.program.load_count; i++) {
            const fx_range target = fx_load_target(&r.loads[i]);
            uint32_t last = 0;
            for (int64_t j = target.lo; j < target.hi; j++)
                last = times[j] > last ? times[j] : last;
            CHECK(fx_last_touch_of(&t, target) == last);
        }
    }
    fx_last_touch_free(&t);
}

static int cancels(void *arg) {
    (void)arg;
    return 1;
}

/* 100,000 loads that may all run during the whole run before: 10^10 pairs, in a few seconds even under a sanitizer. */
static void check_many(void) {
    enum { MANY = 100000 };
    fx_node node = {.op = FX_OP_COPY};
    fx_step *steps = calloc(MANY, sizeof *steps);
    fx_load *loads = calloc(MANY, sizeof *loads);
    fx_error error;
    CHECK(steps && loads);
    node.params.copy =
        (fx_copy_params){.elem_bytes = 4, .d0 = 1, .d1 = 1, .d2 = 1, .d3 = 1, .d4 = 1, .d5 = 16, .xs5 = 1, .ys5 = 1};
    for (int j = 1; j < FX_MAX_INPUTS; j++)
        node.in[j].base = -1;
    node.out.offset = 64;
    for (int i = 0; i < MANY; i++) {
        steps[i].wait_loads = (uint32_t)i + 1;
        loads[i] = (fx_load){.address = 128 + 64 * (int64_t)i, .bytes = 64, .wait_steps = -MANY};
    }
    fx_program p = {
        .nodes = &node, .node_count = 1, .steps = steps, .step_count = MANY, .loads = loads, .load_count = MANY};
    const clock_t start = clock();
    CHECK(fx_program_check_overlaps(&p, 1, NULL, &error) == FX_OK);
    for (int call = 0; call < 4; call++) {
        fails_at = call;
        CHECK(fx_program_check_overlaps(&p, 1, NULL, &error) == FX_ERR_MEMORY && error.status == FX_ERR_MEMORY);
    }
    fx_poll poll = fx_poll_start_every(&(fx_interrupt){.is_wanted = cancels}, 0);
    CHECK(fx_times_check(&p, &(fx_node_ranges){0}, INT64_MAX, &poll, &error) == FX_ERR_CANCELLED);
    poll.cancelled = 0;
    CHECK(fx_times_check(&p, &(fx_node_ranges){0}, -1, &poll, &error) == FX_ERR_CANCELLED);
    loads[MANY - 1].address = 64;
    CHECK(fx_program_check_overlaps(&p, 1, NULL, &error) == FX_ERR_OVERLAP && error.is_load && error.index == MANY - 1);
    CHECK(clock() - start < 20 * CLOCKS_PER_SEC);
    free(steps);
    free(loads);
}

int main(int argc, char **argv) {
    const int programs = argc > 1 ? atoi(argv[1]) : 2000;
    int bad = 0;
    for (int i = 0; i < programs; i++) {
        check_program(&bad);
        check_touches();
    }
    CHECK(4 * bad > programs && 4 * bad < 3 * programs); /* both answers are met often */
    check_many();
    puts("times: good");
    return 0;
}
