#include "protocol.h"

#include <string.h>

/* The ticket of a job: units left, units taken from its end, the most to take at once, and a number of the job. */
#define TAKEN_SHIFT 24
#define MOST_SHIFT 48
#define GENERATION_SHIFT 56
#define UNITS_MASK (uint64_t)(FX_SHARED_UNITS - 1)
#define MOST_MAX 255u

/* ---- the job of the compute threads ---- */

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

void fx_job_set(fx_workers *workers, const fx_task *tasks, uint32_t count, uint32_t units, fx_span *lanes) {
    workers->tasks = tasks;
    workers->task_count = count;
    workers->lanes = lanes;
    workers->units = workers->wanted = units;
}

void fx_job_offer(fx_workers *workers) {
    atomic_store(&workers->done, 0);
    atomic_store(&workers->status, FX_OK);
    workers->generation++;
    atomic_store(&workers->ticket,
                 ticket_of(workers, most_of(workers, workers->tasks, workers->task_count), workers->units));
    fx_event_notify(&workers->work);
}

uint32_t fx_job_take(fx_workers *workers, int number, uint32_t *first) {
    const int from_end = number & 1;
    uint64_t ticket = atomic_load(&workers->ticket), next;
    uint32_t left, count;
    do {
        left = (uint32_t)(ticket & UNITS_MASK);
        if (!left)
            return 0;
        const uint32_t most = (uint32_t)(ticket >> MOST_SHIFT) & MOST_MAX;
        count = left / (uint32_t)(4 * workers->threads);
        count = count < most ? count : most;
        count += !count;
        next = ticket - count + (from_end ? (uint64_t)count << TAKEN_SHIFT : 0);
    } while (!atomic_compare_exchange_weak(&workers->ticket, &ticket, next));
    const uint32_t taken = (uint32_t)(ticket >> TAKEN_SHIFT & UNITS_MASK);
    *first = workers->units - taken - (from_end ? count : left);
    return count;
}

void fx_job_finish(fx_workers *workers, uint32_t count, fx_status status) {
    uint32_t ok = FX_OK;
    if (status != FX_OK)
        atomic_compare_exchange_strong(&workers->status, &ok, status);
    atomic_fetch_add(&workers->done, count);
}

void fx_job_withdraw(fx_workers *workers) {
    const uint64_t left = atomic_exchange(&workers->ticket, ticket_of(workers, 0, 0)) & UNITS_MASK;
    workers->wanted -= (uint32_t)left;
}

int fx_job_waits(const void *p) {
    const fx_workers *workers = p;
    return (atomic_load(&workers->ticket) & UNITS_MASK) != 0 || atomic_load(&workers->stopping);
}

int fx_job_is_done(const void *p) {
    const fx_workers *workers = p;
    return atomic_load(&workers->done) == workers->wanted;
}

/* ---- the readers ---- */

/* Wakes those who would begin a request, after a change that lets one begin. Where compute threads read, there is one
 * reader, and it begins none until a read has waited for the device: waking it would take a CPU from a step. */
static void tell_of_request(fx_engine *e) {
    const int is_shared = atomic_load(&e->loading.is_shared);
    if (!is_shared || atomic_load(&e->loading.has_slept))
        fx_event_notify(&e->to_loader);
    if (!is_shared)
        return;
    atomic_fetch_add(&e->loading.changes, 1);
    fx_event_notify(&e->workers.work);
}

/* Wakes whoever may read, after a change that lets a reader go on, or a rest, or an end. */
static void tell_readers(fx_engine *e) {
    fx_event_notify(&e->to_loader);
    tell_of_request(e);
}

static fx_awaited wants(fx_engine *e) {
    return (fx_awaited){e, INT64_MAX, INT64_MAX, INT64_MAX};
}

