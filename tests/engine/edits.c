/* Programs that differ in few words share the arrays of one: each computes its own result, whichever ran before, comes
 * or goes, and takes little memory. Half of the weights stream.
 * usage: flexnn-edits */
#include "chain.h"
#include "require.h"
#include "state.h"

#include <string.h>
#include <unistd.h>

enum { VALUES = SIDE * SIDE * CHANNELS, KINDS = 3, ROUNDS = 300 };

typedef struct bench {
    chain c;
    fx_node nodes[KINDS][NODES];
    fx_program programs[KINDS];
    fx_engine *engine;
    fx_bound *bound[KINDS];
    float x[VALUES], y[VALUES], expected[VALUES];
    uint32_t seed;
} bench;

/* The chain; the same with its maps exchanged; the same without a rectifier at its end. */
static void make_kinds(bench *b) {
    for (int i = 0; i < KINDS; i++) {
        memcpy(b->nodes[i], b->c.nodes, sizeof b->c.nodes);
        b->programs[i] = b->c.program;
        b->programs[i].nodes = b->nodes[i];
    }
    chain_exchange_maps(&b->c, b->nodes[1]);
    b->nodes[2][NODES - 1].params.conv.act = FX_ACT_NONE;
}

static void bind(bench *b, int kind) {
    fx_bind_stats stats;
    fx_error error;
    b->bound[kind] = fx_bind(b->engine, &b->programs[kind], NULL, &stats, &error);
    CHECK(b->bound[kind]);
}

static void unbind(bench *b, int kind) {
    CHECK(fx_unbind(b->bound[kind]) == FX_OK);
    b->bound[kind] = NULL;
}

/* Runs a program and announces `next` programs. */
static void run(bench *b, int kind, fx_bound *const *next, uint32_t count) {
    fx_run_stats stats;
    fx_error error;
    int below = 0;
    memset(b->y, 0xff, sizeof b->y);
    CHECK(fx_run(b->bound[kind], (void *[]){b->x, b->y}, next, count, NULL, &stats, &error) == FX_OK);
    for (int i = 0; i < VALUES; i++) {
        below += b->y[i] < 0;
        b->y[i] = b->y[i] > 0 ? b->y[i] : 0;
    }
    CHECK(!memcmp(b->y, b->expected, sizeof b->y));
    CHECK((below > 0) == (kind == 2));
}

static void come_and_go(bench *b) {
    for (int round = 0; round < ROUNDS; round++) {
        const int kind = (int)(random_u32(&b->seed) % KINDS), other = (int)(random_u32(&b->seed) % KINDS);
        if (!b->bound[kind])
            bind(b, kind);
        fx_bound *next[] = {b->bound[other] ? b->bound[other] : b->bound[kind], b->bound[kind]};
        run(b, kind, next, random_u32(&b->seed) % 3);
        if (random_u32(&b->seed) % 4 == 0)
            unbind(b, kind);
    }
    for (int kind = 0; kind < KINDS; kind++)
        if (b->bound[kind])
            unbind(b, kind);
    CHECK(!b->engine->bound && !b->engine->unbound);
}

static void takes_little(bench *b) {
    bind(b, 0);
    const int64_t one = fx_engine_bytes(b->engine);
    bind(b, 1);
    const int64_t two = fx_engine_bytes(b->engine), more = b->bound[1]->bytes;
    CHECK(two - one == more && more < b->bound[0]->bytes / 2);
    unbind(b, 0); /* its arrays stay */
    CHECK(b->engine->unbound && fx_engine_bytes(b->engine) <= two);
    bind(b, 2); /* shares them, too */
    CHECK(b->bound[2]->owner == b->bound[1]->owner && b->bound[2]->owner == b->engine->unbound);
    run(b, 1, NULL, 0);
    unbind(b, 1);
    run(b, 2, NULL, 0);
    unbind(b, 2);
    CHECK(!b->engine->unbound);
}

/* A program that shares another's arrays, all in groups of one step. */
static fx_bound *bind_in_groups(bench *b, int kind) {
    static uint32_t ones[STEPS];
    fx_bind_stats stats;
    fx_error error;
    fx_program p = b->programs[kind];
    for (int i = 0; i < STEPS; i++)
        ones[i] = 1;
    p.groups = ones;
    p.group_count = STEPS;
    fx_bound *bound = fx_bind(b->engine, &p, NULL, &stats, &error);
    CHECK(bound);
    return bound;
}

