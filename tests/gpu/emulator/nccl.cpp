/* NCCL on the emulated driver, among devices of one process and of several. Ranks meet in a folder, whose path is the
 * unique id: for its n-th collective each writes a file with what it calls and sends, and waits, on its stream's
 * thread, for those of the others. A send waits until it is received. So calls in another order than the other ranks'
 * wait for ever, as they do with the real library, until ncclCommAbort. All ranks add in the order of ranks.
 *
 * Refused, as a fault of the device: memory of the host or another device, a stream of another device, another current
 * device. Calls of ranks that do not match are an asynchronous error: their streams wait for ncclCommAbort. A
 * communicator that does not block is not ready when a call returns, and must be asked before the next one. */
#include "driver.h"
#include "numbers.h"

#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace {

enum { SUCCESS, CUDA, SYSTEM, INTERNAL, BAD_ARGUMENT, BAD_USAGE, REMOTE, IN_PROGRESS };
enum { INT8, UINT8, INT32, UINT32, INT64, UINT64, FLOAT16, FLOAT32, FLOAT64, BFLOAT16, N_TYPES };
enum { SUM, PROD, MAX, MIN };
enum kind { ALL_REDUCE, REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST, SEND, RECEIVE };
const char *const names[] = {"all_reduce", "reduce", "reduce_scatter", "all_gather", "broadcast", "send", "receive"};
const size_t sizes[N_TYPES] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
const char *const texts[] = {"no error", "unhandled cuda error", "unhandled system error", "internal error",
                             "invalid argument", "invalid usage", "remote process exited or there was a network error",
                             "NCCL operation in progress"};

struct unique_id { char path[128]; };
struct config { size_t bytes; unsigned magic, version; int blocking; };
struct head { int32_t kind, type, combine, peer; uint64_t n; };

struct comm {
    std::string folder;
    int n, rank, device;
    bool blocking;
    std::atomic<bool> aborted{false}, asked{true}; /* asked: whether the last call is complete */
    std::atomic<int> error{IN_PROGRESS}, running{0};
    uint64_t calls = 0;
    std::map<std::string, uint64_t> messages;
};
struct call { head what; comm *of; const char *from; char *to; CUstream stream; };
struct batch { comm *of; CUstream stream; std::vector<call> calls; };

thread_local int depth, failed;
thread_local std::vector<batch> open_group;
std::mutex text_lock;
std::string last_text;

std::filesystem::path here() /* the folder of the emulator's libraries */
{
    Dl_info info;
    dladdr(reinterpret_cast<void *>(here), &info);
    return std::filesystem::path(info.dli_fname).parent_path();
}

template <class F> F driver(const char *name)
{
    static void *library = dlopen((here() / "libcuda.so.1").c_str(), RTLD_NOW);
    return reinterpret_cast<F>(dlsym(library, name));
}

int say(int code, const std::string &text)
{
    std::lock_guard<std::mutex> hold(text_lock);
    last_text = text;
    fprintf(stderr, "emulator: NCCL: %s\n", text.c_str());
    return code;
}

int fault(const comm *c, const std::string &text)
{
    static auto fail = driver<void (*)(int, const char *)>("emulatorFailed");
    fail(c->device, ("NCCL: " + text).c_str());
    return say(BAD_ARGUMENT, text);
}

void nap() { std::this_thread::sleep_for(std::chrono::microseconds(100)); }

std::string described(const head &h)
{
    return std::string(names[h.kind]) + " of " + std::to_string(h.n) + " of type " + std::to_string(h.type) +
           ", operation " + std::to_string(h.combine) + ", peer " + std::to_string(h.peer);
}

/* ---- files ------------------------------------------------------------------------------------------------------- */
void write_file(const std::string &path, const head &h, const char *data, size_t bytes)
{
    std::string fresh = path + ".new";
    std::ofstream file(fresh, std::ios::binary);
    file.write(reinterpret_cast<const char *>(&h), sizeof h);
    file.write(data, static_cast<std::streamsize>(bytes));
    file.close();
    rename(fresh.c_str(), path.c_str());
}

/* False: aborted. */
bool await_file(const comm *c, const std::string &path, bool there = true)
{
    while ((access(path.c_str(), F_OK) == 0) != there) {
        if (c->aborted)
            return false;
        nap();
    }
    return !c->aborted;
}

