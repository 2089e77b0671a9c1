/* Bipartite matching: pairs in the order of their scores, unless the row or the column has a partner. */
#include "matching.h"
#include <stdlib.h>
#include "engine/core/scratch.h"

typedef struct { double score; int64_t at; } item;

static double read_as(const void *x, int64_t i, int wide)
{
    return wide ? ((const double *)x)[i] : (double)((const float *)x)[i];
}

static void write_as(void *x, int64_t i, int wide, double value)
{
    if (wide)
        ((double *)x)[i] = value;
    else
        ((float *)x)[i] = (float)value;
}

/* Falling; equal ones by their place. */
static int order(const void *left, const void *right)
{
    const item *a = left, *b = right;
    if (a->score != b->score)
        return a->score > b->score ? -1 : 1;
    return (a->at > b->at) - (a->at < b->at);
}

/* bufs: scores, the column of each row, the row of each column */
PLK_KERNEL(plk_matching_run)
{
    const plk_matching *p = params;
    int64_t rows = p->rows, columns = p->columns, n = rows * columns;
    double sign = p->ascend ? -1 : 1;
    item *items = pl_scratch((size_t)(n + 1) * sizeof *items);
    (void)scalars;
    if (!items)
        return pl_fail(PL_ENOMEM, "out of memory for a matching");
    for (int64_t i = 0; i < p->n_batch * rows; i++)
        write_as(bufs[1], i, p->wide, -1);
    for (int64_t i = 0; i < p->n_batch * columns; i++)
        write_as(bufs[2], i, p->wide, -1);
    for (int64_t b = 0; b < p->n_batch; b++) {
        int64_t n_items = 0, n_pairs = 0;
        for (int64_t i = 0; i < n; i++) {
            double score = sign * read_as(bufs[0], b * n + i, p->wide);
            if (score > sign * p->threshold)     /* not NaN */
                items[n_items++] = (item){score, i};
        }
        qsort(items, (size_t)n_items, sizeof *items, order);
        for (int64_t k = 0; k < n_items && (p->topk <= 0 || n_pairs <= p->topk); k++) {
            int64_t r = items[k].at / columns, c = items[k].at % columns;
            if (read_as(bufs[1], b * rows + r, p->wide) != -1 || read_as(bufs[2], b * columns + c, p->wide) != -1)
                continue;
            write_as(bufs[1], b * rows + r, p->wide, (double)c);
            write_as(bufs[2], b * columns + c, p->wide, (double)r);
            n_pairs++;
        }
    }
    return PL_OK;
}
