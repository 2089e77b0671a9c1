/* The forward pass of RNNs: see recurrent_cell.h. While training, the gates are kept in the reserve for the
 * gradient. */
#ifndef PLK_RECURRENT_FORWARD_H
#define PLK_RECURRENT_FORWARD_H
#include "engine/core/scratch.h"
#include "recurrent_cell.h"

/* The forward pass of one cell; shared by its threads. */
typedef struct {
    const sizes *s;
    blocks to;
    const real *x, *w, *u, *proj, *b, *bu, *h0, *c0;
    const int64_t *lengths;
    int64_t inputs;
    real *packed_w, *packed_u, *packed_proj, *bias, *states;
    int reverse, by_rows, n_pieces;
    int64_t step;                                /* of the current region */
} forward_pass;

/* Separate short loops over a whole chunk: the processor overlaps their iterations. */
static void sigmoids(real *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = sigmoid(x[i]);
}
static void tangents(real *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = tangent(x[i]);
}

/* Rows [row, row + n_rows) of `width` hidden units from unit j on, at step t. z: the products of the last states h
 * with u, (gate, CHUNK, PLK_PANEL). */
static inline __attribute__((always_inline)) void forward_rows(const forward_pass *a, int64_t t, int64_t row,
                                                               int64_t n_rows, int64_t j, int64_t width,
                                                               real (*z)[CHUNK * PLK_PANEL], const real *h,
                                                               const real *c)
{
    const sizes *s = a->s;
    int64_t n = s->p->hidden, n_out = s->p->out, line = t * s->p->batch + row, all = n_rows * PLK_PANEL;
    real *gates = a->to.gates + line * s->rows + j, *extra = a->to.extra + line * n + j;
    real *out = (s->projected ? a->to.wide : a->to.out) + line * n + j;
    const limits clip = limits_of(s->p);
    for (int g = 0; g < s->n_gates && !(s->gru && g == 2); g++)
        for (int64_t r = 0; r < n_rows; r++)
            for (int64_t i = 0; i < width; i++)
                z[g][r * PLK_PANEL + i] += gates[r * s->rows + g * n + i] + a->bias[g * n + j + i];
    if (s->lstm) {
        real hidden[CHUNK * PLK_PANEL] = {0};
        sigmoids(z[0], all);
        sigmoids(z[1], all);
        tangents(z[2], all);
        sigmoids(z[3], all);
        for (int64_t r = 0; r < n_rows; r++) {
            const real *last = c + (row + r) * n + j;
#pragma GCC ivdep
            for (int64_t i = 0; i < width; i++) {
                int64_t at = r * PLK_PANEL + i;
                hidden[at] = extra[r * n + i] = limited(clip, z[1][at] * last[i] + z[0][at] * z[2][at]);
            }
        }
        tangents(hidden, all);
        for (int64_t r = 0; r < n_rows; r++)
            for (int64_t i = 0; i < width; i++)
                out[r * n + i] = z[3][r * PLK_PANEL + i] * hidden[r * PLK_PANEL + i];
    } else if (s->gru) {
        sigmoids(z[0], all);
        sigmoids(z[1], all);
        for (int64_t r = 0; r < n_rows; r++) {
            const real *g = gates + r * s->rows + 2 * n, *b = a->bias + 2 * n + j, *bu = a->bu + 2 * n + j;
#pragma GCC ivdep
            for (int64_t i = 0; i < width; i++) {
                int64_t at = r * PLK_PANEL + i;
                extra[r * n + i] = z[2][at] + bu[i];
                z[2][at] = g[i] + b[i] + z[0][at] * (z[2][at] + bu[i]);
            }
        }
        tangents(z[2], all);
        for (int64_t r = 0; r < n_rows; r++) {
            const real *last = h + (row + r) * n_out + j;
#pragma GCC ivdep
            for (int64_t i = 0; i < width; i++) {
                real u = z[1][r * PLK_PANEL + i];
                out[r * n + i] = (1 - u) * z[2][r * PLK_PANEL + i] + u * last[i];
            }
        }
    } else {
        if (s->p->mode == PLK_RNN_TANH)
            tangents(z[0], all);
        for (int64_t r = 0; r < n_rows; r++)
            for (int64_t i = 0; i < width; i++) {
                real v = z[0][r * PLK_PANEL + i];
                /* keeps NaN */
                z[0][r * PLK_PANEL + i] = out[r * n + i] = s->p->mode == PLK_RNN_RELU && v < 0 ? 0 : v;
            }
    }
    for (int g = 0; g < s->n_gates && s->p->keep; g++)
        for (int64_t r = 0; r < n_rows; r++)
            memcpy(gates + r * s->rows + g * n, z[g] + r * PLK_PANEL, sizeof(real) * (size_t)width);
}

