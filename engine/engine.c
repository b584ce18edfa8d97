/* The engine: the arena, the compute threads and the loader that programs share. */
#include "flexnn/code.h"
#include "state.h"

#include <errno.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOOSE_BYTES ((int64_t)4 << 20)  /* of the arena that nothing needs now */
#define BACKED_BYTES ((int64_t)4 << 20) /* between two looks at the interrupt */
#define BACKED_MAX ((int64_t)16 << 20)  /* 3 ms; more is zeroed by all threads as they first reach it */

/* Starts the compute threads and makes the events that threads wait on, all or nothing; the loader starts later. 0, or
 * an errno. */
static int start_threads(fx_engine *e, int threads) {
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed))
        CPU_ZERO(&allowed);
    e->placement = fx_place_threads(FX_CORES_ROOT, &allowed, threads);
    int error = fx_event_init(&e->to_loader);
    if (error)
        return error;
    error = fx_event_init(&e->to_caller);
    if (error)
        goto no_event;
    error = fx_workers_start(&e->workers, threads, &e->placement, e->jitter_seed,
                             &(fx_spare){fx_loader_spare, &e->loading.changes, e});
    if (!error)
        return 0;
    fx_event_destroy(&e->to_caller);
no_event:
    fx_event_destroy(&e->to_loader);
    return error;
}

fx_engine *fx_engine_open(const fx_options *o, fx_error *error) {
    const fx_kernels *kernels = fx_kernels_for(o->isa);
    if (!kernels || o->threads < 1 || o->threads > FX_MAX_THREADS || o->read_bytes_per_second < 0) {
        fx_fail(error, FX_ERR_PARAMS, 0);
        return NULL;
    }
    fx_engine *e = aligned_alloc(64, (sizeof *e + 63) / 64 * 64);
    if (!e) {
        fx_fail(error, FX_ERR_MEMORY, ENOMEM);
        return NULL;
    }
    memset(e, 0, sizeof *e);
    e->kernels = kernels;
    e->crc_path = fx_crc_path_best();
    e->direct = o->direct;
    e->poison = o->poison;
    e->trace = o->trace;
    e->fresh = o->fresh;
    e->arena.ends_whole = o->streams_last;
    e->draws = o->noise_seed;
    e->jitter_seed = o->jitter_seed;
    e->read_bytes_per_second = o->read_bytes_per_second;
    fx_process_start(&e->process);
    e->jitter = fx_jitter_start(o->jitter_seed, 101);
    atomic_store(&e->steps_wanted, INT64_MAX);
    int os_error = start_threads(e, o->threads);
    if (os_error) {
        fx_process_end(&e->process);
        free(e);
        fx_fail(error, FX_ERR_THREAD, os_error);
        return NULL;
    }
    return e;
}

void fx_engine_free(fx_engine *e) {
    while (e->recordings)
        fx_recording_free(e->recordings);
    while (e->bound)
        fx_unbind(e->bound);
    for (fx_bound *b = e->unbound, *next; b; b = next) { /* which a damaged program shared */
        next = b->others;
        free(b);
    }
    if (fx_process_is_here(&e->process)) {
        fx_event_destroy(&e->to_caller);
        fx_event_destroy(&e->to_loader);
    }
    for (uint32_t i = 0; i < e->left_count; i++) {
        close(e->left[i].fd);
        if (e->left[i].direct_fd >= 0)
            close(e->left[i].direct_fd);
    }
    free(e->left);
    fx_arena_free(&e->arena);
    free(e->pinned);
    fx_process_end(&e->process);
    free(e);
}

/* Keeps the files that an engine is to close if it is abandoned. 0: there is no memory. */
static int keep_files(fx_engine *e, const fx_leaving *leaving) {
    const size_t bytes = leaving->file_count * sizeof *e->left;
    e->left = malloc(bytes ? bytes : 1);
    if (e->left && bytes)
        memcpy(e->left, leaving->files, bytes);
    return e->left != NULL;
}

