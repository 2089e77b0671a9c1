/* libcuda.so.1 of the emulator: devices, memory, streams, events, modules, launches. Graphs: graph.cpp.
 *
 * Environment: EMULATOR_DEVICES (2), EMULATOR_MEMORY_MB of each (4096), EMULATOR_CAPABILITY (90), EMULATOR_DELAY_US
 * (0). emulatorFail makes later calls fail, emulatorFault tells what a kernel did wrong. */
#include "state.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <csignal>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

static int setting(const char *name, int otherwise)
{
    const char *text = getenv(name);
    return text && *text ? atoi(text) : otherwise;
}

emu_state &state()
{
    static emu_state *s = new emu_state; /* streams' threads outlive the end of main */
    return *s;
}

thread_local emu_device *emu_current = nullptr;

/* ---- what goes wrong --------------------------------------------------------------------------------------------- */
static const struct { int code; const char *name, *text; } errors[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {200, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {500, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {600, "CUDA_ERROR_NOT_READY", "device not ready"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
    {704, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is already enabled"},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {720, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", "too many blocks in cooperative launch"},
    {801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"},
    {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "operation failed due to a previous error during capture"},
    {903, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "unmatched capture in capture sequence"},
    {904, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "capture with unjoined streams"},
    {999, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

EXPORT CUresult cuGetErrorName(CUresult code, const char **text)
{
    for (auto &e : errors)
        if (e.code == code)
            return *text = e.name, CUDA_SUCCESS;
    return *text = nullptr, CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuGetErrorString(CUresult code, const char **text)
{
    for (auto &e : errors)
        if (e.code == code)
            return *text = e.text, CUDA_SUCCESS;
    return *text = nullptr, CUDA_ERROR_INVALID_VALUE;
}

/* Ask for failures: kind 0 launch, 1 kernel (later, on the device), 2 allocation, 3 copy, 4 synchronisation. The call
 * after the next `after` ones fails with `code`; 0: none does. */
EXPORT void emulatorFail(int kind, int after, int code)
{
    std::lock_guard<std::mutex> hold(state().lock);
    state().failures[kind] = {after, code};
}

int emu_asked_failure(int kind)
{
    std::lock_guard<std::mutex> hold(state().lock);
    auto &f = state().failures[kind];
    if (!f.code || f.after-- > 0)
        return CUDA_SUCCESS;
    int code = f.code;
    f.code = 0;
    return code;
}

/* What the last kernel that failed did wrong; "" where none failed. */
EXPORT const char *emulatorFault(void)
{
    static thread_local std::string copy;
    std::lock_guard<std::mutex> hold(state().lock);
    copy = state().fault;
    return copy.c_str();
}

/* Forgets all failures; devices that failed work again. */
/* 1: a graph's launch stops behind the first event that it records, until 0 */
EXPORT void emulatorHold(int hold)
{
    std::lock_guard<std::mutex> lock(state().hold_lock);
    state().hold = hold;
    state().hold_changed.notify_all();
}
EXPORT void emulatorReset(void)
{
    emulatorHold(0);
    std::lock_guard<std::mutex> hold(state().lock);
    state().fault.clear();
    for (auto &f : state().failures)
        f = {0, 0};
    for (auto &d : state().devices)
        d->error = 0;
}

/* How many launches (kind 0), graph launches (1), copies (2), allocations (3) there were. */
EXPORT long emulatorCount(int kind) { return state().counts[kind]; }

void emu_device_failed(emu_device *device, int code, const std::string &text)
{
    fprintf(stderr, "emulator: %s\n", text.c_str());
    std::lock_guard<std::mutex> hold(state().lock);
    if (state().fault.empty())
        state().fault = text;
    int none = 0;
    device->error.compare_exchange_strong(none, code);
}

static struct sigaction before_us;
static void on_fault(int, siginfo_t *info, void *);

/* ---- devices ----------------------------------------------------------------------------------------------------- */
EXPORT CUresult cuInit(unsigned)
{
    static std::once_flag once;
    std::call_once(once, [] {
        int n = setting("EMULATOR_DEVICES", 2);
        for (int i = 0; i < n; i++) {
            state().devices.push_back(std::make_unique<emu_device>());
            emu_device &d = *state().devices.back();
            d.number = i;
            d.total = static_cast<size_t>(setting("EMULATOR_MEMORY_MB", 4096)) << 20;
            d.null_stream.device = &d;
            d.null_stream.blocking = true;
        }
        state().started = true;
        struct sigaction ours = {};
        ours.sa_sigaction = on_fault;
        ours.sa_flags = SA_SIGINFO | SA_NODEFER;
        sigaction(SIGSEGV, &ours, &before_us);
        pthread_atfork(nullptr, nullptr, [] { state().forked = true; });
    });
    if (state().forked)
        return CUDA_ERROR_NOT_INITIALIZED;
    return state().devices.empty() ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS;
}

EXPORT CUresult cuDriverGetVersion(int *version) { return *version = 13000, CUDA_SUCCESS; }

EXPORT CUresult cuDeviceGetCount(int *n)
{
    *n = static_cast<int>(state().devices.size());
    return state().started && !state().forked ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

static emu_device *device_at(CUdevice number)
{
    auto &all = state().devices;
    return number >= 0 && number < static_cast<int>(all.size()) && !state().forked ? all[number].get() : nullptr;
}

EXPORT CUresult cuDeviceGet(CUdevice *device, int number)
{
    *device = number;
    return device_at(number) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

EXPORT CUresult cuDeviceGetName(char *name, int bytes, CUdevice device)
{
    snprintf(name, static_cast<size_t>(bytes), "Emulated GPU");
    return device_at(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    if (!device_at(device))
        return CUDA_ERROR_INVALID_DEVICE;
    return *bytes = device_at(device)->total, CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetUuid_v2(char *uuid, CUdevice device)
{
    memset(uuid, 0, 16);
    uuid[15] = static_cast<char>(device);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetPCIBusId(char *text, int bytes, CUdevice device)
{
    snprintf(text, static_cast<size_t>(bytes), "0000:%02x:00.0", device);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device)
{
    static const int capability = setting("EMULATOR_CAPABILITY", 90);
    if (!device_at(device))
        return CUDA_ERROR_INVALID_DEVICE;
    switch (attribute) {
    case 1: case 2: case 3: case 39: *value = attribute == 39 ? 2048 : 1024; break; /* threads of a block, its x, y */
    case 4: *value = 64; break;
    case 5: *value = 2147483647; break;                     /* grid x, y, z */
    case 6: case 7: *value = 65535; break;
    case 8: *value = 48 << 10; break;                       /* shared memory of a block, without opting in */
    case 9: *value = 64 << 10; break;
    case 10: *value = 32; break;
    case 12: case 82: *value = 65536; break;                /* registers */
    case 13: *value = 1000000; break;                       /* clock, kHz */
    case 16: *value = MULTIPROCESSORS; break;
    case 31: case 40: *value = 1; break;                    /* concurrent kernels, 2 copy engines */
    case 36: *value = 1000000; break;                       /* memory clock, kHz */
    case 37: *value = 1024; break;                          /* memory bus, bits */
    case 38: *value = 4 << 20; break;                       /* L2 */
    case 41: *value = 1; break;                             /* unified addressing */
    case 75: *value = capability / 10; break;
    case 76: *value = capability % 10; break;
    case 81: *value = 228 << 10; break;                     /* shared memory of a multiprocessor */
    case 95: *value = 1; break;                             /* cooperative launch */
    case 97: *value = MAX_SHARED; break;
    case 106: *value = 32; break;                           /* blocks of a multiprocessor */
    case 115: *value = 1; break;                            /* memory pools */
    default: *value = 0;
    }
    return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceCanAccessPeer(int *can, CUdevice a, CUdevice b)
{
    *can = a != b;
    return device_at(a) && device_at(b) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    *context = device_at(device);
    return *context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice) { return CUDA_SUCCESS; }
EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice, unsigned *flags, int *active)
{
    return *flags = 0, *active = 1, CUDA_SUCCESS;
}
EXPORT CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice, unsigned) { return CUDA_SUCCESS; }
EXPORT CUresult cuCtxSetCurrent(CUcontext context) { return emu_current = context, CUDA_SUCCESS; }
EXPORT CUresult cuCtxGetCurrent(CUcontext *context) { return *context = emu_current, CUDA_SUCCESS; }
static thread_local std::vector<emu_device *> pushed;
EXPORT CUresult cuCtxPushCurrent_v2(CUcontext context)
{
    pushed.push_back(emu_current);
    return emu_current = context, CUDA_SUCCESS;
}
EXPORT CUresult cuCtxPopCurrent_v2(CUcontext *context)
{
    if (pushed.empty())
        return CUDA_ERROR_INVALID_CONTEXT;
    if (context)
        *context = emu_current;
    emu_current = pushed.back();
    pushed.pop_back();
    return CUDA_SUCCESS;
}
EXPORT CUresult cuCtxGetDevice(CUdevice *device)
{
    if (!emu_current)
        return CUDA_ERROR_INVALID_CONTEXT;
    return *device = emu_current->number, CUDA_SUCCESS;
}
EXPORT CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned)
{
    if (!emu_current || !peer || peer == emu_current)
        return CUDA_ERROR_INVALID_CONTEXT;
    std::lock_guard<std::mutex> hold(state().lock);
    return emu_current->peers.insert(peer).second ? CUDA_SUCCESS : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
}
/* From here on no device may use another one's memory. */
EXPORT void emulatorForgetPeers(void)
{
    std::lock_guard<std::mutex> hold(state().lock);
    for (auto &d : state().devices)
        d->peers.clear();
}
EXPORT CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    return *least = 0, *greatest = -5, CUDA_SUCCESS;
}
EXPORT CUresult cuCtxSynchronize(void)
{
    CHECK_CONTEXT();
    emu_sync_device(emu_current);
    return emu_current->error;
}

/* A call that is not allowed while a stream captures in a strict mode. */
int emu_unsafe(void)
{
    std::lock_guard<std::mutex> hold(state().lock);
    for (auto &c : state().captures)
        if (c->mode == 0 || (c->mode == 1 && c->by == std::this_thread::get_id()))
            return c->status = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    return CUDA_SUCCESS;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */
static const emu_allocation *inside(const std::map<CUdeviceptr, emu_allocation> &all, CUdeviceptr data, size_t bytes,
                                    CUdeviceptr *start = nullptr);

/* Host code that touches memory of a device: says so, and dies as it would. */
static void on_fault(int, siginfo_t *info, void *)
{
    auto data = reinterpret_cast<CUdeviceptr>(info->si_addr);
    if (state().lock.try_lock()) {
        const emu_allocation *found = inside(state().allocations, data, 1);
        char text[96];
        int n = found ? snprintf(text, sizeof text, "emulator: host code touched memory of gpu(%d)\n",
                                 found->device->number) : 0;
        state().lock.unlock();
        if (n && write(2, text, static_cast<size_t>(n)) < 0)
            _exit(139);
    }
    sigaction(SIGSEGV, &before_us, nullptr); /* the access is tried again, and whoever was here before us sees it */
}

static void *pages(size_t bytes, int access)
{
    void *p = mmap(nullptr, bytes, access, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? nullptr : p;
}

EXPORT CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
    CHECK_CONTEXT();
    std::lock_guard<std::mutex> hold(state().lock);
    *total = emu_current->total;
    *free_bytes = *total - emu_current->used;
    return emu_current->error;
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *data, size_t bytes)
{
    CHECK_CONTEXT();
    *data = 0;
    if (!bytes)
        return CUDA_ERROR_INVALID_VALUE;
    if (int code = emu_unsafe())
        return code;
    if (int code = emu_asked_failure(2))
        return code;
    state().counts[3]++;
    std::lock_guard<std::mutex> hold(state().lock);
    if (emu_current->used + bytes > emu_current->total)
        return CUDA_ERROR_OUT_OF_MEMORY;
    size_t reserved = ((bytes + 4095) & ~static_cast<size_t>(4095)) + 4096; /* the last page is nobody's, in both */
    void *seen = pages(reserved, PROT_NONE), *real = seen ? pages(reserved, PROT_READ | PROT_WRITE) : nullptr;
    if (!real) {
        if (seen)
            munmap(seen, reserved);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    mprotect(static_cast<char *>(real) + reserved - 4096, 4096, PROT_NONE);
    if (bytes <= 16 << 20)
        memset(real, 0xff, bytes); /* what nobody wrote is NaN */
    emu_current->used += bytes;
    *data = reinterpret_cast<CUdeviceptr>(seen);
    state().allocations[*data] = {bytes, emu_current, static_cast<char *>(real), reserved};
    return emu_current->error;
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr data)
{
    CHECK_CONTEXT();
    if (!data)
        return CUDA_SUCCESS;
    if (int code = emu_unsafe())
        return code;
    emu_device *owner;
    {
        std::lock_guard<std::mutex> hold(state().lock);
        auto found = state().allocations.find(data);
        if (found == state().allocations.end())
            return CUDA_ERROR_INVALID_VALUE;
        owner = found->second.device;
    }
    emu_sync_device(owner); /* the real one waits, too */
    std::lock_guard<std::mutex> hold(state().lock);
    emu_allocation freed = state().allocations[data];
    owner->used -= freed.bytes;
    state().allocations.erase(data);
    munmap(reinterpret_cast<void *>(data), freed.reserved);
    munmap(freed.real, freed.reserved);
    return owner->error;
}

EXPORT CUresult cuMemHostAlloc(void **data, size_t bytes, unsigned)
{
    CHECK_CONTEXT();
    if (int code = emu_asked_failure(2))
        return code;
    *data = aligned_alloc(4096, (bytes + 4095) & ~static_cast<size_t>(4095));
    std::lock_guard<std::mutex> hold(state().lock);
    state().pinned[reinterpret_cast<CUdeviceptr>(*data)] = {bytes, nullptr, nullptr, 0};
    return *data ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
EXPORT CUresult cuMemAllocHost_v2(void **data, size_t bytes) { return cuMemHostAlloc(data, bytes, 0); }
EXPORT CUresult cuMemFreeHost(void *data)
{
    CHECK_CONTEXT();
    for (auto &d : state().devices)
        emu_sync_device(d.get());
    std::lock_guard<std::mutex> hold(state().lock);
    if (!state().pinned.erase(reinterpret_cast<CUdeviceptr>(data)))
        return CUDA_ERROR_INVALID_VALUE;
    free(data);
    return CUDA_SUCCESS;
}
EXPORT CUresult cuMemHostRegister_v2(void *data, size_t bytes, unsigned)
{
    std::lock_guard<std::mutex> hold(state().lock);
    return state().pinned[reinterpret_cast<CUdeviceptr>(data)] = {bytes, nullptr, nullptr, 0}, CUDA_SUCCESS;
}
EXPORT CUresult cuMemHostUnregister(void *data)
{
    std::lock_guard<std::mutex> hold(state().lock);
    return state().pinned.erase(reinterpret_cast<CUdeviceptr>(data)) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
EXPORT CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *to, void *data, unsigned)
{
    return *to = reinterpret_cast<CUdeviceptr>(data), CUDA_SUCCESS;
}

/* The allocation in which [data, data + bytes) lies, or null. */
static const emu_allocation *inside(const std::map<CUdeviceptr, emu_allocation> &all, CUdeviceptr data, size_t bytes,
                                    CUdeviceptr *start)
{
    auto after = all.upper_bound(data);
    if (after == all.begin())
        return nullptr;
    --after;
    if (start)
        *start = after->first;
    return data + bytes <= after->first + after->second.bytes ? &after->second : nullptr;
}
static bool on_device(CUdeviceptr data, size_t bytes)
{
    std::lock_guard<std::mutex> hold(state().lock);
    return inside(state().allocations, data, bytes) || inside(state().pinned, data, bytes);
}
static bool is_pinned(const void *data, size_t bytes)
{
    std::lock_guard<std::mutex> hold(state().lock);
    return inside(state().pinned, reinterpret_cast<CUdeviceptr>(data), bytes);
}

EXPORT CUresult cuPointerGetAttribute(void *value, int attribute, CUdeviceptr data)
{
    std::lock_guard<std::mutex> hold(state().lock);
    const emu_allocation *a = inside(state().allocations, data, 1);
    const emu_allocation *p = inside(state().pinned, data, 1);
    if (!a && !p)
        return CUDA_ERROR_INVALID_VALUE;
    if (attribute == 2) /* memory type: 1 host, 2 device */
        *static_cast<unsigned *>(value) = a ? 2 : 1;
    else if (attribute == 9)
        *static_cast<int *>(value) = a ? a->device->number : 0;
    else
        return CUDA_ERROR_NOT_SUPPORTED;
    return CUDA_SUCCESS;
}

/* Where the bytes are. */
static void *at(CUdeviceptr data)
{
    std::lock_guard<std::mutex> hold(state().lock);
    CUdeviceptr start = 0;
    const emu_allocation *a = inside(state().allocations, data, 0, &start);
    return a ? a->real + (data - start) : reinterpret_cast<void *>(data);
}

/* Is there memory at this address? */
static bool is_mapped(CUdeviceptr data)
{
    unsigned char there;
    return data >> 32 && !(data >> 47) && !mincore(reinterpret_cast<void *>(data & ~CUdeviceptr{4095}), 1, &there);
}

/* A pointer that code of a device is given, as an address where the bytes are. Other words stay as they are. Returns
 * what is wrong with it, or "". */
static std::string localise(emu_device *device, CUdeviceptr *word)
{
    std::lock_guard<std::mutex> hold(state().lock);
    char text[128] = "";
    CUdeviceptr start = 0;
    const emu_allocation *a = inside(state().allocations, *word, 0, &start);
    if (a && a->device != device && !device->peers.count(a->device))
        snprintf(text, sizeof text, "memory of gpu(%d) given to code of gpu(%d)", a->device->number, device->number);
    else if (a)
        *word = reinterpret_cast<CUdeviceptr>(a->real) + (*word - start);
    else if (!inside(state().pinned, *word, 0) && is_mapped(*word))
        snprintf(text, sizeof text, "memory of the host given to code of gpu(%d)", device->number);
    return text;
}

/* For the other emulated libraries: where the bytes are that a pointer names on the current device. One of another
 * memory fails the device. Without a current device, any pointer will do. */
EXPORT void *emulatorMemory(const void *data)
{
    auto word = reinterpret_cast<CUdeviceptr>(data);
    if (!emu_current)
        return at(word);
    std::string wrong = word ? localise(emu_current, &word) : "";
    if (!wrong.empty())
        emu_device_failed(emu_current, CUDA_ERROR_ILLEGAL_ADDRESS, wrong);
    return reinterpret_cast<void *>(word);
}

/* For the other emulated libraries: code of a device did something wrong. */
EXPORT void emulatorFailed(int number, const char *text)
{
    emu_device_failed(device_at(number), CUDA_ERROR_ILLEGAL_ADDRESS, text);
}

static int copy(void *to, const void *from, size_t bytes, emu_stream *stream)
{
    state().counts[2]++;
    if (int code = emu_asked_failure(3))
        return code;
    return emu_enqueue(stream, [=] { return memmove(to, from, bytes), CUDA_SUCCESS; });
}

EXPORT CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
    CHECK_CONTEXT();
    if (!bytes)
        return CUDA_SUCCESS;
    if (!on_device(to, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    if (is_pinned(from, bytes)) /* read when the copy runs */
        return copy(at(to), from, bytes, emu_stream_of(stream));
    auto staged = std::make_shared<std::vector<char>>(static_cast<const char *>(from),
                                                      static_cast<const char *>(from) + bytes);
    state().counts[2]++;
    if (int code = emu_asked_failure(3))
        return code;
    return emu_enqueue(emu_stream_of(stream),
                       [=] { return memcpy(at(to), staged->data(), bytes), CUDA_SUCCESS; });
}
EXPORT CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    CHECK_CONTEXT();
    if (!bytes)
        return CUDA_SUCCESS;
    if (!on_device(from, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    emu_stream *s = emu_stream_of(stream);
    if (int code = copy(to, at(from), bytes, s))
        return code;
    if (!s->capture && !is_pinned(to, bytes))
        s->sync(); /* pageable memory: the call returns when the copy is done */
    return emu_current->error;
}
EXPORT CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    CHECK_CONTEXT();
    if (!bytes)
        return CUDA_SUCCESS;
    if (!on_device(to, bytes) || !on_device(from, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    return copy(at(to), at(from), bytes, emu_stream_of(stream));
}
EXPORT CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, size_t bytes, CUstream stream)
{
    return cuMemcpyDtoDAsync_v2(to, from, bytes, stream);
}
EXPORT CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    if (!on_device(to, bytes))
        return cuMemcpyDtoHAsync_v2(at(to), from, bytes, stream);
    if (!on_device(from, bytes))
        return cuMemcpyHtoDAsync_v2(to, at(from), bytes, stream);
    return cuMemcpyDtoDAsync_v2(to, from, bytes, stream);
}
static CUresult now(CUresult code)
{
    if (code)
        return code;
    if (int unsafe = emu_unsafe())
        return unsafe;
    emu_current->null_stream.sync();
    return emu_current->error;
}
EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes)
{
    return now(cuMemcpyHtoDAsync_v2(to, from, bytes, nullptr));
}
EXPORT CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes)
{
    return now(cuMemcpyDtoHAsync_v2(to, from, bytes, nullptr));
}
EXPORT CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    return now(cuMemcpyDtoDAsync_v2(to, from, bytes, nullptr));
}
EXPORT CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    return now(cuMemcpyAsync(to, from, bytes, nullptr));
}

template <class T> static CUresult fill(CUdeviceptr to, T value, size_t n, CUstream stream)
{
    CHECK_CONTEXT();
    if (!n)
        return CUDA_SUCCESS;
    if (!on_device(to, n * sizeof value) || to % sizeof value)
        return CUDA_ERROR_INVALID_VALUE;
    return emu_enqueue(emu_stream_of(stream), [=] {
        for (size_t i = 0; i < n; i++)
            static_cast<T *>(at(to))[i] = value;
        return CUDA_SUCCESS;
    });
}
EXPORT CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char v, size_t n, CUstream s) { return fill(to, v, n, s); }
EXPORT CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short v, size_t n, CUstream s) { return fill(to, v, n, s); }
EXPORT CUresult cuMemsetD32Async(CUdeviceptr to, unsigned v, size_t n, CUstream s) { return fill(to, v, n, s); }
EXPORT CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char v, size_t n) { return now(fill(to, v, n, nullptr)); }
EXPORT CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned v, size_t n) { return now(fill(to, v, n, nullptr)); }

/* ---- streams ----------------------------------------------------------------------------------------------------- */
void emu_sync_device(emu_device *device)
{
    std::vector<emu_stream *> all;
    {
        std::lock_guard<std::mutex> hold(state().lock);
        all.assign(device->streams.begin(), device->streams.end());
    }
    all.push_back(&device->null_stream);
    for (emu_stream *s : all)
        s->sync();
}

emu_stream *emu_stream_of(CUstream stream)
{
    /* 1, 2: the default stream by its other names */
    return reinterpret_cast<uintptr_t>(stream) <= 2 ? &emu_current->null_stream : stream;
}

/* The default stream and blocking streams wait for each other. */
static void order(emu_stream *stream)
{
    emu_device *d = stream->device;
    if (stream == &d->null_stream) {
        std::vector<emu_stream *> all;
        {
            std::lock_guard<std::mutex> hold(state().lock);
            for (emu_stream *s : d->streams)
                if (s->blocking)
                    all.push_back(s);
        }
        for (emu_stream *s : all)
            s->sync();
    } else if (stream->blocking) {
        d->null_stream.sync();
    }
}

int emu_enqueue(emu_stream *stream, std::function<int()> work, emu_kernel_work *kernel)
{
    if (stream->capture) {
        if (stream->capture->status)
            return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
        emu_capture_node(stream, std::move(work), kernel);
        return CUDA_SUCCESS;
    }
    if (stream->device->error)
        return stream->device->error;
    order(stream);
    emu_device *device = stream->device;
    stream->push([=] {
        if (!device->error)
            if (int code = work())
                emu_device_failed(device, code, "an operation failed");
    });
    return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamCreate(CUstream *stream, unsigned flags)
{
    CHECK_CONTEXT();
    *stream = new emu_stream;
    (*stream)->device = emu_current;
    (*stream)->blocking = !(flags & 1);
    std::lock_guard<std::mutex> hold(state().lock);
    emu_current->streams.insert(*stream);
    return emu_current->error;
}
EXPORT CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int)
{
    return cuStreamCreate(stream, flags);
}
EXPORT CUresult cuStreamDestroy_v2(CUstream stream)
{
    emu_device *d = stream->device;
    {
        std::lock_guard<std::mutex> hold(state().lock);
        d->streams.erase(stream);
    }
    stream->sync();
    std::unique_lock<std::mutex> hold(stream->lock);
    stream->closed = true;
    bool started = stream->started;
    stream->changed.notify_all();
    hold.unlock();
    if (!started)
        delete stream;
    return CUDA_SUCCESS;
}
EXPORT CUresult cuStreamSynchronize(CUstream stream)
{
    if (state().forked)
        return CUDA_ERROR_NOT_INITIALIZED;
    if (!emu_current && reinterpret_cast<uintptr_t>(stream) <= 2)
        return CUDA_ERROR_INVALID_CONTEXT;
    emu_stream *s = emu_stream_of(stream);
    if (s->capture)
        return s->capture->status = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (int code = emu_unsafe())
        return code;
    s->sync();
    if (int code = emu_asked_failure(4))
        return code;
    return s->device->error;
}
EXPORT CUresult cuStreamQuery(CUstream stream)
{
    emu_stream *s = emu_stream_of(stream);
    if (s->device->error)
        return s->device->error;
    return s->idle() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
EXPORT CUresult cuStreamGetCtx(CUstream stream, CUcontext *context)
{
    return *context = emu_stream_of(stream)->device, CUDA_SUCCESS;
}
EXPORT CUresult cuStreamGetPriority(CUstream, int *priority) { return *priority = 0, CUDA_SUCCESS; }
EXPORT CUresult cuLaunchHostFunc(CUstream stream, void (*f)(void *), void *data)
{
    CHECK_CONTEXT();
    return emu_enqueue(emu_stream_of(stream), [=] { return f(data), CUDA_SUCCESS; });
}

/* ---- events ------------------------------------------------------------------------------------------------------ */
EXPORT CUresult cuEventCreate(CUevent *event, unsigned flags)
{
    CHECK_CONTEXT();
    *event = new emu_event;
    (*event)->timed = !(flags & 2);
    return emu_current->error;
}
EXPORT CUresult cuEventDestroy_v2(CUevent event) { return delete event, CUDA_SUCCESS; }
EXPORT CUresult cuEventRecord(CUevent event, CUstream stream)
{
    CHECK_CONTEXT();
    emu_stream *s = emu_stream_of(stream);
    std::lock_guard<std::mutex> hold(event->lock);
    if (s->capture) {
        event->capture = s->capture;
        event->nodes = s->last;
        return s->capture->status;
    }
    event->capture = nullptr;
    auto mark = event->mark = std::make_shared<emu_mark>();
    order(s);
    s->push([=] { mark->set(); }); /* of a failed device too: nobody waits for ever */
    return s->device->error;
}
EXPORT CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags)
{
    CHECK_CONTEXT();
    emu_stream *s = emu_stream_of(stream);
    if (!s->capture || !(flags & 1))
        return flags & 1 ? CUDA_ERROR_INVALID_VALUE : cuEventRecord(event, stream);
    emu_capture_node(s, [] { return static_cast<int>(CUDA_SUCCESS); }, nullptr);
    s->last.back()->record = event;
    return s->capture->status;
}
static std::shared_ptr<emu_mark> mark_of(CUevent event)
{
    std::lock_guard<std::mutex> hold(event->lock);
    return event->mark;
}
EXPORT CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned)
{
    CHECK_CONTEXT();
    emu_stream *s = emu_stream_of(stream);
    std::shared_ptr<emu_mark> mark;
    {
        std::lock_guard<std::mutex> hold(event->lock);
        if (event->capture && !event->capture->status && emu_is_capturing(event->capture.get())) {
            if (s->capture && s->capture != event->capture)
                return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
            return emu_capture_join(s, event);
        }
        mark = event->mark;
    }
    if (s->capture) /* an event from outside the capture */
        return s->capture->status = CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    if (mark)
        s->push([=] { mark->wait(); });
    return s->device->error;
}
static int any_error(void)
{
    return emu_current ? static_cast<int>(emu_current->error) : 0;
}
EXPORT CUresult cuEventQuery(CUevent event)
{
    CHECK_CONTEXT();
    auto mark = mark_of(event);
    if (any_error())
        return any_error();
    return !mark || mark->is_done() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
EXPORT CUresult cuEventSynchronize(CUevent event)
{
    if (state().forked)
        return CUDA_ERROR_NOT_INITIALIZED;
    if (int code = emu_unsafe())
        return code;
    auto mark = mark_of(event);
    if (mark)
        mark->wait();
    if (int code = emu_asked_failure(4))
        return code;
    return any_error();
}
EXPORT CUresult cuEventElapsedTime(float *ms, CUevent start, CUevent end)
{
    auto a = mark_of(start), b = mark_of(end);
    if (!a || !b || !start->timed || !end->timed)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!a->is_done() || !b->is_done())
        return CUDA_ERROR_NOT_READY;
    return *ms = static_cast<float>(b->ns - a->ns) * 1e-6f, CUDA_SUCCESS;
}
EXPORT CUresult cuEventElapsedTime_v2(float *ms, CUevent start, CUevent end)
{ return cuEventElapsedTime(ms, start, end); }

/* ---- modules ----------------------------------------------------------------------------------------------------- */
/* The bytes of a library in memory: its section headers stand last. */
static size_t image_bytes(const void *image)
{
    auto *head = static_cast<const ElfW(Ehdr) *>(image);
    if (memcmp(head->e_ident, ELFMAG, SELFMAG))
        return 0;
    return head->e_shoff + static_cast<size_t>(head->e_shentsize) * head->e_shnum;
}

struct statics_search { const char *inside; const char *start; size_t bytes; };
static int find_statics(dl_phdr_info *info, size_t, void *data)
{
    auto *search = static_cast<statics_search *>(data);
    if (!info->dlpi_tls_data)
        return 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        auto *start = static_cast<const char *>(info->dlpi_tls_data);
        size_t bytes = info->dlpi_phdr[i].p_memsz;
        if (info->dlpi_phdr[i].p_type == PT_TLS && search->inside >= start && search->inside < start + bytes) {
            search->start = start, search->bytes = bytes;
            return 1;
        }
    }
    return 0;
}

EXPORT CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    CHECK_CONTEXT();
    *module = nullptr;
    size_t bytes = image_bytes(image), done = 0;
    static std::atomic<int> number{0}; /* dlopen knows libraries by their paths, so no path comes twice */
    char path[64];
    snprintf(path, sizeof path, "/tmp/emulated-cubin-%d-%d", getpid(), number++);
    int fd = bytes ? open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600) : -1;
    if (fd < 0)
        return CUDA_ERROR_INVALID_IMAGE;
    while (done < bytes) {
        ssize_t n = write(fd, static_cast<const char *>(image) + done, bytes - done);
        if (n <= 0)
            break;
        done += static_cast<size_t>(n);
    }
    close(fd);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    unlink(path);
    auto *kernels = library ? static_cast<const emu_kernel *>(dlsym(library, "emu_kernels")) : nullptr;
    if (!kernels) {
        fprintf(stderr, "emulator: not an emulated cubin (%s)\n", library ? "no kernels" : dlerror());
        return CUDA_ERROR_INVALID_IMAGE;
    }
    reinterpret_cast<void (*)(const emu_host *)>(dlsym(library, "emu_set_host"))(&emu_callbacks);
    auto *m = new emu_module;
    m->library = library;
    m->touch = reinterpret_cast<void *(*)()>(dlsym(library, "emu_touch"));
    statics_search search = {static_cast<const char *>(m->touch()), nullptr, 0};
    dl_iterate_phdr(find_statics, &search);
    if (search.start) {
        m->touch_offset = search.inside - search.start;
        m->statics_bytes = search.bytes;
    }
    for (; kernels->name; kernels++)
        m->functions.emplace_back(new emu_function{kernels, m, 48 << 10});
    *module = m;
    return emu_current->error;
}
EXPORT CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned, void *, void *)
{
    return cuModuleLoadData(module, image);
}
EXPORT CUresult cuModuleUnload(CUmodule) { return CUDA_SUCCESS; } /* kept: a launch may be on its way */
EXPORT CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    for (auto &f : module->functions)
        if (!strcmp(f->kernel->name, name))
            return *function = f.get(), CUDA_SUCCESS;
    return CUDA_ERROR_NOT_FOUND;
}
EXPORT CUresult cuModuleGetGlobal_v2(CUdeviceptr *data, size_t *bytes, CUmodule module, const char *name)
{
    void *p = dlsym(module->library, name);
    if (data)
        *data = reinterpret_cast<CUdeviceptr>(p);
    if (bytes)
        *bytes = 0;
    return p ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
EXPORT CUresult cuFuncSetAttribute(CUfunction function, int attribute, int value)
{
    if (attribute == 8) {
        if (value < 0 || value > MAX_SHARED)
            return CUDA_ERROR_INVALID_VALUE;
        function->max_shared = static_cast<unsigned>(value);
    }
    return CUDA_SUCCESS;
}
EXPORT CUresult cuFuncGetAttribute(int *value, int attribute, CUfunction function)
{
    const int known[] = {1024, static_cast<int>(function->module->statics_bytes), 0, 0, 32, 90, 90, 0,
                         static_cast<int>(function->max_shared)};
    if (attribute < 0 || attribute > 8)
        return CUDA_ERROR_INVALID_VALUE;
    return *value = known[attribute], CUDA_SUCCESS;
}
EXPORT CUresult cuFuncGetParamInfo(CUfunction function, size_t index, size_t *offset, size_t *bytes)
{
    if (index >= static_cast<size_t>(function->kernel->n))
        return CUDA_ERROR_INVALID_VALUE;
    *offset = 0;
    if (bytes)
        *bytes = function->kernel->sizes[index];
    return CUDA_SUCCESS;
}
EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *n, CUfunction, int threads, size_t shared)
{
    int by_shared = shared ? static_cast<int>((228 << 10) / shared) : 32;
    int by_threads = threads > 0 ? 2048 / threads : 0;
    return *n = by_threads < by_shared ? by_threads : by_shared, CUDA_SUCCESS;
}
EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *n, CUfunction f, int threads, size_t shared,
                                                                     unsigned)
{
    return cuOccupancyMaxActiveBlocksPerMultiprocessor(n, f, threads, shared);
}

