/* Gives a target random inputs, many in one process: a fuzz target without libFuzzer. A target that dies, or takes
 * more than 10 s of CPU for an input, says which input it was.
 * usage: fuzz-NAME [--seed S] [--count N] [--first I] [--seconds T]; a line of progress for each tenth
 *        fuzz-NAME FILE...; each file is an input */
#include "../engine/require.h"
#include "input.h"
#include "watch.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#define BYTES_MAX 256

static volatile uint64_t number, seed;

static volatile int is_done;

/* Says which input it was. */
static void on_end(void) {
    char text[96];
    const int n = snprintf(text, sizeof text, "FAILED: --seed %llu --first %llu --count 1\n", (unsigned long long)seed,
                           (unsigned long long)number);
    if (!is_done && write(STDERR_FILENO, text, (size_t)n) < n)
        _exit(2);
}

static void on_death(int signal_number) {
    (void)signal_number;
    on_end();
    _exit(1);
}

/* splitmix64 (Steele et al. 2014) */
static uint64_t next(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* Input i does not depend on the others. Small numbers are common in it, since most bytes choose something. */
static void one(uint64_t i) {
    uint64_t state = seed ^ i * 0x632be59bd9b4e019u, words[BYTES_MAX / 8];
    const uint64_t drawn = next(&state), size = drawn % (drawn >> 32 & 3 ? 33 : BYTES_MAX + 1);
    for (uint64_t j = 0; j < (size + 7) / 8; j++)
        words[j] = next(&state);
    uint8_t *exact = malloc(size ? size : 1); /* so that the address sanitizer sees its end */
    CHECK(exact);
    memcpy(exact, words, size);
    LLVMFuzzerTestOneInput(exact, size);
    free(exact);
}

/* Inputs that are kept, as those that once failed. */
static int play_files(int count, char **paths) {
    for (int i = 0; i < count; i++) {
        FILE *file = fopen(paths[i], "rb");
        CHECK(file);
        uint8_t *exact = malloc(BYTES_MAX);
        CHECK(exact);
        const size_t size = fread(exact, 1, BYTES_MAX, file);
        fclose(file);
        LLVMFuzzerTestOneInput(exact, size);
        free(exact);
    }
    is_done = 1;
    return 0;
}

int main(int argc, char **argv) {
    if (argc > 1 && argv[1][0] != '-')
        return play_files(argc - 1, argv + 1);
    uint64_t count = 100000, first = 0, seconds = UINT64_MAX / 2;
    seed = (uint64_t)time(NULL);
    for (int i = 1; i + 1 < argc; i += 2) {
        const uint64_t value = strtoull(argv[i + 1], NULL, 10);
        if (!strcmp(argv[i], "--seed"))
            seed = value;
        else if (!strcmp(argv[i], "--count"))
            count = value;
        else if (!strcmp(argv[i], "--first"))
            first = value;
        else if (!strcmp(argv[i], "--seconds"))
            seconds = value;
        else
            CHECK(!"usage: fuzz-NAME [--seed S] [--count N] [--first I] [--seconds T]");
    }
    signal(SIGALRM, on_death);
    signal(SIGPROF, on_death);
    signal(SIGABRT, on_death); /* the sanitizers are to abort: abort_on_error=1 */
    signal(SIGFPE, on_death);
    CHECK(!atexit(on_end)); /* a CHECK that fails calls exit */
    const time_t start = time(NULL);
    printf("%s: seed %llu\n", argv[0], (unsigned long long)seed);
    for (number = first; number < first + count; number++) {
        if (number % 256 == 0) {
            alarm(WALL_SECONDS_MAX);
            watch_cpu(CPU_SECONDS_MAX);
            if ((uint64_t)(time(NULL) - start) >= seconds)
                break;
        }
        one(number);
        if (count >= 10 && (number - first + 1) % (count / 10) == 0) {
            printf("%s: %llu inputs, %lld s\n", argv[0], (unsigned long long)(number - first + 1),
                   (long long)(time(NULL) - start));
            fflush(stdout);
        }
    }
    alarm(0);
    watch_cpu(0);
    printf("%s: %llu inputs, none failed\n", argv[0], (unsigned long long)(number - first));
    is_done = 1;
    return 0;
}
