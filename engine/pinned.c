/* What the arena holds of the file, and how a newly bound program gets its pinned weights: from their places, from
 * other places of the arena, from the file. */
#include "arena.h"
#include "state.h"

#include <stdlib.h>
#include <string.h>

#define MOVES_MAX 4096 /* pairs of them are compared */
#define DIRECT_ALIGN 4096

/* Whole chunks of a pinned load that come from one place. */
typedef struct piece {
    uint32_t load;
    int64_t begin, end; /* of the checked bytes of the load */
    int64_t from;       /* arena address; -1: the file */
    int64_t to;
} piece;

typedef struct pieces {
    piece *list;
    int64_t count, room;
} pieces;

static int add(pieces *p, piece new) {
    piece *last = p->count ? &p->list[p->count - 1] : NULL;
    if (last && last->load == new.load && last->end == new.begin &&
        (last->from < 0 ? new.from < 0 : new.from >= 0 && new.from - last->from == new.to - last->to)) {
        last->end = new.end;
        return 1;
    }
    if (p->count == p->room) {
        int64_t room = p->room ? 2 * p->room : 64;
        piece *list = realloc(p->list, (size_t)room * sizeof *list);
        if (!list)
            return 0;
        p->list = list;
        p->room = room;
    }
    p->list[p->count++] = new;
    return 1;
}

/* Where the arena holds bytes of the file; rather at `to` than elsewhere. -1: nowhere. */
static int64_t found(const fx_engine *h, int64_t file_offset, int64_t bytes, int64_t to) {
    int64_t from = -1;
    for (int64_t i = 0; i < h->resident_count && from != to; i++) {
        const fx_resident *r = &h->residents[i];
        if (r->file_offset <= file_offset && file_offset + bytes <= r->file_offset + r->bytes) {
            int64_t at = r->address + (file_offset - r->file_offset);
            from = from < 0 || at == to ? at : from;
        }
    }
    return from;
}

/* Cuts the pinned loads into pieces by where they are now. */
static int cut(const fx_engine *h, const fx_program *p, pieces *out) {
    for (uint32_t i = 0; i < p->pinned_count; i++) {
        const fx_load *load = &p->pinned[i];
        const int64_t start = load->file_offset + load->check_lead, to = load->address + load->check_lead;
        int64_t all = load->check_bytes ? found(h, start, load->check_bytes, to) : -1;
        for (int64_t at = 0, end; at < load->check_bytes; at = end) {
            end = all >= 0 || load->check_bytes - at < load->chunk_bytes ? load->check_bytes : at + load->chunk_bytes;
            int64_t from = all >= 0 ? all : found(h, start + at, end - at, to + at);
            if (!add(out, (piece){i, at, end, from, to + at}))
                return 0;
        }
    }
    return 1;
}

/* Down first, the lowest first; then up, the highest first: so pieces that keep their order do not write over each
 * other. Others may: those are read. */
static int by_turn(const void *a, const void *b) {
    const piece *x = a, *y = b;
    const int x_up = x->to > x->from, y_up = y->to > y->from;
    if (x_up != y_up)
        return x_up - y_up;
    return x_up ? (x->from < y->from) - (x->from > y->from) : (x->from > y->from) - (x->from < y->from);
}

static fx_range source(const piece *p) {
    return (fx_range){p->from, p->from + (p->end - p->begin)};
}

static fx_range destination(const piece *p) {
    return (fx_range){p->to, p->to + (p->end - p->begin)};
}

static void move(fx_engine *h, pieces *all, fx_bind_stats *stats) {
    qsort(all->list, (size_t)all->count, sizeof *all->list, by_turn);
    for (int64_t i = 0; i < all->count; i++) {
        piece *p = &all->list[i];
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
        memmove(h->arena + p->to, h->arena + p->from, (size_t)bytes);
        stats->moved += bytes;
    }
}

static int is_interrupted(void *poll) {
    return fx_polled(poll);
}

static int64_t up(int64_t n) {
    return (n + DIRECT_ALIGN - 1) / DIRECT_ALIGN * DIRECT_ALIGN;
}

