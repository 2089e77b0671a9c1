/* Pooling of regions. Averages are products with two matrices of weights for each region, (bins, height) and (bins,
 * width), as in the reference. One thread sums each result in a fixed order, also in backward. Compiled without
 * contraction, so that the pixels of a bin are those of the reference. */
#include "array.cuh"

enum { ALIGN, PARTS };    /* ROIAlign, PSROIPooling */

template<class A> DEVICE bool is_finite(A x) { return x - x == 0; }
template<class A> DEVICE A round_away(A x) { return x < 0 ? -(A)floor(-x + (A)0.5) : (A)floor(x + (A)0.5); }
template<class A> DEVICE A within(A x, A low, A high) { return x < low ? low : x > high ? high : x; }
template<class A> DEVICE int image_of(A i, int n) { return i >= 0 && i < n ? (int)i : -1; }

struct Regions {
    int n, channels, height, width, count, rows, columns;    /* count: of regions; rows, columns: bins */
    int sampling, most_samples, aligned;
    double scale;
};

/* weights: (region, bin, pixel) of an axis; range: of a bin, the first pixel and one past the last; bad[r]: the region
 * is not finite */
template<int KIND, class T, class A>
__global__ void __launch_bounds__(256)
bands(Regions of, const T *rois, int axis, int bins, int pixels, A *weights, int *range, int *bad)
{
    const int at = (int)blockIdx.x * 256 + (int)threadIdx.x, r = at / bins, i = at % bins;
    if (r >= of.count)
        return;
    A *w = weights + (int64_t)at * pixels;
    for (int p = 0; p < pixels; p++)
        w[p] = 0;
    const A scale = (A)of.scale, half = of.aligned ? (A)0.5 : (A)0;
    A low = value_of(rois[r * 5 + axis]), high = value_of(rois[r * 5 + axis + 2]), start, size;
    if (KIND == ALIGN) {
        start = low * scale - half;
        size = high * scale - half - start;
        size = of.aligned || size > 1 || size != size ? size : (A)1;
    } else {
        start = round_away(low) * scale;
        size = (round_away(high) + 1) * scale - start;
        size = size > (A)0.1 || size != size ? size : (A)0.1;
    }
    const bool is_bad = !is_finite(start) || !is_finite(size);
    if (i == 0)
        bad[r] = is_bad;
    int first = pixels, last = -1;
    size = size / (A)bins;
    if (KIND == ALIGN && !is_bad) {
        const A most = ceil(size);
        const int n = of.sampling ? of.sampling : (int)within(most, (A)0, (A)of.most_samples);
        for (int k = 0; k < n; k++) {
            A x = start + (A)i * size + ((A)k + (A)0.5) * size / (A)n;
            if (!(x >= -1 && x <= (A)pixels))
                continue;
            x = within(x, (A)0, (A)(pixels - 1));
            const int p = (int)floor(x), q = p + 1 < pixels ? p + 1 : pixels - 1;
            const A part = x - (A)p, share = (A)(1.0 / n);
            w[p] += (1 - part) * share;
            w[q] += part * share;
            first = p < first ? p : first;
            last = q > last ? q : last;
        }
    } else if (!is_bad) {
        first = (int)within((A)floor((A)i * size + start), (A)0, (A)pixels);
        last = (int)within((A)ceil((A)(i + 1) * size + start), (A)0, (A)pixels) - 1;
        for (int p = first; p <= last; p++)
            w[p] = 1 / (A)(last + 1 - first);
    }
    range[2 * at] = first;
    range[2 * at + 1] = last + 1;
}

/* The channel that a result reads. groups: 0: its own; else bins are parts of groups x groups channels. */
DEVICE int channel_of(const Regions &of, int c, int i, int j, int groups)
{
    return groups ? (c * groups + i * groups / of.rows) * groups + j * groups / of.columns : c;
}

