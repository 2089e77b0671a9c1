/* The instruction set that the kernels run with: detected at load, lowered by tests. */
#include "isa.h"

static int level, limit = PLK_ISA_COUNT - 1, features, hidden;

static int found(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
        return PLK_AVX512;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))    /* these processors have F16C */
        return PLK_AVX2;
#endif
    return PLK_BASELINE;
}

int plk_isa_best(void)
{
    int best = found();
    return best < limit ? best : limit;
}

__attribute__((constructor)) static void find(void)
{
    level = plk_isa_best();
#if defined(__x86_64__)
    features = (__builtin_cpu_supports("avx512bf16") ? PLK_HAS_BF16 : 0) |
               (__builtin_cpu_supports("avx512vnni") ? PLK_HAS_VNNI : 0);
#endif
}

int plk_isa_has(int feature) { return level >= PLK_AVX512 && (features & ~hidden & feature) != 0; }

void plk_isa_without(int lacking) { hidden = lacking; }

int plk_isa_get(void) { return level; }

void plk_isa_set(int isa)
{
    int best = plk_isa_best();
    level = isa < 0 ? 0 : isa < best ? isa : best;
}

void plk_isa_limit(int isa)
{
    limit = isa < 0 ? 0 : isa;
    level = plk_isa_best();
}
