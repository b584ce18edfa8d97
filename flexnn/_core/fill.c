/* Pins in a draft that has its addresses: nothing else moves. */
#include "draft.h"

#define ROUNDING 1e-12 /* of sums of times */

static void pin(fx_draft *d, int32_t i, int stays) {
    fx_piece_draft *piece = &d->pieces[i];
    piece->stays = stays;
    for (uint32_t j = (uint32_t)piece->step; j < d->step_count; j++)
        d->steps[j].loads += stays ? -1 : 1;
    d->pinned_bytes += stays ? piece->arena_bytes : -piece->arena_bytes;
    d->stream_bytes -= stays ? piece->arena_bytes : -piece->arena_bytes;
}

void fx_fill(fx_draft *d, const fx_problem *p, const int32_t *order, uint32_t count, int64_t bytes) {
    uint32_t reached = 0, best = 0;
    fx_draft_simulate(d, p);
    double seconds = d->seconds;
    for (; reached < count && !d->pieces[order[reached]].stays; reached++) {
        if (d->pieces[order[reached]].arena_bytes > bytes)
            break;
        bytes -= d->pieces[order[reached]].arena_bytes;
        pin(d, order[reached], 1);
        fx_draft_simulate(d, p);
        if (d->seconds <= seconds * (1 + ROUNDING)) {
            seconds = d->seconds < seconds ? d->seconds : seconds;
            best = reached + 1;
        }
    }
    while (reached > best)
        pin(d, order[--reached], 0);
    fx_draft_simulate(d, p);
}
