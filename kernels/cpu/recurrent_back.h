/* Backpropagation through time: see recurrent_cell.h. The steps run backwards and store the gradients of all
 * pre-activations; the gradients of weights and inputs are then matrix products over all steps at once.
 *
 * dz, the gradients of pre-activations, are stored in panels of hidden units, (gate, panel, line, PLK_PANEL), which can
 * be the left operand by lines and by gates. gru has a fourth part: the gradient of the h2h part of the new gate. */
#ifndef PLK_RECURRENT_BACK_H
#define PLK_RECURRENT_BACK_H
#include "engine/core/scratch.h"
#include "recurrent_cell.h"

/* The backward pass of one cell; shared by its threads. */
typedef struct {
    const sizes *s;
    blocks of;
    const real *x, *w, *u, *proj, *h0, *c0, *dy;
    const int64_t *lengths;
    int64_t inputs, part;                                 /* part: elements of dz for one gate */
    real *packed_w, *packed_u, *packed_proj, *packed_x, *packed_h, *packed_wide;
    real *dz, *dh, *dc, *dout;                            /* dout: of all outputs, in panels, if projected */
    real *dx, *dw, *db;                                   /* results; the second direction adds to dx */
    int direction, by_rows, n_pieces;
    int64_t step;                                         /* of the current region */
} back_pass;

static inline int running(const back_pass *a, int64_t t, int64_t row) { return !a->lengths || t < a->lengths[row]; }

/* `width` hidden units of one row. d: gradient of the output; by: the part of the gradient of the state that does not
 * go through u. dz: gate after gate */
static inline __attribute__((always_inline)) void back_row(const back_pass *a, int64_t width, const real *g,
                                                           const real *extra, const real *h, const real *c, real *dz,
                                                           real *dc, const real *d, real *by)
{
    const plk_rnn *p = a->s->p;
    int64_t n = p->hidden, gate = a->part;
    if (a->s->lstm) {
        const limits clip = limits_of(p);
        const int clipped = p->clip;
#pragma GCC ivdep
        for (int64_t j = 0; j < width; j++) {
            real in = g[j], forget = g[n + j], v = g[2 * n + j], o = g[3 * n + j], t = tangent(extra[j]);
            real raw = forget * c[j] + in * v, dcell = d[j] * o * (1 - t * t) + dc[j];
            dcell = !clipped || limited(clip, raw) == raw ? dcell : 0;
            dz[j] = dcell * v * in * (1 - in);
            dz[gate + j] = dcell * c[j] * forget * (1 - forget);
            dz[2 * gate + j] = dcell * in * (1 - v * v);
            dz[3 * gate + j] = d[j] * t * o * (1 - o);
            dc[j] = dcell * forget;
            by[j] = 0;
        }
    } else if (a->s->gru) {
#pragma GCC ivdep
        for (int64_t j = 0; j < width; j++) {
            real r = g[j], u = g[n + j], v = g[2 * n + j], dv = d[j] * (1 - u) * (1 - v * v);
            dz[j] = dv * extra[j] * r * (1 - r);
            dz[gate + j] = d[j] * (h[j] - v) * u * (1 - u);
            dz[2 * gate + j] = dv;
            dz[3 * gate + j] = dv * r;
            by[j] = d[j] * u;
        }
    } else {
        int is_tanh = p->mode == PLK_RNN_TANH;
#pragma GCC ivdep
        for (int64_t j = 0; j < width; j++) {
            dz[j] = d[j] * (is_tanh ? 1 - g[j] * g[j] : g[j] > 0 ? (real)1 : (real)0);
            by[j] = 0;
        }
    }
}

/* One thread's columns of the outputs' gradients at step t: dh + dy. Rows whose sequence has ended pass dh on. */
static void back_outputs(const back_pass *a, part q, int64_t t)
{
    const plk_rnn *p = a->s->p;
    int64_t n = p->out;
    for (int64_t r = q.row; r < q.row_end; r++)
        for (int64_t j = q.column; j < q.column_end; j += PLK_PANEL) {
            int64_t line = t * p->batch + r, width = n - j < PLK_PANEL ? n - j : PLK_PANEL;
            const real *dy = a->dy + (line * p->directions + a->direction) * n + j;
            real *dh = a->dh + r * n + j, *to = a->dout + j * a->s->lines + line * PLK_PANEL;
            int on = running(a, t, r);
            memset(to, 0, sizeof(real) * PLK_PANEL);
            for (int64_t i = 0; i < width && on; i++) {
                to[i] = dy[i] + dh[i];
                dh[i] = 0;
            }
        }
}

