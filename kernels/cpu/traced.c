/* Runs the loops of a traced reference. */
#include "traced.h"
#include <stdatomic.h>
#include "engine/core/scratch.h"
#include "parts.h"

typedef struct {
    plk_traced_function run;
    void *const *places;
    const int64_t *sizes;
    const double *numbers;
    atomic_int bad;
} loop;

static void part(void *arg, int64_t begin, int64_t end)
{
    loop *l = arg;
    if (begin < end && l->run(begin, end, l->places, l->sizes, l->numbers))
        atomic_store_explicit(&l->bad, 1, memory_order_relaxed);
}

/* bufs: inputs, outputs */
PLK_KERNEL(plk_traced_run)
{
    const plk_traced *p = params;
    char *scratch = pl_scratch((size_t)p->scratch_bytes + 1);
    if (!scratch)
        return pl_fail(PL_ENOMEM, "out of memory for a traced operator");
    for (int i = 0; i < p->n_steps; i++) {
        const plk_traced_step *s = &p->steps[i];
        void *places[PLK_TRACED_ARGUMENTS];
        double numbers[PLK_TRACED_ARGUMENTS];
        for (int k = 0; k < s->n_places; k++) {
            const plk_traced_place *at = &s->places[k];
            places[k] = at->buffer >= 0                    ? (char *)bufs[at->buffer] + at->at
                        : at->buffer == PLK_TRACED_SCRATCH ? scratch + at->at
                                                           : (void *)(uintptr_t)at->at;
        }
        for (int k = 0; k < s->n_numbers; k++)
            numbers[k] = s->numbers[k].scalar >= 0 ? scalars[s->numbers[k].scalar] : s->numbers[k].value;
        loop l = {plk_traced_get(s->function), places, s->sizes, numbers, 0};
        plk_run_parts(s->work, s->n, s->unit, part, &l);
        if (atomic_load_explicit(&l.bad, memory_order_relaxed))
            return pl_fail(PL_EINDEX, p->error);
    }
    return PL_OK;
}
