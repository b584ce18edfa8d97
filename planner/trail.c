/* Sizes of a template for other numbers: what Python's operators compute, or a refusal where 64 bits do not hold it. */
#include "flexnn/trail.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#define EXACT_MAX ((int64_t)1 << 53) /* integers up to it are doubles */

const char *fx_trail_function_name(int function) {
#define NAME(name, text) text,
    static const char *const names[] = {FX_TRAIL_FUNCTIONS(NAME)};
#undef NAME
    return function >= 0 && function < FX_TRAIL_FUNCTION_COUNT ? names[function] : NULL;
}

static double as_double(int64_t bits) {
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static int64_t as_bits(double value) {
    int64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Reads an operand as a double; false where it is an integer that is none. */
static bool read_double(int64_t bits, bool is_float, double *value) {
    *value = is_float ? as_double(bits) : (double)bits;
    return is_float || (bits <= EXACT_MAX && bits >= -EXACT_MAX);
}

/* Quotient or remainder as Python rounds: down. */
static bool divide(fx_trail_function function, int64_t a, int64_t b, int64_t *result) {
    if (b == 0 || (a == INT64_MIN && b == -1))
        return false;
    const int64_t rest = a % b;
    const bool is_down = rest != 0 && (rest < 0) != (b < 0);
    *result = function == FX_TRAIL_FLOORDIV ? a / b - is_down : rest + (is_down ? b : 0);
    return true;
}

/* A comparison of two numbers of which both outcomes are known. */
static bool compared(fx_trail_function function, bool is_less, bool is_equal, int64_t *result) {
    switch (function) {
    case FX_TRAIL_BELOW:
    case FX_TRAIL_LT:
        *result = is_less;
        return true;
    case FX_TRAIL_EQ:
        *result = is_equal;
        return true;
    case FX_TRAIL_LE:
        *result = is_less || is_equal;
        return true;
    default:
        return false;
    }
}

static bool of_integers(fx_trail_function function, int64_t a, int64_t b, int64_t *result) {
    switch (function) {
    case FX_TRAIL_ADD:
        return !__builtin_add_overflow(a, b, result);
    case FX_TRAIL_SUB:
        return !__builtin_sub_overflow(a, b, result);
    case FX_TRAIL_MUL:
        return !__builtin_mul_overflow(a, b, result);
    case FX_TRAIL_FLOORDIV:
    case FX_TRAIL_MOD:
        return divide(function, a, b, result);
    default:
        return compared(function, a < b, a == b, result);
    }
}

static bool of_doubles(fx_trail_function function, double a, double b, int64_t *result) {
    double made;
    switch (function) {
    case FX_TRAIL_ADD:
        made = a + b;
        break;
    case FX_TRAIL_SUB:
        made = a - b;
        break;
    case FX_TRAIL_MUL:
        made = a * b;
        break;
    case FX_TRAIL_TRUEDIV:
        if (b == 0)
            return false;
        made = a / b;
        break;
    case FX_TRAIL_SINGLE:
        if (!(fabs(a) <= (double)FLT_MAX))
            return false;
        made = (double)(float)a;
        break;
    case FX_TRAIL_FLOOR:
    case FX_TRAIL_CEIL:
        made = function == FX_TRAIL_FLOOR ? floor(a) : ceil(a);
        if (!(made >= -0x1p62 && made <= 0x1p62))
            return false;
        *result = (int64_t)made;
        return true;
    default:
        return compared(function, a < b, a == b, result);
    }
    *result = as_bits(made);
    return true;
}

/* Whether an operation is exact on these operands; its result is then in `result`. */
static bool computed(int32_t code, int64_t a, int64_t b, int64_t *result) {
    const fx_trail_function function = (fx_trail_function)(code & 0xff);
    const bool is_float = (code & (FX_TRAIL_FLOAT_A | FX_TRAIL_FLOAT_B)) != 0;
    if (!is_float && function != FX_TRAIL_TRUEDIV && function != FX_TRAIL_SINGLE)
        return of_integers(function, a, b, result);
    double x, y;
    return read_double(a, code & FX_TRAIL_FLOAT_A, &x) && read_double(b, code & FX_TRAIL_FLOAT_B, &y) &&
           of_doubles(function, x, y, result);
}

static bool is_row(const fx_trail *t, const int32_t *row) {
    const int32_t known = FX_TRAIL_FLOAT_A | FX_TRAIL_FLOAT_B | 0xff;
    return (row[0] & ~known) == 0 && (row[0] & 0xff) < FX_TRAIL_FUNCTION_COUNT && row[1] >= 0 &&
           row[1] < t->value_count && row[2] >= 0 && row[2] < t->value_count;
}

fx_status fx_trail_replay(const fx_trail *t, int64_t *values, int *holds) {
    *holds = 0;
    for (int64_t i = 0; i < t->operation_count; i++) {
        const int32_t *row = t->operations + FX_TRAIL_ROW * i;
        if (!is_row(t, row) || (row[0] & 0xff) >= FX_TRAIL_EQ || row[3] < 0 || row[3] >= t->value_count)
            return FX_ERR_PARAMS;
        if (!computed(row[0], values[row[1]], values[row[2]], &values[row[3]]))
            return FX_OK;
    }
    for (int64_t i = 0; i < t->condition_count; i++) {
        const int32_t *row = t->conditions + FX_TRAIL_ROW * i;
        int64_t outcome = 0;
        if (!is_row(t, row) || (row[0] & 0xff) < FX_TRAIL_EQ || (row[3] & ~1) != 0)
            return FX_ERR_PARAMS;
        if (!computed(row[0], values[row[1]], values[row[2]], &outcome) || outcome != row[3])
            return FX_OK;
    }
    *holds = 1;
    return FX_OK;
}
