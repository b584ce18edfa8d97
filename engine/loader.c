/* The loader: reads slices into their places, in order, as soon as the steps that use the places are done.
 *
 * Loads are cut into requests. All readers are alike: they take requests in order and read at the same time. Requests
 * are retired in order, by whichever reader finds that the oldest has arrived: it checks the bytes, and after the last
 * request of a load it raises the counter. */
#include "flexnn/quota.h"
#include "protocol.h"

#include <sys/resource.h>

#define PAUSE_NS 10000000

static void wait_unlocked(fx_engine *e, int (*ready)(const void *), fx_awaited w) {
    pthread_mutex_unlock(&e->loading.mutex);
    fx_event_wait(&e->to_loader, ready, &w, 0);
    pthread_mutex_lock(&e->loading.mutex);
}

/* Waits until a request may begin. Waking takes longer than reading a small load from the page cache, and delays the
 * thread that wakes, too; so a reader looks for a while where its last wait was not much longer than that. */
static void wait_brisk(fx_reader *reader, fx_awaited w) {
    fx_engine *e = reader->engine;
    const int64_t spin_ns = atomic_load(&e->loading.is_shared) ? 0 : e->loading.spin_ns, start = fx_now_ns();
    pthread_mutex_unlock(&e->loading.mutex);
    if (!fx_spin(fx_reader_may_go_on, &w, reader->is_brisk ? spin_ns : 0))
        fx_event_wait(&e->to_loader, fx_reader_may_go_on, &w, 0);
    reader->is_brisk = fx_now_ns() - start < 2 * spin_ns;
    pthread_mutex_lock(&e->loading.mutex);
}

/* Prepares the place of a request that begins, and its times. */
static void prepare(fx_engine *e, fx_request *request) {
    fx_loader *l = &e->loading;
    const fx_load *load = fx_request_load(e, request);
    if (!request->at && e->poison)
        fx_poison(e->arena.memory + load->address, load->bytes);
    if (!request->at && e->fresh)
        fx_arena_forget(e->arena.memory + load->address, load->bytes);
    if (e->trace || e->read_bytes_per_second)
        request->begun_ns = fx_now_ns();
    if (e->read_bytes_per_second) {
        int64_t start = l->read_at_ns > request->begun_ns ? l->read_at_ns : request->begun_ns;
        request->ready_ns = l->read_at_ns =
            start + (int64_t)((double)request->bytes * 1e9 / (double)e->read_bytes_per_second);
    }
}

/* Sleeps until a time, or until the loader is told to pause or stop: then the request is dropped. */
static void pause_until(fx_engine *e, int64_t ns) {
    for (int64_t now; atomic_load(&e->command) == FX_COMMAND_GO && (now = fx_now_ns()) < ns;) {
        int64_t pause = ns - now < PAUSE_NS ? ns - now : PAUSE_NS;
        nanosleep(&(struct timespec){.tv_nsec = pause}, NULL);
    }
}

/* The span of a request's load. */
static void trace_request(fx_engine *e, const fx_request *request) {
    fx_loader *l = &e->loading;
    const fx_bound *b = e->turns[request->turn % FX_RUNS].bound;
    fx_span *span = &b->load_spans[request->turn % FX_RUNS * b->program.load_count + request->index];
    if (!request->at) /* the loader's lane shows one load at a time: the oldest */
        span->start_ns = request->begun_ns > l->ended_ns ? request->begun_ns : l->ended_ns;
    if (request->at + request->bytes == fx_request_load(e, request)->bytes)
        l->ended_ns = span->end_ns = fx_now_ns();
}

/* The checksums of a load: the file's, or those of the rows that steps of the same run have stored. */
static const uint32_t *crcs_of(const fx_bound *b, const fx_load *load) {
    return fx_load_is_spilled(load) ? b->spill_crcs : b->program.crcs;
}

