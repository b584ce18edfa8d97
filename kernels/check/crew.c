/* Several threads run one operator over and over as in the engine: each takes the next unit that is left. */
#include "crew.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

struct check_crew {
    fx_call call; /* of the current turn; each member has its own workspace */
    uint32_t units;
    int threads;
    atomic_uint turn, next, busy, failed;
    struct member {
        struct check_crew *crew;
        void *workspace;
        pthread_t thread;
    } members[CHECK_THREADS_MAX];
};

static void take_units(check_crew *crew, void *workspace) {
    fx_call call = crew->call;
    call.workspace = workspace;
    for (uint32_t u = atomic_fetch_add(&crew->next, 1); u < crew->units; u = atomic_fetch_add(&crew->next, 1))
        if (fx_op_run(&call, crew->threads, u, u + 1) != FX_OK)
            atomic_store(&crew->failed, 1);
}

static void *work(void *argument) {
    struct member *m = argument;
    check_crew *crew = m->crew;
    for (unsigned seen = 0;; seen++) {
        while (atomic_load(&crew->turn) == seen)
            ;
        if (!crew->units)
            return NULL;
        take_units(crew, m->workspace);
        atomic_fetch_sub(&crew->busy, 1);
    }
}

check_crew *check_crew_start(int threads, int64_t workspace_bytes) {
    check_crew *crew = calloc(1, sizeof *crew);
    if (!crew)
        return NULL;
    for (crew->threads = 0; crew->threads < threads; crew->threads++) {
        struct member *m = &crew->members[crew->threads];
        m->crew = crew;
        m->workspace = check_alloc(workspace_bytes, 1);
        if (crew->threads && pthread_create(&m->thread, NULL, work, m))
            break;
    }
    if (crew->threads == threads)
        return crew;
    check_crew_stop(crew);
    return NULL;
}

int check_crew_run(check_crew *crew, const fx_call *call, uint32_t units) {
    crew->call = *call;
    crew->units = units;
    atomic_store(&crew->next, 0);
    atomic_store(&crew->busy, (unsigned)crew->threads - 1);
    atomic_fetch_add(&crew->turn, 1);
    take_units(crew, crew->members[0].workspace);
    while (atomic_load(&crew->busy))
        ;
    return atomic_load(&crew->failed) ? -1 : 0;
}

void check_crew_stop(check_crew *crew) {
    crew->units = 0;
    atomic_fetch_add(&crew->turn, 1);
    for (int i = 1; i < crew->threads; i++)
        pthread_join(crew->members[i].thread, NULL);
    free(crew);
}
