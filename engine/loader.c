/* The loader: reads slices into their places, in order, as soon as the steps that use the places are done.
 *
 * Loads are cut into requests. All readers are alike: they take requests in order and read at the same time. Requests
 * are retired in order, by whichever reader finds that the oldest has arrived: it checks the bytes, and after the last
 * request of a load it raises the counter. */
#include "loader.h"
#include "flexnn/quota.h"
#include "state.h"

#include <sys/resource.h>

#define PAUSE_NS 10000000

/* A reader waits until so many steps are done, requests are retired, or runs are known; INT64_MAX where it does not
 * wait for that. */
typedef struct awaited {
    fx_engine *e;
    int64_t steps, retired, turns;
} awaited;

static awaited wants(fx_engine *e) {
    return (awaited){e, INT64_MAX, INT64_MAX, INT64_MAX};
}

static int may_go_on(const void *p) {
    const awaited *w = p;
    return atomic_load(&w->e->command) != FX_COMMAND_GO || atomic_load(&w->e->loader) != FX_LOADER_ACTIVE ||
           atomic_load(&w->e->steps_done) >= w->steps || atomic_load(&w->e->loading.retired) >= w->retired ||
           atomic_load(&w->e->turns_known) >= w->turns || atomic_load(&w->e->loading.has_left);
}

static int is_resumed(const void *p) {
    const awaited *w = p;
    return atomic_load(&w->e->command) == FX_COMMAND_STOP || atomic_load(&w->e->loader) == FX_LOADER_ACTIVE ||
           atomic_load(&w->e->loading.is_asked);
}

static const fx_turn *turn_at(const fx_engine *e, int64_t turn) {
    return &e->turns[turn % FX_RUNS];
}

static const fx_load *load_of(const fx_engine *e, const fx_request *request) {
    return &turn_at(e, request->turn)->bound->program.loads[request->index];
}

/* Leaves a request that the caller began to the readers; NULL: none. */
static void leave(fx_loader *l, fx_request *request) {
    l->left = request;
    atomic_store(&l->has_left, request != NULL);
}

static void wait_unlocked(fx_engine *e, int (*ready)(const void *), awaited w) {
    pthread_mutex_unlock(&e->loading.mutex);
    fx_event_wait(&e->to_loader, ready, &w, 0);
    pthread_mutex_lock(&e->loading.mutex);
}

/* Called when nothing is in flight: requests that are not retired will be read again. */
static void settle(fx_engine *e) {
    fx_loader *l = &e->loading;
    if (atomic_load(&l->retired) < l->begun) {
        l->next_turn = l->requests[atomic_load(&l->retired) % FX_REQUESTS].turn;
        l->next_index = l->requests[atomic_load(&l->retired) % FX_REQUESTS].index;
        atomic_store(&l->retired, l->begun);
    }
    l->next_at = 0;
    leave(l, NULL);
    atomic_store(&e->loader, l->has_failed ? FX_LOADER_FAILED : FX_LOADER_PAUSED);
    l->has_failed = 0;
    fx_event_notify(&e->to_caller);
}

/* Rests until the loader is resumed; the last reader that comes to rest reports it. */
static void rest(fx_engine *e, int is_draining) {
    fx_loader *l = &e->loading;
    if (++l->resting == l->threads && is_draining)
        settle(e);
    wait_unlocked(e, is_resumed, wants(e));
    l->resting--;
}

/* Whether a load that began before is still filling the place of this one: no step has used its bytes yet. */
static int meets_begun(const fx_engine *e, const fx_load *load) {
    const fx_loader *l = &e->loading;
    for (int64_t i = atomic_load(&l->retired); i < l->begun; i++) {
        const fx_load *other = load_of(e, &l->requests[i % FX_REQUESTS]);
        if (load->address < other->address + other->bytes && other->address < load->address + load->bytes)
            return 1;
    }
    return 0;
}

/* Steps that must be done before a load of a run begins. */
static int64_t steps_before(const fx_turn *turn, uint32_t index) {
    const int32_t wait = turn->bound->program.loads[index].wait_steps;
    if (wait > 0 || turn->repeats)
        return turn->steps + wait;
    return turn->after ? turn->before + turn->after[index] : turn->steps;
}

