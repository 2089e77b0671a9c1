"""State dicts of torch in blocks of ours, beside the outputs that torch_weights.py printed."""

import numpy as np
import plait as mx
import pytest
import torch_nets as nets
from plait import gluon, interop, nd
from plait.gluon import nn, rnn
from safetensors.numpy import save_file

CASES = {
    "resnet": (
        nets.resnet,
        nets.resnet_shapes(),
        nets.RESNET,
        nets.pixels(),
        [[-3.42979, 3.22818, 5.61157, -2.18925], [-3.54109, 3.3395, 5.7068, -2.16288]],
    ),
    "transformer": (
        lambda: nets.Transformer(50, 32, 2, 4),
        nets.transformer_shapes(50, 32, 2),
        nets.TRANSFORMER,
        nets.words(50),
        [[-0.32683, 0.72388, -0.04266, -0.71492], [-0.31703, 0.71787, -0.04138, -0.71629]],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_outputs_are_those_of_torch(name, tmp_path):
    make, shapes, table, data, wanted = CASES[name]
    path = tmp_path / "weights.safetensors"
    save_file(nets.weights(shapes), path)
    net = make()
    net.load_dict(interop.torch_names(net, nd.load(path), table))
    for hybrid in (False, True):
        net.hybridize(hybrid)
        got = net(nd.array(data)).asnumpy().reshape(2, -1)[:, :4]
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=2e-5)


def drawn(**shapes):
    return {k: nd.array(v) for k, v in nets.weights(shapes).items()}


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_recurrent_layers(kind):
    net = gluon.nn.HybridSequential()
    net.add(getattr(rnn, kind)(3, 2, bidirectional=True, input_size=4))
    n = {"LSTM": 12, "GRU": 9, "RNN": 3}[kind]
    state = {}
    for layer, n_in in ((0, 4), (1, 6)):
        for end in ("", "_reverse"):
            at = f"cell.{{}}_l{layer}{end}"
            state |= drawn(**{at.format("weight_ih"): (n, n_in), at.format("weight_hh"): (n, 3)})
            state |= drawn(**{at.format("bias_ih"): (n,), at.format("bias_hh"): (n,)})
    net.load_dict(interop.torch_names(net, state, {"cell": "0"}))
    own = net.collect_params()
    assert {p.shape for p in own.values()} == {(n, 4), (n, 6), (n, 3), (n,)}
    got = net._collect_params_with_prefix()["0.r1_h2h_weight"].data().asnumpy()
    np.testing.assert_array_equal(got, state["cell.weight_hh_l1_reverse"].asnumpy())


def test_layers_without_a_table_a_function_and_what_is_left_out():
    net = nn.HybridSequential()
    net.add(nn.Dense(2, in_units=3), nn.PReLU(), nn.LayerNorm(in_channels=2))
    state = {f"{i}.weight": x for i, x in enumerate(drawn(a=(2, 3), b=(1,), c=(2,)).values())}
    state |= {"0.bias": nd.ones(2), "2.bias": nd.ones(2), "head.weight": nd.ones(1)}
    found = interop.torch_names(net, state, {"head": None})
    assert set(found) == set(net._collect_params_with_prefix())
    again = interop.torch_names(net, state, lambda layer: None if layer == "head" else layer)
    assert again == found
    alone = interop.torch_names(net[0], {"weight": state["0.weight"], "bias": nd.ones(2)}, {})
    assert set(alone) == {"weight", "bias"}


def test_mistakes():
    net = nn.HybridSequential()
    net.add(nn.Dense(2, in_units=3))
    state = {"fc.weight": nd.ones((2, 3))}
    for table, message in (
        ({}, "fc.weight would be fc.weight, which the block lacks\n  fix: "),
        ({"fc": "1"}, "fc.weight would be 1.weight, .*\n  fix: did you mean '0.weight'"),
        ({"fc": ("0", "0")}, "fc.weight and another array are both 0.weight"),
    ):
        with pytest.raises(ValueError, match=message) as e:
            interop.torch_names(net, state, table)
        assert isinstance(e.value, mx.MXNetError)
    with pytest.raises(mx.MXNetError, match="bias"):  # is missing
        net.load_dict(interop.torch_names(net, state, {"fc": "0"}))
    with pytest.raises(TypeError, match="load_dict: needs a dict"):
        net.load_dict([nd.ones(1)])