/* Two programs are unbound before those that share their arrays, which go in any order. */
static void owners_go_first(bench *b) {
    for (int first = 0; first < 2; first++) {
        bind(b, 0);
        bind(b, 1);
        fx_bound *owner = bind_in_groups(b, 0), *sharer = bind_in_groups(b, 1);
        CHECK(sharer->owner == owner && b->bound[1]->owner == b->bound[0]);
        unbind(b, 0);
        CHECK(fx_unbind(owner) == FX_OK && b->engine->unbound == owner);
        if (first)
            CHECK(fx_unbind(sharer) == FX_OK);
        run(b, 1, NULL, 0);
        unbind(b, 1);
        if (!first)
            CHECK(b->engine->unbound == owner && fx_unbind(sharer) == FX_OK);
        CHECK(!b->engine->unbound);
    }
}

/* Memory fails: a program no longer knows whose arrays it shares. They go with the engine; what the program itself
 * points to is left, as its pointers may lead anywhere, and is freed here. */
static void owner_is_lost(bench *b) {
    fx_run_stats stats;
    fx_error error;
    bind(b, 0);
    bind(b, 1);
    fx_touches left = b->bound[1]->touches;
    unbind(b, 0);
    b->bound[1]->owner = (fx_bound *)b; /* none of its */
    fx_engine_suspect(b->engine);
    CHECK(fx_run(b->bound[1], (void *[]){b->x, b->y}, NULL, 0, NULL, &stats, &error) == FX_ERR_SEAL);
    unbind(b, 1);
    fx_touches_free(&left);
    CHECK(b->engine->unbound);
}

/* Programs that differ in more than nodes and steps share no arrays: they are bound with their own, or refused where
 * they would write over what is pinned. */
static void others_share_nothing(bench *b) {
    static fx_load loads[SLICES];
    static uint32_t crcs[SLICES], ones[STEPS], pairs[STEPS];
    fx_bind_stats stats;
    fx_error error;
    memcpy(loads, b->c.loads, sizeof loads);
    memcpy(crcs, b->c.crcs, sizeof crcs);
    crcs[0] ^= 1;
    loads[b->c.program.load_count - 1].wait_steps--;
    for (int i = 0; i < STEPS; i++) {
        ones[i] = 1;
        pairs[i] = 1 + (i < 1);
    }
    for (int change = 0; change < 7; change++) {
        fx_program p = b->c.program;
        p.crcs = change == 0 ? crcs : p.crcs;
        p.loads = change == 1 ? loads : p.loads;
        p.zeros_count += change == 2;
        p.zeros_offset += change == 3 ? 64 : 0;
        p.file.fd = change == 4 ? dup(p.file.fd) : p.file.fd;
        p.groups = change == 5 ? ones : change == 6 ? pairs : p.groups;
        p.group_count = change == 5 ? STEPS : change == 6 ? STEPS - 1 : p.group_count;
        bind(b, 0);
        fx_bound *other = fx_bind(b->engine, &p, NULL, &stats, &error);
        CHECK(other ? !other->owner : error.status != FX_OK);
        CHECK(!other || fx_unbind(other) == FX_OK);
        run(b, 0, NULL, 0);
        unbind(b, 0);
        CHECK(change != 4 || close(p.file.fd) == 0);
    }
}

int main(void) {
    static bench b;
    const fx_kernels *k = fx_kernels_for(NULL);
    fx_error error;
    b.seed = 7;
    for (int threads = 1; threads <= 2; threads++)
        for (int poison = 0; poison < 2; poison++) {
            chain_make(&b.c, k, threads, 1, 0, &b.seed);
            make_kinds(&b);
            for (int i = 0; i < VALUES; i++)
                b.x[i] = (float)(random_u32(&b.seed) % 100) / 50 - 1;
            chain_reference(&b.c, k, b.x, b.expected);
            const fx_options options = {
                .threads = threads, .isa = fx_kernels_level(k), .poison = poison, .jitter_seed = (uint32_t)poison};
            b.engine = fx_engine_open(&options, &error);
            CHECK(b.engine);
            takes_little(&b);
            others_share_nothing(&b);
            come_and_go(&b);
            owners_go_first(&b);
            owner_is_lost(&b);
            CHECK(fx_engine_close(b.engine, NULL) == FX_OK);
            chain_free(&b.c);
        }
    puts("edits: every program computes its own");
    return 0;
}
