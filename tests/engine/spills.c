/* Activations that go to the spill file and come back: programs that break one rule each are refused; runs are right at
 * one thread and two, and each sees the rows of its own; a write that fails, ends early or is interrupted, and a read
 * that fails or brings other bytes, end the run with what failed, and the next run is right.
 * usage: flexnn-spills */
#include "failing.h"

#include "flexnn/engine.h"
#include "flexnn/kernels.h"
#include "refused.h"
#include "require.h"
#include "spilled.h"
#include "state.h"

#include <string.h>
#include <unistd.h>

#define CHECKED_PROGRAM s.program
#define CHECKED_THREADS 1

/* Names of spilled.h, for short. */
enum {
    COLUMNS = SPILLED_COLUMNS,
    ROWS = SPILLED_ROWS,
    HALF = SPILLED_HALF,
    ROW_BYTES = SPILLED_ROW_BYTES,
    MAP_BYTES = SPILLED_MAP_BYTES,
    HALF_BYTES = SPILLED_HALF_BYTES,
    GAP = SPILLED_SECOND
};

static struct {
    spilled made;
    fx_program *program; /* of it */
    fx_load tables[1];
    uint32_t groups[COPIES];
    float x[SPILLED_VALUES], zeros[SPILLED_VALUES], y[2][SPILLED_VALUES];
    int file;
} s;

static void fresh(void) {
    spilled_make(&s.made, s.file);
    s.program = &s.made.program;
    s.tables[0] = (fx_load){.bytes = 64, .check_bytes = 64, .chunk_bytes = 64};
    for (int i = 0; i < COPIES; i++)
        s.groups[i] = 1;
}

/* What lies where in the file. */
static void places(void) {
    fx_program *p = &s.made.program;
    REFUSED((void)0, FX_OK);
    REFUSED(p->spills = NULL, FX_ERR_PARAMS);
    REFUSED(p->spill_count = (1 << 24) + 1, FX_ERR_PARAMS);
    REFUSED(p->spill_crc_count = (1 << 27) + 1, FX_ERR_PARAMS);
    REFUSED(p->spill_crc_count++, FX_ERR_PARAMS);
    REFUSED(p->spill_bytes--, FX_ERR_PARAMS);
    REFUSED(p->spill_bytes = MAP_BYTES - 1, FX_ERR_PARAMS);
    REFUSED(p->spill_bytes = FX_SPILL_FROM, FX_ERR_PARAMS);
    REFUSED(p->spill_bytes = FX_SPILL_FROM - 1, FX_OK);
    REFUSED(p->spill.fd = -1, FX_ERR_PARAMS);
    REFUSED(p->group_count = COPIES; p->groups = s.groups, FX_ERR_PARAMS);
    REFUSED(s.made.places[1].file_offset = MAP_BYTES - ROW_BYTES, FX_ERR_BOUNDS); /* its store is elsewhere */
    REFUSED(s.made.places[1].file_offset = MAP_BYTES - 1; s.made.nodes[WHOLE].out.offset--;
            s.made.loads[2].file_offset -= GAP - MAP_BYTES + 1, FX_ERR_BOUNDS);
    REFUSED(s.made.places[0].bytes = 0, FX_ERR_BOUNDS);
    REFUSED(s.made.places[0].bytes += ROW_BYTES / 2, FX_ERR_PARAMS);
    REFUSED(s.made.places[0].bytes = GAP + ROW_BYTES - GAP % ROW_BYTES, FX_ERR_PARAMS); /* into the next */
    REFUSED(s.made.places[1].crc_first--, FX_ERR_PARAMS);
    REFUSED(s.made.places[1].crc_first++, FX_ERR_PARAMS);
    fresh(); /* without nodes and loads the places alone decide */
    p->node_count = p->step_count = p->load_count = 0;
    CHECK(status_of(s.program, 1) == FX_OK);
    s.made.places[0].chunk_bytes = 0;
    CHECK(status_of(s.program, 1) == FX_ERR_PARAMS);
    s.made.places[0].chunk_bytes = -1;
    CHECK(status_of(s.program, 1) == FX_ERR_PARAMS);
    s.made.places[0] = (fx_load){.bytes = 0, .chunk_bytes = ROW_BYTES};
    CHECK(status_of(s.program, 1) == FX_ERR_PARAMS);
    s.made.places[0] = (fx_load){.bytes = (1 << 27) + 1, .chunk_bytes = 1}; /* too many rows */
    p->spill_count = 1;
    p->spill_crc_count = 1 << 27;
    p->spill_bytes = (1 << 27) + 1;
    CHECK(status_of(s.program, 1) == FX_ERR_PARAMS);
    *p = (fx_program){.spill = {-1, -1}};
    CHECK(status_of(s.program, 1) == FX_OK);
    p->spill_bytes = -1;
    CHECK(status_of(s.program, 1) == FX_ERR_PARAMS);
}

