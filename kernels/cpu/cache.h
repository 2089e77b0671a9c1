/* The sizes of this machine's caches, from which kernels take the sizes of their blocks. They decide how work is cut,
 * never how a sum is: results do not depend on them. */
#ifndef PLK_CACHE_H
#define PLK_CACHE_H
#include <stdint.h>
/* cffi reads from here on: */
int64_t plk_cache_own(void);                     /* bytes of the last cache that one core has to itself, usually L2 */
int64_t plk_cache_share(void);                   /* a core's part of all its caches; at least plk_cache_own() */
void plk_cache_set(int64_t own, int64_t share);  /* for tests: as if the machine had these; 0: its own again */
/* cffi stops reading here */

/* n within [low, high] */
static inline int64_t plk_clamp(int64_t n, int64_t low, int64_t high) { return n < low ? low : n > high ? high : n; }
#endif
