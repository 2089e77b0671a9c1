"""RNN on gpu(0) by cuDNN against NumPy: all cells, both ways; who runs which sizes; what happens
where cuDNN is not as we want it."""

import ctypes

import numpy as np
import plait as mx
import pytest
from calls import TOLERANCE, call, close, on_gpu, reference
from plait import MXNetError, autograd, cpu, gpu, nd
from plait.engine import cuda
from plait.engine.error import DeviceError
from plait.kernels.cuda import compile, recurrent_cudnn, recurrent_plan
from plait.kernels.cuda.backend import CUDA
from plait.kernels.record import REGISTRY, Type
from test_recurrent import MODES, arrays_of, reference_of

OTHER_LAYOUT, LARGE_RESERVE, NO_RUN = 1, 2, 4  # of the emulated cuDNN
SIZES = dict(num_layers=1, bidirectional=False, projection_size=None)
DEEP = dict(num_layers=2, bidirectional=True)
FORWARD, BOTH = 1, 3  # calls of cuDNN: the gradients of data and of weights are calls of their own


class Library:
    """The emulated cuDNN; a real one cannot be asked what it did."""

    def __init__(self):
        found = ctypes.CDLL(cuda.find("cudnn"))
        self.emulated = hasattr(found, "emulatorRnn")
        self._cudnn = found if self.emulated else None
        self.be(0)
        self.count()

    def be(self, what: int) -> None:
        if self._cudnn:
            self._cudnn.emulatorRnn(what)

    def count(self) -> int:
        """Its calls since the last question."""
        return self._cudnn.emulatorRnnServed() if self._cudnn else 0

    def served(self, n: int) -> None:
        assert self.count() == n or not self.emulated


@pytest.fixture
def library(monkeypatch):
    if not recurrent_cudnn.is_there():
        pytest.skip("there is no cuDNN")
    monkeypatch.setattr(recurrent_plan, "LIBRARY", True)
    cudnn = Library()
    yield cudnn
    cudnn.be(0)


@pytest.fixture
def emulated(library, emulator):
    return library


class Case:
    """An RNN, its arrays, and NumPy's results for them."""

    def __init__(self, shape, dtype="float32", **given):
        self.rng, self.attrs, self.dtype = np.random.default_rng(1), SIZES | given, dtype
        self.arrays = arrays_of(self.rng, shape, self.attrs, dtype)
        full = self.attrs | {"state_outputs": True}
        self.wanted = reference_of(self.arrays, full, {"rng": None})

    def forward(self, train=True, state_outputs=True):
        outs = call("RNN", *self.arrays, **self.attrs, state_outputs=state_outputs, train=train)
        for got, want in zip(outs[:-1], self.wanted):
            close(got, want, self.dtype)
        return outs

    def backward(self, outs):
        heads = [on_gpu(self.rng.standard_normal(o.shape), self.dtype) for o in outs[:-1]]
        inputs = [*heads, *self.arrays]
        got = call("_rnn_grad", *inputs, outs[-1], **self.attrs)
        empty = on_gpu(np.zeros(0), self.dtype)
        wanted = reference("_rnn_grad", *inputs, empty, **self.attrs)
        for g, w in zip(got, wanted, strict=True):
            close(g, w, self.dtype)
        return got


@pytest.mark.parametrize("dtype", ("float32", "float16", "bfloat16"))
@pytest.mark.parametrize("mode", MODES)
def test_inference(mode, dtype, library):
    case = Case((5, 3, 4), dtype, mode=mode, state_size=7, **DEEP)
    case.forward(train=False)
    library.served(FORWARD)


def test_inference_without_states(library):
    Case((3, 2, 6), mode="lstm", state_size=5).forward(train=False, state_outputs=False)
    library.served(FORWARD)


@pytest.mark.parametrize("dtype", ("float32", "float16", "bfloat16"))
@pytest.mark.parametrize("mode", ("lstm", "rnn_tanh", "rnn_relu"))
def test_training(mode, dtype, library):
    case = Case((4, 3, 5), dtype, mode=mode, state_size=6, **DEEP)
    case.backward(case.forward())
    library.served(BOTH)


@pytest.mark.parametrize("mode", MODES)
def test_training_of_a_layer(mode, library):
    """A short one: there the spare elements make even a GRU's reserve fit."""
    case = Case((3, 2, 4), mode=mode, state_size=9)
    case.backward(case.forward())
    library.served(BOTH)


def test_a_reserve_serves_twice(library):
    """cuDNN's gradient overwrites it; what the operator was given stays."""
    case = Case((3, 4, 5), mode="lstm", state_size=4)
    outs = case.forward()
    for _ in range(2):
        case.backward(outs)
    library.served(1 + 2 * 2)


def test_a_gru_trains_by_ours_where_its_reserve_does_not_fit(library):
    case = Case((8, 6, 5), mode="gru", state_size=12, num_layers=2)
    case.backward(case.forward())
    library.served(0)
    case.forward(train=False)
    library.served(FORWARD)


@pytest.mark.parametrize("what", (OTHER_LAYOUT, LARGE_RESERVE, NO_RUN))
@pytest.mark.parametrize("mode", ("lstm", "rnn_relu"))
def test_what_cudnn_does_otherwise_is_ours(what, mode, emulated):
    """Sizes of their own for each: what was decided for some sizes stays."""
    case = Case((9, 4 + what, 5), mode=mode, state_size=11, num_layers=2)
    emulated.be(what)
    outs = case.forward()
    emulated.be(0)
    case.backward(outs)
    case.backward(case.forward())
    emulated.served(0)


