#include "flexnn/fluid_bound.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define RUNS 4      /* simulated; the last is taken for the steady state */
#define LEVELS 10   /* amounts of pinned bytes that are tried */
#define KINDS 64    /* mixtures that make pins of a kind free, most */
#define MIXTURES 12 /* mixtures of two inequalities that are tried, beside those that make pins of a kind free */

#define SORTED_RUN 8

/* A stretch of the circle in which reading takes the time: nodes [first, end). */
typedef struct stretch {
    int64_t first, end;
} stretch;

typedef struct rank {
    double score; /* lowest first */
    int32_t node;
} rank;

typedef struct work {
    const fx_fluid *f;
    double compute;
    double hidden;            /* seconds that a second of computing adds to a run that reads all the time */
    double read;              /* seconds that a second of reading adds to a run that computes all the time */
    double bytes, pinned_max; /* of memory: weights that nodes share take it once */
    double *pinned;           /* [count] bytes of each node's weights */
    double *ahead;            /* [count] seconds of reading by which memory lets the loader be ahead of each node */
    double *now;              /* [RUNS * count + 1] end of each node */
    int64_t *from;            /* [RUNS * count + 1] start of the stretch that ends here; -1: computing took the time */
    rank *ranks, *sorting;    /* [count] */
    int32_t *order;           /* [count] nodes, as the last mixture has sorted them */
    double *apart;            /* [count] seconds that a pinned byte costs in free memory of the stretches */
    double *cost;             /* [count] seconds for each byte of memory that is pinned, of a mixture */
    double *price_sum;        /* [count] sums of prices over the rounds */
    double all_s;             /* seconds to read everything */
    double *bytes_before, *read_before; /* [2 * count + 1] of what is not pinned */
    stretch *stretches;
} work;

static int64_t free_at(const fx_fluid *f, int64_t boundary) {
    int64_t here = f->free_bytes[boundary], before = f->free_bytes[boundary ? boundary - 1 : f->count - 1];
    return here < before ? here : before;
}

/* Sums of the bytes that are not pinned and of the seconds to read them, over two turns of the circle. */
static void sum_up(work *w) {
    const fx_fluid *f = w->f;
    const int64_t count = f->count;
    w->bytes_before[0] = w->read_before[0] = 0.0;
    for (int64_t k = 0, i = 0; k < 2 * count; k++, i = i + 1 < count ? i + 1 : 0) {
        w->bytes_before[k + 1] = w->bytes_before[k] + ((double)f->bytes[i] - w->pinned[i]);
        w->read_before[k + 1] = w->read_before[k] + (f->read_s[i] - w->pinned[i] * f->byte_s[i]);
    }
}

/* Seconds to read the first unpinned weights from node `first` on, as many as `room` bytes hold. */
static double ahead_s(const work *w, int64_t first, double room) {
    const fx_fluid *f = w->f;
    const double *bytes = w->bytes_before, most = bytes[first] + room;
    int64_t low = first, high = first + f->count; /* the last of them that is reached */
    if (room <= 0.0)
        return 0.0;
    while (low < high) {
        const int64_t middle = (low + high + 1) / 2;
        if (bytes[middle] <= most)
            low = middle;
        else
            high = middle - 1;
    }
    const double whole = w->read_before[low] - w->read_before[first];
    return low < first + f->count ? whole + (most - bytes[low]) * f->byte_s[low % f->count] : whole;
}

/* Simulates the fluid run with `pinned` bytes of each node. Reading ahead takes time for requests, too, if `ordered`,
 * else for bytes alone; each way finds stretches that the other misses. */
static void flow(work *w, int ordered) {
    const fx_fluid *f = w->f;
    const int64_t count = f->count;
    double pinned = 0.0, now = 0.0, loaded = 0.0;
    int64_t began = -1;
    for (int64_t i = 0; i < count; i++)
        pinned += w->pinned[i] / f->uses[i];
    if (ordered)
        sum_up(w);
    for (int64_t i = 0; i < count; i++) {
        const double room = (double)free_at(f, i) - pinned;
        w->ahead[i] = ordered ? ahead_s(w, i, room) : room / f->bytes_per_second;
    }
    w->now[0] = 0.0;
    for (int64_t k = 0, i = 0; k < RUNS * count; k++, i = i + 1 < count ? i + 1 : 0) {
        /* From here on the loader has to bring what the next nodes need, except what memory may already hold. */
        double start = now - w->ahead[i];
        if (began < 0 || start > loaded) {
            loaded = start;
            began = k;
        }
        double read = f->read_s[i] - w->pinned[i] * f->byte_s[i];
        loaded += read + w->hidden * f->seconds[i];
        now += f->seconds[i] + w->read * read;
        w->from[k + 1] = -1;
        if (loaded > now) {
            now = loaded;
            w->from[k + 1] = began;
        }
        w->now[k + 1] = now;
    }
}

