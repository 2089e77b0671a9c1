/* A matrix product of our own: packed panels and a register tile of ROWS x COLUMNS, after Goto and van de Geijn 2008. */
#include <stdlib.h>
#include "simd.h"
#include "gemm.h"

enum { ROWS = 6, COLUMNS = 16, DEPTH = 256, BLOCK_ROWS = 96, BLOCK_COLUMNS = 1024 };
typedef float vector __attribute__((vector_size(32), aligned(4), may_alias));

/* acc = A panel (depth x ROWS) times B panel (depth x COLUMNS) */
static void tile(int64_t depth, const float *a, const float *b, float *out)
{
    vector acc[ROWS][2];
    for (int r = 0; r < ROWS; r++)
        acc[r][0] = acc[r][1] = (vector){0};
    for (int64_t p = 0; p < depth; p++, a += ROWS, b += COLUMNS) {
        vector b0 = *(const vector *)b, b1 = *(const vector *)(b + 8);
        for (int r = 0; r < ROWS; r++) {
            acc[r][0] += a[r] * b0;
            acc[r][1] += a[r] * b1;
        }
    }
    for (int r = 0; r < ROWS; r++) {
        *(vector *)(out + r * COLUMNS) = acc[r][0];
        *(vector *)(out + r * COLUMNS + 8) = acc[r][1];
    }
}

/* Panels of `width` lines; missing lines are zeros. */
static void pack(float *to, const float *from, int64_t lines, int64_t line_step, int64_t depth, int64_t depth_step, int width)
{
    for (int64_t first = 0; first < lines; first += width)
        for (int64_t p = 0; p < depth; p++)
            for (int l = 0; l < width; l++)
                *to++ = first + l < lines ? from[(first + l) * line_step + p * depth_step] : 0;
}

/* bufs: a, b, c */
PLK_KERNEL(plk_gemm_plain_run)
{
    const plk_gemm_plain *p = params;
    const float *a = bufs[0], *b = bufs[1];
    float *c = bufs[2], *packed_a, *packed_b, out[ROWS * COLUMNS];
    (void)scalars;
    packed_a = malloc(sizeof(float) * DEPTH * (BLOCK_ROWS + ROWS));
    packed_b = malloc(sizeof(float) * DEPTH * (BLOCK_COLUMNS + COLUMNS));
    if (!packed_a || !packed_b) {
        free(packed_a);
        free(packed_b);
        return pl_fail(PL_ENOMEM, "out of memory for a matrix product");
    }
    for (int64_t j0 = 0; j0 < p->n; j0 += BLOCK_COLUMNS)
        for (int64_t p0 = 0; p0 < p->k; p0 += DEPTH) {
            int64_t nj = p->n - j0 < BLOCK_COLUMNS ? p->n - j0 : BLOCK_COLUMNS, np = p->k - p0 < DEPTH ? p->k - p0 : DEPTH;
            float beta = p0 ? 1 : p->beta;
            pack(packed_b, b + p0 * p->b_row + j0 * p->b_column, nj, p->b_column, np, p->b_row, COLUMNS);
            for (int64_t i0 = 0; i0 < p->m; i0 += BLOCK_ROWS) {
                int64_t ni = p->m - i0 < BLOCK_ROWS ? p->m - i0 : BLOCK_ROWS;
                pack(packed_a, a + i0 * p->a_row + p0 * p->a_column, ni, p->a_row, np, p->a_column, ROWS);
                for (int64_t j = 0; j < nj; j += COLUMNS)
                    for (int64_t i = 0; i < ni; i += ROWS) {
                        tile(np, packed_a + i * np, packed_b + j * np, out);
                        for (int64_t r = 0; r < ROWS && i + r < ni; r++) {
                            float *to = c + (i0 + i + r) * p->c_row + j0 + j;
                            for (int64_t q = 0; q < COLUMNS && j + q < nj; q++)
                                to[q] = p->alpha * out[r * COLUMNS + q] + (beta == 0 ? 0 : beta * to[q]);
                        }
                    }
            }
        }
    free(packed_a);
    free(packed_b);
    return PL_OK;
}
