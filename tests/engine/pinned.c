/* Pinned weights when programs come and go: each comes from its place, from another place of the arena or from the
 * file, and its bytes are right wherever it came from.
 * usage: flexnn-pinned */
#include "flexnn/crc32c.h"
#include "require.h"
#include "state.h"

#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    CHUNK = 8192,
    CHUNKS = 12,
    LEAD = 100,
    FILE_BYTES = LEAD + CHUNK * CHUNKS + 5000,
    ARENA_BYTES = 1 << 18,
    MANY = 1 << 15
};

static char file_bytes[FILE_BYTES];
static uint32_t crcs[CHUNKS];
static fx_engine engine;
static fx_file file;

/* Chunks [first, first + count) of the file at an arena offset. */
static fx_load load_of(int first, int count, int64_t address) {
    return (fx_load){.file_offset = first * CHUNK,
                     .bytes = LEAD + count * CHUNK + 900,
                     .address = address,
                     .check_lead = LEAD,
                     .chunk_bytes = CHUNK,
                     .check_bytes = count * CHUNK,
                     .crc_first = (uint32_t)first};
}

static fx_status bring(const fx_load *pinned, uint32_t count, fx_bind_stats *stats, fx_error *error) {
    const fx_program program = {.file = file,
                                .pinned = pinned,
                                .pinned_count = count,
                                .crcs = crcs,
                                .crc_count = CHUNKS,
                                .arena_bytes = ARENA_BYTES,
                                .zeros_offset = ARENA_BYTES - 64,
                                .zeros_count = 16};
    fx_poll poll = fx_poll_start(NULL);
    fx_touches touches;
    *stats = (fx_bind_stats){0};
    CHECK(fx_touches_make(&touches, &program, 1, &poll) == FX_OK);
    const fx_status status = fx_pinned_bring(&engine, &program, &touches, &poll, stats, error);
    fx_touches_free(&touches);
    for (uint32_t i = 0; i < count && status == FX_OK; i++)
        CHECK(!memcmp(engine.arena.memory + pinned[i].address + LEAD, file_bytes + pinned[i].file_offset + LEAD,
                      (size_t)pinned[i].check_bytes));
    return status;
}

/* Brings pinned weights and checks where their chunks came from. */
static void brings(const fx_load *pinned, uint32_t count, int kept, int moved, int read) {
    fx_bind_stats stats;
    fx_error error;
    CHECK(bring(pinned, count, &stats, &error) == FX_OK);
    if (stats.kept != kept * CHUNK || stats.moved != moved * CHUNK || stats.read != read * CHUNK)
        fprintf(stderr, "%d kept, %d moved, %d read\n", (int)(stats.kept / CHUNK), (int)(stats.moved / CHUNK),
                (int)(stats.read / CHUNK));
    CHECK(stats.kept == kept * CHUNK && stats.moved == moved * CHUNK && stats.read == read * CHUNK);
}

static void forget_all(void) {
    fx_pinned_cut(&engine, 0);
    CHECK(!engine.pinned_count);
    memset(engine.arena.memory, 0xee, ARENA_BYTES);
}

static void come_and_go(void) {
    const fx_load all[] = {load_of(0, 4, 0), load_of(4, 4, 50000)};
    brings(all, 2, 0, 0, 8);
    brings(all, 2, 8, 0, 0); /* in place */
    CHECK(engine.pinned_count == 2);
    const fx_load up[] = {load_of(0, 4, 3000), load_of(4, 4, 53000)};
    brings(up, 2, 0, 8, 0);  /* each over a part of itself */
    brings(all, 2, 0, 8, 0); /* and down again */
    const fx_load part = load_of(2, 4, 100000);
    brings(&part, 1, 0, 4, 0); /* the end of one and the beginning of the other */
    CHECK(engine.pinned_count == 3);
    const fx_load more[] = {load_of(1, 1, 0), load_of(8, 2, 150000)};
    brings(more, 2, 0, 1, 2); /* one lies where the first load was; the other was never there */
    brings(all, 2, 4, 3, 1);  /* chunk 0 has been written over */
    forget_all();
    brings(all, 2, 0, 0, 8);
}

/* Of two that swap places one cannot be moved: it is read. */
static void change_places(void) {
    forget_all();
    const fx_load before[] = {load_of(0, 1, 0), load_of(1, 1, 20000)};
    const fx_load after[] = {load_of(0, 1, 20000), load_of(1, 1, 0)};
    brings(before, 2, 0, 0, 2);
    brings(after, 2, 0, 1, 1);
}

static void cut_and_forget(void) {
    forget_all();
    const fx_load loads[] = {load_of(0, 2, 0), load_of(2, 2, 65536), load_of(4, 2, 131072)};
    brings(loads, 3, 0, 0, 6);
    fx_pinned_cut(&engine, 131072 + LEAD + CHUNK); /* the third no longer fits */
    CHECK(engine.pinned_count == 2);
    memset(engine.arena.memory + 40960, 0xee, 4096);
    memset(engine.arena.memory + 131072, 0xee, 65536);
    fx_pinned_forget_others(&engine);
    CHECK(!engine.arena.memory[40960] && !engine.arena.memory[131072] && !engine.arena.memory[ARENA_BYTES - 1]);
    brings(loads, 3, 4, 0, 2);
}

