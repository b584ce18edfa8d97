/* What a fuzz target makes of its input: numbers, and edits of records. Past the end of the input all bytes are 0. */
#ifndef FLEXNN_FUZZ_INPUT_H
#define FLEXNN_FUZZ_INPUT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct input {
    const uint8_t *data;
    size_t size, at;
} input;

/* The entry of a target, as libFuzzer calls it; 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static inline uint8_t take_byte(input *in) {
    return in->at < in->size ? in->data[in->at++] : 0;
}

static inline uint64_t take(input *in, int bytes) {
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++)
        value |= (uint64_t)take_byte(in) << 8 * i;
    return value;
}

/* Below `count`; 0 where that is 0. */
static inline size_t take_below(input *in, size_t count) {
    return count ? take(in, count > 256 ? 2 : 1) % count : 0;
}

/* Another value for a number of 32 or 64 bits. */
static inline uint64_t changed(input *in, uint64_t value) {
    static const int64_t extremes[] = {0,         1,         -1,        -2,        INT32_MAX,
                                       INT32_MIN, INT64_MAX, INT64_MIN, 1LL << 48, (1LL << 48) + 1};
    switch (take_byte(in) % 8) {
    case 0:
        return value + (uint64_t)(int64_t)(int8_t)take_byte(in);
    case 1:
        return value + (uint64_t)(64 * (int64_t)(int8_t)take_byte(in));
    case 2:
        return 0 - value;
    case 3:
        return value << take_byte(in) % 64;
    case 4:
        return (uint64_t)extremes[take_below(in, sizeof extremes / sizeof *extremes)];
    case 5:
        return value ^ (uint64_t)1 << take_byte(in) % 64;
    case 6:
        return take(in, 2);
    default:
        return take(in, 8);
    }
}

/* Records that an input may change. */
typedef struct table {
    void *rows;
    size_t row_bytes, count;
} table;

/* Changes one number, of 64 or 32 bits, in one row of one of the tables. */
static inline void edit(input *in, const table *tables, size_t table_count) {
    const table *t = &tables[take_below(in, table_count)];
    if (!t->count || !t->row_bytes)
        return;
    const int is_wide = take_byte(in) & 1;
    char *row = (char *)t->rows + t->row_bytes * take_below(in, t->count);
    const size_t width = is_wide && t->row_bytes >= 8 ? 8 : 4;
    char *at = row + width * take_below(in, t->row_bytes / width);
    uint64_t value = 0;
    memcpy(&value, at, width);
    if (width == 4)
        value = (uint64_t)(int64_t)(int32_t)value;
    value = changed(in, value);
    memcpy(at, &value, width);
}

#endif
