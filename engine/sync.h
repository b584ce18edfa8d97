/* Waiting: a short spin, then sleep. Counters are C11 atomics with sequential consistency; an event is what a thread
 * sleeps on until one of them has changed. Notifying costs one load while nobody sleeps. */
#ifndef FLEXNN_ENGINE_SYNC_H
#define FLEXNN_ENGINE_SYNC_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#include "clock.h"
#include "flexnn/engine.h"

#define FX_POLL_NS 20000000
#define FX_LEAVE_NS 10000000     /* longest wait for reads that nobody needs any more */
#define FX_SETUP_POLL_NS 4000000 /* while nothing is computed: as often as Python threads take turns */

typedef struct fx_event {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    atomic_int sleepers;
} fx_event;

int fx_event_init(fx_event *e); /* 0, or an errno */
void fx_event_destroy(fx_event *e);

/* Sleeps until ready(arg) or until the time until_ns of fx_now_ns (0: for ever). What ready reads must be written
 * before fx_event_notify. */
void fx_event_wait(fx_event *e, int (*ready)(const void *), const void *arg, int64_t until_ns);
void fx_event_notify(fx_event *e);

static inline void fx_relax(void) {
#if defined __x86_64__
    __builtin_ia32_pause();
#elif defined __aarch64__
    __asm__ volatile("isb" ::: "memory"); /* yield is a no-op on the cores in question */
#endif
}

/* Spins for at most `ns` until ready(arg); returns whether it is. */
static inline int fx_spin(int (*ready)(const void *), const void *arg, int64_t ns) {
    if (ready(arg))
        return 1;
    if (ns <= 0)
        return 0;
    for (int64_t end = fx_now_ns() + ns; fx_now_ns() < end;)
        for (int i = 0; i < 32; i++) {
            if (ready(arg))
                return 1;
            fx_relax();
        }
    return 0;
}

/* Whether the caller cancels; it is asked about every `every_ns`. */
typedef struct fx_poll {
    fx_interrupt interrupt; /* is_wanted may be NULL: nobody cancels */
    int64_t every_ns, next_ns;
    int cancelled;
} fx_poll;

static inline fx_poll fx_poll_start_every(const fx_interrupt *interrupt, int64_t every_ns) {
    return (fx_poll){.interrupt = interrupt ? *interrupt : (fx_interrupt){0},
                     .every_ns = every_ns,
                     .next_ns = fx_now_ns() + every_ns};
}

static inline fx_poll fx_poll_start(const fx_interrupt *interrupt) {
    return fx_poll_start_every(interrupt, FX_POLL_NS);
}

static inline int fx_polled_at(fx_poll *p, int64_t now) {
    if (p->interrupt.is_wanted && !p->cancelled && now >= p->next_ns) {
        p->cancelled = p->interrupt.is_wanted(p->interrupt.arg) != 0;
        p->next_ns = fx_now_ns() + p->every_ns;
    }
    return p->cancelled;
}

/* Of NULL: no, as nobody cancels. */
static inline int fx_polled(fx_poll *p) {
    return p && p->interrupt.is_wanted && fx_polled_at(p, fx_now_ns());
}

/* Pauses of random length, for tests; with a seed of 0 there are none. */
typedef struct fx_jitter {
    uint32_t state;
} fx_jitter;

fx_jitter fx_jitter_start(uint32_t seed, uint32_t stream);
void fx_jitter_pause(fx_jitter *j);

#endif
