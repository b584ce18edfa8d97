#include "sharing.h"

#define STEP_NS 4000   /* several times what handing units to a thread that looks for them costs */
#define RUN_NS 100000  /* longer than a thread takes to wake */
#define LOSS_NS 100000 /* of a run so far, beyond what runs before gained: nothing more is shared in it */
#define LOSS_PART 16   /* of the run's time, where that is more */
#define EVEN_PART 64   /* of the run's time: a run that lost less than this neither lost nor gained */
#define OLDER_PART 4   /* of the balance, which each run takes off it */
#define RESTS 16       /* how many times as long as a loss nothing is shared after it, the first time */
#define LOSSES_MAX 12
#define REST_MAX_NS 1000000000

void fx_sharing_begin(fx_sharing *s, int64_t now_ns) {
    s->is_worth = (!s->worth_ns || s->worth_ns >= RUN_NS) && now_ns >= s->rests_until_ns;
    s->most_ns = s->worth_ns / LOSS_PART > LOSS_NS ? s->worth_ns / LOSS_PART : LOSS_NS;
    s->worth_ns = s->lost_ns = 0;
}

void fx_sharing_end(fx_sharing *s, int64_t now_ns) {
    s->worth_ns++;
    s->balance_ns += s->lost_ns - s->balance_ns / OLDER_PART;
    s->losses -= s->lost_ns < 0 && s->losses > 0;
    if (s->lost_ns <= s->worth_ns / EVEN_PART || s->balance_ns <= 0)
        return;
    s->losses += s->losses < LOSSES_MAX;
    const int64_t rest = RESTS / 2 * s->balance_ns << s->losses;
    s->rests_until_ns = now_ns + (rest < REST_MAX_NS ? rest : REST_MAX_NS);
    s->balance_ns = 0;
}

uint32_t fx_sharing_parts(const fx_sharing *s, fx_cost cost, uint32_t phases) {
    if (s->always || (s->is_worth && (!cost || cost / phases >= STEP_NS)))
        return 0;
    return cost && cost < RUN_NS ? 1 : FX_ALONE_PARTS;
}

void fx_sharing_learn(fx_sharing *s, fx_cost *cost, const fx_workers *workers) {
    const int64_t alone = workers->alone_ns;
    if (!alone)
        return;
    const fx_cost now = alone < UINT32_MAX ? (fx_cost)alone : UINT32_MAX;
    const int is_new = !*cost; /* threads touch its memory for the first time */
    *cost = is_new || now < *cost ? now : *cost + (now - *cost) / 8;
    s->worth_ns += *cost < STEP_NS ? 0 : *cost;
    if (!workers->was_shared || is_new)
        return;
    /* Compared with what the caller's part says of this time: a busy machine slows the step in either way. Where that
     * is far more than ever, the caller had to wait for a CPU, and what the others did meanwhile is no gain. */
    const int64_t lost = workers->last.end_ns - workers->last.start_ns - alone;
    s->lost_ns += lost > 0 || now / 2 <= *cost ? lost : 0;
    if (s->lost_ns + s->balance_ns > s->most_ns)
        s->is_worth = 0;
}
