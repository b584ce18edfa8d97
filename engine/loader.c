/* The loader: reads slices into their places, in order, as soon as the steps that use the places are done.
 *
 * Loads are cut into pieces. The readers, all alike, take them in order and read at the same time; pieces are retired
 * in order, by whichever reader finds the oldest one arrived: its bytes are checked, and with the last piece of a load
 * the counter goes up. */
#include "loader.h"
#include "arena.h"
#include "quota.h"
#include "state.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define PIECE_BYTES_MAX ((int64_t)5 << 18) /* 1.25 MiB: 28 ms on a slow card, and the device's full speed elsewhere */
#define DIRECT_ALIGN 4096
#define PAUSE_NS 10000000

/* ---- a piece ---- */

/* Bytes of the piece of a load that begins at `at`: as few pieces as may be, and all about the same. */
static int64_t piece_bytes(const fx_load *load, int64_t at) {
    int64_t count = (load->bytes + PIECE_BYTES_MAX - 1) / PIECE_BYTES_MAX;
    int64_t bytes = (load->bytes / count + DIRECT_ALIGN) / DIRECT_ALIGN * DIRECT_ALIGN;
    return load->bytes - at < bytes ? load->bytes - at : bytes;
}

fx_error fx_read(const fx_engine *h, char *target, int64_t bytes, int64_t offset) {
    int direct = h->direct_fd >= 0;
    while (bytes > 0) {
        int is_direct = direct && !((offset | bytes | (int64_t)(intptr_t)target) % DIRECT_ALIGN);
        ssize_t n = pread(is_direct ? h->direct_fd : h->fd, target, (size_t)bytes, offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && is_direct && errno == EINVAL) {
            direct = 0; /* a file system that takes the flag but not the read */
            continue;
        }
        if (n <= 0)
            return (fx_error){
                .status = n < 0 ? FX_ERR_IO : FX_ERR_EOF, .os_error = n < 0 ? errno : 0, .file_offset = offset};
        target += n;
        offset += n;
        bytes -= n;
    }
    return (fx_error){.status = FX_OK};
}

static fx_checker check_start(const fx_engine *h, const fx_program *p, const fx_load *load) {
    return (fx_checker){.expected = p->crcs + load->crc_first,
                        .data = h->arena + load->address + load->check_lead,
                        .chunk_bytes = load->chunk_bytes,
                        .bytes = load->check_bytes,
                        .path = h->crc_path};
}

/* Bytes [0, available) of the load have arrived. */
static fx_error check_to(fx_checker *c, const fx_load *load, int64_t available) {
    int64_t end = available - load->check_lead < c->bytes ? available - load->check_lead : c->bytes;
    while (c->done < end) {
        int64_t chunk = c->done / c->chunk_bytes, chunk_end = (chunk + 1) * c->chunk_bytes;
        if (chunk_end > c->bytes)
            chunk_end = c->bytes;
        int64_t n = (end < chunk_end ? end : chunk_end) - c->done;
        c->crc = fx_crc32c_by(c->path, c->crc, c->data + c->done, (size_t)n);
        c->done += n;
        if (c->done == chunk_end) {
            if (c->crc != c->expected[chunk])
                return (fx_error){.status = FX_ERR_CHECKSUM,
                                  .file_offset = load->file_offset + load->check_lead + c->done};
            c->crc = 0;
        }
    }
    return (fx_error){.status = FX_OK};
}

fx_status fx_load_read(fx_engine *h, const fx_program *p, const fx_load *load, int (*interrupted)(void *), void *arg,
                       fx_error *error) {
    fx_checker check = check_start(h, p, load);
    *error = (fx_error){.status = FX_OK};
    for (int64_t at = 0; at < load->bytes && error->status == FX_OK;) {
        int64_t bytes = piece_bytes(load, at);
        if (interrupted(arg)) {
            error->status = FX_ERR_CANCELLED;
            break;
        }
        *error = fx_read(h, h->arena + load->address + at, bytes, load->file_offset + at);
        at += bytes;
        if (error->status == FX_OK)
            *error = check_to(&check, load, at);
    }
    return error->status;
}

/* ---- the readers ---- */

