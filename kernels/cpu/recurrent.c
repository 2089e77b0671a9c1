/* RNNs in float32: for each layer and direction one product over all steps for the inputs, then per step a product
 * with the last state and one pass over the gates. The gates stay in the reserve, where the gradient finds them. */
#include <stdlib.h>
#include "simd.h"
#include "gemm.h"
#include "random.h"
#include "recurrent.h"

typedef struct {
    const plk_rnn *p;
    int64_t rows, gates, n_cells, step, per_cell, mask;     /* floats: rows of weights, of one step's gates and states, ... */
    int n_gates, lstm, gru;
} sizes;

static sizes sizes_of(const plk_rnn *p)
{
    int n_gates = p->mode == PLK_LSTM ? 4 : p->mode == PLK_GRU ? 3 : 1;
    sizes s = {.p = p, .n_gates = n_gates, .lstm = p->mode == PLK_LSTM, .gru = p->mode == PLK_GRU};
    s.rows = n_gates * p->hidden;
    s.gates = p->batch * s.rows;
    s.step = p->batch * p->hidden;
    s.n_cells = (int64_t)p->layers * p->directions;
    s.per_cell = p->steps * (s.gates + s.step * (n_gates > 1 ? 2 : 1));
    s.mask = p->p > 0 ? p->steps * s.step * p->directions : 0;
    return s;
}

static int64_t inputs_of(const sizes *s, int64_t cell)
{
    return cell < s->p->directions ? s->p->inputs : s->p->directions * s->p->hidden;
}

/* Where a cell's weights (w, then u) and biases (b, then bu) begin in the parameters. */
static int64_t weights_at(const sizes *s, int64_t cell)
{
    int64_t at = 0;
    for (int64_t i = 0; i < cell; i++)
        at += s->rows * (inputs_of(s, i) + s->p->hidden);
    return at;
}
static int64_t biases_at(const sizes *s, int64_t cell) { return weights_at(s, s->n_cells) + cell * 2 * s->rows; }

static float *cell_block(const sizes *s, float *reserve, int64_t cell)
{
    return reserve + (s->p->layers - 1) * s->mask + cell * s->per_cell;
}

/* One row of a step. g: pre-activations, become gates; z: gru's h2h part; extra: cells, or gru's h2h part of `new`. */
static void row_forward(const sizes *s, float *g, const float *z, const float *h, const float *c, float *extra, float *out)
{
    int64_t n = s->p->hidden;
    if (s->lstm) {
#pragma GCC ivdep
        for (int64_t j = 0; j < n; j++) {
            float in = plk_sigmoid_f32(g[j]), forget = plk_sigmoid_f32(g[n + j]), v = plk_tanh_f32(g[2 * n + j]);
            float o = plk_sigmoid_f32(g[3 * n + j]), cell = forget * c[j] + in * v;
            g[j] = in;
            g[n + j] = forget;
            g[2 * n + j] = v;
            g[3 * n + j] = o;
            extra[j] = cell;
            out[j] = o * plk_tanh_f32(cell);
        }
    } else if (s->gru) {
#pragma GCC ivdep
        for (int64_t j = 0; j < n; j++) {
            float r = plk_sigmoid_f32(g[j] + z[j]), u = plk_sigmoid_f32(g[n + j] + z[n + j]);
            float v = plk_tanh_f32(g[2 * n + j] + r * z[2 * n + j]);
            extra[j] = z[2 * n + j];
            g[j] = r;
            g[n + j] = u;
            g[2 * n + j] = v;
            out[j] = (1 - u) * v + u * h[j];
        }
    } else {
        int is_tanh = s->p->mode == PLK_RNN_TANH;
        for (int64_t j = 0; j < n; j++) {
            g[j] = is_tanh ? plk_tanh_f32(g[j]) : g[j] > 0 || g[j] != g[j] ? g[j] : 0;
            out[j] = g[j];
        }
    }
}