int fx_reader_may_go_on(const void *p) {
    const fx_awaited *w = p;
    return atomic_load(&w->e->command) != FX_COMMAND_GO || atomic_load(&w->e->loader) != FX_LOADER_ACTIVE ||
           atomic_load(&w->e->steps_done) >= w->steps || atomic_load(&w->e->loading.retired) >= w->retired ||
           atomic_load(&w->e->turns_known) >= w->turns || atomic_load(&w->e->loading.left);
}

int fx_reader_is_resumed(const void *p) {
    const fx_awaited *w = p;
    return atomic_load(&w->e->command) == FX_COMMAND_STOP || atomic_load(&w->e->loader) == FX_LOADER_ACTIVE ||
           atomic_load(&w->e->loading.is_asked);
}

static const fx_turn *turn_at(const fx_engine *e, int64_t turn) {
    return &e->turns[turn % FX_RUNS];
}

const fx_load *fx_request_load(const fx_engine *e, const fx_request *request) {
    return &turn_at(e, request->turn)->bound->program.loads[request->index];
}

/* The oldest request that a compute thread has left to the readers; NULL: none. */
static fx_request *take_left(fx_loader *l) {
    for (int64_t i = atomic_load(&l->retired); atomic_load(&l->left) && i < l->begun; i++) {
        fx_request *request = &l->requests[i % FX_REQUESTS];
        if (request->is_left) {
            request->is_left = 0;
            atomic_fetch_sub(&l->left, 1);
            return request;
        }
    }
    return NULL;
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
    atomic_store(&l->left, 0);
    atomic_store(&e->loader, l->has_failed ? FX_LOADER_FAILED : FX_LOADER_PAUSED);
    l->has_failed = 0;
    fx_event_notify(&e->to_caller);
}

