/* The position of the stream of random numbers. */
#include "random.h"
#include "object.h"

static uint64_t random_seed, random_counter;  /* under the lock */

void pl_seed(uint64_t seed) { pl_random_set(seed, 0); }

void pl_random_get(uint64_t *seed, uint64_t *counter)
{
    pl_enter();
    *seed = random_seed;
    *counter = random_counter;
    pl_leave();
}

void pl_random_set(uint64_t seed, uint64_t counter)
{
    pl_enter();
    random_seed = seed;
    random_counter = counter;
    pl_leave();
}

uint64_t pl_random_claim(int n, uint64_t *seed)
{
    uint64_t first = random_counter;
    random_counter += (uint64_t)n;
    *seed = random_seed;
    return first;
}
