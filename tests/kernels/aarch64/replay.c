/* Repeats the kernel calls that record.py wrote on another processor, and compares what they leave in their arrays:
 *
 *     replay FILE
 *
 * Integers, truth values and copies must be the same bytes; so must every result of the kernels in `exact`, whose
 * floats are only moved, chosen, or computed by single rounded operations. Others may differ by a tolerance of the
 * dtype, relative to the largest number of the array: sums run in another order, libm's functions round otherwise. */
#include <dlfcn.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "engine/core/plan.h"
#include "kernels/cpu/dtype.h"
#include "kernels/cpu/half.h"
#include "kernels/cpu/pointwise.h"

enum { MAX_BUFS = 256, MAX_NAME = 128, SHOWN = 40, GUARD = 64, FILLED = 0xa5 };
enum { BYTES, HALF, SINGLE, DOUBLE, BRAIN, KIND_COUNT };    /* how an array is compared */
static const size_t item_bytes[KIND_COUNT] = {1, 2, 4, 8, 2};
static const double tolerance[KIND_COUNT] = {0, 4e-3, 2e-5, 1e-11, 3e-2};
static const char *const exact[] = {
    "plk_copy_", "plk_join_", "plk_fill_", "plk_take_run", "plk_embedding_run", "plk_pick_run", "plk_one_hot_run",
    "plk_sequence_", "plk_pad_run", "plk_sort_run", "plk_places_run", "plk_positions_run", "plk_random_whole",
    "plk_dropout_run", "plk_flip_run", "plk_gather_nd_run", "plk_eye_run", "plk_put_along",
    "plk_take_along", "plk_argmax_run", "plk_triangle_run", "plk_assign_rows_run", "plk_box_nms_backward",
};

typedef struct { int kind; size_t bytes; unsigned char *before, *after, *memory; } array;

static FILE *file;

static void get(void *to, size_t bytes)
{
    if (bytes && fread(to, 1, bytes, file) != bytes) {
        fprintf(stderr, "replay: the file ends within a call\n");
        exit(2);
    }
}

static int64_t number(void)
{
    int64_t n;
    get(&n, sizeof n);
    return n;
}

/* new */
static void *block(size_t bytes)
{
    void *p = malloc(bytes ? bytes : 1);
    if (!p) {
        fprintf(stderr, "replay: out of memory\n");
        exit(2);
    }
    return p;
}

static unsigned char *bytes_of(size_t n)
{
    unsigned char *p = block(n);
    get(p, n);
    return p;
}

static void name_of(char *to)
{
    int64_t n = number();
    if (n < 0 || n >= MAX_NAME) {
        fprintf(stderr, "replay: a name of %lld characters\n", (long long)n);
        exit(2);
    }
    get(to, (size_t)n);
    to[n] = 0;
}

static uintptr_t loop_of(const char *name)
{
    int op;
    if (sscanf(name, "plk_loop_%d", &op) == 1)
        return (uintptr_t)plk_pointwise_loop(op, PLK_F32);
    return (uintptr_t)dlsym(RTLD_DEFAULT, name);
}

static double value(int kind, const unsigned char *p)
{
    uint16_t half;
    float single;
    double v;
    switch (kind) {
    case HALF: memcpy(&half, p, 2); return half_to_float(half);
    case BRAIN: memcpy(&half, p, 2); return brain_to_float(half);
    case SINGLE: memcpy(&single, p, 4); return single;
    case DOUBLE: memcpy(&v, p, 8); return v;
    default: return *p;
    }
}

static int is_exact(const char *function)
{
    for (size_t i = 0; i < sizeof exact / sizeof *exact; i++)
        if (!strncmp(function, exact[i], strlen(exact[i])))
            return 1;
    return 0;
}

/* The largest error of an array relative to max(1, its largest number); infinite where one is not finite and the other
 * is not the same. */
