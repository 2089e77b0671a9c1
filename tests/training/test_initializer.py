"""Initializers: values, statistics, rules by name, text form."""

import json

import numpy as np
import pytest
from plait import gluon, nd
from plait.gluon import nn
from plait.training import initializer as init


def filled(initializer, shape, name="x_weight"):
    array = nd.full(shape, 7.0)
    initializer(init.InitDesc(name), array)
    return array.asnumpy()


@pytest.mark.parametrize(
    "made, std",
    [
        (init.Uniform(0.3), 0.3 / 3**0.5),
        (init.Normal(0.2), 0.2),
        (init.Xavier(), (3 / 250) ** 0.5 / 3**0.5),
        (init.Xavier("gaussian", "in", 2), (2 / 200) ** 0.5),
        (init.Xavier("gaussian", "out", 2), (2 / 300) ** 0.5),
        (init.MSRAPrelu(slope=0.0), (2 / 250) ** 0.5),
    ],
)
def test_statistics(made, std):
    values = filled(made, (300, 200))
    assert abs(values.mean()) < 4 * std / values.size**0.5
    assert values.std() == pytest.approx(std, rel=0.02)


def test_exact_values():
    assert (filled(init.One(), (2, 2)) == 1).all() and (filled(init.Zero(), (2, 2)) == 0).all()
    assert (filled(init.Constant(3), (2, 2)) == 3).all()
    q = filled(init.Orthogonal(scale=2.0), (4, 9))
    np.testing.assert_allclose(q @ q.T, 4 * np.eye(4), atol=1e-5)
    np.testing.assert_allclose(
        filled(init.Bilinear(), (1, 1, 4, 4))[0, 0, 1], [0.1875, 0.5625, 0.5625, 0.1875]
    )
    lstm = nd.zeros((8,))
    init.LSTMBias(2.0)._init_weight("b", lstm)
    assert lstm.asnumpy().tolist() == [0, 0, 2, 2, 0, 0, 0, 0]


def test_fused_rnn_fills_weights_biases_and_forget_gates():
    n = 4 * 3 * (2 + 3) + 4 * 3 * 2  # LSTM, input 2, hidden 3
    values = filled(init.FusedRNN(init.One(), 3, 1, "lstm", forget_bias=2.0), (n,))
    assert (values[:60] == 1).all()
    assert values[60:].tolist() == ([0] * 3 + [2] * 3 + [0] * 6) * 2


def test_rules_by_the_end_of_the_name():
    for name, value in (
        ("a_bias", 0),
        ("a_gamma", 1),
        ("a_beta", 0),
        ("a_running_var", 1),
        ("a_moving_mean", 0),
    ):
        assert (filled(init.Normal(), (2,), name) == value).all()
    with pytest.raises(ValueError, match="Unknown initialization pattern for a_foo"):
        filled(init.Normal(), (2,), "a_foo")
    array = nd.zeros((2,))
    init.Normal()(init.InitDesc("a_bias", {"__init__": init.One().dumps()}), array)
    assert (array.asnumpy() == 1).all()


def test_initializer_is_recreated_from_its_text():
    for made in (
        init.Xavier("gaussian", "in", 2),
        init.Normal(2),
        init.MSRAPrelu(),
        init.Constant(2),
    ):
        assert init.create(made.dumps()) == made
    assert json.loads(init.Xavier().dumps()) == [
        "xavier",
        {"rnd_type": "uniform", "factor_type": "avg", "magnitude": 3},
    ]
    assert isinstance(init.create("zeros"), init.Zero)
    with pytest.raises(ValueError, match="did you mean 'xavier'"):
        init.create("xaviar")


def test_wrong_shapes_and_types():
    with pytest.raises(ValueError, match="cannot be applied to vector"):
        filled(init.Xavier(), (4,))
    with pytest.raises(ValueError, match="Incorrect factor type"):
        filled(init.Xavier(factor_type="x"), (4, 4))
    with pytest.raises(TypeError, match="name must be string"):
        init.One()(3, nd.zeros((1,)))


def test_networks_take_mixed_load_and_own_initializers():
    net = nn.Dense(2, in_units=3, prefix="fc_", bias_initializer="ones")
    net.initialize(init.Mixed([".*weight", ".*"], [init.Constant(5), init.Zero()]))
    assert (net.weight.data().asnumpy() == 5).all() and (net.bias.data().asnumpy() == 1).all()
    net.initialize(
        init.Load({"arg:fc_weight": nd.full((2, 3), 4.0)}, default_init=init.Zero()),
        force_reinit=True,
    )
    assert (net.weight.data().asnumpy() == 4).all()
    with pytest.raises(ValueError, match=r"target \(2, 3\) vs loaded \(1,\)"):
        net.initialize(init.Load({"fc_weight": nd.ones((1,))}), force_reinit=True)


def test_custom_initializers_register():
    @init.register
    class Sevens(init.Initializer):
        def _init_weight(self, name, array):
            init.Constant(7)._init_weight(name, array)

    p = gluon.Parameter("anything", shape=(2,), init="sevens")
    p.initialize()
    assert (p.data().asnumpy() == 7).all()
