/* Seals: checksums of what is bound, as it lies in memory. They are taken when a program is bound or a recording made,
 * and checked before a run that follows a fault. */
#ifndef FLEXNN_ENGINE_SEAL_H
#define FLEXNN_ENGINE_SEAL_H

#include "flexnn/crc32c.h"
#include "flexnn/engine.h"
#include "sync.h"

typedef struct fx_seal {
    uint32_t head;  /* of a structure: its counts and pointers */
    uint32_t lists; /* of a program: where its touches lie, and which words it edits */
    uint32_t body;  /* of what all these point to */
} fx_seal;

/* Seals a program that is about to be bound, and shows its nodes and steps. */
void fx_seal_bound(fx_bound *b);

/* If something has failed since the last check, checks all programs and recordings of the engine by their seals, and
 * pinned weights by the file's checksums. FX_ERR_SEAL, with is_pinned and a file_offset if it is a weight: at each run,
 * until nothing that is bound is damaged. FX_ERR_CANCELLED. */
fx_status fx_seals_check(fx_engine *e, fx_poll *poll, fx_error *error);

/* Whether whole chunks of a pinned load, [begin, end) of its checked bytes, lie at an address of the arena. */
int fx_seal_holds(const fx_engine *e, const fx_program *p, const fx_load *load, int64_t begin, int64_t end,
                  int64_t address);

/* The checksum of what came before and of `count` elements more. */
static inline uint32_t fx_seal_more(fx_crc_path path, uint32_t crc, const void *data, uint64_t count, size_t bytes) {
    return count ? fx_crc32c_by(path, crc, data, (size_t)count * bytes) : crc;
}

#endif
