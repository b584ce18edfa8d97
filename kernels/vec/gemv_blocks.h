/* Products of a few rows with weights whose form has blocks: gemv.c includes it. Among several rows a weight is scaled
 * once for all of them. With one row the products of a block are added up first, as they are stored, and their sum is
 * scaled; what the minimum adds is the block's minimum times the sum of the row's values. */

/* The next n channels, at most FX_GROUP, from row[i] on, which moves past them. */
FX_INLINE void add_group(fx_v (*sum)[STEPS][VECTORS], blocks *b, const float **row, const int n, const int R,
                         const int chains, const int wtype) {
    fx_v w[VECTORS];
    begin_group(b, wtype);
    FX_UNROLL for (int s = 0; s < FX_GROUP; s++) {
        if (s == n)
            break;
        load_scaled(w, b, s, wtype);
        FX_UNROLL for (int i = 0; i < R; i++) FX_UNROLL for (int j = 0; j < VECTORS; j++) sum[i][s % chains][j] +=
            w[j] * row[i][s];
    }
    FX_UNROLL for (int i = 0; i < R; i++) row[i] += n;
    end_group(b, wtype);
}

FX_INLINE blocks first_block(const fx_gemv *g, const float *panel) {
    return (blocks){.from = (const unsigned char *)(panel + g->head),
                    .scale = (const unsigned char *)(panel + g->scales),
                    .minimum = (const unsigned char *)(panel + g->minimum)};
}

/* Asks for what follows the next `rows` weights of each channel. */
FX_INLINE void ask_ahead(const unsigned char *from, const int rows, const int wtype) {
    const int bytes = (int)(rows * FX_NR * fx_weight_forms[wtype].bits / 8);
    FX_UNROLL for (int line = 0; line < bytes; line += 64) {
        __builtin_prefetch(from + (FX_ISA_NEON ? 4096 : 16384) + line, 0, 2);
        if (!FX_ISA_NEON)
            __builtin_prefetch(from + 768 + line);
    }
}

FX_INLINE void multiply_blocks(const fx_gemv *g, const float *panel, int32_t column, const int R, const int chains,
                               const int wtype) {
    fx_v sum[FX_FEW_ROWS][STEPS][VECTORS];
    blocks b = first_block(g, panel);
    const int32_t block = fx_weight_forms[wtype].block;
    int32_t left = 0; /* channels of the block that follow */
    FX_UNROLL for (int i = 0; i < R; i++) FX_UNROLL for (int s = 0; s < chains; s++)
        FX_UNROLL for (int j = 0; j < VECTORS; j++) sum[i][s][j] = fx_splat(0);
    for (int32_t q0 = 0; q0 < g->k; q0 += g->block) {
        const int32_t n = g->k - q0 < g->block ? g->k - q0 : g->block;
        const float *const *a = g->a;
        for (int32_t t = 0; t < g->taps; t++, a += R) {
            const float *row[FX_FEW_ROWS];
            FX_UNROLL for (int i = 0; i < R; i++) row[i] = a[i] + q0;
            for (int32_t q = 0; q < n; q += FX_GROUP, left -= FX_GROUP) {
                if (left == 0)
                    next_block(&b, wtype), left = block;
                ask_ahead(b.from, FX_GROUP, wtype);
                if (n - q >= FX_GROUP)
                    add_group(sum, &b, row, FX_GROUP, R, chains, wtype);
                else
                    add_group(sum, &b, row, n - q, R, chains, wtype);
            }
        }
    }
    FX_UNROLL for (int i = 0; i < R; i++) FX_UNROLL for (int j = 0; j < VECTORS; j++) {
        FX_UNROLL for (int s = chains; s > 1; s /= 2) FX_UNROLL for (int l = 0; l < s / 2; l++) sum[i][l][j] +=
            sum[i][l + s / 2][j];
        finish(g, panel, column, i, j, wtype, sum[i][0][j]);
    }
}

/* Blocks of a row whose sums are kept: 32768 channels. */
#define ROW_BLOCKS 1024

/* The sums of the row's blocks. */
static void sum_blocks(float *sums, const float *row, int32_t k, int32_t block) {
    for (int32_t q = 0; q < k; q += block) {
        fx_v sum = fx_splat(0);
        const int32_t end = k - q < block ? k : q + block;
        for (int32_t i = q; i < end; i += FX_WIDTH)
            sum += fx_load_below(row, i, end);
        sums[q / block] = fx_lanes_sum(sum);
    }
}