/* One thread's hidden units, for step t from the states h (batch, out). */
static void forward_units(const forward_pass *a, part q, int64_t t, const real *h, const real *c)
{
    const sizes *s = a->s;
    int64_t n = s->p->hidden, n_out = s->p->out, panel = n_out * PLK_PANEL;
    real z[MAX_GATES][CHUNK * PLK_PANEL];
    for (int64_t j = q.column; j < q.column_end; j += PLK_PANEL)
        for (int64_t row = q.row; row < q.row_end; row += CHUNK) {
            int64_t some = q.row_end - row < CHUNK ? q.row_end - row : CHUNK,
                    width = n - j < PLK_PANEL ? n - j : PLK_PANEL;
            for (int g = 0; g < s->n_gates; g++)
                plk_panel_matmul(some, n_out, plk_rows(h + row * n_out, n_out),
                                  a->packed_u + (j / PLK_PANEL * s->n_gates + g) * panel, z[g], 0);
            if (width == PLK_PANEL)
                forward_rows(a, t, row, some, j, PLK_PANEL, z, h, c);
            else
                forward_rows(a, t, row, some, j, width, z, h, c);
        }
}

/* out = wide times the projection, for one thread's columns of the states. */
static void project(const forward_pass *a, part q, int64_t t)
{
    const plk_rnn *p = a->s->p;
    int64_t n = p->hidden, n_out = p->out, line = t * p->batch + q.row;
    plk_matmul_rows(q.row_end - q.row, q.column_end - q.column, n, plk_rows(a->to.wide + line * n, n),
                a->packed_proj + q.column * n, a->to.out + line * n_out + q.column, n_out, 0);
}

/* Rows whose sequence has ended output zeros and keep their states. next: the states after step t. */
static void hold(const forward_pass *a, part q, int64_t t, const real *h, real *next)
{
    int64_t n = a->s->p->out;
    for (int64_t r = q.row; r < q.row_end; r++) {
        real *out = a->to.out + (t * a->s->p->batch + r) * n;
        int running = t < a->lengths[r];
        for (int64_t j = q.column; j < q.column_end; j++) {
            next[r * n + j] = running ? out[j] : h[r * n + j];
            out[j] = running ? out[j] : 0;
        }
    }
}

static void hold_cells(const forward_pass *a, part q, int64_t t, const real *c)
{
    int64_t n = a->s->p->hidden;
    for (int64_t r = q.row; r < q.row_end; r++)
        if (t >= a->lengths[r])
            memcpy(a->to.extra + (t * a->s->p->batch + r) * n + q.column, c + r * n + q.column,
                   sizeof(real) * (size_t)(q.column_end - q.column));
}

static void pack_w_piece(void *arg, int64_t panel)
{
    const forward_pass *a = arg;
    int64_t j = panel * PLK_PANEL, k = a->inputs;
    plk_pack_lines(a->packed_w + j * k, a->w + j * k, k, a->s->rows - j, k);
}

static void inputs_piece(void *arg, int64_t piece)
{
    const forward_pass *a = arg;
    int64_t k = a->inputs, rows = a->s->rows, begin, end;
    plk_share(a->s->lines, PLK_TILE, (int)piece, a->n_pieces, &begin, &end);
    plk_matmul_rows(end - begin, rows, k, plk_rows(a->x + begin * k, k), a->packed_w, a->to.gates + begin * rows, rows,
                     0);
}

/* The products of w with the inputs of all steps, without bias. */
static void forward_inputs(forward_pass *a)
{
    int n_threads = plk_gemm_threads(a->s->lines, a->s->rows, a->inputs);
    a->n_pieces = n_threads > 1 ? PIECES * n_threads : 1;
    pl_thread_pool_run(n_threads, plk_panels(a->s->rows), pack_w_piece, a);
    pl_thread_pool_run(n_threads, a->n_pieces, inputs_piece, a);
}

