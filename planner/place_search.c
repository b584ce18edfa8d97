/* Exhaustive placement, after MiniMalloc (Moffitt, ASPLOS 2023). Time is cut into sections: the largest sets of blocks
 * that live at once. Blocks are placed one by one in the order of their addresses, each at the lowest address that
 * those before leave free. Every placement pushed down as far as it goes arises in this way. A state is left early
 *  - when what is not placed of a section no longer fits above the section's floor;
 *  - when another block fits below a candidate: who starts from that one is no worse off;
 *  - when a block that nothing can lie on has failed: its place matters to nobody else;
 *  - when it was left before: states are remembered by what is not placed and how low each of that may lie.
 * Where placed blocks separate the others in time, the parts are solved one by one. Three orders of candidates take
 * turns, with limits that double, as none is good everywhere. */
#include "flexnn/place.h"

#include <stdlib.h>
#include <string.h>

#define SEEN_BITS_MAX 16
#define SEEN_BITS_MIN 6
/* Numbers on the stack of lists for each pair of blocks, floors to undo for each place of a block in a section, and
 * both beside these: a search that needs more ends early. */
#define LISTS_PER_PAIR 2
#define FLOORS_PER_MEMBER 4
#define STACKS_LEAST 4096
#define FIRST_LIMIT_PER_BLOCK 2
#define PAIRS_MAX ((int64_t)1 << 23)

enum { TOTAL, WIDTH, AREA, KEYS };
static const uint8_t ORDERS[][KEYS] = {{WIDTH, AREA, TOTAL}, {TOTAL, AREA, WIDTH}, {TOTAL, WIDTH, AREA}};
#define ORDER_COUNT ((int)(sizeof ORDERS / sizeof *ORDERS))

/* The position in a canonical sequence: the next block lies at `address` or above; if exactly there, its rank in its
 * part, as one sort numbered the blocks, is at least `rank` (from 1; 0: any block). */
typedef struct low {
    int64_t address, sort;
    int32_t rank;
} low;

typedef struct seen {
    uint64_t state; /* 0: empty */
    low from;
} seen;

typedef struct undo {
    int32_t index;
    int64_t value;
} undo;

typedef struct sortable {
    int64_t keys[KEYS];
    int32_t block;
} sortable;

typedef struct search {
    int32_t count, sections;
    int64_t capacity, nodes, limit;
    const uint8_t *order; /* of keys */

    const int64_t *bytes;
    int64_t *width;       /* [count] in time */
    int32_t *begin, *end; /* [count] sections of each block */
    int32_t *rank;        /* [count] position in its part */
    int64_t sorts;
    int32_t *meets_at, *meets;   /* blocks that meet block i in time: meets[meets_at[i] .. meets_at[i + 1]) */
    int32_t *member_at, *member; /* blocks of section s, likewise */

    int64_t *address;  /* [count] -1: not placed */
    int64_t *least;    /* [count] lowest address left to it */
    int64_t *solution; /* [count] last address tried; complete once found */
    int64_t *floor;    /* [sections] blocks not yet placed lie at or above it */
    int64_t *rest;     /* [sections] bytes not placed */
    int32_t *crossing; /* [sections] blocks not placed that live in this section and the next */

    undo *least_undo, *floor_undo; /* stacks */
    int64_t least_count, floor_count;
    int32_t *lists; /* stack of lists of blocks */
    int64_t list_top, lists_max, floors_max;
    sortable *sorting;      /* [count] */
    int64_t *from, *amount; /* [count] of one section */
    int seen_bits;
    seen *seen; /* [1 << seen_bits] */
} search;

/* Whether all that may follow b may follow a. */
static int allows(low a, low b) {
    return a.address < b.address || (a.address == b.address && (!a.rank || (a.sort == b.sort && a.rank <= b.rank)));
}