template<class T, class A>
__global__ void __launch_bounds__(256)
pool(Regions of, int64_t size, int out_channels, int groups, const T *x, const T *rois, const A *rows, const A *columns,
     const int *rows_at, const int *columns_at, const int *bad_rows, const int *bad_columns, T *y)
{
    const int64_t e = (int64_t)blockIdx.x * 256 + threadIdx.x;
    if (e >= size)
        return;
    const int j = (int)(e % of.columns), i = (int)(e / of.columns % of.rows);
    const int c = (int)(e / of.columns / of.rows % out_channels), r = (int)(e / of.columns / of.rows / out_channels);
    const int image = bad_rows[r] || bad_columns[r] ? -1 : image_of(value_of(rois[r * 5]), of.n);
    A sum = 0;
    if (image >= 0) {
        const int row = r * of.rows + i, column = r * of.columns + j;
        const T *from = x + ((int64_t)image * of.channels + channel_of(of, c, i, j, groups)) * of.height * of.width;
        for (int h = rows_at[2 * row]; h < rows_at[2 * row + 1]; h++) {
            A part = 0;
            for (int w = columns_at[2 * column]; w < columns_at[2 * column + 1]; w++)
                part += columns[(int64_t)column * of.width + w] * value_of(from[(int64_t)h * of.width + w]);
            sum += rows[(int64_t)row * of.height + h] * part;
        }
    }
    y[e] = as<T>(sum);
}

/* The transpose of pool: a thread for each pixel sums over all regions of its image. */
template<class T, class A>
__global__ void __launch_bounds__(256) unpool(Regions of, int64_t size, int out_channels, int groups, const T *dy,
                                              const T *rois, const A *rows, const A *columns, const int *rows_at,
                                              const int *columns_at, const int *bad_rows, const int *bad_columns, T *dx)
{
    const int64_t e = (int64_t)blockIdx.x * 256 + threadIdx.x;
    if (e >= size)
        return;
    const int w = (int)(e % of.width), h = (int)(e / of.width % of.height);
    const int channel = (int)(e / of.width / of.height % of.channels),
              n = (int)(e / of.width / of.height / of.channels);
    A sum = 0;
    for (int r = 0; r < of.count; r++) {
        if (bad_rows[r] || bad_columns[r] || image_of(value_of(rois[r * 5]), of.n) != n)
            continue;
        for (int i = 0; i < of.rows; i++) {
            const int row = r * of.rows + i;
            if (h < rows_at[2 * row] || h >= rows_at[2 * row + 1])
                continue;
            const A by = rows[(int64_t)row * of.height + h];
            for (int j = 0; j < of.columns; j++) {
                const int column = r * of.columns + j, c = groups ? channel / groups / groups : channel;
                if (w < columns_at[2 * column] || w >= columns_at[2 * column + 1])
                    continue;
                if (channel_of(of, c, i, j, groups) == channel)
                    sum += by * columns[(int64_t)column * of.width + w]
                         * value_of(dy[(((int64_t)r * out_channels + c) * of.rows + i) * of.columns + j]);
            }
        }
    }
    dx[e] = as<T>(sum);
}

/* ROIPooling: the maximum of each bin, and its offset in the plane; -1 if a bin is empty. */
template<class T>
__global__ void __launch_bounds__(256)
pool_largest(Regions of, int64_t size, const T *x, const T *rois, T *y, int32_t *index)
{
    typedef computed<T> A;
    const int64_t e = (int64_t)blockIdx.x * 256 + threadIdx.x;
    if (e >= size)
        return;
    const int bin[2] = {(int)(e / of.columns % of.rows), (int)(e % of.columns)}, bins[2] = {of.rows, of.columns};
    const int c = (int)(e / of.columns / of.rows % of.channels), r = (int)(e / of.columns / of.rows / of.channels);
    const int image = image_of(value_of(rois[r * 5]), of.n), pixels[2] = {of.height, of.width};
    int first[2], last[2];
    for (int d = 0; d < 2; d++) {
        const A low = value_of(rois[r * 5 + 2 - d]), high = value_of(rois[r * 5 + 4 - d]);
        const A start = round_away(low * (A)of.scale), stop = round_away(high * (A)of.scale), n = (A)pixels[d];
        A size = stop - start + 1;
        size = (size < 1 ? (A)1 : size) / (A)bins[d];
        const A from = (A)floor((A)bin[d] * size) + start, to = (A)ceil((A)(bin[d] + 1) * size) + start;
        first[d] = from != from ? 0 : (int)within(from, (A)0, n);
        last[d] = to != to ? 0 : (int)within(to, (A)0, n);
    }
    int best = -1;
    A most = 0;
    const T *from = x + ((int64_t)(image < 0 ? 0 : image) * of.channels + c) * of.height * of.width;
    for (int h = first[0]; h < last[0] && image >= 0; h++)
        for (int w = first[1]; w < last[1]; w++) {
            const A v = value_of(from[(int64_t)h * of.width + w]);
            const A known = v != v ? -(A)INFINITY : v;
            if (best < 0 || known > most) {
                most = known;
                best = h * of.width + w;
            }
        }
    index[e] = best;
    y[e] = best < 0 ? as<T>((A)0) : from[best];
}
