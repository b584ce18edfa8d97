/* The loader: reads slices into their places, in order, as soon as the steps that use the places are done.
 *
 * Loads are cut into pieces. The readers, all alike, take them in order and read at the same time; pieces are retired
 * in order, by whichever reader finds the oldest one arrived: its bytes are checked, and with the last piece of a load
 * the counter goes up. */
#include "loader.h"
#include "arena.h"
#include "session.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
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

fx_error fx_read(const fx_session *s, char *target, int64_t bytes, int64_t offset) {
    int direct = s->direct_fd >= 0;
    while (bytes > 0) {
        int is_direct = direct && !((offset | bytes | (int64_t)(intptr_t)target) % DIRECT_ALIGN);
        ssize_t n = pread(is_direct ? s->direct_fd : s->fd, target, (size_t)bytes, offset);
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

static fx_checker check_start(const fx_session *s, const fx_load *load) {
    return (fx_checker){.expected = s->program.crcs + load->crc_first,
                        .data = s->arena + load->address + load->check_lead,
                        .chunk_bytes = load->chunk_bytes,
                        .bytes = load->check_bytes,
                        .path = s->crc_path};
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

fx_status fx_load_read(fx_session *s, const fx_load *load, int (*interrupted)(void *), void *arg, fx_error *error) {
    fx_checker check = check_start(s, load);
    *error = (fx_error){.status = FX_OK};
    for (int64_t at = 0; at < load->bytes && error->status == FX_OK;) {
        int64_t bytes = piece_bytes(load, at);
        if (interrupted(arg)) {
            error->status = FX_ERR_CANCELLED;
            break;
        }
        *error = fx_read(s, s->arena + load->address + at, bytes, load->file_offset + at);
        at += bytes;
        if (error->status == FX_OK)
            *error = check_to(&check, load, at);
    }
    return error->status;
}

/* ---- the readers ---- */

/* What a reader waits for: steps, or pieces to be retired; the other one is INT64_MAX. */
typedef struct turn {
    fx_session *s;
    int64_t steps, retired;
} turn;

static int may_go_on(const void *p) {
    const turn *t = p;
    return atomic_load(&t->s->command) != FX_COMMAND_GO || atomic_load(&t->s->loader) != FX_LOADER_ACTIVE ||
           atomic_load(&t->s->steps_done) >= t->steps || atomic_load(&t->s->loading.retired) >= t->retired;
}

static int is_resumed(const void *p) {
    const turn *t = p;
    return atomic_load(&t->s->command) == FX_COMMAND_STOP || atomic_load(&t->s->loader) == FX_LOADER_ACTIVE;
}

static const fx_load *load_at(const fx_session *s, int64_t load) {
    return &s->program.loads[load % s->program.load_count];
}

static void wait_unlocked(fx_session *s, int (*ready)(const void *), turn t) {
    pthread_mutex_unlock(&s->loading.mutex);
    fx_event_wait(&s->to_loader, ready, &t, 0);
    pthread_mutex_lock(&s->loading.mutex);
}

/* The last reader that comes to rest says so: nothing is in flight, and what is not retired will be read anew. */
static void rest(fx_session *s, int is_draining) {
    fx_loader *l = &s->loading;
    if (++l->resting == l->threads && is_draining) {
        if (atomic_load(&l->retired) < l->begun) {
            l->next_load = l->pieces[atomic_load(&l->retired) % FX_PIECES].load;
            atomic_store(&l->retired, l->begun);
        }
        l->next_at = 0;
        atomic_store(&s->loader, l->has_failed ? FX_LOADER_FAILED : FX_LOADER_PAUSED);
        l->has_failed = 0;
        fx_event_notify(&s->to_caller);
    }
    wait_unlocked(s, is_resumed, (turn){.s = s});
    l->resting--;
}

/* Whether the place of a load is being filled by one that began before: then no step has used that. */
static int meets_begun(const fx_session *s, const fx_load *load) {
    const fx_loader *l = &s->loading;
    for (int64_t i = atomic_load(&l->retired); i < l->begun; i++) {
        const fx_load *other = load_at(s, l->pieces[i % FX_PIECES].load);
        if (load->address < other->address + other->bytes && other->address < load->address + load->bytes)
            return 1;
    }
    return 0;
}

/* Waits until the next piece may begin, and begins it. NULL: look again. */
static fx_piece *begin(fx_session *s) {
    fx_loader *l = &s->loading;
    const fx_load *load = load_at(s, l->next_load);
    const int64_t run = l->next_load / s->program.load_count, retired = atomic_load(&l->retired);
    if (!l->next_at) {
        int64_t steps = run * s->program.step_count + load->wait_steps;
        if (atomic_load(&s->steps_done) < steps) {
            atomic_store(&s->steps_wanted, steps);
            wait_unlocked(s, may_go_on, (turn){.s = s, .steps = steps, .retired = INT64_MAX});
            return NULL;
        }
    }
    if (l->begun - retired == FX_PIECES || (!l->next_at && meets_begun(s, load))) {
        l->retired_is_wanted = 1;
        wait_unlocked(s, may_go_on, (turn){.s = s, .steps = INT64_MAX, .retired = retired + 1});
        return NULL;
    }
    if (!l->next_at && s->poison)
        fx_poison(s->arena + load->address, load->bytes);
    if (!l->next_at && s->fresh)
        fx_arena_forget(s->arena + load->address, load->bytes);
    fx_piece *piece = &l->pieces[l->begun++ % FX_PIECES];
    *piece = (fx_piece){.load = l->next_load, .at = l->next_at, .bytes = piece_bytes(load, l->next_at)};
    l->next_at += piece->bytes;
    if (l->next_at == load->bytes) {
        l->next_at = 0;
        l->next_load++;
    }
    if (s->load_spans || s->read_bytes_per_second)
        piece->begun_ns = fx_now_ns();
    if (s->read_bytes_per_second) {
        int64_t start = l->read_at_ns > piece->begun_ns ? l->read_at_ns : piece->begun_ns;
        piece->ready_ns = l->read_at_ns =
            start + (int64_t)((double)piece->bytes * 1e9 / (double)s->read_bytes_per_second);
    }
    return piece;
}

/* Until a time, or until the loader is told otherwise: the piece is then dropped. */
static void pause_until(fx_session *s, int64_t ns) {
    for (int64_t now; atomic_load(&s->command) == FX_COMMAND_GO && (now = fx_now_ns()) < ns;) {
        int64_t pause = ns - now < PAUSE_NS ? ns - now : PAUSE_NS;
        nanosleep(&(struct timespec){.tv_nsec = pause}, NULL);
    }
}

static void finish_load(fx_session *s, const fx_piece *last) {
    fx_loader *l = &s->loading;
    const int64_t loads = s->program.load_count, run = last->load / loads % FX_RUNS;
    atomic_fetch_add(&s->bytes_read[run], load_at(s, last->load)->bytes);
    if (s->load_spans)
        l->ended_ns = s->load_spans[run * loads + last->load % loads].end_ns = fx_now_ns();
    atomic_fetch_add(&s->loads_done, 1);
    fx_event_notify(&s->to_caller);
}

/* Retires what has arrived, in order. The mutex is open while bytes are checked: one reader at a time does it. */
static void retire(fx_session *s) {
    fx_loader *l = &s->loading;
    if (l->is_retiring)
        return; /* that reader looks again */
    l->is_retiring = 1;
    while (atomic_load(&l->retired) < l->begun && !l->has_failed && atomic_load(&s->command) == FX_COMMAND_GO) {
        const fx_piece *piece = &l->pieces[atomic_load(&l->retired) % FX_PIECES];
        const fx_load *load = load_at(s, piece->load);
        if (!piece->has_arrived)
            break;
        fx_error error = piece->error;
        if (error.status == FX_OK) {
            pthread_mutex_unlock(&l->mutex);
            if (!piece->at)
                l->check = check_start(s, load);
            error = check_to(&l->check, load, piece->at + piece->bytes);
            pthread_mutex_lock(&l->mutex);
        }
        if (error.status != FX_OK) {
            error.is_load = 1;
            error.index = piece->load % s->program.load_count;
            l->error = error;
            l->has_failed = 1;
            break;
        }
        if (!piece->at && s->load_spans) /* the loader's lane shows one load at a time: the oldest */
            s->load_spans[piece->load / s->program.load_count % FX_RUNS * s->program.load_count +
                          piece->load % s->program.load_count]
                .start_ns = piece->begun_ns > l->ended_ns ? piece->begun_ns : l->ended_ns;
        if (piece->at + piece->bytes == load->bytes)
            finish_load(s, piece);
        atomic_fetch_add(&l->retired, 1);
        if (l->retired_is_wanted) {
            l->retired_is_wanted = 0;
            fx_event_notify(&s->to_loader);
        }
    }
    l->is_retiring = 0;
}

static void *read_all(void *arg) {
    fx_reader *reader = arg;
    fx_session *s = reader->session;
    fx_loader *l = &s->loading;
    pthread_mutex_lock(&l->mutex);
    for (;;) {
        int state = atomic_load(&s->loader),
            command = atomic_load(&s->command); /* resuming writes the other way round */
        if (command == FX_COMMAND_STOP)
            break;
        if (state != FX_LOADER_ACTIVE) {
            rest(s, state == FX_LOADER_DRAINING);
            continue;
        }
        if (command == FX_COMMAND_PAUSE || l->has_failed) {
            atomic_store(&s->loader, FX_LOADER_DRAINING);
            fx_event_notify(&s->to_loader);
            continue;
        }
        fx_piece *piece = begin(s);
        if (!piece)
            continue;
        const fx_load *load = load_at(s, piece->load);
        pthread_mutex_unlock(&l->mutex);
        fx_jitter_pause(&reader->jitter);
        char *target = s->arena + load->address + piece->at;
        piece->error = fx_read(s, target, piece->bytes, load->file_offset + piece->at);
        pause_until(s, piece->ready_ns);
        pthread_mutex_lock(&l->mutex);
        piece->has_arrived = 1;
        retire(s);
    }
    pthread_mutex_unlock(&l->mutex);
    return NULL;
}

int fx_loader_start(fx_session *s, uint32_t jitter_seed) {
    fx_loader *l = &s->loading;
    const cpu_set_t *cores = s->placement.is_set ? &s->placement.load : NULL;
    int error = pthread_mutex_init(&l->mutex, NULL);
    if (error)
        return error;
    pthread_mutex_lock(&l->mutex); /* readers begin when it is known how many they are */
    /* What the page cache has takes a CPU and no waiting: more readers would only take turns with who computes. */
    const int wanted = s->direct_fd >= 0 ? FX_READERS : 1;
    for (; l->threads < wanted; l->threads++) {
        fx_reader *reader = &l->readers[l->threads];
        reader->session = s;
        reader->jitter = fx_jitter_start(jitter_seed, 102 + (uint32_t)l->threads);
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

void fx_loader_stop(fx_session *s) {
    fx_loader *l = &s->loading;
    atomic_store(&s->command, FX_COMMAND_STOP);
    fx_event_notify(&s->to_loader);
    for (int i = 0; i < l->threads; i++)
        pthread_join(l->readers[i].thread, NULL);
    pthread_mutex_destroy(&l->mutex);
}
