/* Products of csr matrices with dense ones. Threads share rows, or columns where several rows add to the same result,
 * so sums do not depend on the number of threads. */
#include "sparse.h"
#include "bytes.h"
#include "parts.h"

/* Do the index arrays, which users may write, describe a csr matrix of this size? */
static int check(const plk_csr *p, const int64_t *indptr, const int64_t *indices)
{
    int right = indptr[0] >= 0 && indptr[p->n_rows] <= p->n_elements;
    for (int64_t r = 0; r < p->n_rows; r++)
        right &= indptr[r] <= indptr[r + 1];
    if (!right)
        return pl_fail(PL_EINVAL, "dot: indptr of a csr matrix must rise from 0 to the number of its elements");
    for (int64_t e = indptr[0]; e < indptr[p->n_rows]; e++)
        right &= indices[e] >= 0 && indices[e] < p->n_columns;
    return right ? PL_OK : pl_fail(PL_EINDEX, "dot: an index of a csr matrix is outside its columns");
}

/* y[row] = sum of data[e] * x[indices[e]] over the row's elements */
#define DOT(T) \
    for (int64_t r = begin; r < end; r++) { \
        T *y = (T *)bufs[4] + r * p->inner; \
        memset(y, 0, (size_t)p->inner * sizeof(T)); \
        for (int64_t e = indptr[r]; e < indptr[r + 1]; e++) { \
            T v = ((const T *)bufs[0])[e]; \
            const T *x = (const T *)bufs[3] + indices[e] * p->inner; \
            for (int64_t i = 0; i < p->inner; i++) y[i] += v * x[i]; \
        } \
    }

static void dot_rows(void *arg, int64_t begin, int64_t end)
{
    const plk_call *call = arg;
    const plk_csr *p = call->params;
    void *const *bufs = call->bufs;
    const int64_t *indptr = bufs[1], *indices = bufs[2];
    if (p->size == 4)
        DOT(float)
    else
        DOT(double)
}

/* bufs: data, indptr, indices, x (n_columns, inner), y (n_rows, inner) */
PLK_KERNEL(plk_csr_dot_run)
{
    const plk_csr *p = params;
    const int64_t *indptr = bufs[1], *indices = bufs[2];
    int status = check(p, indptr, indices);
    if (status)
        return status;
    plk_run_parts((indptr[p->n_rows] + p->n_rows) * p->inner, p->n_rows, 1, dot_rows,
                  &(plk_call){params, bufs, scalars});
    return PL_OK;
}

/* y[indices[e]] += data[e] * x[row] over the elements */
#define DOT_TRANSPOSED(T) \
    for (int64_t r = 0; r < p->n_rows; r++) { \
        const T *x = (const T *)bufs[3] + r * p->inner; \
        for (int64_t e = indptr[r]; e < indptr[r + 1]; e++) { \
            T v = ((const T *)bufs[0])[e], *y = (T *)bufs[4] + indices[e] * p->inner; \
            for (int64_t i = begin; i < end; i++) y[i] += v * x[i]; \
        } \
    }

static void dot_columns(void *arg, int64_t begin, int64_t end)
{
    const plk_call *call = arg;
    const plk_csr *p = call->params;
    void *const *bufs = call->bufs;
    const int64_t *indptr = bufs[1], *indices = bufs[2];
    if (p->size == 4)
        DOT_TRANSPOSED(float)
    else
        DOT_TRANSPOSED(double)
}

/* bufs: data, indptr, indices, x (n_rows, inner), y (n_columns, inner) */
PLK_KERNEL(plk_csr_dot_transposed)
{
    const plk_csr *p = params;
    const int64_t *indptr = bufs[1], *indices = bufs[2];
    int status = check(p, indptr, indices);
    if (status)
        return status;
    memset(bufs[4], 0, (size_t)(p->n_columns * p->inner * p->size));
    int n_threads = p->inner >= 64 ? pl_threads(indptr[p->n_rows] * p->inner) : 1;
    /* few shares: each reads all elements */
    plk_run_shares(n_threads, p->inner, 16, dot_columns, &(plk_call){params, bufs, scalars});
    return PL_OK;
}

/* bufs: data, rows, indices, out; out may be data itself */
PLK_KERNEL(plk_assign_rows_run)
{
    const plk_assign_rows *p = params;
    const int64_t *indices = bufs[2];
    char *out = bufs[3];
    (void)scalars;
    if (out != bufs[0])
        plk_copy_bytes(out, bufs[0], (size_t)(p->n_rows * p->row_bytes));
    for (int64_t i = 0; i < p->n_indices; i++) {
        int64_t k = indices[i] < 0 ? 0 : indices[i] < p->n_rows ? indices[i] : p->n_rows - 1;
        plk_copy_bytes(out + k * p->row_bytes, (const char *)bufs[1] + i * p->row_bytes, (size_t)p->row_bytes);
    }
    return PL_OK;
}
