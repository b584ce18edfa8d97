/* Bits that flip in memory: after a fault, a run finds each of them in whatever part of what is bound it is, is refused
 * until that is bound anew, and then computes what it did. Without a fault nothing is checked.
 * usage: flexnn-seal */
#include "chain.h"
#include "flexnn/recording.h"
#include "require.h"
#include "state.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum { VALUES = SIDE * SIDE * CHANNELS, KINDS = 2, FLIPS = 24 };

typedef struct bench {
    chain c;
    fx_node nodes[KINDS][NODES];
    fx_program programs[KINDS];
    fx_engine *engine;
    fx_bound *bound[KINDS]; /* the second has the arrays of the first, and edits */
    fx_recording *recording;
    float x[VALUES], y[VALUES], expected[VALUES];
    uint32_t seed;
} bench;

/* A part of what is bound. */
typedef struct part {
    const char *name;
    void *at;
    int64_t bytes;
} part;

/* The chain, and the same with its maps exchanged. */
static void make_kinds(bench *b) {
    for (int i = 0; i < KINDS; i++) {
        memcpy(b->nodes[i], b->c.nodes, sizeof b->c.nodes);
        b->programs[i] = b->c.program;
        b->programs[i].nodes = b->nodes[i];
    }
    chain_exchange_maps(&b->c, b->nodes[1]);
}

/* A recording, with numbers by which its arrays are found in memory. */
static const fx_entry entries[] = {{.kind = FX_ENTRY_RUN, .n = 77}, {.kind = FX_ENTRY_RUN, .a = 1}};
static const uint32_t operands[] = {0, 1, 1, 0, 1, 0, 0, 1, 1, 1};

static void bind(bench *b) {
    static const fx_slot slots[] = {{.base = 1, .bytes = VALUES * 4}, {.base = 2, .bytes = VALUES * 4}};
    fx_bind_stats stats;
    fx_error error;
    for (int i = 0; i < KINDS; i++)
        CHECK((b->bound[i] = fx_bind(b->engine, &b->programs[i], NULL, &stats, &error)));
    const fx_tape tape = {.programs = b->bound,
                          .program_count = KINDS,
                          .entries = entries,
                          .entry_count = 2,
                          .slots = slots,
                          .slot_count = 2,
                          .operands = operands,
                          .operand_count = sizeof operands / sizeof *operands,
                          .buffer_count = 2,
                          .input_count = 1};
    CHECK((b->recording = fx_recording_make(b->engine, &tape, &error)));
}

static void unbind(bench *b) {
    CHECK(fx_recording_free(b->recording) == FX_OK);
    for (int i = 0; i < KINDS; i++)
        CHECK(fx_unbind(b->bound[i]) == FX_OK);
}

static int always(void *arg) {
    (void)arg;
    return 1;
}

static fx_status run(bench *b, int kind, const fx_interrupt *interrupt, fx_error *error) {
    fx_run_stats stats;
    memset(b->y, 0xff, sizeof b->y);
    return fx_run(b->bound[kind], (void *[]){b->x, b->y}, NULL, 0, interrupt, &stats, error);
}

static fx_status record(bench *b, fx_error *error) {
    fx_recording_stats stats;
    memset(b->y, 0xff, sizeof b->y);
    return fx_recording_run(b->recording, (void *[]){b->x, b->y}, (int64_t[]){sizeof b->x, sizeof b->y}, 0, NULL,
                            &stats, error);
}

static void all_run(bench *b) {
    fx_error error;
    for (int i = 0; i < 2 * KINDS; i++)
        CHECK(run(b, i % KINDS, NULL, &error) == FX_OK && !memcmp(b->y, b->expected, sizeof b->y));
    CHECK(record(b, &error) == FX_OK && !memcmp(b->y, b->expected, sizeof b->y));
}