/* Retires requests that have arrived. The mutex is unlocked while bytes are checked, of requests that are not whole. */
static void retire(fx_engine *e) {
    fx_loader *l = &e->loading;
    if (!fx_retire_begin(e))
        return;
    for (const fx_request *request; (request = fx_retire_next(e));) {
        const fx_load *load = fx_request_load(e, request);
        fx_error error = request->error;
        if (error.status == FX_OK && !request->is_whole) {
            pthread_mutex_unlock(&l->mutex);
            if (!request->at)
                l->check = fx_check_start(e->crc_path, crcs_of(e->turns[request->turn % FX_RUNS].bound, load), load,
                                          e->arena.memory);
            error = fx_check_to(&l->check, load, request->at + request->bytes);
            pthread_mutex_lock(&l->mutex);
        }
        if (error.status == FX_OK && e->trace)
            trace_request(e, request);
        fx_retire(e, request, error);
    }
}

/* How many times this thread has waited for anything. */
static long sleeps(void) {
    struct rusage usage;
    return getrusage(RUSAGE_THREAD, &usage) ? 0 : usage.ru_nvcsw;
}

/* Checks a request that was read, if it is whole chunks. The mutex is unlocked. */
static void check_whole(fx_engine *e, fx_request *request) {
    if (!request->is_whole || request->error.status != FX_OK)
        return;
    const fx_load *load = fx_request_load(e, request);
    const uint32_t *crcs = crcs_of(e->turns[request->turn % FX_RUNS].bound, load);
    fx_checker check = fx_check_start(e->crc_path, crcs, load, e->arena.memory);
    check.done = request->at;
    request->error = fx_check_to(&check, load, request->at + request->bytes);
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
    request->error = fx_read(&request->file, request->target, request->bytes, request->file_offset);
    fx_reader_waited(e, sleeps() > before);
    check_whole(e, request);
    pause_until(e, request->ready_ns);
    pthread_mutex_lock(&l->mutex);
    if (!request->is_pinned)
        arrived(e, request);
}

/* A compute thread's reading of a request: only what is in the page cache, so that Ctrl-C and steps need not wait for a
 * device. The readers read what is not. */
static int read_cached(fx_engine *e, fx_request *request, fx_jitter *jitter) {
    fx_loader *l = &e->loading;
    pthread_mutex_unlock(&l->mutex);
    if (jitter)
        fx_jitter_pause(jitter);
    const int is_read = fx_read_cached(&request->file, request->target, request->bytes, request->file_offset);
    if (is_read)
        check_whole(e, request);
    pthread_mutex_lock(&l->mutex);
    if (is_read)
        arrived(e, request);
    else
        fx_help_leave(e, request);
    return is_read;
}

static void *read_all(void *arg) {
    fx_reader *reader = arg;
    fx_engine *e = reader->engine;
    fx_loader *l = &e->loading;
    pthread_mutex_lock(&l->mutex);
    for (int goes_on = 1; goes_on;) {
        fx_request *request;
        fx_awaited w;
        switch (fx_reader_next(e, &request, &w)) {
        case FX_READER_STOPS:
            goes_on = 0;
            break;
        case FX_READER_BEGINS:
            prepare(e, request);
            read_request(e, request, &reader->jitter);
            break;
        case FX_READER_READS:
            read_request(e, request, &reader->jitter);
            break;
        case FX_READER_WAITS:
            wait_brisk(reader, w);
            break;
        case FX_READER_RESTS:
            wait_unlocked(e, fx_reader_is_resumed, w);
            fx_reader_resumes(e);
            break;
        case FX_READER_LOOKS:
            break;
        }
    }
    const int frees = fx_reader_goes(e) && l->is_abandoned;
    pthread_mutex_unlock(&l->mutex);
    if (frees)
        fx_engine_free(e);
    return NULL;
}

fx_status fx_loader_pause(fx_engine *e, fx_poll *poll) {
    fx_loader_ask_to_pause(e);
    while (e->has_loader && !fx_loader_rests(e)) {
        fx_event_wait(&e->to_caller, fx_loader_rests, e, fx_now_ns() + poll->every_ns);
        if (fx_polled(poll))
            return FX_ERR_CANCELLED;
    }
    return FX_OK;
}