static int cell_forward(const sizes *s, const float *x, int64_t k, const float *w, const float *b, const float *h0,
                        const float *c0, float *block, float *z, int reverse)
{
    const plk_rnn *p = s->p;
    int64_t n = p->hidden, lines = p->steps * p->batch;
    float *gates = block, *extra = gates + p->steps * s->gates, *out = extra + (s->n_gates > 1 ? p->steps * s->step : 0);
    const float *u = w + s->rows * k, *bu = b + s->rows, *h = h0, *c = c0;
    for (int64_t i = 0; i < lines; i++)
        for (int64_t j = 0; j < s->rows; j++)
            gates[i * s->rows + j] = b[j] + (s->gru ? 0 : bu[j]);
    int status = plk_sgemm(0, 1, lines, s->rows, k, 1, x, k, w, k, 1, gates, s->rows, plk_gemm_threads(lines, s->rows, k));
    int step_threads = plk_gemm_threads(p->batch, s->rows, n), row_threads = pl_threads(s->step * 16);
    for (int64_t i = 0; i < p->steps && !status; i++) {
        int64_t t = reverse ? p->steps - 1 - i : i;
        float *g = gates + t * s->gates;
        for (int64_t r = 0; r < p->batch && s->gru; r++)
            memcpy(z + r * s->rows, bu, (size_t)s->rows * sizeof *z);
        status = plk_sgemm(0, 1, p->batch, s->rows, n, 1, h, n, u, n, 1, s->gru ? z : g, s->rows, step_threads);
#pragma omp parallel for num_threads(row_threads) if (row_threads > 1)
        for (int64_t r = 0; r < p->batch; r++)
            row_forward(s, g + r * s->rows, z + r * s->rows, h + r * n, c ? c + r * n : NULL, extra + t * s->step + r * n,
                        out + t * s->step + r * n);
        h = out + t * s->step;
        c = s->lstm ? extra + t * s->step : NULL;
    }
    return status;
}

static float *outputs_of(const sizes *s, float *block)
{
    return block + s->p->steps * (s->gates + (s->n_gates > 1 ? s->step : 0));
}

/* The outputs of a layer's directions side by side, times a mask if there is one. */
static void join(const sizes *s, float *reserve, int64_t layer, const float *mask, float *to)
{
    const plk_rnn *p = s->p;
    for (int d = 0; d < p->directions; d++) {
        const float *from = outputs_of(s, cell_block(s, reserve, layer * p->directions + d));
        for (int64_t i = 0; i < p->steps * p->batch; i++) {
            int64_t at = (i * p->directions + d) * p->hidden;
            for (int64_t j = 0; j < p->hidden; j++)
                to[at + j] = from[i * p->hidden + j] * (mask ? mask[at + j] : 1);
        }
    }
}

static void draw_mask(const sizes *s, int64_t layer, float *mask, const double *scalars)
{
    plk_random uniform = {s->mask, PLK_F32, 0, 1};
    double stream[2] = {scalars[0], scalars[1] + 0x1p40 * (double)(layer + 1)};     /* a stream of its own for each layer */
    void *bufs[1] = {mask};
    plk_random_uniform(&uniform, bufs, stream);
    float scale = (float)(1 / (1 - s->p->p));
    for (int64_t i = 0; i < s->mask; i++)
        mask[i] = mask[i] >= (float)s->p->p ? scale : 0;
}

/* bufs: data, parameters, state, state_cell of lstm, y, last states if asked for, reserve.  scalars: seed, call */
PLK_KERNEL(plk_rnn_run)
{
    const plk_rnn *p = params;
    sizes s = sizes_of(p);
    int at = 3 + s.lstm, status = PL_OK;
    const float *weights = bufs[1], *states = bufs[2], *cells = s.lstm ? bufs[3] : NULL, *x = bufs[0];
    float *y = bufs[at++], *last = p->state_outputs ? bufs[at++] : NULL;
    float *last_cell = p->state_outputs && s.lstm ? bufs[at++] : NULL, *reserve = bufs[at];
    int64_t joined = p->steps * s.step * p->directions, kept = (p->layers - 1) * s.mask + s.n_cells * s.per_cell;
    float *room = malloc(sizeof(float) * (size_t)(joined + s.gates + (p->keep ? 0 : kept) + 1)), *z = room + joined;
    if (!room)
        return pl_fail(PL_ENOMEM, "out of memory for an RNN");
    if (!p->keep)
        reserve = z + s.gates;
    for (int64_t layer = 0; layer < p->layers && !status; layer++) {
        float *mask = layer && s.mask ? reserve + (layer - 1) * s.mask : NULL;
        if (mask)
            draw_mask(&s, layer, mask, scalars);
        if (layer) {
            join(&s, reserve, layer - 1, mask, room);
            x = room;
        }
        for (int d = 0; d < p->directions && !status; d++) {
            int64_t i = layer * p->directions + d;
            float *block = cell_block(&s, reserve, i), *out = outputs_of(&s, block);
            status = cell_forward(&s, x, inputs_of(&s, i), weights + weights_at(&s, i), weights + biases_at(&s, i),
                                  states + i * s.step, cells ? cells + i * s.step : NULL, block, z, d);
            int64_t end = d ? 0 : (p->steps - 1) * s.step;
            if (last)
                memcpy(last + i * s.step, out + end, sizeof(float) * (size_t)s.step);
            if (last_cell)
                memcpy(last_cell + i * s.step, block + p->steps * s.gates + end, sizeof(float) * (size_t)s.step);
        }
    }
    if (!status)
        join(&s, reserve, p->layers - 1, NULL, y);
    free(room);
    return status;
}