/* The gradients of pre-activations of one thread's hidden units at step t; `before`: the step before it in the forward
 * pass, -1: none. */
static void back_units(const back_pass *a, part q, int64_t t, int64_t before)
{
    const sizes *s = a->s;
    const plk_rnn *p = s->p;
    int64_t n = p->hidden, lines = s->lines;
    real d[CHUNK * PLK_PANEL], unused[PLK_PANEL];
    for (int64_t row = q.row; row < q.row_end; row += CHUNK)
        for (int64_t j = q.column; j < q.column_end; j += PLK_PANEL) {
            int64_t some = q.row_end - row < CHUNK ? q.row_end - row : CHUNK,
                    width = n - j < PLK_PANEL ? n - j : PLK_PANEL;
            if (s->projected)
                plk_panel_matmul(some, p->out, plk_panelled(a->dout + (t * p->batch + row) * PLK_PANEL, lines),
                                  a->packed_proj + j * p->out, d, 0);
            for (int64_t i = 0; i < some; i++) {
                int64_t r = row + i, line = t * p->batch + r, at = r * n + j;
                real *dz = a->dz + j * lines + line * PLK_PANEL, *by = s->projected ? unused : a->dh + at;
                if (width < PLK_PANEL || !running(a, t, r))
                    for (int g = 0; g < s->n_gates + s->gru; g++)
                        memset(dz + g * a->part, 0, sizeof(real) * PLK_PANEL);
                if (!running(a, t, r))
                    continue;
                const real *dy = a->dy + (line * p->directions + a->direction) * n + j;
                for (int64_t e = 0; e < width && !s->projected; e++)
                    d[i * PLK_PANEL + e] = dy[e] + by[e];
                const real *h = before >= 0 && running(a, before, r) ? a->of.out + (before * p->batch + r) * p->out + j
                                                                    : a->h0 + r * p->out + j;
                const real *c = !s->lstm ? NULL
                    : before >= 0        ? a->of.extra + (before * p->batch + r) * n + j
                                         : a->c0 + at;
                const real *g = a->of.gates + line * s->rows + j, *extra = a->of.extra + line * n + j;
                real *dc = a->dc ? a->dc + at : NULL;
                if (width == PLK_PANEL)
                    back_row(a, PLK_PANEL, g, extra, h, c, dz, dc, d + i * PLK_PANEL, by);
                else
                    back_row(a, width, g, extra, h, c, dz, dc, d + i * PLK_PANEL, by);
            }
        }
}

typedef struct { real *to; const real *from; int64_t lines, n; int n_gates; } packing;

static void gate_piece(void *arg, int64_t i)
{
    const packing *k = arg;
    int64_t padded = plk_padded(k->lines), j = i / k->n_gates * PLK_PANEL, g = i % k->n_gates;
    real *at = k->to + j * k->n_gates * padded + g * padded * PLK_PANEL;
    for (int64_t u = 0; u < k->lines; u++)
        plk_pack_line(at + u * PLK_PANEL, k->from + (g * k->lines + u) * k->n + j, k->n - j);
    memset(at + k->lines * PLK_PANEL, 0, sizeof(real) * (size_t)((padded - k->lines) * PLK_PANEL));
}

/* Panels of weights (gates, hidden, n) whose depth runs through the padded gates, as dz does. */
static void pack_gates(int n_threads, real *to, const real *from, int64_t hidden, int n_gates, int64_t n)
{
    pl_thread_pool_run(n_threads, plk_panels(n) * n_gates, gate_piece, &(packing){to, from, hidden, n, n_gates});
}

static void array_piece(void *arg, int64_t panel)
{
    const packing *k = arg;
    int64_t j = panel * PLK_PANEL;
    for (int64_t i = 0; i < k->lines; i++)
        plk_pack_line(k->to + j * k->lines + i * PLK_PANEL, k->from + i * k->n + j, k->n - j);
}