/* Begins the next request. NULL if it may not begin yet: *w then says what it waits for. */
static fx_request *begin(fx_engine *e, awaited *w) {
    fx_loader *l = &e->loading;
    *w = wants(e);
    if (atomic_load(&e->turns_known) <= l->next_turn) {
        w->turns = l->next_turn + 1;
        atomic_store(&e->steps_wanted, INT64_MAX);
        atomic_store(&e->turn_wanted, 1);
        return NULL;
    }
    const fx_turn *turn = turn_at(e, l->next_turn);
    const fx_load *load = &turn->bound->program.loads[l->next_index];
    const int64_t retired = atomic_load(&l->retired);
    atomic_store(&e->turn_wanted, 0);
    if (!l->next_at) {
        const int64_t steps = steps_before(turn, l->next_index);
        if (atomic_load(&e->steps_done) < steps) {
            w->steps = steps;
            atomic_store(&e->steps_wanted, steps);
            return NULL;
        }
    }
    if (l->begun - retired == FX_REQUESTS || (!l->next_at && meets_begun(e, load))) {
        l->retired_is_wanted = 1;
        w->retired = retired + 1;
        return NULL;
    }
    if (!l->next_at && e->poison)
        fx_poison(e->arena.memory + load->address, load->bytes);
    if (!l->next_at && e->fresh)
        fx_arena_forget(e->arena.memory + load->address, load->bytes);
    fx_request *request = &l->requests[l->begun++ % FX_REQUESTS];
    *request = (fx_request){.turn = l->next_turn,
                            .index = l->next_index,
                            .at = l->next_at,
                            .bytes = fx_request_bytes(load, l->next_at),
                            .target = e->arena.memory + load->address + l->next_at,
                            .file_offset = load->file_offset + l->next_at};
    l->next_at += request->bytes;
    if (l->next_at == load->bytes) {
        l->next_at = 0;
        l->next_index = (l->next_index + 1) % turn->bound->program.load_count;
        l->next_turn += !l->next_index;
    }
    if (e->trace || e->read_bytes_per_second)
        request->begun_ns = fx_now_ns();
    if (e->read_bytes_per_second) {
        int64_t start = l->read_at_ns > request->begun_ns ? l->read_at_ns : request->begun_ns;
        request->ready_ns = l->read_at_ns =
            start + (int64_t)((double)request->bytes * 1e9 / (double)e->read_bytes_per_second);
    }
    return request;
}

/* Sleeps until a time, or until the loader is told to pause or stop: then the request is dropped. */
static void pause_until(fx_engine *e, int64_t ns) {
    for (int64_t now; atomic_load(&e->command) == FX_COMMAND_GO && (now = fx_now_ns()) < ns;) {
        int64_t pause = ns - now < PAUSE_NS ? ns - now : PAUSE_NS;
        nanosleep(&(struct timespec){.tv_nsec = pause}, NULL);
    }
}

static fx_span *span_of(const fx_engine *e, const fx_request *request) {
    const fx_bound *b = turn_at(e, request->turn)->bound;
    return &b->load_spans[request->turn % FX_RUNS * b->program.load_count + request->index];
}

static void finish_load(fx_engine *e, const fx_request *last) {
    fx_loader *l = &e->loading;
    atomic_fetch_add(&e->bytes_read[last->turn % FX_RUNS], load_of(e, last)->bytes);
    if (e->trace)
        l->ended_ns = span_of(e, last)->end_ns = fx_now_ns();
    atomic_fetch_add(&e->loads_done, 1);
    fx_event_notify(&e->to_caller);
}

/* Retires requests that have arrived, in order, in one reader at a time. The mutex is unlocked while bytes are
 * checked. */
static void retire(fx_engine *e) {
    fx_loader *l = &e->loading;
    if (l->is_retiring)
        return; /* the reader that does looks again */
    l->is_retiring = 1;
    while (atomic_load(&l->retired) < l->begun && !l->has_failed && atomic_load(&e->command) == FX_COMMAND_GO) {
        const fx_request *request = &l->requests[atomic_load(&l->retired) % FX_REQUESTS];
        const fx_load *load = load_of(e, request);
        if (!request->has_arrived)
            break;
        fx_error error = request->error;
        if (error.status == FX_OK) {
            pthread_mutex_unlock(&l->mutex);
            if (!request->at)
                l->check =
                    fx_check_start(&e->file, turn_at(e, request->turn)->bound->program.crcs, load, e->arena.memory);
            error = fx_check_to(&l->check, load, request->at + request->bytes);
            pthread_mutex_lock(&l->mutex);
        }
        if (error.status != FX_OK) {
            error.is_load = 1;
            error.index = request->index;
            l->error = error;
            l->has_failed = 1;
            atomic_store(&e->loader, FX_LOADER_DRAINING);
            fx_event_notify(&e->to_loader);
            break;
        }
        if (!request->at && e->trace) /* the loader's lane shows one load at a time: the oldest */
            span_of(e, request)->start_ns = request->begun_ns > l->ended_ns ? request->begun_ns : l->ended_ns;
        if (request->at + request->bytes == load->bytes)
            finish_load(e, request);
        atomic_fetch_add(&l->retired, 1);
        if (l->retired_is_wanted) {
            l->retired_is_wanted = 0;
            fx_event_notify(&e->to_loader);
        }
    }
    l->is_retiring = 0;
}

