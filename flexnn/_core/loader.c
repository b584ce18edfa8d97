/* The loader: reads slices into their places, in order, as soon as the steps that use the places are done. */
#include "arena.h"
#include "session.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define PIECE_BYTES ((int64_t)1 << 20) /* of one read: 22 ms on a slow card, and the device's full speed elsewhere */
#define DIRECT_ALIGN 4096
#define PAUSE_NS 10000000

/* Checks chunks as their bytes arrive, while they are in the cache. */
typedef struct checker {
    const uint32_t *expected;
    const char *data; /* first checked byte */
    int64_t chunk_bytes, bytes, done;
    uint32_t crc;
    fx_crc_path path;
} checker;

/* Bytes [0, available) have arrived. 0: a chunk is wrong. */
static int check_to(checker *c, int64_t available) {
    int64_t end = available < c->bytes ? available : c->bytes;
    while (c->done < end) {
        int64_t chunk = c->done / c->chunk_bytes, chunk_end = (chunk + 1) * c->chunk_bytes;
        if (chunk_end > c->bytes)
            chunk_end = c->bytes;
        int64_t n = (end < chunk_end ? end : chunk_end) - c->done;
        c->crc = fx_crc32c_by(c->path, c->crc, c->data + c->done, (size_t)n);
        c->done += n;
        if (c->done == chunk_end) {
            if (c->crc != c->expected[chunk])
                return 0;
            c->crc = 0;
        }
    }
    return 1;
}

static int pause_until(int64_t ns, int (*interrupted)(void *), void *arg) {
    for (int64_t now; (now = fx_now_ns()) < ns;) {
        if (interrupted(arg))
            return 0;
        int64_t pause = ns - now < PAUSE_NS ? ns - now : PAUSE_NS;
        nanosleep(&(struct timespec){.tv_nsec = pause}, NULL);
    }
    return 1;
}

fx_status fx_load_read(fx_session *s, const fx_load *load, int throttled, int (*interrupted)(void *), void *arg,
                       fx_error *error) {
    char *target = s->arena + load->address;
    checker check = {.expected = s->program.crcs + load->crc_first,
                     .data = target + load->check_lead,
                     .chunk_bytes = load->chunk_bytes,
                     .bytes = load->check_bytes,
                     .path = s->crc_path};
    int direct = s->direct_fd >= 0;
    int64_t done = 0;
    fx_status status = FX_OK;
    if (s->poison)
        fx_poison(target, load->bytes);
    while (done < load->bytes) {
        int64_t want = load->bytes - done < PIECE_BYTES ? load->bytes - done : PIECE_BYTES;
        int64_t offset = load->file_offset + done;
        int is_direct = direct && !((offset | want | (int64_t)(intptr_t)(target + done)) % DIRECT_ALIGN);
        if (interrupted(arg) || (throttled && !pause_until(s->read_at_ns, interrupted, arg))) {
            status = FX_ERR_CANCELLED;
            break;
        }
        int64_t start = throttled ? fx_now_ns() : 0;
        ssize_t n = pread(is_direct ? s->direct_fd : s->fd, target + done, (size_t)want, offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && is_direct && errno == EINVAL) {
            direct = 0; /* a file system that takes the flag but not the read */
            continue;
        }
        if (n <= 0) {
            *error = (fx_error){.os_error = n < 0 ? errno : 0, .file_offset = offset};
            status = n < 0 ? FX_ERR_IO : FX_ERR_EOF;
            break;
        }
        if (throttled)
            s->read_at_ns = start + (int64_t)((double)n * 1e9 / (double)s->read_bytes_per_second);
        done += n;
        if (!check_to(&check, done - load->check_lead)) {
            *error = (fx_error){.file_offset = load->file_offset + load->check_lead + check.done};
            status = FX_ERR_CHECKSUM;
            break;
        }
    }
    error->status = status;
    return status;
}

/* ---- the thread ---- */

typedef struct turn {
    fx_session *s;
    int64_t steps_needed;
} turn;

static int may_load(const void *p) {
    const turn *t = p;
    return atomic_load(&t->s->command) != FX_COMMAND_GO || atomic_load(&t->s->steps_done) >= t->steps_needed;
}

static int is_resumed(const void *p) {
    const turn *t = p;
    return atomic_load(&t->s->command) == FX_COMMAND_STOP || atomic_load(&t->s->loader) == FX_LOADER_ACTIVE;
}

static int told_otherwise(void *p) {
    return atomic_load(&((fx_session *)p)->command) != FX_COMMAND_GO;
}

/* Leaves ACTIVE until resumed. 0: to stop. */
static int rest(fx_session *s, int as) {
    turn t = {.s = s};
    atomic_store(&s->loader, as);
    fx_event_notify(&s->to_caller);
    fx_event_wait(&s->to_loader, is_resumed, &t, 0);
    return atomic_load(&s->command) != FX_COMMAND_STOP;
}

static void *load_all(void *arg) {
    fx_session *s = arg;
    const int64_t loads = s->program.load_count, steps = s->program.step_count;
    for (;;) {
        int64_t run = s->next_load / loads, index = s->next_load % loads;
        const fx_load *load = &s->program.loads[index];
        turn t = {.s = s, .steps_needed = run * steps + load->wait_steps};
        atomic_store(&s->steps_wanted, t.steps_needed);
        fx_event_wait(&s->to_loader, may_load, &t, 0);
        atomic_store(&s->steps_wanted, INT64_MAX);
        int command = atomic_load(&s->command);
        if (command == FX_COMMAND_STOP || (command == FX_COMMAND_PAUSE && !rest(s, FX_LOADER_PAUSED)))
            return NULL;
        if (command == FX_COMMAND_PAUSE)
            continue;
        fx_jitter_pause(&s->loader_jitter);
        int64_t start = s->load_spans ? fx_now_ns() : 0;
        if (s->fresh)
            fx_arena_forget(s->arena + load->address, load->bytes);
        fx_error error = {0};
        fx_status status = fx_load_read(s, load, s->read_bytes_per_second > 0, told_otherwise, s, &error);
        if (status == FX_ERR_CANCELLED)
            continue; /* the command says why; the load, if ever, is read anew */
        if (status != FX_OK) {
            error.is_load = 1;
            error.index = index;
            s->loader_error = error;
            if (!rest(s, FX_LOADER_FAILED))
                return NULL;
            continue;
        }
        atomic_fetch_add(&s->bytes_read[run % FX_RUNS], load->bytes);
        if (s->load_spans)
            s->load_spans[run % FX_RUNS * loads + index] = (fx_span){start, fx_now_ns()};
        s->next_load++;
        atomic_fetch_add(&s->loads_done, 1);
        fx_event_notify(&s->to_caller);
    }
}

int fx_loader_start(fx_session *s) {
    const cpu_set_t *cores = s->placement.is_set ? &s->placement.load : NULL;
    return fx_thread_start(&s->loader_thread, load_all, s, "flexnn-loader", cores);
}

void fx_loader_stop(fx_session *s) {
    atomic_store(&s->command, FX_COMMAND_STOP);
    fx_event_notify(&s->to_loader);
    pthread_join(s->loader_thread, NULL);
}
