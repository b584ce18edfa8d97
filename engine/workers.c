#include "workers.h"

#include "flexnn/quota.h"

#include <sched.h>
#include <signal.h>
#include <unistd.h>

#define SPIN_NS 50000 /* longer than the time between two steps, shorter than a read */

/* The ticket: units left, the most to take at once, and a number that tells one job from the next. */
#define MOST_SHIFT 32
#define GENERATION_SHIFT 40
#define MOST_MAX 255u

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define STACK_BYTES (1 << 20)
#else
#define STACK_BYTES (128 << 10)
#endif

int64_t fx_thread_stack_bytes(void) {
    int64_t least = sysconf(_SC_THREAD_STACK_MIN); /* it covers the static TLS of every loaded library */
    return least + (64 << 10) > STACK_BYTES ? (least + (64 << 10) + 4095) / 4096 * 4096 : STACK_BYTES;
}

int fx_thread_start(pthread_t *thread, void *(*body)(void *), void *arg, const char *name, const cpu_set_t *cores) {
    sigset_t all, before;
    pthread_attr_t attributes;
    int error = pthread_attr_init(&attributes);
    if (error)
        return error;
    pthread_attr_setstacksize(&attributes, (size_t)fx_thread_stack_bytes());
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(thread, &attributes, body, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    if (!error)
        pthread_setname_np(*thread, name);
    if (!error && cores) /* no error if a core has just gone off: the thread then runs anywhere */
        pthread_setaffinity_np(*thread, sizeof *cores, cores);
    return error;
}

static int has_work(const void *p) {
    const fx_workers *workers = p;
    return (uint32_t)atomic_load(&workers->ticket) != 0 || atomic_load(&workers->stopping);
}

static int is_done(const void *p) {
    const fx_workers *workers = p;
    return atomic_load(&workers->done) == workers->wanted;
}

static uint64_t ticket_of(const fx_workers *workers, uint32_t most, uint32_t left) {
    return (uint64_t)workers->generation << GENERATION_SHIFT | (uint64_t)most << MOST_SHIFT | left;
}

/* Most units that a thread may take at once from several tasks: as few as it would take from the smallest task alone. A
 * unit of one task may take a hundred times as long as that of another, and no thread should get all the long ones. */
static uint32_t most_of(const fx_workers *workers, const fx_task *tasks, uint32_t count) {
    uint32_t most = MOST_MAX;
    for (uint32_t i = 0; i < count && count > 1; i++) {
        uint32_t own = tasks[i].units / (uint32_t)(4 * workers->threads);
        most = own < most ? own : most;
    }
    return most;
}

/* Takes units: a fraction of what is left, so that the last ones are small. 0: nothing left. */
static uint32_t take(fx_workers *workers, uint32_t *left) {
    uint64_t ticket = atomic_load(&workers->ticket);
    uint32_t count;
    do {
        *left = (uint32_t)ticket;
        if (!*left)
            return 0;
        const uint32_t most = (uint32_t)(ticket >> MOST_SHIFT) & MOST_MAX;
        count = *left / (uint32_t)(4 * workers->threads);
        count = count < most ? count : most;
        count += !count;
    } while (!atomic_compare_exchange_weak(&workers->ticket, &ticket, ticket - count));
    return count;
}

/* Runs units [first, end) of the job on a thread. */
static fx_status run_units(const fx_workers *workers, int number, uint32_t first, uint32_t end) {
    uint32_t low = 0, high = workers->task_count; /* the task of unit first is in [low, high) */
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        if (workers->tasks[middle - 1].end <= first)
            low = middle;
        else
            high = middle;
    }
    for (const fx_task *task = &workers->tasks[low]; first < end; task++) {
        uint32_t begin = task->end - task->units, to = end < task->end ? end : task->end;
        fx_call call = task->call;
        call.workspace = (char *)call.workspace + number * task->workspace_bytes;
        fx_status status = fx_op_run(&call, workers->cut_threads, first - begin, to - begin);
        if (status != FX_OK)
            return status;
        first = to;
    }
    return FX_OK;
}

/* Computes until nothing is left to take, or the caller (poll not NULL) cancels. Returns how many units it computed. */
static uint32_t compute(fx_workers *workers, int number, fx_jitter *jitter, fx_poll *poll) {
    uint32_t left, count, own = 0;
    for (; (count = take(workers, &left)); own += count) {
        uint32_t first = workers->units - left;
        fx_span *lane = workers->lanes ? &workers->lanes[number] : NULL;
        if (lane && !lane->start_ns)
            lane->start_ns = fx_now_ns();
        fx_jitter_pause(jitter);
        fx_status status = run_units(workers, number, first, first + count);
        uint32_t ok = FX_OK;
        if (status != FX_OK)
            atomic_compare_exchange_strong(&workers->status, &ok, status);
        if (lane)
            lane->end_ns = fx_now_ns();
        atomic_fetch_add(&workers->done, count); /* from here on the job may be the next one */
        if (number)
            fx_event_notify(&workers->finished);
        if (poll && fx_polled(poll))
            return own + count;
    }
    return own;
}

