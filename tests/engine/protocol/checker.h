/* A model checker for C code with threads, that runs the code itself.
 *
 * The code is compiled with -fsanitize=thread, and system.c takes the place of the sanitizer's library: every atomic
 * access, lock and wait is a point where any thread may go on. All threads are coroutines of one thread of the system,
 * and all their memory is one block. So a state is a copy of that block, every state is visited once, and each is left
 * in every way. A plain access that no order of synchronisation separates from one of another thread is a race, as in
 * the sanitizer. A store that is not sequentially consistent waits in a buffer, and becomes visible whenever it likes.
 */
#ifndef FLEXNN_TESTS_CHECKER_H
#define FLEXNN_TESTS_CHECKER_H

#include <stddef.h>
#include <stdint.h>

/* Explores a scenario, which runs as thread 0, with at most `preemptions` switches away from a thread that could go on
 * (-1: any number). Prints what was visited. The first failure is printed with the way to it, and ends the program. */
void model_explore(const char *name, void (*scenario)(void), int preemptions);

/* The following are for scenarios. */
void *model_alloc(size_t bytes);                              /* zeros, at a multiple of 64; nothing frees it */
int model_choose(int count);                                  /* any of 0 to count - 1; each is explored */
void model_yield(void);                                       /* any thread may go on */
void model_touch(const void *at, size_t bytes, int is_write); /* a plain access */
void model_may_expire(int times);                             /* so often the clock may jump a second, in any thread */
_Noreturn void model_fail(const char *what, long number);

#define MODEL_CHECK(what)                                                                                              \
    do {                                                                                                               \
        if (!(what))                                                                                                   \
            model_fail(#what, __LINE__);                                                                               \
    } while (0)

#endif