head read_file(const std::string &path, std::vector<char> &data)
{
    head h{};
    std::ifstream file(path, std::ios::binary);
    file.read(reinterpret_cast<char *>(&h), sizeof h);
    data.assign(std::istreambuf_iterator<char>(file), {});
    return h;
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */
template <class T> T combined(T a, T b, int how)
{
    return how == SUM ? static_cast<T>(a + b) : how == PROD ? static_cast<T>(a * b)
         : how == MAX ? (a > b ? a : b) : (a < b ? a : b);
}

template <class T> void fold(char *into, const char *more, size_t n, int how)
{
    for (size_t i = 0; i < n; i++)
        reinterpret_cast<T *>(into)[i] = combined(reinterpret_cast<T *>(into)[i],
                                                  reinterpret_cast<const T *>(more)[i], how);
}

void combine(char *into, const char *more, size_t n, int type, int how)
{
    switch (type) {
    case INT8: return fold<int8_t>(into, more, n, how);
    case UINT8: return fold<uint8_t>(into, more, n, how);
    case INT32: return fold<int32_t>(into, more, n, how);
    case UINT32: return fold<uint32_t>(into, more, n, how);
    case INT64: return fold<int64_t>(into, more, n, how);
    case UINT64: return fold<uint64_t>(into, more, n, how);
    case FLOAT32: return fold<float>(into, more, n, how);
    case FLOAT64: return fold<double>(into, more, n, how);
    }
    int known = type == FLOAT16 ? 2 : 14; /* as numbers.h names it */
    for (size_t i = 0; i < n; i++)
        put(into, known, static_cast<int64_t>(i), combined(get(into, known, static_cast<int64_t>(i)),
                                                           get(more, known, static_cast<int64_t>(i)), how));
}

/* ---- calls, on a stream's thread --------------------------------------------------------------------------------- */
std::string message_path(comm *c, kind what, int from, int to)
{
    std::string pair = std::to_string(from) + "." + std::to_string(to);
    return c->folder + "/message." + pair + "." + std::to_string(c->messages[names[what] + pair]++);
}

void collective(const call &k)
{
    comm *c = k.of;
    const head &h = k.what;
    size_t bytes = h.n * sizes[h.type], ranks = static_cast<size_t>(c->n);
    size_t sent = h.kind == REDUCE_SCATTER ? bytes * ranks : h.kind == BROADCAST && h.peer != c->rank ? 0 : bytes;
    auto path = [&](uint64_t number, int rank) {
        return c->folder + "/" + std::to_string(number) + "." + std::to_string(rank);
    };
    uint64_t number = c->calls++;
    write_file(path(number, c->rank), h, k.from, sent);
    std::vector<char> result, data;
    for (int r = 0; r < c->n; r++) {
        if (!await_file(c, path(number, r)))
            return;
        head other = read_file(path(number, r), data);
        if (memcmp(&other, &h, sizeof h)) {
            c->error = say(BAD_USAGE, "ranks make different calls: rank " + std::to_string(c->rank) + ": " +
                                          described(h) + "; rank " + std::to_string(r) + ": " + described(other));
            return;
        }
        if (h.kind == ALL_GATHER || h.kind == BROADCAST || result.empty())
            result.insert(result.end(), data.begin(), data.end());
        else
            combine(result.data(), data.data(), data.size() / sizes[h.type], h.type, h.combine);
    }
    if (h.kind == REDUCE_SCATTER)
        memcpy(k.to, result.data() + bytes * static_cast<size_t>(c->rank), bytes);
    else if (h.kind != REDUCE || h.peer == c->rank)
        memcpy(k.to, result.data(), result.size());
    if (number) /* whoever is here is done with the one before */
        unlink(path(number - 1, c->rank).c_str());
}

void run_batch(void *data)
{
    batch *b = static_cast<batch *>(data);
    comm *c = b->of;
    c->running++;
    std::vector<std::string> sent;
    for (const call &k : b->calls)
        if (k.what.kind == SEND && !c->aborted) {
            sent.push_back(message_path(c, SEND, c->rank, k.what.peer));
            write_file(sent.back(), k.what, k.from, k.what.n * sizes[k.what.type]);
        }
    for (const call &k : b->calls) {
        if (c->aborted || c->error)
            break;
        if (k.what.kind < SEND)
            collective(k);
        if (k.what.kind != RECEIVE)
            continue;
        std::string path = message_path(c, RECEIVE, k.what.peer, c->rank);
        std::vector<char> got;
        if (!await_file(c, path))
            break;
        head h = read_file(path, got);
        if (h.n != k.what.n || h.type != k.what.type)
            c->error = say(BAD_USAGE, "ranks make different calls: " + described(k.what) + "; " + described(h));
        else
            memcpy(k.to, got.data(), got.size());
        unlink(path.c_str());
    }
    for (const std::string &path : sent)
        await_file(c, path, false);
    while (c->error && !c->aborted) /* as kernels do whose other ranks are lost */
        nap();
    c->running--;
    delete b;
}

int enqueue(batch &b)
{
    static auto launch = driver<CUresult (*)(CUstream, void (*)(void *), void *)>("cuLaunchHostFunc");
    if (!b.of->blocking)
        b.of->asked = false;
    int code = launch(b.stream, run_batch, new batch(b)) ? CUDA : SUCCESS;
    return code == SUCCESS && !b.of->blocking ? IN_PROGRESS : code;
}

int close_group()
{
    std::vector<batch> all;
    std::swap(all, open_group);
    int code = failed;
    failed = SUCCESS;
    static auto set = driver<CUresult (*)(CUcontext)>("cuCtxSetCurrent");
    static auto get = driver<CUresult (*)(CUcontext *)>("cuCtxGetCurrent");
    static auto context_of = driver<CUresult (*)(CUstream, CUcontext *)>("cuStreamGetCtx");
    CUcontext before, context;
    get(&before);
    for (batch &b : all) {
        context_of(b.stream, &context);
        set(context);
        int done = code && code != IN_PROGRESS ? code : enqueue(b);
        code = done ? done : code;
    }
    set(before);
    return code;
}

int current_device()
{
    static auto device = driver<CUresult (*)(CUdevice *)>("cuCtxGetDevice");
    int number = -1;
    return device(&number) ? -1 : number;
}

/* "" or what is wrong with a buffer. */
std::string wrong_memory(const comm *c, const void *data, size_t bytes)
{
    static auto attribute = driver<CUresult (*)(void *, int, CUdeviceptr)>("cuPointerGetAttribute");
    auto first = reinterpret_cast<CUdeviceptr>(data);
    for (CUdeviceptr at : {first, first + bytes - 1}) {
        unsigned type = 0;
        int device = -1;
        if (attribute(&type, 2, at) || type != 2)
            return "memory that is not a device's";
        attribute(&device, 9, at);
        if (device != c->device)
            return "memory of gpu(" + std::to_string(device) + ") given to the rank of gpu(" +
                   std::to_string(c->device) + ")";
    }
    return "";
}

int add(kind what, const void *from, void *to, size_t n, int type, int how, int peer, comm *c, CUstream stream)
{
    static auto memory = driver<void *(*)(const void *)>("emulatorMemory");
    static auto context_of = driver<CUresult (*)(CUstream, CUcontext *)>("cuStreamGetCtx");
    static auto current = driver<CUresult (*)(CUcontext *)>("cuCtxGetCurrent");
    if (!c || type < 0 || type >= N_TYPES || how < 0 || how > MIN || peer < 0 || peer >= c->n || !stream)
        return failed = say(BAD_ARGUMENT, std::string(names[what]) + ": a wrong argument");
    if (c->error || !c->asked)
        return failed = say(BAD_USAGE, "a call on a communicator that failed, or is not ready");
    CUcontext of_stream = nullptr, now = nullptr;
    context_of(stream, &of_stream);
    current(&now);
    if (current_device() != c->device || of_stream != now)
        return failed = fault(c, std::string(names[what]) + ": the current device, or that of the stream, is not the"
                                                            " communicator's");
    size_t ranks = static_cast<size_t>(c->n), bytes = n * sizes[type];
    size_t read = what == REDUCE_SCATTER ? bytes * ranks : what == RECEIVE ? 0 : bytes;
    size_t written = what == ALL_GATHER ? bytes * ranks : what == SEND ? 0 : bytes;
    if (!n)
        return SUCCESS;
    for (auto &[data, some] : {std::pair<const void *, size_t>{from, read}, {to, written}}) {
        std::string wrong = some ? wrong_memory(c, data, some) : "";
        if (!wrong.empty())
            return failed = fault(c, std::string(names[what]) + ": " + wrong);
    }
    if (open_group.empty() || open_group.back().of != c) {
        for (auto &b : open_group)
            if (b.of == c && b.stream != stream)
                return failed = say(BAD_USAGE, "calls of one group on two streams");
        open_group.push_back({c, stream, {}});
    }
    open_group.back().calls.push_back({{what, type, how, peer, n}, c,
                                       static_cast<const char *>(read ? memory(from) : nullptr),
                                       static_cast<char *>(written ? memory(to) : nullptr), stream});
    return depth ? SUCCESS : close_group();
}

/* ---- communicators ----------------------------------------------------------------------------------------------- */
void meet(comm *c)
{
    auto path = [&](int rank) { return c->folder + "/rank." + std::to_string(rank); };
    std::vector<char> data;
    write_file(path(c->rank), {c->device, c->n, 0, 0, 0}, nullptr, 0);
    for (int r = 0; r < c->n; r++) {
        if (!await_file(c, path(r)))
            return;
        head h = read_file(path(r), data);
        if (r != c->rank && h.kind == c->device) {
            c->error = say(BAD_USAGE, "Duplicate GPU detected : rank " + std::to_string(c->rank) + " and rank " +
                                          std::to_string(r) + " both on CUDA device " + std::to_string(c->device));
            return;
        }
    }
    c->error = SUCCESS;
}

int join(comm **made, int n, unique_id id, int rank, bool blocking)
{
    if (rank < 0 || rank >= n || current_device() < 0 || id.path[0] != '/')
        return say(BAD_ARGUMENT, "a wrong rank, id, or no current device");
    comm *c = *made = new comm;
    c->folder = id.path, c->n = n, c->rank = rank, c->device = current_device(), c->blocking = blocking;
    std::thread joining(meet, c);
    if (blocking && !depth) {
        joining.join();
        return c->error;
    }
    joining.detach();
    return blocking ? SUCCESS : IN_PROGRESS;
}

struct folders { /* of the ids that this process made */
    std::vector<std::string> all;
    ~folders()
    {
        std::error_code none;
        for (auto &f : all)
            std::filesystem::remove_all(f, none);
    }
} made_here;

} // namespace