/* Panels of an array (lines, n). */
static void pack_array(int n_threads, real *to, const real *from, int64_t lines, int64_t n)
{
    pl_thread_pool_run(n_threads, plk_panels(n), array_piece, &(packing){to, from, lines, n, 0});
}

/* A panel of the states before every step. */
static void states_piece(void *arg, int64_t panel)
{
    const back_pass *a = arg;
    const plk_rnn *p = a->s->p;
    int64_t n = p->out, j = panel * PLK_PANEL;
    for (int64_t t = 0; t < p->steps; t++)
        for (int64_t r = 0; r < p->batch; r++) {
            int64_t before = a->direction ? t + 1 : t - 1;
            int first = before < 0 || before == p->steps || !running(a, before, r);
            const real *from = first ? a->h0 + r * n : a->of.out + (before * p->batch + r) * n;
            plk_pack_line(a->packed_h + j * a->s->lines + (t * p->batch + r) * PLK_PANEL, from + j, n - j);
        }
}

/* Gates whose inputs and states get the same gradient. */
static int shared_gates(const sizes *s) { return s->gru ? 2 : s->n_gates; }

/* Step number i of the forward pass. */
static int64_t back_time(const back_pass *a, int64_t i) { return a->direction ? a->s->p->steps - 1 - i : i; }

static void outputs_piece(void *arg, int64_t piece)
{
    const back_pass *a = arg;
    if (a->s->projected)
        back_outputs(a, part_of(a->s, a->s->p->out, a->by_rows, piece, a->n_pieces), back_time(a, a->step));
}

static void back_units_piece(void *arg, int64_t piece)
{
    const back_pass *a = arg;
    int64_t t = back_time(a, a->step), before = !a->step ? -1 : a->direction ? t + 1 : t - 1;
    back_units(a, part_of(a->s, a->s->p->hidden, a->by_rows, piece, a->n_pieces), t, before);
}

/* The gradients of the states of the step before. */
static void back_states_piece(void *arg, int64_t piece)
{
    const back_pass *a = arg;
    const sizes *s = a->s;
    int64_t n_out = s->p->out, padded = plk_padded(s->p->hidden), shared = shared_gates(s);
    part out = part_of(s, n_out, a->by_rows, piece, a->n_pieces);
    plk_left dz = plk_panelled(a->dz + (back_time(a, a->step) * s->p->batch + out.row) * PLK_PANEL, s->lines);
    real *dh = a->dh + out.row * n_out + out.column, *packed_new = a->packed_u + plk_padded(n_out) * shared * padded;
    int64_t n_rows = out.row_end - out.row, n_columns = out.column_end - out.column;
    plk_matmul_rows(n_rows, n_columns, shared * padded, dz, a->packed_u + out.column * shared * padded, dh, n_out, 1);
    if (s->gru) {
        dz.at += 3 * a->part;
        plk_matmul_rows(n_rows, n_columns, padded, dz, packed_new + out.column * padded, dh, n_out, 1);
    }
}

/* All steps of some rows. */
static void back_rows_piece(void *arg, int64_t piece)
{
    back_pass mine = *(const back_pass *)arg;
    for (mine.step = mine.s->p->steps - 1; mine.step >= 0; mine.step--) {
        outputs_piece(&mine, piece);
        back_units_piece(&mine, piece);
        back_states_piece(&mine, piece);
    }
}

static void back_steps(back_pass *a, int n_threads)
{
    const sizes *s = a->s;
    int64_t n = s->p->hidden, n_out = s->p->out, padded = plk_padded(n);
    int shared = shared_gates(s);
    pack_gates(n_threads, a->packed_u, a->u, n, shared, n_out);
    if (s->gru)
        pack_gates(n_threads, a->packed_u + plk_padded(n_out) * shared * padded, a->u + 2 * n * n_out, n, 1, n_out);
    if (s->projected)
        pack_array(n_threads, a->packed_proj, a->proj, n_out, n);
    a->n_pieces = n_threads;
    if (a->by_rows) {
        pl_thread_pool_run(n_threads, n_threads, back_rows_piece, a);
        return;
    }
    for (a->step = s->p->steps - 1; a->step >= 0; a->step--) {
        if (s->projected)
            pl_thread_pool_run(n_threads, n_threads, outputs_piece, a);
        pl_thread_pool_run(n_threads, n_threads, back_units_piece, a);
        pl_thread_pool_run(n_threads, n_threads, back_states_piece, a);
    }
}