/* Sums of FX_GROUP channels in turn, times the row's values, as the weights are stored. */
FX_INLINE void add_stored(fx_v (*sum)[VECTORS], const unsigned char *from, const float *row, const int wtype) {
    fx_v w[VECTORS];
    FX_UNROLL for (int s = 0; s < FX_GROUP; s++) {
        load_of_group(w, from, s, wtype);
        FX_UNROLL for (int j = 0; j < VECTORS; j++) sum[s % STEPS][j] += w[j] * row[s];
    }
}

/* The same of 4 bits, which count from 0 here: those with a sign are 8 less. They are not moved to the lane's end, so
 * that sum s is one of weights times 16^s. */
FX_INLINE void add_in_place(fx_v (*sum)[VECTORS], const unsigned char *from, const float *row, const int has_sign) {
    FX_UNROLL for (int j = 0; j < VECTORS; j++) {
        const fx_vw stored = fx_bits(fx_load((const float *)from + j * FX_WIDTH));
        const fx_vw low = has_sign ? stored ^ 0x88888888u : stored, high = low >> 16;
        FX_UNROLL for (int s = 0; s < STEPS; s++) {
            const uint32_t mask = 15u << 4 * s;
            sum[s][j] += __builtin_convertvector((fx_vi)(low & mask), fx_v) * row[s];
            sum[s][j] += __builtin_convertvector((fx_vi)(high & mask), fx_v) * row[STEPS + s];
        }
    }
}

/* The row's values, as if they were others. AVX2 broadcasts them from memory at no cost; gcc would keep those of one
 * vector for the next, in more registers than there are. */
FX_INLINE const float *read_anew(const float *row) {
    if (FX_ISA_AVX2)
        __asm__ volatile("" : "+r"(row));
    return row;
}

/* The same as add_in_place of groups that share upper bits, FX_GROUP weights of each: bytes are made of the lower and
 * the upper bits, so that sum s is one of weights times 256^s. Those with a sign are half of what the bits hold less.
 */
FX_INLINE void add_bytes_in_place(fx_v (*sum)[VECTORS], const unsigned char *from, const float *row, const int bits,
                                  const int has_sign) {
    const int u = bits - 4, groups = fx_groups_of(bits);
    const uint32_t of_upper = u == 1 ? 0x10101010u : 0x30303030u;
    FX_UNROLL for (int j = 0; j < VECTORS; j++) {
        const float *values = read_anew(row);
        const fx_vw stored = fx_bits(fx_load((const float *)(from + groups * GROUP_BYTES) + j * FX_WIDTH));
        const fx_vw upper = has_sign ? stored ^ (u == 1 ? 0xffffffffu : 0xaaaaaaaau) : stored;
        FX_UNROLL for (int g = 0; g < groups; g++) {
            const fx_vw low = fx_bits(fx_load((const float *)(from + g * GROUP_BYTES) + j * FX_WIDTH));
            const fx_vw even = (low & 0x0f0f0f0fu) | (upper << (4 - u * g) & of_upper);
            const fx_vw odd = (low >> 4 & 0x0f0f0f0fu) | (upper >> u * g & of_upper);
            FX_UNROLL for (int s = 0; s < STEPS; s++) {
                const uint32_t mask = 255u << 8 * s;
                const float *x = values + g * FX_GROUP + 2 * s;
                sum[s][j] += __builtin_convertvector((fx_vi)(even & mask), fx_v) * x[0];
                sum[s][j] += __builtin_convertvector((fx_vi)(odd & mask), fx_v) * x[1];
            }
        }
    }
}

/* Integers that are multiplied where they lie, and count from 0. For 4 bits AVX-512 has the permutation of fx_nibble.
 */
FX_INLINE int is_in_place(const int wtype) {
    const int bits = fx_weight_forms[wtype].bits;
    return bits < 8 && (bits > 4 || !FX_ISA_AVX512);
}

/* The weights of FX_GROUP channels, or of all groups that share upper bits; `b` moves past them. */
FX_INLINE void add_groups(fx_v (*sum)[VECTORS], blocks *b, const float *row, const int wtype) {
    const int bits = fx_weight_forms[wtype].bits, has_sign = !fx_weight_forms[wtype].minimum;
    const int rows = FX_GROUP * fx_groups_of(bits);
    ask_ahead(b->from, rows, wtype);
    if (HAS_UPPER(wtype))
        add_bytes_in_place(sum, b->from, row, bits, has_sign);
    else if (is_in_place(wtype))
        add_in_place(sum, b->from, row, has_sign);
    else
        add_stored(sum, b->from, row, wtype);
    b->from += fx_weights_bytes(wtype, (int64_t)rows * FX_NR);
}