/* Steps that store. */
static void stores(void) {
    fx_node *node = &s.made.nodes[FIRST_HALF];
    REFUSED(node->params.copy.xs4 = COLUMNS + 1, FX_ERR_BOUNDS);
    REFUSED(node->params.copy.ys4 = COLUMNS + 1, FX_ERR_BOUNDS);
    REFUSED(node->params.copy.d5 = COLUMNS / 2; node->params.copy.xs5 = 2, FX_ERR_BOUNDS);
    REFUSED(node->out.offset = -ROW_BYTES, FX_ERR_BOUNDS);
    REFUSED(node->out.offset = ROW_BYTES / 2, FX_ERR_BOUNDS);                             /* half a row */
    REFUSED(node->params.copy.d4 = 1; node->params.copy.d5 = COLUMNS / 2, FX_ERR_BOUNDS); /* the same */
    REFUSED(node->out.offset = MAP_BYTES, FX_ERR_BOUNDS);                                 /* between places */
    REFUSED(node->out.offset = MAP_BYTES - HALF_BYTES + ROW_BYTES, FX_ERR_BOUNDS);        /* past its end */
    REFUSED(s.made.nodes[WHOLE].params.copy.d4 = ROWS + 1;
            s.program->arena_bytes *= 2, FX_ERR_BOUNDS);                        /* more than it is */
    REFUSED(s.made.nodes[SECOND_HALF].out.offset -= ROW_BYTES, FX_ERR_OVERLAP); /* a row twice */
    REFUSED(s.made.steps[FIRST_HALF].window.y0 = 1, FX_ERR_PARAMS);
    REFUSED(s.made.steps[FIRST_HALF].window.y1--, FX_ERR_PARAMS);
    REFUSED(s.made.steps[FIRST_HALF].node = COME, FX_ERR_OVERLAP);                    /* it is never stored */
    REFUSED(node->in[0].base = FX_BASE_SPILL; node->in[0].offset = 0, FX_ERR_BOUNDS); /* only a load reads it */
    REFUSED(s.made.nodes[GO].op = FX_OP_UNARY; s.made.nodes[GO].out.base = FX_BASE_SPILL, FX_ERR_PARAMS);
}

/* Loads of rows. */
static void reads_back(void) {
    fx_load *load = &s.made.loads[0];
    REFUSED(load->wait_steps = FIRST_HALF, FX_ERR_OVERLAP); /* before they are stored */
    REFUSED(load->wait_steps = 0, FX_ERR_OVERLAP);
    REFUSED(load->wait_steps = -1, FX_ERR_OVERLAP);
    REFUSED(load->bytes = load->check_bytes = HALF_BYTES + ROW_BYTES, FX_ERR_OVERLAP); /* a row of the other half */
    REFUSED(load->check_bytes = 0, FX_ERR_BOUNDS);
    REFUSED(load->check_bytes -= 4, FX_ERR_BOUNDS);
    REFUSED(load->check_lead = 4; load->check_bytes -= 4, FX_ERR_BOUNDS);
    REFUSED(load->check_lead = ROW_BYTES; load->check_bytes -= ROW_BYTES; load->crc_first++, FX_OK);
    REFUSED(load->check_lead = ROW_BYTES; load->check_bytes -= ROW_BYTES, FX_ERR_PARAMS);
    REFUSED(load->chunk_bytes *= 2, FX_ERR_PARAMS);
    REFUSED(load->crc_first++, FX_ERR_PARAMS);
    REFUSED(load->crc_first = 2 * ROWS, FX_ERR_BOUNDS);
    REFUSED(load->file_offset += MAP_BYTES, FX_ERR_BOUNDS);                                  /* between the places */
    REFUSED(s.made.loads[2].bytes += ROW_BYTES; s.program->arena_bytes *= 2, FX_ERR_BOUNDS); /* past the file's end */
    REFUSED(s.made.loads[2].file_offset += ROW_BYTES; s.made.loads[2].check_bytes -= ROW_BYTES;
            s.made.loads[2].crc_first++, FX_ERR_BOUNDS);
    REFUSED(s.made.loads[2].bytes = GAP + MAP_BYTES + 4; s.program->arena_bytes = 1 << 20, FX_ERR_BOUNDS);
    REFUSED(s.program->pinned = &s.made.loads[2]; s.program->pinned_count = 1, FX_ERR_PARAMS);
    REFUSED(s.program->tables = s.tables; s.program->table_count = 1;
            s.tables[0].file_offset = FX_SPILL_FROM, FX_ERR_PARAMS);
    fresh();
    arm(FAIL_MEMORY, 1, 0, ENOMEM);
    CHECK(status_of(s.program, 1) == FX_ERR_MEMORY && disarm() == 1);
}

static void fill(uint32_t *seed) {
    for (int i = 0; i < SPILLED_VALUES; i++)
        s.x[i] = (float)random_u32(seed);
    memset(s.y, 0xff, sizeof s.y);
}

static fx_engine *opened(int threads) {
    fx_error error;
    const fx_options options = {.threads = threads, .poison = 1, .trace = 2, .read_bytes_per_second = (int64_t)1 << 40};
    fx_engine *e = fx_engine_open(&options, &error);
    CHECK(e);
    return e;
}

