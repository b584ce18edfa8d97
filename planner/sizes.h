/* Arena bytes of parts of the file. */
#ifndef FLEXNN_PLANNER_SIZES_H
#define FLEXNN_PLANNER_SIZES_H

#include "flexnn/draft.h"

#define FX_LINE 64

static inline int64_t fx_align_up(int64_t size, int64_t align) { /* a power of two: no division */
    return (size + align - 1) & -align;
}

/* Arena bytes that a part of the file takes: rounded outwards. */
static inline int64_t fx_occupied_bytes(const fx_problem *p, int64_t offset, int64_t bytes) {
    return fx_align_up(offset + bytes, p->io_align) - (offset & -p->io_align);
}

/* The same for a part that may lie anywhere in the file. */
static inline int64_t fx_room_bytes(const fx_problem *p, int64_t bytes) {
    return p->io_align <= FX_LINE ? fx_align_up(bytes, FX_LINE) : fx_align_up(bytes, p->io_align) + 2 * p->io_align;
}

#endif