/* A block of the row's values from `row` on, whose sum is `of_row`. */
FX_INLINE void add_block(fx_v *total, blocks *b, const float *row, float of_row, const int wtype) {
    const fx_weight_form form = fx_weight_forms[wtype];
    const int in_place = is_in_place(wtype), has_sign = !form.minimum;
    fx_v sum[STEPS][VECTORS];
    FX_UNROLL for (int s = 0; s < STEPS; s++) FX_UNROLL for (int j = 0; j < VECTORS; j++) sum[s][j] = fx_splat(0);
    const int rows = FX_GROUP * fx_groups_of(form.bits);
    FX_UNROLL for (int i = 0; i < form.block; i += rows) add_groups(sum, b, row + i, wtype);
    FX_UNROLL for (int j = 0; j < VECTORS; j++) {
        const float unit = !in_place ? 1 : form.bits == 4 ? 0x1p-4f : 0x1p-8f, units = unit * unit;
        fx_v all = (sum[0][j] + sum[1][j] * unit) + (sum[2][j] + sum[3][j] * unit) * units;
        if (in_place && has_sign)
            all -= (float)(1 << (form.bits - 1)) * of_row;
        total[j] += all * b->scales[j];
    }
}

/* The last channels of the row, less than a block. */
FX_INLINE void add_rest(fx_v *total, blocks *b, const float *row, int32_t n, const int wtype) {
    fx_v sum[VECTORS], w[VECTORS];
    FX_UNROLL for (int j = 0; j < VECTORS; j++) sum[j] = fx_splat(0);
    for (; n > 0; n -= FX_GROUP, row += FX_GROUP, b->from += fx_weights_bytes(wtype, FX_GROUP * FX_NR))
        FX_UNROLL for (int s = 0; s < FX_GROUP; s++) {
            if (s >= n)
                break;
            load_of_group(w, b->from, s, wtype);
            FX_UNROLL for (int j = 0; j < VECTORS; j++) sum[j] += w[j] * row[s];
        }
    FX_UNROLL for (int j = 0; j < VECTORS; j++) total[j] += sum[j] * b->scales[j];
}

/* Whether the sums of the row's blocks are needed. */
FX_INLINE int needs_totals(const int wtype) {
    return fx_weight_forms[wtype].minimum || is_in_place(wtype);
}

/* One row and one tap. */
FX_INLINE void multiply_row(const fx_gemv *g, const float *panel, int32_t column, const float *totals,
                            const int wtype) {
    fx_v total[VECTORS];
    blocks b = first_block(g, panel);
    const int block = fx_weight_forms[wtype].block;
    const float *row = g->a[0];
    FX_UNROLL for (int j = 0; j < VECTORS; j++) total[j] = fx_splat(0);
    for (int32_t q = 0; q < g->k; q += block) {
        next_block(&b, wtype);
        if (fx_weight_forms[wtype].minimum)
            FX_UNROLL for (int j = 0; j < VECTORS; j++) total[j] += b.minima[j] * totals[q / block];
        if (HAS_UPPER(wtype) || fx_weight_forms[wtype].shared || g->k - q >= block) /* some are always whole */
            add_block(total, &b, row + q, needs_totals(wtype) ? totals[q / block] : 0, wtype);
        else
            add_rest(total, &b, row + q, g->k - q, wtype);
    }
    FX_UNROLL for (int j = 0; j < VECTORS; j++) finish(g, panel, column, 0, j, wtype, total[j]);
}

static int is_one_row(const fx_gemv *g) {
    const int32_t block = fx_weight_forms[g->wtype].block;
    return block && g->all_rows == 1 && g->taps == 1 && (g->k - 1) / block < ROW_BLOCKS;
}

#define GEMV_ROW(FORM)                                                                                                 \
    case FX_WTYPE_##FORM:                                                                                              \
        for (; column < g->columns; column += FX_NR, panel += g->w_panel)                                              \
            multiply_row(g, panel, column, totals, FX_WTYPE_##FORM);                                                   \
        return;

static void gemv_row(const fx_gemv *g) {
    float totals[ROW_BLOCKS];
    const float *panel = g->w;
    int32_t column = 0;
    if (needs_totals(g->wtype))
        sum_blocks(totals, g->a[0], g->k, fx_weight_forms[g->wtype].block);
    switch (g->wtype) { FX_BLOCK_FORMS(GEMV_ROW) }
}
