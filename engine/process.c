#include "process.h"

#include <sys/mman.h>
#include <unistd.h>

void fx_process_start(fx_process *process) {
    *process = (fx_process){.process = getpid()};
    const size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
    void *page = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return;
    /* Emulators have agreed to any advice, also to this one that nobody knows, and followed none. */
    if (madvise(page, bytes, MADV_WIPEONFORK) != 0 || madvise(page, bytes, -1) == 0) {
        munmap(page, bytes);
        return;
    }
    process->mark = page;
    *process->mark = 1;
}

void fx_process_end(fx_process *process) {
    if (process->mark)
        munmap(process->mark, (size_t)sysconf(_SC_PAGESIZE));
    process->mark = NULL;
}

int64_t fx_process_bytes(const fx_process *process) {
    return process->mark ? sysconf(_SC_PAGESIZE) : 0;
}
