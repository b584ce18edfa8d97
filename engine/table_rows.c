#include "table_rows.h"
#include "flexnn/weight_form.h"
#include "state.h"

#include <time.h>

#define CHUNK_MAX ((int64_t)1 << 30)

int64_t fx_table_workspace(int64_t chunk_bytes) {
    return (chunk_bytes + 3 * FX_DIRECT_ALIGN + 63) / 64 * 64; /* begin, end and address are rounded for direct reads */
}

/* Rows of a table that a node reads, each with its bytes; of a weight in panels these are its rows. */
typedef struct table_rows {
    int64_t count, bytes;
} table_rows;

static table_rows rows_of(const fx_node *node) {
    if (node->op == FX_OP_GATHER_PANELS) {
        const fx_gather_panels_params *g = &node->params.gather_panels;
        const fx_panel_layout panel = fx_panel_layout_of(FX_ACT_NONE, g->wtype, (int64_t)g->inner * FX_NR);
        return (table_rows){(g->rows + (int64_t)FX_NR - 1) / FX_NR, panel.bytes};
    }
    const fx_gather_params *g = &node->params.gather;
    return (table_rows){g->axis, (int64_t)g->inner * g->elem_bytes};
}

fx_status fx_table_check(const fx_program *p, const fx_node *node, const fx_place *o) {
    const int is_gather = node->op == FX_OP_GATHER || node->op == FX_OP_GATHER_PANELS;
    if (!is_gather || o->offset < 0 || o->offset >= p->table_count)
        return FX_ERR_BOUNDS;
    const table_rows rows = rows_of(node);
    const fx_load *table = &p->tables[o->offset];
    if ((node->op == FX_OP_GATHER && node->params.gather.outer != 1) || table->chunk_bytes > CHUNK_MAX ||
        table->chunk_bytes % rows.bytes || node->workspace_bytes < fx_table_workspace(table->chunk_bytes))
        return FX_ERR_PARAMS;
    return table->bytes / rows.bytes >= rows.count ? FX_OK : FX_ERR_BOUNDS;
}

/* A chunk that the program has pinned, as a product does that shares the table; NULL if it has not. */
static const char *pinned_chunk(const fx_bound *b, int64_t offset, int64_t bytes) {
    const fx_program *p = &b->program;
    for (uint32_t i = 0; i < p->pinned_count; i++) {
        const fx_load *load = &p->pinned[i];
        const int64_t from = offset - load->file_offset - load->check_lead;
        if (from >= 0 && from + bytes <= load->check_bytes)
            return b->engine->arena.memory + load->address + load->check_lead + from;
    }
    return NULL;
}

static fx_status read_chunk(const fx_row_table *face, int64_t i, void *workspace, const char **chunk) {
    const fx_stored_table *t = (const fx_stored_table *)face;
    fx_engine *e = t->bound->engine;
    const int64_t from = i * face->chunk_bytes, rest = t->place->bytes - from;
    const int64_t bytes = rest < face->chunk_bytes ? rest : face->chunk_bytes, offset = t->place->file_offset + from;
    *chunk = pinned_chunk(t->bound, offset, bytes);
    if (*chunk)
        return FX_OK;
    int64_t begin = offset, end = offset + bytes;
    char *to = workspace;
    const fx_file *file = &t->bound->program.file;
    if (file->direct_fd >= 0) {
        begin = fx_direct_down(begin);
        end = fx_direct_up(end);
        to += -(intptr_t)to & (FX_DIRECT_ALIGN - 1);
    }
    const fx_error error = fx_read(file, to, end - begin, begin);
    if (error.status != FX_OK)
        return fx_step_fail(e, error);
    atomic_fetch_add(&e->table_bytes_read, end - begin);
    if (e->read_bytes_per_second) {
        const int64_t ns = (int64_t)((double)(end - begin) * 1e9 / (double)e->read_bytes_per_second);
        nanosleep(&(struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000}, NULL);
    }
    *chunk = to + (offset - begin);
    if (fx_crc32c_by(e->crc_path, 0, *chunk, (size_t)bytes) != t->bound->program.crcs[t->place->crc_first + i])
        return fx_step_fail(e, (fx_error){.status = FX_ERR_CHECKSUM, .file_offset = offset});
    return FX_OK;
}

void fx_tables_start(fx_bound *b) {
    for (uint32_t i = 0; i < b->program.table_count; i++) {
        const fx_load *place = &b->program.tables[i];
        const fx_row_table face = {place->chunk_bytes, fx_table_workspace(place->chunk_bytes), read_chunk};
        b->tables[i] = (fx_stored_table){face, b, place};
    }
}