/* How many times this thread has waited for anything. */
static long sleeps(void) {
    struct rusage usage;
    return getrusage(RUSAGE_THREAD, &usage) ? 0 : usage.ru_nvcsw;
}

static void arrived(fx_engine *e, fx_request *request) {
    request->has_arrived = 1;
    retire(e);
}

/* Reads a request that has begun, with the mutex unlocked meanwhile, and retires what can be retired. */
static void read_request(fx_engine *e, fx_request *request, fx_jitter *jitter) {
    fx_loader *l = &e->loading;
    pthread_mutex_unlock(&l->mutex);
    fx_jitter_pause(jitter);
    const long before = sleeps();
    request->error = fx_read(&e->file, request->target, request->bytes, request->file_offset);
    atomic_store(&l->has_slept, sleeps() > before);
    pause_until(e, request->ready_ns);
    pthread_mutex_lock(&l->mutex);
    if (!request->is_pinned)
        arrived(e, request);
}

/* The caller's reading of a request: only what is in the page cache, so that Ctrl-C need not wait for a device. The
 * readers read what is not. */
static int read_cached(fx_engine *e, fx_request *request) {
    fx_loader *l = &e->loading;
    pthread_mutex_unlock(&l->mutex);
    fx_jitter_pause(&e->jitter);
    const int is_read = fx_read_cached(&e->file, request->target, request->bytes, request->file_offset);
    pthread_mutex_lock(&l->mutex);
    if (is_read) {
        arrived(e, request);
    } else if (atomic_load(&e->loader) == FX_LOADER_ACTIVE) { /* else it will be read again, after the rest */
        leave(l, request);
        atomic_store(&l->has_slept, 1);
        fx_event_notify(&e->to_loader);
    }
    return is_read;
}

static void *read_all(void *arg) {
    fx_reader *reader = arg;
    fx_engine *e = reader->engine;
    fx_loader *l = &e->loading;
    pthread_mutex_lock(&l->mutex);
    for (;;) {
        int state = atomic_load(&e->loader),
            command = atomic_load(&e->command); /* fx_loader_resume writes them in the opposite order */
        if (command == FX_COMMAND_STOP)
            break;
        if (atomic_exchange(&l->is_asked, 0)) { /* then the loader is DRAINING, and rests again when this is done */
            read_request(e, &l->pinned, &reader->jitter);
            continue;
        }
        if (state != FX_LOADER_ACTIVE) {
            rest(e, state == FX_LOADER_DRAINING);
            continue;
        }
        if (command == FX_COMMAND_PAUSE) {
            atomic_store(&e->loader, FX_LOADER_DRAINING);
            fx_event_notify(&e->to_loader);
            continue;
        }
        awaited w;
        fx_request *request = l->left ? l->left : begin(e, &w);
        leave(l, NULL);
        if (request)
            read_request(e, request, &reader->jitter);
        else
            wait_unlocked(e, may_go_on, w);
    }
    const int is_last = atomic_fetch_add(&l->gone, 1) + 1 == l->threads, frees = is_last && l->is_abandoned;
    if (is_last)
        fx_event_notify(&e->to_caller);
    pthread_mutex_unlock(&l->mutex);
    if (frees)
        fx_engine_free(e);
    return NULL;
}

int fx_loader_rests(const void *arg) {
    return atomic_load(&((const fx_engine *)arg)->loader) >= FX_LOADER_PAUSED;
}

void fx_loader_ask_to_pause(fx_engine *e) {
    e->must_restart = 1;
    if (!e->has_loader)
        return;
    atomic_store(&e->command, FX_COMMAND_PAUSE);
    fx_event_notify(&e->to_loader);
}

fx_status fx_loader_pause(fx_engine *e, fx_poll *poll) {
    fx_loader_ask_to_pause(e);
    while (e->has_loader && !fx_loader_rests(e)) {
        fx_event_wait(&e->to_caller, fx_loader_rests, e, fx_now_ns() + FX_POLL_NS);
        if (fx_polled(poll))
            return FX_ERR_CANCELLED;
    }
    return FX_OK;
}

void fx_loader_resume(fx_engine *e) {
    atomic_store(&e->command, FX_COMMAND_GO);
    atomic_store(&e->loader, FX_LOADER_ACTIVE);
    fx_event_notify(&e->to_loader);
}

int fx_loader_help(fx_engine *e) {
    fx_loader *l = &e->loading;
    if (l->is_waiting || atomic_load(&l->has_slept))
        return 0;
    pthread_mutex_lock(&l->mutex);
    awaited w;
    const int may_begin = atomic_load(&e->loader) == FX_LOADER_ACTIVE && !l->left;
    fx_request *request = may_begin ? begin(e, &w) : NULL;
    const int is_read = request && read_cached(e, request);
    /* The readers may all still be asleep from their last rest: then none would report that this read has failed. */
    if (request && atomic_load(&e->loader) == FX_LOADER_DRAINING && l->resting == l->threads)
        settle(e);
    pthread_mutex_unlock(&l->mutex);
    return is_read;
}

