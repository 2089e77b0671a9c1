/* Shared by the forward and the backward pass of an RNN: sizes, offsets, how threads share a step.
 *
 * A cell is one layer in one direction. One matrix product over the inputs of all steps comes first; then each step
 * multiplies the last state by packed weights and computes the gates. Threads share the steps:
 *
 *   by rows:   a piece computes all steps of its rows of the batch, and no thread waits. For weights that fit a cache.
 *   by units:  a piece computes all gates of its panels of hidden units; each step is a region. */
#ifndef PLK_RECURRENT_CELL_H
#define PLK_RECURRENT_CELL_H
#include "cache.h"
#include "dtype.h"
#include "gemm.h"
#include "panel.h"
#include "parts.h"
#include "random.h"
#include "recurrent.h"
#include "vecmath.h"

enum { CHUNK = 4 * PLK_TILE, MAX_GATES = 4, PIECES = 4 };    /* pieces of each thread */

typedef struct {
    const plk_rnn *p;
    /* elements: rows of weights, one step's gates, ... */
    int64_t lines, rows, gates, state, cell, n_cells, per_cell, mask;
    int n_gates, lstm, gru, projected;
} sizes;

/* The arrays of one cell: gates, cells (gru: the h2h part of the new gate), outputs before projection, and outputs. */
typedef struct { real *gates, *extra, *wide, *out; } blocks;

static sizes sizes_of(const plk_rnn *p)
{
    int n_gates = p->mode == PLK_LSTM ? 4 : p->mode == PLK_GRU ? 3 : 1;
    sizes s = {.p = p, .n_gates = n_gates, .lstm = p->mode == PLK_LSTM, .gru = p->mode == PLK_GRU};
    s.projected = p->out != p->hidden;
    s.lines = p->steps * p->batch;
    s.rows = n_gates * p->hidden;
    s.gates = p->batch * s.rows;
    s.state = p->batch * p->out;
    s.cell = p->batch * p->hidden;
    s.n_cells = (int64_t)p->layers * p->directions;
    s.per_cell = p->steps * (s.gates + (s.lstm || s.gru ? s.cell : 0) + (s.projected ? s.cell : 0) + s.state);
    s.mask = p->p > 0 ? p->steps * s.state * p->directions : 0;
    return s;
}

static inline int64_t inputs_of(const sizes *s, int64_t cell)
{
    return cell < s->p->directions ? s->p->inputs : s->p->directions * s->p->out;
}
static inline int64_t most_inputs(const sizes *s)
{
    int64_t inner = s->p->layers > 1 ? s->p->directions * s->p->out : 0;
    return inner > s->p->inputs ? inner : s->p->inputs;
}

/* The offsets of a cell's weights (w, then u, then the projection) and biases (b, then bu) in the parameters. */
static inline int64_t weights_at(const sizes *s, int64_t cell)
{
    int64_t at = 0;
    for (int64_t i = 0; i < cell; i++)
        at += s->rows * (inputs_of(s, i) + s->p->out) + (s->projected ? s->p->out * s->p->hidden : 0);
    return at;
}
static inline int64_t biases_at(const sizes *s, int64_t cell) { return weights_at(s, s->n_cells) + cell * 2 * s->rows; }

static inline blocks blocks_at(const sizes *s, real *at)
{
    int64_t steps = s->p->steps;
    real *extra = at + steps * s->gates, *wide = extra + (s->lstm || s->gru ? steps * s->cell : 0);
    return (blocks){at, extra, wide, wide + (s->projected ? steps * s->cell : 0)};
}
static inline blocks blocks_of(const sizes *s, real *reserve, int64_t cell)
{
    return blocks_at(s, reserve + (s->p->layers - 1) * s->mask + cell * s->per_cell);
}