/* What a reader waits for: steps, pieces to be retired, or runs to be known; the others are INT64_MAX. */
typedef struct wanted {
    fx_engine *h;
    int64_t steps, retired, turns;
} wanted;

static wanted wants(fx_engine *h) {
    return (wanted){h, INT64_MAX, INT64_MAX, INT64_MAX};
}

static int may_go_on(const void *p) {
    const wanted *w = p;
    return atomic_load(&w->h->command) != FX_COMMAND_GO || atomic_load(&w->h->loader) != FX_LOADER_ACTIVE ||
           atomic_load(&w->h->steps_done) >= w->steps || atomic_load(&w->h->loading.retired) >= w->retired ||
           atomic_load(&w->h->turns_known) >= w->turns;
}

static int is_resumed(const void *p) {
    const wanted *w = p;
    return atomic_load(&w->h->command) == FX_COMMAND_STOP || atomic_load(&w->h->loader) == FX_LOADER_ACTIVE;
}

static const fx_turn *turn_at(const fx_engine *h, int64_t turn) {
    return &h->turns[turn % FX_RUNS];
}

static const fx_load *load_of(const fx_engine *h, const fx_piece *piece) {
    return &turn_at(h, piece->turn)->bound->program.loads[piece->index];
}

static void wait_unlocked(fx_engine *h, int (*ready)(const void *), wanted w) {
    pthread_mutex_unlock(&h->loading.mutex);
    fx_event_wait(&h->to_loader, ready, &w, 0);
    pthread_mutex_lock(&h->loading.mutex);
}

/* Nothing is in flight: what is not retired will be read anew. */
static void settle(fx_engine *h) {
    fx_loader *l = &h->loading;
    if (atomic_load(&l->retired) < l->begun) {
        l->next_turn = l->pieces[atomic_load(&l->retired) % FX_PIECES].turn;
        l->next_index = l->pieces[atomic_load(&l->retired) % FX_PIECES].index;
        atomic_store(&l->retired, l->begun);
    }
    l->next_at = 0;
    atomic_store(&h->loader, l->has_failed ? FX_LOADER_FAILED : FX_LOADER_PAUSED);
    l->has_failed = 0;
    fx_event_notify(&h->to_caller);
}

/* The last reader that comes to rest says so. */
static void rest(fx_engine *h, int is_draining) {
    fx_loader *l = &h->loading;
    if (++l->resting == l->threads && is_draining)
        settle(h);
    wait_unlocked(h, is_resumed, wants(h));
    l->resting--;
}

/* Whether the place of a load is being filled by one that began before: then no step has used that. */
static int meets_begun(const fx_engine *h, const fx_load *load) {
    const fx_loader *l = &h->loading;
    for (int64_t i = atomic_load(&l->retired); i < l->begun; i++) {
        const fx_load *other = load_of(h, &l->pieces[i % FX_PIECES]);
        if (load->address < other->address + other->bytes && other->address < load->address + load->bytes)
            return 1;
    }
    return 0;
}

/* Steps that must be done before a load of a run. */
static int64_t steps_before(const fx_turn *turn, uint32_t index) {
    const int32_t wait = turn->bound->program.loads[index].wait_steps;
    if (wait > 0 || turn->repeats)
        return turn->steps + wait;
    return turn->after ? turn->before + turn->after[index] : turn->steps;
}

