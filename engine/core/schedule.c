/* Groups of ranks and schedules: what collectives refer to, kept while one of them does. */
#include "schedule.h"
#include "object.h"

#include <stdlib.h>
#include <string.h>

uintptr_t pl_group_new(uintptr_t communicator, int rank, int n_ranks, const int32_t *world_ranks)
{
    pl_group *made = malloc(sizeof *made + (size_t)n_ranks * sizeof *world_ranks);
    if (!made) {
        pl_fail(PL_ENOMEM, "group: out of memory");
        return 0;
    }
    made->refs = 1;
    made->communicator = communicator;
    made->rank = rank;
    made->n_ranks = n_ranks;
    memcpy(made->world_ranks, world_ranks, (size_t)n_ranks * sizeof *world_ranks);
    return (uintptr_t)made;
}

void pl_group_free(uintptr_t handle)
{
    pl_group *g = (pl_group *)handle;
    if (g && atomic_fetch_sub(&g->refs, 1) == 1)
        free(g);
}

void pl_group_keep(uintptr_t handle)
{
    if (handle)
        atomic_fetch_add(&((pl_group *)handle)->refs, 1);
}

int pl_group_self(uintptr_t handle)
{
    const pl_group *g = (const pl_group *)handle;
    return g ? g->world_ranks[g->rank] : 0;
}

uintptr_t pl_schedule_new(const pl_schedule_spec *spec)
{
    pl_schedule *made = calloc(1, sizeof *made);
    if (!made)
        goto no_memory;
    made->refs = 1;
    made->spec = *spec;
    pl_schedule_spec *s = &made->spec;
    s->steps = pl_copied(spec->steps, (size_t)spec->n_steps, sizeof *spec->steps);
    s->places = pl_copied(spec->places, (size_t)spec->n_places, sizeof *spec->places);
    s->rounds = pl_copied(spec->rounds, (size_t)spec->n_rounds, sizeof *spec->rounds);
    s->slices = pl_copied(spec->slices, (size_t)spec->n_slices, sizeof *spec->slices);
    s->plans = pl_copied(spec->plans, (size_t)spec->n_plans, sizeof *spec->plans);
    pl_enter();
    for (int i = 0; s->plans && i < s->n_plans; i++)
        ((pl_plan *)s->plans[i])->object.refs++;
    pl_leave();
    for (int i = 0; s->rounds && i < s->n_rounds; i++)
        if (s->rounds[i].n_messages > made->max_messages)
            made->max_messages = s->rounds[i].n_messages;
    if (s->steps && s->places && s->rounds && s->slices && s->plans)
        return (uintptr_t)made;
    pl_schedule_free((uintptr_t)made);
no_memory:
    pl_fail(PL_ENOMEM, "schedule: out of memory");
    return 0;
}

void pl_schedule_free(uintptr_t handle)
{
    pl_schedule *s = (pl_schedule *)handle;
    if (!s || atomic_fetch_sub(&s->refs, 1) != 1)
        return;
    pl_enter();
    for (int i = 0; s->spec.plans && i < s->spec.n_plans; i++)
        pl_object_unref(&((pl_plan *)s->spec.plans[i])->object);
    pl_leave();
    free((void *)s->spec.steps);
    free((void *)s->spec.places);
    free((void *)s->spec.rounds);
    free((void *)s->spec.slices);
    free((void *)s->spec.plans);
    free(s);
}
