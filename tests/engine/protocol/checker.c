#include "checker.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <ucontext.h>

enum {
    THREADS = 6,
    STACK_BYTES = 16 << 10,
    HEAP_BYTES = 64 << 10,
    CELL = 4, /* bytes that a race is found in */
    SYNCS = 256,
    BUFFERED = 4, /* stores that wait */
    TRAIL = 1 << 16,
    OPTIONS = 64,
    MARGIN = 1024, /* of a stack below the frame that was left */
};

typedef uint16_t clocks[THREADS];

typedef enum operation {
    LOAD,
    STORE,
    EXCHANGE,
    LOCK,
    WAIT,
    BROADCAST,
    CREATE,
    JOIN,
    CHOOSE,
    YIELD,
    END,
    FLUSH
} operation;
static const char *const operation_names[] = {"load",   "store", "exchange", "lock",   "wait", "broadcast",
                                              "create", "join",  "choose",   "yields", "end",  "flush"};

typedef enum status { ABSENT, READY, SLEEPS, DONE } status;

typedef struct waiting_store {
    char *at;
    uint64_t value;
    int bytes, releases;
    clocks clock;
} waiting_store;

typedef struct thread {
    status status;
    int has_started;
    operation next; /* what it does when it goes on */
    char *at;       /* the object of that: an atomic, a mutex, a condition */
    char *mutex;    /* SLEEPS: locked again afterwards */
    int is_timed, has_expired;
    int choices, chosen;
    int sees_spin; /* the clock was read, and nothing since */
    void *(*body)(void *);
    void *arg;
    char *frame; /* where its stack ends */
    jmp_buf context;
} thread;

/* All that a state is, but for memory itself. */
static struct model {
    thread threads[THREADS];
    waiting_store waiting[THREADS][BUFFERED];
    int waiting_count[THREADS];
    int thread_count, current;
    size_t heap_used;
    int expiries;
    int64_t base_ns;
    int trail;
} m;

/* What races are found with; no part of the state. */
static struct order {
    clocks now[THREADS];
    struct {
        char *at;
        clocks clock;
    } syncs[SYNCS];
} order;

typedef struct cell {
    uint16_t write, reads[THREADS];
    uint8_t writer, unused;
} cell;

static _Alignas(64) char heap[HEAP_BYTES];
static _Alignas(64) char stacks[THREADS][STACK_BYTES];
static cell cells[HEAP_BYTES / CELL];

static jmp_buf scheduler;
static const char *scenario_name;

static struct {
    uint8_t thread, operation, variant;
    uint16_t at;
} trail[TRAIL];

/* ---- failures ---- */

static void print_trail(void) {
    const int first = m.trail > 60 ? m.trail - 60 : 0;
    for (int i = first; i < m.trail; i++)
        fprintf(stderr, "  %5d  thread %d %s %d  +%u\n", i, trail[i].thread, operation_names[trail[i].operation],
                trail[i].variant, trail[i].at);
}

void model_fail(const char *what, long number) {
    print_trail();
    for (int t = 0; t < m.thread_count; t++)
        fprintf(stderr, "  thread %d: %s %s +%ld\n", t,
                (const char *[]){"absent", "ready", "asleep", "done"}[m.threads[t].status],
                operation_names[m.threads[t].next], (long)(m.threads[t].at - heap));
    fprintf(stderr, "FAILED %s: %s (%ld), thread %d\n", scenario_name, what, number, m.current);
    fflush(stderr);
    _Exit(1);
}

/* ---- switching ---- */

static __attribute__((noinline)) void leave(void) {
    thread *t = &m.threads[m.current];
    t->frame = __builtin_frame_address(0);
    if (!_setjmp(t->context))
        _longjmp(scheduler, 1);
}

/* The next operation of this thread: any thread may go on before it. */
static void point(operation next, const volatile void *at) {
    thread *t = &m.threads[m.current];
    t->sees_spin = 0;
    t->next = next;
    t->at = (char *)(uintptr_t)at;
    leave();
}

static void drain(int number);

static void run_thread(void) {
    thread *t = &m.threads[m.current];
    t->body(t->arg);
    point(END, NULL);
    drain(m.current);
    m.threads[m.current].status = DONE;
    leave();
}