/* ---- launches ---------------------------------------------------------------------------------------------------- */
int emu_kernel_work::set(CUfunction f, const unsigned *sizes, unsigned shared, void **params)
{
    const unsigned most[6] = {2147483647, 65535, 65535, 1024, 1024, 64};
    for (int i = 0; i < 6; i++)
        if (!sizes[i] || sizes[i] > most[i])
            return CUDA_ERROR_INVALID_VALUE;
    if (static_cast<uint64_t>(sizes[3]) * sizes[4] * sizes[5] > 1024 || shared > f->max_shared)
        return CUDA_ERROR_INVALID_VALUE;
    function = f;
    grid = {sizes[0], sizes[1], sizes[2]};
    block = {sizes[3], sizes[4], sizes[5]};
    shared_bytes = shared;
    const emu_kernel *k = f->kernel;
    size_t total = 0;
    std::vector<size_t> offsets;
    for (int i = 0; i < k->n; i++) {
        offsets.push_back(total);
        total += (k->sizes[i] + 15) & ~static_cast<size_t>(15);
    }
    data_bytes = (total + 64) & ~static_cast<size_t>(63);
    data.reset(static_cast<char *>(aligned_alloc(64, data_bytes)), free);
    memset(data.get(), 0, data_bytes);
    args.clear();
    for (int i = 0; i < k->n; i++) {
        memcpy(data.get() + offsets[i], params[i], k->sizes[i]);
        args.push_back(data.get() + offsets[i]);
    }
    return CUDA_SUCCESS;
}

