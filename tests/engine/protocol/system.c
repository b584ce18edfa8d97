#include "model.h"
#include "placement.h"

#include <pthread.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

/* ---- what the compiler calls ---- */

static int acquires(int how) {
    return how != __ATOMIC_RELAXED && how != __ATOMIC_RELEASE;
}

static int releases(int how) {
    return how == __ATOMIC_RELEASE || how == __ATOMIC_ACQ_REL || how == __ATOMIC_SEQ_CST;
}

static uint64_t load(const volatile void *at, int bytes, int how) {
    model_point(LOAD, at);
    for (int i = m.waiting_count[m.current]; i-- > 0;)
        if (m.waiting[m.current][i].at == (const volatile char *)at)
            return m.waiting[m.current][i].value;
    if (acquires(how))
        model_acquire(at);
    return model_read(at, bytes);
}

static void store(volatile void *at, int bytes, uint64_t value, int how) {
    model_point(STORE, at);
    const int number = m.current;
    if (how == __ATOMIC_SEQ_CST || m.waiting_count[number] == BUFFERED)
        model_drain(number);
    waiting_store *w = &m.waiting[number][m.waiting_count[number]++];
    *w = (waiting_store){.at = (char *)(uintptr_t)at, .value = value, .bytes = bytes, .releases = releases(how)};
    memcpy(w->clock, order.now[number], sizeof(clocks));
    order.now[number][number]++;
    if (how == __ATOMIC_SEQ_CST)
        model_drain(number);
}

/* A read and a write in one; returns what was there. */
static uint64_t begin_exchange(volatile void *at, int bytes, int how) {
    model_point(EXCHANGE, at);
    model_drain(m.current);
    if (acquires(how))
        model_acquire(at);
    return model_read(at, bytes);
}

static void end_exchange(volatile void *at, int bytes, uint64_t value, int how) {
    model_write(at, bytes, value);
    if (releases(how))
        model_release(at);
}

#define ACCESSES(BITS, BYTES)                                                                                          \
    uint##BITS##_t __tsan_atomic##BITS##_load(const volatile uint##BITS##_t *at, int how);                             \
    uint##BITS##_t __tsan_atomic##BITS##_load(const volatile uint##BITS##_t *at, int how) {                            \
        return (uint##BITS##_t)load(at, BYTES, how);                                                                   \
    }                                                                                                                  \
    void __tsan_atomic##BITS##_store(volatile uint##BITS##_t *at, uint##BITS##_t value, int how);                      \
    void __tsan_atomic##BITS##_store(volatile uint##BITS##_t *at, uint##BITS##_t value, int how) {                     \
        store(at, BYTES, value, how);                                                                                  \
    }                                                                                                                  \
    EXCHANGES(BITS, BYTES, exchange, value)                                                                            \
    EXCHANGES(BITS, BYTES, fetch_add, before + value)                                                                  \
    EXCHANGES(BITS, BYTES, fetch_sub, before - value)                                                                  \
    COMPARES(BITS, BYTES, weak)                                                                                        \
    COMPARES(BITS, BYTES, strong)
#define EXCHANGES(BITS, BYTES, name, after)                                                                            \
    uint##BITS##_t __tsan_atomic##BITS##_##name(volatile uint##BITS##_t *at, uint##BITS##_t value, int how);           \
    uint##BITS##_t __tsan_atomic##BITS##_##name(volatile uint##BITS##_t *at, uint##BITS##_t value, int how) {          \
        const uint##BITS##_t before = (uint##BITS##_t)begin_exchange(at, BYTES, how);                                  \
        end_exchange(at, BYTES, (uint##BITS##_t)(after), how);                                                         \
        return before;                                                                                                 \
    }
#define COMPARES(BITS, BYTES, name)                                                                                    \
    int __tsan_atomic##BITS##_compare_exchange_##name(volatile uint##BITS##_t *at, uint##BITS##_t *expected,           \
                                                      uint##BITS##_t value, int how, int how_not);                     \
    int __tsan_atomic##BITS##_compare_exchange_##name(volatile uint##BITS##_t *at, uint##BITS##_t *expected,           \
                                                      uint##BITS##_t value, int how, int how_not) {                    \
        (void)how_not;                                                                                                 \
        const uint##BITS##_t before = (uint##BITS##_t)begin_exchange(at, BYTES, how);                                  \
        const int is_same = before == *expected;                                                                       \
        if (is_same)                                                                                                   \
            end_exchange(at, BYTES, value, how);                                                                       \
        *expected = before;                                                                                            \
        return is_same;                                                                                                \
    }
