/* The pages of this library's code and constants that are mapped into the process. */
#include "flexnn/code.h"

#include <link.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#define PIECE_BYTES ((uintptr_t)8 << 10)
#define AROUND_BYTES ((uintptr_t)64 << 10) /* that Linux maps when one page is touched */

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

/* Makes a mapping of each piece: whichever page is touched first, the system maps the 64 KiB around it, but nothing
 * beyond its mapping, and what a run touches is scattered over most of the library. Two pieces side by side differ in
 * an advice that means nothing here, as core dumps hold no code anyway. Where the system refuses, the rest stays whole.
 */
static void cut(uintptr_t first, uintptr_t last, uintptr_t page) {
    const uintptr_t piece = page > PIECE_BYTES ? page : PIECE_BYTES;
    for (uintptr_t at = first + piece; at + piece < last; at += 2 * piece)
        if (madvise((char *)at, piece, MADV_DONTDUMP) != 0) // NOLINT(performance-no-int-to-ptr)
            return;
}

static int visit(struct dl_phdr_info *object, size_t size, void *is_whole) {
    (void)size;
    if (!has_mark(object))
        return 0;
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
        const uintptr_t start = object->dlpi_addr + segment->p_vaddr, end = start + segment->p_filesz;
        const uintptr_t first = (start + page - 1) / page * page, last = end / page * page;
        if (segment->p_type != PT_LOAD || (segment->p_flags & PF_W) || first >= last)
            continue;
        if (is_whole && page < AROUND_BYTES)
            cut(first, last, page);
        madvise((char *)first, last - first, MADV_DONTNEED); // NOLINT(performance-no-int-to-ptr)
    }
    return 1;
}

void fx_code_cut(void) {
    int is_whole = 1;
    dl_iterate_phdr(visit, &is_whole);
}

void fx_code_forget(void) {
    dl_iterate_phdr(visit, NULL);
}