/* Has a reader read a request while the loader rests, and waits until it rests again. */
static fx_status ask(fx_engine *e, fx_request request, fx_poll *poll) {
    fx_loader *l = &e->loading;
    pthread_mutex_lock(&l->mutex);
    l->pinned = request;
    atomic_store(&e->loader, FX_LOADER_DRAINING);
    atomic_store(&l->is_asked, 1);
    pthread_mutex_unlock(&l->mutex);
    fx_event_notify(&e->to_loader);
    return fx_loader_pause(e, poll);
}

fx_status fx_loader_read(fx_engine *e, const uint32_t *crcs, const fx_load *load, fx_poll *poll, fx_error *error) {
    fx_checker check = fx_check_start(&e->file, crcs, load, e->arena.memory);
    *error = (fx_error){.status = FX_OK};
    for (int64_t at = 0; at < load->bytes && error->status == FX_OK;) {
        const fx_request request = {.bytes = fx_request_bytes(load, at),
                                    .target = e->arena.memory + load->address + at,
                                    .file_offset = load->file_offset + at,
                                    .is_pinned = 1};
        if (fx_polled(poll))
            return error->status = FX_ERR_CANCELLED;
        if (e->file.direct_fd >= 0 || !fx_read_cached(&e->file, request.target, request.bytes, request.file_offset)) {
            if (!e->has_loader)
                e->has_loader = !fx_loader_start(e);
            if (!e->has_loader) /* the system has no thread left */
                *error = fx_read(&e->file, request.target, request.bytes, request.file_offset);
            else if (ask(e, request, poll) != FX_OK)
                return error->status = FX_ERR_CANCELLED;
            else
                *error = e->loading.pinned.error;
        }
        at += request.bytes;
        if (error->status == FX_OK)
            *error = fx_check_to(&check, load, at);
    }
    return error->status;
}

int fx_loader_start(fx_engine *e) {
    fx_loader *l = &e->loading;
    const cpu_set_t *cores = e->placement.is_set ? &e->placement.load : NULL;
    int error = pthread_mutex_init(&l->mutex, NULL);
    if (error)
        return error;
    pthread_mutex_lock(&l->mutex); /* readers wait here until their number is known */
    l->is_waiting = e->file.direct_fd >= 0 || e->read_bytes_per_second;
    /* Reads from the page cache take CPUs and do not wait: there are as many readers as steps leave CPUs, at least
     * one. */
    const double spare = fx_usable_cpus() - e->workers.threads;
    const int wanted = l->is_waiting || spare >= FX_READERS ? FX_READERS : spare > 1 ? (int)spare : 1;
    for (; l->threads < wanted; l->threads++) {
        fx_reader *reader = &l->readers[l->threads];
        reader->engine = e;
        reader->jitter = fx_jitter_start(e->jitter_seed, 102 + (uint32_t)l->threads);
        error = fx_thread_start(&reader->thread, read_all, reader, "flexnn-loader", cores);
        if (error)
            break;
    }
    pthread_mutex_unlock(&l->mutex);
    if (l->threads)
        return 0;
    pthread_mutex_destroy(&l->mutex);
    return error;
}

static int has_gone(const void *arg) {
    const fx_loader *l = &((const fx_engine *)arg)->loading;
    return atomic_load(&l->gone) == l->threads;
}

static void join(fx_loader *l) {
    for (int i = 0; i < l->threads; i++)
        pthread_join(l->readers[i].thread, NULL);
    pthread_mutex_destroy(&l->mutex);
}

int fx_loader_stop(fx_engine *e, int may_abandon) {
    atomic_store(&e->command, FX_COMMAND_STOP);
    fx_event_notify(&e->to_loader);
    if (may_abandon && !has_gone(e))
        fx_event_wait(&e->to_caller, has_gone, e, fx_now_ns() + FX_POLL_NS);
    if (may_abandon && !has_gone(e))
        return 0;
    join(&e->loading);
    return 1;
}

int fx_loader_abandon(fx_engine *e) {
    fx_loader *l = &e->loading;
    pthread_mutex_lock(&l->mutex);
    const int is_abandoned = l->is_abandoned = !has_gone(e);
    for (int i = 0; i < l->threads && is_abandoned; i++)
        pthread_detach(l->readers[i].thread);
    pthread_mutex_unlock(&l->mutex); /* from here on an abandoned engine may be gone */
    if (!is_abandoned)
        join(l);
    return is_abandoned;
}