/* Something fails, in one of several ways. */
static void fail(bench *b, int how) {
    fx_error error;
    fx_bind_stats stats;
    if (how % 3 == 0) {
        /* Another file under its number, which cannot be read. The number is never free: a file that another thread
         * opens just then (the address sanitizer's own looks at the memory in use) would get it. */
        const int fd = b->c.fd, kept = dup(fd), unreadable = open("/dev/null", O_WRONLY);
        CHECK(kept >= 0 && unreadable >= 0 && dup2(unreadable, fd) == fd && !close(unreadable));
        for (int i = 0; i < 3 && run(b, i % KINDS, NULL, &error) == FX_OK; i++)
            ; /* what is read ahead runs yet */
        CHECK(error.status == FX_ERR_IO);
        CHECK(dup2(kept, fd) == fd && !close(kept));
    } else if (how % 3 == 1) {
        b->programs[0].arena_bytes = (int64_t)1 << 46;
        CHECK(!fx_bind(b->engine, &b->programs[0], NULL, &stats, &error) && error.status == FX_ERR_MEMORY);
        b->programs[0].arena_bytes = b->c.program.arena_bytes;
    } else {
        fx_engine_suspect(b->engine);
    }
    CHECK(b->engine->is_suspect);
}

static void flip(void *at, int64_t bit) {
    ((uint8_t *)at)[bit / 8] ^= (uint8_t)(1u << bit % 8);
}

/* Where the bytes of an array lie in the recording. */
static part in_recording(const bench *b, const char *name, const void *array, size_t bytes) {
    return (part){name, memmem(b->recording, (size_t)fx_recording_bytes(b->recording), array, bytes), (int64_t)bytes};
}

#define ARRAY(from, field, count) {#field, (void *)(from)->field, (int64_t)(count) * (int64_t)sizeof *(from)->field}

static int parts_of(const bench *b, part *parts) {
    fx_bound *own = b->bound[0], *sharer = b->bound[1];
    const fx_program *p = &own->program;
    const int64_t head = (int64_t)offsetof(fx_bound, seal) - (int64_t)offsetof(fx_bound, program);
    const part found[] = {
        {"head", &own->program, head},
        {"head of a sharer", &sharer->program, head},
        {"predecessors", &own->after[1].steps, sizeof own->after[1].steps},
        {"touches", &own->touches, sizeof own->touches},
        {"touches of a sharer", &sharer->touches, sizeof sharer->touches},
        ARRAY(p, nodes, p->node_count),
        ARRAY(p, steps, p->step_count),
        ARRAY(p, groups, p->group_count),
        ARRAY(p, pinned, p->pinned_count),
        ARRAY(p, loads, p->load_count),
        ARRAY(p, crcs, p->crc_count),
        ARRAY(p, io_bytes, 2),
        {"sizes of a sharer", (void *)sharer->program.io_bytes, 2 * (int64_t)sizeof(int64_t)},
        ARRAY(&own->touches, used, own->touches.used_count),
        ARRAY(&own->touches, writes, own->touches.write_count),
        ARRAY(&sharer->touches, pinned, sharer->touches.pinned_count),
        ARRAY(sharer, edits, sharer->edit_count),
        {"pinned weight", b->engine->arena.memory + p->pinned[1].address, p->pinned[1].check_bytes},
        {"zeros", b->engine->arena.memory + p->zeros_offset, p->zeros_count * 4},
        {"head of a recording", (char *)b->recording + 2 * sizeof(void *), sizeof(fx_tape)},
        in_recording(b, "entries", entries, sizeof entries),
        in_recording(b, "operands", operands, sizeof operands),
    };
    memcpy(parts, found, sizeof found);
    return sizeof found / sizeof *found;
}

static void refused(bench *b, const part *p) {
    fx_error error;
    for (int i = 0; i < KINDS; i++)
        if (run(b, i, NULL, &error) != FX_ERR_SEAL) {
            fprintf(stderr, "%s: a bit that flipped is not seen\n", p->name);
            exit(1);
        }
    CHECK(record(b, &error) == FX_ERR_SEAL && error.index == -1);
    CHECK(error.is_pinned == !strcmp(p->name, "pinned weight"));
}

