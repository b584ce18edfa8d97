/* Random numbers, one by one in double precision, from Philox written as its definition states it. */
#include "check.h"

#define BLOCK 1024 /* numbers of a block: the first half are cosines, the second half the sines of the same pairs */

static void draw(check_case *c) {
    fx_noise_params *p = &c->params.noise;
    p->is_uniform = check_int(c, 0, 1), p->is_seeded = check_int(c, 0, 1);
    p->elem_bytes = CHECK_PICK(c, 1, 2, 4, 8);
    p->count = check_one_in(c, 3) ? check_int(c, 1000, 20000) : check_int(c, 1, 1100);
    p->seed_lo = check_int(c, INT32_MIN, INT32_MAX), p->seed_hi = check_int(c, INT32_MIN, INT32_MAX);
    p->shift = 3 * check_real(c), p->factor = check_one_in(c, 4) ? 0 : 2 * check_real(c);
    p->end = p->shift + p->factor;
}

/* Word i of four of block `number`, whose draw is 0. */
static uint32_t word_of(const fx_noise_params *p, uint64_t number, int i) {
    uint32_t x[4] = {(uint32_t)number, (uint32_t)(number >> 32), 0, 0};
    uint32_t key[2] = {(uint32_t)p->seed_lo, (uint32_t)p->seed_hi};
    for (int round = 0; round < 10; round++) {
        const uint64_t first = UINT64_C(0xD2511F53) * x[0], second = UINT64_C(0xCD9E8D57) * x[2];
        const uint32_t next[4] = {(uint32_t)(second >> 32) ^ x[1] ^ key[0], (uint32_t)second,
                                  (uint32_t)(first >> 32) ^ x[3] ^ key[1], (uint32_t)first};
        memcpy(x, next, sizeof next);
        key[0] += 0x9E3779B9u, key[1] += 0xBB67AE85u;
    }
    return x[i];
}

static double share_of(const fx_noise_params *p, int64_t block, int64_t pair, int word) {
    return (word_of(p, (uint64_t)(block * (BLOCK / 4) + pair / 2), word + (int)(pair % 2)) >> 8) * 0x1p-24;
}

static void expect(const check_case *c, check_expected *e) {
    const fx_noise_params *p = &c->params.noise;
    for (int64_t i = 0; i < p->count; i++) {
        const int64_t block = i / BLOCK, pair = i % (BLOCK / 2);
        const int is_second = i % BLOCK >= BLOCK / 2;
        if (p->is_uniform) {
            check_set(c, e, i, p->shift + p->factor * share_of(p, block, pair, 2 * is_second), 1e-6);
            continue;
        }
        const double radius = sqrt(-2 * log(share_of(p, block, pair, 0) + 0x1p-24));
        const double angle = 2 * 3.14159265358979 * share_of(p, block, pair, 2);
        check_set(c, e, i, p->shift + p->factor * radius * (is_second ? sin(angle) : cos(angle)), 1e-5);
    }
}

const check_op check_noise = {.draw = draw, .expect = expect};
