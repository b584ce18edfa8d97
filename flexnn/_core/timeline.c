/* Predicted times. The model is the engine's protocol (engine.h): loads one after the other, steps one after the other,
 * two counters. A load takes its bytes by the storage's rate plus a request, a step what its kernel takes; while both
 * go on they slow each other down as the machine was measured to do. */
#include "draft.h"

#define RUNS 3 /* one after the other; the last is the steady state, or the first that begins as the one before did */

/* The loader: its next load, over all runs. */
typedef struct loader {
    const fx_draft *d;
    const fx_problem *p;
    uint32_t piece; /* of the load */
    int64_t done;   /* loads before it */
    int64_t base;   /* steps of the runs before its own */
    int64_t after;  /* steps after which it may start */
    double left;    /* seconds of it, alone */
    double byte_s;  /* seconds of a byte */
} loader;

/* Goes on to the next streamed piece; there is one. */
static void next_load(loader *l) {
    const fx_draft *d = l->d;
    while (d->pieces[l->piece].stays)
        if (++l->piece == d->piece_count) {
            l->piece = 0;
            l->base += d->step_count;
        }
    const fx_piece_draft *piece = &d->pieces[l->piece];
    l->after = l->base + piece->wait_steps;
    l->left = (double)piece->arena_bytes * l->byte_s + l->p->request_s;
}

static void finish_load(loader *l) {
    l->done++;
    if (++l->piece == l->d->piece_count) {
        l->piece = 0;
        l->base += l->d->step_count;
    }
    next_load(l);
}

void fx_draft_simulate(fx_draft *d, const fx_problem *p) {
    const int64_t steps = d->step_count, loads = steps ? d->steps[steps - 1].loads : 0;
    double now = 0.0, started = 0.0, stall = 0.0;
    loader l = {.d = d, .p = p, .after = INT64_MAX, .byte_s = 1.0 / p->storage_bytes_per_second};
    if (loads)
        next_load(&l);
    const double loads_s = 1.0 / p->load_share, steps_s = 1.0 / p->compute_share; /* of a second of each alone */
    const double progress = p->load_share * steps_s; /* of a load while a second of computing is done */
    int64_t ahead = -1; /* loads done when the run before began; and what was left of the one in flight */
    double left = 0.0;
    for (int64_t run = 0; run < RUNS && (ahead != l.done - run * loads || left != l.left); run++) {
        started = now;
        stall = 0.0;
        ahead = l.done - run * loads;
        left = l.left;
        for (int64_t j = 0; j < steps; j++) {
            while (l.done < run * loads + d->steps[j].loads) { /* no load that a step waits for waits for that step */
                now += l.left;
                stall += l.left;
                finish_load(&l);
            }
            double work = d->steps[j].seconds;
            while (l.after <= run * steps + j && l.left < work * progress) {
                now += l.left * loads_s;
                work -= l.left * loads_s * p->compute_share;
                finish_load(&l);
            }
            if (l.after <= run * steps + j) {
                l.left -= work * progress;
                now += work * steps_s;
            } else {
                now += work;
            }
        }
    }
    d->seconds = now - started;
    d->stall_s = stall;
}

/* On the circle of runs, two of which are unrolled: a piece may enter when no step up to its use has less free memory
 * than the pieces that are needed at or after that step and come no later than it. */
void fx_draft_time(fx_draft *d, const fx_problem *p) {
    const int64_t steps = d->step_count;
    int64_t *total = d->work; /* [2 count + 1] bytes of streamed pieces before each */
    int64_t count = 0;
    for (uint32_t i = 0; i < d->piece_count; i++)
        if (!d->pieces[i].stays)
            total[count++] = d->pieces[i].arena_bytes;
    int64_t *latest = total + 2 * count + 1; /* [2 count + 1] last step that bars each piece and all after it */
    int64_t sum = 0;
    for (int64_t k = 0; k < count; k++) {
        int64_t bytes = total[k];
        total[k] = sum;
        sum += bytes;
    }
    for (int64_t k = count; k <= 2 * count; k++)
        total[k] = k < 2 * count ? total[k - count] + sum : 2 * sum;
    for (int64_t k = 0; k <= 2 * count; k++)
        latest[k] = -1;
    for (int64_t i = 0, needed = 0; i < steps; i++) {
        int64_t room = d->steps[i].free_bytes + total[needed];
        int64_t low = needed, high = 2 * count; /* the last k with total[k] <= room: pieces before it fit */
        while (low < high) {
            int64_t middle = (low + high + 1) / 2;
            if (total[middle] <= room)
                low = middle;
            else
                high = middle - 1;
        }
        /* Piece number `low` is the first that step i has no room for; in the next run, piece low + count. */
        if (latest[low] < i)
            latest[low] = i;
        int64_t next = low + count < 2 * count ? low + count : 2 * count;
        if (latest[next] < i + steps)
            latest[next] = i + steps;
        needed = d->steps[i].loads;
    }
    int64_t barred = -1, k = 0;
    for (; k < count; k++)
        barred = latest[k] > barred ? latest[k] : barred;
    for (uint32_t i = 0; i < d->piece_count; i++) {
        fx_piece_draft *piece = &d->pieces[i];
        if (piece->stays)
            continue;
        barred = latest[k] > barred ? latest[k] : barred;
        k++;
        int64_t wait = barred + 1 - steps, least = piece->step + 1 - steps;
        wait = wait < least ? least : wait;
        piece->wait_steps = (int32_t)(wait > piece->step ? piece->step : wait);
    }
    fx_draft_simulate(d, p);
}
