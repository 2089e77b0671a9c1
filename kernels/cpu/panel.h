/* Matrix products over packed panels, for kernels that use one matrix many times, such as the weights of an RNN.
 *
 * A panel holds PLK_PANEL columns: panel[p * PLK_PANEL + c] is element (p, c). A tile of up to PLK_TILE rows and one
 * panel stays in registers while the depth runs (Goto and van de Geijn 2008). Sums run in the order of p in blocks of
 * PLK_DEPTH, whatever the number of rows, so that a result does not depend on how threads share the work.
 *
 * PLK_REAL is float or double. */
#ifndef PLK_PANEL_H
#define PLK_PANEL_H
#include "parts.h"
#include "simd.h"

typedef PLK_REAL real;
#if defined(__AVX512F__)
enum { PLK_VECTOR_BYTES = 64 };
#elif defined(__AVX__)
enum { PLK_VECTOR_BYTES = 32 };
#else
enum { PLK_VECTOR_BYTES = 16 };
#endif
enum { PLK_VECTOR = PLK_VECTOR_BYTES / sizeof(real), PLK_PANEL = 2 * PLK_VECTOR, PLK_TILE = 6, PLK_DEPTH = 256 };
enum { PLK_BLOCK_ROWS = 16 * PLK_TILE };
typedef real plk_vector __attribute__((vector_size(PLK_VECTOR_BYTES), aligned(sizeof(real)), may_alias));

/* The left operand: element (r, p) is at[r * row + p / PLK_PANEL * next + p % PLK_PANEL * column]. */
typedef struct { const real *at; int64_t row, next, column; } plk_left;

static inline plk_left plk_rows(const real *at, int64_t step) { return (plk_left){at, step, PLK_PANEL, 1}; }
/* Panels of n_lines lines, as columns of the operand: its depth runs through the panels. */
static inline plk_left plk_panelled(const real *at, int64_t n_lines)
{
    return (plk_left){at, PLK_PANEL, n_lines * PLK_PANEL, 1};
}
/* One panel as rows of the operand: its depth runs through the panel's lines. */
static inline plk_left plk_transposed(const real *at) { return (plk_left){at, 1, PLK_PANEL * PLK_PANEL, PLK_PANEL}; }

static inline int64_t plk_panels(int64_t n) { return (n + PLK_PANEL - 1) / PLK_PANEL; }
static inline int64_t plk_padded(int64_t n) { return plk_panels(n) * PLK_PANEL; }

/* A panel whose column c is line c of `from`; lines from n_lines on are zeros. */
static inline void plk_pack_lines(real *to, const real *from, int64_t line_step, int64_t n_lines, int64_t depth)
{
    for (int64_t p = 0; p < depth; p++, to += PLK_PANEL)
        for (int64_t c = 0; c < PLK_PANEL; c++)
            to[c] = c < n_lines ? from[c * line_step + p] : 0;
}

/* One line of a panel; columns from n_columns on are zeros. */
static inline void plk_pack_line(real *to, const real *from, int64_t n_columns)
{
    if (n_columns >= PLK_PANEL)
        memcpy(to, from, sizeof(real) * PLK_PANEL);
    else
        for (int64_t c = 0; c < PLK_PANEL; c++)
            to[c] = c < n_columns ? from[c] : 0;
}

/* to += x * y.  As an instruction: left to themselves compilers change which operand is overwritten, and spill. */
#if defined(__FMA__)
#define PLK_ADD_PRODUCT(to, x, y) \
    do { \
        if (sizeof(real) == 4) \
            __asm__("vfmadd231ps %2, %1, %0" : "+v"(to) : "v"(x), "v"(y)); \
        else \
            __asm__("vfmadd231pd %2, %1, %0" : "+v"(to) : "v"(x), "v"(y)); \
    } while (0)
#else
#define PLK_ADD_PRODUCT(to, x, y) to += x * y
#endif

static inline __attribute__((always_inline)) void plk_tile(const int n_rows, int64_t depth, plk_left a,
                                                           const real *panel, real *out, int64_t out_step, int add)
{
    plk_vector acc[PLK_TILE][2];
    _Pragma("GCC unroll 6") for (int r = 0; r < n_rows; r++) {
        acc[r][0] = add ? *(const plk_vector *)(out + r * out_step) : (plk_vector){0};
        acc[r][1] = add ? *(const plk_vector *)(out + r * out_step + PLK_VECTOR) : (plk_vector){0};
    }
    const real *at = a.at;
    for (; depth > 0; depth -= PLK_PANEL, at += a.next - PLK_PANEL * a.column) {
        int64_t some = depth < PLK_PANEL ? depth : PLK_PANEL;
#define STEP(s) \
    { \
        const plk_vector *line = (const plk_vector *)(panel + s * PLK_PANEL); \
        plk_vector b0 = line[0], b1 = line[1]; \
        _Pragma("GCC unroll 6") for (int r = 0; r < n_rows; r++) { \
            plk_vector x = (r < 3 ? at[r * a.row + s * a.column] : low[(r - 3) * a.row + s * a.column]) \
                           - (plk_vector){0}; \
            PLK_ADD_PRODUCT(acc[r][0], x, b0); \
            PLK_ADD_PRODUCT(acc[r][1], x, b1); \
        } \
        __asm__ volatile("" ::: "memory"); \
    }
        for (; some >= 4; some -= 4, at += 4 * a.column, panel += 4 * PLK_PANEL) {
            const real *low = at + 3 * a.row;
            STEP(0) STEP(1) STEP(2) STEP(3)
        }
        _Pragma("GCC unroll 1") for (; some > 0; some--, at += a.column, panel += PLK_PANEL) {
            const real *low = at + 3 * a.row;
            STEP(0)
        }
#undef STEP
    }
    _Pragma("GCC unroll 6") for (int r = 0; r < n_rows; r++) {
        *(plk_vector *)(out + r * out_step) = acc[r][0];
        *(plk_vector *)(out + r * out_step + PLK_VECTOR) = acc[r][1];
    }
}

