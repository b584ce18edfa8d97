/* Predicted times. The model is the engine's protocol (engine.h): loads one after the other, steps one after the other,
 * two counters. A load takes its bytes by the storage's rate plus a request, a step what its kernel takes; while both
 * go on they slow each other down as the machine was measured to do. Bytes come a latency after the load could start,
 * however long the loads before it take meanwhile: several are under way at once. */
#include "flexnn/draft.h"

#define RUNS 3 /* simulated one after the other until a run equals the one before it; the last is the steady state */

/* The loader: its next load and how far it is. */
typedef struct loader {
    const fx_draft_load *loads;
    int64_t count, steps; /* of a run */
    int64_t next;         /* index of the next load in its run */
    int64_t done;         /* loads before it */
    int64_t base;         /* steps before its run */
    int64_t after;        /* steps after which it may start */
    double left;          /* seconds that are left of it, when nothing else goes on */
    double wait, latency; /* seconds until its bytes begin to come, once it may start */
    double before;        /* seconds of the run before; negative in the first run */
} loader;

/* The next load begins at `now`, in step j: part of its latency may have passed while others were read. */
static void begin_load(loader *l, const fx_mark *marks, int64_t j, double now) {
    l->after = l->base + l->loads[l->next].wait_steps;
    l->left = l->loads[l->next].seconds;
    l->wait = l->latency;
    if (l->after > j || !l->latency)
        return;
    double since = l->after >= 0 ? now - marks[l->after].now : 0.0;
    if (l->after < 0)
        since = l->after < -l->steps || l->before < 0 ? l->latency : now + l->before - marks[l->after + l->steps].now;
    l->wait = since < l->latency ? l->latency - since : 0.0;
}

static void finish_load(loader *l, const fx_mark *marks, int64_t j, double now) {
    l->done++;
    if (++l->next == l->count) {
        l->next = 0;
        l->base += l->steps;
    }
    begin_load(l, marks, j, now);
}

/* The loads that go on while step j computes for `work` seconds from `now` on; returns when the step ends. */
static double pass_step(loader *l, const fx_problem *p, const fx_mark *marks, int64_t j, double work, double now) {
    const double progress = p->load_speed / p->compute_speed; /* of a load while a second of computing is done */
    while (l->after <= j && l->wait < work) {
        now += l->wait;
        work -= l->wait;
        l->wait = 0.0;
        if (l->left >= work * progress) {
            l->left -= work * progress;
            return now + work / p->compute_speed;
        }
        now += l->left / p->load_speed;
        work -= l->left / progress;
        finish_load(l, marks, j, now);
    }
    if (l->after <= j)
        l->wait -= work;
    return now + work;
}

void fx_draft_simulate(fx_draft *d, const fx_problem *p) {
    const int64_t steps = d->step_count, loads = steps ? d->steps[steps - 1].wait_loads : 0;
    const double byte_s = 1.0 / p->storage_bytes_per_second;
    for (uint32_t i = 0, k = 0; i < d->slice_count; i++) { /* a pinned slice's entry is overwritten by the next */
        const fx_draft_slice *slice = &d->slices[i];
        d->loads[k] = (fx_draft_load){(double)slice->arena_bytes * byte_s + p->request_s, slice->wait_steps};
        k += !slice->is_pinned;
    }
    loader l = {.loads = d->loads, .count = loads, .steps = steps, .after = INT64_MAX, .before = -1.0};
    l.latency = p->latency_s;
    if (loads)
        begin_load(&l, d->marks, -1, 0.0);
    d->seconds = d->stall_s = 0.0;
    for (int64_t run = 0; run < RUNS; run++) {
        double now = 0.0, stall = 0.0;
        for (int64_t j = 0; j < steps; j++) {
            fx_mark *mark = &d->marks[j];
            if (run && mark->done == l.done && mark->left == l.left &&
                mark->wait == l.wait) { /* from here on this run equals the one before */
                d->seconds += now - mark->now;
                d->stall_s += stall - mark->stall;
                return;
            }
            *mark = (fx_mark){now, stall, l.left, l.wait, l.done};
            while (l.done < d->steps[j].wait_loads) { /* ends, as no load waits for a step that waits for it */
                now += l.wait + l.left;
                stall += l.wait + l.left;
                finish_load(&l, d->marks, j, now);
            }
            now = pass_step(&l, p, d->marks, j, d->steps[j].seconds, now);
        }
        l.before = now;
        d->seconds = now;
        d->stall_s = stall;
        l.done -= loads;
        l.base -= steps;
        l.after -= steps;
    }
}

/* The last k from `low` to `high` with total[k] <= room, or `low`; totals rise. The search starts at `near` with steps
 * that double. */
static int64_t last_within(const int64_t *total, int64_t low, int64_t high, int64_t near, int64_t room) {
    int64_t by = 1;
    near = near < low ? low : near;
    if (total[near] <= room) {
        for (; near + by <= high && total[near + by] <= room; by *= 2)
            near += by;
        low = near;
        high = near + by - 1 < high ? near + by - 1 : high;
    } else {
        for (; near - by > low && total[near - by] > room; by *= 2)
            near -= by;
        high = near > low ? near - 1 : low;
        low = near - by > low ? near - by : low;
    }
    while (low < high) {
        int64_t middle = (low + high + 1) / 2;
        if (total[middle] <= room)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* On the circle of runs, two of which are unrolled: a slice may enter when no step up to its use has less free memory
 * than the slices that are needed at or after that step and come no later than it. */
void fx_draft_time(fx_draft *d, const fx_problem *p) {
    const int64_t steps = d->step_count;
    int64_t *total = d->work; /* [2 count + 1] bytes of streamed slices before each */
    int64_t count = 0;
    for (uint32_t i = 0; i < d->slice_count; i++)
        if (!d->slices[i].is_pinned)
            total[count++] = d->slices[i].arena_bytes;
    int64_t *latest = total + 2 * count + 1; /* [2 count + 1] last step that bars each slice and all after it */
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
    for (int64_t i = 0, low = 0, needed = 0; i < steps; i++) {
        low = last_within(total, needed, 2 * count, low, d->steps[i].free_bytes + total[needed]);
        /* Slice number `low` is the first that step i has no room for; in the next run, slice low + count. */
        latest[low] = latest[low] > i ? latest[low] : i;
        const int64_t next = low + count < 2 * count ? low + count : 2 * count;
        latest[next] = latest[next] > i + steps ? latest[next] : i + steps;
        needed = d->steps[i].wait_loads;
    }
    int64_t barred = -1, k = 0;
    for (; k < count; k++)
        barred = latest[k] > barred ? latest[k] : barred;
    for (uint32_t i = 0; i < d->slice_count; i++) {
        fx_draft_slice *slice = &d->slices[i];
        if (slice->is_pinned)
            continue;
        barred = latest[k] > barred ? latest[k] : barred;
        k++;
        int64_t wait = barred + 1 - steps, least = slice->step + 1 - steps;
        wait = wait < least ? least : wait;
        const int64_t stored = fx_stored_step(d, p, slice);
        wait = wait < stored ? stored : wait;
        slice->wait_steps = (int32_t)(wait > slice->step ? slice->step : wait);
    }
    fx_draft_simulate(d, p);
}