/* Packs a panel of one gate of u; then come those of the projection. */
static void pack_u_piece(void *arg, int64_t i)
{
    const forward_pass *a = arg;
    const sizes *s = a->s;
    int64_t n = s->p->hidden, n_out = s->p->out, n_panels = plk_panels(n) * s->n_gates;
    int64_t j = (i < n_panels ? i / s->n_gates : i - n_panels) * PLK_PANEL;
    if (i < n_panels)
        plk_pack_lines(a->packed_u + i * n_out * PLK_PANEL, a->u + (i % s->n_gates * n + j) * n_out, n_out, n - j,
                       n_out);
    else
        plk_pack_lines(a->packed_proj + j * n, a->proj + j * n, n, n_out - j, n);
}

static int64_t time_of(const forward_pass *a, int64_t i) { return a->reverse ? a->s->p->steps - 1 - i : i; }

/* The states after step i; -1: before the first one. */
static real *states_after(const forward_pass *a, int64_t i)
{
    if (a->lengths)
        return a->states + i % 2 * a->s->state;
    return a->to.out + time_of(a, i) * a->s->state;
}
static const real *states_before(const forward_pass *a, int64_t i) { return i ? states_after(a, i - 1) : a->h0; }
static const real *cells_before(const forward_pass *a, int64_t i)
{
    return !i ? a->c0 : a->s->lstm ? a->to.extra + time_of(a, i - 1) * a->s->cell : NULL;
}

static void units_piece(void *arg, int64_t piece)
{
    const forward_pass *a = arg;
    part mine = part_of(a->s, a->s->p->hidden, a->by_rows, piece, a->n_pieces);
    forward_units(a, mine, time_of(a, a->step), states_before(a, a->step), cells_before(a, a->step));
}

/* After the units: the projection, and rows whose sequence has ended. */
static void end_step(const forward_pass *a, int64_t i, int64_t piece)
{
    const sizes *s = a->s;
    part mine = part_of(s, s->p->hidden, a->by_rows, piece, a->n_pieces);
    part mine_out = part_of(s, s->p->out, a->by_rows, piece, a->n_pieces);
    if (s->projected)
        project(a, mine_out, time_of(a, i));
    if (a->lengths) {
        hold(a, mine_out, time_of(a, i), states_before(a, i), states_after(a, i));
        if (s->lstm)
            hold_cells(a, mine, time_of(a, i), cells_before(a, i));
    }
}

static void end_piece(void *arg, int64_t piece)
{
    const forward_pass *a = arg;
    end_step(a, a->step, piece);
}

static void step_piece(void *arg, int64_t piece)
{
    units_piece(arg, piece);
    end_piece(arg, piece);
}

/* All steps of some rows. */
static void rows_piece(void *arg, int64_t piece)
{
    forward_pass mine = *(const forward_pass *)arg;
    for (mine.step = 0; mine.step < mine.s->p->steps; mine.step++)
        step_piece(&mine, piece);
}

/* All steps. Returns the last states. */
static const real *forward_steps(forward_pass *a, int n_threads)
{
    const sizes *s = a->s;
    a->n_pieces = n_threads;
    pl_thread_pool_run(n_threads, plk_panels(s->p->hidden) * s->n_gates + (s->projected ? plk_panels(s->p->out) : 0),
                pack_u_piece, a);
    if (a->by_rows)
        pl_thread_pool_run(n_threads, n_threads, rows_piece, a);
    else
        for (a->step = 0; a->step < s->p->steps; a->step++) {
            pl_thread_pool_run(n_threads, n_threads, s->projected ? units_piece : step_piece, a);
            if (s->projected)
                pl_thread_pool_run(n_threads, n_threads, end_piece, a);
        }
    return states_before(a, s->p->steps);
}

/* The float32 random numbers are first stored in the upper part of the mask. */
static void draw_mask(const sizes *s, int64_t layer, real *mask, const double *scalars)
{
    plk_random uniform = {.n = s->mask, .dtype = PLK_F32, .b = 1};
    /* each layer has its own stream */
    double stream[2] = {scalars[0], scalars[1] + 0x1p40 * (double)(layer + 1)};
    char *drawn = (char *)(mask + s->mask) - s->mask * 4;
    void *bufs[1] = {drawn};
    plk_random_uniform(&uniform, bufs, stream);
    real scale = (real)(1 / (1 - s->p->p));
    for (int64_t i = 0; i < s->mask; i++) {
        float u;
        memcpy(&u, drawn + i * 4, 4);
        mask[i] = u >= (float)s->p->p ? scale : 0;
    }
}