/* One row of a step backwards. step: gradient of the output; dz, dzu: of the pre-activations; dh gets what passes by. */
static void row_backward(const sizes *s, const float *g, const float *extra, const float *h, const float *c, float *step,
                         float *dz, float *dzu, float *dc, float *dh)
{
    int64_t n = s->p->hidden;
    if (s->lstm) {
#pragma GCC ivdep
        for (int64_t j = 0; j < n; j++) {
            float in = g[j], forget = g[n + j], v = g[2 * n + j], o = g[3 * n + j], t = plk_tanh_f32(extra[j]);
            float d = step[j] * o * (1 - t * t) + dc[j];
            dz[j] = d * v * in * (1 - in);
            dz[n + j] = d * c[j] * forget * (1 - forget);
            dz[2 * n + j] = d * in * (1 - v * v);
            dz[3 * n + j] = step[j] * t * o * (1 - o);
            dc[j] = d * forget;
            dh[j] = 0;
        }
    } else if (s->gru) {
#pragma GCC ivdep
        for (int64_t j = 0; j < n; j++) {
            float r = g[j], u = g[n + j], v = g[2 * n + j], dv = step[j] * (1 - u) * (1 - v * v);
            dz[j] = dzu[j] = dv * extra[j] * r * (1 - r);
            dz[n + j] = dzu[n + j] = step[j] * (h[j] - v) * u * (1 - u);
            dz[2 * n + j] = dv;
            dzu[2 * n + j] = dv * r;
            dh[j] = step[j] * u;
        }
    } else {
        int is_tanh = s->p->mode == PLK_RNN_TANH;
        for (int64_t j = 0; j < n; j++) {
            dz[j] = step[j] * (is_tanh ? 1 - g[j] * g[j] : g[j] > 0 ? 1.0f : 0.0f);
            dh[j] = 0;
        }
    }
}

static void column_sum(const float *x, int64_t lines, int64_t n, float *y)
{
    for (int64_t j = 0; j < n; j++)
        y[j] = 0;
    for (int64_t i = 0; i < lines; i++)
        for (int64_t j = 0; j < n; j++)
            y[j] += x[i * n + j];
}