/* The sums of dz over all lines for one gate. */
static void back_bias(const back_pass *a, const real *dz, int64_t j, int64_t width, real *db)
{
    real sum[PLK_PANEL] = {0};
    for (int64_t i = 0; i < a->s->lines; i++)
        PLK_LANES for (int64_t c = 0; c < PLK_PANEL; c++)
            sum[c] += dz[i * PLK_PANEL + c];
    for (int64_t c = 0; c < width; c++)
        db[j + c] = sum[c];
}

/* One panel of one gate. */
static void back_gate(const back_pass *a, int64_t i)
{
    const sizes *s = a->s;
    int64_t n = s->p->hidden, n_out = s->p->out, k = a->inputs, lines = s->lines, panels = plk_panels(n);
    int64_t g = i / panels, j = i % panels * PLK_PANEL, width = n - j < PLK_PANEL ? n - j : PLK_PANEL, row = g * n + j;
    const real *dz = a->dz + g * a->part + j * lines, *dzu = s->gru && g == 2 ? dz + a->part : dz;
    plk_matmul_rows(width, k, lines, plk_transposed(dz), a->packed_x, a->dw + row * k, k, 0);
    plk_matmul_rows(width, n_out, lines, plk_transposed(dzu), a->packed_h, a->dw + s->rows * k + row * n_out, n_out,
                     0);
    back_bias(a, dz, row, width, a->db);
    back_bias(a, dzu, row, width, a->db + s->rows);
}

/* The panels of all gates, then of the projection, then shares of the lines of dx. */
static void matmuls_piece(void *arg, int64_t i)
{
    const back_pass *a = arg;
    const sizes *s = a->s;
    int64_t n = s->p->hidden, n_out = s->p->out, k = a->inputs, lines = s->lines, begin, end;
    int64_t n_panels = s->n_gates * plk_panels(n), n_projected = s->projected ? plk_panels(n_out) : 0;
    if (i < n_panels) {
        back_gate(a, i);
        return;
    }
    i -= n_panels;
    if (i < n_projected) {
        int64_t j = i * PLK_PANEL;
        real *dproj = a->dw + s->rows * (k + n_out);
        plk_matmul_rows(n_out - j < PLK_PANEL ? n_out - j : PLK_PANEL, n, lines, plk_transposed(a->dout + j * lines),
                         a->packed_wide, dproj + j * n, n, 0);
        return;
    }
    plk_share(lines, PLK_TILE, (int)(i - n_projected), a->n_pieces, &begin, &end);
    plk_matmul_rows(end - begin, k, s->n_gates * plk_padded(n), plk_panelled(a->dz + begin * PLK_PANEL, lines),
                     a->packed_w, a->dx + begin * k, k, a->direction);
}

/* The gradients of a cell's weights, biases and inputs from those of the pre-activations. */
static void back_matmuls(back_pass *a)
{
    const sizes *s = a->s;
    int64_t n = s->p->hidden, n_out = s->p->out, k = a->inputs, lines = s->lines;
    int n_threads = plk_gemm_threads(lines, s->rows, k + n_out);
    pack_gates(n_threads, a->packed_w, a->w, n, s->n_gates, k);
    pack_array(n_threads, a->packed_x, a->x, lines, k);
    pl_thread_pool_run(n_threads, plk_panels(n_out), states_piece, a);
    if (s->projected)
        pack_array(n_threads, a->packed_wide, a->of.wide, lines, n);
    a->n_pieces = n_threads > 1 ? PIECES * n_threads : 1;
    int64_t n_panels = s->n_gates * plk_panels(n) + (s->projected ? plk_panels(n_out) : 0);
    pl_thread_pool_run(n_threads, n_panels + a->n_pieces, matmuls_piece, a);
}

