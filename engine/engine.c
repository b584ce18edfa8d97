/* A host: the arena, the compute threads and the loader that programs share. */
#include "state.h"

#include "arena.h"

#include <errno.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

fx_status fx_fail(fx_error *error, fx_status status, int os_error) {
    *error = (fx_error){.status = status, .os_error = os_error, .index = -1};
    return status;
}

/* Threads and what they wait on, the loader apart; all or nothing. 0, or an errno. */
static int start_threads(fx_engine *h, int threads) {
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed))
        CPU_ZERO(&allowed);
    h->placement = fx_place_threads(FX_CORES_ROOT, &allowed, threads);
    int error = fx_event_init(&h->to_loader);
    if (error)
        return error;
    error = fx_event_init(&h->to_caller);
    if (error)
        goto no_event;
    error = fx_workers_start(&h->pool, threads, &h->placement, h->jitter_seed);
    if (!error)
        return 0;
    fx_event_destroy(&h->to_caller);
no_event:
    fx_event_destroy(&h->to_loader);
    return error;
}

fx_engine *fx_engine_open(const fx_options *o, fx_error *error) {
    const fx_kernels *kernels = fx_kernels_for(o->isa);
    if (!kernels || o->threads < 1 || o->threads > FX_MAX_THREADS || o->read_bytes_per_second < 0) {
        fx_fail(error, FX_ERR_PARAMS, 0);
        return NULL;
    }
    fx_engine *h = aligned_alloc(64, (sizeof *h + 63) / 64 * 64);
    if (!h) {
        fx_fail(error, FX_ERR_MEMORY, ENOMEM);
        return NULL;
    }
    memset(h, 0, sizeof *h);
    h->kernels = kernels;
    h->fd = o->fd;
    h->direct_fd = o->direct_fd;
    h->crc_path = fx_crc_path_best();
    h->poison = o->poison;
    h->trace = o->trace;
    h->fresh = o->fresh;
    h->jitter_seed = o->jitter_seed;
    h->read_bytes_per_second = o->read_bytes_per_second;
    h->process = getpid();
    h->jitter = fx_jitter_start(o->jitter_seed, 101);
    atomic_store(&h->steps_wanted, INT64_MAX);
    int os_error = start_threads(h, o->threads);
    if (os_error) {
        free(h);
        fx_fail(error, FX_ERR_THREAD, os_error);
        return NULL;
    }
    return h;
}

void fx_engine_close(fx_engine *h) {
    if (!h)
        return;
    const int is_ours = getpid() == h->process; /* in a child of fork there are no threads, and their locks stay */
    if (is_ours && h->has_loader)
        fx_loader_stop(h);
    h->has_loader = 0;
    while (h->bound)
        fx_unbind(h->bound);
    if (is_ours) {
        fx_workers_stop(&h->pool);
        fx_event_destroy(&h->to_caller);
        fx_event_destroy(&h->to_loader);
    }
    if (h->arena)
        fx_arena_unmap(h->arena, h->arena_bytes);
    free(h->residents);
    free(h);
}

void fx_engine_trim(fx_engine *h, int keep) {
    fx_poll poll = fx_poll_start(NULL, NULL);
    int64_t bytes = 0;
    for (const fx_bound *b = h->bound; b; b = b->others)
        bytes = b->program.arena_bytes > bytes ? b->program.arena_bytes : bytes;
    if (h->arena && getpid() == h->process && bytes < h->arena_bytes) {
        fx_engine_pause(h, &poll);
        if (keep && !h->bound) {
            fx_residents_only(h);
        } else {
            fx_residents_cut(h, bytes);
            fx_arena_cut(h->arena, h->arena_bytes, bytes);
            h->arena_bytes = bytes;
        }
    }
#ifdef __GLIBC__
    malloc_trim(0); /* and what planning has freed */
#endif
}

int64_t fx_engine_bytes(const fx_engine *h) {
    int64_t bytes = (int64_t)sizeof *h + h->resident_count * (int64_t)sizeof *h->residents;
    if (h->arena)
        bytes += fx_arena_size(h->arena_bytes);
    for (const fx_bound *b = h->bound; b; b = b->others)
        bytes += b->bytes;
    return bytes + fx_thread_stack_bytes() * (h->pool.threads - 1 + h->loading.threads);
}

int fx_engine_threads(const fx_engine *h) {
    return h->pool.threads;
}
