#include "model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

static const char *const operation_names[] = {"load",   "store", "exchange", "lock",   "wait", "broadcast",
                                              "create", "join",  "choose",   "yields", "end",  "flush"};

struct model m;
struct order order;
struct taken trail[TRAIL];
_Alignas(64) char heap[HEAP_BYTES];
_Alignas(64) char stacks[THREADS][STACK_BYTES];
cell cells[HEAP_BYTES / CELL];
jmp_buf scheduler;
const char *scenario_name;

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

__attribute__((noinline)) void model_leave(void) {
    thread *t = &m.threads[m.current];
    t->frame = __builtin_frame_address(0);
    if (!_setjmp(t->context))
        _longjmp(scheduler, 1);
}

/* The next operation of this thread: any thread may go on before it. */
void model_point(operation next, const volatile void *at) {
    thread *t = &m.threads[m.current];
    t->sees_spin = 0;
    t->next = next;
    t->at = (char *)(uintptr_t)at;
    model_leave();
}

static void run_thread(void) {
    thread *t = &m.threads[m.current];
    t->body(t->arg);
    model_point(END, NULL);
    model_drain(m.current);
    m.threads[m.current].status = DONE;
    model_leave();
}

void model_go_on(int number) {
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

void model_wake(thread *t) {
    t->status = READY;
    t->next = LOCK;
    t->at = t->mutex;
    t->mutex = NULL;
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
    model_point(CHOOSE, NULL);
    return m.threads[m.current].chosen;
}

void model_yield(void) {
    model_point(YIELD, NULL);
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

void model_join_clock(uint16_t *to, const uint16_t *from) {
    for (int i = 0; i < THREADS; i++)
        to[i] = from[i] > to[i] ? from[i] : to[i];
}

void model_acquire(const volatile void *at) {
    model_join_clock(order.now[m.current], clock_of(at));
}

void model_release(const volatile void *at) {
    model_join_clock(clock_of(at), order.now[m.current]);
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

uint64_t model_read(const volatile void *at, int bytes) {
    return bytes == 4 ? *(const volatile uint32_t *)at : *(const volatile uint64_t *)at;
}

void model_write(volatile void *at, int bytes, uint64_t value) {
    if (bytes == 4)
        *(volatile uint32_t *)at = (uint32_t)value;
    else
        *(volatile uint64_t *)at = value;
}

void model_flush(int number) {
    waiting_store *first = &m.waiting[number][0];
    model_write(first->at, first->bytes, first->value);
    uint16_t *clock = clock_of(first->at);
    if (first->releases)
        memcpy(clock, first->clock, sizeof(clocks));
    else
        memset(clock, 0, sizeof(clocks)); /* who reads this value learns of nothing before it */
    m.waiting_count[number]--;
    memmove(first, first + 1, (size_t)m.waiting_count[number] * sizeof *first);
    memset(first + m.waiting_count[number], 0, sizeof *first);
}

void model_drain(int number) {
    while (m.waiting_count[number])
        model_flush(number);
}