/* bufs: dy, dstate, dstate_cell of lstm, data, parameters, state, state_cell of lstm, sequence_length if used, reserve,
 * dx, dparameters, dstate0, dstate_cell0 of lstm */
static int backward(const plk_rnn *p, void *const *bufs)
{
    sizes s = sizes_of(p);
    void *const *in = bufs + 2 + s.lstm, *const *results = in + 4 + s.lstm + p->lengths;
    const real *weights = in[1], *states = in[2], *cells = s.lstm ? in[3] : NULL;
    back_pass a = {.s = &s, .dy = bufs[0]};
    real *reserve = results[-1], *dparams = results[1], *dstates = results[2], *dcells = s.lstm ? results[3] : NULL;
    int64_t k = most_inputs(&s), padded = plk_padded(p->hidden), wide = s.lines * p->out * p->directions;
    int64_t packed_u = plk_padded(p->out) * s.n_gates * padded;
    real *joined = NULL, *below[2] = {NULL}, *counts = NULL;
    arena r = {NULL, 0};
    for (int counted = 0; counted < 2; counted++) {
        if (counted && !(r.at = pl_scratch(r.used)))
            return pl_fail(PL_ENOMEM, "out of memory for an RNN's gradient");
        r.used = 0;
        a.packed_w = take(&r, plk_padded(k) * s.n_gates * padded);
        a.packed_u = take(&r, packed_u);
        a.packed_proj = take(&r, s.projected ? padded * p->out : 0);
        a.packed_x = take(&r, plk_padded(k) * s.lines);
        a.packed_h = take(&r, plk_padded(p->out) * s.lines);
        a.packed_wide = take(&r, s.projected ? padded * s.lines : 0);
        a.part = padded * s.lines;
        a.dz = take(&r, a.part * (s.n_gates + s.gru));
        a.dout = take(&r, s.projected ? plk_padded(p->out) * s.lines : 0);
        counts = take(&r, p->lengths ? p->batch * 2 : 0);
        joined = take(&r, p->layers > 1 && (s.mask || p->directions > 1) ? wide : 0);
        for (int i = 0; i < 2; i++)
            below[i] = take(&r, i + 1 < p->layers ? wide : 0);
    }
    a.lengths = lengths_of(p, p->lengths ? in[3 + s.lstm] : NULL, (int64_t *)counts);
    int n_threads = team(&s, packed_u, &a.by_rows);
    memcpy(dstates, bufs[1], sizeof(real) * (size_t)(s.n_cells * s.state));
    if (dcells)
        memcpy(dcells, bufs[2], sizeof(real) * (size_t)(s.n_cells * s.cell));
    for (int64_t layer = p->layers - 1; layer >= 0; layer--) {
        const real *mask = layer && s.mask ? reserve + (layer - 1) * s.mask : NULL;
        a.x = in[0];
        a.dx = layer ? below[(p->layers - 1 - layer) % 2] : results[0];
        if (layer) {
            blocks under[2];
            for (int d = 0; d < p->directions; d++)
                under[d] = blocks_of(&s, reserve, (layer - 1) * p->directions + d);
            if (mask || p->directions > 1)
                join(&s, under, mask, joined);
            a.x = mask || p->directions > 1 ? joined : under[0].out;
        }
        for (int d = 0; d < p->directions; d++) {
            int64_t i = layer * p->directions + d;
            a.inputs = inputs_of(&s, i);
            a.of = blocks_of(&s, reserve, i);
            a.w = weights + weights_at(&s, i);
            a.u = a.w + s.rows * a.inputs;
            a.proj = a.u + s.rows * p->out;
            a.h0 = states + i * s.state;
            a.c0 = cells ? cells + i * s.cell : NULL;
            a.dh = dstates + i * s.state;
            a.dc = dcells ? dcells + i * s.cell : NULL;
            a.dw = dparams + weights_at(&s, i);
            a.db = dparams + biases_at(&s, i);
            a.direction = d;
            back_steps(&a, n_threads);
            back_matmuls(&a);
        }
        for (int64_t i = 0; mask && i < wide; i++)
            a.dx[i] *= mask[i];
        a.dy = a.dx;
    }
    return PL_OK;
}
#endif