/* Begins the next piece. NULL if it may not begin yet: *w is what it waits for. */
static fx_piece *begin(fx_engine *h, wanted *w) {
    fx_loader *l = &h->loading;
    *w = wants(h);
    if (atomic_load(&h->turns_known) <= l->next_turn) {
        w->turns = l->next_turn + 1;
        atomic_store(&h->steps_wanted, INT64_MAX);
        atomic_store(&h->turn_wanted, 1);
        return NULL;
    }
    const fx_turn *turn = turn_at(h, l->next_turn);
    const fx_load *load = &turn->bound->program.loads[l->next_index];
    const int64_t retired = atomic_load(&l->retired);
    atomic_store(&h->turn_wanted, 0);
    if (!l->next_at) {
        const int64_t steps = steps_before(turn, l->next_index);
        if (atomic_load(&h->steps_done) < steps) {
            w->steps = steps;
            atomic_store(&h->steps_wanted, steps);
            return NULL;
        }
    }
    if (l->begun - retired == FX_PIECES || (!l->next_at && meets_begun(h, load))) {
        l->retired_is_wanted = 1;
        w->retired = retired + 1;
        return NULL;
    }
    if (!l->next_at && h->poison)
        fx_poison(h->arena + load->address, load->bytes);
    if (!l->next_at && h->fresh)
        fx_arena_forget(h->arena + load->address, load->bytes);
    fx_piece *piece = &l->pieces[l->begun++ % FX_PIECES];
    *piece = (fx_piece){l->next_turn, l->next_index, .at = l->next_at, .bytes = piece_bytes(load, l->next_at)};
    l->next_at += piece->bytes;
    if (l->next_at == load->bytes) {
        l->next_at = 0;
        l->next_index = (l->next_index + 1) % turn->bound->program.load_count;
        l->next_turn += !l->next_index;
    }
    if (h->trace || h->read_bytes_per_second)
        piece->begun_ns = fx_now_ns();
    if (h->read_bytes_per_second) {
        int64_t start = l->read_at_ns > piece->begun_ns ? l->read_at_ns : piece->begun_ns;
        piece->ready_ns = l->read_at_ns =
            start + (int64_t)((double)piece->bytes * 1e9 / (double)h->read_bytes_per_second);
    }
    return piece;
}

/* Until a time, or until the loader is told otherwise: the piece is then dropped. */
static void pause_until(fx_engine *h, int64_t ns) {
    for (int64_t now; atomic_load(&h->command) == FX_COMMAND_GO && (now = fx_now_ns()) < ns;) {
        int64_t pause = ns - now < PAUSE_NS ? ns - now : PAUSE_NS;
        nanosleep(&(struct timespec){.tv_nsec = pause}, NULL);
    }
}

static fx_span *span_of(const fx_engine *h, const fx_piece *piece) {
    const fx_bound *b = turn_at(h, piece->turn)->bound;
    return &b->load_spans[piece->turn % FX_RUNS * b->program.load_count + piece->index];
}

static void finish_load(fx_engine *h, const fx_piece *last) {
    fx_loader *l = &h->loading;
    atomic_fetch_add(&h->bytes_read[last->turn % FX_RUNS], load_of(h, last)->bytes);
    if (h->trace)
        l->ended_ns = span_of(h, last)->end_ns = fx_now_ns();
    atomic_fetch_add(&h->loads_done, 1);
    fx_event_notify(&h->to_caller);
}

/* Retires what has arrived, in order. The mutex is open while bytes are checked: one reader at a time does it. */
static void retire(fx_engine *h) {
    fx_loader *l = &h->loading;
    if (l->is_retiring)
        return; /* that reader looks again */
    l->is_retiring = 1;
    while (atomic_load(&l->retired) < l->begun && !l->has_failed && atomic_load(&h->command) == FX_COMMAND_GO) {
        const fx_piece *piece = &l->pieces[atomic_load(&l->retired) % FX_PIECES];
        const fx_load *load = load_of(h, piece);
        if (!piece->has_arrived)
            break;
        fx_error error = piece->error;
        if (error.status == FX_OK) {
            pthread_mutex_unlock(&l->mutex);
            if (!piece->at)
                l->check = check_start(h, &turn_at(h, piece->turn)->bound->program, load);
            error = check_to(&l->check, load, piece->at + piece->bytes);
            pthread_mutex_lock(&l->mutex);
        }
        if (error.status != FX_OK) {
            error.is_load = 1;
            error.index = piece->index;
            l->error = error;
            l->has_failed = 1;
            atomic_store(&h->loader, FX_LOADER_DRAINING);
            fx_event_notify(&h->to_loader);
            break;
        }
        if (!piece->at && h->trace) /* the loader's lane shows one load at a time: the oldest */
            span_of(h, piece)->start_ns = piece->begun_ns > l->ended_ns ? piece->begun_ns : l->ended_ns;
        if (piece->at + piece->bytes == load->bytes)
            finish_load(h, piece);
        atomic_fetch_add(&l->retired, 1);
        if (l->retired_is_wanted) {
            l->retired_is_wanted = 0;
            fx_event_notify(&h->to_loader);
        }
    }
    l->is_retiring = 0;
}