/* Collects the stretches of the last run, back from its end, as long as they are apart; returns how many. */
static int64_t trace(work *w) {
    const int64_t count = w->f->count;
    int64_t found = 0, low = (RUNS - 1) * count;
    for (int64_t k = RUNS * count; k > low;) {
        int64_t from = w->from[k];
        if (from < 0) {
            k--;
            continue;
        }
        if (from < (found ? w->stretches[0].end : k) - count)
            break; /* round the whole circle: the other half of the bound covers a loader that never waits */
        w->stretches[found++] = (stretch){from, k};
        k = from;
    }
    return found;
}

static int is_before(const rank *x, const rank *y) {
    return x->score != y->score ? x->score < y->score : x->node < y->node;
}

/* Sorts the first `count` of the ranks by their scores: runs of few, then twice as long ones. What is sorted already,
 * as most is from one mixture to the next, takes a comparison for each run. */
static void sort_ranks(work *w, int64_t count) {
    for (int64_t begin = 0; begin < count; begin += SORTED_RUN)
        for (int64_t i = begin + 1; i < count && i < begin + SORTED_RUN; i++) {
            const rank r = w->ranks[i];
            int64_t j = i;
            for (; j > begin && is_before(&r, &w->ranks[j - 1]); j--)
                w->ranks[j] = w->ranks[j - 1];
            w->ranks[j] = r;
        }
    for (int64_t length = SORTED_RUN; length < count; length *= 2)
        for (int64_t begin = 0; begin + length < count; begin += 2 * length) {
            rank *all = w->ranks + begin, *first = w->sorting;
            const int64_t end = begin + 2 * length < count ? 2 * length : count - begin;
            if (!is_before(&all[length], &all[length - 1]))
                continue;
            memcpy(first, all, (size_t)length * sizeof *all);
            for (int64_t a = 0, b = length, to = 0; a < length; to++)
                all[to] = b < end && is_before(&all[b], &first[a]) ? all[b++] : first[a++];
        }
}

/* Pins the first `count` of the ranks in their order, in at most `left` bytes of memory, and returns their scores, each
 * for a byte of memory, by these bytes. */
static double pin_by_score(work *w, int64_t count, double left) {
    const fx_fluid *f = w->f;
    double total = 0.0;
    sort_ranks(w, count);
    for (int64_t i = 0; i < count; i++) {
        const rank *r = &w->ranks[i];
        const double uses = f->uses[r->node], all = (double)f->bytes[r->node] / uses;
        const double bytes = all < left ? all : left;
        w->pinned[r->node] = bytes * uses;
        left -= bytes;
        total += r->score * bytes;
    }
    return total;
}

/* Seconds to read a stretch's weights except `free` bytes of them, those that take the longest to read. For any rate
 * `byte` it is at least the sum of (their seconds - bytes * the excess of their rate over `byte`) - byte * free. */
static double stretch_s(work *w, stretch s, double *byte) {
    const fx_fluid *f = w->f;
    const double room = (double)free_at(f, s.first % f->count);
    double left = room, total = 0.0;
    int64_t members = 0;
    for (int64_t k = s.first, i = s.first % f->count; k < s.end; k++, i = i + 1 < f->count ? i + 1 : 0)
        w->ranks[members++] = (rank){-f->byte_s[i], (int32_t)i};
    sort_ranks(w, members);
    *byte = 1.0 / f->bytes_per_second;
    for (int64_t i = 0; i < members; i++) {
        double bytes = (double)f->bytes[w->ranks[i].node];
        if (left > 0.0 && bytes > 0.0)
            *byte = -w->ranks[i].score; /* the last weights that stay in memory */
        left -= bytes;
    }
    for (int64_t i = 0; i < members; i++) {
        double dearer = -w->ranks[i].score - *byte;
        total += f->read_s[w->ranks[i].node] - (dearer > 0.0 ? dearer * (double)f->bytes[w->ranks[i].node] : 0.0);
    }
    return total - *byte * room;
}

/* The same where nothing is pinned and the first weights of the stretch stay in memory, in the order of their use. That
 * saves `room` bytes at the storage's rate, and the time that those weights take beyond this rate. */
