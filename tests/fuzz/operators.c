/* Fuzz target: an operator's parameters. What fx_op_check accepts must compute inside the memory that it states,
 * whatever comes out. Drawn by the operator's own check, then changed. */
#include "../../kernels/check/check.h"
#include "../engine/require.h"
#include "input.h"

static const check_op *const checks[FX_OP_COUNT] = {
#define ENTRY(NAME, name, inputs, panels) [FX_OP_##NAME] = &check_##name,
    FX_OPS(ENTRY)
#undef ENTRY
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    input in = {data, size, 0};
    const fx_kernels *k = fx_kernels_for("scalar");
    check_case c = {.op = (uint32_t)take_below(&in, FX_OP_COUNT)};
    c.random = take(&in, 2);
    checks[c.op]->draw(&c);
    size_t count = 0;
    int is_float;
    while (fx_op_field(c.op, (int)count, &is_float))
        count++;
    const table words = {c.params.words, sizeof *c.params.words, count};
    for (size_t edits = 1 + take_below(&in, 3); edits; edits--)
        edit(&in, &words, 1);
    if (!take_below(&in, 16))
        c.kernel = (uint32_t)changed(&in, c.kernel);
    const int result = check_run_accepted(checks[c.op], &c, k);
    CHECK(result >= 0);
    return 0;
}