/* A bit of a part flips. */
static void find(bench *b, int which, uint32_t *flips) {
    part parts[32];
    fx_error error;
    CHECK(which < parts_of(b, parts));
    const part *p = &parts[which];
    if (!p->bytes)
        return;
    CHECK(p->at);
    /* What a damaged program points to is not freed. */
    const fx_touches lists[KINDS] = {b->bound[0]->touches, b->bound[1]->touches};
    fail(b, (int)*flips);
    flip(p->at, random_u32(&b->seed) % (p->bytes * 8));
    refused(b, p);
    CHECK(run(b, 0, &(fx_interrupt){.is_wanted = always}, &error) != FX_OK);
    for (int i = 0; i < KINDS; i++)
        if (b->bound[i]->is_damaged) {
            fx_touches left = lists[i];
            fx_touches_free(&left);
        }
    unbind(b);
    bind(b);
    all_run(b);
    ++*flips;
}

/* Whatever failed, what is whole runs, and its weights are kept. */
static void goes_on(bench *b) {
    for (int how = 0; how < 3; how++) {
        fail(b, how);
        all_run(b);
        CHECK(!b->engine->is_suspect);
    }
    fail(b, 2);
    const fx_program *p = &b->programs[0];
    int64_t pinned = 0;
    fx_bind_stats stats;
    fx_error error;
    for (uint32_t i = 0; i < p->pinned_count; i++)
        pinned += p->pinned[i].check_bytes;
    unbind(b);
    CHECK((b->bound[0] = fx_bind(b->engine, p, NULL, &stats, &error)) && stats.kept == pinned && !stats.read);
    CHECK(fx_unbind(b->bound[0]) == FX_OK);
    flip(b->engine->arena.memory + p->pinned[0].address, 9); /* then it is read again */
    CHECK((b->bound[0] = fx_bind(b->engine, p, NULL, &stats, &error)) && stats.read == p->pinned[0].check_bytes);
    CHECK(fx_unbind(b->bound[0]) == FX_OK);
    bind(b);
    all_run(b);
}

/* Runs after runs without a fault check nothing. */
static void checks_nothing(bench *b) {
    fx_error error;
    fx_cost *steps = (fx_cost *)&b->bound[0]->touches.used[0].steps; /* nothing reads it now */
    *steps ^= 1;
    for (int i = 0; i < 3; i++)
        CHECK(run(b, 0, NULL, &error) == FX_OK && !memcmp(b->y, b->expected, sizeof b->y));
    *steps ^= 1;
}

int main(void) {
    static bench b;
    const fx_kernels *k = fx_kernels_for(NULL);
    fx_error error;
    part parts[32];
    uint32_t flips = 0;
    b.seed = 11;
    for (int group = 1; group <= 2; group++) {
        chain_make(&b.c, k, 2, group, 0, &b.seed);
        make_kinds(&b);
        for (int i = 0; i < VALUES; i++)
            b.x[i] = (float)(random_u32(&b.seed) % 100) / 50 - 1;
        chain_reference(&b.c, k, b.x, b.expected);
        const fx_options options = {.threads = 2, .isa = fx_kernels_level(k)};
        CHECK((b.engine = fx_engine_open(&options, &error)));
        bind(&b);
        all_run(&b);
        checks_nothing(&b);
        goes_on(&b);
        for (int which = parts_of(&b, parts); which-- > 0;)
            for (int i = 0; i < FLIPS; i++)
                find(&b, which, &flips);
        CHECK(fx_engine_close(b.engine, NULL) == FX_OK);
        chain_free(&b.c);
    }
    printf("seal: %u flipped bits found\n", flips);
    return 0;
}
