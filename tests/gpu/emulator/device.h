/* What emulated kernels and the emulated driver share. A "cubin" is a shared library that was compiled with prelude.h;
 * it exports emu_kernels, emu_touch and emu_host. A thread of a block is a fiber whose stack begins, at an address that
 * is a multiple of EMU_STACK, with its emu_thread: so a kernel finds it from its own stack pointer. */
#ifndef EMU_DEVICE_H
#define EMU_DEVICE_H
#include <stddef.h>
#include <stdint.h>

enum { EMU_STACK = 128 << 10, EMU_SLOT = 64, EMU_WARP = 32, EMU_COPIES = 64 };

struct emu_uint3 { unsigned x, y, z; };

struct emu_block;

struct emu_copy { void *to; const void *from; int bytes, group; };      /* a cp.async that nobody has waited for */

struct emu_thread {
    emu_uint3 thread_idx, block_idx, block_dim, grid_dim;
    unsigned linear;
    emu_block *block;
    int n_copies, group;
    emu_copy copies[EMU_COPIES];
    uint64_t canary;
};

/* What device code asks of the driver. Each returns when all threads that it waits for have come. */
struct emu_host {
    /* __syncthreads: all living threads of the block; the sum, and, or of `vote`, by kind 0, 1, 2 */
    int (*barrier)(int vote, int kind, const char *file, int line);
    /* The lanes of `mask` give `bytes` (<= EMU_SLOT) each; returns those of all lanes, slot by slot, valid until the
     * calling lane's next meeting but one. */
    const char *(*meet)(unsigned mask, const void *given, size_t bytes, const char *file, int line);
    void (*grid_barrier)(const char *file, int line);  /* of a cooperative launch */
    void *(*shared)(void);                             /* dynamic shared memory */
    size_t (*shared_bytes)(void);
    void (*pause)(void);                               /* lets the other threads run: for loops that wait */
    void (*fail)(const char *text, const char *file, int line);   /* ends the launch */
};

struct emu_kernel {
    const char *name;
    void (*call)(void *const *args);
    int n;
    const size_t *sizes;
};
#endif