/* Computes all units in the caller's thread, in so many parts. */
static fx_status compute_alone(fx_workers *workers, uint32_t parts, fx_span *lane, fx_poll *poll) {
    const uint32_t units = workers->units, part = units / parts + (units % parts > 0);
    for (uint32_t first = 0; first < units; first += part) {
        fx_status status = run_units(workers, 0, first, units - first < part ? units : first + part);
        if (status != FX_OK)
            return status;
        workers->last.end_ns = fx_now_ns();
        if (fx_polled_at(poll, workers->last.end_ns))
            return FX_ERR_CANCELLED;
    }
    workers->alone_ns = workers->last.end_ns - workers->last.start_ns;
    if (lane)
        *lane = workers->last;
    return FX_OK;
}

/* Computes the job with all threads. */
static fx_status compute_shared(fx_workers *workers, const fx_task *tasks, uint32_t count, fx_poll *poll) {
    atomic_store(&workers->done, 0);
    atomic_store(&workers->status, FX_OK);
    workers->generation++;
    atomic_store(&workers->ticket, ticket_of(workers, most_of(workers, tasks, count), workers->units));
    fx_event_notify(&workers->work);
    const int64_t start = fx_now_ns();
    const uint32_t own = compute(workers, 0, &workers->jitter, poll);
    const int64_t end = fx_now_ns();
    while (!fx_spin(is_done, workers, workers->spin_ns)) {
        fx_event_wait(&workers->finished, is_done, workers, fx_now_ns() + FX_POLL_NS);
        if (fx_polled(poll))
            break;
    }
    if (poll->cancelled) {
        uint64_t left = atomic_exchange(&workers->ticket, ticket_of(workers, 0, 0));
        workers->wanted -= (uint32_t)left;
        fx_event_wait(&workers->finished, is_done, workers, 0);
        return FX_ERR_CANCELLED;
    }
    workers->last.end_ns = fx_now_ns();
    workers->alone_ns = own ? (int64_t)((double)(end - start) / own * workers->units) : 0;
    return (fx_status)atomic_load(&workers->status);
}

static void *work(void *arg) {
    fx_worker *worker = arg;
    fx_workers *workers = worker->workers;
    for (;;) {
        if (!fx_spin(has_work, workers, workers->spin_ns))
            fx_event_wait(&workers->work, has_work, workers, 0);
        if (atomic_load(&workers->stopping))
            return NULL;
        compute(workers, worker->number, &worker->jitter, NULL);
    }
}

int fx_workers_start(fx_workers *workers, int threads, const fx_placement *placement, uint32_t jitter_seed) {
    int error = fx_event_init(&workers->work);
    if (error)
        return error;
    error = fx_event_init(&workers->finished);
    if (error) {
        fx_event_destroy(&workers->work);
        return error;
    }
    atomic_init(&workers->ticket, 0);
    atomic_init(&workers->done, 0);
    atomic_init(&workers->status, FX_OK);
    atomic_init(&workers->stopping, 0);
    workers->generation = 0;
    workers->jitter = fx_jitter_start(jitter_seed, 1);
    /* Spinning on a CPU that another thread needs, or in time that counts against a quota, only delays the work. */
    workers->spin_ns = fx_usable_cpus() < threads ? 0 : SPIN_NS;
    workers->threads = threads; /* workers read it in their first job, which comes after the last start */
    int started = 1;
    for (; started < threads; started++) {
        fx_worker *worker = &workers->list[started];
        worker->workers = workers;
        worker->number = started;
        worker->jitter = fx_jitter_start(jitter_seed, (uint32_t)started + 1);
        if (fx_thread_start(&worker->thread, work, worker, "flexnn-compute",
                            placement->is_set ? &placement->compute : NULL))
            break;
    }
    workers->threads = started;
    workers->cut_threads = started > 1 ? started * placement->fineness : 1;
    return 0;
}

void fx_workers_stop(fx_workers *workers) {
    atomic_store(&workers->stopping, 1);
    fx_event_notify(&workers->work);
    for (int i = 1; i < workers->threads; i++)
        pthread_join(workers->list[i].thread, NULL);
    fx_event_destroy(&workers->finished);
    fx_event_destroy(&workers->work);
}

fx_status fx_workers_run(fx_workers *workers, fx_task *tasks, uint32_t count, uint32_t parts, fx_span *lanes,
                         fx_poll *poll) {
    uint32_t units = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (tasks[i].units > UINT32_MAX - units)
            return FX_ERR_PARAMS;
        tasks[i].end = units += tasks[i].units;
    }
    workers->tasks = tasks;
    workers->task_count = count;
    workers->lanes = lanes;
    workers->units = workers->wanted = units;
    workers->last.start_ns = workers->last.end_ns = fx_now_ns();
    workers->was_shared = !parts && units > 1 && workers->threads > 1;
    return workers->was_shared ? compute_shared(workers, tasks, count, poll)
                               : compute_alone(workers, parts ? parts : FX_ALONE_PARTS, lanes, poll);
}
