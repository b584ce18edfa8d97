/* flexnn-check [--op NAME] [--level NAME] [--seed S] [--first I] [--cases N] [--shape PART_OF_NAME]
 *              [--bench [--cold] [--threads N] | --accuracy | --hostile] */
#include "crew.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct options {
    const char *op, *level, *shape;
    long first, cases;
    unsigned long long seed;
    int bench, cold, accuracy, hostile, threads;
} options;

static const check_op *const checks[FX_OP_COUNT] = {
#define ENTRY(NAME, name, inputs, panels) [FX_OP_##NAME] = &check_##name,
    FX_OPS(ENTRY)
#undef ENTRY
};

/* How to run the current case again; written before each case, for the handler of a touched guard page. */
static char again[160];

static void on_fault(int signal_number) {
    static const char what[] = "FAILED (memory fault): ";
    (void)signal_number;
    if (write(STDERR_FILENO, what, sizeof what - 1) < 0 || write(STDERR_FILENO, again, strlen(again)) < 0)
        _exit(2);
    _exit(1);
}

/* What one level's operators took and did. */
typedef struct summary {
    long operators, cases, accepted;
    int failures;
    double seconds, longest;
    uint32_t longest_op;
} summary;

/* Case i of an operator does not depend on the others, so that one failure can be run again alone. */
static int check_level(const options *o, uint32_t op, const fx_kernels *k, summary *sum) {
    for (long i = o->first; i < o->cases; i++) {
        check_case c = {.op = op, .random = o->seed + (uint64_t)i * 0x632be59bd9b4e019u + op};
        snprintf(again, sizeof again, "flexnn-check --op %s --level %s --seed %llu --first %ld --cases %ld%s\n",
                 fx_op_name(op), k->level, o->seed, i, i + 1, o->hostile ? " --hostile" : "");
        const int result = o->hostile                                          ? check_run_hostile(checks[op], &c, k)
                           : check_run_case(checks[op], &c, k, fx_op_name(op)) ? -1
                                                                               : 1;
        if (result < 0) {
            fprintf(stderr, "FAILED: %s", again);
            return 1;
        }
        sum->cases++;
        sum->accepted += result;
    }
    return 0;
}

/* A line for each level, and which operator took longest. */
static void print_summary(const options *o, const char *level, const summary *s) {
    printf("%s: %ld operators, %ld cases from seed %llu, ", level, s->operators, s->cases, o->seed);
    if (o->hostile)
        printf("%ld accepted and run, ", s->accepted);
    if (s->failures)
        printf("%d FAILED", s->failures);
    else
        printf("good");
    printf("; %.1f s, %s %.1f\n", s->seconds, fx_op_name(s->longest_op), s->longest);
    fflush(stdout);
}

/* All operators, or the one that was asked for, at one level; returns the failures. */
static int walk_level(const options *o, const fx_kernels *k, int *ran) {
    const double peak = o->bench ? check_peak_flops(k) : 0;
    summary sum = {0};
    for (uint32_t op = 0; op < FX_OP_COUNT; op++) {
        if (o->op && strcmp(o->op, fx_op_name(op)))
            continue;
        *ran += !o->accuracy;
        const clock_t start = clock();
        if (!checks[op]) {
            fprintf(stderr, "FAILED: no check of %s\n", fx_op_name(op));
            sum.failures++;
        } else if (o->bench) {
            check_bench_op(checks[op], op, k, o->shape, peak, o->cold, o->threads);
        } else if (o->accuracy) {
            sum.failures += check_accuracy_op(checks[op], op, k, o->shape, ran);
        } else {
            sum.failures += check_level(o, op, k, &sum);
        }
        const double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
        sum.operators++, sum.seconds += seconds;
        if (seconds >= sum.longest)
            sum.longest = seconds, sum.longest_op = op;
    }
    if (sum.operators && !o->bench && !o->accuracy)
        print_summary(o, k->level, &sum);
    return sum.failures;
}

static int walk(const options *o) {
    static const char *const levels[] = {
#define LEVEL(level) #level,
        FX_LEVELS(LEVEL)
#undef LEVEL
    };
    int failures = 0, ran = 0;
    for (size_t l = 0; l < sizeof levels / sizeof *levels; l++) {
        const fx_kernels *k = fx_kernels_for(levels[l]);
        if (k && (!o->level || !strcmp(o->level, levels[l])))
            failures += walk_level(o, k, &ran);
    }
    if (!ran)
        fprintf(stderr, "FAILED: this CPU has no such level, or there is no such operator or shape\n");
    return failures || !ran;
}

/* A decimal number of at most max, or -1. */
static long whole(const char *text, long max) {
    char *end;
    errno = 0;
    const long number = strtol(text, &end, 10);
    return errno || end == text || *end || number < 0 || number > max ? -1 : number;
}

int main(int argc, char **argv) {
    options o = {.cases = 200, .threads = 1, .seed = (unsigned long long)time(NULL)};
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (!strcmp(argv[i], "--bench"))
            o.bench = 1;
        else if (!strcmp(argv[i], "--cold"))
            o.cold = 1;
        else if (!strcmp(argv[i], "--accuracy"))
            o.accuracy = 1;
        else if (!strcmp(argv[i], "--hostile"))
            o.hostile = 1;
        else if (value && !strcmp(argv[i], "--op"))
            o.op = value, i++;
        else if (value && !strcmp(argv[i], "--level"))
            o.level = value, i++;
        else if (value && !strcmp(argv[i], "--threads") && whole(value, CHECK_THREADS_MAX) > 0)
            o.threads = (int)whole(value, CHECK_THREADS_MAX), i++;
        else if (value && !strcmp(argv[i], "--shape"))
            o.shape = value, i++;
        else if (value && !strcmp(argv[i], "--cases") && whole(value, LONG_MAX) > 0)
            o.cases = whole(value, LONG_MAX), i++;
        else if (value && !strcmp(argv[i], "--first") && whole(value, LONG_MAX) >= 0)
            o.first = whole(value, LONG_MAX), i++;
        else if (value && !strcmp(argv[i], "--seed"))
            o.seed = strtoull(value, NULL, 10), i++;
        else {
            fprintf(stderr, "usage: flexnn-check [--op NAME] [--level NAME] [--seed S] [--first I] [--cases N] "
                            "[--bench [--cold] [--threads N] | --accuracy | --hostile] [--shape PART_OF_NAME]\n");
            return 2;
        }
    }
    if (o.first >= o.cases) {
        fprintf(stderr, "FAILED: cases %ld to %ld are none\n", o.first, o.cases);
        return 2;
    }
    signal(SIGSEGV, on_fault);
    signal(SIGBUS, on_fault);
    return walk(&o);
}
