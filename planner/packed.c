/* Parameters of a template's nodes that are sizes, and its constants as parts of new tensors. */
#include "flexnn/trail.h"

#include <stdbool.h>

#define LINE ((int64_t)64)

static bool is_index(int32_t index, int64_t count) {
    return index >= 0 && index < count;
}

fx_status fx_trail_params(const fx_trail_words *w, const int64_t *values, int32_t *params, int *holds) {
    *holds = 0;
    for (int64_t i = 0; i < w->count; i++) {
        if (!is_index(w->rows[i], w->row_count) || !is_index(w->columns[i], w->row_words) ||
            !is_index(w->indices[i], w->value_count))
            return FX_ERR_PARAMS;
        const int64_t value = values[w->indices[i]];
        if (value < INT32_MIN || value > INT32_MAX)
            return FX_OK;
        if (params)
            params[w->rows[i] * w->row_words + w->columns[i]] = (int32_t)value;
    }
    *holds = 1;
    return FX_OK;
}

fx_status fx_trail_pack(const fx_packed *p, int64_t *nbytes, int64_t *starts) {
    for (int64_t i = 0, group = 0, at = 0; group < p->group_count; group++, at = 0) {
        const int32_t end = p->ends[group];
        if (end < i || end > p->member_count)
            return FX_ERR_PARAMS;
        for (; i < end; i++) {
            if (!is_index(p->members[i], p->count))
                return FX_ERR_PARAMS;
            starts[p->members[i]] += at;
            at += (nbytes[p->members[i]] + LINE - 1) / LINE * LINE;
        }
        nbytes[p->count + group] = at;
        starts[p->count + group] = 0;
    }
    for (int64_t i = 0; i < p->part_count; i++) {
        const int32_t part = p->parts[2 * i], whole = p->parts[2 * i + 1];
        if (!is_index(part, p->count) || !is_index(whole, p->count))
            return FX_ERR_PARAMS;
        starts[part] += starts[whole];
    }
    return FX_OK;
}