/* Reads the next request if it may begin; `alone`: and if none is under way. */
static int help(fx_engine *e, fx_jitter *jitter, int alone) {
    fx_loader *l = &e->loading;
    if (atomic_load(&l->has_slept))
        return 0;
    pthread_mutex_lock(&l->mutex);
    fx_request *request = alone && l->begun > atomic_load(&l->retired) ? NULL : fx_help_begin(e);
    int is_read = 0;
    if (request) {
        prepare(e, request);
        is_read = read_cached(e, request, jitter);
        fx_help_end(e);
    }
    pthread_mutex_unlock(&l->mutex);
    return is_read;
}

int fx_loader_help(fx_engine *e) {
    return !e->loading.is_waiting && help(e, &e->jitter, 0);
}

int fx_loader_help_alone(fx_engine *e) {
    return !e->loading.is_waiting && help(e, &e->jitter, 1);
}

int fx_loader_spare(void *engine) {
    fx_engine *e = engine;
    return atomic_load(&e->loading.is_shared) && help(e, NULL, 0);
}

/* Has a reader read a request while the loader rests, and waits until it rests again. */
static fx_status ask(fx_engine *e, fx_request request, fx_poll *poll) {
    pthread_mutex_lock(&e->loading.mutex);
    fx_ask(e, &request);
    pthread_mutex_unlock(&e->loading.mutex);
    fx_event_notify(&e->to_loader);
    return fx_loader_pause(e, poll);
}

fx_status fx_loader_read(fx_engine *e, const fx_program *p, const fx_load *load, fx_poll *poll, fx_error *error) {
    fx_checker check = fx_check_start(e->crc_path, p->crcs, load, e->arena.memory);
    *error = (fx_error){.status = FX_OK};
    for (int64_t at = 0; at < load->bytes && error->status == FX_OK;) {
        const fx_request request = {.bytes = fx_request_bytes(load, at),
                                    .target = e->arena.memory + load->address + at,
                                    .file = p->file,
                                    .file_offset = load->file_offset + at,
                                    .is_pinned = 1};
        if (fx_polled(poll))
            return error->status = FX_ERR_CANCELLED;
        if (p->file.direct_fd >= 0 || !fx_read_cached(&p->file, request.target, request.bytes, request.file_offset)) {
            if (!e->has_loader)
                e->has_loader = !fx_loader_start(e);
            if (!e->has_loader) /* the system has no thread left */
                *error = fx_read(&p->file, request.target, request.bytes, request.file_offset);
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
    l->is_waiting = e->direct || e->read_bytes_per_second;
    /* Reads from the page cache take CPUs and do not wait: there are as many readers as steps leave CPUs. If that is
     * none, there is one for what is not in the cache, and workers read the rest. */
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
    if (l->threads && !l->is_waiting && spare < 1 && e->workers.threads > 1)
        atomic_store(&l->is_shared, 1);
    if (!l->is_waiting && (spare >= 1 || atomic_load(&l->is_shared)))
        l->spin_ns = e->workers.spin_ns;
    pthread_mutex_unlock(&l->mutex);
    if (l->threads)
        return 0;
    pthread_mutex_destroy(&l->mutex);
    return error;
}

static void join(fx_loader *l) {
    for (int i = 0; i < l->threads; i++)
        pthread_join(l->readers[i].thread, NULL);
    pthread_mutex_destroy(&l->mutex);
}

int fx_loader_stop(fx_engine *e, int may_abandon) {
    fx_stop(e);
    if (may_abandon && !fx_has_gone(e))
        fx_event_wait(&e->to_caller, fx_has_gone, e, fx_now_ns() + FX_LEAVE_NS);
    if (may_abandon && !fx_has_gone(e))
        return 0;
    join(&e->loading);
    return 1;
}

int fx_loader_abandon(fx_engine *e, uint32_t file_count) {
    fx_loader *l = &e->loading;
    pthread_mutex_lock(&l->mutex);
    const int is_abandoned = l->is_abandoned = !fx_has_gone(e);
    e->left_count = is_abandoned ? file_count : 0;
    for (int i = 0; i < l->threads && is_abandoned; i++)
        pthread_detach(l->readers[i].thread);
    pthread_mutex_unlock(&l->mutex); /* from here on an abandoned engine may be gone */
    if (!is_abandoned)
        join(l);
    return is_abandoned;
}
