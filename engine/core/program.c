/* Programs: a lowered graph, an array of (plan, buffers) over one arena; running one is a single op. */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

typedef struct { uintptr_t plan; int first_slot, n_bufs, first_scalar, n_scalars; bool random; } instruction;

typedef struct pl_program {
    int n_in, n_out, n_instr, n_slots, n_random, max_scalars, flags, lane, device;
    size_t arena_bytes;
    uint8_t *in_modes;
    size_t *out_bytes;
    instruction *instr;
    pl_slot *slots;
    double *scalars;
    char *name;
} pl_program;

/* The payload of an op that runs a program; then the data pointers of inputs and outputs. */
typedef struct { const pl_program *program; char **in, **out; uint64_t seed, counter; } program_call;

static void *copied(const void *data, size_t bytes)
{
    void *copy = malloc(bytes ? bytes : 1);
    if (copy && bytes)
        memcpy(copy, data, bytes);
    return copy;
}

uintptr_t pl_program_new(int n_in, const uint8_t *in_modes, int n_out, const size_t *out_bytes, int n_instr,
                         const uintptr_t *plans, const pl_slot *slots, const double *scalars, size_t arena_bytes,
                         int flags, int lane, int device, const char *name)
{
    pl_program *p = calloc(1, sizeof *p);
    if (p && (p->instr = calloc((size_t)n_instr + 1, sizeof *p->instr))) {
        int n_scalars = 0;
        for (int i = 0; i < n_instr; i++) {
            instruction *in = &p->instr[i];
            int plan_flags;
            in->plan = plans[i];
            in->first_slot = p->n_slots;
            in->first_scalar = n_scalars;
            pl_plan_counts(plans[i], &in->n_bufs, &in->n_scalars, &plan_flags);
            in->random = (plan_flags & PL_PLAN_RANDOM) != 0;
            p->n_slots += in->n_bufs;
            n_scalars += in->n_scalars;
            p->n_random += in->random;
            if (in->n_scalars > p->max_scalars)
                p->max_scalars = in->n_scalars;
        }
        p->n_in = n_in;
        p->n_out = n_out;
        p->n_instr = n_instr;
        p->flags = flags;
        p->lane = lane;
        p->device = device;
        p->arena_bytes = arena_bytes;
        p->in_modes = copied(in_modes, (size_t)n_in);
        p->out_bytes = copied(out_bytes, (size_t)n_out * sizeof *out_bytes);
        p->slots = copied(slots, (size_t)p->n_slots * sizeof *slots);
        p->scalars = copied(scalars, (size_t)n_scalars * sizeof *scalars);
        p->name = strdup(name);
        if (p->in_modes && p->out_bytes && p->slots && p->scalars && p->name)
            return (uintptr_t)p;
    }
    pl_program_free((uintptr_t)p);
    pl_fail(PL_ENOMEM, "program: out of memory");
    return 0;
}

void pl_program_free(uintptr_t handle)
{
    pl_program *p = (pl_program *)handle;
    if (!p)
        return;
    free(p->in_modes);
    free(p->out_bytes);
    free(p->instr);
    free(p->slots);
    free(p->scalars);
    free(p->name);
    free(p);
}

static int instructions_run(const pl_program *p, program_call *call, char *arena)
{
    enum { LOCAL = 64 };
    void *few[LOCAL];
    double local_scalars[LOCAL];
    int n_random = 0, status = PL_OK;
    for (int i = 0; i < p->n_instr && status == PL_OK; i++) {
        const instruction *in = &p->instr[i];
        const pl_slot *slot = &p->slots[in->first_slot];
        void **bufs = in->n_bufs <= LOCAL ? few : malloc((size_t)in->n_bufs * sizeof *bufs);
        if (!bufs)
            return pl_fail(PL_ENOMEM, "program: out of memory");
        for (int k = 0; k < in->n_bufs; k++)
            bufs[k] = (slot[k].kind == PL_SLOT_ARENA ? arena :
                       slot[k].kind == PL_SLOT_INPUT ? call->in[slot[k].index] : call->out[slot[k].index])
                      + slot[k].offset_bytes;
        const double *scalars = p->scalars + in->first_scalar;
        if (in->random) {
            int n = in->n_scalars < LOCAL - 2 ? in->n_scalars : LOCAL - 2;
            memcpy(local_scalars, scalars, (size_t)n * sizeof(double));
            local_scalars[n] = (double)call->seed;
            local_scalars[n + 1] = (double)(call->counter + (uint64_t)n_random++);
            scalars = local_scalars;
        }
        status = pl_kernel_run(in->plan, bufs, scalars);
        if (bufs != few)
            free(bufs);
    }
    return status;
}

static int program_run(pl_op *op)
{
    program_call *call = op->payload;
    const pl_program *p = call->program;
    char *arena = pl_storage_alloc(p->arena_bytes);
    if (!arena)
        return pl_fail(PL_ENOMEM, "program: out of memory for intermediate results");
    int status = instructions_run(p, call, arena);
    pl_storage_free(arena, p->arena_bytes);
    return status;
}

int pl_program_run(uintptr_t handle, const uintptr_t *in, uintptr_t *out, int32_t location)
{
    const pl_program *p = (const pl_program *)handle;
    int n = p->n_in + p->n_out;
    pl_op *op = pl_op_new(n, sizeof(program_call) + (size_t)n * sizeof(char *));
    uint8_t *fresh = calloc((size_t)p->n_out + 1, 1);
    if (!op || !fresh) {
        if (op)
            pl_op_discard(op);
        free(fresh);
        return pl_fail(PL_ENOMEM, "program: out of memory");
    }
    program_call *call = op->payload;
    call->program = p;
    call->in = (char **)(call + 1);
    call->out = call->in + p->n_in;
    if (p->n_random)
        call->counter = pl_random_claim(p->n_random, &call->seed);
    op->run = program_run;
    op->name = p->name;
    op->location = location;
    int status = PL_OK;
    for (int i = 0; i < p->n_in; i++) {
        pl_array *a = (pl_array *)in[i];
        call->in[i] = a->data;
        pl_op_claim(op, a->var, p->in_modes[i]);
    }
    for (int i = 0; i < p->n_out && status == PL_OK; i++) {
        if (!out[i]) {
            out[i] = pl_array_new(p->out_bytes[i]);
            fresh[i] = 1;
            op->held_bytes += p->out_bytes[i];
        }
        pl_array *a = (pl_array *)out[i];
        if (a) {
            call->out[i] = a->data;
            pl_op_claim(op, a->var, PL_WRITE);
        } else {
            status = PL_ENOMEM;
        }
    }
    pthread_mutex_lock(&pl_lock);
    op->lane = pl_lane_get(p->lane, p->device);
    pthread_mutex_unlock(&pl_lock);
    if (status == PL_OK && !op->lane)
        status = pl_fail(PL_ENOMEM, "program: the lane's worker thread could not be started");
    if (status == PL_OK) {
        pl_op_submit(op, (p->flags & PL_PLAN_INLINE) != 0);
    } else {
        for (int i = 0; i < p->n_out; i++)
            if (fresh[i]) {
                pl_array_free(out[i]);
                out[i] = 0;
            }
        pl_op_discard(op);
    }
    free(fresh);
    return status;
}