#define PLK_TILES(name, of_rows, of_columns) \
    static inline void name(int64_t n_rows, int64_t depth, plk_left a, const real *panel, real *out, \
                            int64_t out_step, int add) \
    { \
        a.row = of_rows; \
        a.column = of_columns; \
        switch (n_rows) { \
        case 1: plk_tile(1, depth, a, panel, out, out_step, add); break; \
        case 2: plk_tile(2, depth, a, panel, out, out_step, add); break; \
        case 3: plk_tile(3, depth, a, panel, out, out_step, add); break; \
        case 4: plk_tile(4, depth, a, panel, out, out_step, add); break; \
        case 5: plk_tile(5, depth, a, panel, out, out_step, add); break; \
        default: plk_tile(6, depth, a, panel, out, out_step, add); \
        } \
    }
PLK_TILES(plk_tile_rows, a.row, 1)
PLK_TILES(plk_tile_columns, 1, PLK_PANEL)

/* out (n_rows, PLK_PANEL) = or += a (n_rows, depth) times a panel; depth at most PLK_DEPTH. */
static inline void plk_tiles(int64_t n_rows, int64_t depth, plk_left a, const real *panel, real *out, int64_t out_step,
                             int add)
{
    int64_t n_tiles = (n_rows + PLK_TILE - 1) / PLK_TILE;
    for (int64_t i = 0; i < n_tiles; i++) {
        int64_t begin, end;
        plk_share(n_rows, 1, (int)i, (int)n_tiles, &begin, &end);
        plk_left from = {a.at + begin * a.row, a.row, a.next, a.column};
        if (a.column == 1)
            plk_tile_rows(end - begin, depth, from, panel, out + begin * out_step, out_step, add);
        else
            plk_tile_columns(end - begin, depth, from, panel, out + begin * out_step, out_step, add);
    }
}

/* The same for any depth. */
static inline void plk_panel_matmul(int64_t n_rows, int64_t depth, plk_left a, const real *panel, real *out, int add)
{
    for (int64_t p = 0; p < depth; p += PLK_DEPTH, a.at += PLK_DEPTH / PLK_PANEL * a.next)
        plk_tiles(n_rows, depth - p < PLK_DEPTH ? depth - p : PLK_DEPTH, a, panel + p * PLK_PANEL, out, PLK_PANEL,
                  p || add);
}

/* out (n_rows, n_columns) = or += a (n_rows, depth) times packed panels of `depth` lines each. */
static inline void plk_matmul_rows(int64_t n_rows, int64_t n_columns, int64_t depth, plk_left a, const real *packed,
                                    real *out, int64_t out_step, int add)
{
    real edge[PLK_BLOCK_ROWS * PLK_PANEL];
    for (int64_t p = 0; p < depth; p += PLK_DEPTH)
        for (int64_t i = 0; i < n_rows; i += PLK_BLOCK_ROWS)
            for (int64_t j = 0; j < n_columns; j += PLK_PANEL) {
                int64_t some = depth - p < PLK_DEPTH ? depth - p : PLK_DEPTH;
                int64_t height = n_rows - i < PLK_BLOCK_ROWS ? n_rows - i : PLK_BLOCK_ROWS, width = n_columns - j;
                const real *panel = packed + j * depth + p * PLK_PANEL;
                plk_left from = {a.at + i * a.row + p / PLK_PANEL * a.next, a.row, a.next, a.column};
                real *to = out + i * out_step + j;
                if (width >= PLK_PANEL) {
                    plk_tiles(height, some, from, panel, to, out_step, p || add);
                    continue;
                }
                plk_tiles(height, some, from, panel, edge, PLK_PANEL, 0);
                for (int64_t r = 0; r < height; r++)
                    for (int64_t c = 0; c < width; c++)
                        to[r * out_step + c] = edge[r * PLK_PANEL + c] + (p || add ? to[r * out_step + c] : 0);
            }
}
#endif
