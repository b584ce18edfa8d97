/* Which steps are shared: what is not known, and what is long; not what is short, nor in short runs, nor for a while
 * after runs that lost by it. */
#include "sharing.h"

#include "require.h"

#include <string.h>

enum { US = 1000, MS = 1000000 };

static fx_workers workers;

/* A job of so many ns, which one thread would take alone_ns for. */
static void job(fx_sharing *s, fx_cost *cost, int64_t ns, int64_t alone_ns, int was_shared) {
    workers.last = (fx_span){1, 1 + ns};
    workers.alone_ns = alone_ns;
    workers.was_shared = was_shared;
    fx_sharing_learn(s, cost, &workers);
}

static void costs(void) {
    fx_sharing s = {0};
    fx_cost cost = 0;
    fx_sharing_begin(&s, 0);
    CHECK(fx_sharing_parts(&s, cost, 1) == 0);
    job(&s, &cost, 3 * US, 0, 1); /* the caller took no part: nothing is learnt */
    CHECK(cost == 0);
    job(&s, &cost, 60 * US, 80 * US, 1);
    CHECK(cost == 80 * US && fx_sharing_parts(&s, cost, 1) == 0);
    CHECK(fx_sharing_parts(&s, cost, 20) == 0 && fx_sharing_parts(&s, cost, 40) == 1); /* of 4 and 2 us */
    job(&s, &cost, 2 * US, 2 * US, 0);
    CHECK(cost == 2 * US && fx_sharing_parts(&s, cost, 1) == 1);
    job(&s, &cost, 10 * US, 10 * US, 0); /* what takes longer once is not believed at once */
    CHECK(cost == 3 * US && fx_sharing_parts(&s, cost, 1) == 1);
    job(&s, &cost, INT64_C(10000) * MS, INT64_C(10000) * MS, 0);
    CHECK(cost > 500 * MS && fx_sharing_parts(&s, cost, 1) == 0);
}

static void short_runs(void) {
    fx_sharing s = {0};
    fx_cost cost = 0;
    fx_sharing_begin(&s, 0);
    job(&s, &cost, 50 * US, 50 * US, 0);
    fx_sharing_end(&s, MS);
    fx_sharing_begin(&s, MS);
    CHECK(fx_sharing_parts(&s, cost, 1) == 1 && fx_sharing_parts(&s, 0, 1) == FX_ALONE_PARTS);
    for (int i = 0; i < 4; i++)
        job(&s, &cost, 50 * US, 50 * US, 0);
    fx_sharing_end(&s, 2 * MS);
    fx_sharing_begin(&s, 2 * MS);
    CHECK(fx_sharing_parts(&s, cost, 1) == 0);
    s.always = 1;
    fx_sharing_begin(&s, 3 * MS);
    CHECK(fx_sharing_parts(&s, 1, 1) == 0);
}

static void losses(void) {
    fx_sharing s = {0};
    fx_cost cost = 0;
    int64_t now = 0, last = 0;
    fx_sharing_begin(&s, now);
    job(&s, &cost, 5 * MS, MS, 1); /* what is not known yet loses nothing */
    fx_sharing_end(&s, now);
    for (int run = 0; run < 20; run++) {
        fx_sharing_begin(&s, now);
        CHECK(fx_sharing_parts(&s, cost, 1) == 0);
        job(&s, &cost, 5 * MS, MS, 1);
        CHECK(fx_sharing_parts(&s, cost, 1) == FX_ALONE_PARTS); /* one loss is enough in a run */
        fx_sharing_end(&s, now);
        const int64_t rest = s.rests_until_ns - now;
        CHECK(rest >= last && rest <= 1000 * MS);
        last = rest;
        fx_sharing_begin(&s, s.rests_until_ns - 1);
        CHECK(fx_sharing_parts(&s, cost, 1) == FX_ALONE_PARTS);
        job(&s, &cost, MS, MS, 0);
        fx_sharing_end(&s, now);
        now = s.rests_until_ns;
    }
    CHECK(last == 1000 * MS);
    for (int run = 0; run < 20; run++) { /* and gains are worth as many losses */
        fx_sharing_begin(&s, now);
        job(&s, &cost, 500 * US, MS, 1);
        fx_sharing_end(&s, now);
    }
    CHECK(s.losses == 0 && s.rests_until_ns <= now);
}

/* A run of `steps` steps that take 1 ms each alone, shared if sharing is worth it; returns how many were. */
static int run_of(fx_sharing *s, fx_cost *cost, int steps, int64_t now, int64_t first_ns, int64_t other_ns) {
    int shared = 0;
    fx_sharing_begin(s, now);
    for (int i = 0; i < steps; i++) {
        const int is_shared = !fx_sharing_parts(s, *cost, 1);
        job(s, cost, !is_shared ? MS : i ? other_ns : first_ns, MS, is_shared);
        shared += is_shared;
    }
    fx_sharing_end(s, now);
    return shared;
}

static void gains(void) {
    fx_sharing s = {0};
    fx_cost cost = 0;
    run_of(&s, &cost, 20, 0, 500 * US, 500 * US);
    for (int run = 0; run < 40; run++) /* one step that loses does not end the sharing of others that gain */
        CHECK(run_of(&s, &cost, 20, run * MS, 1500 * US, 600 * US) == 20 && s.losses == 0);
    CHECK(run_of(&s, &cost, 20, 50 * MS, 9 * MS, 600 * US) == 20); /* nor one that had to wait for a CPU */
    CHECK(run_of(&s, &cost, 20, 60 * MS, 600 * US, 600 * US) == 20);
    for (int run = 0; run < 5; run++) /* runs in which no other thread came are even */
        CHECK(run_of(&s, &cost, 20, 70 * MS, MS + 100, MS + 100) == 20 && s.losses == 0);
    int runs = 0;
    while (run_of(&s, &cost, 20, 80 * MS, 2 * MS, 1200 * US) == 20)
        CHECK(++runs < 20);
    CHECK(runs && s.losses == 1 && s.rests_until_ns > 80 * MS);            /* what was gained is lost: rest */
    CHECK(run_of(&s, &cost, 20, s.rests_until_ns, 3 * MS, 600 * US) == 1); /* nothing was gained since */
}

int main(void) {
    costs();
    short_runs();
    losses();
    gains();
    puts("sharing: good");
    return 0;
}