/* Times that this thread has waited for anything. */
static long sleeps(void) {
    struct rusage usage;
    return getrusage(RUSAGE_THREAD, &usage) ? 0 : usage.ru_nvcsw;
}

/* Reads a piece that has begun and retires what can be. The mutex is open meanwhile. */
static void read_piece(fx_engine *h, fx_piece *piece, fx_jitter *jitter) {
    fx_loader *l = &h->loading;
    const fx_load *load = load_of(h, piece);
    pthread_mutex_unlock(&l->mutex);
    fx_jitter_pause(jitter);
    const long before = sleeps();
    piece->error = fx_read(h, h->arena + load->address + piece->at, piece->bytes, load->file_offset + piece->at);
    atomic_store(&l->has_slept, sleeps() > before);
    pause_until(h, piece->ready_ns);
    pthread_mutex_lock(&l->mutex);
    piece->has_arrived = 1;
    retire(h);
}

static void *read_all(void *arg) {
    fx_reader *reader = arg;
    fx_engine *h = reader->host;
    fx_loader *l = &h->loading;
    pthread_mutex_lock(&l->mutex);
    for (;;) {
        int state = atomic_load(&h->loader),
            command = atomic_load(&h->command); /* resuming writes the other way round */
        if (command == FX_COMMAND_STOP)
            break;
        if (state != FX_LOADER_ACTIVE) {
            rest(h, state == FX_LOADER_DRAINING);
            continue;
        }
        if (command == FX_COMMAND_PAUSE) {
            atomic_store(&h->loader, FX_LOADER_DRAINING);
            fx_event_notify(&h->to_loader);
            continue;
        }
        wanted w;
        fx_piece *piece = begin(h, &w);
        if (piece)
            read_piece(h, piece, &reader->jitter);
        else
            wait_unlocked(h, may_go_on, w);
    }
    pthread_mutex_unlock(&l->mutex);
    return NULL;
}

int fx_loader_help(fx_engine *h) {
    fx_loader *l = &h->loading;
    if (l->is_waiting || atomic_load(&l->has_slept))
        return 0;
    pthread_mutex_lock(&l->mutex);
    wanted w;
    fx_piece *piece = atomic_load(&h->loader) == FX_LOADER_ACTIVE ? begin(h, &w) : NULL;
    if (piece)
        read_piece(h, piece, &h->jitter);
    /* Readers may not have woken since they rested last: none is left to say that this read has failed. */
    if (piece && atomic_load(&h->loader) == FX_LOADER_DRAINING && l->resting == l->threads)
        settle(h);
    pthread_mutex_unlock(&l->mutex);
    return piece != NULL;
}

int fx_loader_start(fx_engine *h) {
    fx_loader *l = &h->loading;
    const cpu_set_t *cores = h->placement.is_set ? &h->placement.load : NULL;
    int error = pthread_mutex_init(&l->mutex, NULL);
    if (error)
        return error;
    pthread_mutex_lock(&l->mutex); /* readers begin when it is known how many they are */
    l->is_waiting = h->direct_fd >= 0 || h->read_bytes_per_second;
    /* What the page cache has takes CPUs and no waiting: of readers as many as steps leave CPUs, at least one. */
    const double spare = fx_usable_cpus() - h->pool.threads;
    const int wanted = l->is_waiting || spare >= FX_READERS ? FX_READERS : spare > 1 ? (int)spare : 1;
    for (; l->threads < wanted; l->threads++) {
        fx_reader *reader = &l->readers[l->threads];
        reader->host = h;
        reader->jitter = fx_jitter_start(h->jitter_seed, 102 + (uint32_t)l->threads);
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

void fx_loader_stop(fx_engine *h) {
    fx_loader *l = &h->loading;
    atomic_store(&h->command, FX_COMMAND_STOP);
    fx_event_notify(&h->to_loader);
    for (int i = 0; i < l->threads; i++)
        pthread_join(l->readers[i].thread, NULL);
    pthread_mutex_destroy(&l->mutex);
}
