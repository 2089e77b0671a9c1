/* How two dtypes of small numbers are multiplied; narrow_tile.h says what a unit of each way holds. */
#ifndef PLK_NARROW_WAY_H
#define PLK_NARROW_WAY_H
#include "dtype.h"
#include "isa.h"

enum { PLK_BY_FLOAT, PLK_BY_BRAIN, PLK_BY_INT, PLK_BY_SHORT, PLK_BY_BYTE };

static inline int per_unit(int way)
{
    return way == PLK_BY_BYTE ? 4 : way == PLK_BY_FLOAT || way == PLK_BY_INT ? 1 : 2;
}

/* How to multiply two dtypes (equal ones, or uint8 by int8) on this machine. */
static inline int narrow_way(int a, int b)
{
    if (a == PLK_F16 || a == PLK_BF16)
        return a == PLK_BF16 && plk_isa_has(PLK_HAS_BF16) ? PLK_BY_BRAIN : PLK_BY_FLOAT;
#if defined(__SSE2__)
    return b == PLK_I8 && plk_isa_has(PLK_HAS_VNNI) ? PLK_BY_BYTE : PLK_BY_SHORT;
#else
    return PLK_BY_INT;
#endif
}

/* Are units of this way multiplied by AMX? */
static inline int narrow_amx(int way)
{
    return (way == PLK_BY_BRAIN || way == PLK_BY_BYTE) && plk_isa_has(PLK_HAS_AMX);
}
#endif
