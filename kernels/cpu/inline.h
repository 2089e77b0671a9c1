/* How small functions are declared, so that no call remains in a loop. */
#ifndef PLK_INLINE_H
#define PLK_INLINE_H
#define PLK_INLINE static inline __attribute__((always_inline, unused))
#endif
