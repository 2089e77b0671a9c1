/* RNNs forward: see recurrent_cell.h. While training the gates stay in the reserve, where the gradient finds them. */
#ifndef PLK_RECURRENT_FORWARD_H
#define PLK_RECURRENT_FORWARD_H
#include "recurrent_cell.h"

/* One cell on its way through the steps; what the team shares. */
typedef struct {
    const sizes *s;
    blocks to;
    const real *x, *w, *u, *proj, *b, *bu, *h0, *c0;
    const int64_t *lengths;
    int64_t inputs;
    real *packed_w, *packed_u, *packed_proj, *bias, *states;
    int reverse, by_rows;
} forward_pass;

/* `width` hidden units of one row. g: what the inputs gave, becomes gates; z: what the last state h gave, gate after gate. */
static inline __attribute__((always_inline)) void forward_row(const forward_pass *a, int64_t width, real *g, const real *z,
                                                              int64_t z_gate, int64_t j0, const real *h, const real *c,
                                                              real *extra, real *out)
{
    const sizes *s = a->s;
    int64_t n = s->p->hidden;
    const real *b = a->bias + j0, *bu = a->bu + j0;
    if (s->lstm) {
        const limits clip = limits_of(s->p);
#pragma GCC ivdep
        for (int64_t j = 0; j < width; j++) {
            real in = sigmoid(g[j] + b[j] + z[j]), forget = sigmoid(g[n + j] + b[n + j] + z[z_gate + j]);
            real v = tangent(g[2 * n + j] + b[2 * n + j] + z[2 * z_gate + j]);
            real o = sigmoid(g[3 * n + j] + b[3 * n + j] + z[3 * z_gate + j]);
            real cell = limited(clip, forget * c[j] + in * v);
            g[j] = in;
            g[n + j] = forget;
            g[2 * n + j] = v;
            g[3 * n + j] = o;
            extra[j] = cell;
            out[j] = o * tangent(cell);
        }
    } else if (s->gru) {
#pragma GCC ivdep
        for (int64_t j = 0; j < width; j++) {
            real r = sigmoid(g[j] + b[j] + z[j]), u = sigmoid(g[n + j] + b[n + j] + z[z_gate + j]);
            real hidden = z[2 * z_gate + j] + bu[2 * n + j], v = tangent(g[2 * n + j] + b[2 * n + j] + r * hidden);
            extra[j] = hidden;
            g[j] = r;
            g[n + j] = u;
            g[2 * n + j] = v;
            out[j] = (1 - u) * v + u * h[j];
        }
    } else if (s->p->mode == PLK_RNN_TANH) {
#pragma GCC ivdep
        for (int64_t j = 0; j < width; j++)
            out[j] = g[j] = tangent(g[j] + b[j] + z[j]);
    } else {
#pragma GCC ivdep
        for (int64_t j = 0; j < width; j++) {
            real v = g[j] + b[j] + z[j];
            out[j] = g[j] = v < 0 ? 0 : v;                 /* NaN stays */
        }
    }
}

/* One thread's hidden units, for step t from the states h (batch, out). */
static void forward_units(const forward_pass *a, part q, int64_t t, const real *h, const real *c)
{
    const sizes *s = a->s;
    int64_t n = s->p->hidden, n_out = s->p->out, panel = n_out * PLK_PANEL;
    real z[MAX_GATES * CHUNK * PLK_PANEL], *to = s->projected ? a->to.wide : a->to.out;
    for (int64_t j = q.column; j < q.column_end; j += PLK_PANEL)
        for (int64_t row = q.row; row < q.row_end; row += CHUNK) {
            int64_t some = q.row_end - row < CHUNK ? q.row_end - row : CHUNK, width = n - j < PLK_PANEL ? n - j : PLK_PANEL;
            for (int g = 0; g < s->n_gates; g++)
                plk_panel_product(some, n_out, plk_rows(h + row * n_out, n_out),
                                  a->packed_u + (j / PLK_PANEL * s->n_gates + g) * panel, z + g * CHUNK * PLK_PANEL, 0);
            for (int64_t i = 0; i < some; i++) {
                int64_t r = row + i, line = t * s->p->batch + r;
                real *g = a->to.gates + line * s->rows + j, *extra = a->to.extra + line * n + j, *out = to + line * n + j;
                const real *last = h + r * n_out + j, *cell = c ? c + r * n + j : NULL;
                if (width == PLK_PANEL)
                    forward_row(a, PLK_PANEL, g, z + i * PLK_PANEL, CHUNK * PLK_PANEL, j, last, cell, extra, out);
                else
                    forward_row(a, width, g, z + i * PLK_PANEL, CHUNK * PLK_PANEL, j, last, cell, extra, out);
            }
        }
}

/* out = wide times the projection, for one thread's columns of the states. */
static void project(const forward_pass *a, part q, int64_t t)
{
    const plk_rnn *p = a->s->p;
    int64_t n = p->hidden, n_out = p->out, line = t * p->batch + q.row;
    plk_product(q.row_end - q.row, q.column_end - q.column, n, plk_rows(a->to.wide + line * n, n),
                a->packed_proj + q.column * n, a->to.out + line * n_out + q.column, n_out, 0);
}

