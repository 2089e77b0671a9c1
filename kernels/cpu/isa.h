/* The instruction set that the kernels run with. */
#ifndef PLK_ISA_H
#define PLK_ISA_H
/* cffi reads from here on: */
enum { PLK_BASELINE = 0, PLK_AVX2, PLK_AVX512, PLK_ISA_COUNT };
int plk_isa_best(void);                          /* the best one of this machine */
int plk_isa_get(void);
void plk_isa_set(int isa);                       /* for tests: at most plk_isa_best() */
void plk_isa_limit(int isa);                     /* for tests: as if the machine had no better one */
enum { PLK_HAS_BF16 = 1, PLK_HAS_VNNI = 2, PLK_HAS_AMX = 4, PLK_HAS_ALL = 7 };    /* that some AVX-512 machines have */
int plk_isa_has(int feature);
void plk_isa_without(int features);              /* for tests: as if the machine lacked these */
/* cffi stops reading here */
#endif
