/* The instruction set that the kernels run with: detected at load, lowered by tests. */
#include "isa.h"
#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

static int level, limit = PLK_ISA_COUNT - 1, features, hidden, asked;

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

/* Has the processor AMX for bytes and bfloat16, and does Linux let this process use it? */
static int amx(void)
{
#if defined(__x86_64__) && defined(__linux__)
    enum { BF16 = 1 << 22, TILE = 1 << 24, INT8 = 1 << 25, ASK = 0x1023, TILE_DATA = 18 };
    unsigned a, b, c, d = 0, all = BF16 | TILE | INT8;
    __get_cpuid_count(7, 0, &a, &b, &c, &d);
    return (d & all) == all && syscall(SYS_arch_prctl, ASK, TILE_DATA) == 0;
#else
    return 0;
#endif
}

int plk_isa_has(int feature)
{
    if ((feature & PLK_HAS_AMX) && !__atomic_load_n(&asked, __ATOMIC_ACQUIRE)) {
        if (amx())
            __atomic_or_fetch(&features, PLK_HAS_AMX, __ATOMIC_RELAXED);
        __atomic_store_n(&asked, 1, __ATOMIC_RELEASE);
    }
    return level >= PLK_AVX512 && (__atomic_load_n(&features, __ATOMIC_RELAXED) & ~hidden & feature) != 0;
}

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
