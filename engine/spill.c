#include "spill.h"

#include "state.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#define CRCS_MAX (1 << 27)
#define SIX(node, first) (&(node)->params.words[offsetof(fx_copy_params, first) / sizeof(int32_t)])

static fx_status fail(fx_error *error, fx_status status, int64_t index, const fx_load *load) {
    *error = (fx_error){.status = status, .index = index, .is_load = load != NULL};
    if (load)
        error->file_offset = load->file_offset;
    return status;
}

/* ---- checks ---- */

/* The activation that bytes of the file belong to, if they are whole rows of it; else NULL. */
static const fx_load *place_of(const fx_program *p, int64_t offset, int64_t bytes) {
    for (uint32_t i = 0; i < p->spill_count; i++) {
        const fx_load *place = &p->spills[i];
        const int64_t from = offset - place->file_offset;
        if (from >= 0 && bytes > 0 && bytes <= place->bytes && from <= place->bytes - bytes)
            return from % place->chunk_bytes || bytes % place->chunk_bytes ? NULL : place;
    }
    return NULL;
}

static int64_t row_of(const fx_load *place, int64_t offset) {
    return (offset - place->file_offset) / place->chunk_bytes;
}

static int64_t stored_bytes(const fx_node *node) {
    int64_t lo, hi;
    fx_op_extent(node->op, &node->params, FX_OUTPUT, &lo, &hi);
    return hi - lo;
}

fx_status fx_spill_check_node(const fx_program *p, const fx_node *node) {
    if (node->op != FX_OP_COPY)
        return FX_ERR_PARAMS;
    const int32_t *d = SIX(node, d0), *xs = SIX(node, xs0), *ys = SIX(node, ys0);
    int64_t step = 1;
    for (int i = 5; i >= 0; i--) { /* without gaps, in the order of the file */
        if (d[i] > 1 && (xs[i] != step || ys[i] != step))
            return FX_ERR_PARAMS;
        step *= d[i];
    }
    return place_of(p, node->out.offset, stored_bytes(node)) ? FX_OK : FX_ERR_BOUNDS;
}

static int places_are_sane(const fx_program *p) {
    int64_t end = 0, crc = 0;
    for (uint32_t i = 0; i < p->spill_count; i++) {
        const fx_load *place = &p->spills[i];
        if (place->file_offset < end || place->bytes <= 0 || place->bytes > p->spill_bytes ||
            place->file_offset > p->spill_bytes - place->bytes || place->chunk_bytes <= 0 ||
            place->bytes % place->chunk_bytes || place->crc_first != crc)
            return 0;
        end = place->file_offset + place->bytes;
        crc += place->bytes / place->chunk_bytes;
        if (crc > CRCS_MAX)
            return 0;
    }
    return crc == p->spill_crc_count && p->spill_bytes >= 0 && p->spill_bytes < FX_SPILL_FROM;
}

/* Finds after which step each row is stored. */
static fx_status find_stores(const fx_program *p, uint32_t *stored, fx_error *error) {
    for (uint32_t i = 0; i < p->step_count; i++) {
        const fx_node *node = &p->nodes[p->steps[i].node];
        if (node->out.base != FX_BASE_SPILL)
            continue;
        const fx_window w = p->steps[i].window, full = fx_op_full_window(node->op, &node->params);
        const fx_load *place = place_of(p, node->out.offset, stored_bytes(node));
        if (!place || w.y0 != full.y0 || w.y1 != full.y1 || w.c0 != full.c0 || w.c1 != full.c1)
            return fail(error, FX_ERR_PARAMS, p->steps[i].node, NULL);
        const int64_t first = place->crc_first + row_of(place, node->out.offset);
        for (int64_t row = first; row < first + stored_bytes(node) / place->chunk_bytes; row++) {
            if (stored[row])
                return fail(error, FX_ERR_OVERLAP, p->steps[i].node, NULL);
            stored[row] = i + 1;
        }
    }
    return FX_OK;
}

