#include "model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct option {
    uint8_t thread, flushes, expires, variant;
} option;

static int is_enabled(const thread *t) {
    switch (t->next) {
    case LOCK:
        return !*(const int *)t->at;
    case JOIN:
        return m.threads[t->chosen].status == DONE;
    default:
        return 1;
    }
}

/* The ways to leave this state; those of the thread that went last come first. */
static int list_options(option *options) {
    int count = 0;
    for (int i = 0; i < m.thread_count; i++) {
        const int number = (m.current + i) % m.thread_count;
        const thread *t = &m.threads[number];
        const int variants = t->next == CHOOSE ? t->choices : 1;
        for (int v = 0; v < variants && t->status == READY && is_enabled(t); v++)
            options[count++] = (option){.thread = (uint8_t)number, .variant = (uint8_t)v};
        if (t->status == SLEEPS && t->is_timed && m.expiries)
            options[count++] = (option){.thread = (uint8_t)number, .expires = 1};
        if (m.waiting_count[number])
            options[count++] = (option){.thread = (uint8_t)number, .flushes = 1};
    }
    return count;
}

static uint64_t mix(uint64_t hash, const void *data, size_t bytes) {
    const char *at = data;
    for (; bytes >= 8; at += 8, bytes -= 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        hash = (hash ^ word) * 0x9fb21c651e98df25u;
        hash ^= hash >> 29;
    }
    for (; bytes; at++, bytes--)
        hash = (hash ^ (uint8_t)*at) * 0x9fb21c651e98df25u;
    return hash ^ hash >> 32;
}

/* Everything that what follows depends on; order and the trail are history. */
static uint64_t state_hash(int budget) {
    const int length = m.trail;
    m.trail = 0;
    const int current = m.current;
    if (budget < 0)
        m.current = 0; /* who went last matters only where switches are counted */
    uint64_t hash = mix(1, &m, sizeof m);
    m.trail = length;
    m.current = current;
    hash = mix(hash, heap, m.heap_used);
    for (int t = 0; t < m.thread_count; t++)
        hash = mix(hash, m.threads[t].frame, (size_t)(stacks[t] + STACK_BYTES - m.threads[t].frame));
    return hash ? hash : 1;
}

/* States that were visited, with the most switches that were left then. */
static struct {
    uint64_t *hashes;
    int8_t *budgets;
    uint64_t size, count;
} seen;

static void grow_seen(void) {
    const uint64_t before = seen.size;
    uint64_t *hashes = seen.hashes;
    int8_t *budgets = seen.budgets;
    seen.size = before ? 4 * before : 1 << 16;
    seen.hashes = calloc(seen.size, sizeof *seen.hashes);
    seen.budgets = calloc(seen.size, 1);
    for (uint64_t i = 0; i < before; i++)
        if (hashes[i]) {
            uint64_t at = hashes[i] % seen.size;
            while (seen.hashes[at])
                at = (at + 1) % seen.size;
            seen.hashes[at] = hashes[i];
            seen.budgets[at] = budgets[i];
        }
}

/* Whether the state is new, or has more switches left than when it was visited. */
static int is_new(uint64_t hash, int budget) {
    if (2 * seen.count >= seen.size)
        grow_seen();
    uint64_t at = hash % seen.size;
    while (seen.hashes[at] && seen.hashes[at] != hash)
        at = (at + 1) % seen.size;
    if (seen.hashes[at] && (budget < 0 || seen.budgets[at] >= budget))
        return 0;
    seen.count += !seen.hashes[at];
    seen.hashes[at] = hash;
    seen.budgets[at] = (int8_t)budget;
    return 1;
}

/* A state that can be left in several ways. */
typedef struct frame {
    char *copy;
    size_t capacity;
    int budget, count, next;
    option options[OPTIONS];
} frame;

static frame *frames;
static int frame_count, frame_capacity;

/* Copies the state to or from a frame: the model, the order, the heap with its cells, and the stacks. */
static size_t copy_state(char *copy, int is_restored) {
    size_t at = 0;
#define PART(place, bytes)                                                                                             \
    do {                                                                                                               \
        const size_t part = (bytes);                                                                                   \
        if (copy && is_restored)                                                                                       \
            memcpy((place), copy + at, part);                                                                          \
        else if (copy)                                                                                                 \
            memcpy(copy + at, (place), part);                                                                          \
        at += part;                                                                                                    \
    } while (0)
    PART(&m, sizeof m);
    PART(&order, sizeof order);
    PART(heap, m.heap_used);
    PART(cells, m.heap_used / CELL * sizeof *cells);
    for (int t = 0; t < m.thread_count; t++) {
        char *low = m.threads[t].frame - MARGIN;
        low = low < stacks[t] ? stacks[t] : low;
        PART(low, (size_t)(stacks[t] + STACK_BYTES - low));
    }
#undef PART
    return at;
}

