/* Rows in registers: THREADS threads (a power of 2) hold up to THREADS * ITEMS * V elements of one row, so that a
 * kernel that needs a row several times reads it once. With ITEMS 0 no element is held: rows of any length are read
 * again. */
#pragma once
#include "reduce.cuh"

template<int THREADS, int ITEMS, int V> struct Row {
    enum { HELD = ITEMS * V };
    int n, t;
    bool whole;                                 /* vectors may be loaded: rows are aligned, n a multiple of V */

    /* the index in the row of held element h */
    DEVICE int at(int h) const
    {
        return whole ? (h / V * THREADS + t) * V + h % V : h * THREADS + t;
    }
    template<class T, class A> DEVICE void load(const T *row, A *held) const
    {
        if (whole) {
#pragma unroll
            for (int j = 0; j < ITEMS; j++) {
                const int i = (j * THREADS + t) * V;
                if (i < n) {
                    const Vector<T, V> v = ::load<V>(row + i);
#pragma unroll
                    for (int k = 0; k < V; k++)
                        held[j * V + k] = value_of(v.at[k]);
                }
            }
        } else {
#pragma unroll
            for (int h = 0; h < HELD; h++)
                if (h * THREADS + t < n)
                    held[h] = value_of(row[h * THREADS + t]);
        }
    }
    template<class T, class A> DEVICE void store(T *row, const A *held) const
    {
        if (whole) {
#pragma unroll
            for (int j = 0; j < ITEMS; j++) {
                const int i = (j * THREADS + t) * V;
                if (i < n) {
                    Vector<T, V> v;
#pragma unroll
                    for (int k = 0; k < V; k++)
                        v.at[k] = as<T>(held[j * V + k]);
                    ::store<V>(row + i, v);
                }
            }
        } else {
#pragma unroll
            for (int h = 0; h < HELD; h++)
                if (h * THREADS + t < n)
                    row[h * THREADS + t] = as<T>(held[h]);
        }
    }
};

/* The row of this group of THREADS threads; -1 after the last row. */
template<int THREADS> DEVICE int64_t own_row(int64_t n_rows)
{
    const int64_t row = (int64_t)blockIdx.x * (blockDim.x / THREADS) + threadIdx.x / THREADS;
    return row < n_rows ? row : -1;
}
