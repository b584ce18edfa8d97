#include "sync.h"

#include <sched.h>

int fx_event_init(fx_event *e) {
    pthread_condattr_t attributes;
    int error = pthread_mutex_init(&e->mutex, NULL);
    if (error)
        return error;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    error = pthread_cond_init(&e->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    if (error)
        pthread_mutex_destroy(&e->mutex);
    atomic_init(&e->sleepers, 0);
    return error;
}

void fx_event_destroy(fx_event *e) {
    pthread_cond_destroy(&e->changed);
    pthread_mutex_destroy(&e->mutex);
}

/* No wake-up is lost: the sleeper announces itself, then tests the state; the notifier changes the state, then looks
 * for sleepers. All four accesses are sequentially consistent, so at least one of the two sees the other. */
void fx_event_wait(fx_event *e, int (*ready)(const void *), const void *arg, int64_t until_ns) {
    struct timespec until = {.tv_sec = until_ns / 1000000000, .tv_nsec = until_ns % 1000000000};
    pthread_mutex_lock(&e->mutex);
    atomic_fetch_add(&e->sleepers, 1);
    while (!ready(arg)) {
        if (!until_ns)
            pthread_cond_wait(&e->changed, &e->mutex);
        else if (pthread_cond_timedwait(&e->changed, &e->mutex, &until))
            break;
    }
    atomic_fetch_sub(&e->sleepers, 1);
    pthread_mutex_unlock(&e->mutex);
}

void fx_event_notify(fx_event *e) {
    if (!atomic_load(&e->sleepers))
        return;
    pthread_mutex_lock(&e->mutex);
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->mutex);
}

fx_jitter fx_jitter_start(uint32_t seed, uint32_t stream) {
    uint32_t state = seed ? seed ^ stream * 0x9e3779b9u : 0;
    return (fx_jitter){.state = seed && !state ? 1 : state};
}

void fx_jitter_pause(fx_jitter *j) {
    if (!j->state)
        return;
    j->state ^= j->state << 13; /* xorshift32, Marsaglia 2003 */
    j->state ^= j->state >> 17;
    j->state ^= j->state << 5;
    switch (j->state % 8) {
    case 0:
    case 1:
        sched_yield();
        break;
    case 2:
        for (uint32_t i = j->state >> 20; i; i--)
            fx_relax();
        break;
    case 3:
        nanosleep(&(struct timespec){.tv_nsec = j->state >> 8 & 0x3ffff}, NULL); /* to 0.26 ms */
        break;
    default:
        break;
    }
}