static uint64_t mixed(uint64_t x) { /* the finaliser of splitmix64 */
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static int compare(const void *x, const void *y) {
    const sortable *a = x, *b = y;
    for (int i = 0; i < KEYS; i++)
        if (a->keys[i] != b->keys[i])
            return a->keys[i] > b->keys[i] ? -1 : 1;
    return (a->block > b->block) - (a->block < b->block);
}

/* Sorts a part's blocks by the keys of the order, larger ones first; returns the sort's number. */
static int64_t sort_part(search *s, int32_t *part, int32_t count) {
    for (int32_t i = 0; i < count; i++) {
        int32_t block = part[i];
        int64_t keys[KEYS] = {0, s->width[block], s->bytes[block] * s->width[block]};
        for (int32_t j = s->begin[block]; j < s->end[block]; j++)
            keys[TOTAL] = s->rest[j] > keys[TOTAL] ? s->rest[j] : keys[TOTAL];
        for (int k = 0; k < KEYS; k++)
            s->sorting[i].keys[k] = keys[s->order[k]];
        s->sorting[i].block = block;
    }
    qsort(s->sorting, (size_t)count, sizeof *s->sorting, compare);
    for (int32_t i = 0; i < count; i++) {
        part[i] = s->sorting[i].block;
        s->rank[part[i]] = i + 1;
    }
    return ++s->sorts;
}

/* Raises a section's floor: blocks not yet placed lie at `at` or above. 0 if not all of them fit. */
static int section_fits(search *s, int32_t section, int64_t at) {
    int32_t count = 0;
    for (int32_t i = s->member_at[section]; i < s->member_at[section + 1]; i++) {
        int32_t block = s->member[i], j = count;
        if (s->address[block] >= 0)
            continue;
        for (; j > 0 && s->from[j - 1] < s->least[block]; j--) {
            s->from[j] = s->from[j - 1];
            s->amount[j] = s->amount[j - 1];
        }
        s->from[j] = s->least[block];
        s->amount[j] = s->bytes[block];
        count++;
    }
    if (!count)
        return 1;
    int64_t lowest = s->from[count - 1], above = 0;
    if (s->floor[section] < lowest) {
        s->floor_undo[s->floor_count++] = (undo){section, s->floor[section]};
        s->floor[section] = lowest;
    }
    for (int32_t i = 0; i < count; i++) { /* by lowest address, the largest first */
        above += s->amount[i];
        if ((s->from[i] > at ? s->from[i] : at) + above > s->capacity)
            return 0;
    }
    int64_t floor = s->floor[section] > at ? s->floor[section] : at;
    return floor + s->rest[section] <= s->capacity;
}

/* Places a block as low as it goes. 0 if another block can no longer be placed; *covered: whether one may lie on it. */
static int put(search *s, int32_t block, int32_t begin, int32_t end, int *covered) {
    const int64_t at = s->least[block], top = at + s->bytes[block];
    int32_t from = s->sections, to = 0;
    int fits = 1;
    *covered = 0;
    s->address[block] = s->solution[block] = at;
    for (int32_t i = s->meets_at[block]; i < s->meets_at[block + 1]; i++) {
        int32_t other = s->meets[i];
        if (s->address[other] >= 0)
            continue;
        *covered = 1;
        if (s->least[other] >= top)
            continue;
        s->least_undo[s->least_count++] = (undo){other, s->least[other]};
        s->least[other] = top;
        fits &= top + s->bytes[other] <= s->capacity;
        from = s->begin[other] < from ? s->begin[other] : from;
        to = s->end[other] > to ? s->end[other] : to;
    }
    for (int32_t i = s->begin[block]; i < s->end[block]; i++) {
        s->floor_undo[s->floor_count++] = (undo){i, s->floor[i]};
        s->floor[i] = top;
        s->rest[i] -= s->bytes[block];
    }
    if (!fits)
        return 0;
    int64_t worst = 0;
    for (int32_t i = begin; i < end; i++) {
        int64_t left = s->capacity - (s->floor[i] > at ? s->floor[i] : at) - s->rest[i];
        worst = left < worst ? left : worst;
    }
    if (worst < 0)
        return 0;
    for (int32_t i = from; i < to; i++)
        if (!section_fits(s, i, at))
            return 0;
    return 1;
}

static void take_back(search *s, int32_t block, int64_t least_count, int64_t floor_count) {
    while (s->floor_count > floor_count) {
        undo u = s->floor_undo[--s->floor_count];
        s->floor[u.index] = u.value;
    }
    for (int32_t i = s->begin[block]; i < s->end[block]; i++)
        s->rest[i] += s->bytes[block];
    while (s->least_count > least_count) {
        undo u = s->least_undo[--s->least_count];
        s->least[u.index] = u.value;
    }
    s->address[block] = -1;
}

static fx_found explore(search *s, const int32_t *part, int32_t count, int32_t begin, int32_t end, low from);

/* Continues after `block` of a part is placed: with the rest of the part, or with its own parts where nothing crosses
 * any more. */
static fx_found go_on(search *s, const int32_t *part, int32_t count, int32_t begin, int32_t end, int32_t block,
                      int64_t sort) {
    int32_t *cuts = s->lists + s->list_top, cut_count = 0;
    cuts[cut_count++] = begin;
    for (int32_t i = s->begin[block]; i + 1 < s->end[block]; i++)
        if (--s->crossing[i] == 0)
            cuts[cut_count++] = i + 1;
    fx_found found = FX_FOUND_SOME;
    if (cut_count == 1)
        found = explore(s, part, count, begin, end, (low){s->address[block], sort, s->rank[block]});
    else {
        cuts[cut_count++] = end;
        s->list_top += cut_count;
        for (int32_t c = 1; c < cut_count && found == FX_FOUND_SOME; c++) {
            int32_t *sub = s->lists + s->list_top, size = 0;
            for (int32_t i = 0; i < count; i++)
                if (s->address[part[i]] < 0 && s->begin[part[i]] < cuts[c] && s->end[part[i]] > cuts[c - 1])
                    sub[size++] = part[i];
            if (!size)
                continue;
            int32_t *ranks = sub + size;
            for (int32_t i = 0; i < size; i++)
                ranks[i] = s->rank[sub[i]];
            s->list_top += 3 * size;
            memcpy(ranks + size, sub, (size_t)size * sizeof *sub);
            int64_t sub_sort = sort_part(s, sub, size);
            found = explore(s, sub, size, cuts[c - 1], cuts[c], (low){s->address[block], sub_sort, 0});
            s->list_top -= 3 * size;
            for (int32_t i = 0; i < size; i++)
                s->rank[ranks[size + i]] = ranks[i];
        }
        s->list_top -= cut_count;
    }
    for (int32_t i = s->begin[block]; i + 1 < s->end[block]; i++)
        s->crossing[i]++;
    return found;
}

/* Places the remaining blocks of a part, which live in sections [begin, end) and cross neither end. */
static fx_found explore(search *s, const int32_t *part, int32_t count, int32_t begin, int32_t end, low from) {
    if (s->nodes == s->limit)
        return FX_FOUND_UNKNOWN;
    s->nodes++;
    if (s->list_top + 5 * (int64_t)count + s->sections + 2 > s->lists_max ||
        s->floor_count + 2 * (int64_t)s->sections > s->floors_max)
        return FX_FOUND_UNKNOWN;
    const int64_t list_top = s->list_top;
    int32_t *left = s->lists + list_top, left_count = 0, candidates = 0;
    int64_t lowest_top = INT64_MAX;
    uint64_t state = 0;
    for (int32_t i = 0; i < count; i++) {
        int32_t block = part[i];
        if (s->address[block] >= 0)
            continue;
        left[left_count++] = block;
        int64_t top = s->least[block] + s->bytes[block];
        lowest_top = top < lowest_top ? top : lowest_top;
        state += mixed(mixed((uint64_t)block + 1) + (uint64_t)s->least[block]);
    }
    if (!left_count)
        return FX_FOUND_SOME;
    state |= 1;
    seen *known = &s->seen[mixed(state) >> (64 - s->seen_bits)];
    if (known->state == state && allows(known->from, from))
        return FX_FOUND_NONE;

    int32_t *candidate = left + left_count;
    for (int32_t i = 0; i < left_count; i++) {
        int32_t block = left[i], j = candidates;
        if (s->least[block] >= lowest_top || !allows(from, (low){s->least[block], from.sort, s->rank[block]}))
            continue;
        for (; j > 0 && s->least[candidate[j - 1]] > s->least[block]; j--)
            candidate[j] = candidate[j - 1];
        candidate[j] = block;
        candidates++;
    }
    s->list_top += left_count + candidates;
    fx_found found = FX_FOUND_NONE;
    for (int32_t i = 0; i < candidates && found == FX_FOUND_NONE; i++) {
        int64_t least_count = s->least_count, floor_count = s->floor_count;
        int covered;
        if (put(s, candidate[i], begin, end, &covered))
            found = go_on(s, left, left_count, begin, end, candidate[i], from.sort);
        take_back(s, candidate[i], least_count, floor_count);
        if (!covered)
            break;
    }
    s->list_top = list_top;
    if (found == FX_FOUND_NONE)
        *known = (seen){state, from};
    return found;
}

/* Places all parts that are separate from the start. */
static fx_found explore_all(search *s) {
    fx_found found = FX_FOUND_SOME;
    for (int32_t i = 0, begin = 0; i < s->sections && found == FX_FOUND_SOME; i++) {
        if (i + 1 < s->sections && s->crossing[i])
            continue;
        int32_t *part = s->lists, size = 0;
        for (int32_t block = 0; block < s->count; block++)
            if (s->begin[block] >= begin && s->end[block] <= i + 1)
                part[size++] = block;
        s->list_top = size;
        int64_t sort = sort_part(s, part, size);
        found = explore(s, part, size, begin, i + 1, (low){0, sort, 0});
        s->list_top = 0;
        begin = i + 1;
    }
    return found;
}

/* ---- preparing ---- */

typedef struct event {
    int32_t time, block; /* 2 * first, or 2 * last + 1: a block lives through its last moment */
} event;

static int compare_events(const void *x, const void *y) {
    const event *a = x, *b = y;
    if (a->time != b->time)
        return a->time < b->time ? -1 : 1;
    return (a->block > b->block) - (a->block < b->block);
}

/* Sections of each block: one begins with the first block that starts after some have ended. Returns their number. */
static int32_t cut_sections(const fx_blocks *b, event *events, int32_t *begin, int32_t *end) {
    for (int32_t i = 0; i < b->count; i++) {
        events[2 * i] = (event){2 * b->first[i], i};
        events[2 * i + 1] = (event){2 * b->last[i] + 1, i};
    }
    qsort(events, 2 * (size_t)b->count, sizeof *events, compare_events);
    int32_t section = 0, ended = 0;
    for (int32_t i = 0; i < 2 * b->count; i++) {
        int32_t block = events[i].block;
        if (events[i].time % 2) {
            end[block] = section + 1;
            ended = 1;
        } else {
            section += ended;
            ended = 0;
            begin[block] = section;
        }
    }
    return b->count ? section + 1 : 0;
}

/* Takes room for an array from memory; only counts it while memory is NULL. */
static void *carve(char *memory, int64_t *used, int64_t bytes) {
    int64_t at = *used;
    *used = at + (bytes + 15) / 16 * 16;
    return memory ? memory + at : NULL;
}

/* Lays out arrays in memory; *zeroed: bytes of those that begin as zeros. Returns the bytes of all. */
static int64_t lay_out(search *s, char *memory, int64_t pairs, int64_t members, int64_t *zeroed) {
    const int64_t n = s->count, sections = s->sections;
    int64_t used = 0;
#define CARVE(field, count) s->field = carve(memory, &used, (int64_t)(count) * (int64_t)sizeof *s->field)
    CARVE(meets_at, n + 1);
    CARVE(member_at, sections + 1);
    CARVE(least, n);
    CARVE(floor, sections);
    CARVE(rest, sections);
    CARVE(crossing, sections);
    CARVE(seen, (int64_t)1 << s->seen_bits);
    *zeroed = used;
    CARVE(width, n);
    CARVE(rank, n);
    CARVE(meets, pairs);
    CARVE(member, members);
    CARVE(address, n);
    CARVE(solution, n);
    CARVE(least_undo, pairs);         /* a block raises those that meet it */
    CARVE(floor_undo, s->floors_max); /* its own sections, and at most all for those */
    CARVE(lists, s->lists_max);       /* each placed block: cuts, part, left, candidates */
    CARVE(sorting, n);
    CARVE(from, n);
    CARVE(amount, n);
#undef CARVE
    return used;
}

/* Sets how much room the stacks have, and how many states are remembered. */
static void limit_room(search *s, int64_t members, int64_t nodes_max) {
    const int64_t n = s->count, sections = s->sections;
    const int64_t lists = n * (5 * (n + 1) + sections + 2), floors = members + (n + 2) * sections;
    const int64_t some_lists = LISTS_PER_PAIR * n * n + sections + STACKS_LEAST;
    const int64_t some_floors = FLOORS_PER_MEMBER * members + 2 * sections + STACKS_LEAST;
    s->lists_max = lists < some_lists ? lists : some_lists;
    s->floors_max = floors < some_floors ? floors : some_floors;
    s->seen_bits = SEEN_BITS_MIN;
    while (s->seen_bits < SEEN_BITS_MAX && (int64_t)1 << s->seen_bits < 2 * nodes_max)
        s->seen_bits++;
}

static void fill(search *s, const fx_blocks *b, const int32_t *meet_count) {
    int32_t *at = s->lists; /* the next place of each section, then of each block */
    for (int32_t i = 0; i < s->count; i++) {
        s->width[i] = (int64_t)b->last[i] - b->first[i] + 1;
        s->address[i] = -1;
        for (int32_t j = s->begin[i]; j < s->end[i]; j++) {
            s->rest[j] += s->bytes[i];
            s->crossing[j] += j + 1 < s->end[i];
            s->member_at[j + 1]++;
        }
    }
    for (int32_t j = 0; j < s->sections; j++)
        at[j] = s->member_at[j], s->member_at[j + 1] += s->member_at[j];
    for (int32_t i = 0; i < s->count; i++)
        for (int32_t j = s->begin[i]; j < s->end[i]; j++)
            s->member[at[j]++] = i;
    for (int32_t i = 0; i < s->count; i++)
        at[i] = s->meets_at[i], s->meets_at[i + 1] = s->meets_at[i] + meet_count[i];
    for (int32_t i = 0; i < s->count; i++)
        for (int32_t j = s->begin[i]; j < s->end[i]; j++)
            for (int32_t m = s->member_at[j]; m < s->member_at[j + 1]; m++) {
                const int32_t other = s->member[m]; /* met in its first section or in this one's */
                if (other != i && (j == s->begin[i] || j == s->begin[other]))
                    s->meets[at[other]++] = i;
            }
}

/* How many other blocks meet each in time: all but those that begin after it, or end before. Returns their sum. */
static int64_t count_meets(const search *s, int32_t *begun, int32_t *ended, int32_t *meet_count) {
    int64_t pairs = 0;
    for (int32_t i = 0; i < s->count; i++)
        begun[s->begin[i] + 1]++, ended[s->end[i]]++;
    for (int32_t j = 0; j < s->sections; j++)
        begun[j + 1] += begun[j], ended[j + 1] += ended[j];
    for (int32_t i = 0; i < s->count; i++)
        pairs += meet_count[i] = begun[s->end[i]] - ended[s->begin[i]] - 1;
    return pairs;
}

static fx_found take_turns(search *s, int64_t nodes_max, int64_t *nodes) {
    for (int32_t i = 0; i < s->sections; i++)
        if (s->rest[i] > s->capacity)
            return FX_FOUND_NONE;
    for (int64_t limit = FIRST_LIMIT_PER_BLOCK * (int64_t)s->count + 1; *nodes < nodes_max; limit *= 2)
        for (int i = 0; i < ORDER_COUNT && *nodes < nodes_max; i++) {
            s->order = ORDERS[i];
            s->nodes = 0;
            s->limit = limit < nodes_max - *nodes ? limit : nodes_max - *nodes;
            fx_found found = explore_all(s);
            *nodes += s->nodes;
            if (found != FX_FOUND_UNKNOWN)
                return found;
        }
    return FX_FOUND_UNKNOWN;
}

fx_status fx_place_search(const fx_blocks *b, int64_t capacity, int64_t nodes_max, int64_t *address, fx_found *found,
                          int64_t *nodes) {
    *nodes = 0;
    *found = FX_FOUND_UNKNOWN;
    if (!fx_blocks_sane(b) || b->count > FX_SEARCH_BLOCKS_MAX || capacity < 0)
        return FX_ERR_PARAMS;
    const size_t n = (size_t)b->count;
    search s = {.count = b->count, .capacity = capacity, .bytes = b->bytes};
    s.begin = calloc((n + 1) * 5, sizeof *s.begin);
    event *events = malloc((n + 1) * 2 * sizeof *events);
    if (!s.begin || !events) {
        free(s.begin), free(events);
        return FX_ERR_MEMORY;
    }
    s.end = s.begin + n;
    int32_t *meet_count = s.end + n, *begun = meet_count + n, *ended = begun + n + 1;
    s.sections = cut_sections(b, events, s.begin, s.end);
    free(events);
    int64_t members = 0;
    for (size_t i = 0; i < n; i++)
        members += s.end[i] - s.begin[i];
    const int64_t pairs = count_meets(&s, begun, ended, meet_count);
    fx_status status = FX_OK;
    char *memory = NULL;
    limit_room(&s, members, nodes_max);
    if (pairs <= PAIRS_MAX) { /* else nothing is found */
        int64_t zeroed;
        memory = malloc((size_t)lay_out(&s, NULL, pairs, members, &zeroed) + 1);
        if (memory) {
            memset(memory, 0, (size_t)zeroed);
            lay_out(&s, memory, pairs, members, &zeroed);
            fill(&s, b, meet_count);
            *found = take_turns(&s, nodes_max, nodes);
            if (*found == FX_FOUND_SOME)
                memcpy(address, s.solution, n * sizeof *address);
        } else
            status = FX_ERR_MEMORY;
    }
    free(memory), free(s.begin);
    return status;
}