/* Reads a piece of a pinned load, rounded outwards inside the load where reads go past the page cache. */
static fx_status read_piece(fx_engine *h, const fx_program *p, const piece *piece, fx_poll *poll, fx_error *error) {
    const fx_load *load = &p->pinned[piece->load];
    int64_t first = load->check_lead + piece->begin, end = load->check_lead + piece->end;
    if (h->direct_fd >= 0) {
        first = (load->file_offset + first) / DIRECT_ALIGN * DIRECT_ALIGN - load->file_offset;
        end = up(load->file_offset + end) - load->file_offset;
    }
    first = first < 0 ? 0 : first;
    end = end > load->bytes ? load->bytes : end;
    fx_load part = *load;
    part.file_offset += first;
    part.address += first;
    part.bytes = end - first;
    part.check_lead = load->check_lead + piece->begin - first;
    part.check_bytes = piece->end - piece->begin;
    part.crc_first += (uint32_t)(piece->begin / load->chunk_bytes);
    if (h->poison)
        fx_poison(h->arena + part.address, part.bytes);
    fx_status status = fx_load_read(h, p, &part, is_interrupted, poll, error);
    if (status != FX_OK) {
        error->is_load = error->is_pinned = 1;
        error->index = piece->load;
    }
    return status;
}

/* Forgets what lies where the program keeps or writes, and with `all` adds what it keeps. */
static int account(fx_engine *h, const fx_program *p, const fx_touches *touches, int all) {
    fx_resident *list = malloc((size_t)(h->resident_count + p->pinned_count + 1) * sizeof *list);
    int64_t count = 0;
    if (!list)
        return 0;
    for (int64_t i = 0; i < h->resident_count; i++) {
        const fx_range place = {h->residents[i].address, h->residents[i].address + h->residents[i].bytes};
        if (!fx_lists_meet(&place, 1, touches->keeps, touches->keep_count) &&
            !fx_lists_meet(&place, 1, touches->writes, touches->write_count))
            list[count++] = h->residents[i];
    }
    for (uint32_t i = 0; i < p->pinned_count && all; i++) {
        const fx_load *load = &p->pinned[i];
        list[count++] =
            (fx_resident){load->file_offset + load->check_lead, load->check_bytes, load->address + load->check_lead};
    }
    free(h->residents);
    h->residents = list;
    h->resident_count = count;
    return 1;
}

fx_status fx_residents_bring(fx_engine *h, const fx_program *p, const fx_touches *touches, fx_poll *poll,
                             fx_bind_stats *stats, fx_error *error) {
    pieces all = {0};
    if (!cut(h, p, &all) || !account(h, p, touches, 0)) {
        free(all.list);
        return fx_fail(error, FX_ERR_MEMORY, 0);
    }
    move(h, &all, stats);
    fx_status status = FX_OK;
    for (int64_t i = 0; i < all.count && status == FX_OK; i++)
        if (all.list[i].from < 0) {
            status = read_piece(h, p, &all.list[i], poll, error);
            stats->read += all.list[i].end - all.list[i].begin;
        }
    free(all.list);
    if (status == FX_OK && !account(h, p, touches, 1))
        return fx_fail(error, FX_ERR_MEMORY, 0);
    return status;
}

void fx_residents_cut(fx_engine *h, int64_t arena_bytes) {
    int64_t kept = 0;
    for (int64_t i = 0; i < h->resident_count; i++)
        if (h->residents[i].address + h->residents[i].bytes <= arena_bytes)
            h->residents[kept++] = h->residents[i];
    h->resident_count = kept;
}

static int by_address(const void *a, const void *b) {
    const int64_t x = ((const fx_resident *)a)->address, y = ((const fx_resident *)b)->address;
    return (x > y) - (x < y);
}

void fx_residents_only(fx_engine *h) {
    int64_t at = 0;
    if (h->resident_count)
        qsort(h->residents, (size_t)h->resident_count, sizeof *h->residents, by_address);
    for (int64_t i = 0; i <= h->resident_count; i++) {
        const int is_end = i == h->resident_count;
        const int64_t next = is_end ? h->arena_bytes : h->residents[i].address;
        if (next > at)
            fx_arena_forget(h->arena + at, next - at);
        at = is_end || h->residents[i].address + h->residents[i].bytes < at ? at : next + h->residents[i].bytes;
    }
}