static void go_on(int number) {
    thread *t = &m.threads[number];
    m.current = number;
    if (t->has_started)
        _longjmp(t->context, 1);
    static ucontext_t context;
    t->has_started = 1;
    getcontext(&context);
    context.uc_stack.ss_sp = stacks[number];
    context.uc_stack.ss_size = STACK_BYTES;
    context.uc_link = NULL;
    makecontext(&context, run_thread, 0);
    setcontext(&context);
}

void *model_alloc(size_t bytes) {
    void *at = heap + m.heap_used;
    m.heap_used += (bytes + 63) / 64 * 64;
    if (m.heap_used > HEAP_BYTES)
        model_fail("the heap is too small", (long)m.heap_used);
    memset(at, 0, bytes);
    memset(&cells[((char *)at - heap) / CELL], 0, (heap + m.heap_used - (char *)at) / CELL * sizeof *cells);
    return at;
}

int model_choose(int count) {
    m.threads[m.current].choices = count;
    point(CHOOSE, NULL);
    return m.threads[m.current].chosen;
}

void model_yield(void) {
    point(YIELD, NULL);
}

void model_may_expire(int times) {
    m.expiries = times;
}

/* ---- order ---- */

static uint16_t *clock_of(const volatile void *at) {
    const uintptr_t key = (uintptr_t)at;
    for (size_t i = key / 4 % SYNCS;; i = (i + 1) % SYNCS) {
        if (!order.syncs[i].at)
            order.syncs[i].at = (char *)key;
        if (order.syncs[i].at == (char *)key)
            return order.syncs[i].clock;
    }
}

static void join_clock(uint16_t *to, const uint16_t *from) {
    for (int i = 0; i < THREADS; i++)
        to[i] = from[i] > to[i] ? from[i] : to[i];
}

static void acquire(const volatile void *at) {
    join_clock(order.now[m.current], clock_of(at));
}

static void release(const volatile void *at) {
    join_clock(clock_of(at), order.now[m.current]);
    order.now[m.current][m.current]++;
}

static void access_cell(size_t number, int is_write) {
    cell *c = &cells[number];
    const uint16_t *now = order.now[m.current];
    if (c->write > now[c->writer])
        model_fail(is_write ? "race: written, and written" : "race: written, and read", (long)(number * CELL));
    if (!is_write) {
        c->reads[m.current] = now[m.current];
        return;
    }
    for (int t = 0; t < THREADS; t++)
        if (c->reads[t] > now[t])
            model_fail("race: read, and written", (long)(number * CELL));
    c->write = now[m.current];
    c->writer = (uint8_t)m.current;
}

void model_touch(const void *at, size_t bytes, int is_write) {
    const char *from = at;
    if (!bytes || from < heap || from >= heap + HEAP_BYTES)
        return;
    for (size_t i = (size_t)(from - heap) / CELL; i <= ((size_t)(from - heap) + bytes - 1) / CELL; i++)
        access_cell(i, is_write);
}

/* ---- stores that wait ---- */

static uint64_t read_value(const volatile void *at, int bytes) {
    return bytes == 4 ? *(const volatile uint32_t *)at : *(const volatile uint64_t *)at;
}

static void write_value(volatile void *at, int bytes, uint64_t value) {
    if (bytes == 4)
        *(volatile uint32_t *)at = (uint32_t)value;
    else
        *(volatile uint64_t *)at = value;
}

static void flush(int number) {
    waiting_store *first = &m.waiting[number][0];
    write_value(first->at, first->bytes, first->value);
    uint16_t *clock = clock_of(first->at);
    if (first->releases)
        memcpy(clock, first->clock, sizeof(clocks));
    else
        memset(clock, 0, sizeof(clocks)); /* who reads this value learns of nothing before it */
    m.waiting_count[number]--;
    memmove(first, first + 1, (size_t)m.waiting_count[number] * sizeof *first);
    memset(first + m.waiting_count[number], 0, sizeof *first);
}

static void drain(int number) {
    while (m.waiting_count[number])
        flush(number);
}

/* ---- what the compiler calls ---- */

static int acquires(int how) {
    return how != __ATOMIC_RELAXED && how != __ATOMIC_RELEASE;
}

static int releases(int how) {
    return how == __ATOMIC_RELEASE || how == __ATOMIC_ACQ_REL || how == __ATOMIC_SEQ_CST;
}

