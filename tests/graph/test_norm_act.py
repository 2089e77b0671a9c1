"""Batch normalisation joined with the sum and the relu after it gives what the operators give:
results, gradients, moving statistics."""

import numpy as np
import plait as mx
import pytest
from plait import autograd, nd
from plait.engine import cpu
from plait.gluon import nn
from plait.graph.graph import Builder, topological, variable
from plait.graph.passes import before_gradient
from plait.graph.passes.gradient import gradient
from plait.graph.passes.norm_act import norm_sums
from plait.graph.program import lower
from plait.kernels.record import Type

F = Builder(train=True)
FUSED, GRAD = "_batch_norm_add_relu", "_batch_norm_relu_grad"
ACTIVATED, ACT_GRAD = "_batch_norm_act", "_batch_norm_act_grad"


# ---- random networks -----------------------------------------------------------------------------


def conv(n, kernel=3, **kw):
    return nn.Conv2D(n, kernel, padding=kernel // 2, use_bias=False, **kw)


class Residual(nn.HybridBlock):
    """Basic blocks of ResNet v1 and v2."""

    def __init__(self, n, first, shortcut):
        super().__init__()
        self.first = first
        with self.name_scope():
            n_norms = 3 if shortcut and not first else 2
            self.norms = [nn.BatchNorm(scale=i != 1) for i in range(n_norms)]
            self.convs = [conv(n), conv(n), conv(n, 1) if shortcut else None]
            for block in (*self.norms, *filter(None, self.convs)):
                self.register_child(block)

    def hybrid_forward(self, F, x):
        a, b, *c = self.norms
        if self.first:
            y = F.relu(a(x))
            short = self.convs[2](y) if self.convs[2] else x
            return self.convs[1](F.relu(b(self.convs[0](y)))) + short
        short = c[0](self.convs[2](x)) if self.convs[2] else x
        y = b(self.convs[1](F.relu(a(self.convs[0](x)))))
        return F.Activation(y + short, act_type="relu")


class Dense(nn.HybridBlock):
    def __init__(self, n):
        super().__init__()
        with self.name_scope():
            self.body = nn.HybridSequential()
            self.body.add(nn.BatchNorm(), nn.Activation("relu"), conv(n))

    def hybrid_forward(self, F, x):
        return F.concat(x, self.body(x), dim=1)


class Clip(nn.HybridBlock):
    def hybrid_forward(self, F, x):
        return F.clip(x, 0, 6)


class Gate(nn.HybridBlock):
    def hybrid_forward(self, F, x):
        return F.sigmoid(x) * x


ACTS = {
    "relu": lambda: nn.Activation("relu"),
    "relu6": Clip,
    "leaky": lambda: nn.LeakyReLU(0.1),
    "sigmoid": lambda: nn.Activation("sigmoid"),
    "swish": nn.Swish,
    "gate": Gate,
}


def separable(n, act="relu"):
    """Of MobileNets and EfficientNets."""
    net = nn.HybridSequential()
    net.add(nn.Conv2D(n, 3, padding=1, groups=n, use_bias=False), nn.BatchNorm())
    net.add(ACTS[act](), conv(n, 1), nn.BatchNorm(), ACTS[act]())
    return net


def network(seed):
    rng = np.random.RandomState(seed)
    net = nn.HybridSequential()
    n = 6
    net.add(conv(n, in_channels=3), nn.BatchNorm(), nn.Activation("relu"))
    acts = list(ACTS)
    for i, kind in enumerate(rng.randint(0, 6, 4)):
        if kind < 4:
            net.add(Residual(n, first=kind % 2 == 0, shortcut=kind < 2))
        elif kind == 4:
            net.add(Dense(2))
            n += 2
        else:
            net.add(separable(n, acts[(seed + i) % len(acts)]))
    net.add(separable(n, acts[seed % len(acts)]))
    net.add(nn.BatchNorm(), nn.Activation("relu"), nn.MaxPool2D(2), nn.Dense(5), nn.BatchNorm())
    net.add(nn.Activation("relu"), nn.Dense(2))
    mx.random.seed(seed)
    net.initialize(mx.init.Xavier())
    return net, rng.normal(size=(3, 3, 9, 7)).astype("f")


def trained(seed, hybrid):
    """Loss, gradients of data and parameters, and moving statistics after three steps."""
    net, x = network(seed)
    x = nd.array(x)
    x.attach_grad()
    net(x)
    if hybrid:
        net.hybridize()
    for _ in range(3):
        with autograd.record():
            loss = (net(x) ** 2).sum()
        loss.backward()
        mx.wait_compiled()
    params = net.collect_params().values()
    found = [loss, x.grad, *(p.grad() for p in params if p.grad_req != "null")]
    return net, [a.asnumpy() for a in found + [p.data() for p in params]]


@pytest.mark.parametrize("seed", range(12))
def test_random_networks(seed):
    net, got = trained(seed, hybrid=True)
    _, want = trained(seed, hybrid=False)
    (trace,) = net._traces.values()
    (entry,) = trace.graph.entries.values()
    used = [op.name for op in entry.serving.program.ops]
    assert entry.serving.tier == 1
    assert FUSED in used
    assert not {"Activation", "relu", "clip", "LeakyReLU"} & set(used)
    if seed % len(ACTS):
        assert ACTIVATED in used
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-4 * np.abs(b).max() + 5e-6)


# ---- single patterns -----------------------------------------------------------------------------


