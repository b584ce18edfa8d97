/* The ranges of files that the arena holds, and how a newly bound program gets its pinned weights: they are in
 * place, moved from other places of the arena, or read from the file. */
#include "state.h"

#include <stdlib.h>
#include <string.h>

#define MOVES_MAX 4096 /* limited because pairs of them are compared */

/* Whole chunks of a pinned load that come from one place. */
typedef struct part {
    uint32_t load;
    int64_t begin, end; /* of the checked bytes of the load */
    int64_t from;       /* arena address; -1: the file */
    int64_t to;
} part;

typedef struct parts {
    part *list;
    int64_t count, room;
} parts;

static int add(parts *p, part new) {
    part *last = p->count ? &p->list[p->count - 1] : NULL;
    if (last && last->load == new.load && last->end == new.begin &&
        (last->from < 0 ? new.from < 0 : new.from >= 0 && new.from - last->from == new.to - last->to)) {
        last->end = new.end;
        return 1;
    }
    if (p->count == p->room) {
        int64_t room = p->room ? 2 * p->room : 64;
        part *list = realloc(p->list, (size_t)room * sizeof *list);
        if (!list)
            return 0;
        p->list = list;
        p->room = room;
    }
    p->list[p->count++] = new;
    return 1;
}

static int by_offset(const void *a, const void *b) {
    const fx_pinned_range *x = a, *y = b;
    return x->fd != y->fd ? (x->fd > y->fd) - (x->fd < y->fd)
                          : (x->file_offset > y->file_offset) - (x->file_offset < y->file_offset);
}

/* Arena address of bytes of a file, `to` if they are there; -1: the arena does not hold them. The ranges are in the
 * order of by_offset; `longest` is the most bytes of one, so that those that begin further before do not reach here. */
static int64_t found(const fx_engine *e, int fd, int64_t file_offset, int64_t bytes, int64_t to, int64_t longest) {
    const fx_pinned_range wanted = {.fd = fd, .file_offset = file_offset};
    int64_t from = -1, low = 0, high = e->pinned_count;
    while (low < high) { /* the first that begins after the bytes do */
        const int64_t middle = (low + high) / 2;
        if (by_offset(&e->pinned[middle], &wanted) <= 0)
            low = middle + 1;
        else
            high = middle;
    }
    for (int64_t i = low; i-- > 0 && from != to;) {
        const fx_pinned_range *r = &e->pinned[i];
        if (r->fd != fd || file_offset - r->file_offset >= longest)
            break;
        if (file_offset + bytes <= r->file_offset + r->bytes) {
            const int64_t at = r->address + (file_offset - r->file_offset);
            from = from < 0 || at == to ? at : from;
        }
    }
    return from;
}

/* Whether a part may be kept or moved: after a fault, only if it has its checksums. */
static int is_whole(const fx_engine *e, const fx_program *p, const fx_load *load, part x) {
    return !e->is_suspect || (x.from >= 0 && fx_seal_holds(e, p, load, x.begin, x.end, x.from));
}

/* Cuts the pinned loads into parts by where their bytes are now. */
static int cut(const fx_engine *e, const fx_program *p, parts *out) {
    int64_t longest = 0;
    if (e->pinned_count)
        qsort(e->pinned, (size_t)e->pinned_count, sizeof *e->pinned, by_offset);
    for (int64_t i = 0; i < e->pinned_count; i++)
        longest = e->pinned[i].bytes > longest ? e->pinned[i].bytes : longest;
    for (uint32_t i = 0; i < p->pinned_count; i++) {
        const fx_load *load = &p->pinned[i];
        const int64_t start = load->file_offset + load->check_lead, to = load->address + load->check_lead;
        int64_t all = load->check_bytes ? found(e, p->file.fd, start, load->check_bytes, to, longest) : -1;
        all = is_whole(e, p, load, (part){i, 0, load->check_bytes, all, to}) ? all : -1;
        for (int64_t at = 0, end; at < load->check_bytes; at = end) {
            end = all >= 0 || load->check_bytes - at < load->chunk_bytes ? load->check_bytes : at + load->chunk_bytes;
            const int64_t from = all >= 0 ? all : found(e, p->file.fd, start + at, end - at, to + at, longest);
            part new = {i, at, end, from, to + at};
            if (all < 0 && !is_whole(e, p, load, new))
                new.from = -1;
            if (!add(out, new))
                return 0;
        }
    }
    return 1;
}

/* Moves down come first, lowest first; then moves up, highest first. So parts that keep their order do not write over
 * each other. Parts that would are read from the file instead. */
static int by_turn(const void *a, const void *b) {
    const part *x = a, *y = b;
    const int x_up = x->to > x->from, y_up = y->to > y->from;
    if (x_up != y_up)
        return x_up - y_up;
    return x_up ? (x->from < y->from) - (x->from > y->from) : (x->from > y->from) - (x->from < y->from);
}

static fx_range source(const part *p) {
    return (fx_range){p->from, p->from + (p->end - p->begin)};
}

static fx_range destination(const part *p) {
    return (fx_range){p->to, p->to + (p->end - p->begin)};
}

static void move(fx_engine *e, parts *all, fx_bind_stats *stats) {
    if (all->count > 1) /* of none there is no list */
        qsort(all->list, (size_t)all->count, sizeof *all->list, by_turn);
    for (int64_t i = 0; i < all->count; i++) {
        part *p = &all->list[i];
        const int64_t bytes = p->end - p->begin;
        if (p->from < 0 || p->from == p->to) {
            stats->kept += p->from < 0 ? 0 : bytes;
            continue;
        }
        if (all->count > MOVES_MAX) {
            p->from = -1;
            continue;
        }
        for (int64_t j = i + 1; j < all->count; j++)
            if (all->list[j].from >= 0 && fx_ranges_meet(destination(p), source(&all->list[j])))
                all->list[j].from = -1;
        memmove(e->arena.memory + p->to, e->arena.memory + p->from, (size_t)bytes);
        stats->moved += bytes;
    }
}

