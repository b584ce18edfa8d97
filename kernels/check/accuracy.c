/* Errors against double precision, for the shapes of --bench whose reference takes no more than seconds. */
#include "check.h"

#include <stdio.h>
#include <string.h>

#define FLOPS_MAX 2.5e8
#define BYTES_MAX 4e7

int check_accuracy_op(const check_op *op, uint32_t number, const fx_kernels *k, const char *part, int *ran) {
    int failures = 0;
    char name[64];
    double flops, bytes;
    for (int i = 0;; i++) {
        check_case c = {.op = number, .random = 1, .is_sampled = 1};
        if (!op->bench || !op->bench(i, &c, name, &flops, &bytes))
            return failures;
        if ((part && !strstr(name, part)) || op->is_exact || flops > FLOPS_MAX || bytes > BYTES_MAX)
            continue;
        ++*ran;
        double most = 0, most_sampled = 0;
        if (op->error_max)
            op->error_max(&c, &most, &most_sampled);
        if (check_run_drawn(op, &c, k, fx_op_name(number))) {
            failures++;
            continue;
        }
        const int failed = (most > 0 && c.error > most) || (most_sampled > 0 && c.sampled > most_sampled);
        FILE *to = failed ? stderr : stdout;
        fprintf(to, "%-14s %-12s %-40s error %.1e, rms %.1e, of 60 outputs %.2e", fx_op_name(number), k->level, name,
                c.error, c.rms, c.sampled);
        if (most > 0)
            fprintf(to, "%s: at most %.1e, of 60 %.1e", failed ? " FAILED" : "", most, most_sampled);
        fputc('\n', to);
        fflush(stdout);
        failures += failed;
    }
}