static double ordered_s(const work *w, stretch s) {
    const fx_fluid *f = w->f;
    const double room = (double)free_at(f, s.first % f->count), rate = 1.0 / f->bytes_per_second;
    double left = room, total = -rate * room;
    for (int64_t k = s.first, i = s.first % f->count; k < s.end; k++, i = i + 1 < f->count ? i + 1 : 0) {
        const double bytes = (double)f->bytes[i], beside = f->read_s[i] - rate * bytes;
        const double most = (f->byte_s[i] - rate) * bytes; /* of weights that stay in part */
        total += f->read_s[i];
        if (left > 0.0)
            total -= beside > most ? beside : most;
        left -= bytes;
    }
    return total;
}

/* Keeps the order of the ranks, and all other nodes behind them. */
static void keep_order(work *w, int64_t ranks) {
    int64_t others = w->f->count;
    for (int64_t n = w->f->count - 1; n >= 0; n--)
        if (!(w->cost[w->order[n]] < 0.0))
            w->order[--others] = w->order[n];
    for (int64_t n = 0; n < ranks; n++)
        w->order[n] = w->ranks[n].node;
}

/* The best mixture of two inequalities, each true for all pins r (R: their memory, at least the sum of r_i / uses_i;
 * R_s: the pins of a stretch's nodes); read_i: seconds for a byte of node i: T >= sum of (W_i - r_i) read_i + hidden *
 * compute T >= (1 - read) * sum over stretches of (their reading but for free - (R - R_s) bytes)
 *        + hidden * the stretches' computing + read * sum of (W_i - r_i) read_i + the other nodes' computing
 * With `ordered`, a stretch's reading is, where that is more, the reading in order but for free - R bytes and the
 * seconds of its own pins. The minimum of a mixture over r is simple: pin what costs the least, while that costs less
 * than nothing. */
static double mix(work *w, int64_t stretches, int ordered, double *price) {
    const fx_fluid *f = w->f;
    const int64_t count = f->count;
    const double first = w->all_s + w->hidden * w->compute;
    double second = w->compute + w->read * w->all_s, best = 0.0, all = 0.0;
    for (int64_t i = 0; i < count; i++)
        w->apart[i] = 0.0;
    for (int64_t s = 0; s < stretches; s++) {
        double byte, reading = stretch_s(w, w->stretches[s], &byte);
        const double in_order = ordered ? ordered_s(w, w->stretches[s]) : -INFINITY;
        const int use_order = in_order > reading;
        if (use_order)
            byte = 1.0 / f->bytes_per_second;
        second += (1.0 - w->read) * (use_order ? in_order : reading);
        all += byte;
        int64_t i = w->stretches[s].first % count;
        for (int64_t k = w->stretches[s].first; k < w->stretches[s].end; k++, i = i + 1 < count ? i + 1 : 0) {
            w->apart[i] -= use_order ? f->byte_s[i] : byte;
            second -= (1.0 - w->hidden) * f->seconds[i];
        }
    }
    const int64_t kinds = stretches < KINDS ? stretches : KINDS;
    for (int64_t n = 0; n <= kinds + MIXTURES; n++) {
        const double free = kinds ? (double)(n * stretches / kinds) : 0.0; /* stretches whose pins cost nothing */
        double odds = (1.0 - w->read) * free - w->read, part = odds > 0.0 ? odds / (1.0 + odds) : 0.0;
        if (n > kinds)
            part = (double)(n - kinds) / (MIXTURES + 1);
        double value = part * first + (1.0 - part) * second;
        if (value <= best)
            continue; /* pins only lower the time */
        int64_t worth = 0;
        for (int64_t i = 0; i < count; i++)
            w->cost[i] = f->uses[i] * ((1.0 - part) * (1.0 - w->read) * (all / f->uses[i] + w->apart[i]) -
                                       (part + (1.0 - part) * w->read) * f->byte_s[i]);
        for (int64_t n_th = 0; n_th < count; n_th++) {
            const int32_t i = w->order[n_th];
            if (w->cost[i] < 0.0)
                w->ranks[worth++] = (rank){w->cost[i], i};
        }
        value += pin_by_score(w, worth, w->pinned_max);
        keep_order(w, worth);
        if (value <= best)
            continue;
        best = value;
        for (int64_t i = 0; i < count; i++)
            price[i] = w->cost[i];
    }
    return best;
}

