"""find_nan: where the first NaN or Inf comes from; NumPy says what is finite."""

from pathlib import Path

import numpy as np
import plait as mx
import pytest
from plait import gluon, nd
from plait.gluon import nn
from plait.monitor import find_nan

LOSS = gluon.loss.L2Loss()


class Log(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        return F.log(F.relu(x))  # the line


class Root(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        return F.sqrt(F.relu(x))


def net_with(layer):
    net = nn.HybridSequential()
    net.add(nn.Dense(4), nn.BatchNorm(), layer, nn.Dense(2))
    net.initialize(mx.init.Normal(1))
    return net


X = np.random.default_rng(1).normal(size=(6, 5)).astype(np.float32)
Y = np.ones((6, 2), np.float32)


@pytest.mark.parametrize("hybridize", [False, True])
def test_the_operator_that_makes_it_in_forward(hybridize):
    net = net_with(Log())
    if hybridize:
        net.hybridize()
    found = find_nan(net, nd.array(X), loss=LOSS, labels=nd.array(Y))
    assert (found.where, found.operator, found.kind) == ("forward", "log", "Inf")
    assert found.made_here and found.layer == "2 (Log)"
    file, line = found.line.rsplit(":", 1)
    assert file == __file__ and "# the line" in Path(file).read_text().split("\n")[int(line) - 1]
    (read,) = found.inputs
    assert read.is_finite and read.low == 0 and read.shape == (6, 4) and read.dtype == "float32"
    assert found.output.n_inf > 0 and found.output.finite_share < 1
    assert "logarithm of 0" in found.fix
    text = str(found)
    assert "log makes Inf in forward" in text and "layer: 2 (Log)" in text and "fix:" in text


@pytest.mark.parametrize("hybridize", [False, True])
def test_the_operator_whose_gradient_is_infinite(hybridize):
    net = net_with(Root())
    if hybridize:
        net.hybridize()
    assert find_nan(net, nd.array(X)) is None  # forward is finite
    found = find_nan(net, nd.array(X), loss=LOSS, labels=nd.array(Y))
    assert (found.where, found.operator, found.layer) == ("backward", "sqrt", "2 (Root)")
    assert found.inputs[-1].low == 0 and found.output.n_inf > 0  # 1 / (2 sqrt(0))
    assert "infinite at 0" in found.fix and "computed by" in str(found)


def test_it_changes_nothing():
    net = net_with(nn.Activation("tanh"))
    net(nd.array(X))
    before = {k: p.data().asnumpy() for k, p in net._collect_params_with_prefix().items()}
    assert find_nan(net, nd.array(X), loss=LOSS, labels=nd.array(Y)) is None
    for k, p in net._collect_params_with_prefix().items():
        assert np.array_equal(before[k], p.data().asnumpy()), k


def test_what_came_in_with_data_or_parameters():
    net = net_with(nn.Activation("tanh"))
    bad = X.copy()
    bad[2, 3] = np.nan
    found = find_nan(net, nd.array(bad))
    assert (found.where, found.made_here, found.output.n_nan) == ("data", False, 1)
    found = find_nan(net, nd.array(X), loss=LOSS, labels=nd.array(Y * np.inf))
    assert found.where == "data" and "label 0" in str(found)
    net(nd.array(X))
    net[3].weight.data()[0, 0] = np.inf
    found = find_nan(net, nd.array(X))
    assert (found.where, found.operator, found.kind) == ("parameter", "3.weight", "Inf")
    assert "learning rate" in found.fix


@pytest.mark.parametrize(
    "function, values, operator, kind, fix",
    [
        (lambda x: nd.exp(x), [1, 100], "exp", "Inf", "exp of more than 89"),
        (lambda x: x / (x - 1), [1, 3], "broadcast_div", "Inf", "division by 0"),
        (lambda x: nd.log(x), [-1, 3], "log", "NaN", "negative number"),
        (lambda x: nd.sqrt(x), [-1, 3], "sqrt", "NaN", "a root of a negative number"),
        (lambda x: nd.arcsin(x), [2, 0], "arcsin", "NaN", "not defined for 0 to 2"),
        (lambda x: x * x, [1e30, 1], "broadcast_mul", "Inf", "the network diverges"),
    ],
)
def test_what_helps(function, values, operator, kind, fix):
    found = find_nan(function, nd.array(values))
    assert (found.operator, found.kind) == (operator, kind) and fix in found.fix


def test_half_precision_overflows():
    found = find_nan(lambda x: x * x, nd.array([1, 300], dtype="float16"))
    assert found.kind == "Inf" and "float16 holds numbers up to 6.55e+04" in found.fix
    assert found.inputs[0].high == 300


def test_an_infinity_that_is_meant_is_none():
    mask = nd.array([0, 1, 1])
    hidden = lambda x: nd.softmax(nd.where(mask, x, nd.full((3,), -np.inf)))
    assert find_nan(hidden, nd.array([1, 2, 3])) is None
    found = find_nan(lambda x: nd.full((3,), np.inf) * x, nd.array([0, 1, 1]))
    assert (found.operator, found.kind) == ("broadcast_mul", "NaN")  # Inf times 0


def test_a_network_of_a_file(tmp_path):
    net = net_with(Log())
    net.hybridize()
    net(nd.array(X))
    net.export(tmp_path / "net")
    files = [str(tmp_path / "net-symbol.json"), ["data"], str(tmp_path / "net-0000.params")]
    found = find_nan(gluon.SymbolBlock.imports(*files), nd.array(X))
    assert found.operator == "log"
