/* The convolutions of cuDNN 9's legacy functions on the host: float32, float64, two or three axes, groups, any strides
 * of data, filters of both formats; relu with bias and addend. 16-bit types are refused, as are sizes that do not fit,
 * so that what plait does then is seen too. */
#include "cudnn.h"
#include "numbers.h"

#include <dlfcn.h>

#include <deque>
#include <mutex>
#include <string>

namespace {

constexpr size_t WORKSPACE = 4096;

struct filter { int type, format, n, size[5]; };
struct conv { int n, pad[3], stride[3], dilate[3], mode, type, groups, math; };
struct activation { int mode, nan; double coefficient; };
struct perf { int algo, status; float time; size_t memory; int determinism, math, reserved[3]; };

struct call {
    int kind;
    tensor x, y;
    filter w;
    conv c;
    char *px, *pw, *py;
    const char *bias, *z;
    bool relu;
};

/* f(place in x, place in w, place in y, whether y's element is new) for every product */
template <class F> void walk(const call &k, F f)
{
    const tensor &x = k.x, &y = k.y;
    const filter &w = k.w;
    int nd = k.c.n, taps = 1, points = 1, per = w.size[1], filters = w.size[0] / k.c.groups;
    for (int d = 0; d < nd; d++)
        taps *= w.size[2 + d], points *= y.size[2 + d];
    for (int n = 0; n < y.size[0]; n++)
        for (int o = 0; o < y.size[1]; o++)
            for (int p = 0; p < points; p++)
                for (int c = 0; c < per; c++)
                    for (int t = 0; t < taps; t++) {
                        int64_t at_y = int64_t(n) * y.step[0] + int64_t(o) * y.step[1];
                        int64_t at_x = int64_t(n) * x.step[0] + int64_t(o / filters * per + c) * x.step[1];
                        bool inside = true;
                        int q = p, u = t;
                        for (int d = nd - 1; d >= 0; d--) {
                            int out = q % y.size[2 + d], tap = u % w.size[2 + d];
                            q /= y.size[2 + d], u /= w.size[2 + d];
                            int in = out * k.c.stride[d] - k.c.pad[d] + tap * k.c.dilate[d];
                            inside = inside && in >= 0 && in < x.size[2 + d];
                            at_y += int64_t(out) * y.step[2 + d];
                            at_x += int64_t(in) * x.step[2 + d];
                        }
                        int64_t at_w = w.format ? (int64_t(o) * taps + t) * per + c : (int64_t(o) * per + c) * taps + t;
                        f(inside ? at_x : -1, at_w, at_y, o, c == 0 && t == 0);
                    }
}

void zero(const tensor &t, char *p)
{
    int64_t n = 1;
    for (int d = 0; d < t.n; d++)
        n *= t.size[d];
    memset(p, 0, n * (t.type ? 8 : 4)); /* packed, in some order */
}

void run(const call &k)
{
    int type = k.x.type;
    if (k.kind == 0) {
        walk(k, [&](int64_t x, int64_t w, int64_t y, int, bool first) {
            double sum = first ? 0 : get(k.py, type, y);
            put(k.py, type, y, sum + (x < 0 ? 0 : get(k.px, type, x) * get(k.pw, type, w)));
        });
        if (k.relu)
            walk(k, [&](int64_t, int64_t, int64_t y, int o, bool first) {
                if (!first)
                    return;
                double v = get(k.py, type, y) + get(k.bias, type, o) + (k.z ? get(k.z, type, y) : 0);
                put(k.py, type, y, v > 0 ? v : 0);
            });
    } else if (k.kind == 1) {
        zero(k.x, k.px);
        walk(k, [&](int64_t x, int64_t w, int64_t y, int, bool) {
            if (x >= 0)
                put(k.px, type, x, get(k.px, type, x) + get(k.pw, type, w) * get(k.py, type, y));
        });
    } else {
        int64_t n = 1;
        for (int d = 0; d < k.w.n; d++)
            n *= k.w.size[d];
        memset(k.pw, 0, n * (type ? 8 : 4));
        walk(k, [&](int64_t x, int64_t w, int64_t y, int, bool) {
            if (x >= 0)
                put(k.pw, type, w, get(k.pw, type, w) + get(k.px, type, x) * get(k.py, type, y));
        });
    }
}

bool fits(const tensor *x, const filter *w, const conv *c, const tensor *y)
{
    bool ok = (x->type == 0 || x->type == 1) && x->type == y->type && x->type == w->type && x->n == y->n &&
        x->n == w->n && c->n == x->n - 2 && x->size[1] == w->size[1] * c->groups && y->size[1] == w->size[0] &&
        c->mode == 1;
    for (int d = 0; ok && d < c->n; d++) {
        int reach = c->dilate[d] * (w->size[2 + d] - 1) + 1;
        ok = y->size[2 + d] == (x->size[2 + d] + 2 * c->pad[d] - reach) / c->stride[d] + 1;
    }
    return ok;
}

int choices(const tensor *x, const filter *w, const conv *c, const tensor *y, int wanted, int *n, perf *found)
{
    *n = 0;
    if (wanted < 2)
        return BAD_PARAM;
    if (!fits(x, w, c, y))
        return NOT_SUPPORTED;
    memset(found, 0, 2 * sizeof *found);
    found[0].algo = 5, found[0].memory = size_t(1) << 40;    /* the fastest wants what nobody has */
    found[1].algo = 1, found[1].memory = WORKSPACE, found[1].math = c->math;
    *n = 2;
    return OK;
}

std::mutex lock;
std::deque<std::function<void()>> calls; /* a captured one runs again: they are kept */

typedef int (*enqueue)(void *stream, void (*)(void *), void *);
void *driver_function(const char *name)
{
    Dl_info info;
    dladdr(reinterpret_cast<void *>(driver_function), &info);
    std::string path = info.dli_fname;
    void *driver = dlopen((path.substr(0, path.rfind('/')) + "/libcuda.so.1").c_str(), RTLD_NOW);
    return driver ? dlsym(driver, name) : nullptr;
}

int start(handle *h, const call &made, int algo, void *space, size_t bytes)
{
    if (algo != 1 || bytes < WORKSPACE || !space)
        return BAD_PARAM;
    return emu_dnn_start(h, [made] { run(made); });
}

char *plain(const void *p) { return emu_dnn_memory(p); }

} // namespace

