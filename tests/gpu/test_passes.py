"""What passes make of graphs on gpu(0), and that these compute the same."""

import numpy as np
import plait as mx
import pytest
from calls import TOLERANCE
from plait import autograd, cpu, gpu, nd
from plait.engine import lib
from plait.gluon import nn
from plait.graph.graph import Builder, topological, variable
from plait.graph.passes import compile_passes
from plait.kernels.cuda import matmul_plan
from plait.kernels.record import Type

F = Builder()


def operators(outputs):
    return [n.op.name for n in topological(outputs) if n.op is not None]


def inputs(dtype, *shapes):
    return [variable(f"x{i}", Type(s, dtype)) for i, s in enumerate(shapes)]


@pytest.mark.parametrize("library", (True, False))
def test_a_product_takes_what_is_free(library, monkeypatch):
    """cuBLASLt adds a bias and relu by itself; a sigmoid is left to the pointwise operators."""
    monkeypatch.setattr(matmul_plan, "FORCE_OWN", not library)
    x, w, b = inputs("float16", (4, 8), (6, 8), (6,))
    for act, joined in (("relu", True), ("sigmoid", not library)):
        y = F.Activation(F.FullyConnected(x, w, b, num_hidden=6), act_type=act)
        found = operators(compile_passes([y], gpu(0)))
        assert ("_dense" in found) == joined and ("Activation" in found) != joined
    on_cpu = operators(compile_passes([y], cpu()))
    assert "_dense" not in on_cpu  # has no kernel for float16


def test_no_layouts_and_only_activations_that_a_kernel_has():
    x, w = inputs("float32", (1, 8, 9, 9), (8, 8, 3, 3))
    y = F.Convolution(x, w, num_filter=8, kernel=(3, 3), no_bias=True)
    for act, joined in ((F.relu, True), (F.erf, False)):
        found = operators(compile_passes([act(y)], gpu(0), stable=[w]))
        assert "_conv" in found and "_reorder" not in found
        assert (act(y).node.op.name in found) != joined


@pytest.mark.parametrize("dtype", ("float32", "bfloat16"))
def test_attention_is_found_in_every_type_that_has_a_kernel(dtype):
    q, k, v = inputs(dtype, (6, 5, 8), (6, 7, 8), (6, 7, 8))
    p = F.softmax(F._mul_scalar(F.batch_dot(q, k, transpose_b=True), scalar=0.5), axis=-1)
    y = F.batch_dot(p, v)
    assert "_attention" in operators(compile_passes([y], gpu(0)))
    on_cpu = dtype == "float32" or bool(lib.plk_isa_has(lib.PLK_HAS_BF16))
    assert ("_attention" in operators(compile_passes([y], cpu()))) == on_cpu


class Attention(nn.HybridBlock):
    """One layer: projections, attention, a dense layer with gelu, and the sum of both."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.project = nn.Dense(48, flatten=False, in_units=16)
            self.after = nn.Dense(16, flatten=False, in_units=16, activation="relu")

    def hybrid_forward(self, F, x):
        q, k, v = F.split(self.project(x), num_outputs=3, axis=-1)
        heads = lambda a: F.reshape(
            F.transpose(F.reshape(a, (0, 0, 2, -1)), (0, 2, 1, 3)), (-3, 0, 0)
        )
        p = F.softmax(F.batch_dot(heads(q), heads(k), transpose_b=True) / 8**0.5, axis=-1)
        y = F.reshape(F.batch_dot(p, heads(v)), (-4, -1, 2, 0, 0))
        y = F.reshape(F.transpose(y, (0, 2, 1, 3)), (0, 0, -3))
        return x + self.after(y)


def convolutions():
    net = nn.HybridSequential()
    net.add(nn.Conv2D(8, 3, padding=1, in_channels=3), nn.BatchNorm(in_channels=8))
    net.add(nn.Activation("relu"), nn.MaxPool2D(2), nn.Conv2D(8, 3, groups=8, in_channels=8))
    net.add(nn.GlobalAvgPool2D(), nn.Dense(4, in_units=8))
    return net


@pytest.mark.parametrize(
    "make, shape",
    [(Attention, (2, 5, 16)), (convolutions, (2, 3, 9, 10))],
    ids=["attention", "conv"],
)
@pytest.mark.parametrize("train", (True, False))
def test_blocks_compute_what_they_do_on_the_cpu(make, shape, train):
    net, rng = make(), np.random.default_rng(0)
    net.initialize(mx.init.Xavier())
    parameters = net.collect_params()
    values = {n: p.data().asnumpy() for n, p in parameters.items()}
    x0, got = rng.standard_normal(shape), []
    for device in (cpu(), gpu(0)):
        parameters.reset_ctx(device)
        for name, p in parameters.items():
            p.set_data(nd.array(values[name], ctx=device))
        net.hybridize(static_alloc=True, static_shape=True)
        for _ in range(4):  # the later ones run what passes made
            x = nd.array(x0, ctx=device)
            x.attach_grad()
            with autograd.record(train_mode=train):
                y = net(x)
            y.backward()
            mx.nd.waitall()
        got.append((y.asnumpy(), x.grad.asnumpy()))
    for a, b in zip(*got, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=10 * TOLERANCE["float32"])