/* Rows that have ended put out zeros and keep their states. next: the states after step t. */
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

/* What the inputs of all steps give, without bias. */
static void forward_inputs(const forward_pass *a)
{
    int64_t k = a->inputs, lines = a->s->lines, rows = a->s->rows;
    int n_threads = plk_gemm_threads(lines, rows, k);
#pragma omp parallel num_threads(n_threads) if (n_threads > 1)
    {
#pragma omp for
        for (int64_t j = 0; j < rows; j += PLK_PANEL)
            plk_pack_lines(a->packed_w + j * k, a->w + j * k, k, rows - j, k);
        int64_t begin, end;
        plk_share(lines, PLK_TILE, omp_get_thread_num(), omp_get_num_threads(), &begin, &end);
        plk_product(end - begin, rows, k, plk_rows(a->x + begin * k, k), a->packed_w, a->to.gates + begin * rows, rows, 0);
    }
}

/* All steps. Returns the last states. */
static const real *forward_steps(const forward_pass *a, int n_threads)
{
    const sizes *s = a->s;
    const plk_rnn *p = s->p;
    const real *last = NULL;
    int64_t n = p->hidden, n_out = p->out;
#pragma omp parallel num_threads(n_threads) if (n_threads > 1)
    {
#pragma omp for
        for (int64_t i = 0; i < plk_panels(n) * s->n_gates; i++) {
            int64_t j = i / s->n_gates * PLK_PANEL;
            plk_pack_lines(a->packed_u + i * n_out * PLK_PANEL, a->u + (i % s->n_gates * n + j) * n_out, n_out, n - j, n_out);
        }
        if (s->projected) {
#pragma omp for
            for (int64_t j = 0; j < n_out; j += PLK_PANEL)
                plk_pack_lines(a->packed_proj + j * n, a->proj + j * n, n, n_out - j, n);
        }
        part mine = part_of(s, n, a->by_rows), mine_out = part_of(s, n_out, a->by_rows);
        const real *h = a->h0, *c = a->c0;
        for (int64_t i = 0; i < p->steps; i++) {
            int64_t t = a->reverse ? p->steps - 1 - i : i;
            real *next = a->to.out + t * s->state;
            forward_units(a, mine, t, h, c);
            if (s->projected) {
                meet(a->by_rows);
                project(a, mine_out, t);
            }
            if (a->lengths) {
                next = a->states + i % 2 * s->state;
                hold(a, mine_out, t, h, next);
                if (s->lstm)
                    hold_cells(a, mine, t, c);
            }
            h = next;
            c = s->lstm ? a->to.extra + t * s->cell : NULL;
            meet(a->by_rows);
        }
        if (omp_get_thread_num() == 0)
            last = h;
    }
    return last;
}

/* The float32 numbers are drawn into the upper part of the mask. */
static void draw_mask(const sizes *s, int64_t layer, real *mask, const double *scalars)
{
    plk_random uniform = {s->mask, PLK_F32, 0, 1};
    double stream[2] = {scalars[0], scalars[1] + 0x1p40 * (double)(layer + 1)};     /* a stream of its own for each layer */
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
    real *last_cell = p->state_outputs && s.lstm ? bufs[at++] : NULL, *reserve = bufs[at], *joined = NULL, *outs[2][2], *counts = NULL;
    int64_t packed_u = plk_padded(p->hidden) * s.n_gates * p->out, k = most_inputs(&s);
    blocks kept, below[2], here[2];
    room r = {NULL, 0};
    for (int counted = 0; counted < 2; counted++) {
        if (counted && !(r.at = pl_scratch(r.used)))
            return pl_fail(PL_ENOMEM, "out of memory for an RNN");
        r.used = 0;
        a.packed_w = cut(&r, plk_padded(s.rows) * k);
        a.packed_u = cut(&r, packed_u);
        a.packed_proj = cut(&r, s.projected ? plk_padded(p->out) * p->hidden : 0);
        a.bias = cut(&r, s.rows);
        counts = cut(&r, p->lengths ? p->batch * 2 : 0);
        a.states = cut(&r, p->lengths ? 2 * s.state : 0);
        joined = cut(&r, p->layers > 1 && (s.mask || p->directions > 1) ? s.lines * p->out * p->directions : 0);
        kept = blocks_at(&s, cut(&r, p->keep ? 0 : s.per_cell - s.lines * p->out));
        for (int i = 0; i < 4; i++)
            outs[i / 2][i % 2] = cut(&r, p->keep ? 0 : s.lines * p->out);
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
                memcpy(last_cell + i * s.cell, a.to.extra + (d ? 0 : p->steps - 1) * s.cell, sizeof(real) * (size_t)s.cell);
        }
    }
    join(&s, below, NULL, y);
    return PL_OK;
}
#endif