/* The same bytes of another file are not found; those of a file that was closed are forgotten. */
static void files(int fd) {
    const fx_load loads[] = {load_of(0, 2, 0), load_of(2, 2, 65536)};
    forget_all();
    brings(loads, 2, 0, 0, 4);
    file.fd = dup(fd);
    brings(&loads[1], 1, 0, 0, 2);
    brings(loads, 1, 0, 0, 2);
    CHECK(fx_engine_forget(&engine, fd) == FX_OK && engine.pinned_count == 2);
    brings(loads, 2, 4, 0, 0);
    CHECK(fx_engine_forget(&engine, file.fd) == FX_OK && !engine.pinned_count && !close(file.fd));
    file.fd = fd;
    brings(loads, 2, 0, 0, 4);
}

static void faults(int fd) {
    const fx_load loads[] = {load_of(0, 2, 0), load_of(2, 3, 65536)};
    fx_bind_stats stats;
    fx_error error;
    forget_all();
    CHECK(pwrite(fd, "damaged", 7, LEAD + 3 * CHUNK + 50) == 7);
    CHECK(bring(loads, 2, &stats, &error) == FX_ERR_CHECKSUM);
    CHECK(error.is_load && error.is_pinned && error.index == 1);
    CHECK(!engine.pinned_count); /* none of the weights that were being brought is listed */
    CHECK(pwrite(fd, file_bytes, FILE_BYTES, 0) == FILE_BYTES);
    brings(loads, 2, 0, 0, 5);
    forget_all();
    CHECK(!ftruncate(fd, LEAD + 4 * CHUNK));
    CHECK(bring(loads, 2, &stats, &error) == FX_ERR_EOF && error.index == 1 && error.file_offset == LEAD + 4 * CHUNK);
    CHECK(pwrite(fd, file_bytes, FILE_BYTES, 0) == FILE_BYTES);
    file.fd = -1;
    CHECK(bring(loads, 2, &stats, &error) == FX_ERR_IO && error.os_error == EBADF && error.index == 0);
    file.fd = fd;
    brings(loads, 2, 0, 0, 5);
}

/* Least clock ticks of three to find `count` pinned bytes in place, in another order. */
static int64_t ticks_to_find(uint32_t count) {
    static fx_load loads[MANY];
    static uint32_t byte_crcs[MANY];
    fx_bind_stats stats;
    fx_error error;
    int64_t least = INT64_MAX;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t at = (uint32_t)((uint64_t)i * 7919 % count);
        byte_crcs[at] = fx_crc32c(0, file_bytes + at, 1);
        loads[i] = (fx_load){.file_offset = at,
                             .bytes = 1,
                             .address = 4 * (int64_t)at,
                             .chunk_bytes = 1,
                             .check_bytes = 1,
                             .crc_first = at};
    }
    const fx_program program = {
        .file = file, .pinned = loads, .pinned_count = count, .crcs = byte_crcs, .crc_count = count};
    fx_touches touches;
    fx_poll poll = fx_poll_start(NULL);
    forget_all();
    CHECK(fx_touches_make(&touches, &program, 1, &poll) == FX_OK);
    for (int turn = 0; turn < 4; turn++) {
        const clock_t start = clock();
        stats = (fx_bind_stats){0};
        CHECK(fx_pinned_bring(&engine, &program, &touches, &poll, &stats, &error) == FX_OK);
        CHECK(turn ? stats.kept == count : stats.read == count);
        least = turn && clock() - start < least ? clock() - start : least;
    }
    fx_touches_free(&touches);
    return least;
}

int main(void) {
    uint32_t seed = 1;
    char name[] = "/tmp/flexnn-pinned-XXXXXX";
    const int fd = mkstemp(name);
    CHECK(fd >= 0 && !unlink(name));
    for (int i = 0; i < FILE_BYTES; i++)
        file_bytes[i] = (char)random_u32(&seed);
    for (int i = 0; i < CHUNKS; i++)
        crcs[i] = fx_crc32c(0, file_bytes + LEAD + i * CHUNK, CHUNK);
    CHECK(write(fd, file_bytes, FILE_BYTES) == FILE_BYTES);
    engine.crc_path = fx_crc_path_best();
    CHECK(fx_arena_grow(&engine.arena, ARENA_BYTES) == FX_OK);
    for (int direct = 0; direct < 2; direct++) {
        for (int poison = 0; poison < 2; poison++) {
            file = (fx_file){.fd = fd, .direct_fd = direct ? fd : -1};
            engine.direct = direct;
            engine.poison = poison;
            forget_all();
            come_and_go();
            change_places();
            cut_and_forget();
        }
    }
    file.direct_fd = -1;
    files(fd);
    faults(fd);
    CHECK(ticks_to_find(MANY) < 24 * (ticks_to_find(MANY / 8) + 1)); /* 64 times as long if each looked at each */
    fx_arena_free(&engine.arena);
    free(engine.pinned);
    close(fd);
    puts("pinned: good");
    return 0;
}