char *emu_dnn_memory(const void *p)
{
    static auto memory = reinterpret_cast<void *(*)(const void *)>(driver_function("emulatorMemory"));
    return static_cast<char *>(memory(p));
}

int emu_dnn_start(handle *h, std::function<void()> f)
{
    static enqueue host = reinterpret_cast<enqueue>(driver_function("cuLaunchHostFunc"));
    if (!host)
        return EXECUTION_FAILED;
    std::lock_guard<std::mutex> guard(lock);
    calls.push_back(std::move(f));
    auto run_it = [](void *data) { (*static_cast<std::function<void()> *>(data))(); };
    return host(h->stream, run_it, &calls.back()) ? EXECUTION_FAILED : OK;
}

EXPORT int cudnnCreate(handle **h) { return make(h); }
EXPORT int cudnnSetStream(handle *h, void *stream) { return h->stream = stream, OK; }
EXPORT int cudnnCreateTensorDescriptor(tensor **t) { return make(t); }
EXPORT int cudnnDestroyTensorDescriptor(tensor *t) { return drop(t); }
EXPORT int cudnnSetTensorNdDescriptor(tensor *t, int type, int n, const int *size, const int *step)
{
    if (n < 3 || n > 5)
        return BAD_PARAM;
    t->type = type, t->n = n;
    memcpy(t->size, size, n * sizeof *size);
    memcpy(t->step, step, n * sizeof *step);
    return OK;
}
EXPORT int cudnnGetTensorNdDescriptor(tensor *t, int most, int *type, int *n, int *size, int *step)
{
    *type = t->type, *n = t->n;
    int shown = most < t->n ? most : t->n;
    memcpy(size, t->size, shown * sizeof *size);
    memcpy(step, t->step, shown * sizeof *step);
    return OK;
}
EXPORT int cudnnCreateFilterDescriptor(filter **f) { return make(f); }
EXPORT int cudnnDestroyFilterDescriptor(filter *f) { return drop(f); }
EXPORT int cudnnSetFilterNdDescriptor(filter *f, int type, int format, int n, const int *size)
{
    f->type = type, f->format = format, f->n = n;
    memcpy(f->size, size, n * sizeof *size);
    return n < 4 || n > 5 ? BAD_PARAM : OK;
}
EXPORT int cudnnCreateConvolutionDescriptor(conv **c) { return make(c); }
EXPORT int cudnnDestroyConvolutionDescriptor(conv *c) { return drop(c); }
EXPORT int cudnnSetConvolutionNdDescriptor(conv *c, int n, const int *pad, const int *stride, const int *dilate,
                                           int mode, int type)
{
    c->n = n, c->mode = mode, c->type = type;
    memcpy(c->pad, pad, n * sizeof *pad);
    memcpy(c->stride, stride, n * sizeof *stride);
    memcpy(c->dilate, dilate, n * sizeof *dilate);
    return OK;
}
EXPORT int cudnnSetConvolutionGroupCount(conv *c, int groups) { return c->groups = groups, OK; }
EXPORT int cudnnSetConvolutionMathType(conv *c, int math) { return c->math = math, OK; }
EXPORT int cudnnCreateActivationDescriptor(activation **a) { return make(a); }
EXPORT int cudnnDestroyActivationDescriptor(activation *a) { return drop(a); }
EXPORT int cudnnSetActivationDescriptor(activation *a, int mode, int nan, double coefficient)
{
    a->mode = mode, a->nan = nan, a->coefficient = coefficient;
    return mode == 1 ? OK : NOT_SUPPORTED;
}
EXPORT int cudnnGetConvolutionForwardAlgorithm_v7(handle *, tensor *x, filter *w, conv *c, tensor *y, int wanted,
                                                  int *n, perf *found)
{
    return choices(x, w, c, y, wanted, n, found);
}
EXPORT int cudnnGetConvolutionBackwardDataAlgorithm_v7(handle *, filter *w, tensor *y, conv *c, tensor *x, int wanted,
                                                       int *n, perf *found)
{
    return choices(x, w, c, y, wanted, n, found);
}
EXPORT int cudnnGetConvolutionBackwardFilterAlgorithm_v7(handle *, tensor *x, tensor *y, conv *c, filter *w, int wanted,
                                                         int *n, perf *found)
{
    return choices(x, w, c, y, wanted, n, found);
}
EXPORT int cudnnConvolutionForward(handle *h, const void *, tensor *x, const void *px, filter *w, const void *pw,
                                   conv *c, int algo, void *space, size_t bytes, const void *, tensor *y, void *py)
{
    return start(h, {0, *x, *y, *w, *c, plain(px), plain(pw), plain(py), nullptr, nullptr, false}, algo, space, bytes);
}
EXPORT int cudnnConvolutionBiasActivationForward(handle *h, const void *, tensor *x, const void *px, filter *w,
                                                 const void *pw, conv *c, int algo, void *space, size_t bytes,
                                                 const void *alpha2, tensor *, const void *z, tensor *,
                                                 const void *bias, activation *, tensor *y, void *py)
{
    bool adds = x->type ? *static_cast<const double *>(alpha2) != 0 : *static_cast<const float *>(alpha2) != 0;
    call made = {0, *x, *y, *w, *c, plain(px), plain(pw), plain(py), plain(bias), adds ? plain(z) : nullptr, true};
    return start(h, made, algo, space, bytes);
}
EXPORT int cudnnConvolutionBackwardData(handle *h, const void *, filter *w, const void *pw, tensor *y, const void *py,
                                        conv *c, int algo, void *space, size_t bytes, const void *, tensor *x, void *px)
{
    return start(h, {1, *x, *y, *w, *c, plain(px), plain(pw), plain(py), nullptr, nullptr, false}, algo, space, bytes);
}
EXPORT int cudnnConvolutionBackwardFilter(handle *h, const void *, tensor *x, const void *px, tensor *y, const void *py,
                                          conv *c, int algo, void *space, size_t bytes, const void *, filter *w,
                                          void *pw)
{
    return start(h, {2, *x, *y, *w, *c, plain(px), plain(pw), plain(py), nullptr, nullptr, false}, algo, space, bytes);
}