static thread_local const emu_module *running;
static void *statics_of_running() { return static_cast<char *>(running->touch()) - running->touch_offset; }

int emu_kernel_work::run(emu_device *device) const
{
    running = function->module;
    std::shared_ptr<char> local(static_cast<char *>(aligned_alloc(64, data_bytes)), free);
    memcpy(local.get(), data.get(), data_bytes);
    std::vector<void *> here;
    for (size_t i = 0; i < args.size(); i++) {
        char *arg = local.get() + (static_cast<char *>(args[i]) - data.get());
        here.push_back(arg);
        for (size_t at = 0; at + 8 <= function->kernel->sizes[i]; at += 8) { /* pointers stand in structures, too */
            std::string wrong = localise(device, reinterpret_cast<CUdeviceptr *>(arg + at));
            if (!wrong.empty()) {
                wrong = std::string(function->kernel->name) + ": argument " + std::to_string(i) + ": " + wrong;
                return emu_device_failed(device, CUDA_ERROR_ILLEGAL_ADDRESS, wrong), CUDA_SUCCESS;
            }
        }
    }
    emu_launch launch = {function->kernel->name, function->kernel->call, here.data(), grid, block, shared_bytes,
                         cooperative, statics_of_running, function->module->statics_bytes};
    std::string fault = emu_run(launch);
    if (!fault.empty())
        emu_device_failed(device, CUDA_ERROR_LAUNCH_FAILED, fault);
    return CUDA_SUCCESS;
}