EXPORT int ncclGetVersion(int *version) { return *version = 22800, SUCCESS; }
EXPORT const char *ncclGetErrorString(int code) { return code >= 0 && code <= IN_PROGRESS ? texts[code] : "unknown"; }
EXPORT const char *ncclGetLastError(comm *)
{
    static thread_local std::string copy;
    std::lock_guard<std::mutex> hold(text_lock);
    copy = last_text;
    return copy.c_str();
}

EXPORT int ncclGetUniqueId(unique_id *id)
{
    std::string path = (here().parent_path() / "nccl-XXXXXX").string(); /* a killed process leaves its own there */
    if (path.size() >= sizeof id->path || !mkdtemp(path.data()))
        return SYSTEM;
    made_here.all.push_back(path);
    memset(id, 0, sizeof *id);
    memcpy(id->path, path.c_str(), path.size());
    return SUCCESS;
}

EXPORT int ncclCommInitRank(comm **made, int n, unique_id id, int rank) { return join(made, n, id, rank, true); }
EXPORT int ncclCommInitRankConfig(comm **made, int n, unique_id id, int rank, const config *c)
{
    if (!c || c->magic != 0xcafebeef || c->bytes < 20 || c->version < 21400 || c->blocking < 0 || c->blocking > 1)
        return say(BAD_ARGUMENT, "a wrong configuration");
    return join(made, n, id, rank, c->blocking);
}
EXPORT int ncclCommGetAsyncError(comm *c, int *state)
{
    bool complete = c->asked.exchange(true);
    return *state = complete ? c->error.load() : IN_PROGRESS, SUCCESS;
}
EXPORT int ncclCommAbort(comm *c)
{
    c->aborted = true;
    while (c->running)
        nap();
    return SUCCESS; /* its memory stays: batches may be queued */
}
EXPORT int ncclCommDestroy(comm *c)
{
    while (c->running)
        nap();
    return ncclCommAbort(c);
}

