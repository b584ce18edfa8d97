#include "workers.h"

#include "flexnn/quota.h"
#include "protocol.h"

#include <sched.h>
#include <signal.h>
#include <unistd.h>

#define SPIN_NS 50000  /* longer than the time between two steps, shorter than a read */
#define LATE_NS 300000 /* longer than most units take, shorter than the turns of threads that share a CPU */

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
    uint32_t first, count, own = 0;
    for (; (count = fx_job_take(workers, number, &first)); own += count) {
        fx_span *lane = workers->lanes ? &workers->lanes[number] : NULL;
        if (lane && !lane->start_ns)
            lane->start_ns = fx_now_ns();
        fx_jitter_pause(jitter);
        fx_status status = run_units(workers, number, first, first + count);
        if (lane)
            lane->end_ns = fx_now_ns();
        fx_job_finish(workers, count, status);
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

void fx_workers_keep_apart(fx_workers *workers) {
    const int cpu = workers->spin_ns && workers->threads > 1 ? sched_getcpu() : workers->caller_cpu;
    if (cpu == workers->caller_cpu)
        return;
    workers->caller_cpu = cpu;
    for (int i = 1; i < workers->threads; i++)
        fx_keep_off(&workers->list[i].apart, workers->list[i].thread, cpu);
}

/* Fetches a worker that is late to the caller's CPU, which the caller leaves: Linux would let it wait for milliseconds
 * behind another thread on its own CPU. */
static void fetch_late(fx_workers *workers) {
    if (workers->caller_cpu < 0)
        return;
    for (int i = 1; i < workers->threads; i++) {
        fx_worker *worker = &workers->list[i];
        if (atomic_load(&worker->computes)) {
            fx_fetch(&worker->apart, worker->thread, sched_getcpu());
            workers->caller_cpu = -1;
            return;
        }
    }
}

/* Computes the job with all threads. */
static fx_status compute_shared(fx_workers *workers, fx_poll *poll) {
    if (workers->caller_cpu < 0 || atomic_load(&workers->work.sleepers))
        fx_workers_keep_apart(workers);
    fx_job_offer(workers);
    const int64_t start = fx_now_ns();
    const uint32_t own = compute(workers, 0, &workers->jitter, poll);
    const int64_t end = fx_now_ns();
    for (int waits = 0; !poll->cancelled && !fx_spin(fx_job_is_done, workers, workers->spin_ns); waits++) {
        if (waits)
            fetch_late(workers);
        fx_event_wait(&workers->finished, fx_job_is_done, workers, fx_now_ns() + (waits ? FX_POLL_NS : LATE_NS));
        fx_polled(poll);
    }
    if (poll->cancelled) {
        fx_job_withdraw(workers);
        fx_event_wait(&workers->finished, fx_job_is_done, workers, 0);
        return FX_ERR_CANCELLED;
    }
    workers->last.end_ns = fx_now_ns();
    workers->alone_ns = own ? (int64_t)((double)(end - start) / own * workers->units) : 0;
    return (fx_status)atomic_load(&workers->status);
}

typedef struct idle {
    const fx_workers *workers;
    int64_t changes; /* before spare time was used */
} idle;

static int64_t changes_of(const fx_workers *workers) {
    return workers->spare.use ? atomic_load(workers->spare.changes) : 0;
}

static int is_wanted(const void *p) {
    const idle *i = p;
    return fx_job_waits(i->workers) || changes_of(i->workers) != i->changes;
}

static void *work(void *arg) {
    fx_worker *worker = arg;
    fx_workers *workers = worker->workers;
    const fx_spare *spare = &workers->spare;
    for (;;) {
        const idle now = {workers, changes_of(workers)};
        while (spare->use && !atomic_load(&workers->stopping) && spare->use(spare->arg))
            ;
        if (!fx_spin(is_wanted, &now, workers->spin_ns))
            fx_event_wait(&workers->work, is_wanted, &now, 0);
        if (atomic_load(&workers->stopping))
            return NULL;
        atomic_store(&worker->computes, 1);
        compute(workers, worker->number, &worker->jitter, NULL);
        atomic_store(&worker->computes, 0);
    }
}

int fx_workers_start(fx_workers *workers, int threads, const fx_placement *placement, uint32_t jitter_seed,
                     const fx_spare *spare) {
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
    workers->caller_cpu = -1;
    workers->spare = spare ? *spare : (fx_spare){0};
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

/* Runs the tasks' units as one job. */
static fx_status run_job(fx_workers *workers, fx_task *tasks, uint32_t count, uint32_t parts, fx_span *lanes,
                         fx_poll *poll) {
    uint32_t units = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (tasks[i].units > UINT32_MAX - units)
            return FX_ERR_PARAMS;
        tasks[i].end = units += tasks[i].units;
    }
    fx_job_set(workers, tasks, count, units, lanes);
    workers->last.start_ns = workers->last.end_ns = fx_now_ns();
    workers->was_shared = !parts && units > 1 && units < FX_SHARED_UNITS && workers->threads > 1;
    return workers->was_shared ? compute_shared(workers, poll)
                               : compute_alone(workers, parts ? parts : FX_ALONE_PARTS, lanes, poll);
}

int32_t fx_workers_phases(const fx_task *tasks, uint32_t count) {
    int32_t most = 1;
    for (uint32_t i = 0; i < count; i++)
        most = tasks[i].phases.count > most ? tasks[i].phases.count : most;
    return most;
}

/* Makes the units of one phase, from 1, those of the tasks. Tasks without phases run in the first. */
static void set_phase(fx_task *tasks, uint32_t count, int32_t phase) {
    for (uint32_t i = 0; i < count; i++) {
        fx_task *task = &tasks[i];
        if (task->phases.count > 1) {
            task->call.phase = (uint32_t)phase;
            task->units = phase <= task->phases.count ? task->phases.units : 0;
        } else if (phase > 1)
            task->units = 0;
    }
}

fx_status fx_workers_run(fx_workers *workers, fx_task *tasks, uint32_t count, uint32_t parts, fx_span *lanes,
                         fx_poll *poll) {
    const int32_t phases = parts ? 1 : fx_workers_phases(tasks, count);
    if (phases == 1)
        return run_job(workers, tasks, count, parts, lanes, poll);
    const int64_t start = fx_now_ns();
    int64_t alone = 0;
    fx_status status = FX_OK;
    for (int32_t phase = 1; phase <= phases && status == FX_OK; phase++) {
        set_phase(tasks, count, phase);
        status = run_job(workers, tasks, count, 0, lanes, poll);
        alone += workers->alone_ns;
        if (status == FX_OK && fx_polled(poll)) /* others may have computed all of it */
            status = FX_ERR_CANCELLED;
    }
    workers->last.start_ns = start;
    workers->alone_ns = alone;
    return status;
}
