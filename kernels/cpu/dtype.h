/* The types of elements. */
#ifndef PLK_DTYPE_H
#define PLK_DTYPE_H
#include <stddef.h>
#include <stdint.h>
/* cffi reads from here on: */
enum { PLK_F32 = 0, PLK_F64, PLK_F16, PLK_U8, PLK_I32, PLK_I8, PLK_I64, PLK_BOOL, PLK_I16, PLK_U16, PLK_U32, PLK_U64,
       PLK_BF16, PLK_DTYPE_COUNT };              /* MXNet's type flags */
/* cffi stops reading here */

static inline size_t plk_dtype_bytes(int dtype)
{
    static const uint8_t bytes[] = {4, 8, 2, 1, 4, 1, 8, 1, 2, 2, 4, 8, 2};
    _Static_assert(sizeof bytes == PLK_DTYPE_COUNT, "one size for each dtype");
    return bytes[dtype];
}
#endif