/* Takes arrays from scratch memory, each at the start of a cache line. at NULL: only counts. */
typedef struct { char *at; size_t used; } arena;
static inline real *take(arena *from, int64_t n)
{
    real *array = from->at ? (real *)(from->at + from->used) : NULL;
    from->used += ((size_t)n * sizeof(real) + 63) / 64 * 64;
    return array;
}

typedef struct { real low, high, nan; } limits;
static inline limits limits_of(const plk_rnn *p)
{ return (limits){(real)p->clip_min, (real)p->clip_max, (real)p->clip_nan}; }
static inline __attribute__((always_inline)) real limited(limits to, real c)
{
    c = c != c ? to.nan : c;
    c = c < to.low ? to.low : c;
    return c > to.high ? to.high : c;
}

static inline __attribute__((always_inline)) real sigmoid(real x)
{
    return sizeof x == 4 ? (real)plk_sigmoid_f32((float)x) : (real)plk_sigmoid_f64((double)x);
}
static inline __attribute__((always_inline)) real tangent(real x)
{
    return sizeof x == 4 ? (real)plk_tanh_f32((float)x) : (real)plk_tanh_f64((double)x);
}

/* The number of steps of each row; NULL: none are given. A fraction is truncated. */
static inline const int64_t *lengths_of(const plk_rnn *p, const void *given, int64_t *to)
{
    for (int64_t r = 0; r < p->batch && given; r++)
        switch (p->length_dtype) {
        case PLK_F32: to[r] = (int64_t)((const float *)given)[r]; break;
        case PLK_F64: to[r] = (int64_t)((const double *)given)[r]; break;
        case PLK_I32: to[r] = ((const int32_t *)given)[r]; break;
        default: to[r] = ((const int64_t *)given)[r];
        }
    return given ? to : NULL;
}

/* How many threads share the steps of a cell, and whether by rows. packed: elements of the recurrent weights. */
static inline int team(const sizes *s, int64_t packed, int *by_rows)
{
    const plk_rnn *p = s->p;
    int n_threads = plk_gemm_threads(s->lines, s->rows, p->out);
    *by_rows = packed * (int64_t)sizeof(real) <= plk_cache_own() / 2 && p->batch >= 4 * n_threads;
    if (*by_rows)
        return n_threads;
    int64_t panels = plk_panels(p->hidden);
    n_threads = plk_gemm_threads(p->batch, s->rows, p->out);
    return panels < n_threads ? (int)panels : n_threads;
}

/* One thread's part of the batch and of n columns; columns are shared in panels. */
typedef struct { int64_t row, row_end, column, column_end; } part;
static inline part part_of(const sizes *s, int64_t n, int by_rows, int64_t piece, int n_pieces)
{
    part q = {0, s->p->batch, 0, n};
    if (by_rows)
        plk_share(q.row_end, 1, (int)piece, n_pieces, &q.row, &q.row_end);
    else
        plk_share(n, PLK_PANEL, (int)piece, n_pieces, &q.column, &q.column_end);
    return q;
}

typedef struct { const sizes *s; const blocks *of; const real *mask; real *to; } joined_outputs;

static void join_part(void *arg, int64_t begin, int64_t end)
{
    const joined_outputs *o = arg;
    const plk_rnn *p = o->s->p;
    int64_t n = p->out;
    for (int64_t i = begin; i < end; i++)
        for (int d = 0; d < p->directions; d++) {
            int64_t at = (i * p->directions + d) * n;
            const real *from = o->of[d].out + i * n;
            if (!o->mask)
                memcpy(o->to + at, from, sizeof(real) * (size_t)n);
            else
                for (int64_t j = 0; j < n; j++)
                    o->to[at + j] = from[j] * o->mask[at + j];
        }
}

/* Concatenates the outputs of a layer's directions, times a mask if there is one. */
static inline void join(const sizes *s, const blocks *of, const real *mask, real *to)
{
    int64_t work = s->lines * s->p->out * s->p->directions / 4;
    plk_run_parts(work, s->lines, 1, join_part, &(joined_outputs){s, of, mask, to});
}
#endif