static CUresult launch(CUfunction f, const unsigned *sizes, unsigned shared, CUstream stream, void **params,
                       bool cooperative)
{
    CHECK_CONTEXT();
    if (!f)
        return CUDA_ERROR_INVALID_HANDLE;
    emu_stream *s = emu_stream_of(stream);
    if (s->device != emu_current)
        return CUDA_ERROR_INVALID_HANDLE;
    if (int code = emu_asked_failure(0))
        return code;
    auto work = std::make_shared<emu_kernel_work>();
    if (int code = work->set(f, sizes, shared, params))
        return code;
    if (cooperative) {
        int n = 0;
        cuOccupancyMaxActiveBlocksPerMultiprocessor(&n, f, static_cast<int>(sizes[3] * sizes[4] * sizes[5]), shared);
        if (static_cast<uint64_t>(sizes[0]) * sizes[1] * sizes[2] > static_cast<uint64_t>(n) * MULTIPROCESSORS)
            return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
    }
    work->cooperative = cooperative;
    state().counts[0]++;
    emu_device *device = emu_current;
    if (int code = emu_asked_failure(1)) /* found later */
        return emu_enqueue(s, [=] { return emu_device_failed(device, code, "a failure that was asked for"), 0; });
    return emu_enqueue(s, [=] { return work->run(device); }, work.get());
}

