/* What the files of the emulated driver share. */
#ifndef EMU_STATE_H
#define EMU_STATE_H
#include <cstdlib>
#include <map>
#include <set>

#include "blocks.h"
#include "driver.h"
#include "stream.h"

enum { MULTIPROCESSORS = 4, MAX_SHARED = 227 << 10 };

struct emu_device {
    int number = 0;
    size_t total = 0, used = 0;
    std::atomic<int> error{0}; /* of a kernel: from then on every call fails, as on a real one */
    emu_stream null_stream;
    std::set<emu_stream *> streams;
    std::set<emu_device *> peers;
};

struct emu_function {
    const emu_kernel *kernel;
    const emu_module *module;
    unsigned max_shared;
};

struct emu_module {
    void *library;
    void *(*touch)();
    ptrdiff_t touch_offset = 0;
    size_t statics_bytes = 0;
    std::vector<std::unique_ptr<emu_function>> functions;
};

struct emu_kernel_work {
    CUfunction function = nullptr;
    emu_uint3 grid, block;
    unsigned shared_bytes = 0;
    bool cooperative = false;
    std::shared_ptr<char> data; /* copies of the arguments */
    std::vector<void *> args;
    size_t data_bytes = 0;
    int set(CUfunction f, const unsigned *sizes, unsigned shared, void **params);
    int run(emu_device *device) const;
};

/* Memory of a device has two addresses. Programs see one where nothing may be read or written; kernels and copies work
 * at `real`, where the bytes are. Page-locked memory has one address, and no device. */
struct emu_allocation { size_t bytes; emu_device *device; char *real; size_t reserved; };
struct emu_failure { int after, code; };

struct emu_state {
    std::mutex lock;
    std::vector<std::unique_ptr<emu_device>> devices;
    std::map<CUdeviceptr, emu_allocation> allocations, pinned;
    std::vector<std::shared_ptr<emu_capture>> captures; /* at work */
    emu_failure failures[5] = {};
    std::string fault;
    std::atomic<long> counts[4] = {};
    bool started = false, forked = false;
    std::mutex hold_lock; /* see emulatorHold */
    std::condition_variable hold_changed;
    bool hold = false;
};

emu_state &state();
extern thread_local emu_device *emu_current;
#define CHECK_CONTEXT()                                                                                                \
    do {                                                                                                               \
        if (state().forked || !state().started)                                                                        \
            return CUDA_ERROR_NOT_INITIALIZED;                                                                         \
        if (!emu_current)                                                                                              \
            return CUDA_ERROR_INVALID_CONTEXT;                                                                         \
    } while (0)

int emu_unsafe(void);
int emu_asked_failure(int kind);
void emu_device_failed(emu_device *device, int code, const std::string &text);
void emu_sync_device(emu_device *device);
emu_stream *emu_stream_of(CUstream stream);
/* Runs work on a stream, or notes it in the graph that the stream captures. kernel: kept by work. */
int emu_enqueue(emu_stream *stream, std::function<int()> work, emu_kernel_work *kernel = nullptr);

/* graph.cpp */
void emu_capture_node(emu_stream *stream, std::function<int()> work, emu_kernel_work *kernel);
bool emu_is_capturing(const emu_capture *capture);
int emu_capture_join(emu_stream *stream, emu_event *event); /* with the event's lock */
#endif
