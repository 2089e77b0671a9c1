/* Allocation failures, one by one: each leaves the engine as it was. */
#include "driver.h"

#include <stdio.h>
#include <string.h>

static _Thread_local int allocations_left = -1;         /* the one after these fails; -1: none does */
static _Thread_local bool failed_once;

#ifdef DRIVER_WRAPS_MALLOC                    /* gcc -Wl,--wrap=malloc,... */
void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *data, size_t bytes);
int __real_posix_memalign(void **data, size_t align, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_realloc(void *data, size_t bytes);
int __wrap_posix_memalign(void **data, size_t align, size_t bytes);

static bool allowed(void)
{
    bool good = allocations_left < 0 || allocations_left-- > 0;
    failed_once |= !good;
    return good;
}
void *__wrap_malloc(size_t bytes) { return allowed() ? __real_malloc(bytes) : NULL; }
void *__wrap_calloc(size_t n, size_t bytes) { return allowed() ? __real_calloc(n, bytes) : NULL; }
void *__wrap_realloc(void *data, size_t bytes) { return allowed() ? __real_realloc(data, bytes) : NULL; }
int __wrap_posix_memalign(void **data, size_t align, size_t bytes)
{
    return allowed() ? __real_posix_memalign(data, align, bytes) : 12;
}
#endif

/* Everything that allocates; true when nothing failed. Whatever failed must leave no trace. */
static bool memory_scenario(void)
{
    bool good = true;
    uintptr_t in[2] = {double_array(1), double_array(2)}, out[2] = {0, 0}, sum = 0, view = 0, p = 0;
    uintptr_t add = plan_of(add_run, 2, 0, PL_PLAN_INLINE), scale = plan_of(scale_run, 1, 1, 0);
    uintptr_t random = plan_of(random_run, 0, 0, PL_PLAN_RANDOM), bad = plan_of(fails_run, 1, 0, PL_PLAN_INLINE);
    good &= in[0] && in[1] && add && scale && random && bad;
    if (good) {
        good &= (p = small_program(add, scale, random)) && (sum = pl_invoke2(add, in[0], in[1]));
        good &= (view = pl_array_view(in[0], 0)) != 0;
        if (p) {
            good &= pl_program_run(p, in, out, NULL, -1) == PL_OK;
            CHECK(!out[0] == !out[1]);
        }
        uintptr_t poisoned = pl_invoke1(bad, in[0], 0);
        good &= poisoned != 0;
        if (poisoned)                         /* the poison is there even if there was no memory for its text */
            CHECK(wait_read(poisoned) == PL_FAILED && pl_error_message()[0]);
        good = good && strcmp(pl_error_message(), "the kernel says no") == 0;
        pl_array_free(poisoned);
    }
    good &= flight_memory();
    allocations_left = -1;
    report_all();
    CHECK(pl_engine_pending() == 0);
    for (int i = 0; i < 2; i++) {
        pl_array_free(in[i]);
        pl_array_free(out[i]);
    }
    pl_array_free(sum);
    pl_array_free(view);
    pl_program_free(p);
    uintptr_t plans[] = {add, scale, random, bad};
    for (int i = 0; i < 4; i++)
        pl_plan_free(plans[i]);
    return good;
}

void memory_failures(void)
{
    int n = 0;
    for (bool more = true; more; n++) {
        pl_storage_stats before, after;
        pl_engine_stop();
        pl_storage_get_stats(&before);
        allocations_left = n;
        failed_once = false;
        bool good = memory_scenario();
        more = failed_once;
        CHECK(good || more);
        pl_storage_get_stats(&after);
        CHECK(before.used_bytes == after.used_bytes);
    }
#ifdef DRIVER_WRAPS_MALLOC
    CHECK(n > 20);
#endif
    printf("memory: %d allocations failed one by one\n", n - 1);
}
