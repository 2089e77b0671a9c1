/* Hawkes processes, event by event, in double. */
#include "hawkes.h"
#include <math.h>
#include "engine/core/scratch.h"
#include "parts.h"

typedef struct { const plk_hawkes *p; void *const *bufs; int failed; } job;

static double number(const job *j, int buf, int64_t i)
{
    return j->p->wide ? ((const double *)j->bufs[buf])[i] : (double)((const float *)j->bufs[buf])[i];
}

static void put(const job *j, int buf, int64_t i, double value)
{
    if (j->p->wide)
        ((double *)j->bufs[buf])[i] = value;
    else
        ((float *)j->bufs[buf])[i] = (float)value;
}

enum { RATE, ALPHA, BETA, STATE, LAGS, MARKS, LENGTH, TIME, LIKELIHOOD, STATE_AFTER };

static void processes(void *arg, int64_t begin, int64_t end)
{
    job *j = arg;
    int64_t n_marks = j->p->n_marks, n_events = j->p->n_events;
    double *state = pl_scratch((size_t)(2 * n_marks + 1) * sizeof *state), *last = state + n_marks;
    if (!state) {
        __atomic_store_n(&j->failed, 1, __ATOMIC_RELAXED);
        return;
    }
    for (int64_t i = begin; i < end; i++) {
        double total = 0, now = 0, length = number(j, LENGTH, i);
        for (int64_t m = 0; m < n_marks; m++) {
            state[m] = number(j, STATE, i * n_marks + m);
            last[m] = 0;
        }
        for (int64_t e = 0; e < n_events; e++) {
            int64_t m = ((const int32_t *)j->bufs[MARKS])[i * n_events + e];
            now += number(j, LAGS, i * n_events + e);
            if (m < 0 || m >= n_marks || !((double)e < length))
                continue;
            double rate = number(j, RATE, i * n_marks + m), alpha = number(j, ALPHA, m), beta = number(j, BETA, m);
            double gap = now - last[m], decay = exp(-beta * gap);
            total += log(rate + alpha * beta * state[m] * decay) - rate * gap - alpha * state[m] * (1 - decay);
            state[m] = 1 + state[m] * decay;
            last[m] = now;
        }
        for (int64_t m = 0; m < n_marks; m++) {
            double gap = number(j, TIME, i) - last[m], decay = exp(-number(j, BETA, m) * gap);
            total -= number(j, RATE, i * n_marks + m) * gap + number(j, ALPHA, m) * state[m] * (1 - decay);
            put(j, STATE_AFTER, i * n_marks + m, state[m] * decay);
        }
        put(j, LIKELIHOOD, i, total);
    }
}

/* bufs: rates (n, n_marks), alpha, beta (n_marks), state, lags, marks (n, n_events), lengths, times (n); the
 * log-likelihoods (n), the state after */
PLK_KERNEL(plk_hawkes_run)
{
    const plk_hawkes *p = params;
    job j = {p, bufs, 0};
    (void)scalars;
    plk_run_parts(p->n * (p->n_events + p->n_marks) * 64, p->n, 1, processes, &j);
    return j.failed ? pl_fail(PL_ENOMEM, "out of memory for hawkesll") : PL_OK;
}