ACCESSES(32, 4)
ACCESSES(64, 8)

#define PLAIN(BYTES)                                                                                                   \
    void __tsan_read##BYTES(const void *at);                                                                           \
    void __tsan_read##BYTES(const void *at) {                                                                          \
        model_touch(at, BYTES, 0);                                                                                     \
    }                                                                                                                  \
    void __tsan_write##BYTES(const void *at);                                                                          \
    void __tsan_write##BYTES(const void *at) {                                                                         \
        model_touch(at, BYTES, 1);                                                                                     \
    }
PLAIN(1)
PLAIN(2)
PLAIN(4)
PLAIN(8)
PLAIN(16)

void __tsan_read_range(const void *at, size_t bytes);
void __tsan_read_range(const void *at, size_t bytes) {
    model_touch(at, bytes, 0);
}
void __tsan_write_range(const void *at, size_t bytes);
void __tsan_write_range(const void *at, size_t bytes) {
    model_touch(at, bytes, 1);
}
void __tsan_func_entry(void *caller);
void __tsan_func_entry(void *caller) {
    (void)caller;
}
void __tsan_func_exit(void);
void __tsan_func_exit(void) {}
void __tsan_init(void);
void __tsan_init(void) {}

/* ---- what takes the place of the system (the linker's --wrap) ---- */

int __wrap_pthread_mutex_init(pthread_mutex_t *mutex, const pthread_mutexattr_t *how);
int __wrap_pthread_mutex_init(pthread_mutex_t *mutex, const pthread_mutexattr_t *how) {
    (void)how;
    memset(mutex, 0, sizeof *mutex);
    return 0;
}

int __wrap_pthread_mutex_destroy(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_destroy(pthread_mutex_t *mutex) {
    if (*(int *)mutex)
        model_fail("a mutex is destroyed while it is locked", 0);
    return 0;
}

static void lock(char *mutex) {
    *(int *)mutex = m.current + 1;
    model_drain(m.current);
    model_acquire(mutex);
}

static void unlock(char *mutex) {
    if (*(int *)mutex != m.current + 1)
        model_fail("a mutex is unlocked that another thread has", *(int *)mutex - 1);
    model_drain(m.current);
    model_release(mutex);
    *(int *)mutex = 0;
}

int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex) {
    model_point(LOCK, mutex);
    lock((char *)mutex);
    return 0;
}

int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex) {
    unlock((char *)mutex);
    return 0;
}

int __wrap_pthread_cond_init(pthread_cond_t *condition, const pthread_condattr_t *how);
int __wrap_pthread_cond_init(pthread_cond_t *condition, const pthread_condattr_t *how) {
    (void)how;
    memset(condition, 0, sizeof *condition);
    return 0;
}

int __wrap_pthread_cond_destroy(pthread_cond_t *condition);
int __wrap_pthread_cond_destroy(pthread_cond_t *condition) {
    for (int t = 0; t < m.thread_count; t++)
        if (m.threads[t].status == SLEEPS && m.threads[t].at == (char *)condition)
            model_fail("an event is destroyed that a thread sleeps on", t);
    return 0;
}

