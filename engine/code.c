/* The pages of this library's code that are mapped into the process. */
#include "code.h"

#include <link.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

static const char mark; /* a place in this library */

/* Whether an object has a segment that holds the mark. */
static int has_mark(const struct dl_phdr_info *object) {
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
        if (segment->p_type == PT_LOAD && (uintptr_t)&mark - object->dlpi_addr - segment->p_vaddr < segment->p_memsz)
            return 1;
    }
    return 0;
}

static int forget(struct dl_phdr_info *object, size_t size, void *unused) {
    (void)size;
    (void)unused;
    if (!has_mark(object))
        return 0;
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
        const uintptr_t start = object->dlpi_addr + segment->p_vaddr, end = start + segment->p_filesz;
        const uintptr_t first = (start + page - 1) / page * page, last = end / page * page;
        if (segment->p_type == PT_LOAD && (segment->p_flags & (PF_X | PF_W)) == PF_X && first < last)
            madvise((char *)first, last - first, MADV_DONTNEED); // NOLINT(performance-no-int-to-ptr)
    }
    return 1;
}

void fx_code_forget(void) {
    dl_iterate_phdr(forget, NULL);
}