static frame *push(int budget) {
    if (frame_count == frame_capacity) {
        frame_capacity = frame_capacity ? 2 * frame_capacity : 256;
        frames = realloc(frames, (size_t)frame_capacity * sizeof *frames);
        memset(frames + frame_count, 0, (size_t)(frame_capacity - frame_count) * sizeof *frames);
    }
    frame *f = &frames[frame_count++];
    const size_t bytes = copy_state(NULL, 0);
    if (bytes > f->capacity)
        f->copy = realloc(f->copy, f->capacity = 2 * bytes);
    copy_state(f->copy, 0);
    f->budget = budget;
    f->next = 0;
    return f;
}

static void take(option o) {
    thread *t = &m.threads[o.thread];
    if (m.trail == TRAIL)
        model_fail("a run without end", TRAIL);
    trail[m.trail].thread = o.thread;
    trail[m.trail].operation = (uint8_t)(o.flushes ? FLUSH : o.expires ? WAIT : t->next);
    trail[m.trail].variant = (uint8_t)(o.variant + o.expires);
    trail[m.trail++].at = (uint16_t)(t->at - heap);
    if (o.flushes) {
        model_flush(o.thread);
        return;
    }
    if (o.expires) {
        m.expiries--;
        m.base_ns += 1000000000;
        t->has_expired = 1;
        model_wake(t);
        return;
    }
    if (t->next == CHOOSE)
        t->chosen = o.variant;
    if (!_setjmp(scheduler))
        model_go_on(o.thread);
}

static int switches(option o) {
    const thread *last = &m.threads[m.current];
    return o.thread != m.current && last->status == READY && is_enabled(last);
}

/* Takes one step from the state as it is, or from the newest that is not yet left in every way. 0: there is none. */
static int advance(int *budget) {
    option options[OPTIONS];
    int count = list_options(options), left = 0;
    if (!count)
        for (int t = 0; t < m.thread_count; t++)
            if (m.threads[t].status != DONE)
                model_fail("nobody can go on", t);
    for (int i = 0; i < count; i++)
        if (*budget != 0 || !switches(options[i]))
            options[left++] = options[i];
    if (left == 1 && (count == 1 || is_new(state_hash(*budget), *budget))) {
        take(options[0]);
        return 1;
    }
    if (left > 1 && is_new(state_hash(*budget), *budget)) {
        frame *f = push(*budget);
        memcpy(f->options, options, sizeof options);
        f->count = left;
    }
    while (frame_count && frames[frame_count - 1].next == frames[frame_count - 1].count)
        frame_count--;
    if (!frame_count)
        return 0;
    frame *f = &frames[frame_count - 1];
    memcpy(&m, f->copy, sizeof m); /* how long the parts are */
    copy_state(f->copy, 1);
    const option o = f->options[f->next++];
    *budget = f->budget - (f->budget > 0 && switches(o));
    take(o);
    return 1;
}

static void start(void (*scenario)(void)) {
    memset(&m, 0, sizeof m);
    memset(&order, 0, sizeof order);
    memset(cells, 0, sizeof cells);
    memset(heap, 0, sizeof heap);
    memset(stacks, 0, sizeof stacks);
    memset(seen.hashes, 0, seen.size * sizeof *seen.hashes);
    seen.count = 0;
    frame_count = 0;
    m.thread_count = 1;
    m.threads[0] = (thread){.status = READY, .next = YIELD, .body = (void *(*)(void *))(uintptr_t)scenario};
    m.threads[0].frame = stacks[0] + STACK_BYTES;
    for (int t = 0; t < THREADS; t++)
        order.now[t][t] = 1;
}

void model_explore(const char *name, void (*scenario)(void), int preemptions) {
    const clock_t begun = clock();
    uint64_t steps = 0;
    int budget = preemptions;
    scenario_name = name;
    if (!seen.size)
        grow_seen();
    start(scenario);
    while (advance(&budget))
        steps++;
    printf("%-10s %10llu states %11llu steps  %s %d  %.1f s\n", name, (unsigned long long)seen.count,
           (unsigned long long)steps, preemptions < 0 ? "any order" : "switches", preemptions,
           (double)(clock() - begun) / CLOCKS_PER_SEC);
    fflush(stdout);
}