def test_a_reserve_of_ours_stays_ours(library, monkeypatch):
    """As when the forward kernel does not compile: cuDNN would be free to take the gradient."""
    case = Case((4, 7, 3), mode="lstm", state_size=5)
    with monkeypatch.context() as patch:
        patch.setattr(recurrent_plan, "LIBRARY", False)
        outs = case.forward()
    case.backward(outs)
    library.served(0)


def test_other_packing_is_seen_in_inference(emulated):
    case = Case((2, 3, 4), mode="gru", state_size=8, **DEEP)
    emulated.be(OTHER_LAYOUT)
    case.forward(train=False)
    emulated.served(0)


def test_a_failure_after_a_success(emulated):
    """Inference goes on by ours. While training reserves of cuDNN's exist: it is an error."""
    case = Case((2, 5, 3), mode="lstm", state_size=7)
    outs = case.forward()
    case.forward(train=False)
    emulated.served(2)
    emulated.be(NO_RUN)
    case.forward(train=False)
    with pytest.raises(MXNetError, match="cuDNN cannot run an RNN that it ran before"):
        case.forward()
    with pytest.raises(MXNetError, match="cuDNN cannot run an RNN that it ran before"):
        case.backward(outs)
    emulated.be(0)
    case.backward(outs)


# ---- who runs what -------------------------------------------------------------------------------


def chosen(*args, **given):
    """Forward and backward: are they cuDNN's?"""
    return {f.function == "plk_cudnn_rnn_run" for f in natives(*args, **given)}


def natives(state_size, train, batch=4, lengths=False, **given):
    attrs = SIZES | {"mode": "lstm", "state_size": state_size, "use_sequence_length": lengths}
    attrs |= given
    op, shape = REGISTRY["RNN"], (3, batch, 8)
    sizes = {k: attrs[k] for k in (*SIZES, "mode", "state_size")}
    n = sum(np.prod(s) for s in recurrent_plan.layout(shape, **sizes).parameter_shapes())
    states = (attrs["num_layers"] * (1 + attrs["bidirectional"]), batch, state_size)
    ins = [Type(s, "float32") for s in (shape, (int(n),), states, states)]
    ins += [Type((batch,), "int32")] * lengths
    full = op.parse(attrs) | {"train": train}
    outs = op.infer(ins, **full)
    found = [CUDA.choose(op, ins, outs, full)]
    if train:
        grad = REGISTRY["_rnn_grad"]
        full = grad.parse(attrs)
        heads = [Type((3, batch, state_size * (1 + attrs["bidirectional"])), "float32")]
        ins = [*heads, *ins[2:4], *ins, outs[-1]]
        found.append(CUDA.choose(grad, ins, grad.infer(ins, **full), full))
    return found


def test_the_rule(library, monkeypatch):
    """Ours where the weights stay on chip; backward a line is one of all gates."""
    monkeypatch.setattr(recurrent_plan, "LIBRARY", None)
    monkeypatch.setattr(recurrent_plan.cuda, "properties", lambda device: H100)
    assert chosen(256, train=True) == chosen(1024, train=False) == {False}
    assert chosen(257, train=True) == chosen(1025, train=False) == {True}
    assert chosen(1024, train=False, bidirectional=True) == {True}
    assert chosen(600, train=True, p=0.5, num_layers=2) == {False}
    assert chosen(600, train=True, p=0.5) == {True}
    assert chosen(600, train=True, lengths=True) == {False}
    assert chosen(600, train=True, lstm_state_clip_min=-1.0, lstm_state_clip_max=1.0) == {False}
    monkeypatch.setattr(recurrent_plan, "LIBRARY", False)
    assert chosen(2000, train=True) == {False}


class H100:
    n_multiprocessors = 132


def test_the_reference_never_reads_a_reserve_of_cudnn(library, monkeypatch):
    """It runs where kernels do not compile, but not for a gradient that may be cuDNN's."""

    def refuse(*_):
        raise compile.CompileError("refused")

    forward, backward = natives(600, train=True)
    monkeypatch.setattr(compile, "function", refuse)
    with pytest.raises(compile.CompileError, match="^refused"):
        forward.params.on(0)
    with pytest.raises(DeviceError, match="its gradient's kernels do not compile .refused"):
        backward.params.on(0)


# ---- recorded ------------------------------------------------------------------------------------


STEPS = 32  # it is recorded when it runs on memory where it ran before


def network(device):
    mx.random.seed(3)
    lstm = mx.gluon.rnn.LSTM(5, num_layers=2, bidirectional=True, input_size=4)
    net = mx.gluon.nn.HybridSequential()
    net.add(lstm, mx.gluon.nn.Dense(3, flatten=False, in_units=10), mx.gluon.nn.LayerNorm(2, 1e-2))
    net.initialize(mx.init.Uniform(0.3), ctx=device)
    net.hybridize(static_alloc=True, static_shape=True)
    return net


@pytest.mark.parametrize("train", (False, True))
def test_programs(train, library):
    got, calls = [], []
    for device in (cpu(), gpu(0)):
        net, rows = network(device), []
        x = nd.array(np.random.default_rng(0).standard_normal((6, 3, 4)), ctx=device)
        x.attach_grad()
        for step in range(STEPS):
            if step == 4:
                mx.wait_compiled()
            x[0, 0] = step
            library.count()
            with autograd.record() if train else autograd.pause():
                y = net(x)
            if train:
                y.backward()
                rows += [x.grad.asnumpy(), net[0].l0_h2h_weight.grad().asnumpy()]
            rows.append(y.asnumpy())
            calls.append(library.count())
        got.append(rows)
    for a, b in zip(*got, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=TOLERANCE["float32"])
    assert 0 in calls[STEPS:]  # a recording's run
