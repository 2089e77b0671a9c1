/* The stream of random numbers: a seed and a counter, from which every random operator claims its own numbers. */
#ifndef PLAIT_RANDOM_H
#define PLAIT_RANDOM_H
#include <stdint.h>
/* cffi reads from here on: */
void pl_seed(uint64_t seed);                  /* restarts the stream */
/* The position of the stream, to save and to restore: its seed and how many numbers were claimed. */
void pl_random_get(uint64_t *seed, uint64_t *counter);
void pl_random_set(uint64_t seed, uint64_t counter);
/* cffi stops reading here */

uint64_t pl_random_claim(int n, uint64_t *seed);      /* with the lock: the first of n counters */
#endif