static fx_status check_load(const fx_program *p, const uint32_t *stored, const fx_load *load) {
    const int64_t offset = load->file_offset - FX_SPILL_FROM, from = offset + load->check_lead;
    const fx_load *place = place_of(p, from, load->check_bytes);
    if (!place || load->bytes > p->spill_bytes || offset > p->spill_bytes - load->bytes)
        return FX_ERR_BOUNDS;
    const int64_t first = place->crc_first + row_of(place, from);
    if (load->chunk_bytes != place->chunk_bytes || load->crc_first != first)
        return FX_ERR_PARAMS;
    for (int64_t row = first; row < first + load->check_bytes / load->chunk_bytes; row++)
        if (!stored[row] || load->wait_steps < (int64_t)stored[row])
            return FX_ERR_OVERLAP;
    return FX_OK;
}

fx_status fx_spill_check(const fx_program *p, fx_error *error) {
    if (!places_are_sane(p) || (p->spill_count && (p->group_count || p->spill.fd < 0)))
        return fail(error, FX_ERR_PARAMS, -1, NULL);
    uint32_t *stored = calloc(p->spill_crc_count + (size_t)1, sizeof *stored);
    if (!stored)
        return fail(error, FX_ERR_MEMORY, -1, NULL);
    fx_status status = find_stores(p, stored, error);
    for (uint32_t i = 0; i < p->load_count && status == FX_OK; i++)
        if (fx_load_is_spilled(&p->loads[i]) && (status = check_load(p, stored, &p->loads[i])) != FX_OK)
            fail(error, status, i, &p->loads[i]);
    free(stored);
    return status;
}

/* ---- stores ---- */

static fx_error write_all(int fd, const char *from, int64_t bytes, int64_t offset) {
    while (bytes > 0) {
        const ssize_t n = pwrite(fd, from, (size_t)bytes, offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return (fx_error){.status = FX_ERR_IO,
                              .os_error = n < 0 ? errno : ENOSPC,
                              .file_offset = offset,
                              .is_write = 1,
                              .index = -1};
        from += n;
        offset += n;
        bytes -= n;
    }
    return (fx_error){.status = FX_OK};
}

/* Stores rows [u0, u1) of a step. The system writes them to the device while later steps compute: it is asked to begin
 * at once, so that rows do not pile up in the page cache. */
static fx_status store_rows(const fx_row_sink *face, const void *rows, uint32_t u0, uint32_t u1) {
    const fx_spill_store *s = (const fx_spill_store *)face;
    fx_engine *e = s->bound->engine;
    const int64_t row = s->place->chunk_bytes, offset = s->place->file_offset + (s->first_row + u0) * row;
    const char *from = (const char *)rows + u0 * row;
    uint32_t *crcs = s->bound->spill_crcs + s->place->crc_first + s->first_row;
    for (uint32_t u = u0; u < u1; u++)
        crcs[u] = fx_crc32c_by(e->crc_path, 0, from + (u - u0) * row, (size_t)row);
    const fx_error error = write_all(s->bound->program.spill.fd, from, (u1 - u0) * row, offset);
    if (error.status != FX_OK)
        return fx_step_fail(e, error);
    (void)sync_file_range(s->bound->program.spill.fd, offset, (u1 - u0) * row, SYNC_FILE_RANGE_WRITE);
    atomic_fetch_add(&e->bytes_written, (u1 - u0) * row);
    return FX_OK;
}

uint32_t fx_spill_begin(fx_bound *b, const fx_node *node, fx_spill_store *store) {
    const int64_t bytes = stored_bytes(node);
    const fx_load *place = place_of(&b->program, node->out.offset, bytes);
    *store = (fx_spill_store){{store_rows}, b, place, row_of(place, node->out.offset)};
    return (uint32_t)(bytes / place->chunk_bytes);
}
