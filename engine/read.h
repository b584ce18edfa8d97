/* Reads of the file, and the check of the bytes they bring. */
#ifndef FLEXNN_ENGINE_READ_H
#define FLEXNN_ENGINE_READ_H

#include "flexnn/crc32c.h"
#include "flexnn/engine.h"
#include "sync.h"

static inline int64_t fx_direct_down(int64_t n) {
    return n / FX_DIRECT_ALIGN * FX_DIRECT_ALIGN;
}

static inline int64_t fx_direct_up(int64_t n) {
    return fx_direct_down(n + FX_DIRECT_ALIGN - 1);
}

/* Reads `bytes` of the file from `offset` on, with O_DIRECT where file, offset, bytes and target allow it. */
fx_error fx_read(const fx_file *file, char *target, int64_t bytes, int64_t offset);

/* Reads as fx_read does, with 1 as the answer, if all of it is in the page cache; else 0: reading would wait for the
 * device, or fail, or the system cannot tell. */
int fx_read_cached(const fx_file *file, char *target, int64_t bytes, int64_t offset);

/* Bytes of the request that begins at byte `at` of a load. A request is a part of a load of at most 1.25 MiB that one
 * read brings; a load has as few of them as possible, all of about the same size. */
int64_t fx_request_bytes(const fx_load *load, int64_t at);
/* The same where compute threads read: whole chunks, which whoever reads them can check, and fewer bytes, but where
 * reading waits for the device. 0, from any byte on, of a load that cannot be cut so. */
int64_t fx_part_bytes(const fx_load *load, int64_t at, int waits);

/* State of a check of a load's chunks, which are checked in order as their bytes arrive, while they are in the
 * cache. */
typedef struct fx_checker {
    const uint32_t *expected;
    const char *data; /* first checked byte */
    int64_t chunk_bytes, bytes, done;
    uint32_t crc;
    fx_crc_path path;
} fx_checker;

/* crcs: of the load's program; memory: the arena. */
fx_checker fx_check_start(fx_crc_path path, const uint32_t *crcs, const fx_load *load, const char *memory);
/* Checks those of bytes [0, available) of the load that are not checked yet. */
fx_error fx_check_to(fx_checker *c, const fx_load *load, int64_t available);

#endif