fx_status fx_engine_close(fx_engine *e, fx_leaving *leaving) {
    if (leaving)
        leaving->is_abandoned = 0;
    if (!e)
        return FX_OK;
    const int is_ours =
        fx_process_is_here(&e->process); /* a child of fork has no threads, and their locks stay locked */
    if (is_ours && fx_arena_is_running(&e->arena))
        return FX_ERR_RUNNING;
    if (is_ours)
        fx_workers_stop(&e->workers);
    const int may_abandon = leaving && keep_files(e, leaving);
    const int has_stopped = !is_ours || !e->has_loader || fx_loader_stop(e, may_abandon);
    e->has_loader = 0;
    if (!has_stopped && fx_loader_abandon(e, leaving->file_count))
        leaving->is_abandoned = 1;
    else
        fx_engine_free(e);
    return FX_OK;
}

fx_status fx_engine_forget(fx_engine *e, int fd) {
    if (fx_arena_is_running(&e->arena))
        return FX_ERR_RUNNING;
    fx_pinned_leave(e, fd);
    return FX_OK;
}

void fx_engine_suspect(fx_engine *e) {
    e->is_suspect = 1;
}

fx_status fx_engine_rest(fx_engine *e, const fx_interrupt *interrupt) {
    fx_poll poll = fx_poll_start_every(interrupt, FX_LEAVE_NS);
    if (!fx_process_is_here(&e->process))
        return FX_OK;
    return fx_arena_is_running(&e->arena) ? FX_ERR_RUNNING : fx_loader_pause(e, &poll);
}

fx_status fx_engine_trim(fx_engine *e, int keep_pinned) {
    fx_poll poll = fx_poll_start(NULL);
    int64_t bytes = fx_recordings_arena(e);
    if (fx_arena_is_running(&e->arena))
        return FX_ERR_RUNNING;
    for (const fx_bound *b = e->bound; b; b = b->others)
        bytes = b->program.arena_bytes > bytes ? b->program.arena_bytes : bytes;
    const int64_t spare = e->is_loose ? LOOSE_BYTES : 0;
    if (e->arena.memory && fx_process_is_here(&e->process) && bytes < e->arena.bytes - spare) {
        fx_loader_pause(e, &poll);
        if (keep_pinned && !bytes) {
            fx_pinned_forget_others(e);
        } else {
            fx_pinned_cut(e, bytes);
            fx_arena_cut(&e->arena, bytes);
        }
    }
    if (fx_arena_is_lost(&e->arena) && !e->bound && !e->recordings) { /* the next program begins with a new one */
        fx_pinned_cut(e, 0);
        fx_arena_free(&e->arena);
    }
    fx_engine_trim_heap(e);
    return FX_OK;
}

void fx_engine_trim_heap(const fx_engine *e) {
    if (e->is_loose)
        return;
#ifdef __GLIBC__
    malloc_trim(0);
#endif
    fx_code_forget();
}

void fx_engine_loosen(fx_engine *e, int is_loose) {
    e->is_loose = e->arena.is_roomy = is_loose;
}

fx_status fx_engine_back(fx_engine *e, const fx_interrupt *interrupt) {
    fx_poll poll = fx_poll_start(interrupt);
    if (fx_arena_is_running(&e->arena))
        return FX_ERR_RUNNING;
    if (!fx_process_is_here(&e->process))
        return FX_OK;
    for (int64_t at = 0; at < BACKED_MAX && fx_arena_back(&e->arena, at, BACKED_BYTES); at += BACKED_BYTES)
        if (fx_polled(&poll))
            return FX_ERR_CANCELLED;
    return FX_OK;
}

int64_t fx_engine_bytes(const fx_engine *e) {
    int64_t bytes = (int64_t)sizeof *e + e->pinned_count * (int64_t)sizeof *e->pinned + fx_recordings_bytes(e) +
                    fx_process_bytes(&e->process);
    if (e->arena.memory)
        bytes += fx_arena_size(e->arena.bytes);
    for (const fx_bound *b = e->bound; b; b = b->others)
        bytes += b->bytes;
    for (const fx_bound *b = e->unbound; b; b = b->others)
        bytes += b->bytes;
    return bytes + fx_thread_stack_bytes() * (e->workers.threads - 1 + e->loading.threads);
}

int fx_engine_threads(const fx_engine *e) {
    return e->workers.threads;
}
