/* Running one launch on the calling thread. */
#ifndef EMU_BLOCKS_H
#define EMU_BLOCKS_H
#include <atomic>
#include <string>

#include "device.h"

struct emu_launch {
    const char *name;
    void (*call)(void *const *args);
    void *const *args;
    emu_uint3 grid, block;
    size_t shared_bytes;
    bool cooperative;
    void *(*statics)();     /* static shared memory: the thread-local variables of the module */
    size_t statics_bytes;
};

extern const emu_host emu_callbacks;

/* Runs it to its end. Returns "", or what went wrong. */
std::string emu_run(const emu_launch &launch);
#endif