static fx_bound *bound(fx_engine *e) {
    fx_bind_stats stats;
    fx_error error;
    fx_bound *b = fx_bind(e, s.program, NULL, &stats, &error);
    CHECK(b && fx_engine_bytes(e) >= SPILLED_ARENA);
    return b;
}

static fx_error ran(fx_bound *b, fx_bound *next) {
    fx_run_stats stats;
    fx_error error;
    void *const buffers[] = {s.x, s.zeros, s.y[0], s.y[1]};
    if (fx_run(b, buffers, &next, next != NULL, NULL, &stats, &error) != FX_OK)
        return error;
    CHECK(!memcmp(s.y[0], s.x, MAP_BYTES) && !memcmp(s.y[1], s.x, MAP_BYTES));
    CHECK(stats.bytes_written == 2 * MAP_BYTES && stats.bytes_read == 2 * MAP_BYTES);
    return (fx_error){.status = FX_OK};
}

static void good(fx_bound *b, fx_bound *next, uint32_t *seed) {
    fill(seed);
    CHECK(ran(b, next).status == FX_OK);
}

/* Runs of one program, announced and not, and of two that share the file. */
static void runs(int threads) {
    uint32_t seed = 5;
    fresh();
    fx_engine *e = opened(threads);
    fx_bound *b = bound(e), *other = bound(e);
    CHECK(!b->owner && !other->owner); /* their stores are their own */
    for (int i = 0; i < 8; i++)
        good(i & 2 ? other : b, i % 3 ? b : i & 4 ? other : NULL, &seed);
    CHECK(fx_unbind(b) == FX_OK);
    good(other, other, &seed);
    CHECK(fx_engine_close(e, NULL) == FX_OK);
}

/* What the n-th call of a kind does, and what the run says. errors: as in failing.h. */
static void faulty(int threads, int kind, int error, int is_sticky, fx_status answer, int os_error) {
    uint32_t seed = 7;
    fresh();
    fx_engine *e = opened(threads);
    fx_bound *b = bound(e);
    atomic_store(&failing.is_cold, 1); /* or the caller would read what the page cache holds */
    long number = 1;
    for (int is_over = 0; !is_over; number++) {
        fill(&seed);
        arm(kind, number, is_sticky, error);
        const fx_error found = ran(b, b);
        is_over = disarm() < number;
        CHECK(found.status == (is_over ? FX_OK : answer) || (answer == FX_ERR_CHECKSUM && found.status == FX_OK));
        if (found.status != FX_OK) {
            CHECK(found.os_error == os_error && found.is_write == (kind == FAIL_WRITE && answer == FX_ERR_IO));
            CHECK(found.file_offset >= 0 && found.index >= 0);
        }
        for (int i = 0; i < 2; i++)
            good(b, b, &seed);
    }
    CHECK(number > 3);
    atomic_store(&failing.is_cold, 0);
    CHECK(fx_engine_close(e, NULL) == FX_OK);
}

static void faults(int threads) {
    for (int is_sticky = 0; is_sticky < 2; is_sticky++) {
        faulty(threads, FAIL_WRITE, EIO, is_sticky, FX_ERR_IO, EIO);
        faulty(threads, FAIL_WRITE, ENOSPC, is_sticky, FX_ERR_IO, ENOSPC);
        faulty(threads, FAIL_WRITE, 0, is_sticky, FX_ERR_IO, ENOSPC); /* nothing was written, and no error told */
        faulty(threads, FAIL_WRITE, -1, is_sticky, FX_OK, 0);         /* half of it, and half of the rest */
        faulty(threads, FAIL_READ, EIO, is_sticky, FX_ERR_IO, EIO);
        faulty(threads, FAIL_READ, 0, is_sticky, FX_ERR_EOF, 0);
    }
    faulty(threads, FAIL_WRITE, EINTR, 0, FX_OK, 0);
    faulty(threads, FAIL_WRITE, -2, 0, FX_ERR_CHECKSUM, 0);
}

/* A write that is interrupted, takes half, and then fails: the error says where. */
static void half_written(void) {
    static const int errors[] = {EINTR, -1, EIO};
    uint32_t seed = 11;
    fresh();
    fx_engine *e = opened(1);
    fx_bound *b = bound(e);
    fill(&seed);
    arm_all(FAIL_WRITE, errors, 3);
    const fx_error found = ran(b, b);
    disarm();
    CHECK(found.status == FX_ERR_IO && found.os_error == EIO && found.is_write && found.index == FIRST_HALF);
    CHECK(found.file_offset > 0 && found.file_offset < HALF_BYTES);
    good(b, NULL, &seed);
    CHECK(fx_engine_close(e, NULL) == FX_OK);
}

int main(void) {
    char name[] = "/tmp/flexnn-spills-XXXXXX";
    s.file = mkstemp(name);
    CHECK(s.file >= 0 && !unlink(name));
    places();
    stores();
    reads_back();
    for (int threads = 1; threads <= 2; threads++) {
        runs(threads);
        faults(threads);
    }
    half_written();
    close(s.file);
    puts("spills: good");
    return 0;
}