/* Returns whether the time was over. */
static int sleep_on(pthread_cond_t *condition, pthread_mutex_t *mutex, int is_timed) {
    thread *t = &m.threads[m.current];
    model_point(WAIT, condition);
    unlock((char *)mutex);
    t->status = SLEEPS;
    t->mutex = (char *)mutex;
    t->is_timed = is_timed;
    t->has_expired = 0;
    model_leave();
    lock((char *)mutex);
    return m.threads[m.current].has_expired;
}

int __wrap_pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex);
int __wrap_pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex) {
    return sleep_on(condition, mutex, 0);
}

int __wrap_pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *until);
int __wrap_pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *until) {
    (void)until;
    return sleep_on(condition, mutex, 1);
}

int __wrap_pthread_cond_broadcast(pthread_cond_t *condition);
int __wrap_pthread_cond_broadcast(pthread_cond_t *condition) {
    model_point(BROADCAST, condition);
    for (int t = 0; t < m.thread_count; t++)
        if (m.threads[t].status == SLEEPS && m.threads[t].at == (char *)condition)
            model_wake(&m.threads[t]);
    return 0;
}

int __wrap_pthread_create(pthread_t *number, const pthread_attr_t *how, void *(*body)(void *), void *arg);
int __wrap_pthread_create(pthread_t *number, const pthread_attr_t *how, void *(*body)(void *), void *arg) {
    (void)how;
    model_point(CREATE, NULL);
    const int t = m.thread_count++;
    if (t == THREADS)
        model_fail("too many threads", t);
    m.threads[t] = (thread){.status = READY, .next = YIELD, .body = body, .arg = arg};
    m.threads[t].frame = stacks[t] + STACK_BYTES;
    *number = (pthread_t)t;
    model_drain(m.current);
    memcpy(order.now[t], order.now[m.current], sizeof(clocks));
    order.now[t][t] = order.now[m.current][m.current] = (uint16_t)(order.now[m.current][m.current] + 1);
    return 0;
}

int __wrap_pthread_join(pthread_t number, void **result);
int __wrap_pthread_join(pthread_t number, void **result) {
    (void)result;
    m.threads[m.current].chosen = (int)number;
    model_point(JOIN, NULL);
    model_join_clock(order.now[m.current], order.now[number]);
    return 0;
}

int __wrap_pthread_detach(pthread_t number);
int __wrap_pthread_detach(pthread_t number) {
    (void)number;
    return 0;
}

int __wrap_sched_getcpu(void);
int __wrap_sched_getcpu(void) {
    return 0;
}

/* Which CPU a thread is on changes nothing of what it does. */
void fx_keep_off(fx_apart *apart, pthread_t thread, int cpu) {
    (void)apart, (void)thread, (void)cpu;
}

void fx_fetch(fx_apart *apart, pthread_t thread, int cpu) {
    (void)apart, (void)thread, (void)cpu;
}

int __wrap_pthread_setname_np(pthread_t number, const char *name);
int __wrap_pthread_setname_np(pthread_t number, const char *name) {
    (void)number, (void)name;
    return 0;
}

/* A spin that reads the clock twice without a look at anything else between is over; the clock stands still otherwise,
 * but for jumps of a second that the scenario allows. */
int __wrap_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now) {
    (void)clock;
    const int sees_spin = m.threads[m.current].sees_spin;
    if (!sees_spin && m.expiries && model_choose(2)) {
        m.expiries--;
        m.base_ns += 1000000000;
    }
    m.threads[m.current].sees_spin = !sees_spin;
    const int64_t ns = m.base_ns + 1000000000 + (sees_spin ? 1000000 : 0);
    *now = (struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    return 0;
}

int __wrap_getrusage(int who, struct rusage *usage);
int __wrap_getrusage(int who, struct rusage *usage) {
    (void)who;
    memset(usage, 0, sizeof *usage);
    return 0;
}

void *__wrap_aligned_alloc(size_t align, size_t bytes);
void *__wrap_aligned_alloc(size_t align, size_t bytes) {
    (void)align;
    return model_alloc(bytes);
}

void __wrap_free(void *memory);
void __wrap_free(void *memory) {
    (void)memory;
}