/* Pins another amount: evenly at first, later what has been the cheapest so far. */
static void pin(work *w, int round) {
    const fx_fluid *f = w->f;
    double left = w->pinned_max * (round % LEVELS) / (LEVELS - 1), part = left / (w->bytes + 1.0);
    if (round >= LEVELS) {
        for (int64_t i = 0; i < f->count; i++)
            w->ranks[i] = (rank){w->price_sum[i], (int32_t)i};
        pin_by_score(w, f->count, left);
        return;
    }
    for (int64_t i = 0; i < f->count; i++)
        w->pinned[i] = part * (double)f->bytes[i];
}

/* The bound without stretches: everything is read except what is dearest to read, or everything is computed. */
static double plain(work *w, double *price) {
    const fx_fluid *f = w->f;
    for (int64_t i = 0; i < f->count; i++) {
        price[i] = -f->byte_s[i] * f->uses[i];
        w->ranks[i] = (rank){price[i], (int32_t)i};
    }
    double least = w->all_s + pin_by_score(w, f->count, w->pinned_max);
    double reading = least + w->hidden * w->compute, computing = w->compute + w->read * least;
    return reading > computing ? reading : computing;
}

static double search(work *w, double *price, double *tried) {
    const int64_t count = w->f->count;
    double best = plain(w, price), prints[FX_ROUNDS_MAX];
    int known = 0;
    for (int64_t i = 0; i < count; i++)
        w->price_sum[i] = tried[i] = 0.0, w->order[i] = (int32_t)i;
    for (int round = 0; round < w->f->rounds; round++) {
        const int by_order = round >= LEVELS; /* slow, so not for the prices of a rung */
        known = round == LEVELS ? 0 : known;
        pin(w, round);
        flow(w, by_order);
        int64_t found = trace(w);
        if (!found)
            continue;
        double print = 0.0; /* a fingerprint of these stretches */
        for (int64_t s = 0; s < found; s++)
            print = 3.0 * print + (double)(w->stretches[s].first * RUNS * count + w->stretches[s].end);
        int seen = 0;
        for (int i = 0; i < known && !seen; i++)
            seen = prints[i] == print;
        if (!seen) {
            prints[known++] = print;
            for (int ordered = 0; ordered <= by_order; ordered++) {
                double value = mix(w, found, ordered, tried);
                for (int64_t i = 0; i < count && value > best; i++)
                    price[i] = tried[i];
                best = value > best ? value : best;
            }
        }
        for (int64_t i = 0; i < count; i++)
            w->price_sum[i] += tried[i];
    }
    return best;
}

fx_status fx_fluid_bound(const fx_fluid *f, double *bound_s, double *price) {
    const size_t count = f->count;
    work w = {.f = f};
    if (f->rounds < 0 || f->rounds > FX_ROUNDS_MAX)
        return FX_ERR_PARAMS;
    int64_t least = count ? INT64_MAX : 0;
    for (size_t i = 0; i < count; i++) {
        w.compute += f->seconds[i];
        w.bytes += (double)f->bytes[i] / f->uses[i];
        if (!(f->uses[i] >= 1.0))
            return FX_ERR_PARAMS;
        w.all_s += f->read_s[i];
        least = f->free_bytes[i] < least ? f->free_bytes[i] : least;
    }
    w.pinned_max = least < 0 ? 0.0 : (double)least < w.bytes ? (double)least : w.bytes;
    w.hidden = f->load_speed + f->compute_speed < 1 ? 1.0 : (1.0 - f->load_speed) / f->compute_speed;
    w.read = f->load_speed + f->compute_speed < 1 ? 1.0 : (1.0 - f->compute_speed) / f->load_speed;
    double *memory = malloc((6 * count + RUNS * count + 1 + 2 * (2 * count + 1)) * sizeof *memory);
    w.from = malloc((RUNS * count + 1) * sizeof *w.from);
    w.ranks = malloc((2 * count + 1) * sizeof *w.ranks);
    w.order = malloc((count + 1) * sizeof *w.order);
    w.stretches = malloc((count + 1) * sizeof *w.stretches);
    fx_status status = FX_ERR_MEMORY;
    if (memory && w.from && w.ranks && w.order && w.stretches) {
        w.sorting = w.ranks + count;
        w.pinned = memory;
        w.apart = memory + count;
        w.cost = memory + 2 * count;
        w.price_sum = memory + 3 * count;
        w.ahead = memory + 5 * count;
        w.now = memory + 6 * count;
        w.bytes_before = w.now + RUNS * count + 1;
        w.read_before = w.bytes_before + 2 * count + 1;
        *bound_s = search(&w, price, memory + 4 * count);
        status = FX_OK;
    }
    free(memory);
    free(w.from);
    free(w.ranks);
    free(w.order);
    free(w.stretches);
    return status;
}
