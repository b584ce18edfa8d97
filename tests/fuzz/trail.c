/* Fuzz target: trails as an artifact holds them. Operations on numbers that are given are done exactly, or refused. */
#include "flexnn/trail.h"
#include "../engine/require.h"
#include "input.h"

enum { VALUES_MAX = 12, ROWS_MAX = 12 };

/* Index of a value; at times one that is out of range. */
static int32_t index_in(input *in, int64_t values) {
    const uint8_t drawn = take_byte(in);
    return drawn >= 0xfc ? (int32_t)take(in, 4) : (int32_t)(drawn % (values ? values : 1));
}

static int32_t *rows(input *in, int64_t count, int64_t values, int first, int last) {
    int32_t *made = malloc(sizeof *made * FX_TRAIL_ROW * (size_t)(count ? count : 1));
    CHECK(made);
    for (int64_t i = 0; i < count; i++) {
        int32_t *row = made + FX_TRAIL_ROW * i;
        const uint8_t drawn = take_byte(in);
        row[0] = drawn >= 0xfc ? (int32_t)take(in, 4) : first + (drawn & 0x1f) % (last - first + 1);
        row[0] |= drawn < 0xfc && drawn & 0x20 ? FX_TRAIL_FLOAT_A : 0;
        row[0] |= drawn < 0xfc && drawn & 0x40 ? FX_TRAIL_FLOAT_B : 0;
        row[1] = index_in(in, values);
        row[2] = index_in(in, values);
        row[3] = last == FX_TRAIL_LE ? drawn >> 7 : index_in(in, values);
    }
    return made;
}

/* Whether the last operation on integers gave what exact arithmetic gives. */
static void check_exact(const int32_t *row, const int64_t *before, const int64_t *after) {
    const __int128 a = before[row[1]], b = before[row[2]], made = after[row[3]];
    switch (row[0]) {
    case FX_TRAIL_ADD:
        CHECK(made == a + b);
        break;
    case FX_TRAIL_SUB:
        CHECK(made == a - b);
        break;
    case FX_TRAIL_MUL:
        CHECK(made == a * b);
        break;
    case FX_TRAIL_FLOORDIV:
        CHECK(b && (b > 0 ? made * b <= a && (made + 1) * b > a : made * b >= a && (made + 1) * b < a));
        break;
    case FX_TRAIL_MOD:
        CHECK(b && (b > 0 ? made >= 0 && made < b : made <= 0 && made > b) && (a - made) % b == 0);
        break;
    default:
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    input in = {data, size, 0};
    fx_trail t = {.value_count = (int64_t)take_below(&in, VALUES_MAX + 1)};
    t.operation_count = (int64_t)take_below(&in, ROWS_MAX + 1);
    t.condition_count = (int64_t)take_below(&in, ROWS_MAX / 2 + 1);
    const size_t bytes = sizeof(int64_t) * (size_t)(t.value_count ? t.value_count : 1);
    int64_t *values = malloc(bytes), *before = malloc(bytes);
    CHECK(values && before);
    for (int64_t i = 0; i < t.value_count; i++)
        values[i] = (int64_t)changed(&in, (uint64_t)i);
    int32_t *operations = rows(&in, t.operation_count, t.value_count, 0, FX_TRAIL_BELOW);
    int32_t *conditions = rows(&in, t.condition_count, t.value_count, FX_TRAIL_EQ, FX_TRAIL_LE);
    t.operations = operations;
    t.conditions = conditions;
    int holds = -1;
    memcpy(before, values, t.value_count ? bytes : 0);
    const fx_status status = fx_trail_replay(&t, values, &holds);
    CHECK((status == FX_OK || status == FX_ERR_PARAMS) && (holds == 0 || (holds == 1 && status == FX_OK)));
    if (holds == 1 && t.operation_count == 1)
        check_exact(operations, before, values);
    free(values);
    free(before);
    free(operations);
    free(conditions);
    return 0;
}