/* Reads a part of a pinned load. Where reads go past the page cache its ends are rounded outwards, inside the load. */
static fx_status read_part(fx_engine *e, const fx_program *p, const part *wanted, fx_poll *poll, fx_error *error) {
    const fx_load *load = &p->pinned[wanted->load];
    int64_t first = load->check_lead + wanted->begin, end = load->check_lead + wanted->end;
    if (p->file.direct_fd >= 0) {
        first = fx_direct_down(load->file_offset + first) - load->file_offset;
        end = fx_direct_up(load->file_offset + end) - load->file_offset;
    }
    first = first < 0 ? 0 : first;
    end = end > load->bytes ? load->bytes : end;
    fx_load read = *load;
    read.file_offset += first;
    read.address += first;
    read.bytes = end - first;
    read.check_lead = load->check_lead + wanted->begin - first;
    read.check_bytes = wanted->end - wanted->begin;
    read.crc_first += (uint32_t)(wanted->begin / load->chunk_bytes);
    if (e->poison)
        fx_poison(e->arena.memory + read.address, read.bytes);
    fx_status status = fx_loader_read(e, p, &read, poll, error);
    if (status != FX_OK) {
        error->is_load = error->is_pinned = 1;
        error->index = wanted->load;
    }
    return status;
}

/* Drops the ranges of the engine that lie where the program pins or writes, and with `all` adds those that it pins. */
static int account(fx_engine *e, const fx_program *p, const fx_touches *touches, int all) {
    fx_pinned_range *list = malloc((size_t)(e->pinned_count + p->pinned_count + 1) * sizeof *list);
    int64_t count = 0;
    if (!list)
        return 0;
    for (int64_t i = 0; i < e->pinned_count; i++) {
        const fx_range place = {e->pinned[i].address, e->pinned[i].address + e->pinned[i].bytes};
        if (!fx_list_meets(touches->pinned, touches->pinned_count, place) &&
            !fx_list_meets(touches->writes, touches->write_count, place))
            list[count++] = e->pinned[i];
    }
    for (uint32_t i = 0; i < p->pinned_count && all; i++) {
        const fx_load *load = &p->pinned[i];
        list[count++] = (fx_pinned_range){p->file.fd, load->file_offset + load->check_lead, load->check_bytes,
                                          load->address + load->check_lead};
    }
    free(e->pinned);
    e->pinned = list;
    e->pinned_count = count;
    return 1;
}

fx_status fx_pinned_bring(fx_engine *e, const fx_program *p, const fx_touches *touches, fx_poll *poll,
                          fx_bind_stats *stats, fx_error *error) {
    parts all = {0};
    if (!cut(e, p, &all) || !account(e, p, touches, 0)) {
        free(all.list);
        return fx_fail(error, FX_ERR_MEMORY, 0);
    }
    move(e, &all, stats);
    fx_status status = FX_OK;
    for (int64_t i = 0; i < all.count && status == FX_OK; i++)
        if (all.list[i].from < 0) {
            status = read_part(e, p, &all.list[i], poll, error);
            stats->read += all.list[i].end - all.list[i].begin;
        }
    free(all.list);
    if (status == FX_OK && !account(e, p, touches, 1))
        return fx_fail(error, FX_ERR_MEMORY, 0);
    return status;
}

void fx_pinned_cut(fx_engine *e, int64_t arena_bytes) {
    int64_t left = 0;
    for (int64_t i = 0; i < e->pinned_count; i++)
        if (e->pinned[i].address + e->pinned[i].bytes <= arena_bytes)
            e->pinned[left++] = e->pinned[i];
    e->pinned_count = left;
}

void fx_pinned_leave(fx_engine *e, int fd) {
    int64_t left = 0;
    for (int64_t i = 0; i < e->pinned_count; i++)
        if (e->pinned[i].fd != fd)
            e->pinned[left++] = e->pinned[i];
    e->pinned_count = left;
}

void fx_pinned_drop(fx_engine *e, fx_range range) {
    int64_t left = 0;
    for (int64_t i = 0; i < e->pinned_count; i++)
        if (!fx_ranges_meet((fx_range){e->pinned[i].address, e->pinned[i].address + e->pinned[i].bytes}, range))
            e->pinned[left++] = e->pinned[i];
    e->pinned_count = left;
}

static int by_address(const void *a, const void *b) {
    const int64_t x = ((const fx_pinned_range *)a)->address, y = ((const fx_pinned_range *)b)->address;
    return (x > y) - (x < y);
}

void fx_pinned_forget_others(fx_engine *e) {
    int64_t at = 0;
    if (e->pinned_count)
        qsort(e->pinned, (size_t)e->pinned_count, sizeof *e->pinned, by_address);
    for (int64_t i = 0; i <= e->pinned_count; i++) {
        const int is_end = i == e->pinned_count;
        const int64_t next = is_end ? e->arena.bytes : e->pinned[i].address;
        if (next > at)
            fx_arena_forget(e->arena.memory + at, next - at);
        at = is_end || e->pinned[i].address + e->pinned[i].bytes < at ? at : next + e->pinned[i].bytes;
    }
}
