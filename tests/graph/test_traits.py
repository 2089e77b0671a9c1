"""Passes ask records for traits: an operator with another name is served like its model."""

import dataclasses

import pytest
from plait.engine import cpu
from plait.graph.graph import Builder, Value, rewrite, topological, typed_node, variable, verify
from plait.graph.passes.algebra import algebra
from plait.graph.passes.attention import attention
from plait.graph.passes.epilogue_conv import epilogue_conv
from plait.graph.passes.epilogue_dense import epilogue_dense
from plait.graph.passes.fuse import fuse
from plait.graph.passes.norm_act import norm_act
from plait.graph.passes.views import view_of
from plait.kernels import backend
from plait.kernels.cpu import jit
from plait.kernels.record import REGISTRY, Operator, Type, lookup
from plait.kernels.traits import Constant, Identity, Matmul, Sum, kind_text

F = Builder(train=True)
CPU = backend.of(cpu())


@pytest.fixture
def twins(monkeypatch):
    """Gives a graph whose operators all have other names, and are otherwise the same."""
    made = {}

    def twin(op):
        if op not in made:
            fields = {f.name: getattr(op, f.name) for f in dataclasses.fields(Operator)}
            made[op] = Operator(**fields | {"name": f"twin of {op.name}", "aliases": ()})
            monkeypatch.setitem(REGISTRY, made[op].name, made[op])
        return made[op]

    def renamed(outputs):
        def replace(node, inputs):
            if node.op is None:
                return None
            own = typed_node(twin(node.op), node.attrs, inputs, node.name)
            return [Value(own, i) for i in range(len(own.types))]

        return rewrite(outputs, replace)

    return renamed


def names(outputs):
    return {n.op.name for n in topological(outputs) if n.op is not None}


def x_(*shape, name="x"):
    return variable(name, Type(shape))


def _attention_graph():
    q, k, v = (x_(2, 4, 5, 8, name=n) for n in "qkv")
    scores = F.batch_dot(q, k, transpose_b=True) * 0.5
    return F.batch_dot(F.softmax(scores, axis=-1), v)


def _convolution_graph():
    x, w = x_(2, 3, 8, 8), x_(4, 3, 3, 3, name="w")
    y = F.Convolution(x, w, kernel=(3, 3), num_filter=4, no_bias=True)
    scale = [x_(4, name=f"s{i}") for i in range(4)]
    return Builder().BatchNorm(y, *scale), [w, *scale]


def _norm_graph():
    y = F.BatchNorm(x_(2, 3, 4, 4), *(x_(3, name=f"s{i}") for i in range(4)))
    return F.clip(y, a_min=0.0, a_max=6.0)


def test_products(twins):
    x, w, b = x_(3, 4), x_(5, 4, name="w"), x_(5, name="b")
    y = F.Activation(F.FullyConnected(x, w, b, num_hidden=5), act_type="tanh")
    made = epilogue_dense(twins([y]), CPU)
    verify(made)
    assert "_dense" in names(made)
    assert not any("twin of FullyConnected" in n for n in names(made))


def test_gradients_of_a_weight_and_its_bias(twins):
    dy, x = x_(6, 5, name="dy"), x_(6, 4)
    made = epilogue_dense(twins([F.dot(dy, x, transpose_a=True), F.sum(dy, axis=0)]), CPU)
    assert "_dot_sum" in names(made)


def test_attention(twins):
    made = attention(twins([_attention_graph()]), CPU)
    verify(made)
    assert "_attention" in names(made)


def test_convolution_and_normalisation(twins):
    y, stable = _convolution_graph()
    made = epilogue_conv(twins([y]), stable, CPU)
    verify(made)
    assert "_conv" in names(made)
    assert not any("BatchNorm" in n or "Convolution" in n for n in names(made))


def test_activation_after_a_normalisation(twins):
    assert "_batch_norm_act" in names(norm_act(twins([_norm_graph()]), CPU))


@pytest.mark.skipif(jit.compiler() is None, reason="no C compiler here")
def test_softmax_and_reductions_in_groups(twins):
    y = F.softmax(x_(64, 64) * 0.5, axis=-1)
    (made,) = fuse(twins([y]), cpu())
    assert made.node.op is lookup("_fused")
    (made,) = fuse(twins([F.mean(F.exp(x_(64, 64)) * 2.0, axis=1)]), cpu())
    assert made.node.op is lookup("_fused")


@pytest.mark.parametrize(
    "identity",
    [
        lambda x: x * 1.0,
        lambda x: F.broadcast_mul(x, F._ones(shape=(3, 4))),
        lambda x: F.negative(F.negative(x)),
        lambda x: F.transpose(F.SwapAxis(x, dim1=0, dim2=1)),
        lambda x: F.BlockGrad(x),
        lambda x: F.add_n(x, num_args=1),
        lambda x: F.reshape_to(F.reshape_to(x, shape=(12,)), shape=(3, 4)),
        lambda x: Builder().Dropout(x),
    ],
)
def test_identities(twins, identity):
    x = x_(3, 4)
    (graph,) = twins([identity(x)])
    assert graph.node.op is not None
    assert algebra([graph]) == [x]


def test_views(twins):
    x = x_(6, 8)
    y = F.slice_axis(F.transpose(F.reshape_to(x, shape=(6, 2, 4))), axis=0, begin=1, end=3)
    (graph,) = twins([y])
    view = view_of(graph)
    assert view.base == x and view.at == 1 and view.axes == view_of(y).axes


def test_stopped_gradients_are_not_views():
    """Attention is found before gradients are taken: it must not look through BlockGrad."""
    x = x_(3, 4)
    assert view_of(F._copy(x)).base == x
    stopped = F.BlockGrad(x)
    assert view_of(stopped).base == stopped


def test_traits_of_records():
    assert lookup("dot").has(Matmul) and not lookup("dot").has(Sum)
    assert lookup("add_n").trait(Sum) is not None and lookup("add_n").trait(Matmul) is None
    assert lookup("zeros_like").trait(Constant).value == 0
    dropout = lookup("Dropout")
    attrs = dropout.parse({"p": 0.5})
    assert not dropout.trait(Identity).holds(attrs | {"train": True})
    assert dropout.trait(Identity).holds(attrs | {"train": False})
    assert kind_text(lookup("zeros_like").trait(Constant)) == "constant (0)"


def test_a_record_has_one_trait_of_a_kind():
    for op in set(REGISTRY.values()):
        assert len(op.kinds) == len(op.traits), op
