/* Guard pages, for debugging: each block ends where an unreadable page begins, or begins where one ends, so that a
 * kernel that accesses memory outside its arrays stops at once. Addresses are not reused, so access to freed memory
 * stops it too.
 *
 *     | block 1, 0xFF ...... data | unreadable | block 2 ... data | unreadable | ...            PL_GUARD_AFTER
 *     | unreadable | data ... | unreadable | data ... |                                          PL_GUARD_BEFORE
 *
 * New memory is filled with 0xFF, which is NaN in every float type: elements that a kernel does not write show. */
#include "guard.h"
#include "object.h"

#include <string.h>
#include <sys/mman.h>

enum { PAGE_BYTES = 4096 };
static const size_t ARENA_BYTES = (size_t)1 << 40;     /* addresses; memory is committed block by block */

static char *arena;
static size_t n_used;
static int side;

void pl_storage_guard(int new_side)
{
    pl_enter();
    side = new_side;
    pl_leave();
}

int pl_guard_side(void) { return side; }

bool pl_guard_owns(const void *data)
{
    return arena && (const char *)data >= arena && (const char *)data < arena + ARENA_BYTES;
}

static size_t pages_of(size_t bytes) { return (bytes + PAGE_BYTES - 1) & ~(size_t)(PAGE_BYTES - 1); }

/* Under the lock. NULL: no memory, or all addresses used. */
void *pl_guard_alloc(size_t bytes)
{
    if (!arena) {
        void *found = mmap(NULL, ARENA_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (found == MAP_FAILED)
            return NULL;
        arena = found;
        n_used = PAGE_BYTES;
    }
    size_t block_bytes = pages_of(bytes);
    if (block_bytes + PAGE_BYTES > ARENA_BYTES - n_used)
        return NULL;
    char *block = arena + n_used;
    if (mprotect(block, block_bytes, PROT_READ | PROT_WRITE) != 0)
        return NULL;
    n_used += block_bytes + PAGE_BYTES;
    memset(block, 0xFF, block_bytes);
    return side == PL_GUARD_AFTER ? block + block_bytes - bytes : block;   /* aligned as the size is: to its items */
}

/* Under the lock. */
void pl_guard_free(void *data, size_t bytes)
{
    char *block = (char *)((uintptr_t)data & ~(uintptr_t)(PAGE_BYTES - 1));
    mmap(block, pages_of((size_t)((char *)data - block) + bytes), PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}