/* bufs: data, parameters, state, state_cell of lstm, sequence_length if used, y, last states if asked for, reserve.
 * scalars: seed, call */
static int forward(const plk_rnn *p, void *const *bufs, const double *scalars)
{
    sizes s = sizes_of(p);
    int at = 3;
    const real *weights = bufs[1], *states = bufs[2], *cells = s.lstm ? bufs[at++] : NULL;
    const void *lengths = p->lengths ? bufs[at++] : NULL;
    forward_pass a = {.s = &s, .x = bufs[0]};
    real *y = bufs[at++], *last = p->state_outputs ? bufs[at++] : NULL;
    real *last_cell = p->state_outputs && s.lstm ? bufs[at++] : NULL, *reserve = bufs[at], *joined = NULL, *outs[2][2],
         *counts = NULL;
    int64_t packed_u = plk_padded(p->hidden) * s.n_gates * p->out, k = most_inputs(&s);
    blocks kept, below[2], here[2];
    arena r = {NULL, 0};
    for (int counted = 0; counted < 2; counted++) {
        if (counted && !(r.at = pl_scratch(r.used)))
            return pl_fail(PL_ENOMEM, "out of memory for an RNN");
        r.used = 0;
        a.packed_w = take(&r, plk_padded(s.rows) * k);
        a.packed_u = take(&r, packed_u);
        a.packed_proj = take(&r, s.projected ? plk_padded(p->out) * p->hidden : 0);
        a.bias = take(&r, s.rows);
        counts = take(&r, p->lengths ? p->batch * 2 : 0);
        a.states = take(&r, p->lengths ? 2 * s.state : 0);
        joined = take(&r, p->layers > 1 && (s.mask || p->directions > 1) ? s.lines * p->out * p->directions : 0);
        kept = blocks_at(&s, take(&r, p->keep ? 0 : s.per_cell - s.lines * p->out));
        for (int i = 0; i < 4; i++)
            outs[i / 2][i % 2] = take(&r, p->keep ? 0 : s.lines * p->out);
    }
    a.lengths = lengths_of(p, lengths, (int64_t *)counts);
    int n_threads = team(&s, packed_u, &a.by_rows);
    for (int64_t layer = 0; layer < p->layers; layer++, memcpy(below, here, sizeof here)) {
        real *mask = layer && s.mask ? reserve + (layer - 1) * s.mask : NULL;
        if (mask)
            draw_mask(&s, layer, mask, scalars);
        if (layer)
            a.x = below[0].out;
        if (layer && (mask || p->directions > 1)) {
            join(&s, below, mask, joined);
            a.x = joined;
        }
        for (int d = 0; d < p->directions; d++) {
            int64_t i = layer * p->directions + d;
            here[d] = p->keep ? blocks_of(&s, reserve, i) : kept;
            if (!p->keep)
                here[d].out = outs[layer % 2][d];
            a.to = here[d];
            a.inputs = inputs_of(&s, i);
            a.w = weights + weights_at(&s, i);
            a.u = a.w + s.rows * a.inputs;
            a.proj = a.u + s.rows * p->out;
            a.b = weights + biases_at(&s, i);
            a.bu = a.b + s.rows;
            a.h0 = states + i * s.state;
            a.c0 = cells ? cells + i * s.cell : NULL;
            a.reverse = d;
            for (int64_t j = 0; j < s.rows; j++)
                a.bias[j] = a.b[j] + (s.gru && j >= 2 * p->hidden ? 0 : a.bu[j]);
            forward_inputs(&a);
            const real *end = forward_steps(&a, n_threads);
            if (last)
                memcpy(last + i * s.state, end, sizeof(real) * (size_t)s.state);
            if (last_cell)
                memcpy(last_cell + i * s.cell, a.to.extra + (d ? 0 : p->steps - 1) * s.cell,
                       sizeof(real) * (size_t)s.cell);
        }
    }
    join(&s, below, NULL, y);
    if (p->keep)
        memset(reserve + (p->layers - 1) * s.mask + s.n_cells * s.per_cell, 0, sizeof(real) * (size_t)p->spare);
    return PL_OK;
}
#endif
