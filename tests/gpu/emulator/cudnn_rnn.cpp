/* The recurrent layers of cuDNN 9 (its v8 functions) on the host: all four cells, both directions, several layers,
 * float32, float16, bfloat16, sequences of one length. Where the weights lie and how large the reserve is, is what
 * cuDNN 9.28 says for the same descriptors. What lies in the reserve is this file's own affair; the gradient of the
 * data overwrites it and that of the weights reads what it wrote, as cuDNN has it. */
#include "cudnn.h"
#include "numbers.h"

#include <math.h>

#include <atomic>
#include <vector>

namespace {

enum { RELU, TANH, LSTM, GRU };
enum { DOUBLE_BIAS = 2, LINEAR_INPUT = 0, PACKED = 1, ADD = 0 };
constexpr size_t ALIGNMENT = 16, HEAD = 256, LIBRARY_WORKSPACE = size_t(32) << 20;

/* What a test asks for. OTHER_LAYOUT: a cell's biases follow its matrices. LARGE_RESERVE: twice what it should be.
 * NO_RUN: a call is refused that all questions were answered for. */
enum { OTHER_LAYOUT = 1, LARGE_RESERVE = 2, NO_RUN = 4 };
std::atomic<int> asked{0};
std::atomic<long> served{0};

struct rnn {
    int algo, mode, bias, both, input, type, precision, math, inputs, hidden, projection, layers;
    unsigned flags;
};
struct rnn_data { int type, layout, steps, batch, size; };

int gates_of(const rnn &r) { return r.mode == LSTM ? 4 : r.mode == GRU ? 3 : 1; }
/* words of a unit and step in the reserve */
int kept_of(const rnn &r) { return r.mode == LSTM ? 5 : r.mode == GRU ? 6 : 1; }
int directions_of(const rnn &r) { return 1 + r.both; }
int cells_of(const rnn &r) { return r.layers * directions_of(r); }
int inputs_of(const rnn &r, int cell) { return cell < directions_of(r) ? r.inputs : directions_of(r) * r.hidden; }
int64_t matrices_of(const rnn &r, int cell)
{ return int64_t(gates_of(r)) * r.hidden * (inputs_of(r, cell) + r.hidden); }

/* First element of a cell's matrices, and of its biases. */
int64_t matrices_at(const rnn &r, int cell)
{
    int64_t at = 0;
    for (int i = 0; i < cell; i++)
        at += matrices_of(r, i) + (asked & OTHER_LAYOUT ? 2 * gates_of(r) * r.hidden : 0);
    return at;
}
int64_t biases_at(const rnn &r, int cell)
{
    if (asked & OTHER_LAYOUT)
        return matrices_at(r, cell) + matrices_of(r, cell);
    return matrices_at(r, cells_of(r)) + int64_t(cell) * 2 * gates_of(r) * r.hidden;
}
int64_t weights_of(const rnn &r)
{
    return matrices_at(r, cells_of(r)) + (asked & OTHER_LAYOUT ? 0 : int64_t(cells_of(r)) * 2 * gates_of(r) * r.hidden);
}

size_t rounded(size_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

/* The reserve: a head, each cell's (step, sequence, unit, kept), the outputs (step, sequence, direction, unit) of all
 * layers but the last. */
size_t cell_bytes(const rnn &r, const rnn_data &d)
{
    return rounded(size_t(d.steps) * d.batch * r.hidden * kept_of(r) * bytes_of(r.type));
}
size_t layer_bytes(const rnn &r, const rnn_data &d)
{
    return rounded(size_t(d.steps) * d.batch * directions_of(r) * r.hidden * bytes_of(r.type));
}
size_t reserve_bytes(const rnn &r, const rnn_data &d)
{
    size_t bytes = HEAD + cells_of(r) * cell_bytes(r, d) + (r.layers - 1) * layer_bytes(r, d);
    return asked & LARGE_RESERVE ? 2 * bytes : bytes;
}
size_t space_bytes(const rnn &r, const rnn_data &d)
{
    return LIBRARY_WORKSPACE + size_t(d.steps) * d.batch * gates_of(r) * r.hidden * directions_of(r) * bytes_of(r.type);
}

struct call {
    rnn r;
    rnn_data d; /* of x */
    const int32_t *lengths;
    const char *x, *y, *hx, *cx, *weights, *dy, *dhy, *dcy;
    char *y_out, *hy, *cy, *dx, *dhx, *dcx, *dweights, *space, *reserve;
    size_t space_bytes, reserve_bytes;

    int steps() const { return d.steps; }
    int gates() const { return gates_of(r); }
    int64_t lines() const { return int64_t(d.steps) * d.batch; }
    char *cell(int i) const { return reserve + HEAD + i * cell_bytes(r, d); }
    char *layer(int l) const { return cell(cells_of(r)) + l * layer_bytes(r, d); }
    double w(int c, int row, int k) const
    { return get(weights, r.type, matrices_at(r, c) + int64_t(row) * inputs_of(r, c) + k); }
    int64_t u_at(int c, int row, int k) const
    {
        return matrices_at(r, c) + int64_t(gates()) * r.hidden * inputs_of(r, c) + int64_t(row) * r.hidden + k;
    }
    double u(int c, int row, int k) const { return get(weights, r.type, u_at(c, row, k)); }
    double bias(int c, int which, int row) const
    {
        return get(weights, r.type, biases_at(r, c) + which * gates() * r.hidden + row);
    }
    double state(const char *p, int c, int b, int j) const
    {
        return p ? get(p, r.type, (int64_t(c) * d.batch + b) * r.hidden + j) : 0;
    }
    void put_state(char *p, int c, int b, int j, double v) const
    {
        if (p)
            put(p, r.type, (int64_t(c) * d.batch + b) * r.hidden + j, v);
    }
    /* what a unit keeps of a step */
    int64_t kept_at(int t, int b, int j) const { return ((int64_t(t) * d.batch + b) * r.hidden + j) * kept_of(r); }
    double kept(int c, int t, int b, int j, int k) const { return get(cell(c), r.type, kept_at(t, b, j) + k); }
    void keep(int c, int t, int b, int j, int k, double v) const
    {
        if (reserve)
            put(cell(c), r.type, kept_at(t, b, j) + k, v);
    }
    /* output of a cell at a step, out (steps, batch, directions x hidden); before the first step: the state given */
    double output(const char *out, int c, int t, int b, int j) const
    {
        int dirs = directions_of(r), at = c % dirs;
        if (t < 0 || t >= steps())
            return state(hx, c, b, j);
        return get(out, r.type, ((int64_t(t) * d.batch + b) * dirs + at) * r.hidden + j);
    }
};

double sigmoid(double v) { return 1 / (1 + exp(-v)); }

/* The lengths on the device are those of the descriptors; what nobody may read is not a number. */
bool ready(const call &k)
{
    bool ok = k.lengths;
    for (int b = 0; ok && b < k.d.batch; b++)
        ok = k.lengths[b] == k.d.steps;
    size_t edge = k.space_bytes < 4096 ? k.space_bytes : 4096;
    memset(k.space, 0xff, edge);
    memset(k.space + k.space_bytes - edge, 0xff, edge);
    return ok;
}

void forward(const call &k)
{
    const rnn &r = k.r;
    int dirs = directions_of(r), n = r.hidden, n_gates = k.gates(), width = dirs * n;
    bool ok = ready(k);
    std::vector<char> between(k.reserve ? 0 : 2 * layer_bytes(r, k.d));
    const char *in = k.x;
    for (int l = 0; l < r.layers; l++) {
        char *spare = between.data() + (k.reserve ? 0 : l % 2 * layer_bytes(r, k.d));
        char *out = l == r.layers - 1 ? k.y_out : k.reserve ? k.layer(l) : spare;
        for (int c = l * dirs; c < (l + 1) * dirs; c++)
            for (int b = 0; b < k.d.batch; b++) {
                std::vector<double> h(n), cell(n), zx(n_gates * n), zh(n_gates * n);
                for (int j = 0; j < n; j++)
                    h[j] = k.state(k.hx, c, b, j), cell[j] = k.state(k.cx, c, b, j);
                for (int s = 0; s < k.steps(); s++) {
                    int t = c % dirs ? k.steps() - 1 - s : s, n_in = inputs_of(r, c);
                    for (int row = 0; row < n_gates * n; row++) {
                        zx[row] = k.bias(c, 0, row), zh[row] = k.bias(c, 1, row);
                        for (int i = 0; i < n_in; i++)
                            zx[row] += k.w(c, row, i) * get(in, r.type, (int64_t(t) * k.d.batch + b) * n_in + i);
                        for (int i = 0; i < n; i++)
                            zh[row] += k.u(c, row, i) * h[i];
                    }
                    for (int j = 0; j < n; j++) {
                        double next;
                        if (r.mode == LSTM) {
                            double v[4];
                            for (int g = 0; g < 4; g++) {
                                double z = zx[g * n + j] + zh[g * n + j];
                                v[g] = g == 2 ? tanh(z) : sigmoid(z);
                                k.keep(c, t, b, j, g, v[g]);
                            }
                            cell[j] = v[1] * cell[j] + v[0] * v[2];
                            k.keep(c, t, b, j, 4, cell[j]);
                            next = v[3] * tanh(cell[j]);
                        } else if (r.mode == GRU) {
                            double reset = sigmoid(zx[j] + zh[j]), update = sigmoid(zx[n + j] + zh[n + j]);
                            double fresh = tanh(zx[2 * n + j] + reset * zh[2 * n + j]);
                            next = (1 - update) * fresh + update * h[j];
                            double all[] = {reset, update, fresh, zh[2 * n + j]};
                            for (int g = 0; g < 4; g++)
                                k.keep(c, t, b, j, g, all[g]);
                        } else {
                            double z = zx[j] + zh[j];
                            next = r.mode == TANH ? tanh(z) : z > 0 ? z : 0;
                            k.keep(c, t, b, j, 0, next);
                        }
                        put(out, r.type, (int64_t(t) * k.d.batch + b) * width + c % dirs * n + j, ok ? next : NAN);
                    }
                    for (int j = 0; j < n; j++)
                        h[j] = get(out, r.type, (int64_t(t) * k.d.batch + b) * width + c % dirs * n + j);
                }
                for (int j = 0; j < n; j++)
                    k.put_state(k.hy, c, b, j, h[j]), k.put_state(k.cy, c, b, j, cell[j]);
            }
        in = out;
    }
}

/* Gradients of a unit's gates, from that of its output; they take the place of what the step kept. Returns what of the
 * gradient goes on to the state before by other ways than the gates. */
double unit_back(const call &k, int c, int t, int earlier, int b, int j, double dh, double h_before, double &dc)
{
    auto kept = [&](int i) { return k.kept(c, t, b, j, i); };
    if (k.r.mode == LSTM) {
        double i = kept(0), f = kept(1), g = kept(2), o = kept(3), tc = tanh(kept(4));
        bool start = earlier < 0 || earlier >= k.steps();
        double old = start ? k.state(k.cx, c, b, j) : k.kept(c, earlier, b, j, 4);
        double d = dh * o * (1 - tc * tc) + dc;
        dc = d * f;
        k.keep(c, t, b, j, 0, d * g * i * (1 - i));
        k.keep(c, t, b, j, 1, d * old * f * (1 - f));
        k.keep(c, t, b, j, 2, d * i * (1 - g * g));
        k.keep(c, t, b, j, 3, dh * tc * o * (1 - o));
        return 0;
    }
    if (k.r.mode == GRU) {
        double reset = kept(0), update = kept(1), fresh = kept(2), other = kept(3);
        double dfresh = dh * (1 - update) * (1 - fresh * fresh);
        k.keep(c, t, b, j, 0, dfresh * other * reset * (1 - reset));
        k.keep(c, t, b, j, 1, dh * (h_before - fresh) * update * (1 - update));
        k.keep(c, t, b, j, 2, dfresh);
        k.keep(c, t, b, j, 3, dfresh * reset);
        return dh * update;
    }
    double v = kept(0);
    k.keep(c, t, b, j, 0, dh * (k.r.mode == TANH ? 1 - v * v : v > 0 ? 1 : 0));
    return 0;
}

/* The gradient of a gate, as backward_data left it. hidden: of the product with the state; else with the input. */
double dgate(const call &k, int c, int t, int b, int row, bool hidden)
{
    int gate = row / k.r.hidden, place = k.r.mode == GRU && gate == 2 && hidden ? 3 : gate;
    return k.kept(c, t, b, row % k.r.hidden, place);
}

void backward_data(const call &k)
{
    const rnn &r = k.r;
    int dirs = directions_of(r), n = r.hidden, rows = k.gates() * n, width = dirs * n;
    bool ok = ready(k);
    std::vector<double> dout(k.lines() * width);
    for (size_t i = 0; i < dout.size(); i++)
        dout[i] = get(k.dy, r.type, i);
    for (int l = r.layers - 1; l >= 0; l--) {
        const char *out = l == r.layers - 1 ? k.y : k.layer(l);
        int n_in = inputs_of(r, l * dirs);
        std::vector<double> din(k.lines() * n_in);
        for (int c = l * dirs; c < (l + 1) * dirs; c++)
            for (int b = 0; b < k.d.batch; b++) {
                std::vector<double> dh(n), dc(n);
                for (int j = 0; j < n; j++)
                    dh[j] = k.state(k.dhy, c, b, j), dc[j] = k.state(k.dcy, c, b, j);
                for (int s = k.steps() - 1; s >= 0; s--) {
                    int t = c % dirs ? k.steps() - 1 - s : s, earlier = c % dirs ? t + 1 : t - 1;
                    int64_t line = int64_t(t) * k.d.batch + b;
                    std::vector<double> pass(n);
                    for (int j = 0; j < n; j++) {
                        double all = dh[j] + dout[line * width + c % dirs * n + j];
                        pass[j] = unit_back(k, c, t, earlier, b, j, all, k.output(out, c, earlier, b, j), dc[j]);
                    }
                    for (int row = 0; row < rows; row++) {
                        double of_u = dgate(k, c, t, b, row, true), of_w = dgate(k, c, t, b, row, false);
                        for (int j = 0; j < n; j++)
                            pass[j] += of_u * k.u(c, row, j);
                        for (int i = 0; i < n_in; i++)
                            din[line * n_in + i] += of_w * k.w(c, row, i);
                    }
                    dh = pass;
                }
                for (int j = 0; j < n; j++)
                    k.put_state(k.dhx, c, b, j, dh[j]), k.put_state(k.dcx, c, b, j, dc[j]);
            }
        dout = din;
    }
    for (size_t i = 0; i < dout.size(); i++)
        put(k.dx, r.type, i, ok ? dout[i] : NAN);
}

void backward_weights(const call &k)
{
    const rnn &r = k.r;
    int dirs = directions_of(r), n = r.hidden, rows = k.gates() * n;
    bool ok = ready(k);
    auto add = [&](int64_t at, double v) { put(k.dweights, r.type, at, ok ? get(k.dweights, r.type, at) + v : NAN); };
    for (int c = 0; c < cells_of(r); c++) {
        int l = c / dirs, n_in = inputs_of(r, c);
        const char *in = l ? k.layer(l - 1) : k.x, *out = l == r.layers - 1 ? k.y : k.layer(l);
        for (int row = 0; row < rows; row++) {
            std::vector<double> dw(n_in), du(n);
            double db = 0, dbu = 0;
            for (int t = 0; t < k.steps(); t++)
                for (int b = 0; b < k.d.batch; b++) {
                    double of_u = dgate(k, c, t, b, row, true), of_w = dgate(k, c, t, b, row, false);
                    for (int i = 0; i < n_in; i++)
                        dw[i] += of_w * get(in, r.type, (int64_t(t) * k.d.batch + b) * n_in + i);
                    for (int j = 0; j < n; j++)
                        du[j] += of_u * k.output(out, c, c % dirs ? t + 1 : t - 1, b, j);
                    db += of_w, dbu += of_u;
                }
            for (int i = 0; i < n_in; i++)
                add(matrices_at(r, c) + int64_t(row) * n_in + i, dw[i]);
            for (int j = 0; j < n; j++)
                add(k.u_at(c, row, j), du[j]);
            add(biases_at(r, c) + row, db);
            add(biases_at(r, c) + rows + row, dbu);
        }
    }
}

bool fits(const rnn *r, const rnn_data *x, const rnn_data *y, const tensor *h, const tensor *c, size_t weight_bytes,
          const call &k, bool trains)
{
    int dirs = directions_of(*r), state[] = {r->layers * dirs, x->batch, r->hidden};
    bool ok = x->type == r->type && y->type == r->type && x->size == r->inputs && y->size == dirs * r->hidden &&
        x->steps == y->steps && x->batch == y->batch && weight_bytes == size_t(weights_of(*r)) * bytes_of(r->type);
    for (const tensor *t : {h, r->mode == LSTM ? c : h})
        ok = ok && t && t->n == 3 && t->type == r->type && !memcmp(t->size, state, sizeof state);
    ok = ok && k.space && k.space_bytes >= space_bytes(*r, *x);
    return ok && (!trains || (k.reserve && k.reserve_bytes >= reserve_bytes(*r, *x)));
}

int start(handle *h, void (*what)(const call &), const call &k)
{
    if (asked & NO_RUN)
        return EXECUTION_FAILED;
    served++;
    return emu_dnn_start(h, [what, k] { what(k); });
}

char *plain(const void *p) { return emu_dnn_memory(p); }

int describe(tensor *t, int type, int rows, int columns)
{
    *t = {type, 3, {1, rows, columns}, {rows * columns, columns, 1}};
    return OK;
}

} // namespace

EXPORT void emulatorRnn(int what) { asked = what; }
EXPORT long emulatorRnnServed() { return served.exchange(0); }

EXPORT int cudnnCreateRNNDescriptor(rnn **r) { return make(r); }
EXPORT int cudnnDestroyRNNDescriptor(rnn *r) { return drop(r); }
EXPORT int cudnnSetRNNDescriptor_v8(rnn *r, int algo, int mode, int bias, int both, int input, int type, int precision,
                                    int math, int32_t inputs, int32_t hidden, int32_t projection, int32_t layers,
                                    void *dropout, uint32_t flags)
{
    *r = {algo, mode, bias, both, input, type, precision, math, inputs, hidden, projection, layers, flags};
    bool ok = type == FLOAT ? math == 0 || math == 3 : (type == HALF || type == BFLOAT16) && math == 1;
    ok = ok && precision == FLOAT && projection == hidden && bias == DOUBLE_BIAS && input == LINEAR_INPUT;
    return ok && !algo && !dropout && !flags && mode >= RELU && mode <= GRU ? OK : NOT_SUPPORTED;
}
EXPORT int cudnnCreateRNNDataDescriptor(rnn_data **d) { return make(d); }
EXPORT int cudnnDestroyRNNDataDescriptor(rnn_data *d) { return drop(d); }
EXPORT int cudnnSetRNNDataDescriptor(rnn_data *d, int type, int layout, int steps, int batch, int size,
                                     const int *lengths, void *)
{
    *d = {type, layout, steps, batch, size};
    for (int b = 0; b < batch; b++)
        if (lengths[b] != steps)
            return NOT_SUPPORTED;
    return layout == PACKED && steps > 0 && batch > 0 && size > 0 ? OK : BAD_PARAM;
}
EXPORT int cudnnGetRNNTempSpaceSizes(handle *, rnn *r, int trains, rnn_data *x, size_t *space, size_t *reserve)
{
    *space = space_bytes(*r, *x);
    *reserve = trains ? reserve_bytes(*r, *x) : 0;
    return OK;
}
EXPORT int cudnnGetRNNWeightSpaceSize(handle *, rnn *r, size_t *bytes)
{
    return *bytes = size_t(weights_of(*r)) * bytes_of(r->type), OK;
}
EXPORT int cudnnGetRNNWeightParams(handle *, rnn *r, int32_t cell, size_t, const void *weights, int32_t id,
                                   tensor *matrix, void **at, tensor *bias, void **bias_at)
{
    int n_gates = gates_of(*r), n_in = inputs_of(*r, cell), hidden = r->hidden;
    if (id < 0 || id >= 2 * n_gates || cell < 0 || cell >= cells_of(*r))
        return BAD_PARAM;
    bool of_input = id < n_gates;
    int64_t first = matrices_at(*r, cell) + (of_input ? 0 : int64_t(n_gates) * hidden * n_in);
    int64_t place = first + int64_t(id % n_gates) * hidden * (of_input ? n_in : hidden);
    char *base = static_cast<char *>(const_cast<void *>(weights));
    *at = base + place * bytes_of(r->type);
    *bias_at = base + (biases_at(*r, cell) + int64_t(id) * hidden) * bytes_of(r->type);
    describe(matrix, r->type, hidden, of_input ? n_in : hidden);
    return describe(bias, r->type, hidden, 1);
}
EXPORT int cudnnRNNForward(handle *h, rnn *r, int trains, const int32_t *lengths, rnn_data *x_desc, const void *x,
                           rnn_data *y_desc, void *y, tensor *h_desc, const void *hx, void *hy, tensor *c_desc,
                           const void *cx, void *cy, size_t weight_bytes, const void *weights, size_t space_size,
                           void *space, size_t reserve_size, void *reserve)
{
    call k = {};
    k.r = *r, k.d = *x_desc, k.lengths = reinterpret_cast<const int32_t *>(plain(lengths)), k.x = plain(x),
    k.y_out = plain(y), k.hx = plain(hx), k.cx = plain(cx);
    k.hy = plain(hy), k.cy = plain(cy), k.weights = plain(weights), k.space = plain(space), k.space_bytes = space_size;
    k.reserve = trains ? plain(reserve) : nullptr, k.reserve_bytes = reserve_size;
    return fits(r, x_desc, y_desc, h_desc, c_desc, weight_bytes, k, trains) ? start(h, forward, k) : BAD_PARAM;
}
EXPORT int cudnnRNNBackwardData_v8(handle *h, rnn *r, const int32_t *lengths, rnn_data *y_desc, const void *y,
                                   const void *dy, rnn_data *x_desc, void *dx, tensor *h_desc, const void *hx,
                                   const void *dhy, void *dhx, tensor *c_desc, const void *cx, const void *dcy,
                                   void *dcx, size_t weight_bytes, const void *weights, size_t space_size, void *space,
                                   size_t reserve_size, void *reserve)
{
    call k = {};
    k.r = *r, k.d = *x_desc, k.lengths = reinterpret_cast<const int32_t *>(plain(lengths)), k.y = plain(y),
    k.dy = plain(dy), k.dx = plain(dx), k.hx = plain(hx);
    k.dhy = plain(dhy), k.dhx = plain(dhx), k.cx = plain(cx), k.dcy = plain(dcy), k.dcx = plain(dcx);
    k.weights = plain(weights), k.space = plain(space), k.space_bytes = space_size;
    k.reserve = plain(reserve), k.reserve_bytes = reserve_size;
    return fits(r, x_desc, y_desc, h_desc, c_desc, weight_bytes, k, true) ? start(h, backward_data, k) : BAD_PARAM;
}
EXPORT int cudnnRNNBackwardWeights_v8(handle *h, rnn *r, int add, const int32_t *lengths, rnn_data *x_desc,
                                      const void *x, tensor *h_desc, const void *hx, rnn_data *y_desc, const void *y,
                                      size_t weight_bytes, void *dweights, size_t space_size, void *space,
                                      size_t reserve_size, void *reserve)
{
    call k = {};
    k.r = *r, k.d = *x_desc, k.lengths = reinterpret_cast<const int32_t *>(plain(lengths)), k.x = plain(x),
    k.y = plain(y), k.hx = plain(hx);
    k.dweights = plain(dweights), k.space = plain(space), k.space_bytes = space_size;
    k.reserve = plain(reserve), k.reserve_bytes = reserve_size;
    bool ok = add == ADD && fits(r, x_desc, y_desc, h_desc, h_desc, weight_bytes, k, true);
    return ok ? start(h, backward_weights, k) : BAD_PARAM;
}
