"""Products fused with what follows them give what the separate operators give."""

import numpy as np
import plait as mx
import pytest
from plait.engine import cpu
from plait.graph.graph import Builder, topological, variable
from plait.graph.program import lower
from plait.kernels.record import Type

F = Builder()
X, W, B, R = ((6, 5, 8), (7, 8), (7,), (6, 5, 7))


def v(name, shape):
    return variable(name, Type(shape))


def dense(x, w, b):
    return F.FullyConnected(x, w, b, num_hidden=7, flatten=False)


def relu_kept(x, w, b, r):
    y = dense(x, w, b)
    return [F.Activation(y, act_type="tanh"), y * 2.0]


def gradients(x, w, b, r):
    dy, x2 = F.reshape_to(r, shape=(30, 7)), F.reshape_to(x, shape=(30, 8))
    return [F.sum(dy, axis=0), F.dot(dy, x2, transpose_a=True), F.dot(dy, w)]


# what is built, and how many operators are left of it
CASES = {
    "gelu": (lambda x, w, b, r: [F.LeakyReLU(dense(x, w, b), act_type="gelu")], 1),
    "silu": (lambda x, w, b, r: [(y := dense(x, w, b)) * F.sigmoid(y) + r], 1),
    "silu read twice": (lambda x, w, b, r: [(y := dense(x, w, b)) * (s := F.sigmoid(y)), s], 2),
    "residual": (lambda x, w, b, r: [r + dense(x, w, b)], 1),
    "activation and residual": (lambda x, w, b, r: [F.sigmoid(dense(x, w, b)) + r], 1),
    "residual first": (lambda x, w, b, r: [F.relu(r + dense(x, w, b))], 2),
    "twice": (lambda x, w, b, r: [F.elemwise_add(y := dense(x, w, b), y)], 2),
    "kept": (relu_kept, 2),
    "scale and bias": (
        lambda x, w, b, r: [
            F.relu(
                F.broadcast_add(F.dot(F.reshape_to(x, shape=(30, 8)), w, transpose_b=True) / 3, b)
            )
        ],
        1,
    ),
    "gradients": (gradients, 2),
    "slope of relu": (lambda x, w, b, r: [plain_product(x, w) * (r > 0)], 1),
    "slope of gelu": (lambda x, w, b, r: [F._gelu_grad(plain_product(x, w), r) + r], 2),
    "other masks": (lambda x, w, b, r: [plain_product(x, w) * (r > 0.5), (r >= 0) * r], 3),
    "slope of itself": (lambda x, w, b, r: [(y := plain_product(x, w)) * (y > 0)], 2),
}


def plain_product(x, w):
    y = F.dot(F.reshape_to(x, shape=(30, 8)), w, transpose_b=True)
    return F.reshape_to(y, shape=(6, 5, 7))


@pytest.mark.parametrize("name", CASES)
def test_fused(name):
    build, n_left = CASES[name]
    variables = [v(n, s) for n, s in zip("xwbr", (X, W, B, R))]
    arrays = [mx.nd.random.normal(shape=s) for s in (X, W, B, R)]
    outputs = build(*variables)
    plain, fused = (lower(outputs, variables, cpu(0), tier=t) for t in (0, 1))
    assert len(fused.ops) == n_left <= len(plain.ops)
    for a, b in zip(plain.run(arrays), fused.run(arrays)):
        np.testing.assert_allclose(a.asnumpy(), b.asnumpy(), rtol=1e-5, atol=1e-5)


class Layers(mx.gluon.nn.HybridBlock):
    """Dense layers with activations whose slopes end the products of the gradient."""

    def __init__(self, act):
        super().__init__()
        with self.name_scope():
            layers = [
                mx.gluon.nn.Dense(n, flatten=False, in_units=m) for m, n in ((9, 40), (40, 9))
            ]
            self.wide, self.narrow = layers
            self.act = mx.gluon.nn.GELU() if act == "gelu" else mx.gluon.nn.Activation(act)

    def hybrid_forward(self, F, x):
        return x + self.narrow(self.act(self.wide(x)))


@pytest.mark.parametrize("act", ["relu", "gelu", "tanh"])
@pytest.mark.parametrize("rows", [2, 33])
def test_training_equals_tier_0(act, rows):
    net = Layers(act)
    net.initialize(mx.init.Normal(0.5))
    x = mx.nd.random.normal(shape=(rows, 2, 9))
    x.attach_grad()

    def step():
        with mx.autograd.record():
            y = net(x)
        y.backward(y * 0.5)
        return [y, x.grad.copy(), *(p.grad().copy() for p in net.collect_params().values())]

    eager = step()
    net.hybridize()
    for _ in range(4):
        step()
    mx.wait_compiled()
    for a, b in zip(step(), eager, strict=True):
        scale = np.abs(b.asnumpy()).max()
        np.testing.assert_allclose(a.asnumpy(), b.asnumpy(), rtol=1e-4, atol=3e-6 * scale)


def test_other_dtypes_are_not_rewritten():
    x = variable("x", Type((3, 4), "float64"))
    y = F.relu(F.dot(x, x, transpose_b=True))
    assert len(lower([y], [x], cpu(0), tier=1).ops) == 2
    assert all(n.op is None or n.op.name != "_dense" for n in topological([y]))


def test_run_time_scalars_are_not_folded_into_scales():
    """Backward of x * 0.3 before a dense layer: 0.3 is an input of the program. Tier 1 failed to
    compile."""
    x, w = np.random.default_rng(1).normal(size=(2, 4, 4))
    data, weight = mx.nd.array(x), mx.nd.array(w)
    data.attach_grad()
    for scale in (0.3, 0.3, 0.3, 0.5, 0.0):
        for divide in (False, True) if scale else (False,):
            with mx.autograd.record():
                scaled = data / scale if divide else data * scale
                y = mx.nd.FullyConnected(scaled, weight, num_hidden=4, no_bias=True).sum()
            y.backward()
            want = np.tile(w.sum(0) * (1 / scale if divide else scale), (4, 1))
            np.testing.assert_allclose(data.grad.asnumpy(), want, rtol=1e-5)
        mx.wait_compiled()  # raises what fails
