/* Waiting: events lose no wake-up and keep their time, spins end, the poll asks no more often than it should, and
 * pauses of random length are the same for the same seed.
 * usage: flexnn-sync */
#include "sync.h"
#include "require.h"

enum { TURNS = 20000, MS = 1000000 };

typedef struct table_tennis {
    fx_event event[2];
    atomic_int ball; /* whose turn it is */
    atomic_int played;
} table_tennis;

typedef struct player {
    table_tennis *game;
    int number;
} player;

static int has_ball(const void *arg) {
    const player *p = arg;
    return atomic_load(&p->game->ball) == p->number;
}

static void *play(void *arg) {
    player *p = arg;
    table_tennis *g = p->game;
    for (int i = 0; i < TURNS; i++) {
        if (!fx_spin(has_ball, p, i % 3 * 1000))
            fx_event_wait(&g->event[p->number], has_ball, p, 0);
        atomic_fetch_add(&g->played, 1);
        atomic_store(&g->ball, !p->number);
        fx_event_notify(&g->event[!p->number]);
    }
    return NULL;
}

/* A lost wake-up would leave both asleep for ever. */
static void wake_ups(void) {
    static table_tennis game;
    player players[2] = {{&game, 0}, {&game, 1}};
    pthread_t thread;
    CHECK(!fx_event_init(&game.event[0]) && !fx_event_init(&game.event[1]));
    CHECK(!pthread_create(&thread, NULL, play, &players[1]));
    play(&players[0]);
    CHECK(!pthread_join(thread, NULL) && atomic_load(&game.played) == 2 * TURNS);
    fx_event_destroy(&game.event[0]);
    fx_event_destroy(&game.event[1]);
}

static int never(const void *arg) {
    (void)arg;
    return 0;
}

static int always(const void *arg) {
    (void)arg;
    return 1;
}

static void times(void) {
    fx_event event;
    CHECK(!fx_event_init(&event));
    int64_t start = fx_now_ns();
    fx_event_wait(&event, never, NULL, start + 5 * MS);
    CHECK(fx_now_ns() - start >= 5 * MS);
    start = fx_now_ns();
    fx_event_wait(&event, never, NULL, start - 1); /* a time that is over */
    fx_event_wait(&event, always, NULL, 0);
    CHECK(fx_now_ns() - start < 60000 * (int64_t)MS);
    fx_event_notify(&event); /* nobody sleeps */
    CHECK(!atomic_load(&event.sleepers));
    fx_event_destroy(&event);

    start = fx_now_ns();
    CHECK(!fx_spin(never, NULL, MS) && fx_now_ns() - start >= MS);
    CHECK(!fx_spin(never, NULL, 0) && fx_spin(always, NULL, 0) && fx_spin(always, NULL, MS));
}

static int third_time(void *calls) {
    return ++*(int *)calls == 3 ? 7 : 0;
}

static void polls(void) {
    int calls = 0;
    fx_poll nobody = fx_poll_start(NULL), poll = fx_poll_start(&(fx_interrupt){third_time, &calls});
    CHECK(!fx_polled(&nobody));
    CHECK(!fx_polled(&poll) && !calls); /* not before FX_POLL_NS */
    const int64_t start = fx_now_ns();
    while (!fx_polled(&poll))
        fx_relax();
    CHECK(calls == 3 && fx_now_ns() - start >= 2 * FX_POLL_NS);
    CHECK(fx_polled(&poll) && calls == 3); /* it is not called again */
}

static void jitters(void) {
    fx_jitter none = fx_jitter_start(0, 1), a = fx_jitter_start(7, 1), same = fx_jitter_start(7, 1);
    fx_jitter other = fx_jitter_start(7, 2), cancelled = fx_jitter_start(0x9e3779b9u, 1);
    CHECK(!none.state && a.state && a.state == same.state && a.state != other.state && cancelled.state);
    fx_jitter_pause(&none);
    CHECK(!none.state);
    for (int i = 0; i < 200; i++) {
        fx_jitter_pause(&a);
        fx_jitter_pause(&same);
        CHECK(a.state == same.state && a.state);
    }
}

int main(void) {
    wake_ups();
    times();
    polls();
    jitters();
    puts("sync: good");
    return 0;
}
