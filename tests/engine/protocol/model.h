/* The state that the checker explores, and what its threads do to it. model.c has the state, switches, order and stores
 * that wait; system.c has what the code calls instead of the sanitizer's library and the system; checker.c explores. */
#ifndef FLEXNN_TESTS_MODEL_H
#define FLEXNN_TESTS_MODEL_H

#include "checker.h"

#include <setjmp.h>

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
struct model {
    thread threads[THREADS];
    waiting_store waiting[THREADS][BUFFERED];
    int waiting_count[THREADS];
    int thread_count, current;
    size_t heap_used;
    int expiries;
    int64_t base_ns;
    int trail;
};
extern struct model m;
extern char heap[HEAP_BYTES], stacks[THREADS][STACK_BYTES];

/* What races are found with; no part of the state. */
struct order {
    clocks now[THREADS];
    struct {
        char *at;
        clocks clock;
    } syncs[SYNCS];
};
extern struct order order;

typedef struct cell {
    uint16_t write, reads[THREADS];
    uint8_t writer, unused;
} cell;
extern cell cells[HEAP_BYTES / CELL];

/* How the state was reached. */
struct taken {
    uint8_t thread, operation, variant;
    uint16_t at;
};
extern struct taken trail[TRAIL];

extern jmp_buf scheduler;
extern const char *scenario_name;

/* The next operation of this thread: any thread may go on before it. */
void model_point(operation next, const volatile void *at);
void model_leave(void);
/* Goes on with a thread, until it leaves. */
void model_go_on(int number);
/* A thread that sleeps goes on when it has its mutex. */
void model_wake(thread *t);

void model_join_clock(uint16_t *to, const uint16_t *from);
void model_acquire(const volatile void *at);
void model_release(const volatile void *at);

uint64_t model_read(const volatile void *at, int bytes);
void model_write(volatile void *at, int bytes, uint64_t value);
/* The first store of a thread that waits becomes visible; all do. */
void model_flush(int number);
void model_drain(int number);

#endif