/* Whether a load that began before is still filling the place of this one: no step has used its bytes yet. */
static int meets_begun(const fx_engine *e, const fx_load *load) {
    const fx_loader *l = &e->loading;
    for (int64_t i = atomic_load(&l->retired); i < l->begun; i++) {
        const fx_load *other = fx_request_load(e, &l->requests[i % FX_REQUESTS]);
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

/* Whether the next request may begin; if not, *w says what it waits for. Workers do not look at *w: what they wait for
 * is written before it is looked at for the last time, so either they see that it has come or they are told. */
static int may_begin(fx_engine *e, fx_awaited *w) {
    fx_loader *l = &e->loading;
    *w = wants(e);
    if (atomic_load(&e->turns_known) <= l->next_turn) {
        w->turns = l->next_turn + 1;
        atomic_store(&e->steps_wanted, INT64_MAX);
        atomic_store(&e->turn_wanted, 1);
        if (atomic_load(&e->turns_known) <= l->next_turn)
            return 0;
    }
    const fx_turn *turn = turn_at(e, l->next_turn);
    const int64_t retired = atomic_load(&l->retired);
    atomic_store(&e->turn_wanted, 0);
    if (!l->next_at) {
        const int64_t steps = steps_before(turn, l->next_index);
        if (atomic_load(&e->steps_done) < steps) {
            w->steps = steps;
            atomic_store(&e->steps_wanted, steps);
            if (atomic_load(&e->steps_done) < steps)
                return 0;
        }
    }
    if (l->begun - retired == FX_REQUESTS ||
        (!l->next_at && meets_begun(e, &turn->bound->program.loads[l->next_index]))) {
        l->retired_is_wanted = 1;
        w->retired = retired + 1;
        return 0;
    }
    return 1;
}

/* Begins the next request. NULL if it may not begin yet. */
static fx_request *begin(fx_engine *e, fx_awaited *w) {
    fx_loader *l = &e->loading;
    if (!may_begin(e, w))
        return NULL;
    const fx_program *p = &turn_at(e, l->next_turn)->bound->program;
    const fx_load *load = &p->loads[l->next_index];
    const int is_spilled = fx_load_is_spilled(load);
    const int64_t part = atomic_load(&l->is_shared) ? fx_part_bytes(load, l->next_at, atomic_load(&l->has_slept)) : 0;
    fx_request *request = &l->requests[l->begun++ % FX_REQUESTS];
    *request = (fx_request){.turn = l->next_turn,
                            .index = l->next_index,
                            .at = l->next_at,
                            .bytes = part ? part : fx_request_bytes(load, l->next_at),
                            .is_whole = part > 0,
                            .target = e->arena.memory + load->address + l->next_at,
                            .file = is_spilled ? p->spill : p->file,
                            .file_offset = load->file_offset + l->next_at - (is_spilled ? FX_SPILL_FROM : 0)};
    l->next_at += request->bytes;
    if (l->next_at == load->bytes) {
        l->next_at = 0;
        l->next_index = (l->next_index + 1) % p->load_count;
        l->next_turn += !l->next_index;
    }
    return request;
}

fx_reader_act fx_reader_next(fx_engine *e, fx_request **request, fx_awaited *w) {
    fx_loader *l = &e->loading;
    const int state = atomic_load(&e->loader),
              command = atomic_load(&e->command); /* fx_loader_resume writes them in the opposite order */
    if (command == FX_COMMAND_STOP)
        return FX_READER_STOPS;
    if (atomic_exchange(&l->is_asked, 0)) { /* then the loader is DRAINING, and rests again when this is done */
        *request = &l->pinned;
        return FX_READER_READS;
    }
    *w = wants(e);
    if (state != FX_LOADER_ACTIVE) { /* the last thread that comes to rest reports it */
        if (++l->resting == l->threads && state == FX_LOADER_DRAINING && !l->helpers)
            settle(e);
        return FX_READER_RESTS;
    }
    if (command == FX_COMMAND_PAUSE) {
        atomic_store(&e->loader, FX_LOADER_DRAINING);
        tell_readers(e);
        return FX_READER_LOOKS;
    }
    if ((*request = take_left(l)))
        return FX_READER_READS;
    if (atomic_load(&l->is_shared) && !atomic_load(&l->has_slept))
        return FX_READER_WAITS;
    *request = begin(e, w);
    return *request ? FX_READER_BEGINS : FX_READER_WAITS;
}

void fx_reader_waited(fx_engine *e, int has_slept) {
    if (atomic_exchange(&e->loading.has_slept, has_slept) && !has_slept)
        tell_readers(e);
}

void fx_reader_resumes(fx_engine *e) {
    e->loading.resting--;
}

int fx_reader_goes(fx_engine *e) {
    const int is_last = atomic_fetch_add(&e->loading.gone, 1) + 1 == e->loading.threads;
    if (is_last)
        fx_event_notify(&e->to_caller);
    return is_last;
}

int fx_retire_begin(fx_engine *e) {
    return !e->loading.is_retiring && (e->loading.is_retiring = 1);
}

fx_request *fx_retire_next(fx_engine *e) {
    fx_loader *l = &e->loading;
    if (atomic_load(&l->retired) < l->begun && !l->has_failed && atomic_load(&e->command) == FX_COMMAND_GO) {
        fx_request *request = &l->requests[atomic_load(&l->retired) % FX_REQUESTS];
        if (request->has_arrived)
            return request;
    }
    l->is_retiring = 0;
    return NULL;
}

void fx_retire(fx_engine *e, const fx_request *request, fx_error error) {
    fx_loader *l = &e->loading;
    const fx_load *load = fx_request_load(e, request);
    if (error.status != FX_OK) {
        error.is_load = 1;
        error.index = request->index;
        l->error = error;
        l->has_failed = 1;
        atomic_store(&e->loader, FX_LOADER_DRAINING);
        tell_readers(e);
        return;
    }
    if (request->at + request->bytes == load->bytes) {
        atomic_fetch_add(&e->bytes_read[request->turn % FX_RUNS], load->bytes);
        atomic_fetch_add(&e->loads_done, 1);
        fx_event_notify(&e->to_caller);
    }
    atomic_fetch_add(&l->retired, 1);
    if (l->retired_is_wanted) {
        l->retired_is_wanted = 0;
        tell_of_request(e);
    }
}

/* ---- the help of compute threads ---- */

fx_request *fx_help_begin(fx_engine *e) {
    fx_loader *l = &e->loading;
    fx_awaited w;
    fx_request *request = atomic_load(&e->loader) == FX_LOADER_ACTIVE && !atomic_load(&l->left) ? begin(e, &w) : NULL;
    l->helpers += request != NULL;
    return request;
}

void fx_help_leave(fx_engine *e, fx_request *request) {
    fx_loader *l = &e->loading;
    if (atomic_load(&e->loader) != FX_LOADER_ACTIVE)
        return; /* it will be read again, after the rest */
    request->is_left = 1;
    atomic_fetch_add(&l->left, 1);
    atomic_store(&l->has_slept, 1);
    tell_readers(e);
}

void fx_help_end(fx_engine *e) {
    /* The readers may all be asleep: then none would report that this thread rests, or that its read has failed. */
    fx_loader *l = &e->loading;
    if (!--l->helpers && atomic_load(&e->loader) == FX_LOADER_DRAINING && l->resting == l->threads)
        settle(e);
}

/* ---- the caller and the loader's rest ---- */

int fx_loader_rests(const void *arg) {
    return atomic_load(&((const fx_engine *)arg)->loader) >= FX_LOADER_PAUSED;
}

void fx_loader_ask_to_pause(fx_engine *e) {
    e->must_restart = 1;
    if (!e->has_loader)
        return;
    atomic_store(&e->command, FX_COMMAND_PAUSE);
    if (!fx_loader_rests(e)) /* else all of them sleep until it is resumed */
        tell_readers(e);
}

void fx_loader_resume(fx_engine *e) {
    atomic_store(&e->command, FX_COMMAND_GO);
    atomic_store(&e->loader, FX_LOADER_ACTIVE);
    tell_readers(e);
}

void fx_ask(fx_engine *e, const fx_request *request) {
    e->loading.pinned = *request;
    atomic_store(&e->loader, FX_LOADER_DRAINING);
    atomic_store(&e->loading.is_asked, 1);
}

void fx_stop(fx_engine *e) {
    atomic_store(&e->command, FX_COMMAND_STOP);
    tell_readers(e);
}

int fx_has_gone(const void *arg) {
    const fx_loader *l = &((const fx_engine *)arg)->loading;
    return atomic_load(&l->gone) == l->threads;
}

/* ---- turns ---- */

/* Steps of the program before that each load of b waits for, computed when the two programs first follow each other. */
static const uint32_t *loads_after(const fx_bound *before, fx_bound *sharer) {
    fx_bound *b = fx_owner(sharer); /* whose loads are the same */
    for (int i = 0; i < FX_PREDECESSORS; i++)
        if (b->after[i].before == before)
            return b->after[i].steps;
    fx_after *after = &b->after[b->after_next++ % FX_PREDECESSORS];
    after->before = before;
    for (uint32_t i = 0; i < b->program.load_count; i++)
        after->steps[i] = fx_touches_until(&before->touches, fx_load_target(&b->program.loads[i]));
    return after->steps;
}

/* Tells the loader of one more turn. */
static void add_turn(fx_engine *e, fx_turn turn) {
    const int64_t known = atomic_load(&e->turns_known);
    e->turns[known % FX_RUNS] = turn;
    atomic_store(&e->turns_known, known + 1);
    if (atomic_load(&e->turn_wanted))
        tell_of_request(e);
}

/* The run that follows another if all goes as announced. */
static fx_announced run_after(const fx_announced *last, fx_bound *b) {
    return (fx_announced){.bound = b,
                          .steps = last->steps + last->bound->program.step_count,
                          .loads = last->loads + last->bound->program.load_count};
}

/* For each load of a run yet to come, the steps that must be done, counted from the start of the current run: up to the
 * last step, of that run or of those announced after it, that touches the load's place. */
static const uint32_t *waits_of(const fx_engine *e, const fx_announced *now, fx_bound *b) {
    const uint32_t count = b->program.load_count;
    uint32_t *waits = &b->waits[atomic_load(&e->turns_known) % FX_RUNS * count];
    memset(waits, 0, count * sizeof *waits);
    for (int64_t k = -1; k < e->ahead_count; k++) {
        const fx_announced *run = k < 0 ? now : &e->ahead[k];
        const uint32_t *until = loads_after(run->bound, b), since = (uint32_t)(run->steps - now->steps);
        for (uint32_t i = 0; i < count; i++)
            if (until[i])
                waits[i] = since + until[i];
    }
    return waits;
}

/* Tells the loader of one more run, after all those it knows. */
static void announce(fx_engine *e, const fx_announced *now, fx_bound *b) {
    const fx_announced *last = e->ahead_count ? &e->ahead[e->ahead_count - 1] : now;
    const fx_announced run = run_after(last, b);
    if (b->program.load_count)
        add_turn(e, (fx_turn){.bound = b,
                              .steps = run.steps,
                              .loads = run.loads,
                              .repeats = last->bound == b,
                              .before = now->steps,
                              .after = last->bound == b ? NULL : waits_of(e, now, b)});
    e->ahead[e->ahead_count++] = run;
}

int fx_turns_must_restart(fx_engine *e, const fx_bound *b) {
    if (e->ahead_count && e->ahead[0].bound != b)
        e->must_restart = 1;
    return e->must_restart;
}

void fx_turns_restart(fx_engine *e) {
    e->turn = e->loading.next_turn = e->loading.next_index = 0;
    atomic_store(&e->turns_known, 0);
    for (int i = 0; i < FX_RUNS; i++)
        atomic_store(&e->bytes_read[i], 0);
    e->ahead_count = e->must_restart = 0;
}

void fx_turns_announce(fx_bound *b, fx_bound *const *next, uint32_t next_count) {
    fx_engine *e = b->engine;
    const fx_announced now = {b, atomic_load(&e->steps_done),
                              e->ahead_count ? e->ahead[0].loads : atomic_load(&e->loads_done)};
    if (e->ahead_count)
        memmove(e->ahead, e->ahead + 1, --e->ahead_count * sizeof *e->ahead);
    else if (b->program.load_count)
        add_turn(e, (fx_turn){.bound = b, .steps = now.steps, .loads = now.loads});
    for (uint32_t i = 0; i < next_count && i < FX_AHEAD_MAX; i++) {
        if (i == e->ahead_count)
            announce(e, &now, next[i]);
        else if (e->ahead[i].bound != next[i])
            break;
    }
    if (fx_loader_rests(e) && atomic_load(&e->turns_known)) /* else nobody reads: to wake it would delay this run */
        fx_loader_resume(e);
}

int64_t fx_turn_loads(const fx_bound *b) {
    return b->program.load_count ? turn_at(b->engine, b->engine->turn)->loads : 0;
}

void fx_turn_end(const fx_bound *b) {
    b->engine->turn += b->program.load_count > 0;
}

void fx_steps_finish(fx_engine *e, uint32_t count) {
    if (atomic_fetch_add(&e->steps_done, count) + count >= atomic_load(&e->steps_wanted))
        tell_of_request(e);
}

int fx_has_loads(const void *p) {
    const fx_need *n = p;
    return atomic_load(&n->e->loads_done) >= n->loads || fx_loader_rests(n->e);
}

int fx_has_more_loads(const void *p) {
    const fx_need *n = p;
    return atomic_load(&n->e->loads_done) > n->seen || fx_has_loads(n); /* the last one may have come before `seen` */
}