def given(*shapes):
    return [variable(f"v{i}", Type(s)) for i, s in enumerate(shapes)]


def norm(x, *params, **attrs):
    return F.BatchNorm(x, *params, **{"fix_gamma": False, **attrs})


def both(outputs, variables, arrays):
    """Results at tier 0, of the graph as it is and joined, and the joined operators."""
    found = []
    for graph in (outputs, before_gradient(outputs, cpu())):
        dys = [variable(f"dy{i}", y.type) for i, y in enumerate(graph)]
        grads = gradient(graph, dys, variables[:3])
        program = lower([*graph, *norm_sums(grads)], [*variables, *dys], cpu(0))
        rng = np.random.RandomState(3)
        given = [nd.array(a) for a in arrays]
        heads = [nd.array(rng.normal(size=y.shape)) for y in outputs]
        results = [a.asnumpy() for a in program.run([*given, *heads])]
        found.append((results + [a.asnumpy() for a in given], program))
    (want, _), (got, program) = found
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(
            a, b, rtol=1e-4, atol=1e-5 * (1 + np.abs(b[np.isfinite(b)]).max(initial=0))
        )
    return [op.name for op in program.ops]


SHAPES = [(2, 3, 5, 7), (4, 3), (2, 3, 4099), (1, 3, 64, 33), (3, 3, 1, 1)]


@pytest.mark.parametrize("shape", SHAPES)
def test_shapes(shape):
    arrays = [np.random.RandomState(i).rand(*s) for i, s in enumerate([shape, *[(3,)] * 4, shape])]
    x, *params, other = given(shape, *[(3,)] * 4, shape)
    y = F.relu(F.broadcast_add(other, norm(x, *params)))
    names = both([y], [x, *params, other], arrays)
    assert names.count(FUSED) == names.count(GRAD) == 1 and len(names) == 2
    names = both([F.sigmoid(y), F.square(y)], [x, *params, other], arrays)
    assert names.count(GRAD) == 1


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("act", ["clip", "leaky", "sigmoid", "silu"])
def test_activations(act, shape):
    make = {
        "clip": lambda z: F.clip(z, a_min=0.2, a_max=1.1),
        "leaky": lambda z: F.LeakyReLU(z, act_type="leaky", slope=0.3),
        "sigmoid": F.sigmoid,
        "silu": lambda z: F.broadcast_mul(F.Activation(z, act_type="sigmoid"), z),
    }[act]
    arrays = [np.random.RandomState(i).randn(*s) for i, s in enumerate([shape, *[(3,)] * 4])]
    arrays[4] = np.abs(arrays[4])
    x, *params = given(shape, *[(3,)] * 4)
    y = make(norm(x, *params))
    assert both([y], [x, *params], arrays) == [ACTIVATED, ACT_GRAD]
    names = both([F.tanh(y), F.square(y)], [x, *params], arrays)  # a sum of gradients
    assert names.count(ACT_GRAD) == 1
    z = norm(x, *params)
    assert ACTIVATED not in both([make(z), F.square(z)], [x, *params], arrays)


def test_channels_last():
    x, *params = given((2, 5, 4, 70), *[(70,)] * 4)
    arrays = [np.random.RandomState(i).rand(*v.shape) for i, v in enumerate([x, *params])]
    names = both([F.clip(norm(x, *params, axis=-1), a_min=-1, a_max=1)], [x, *params], arrays)
    assert names == [ACTIVATED, ACT_GRAD]
    names = both([F.relu(norm(x, *params, axis=-1))], [x, *params], arrays)
    assert names == [FUSED, GRAD]


def test_nan_propagates_as_before():
    x, *params, other = given((2, 3, 40), *[(3,)] * 4, (2, 3, 40))
    arrays = [np.random.RandomState(i).rand(*v.shape) for i, v in enumerate([x, *params, other])]
    arrays[5][0, 1, 7], arrays[5][0, 2, 3], arrays[5][1, 0, 39] = np.nan, np.inf, -np.inf
    y = F.relu(F.broadcast_add(norm(x, *params), other))
    both([y], [x, *params, other], arrays)


def test_values_with_other_readers_are_kept():
    x, *params = given((2, 3, 4), *[(3,)] * 4)
    y, mean, _ = F.BatchNorm(x, *params, output_mean_var=True)
    z = norm(x, *params)
    for outputs in ([F.relu(z), z], [F.relu(y), mean], [F.relu(z), F.relu(norm(z, *params))]):
        ops = [n.op.name for n in topological(before_gradient(outputs, cpu())) if n.op]
        assert FUSED not in ops
    predicts = Builder(train=False).BatchNorm(x, *params)
    assert FUSED not in [
        n.op and n.op.name for n in topological(before_gradient([F.relu(predicts)], cpu()))
    ]


def test_executors_join_too():
    data = mx.sym.Variable("data")
    y = mx.sym.relu(mx.sym.BatchNorm(mx.sym.FullyConnected(data, num_hidden=4), name="bn"))
    exe = y.simple_bind(mx.cpu(), data=(6, 3))
    rng = np.random.RandomState(0)
    for k, a in exe.arg_dict.items():
        a[:] = rng.normal(size=a.shape)
    found = []
    for _ in range(4):
        exe.forward(is_train=True)
        exe.backward(nd.ones((6, 4)))
        found.append([a.asnumpy() for a in (*exe.outputs, *exe.grad_arrays)])
        mx.wait_compiled()
    for a, b in zip(found[-1], found[0]):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
