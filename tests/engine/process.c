/* Tests of process: whether an engine is in the process that opened it. */
#include "process.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

void *__real_mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset);
int __real_madvise(void *address, size_t bytes, int advice);

static enum { WORKS, NO_PAGE, NO_ADVICE, ANY_ADVICE } kind;

void *__wrap_mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset) {
    return kind == NO_PAGE ? MAP_FAILED : __real_mmap(address, bytes, protection, flags, fd, offset);
}

int __wrap_madvise(void *address, size_t bytes, int advice) {
    return kind == NO_ADVICE ? -1 : kind == ANY_ADVICE ? 0 : __real_madvise(address, bytes, advice);
}

/* What a child of fork says. */
static int in_child(const fx_process *process) {
    fflush(stdout);
    const pid_t child = fork();
    if (!child)
        _exit(fx_process_is_here(process));
    int status = -1;
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status))
        abort();
    return WEXITSTATUS(status);
}

int main(void) {
    int wrong = 0;
    for (kind = WORKS; kind <= ANY_ADVICE; kind++) {
        fx_process process;
        fx_process_start(&process);
        const int64_t bytes = fx_process_bytes(&process);
        const int is_wrong = !fx_process_is_here(&process) || in_child(&process) || !fx_process_is_here(&process) ||
                             (kind != WORKS && bytes);
        if (is_wrong)
            printf("kind %d, %lld bytes: wrong\n", kind, (long long)bytes);
        wrong += is_wrong;
        fx_process_end(&process);
        wrong += fx_process_bytes(&process) != 0;
    }
    if (!wrong)
        printf("process: the parent is here, its child is not, with a page and without\n");
    return wrong != 0;
}