static double error_of(const array *a)
{
    size_t size = item_bytes[a->kind], n = a->bytes / size;
    double largest = 1, worst = 0;
    for (size_t i = 0; i < n; i++) {
        double want = fabs(value(a->kind, a->after + i * size));
        largest = isfinite(want) && want > largest ? want : largest;
    }
    for (size_t i = 0; i < n; i++) {
        double want = value(a->kind, a->after + i * size), got = value(a->kind, a->memory + i * size);
        if (want == got || (isnan(want) && isnan(got)))
            continue;
        double error = fabs(want - got) / largest;
        worst = !(error <= worst) ? error : worst;
        if (isnan(error) || isinf(error))
            return INFINITY;
    }
    return worst;
}

/* Repeats one call. Returns whether it gave what was recorded; *same: bit by bit. */
static int repeat(int *same, int shown)
{
    char function[MAX_NAME], operator[MAX_NAME], name[MAX_NAME];
    array arrays[MAX_BUFS];
    void *bufs[MAX_BUFS];
    int ok = 1;
    name_of(function);
    name_of(operator);
    int64_t status = number(), params_bytes = number();
    unsigned char *params = bytes_of((size_t)params_bytes);
    for (int64_t left = number(); left > 0; left--) {
        int64_t at = number();
        name_of(name);
        uintptr_t loop = loop_of(name);
        if (!loop) {
            fprintf(stderr, "replay: no loop %s\n", name);
            exit(2);
        }
        memcpy(params + at, &loop, sizeof loop);
    }
    int64_t n_scalars = number();
    double *scalars = (double *)(void *)bytes_of((size_t)n_scalars * sizeof *scalars);
    int64_t n = number();
    if (n > MAX_BUFS) {
        fprintf(stderr, "replay: %s: %lld arrays\n", function, (long long)n);
        exit(2);
    }
    for (int64_t i = 0; i < n; i++) {
        array *a = &arrays[i];
        a->kind = (int)number();
        a->bytes = (size_t)number();
        a->before = bytes_of(a->bytes);
        a->after = number() ? bytes_of(a->bytes) : NULL;
        a->memory = block(a->bytes + GUARD);
        memcpy(a->memory, a->before, a->bytes);
        memset(a->memory + a->bytes, FILLED, GUARD);
        bufs[i] = a->memory;
    }
    pl_kernel kernel = (pl_kernel)dlsym(RTLD_DEFAULT, function);
    if (!kernel) {
        fprintf(stderr, "replay: no kernel %s\n", function);
        exit(2);
    }
    int got = kernel(params, bufs, scalars);
    *same = 1;
    if (got != status) {
        ok = 0;
        if (shown)
            printf("%s (%s): status %d, not %lld\n", function, operator, got, (long long)status);
    }
    for (int64_t i = 0; i < n; i++) {
        array *a = &arrays[i];
        int wrong = 0;
        for (int k = 0; k < GUARD; k++)
            wrong |= a->memory[a->bytes + (size_t)k] != FILLED;
        if (wrong && shown)
            printf("%s (%s): array %lld: written past its end\n", function, operator, (long long)i);
        if (!a->after)
            a->after = a->before;
        if (memcmp(a->memory, a->after, a->bytes)) {
            double error = a->kind == BYTES ? INFINITY : error_of(a);
            *same = error == 0 && *same;    /* NaNs of other bits are the same */
            int bad = error > (is_exact(function) ? 0 : tolerance[a->kind]);
            if (bad && shown)
                printf("%s (%s): array %lld of %zu bytes, kind %d: error %.3g\n", function, operator, (long long)i,
                       a->bytes, a->kind, error);
            wrong |= bad;
        }
        ok &= !wrong;
        if (a->after != a->before)
            free(a->after);
        free(a->before);
        free(a->memory);
    }
    free(scalars);
    free(params);
    return ok;
}

int main(int argc, char **argv)
{
    int n_calls = 0, n_same = 0, n_wrong = 0, same;
    file = argc > 1 ? fopen(argv[1], "rb") : NULL;
    if (!file) {
        fprintf(stderr, "usage: replay FILE\n");
        return 2;
    }
    for (int c; (c = fgetc(file)) != EOF; n_calls++) {
        ungetc(c, file);
        n_wrong += !repeat(&same, n_wrong < SHOWN);
        n_same += same;
    }
    printf("replay: %d calls, %d the same bit by bit, %d wrong\n", n_calls, n_same, n_wrong);
    return n_wrong > 0;
}