EXPORT CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                               unsigned bz, unsigned shared, CUstream stream, void **params, void **)
{
    const unsigned sizes[] = {gx, gy, gz, bx, by, bz};
    return launch(f, sizes, shared, stream, params, false);
}
EXPORT CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                          unsigned bz, unsigned shared, CUstream stream, void **params)
{
    const unsigned sizes[] = {gx, gy, gz, bx, by, bz};
    return launch(f, sizes, shared, stream, params, true);
}
EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **params, void **)
{
    const unsigned sizes[] = {c->gridDimX, c->gridDimY, c->gridDimZ, c->blockDimX, c->blockDimY, c->blockDimZ};
    bool cooperative = false;
    for (unsigned i = 0; i < c->numAttrs; i++) { /* of 72 bytes: id, padding, value; 2 is cooperative */
        const int *a = reinterpret_cast<const int *>(static_cast<const char *>(c->attrs) + 72 * i);
        cooperative |= a[0] == 2 && a[2];
    }
    return launch(f, sizes, c->sharedMemBytes, c->hStream, params, cooperative);
}
EXPORT CUresult cuProfilerStart(void) { return CUDA_SUCCESS; }
EXPORT CUresult cuProfilerStop(void) { return CUDA_SUCCESS; }

EXPORT CUresult cuGetProcAddress_v2(const char *name, void **function, int, uint64_t, int *status)
{
    Dl_info info;
    dladdr(reinterpret_cast<void *>(cuInit), &info);
    void *self = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    std::string with = std::string(name) + "_v2";
    *function = dlsym(self, with.c_str());
    if (!*function)
        *function = dlsym(self, name);
    if (status)
        *status = *function ? 0 : 1;
    return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