EXPORT int ncclGroupStart(void) { return depth++, SUCCESS; }
EXPORT int ncclGroupEnd(void)
{
    if (depth == 0)
        return BAD_USAGE;
    return --depth ? SUCCESS : close_group();
}
EXPORT int ncclAllReduce(const void *from, void *to, size_t n, int type, int how, comm *c, CUstream s)
{
    return add(ALL_REDUCE, from, to, n, type, how, 0, c, s);
}
EXPORT int ncclReduce(const void *from, void *to, size_t n, int type, int how, int root, comm *c, CUstream s)
{
    return add(REDUCE, from, to, n, type, how, root, c, s);
}
EXPORT int ncclReduceScatter(const void *from, void *to, size_t n, int type, int how, comm *c, CUstream s)
{
    return add(REDUCE_SCATTER, from, to, n, type, how, 0, c, s);
}
EXPORT int ncclAllGather(const void *from, void *to, size_t n, int type, comm *c, CUstream s)
{
    return add(ALL_GATHER, from, to, n, type, SUM, 0, c, s);
}
EXPORT int ncclBroadcast(const void *from, void *to, size_t n, int type, int root, comm *c, CUstream s)
{
    return add(BROADCAST, from, to, n, type, SUM, root, c, s);
}
EXPORT int ncclSend(const void *from, size_t n, int type, int to, comm *c, CUstream s)
{
    return add(SEND, from, nullptr, n, type, SUM, to, c, s);
}
EXPORT int ncclRecv(void *to, size_t n, int type, int from, comm *c, CUstream s)
{
    return add(RECEIVE, nullptr, to, n, type, SUM, from, c, s);
}