static uint64_t load(const volatile void *at, int bytes, int how) {
    point(LOAD, at);
    for (int i = m.waiting_count[m.current]; i-- > 0;)
        if (m.waiting[m.current][i].at == (const volatile char *)at)
            return m.waiting[m.current][i].value;
    if (acquires(how))
        acquire(at);
    return read_value(at, bytes);
}

static void store(volatile void *at, int bytes, uint64_t value, int how) {
    point(STORE, at);
    const int number = m.current;
    if (how == __ATOMIC_SEQ_CST || m.waiting_count[number] == BUFFERED)
        drain(number);
    waiting_store *w = &m.waiting[number][m.waiting_count[number]++];
    *w = (waiting_store){.at = (char *)(uintptr_t)at, .value = value, .bytes = bytes, .releases = releases(how)};
    memcpy(w->clock, order.now[number], sizeof(clocks));
    order.now[number][number]++;
    if (how == __ATOMIC_SEQ_CST)
        drain(number);
}

/* A read and a write in one; returns what was there. */
static uint64_t begin_exchange(volatile void *at, int bytes, int how) {
    point(EXCHANGE, at);
    drain(m.current);
    if (acquires(how))
        acquire(at);
    return read_value(at, bytes);
}

static void end_exchange(volatile void *at, int bytes, uint64_t value, int how) {
    write_value(at, bytes, value);
    if (releases(how))
        release(at);
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
    drain(m.current);
    acquire(mutex);
}

static void unlock(char *mutex) {
    if (*(int *)mutex != m.current + 1)
        model_fail("a mutex is unlocked that another thread has", *(int *)mutex - 1);
    drain(m.current);
    release(mutex);
    *(int *)mutex = 0;
}

int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_lock(pthread_mutex_t *mutex) {
    point(LOCK, mutex);
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
    point(WAIT, condition);
    unlock((char *)mutex);
    t->status = SLEEPS;
    t->mutex = (char *)mutex;
    t->is_timed = is_timed;
    t->has_expired = 0;
    leave();
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

static void wake(thread *t) {
    t->status = READY;
    t->next = LOCK;
    t->at = t->mutex;
    t->mutex = NULL;
}

int __wrap_pthread_cond_broadcast(pthread_cond_t *condition);
int __wrap_pthread_cond_broadcast(pthread_cond_t *condition) {
    point(BROADCAST, condition);
    for (int t = 0; t < m.thread_count; t++)
        if (m.threads[t].status == SLEEPS && m.threads[t].at == (char *)condition)
            wake(&m.threads[t]);
    return 0;
}

int __wrap_pthread_create(pthread_t *number, const pthread_attr_t *how, void *(*body)(void *), void *arg);
int __wrap_pthread_create(pthread_t *number, const pthread_attr_t *how, void *(*body)(void *), void *arg) {
    (void)how;
    point(CREATE, NULL);
    const int t = m.thread_count++;
    if (t == THREADS)
        model_fail("too many threads", t);
    m.threads[t] = (thread){.status = READY, .next = YIELD, .body = body, .arg = arg};
    m.threads[t].frame = stacks[t] + STACK_BYTES;
    *number = (pthread_t)t;
    drain(m.current);
    memcpy(order.now[t], order.now[m.current], sizeof(clocks));
    order.now[t][t] = order.now[m.current][m.current] = (uint16_t)(order.now[m.current][m.current] + 1);
    return 0;
}

int __wrap_pthread_join(pthread_t number, void **result);
int __wrap_pthread_join(pthread_t number, void **result) {
    (void)result;
    m.threads[m.current].chosen = (int)number;
    point(JOIN, NULL);
    join_clock(order.now[m.current], order.now[number]);
    return 0;
}

int __wrap_pthread_detach(pthread_t number);
int __wrap_pthread_detach(pthread_t number) {
    (void)number;
    return 0;
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

/* ---- exploring ---- */

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
        flush(o.thread);
        return;
    }
    if (o.expires) {
        m.expiries--;
        m.base_ns += 1000000000;
        t->has_expired = 1;
        wake(t);
        return;
    }
    if (t->next == CHOOSE)
        t->chosen = o.variant;
    if (!_setjmp(scheduler))
        go_on(o.thread);
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