/* dy: (steps, batch, directions, hidden); dx is added to where `add`. dw, db: this cell's part of dparams. */
static int cell_backward(const sizes *s, const float *x, int64_t k, const float *w, const float *h0, const float *c0,
                         float *block, const float *dy, int d, float *dh, float *dc, float *dz, float *dzu, float *dx,
                         int add, float *dw, float *db)
{
    const plk_rnn *p = s->p;
    int64_t n = p->hidden, rows = s->rows, lines = p->steps * p->batch;
    float *gates = block, *extra = gates + p->steps * s->gates, *out = outputs_of(s, block), *du = dw + rows * k;
    const float *u = w + rows * k;
    int status = PL_OK, step_threads = plk_gemm_threads(p->batch, rows, n), row_threads = pl_threads(s->step * 16);
    for (int64_t i = p->steps - 1; i >= 0 && !status; i--) {
        int64_t t = d ? p->steps - 1 - i : i, before = d ? t + 1 : t - 1;
        const float *h = i ? out + before * s->step : h0, *c = !s->lstm ? NULL : i ? extra + before * s->step : c0;
#pragma omp parallel for num_threads(row_threads) if (row_threads > 1)
        for (int64_t r = 0; r < p->batch; r++) {
            float *step = dh + r * n;                     /* read before it is written, element by element */
            const float *from = dy + ((t * p->batch + r) * p->directions + d) * n;
            for (int64_t j = 0; j < n; j++)
                step[j] += from[j];
            row_backward(s, gates + t * s->gates + r * rows, extra + t * s->step + r * n, h + r * n, c ? c + r * n : NULL,
                         step, dz + t * s->gates + r * rows, dzu + t * s->gates + r * rows, dc ? dc + r * n : NULL, step);
        }
        status = plk_sgemm(0, 0, p->batch, n, rows, 1, dzu + t * s->gates, rows, u, n, 1, dh, n, step_threads);
    }
    if (status)
        return status;
    int64_t later = lines - p->batch, first = d ? later : 0;     /* the step that began from h0, in lines */
    status = plk_sgemm(1, 0, rows, k, lines, 1, dz, rows, x, k, 0, dw, k, plk_gemm_threads(rows, k, lines));
    if (!status)
        status = plk_sgemm(1, 0, rows, n, p->batch, 1, dzu + first * rows, rows, h0, n, 0, du, n, step_threads);
    if (!status && later)
        status = plk_sgemm(1, 0, rows, n, later, 1, dzu + (d ? 0 : p->batch * rows), rows, out + (d ? p->batch * n : 0), n, 1,
                           du, n, plk_gemm_threads(rows, n, later));
    if (!status)
        status = plk_sgemm(0, 0, lines, k, rows, 1, dz, rows, w, k, add ? 1 : 0, dx, k, plk_gemm_threads(lines, k, rows));
    column_sum(dz, lines, rows, db);
    column_sum(dzu, lines, rows, db + rows);
    return status;
}

/* bufs: dy, dstate, dstate_cell of lstm, data, parameters, state, state_cell of lstm, reserve, dx, dparameters, dstate0,
 * dstate_cell0 of lstm */
PLK_KERNEL(plk_rnn_backward)
{
    const plk_rnn *p = params;
    sizes s = sizes_of(p);
    void *const *in = bufs + 2 + s.lstm, *const *outs = in + 4 + s.lstm;
    const float *data = in[0], *weights = in[1], *states = in[2], *cells = s.lstm ? in[3] : NULL, *dy = bufs[0];
    float *reserve = in[3 + s.lstm], *dparams = outs[1], *dstates = outs[2], *dcells = s.lstm ? outs[3] : NULL;
    int64_t lines = p->steps * p->batch, wide = p->steps * s.step * p->directions;
    float *room = malloc(sizeof(float) * (size_t)(3 * wide + (s.gru ? 2 : 1) * lines * s.rows + 1));
    int status = PL_OK;
    (void)scalars;
    if (!room)
        return pl_fail(PL_ENOMEM, "out of memory for an RNN's gradient");
    float *joined = room, *below[2] = {room + wide, room + 2 * wide}, *dz = room + 3 * wide;
    float *dzu = s.gru ? dz + lines * s.rows : dz;
    memcpy(dstates, bufs[1], sizeof(float) * (size_t)(s.n_cells * s.step));
    if (dcells)
        memcpy(dcells, bufs[2], sizeof(float) * (size_t)(s.n_cells * s.step));
    for (int64_t layer = p->layers - 1; layer >= 0 && !status; layer--) {
        const float *mask = layer && s.mask ? reserve + (layer - 1) * s.mask : NULL, *x = data;
        float *dx = layer ? below[layer % 2] : outs[0];
        if (layer) {
            join(&s, reserve, layer - 1, mask, joined);
            x = joined;
        }
        for (int d = 0; d < p->directions && !status; d++) {
            int64_t i = layer * p->directions + d;
            status = cell_backward(&s, x, inputs_of(&s, i), weights + weights_at(&s, i), states + i * s.step,
                                   cells ? cells + i * s.step : NULL, cell_block(&s, reserve, i), dy, d,
                                   dstates + i * s.step, dcells ? dcells + i * s.step : NULL, dz, dzu, dx, d > 0,
                                   dparams + weights_at(&s, i), dparams + biases_at(&s, i));
        }
        for (int64_t i = 0; mask && i < wide; i++)
            dx[i] *= mask[i];
        dy = dx;
    }
    free(room);
    return status;
}
