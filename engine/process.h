/* Which process an engine belongs to: a child of fork has a copy of its memory, but none of its threads. */
#ifndef FLEXNN_ENGINE_PROCESS_H
#define FLEXNN_ENGINE_PROCESS_H

#include <stdint.h>
#include <sys/types.h>
#include <unistd.h>

typedef struct fx_process {
    uint8_t *mark; /* set, in a page that the system gives a child empty; NULL: the system has to be asked */
    pid_t process;
} fx_process;

/* Notes that the engine belongs to this process. It cannot fail: without a page, each look asks the system. */
void fx_process_start(fx_process *process);

/* Whether this is the process that the engine belongs to. With a page that takes no system call. */
static inline int fx_process_is_here(const fx_process *process) {
    return process->mark ? *process->mark : getpid() == process->process;
}

/* Gives the page back. */
void fx_process_end(fx_process *process);

/* Bytes of the page. */
int64_t fx_process_bytes(const fx_process *process);

#endif
